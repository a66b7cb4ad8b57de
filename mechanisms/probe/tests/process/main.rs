//! Processes that are killed, fork, are traced by their environment or from outside, or find the disk
//! full: the test runs itself again as such a process. Not under Miri, which has none.
#![cfg(not(any(handover_loom, miri)))]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod raw;

use handover_probe::outside::Process;
use handover_probe::read::{End, Trace, family, merge};
use handover_probe::{Config, Recording, disable, enable, probe, span};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Set for the other process: the path of the trace.
const PATH: &str = "HANDOVER_PROBE_TEST_PATH";

/// The path, in the other process.
fn path_of_child() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}

/// This test again, as another process.
fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this very file"));
    command.args(["--exact", test, "--nocapture"]).env(PATH, path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Waits for a line of the child's that begins with `word`, and returns what is behind it.
fn line(child: &mut Child, word: &str) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    loop {
        let line = lines.next().expect("the child says more").unwrap();
        // The test harness writes before it, on the same line.
        if let Some((_, rest)) = line.split_once(word) {
            return rest.trim().to_owned();
        }
    }
}

fn wait_for_the_end() {
    let _ = std::io::stdin().read(&mut [0]);
}

fn mark(numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| probe!("process.mark", number));
}

#[test]
fn a_killed_process_leaves_every_event() {
    const EVENTS: u64 = 100_000;
    if let Some(path) = path_of_child() {
        let _recording = Recording::start(Config::last(path).ring_bytes(1 << 22)).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        println!("recorded");
        wait_for_the_end();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let mut child = child("a_killed_process_leaves_every_event", &path).spawn().unwrap();
    line(&mut child, "recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.end(), End::Open);
    let values = trace.merged().map(|event| event.values()[0]);
    assert!(values.eq(0..EVENTS));
    assert_eq!(trace.missing().total(), 0);
}

#[test]
fn a_killed_stream_is_completed_from_its_rings() {
    const EVENTS: u64 = 300_000;
    if let Some(path) = path_of_child() {
        let _recording = Recording::start(Config::stream(path)).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        println!("recorded");
        mark(EVENTS..u64::MAX);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let mut child = child("a_killed_stream_is_completed_from_its_rings", &path).spawn().unwrap();
    line(&mut child, "recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.end(), End::Open);
    let mut count = 0;
    let mut next = 0;
    let mut gaps = 0;
    for event in trace.merged() {
        let value = event.values()[0];
        gaps += value - next;
        next = value + 1;
        count += 1;
    }
    assert!(count >= EVENTS, "{count} events");
    // What has no room in the rings is counted, up to the last time that anything had.
    let missing = trace.missing();
    assert!(missing.total() >= gaps, "{gaps} gaps, {missing:?}");
    assert_eq!((missing.damaged, missing.unread_max), (0, 0));

    // Without its rings, it says how many may be missing.
    let rings = trace.rings_path().expect("they were left").to_owned();
    std::fs::remove_file(rings).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(trace.rings_path().is_none());
    let rest = trace.merged().count() as u64;
    assert!(rest + trace.missing().unread_max >= count, "{rest}, {:?}", trace.missing());
    assert!(trace.missing().unread_max > 0);
}

#[test]
fn a_fork_records_into_a_file_of_its_own_on_the_same_time_line() {
    if let Some(path) = path_of_child() {
        let recording = Recording::start(Config::stream(path)).unwrap();
        enable("process.*").unwrap();
        mark(0..10);
        // A thread that records at the moment of the fork.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _span = span!("process.busy");
                }
            };
            scope.spawn(busy);
            let status = raw::fork(|| {
                mark(10..20);
                raw::exit(0); // by exit(), whose handlers finish the recording
            });
            assert_eq!(status, 0);
            mark(20..30);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        disable("*").unwrap();
        assert_eq!(recording.finish().lost, 0);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forked");
    let test = "a_fork_records_into_a_file_of_its_own_on_the_same_time_line";
    let output = child(test, &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let paths = family(&path).unwrap();
    assert_eq!(paths.len(), 2, "{paths:?}");
    let traces: Vec<Trace> = paths.iter().map(|path| Trace::open(path).unwrap()).collect();
    assert!(traces.iter().all(|trace| trace.end() == End::Finished));
    assert_eq!(traces[1].parent_pid(), traces[0].pid());
    let marks = merge(&traces).unwrap().filter(|(_, event)| event.values().len() == 1);
    let said: Vec<(usize, u64)> = marks.map(|(trace, event)| (trace, event.values()[0])).collect();
    let expected = (0..30).map(|number| (usize::from((10..20).contains(&number)), number));
    assert!(said.iter().copied().eq(expected), "{said:?}");
}

#[test]
fn the_environment_switches_sites_on_before_main() {
    if path_of_child().is_some() {
        if std::env::var("HANDOVER_TRACE").is_err() {
            assert!(handover_probe::sites().iter().all(|site| !site.is_on));
        }
        mark(0..10);
        std::thread::spawn(|| mark(10..20)).join().unwrap();
        probe!("other.mark");
        return; // and the process ends without another word
    }
    let folder = tempfile::tempdir().unwrap();
    for (policy, pattern, events) in
        [("last", "process.*", 20), ("stream", "process.*", 20), ("stream", "*,-process.*", 1)]
    {
        let output = child("the_environment_switches_sites_on_before_main", folder.path())
            .env("HANDOVER_TRACE", pattern)
            .env("HANDOVER_TRACE_FILE", folder.path().join("%p.trace"))
            .env("HANDOVER_TRACE_POLICY", policy)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let traces: Vec<PathBuf> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path()).collect();
        assert_eq!(traces.len(), 1, "{traces:?}");
        let trace = Trace::open(&traces[0]).unwrap();
        assert_eq!(trace.end(), End::Finished);
        assert_eq!(trace.merged().count(), events, "{policy} {pattern}");
        std::fs::remove_file(&traces[0]).unwrap();
    }
}

#[test]
fn a_wrong_variable_is_told_and_the_program_goes_on() {
    if path_of_child().is_some() {
        mark(0..10);
        return;
    }
    let output = child("a_wrong_variable_is_told_and_the_program_goes_on", Path::new("/"))
        .env("HANDOVER_TRACE", "*")
        .env("HANDOVER_TRACE_POLICY", "most")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success());
    assert!(said.contains("HANDOVER_TRACE_POLICY=most: write last or stream"), "{said}");
}

#[test]
fn a_full_disk_stops_recording_and_not_the_program_and_the_loss_is_stated() {
    const EVENTS: u64 = 2_000_000;
    const BYTES_MAX: u64 = 3 << 20;
    if let Some(path) = path_of_child() {
        // No file may grow beyond: what a full disk is like, for one process.
        let config = Config::stream(&path).ring_bytes(1 << 20);
        raw::limit_files(BYTES_MAX);
        let recording = Recording::start(config).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        assert!(recording.lost() > 0);
        disable("*").unwrap();
        let summary = recording.finish();
        assert!(summary.failure.is_some());
        assert_eq!(summary.recorded + summary.lost, EVENTS);
        println!("kept {}", summary.recorded);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let test = "a_full_disk_stops_recording_and_not_the_program_and_the_loss_is_stated";
    let mut child = child(test, &path).spawn().unwrap();
    let kept: u64 = line(&mut child, "kept").parse().unwrap();
    assert!(child.wait().unwrap().success());
    let trace = Trace::open(&path).unwrap();
    assert!(matches!(trace.end(), End::Failed(errno) if errno != 0), "{:?}", trace.end());
    assert!(trace.merged().count() as u64 == kept && kept > 100_000);
    assert_eq!(trace.missing().lost, EVENTS - kept);
}

#[test]
fn sites_of_another_process_are_switched_from_outside() {
    if let Some(path) = path_of_child() {
        println!("ready");
        while !path.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        mark(0..10);
        println!("recorded");
        wait_for_the_end();
        return;
    }
    if handover_probe::backend() == handover_probe::Backend::Flag {
        println!("skipped: switching from outside: sites are flags in this build");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, go) = (folder.path().join("outside"), folder.path().join("go"));
    let mut child =
        child("sites_of_another_process_are_switched_from_outside", &go).spawn().unwrap();
    line(&mut child, "ready");
    let mut process = Process::attach(child.id()).unwrap();
    assert!(process.sites().iter().any(|site| site.name == "process.busy" && !site.is_on));
    assert_eq!(process.enable("process.*", &Config::stream(&path)).unwrap(), 2);
    assert_eq!(process.enable("nothing", &Config::stream(&path)).unwrap(), 0);
    std::fs::write(&go, "").unwrap();
    line(&mut child, "recorded");
    let process_again = Process::attach(child.id()).unwrap();
    assert_eq!(process_again.sites().iter().filter(|site| site.is_on).count(), 2);
    assert_eq!(process.disable("*").unwrap(), process.sites().len());
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.end(), trace.pid()), (End::Open, child.id()));
    assert_eq!(trace.merged().count(), 10);
    drop(child.stdin.take()); // it ends in order
    assert!(child.wait().unwrap().success());
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.end(), trace.merged().count()), (End::Finished, 10));
}

#[test]
fn a_process_without_sites_or_without_a_number_is_refused_clearly() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let error = Process::attach(sleeper.id()).unwrap_err().to_string();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(error.contains("has no sites"), "{error}");
    let error = Process::attach(u32::MAX).unwrap_err().to_string();
    assert!(error.contains("no process"), "{error}");
    let relative = Process::attach(std::process::id())
        .and_then(|mut process| process.enable("x", &Config::last("relative")));
    let expected = if handover_probe::backend() == handover_probe::Backend::Flag {
        "has no sites"
    } else {
        "absolute"
    };
    assert!(relative.unwrap_err().to_string().contains(expected));
}
