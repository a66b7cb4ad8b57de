//! The classic programs: called by subcommand and by name, with the lines that their scripts parse.

use crate::common::{Home, Said, binary, said};
use handover_classic::names;
use regex_lite::Regex;
use std::fs;

/// Start of a line, up to the function's name in ten columns and the source line.
const HEAD: &str = r"^\d{3}\.\d{6} FUNCTION \[\d+\] ";
/// Number in the form of C's `%.3e`.
const E3: &str = r"(\d\.\d{3}e[+-]\d\d)";

/// Returns the regular expression of a classic program's line; `E3` stands for a number.
fn form(function: &str, rest: &str) -> Regex {
    let head = HEAD.replace("FUNCTION", &format!("{function:<10}"));
    Regex::new(&format!("{head}{}$", rest.replace("E3", E3))).expect("a form")
}

/// Returns the numbers of a line, which must match the form.
#[track_caller]
fn numbers(form: &Regex, line: &str) -> Vec<f64> {
    let found = form.captures(line).unwrap_or_else(|| panic!("{line}\nhas not the form\n{form}"));
    let texts = found.iter().skip(1).flatten();
    texts.map(|number| number.as_str().parse().expect("a number")).collect()
}

/// Returns a home with a folder of links.
fn home_with_links() -> Home {
    let home = Home::new();
    home.ok("links .");
    home
}

/// Runs a line from the classic programs' documentation in the folder of links.
fn typed(home: &Home, line: &str) -> Said {
    said(home.shell(line))
}

/// Checks the lines of trylock's test A; returns the counts of busy samples.
fn check_busy(said: &Said, threads_count: usize) -> Vec<f64> {
    let each = form(
        "fn_busy",
        r"#(\d\d) busy: E3 samples E3 ops, free: 0\.000000e\+00 samples 0\.000e\+00 ops",
    );
    let total = form("main", "BUSY: total E3 ops, per-thread E3 ops");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), threads_count + 1, "{said}");
    let threads: Vec<_> = lines[..threads_count].iter().map(|line| numbers(&each, line)).collect();
    for (index, it) in threads.iter().enumerate() {
        assert_eq!(it[0], index as f64, "{said}");
    }
    let sum: f64 = threads.iter().map(|it| it[2]).sum();
    let [total, per_thread] = numbers(&total, lines[threads_count])[..] else { panic!("{said}") };
    // Each number is printed with four digits.
    assert!((total - sum).abs() <= 0.002 * sum, "{said}");
    assert!((per_thread * threads_count as f64 - total).abs() <= 0.002 * total, "{said}");
    threads.iter().map(|it| it[1]).collect()
}

/// Checks the lines of trylock's test B; returns the counts of busy and of free samples.
fn check_free(said: &Said, threads_count: usize) -> Vec<(f64, f64)> {
    let each = form(
        "fn_free",
        r"#(\d\d) busy: E3 samples E3 ns, free: E3 samples E3 ns, post: E3 ns, duration \d+\.\d{6} s",
    );
    let total = form("main", "t_busy E3 ns, t_free E3 ns");
    let lines: Vec<&str> = said.out.lines().collect();
    let threads: Vec<_> = lines[..threads_count].iter().map(|line| numbers(&each, line)).collect();
    let [t_busy, t_free] = numbers(&total, lines[threads_count])[..] else { panic!("{said}") };
    let mean =
        |field: usize| threads.iter().map(|it| it[field]).sum::<f64>() / threads_count as f64;
    assert!((t_busy - mean(2)).abs() <= 0.002 * t_busy, "{said}");
    assert!((t_free - mean(4)).abs() <= 0.002 * t_free, "{said}");
    assert!(t_free > 0.0, "{said}");
    // Percentiles follow if there were busy samples.
    for line in &lines[threads_count + 1..] {
        assert!(line.contains("] busy: p50 ") && line.contains(", p99.9 "), "{said}");
    }
    threads.iter().map(|it| (it[1], it[3])).collect()
}

#[test]
fn trylock_prints_the_lines_of_test_a() {
    let home = Home::new();
    for via in ["sem", "mutex", "spin", "cas", "handover"] {
        let said = home.run(&format!("trylock -t 1 --via {via}")).code(0);
        let busy = check_busy(&said, 2);
        // Each thread goes on until every one has done its million.
        assert!(busy.iter().all(|samples| *samples >= 1e6), "{said}");
    }
}

#[test]
fn trylock_prints_the_lines_of_test_b() {
    let home = Home::new();
    for via in ["sem", "mutex", "spin", "cas", "handover"] {
        let said = home.run(&format!("trylock -F -t 1 --via {via}")).code(0);
        for (busy, free) in check_free(&said, 2) {
            assert!(busy + free >= 0.999e6, "{said}");
        }
    }
}

#[test]
fn trylock_accepts_a_core_and_a_single_thread() {
    let home = Home::new();
    let cpu = handover_base::topology::allowed_cpus()[0];
    check_busy(&home.run(&format!("trylock -n 1 -t 1 -x {cpu}")).code(0), 1);
    let said = home.run(&format!("trylock -n 1 -t 1 -F -x {cpu}")).code(0);
    // Alone, it never finds the lock busy.
    let [(busy, free)] = check_free(&said, 1)[..] else { panic!("{said}") };
    assert!(busy == 0.0 && free >= 1e6, "{said}");
}

#[test]
fn trylock_dumps_one_line_per_busy_try() {
    const KEPT_MAX: f64 = (1 << 20) as f64;
    let home = home_with_links();
    let said = typed(&home, "./trylock -n 3 -F -o dump.txt -t 1").code(0);
    let threads = check_free(&said, 3);
    let dump = fs::read_to_string(home.cwd().join("dump.txt")).expect("the dump");
    let costs: Vec<u64> = dump.lines().map(|line| line.parse().expect("a whole number")).collect();
    let kept: f64 = threads.iter().map(|(busy, _)| busy.min(KEPT_MAX)).sum();
    let printed_digits_ignore = 0.0005 * kept;
    assert!(
        (costs.len() as f64 - kept).abs() <= printed_digits_ignore,
        "{} of {said}",
        costs.len()
    );
    assert!(dump.ends_with('\n') || dump.is_empty());
}

#[test]
fn more_threads_than_cpus_cause_a_warning() {
    let home = home_with_links();
    let cpus_count = handover_base::topology::allowed_cpus().len();
    let threads_count = cpus_count + 1;
    let said = typed(&home, &format!("./trylock -n {threads_count} -t 1")).code(0);
    check_busy(&said, threads_count);
    let warning = format!("warning: {threads_count} threads share {cpus_count} CPUs");
    assert!(said.err.contains(&warning), "{said}");
}

#[test]
fn notify_prints_the_lines_of_test_a() {
    let home = Home::new();
    for via in ["eventfd", "pipe", "futex", "handover"] {
        let said = home.run(&format!("notify -n 20 --via {via}")).code(0);
        check_receiver(&said, 20_000);
        // So few are sent before the receiver has woken; its one wait counts nevertheless.
        check_receiver(&home.run(&format!("notify -n 1 --via {via}")).code(0), 1000);
    }
}

#[track_caller]
fn check_receiver(said: &Said, sent: u64) {
    let lines: Vec<&str> = said.out.lines().collect();
    let [snd, rcv] = lines[..] else { panic!("{said}") };
    assert!(numbers(&form("snd_body", "sender rate E3 ops"), snd)[0] > 0.0, "{said}");
    let form = form("rcv_body", r"receiver rate E3 ops, #wakeups (\d+)");
    let [_, wakeups] = numbers(&form, rcv)[..] else { panic!("{said}") };
    assert!((1.0..=sent as f64).contains(&wakeups), "{said}");
}

#[test]
fn notify_prints_the_lines_of_test_b() {
    let home = Home::new();
    for via in ["eventfd", "pipe", "futex", "handover"] {
        let said = home.run(&format!("notify -S -n 1 --via {via}")).code(0);
        let lines: Vec<&str> = said.out.lines().collect();
        let [rcv, snd, percentiles] = lines[..] else { panic!("{said}") };
        // Every notification is a wake-up: the next is sent when it has been received.
        let form_rcv = form("rcv_body", r"receiver rate E3 ops, #wakeups (\d+)");
        assert_eq!(numbers(&form_rcv, rcv)[1], 1000.0, "{said}");
        assert!(numbers(&form("snd_slow_b", "sender cost E3 ns"), snd)[0] > 0.0, "{said}");
        assert!(percentiles.contains("] sender cost: p50 "), "{said}");
    }
}

#[test]
fn notify_accepts_the_cores_of_both_sides() {
    let home = Home::new();
    let allowed = handover_base::topology::allowed_cpus();
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    for (sender, receiver) in [(first, last), (last, first), (first, first)] {
        let said = home.run(&format!("notify -n 5 -s {sender} -r {receiver}")).code(0);
        check_receiver(&said, 5000);
    }
}

#[test]
fn node_microbench_prints_its_table() {
    let home = home_with_links();
    let said = typed(&home, "perf-regression/node-microbench -m 0.1").code(0);
    let mut lines = said.out.lines();
    assert_eq!(lines.next(), Some("#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>"));
    let row =
        Regex::new("^\"([^\"]+)\"\t0\\.1\t(\\d+\\.\\d{6})\t(\\d+\\.\\d{6})\t(\\d+\\.\\d{6})$");
    let row = row.expect("a form");
    let mut names = Vec::new();
    for line in lines {
        // The MPI library is the only thing that may be missing.
        if line.starts_with("# \"mpi_wtime\": ") {
            assert!(line.contains("MPI"), "{line}");
            continue;
        }
        let found = row.captures(line).unwrap_or_else(|| panic!("{line}"));
        names.push(found[1].to_string());
        let number = |at: usize| found[at].parse::<f64>().expect("a number");
        let (total_s, each_ns) = (number(2), number(4));
        assert!(each_ns > 0.0 && (total_s * 10_000.0 - each_ns).abs() <= 0.01, "{line}");
    }
    for name in [
        "fn_call_normal",
        "fn_call_inline",
        "fn_call_cross_object",
        "gettimeofday",
        "clock_gettime(REALTIME)",
        "clock_gettime(REALTIME_COARSE)",
        "clock_gettime(MONOTONIC)",
        "clock_gettime(MONOTONIC_COARSE)",
        "pthread_mutex_lock/unlock",
        "pthread_mutex_recursive_lock/unlock",
        "pthread_spin_lock/unlock",
        "stdatomic lock/unlock",
        "rdtscp",
        "pthread_self",
        "gettid",
        "getenv of set variable",
        "getenv of unset variable",
    ] {
        assert!(names.iter().any(|it| it == name), "{name}: {said}");
    }
}

/// The links' paths, with the program that each calls.
fn links() -> impl Iterator<Item = (&'static names::ClassicProgram, String)> {
    names::CLASSIC_PROGRAMS
        .iter()
        .flat_map(|classic| classic.link_paths().map(move |link| (classic, link)))
}

#[test]
fn every_link_is_created_and_runs_this_binary() {
    let home = Home::new();
    let told = home.ok("links some/folder");
    // Theirs, and cargo-handover.
    assert!(told.starts_with(&format!("{} links to ", links().count() + 1)), "{told}");
    assert!(told.contains(" in some/folder and its folders build/demos, build/perf-"), "{told}");
    assert!(home.cwd().join("some/folder/cargo-handover").is_symlink());
    let folder = home.cwd().join("some/folder");
    let binary = binary().canonicalize().expect("the binary");
    for (classic, link) in links() {
        let path = folder.join(&link);
        let target = fs::read_link(&path).unwrap_or_else(|error| panic!("{link}: {error}"));
        assert_eq!(target.canonicalize().expect("a target"), binary, "{link}");
        let mut command = home.program(&path);
        command.arg("--help");
        let said = said(command).code(0);
        assert!(said.out.contains(&format!("handover {}", classic.command)), "{link}: {said}");
    }
    // Made once more, in the place of the first ones.
    assert_eq!(home.ok("links some/folder"), told);
}

#[test]
fn links_do_not_replace_other_files() {
    let home = Home::new();
    let theirs = home.cwd().join("bin/tests/perf-regression/node-microbench");
    fs::create_dir_all(theirs.parent().expect("a folder")).expect("a folder");
    fs::write(&theirs, "theirs").expect("a file");
    home.run("links bin").code(2).tells(&["bin/tests/perf-regression/node-microbench"]);
    assert_eq!(fs::read_to_string(&theirs).expect("their file"), "theirs");
    assert!(!home.cwd().join("bin/trylock").exists(), "half of the links were made");
}

#[test]
fn documented_command_lines_run_unchanged() {
    let home = home_with_links();
    check_receiver(&typed(&home, "./notify  # measure receiver side cost").code(0), 2_000_000);
    for line in ["./trylock -n 3 -t 2    # three threads, busy lock", "./trylock -t 1"] {
        let threads_count = if line.contains("-n 3") { 3 } else { 2 };
        check_busy(&typed(&home, line).code(0), threads_count);
    }
    let said = typed(&home, "./notify -S -n 1 # measure sender side cost").code(0);
    assert!(said.out.contains("#wakeups 1000\n"), "{said}");
    for line in ["./hello1_evm -l", "build/demos/hello4_evm -l 10", "./hello5_evm -l 2"] {
        let said = typed(&home, &format!("{line} --seconds 0.1")).code(0);
        assert!(said.out.contains("EVM] QUIT timer expired ("), "{said}");
    }
    let said = typed(&home, "tests/perf-regression/margo-p2p-latency -i 10 -n sm://").code(0);
    assert!(said.out.contains("\nnoop\t10\t100\t0\t"), "{said}");
    // As written but for its seconds: the original's is the longest of all lines.
    let line =
        "./margo-p2p-bw -x 4096 -n sm:// -c 1 -D 10".replace("-D 10", "-D 1 -w 0 -X 1048576");
    let said = typed(&home, &line).code(0);
    assert!(said.out.contains("\nPUSH\t0\t1\t0\t4096\t"), "{said}");
}

#[test]
fn refusal_names_the_classic_program() {
    let home = home_with_links();
    let said = typed(&home, "./trylock -n 0").code(2).tells(&["-n", "1..=1024"]);
    assert_eq!(said.err.lines().count(), 1, "{said}");
}
