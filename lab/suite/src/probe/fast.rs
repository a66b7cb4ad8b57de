//! The `fastrace` crate: off, there is no parent to which a span would belong; on, spans are collected in
//! memory by the thread that has them.

use super::{Recorded, Sites, calls};
use fastrace::local::{LocalCollector, LocalSpan};
use fastrace::prelude::{Event, SpanContext};
use handover_base::clock;
use handover_harness::{Fault, Rig, Samples, Workload};
use handover_record::Spec;

/// Spans that are collected at a time: it keeps 10,240 and drops what comes after.
const BATCH: u64 = 5000;

/// Its spans and events.
pub(super) struct Fastrace;

impl Sites for Fastrace {
    #[inline(never)]
    fn site(x: u64) -> u64 {
        LocalSpan::add_event(Event::new("site"));
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn eight(x: u64) -> u64 {
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        LocalSpan::add_event(Event::new("eight"));
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn span(x: u64) -> u64 {
        let _span = LocalSpan::enter_with_local_parent("span");
        x.wrapping_add(1)
    }
}

/// The calls, and what begins and ends each collection, in which what is too old goes: ours does so too, a
/// block at a time.
pub(super) struct Collected;

impl Workload for Collected {
    type Args = ();
    const SPEC: Spec = <Recorded<super::ours::Probes> as Workload>::SPEC;

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Collected)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let collector = LocalCollector::start();
        calls(BATCH, Fastrace::span);
        let spans = collector.collect().to_span_records(SpanContext::random());
        match spans.len() as u64 {
            BATCH => Ok(()),
            count => Err(Fault::new(format!("{count} of {BATCH} spans were collected"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.running() {
            let began = clock::ticks();
            let collector = LocalCollector::start();
            calls(BATCH, Fastrace::span);
            drop(collector.collect());
            out.note_batch(0, clock::ticks().saturating_sub(began), BATCH);
        }
    }
}
