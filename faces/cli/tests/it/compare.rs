//! Comparing runs, the history of a figure, naming and deleting runs.

use crate::book::{workspace, write_stand_in_for_cargo};
use crate::common::{
    Home, benchmarks, binary, document, json, said, said_unread, wait_until, write_script,
};
use handover_record::Document;
use handover_report::compare::{Rules, Verdict, compare};
use handover_store::{RunRow, Store};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Imports `count` runs with a name, made of one smoke run as if they had been measured: each
/// differs a little, and every figure is multiplied by `factor`.
fn imported(home: &Home, name: &str, count: usize, factor: f64) {
    let smoke = home.path().join("smoke.jsonl");
    if !smoke.exists() {
        home.ok("run lock/free --profile smoke --no-report --no-peers --db smoke.db");
        fs::write(&smoke, home.ok("export --db smoke.db")).expect("a file");
    }
    let template = fs::read_to_string(&smoke).expect("a file");
    let mut lines = String::new();
    for place in 0..count {
        let own = factor * (1.0 + 0.001 * ((place * 7) % 5) as f64);
        let id = format!("5-{name}-{place}");
        for (number, line) in template.lines().enumerate() {
            let mut line = json(line);
            if number == 0 {
                line["id"] = Value::from(id.as_str());
                line["tags"] = Value::from(vec![name]);
                line["profile"] = "quick".into();
                line["started_unix_ns"] =
                    Value::from(place as u64 * 1000 + 1_000_000 * u64::from(name != "a"));
            } else {
                line["run"] = Value::from(id.as_str());
                line["warnings"] = Value::Array(Vec::new());
                let null = line["kind"] == "null";
                let figure = 100.0 * if null { own / factor } else { own };
                for field in ["median", "low", "high"] {
                    line["summary"][field] = Value::from(figure);
                }
            }
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
    }
    fs::write(home.cwd().join("runs.jsonl"), lines).expect("a file");
    home.ok("import runs.jsonl");
}

#[test]
fn regression_is_reported_with_exit_code_1() {
    let home = Home::new();
    imported(&home, "a", 5, 1.0);
    imported(&home, "b", 5, 1.2);
    let said = home.run("compare a b").code(1);
    assert!(said.err.contains("regressed"), "{said}");
    let row = said.out.lines().find(|line| line.starts_with("lock/free")).expect("a row");
    assert!(row.contains("1.200") && row.ends_with("worse"), "{said}");
    assert!(said.out.contains("These runs cannot see differences under"), "{said}");
    home.unread("compare a b").code(1).tells(&["regressed"]);
    // In the other direction it became better, and nothing is above the threshold.
    let said = home.run("compare b a").code(0);
    assert!(said.out.contains("better") && !said.out.contains("worse."), "{said}");
    assert!(home.ok("compare a b --threshold 30%").contains(" same"));
    let said = home.run("compare --baseline a b --json").code(1);
    let comparison = json(&said.out);
    assert_eq!((&comparison["schema"], &comparison["a"]["name"]), (&1.into(), &"a".into()));
    assert_eq!(comparison["rows"][0]["verdict"], "worse");
}

#[test]
fn one_process_a_side_has_neither_interval_nor_p() {
    let home = Home::new();
    for _ in 0..2 {
        home.ok("run clock/now --profile quick --time 100ms --no-report --no-peers");
    }
    let seeds: BTreeSet<u64> =
        (1..=2).map(|back| document(&home.ok(&format!("show -{back} --json"))).run.seed).collect();
    assert!(seeds.len() == 2 && !seeds.contains(&0), "a run stores its own seed: {seeds:?}");
    let said = home.run("compare -2 -1").code(0);
    let row = said.out.lines().find(|line| line.starts_with("clock/now")).expect("a row");
    // The interval, the slowdown found, both p and delta.
    assert_eq!(row.matches('–').count(), 5, "{said}");
    assert!(row.ends_with("cannot say") && !row.contains(".."), "{said}");
    let row = &json(&home.ok("compare -2 -1 --json"))["rows"][0];
    assert!(row["ratio"].is_number() && row["low"].is_null() && row["high"].is_null(), "{row}");
}

#[test]
fn side_is_a_name_a_run_a_file_or_a_list_of_them() {
    let home = Home::new();
    imported(&home, "a", 5, 1.0);
    fs::write(home.cwd().join("a.jsonl"), home.ok("export 5-a-0 5-a-1 5-a-2")).expect("a file");
    fs::write(home.cwd().join("one.json"), home.ok("show 5-a-3 --json")).expect("a file");
    let sides = |words: &str| {
        let comparison = json(&home.ok(&format!("compare {words} --json")));
        let count = |side: &str| comparison[side]["runs"].as_array().map_or(0, Vec::len);
        (count("a"), count("b"))
    };
    assert_eq!(sides("a a.jsonl"), (5, 3));
    assert_eq!(sides("a.jsonl,one.json,last 5-a-0,5-a-1"), (5, 2));
    home.run("compare --baseline a")
        .code(2)
        .tells(&["the last run belongs to the baseline", "--baseline a this"]);
    imported(&home, "b", 6, 1.0);
    assert_eq!(sides("--baseline a"), (5, 6), "all of the last name");
    // With fewer than five runs a side, it says that it cannot tell.
    let said = home.run("compare a.jsonl one.json").code(0);
    assert!(said.out.contains("cannot say") && said.out.contains("at least 5 a side"), "{said}");
    home.run("compare a.jsonl one.json --strict").code(1).tells(&["--strict"]);
    home.ok("compare a b --strict");
    // A benchmark that side B lacks may have failed there.
    let whole = home.ok("export 5-a-0 5-a-1 5-a-2 5-a-3 5-a-4");
    let line_and_copy = |line: &str| match line.contains("\"id\":\"lock/free\"") {
        true => {
            format!("{line}\n{}\n", line.replace("\"id\":\"lock/free\"", "\"id\":\"lock/lost\""))
        }
        false => format!("{line}\n"),
    };
    let more: String = whole.lines().map(line_and_copy).collect();
    fs::write(home.cwd().join("more.jsonl"), more).expect("a file");
    home.ok("compare more.jsonl b");
    home.run("compare more.jsonl b --strict").code(1).tells(&["--strict: b lacks", "lock/lost"]);
    home.ok("run clock/rdtsc --profile smoke --no-report --no-peers");
    let text = home
        .ok("export last")
        .lines()
        .filter(|it| !it.contains("null/"))
        .collect::<Vec<_>>()
        .join("\n");
    fs::write(home.cwd().join("clock.jsonl"), text + "\n").expect("a file");
    home.run("compare a clock.jsonl").code(2).tells(&["no figure in common"]);
}

#[test]
fn invalid_side_is_refused_with_the_nearest_names() {
    let home = Home::new();
    home.run("compare a b").code(2).tells(&["no such file"]);
    imported(&home, "before", 1, 1.0);
    home.run("compare befor before").code(2).tells(&["run befor", "nearest are before"]);
    for words in ["compare", "compare a", "compare a b c", "compare --baseline a b c"] {
        home.run(words).code(2).tells(&["side"]);
    }
    home.run("compare --ab x").code(2);
    home.run("compare --ab nowhere nobody lock").code(2).tells(&["nowhere", "no such file"]);
    home.run("compare a b --threshold 300%").code(2).tells(&["between 0% and 100%"]);
    home.run("compare a b --pairs 9").code(2).tells(&["--ab"]);
    fs::write(home.cwd().join("words.txt"), "words\n").expect("a file");
    home.run("compare words.txt before").code(2).tells(&["words.txt", "no runs"]);
    let newer = home.ok("show --json").replacen("{\"schema\":1", "{\"schema\":7", 1);
    fs::write(home.cwd().join("newer.json"), newer).expect("a file");
    home.run("compare newer.json before").code(2).tells(&["newer.json", "schema 7"]);
    fs::write(home.cwd().join("other.db"), "SQLite format 3\0 and nothing else").expect("a file");
    home.run("compare a b --db other.db").code(2).tells(&["other.db"]);
}

#[test]
fn ab_measures_two_builds_in_turn() {
    let home = Home::new();
    let binary = binary().display();
    let said = home.run(&format!(
        "compare --ab {binary} {binary} clock/now --pairs 1 --time 100ms --name try --json"
    ));
    let comparison = json(&said.code(0).out);
    assert_eq!(comparison["rows"][0]["verdict"], "cannot_say");
    assert_eq!(comparison["rows"][0]["id"], "clock/now");
    assert_eq!(comparison["b"]["runs"].as_array().map(Vec::len), Some(1));
    assert!(comparison["visible_one"].is_number(), "{comparison}");
    let named = |name: &str| home.runs().iter().filter(|run| run["names"][0] == name).count();
    assert_eq!((named("try/old"), named("try/new")), (1, 1));
    let refused = home.run(&format!("compare --ab {binary} {binary} lokc")).code(2);
    assert!(refused.err.contains("lokc") && refused.err.contains("lock"), "{refused}");
    home.run("compare --ab /bin/true /bin/true lock").code(2).tells(&[
        "--ab",
        "not a build of handover",
        "not a run",
    ]);
    home.run("compare --ab /bin/false /bin/false lock")
        .code(2)
        .tells(&["/bin/false", "not a build of handover"]);
    fs::write(home.cwd().join("text"), "").expect("a file");
    home.run("compare --ab ./text ./text lock").code(2).tells(&["/text: Permission denied"]);
    write_script(&home.cwd().join("newer"), "#!/bin/sh\necho '{\"schema\": 7}'\n");
    home.run("compare --ab ./newer ./newer lock").code(1).tells(&["./newer", "has schema 7"]);
}

#[test]
fn repeated_run_is_several_processes_with_one_name() {
    let home = Home::new();
    let said = home.run("run lock/free --profile smoke --repeat 3 --name here --no-peers").code(0);
    assert_eq!(
        said.out.matches("the report page is").count(),
        1,
        "all of them have one table: {said}"
    );
    assert!(said.out.contains("(3 runs, pooled)") && said.err.contains("process 3 of 3"), "{said}");
    let runs = home.runs();
    assert!(runs.len() == 3 && runs.iter().all(|run| run["names"][0] == "here"), "{runs:?}");
    assert!(home.cwd().join("report.html").exists());
    let said = home.run("compare here here").code(0);
    assert!(
        said.out.contains("smoke values") && said.out.contains("on both sides of the comparison"),
        "{said}"
    );
    // A name that other runs have already is reported, once.
    let said = home.run("run lock/free --profile smoke --name here --no-peers --no-report").code(0);
    said.tells(&["3 runs already have the name here", "`handover delete here` first"]);
    // Smoke runs do not count as processes of a side.
    imported(&home, "here", 5, 1.0);
    imported(&home, "there", 5, 1.0);
    let said = home.run("compare here there").code(0);
    assert!(said.out.contains("here, 5 processes") && !said.out.contains("cannot say"), "{said}");
    assert!(said.out.contains("4 smoke runs are left out"), "{said}");
    home.run("run lock/free --name </script>").code(2).tells(&["name", "letters"]);
    // A name that could also be the start of a run's id is refused before anything is measured.
    let exported = home.ok("export 5-there-0").replace("5-there-0", "other-0");
    fs::write(home.cwd().join("id.jsonl"), exported).expect("a file");
    home.ok("import id.jsonl");
    let count = home.runs().len();
    home.run("run lock/free --name other-").code(2).tells(&["an id that starts with this name"]);
    assert_eq!(home.runs().len(), count);
    home.run("run --repeat 0").code(2);
    home.run("run --repeat 2 --json").code(2);
}

#[test]
fn runs_of_an_unnamed_repetition_are_one_side_of_a_comparison() {
    let home = Home::new();
    imported(&home, "before", 1, 1.0);
    // A damaged run on no side does not matter.
    home.ok("run clock/now --profile smoke --no-report --no-peers");
    let damage = "UPDATE records SET checksum = 0 WHERE run = (SELECT max(run) FROM runs)";
    let store = rusqlite::Connection::open(home.db()).expect("a store");
    assert!(store.execute(damage, []).expect("a change") > 0);
    home.ok("run lock/free --profile smoke --repeat 3 --no-peers");
    let comparison = json(&home.ok("compare --baseline before --json"));
    assert_eq!(comparison["b"]["runs"].as_array().map(Vec::len), Some(3), "{comparison}");
    // The command line is shown as the user wrote it.
    let page = fs::read_to_string(home.cwd().join("report.html")).expect("the page");
    assert!(!page.contains("--nth") && !home.ok("runs").contains("--nth"));
}

#[test]
fn report_shows_the_runs_of_each_name_as_one_group() {
    let home = Home::new();
    imported(&home, "before", 7, 1.0);
    imported(&home, "after", 7, 1.5);
    home.ok("report before after");
    let page = fs::read_to_string(home.cwd().join("report.html")).expect("the page");
    let (_, section) = page.split_once("<h2 id=\"beside\">").expect("the other runs");
    let (head, _) = section.split_once("</thead>").expect("its head");
    let columns: Vec<&str> = head
        .split("<th scope=\"col\" class=\"n\">")
        .skip(1)
        .filter_map(|it| it.split('<').next())
        .collect();
    assert_eq!(columns, ["before (7 runs)", "after (7 runs)"]);
    assert!(section.contains("×</i>"), "{section}");
    // A run by its position has its machine and date instead.
    home.ok("report before -1");
    let page = fs::read_to_string(home.cwd().join("report.html")).expect("the page");
    assert!(page.contains("before (7 runs)") && !page.contains("after (7 runs)"));
}

#[test]
fn history_shows_a_figure_over_runs() {
    let home = Home::new();
    home.run("history lock/free").code(2).tells(&["no such file"]);
    imported(&home, "a", 12, 1.0);
    imported(&home, "c", 12, 1.3);
    let said = home.ok("history lock/free");
    assert!(said.contains("24 runs") && said.contains("1 change."), "{said}");
    assert!(said.contains("+30.0 %"), "{said}");
    // The first runs of the segments have a name.
    assert!(said.lines().any(|line| line.contains("5-a-0,") && line.ends_with(", a")), "{said}");
    home.ok("history lock/free --svg trend.svg --last 20");
    let picture = fs::read_to_string(home.cwd().join("trend.svg")).expect("a picture");
    roxmltree::Document::parse(&picture).expect("sound XML");
    let history = json(&home.ok("history lock/free --json"));
    assert_eq!(history["levels"].as_array().map(Vec::len), Some(2));
    let host = home.last().host.name;
    assert!(home.ok(&format!("history lock/free --host {host}")).contains("24 runs"));
    home.run("history lock/free --host nowhere").code(2).tells(&["--host nowhere", &host]);
    home.run("history lock/fre").code(2).tells(&["nearest", "lock/free"]);
    home.run("history lock/free --contender nobody").code(2).tells(&["lock/free [nobody]"]);
    home.run("history lock/free --svg no/where.svg").code(2).tells(&["no/where.svg"]);
}

#[test]
fn runs_are_named_found_by_name_and_deleted() {
    let home = Home::new();
    home.run("tag last x").code(2).tells(&["no such file"]);
    assert!(!home.db().exists());
    imported(&home, "a", 3, 1.0);
    home.ok("tag 5-a-1 release/1.2");
    assert_eq!(json(&home.ok("show release/1.2 --json"))["run"]["id"], "5-a-1");
    assert!(home.ok("runs").lines().any(|line| line.contains("a release/1.2")));
    // A name stands for all runs that have it; `show` shows the last and says so.
    let exported = home.ok("export a");
    assert_eq!(exported.lines().filter(|line| json(line)["type"] == "run").count(), 3);
    let ids = |csv: &str| -> BTreeSet<String> {
        csv.lines().skip(1).filter_map(|line| Some(line.split(',').next()?.to_string())).collect()
    };
    assert_eq!(ids(&home.ok("export a --to csv")).len(), 3);
    home.run("show a").code(0).tells(&["5-a-2 is the last of 3 runs named a"]);
    assert!(home.run("show 5-a-2").code(0).err.is_empty());
    assert_eq!(home.ok("tag a all").lines().count(), 3);
    assert!(home.runs().iter().all(|run| run["names"].as_array().is_some_and(|it| it.len() > 1)));
    home.ok("tag a all --remove");
    home.run("tag a all --remove").code(2).tells(&["has no name"]);
    home.run("tag 5-a-1 </script>").code(2).tells(&["name"]);
    home.run("tag 5-b x").code(2).tells(&["nearest"]);
    home.ok("tag 5-a-1 release/1.2 --remove");
    home.run("tag 5-a-1 release/1.2 --remove").code(2).tells(&["has no name"]);
    home.ok("delete -1 5-a-0");
    assert_eq!(home.runs().len(), 1);
    home.run("delete 5-a-0").code(2);
    assert!(home.ok("vacuum").contains("bytes, now"));
    home.ok("delete a");
    home.run("show").code(2).tells(&["no run yet"]);
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn runs_are_named_and_deleted_if_the_output_has_no_reader() {
    let home = Home::new();
    imported(&home, "a", 2, 1.0);
    home.unread("tag a other").code(0);
    assert!(home.runs().iter().all(|run| run["names"][1] == "other"), "{:?}", home.runs());
    home.unread("delete 5-a-0 5-a-1").code(0);
    assert!(home.runs().is_empty());
}

#[test]
fn workloads_of_another_package_are_measured_by_cargo_and_stored() {
    let home = Home::new();
    imported(&home, "a", 1, 1.0);
    // Stands in for cargo: prints the output of a bench target and records its arguments.
    let cargo = home.path().join("cargo");
    let script = "#!/bin/sh\necho \"$@\" >called\n[ \"$1\" = bench ] && cat ../printed\n";
    write_script(&cargo, script);
    let command = |words: &str| {
        let mut command = home.handover(words.split(' '));
        command.env("CARGO", &cargo);
        command
    };
    let by_cargo = |words: &str| said(command(words));
    let printed =
        home.ok("export 5-a-0").replace("5-a-0", "7-mine").replace("lock/free", "my/sort");
    fs::write(home.path().join("printed"), printed).expect("a file");
    let done = by_cargo("bench my/sort --name mine --time 200ms").code(0);
    assert!(done.out.contains("my/sort") && done.out.contains("run 7-mine is in"), "{done}");
    let called = fs::read_to_string(home.cwd().join("called")).expect("it was called");
    let words =
        "bench --quiet --bench handover -- --jsonl --profile quick --time 200000000ns my/sort\n";
    assert_eq!(called, words);
    assert!(home.cwd().join("report.html").exists());
    let options = "--profile smoke --place far --idle-gap 1ms --neighbour --no-peers --set n=3 --json --no-report";
    fs::remove_file(home.cwd().join("report.html")).expect("a page");
    let done = by_cargo(&format!("bench {options}")).code(0);
    assert_eq!(document(&done.out).run.id, "7-mine", "{done}");
    assert!(!home.cwd().join("report.html").exists());
    let called = fs::read_to_string(home.cwd().join("called")).expect("it was called");
    let words = "bench --quiet --bench handover -- --jsonl --profile smoke --place far --idle-gap 1000000ns --no-peers \
                 --neighbour --set n=3\n";
    assert_eq!(called, words);
    assert!(home.ok("show mine").contains("my/sort"));
    by_cargo("bench my/sort --over n=1..9:log --profile smoke").code(0);
    let called = fs::read_to_string(home.cwd().join("called")).expect("it was called");
    assert!(called.ends_with("--profile smoke --over n=1..9:log my/sort\n"), "{called}");
    by_cargo("bench my/sort --over n").code(2).tells(&["--over", "ARG=a..b"]);
    // A benchmark fails, and the output has no reader.
    write_script(&cargo, "#!/bin/sh\ncat ../printed\nexit 1\n");
    let failed = said_unread(command("bench my/sort")).code(1);
    failed.tells(&["see cargo's messages above; the completed measurements are kept"]);
    write_script(&cargo, script);
    fs::write(home.path().join("printed"), "running 0 tests\n").expect("a file");
    by_cargo("bench").code(1).tells(&["bench target handover", "bench_main"]);
    write_script(&cargo, "#!/bin/sh\nexit 101\n");
    by_cargo("bench").code(1).tells(&["cargo bench --bench handover", "101"]);
    // Interrupts its parent: with output that is no run, and without output.
    write_script(&cargo, "#!/bin/sh\necho rubbish\nkill -INT $PPID\nexit 130\n");
    by_cargo("bench").code(1).tells(&["was interrupted", "line 1: "]);
    write_script(&cargo, "#!/bin/sh\nkill -INT $PPID\nexit 130\n");
    by_cargo("bench").code(130).tells(&["no measurement was completed"]);
}

#[test]
fn interrupted_bench_shows_and_stores_completed_measurements() {
    let home = Home::new();
    let manifest = format!(
        "[package]\nname = \"mine\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dev-dependencies]\n\
         handover-harness = {{ path = \"{}\" }}\n\n[[bench]]\nname = \"handover\"\nharness = false\n",
        workspace().join("lab/harness").display()
    );
    let program = r#"handover_harness::measure! {
        "mine/first", "adding a number": u64 = 1;
        ours "add": |number| *number + 1;
        "mine/second", "multiplying a number": u64 = 1;
        ours "multiply": |number| *number * 3;
    }"#;
    for folder in ["src", "benches"] {
        fs::create_dir(home.cwd().join(folder)).expect("a folder");
    }
    let files =
        [("Cargo.toml", manifest.as_str()), ("src/lib.rs", ""), ("benches/handover.rs", program)];
    for (name, text) in files {
        fs::write(home.cwd().join(name), text).expect("a file");
    }
    let cargo = home.path().join("cargo");
    write_stand_in_for_cargo(&cargo);
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = home.handover(["bench", "--time", "10s", "--no-report"]);
        command.env("CARGO", &cargo);
        for name in ["RUSTUP_HOME", "CARGO_HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let mut running = home.start(command);
        running.wait_for(
            "benchmarks, including null/* (which measure the run's resolution), take about",
        );
        running.wait_for("mine/first measured\n");
        // To the whole group, as a terminal does: cargo ends before its program.
        running.signal_all(signal);
        let said = running.finish().code(130).tells(&["interrupted; the completed measurements"]);
        let run = home.last();
        assert!(!run.run.complete && benchmarks(&run).contains(&"mine/first"), "{said}");
        assert!(said.out.contains("mine/first"), "{said}");
        wait_until("no process left", || home.processes().is_empty());
    }
    assert_eq!(home.runs().len(), 2);
}

#[test]
fn builds_of_a_side_alternate_and_single_builds_cause_a_caveat() {
    let home = Home::new();
    for (side, count) in [("old", 2), ("new", 1)] {
        fs::create_dir(home.cwd().join(side)).expect("a folder");
        for number in 1..=count {
            // Each build notes that it was run.
            let build = home.cwd().join(side).join(format!("handover-{number}"));
            let script = format!(
                "#!/bin/sh\necho {side}-{number} >>'{}/ran'\nexec '{}' \"$@\"\n",
                home.cwd().display(),
                binary().display()
            );
            write_script(&build, script);
        }
    }
    let words =
        ["compare", "--ab", "old/*", "new/*", "clock/now", "--pairs", "2", "--time", "100ms"];
    let said = said(home.handover(words)).code(0);
    let ran = fs::read_to_string(home.cwd().join("ran")).expect("they ran");
    assert_eq!(ran, "old-1\nnew-1\nnew-1\nold-2\n");
    assert!(
        said.out.contains("2 processes") && said.out.contains("one build of its code"),
        "{said}"
    );
    home.run("compare --ab old/* new/* lock/free --pairs 1").code(2).tells(&["--pairs 2"]);
}

/// Writes a build that measures the first time, and then runs `script`.
fn write_build(home: &Home, name: &str, script: &str) {
    let build = format!(
        "#!/bin/sh\nif mkdir {name}-ran 2>/dev/null; then exec '{}' \"$@\"; fi\n{script}\n",
        binary().display()
    );
    write_script(&home.cwd().join(name), build);
}

#[test]
fn completed_pairs_are_compared_if_a_later_build_fails_or_is_interrupted() {
    let words = "clock/now --pairs 2 --time 100ms";
    for (script, code, says) in [
        ("echo 'handover: lost' >&2; exit 3", 1, "compared above, but not stored"),
        (
            "echo > waiting; exec sleep 600",
            130,
            "interrupted; the completed measurements are shown",
        ),
    ] {
        let home = Home::new();
        write_build(&home, "old", "exit 3");
        write_build(&home, "new", script);
        let mut running = home
            .start(home.handover(format!("compare --ab ./old ./new {words}").split_whitespace()));
        if code == 130 {
            let waiting = home.cwd().join("waiting");
            wait_until("the second pair", || waiting.exists() || running.has_ended());
            running.signal(Signal::INT);
        }
        let said = running.finish().code(code).tells(&[says]);
        assert!(said.out.contains("clock/now"), "{said}");
    }
    let home = Home::new();
    write_build(&home, "old", "exit 3");
    let line = format!("compare --ab ./old ./old {words} --name kept");
    home.run(&line).code(1).tells(&["failed with"]);
    assert_eq!(home.runs().len(), 1, "the first run is stored");
}

#[test]
fn build_that_cannot_measure_all_benchmarks_is_reported_with_exit_code_1() {
    let home = Home::new();
    let faulty = format!("#!/bin/sh\n'{}' \"$@\"\nexit 1\n", binary().display());
    write_script(&home.cwd().join("new"), faulty);
    let line =
        format!("compare --ab {} ./new clock/now --pairs 1 --time 100ms", binary().display());
    let said =
        home.run(&line).code(1).tells(&["1 of 2 processes could not measure all benchmarks"]);
    assert!(said.out.contains("clock/now"), "{said}");
}

/// With `HANDOVER_LONG=1`: ten processes of one build, measured in turn and then dealt out to two
/// sides in every way. The comparison ranks the actual deal among all deals, so however the machine
/// disturbs the processes, no more deals than promised can be called a regression.
#[test]
fn processes_of_one_build_regress_in_at_most_a_hundredth_of_their_deals() {
    if std::env::var_os("HANDOVER_LONG").is_none() {
        crate::common::skipped("ten processes of one build", "HANDOVER_LONG is not set");
        return;
    }
    let home = Home::new();
    let binary = binary().display();
    let words = "lock/free lock/busy-alone ring/push-pop ring/round-trip --pairs 5 --time 100ms";
    let said = home.run(&format!("compare --ab {binary} {binary} {words} --name one"));
    assert!(said.out.contains("These runs cannot see differences under"), "{said}");
    let store = Store::open_existing(home.db()).expect("a store");
    let runs = store.runs().expect("runs");
    let load = |run: &RunRow| store.load_run(&run.id).expect("a run");
    let processes: Vec<Document> = runs.iter().map(load).collect();
    assert_eq!(processes.len(), 10);
    let all = (0..1u32 << processes.len()).filter(|deal| deal.count_ones() == 5);
    let (mut deals_count, mut worse) = (0, Vec::new());
    for deal in all {
        let side = |is_b: bool| -> Vec<Document> {
            let is_there = |place: &usize| (deal >> place & 1 == 1) == is_b;
            (0..10).filter(is_there).map(|place| processes[place].clone()).collect()
        };
        let dealt = compare(("a", &side(false)), ("b", &side(true)), Rules::default());
        assert!(dealt.count(Verdict::CannotSay) < dealt.rows.len(), "{dealt:?}");
        deals_count += 1;
        worse.extend(dealt.is_worse().then_some(dealt));
    }
    assert!(100 * worse.len() <= deals_count, "{} of {deals_count}: {worse:#?}", worse.len());
}
