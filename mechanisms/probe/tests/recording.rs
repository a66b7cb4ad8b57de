//! Recording and reading back in one process. Not under Miri, which cannot map files.
#![cfg(not(any(handover_loom, miri)))]

use handover_probe::format::{FILE_RINGS, SEGMENT_LANE, SegmentHeader, TraceHeader};
use handover_probe::read::{Event, EventKind, ReadAt, RecordingState, Trace};
use handover_probe::{Config, Recording, StartError, disable, enable, prepare, probe, span};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Excludes the other tests, as a process has one recording at a time, and makes a folder.
fn exclusive() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    disable("*").unwrap();
    (exclusive, tempfile::tempdir().unwrap())
}

fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("a.trace")
}

fn name(trace: &Trace, event: &Event) -> String {
    trace.site(event.site).map(|site| site.name.clone()).unwrap_or_default()
}

#[test]
fn recorded_events_are_read_back_with_both_policies() {
    let (_alone, folder) = exclusive();
    for config in [Config::last(path(&folder)), Config::stream(path(&folder))] {
        let recording = Recording::start(config.clone()).unwrap();
        enable("back.*").unwrap();
        {
            let _span = span!("back.span", 5);
            probe!("back.mark", -1i32, u64::MAX);
            probe!("back.plain");
        }
        disable("*").unwrap();
        let summary = recording.finish();
        assert_eq!((summary.recorded, summary.lost, summary.threads_count), (4, 0, 1));
        assert!(summary.failure.is_none(), "{:?}", summary.failure);

        let trace = Trace::open(config.path()).unwrap();
        assert_eq!(trace.state(), RecordingState::Finished);
        assert_eq!(trace.pid(), std::process::id());
        let events: Vec<Event> = trace.merged_events().collect();
        let recorded: Vec<(String, EventKind, &[u64])> =
            events.iter().map(|event| (name(&trace, event), event.kind, event.values())).collect();
        let expected: [(&str, EventKind, &[u64]); 4] = [
            ("back.span", EventKind::Enter, &[5]),
            ("back.mark", EventKind::Mark, &[u64::MAX, u64::MAX]),
            ("back.plain", EventKind::Mark, &[]),
            ("back.span", EventKind::Leave, &[]),
        ];
        assert_eq!(recorded, expected.map(|(name, kind, values)| (name.to_owned(), kind, values)));
        assert!(events.is_sorted_by_key(|event| event.ticks));
        assert_eq!(trace.missing_events().total_count(), 0);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let age_ns = now - trace.realtime_ns_from_ticks(events[0].ticks);
        assert!((0..60_000_000_000).contains(&age_ns), "recorded {age_ns} ns ago");
    }
}

#[test]
fn each_thread_has_its_name_and_end_time() {
    let (_alone, folder) = exclusive();
    for config in [Config::last(path(&folder)), Config::stream(path(&folder))] {
        let recording = Recording::start(config.clone()).unwrap();
        enable("threads.*").unwrap();
        for number in 0..3u64 {
            let work = move || (0..1_000).for_each(|_| probe!("threads.mark", number));
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            thread.spawn(work).unwrap().join().unwrap();
        }
        disable("*").unwrap();
        let summary = recording.finish();
        assert_eq!((summary.recorded, summary.lost), (3_000, 0));
        let trace = Trace::open(config.path()).unwrap();
        for (index, thread) in trace.threads().iter().enumerate() {
            assert_eq!(thread.name, format!("worker {index}"));
            let (begin, end) = (thread.begin_ticks, thread.end_ticks.expect("it has ended"));
            let events: Vec<Event> = trace.events(index).collect();
            assert_eq!(events.len() as u64, thread.events_count);
            assert!(events.iter().all(|event| event.values() == [index as u64]));
            // The first event's time is read before the thread has its ring.
            assert!(events[1..].iter().all(|event| (begin..=end).contains(&event.ticks)));
        }
        assert_eq!(trace.threads().len(), 3);
        assert_eq!(trace.merged_events().count(), 3_000);
    }
}

#[test]
fn waiting_thread_loses_no_event_with_the_smallest_ring() {
    let (_alone, folder) = exclusive();
    const EVENTS: u64 = 200_000;
    let wait = std::time::Duration::from_secs(100);
    let config = Config::stream(path(&folder)).ring_bytes(8192).wait_max(wait);
    let recording = Recording::start(config).unwrap();
    enable("held.*").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..EVENTS / 2 {
                    if number % 3 == 0 {
                        probe!("held.mark", number);
                    } else {
                        probe!("held.plain");
                    }
                }
            });
        }
    });
    disable("*").unwrap();
    let summary = recording.finish();
    assert_eq!((summary.recorded, summary.lost), (EVENTS, 0));
    let trace = Trace::open(summary.path).unwrap();
    assert_eq!(
        (trace.merged_events().count() as u64, trace.missing_events().total_count()),
        (EVENTS, 0)
    );
}

#[test]
fn last_policy_keeps_the_newest_events_and_counts_the_rest() {
    let (_alone, folder) = exclusive();
    const EVENTS: u64 = 10_000;
    let recording = Recording::start(Config::last(path(&folder)).ring_bytes(8192)).unwrap();
    enable("last.*").unwrap();
    (0..EVENTS).for_each(|number| probe!("last.mark", number));
    disable("*").unwrap();
    let summary = recording.finish();
    assert_eq!(summary.recorded + summary.overwritten, EVENTS);
    let trace = Trace::open(summary.path).unwrap();
    let values: Vec<u64> = trace.merged_events().map(|event| event.values()[0]).collect();
    assert_eq!(values.len() as u64, summary.recorded);
    assert!(values.iter().copied().eq(EVENTS - summary.recorded..EVENTS));
    assert_eq!(trace.missing_events().overwritten, summary.overwritten);
    assert_eq!(trace.missing_events().total_count(), 0);
}

#[test]
fn blocks_overwritten_while_a_trace_is_read_are_left_out_and_holes_counted() {
    let (_alone, folder) = exclusive();
    let recording = Recording::start(Config::last(path(&folder)).ring_bytes(1 << 14)).unwrap();
    enable("live.*").unwrap();
    let work = || (0..10_000u64).for_each(|number| probe!("live.mark", number));
    work();
    let trace = Trace::open(path(&folder)).unwrap();
    let copy = std::fs::read(path(&folder)).unwrap();
    let is_lane =
        |at: &usize| SegmentHeader::decode(&copy[*at..]).is_some_and(|it| it.kind == SEGMENT_LANE);
    let lane = (0..copy.len()).step_by(4096).find(is_lane).unwrap();
    work();
    disable("*").unwrap();
    let mut events = trace.events(0);
    assert_eq!((events.by_ref().count(), events.is_truncated()), (0, true));
    // Copies in which the process is just beginning a block in the place of the oldest, and in
    // which a block is missing between others. Each block has space for 254 events with a value.
    let blocks = [1, 2, 3, 4].map(|at| lane + at * 4096);
    let number = |at: &usize| u64::from_le_bytes(copy[*at..][..8].try_into().unwrap());
    let oldest =
        blocks.iter().position(|at| number(at) == blocks.iter().map(number).min().unwrap());
    for (missing, damaged) in [(oldest.unwrap(), 0), ((oldest.unwrap() + 1) % 4, 254)] {
        let mut bytes = copy.clone();
        bytes[blocks[missing]..][..8].fill(0);
        // The file has grown for the ring of a thread that is not described yet.
        bytes.resize(bytes.len() + 4096, 0);
        let trace = Trace::from_bytes(bytes).unwrap();
        assert_eq!((trace.missing_events().damaged, trace.damaged_bytes()), (damaged, 0));
    }
    // Copies in which a block was read before the process replaced it, and the later ones after.
    for old in [oldest.unwrap(), (oldest.unwrap() + 1) % 4] {
        let mut bytes = copy.clone();
        for (word, less) in [(0, 4), (2, 4 * 254)] {
            let at = blocks[old] + word * 8;
            let now = u64::from_le_bytes(bytes[at..][..8].try_into().unwrap());
            bytes[at..][..8].copy_from_slice(&(now - less).to_le_bytes());
        }
        let trace = Trace::from_bytes(bytes).unwrap();
        let missing = trace.missing_events();
        assert_eq!((missing.damaged, missing.overwritten), (0, 10_000 - events_count(&trace)));
    }
    drop(recording);
}

fn events_count(trace: &Trace<Vec<u8>>) -> u64 {
    let count = trace.merged_events().count() as u64;
    assert_eq!(count, trace.threads().iter().map(|thread| thread.events_count).sum::<u64>());
    count
}

#[test]
fn ring_that_is_taken_over_while_a_trace_is_read_is_not_damage() {
    let (_alone, folder) = exclusive();
    let recording = Recording::start(Config::last(path(&folder)).ring_bytes(1 << 14)).unwrap();
    enable("taken.*").unwrap();
    probe!("taken.mark");
    std::thread::spawn(|| probe!("taken.mark")).join().unwrap();
    disable("*").unwrap();
    let mut bytes = std::fs::read(path(&folder)).unwrap();
    let is_lane =
        |at: &usize| SegmentHeader::decode(&bytes[*at..]).is_some_and(|it| it.kind == SEGMENT_LANE);
    let lane = (0..bytes.len()).step_by(4096).find(is_lane).unwrap();
    bytes[lane..][..4096].fill(0);
    let trace = Trace::from_bytes(bytes).unwrap();
    assert_eq!((trace.threads().len(), trace.damaged_bytes()), (1, 0));
    drop(recording);
}

/// File of a trace whose process records events while the file is read.
#[derive(Debug)]
struct LiveFile {
    file: File,
    /// Records events; called after the length of the file was read.
    record: fn(),
}

impl ReadAt for LiveFile {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        ReadAt::read_at(&self.file, offset, to)
    }

    fn bytes(&self) -> io::Result<u64> {
        let bytes = self.file.bytes();
        (self.record)();
        bytes
    }
}

#[test]
fn rings_that_turn_over_while_a_stream_is_read_leave_no_hole() {
    let (_alone, folder) = exclusive();
    let (path, rings) = (path(&folder), folder.path().join("rings"));
    let wait = std::time::Duration::from_secs(100);
    let config = Config::stream(&path).rings_path(&rings).ring_bytes(1 << 14).wait_max(wait);
    let recording = Recording::start(config).unwrap();
    enable("turn.*").unwrap();
    let record = || (0..10_000u64).for_each(|number| probe!("turn.mark", number));
    record();
    let stream = LiveFile { file: File::open(&path).unwrap(), record };
    let rings = LiveFile { file: File::open(&rings).unwrap(), record: || () };
    let trace = Trace::read(stream, Some(rings)).unwrap();
    assert_eq!(trace.missing_events().damaged, 0);
    assert!(trace.threads()[0].events_count >= 10_000, "{:?}", trace.threads());
    disable("*").unwrap();
    drop(recording);
}

#[test]
fn trace_of_an_earlier_process_with_the_same_pid_is_replaced() {
    let (_alone, folder) = exclusive();
    let pid = std::process::id();
    drop(Recording::start(Config::last(path(&folder))).unwrap());
    let own = TraceHeader::decode(&std::fs::read(path(&folder)).unwrap()).unwrap().process_start;
    // A process that has executed another program has the same start, and 0 is an unknown one.
    for (process_start, is_replaced) in [(own + 1, true), (own, false), (0, false)] {
        let header = TraceHeader { kind: FILE_RINGS, pid, process_start, ..TraceHeader::default() };
        std::fs::write(path(&folder), header.encode()).unwrap();
        assert_eq!(Recording::start(Config::last(path(&folder))).is_ok(), is_replaced);
    }
}

#[test]
fn slow_stream_counts_every_lost_event() {
    let (_alone, folder) = exclusive();
    const EVENTS: u64 = 300_000;
    let config = Config::stream(path(&folder)).ring_bytes(8192);
    let recording = Recording::start(config).unwrap();
    enable("slow.*").unwrap();
    (0..EVENTS).for_each(|number| probe!("slow.mark", number));
    disable("*").unwrap();
    let summary = recording.finish();
    assert_eq!(summary.recorded + summary.lost, EVENTS);
    assert!(summary.lost > 0, "a ring of 8 KiB held all of {EVENTS} events");
    let trace = Trace::open(summary.path).unwrap();
    let values: Vec<u64> = trace.merged_events().map(|event| event.values()[0]).collect();
    assert_eq!(values.len() as u64, summary.recorded);
    assert!(values.is_sorted());
    assert_eq!(trace.missing_events().lost, summary.lost);
}

#[test]
fn long_stream_of_several_threads_is_complete_and_compact() {
    let (_alone, folder) = exclusive();
    const EVENTS: u64 = 200_000;
    let recording = Recording::start(Config::stream(path(&folder))).unwrap();
    enable("long.*").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EVENTS / 2 {
                    let _span = span!("long.span");
                }
            });
        }
    });
    disable("*").unwrap();
    let summary = recording.finish();
    assert_eq!((summary.recorded, summary.lost), (4 * EVENTS, 0));
    assert!(summary.bytes < 5 * summary.recorded, "{} bytes", summary.bytes);
    let trace = Trace::open(summary.path).unwrap();
    let mut last = 0;
    let mut depths = [0i32; 4];
    for event in trace.merged_events() {
        assert!(event.ticks >= last);
        last = event.ticks;
        depths[event.thread] += if event.kind == EventKind::Enter { 1 } else { -1 };
        assert!((0..=1).contains(&depths[event.thread]));
    }
    assert_eq!(depths, [0; 4]);
}

/// Returns `true` if the stream has the end of thread `index`: the ring is free then.
fn has_end_of_thread(path: &Path, index: usize) -> bool {
    let trace = Trace::open(path).unwrap();
    trace.threads().get(index).is_some_and(|thread| thread.end_ticks.is_some())
}

#[test]
fn excess_threads_are_refused_and_free_rings_are_reused() {
    let (_alone, folder) = exclusive();
    for config in [Config::last(path(&folder)), Config::stream(path(&folder))] {
        let is_last = config.policy() == handover_probe::Policy::Last;
        let recording = Recording::start(config.clone().threads_max(1)).unwrap();
        enable("few.*").unwrap();
        let work = || (0..10).for_each(|_| probe!("few.mark"));
        std::thread::spawn(work).join().unwrap();
        while !is_last && !has_end_of_thread(config.path(), 0) {
            std::thread::yield_now();
        }
        std::thread::spawn(move || {
            work(); // in the ring of the first thread
            std::thread::spawn(work).join().unwrap(); // without a ring
            work();
        })
        .join()
        .unwrap();
        while !is_last && !has_end_of_thread(config.path(), 1) {
            std::thread::yield_now();
        }
        std::thread::spawn(work).join().unwrap(); // in the same ring, after the refusal
        disable("*").unwrap();
        let summary = recording.finish();
        let kept = if is_last { 10 } else { 40 };
        assert_eq!((summary.recorded, summary.overwritten), (kept, 40 - kept));
        assert_eq!((summary.lost, summary.threads_count), (10, 3));
        assert!(summary.failure.unwrap().to_string().contains("ring"));
        let trace = Trace::open(summary.path).unwrap();
        assert_eq!((trace.merged_events().count() as u64, trace.missing_events().lost), (kept, 10));
        assert_eq!(trace.refused_threads_count(), 1);
    }
}

#[test]
fn second_recording_is_refused_and_threads_join_the_next_one() {
    let (_alone, folder) = exclusive();
    let first = Recording::start(Config::last(path(&folder))).unwrap();
    let second = Recording::start(Config::last(folder.path().join("b")));
    assert!(matches!(second, Err(StartError::AlreadyRunning { .. })));
    enable("next.*").unwrap();
    probe!("next.mark");
    assert_eq!(first.finish().recorded, 1);
    probe!("next.mark"); // not recorded
    let second = Recording::start(Config::stream(folder.path().join("b"))).unwrap();
    probe!("next.mark");
    disable("*").unwrap();
    assert_eq!(second.finish().recorded, 1);
}

#[test]
fn prepare_creates_the_ring_before_the_first_event() {
    let (_alone, folder) = exclusive();
    assert!(!prepare());
    let recording = Recording::start(Config::last(path(&folder))).unwrap();
    assert!(prepare() && prepare());
    let summary = recording.finish();
    assert_eq!((summary.threads_count, summary.recorded, summary.lost), (1, 0, 0));
    assert!(!prepare());
    let trace = Trace::open(summary.path).unwrap();
    assert_eq!((trace.threads().len(), trace.merged_events().count()), (1, 0));
}

#[test]
fn unwritable_path_is_named_in_the_error() {
    let (_alone, folder) = exclusive();
    let path = folder.path().join("no such folder").join("x");
    let rings = folder.path().join("rings");
    let config = Config::stream(&path).rings_path(&rings);
    let error = Recording::start(config).unwrap_err().to_string();
    assert!(error.contains("no such folder"), "{error}");
    assert!(!rings.exists(), "its rings were left behind");
    assert!(Recording::start(Config::last("/dev/full")).is_err());
}

#[test]
fn file_that_is_not_a_trace_is_refused_and_kept() {
    let (_alone, folder) = exclusive();
    let text = folder.path().join("text");
    std::fs::write(&text, "mine").unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink(folder.path().join("nothing"), &dangling).unwrap();
    for (place, why) in [
        (text.as_path(), "is not a trace"),
        (&fifo, "not a regular file"),
        (&dangling, "a symbolic link to a file that does not exist"),
        (folder.path(), "not a regular file"),
        (Path::new("/dev/null"), "not a regular file"),
    ] {
        for config in [Config::last(place), Config::stream(place)] {
            let before = std::fs::symlink_metadata(place).unwrap();
            let error = Recording::start(config).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(why), "{place:?}: {source}");
            let after = std::fs::symlink_metadata(place).unwrap();
            assert_eq!(before.file_type(), after.file_type(), "{place:?}");
        }
    }
    assert_eq!(std::fs::read(&text).unwrap(), b"mine");
    // An empty file, an older trace, and the target of a link are replaced; the link stays.
    let link = folder.path().join("link");
    std::fs::write(path(&folder), "").unwrap();
    std::os::unix::fs::symlink(path(&folder), &link).unwrap();
    for place in [path(&folder), path(&folder), link.clone()] {
        let recording = Recording::start(Config::stream(&place)).unwrap();
        assert_eq!(recording.finish().failure.map(|failure| failure.to_string()), None);
        assert_eq!(Trace::open(&place).unwrap().state(), RecordingState::Finished);
    }
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5, "nothing is left beside");
}

/// Number of times that sites are switched while threads run; `HANDOVER_PROBE_FLIPS` sets another.
fn flips_count() -> u64 {
    std::env::var("HANDOVER_PROBE_FLIPS").map_or(20_000, |text| text.parse().expect("a number"))
}

#[test]
fn call_after_a_switch_sees_the_new_state() {
    let (_alone, folder) = exclusive();
    let recording = Recording::start(Config::last(path(&folder)).ring_bytes(1 << 20)).unwrap();
    const TURNS: u64 = 2000;
    let (turn, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut number, mut passes) = (0, 0u64);
            while number < TURNS {
                let now = turn.load(Ordering::Acquire);
                if now == number {
                    // Meanwhile the instruction is fetched again and again.
                    let _ = std::hint::black_box(|| probe!("follows.mark"));
                    std::hint::spin_loop();
                    continue;
                }
                number = now;
                probe!("follows.mark", number);
                passes += 1;
                done.store(number, Ordering::Release);
            }
            assert_eq!(passes, TURNS);
        });
        for number in 1..=TURNS {
            if number % 2 == 1 { enable("follows.*") } else { disable("follows.*") }.unwrap();
            turn.store(number, Ordering::Release);
            while done.load(Ordering::Acquire) < number {
                std::thread::yield_now();
            }
        }
    });
    let summary = recording.finish();
    let trace = Trace::open(summary.path).unwrap();
    let values = trace.merged_events().map(|event| event.values()[0]);
    assert!(values.eq((1..=TURNS).step_by(2)), "a pass did not follow");
}

#[test]
fn sites_are_switched_while_four_threads_execute_them() {
    let (_alone, folder) = exclusive();
    let recording = Recording::start(Config::last(path(&folder))).unwrap();
    let stop = AtomicBool::new(false);
    let passes: [AtomicU64; 4] = Default::default();
    std::thread::scope(|scope| {
        for count in &passes {
            scope.spawn(|| {
                let mut sum = 0u64;
                let mut number = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let _span = span!("fire.span", number);
                    probe!("fire.mark");
                    number += 1;
                    sum = sum.wrapping_add(number * number);
                    probe!("fire.value", sum, number);
                    count.store(number, Ordering::Relaxed);
                }
                // Recording has changed no register.
                let n = u128::from(number);
                assert_eq!(sum, (n * (n + 1) * (2 * n + 1) / 6) as u64);
            });
        }
        for flip in 0..flips_count() / 2 {
            let pattern = ["fire.*", "fire.mark", "fire.span", "fire.value"][flip as usize % 4];
            assert!(enable(pattern).unwrap() >= 1);
            disable(pattern).unwrap();
        }
        // All threads still run, and all of them record.
        enable("fire.*").unwrap();
        let before: Vec<u64> = passes.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        while passes.iter().zip(&before).any(|(now, then)| now.load(Ordering::Relaxed) <= then + 2)
        {
            std::thread::yield_now();
        }
        disable("fire.*").unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    let summary = recording.finish();
    let trace = Trace::open(summary.path).unwrap();
    assert_eq!(trace.threads().len(), 4);
    assert!(trace.threads().iter().all(|thread| thread.events_count > 8));
    assert_eq!(trace.missing_events().total_count(), 0);
}
