//! Early ends: kill -9, SIGINT and SIGTERM, and participants that die.

use crate::common::{Home, Running, Said, benchmarks, pid, wait_until};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum time for a run to stop: a second, with slack for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Returns the number of runs to kill; `HANDOVER_KILLS` sets it.
fn kills_count() -> u32 {
    std::env::var("HANDOVER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Returns the benchmarks that a run has reported as measured.
fn told(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_suffix(" measured")).collect()
}

fn start<'a>(home: &'a Home, line: &str) -> Running<'a> {
    home.start(home.handover(line.split_whitespace()))
}

/// Starts a program that SIGHUP ends, although these tests may run where it is ignored, as below
/// `nohup`.
fn start_hearing_hangup<'a>(home: &'a Home, line: &str) -> Running<'a> {
    home.start(home.shell(&format!("exec env --default-signal=HUP handover {line}")))
}

#[test]
fn killed_run_keeps_all_reported_benchmarks_in_the_store() {
    let home = Home::new();
    let line = "run clock lock null --profile smoke --no-report";
    home.ok(line);
    let first = home.last();
    let measured_count = benchmarks(&first).len();
    let first = first.run.id;
    let before = home.ok(&format!("export {first}"));
    let mut known = BTreeSet::from([first.clone()]);
    let count = kills_count();
    let mut partial_count = 0;
    for turn in 0..count {
        let mut run = start(&home, line);
        // From the start to the last benchmark, and some time into the one that follows.
        let after = measured_count * turn as usize / count as usize;
        wait_until("so many are measured", || told(&run.told()).len() >= after || run.has_ended());
        sleep(Duration::from_millis(u64::from(turn * 7 % 40)));
        run.signal(Signal::KILL);
        let said = run.finish();
        let told = told(&said.err);
        let rows = home.runs();
        let new: Vec<_> =
            rows.iter().filter(|row| !known.contains(row["id"].as_str().expect("an id"))).collect();
        assert!(new.len() <= 1, "{new:?}");
        let Some(row) = new.first() else {
            assert!(told.is_empty(), "measured, and not even begun in the store: {said}");
            continue;
        };
        let id = row["id"].as_str().expect("an id");
        let stored = crate::common::document(&home.ok(&format!("show {id} --json")));
        let stored = benchmarks(&stored);
        // Stored before it is reported: the run may have been killed between the two.
        assert!(stored.starts_with(&told), "{told:?} were measured, {stored:?} are stored");
        assert!(stored.len() <= told.len() + 1, "{told:?} were measured, {stored:?} are stored");
        if said.status.code().is_none() {
            assert_eq!(row["complete"], false, "{row}");
            partial_count += u32::from(!stored.is_empty());
            let listed = home.ok("runs");
            let line = listed.lines().find(|line| line.starts_with(id)).expect("its line");
            assert!(line.contains("not complete"), "{line}");
        }
        known.insert(id.to_string());
        assert_eq!(home.integrity(), "ok");
    }
    assert!(partial_count > 0, "none was killed in the middle");
    assert!(home.ok(&format!("export {first}")) == before, "an earlier run was changed");
    home.ok("run clock/now --profile smoke --no-report");
    assert!(home.last().run.complete);
    assert_eq!(home.integrity(), "ok");
}

/// Checks a run that was asked to stop before its end.
fn check_stopped(home: &Home, said: Said, asked: Instant) {
    let took = asked.elapsed();
    assert!(took < STOPS_WITHIN, "{took:?}: {said}");
    let said = said.code(130).tells(&["interrupted"]);
    let run = home.last();
    assert!(!run.run.complete && run.run.command.contains(" run "));
    assert_eq!(benchmarks(&run), told(&said.err), "{said}");
    let page = fs::read_to_string(home.cwd().join("report.html")).expect("the page");
    for it in &run.records {
        assert!(said.out.contains(&it.id) && page.contains(&it.id), "{}: {said}", it.id);
    }
    assert!(said.out.contains("the report page is "), "{said}");
    assert!(home.ok("runs").contains("not complete"));
    // One whose coordinator was killed ends a moment later.
    wait_until("no participant process left", || home.processes().is_empty());
}

#[test]
fn interrupted_run_shows_and_stores_completed_measurements() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut run = start(&home, "run *");
        run.wait_for(" measured\n");
        let asked = Instant::now();
        run.signal(signal);
        check_stopped(&home, run.finish(), asked);
    }
}

#[test]
fn terminal_signal_ends_a_run_with_processes() {
    let home = Home::new();
    let mut run = start(&home, "run floor/empty notify --processes --idle-gap 20ms");
    run.wait_for(" measured\n");
    wait_until("a party", || parties(&run).len() == 2);
    let asked = Instant::now();
    // To the whole group, as a terminal does.
    run.signal_all(Signal::INT);
    check_stopped(&home, run.finish(), asked);
}

#[test]
fn signal_before_the_first_figure_leaves_no_run() {
    let home = Home::new();
    // A round of hand-overs at intervals of 100 ms takes long.
    let mut run = start(&home, "run floor/futex --idle-gap 100ms");
    wait_until("the store", || home.db().exists() && home.integrity() == "ok");
    wait_until("the run", || home.run("runs").out.contains("quick"));
    let asked = Instant::now();
    run.signal(Signal::INT);
    assert!(!run.has_ended() || asked.elapsed() < STOPS_WITHIN);
    let said = run.finish().code(130).tells(&["nothing is stored: interrupted"]);
    assert!(asked.elapsed() < STOPS_WITHIN, "{said}");
    assert!(home.runs().is_empty());
}

/// Returns the participant processes of a run: the children of the processes that run its passes.
fn parties(run: &Running) -> Vec<u32> {
    children(run.id()).into_iter().flat_map(children).collect()
}

fn children(of: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Returns `true` if a process is a participant of this benchmark, which its environment names.
fn is_participant_of(id: u32, benchmark: &str) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let spec = format!("\"spec\":\"{benchmark}\"");
    environment.windows(spec.len()).any(|window| window == spec.as_bytes())
}

#[test]
fn killed_participant_fails_its_benchmark_only() {
    let home = Home::new();
    let line = "run floor/eventfd notify/round-trip --processes --time 100ms";
    let mut run = start(&home, line);
    run.wait_for("floor/eventfd measured\n");
    // A participant may be killed after it has given its answer: then the next one is killed.
    wait_until("a party dies", || {
        // Only one of this benchmark: after its first visit the run returns to the other one.
        let mut parties = parties(&run).into_iter();
        if let Some(party) = parties.rfind(|id| is_participant_of(*id, "notify/round-trip")) {
            let _ = kill_process(pid(party), Signal::KILL);
        }
        run.told().contains("died: signal: 9") || run.has_ended()
    });
    let said =
        run.finish().code(1).tells(&["handover: notify/round-trip", "could not be measured"]);
    let run = home.last();
    assert!(run.run.complete, "it went on to its end: {said}");
    for id in ["floor/eventfd", "null/one-cpu"] {
        assert!(benchmarks(&run).contains(&id) && said.out.contains(id), "{id}: {said}");
    }
    assert!(home.processes().is_empty(), "a participant process was left behind");
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn participants_end_when_the_coordinator_is_killed() {
    let home = Home::new();
    for turn in 0..5 {
        let run = start(&home, "run notify floor/futex --processes --idle-gap 100ms");
        wait_until("two parties", || parties(&run).len() == 2);
        sleep(Duration::from_millis(turn * 20));
        run.signal(Signal::KILL);
        run.finish();
        wait_until("no party left", || home.processes().is_empty());
    }
    home.ok("run notify/round-trip --processes --profile smoke --no-report");
}

/// Returns `true` if a signal has stopped that process.
fn is_stopped(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.contains(") T ")
}

/// Returns a child of a run that has not become a participant yet: its environment is still the
/// run's.
fn forked(run: &Running) -> Option<u32> {
    let environment = |id: u32| fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let is_party = |text: &[u8]| text.windows(14).any(|window| window == b"HANDOVER_PARTY");
    parties(run).into_iter().find(|id| {
        let text = environment(*id);
        !text.is_empty() && !is_party(&text)
    })
}

#[test]
fn participant_stopped_before_exec_does_not_delay_a_signal() {
    let home = Home::new();
    let mut run = start(&home, "run floor/empty floor/futex --processes --time 1min");
    run.wait_for("floor/empty measured\n");
    wait_until("a party that is stopped before it calls exec", || {
        let Some(id) = forked(&run) else {
            assert!(!run.has_ended(), "{}", run.told());
            return false;
        };
        let _ = kill_process(pid(id), Signal::STOP);
        // The signal takes effect at once, unless the process is in exec.
        sleep(Duration::from_millis(20));
        let is_stopped = is_stopped(id) && forked(&run) == Some(id);
        if !is_stopped {
            let _ = kill_process(pid(id), Signal::CONT);
        }
        is_stopped
    });
    let asked = Instant::now();
    run.signal(Signal::INT);
    check_stopped(&home, run.finish(), asked);
}

#[test]
fn processes_of_a_repeated_run_end_with_it() {
    for signals in [&[Signal::KILL][..], &[Signal::HUP], &[Signal::INT, Signal::INT]] {
        let home = Home::new();
        let line = "run floor/futex --idle-gap 100ms --time 1h --repeat 2 --no-report";
        let mut run = start_hearing_hangup(&home, line);
        wait_until("the run of a process", || home.run("runs").out.contains("quick"));
        assert!(!run.has_ended(), "{}", run.told());
        for signal in signals {
            run.signal(*signal);
            // Two signals sent at the same time would merge.
            sleep(Duration::from_millis(100));
        }
        run.finish();
        let asked = Instant::now();
        while !home.processes().is_empty() {
            assert!(asked.elapsed() < STOPS_WITHIN, "{signals:?}: it goes on measuring");
            sleep(Duration::from_millis(10));
        }
        assert_eq!(home.integrity(), "ok");
        // The first one is not kept, as it has no figure.
        assert!(home.runs().len() <= 1, "{signals:?}: another was begun");
    }
}

#[test]
fn run_started_by_nohup_does_not_end_with_its_terminal() {
    let home = Home::new();
    let line = "trap '' HUP; exec handover run floor/empty floor/futex --time 100ms --no-report";
    let mut run = home.start(home.shell(line));
    run.wait_for("floor/empty measured\n");
    run.signal(Signal::HUP);
    run.finish().code(0);
    assert!(home.last().run.complete);
}

/// Returns the folders that `calls` has made in the working directory.
fn folders_of_calls(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.cwd()).expect("a folder").flatten();
    let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("handover-calls-")).collect()
}

#[test]
fn trace_folders_of_calls_are_removed_by_it_or_by_its_next_run() {
    for signal in [Signal::HUP, Signal::KILL] {
        let home = Home::new();
        let run = start_hearing_hangup(&home, "calls -m 0.1 --calls 100000 --dir .");
        // It starts processes when its loops are measured.
        wait_until("a process that is costed", || home.processes().len() == 2);
        let folders = folders_of_calls(&home);
        assert_eq!(folders.len(), 1);
        run.signal(signal);
        run.finish();
        wait_until("no process left", || home.processes().is_empty());
        if signal == Signal::KILL {
            assert_eq!(folders_of_calls(&home), folders, "nobody could remove it");
            // As long as the first, so that it still runs when its folder is looked for.
            let next = start(&home, "calls -m 0.1 --calls 100000 --dir .");
            wait_until("the folder of the next alone", || {
                let now = folders_of_calls(&home);
                now.len() == 1 && now != folders
            });
            next.signal(Signal::INT);
            next.finish().code(130);
        }
        assert!(folders_of_calls(&home).is_empty(), "{signal:?}");
    }
}

#[test]
fn killed_margo_p2p_bw_leaves_no_file() {
    let home = Home::new();
    let folder = home.cwd().to_str().expect("a path in UTF-8").to_owned();
    let files = || fs::read_dir(&folder).expect("a folder").count();
    let files_before = files();
    let run = start(&home, "margo-p2p-bw -n sm:// -D 60 -x 4096 -X 1000000 -m buffer");
    let maps = |id: u32| fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
    let mut rank_0 = None;
    wait_until("the file is mapped", || {
        let is_ours = |line: &str| line.contains(&folder) && line.ends_with("(deleted)");
        rank_0 = children(run.id()).into_iter().find(|id| maps(*id).lines().any(is_ours));
        rank_0.is_some()
    });
    // No file is about to be removed.
    assert_eq!(files(), files_before, "it has no name");
    kill_process(pid(rank_0.expect("it is there")), Signal::KILL).expect("it runs");
    run.finish().code(1);
    assert_eq!(files(), files_before, "it is left");
    assert!(home.processes().is_empty());
}

#[test]
fn stopped_participant_does_not_delay_a_signal() {
    let home = Home::new();
    let mut run = start(&home, "run floor/empty floor/futex --processes --time 1min");
    run.wait_for("floor/empty measured\n");
    // A stopped participant neither answers nor dies. One that has given its answer is killed in
    // its turn: then the next one is stopped.
    wait_until("a party that is stopped and waited for", || {
        assert!(!run.has_ended(), "{}", run.told());
        let Some(id) = parties(&run).last().copied() else { return false };
        let _ = kill_process(pid(id), Signal::STOP);
        sleep(Duration::from_millis(100));
        is_stopped(id)
    });
    let asked = Instant::now();
    run.signal(Signal::INT);
    check_stopped(&home, run.finish(), asked);
}
