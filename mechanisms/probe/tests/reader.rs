//! Reading files that are damaged, cut off, or no traces: the reader never panics, and the
//! undamaged parts are read correctly.
#![cfg(not(any(handover_loom, miri)))]

use handover_probe::format::{self, ClockAnchor, PAGE_BYTES, SegmentHeader, TraceHeader};
use handover_probe::read::Trace;
use handover_probe::{Config, ReadError, Recording, disable, enable, probe, span};
use proptest::prelude::*;
use std::sync::OnceLock;

const EVENTS: u64 = 3_000;

/// Returns the bytes of a stream and of a rings file, with the same events.
fn samples() -> &'static [Vec<u8>; 2] {
    static SAMPLES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        [Config::stream(&path), Config::last(&path).ring_bytes(1 << 17)].map(|config| {
            let recording = Recording::start(config).unwrap();
            enable("reader.*").unwrap();
            for number in 0..EVENTS / 3 {
                let _span = span!("reader.span");
                probe!("reader.mark", number, 1u64 << 40);
            }
            disable("*").unwrap();
            assert_eq!(recording.finish().lost, 0);
            std::fs::read(&path).unwrap()
        })
    })
}

/// Reads all events; returns the number of events, and of missing events.
fn read(bytes: Vec<u8>) -> Result<(u64, u64), ReadError> {
    let trace = Trace::from_bytes(bytes)?;
    let mut last = 0;
    let mut count = 0;
    for event in trace.merged_events() {
        assert!(event.ticks >= last, "time goes back");
        last = event.ticks;
        count += 1;
        let _ = (trace.ns_from_ticks(event.ticks), trace.site(event.site), event.values());
    }
    let _ = (trace.sites(), trace.state(), trace.program(), trace.realtime_ns_from_ticks(0));
    Ok((count, trace.missing_events().total_count()))
}

#[test]
fn non_trace_and_damaged_trace_give_different_errors() {
    for foreign in [&b""[..], b"\x7fELF", b"not a trace, although it is longer than a magic"] {
        assert!(matches!(read(foreign.to_vec()), Err(ReadError::NotATrace)));
    }
    let mut bytes = samples()[0].clone();
    bytes[40] ^= 4;
    assert!(matches!(read(bytes), Err(ReadError::DamagedHeader)));
    assert!(matches!(read(samples()[0][..100].to_vec()), Err(ReadError::DamagedHeader)));
}

#[test]
fn intact_trace_is_read_completely() {
    for sample in samples() {
        assert_eq!(read(sample.clone()).unwrap(), (EVENTS, 0));
    }
}

#[test]
fn damaged_segment_is_skipped_and_its_events_count_as_missing() {
    let mut bytes = samples()[0].clone();
    let middle = bytes.len() - 500; // within the last chunk
    bytes[middle] ^= 0x10;
    let (count, missing) = read(bytes).unwrap();
    assert_eq!(count + missing, EVENTS);
    assert!(missing > 0);
}

/// Returns the header of a stream that was not finished, and that has neither segments nor rings.
fn unfinished_header() -> TraceHeader {
    TraceHeader {
        kind: format::FILE_STREAM,
        ring_words: 1 << 12,
        state: format::STATE_RECORDING,
        ..TraceHeader::default()
    }
}

#[test]
fn unfinished_stream_without_threads_and_rings_has_missing_events() {
    assert_eq!(read(unfinished_header().encode()).unwrap(), (0, 1 << 12));
}

#[test]
fn fifo_in_the_place_of_rings_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (path, fifo) = (folder.path().join("a"), folder.path().join("fifo"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let rings = fifo.to_str().unwrap().to_owned();
    std::fs::write(&path, TraceHeader { rings, ..unfinished_header() }.encode()).unwrap();
    assert_eq!(Trace::open(&path).unwrap().rings_path(), None);
}

#[test]
fn clock_readings_without_ticks_between_them_leave_the_calibrated_rate() {
    let begin = ClockAnchor { ticks: 1 << 40, monotonic_ns: 5, realtime_ns: 0 };
    let end = ClockAnchor { ticks: 1 << 30, monotonic_ns: 5_000_000_000, realtime_ns: 0 };
    let header = TraceHeader { is_tsc: true, ticks_hz: 1e9, begin, end, ..unfinished_header() };
    let trace = Trace::from_bytes(header.encode()).unwrap();
    assert_eq!(trace.ns_from_ticks(begin.ticks + 100), 105);
}

#[test]
fn function_table_with_the_largest_first_number_is_read_without_panic() {
    let words = [u64::MAX, 2, 0, 0, 0, 0, 0, 0];
    let bytes = PAGE_BYTES + 2 * 8;
    let kind = format::SEGMENT_FUNCTIONS;
    let segment = SegmentHeader { kind, bytes, payload_checksum: 0, words };
    let mut forged = samples()[0].clone();
    let end = forged.len() + bytes as usize;
    forged.extend(segment.encode());
    forged.resize(end, 0xff);
    assert_eq!(read(forged).unwrap(), (EVENTS, 0));
}

/// Reads damaged bytes. A stream must not yield additional events, as all of its bytes are
/// checksummed; the events of a rings file are not, and it only must not panic.
fn check(bytes: Vec<u8>, is_stream: bool) {
    let Ok((count, _)) = read(bytes) else { return };
    assert!(!is_stream || count <= EVENTS, "{count} events were made up");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let _ = read(bytes.clone());
        let mut behind_a_header = samples()[0][..4096].to_vec();
        behind_a_header.extend(bytes);
        check(behind_a_header, true);
    }

    #[test]
    fn truncated_file_yields_no_invented_events(at: proptest::sample::Index, which in 0..2usize) {
        let sample = &samples()[which];
        check(sample[..at.index(sample.len())].to_vec(), which == 0);
    }

    #[test]
    fn flipped_bytes_yield_no_invented_events(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 1..=255u8), 1..20),
        which in 0..2usize,
    ) {
        let mut bytes = samples()[which].clone();
        for (at, bits) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        check(bytes, which == 0);
    }

    #[test]
    fn moved_bytes_are_read_without_panic(
        from: proptest::sample::Index, to: proptest::sample::Index, length in 1..2_000usize, which in 0..2usize,
    ) {
        let mut bytes = samples()[which].clone();
        let from = from.index(bytes.len());
        let part = bytes[from..(from + length).min(bytes.len())].to_vec();
        let to = to.index(bytes.len());
        bytes.splice(to..to, part);
        let _ = read(bytes);
    }
}
