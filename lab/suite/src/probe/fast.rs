//! The `fastrace` crate. Off: a span has no parent to belong to. On: spans are collected in memory
//! by their thread.

use super::{RecordedSpan, Sites, call_repeatedly};
use fastrace::local::{LocalCollector, LocalSpan};
use fastrace::prelude::{Event, SpanContext};
use handover_base::clock;
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::Spec;

/// Number of spans in one collection. fastrace keeps at most 10,240.
const BATCH: u64 = 5000;

/// Trace sites of the crate `fastrace`.
pub(super) struct Fastrace;

impl Sites for Fastrace {
    #[inline(never)]
    fn site(x: u64) -> u64 {
        LocalSpan::add_event(Event::new("site"));
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn eight_sites(x: u64) -> u64 {
        eight_times!(LocalSpan::add_event(Event::new("eight")););
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn span(x: u64) -> u64 {
        let _span = LocalSpan::enter_with_local_parent("span");
        x.wrapping_add(1)
    }
}

/// Workload: calls whose spans are collected and then discarded. This project's probes discard old
/// events too; the start and end of each collection is included.
pub(super) struct SpanCollection;

impl Workload for SpanCollection {
    type Args = ();
    const SPEC: Spec = <RecordedSpan<super::ours::Probes> as Workload>::SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(SpanCollection)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let collector = LocalCollector::start();
        call_repeatedly(BATCH, Fastrace::span);
        let spans = collector.collect().to_span_records(SpanContext::random());
        match spans.len() as u64 {
            BATCH => Ok(()),
            count => Err(Fault::new(format!("{count} spans were collected, expected {BATCH}"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let began = clock::ticks();
            let collector = LocalCollector::start();
            call_repeatedly(BATCH, Fastrace::span);
            drop(collector.collect());
            out.record_batch(0, clock::ticks().saturating_sub(began), BATCH);
        }
    }
}
