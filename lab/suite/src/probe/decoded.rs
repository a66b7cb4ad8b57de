//! Reading a recording.

use super::ours::{Probes, RECORDED_SPAN};
use super::streamed::record;
use super::{Tracer, fault_with_sources, new_scratch_folder, time_calls};
use crate::common::ensure;
use handover_base::clock;
use handover_harness::{Fault, Samples, ScratchFolder, Setup, Workload};
use handover_probe::read::Trace;
use handover_record::{Spec, args};
use std::hint::black_box;
use std::path::PathBuf;

args! {
    /// Arguments of the benchmark of reading a trace.
    pub struct DecodeArgs {
        /// Events in the file.
        events_count: u32 = 1_000_000 (smoke 2000, range 1000..=100_000_000)
    }
}

/// Workload: opens a file and iterates over its events in the order of time.
pub(super) struct TraceReading {
    path: PathBuf,
    /// Number of events that the recording has counted.
    events_count: u64,
    _folder: ScratchFolder,
}

impl TraceReading {
    /// Opens the file and calls `each` with every event; returns the number of events.
    fn read(
        &self,
        mut each: impl FnMut(&Trace, handover_probe::read::Event),
    ) -> Result<u64, Fault> {
        let trace = Trace::open(&self.path).map_err(fault_with_sources)?;
        let mut count = 0;
        for event in trace.merged_events() {
            each(&trace, event);
            count += 1;
        }
        Ok(count)
    }
}

impl Workload for TraceReading {
    type Args = DecodeArgs;
    const SPEC: Spec =
        Spec::new("probe/decoded", "event read from a recorded file, including opening the file")
            .floor("floor/empty")
            .batched();

    fn setup(args: &DecodeArgs, _: &mut Setup) -> Result<Self, Fault> {
        let folder = new_scratch_folder()?;
        let path = folder.path().join("decoded.trace");
        let summary = record(&path, || {
            time_calls(u64::from(args.events_count) / 2, Probes::recorded_span);
        })?;
        Ok(TraceReading { path, events_count: summary.recorded, _folder: folder })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let (mut last, mut others_count) = (0, 0);
        let count = self.read(|trace, event| {
            let is_wanted = trace.site(event.site).is_some_and(|site| site.name == RECORDED_SPAN);
            others_count += u64::from(!is_wanted || event.ticks < last);
            last = event.ticks;
        })?;
        let Self { events_count, .. } = *self;
        ensure(count == events_count && others_count == 0, || {
            format!(
                "read {count} events of {events_count}, {others_count} of them of another site or out of order"
            )
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let began = clock::ticks();
            let mut last = 0;
            let read = self.read(|_, event| last = event.ticks);
            black_box(last);
            read.unwrap_or_else(|fault| panic!("{fault}"));
            out.record_batch(0, clock::ticks().saturating_sub(began), self.events_count);
        }
    }
}
