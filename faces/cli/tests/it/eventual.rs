//! abt-eventual-bench, its sweep and its charts, as users run them.

use crate::common::{Home, said, wait_until, write_script};
use regex_lite::Regex;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

/// Returns a home with links to the classic programs.
fn home() -> Home {
    let home = Home::new();
    home.ok("links .");
    home
}

/// Creates a program in the home with this shell script as its body.
fn a_program(home: &Home, name: &str, body: &str) {
    write_script(&home.cwd().join(name), format!("#!/bin/sh\n{body}\n"));
}

const PRINTS: &str = "printf '#<num_ults>\\t<x>\\n%s\\t5\\t1\\t%s000\\t0.5\\n' \"$2\" \"$2\"";

/// Returns the file that a sweep has written.
fn dat(home: &Home) -> PathBuf {
    let files = fs::read_dir(home.cwd()).expect("the folder").map(|it| it.expect("a file").path());
    let mut dats = files.filter(|path| path.extension().is_some_and(|it| it == "dat"));
    dats.next().expect("a file of a sweep")
}

#[test]
fn abt_eventual_bench_prints_two_original_lines_then_comments() {
    let home = home();
    let line = "./abt-eventual-bench -d 1 -i 0.5 -n 16";
    let said = said(home.shell(line)).code(0);
    let (out, took_s) = (said.out, said.took.as_secs_f64());
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[0],
        "#<num_ults>\t<test_duration_sec>\t<interval_msec>\t<ops/s>\t<cpu_time_sec>"
    );
    let row = Regex::new(r"^16\t1\t0\.5\t(\d+)\.\d{6}\t(\d+\.\d{6})$").expect("a pattern");
    let row = row.captures(lines[1]).unwrap_or_else(|| panic!("{out}"));
    let (rate, cpu_s): (f64, f64) = (row[1].parse().expect("n"), row[2].parse().expect("n"));
    // No sleep ends early, and on a busy machine many end late, as does the benchmark.
    assert!(rate > 0.0 && rate <= 32_000.0 * took_s && cpu_s < 2.0 * took_s, "{out}");
    assert!(lines[2..].iter().all(|line| line.starts_with('#')), "{out}");
    assert!(lines[2].starts_with("#<late_p50_usec>\t") && lines[4].contains("<system_cpu_sec>"));
    assert_eq!(lines[3].split('\t').count(), lines[2].split('\t').count());
    assert_eq!(lines[5].split('\t').count(), lines[4].split('\t').count());
}

#[test]
fn fewer_eventuals_than_fibers_cause_a_note() {
    let said = home().run("abt-eventual-bench -d 1 -i 5000 -n 2").code(0);
    said.tells(&["only 0 eventuals of 2 fibers were set", "-d"]);
}

#[test]
fn interrupted_benchmark_prints_its_figures() {
    let home = home();
    let running = home.start(home.handover("abt-eventual-bench -d 600 -n 4".split(' ')));
    // The program listens for signals before it starts its workers.
    let tasks = format!("/proc/{}/task", running.id());
    wait_until("its workers", || fs::read_dir(&tasks).is_ok_and(|it| it.count() > 1));
    running.signal(Signal::INT);
    let said = running.finish().code(130);
    let row = said.out.lines().nth(1).expect("a row").to_string();
    let seconds: f64 = row.split('\t').nth(1).expect("seconds").parse().expect("a number");
    assert!((0.0..600.0).contains(&seconds), "{said}");
}

#[test]
fn sweep_runs_a_full_command_with_each_number_of_fibers() {
    let home = home();
    a_program(&home, "my-abt-eventual-bench", PRINTS);
    let line = "./sweep-abt-eventual-bench.sh env ./my-abt-eventual-bench";
    let out = said(home.shell(line)).code(0).out;
    let file = dat(&home);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(
        Regex::new(r"^sweep-abt-eventual-bench\.\d+\.dat$").expect("a pattern").is_match(&name)
    );
    let mut told = format!("writing results to {name}\n");
    for fibers in (100..=1000).step_by(100) {
        told += &format!("... running benchmark with {fibers} ULTs\n");
    }
    assert_eq!(out, format!("{told}results are in {name}\n"));
    let text = fs::read_to_string(&file).expect("rows");
    assert_eq!(text.lines().filter(|line| line.starts_with('#')).count(), 1, "{text}");
    assert_eq!(text.lines().nth(10), Some("1000\t5\t1\t1000000\t0.5"), "{text}");
}

#[test]
fn sweep_with_a_launcher_alone_starts_this_program() {
    let home = home();
    a_program(&home, "launcher", "test \"$1\" = -r1 || exit 3\nshift\nexec \"$@\" -d 1 -i 1");
    let line = "./sweep-abt-eventual-bench.sh --from 2 --to 2 ./launcher -r1";
    said(home.shell(line)).code(0);
    let text = fs::read_to_string(dat(&home)).expect("rows");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("2\t1\t1\t")), "{text}");
}

#[test]
fn interrupted_sweep_keeps_its_points() {
    let home = home();
    let body = format!("test $2 -le 20 || exec sleep 600\n{PRINTS}");
    a_program(&home, "abt-eventual-bench-then-none", &body);
    let line =
        "sweep-abt-eventual-bench --from 10 --to 40 --step 10 ./abt-eventual-bench-then-none";
    let running = home.start(home.handover(line.split(' ')));
    wait_until("the third point", || {
        let rows = fs::read_dir(home.cwd()).expect("the folder").filter_map(|it| {
            let path = it.ok()?.path();
            path.extension().is_some_and(|it| it == "dat").then(|| fs::read_to_string(path).ok())?
        });
        rows.into_iter().any(|text| text.contains("20\t5"))
    });
    running.signal(Signal::INT);
    let said = running.finish().code(130).tells(&["interrupted"]);
    assert!(said.out.contains("the points measured before are in the file sweep-abt"), "{said}");
    let text = fs::read_to_string(dat(&home)).expect("rows");
    assert!(text.ends_with("20\t5\t1\t20000\t0.5\n"), "{text}");
    assert!(home.processes().is_empty(), "the program that was run goes on");
}

#[test]
fn sweep_interrupted_in_its_first_point_keeps_nothing() {
    let home = home();
    a_program(&home, "abt-eventual-bench-sleeps", ": >begun; exec sleep 600");
    let line = ["sweep-abt-eventual-bench", "./abt-eventual-bench-sleeps"];
    let running = home.start(home.handover(line));
    wait_until("the first point", || home.cwd().join("begun").exists());
    running.signal(Signal::INT);
    let said = running.finish().code(130).tells(&["no measurement was completed"]);
    assert!(said.out.contains("no point was measured"), "{said}");
    assert!(home.processes().is_empty(), "the program that was run goes on");
}

#[test]
fn sweep_continues_after_its_output_is_closed() {
    let home = home();
    a_program(&home, "my-abt-eventual-bench", PRINTS);
    let line = "sweep-abt-eventual-bench --from 10 --to 40 --step 10 ./my-abt-eventual-bench";
    // The reader is closed after the first line, and the program ends first.
    said(home.shell(&format!("handover {line} | (head -n 1 >first; exec <&-; wait)"))).code(0);
    wait_until("the end of the sweep", || home.processes().is_empty());
    let rows = fs::read_to_string(dat(&home)).expect("the results");
    assert_eq!(rows.lines().count(), 5, "{rows}");
}

#[test]
fn sweep_of_a_failing_command_ends_without_a_file() {
    let home = home();
    a_program(&home, "abt-eventual-bench-fails", "exit 7");
    a_program(&home, "abt-eventual-bench-talks", "echo hello world");
    a_program(&home, "abt-eventual-bench-mute", "true");
    for (program, code, says) in [
        ("./abt-eventual-bench-fails", 1, "exit status: 7"),
        ("./abt-eventual-bench-talks", 1, "found 2 columns"),
        ("./abt-eventual-bench-mute", 1, "no row of figures"),
        ("./abt-eventual-bench-absent", 2, "No such file"),
    ] {
        let said = home.run(&format!("sweep-abt-eventual-bench {program}")).code(code);
        let said = said.tells(&[says, "no point was measured"]);
        assert_eq!(said.err.lines().count(), 1, "{said}");
        let files = fs::read_dir(home.cwd()).expect("the folder").flatten();
        assert!(!files.into_iter().any(|it| it.path().extension().is_some_and(|it| it == "dat")));
    }
}

#[test]
fn sweep_file_is_drawn_as_two_pictures() {
    let home = home();
    let rows = "#<num_ults>\t...\n100\t5\t1\t99100.5\t0.2\n1000\t5\t1\t970000\t1.4\n#12\t3\n";
    fs::write(home.cwd().join("a.dat"), rows).expect("a file");
    let out = said(home.shell("./plot-abt-eventual-bench.sh a.dat")).code(0).out;
    assert_eq!(out, "");
    for name in ["rate", "cpu"] {
        let png = fs::read(home.cwd().join(format!("a.dat.{name}.png"))).expect("a picture");
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 10_000);
        let svg = fs::read_to_string(home.cwd().join(format!("a.dat.{name}.svg"))).expect("text");
        let svg = roxmltree::Document::parse(&svg).expect("well-formed");
        let text: Vec<&str> = svg.descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains(&"ideal") && text.contains(&"measured"), "{text:?}");
    }
    // The same by the general command, with another prefix.
    let out = home.ok("plot a.dat -o b");
    assert_eq!(out, "b-rate.png\nb-rate.svg\nb-cpu.png\nb-cpu.svg\n");
    fs::create_dir(home.cwd().join("charts")).expect("a folder");
    for (folder, path) in
        [("charts", "charts/rate.png"), ("charts/", "charts/rate.png"), (".", "./rate.png")]
    {
        assert_eq!(home.ok(&format!("plot a.dat -o {folder}")).lines().next(), Some(path));
    }
    home.unread("plot a.dat -o unread").code(0);
    for name in ["rate.png", "rate.svg", "cpu.png", "cpu.svg"] {
        assert!(home.cwd().join("charts").join(name).exists(), "{name}");
        assert!(home.cwd().join(format!("unread-{name}")).exists(), "{name}");
    }
}

#[test]
fn file_that_is_not_of_a_sweep_is_refused_with_the_line() {
    let home = home();
    for (bytes, says) in [
        (&b"hello world\n"[..], "line 1: found 2 columns"),
        (b"1 5 1 1000 0.1\n2 5 1 x 0.1\n", "line 2: invalid ops/s \"x\""),
        (b"", "no rows"),
        (b"# a comment alone\n", "no rows"),
        (b"\xff\xfe\x00\x01", "not a text file"),
        (b"1 5 1 1e999 0.1\n", "invalid ops/s"),
    ] {
        fs::write(home.cwd().join("x.dat"), bytes).expect("a file");
        for command in ["plot-abt-eventual-bench", "plot"] {
            let said = home.run(&format!("{command} x.dat")).code(2).tells(&["x.dat", says]);
            assert_eq!(said.err.lines().count(), 1, "{said}");
        }
    }
    home.run("plot-abt-eventual-bench absent.dat").code(2).tells(&["absent.dat", "No such file"]);
    fs::create_dir(home.cwd().join("folder")).expect("a folder");
    home.run("plot-abt-eventual-bench folder").code(2).tells(&["folder", "not a regular file"]);
    home.run("plot folder").code(2).tells(&["folder", "not a regular file"]);
}

#[test]
fn unwritable_folder_is_reported() {
    let home = home();
    // Not even root can write there.
    let run = |line: &str| {
        let mut command = home.handover(line.split(' '));
        command.current_dir("/proc");
        said(command)
    };
    run("sweep-abt-eventual-bench")
        .code(1)
        .tells(&["cannot write the results to sweep-abt-eventual-bench."]);
    let row = home.cwd().join("a.dat");
    fs::write(&row, "1 5 1 1000 0.1\n").expect("a file");
    std::os::unix::fs::symlink("/proc/nowhere.png", home.cwd().join("a.dat.rate.png"))
        .expect("a link");
    home.run("plot-abt-eventual-bench a.dat")
        .code(2)
        .tells(&["cannot write the chart a.dat.rate.png"]);
    home.run("plot a.dat -o nowhere/x").code(2).tells(&["nowhere/x-rate.png", "No such file"]);
}

#[test]
fn sweep_predicts_a_rate_or_says_why_not() {
    let home = home();
    let line =
        "sweep lock/passed --over threads_count=1..6 --simulate threads_count=64 --profile smoke";
    let out = home.ok(line);
    let prediction =
        Regex::new(r"(?m)^handover: (\S+ \S+ expected at N = 64, within|no prediction: )");
    assert!(prediction.expect("a pattern").is_match(&out), "{out}");
}

#[test]
fn sweep_over_an_argument_is_one_run_with_charts() {
    let home = home();
    let out = home.ok("sweep floor/memcpy --over size_bytes=64..1KiB:log --profile smoke");
    assert!(out.contains("floor/memcpy by size_bytes"), "{out}");
    assert!(!out.contains("law"), "bytes share no work: {out}");
    // Latency and bandwidth by message size.
    let head: Vec<&str> = out.lines().nth(2).expect("the columns").split_whitespace().collect();
    let columns =
        ["contender", "size_bytes", "median", "p99", "rate", "bandwidth", "CPUs", "warning"];
    assert_eq!(head, columns);
    assert!(out.lines().skip(3).take(5).all(|line| line.contains("B/s")), "{out}");
    let shown = home.ok("show");
    assert!(shown.contains("size_bytes=64") && shown.contains("size_bytes=1024"), "{shown}");
    let run = home.last();
    let sizes: Vec<u64> = run
        .records
        .iter()
        .filter(|it| it.id == "floor/memcpy")
        .map(|it| it.args["size_bytes"])
        .collect();
    assert_eq!(sizes, [64, 128, 256, 512, 1024]);
    assert!(run.run.complete && home.runs().len() == 1);

    let out = home.ok("plot");
    let names = ["median.svg", "median.png", "rate.svg", "rate.png"];
    for (line, name) in out.lines().zip(names) {
        assert_eq!(line, format!("floor-memcpy-by-size_bytes.{name}"));
        assert!(fs::metadata(home.cwd().join(line)).expect("a picture").len() > 2_000);
    }
    home.unread("plot -o unread").code(0);
    assert!(names.iter().all(|name| {
        home.cwd().join(format!("unread-floor-memcpy-by-size_bytes.{name}")).exists()
    }));
    let full = "full-floor-memcpy-by-size_bytes.median.svg";
    std::os::unix::fs::symlink("/dev/full", home.cwd().join(full)).expect("a link");
    home.run("plot -o full").code(1).tells(&[full, "No space left"]);
    let of_word = home.ok("plot -o mine");
    assert!(of_word.starts_with("mine-floor-memcpy-by-size_bytes.median.svg\n"), "{of_word}");
    fs::create_dir(home.cwd().join("charts")).expect("a folder");
    let in_folder = home.ok("plot -o charts");
    assert!(in_folder.starts_with("charts/floor-memcpy-by-size_bytes.median.svg\n"), "{in_folder}");
    // The same from an export, and from a document.
    for command in ["export", "show --json"] {
        fs::write(home.cwd().join("it.json"), home.ok(command)).expect("a file");
        let out = home.ok("plot it.json");
        assert!(out.starts_with("it.json.floor-memcpy-by-size_bytes.median.svg\n"), "{out}");
    }
}

#[test]
fn run_without_a_sweep_cannot_be_drawn() {
    let home = home();
    home.ok("run floor/memcpy --profile smoke --no-report");
    home.run("plot").code(2).tells(&["last", "no figure was measured with several values"]);
    fs::write(home.cwd().join("x.json"), "{\"schema\": 1}").expect("a file");
    home.run("plot x.json").code(2).tells(&["x.json"]);
    home.run("plot nobody").code(2).tells(&["nobody"]);
}
