//! Constant memory while a long trace is exported. A test binary of its own, as memory is measured
//! per process.
#![cfg(not(any(handover_loom, miri)))]

use handover_probe::{Config, Recording, disable, enable, prepare, probe, span};
use handover_trace::{ExportFormat, SiteNames, Traces, TreeGrouping, export};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// Limit of memory during an export: buffers, one chunk per thread, names.
const MEMORY_BYTES_MAX: u64 = 8 << 20;

fn record(path: &Path, events: u64) -> u64 {
    // Waits when the ring is full, as the writer shares the CPUs with other processes.
    let config = Config::stream(path).ring_bytes(1 << 20).wait_max(Duration::from_secs(600));
    let recording = Recording::start(config).unwrap();
    enable("memory.*").unwrap();
    prepare();
    for number in 0..events / 5 {
        let _outer = span!("memory.outer");
        {
            let _inner = span!("memory.inner", number);
        }
        probe!("memory.mark");
    }
    disable("memory.*").unwrap();
    recording.finish().recorded
}

fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let kib = line.trim_matches([':', ' ', '\t']).split(' ').next().unwrap();
    1024 * kib.parse::<u64>().unwrap()
}

/// Returns the peak of memory during `work` above the level before it.
fn peak_bytes(work: impl FnOnce()) -> u64 {
    // Resets the peak to the current level.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS");
    work();
    status_bytes("VmHWM").saturating_sub(before)
}

#[test]
fn long_trace_is_exported_in_constant_memory() {
    // HANDOVER_LONG: the number of events in the documentation.
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let events = if is_long { 10_000_000 } else { 300_000 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.trace");
    let recorded = record(&path, events);
    assert_eq!(recorded, events);
    for format in ExportFormat::ALL {
        let out = folder.path().join(format.to_string());
        let peak = peak_bytes(|| {
            let traces = Traces::open([&path]).unwrap();
            let names = SiteNames::with_all_selected(&traces);
            let file = File::create(&out).unwrap();
            let found = export(&traces, &names, *format, TreeGrouping::Processes, file).unwrap();
            assert_eq!(found.events, recorded);
        });
        assert!(peak <= MEMORY_BYTES_MAX, "{format}: {peak} bytes for {recorded} events");
        // At 2 bytes per event or more, a copy of the whole output in memory would exceed the
        // limit.
        if is_long && !matches!(format, ExportFormat::Folded | ExportFormat::Flamegraph) {
            assert!(out.metadata().unwrap().len() > 2 * MEMORY_BYTES_MAX);
        }
        fs::remove_file(out).unwrap();
    }
}
