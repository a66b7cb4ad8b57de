//! Memory while a page is rendered. A test binary of its own, as memory is measured per process.

use base64::Engine;
use handover_record::{ContenderKind, Document};
use handover_report::render_html;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::fs;

#[path = "it/support/mod.rs"]
mod support;

/// Number of contenders; their decoded histograms take 450 KB each.
const CONTENDERS_COUNT: usize = 300;
/// Limit of memory for the page.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
    let kib = line.trim_matches([':', ' ', '\t']).split(' ').next().expect("a number");
    1024 * kib.parse::<u64>().expect("a number")
}

#[test]
fn page_of_many_histograms_with_wide_bounds_needs_little_memory() {
    let mut samples = Histogram::<u64>::new_with_bounds(1, 1 << 63, 3).expect("bounds");
    samples.record(1000).expect("room");
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&samples, &mut bytes).expect("memory");
    let histogram = base64::engine::general_purpose::STANDARD.encode(bytes);
    assert!(histogram.len() < 100, "{histogram}");
    let contender = |number| {
        let mut record =
            support::record("ring/push", &format!("peer {number}"), ContenderKind::Peer, 1.0);
        record.histogram = histogram.clone();
        record.rounds.clear();
        record
    };
    let document = Document::new(support::run(), (0..CONTENDERS_COUNT).map(contender).collect());
    // Resets the peak to the current level.
    fs::write("/proc/self/clear_refs", "5").expect("a new peak");
    let before = status_bytes("VmRSS");
    let page = render_html(&document);
    let peak = status_bytes("VmHWM").saturating_sub(before);
    assert!(page.contains(&format!("peer {}", CONTENDERS_COUNT - 1)));
    assert!(peak < MEMORY_BYTES_MAX, "{peak} bytes");
}
