//! Recording of all events to a file.

use super::ours::{EnabledSites, Probes, RECORDED_SPAN, check_complete, start_recording};
use super::{Tracer, fault_with_sources, new_scratch_folder, time_calls};
use crate::common::ensure;
use handover_base::{clock, usage};
use handover_harness::{Fault, Samples, ScratchFolder, Setup, Workload};
use handover_probe::{Config, Summary, read::Trace};
use handover_record::{Part, Spec, args};
use std::path::Path;

args! {
    /// Arguments of the benchmark of a streamed recording.
    pub struct StreamArgs {
        /// Calls in each recording.
        calls_count: u32 = 4_000_000 (smoke 2000, range 1000..=100_000_000)
    }
}

/// Index of the part with the time of a call.
const CALL_PART: usize = 0;
/// Index of the part with the time from the start of the recording to the complete file.
const WHOLE_PART: usize = 1;
/// Index of the part with the CPU time of all threads.
const CPU_PART: usize = 2;

/// Number of calls timed together.
const BATCH: u64 = 1000;

/// Minimum number of events per lost event; the round fails if more are lost. Without a pause
/// between calls, the writing thread may fall behind; losses are in the record's counters.
const EVENTS_PER_LOST_MIN: u64 = 4;

/// Workload: a recording per round, from its start to the finished file.
pub(super) struct StreamRecording {
    folder: ScratchFolder,
    /// Number of batches of [`BATCH`] calls in a recording.
    batches_count: u64,
}

impl Workload for StreamRecording {
    type Args = StreamArgs;
    const SPEC: Spec = Spec::new(
        "probe/streamed",
        "call of a function whose begin and end are recorded and written to a file in memory by another thread",
    )
    .floor("probe/stamps")
    .parts(&[
        Part::new("call", "the call while it is recorded"),
        Part::new("whole", "whole recording, until its file is complete, divided by the calls"),
        Part::new("cpu", "CPU time of all threads for the whole recording, divided by the calls"),
    ])
    .batched();

    fn setup(args: &StreamArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(StreamRecording {
            folder: new_scratch_folder()?,
            batches_count: u64::from(args.calls_count) / BATCH,
        })
    }

    /// Fails unless the file contains the events that the summary counts.
    fn self_test(&mut self) -> Result<(), Fault> {
        let path = self.folder.path().join("checked.trace");
        let summary = record(&path, || {
            time_calls(BATCH, Probes::recorded_span);
        })?;
        let trace = Trace::open(&path).map_err(fault_with_sources)?;
        let is_wanted = |site| trace.site(site).is_some_and(|site| site.name == RECORDED_SPAN);
        let read_count = trace.merged_events().filter(|event| is_wanted(event.site)).count() as u64;
        let is_counted = summary.recorded + summary.lost == 2 * BATCH;
        ensure(is_counted && read_count == summary.recorded, || {
            format!("the file has {read_count} events, but the recording reports {summary:?}")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        let path = self.folder.path().join("stream.trace");
        let calls_count = self.batches_count * BATCH;
        let (used, began) = (usage::process_usage(), clock::ticks());
        let recorded = record(&path, || {
            for _ in 0..self.batches_count {
                out.record_batch(CALL_PART, time_calls(BATCH, Probes::recorded_span), BATCH);
            }
        });
        let summary = recorded.unwrap_or_else(|fault| panic!("{fault}"));
        out.record_batch(WHOLE_PART, clock::ticks().saturating_sub(began), calls_count);
        let used = usage::process_usage() - used;
        out.record_batch(CPU_PART, clock::ticks_from_ns(used.cpu_ns()), calls_count);
        let Summary { recorded, lost, bytes, .. } = summary;
        assert_eq!(
            recorded + lost,
            2 * calls_count,
            "some events were neither recorded nor counted as lost"
        );
        assert!(
            lost <= 2 * calls_count / EVENTS_PER_LOST_MIN,
            "{lost} of {} events were lost",
            recorded + lost
        );
        out.add_to_counter("lost_events", lost as f64);
        out.add_to_counter("written_bytes", bytes as f64);
    }
}

/// Calls `f` while its events are recorded to `path`; returns the summary of the recording.
pub(super) fn record(path: &Path, f: impl FnOnce()) -> Result<Summary, Fault> {
    let recording = start_recording(Config::stream(path))?;
    let switched = EnabledSites::enable(RECORDED_SPAN)?;
    f();
    switched.disable()?;
    check_complete(recording.finish())
}
