//! Files that are damaged, cut off or not traces.

use crate::samples::{recorded, sample};
use handover_probe::format::{self, SegmentHeader};
use handover_probe::read::Trace;
use handover_probe::{ReadError, span};
use handover_trace::{
    CallStatistics, ExportFormat, SiteNames, TraceError, Traces, TreeGrouping, WalkCounts, export,
    missing_event_lines, trace_headlines, walk,
};
use std::cell::Cell;
use std::fs;
use std::sync::Barrier;

#[test]
fn file_that_is_not_a_trace_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("text", b"a text, and no trace"), ("elf", b"\x7fELF")]
    {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let refused = Traces::open([&path]).unwrap_err();
        assert!(refused.to_string().contains(name), "{refused}");
        assert!(matches!(refused, TraceError::Read { source: ReadError::NotATrace, .. }));
    }
    let refused = Traces::open([folder.path().join("none")]).unwrap_err();
    assert!(matches!(refused, TraceError::Read { source: ReadError::Io(_), .. }));
}

#[test]
fn traces_with_different_clocks_are_refused() {
    let (folder, traces) = recorded("mine", "clock.*", || {
        let _span = span!("clock.span");
    });
    // The first page holds the machine's boot time; its checksum is corrected after the change.
    let mine = &traces.paths()[0];
    let mut bytes = fs::read(mine).unwrap();
    bytes[72] ^= 1;
    let other = folder.path().join("other");
    fs::write(&other, handover_probe::read::repair_checksums(bytes)).unwrap();
    assert_eq!(Traces::open([&other]).unwrap().merged_events().count(), 2);
    let refused = Traces::open([mine, &other]).unwrap_err();
    assert!(refused.to_string().contains("other") && refused.to_string().contains("mine"));
}

#[test]
fn intact_parts_of_a_damaged_file_are_shown_and_nest() {
    let bytes = fs::read(&sample().paths()[0]).unwrap();
    let all = sample().merged_events().count() as u64;
    for at in (4096..bytes.len()).step_by(61) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        for damaged in [bytes[..at].to_vec(), flipped] {
            let traces = Traces::from_trace(Trace::from_bytes(damaged).unwrap());
            let names = SiteNames::with_all_selected(&traces);
            let found = walk(&traces, &names, &mut CallStatistics::new()).unwrap();
            assert!(found.events <= all, "more events than were recorded");
            for format in ExportFormat::ALL {
                let mut out = Vec::new();
                export(&traces, &names, *format, TreeGrouping::Processes, &mut out).unwrap();
                if *format == ExportFormat::Perfetto {
                    crate::perfetto::tracks(&out).iter().for_each(crate::perfetto::assert_nests);
                }
            }
        }
    }
}

#[test]
fn forged_counts_and_times_saturate() {
    let bytes = fs::read(&sample().paths()[0]).unwrap();
    // Two threads, each with more events than a file can have, and as many refused threads.
    let mut counts = bytes.clone();
    for lane in [1_000, 1_001] {
        let words = [lane, u64::MAX, 0, 0, u64::MAX, u64::MAX, 0, 0];
        counts.extend(SegmentHeader::encode_with_payload(format::SEGMENT_CHUNK, words, &[]));
    }
    let traces = Traces::from_trace(Trace::from_bytes(counts).unwrap());
    assert!(trace_headlines(&traces).contains("threads"));
    assert!(!missing_event_lines(&traces, &WalkCounts::default()).is_empty());
    // Three calls, from before the begin of the recording to after it, by a clock so slow that each
    // lasts longer than a third of the largest number.
    let (barrier, middle_ticks) = (Barrier::new(4), Cell::new(0));
    let (_folder, traces) = recorded("slow", "slow.*", || {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _span = span!("slow.span");
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            middle_ticks.set(handover_base::clock::ticks());
            barrier.wait();
        });
    });
    let mut times = fs::read(&traces.paths()[0]).unwrap();
    times[40..48].copy_from_slice(&1e-9f64.to_le_bytes());
    times[48..56].copy_from_slice(&middle_ticks.get().to_le_bytes());
    let times = handover_probe::read::repair_checksums(times);
    let traces = Traces::from_trace(Trace::from_bytes(times).unwrap());
    let names = SiteNames::with_all_selected(&traces);
    walk(&traces, &names, &mut CallStatistics::new()).unwrap();
    for format in ExportFormat::ALL {
        for grouping in [TreeGrouping::Processes, TreeGrouping::Threads] {
            export(&traces, &names, *format, grouping, &mut Vec::new()).unwrap();
        }
    }
}
