//! Processes that are killed, fork, are traced by their environment or from outside, or run out of
//! disk space: the test runs itself again as such a process. Not under Miri, which has no
//! processes.
#![cfg(not(any(handover_loom, miri)))]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod raw;

use handover_probe::other_process::Process;
use handover_probe::read::{RecordingState, Trace, find_traces, merge};
use handover_probe::{
    Config, Recording, StartError, disable, enable, prepare, probe, span, trace_file,
    unrecorded_events_count,
};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Name of the variable that holds the trace's path for the child process.
const PATH: &str = "HANDOVER_PROBE_TEST_PATH";
/// Name of the variable with which a child process cannot start threads.
const WITHOUT_THREAD: &str = "HANDOVER_PROBE_TEST_WITHOUT_THREAD";
/// Maximum wait for space in a ring, longer than any machine needs.
const WAIT_MAX: Duration = Duration::from_secs(100);
/// Held by a test that starts a recording in this process, which can have one at a time.
static RECORDS: Mutex<()> = Mutex::new(());

/// Returns the trace's path in the child process; `None` in the test itself.
fn path_of_child() -> Option<PathBuf> {
    let path = std::env::var_os(PATH).map(PathBuf::from);
    // If the child hangs, SIGALRM ends it, and its test fails.
    path.inspect(|_| raw::die_after(120))
}

/// Prepares a command that runs this test as a child process.
fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this very file"));
    command.args(["--exact", test, "--nocapture"]).env(PATH, path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Waits for a line of the child that contains `word`, and returns the text behind it.
fn line(child: &mut Child, word: &str) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    loop {
        let line = lines.next().expect("the child says more").unwrap();
        // The test harness may write before it on the same line.
        if let Some((_, rest)) = line.split_once(word) {
            return rest.trim().to_owned();
        }
    }
}

/// Waits until the parent writes a byte or closes the pipe.
fn wait_for_the_parent() {
    let _ = std::io::stdin().read(&mut [0]);
}

fn mark(numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| probe!("process.mark", number));
}

#[test]
fn killed_process_leaves_all_events_readable() {
    const EVENTS: u64 = 100_000;
    if let Some(path) = path_of_child() {
        let _recording = Recording::start(Config::last(path).ring_bytes(1 << 22)).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        println!("recorded");
        wait_for_the_parent();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let mut child = child("killed_process_leaves_all_events_readable", &path).spawn().unwrap();
    line(&mut child, "recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.state(), RecordingState::Unfinished);
    let values = trace.merged_events().map(|event| event.values()[0]);
    assert!(values.eq(0..EVENTS));
    assert_eq!(trace.missing_events().total_count(), 0);
}

#[test]
fn killed_stream_is_completed_from_its_rings() {
    const EVENTS: u64 = 300_000;
    if let Some(path) = path_of_child() {
        let wait_max = if path.ends_with("waits") { WAIT_MAX } else { Duration::ZERO };
        let _recording = Recording::start(Config::stream(path).wait_max(wait_max)).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        println!("recorded");
        mark(EVENTS..u64::MAX);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let killed = |name: &str| {
        let path = folder.path().join(name);
        let mut child = child("killed_stream_is_completed_from_its_rings", &path).spawn().unwrap();
        line(&mut child, "recorded");
        child.kill().unwrap();
        child.wait().unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.state(), RecordingState::Unfinished);
        assert_eq!((trace.missing_events().damaged, trace.missing_events().unread_max), (0, 0));
        (path, trace)
    };

    // Events lost for lack of space are counted, as of the last event that was recorded.
    let lost = folder.path().join("lost");
    std::fs::create_dir(&lost).unwrap();
    let (_, trace) = killed("lost/loses");
    let mut next = 0;
    let mut gaps = 0;
    for event in trace.merged_events() {
        let value = event.values()[0];
        gaps += value - next;
        next = value + 1;
    }
    assert!(
        trace.missing_events().total_count() >= gaps,
        "{gaps} gaps, {:?}",
        trace.missing_events()
    );
    let rings_without_trace = trace.rings_path().expect("they were left").to_owned();
    drop(trace);
    std::fs::remove_dir_all(lost).unwrap();

    let (path, trace) = killed("waits");
    let count = trace.merged_events().count() as u64;
    assert!(trace.merged_events().map(|event| event.values()[0]).eq(0..count));
    assert!(count >= EVENTS, "{count} events");

    // Rings are kept while they complete a trace, and are removed when the next recording begins
    // after that. Without the trace's folder, which may be in another mount namespace, they are
    // kept for a week.
    let rings = trace.rings_path().expect("they were left").to_owned();
    let next = || {
        let _only = RECORDS.lock();
        drop(Recording::start(Config::stream(folder.path().join("next"))).unwrap());
    };
    next();
    assert!(rings.exists() && rings_without_trace.exists());
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let file = std::fs::File::options().write(true).open(&rings_without_trace).unwrap();
    file.set_modified(long_ago).unwrap();
    drop(file);
    next();
    assert!(rings.exists() && !rings_without_trace.exists());
    let kept = folder.path().join("kept");
    std::fs::rename(&path, &kept).unwrap();
    next();
    assert!(!rings.exists(), "{rings:?}");

    // Without the rings, the trace gives an upper bound of the missing events.
    std::fs::rename(&kept, &path).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(trace.rings_path().is_none());
    let rest = trace.merged_events().count() as u64;
    assert!(
        rest + trace.missing_events().unread_max >= count,
        "{rest}, {:?}",
        trace.missing_events()
    );
    assert!(trace.missing_events().unread_max > 0);
}

#[test]
fn killed_stream_at_a_link_keeps_its_rings_at_a_relative_path() {
    if let Some(path) = path_of_child() {
        let _recording = Recording::start(Config::stream(path).rings_path("rings")).unwrap();
        enable("process.*").unwrap();
        mark(0..10);
        println!("recorded");
        wait_for_the_parent();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut command = child("killed_stream_at_a_link_keeps_its_rings_at_a_relative_path", &link);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    line(&mut child, "recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = Trace::open(&link).unwrap();
    assert!(trace.merged_events().map(|event| event.values()[0]).eq(0..10));
    assert!(trace_file::is_rings_file_needed(&folder.path().join("rings")));
}

#[test]
fn forked_child_records_into_its_own_file_with_the_same_clock() {
    if let Some(path) = path_of_child() {
        let recording = Recording::start(Config::stream(path).wait_max(WAIT_MAX)).unwrap();
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
                raw::exit(0); // exit() runs the handlers that finish the recording
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
    let test = "forked_child_records_into_its_own_file_with_the_same_clock";
    let output = child(test, &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let paths = find_traces(&path).unwrap();
    assert_eq!(paths.len(), 2, "{paths:?}");
    let traces: Vec<Trace> = paths.iter().map(|path| Trace::open(path).unwrap()).collect();
    assert!(traces.iter().all(|trace| trace.state() == RecordingState::Finished));
    assert_eq!(traces[1].parent_pid(), traces[0].pid());
    let marks = merge(&traces).unwrap().filter(|(_, event)| event.values().len() == 1);
    let output_text: Vec<(usize, u64)> =
        marks.map(|(trace, event)| (trace, event.values()[0])).collect();
    let expected = (0..30).map(|number| (usize::from((10..20).contains(&number)), number));
    assert!(output_text.iter().copied().eq(expected), "{output_text:?}");
}

#[test]
fn stream_thread_takes_no_signal_that_the_program_waits_for() {
    if let Some(path) = path_of_child() {
        // In a fork, which has none of the test harness's threads.
        let status = raw::fork(|| {
            raw::die_after(120);
            let config = Config::stream(&path).ring_bytes(1 << 16).wait_max(WAIT_MAX);
            let recording = Recording::start(config).unwrap();
            enable("process.*").unwrap();
            mark(0..100_000); // more than the ring holds: the thread has begun
            let is_waited_for = raw::waits_for_its_own_signal();
            drop(recording);
            raw::exit(i32::from(!is_waited_for));
        });
        assert_eq!(status, 0);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "stream_thread_takes_no_signal_that_the_program_waits_for";
    succeeds(child(test, &folder.path().join("signal")));
}

#[test]
fn finish_in_a_forked_child_leaves_the_recording_to_the_parent() {
    if let Some(path) = path_of_child() {
        let mut recording = Some(Recording::start(Config::stream(&path)).unwrap());
        enable("process.*").unwrap();
        mark(0..10);
        let status = raw::fork(|| {
            raw::die_after(120);
            let recording = recording.take().unwrap();
            let lost = recording.lost_events_count();
            let summary = recording.finish();
            let is_without_counts = (lost, summary.threads_count, summary.recorded) == (0, 0, 0);
            let is_refused =
                summary.failure.is_some_and(|error| error.to_string().contains("parent"));
            raw::exit(i32::from(!is_without_counts || !is_refused));
        });
        assert_eq!(status, 0);
        mark(10..20);
        disable("*").unwrap();
        assert_eq!(recording.unwrap().finish().recorded, 20);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parents");
    succeeds(child("finish_in_a_forked_child_leaves_the_recording_to_the_parent", &path));
    assert!(values_of(&[path]).into_iter().eq(0..20));
}

#[test]
fn environment_enables_sites_before_main() {
    if path_of_child().is_some() {
        if std::env::var("HANDOVER_TRACE").is_err() {
            assert!(handover_probe::sites().iter().all(|site| !site.is_on));
        }
        mark(0..10);
        std::thread::spawn(|| mark(10..20)).join().unwrap();
        probe!("other.mark");
        return; // the process ends without finishing the recording explicitly
    }
    let folder = tempfile::tempdir().unwrap();
    for (policy, pattern, events) in
        [("last", "process.*", 20), ("stream", "process.*", 20), ("stream", "*,-process.*", 1)]
    {
        let output = child("environment_enables_sites_before_main", folder.path())
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
        assert_eq!(trace.state(), RecordingState::Finished);
        assert_eq!(trace.merged_events().count(), events, "{policy} {pattern}");
        std::fs::remove_file(&traces[0]).unwrap();
    }
}

#[test]
fn invalid_variable_is_reported_and_the_program_runs() {
    if path_of_child().is_some() {
        mark(0..10);
        return;
    }
    let output = child("invalid_variable_is_reported_and_the_program_runs", Path::new("/"))
        .env("HANDOVER_TRACE", "*")
        .env("HANDOVER_TRACE_POLICY", "most")
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success());
    assert!(
        output_text.contains("HANDOVER_TRACE_POLICY=most: must be `last` or `stream`"),
        "{output_text}"
    );
}

#[test]
fn full_disk_stops_recording_and_lost_events_are_counted() {
    const EVENTS: u64 = 2_000_000;
    const BYTES_MAX: u64 = 3 << 20;
    if let Some(path) = path_of_child() {
        // Limits the size of files: a full disk for one process. Until it is full, no events are
        // lost.
        let config = Config::stream(&path).ring_bytes(1 << 20).wait_max(WAIT_MAX);
        raw::limit_files(BYTES_MAX);
        let recording = Recording::start(config).unwrap();
        enable("process.*").unwrap();
        mark(0..EVENTS);
        assert!(recording.lost_events_count() > 0);
        disable("*").unwrap();
        let summary = recording.finish();
        assert!(summary.failure.is_some());
        assert_eq!(summary.recorded + summary.lost, EVENTS);
        println!("kept {}", summary.recorded);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let test = "full_disk_stops_recording_and_lost_events_are_counted";
    let mut child = child(test, &path).spawn().unwrap();
    let kept: u64 = line(&mut child, "kept").parse().unwrap();
    assert!(child.wait().unwrap().success());
    let trace = Trace::open(&path).unwrap();
    assert!(
        matches!(trace.state(), RecordingState::Failed(errno) if errno != 0),
        "{:?}",
        trace.state()
    );
    assert!(trace.merged_events().count() as u64 == kept && kept > 100_000);
    assert_eq!(trace.missing_events().lost, EVENTS - kept);
}

#[test]
fn thread_interrupted_by_many_signals_gets_its_ring() {
    extern "C" fn ignore(_: i32) {}
    if let Some(path) = path_of_child() {
        raw::on_interrupt(ignore);
        // The file of rings is in memory, where a signal can end the allocation of a large ring.
        let _recording = Recording::start(Config::stream(path).ring_bytes(1 << 25)).unwrap();
        let (is_done, thread) = (AtomicBool::new(false), raw::this_thread());
        let has_ring = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    raw::interrupt(thread);
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            std::thread::sleep(Duration::from_millis(1));
            let has_ring = prepare();
            is_done.store(true, Ordering::Relaxed);
            has_ring
        });
        assert!(has_ring);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "thread_interrupted_by_many_signals_gets_its_ring";
    succeeds(child(test, &folder.path().join("interrupted")));
}

#[test]
fn failed_start_leaves_no_file() {
    if let Some(folder) = path_of_child() {
        let (path, rings) = (folder.join("trace"), folder.join("rings"));
        let is_without_thread = std::env::var_os(WITHOUT_THREAD).is_some();
        if is_without_thread {
            // Less than the stack of a thread.
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
            raw::limit_address_space(pages * 4096 + (1 << 20));
        } else {
            raw::limit_files(4096); // the first page, without a list of sites
        }
        assert!(is_without_thread || Recording::start(Config::last(&path)).is_err());
        assert!(Recording::start(Config::stream(&path).rings_path(&rings)).is_err());
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
        return;
    }
    for is_without_thread in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = child("failed_start_leaves_no_file", folder.path());
        if is_without_thread {
            command.env(WITHOUT_THREAD, "1");
        }
        succeeds(command);
    }
}

#[test]
fn sites_of_another_process_are_switched() {
    if let Some(path) = path_of_child() {
        println!("ready");
        while !path.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        mark(0..10);
        println!("recorded");
        wait_for_the_parent();
        return;
    }
    if handover_probe::backend() == handover_probe::Backend::Flag {
        println!("skipped: switching from outside: sites are flags in this build");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, go) = (folder.path().join("outside"), folder.path().join("go"));
    let mut child = child("sites_of_another_process_are_switched", &go).spawn().unwrap();
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
    assert_eq!((trace.state(), trace.pid()), (RecordingState::Unfinished, child.id()));
    assert_eq!(trace.merged_events().count(), 10);
    drop(child.stdin.take()); // the child exits normally
    assert!(child.wait().unwrap().success());
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.state(), trace.merged_events().count()), (RecordingState::Finished, 10));
}

#[test]
fn request_after_a_failed_one_starts_the_recording() {
    if path_of_child().is_some() {
        println!("ready");
        for (numbers, word) in [(0..10, "failed"), (10..20, "recorded")] {
            wait_for_the_parent();
            mark(numbers);
            println!("{word}");
        }
        wait_for_the_parent();
        return;
    }
    if handover_probe::backend() == handover_probe::Backend::Flag {
        println!("skipped: switching from outside: sites are flags in this build");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let path = missing.join("trace");
    let mut command = child("request_after_a_failed_one_starts_the_recording", &path);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    line(&mut child, "ready");
    let mut process = Process::attach(child.id()).unwrap();
    for word in ["failed", "recorded"] {
        assert!(process.enable("process.mark", &Config::last(&path)).unwrap() > 0);
        child.stdin.as_mut().expect("piped").write_all(b"\n").unwrap();
        line(&mut child, word);
        if word == "failed" {
            std::fs::create_dir(&missing).unwrap();
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(values_of(&[path]).into_iter().eq(10..20));
}

#[test]
fn attach_without_sites_or_process_is_refused() {
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

/// Runs a test again as a child process, and asserts that it succeeds.
fn succeeds(mut command: Command) {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Returns the first value of each event in these traces, sorted; asserts that each trace is
/// finished and has no missing events.
fn values_of(paths: &[PathBuf]) -> Vec<u64> {
    let mut values = Vec::new();
    for path in paths {
        let trace = Trace::open(path).unwrap();
        assert_eq!(
            (trace.state(), trace.missing_events().total_count()),
            (RecordingState::Finished, 0),
            "{path:?}"
        );
        values.extend(trace.merged_events().map(|event| event.values()[0]));
    }
    values.sort_unstable();
    values
}

#[test]
fn thread_outliving_main_does_not_restart_the_recording() {
    const EVENTS: u64 = 1000;
    if path_of_child().is_some() {
        mark(0..EVENTS);
        std::thread::spawn(|| {
            loop {
                probe!("outliving.mark");
                raw::OUTLIVING.fetch_add(1, Ordering::Relaxed);
            }
        });
        while raw::OUTLIVING.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        return; // the exit handlers run, and the thread goes on until the very end
    }
    let folder = tempfile::tempdir().unwrap();
    for policy in ["stream", "last"] {
        let path = folder.path().join(policy);
        let mut command = child("thread_outliving_main_does_not_restart_the_recording", &path);
        command.env("HANDOVER_TRACE", "process.*,outliving.*").env("HANDOVER_TRACE_FILE", &path);
        command.env("HANDOVER_TRACE_POLICY", policy);
        succeeds(command);
        assert_eq!(find_traces(&path).unwrap().len(), 1);
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.state(), RecordingState::Finished);
        let marks = trace.merged_events().filter(|event| event.values().len() == 1);
        assert!(marks.map(|event| event.values()[0]).eq(0..EVENTS), "{policy}");
    }
}

#[test]
fn forked_workers_of_an_unrecorded_parent_keep_their_traces() {
    const WORKERS: u64 = 3;
    if path_of_child().is_some() {
        for worker in 0..WORKERS {
            let status = raw::fork(|| {
                mark(10 * worker..10 * worker + 5);
                let status = raw::fork(|| {
                    mark(10 * worker + 5..10 * worker + 10);
                    raw::exit(0);
                });
                raw::exit(status);
            });
            assert_eq!(status, 0);
        }
        mark(10 * WORKERS..10 * WORKERS + 10);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut command = child("forked_workers_of_an_unrecorded_parent_keep_their_traces", &path);
    command.env("HANDOVER_TRACE", "process.*").env("HANDOVER_TRACE_FILE", &path);
    succeeds(command);
    let paths = find_traces(&path).unwrap();
    assert_eq!(paths.len() as u64, 1 + 2 * WORKERS, "{paths:?}");
    assert!(values_of(&paths).into_iter().eq(0..10 * WORKERS + 10));
}

#[test]
fn programs_with_the_same_file_do_not_replace_an_active_trace() {
    let test = "programs_with_the_same_file_do_not_replace_an_active_trace";
    if let Some(path) = path_of_child() {
        if std::env::var_os("HANDOVER_TRACE").is_none() {
            let _recording = Recording::start(Config::last(path)).unwrap();
            println!("recorded");
            wait_for_the_parent();
            return;
        }
        mark(0..10);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut holder = child(test, &path).spawn().unwrap();
    line(&mut holder, "recorded");
    let only = RECORDS.lock();
    let refused = Recording::start(Config::last(&path)).unwrap_err();
    drop(only);
    let StartError::File { source, .. } = &refused else { panic!("{refused}") };
    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists, "{source}");
    for _ in 0..2 {
        let mut command = child(test, &path);
        command.env("HANDOVER_TRACE", "process.*").env("HANDOVER_TRACE_FILE", &path);
        succeeds(command);
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert_eq!(Trace::open(&path).unwrap().pid(), holder.id());
    let others = find_traces(&path).unwrap().split_off(1);
    assert_eq!(others.len(), 2, "{others:?}");
    assert_eq!(values_of(&others).len(), 20);
}

#[test]
fn allocator_probes_are_recorded_or_counted() {
    if let Some(path) = path_of_child() {
        raw::die_after(20);
        for config in [Config::last(&path), Config::stream(&path)] {
            raw::ALLOCATIONS.store(0, Ordering::Relaxed);
            let unrecorded_before = unrecorded_events_count();
            raw::RECORDS_ALLOCATIONS.store(true, Ordering::Relaxed);
            enable("allocator.*").unwrap();
            let recording = Recording::start(config).unwrap();
            let work = || (0..1000usize).map(|bytes| vec![0u8; bytes + 1].len()).sum::<usize>();
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(work)).collect();
            assert!(work() > 0);
            threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() > 0));
            assert!(!handover_probe::sites().is_empty());
            disable("allocator.*").unwrap();
            raw::RECORDS_ALLOCATIONS.store(false, Ordering::Relaxed);
            let summary = recording.finish();
            assert!(summary.failure.is_none(), "{summary:?}");
            assert!(summary.recorded >= 5000, "{summary:?}");
            // The recording's own thread allocates too, and its allocations are not events of the
            // program.
            let counted =
                summary.recorded + summary.lost + unrecorded_events_count() - unrecorded_before;
            assert!(counted <= raw::ALLOCATIONS.load(Ordering::Relaxed), "{summary:?}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "allocator_probes_are_recorded_or_counted";
    succeeds(child(test, &folder.path().join("allocator")));
}

static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// Flag in the values of a handler's events.
const OF_HANDLER: u64 = 1 << 62;

extern "C" fn handler(_: i32) {
    let number = INTERRUPTS.fetch_add(1, Ordering::Relaxed) | OF_HANDLER;
    probe!("signal.pair", number, !number);
}

#[test]
fn recording_signal_handler_does_not_damage_the_interrupted_events() {
    if let Some(path) = path_of_child() {
        raw::on_interrupt(handler);
        let interrupts_each =
            if std::env::var_os("HANDOVER_LONG").is_some() { 10_000 } else { 100 };
        enable("signal.pair").unwrap();
        let stop = AtomicBool::new(false);
        let (send, threads) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let recorder = scope.spawn(|| {
                send.send(raw::this_thread()).unwrap();
                let mut all = Vec::new();
                for round in 0..6 {
                    // A ring so small that the writer starts blocks, and finds no room, now and
                    // then.
                    let config = match round % 3 {
                        0 => Config::last(&path),
                        1 => Config::stream(&path),
                        _ => Config::stream(&path).wait_max(Duration::from_micros(100)),
                    };
                    let recording = Recording::start(config.ring_bytes(1 << 14)).unwrap();
                    assert!(prepare());
                    let (mut made, first) = (0u64, INTERRUPTS.load(Ordering::Relaxed));
                    while INTERRUPTS.load(Ordering::Relaxed) < first + interrupts_each {
                        probe!("signal.pair", made, !made);
                        made += 1;
                    }
                    all.push((recording.finish(), made));
                    let trace = Trace::open(&path).unwrap();
                    let (mut last, mut last_of_handler) = (None, None);
                    for event in trace.merged_events() {
                        let &[number, complement] = event.values() else {
                            panic!("an event that nobody made: {event:?}")
                        };
                        assert_eq!(number, !complement, "an event that nobody made: {event:?}");
                        let before =
                            if number < OF_HANDLER { &mut last } else { &mut last_of_handler };
                        assert!(before.replace(number) < Some(number), "{event:?}");
                    }
                }
                stop.store(true, Ordering::Relaxed);
                // Events of the handler while there was no recording are in
                // unrecorded_events_count().
                let all_made = all.iter().map(|(_, made)| made).sum::<u64>();
                let counted: u64 =
                    all.iter().map(|(it, _)| it.recorded + it.lost + it.overwritten).sum();
                (all_made, counted)
            });
            let thread = threads.recv().unwrap();
            let runs = || !stop.load(Ordering::Relaxed) && !recorder.is_finished();
            while runs() {
                let handled = INTERRUPTS.load(Ordering::Relaxed);
                raw::interrupt(thread);
                // A signal that is sent while the handler runs would be delivered as it returns,
                // and the thread would make no progress.
                while runs() && INTERRUPTS.load(Ordering::Relaxed) == handled {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_micros(handled % 50));
            }
            let (made, counted) = recorder.join().unwrap();
            let interrupts = INTERRUPTS.load(Ordering::Relaxed);
            assert_eq!(counted + unrecorded_events_count(), made + interrupts);
        });
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "recording_signal_handler_does_not_damage_the_interrupted_events";
    succeeds(child(test, &folder.path().join("signals")));
}

#[test]
fn truncated_trace_ends_the_recording_but_not_the_program() {
    const EVENTS: u64 = 100_000;
    if let Some(path) = path_of_child() {
        let rings = path.with_extension("rings");
        let stream = Config::stream(&path).rings_path(&rings);
        for (config, cut) in [(Config::last(&path), &path), (stream, &rings)] {
            let recording = Recording::start(config.ring_bytes(1 << 16)).unwrap();
            enable("process.mark").unwrap();
            mark(0..10);
            std::fs::File::options().write(true).open(cut).unwrap().set_len(0).unwrap();
            mark(10..EVENTS);
            disable("*").unwrap();
            let summary = recording.finish();
            let failure = summary.failure.expect("a reported failure").to_string();
            assert!(failure.contains("truncated"), "{failure}");
            assert!(summary.lost > EVENTS / 2, "{}", summary.lost);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "truncated_trace_ends_the_recording_but_not_the_program";
    succeeds(child(test, &folder.path().join("cut")));
}

#[test]
fn child_forked_during_a_switch_can_switch_sites() {
    if path_of_child().is_some() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    enable("process.busy").unwrap();
                    disable("process.busy").unwrap();
                }
            });
            let switches = |_| {
                raw::fork(|| {
                    raw::die_after(20);
                    enable("process.mark").unwrap();
                    let on = handover_probe::sites().into_iter().filter(|site| site.is_on);
                    let names: BTreeSet<String> = on.map(|site| site.name).collect();
                    raw::exit(i32::from(!names.contains("process.mark")));
                })
            };
            let failed = (0..30).map(switches).find(|status| *status != 0);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(failed, None, "a child was ended, or its site is off");
        });
        return;
    }
    mark(0..0);
    let test = "child_forked_during_a_switch_can_switch_sites";
    succeeds(child(test, Path::new("/")));
}
