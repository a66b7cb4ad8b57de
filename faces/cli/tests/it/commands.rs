//! Every command, as documented.

use crate::common::{
    Home, benchmarks, binary, document, json, said, said_to, shows, tree, wait_until,
};
use handover_record::{ContenderKind, Document, Unit, Wait, WarningCode};
use regex_lite::Regex;
use rustix::process::Signal;
use std::fs;

/// Commands that `--help` lists.
const LISTED: &[&str] = &[
    "run",
    "sweep",
    "prove",
    "plot",
    "bench",
    "compare",
    "history",
    "fleet",
    "anatomy",
    "time",
    "doctor",
    "list",
    "explain",
    "show",
    "report",
    "runs",
    "serve",
    "tag",
    "delete",
    "vacuum",
    "export",
    "import",
    "trace",
    "links",
    "hello1",
    "hello2",
    "hello3",
    "hello4",
    "hello5",
    "sched",
    "trylock",
    "notify",
    "calls",
    "node-microbench",
    "evh_perf",
    "margo-p2p-latency",
    "margo-p2p-bw",
    "rpc-scale",
    "abt-eventual-bench",
    "sweep-abt-eventual-bench",
    "plot-abt-eventual-bench",
    "completions",
    "man",
];

#[test]
fn help_of_every_command_has_no_side_effects() {
    let home = Home::new();
    for command in LISTED.iter().chain(&[""]) {
        // The classic program has an option -h of its own.
        let short = if *command == "evh_perf" { "--help" } else { "-h" };
        for option in ["--help", short] {
            let said = home.run(&format!("{command} {option}")).code(0);
            assert!(said.out.contains("Usage: handover") && said.err.is_empty(), "{said}");
        }
    }
    assert!(!home.data().exists() && tree(&home.cwd()).is_empty());
}

#[test]
fn doctor_lists_findings_with_remedies() {
    let home = Home::new();
    let said = home.ok("doctor --time 50ms");
    for code in ["governor", "clock-source", "steal", "neighbours", "fds"] {
        assert!(said.lines().any(|line| line.split_whitespace().nth(1) == Some(code)), "{said}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&home.ok("doctor --time 0 --json")).expect("one document");
    let findings = json["findings"].as_array().expect("a list");
    assert!(findings.len() >= 15 && findings.iter().all(|it| it["code"] != "steal"), "{json}");
    assert!(findings.iter().all(|it| it["level"] != "disturbs" || it["mend"].is_string()));
    // A run examines the machine too, and stores the findings.
    let run: serde_json::Value =
        serde_json::from_str(&home.ok("run clock --profile smoke --json --no-report"))
            .expect("JSON");
    let kept = run["run"]["findings"].as_array().expect("kept");
    assert!(kept.iter().any(|it| it["code"] == "clock-source"), "{run}");
}

#[test]
fn help_lists_every_command() {
    let help = Home::new().ok("--help");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let mut names: Vec<&str> =
        commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    names.retain(|name| !name.is_empty());
    assert_eq!(names, [LISTED, &["help"]].concat());
}

#[test]
fn version_contains_the_commit() {
    let said = Home::new().ok("--version");
    let form = Regex::new(r"^handover \d+\.\d+\.\d+( \([0-9a-f]{12}(\+dirty)?\))?\n$").unwrap();
    assert!(form.is_match(&said), "{said}");
}

/// Returns the ids that `list` prints.
fn listed(home: &Home, words: &str) -> Vec<String> {
    let text = home.ok(&format!("list {words}"));
    let heads = text.lines().filter(|line| !line.starts_with(' '));
    heads.filter_map(|line| line.split_whitespace().next()).map(str::to_string).collect()
}

#[test]
fn list_has_every_benchmark_as_text_and_as_json() {
    let home = Home::new();
    let ids = listed(&home, "");
    assert!(ids.len() >= 30, "{ids:?}");
    let all = json(&home.ok("list --json"));
    assert_eq!(all["schema"], 1);
    let all = all["benchmarks"].as_array().expect("benchmarks").clone();
    let in_json: Vec<_> = all.iter().map(|it| it["id"].as_str().expect("an id")).collect();
    assert_eq!(in_json, ids);
    for it in &all {
        let text = |field: &str| it[field].as_str().is_some_and(|text| !text.is_empty());
        assert!(text("what") && text("unit") && text("source"), "{it}");
        assert!(!it["contenders"].as_array().expect("contenders").is_empty(), "{it}");
        let floor = it["floor"].as_str();
        assert!(floor.is_none_or(|floor| ids.iter().any(|id| floor.starts_with(id))), "{it}");
    }
    assert!(!home.data().exists());
}

#[test]
fn explain_tells_what_is_timed_and_how_each_contender_waits() {
    let home = Home::new();
    let said = home.ok("explain notify/round-trip lock/passed");
    let (lock, notify) = said.split_once("\n\n").expect("two benchmarks");
    assert!(notify.starts_with("notify/round-trip: "), "{said}");
    assert!(notify.contains("\n  source: lab/suite/src/notify.rs:"), "{said}");
    assert!(
        notify.contains("\n  floor: floor/") && notify.contains("(lab/suite/src/floor"),
        "{said}"
    );
    let ours = notify.lines().find(|line| line.trim_start().starts_with("handover "));
    assert!(ours.is_some_and(|line| line.ends_with("  ours; spins, then sleeps")), "{said}");
    assert!(notify.contains("peer; sleeps"), "{said}");
    for part in ["lock/passed/busy: ", "lock/passed/post: ", "`handover anatomy lock/passed`"] {
        assert!(lock.contains(part), "{part}: {said}");
    }
    for (id, is_optional) in [("bulk/pull", true), ("net/idle-bytes", false), ("ring/array", false)]
    {
        let said = home.ok(&format!("explain {id}"));
        assert_eq!(said.contains("`--processes` makes them processes"), is_optional, "{said}");
    }
    home.run("explain nosuch/bench").code(2).tells(&["nosuch/bench: no benchmark matches;"]);
    home.run("explain").code(2).tells(&["<PATTERN>"]);
}

#[test]
fn commands_are_timed_alternately_after_their_preparation() {
    let home = Home::new();
    // Each run of a command needs a file that only the preparation makes, and removes it.
    let line = "time --runs 8 --prepare 'touch ready' --versus 'sh -c \"sleep 0.05; rm ready\"' --json -- rm ready";
    let timed = json(&said(home.shell(&format!("handover {line}"))).code(0).out);
    let [first, second] = &timed["commands"].as_array().expect("commands")[..] else {
        panic!("{timed}")
    };
    assert_eq!(first["command"], serde_json::json!(["rm", "ready"]));
    assert_eq!(second["command"], serde_json::json!(["sh", "-c", "sleep 0.05; rm ready"]));
    for command in [first, second] {
        assert_eq!(command["wall_ns"].as_array().map(Vec::len), Some(8), "{command}");
    }
    assert_eq!(first["ratio_to_first"], 1.0);
    let slept = second["wall_ns"].as_array().expect("times").iter();
    assert!(slept.clone().all(|it| it.as_f64() >= Some(5e7)), "{second}");

    let said = home.run("time --runs 2 --versus true -- true").code(0);
    assert!(said.out.lines().filter(|line| line.ends_with("  true")).count() == 2, "{said}");
    assert!(said.out.contains("Too few rounds for a verdict"), "{said}");
    home.run("time -- false").code(1).tells(&["false failed with", "--ignore-failure"]);
    home.ok("time --runs 1 --ignore-failure -- false");
    // The runs before a failure are shown.
    let said = home.run("time --warm-up 0 --runs 3 -- mkdir once").code(1);
    let said = said.tells(&["mkdir once failed with"]);
    assert!(said.out.lines().any(|line| line.ends_with("  mkdir once")), "{said}");
    home.run("time --prepare false -- true")
        .code(1)
        .tells(&["--prepare false: the command failed"]);
    home.run("time --versus \" -- true").code(2).tells(&["--versus", "unclosed quote"]);
    home.run("time -- nosuchprogram").code(2).tells(&["cannot run nosuchprogram"]);
    home.run("time true").code(2).tells(&["'true'", "--help after the command"]);
    home.run("time").code(2).tells(&["<CMD>"]);
}

#[test]
fn interrupted_time_shows_the_completed_rounds() {
    let home = Home::new();
    let prepare = "echo turn >>turns";
    let words =
        ["time", "--runs", "100000", "--prepare", prepare, "--versus", "true", "--", "true"];
    let running = home.start(home.handover(words));
    let turns = home.cwd().join("turns");
    let turns_count = || fs::read_to_string(&turns).unwrap_or_default().lines().count();
    // The first turns are those of the warm-up.
    wait_until("some rounds", || turns_count() > 10);
    running.signal(Signal::INT);
    let said = running.finish().code(130).tells(&["interrupted", "not stored"]);
    assert!(said.out.lines().filter(|line| line.ends_with("  true")).count() == 2, "{said}");
}

#[test]
fn list_accepts_prefixes_and_globs() {
    let home = Home::new();
    let all = listed(&home, "");
    let those = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
        all.iter().filter(|id| is(id)).cloned().collect()
    };
    assert_eq!(listed(&home, "lock"), those(&|id| id.starts_with("lock")));
    assert_eq!(listed(&home, "lock/bus notify"), {
        those(&|id| id.starts_with("lock/busy") || id.starts_with("notify"))
    });
    // An id selects only itself.
    assert_eq!(listed(&home, "lock/busy"), ["lock/busy"]);
    let coarse = |id: &str| id.starts_with("clock/") && id.ends_with("-coarse");
    assert_eq!(listed(&home, "clock/*-coarse"), those(&coarse));
    // A figure of a benchmark selects the benchmark.
    assert_eq!(listed(&home, "lock/passed/po"), ["lock/passed"]);
    assert_eq!(listed(&home, "*/passed/{free,post}"), ["lock/passed"]);
}

/// Checks properties of every figure of a smoke run.
fn check_smoke(document: &Document) {
    for it in &document.records {
        // The net cost of a few operations, without their generator, may be zero, and so may a
        // figure that is not a time.
        let may_be_nothing = it.unit != Unit::Ns;
        assert!((it.summary.median > 0.0 || may_be_nothing) && it.summary.ops > 0, "{it}");
        assert!(it.warnings.iter().any(|it| it.code == WarningCode::Smoke), "{it}");
    }
}

#[test]
fn default_command_measures_shows_and_stores_the_ladder_and_writes_the_report() {
    let home = Home::new();
    let said = home.run("--profile smoke --all").code(0);
    let run = home.last();
    check_smoke(&run);
    let listed = json(&home.ok("list --json"));
    let ladder = listed["benchmarks"].as_array().expect("benchmarks").iter();
    let ladder = ladder.filter(|it| it["ladder"] == true).map(|it| it["id"].as_str().expect("id"));
    let not_null = |id: &&str| !id.starts_with("null/");
    let measured = benchmarks(&run).into_iter().filter(not_null);
    assert_eq!(measured.collect::<Vec<_>>(), ladder.filter(not_null).collect::<Vec<_>>());
    let page = fs::read_to_string(home.cwd().join("report.html")).expect("the page");
    for it in &run.records {
        assert!(crate::common::shows(&said.out, &it.id), "{} is not in the table: {said}", it.id);
        assert!(page.contains(&it.id), "{} is not on the page", it.id);
        assert!(said.err.contains(&format!("{} measured\n", it.spec)), "{said}");
    }
    // The resolution of a smoke run is not reported, as such a run measures nothing.
    assert!(!said.out.contains("cannot see differences") && !said.out.contains("±0.0"), "{said}");
    let where_it_is = format!("run {} is in {}\n", run.run.id, home.db().display());
    assert!(said.out.contains(&where_it_is), "{said}");
    let page = home.cwd().join("report.html").canonicalize().expect("the page");
    assert!(said.out.contains(&format!("the report page is {}\n", page.display())), "{said}");
    assert!(run.run.complete && run.run.profile == "smoke" && run.run.null_one.is_some());
    assert!(run.run.command.ends_with(" --profile smoke --all"), "{}", run.run.command);
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn participants_run_as_processes_where_supported() {
    let home = Home::new();
    home.ok("run floor/cache floor/futex floor/eventfd floor/pipe floor/socket notify \
             --processes --profile smoke --no-report");
    let run = home.last();
    check_smoke(&run);
    let several = run.records.iter().filter(|it| it.participants.roles.len() > 1);
    let in_processes = several.filter(|it| it.participants.processes).count();
    let threads: Vec<_> = run.records.iter().filter(|it| !it.participants.processes).collect();
    assert!(in_processes >= 10, "{in_processes}");
    assert!(threads.iter().all(|it| it.spec.starts_with("null/")), "{threads:?}");
    assert!(home.processes().is_empty(), "a participant process was left behind");
}

#[test]
fn json_output_is_exactly_one_document() {
    let home = Home::new();
    let said = home.run("run clock/now lock/free --profile smoke --json").code(0);
    let run = document(&said.out);
    assert_eq!(run.schema, 1);
    assert_eq!(run.host, run.run.host);
    assert_eq!(said.out.lines().count(), 1);
    assert!(said.err.contains(&format!("run {} is in", run.run.id)), "{said}");
    assert!(said.err.contains("the report page is"), "{said}");
    assert_eq!(home.ok("show --json"), said.out);
}

#[test]
fn short_measurement_gives_an_interval_for_each_figure() {
    let home = Home::new();
    let run = document(&home.ok("run clock/now --time 100ms --no-report --json"));
    for it in &run.records {
        let figure = &it.summary;
        let (low, high) = figure.interval_bounds().expect("eight passes");
        assert!(0.0 < low && low <= figure.median, "{it}");
        assert!(figure.median <= high, "{it}");
        let of = figure.quantiles().expect("operations timed alone");
        assert!(of.min <= of.p50 && of.p50 <= of.p90 && of.p90 <= of.p99, "{it}");
        assert!(of.p99 <= of.p999 && of.p999 <= of.max, "{it}");
        assert!(it.rounds.len() >= 15, "{it}: {} rounds", it.rounds.len());
        assert!(it.floor.is_some() && it.rate_per_s > 0.0 && !it.histogram.is_empty(), "{it}");
    }
    assert_eq!(benchmarks(&run), ["clock/now", "null/one-cpu", "null/two-cpus"]);
    assert!(run.run.null_one.is_some_and(|width| width > 0.0));
    assert!(!home.cwd().join("report.html").exists());
}

#[test]
fn planted_costs_are_measured_and_stored_with_the_run() {
    let home = Home::new();
    let said = home.run("prove --profile smoke").code(0);
    for planted in [
        "1ns",
        "10ms",
        "tail-in-batches, p99",
        "two-modes",
        "stalled",
        "our-lock",
        "layout",
        "two builds of one code",
    ] {
        assert!(said.out.contains(planted), "{planted}: {said}");
    }
    let run = home.last().run;
    assert!(run.complete && run.proofs.len() > 20 && run.seed > 0, "{run:?}");
    assert!(run.proofs.iter().any(|it| it.what == "proof/1us" && it.read.is_some()), "{run:?}");
    let copied = run.proofs.iter().find(|it| it.unit == "rows").expect("a copy of this program");
    assert!(copied.is_proven() && copied.read == Some(0.0), "{copied:?}");
    let host = run.host;
    assert!(host.compiler.starts_with("rustc ") && !host.build_profile.is_empty(), "{host:?}");
    assert!(host.peers.iter().any(|it| it.starts_with("crossbeam-queue 0.")), "{host:?}");
    assert!(host.peers.iter().any(|it| it.starts_with("rtrb 0.")), "{host:?}");
    assert!(host.libc.is_some(), "{host:?}");
}

#[test]
fn classic_programs_are_compared_with_the_suite() {
    if std::env::var_os("HANDOVER_LONG").is_none() {
        let what = "the classic programs beside the suite";
        return crate::common::skipped(what, "HANDOVER_LONG is not set");
    }
    let home = Home::new();
    let said = home.run("prove --classics --profile smoke").code(0);
    for program in ["margo-p2p-bw", "hello4", "sched", "calls", "evh_perf", "node-microbench"] {
        assert!(said.out.contains(&format!("\n{program} ")), "{program}: {said}");
    }
    let figures = said.out.lines().skip_while(|line| !line.starts_with("classic program"));
    for line in figures.skip(1) {
        assert!(line.matches("ns").count() + line.matches("µs").count() >= 2, "{line}");
    }
}

#[test]
fn argument_values_are_used_and_recorded() {
    let home = Home::new();
    home.ok("run floor/memcpy --set size_bytes=4KiB --profile smoke --no-report");
    let run = home.last();
    for it in &run.records {
        let set = (it.spec == "floor/memcpy").then_some(4096);
        assert_eq!(it.args.get("size_bytes").copied(), set, "{it}");
    }
    home.ok(
        "run floor/socket-spin floor/memcpy --set message_bytes=100 --profile smoke --no-report",
    );
    let run = home.last();
    let sizes: Vec<_> = run.records.iter().filter_map(|it| it.args.get("message_bytes")).collect();
    assert_eq!(sizes, [&100]);
}

#[test]
fn queues_with_one_slot_are_measured() {
    let home = Home::new();
    home.ok("run ring/push-pop --set slots_count=1 --profile smoke --no-report");
    assert!(benchmarks(&home.last()).contains(&"ring/push-pop"));
}

#[test]
fn run_options_are_recorded_with_each_figure() {
    let home = Home::new();
    let run = |options: &str| {
        home.ok(&format!("run notify/round-trip --profile smoke --no-report {options}"));
        home.last()
    };
    let ours = |run: &Document| {
        let mut records = run.records.iter().filter(|it| it.kind == ContenderKind::Ours);
        records.next().expect("our figure").participants.clone()
    };
    // Which peers there are changes nothing in our participants.
    let plain = ours(&run("--no-peers"));
    assert_eq!((plain.idle_gap_ns, plain.neighbour_cpu, plain.processes), (0, None, false));
    assert_eq!(plain.placement, "near");
    assert_eq!(ours(&run("--no-peers --idle-gap 1ms")).idle_gap_ns, 1_000_000);
    assert_eq!(ours(&run("--no-peers --idle-gap 100ms")).idle_gap_ns, 100_000_000);
    assert!(ours(&run("--no-peers --neighbour")).neighbour_cpu.is_some());
    let on_one_cpu = run("--place same");
    let mut spinning = on_one_cpu.records.iter().filter(|it| it.waits == Wait::Spin).peekable();
    assert!(spinning.peek().is_some(), "a contender that spins");
    for it in spinning {
        let warned = it.warnings.iter().any(|it| it.text.contains("spin share a CPU"));
        assert!(warned, "{} {}: {:?}", it.id, it.contender, it.warnings);
    }
    let same = ours(&on_one_cpu);
    assert_eq!(same.placement, "same");
    assert!(same.cpus.iter().all(|cpu| *cpu == same.cpus[0]), "{same:?}");
    let run = run("--no-peers");
    assert!(run.records.iter().all(|it| it.kind != ContenderKind::Peer));
}

#[test]
fn every_run_has_the_null_rows() {
    let home = Home::new();
    for words in ["floor/empty", "null", "lock/free --no-peers", "floor/futex --processes"] {
        home.ok(&format!("run {words} --profile smoke --no-report"));
        let run = home.last();
        let nulls = benchmarks(&run).into_iter().filter(|id| id.starts_with("null/"));
        assert_eq!(nulls.collect::<Vec<_>>(), ["null/one-cpu", "null/two-cpus"], "{words}");
    }
}

#[test]
fn output_does_not_replace_a_store_or_a_file_named_minus() {
    let home = Home::new();
    let store = home.cwd().join("kept.db");
    home.ok("run clock/rdtsc --profile smoke --no-report --no-peers --db kept.db");
    let before = fs::read(&store).expect("a store");
    std::os::unix::fs::symlink("kept.db", home.cwd().join("link.db")).expect("a link");
    for file in ["kept.db", "./link.db"] {
        for words in [
            "run clock/rdtsc --profile smoke --no-peers --report".to_string(),
            "report --db kept.db -o".to_string(),
            "history clock/rdtsc --db kept.db --svg".to_string(),
            "anatomy event/round-trip --seconds 0.1 --svg".to_string(),
        ] {
            home.run(&format!("{words} {file}")).code(2).tells(&[file, "is a database"]);
        }
    }
    assert_eq!(fs::read(&store).expect("a store"), before);
    let minus = home.cwd().join("-");
    fs::write(&minus, "mine").expect("a file");
    home.run("report --db kept.db -o -").code(2).tells(&["name a file", "/dev/stdout"]);
    assert_eq!(fs::read(&minus).expect("the file"), b"mine");
}

#[test]
fn report_is_written_to_the_given_file_and_replaces_it() {
    let home = Home::new();
    let page = home.cwd().join("page of mine.html");
    fs::write(&page, "what was there").expect("a file");
    let mut command = home.handover(["run", "clock/now", "--profile", "smoke"]);
    command.args(["-o", "page of mine.html"]);
    let said = said(command).code(0);
    assert!(said.out.contains("page of mine.html"), "{said}");
    let written = fs::read_to_string(page).expect("the page");
    assert!(written.contains("clock/now") && !written.contains("what was there"));
    assert!(!home.cwd().join("report.html").exists());
}

/// Makes two runs, and returns their ids, the later one last.
fn two_runs(home: &Home) -> [String; 2] {
    home.ok("run clock/now --profile smoke --no-report");
    let first = home.last().run.id;
    home.ok("run lock/free --profile smoke --no-report");
    [first, home.last().run.id]
}

#[test]
fn stored_run_is_shown_as_when_measured() {
    let home = Home::new();
    let table = home.ok("run clock lock --profile smoke --no-report");
    let shown = home.ok("show");
    assert!(table.starts_with(&shown), "{table}\n--- and shown\n{shown}");
    let all = home.ok("show --all");
    for it in &home.last().records {
        assert!(all.contains(&it.contender), "{} is not in a row of its own: {all}", it.contender);
    }
    assert!(all.lines().count() > shown.lines().count());
}

#[test]
fn run_is_shown_by_id_prefix_or_position() {
    let home = Home::new();
    let [first, second] = two_runs(&home);
    let asked = |asked: &str| document(&home.ok(&format!("show {asked} --json"))).run.id;
    assert_eq!(asked(""), second);
    assert_eq!(asked("last"), second);
    assert_eq!(asked("-1"), second);
    assert_eq!(asked("-2"), first);
    assert_eq!(asked(&first), first);
    // A prefix: the id without its last letter.
    assert_eq!(asked(&first[..first.len() - 1]), first);
}

#[test]
fn unknown_run_is_refused_with_the_nearest_id() {
    let home = Home::new();
    let [first, second] = two_runs(&home);
    let misspelt = format!("{first}9");
    for command in ["show", "export"] {
        home.run(&format!("{command} {misspelt}")).code(2).tells(&[&misspelt, "nearest", &first]);
        home.run(&format!("{command} -3")).code(2).tells(&["-3"]);
        // Both began within a few seconds: their ids begin alike.
        home.run(&format!("{command} {}", &first[..4])).code(2).tells(&[&first, &second]);
    }
}

#[test]
fn runs_are_listed_as_text_and_as_json() {
    let home = Home::new();
    let ids = two_runs(&home);
    let last = home.last();
    let rows = home.runs();
    let mut in_json: Vec<_> = rows.iter().map(|row| row["id"].as_str().expect("an id")).collect();
    let text = home.ok("runs");
    let (head, lines) = text.split_once('\n').expect("a head");
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns, ["run", "began", "profile", "figures", "host", "names", "command"]);
    for (line, row) in lines.lines().zip(&rows) {
        assert!(line.starts_with(row["id"].as_str().expect("an id")), "{text}");
        assert!(line.contains(&format!("  {} ", row["records"])), "{text}");
        assert!(line.contains("  handover run ") && line.contains("--profile smoke"), "{text}");
        assert!(row["command"].as_str().is_some_and(|it| it.contains(" run ")), "{row}");
        assert!(line.contains("smoke") && !line.contains("not complete"), "{text}");
        assert_eq!((&row["complete"], &row["profile"]), (&true.into(), &"smoke".into()));
    }
    assert_eq!(text.lines().count(), 1 + rows.len());
    in_json.sort_unstable();
    let mut ids_sorted = ids.to_vec();
    ids_sorted.sort_unstable();
    assert_eq!(in_json, ids_sorted);
    let row = rows.iter().find(|row| row["id"] == last.run.id.as_str()).expect("its row");
    assert_eq!(row["records"].as_u64(), Some(last.records.len() as u64));
}

#[test]
fn control_characters_in_imported_names_are_escaped() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    let exported = home.ok("export");
    for (field, text) in [("profile", "smoke"), ("id", "clock/now"), ("contender", "handover")] {
        let from = format!("\"{field}\":\"{text}\"");
        assert!(exported.contains(&from), "{from}");
        let to = format!("\"{field}\":\"\\u001b]0;title\\u0007\"");
        fs::write(home.cwd().join("odd.jsonl"), exported.replacen(&from, &to, 1)).expect("a file");
        let said = home.run("import odd.jsonl").code(2);
        let said = said.tells(&["odd.jsonl: line ", &format!(": {field} is ")]);
        assert!(!said.err.contains('\x1b'), "{said}");
    }
    fs::write(home.cwd().join("good.jsonl"), exported).expect("a file");
    home.run("import good.jsonl --db no/other.db").code(2).tells(&["there is no folder no;"]);
    assert!(!home.cwd().join("no").exists());
    // Another program may have written them into the store.
    let store = rusqlite::Connection::open(home.db()).expect("the store");
    let odd = "UPDATE runs SET profile = char(27) || '[31m', host = char(155) || 'x'";
    store.execute_batch(odd).expect("an odd name");
    drop(store);
    for line in ["runs", "show", "export"] {
        let said = home.run(line).calm();
        let told = [&*said.out, &*said.err].concat();
        assert!(!told.chars().any(|it| it.is_control() && it != '\n'), "{line}: {told:?}");
    }
}

#[test]
fn damaged_runs_are_listed_and_do_not_hide_other_runs() {
    let home = Home::new();
    for _ in 0..3 {
        home.ok("run clock/now --no-peers --time 100ms --no-report");
    }
    let ids: Vec<String> =
        home.runs().iter().map(|run| run["id"].as_str().expect("an id").to_string()).collect();
    let store = rusqlite::Connection::open(home.db()).expect("the store");
    let damage = "UPDATE runs SET checksum = 0 WHERE run = 1;
        UPDATE records SET checksum = 0 WHERE run = 2";
    store.execute_batch(damage).expect("the damage");
    drop(store);
    let remedy = |run: &str| format!("`handover delete {run}` removes");
    let listed = home.ok("runs");
    let of_first = listed.lines().nth(1).expect("the first run");
    assert!(of_first.ends_with("damaged: its checksum is wrong"), "{listed}");
    assert!(listed.contains(&remedy("RUN")), "{listed}");
    assert_eq!(home.runs()[0]["damage"], "its checksum is wrong");
    assert!(home.runs()[2]["damage"].is_null());
    assert!(shows(&home.ok("show"), "clock/now"));
    home.ok("report --output page.html last");
    for (id, line) in [(&ids[0], "show -3"), (&ids[1], "show -2"), (&ids[0], "history clock/now")] {
        home.run(line).code(1).tells(&[id, "is damaged: ", &remedy(id)]);
    }
    home.ok(&format!("delete {} {}", ids[0], ids[1]));
    home.ok("history clock/now");
}

#[test]
fn run_that_is_deleted_while_it_is_measured_stays_deleted() {
    let home = Home::new();
    let words = ["run", "lock", "--time", "200ms", "--name", "gone", "--no-report", "--no-peers"];
    let running = home.start(home.handover(words));
    wait_until("the run", || home.db().exists() && home.run("show gone").status.success());
    home.ok("delete gone");
    let said = running.finish().code(1).tells(&["the run was deleted while it was measured"]);
    assert!(!said.err.contains("no such run") && !said.out.contains("is in /"), "{said}");
    assert!(home.runs().is_empty());
}

#[test]
fn run_that_could_not_be_stored_for_a_while_and_was_deleted_stays_deleted() {
    let home = Home::new();
    let line = "run floor/empty floor/futex --idle-gap 20ms --time 1min --no-report --no-peers";
    let mut running = home.start(home.handover(line.split(' ')));
    wait_until("the run", || home.db().exists() && home.run("show").status.success());
    let store = rusqlite::Connection::open(home.db()).expect("the store");
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON records BEGIN SELECT RAISE(FAIL, 'refused'); END";
    store.execute_batch(refuse).expect("a trigger");
    running.wait_for("floor/empty measured\n");
    store.execute_batch("DROP TRIGGER refuse").expect("no trigger");
    home.ok("delete last");
    running.signal(Signal::INT);
    running.finish().code(1).tells(&["the run was deleted while it was measured"]);
    assert!(home.runs().is_empty());
}

#[test]
fn interrupt_before_the_first_figure_of_a_deleted_run_exits_with_130() {
    let home = Home::new();
    // A round of hand-overs at intervals of 100 ms takes long.
    let running = home.start(home.handover("run floor/futex --idle-gap 100ms".split(' ')));
    wait_until("the run", || home.db().exists() && home.run("show").status.success());
    home.ok("delete last");
    running.signal(Signal::INT);
    running.finish().code(130).tells(&["nothing is stored: interrupted"]);
}

#[test]
fn proofs_of_a_deleted_run_are_shown() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    let store = rusqlite::Connection::open(home.db()).expect("the store");
    // Deletes the run at its end, before its proofs are stored.
    let delete = "CREATE TRIGGER at_end AFTER UPDATE OF complete ON runs
        BEGIN DELETE FROM runs WHERE run = NEW.run; END";
    store.execute_batch(delete).expect("a trigger");
    let mut running = home.start(home.handover(["prove", "--profile", "smoke"]));
    running.wait_for(" measured\n");
    running.signal(Signal::INT);
    let said = running.finish().code(1).tells(&["the run was deleted while it was measured"]);
    assert!(said.out.starts_with("planted cost "), "{said}");
    assert_eq!(home.runs().len(), 1);
}

#[test]
fn printed_command_names_the_store_quoted_for_a_shell() {
    let home = Home::new();
    home.run("show").code(2).tells(&["`handover run` creates it"]);
    let run = |line: &str| said(home.handover(line.split(' ').chain(["--db", "my results.db"])));
    let option = format!("--db '{}'", home.cwd().join("my results.db").display());
    run("show").code(2).tells(&[&format!("`handover run {option}` creates it")]);
    run("run clock/now --profile smoke --no-report --name a").code(0);
    run("compare --baseline a")
        .code(2)
        .tells(&[&format!("--name this {option}`"), &format!("--baseline a this {option}`")]);
    said(home.shell(&format!("handover delete a {option}"))).code(0);
    run("show").code(2).tells(&[&format!("`handover run {option}` stores one")]);
}

#[test]
fn run_is_exported_in_formats_of_other_tools() {
    let home = Home::new();
    home.ok("run clock --profile smoke --no-report");
    let (csv, metrics) = (home.ok("export --to csv"), home.ok("export --to openmetrics -1"));
    assert!(csv.starts_with("run,started_unix_ns,host,") && csv.contains(",clock/now,"), "{csv}");
    assert!(metrics.contains("id=\"clock/now\"") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(home.ok("export --to hdr last").contains("\nTag=clock/now["));
    let action: serde_json::Value =
        serde_json::from_str(&home.ok("export --to github-action")).expect("JSON");
    assert!(action[0]["value"].as_f64().is_some_and(|value| value > 0.0), "{action}");
    let shown = home.ok("show --format markdown --all");
    assert!(shown.contains("| clock/now | "), "{shown}");
}

#[test]
fn export_is_imported_without_loss() {
    let (home, other) = (Home::new(), Home::new());
    two_runs(&home);
    let exported = home.ok("export");
    fs::write(other.cwd().join("runs.jsonl"), &exported).expect("a file");
    let told = other.ok("import runs.jsonl");
    assert!(told.starts_with("2 runs with ") && told.contains(" 0 already in the store"), "{told}");
    assert_eq!(other.ok("export"), exported);
    assert_eq!(other.ok("show --json"), home.ok("show --json"));
    // The same input again, through a pipe: nothing is new.
    let again = said_to(other.handover(["import", "-"]), exported.clone().into_bytes()).code(0);
    assert!(again.out.contains("2 already in the store"), "{again}");
    assert_eq!(other.ok("export"), exported);
    // A single run.
    let one = home.ok("export -1");
    assert!(exported.ends_with(&one) && one.len() < exported.len());
    assert_eq!(home.ok("export -2") + &one, exported);
}

#[test]
fn invalid_import_is_refused_with_its_line_and_changes_nothing() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    let exported = home.ok("export");
    let lines: Vec<&str> = exported.lines().collect();
    let before = fs::read(home.db()).expect("the store");
    // A new run comes first, so that a partial import would leave something.
    let new = lines[0].replacen(&home.last().run.id, "another", 1);
    let after = |bad: &str| format!("{new}\n\n{bad}\n");
    let truncated = &lines[1][..lines[1].len() / 2];
    for (input, line) in [
        ("rubbish".to_string(), 1),
        ("\u{0}\u{1}\u{2}\n".to_string(), 1),
        (after("{\"type\":\"run\",\"schema\":7}"), 3),
        (after("[1, 2, 3]"), 3),
        (after(truncated), 3),
        (after(lines[1]), 3),
        (after(&new), 3),
        (after(&lines[1].replacen("\"median\":", "\"median\":1e999,\"x\":", 1)), 3),
    ] {
        fs::write(home.cwd().join("in.jsonl"), &input).expect("a file");
        let said = home.run("import in.jsonl").code(2);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
        let said = said.tells(&["in.jsonl", &format!("line {line}"), "nothing was imported"]);
        assert!(fs::read(home.db()).expect("the store") == before, "it was changed: {said}");
        // Without a store, none is created.
        let nowhere = home.run("import in.jsonl --db made/none.db").code(2);
        assert_eq!(nowhere.err, said.err);
        assert!(!home.cwd().join("made").exists(), "something was left: {nowhere}");
    }
}

#[test]
fn completions_and_man_page_contain_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.ok(&format!("completions {shell}"));
        for command in LISTED {
            assert!(script.contains(command), "{shell}: {command}");
        }
        for option in ["--idle-gap", "--via", "--profile"] {
            assert!(script.contains(&option[2..]), "{shell}: {option}");
        }
    }
    let man = home.ok("man").replace("\\-", "-");
    assert!(man.starts_with(".ie"), "{man}");
    for command in LISTED {
        assert!(man.contains(command), "man: {command}");
    }
}

#[test]
fn every_manual_page_that_a_page_refers_to_exists() {
    let home = Home::new();
    let said = home.ok("man --dir pages");
    let pages = home.cwd().join("pages");
    let reference = Regex::new(r"handover(-[a-z0-9_-]+)*\(1\)").unwrap();
    let mut referred = 0;
    for entry in fs::read_dir(&pages).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a page").replace("\\-", "-");
        for section in [".SH \"EXIT STATUS\"", ".SH FILES", ".SH ENVIRONMENT"] {
            assert!(text.contains(section), "{}: {section}", path.display());
        }
        for found in reference.find_iter(&text) {
            let file = found.as_str().replace("(1)", ".1");
            assert!(pages.join(&file).is_file(), "{}: no {file}", path.display());
            referred += 1;
        }
    }
    assert!(referred >= LISTED.len(), "{referred} references");
    assert!(said.contains(" manual pages are in pages"), "{said}");
    let page = fs::read_to_string(pages.join("handover-trace-show.1")).expect("a page");
    assert_eq!(home.ok("man trace show"), page);
    home.run("man nosuch").code(2).tells(&["nosuch", "--help"]);
}

#[test]
fn bash_completions_are_valid_bash() {
    let home = Home::new();
    fs::write(home.cwd().join("script"), home.ok("completions bash")).expect("a file");
    let mut command = home.program("bash");
    command.args(["-n", "script"]);
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => crate::common::skipped("the completions by bash", &error.to_string()),
    }
}

#[test]
fn copied_binary_works_from_any_folder() {
    let home = Home::new();
    let copy = home.path().join("moved");
    // By another process, as `write_script` explains.
    let mut copying = home.program("cp");
    copying.arg(binary()).arg(&copy);
    said(copying).code(0);
    let mut command = home.program(&copy);
    command.args(["run", "call", "--profile", "smoke", "--no-report"]);
    said(command).code(0);
    let mut command = home.program(&copy);
    command.args(["run", "floor/futex", "--processes", "--profile", "smoke", "--no-report"]);
    said(command).code(0);
}
