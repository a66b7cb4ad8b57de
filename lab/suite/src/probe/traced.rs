//! The `tracing` crate. Off: without a subscriber. On: with the cheapest possible subscriber, so
//! that the comparison favours `tracing` over its use with a real one.

use super::{Sites, Tracer};
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::Fault;
use tracing::dispatcher::{Dispatch, with_default};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, trace, trace_span};
use tracing_subscriber::layer::{self, Layer, SubscriberExt};

/// Number of stored time stamps. They take as many bytes as this project's ring.
const STAMPS_COUNT: usize = (1 << 20) / 8;

/// Compared implementation: sites of the crate `tracing`. They are recorded by a minimal subscriber
/// or, if `REGISTRY`, by the registry of `tracing-subscriber`. Most programs use the registry, here
/// with a layer that only reads the clock when a span is entered and left. The level of all events
/// and spans is `TRACE`.
pub(super) struct Tracing<const REGISTRY: bool = false>;

impl<const REGISTRY: bool> Sites for Tracing<REGISTRY> {
    #[inline(never)]
    fn site(x: u64) -> u64 {
        trace!("site");
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn eight_sites(x: u64) -> u64 {
        eight_times!(trace!("eight"););
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn span(x: u64) -> u64 {
        let _span = trace_span!("span").entered();
        x.wrapping_add(1)
    }
}

impl<const REGISTRY: bool> Tracer for Tracing<REGISTRY> {
    #[inline(never)]
    fn recorded_span(x: u64) -> u64 {
        let _span = trace_span!("wanted").entered();
        x.wrapping_add(1)
    }

    fn record_calls(f: impl FnOnce()) -> Result<u64, Fault> {
        let dispatch = match REGISTRY {
            true => Dispatch::new(tracing_subscriber::registry().with(Stamps::new())),
            false => Dispatch::new(Stamps::new()),
        };
        with_default(&dispatch, f);
        let stamps = dispatch.downcast_ref::<Stamps>().map(Stamps::count);
        drop(dispatch);
        // Without this, the sites would still ask for a subscriber's interest.
        tracing::callsite::rebuild_interest_cache();
        stamps.ok_or_else(|| Fault::new("the subscriber is not the one that was installed"))
    }
}

/// Returns `true` for the metadata of the recorded span.
fn is_recorded_span(metadata: &Metadata<'_>) -> bool {
    metadata.name() == "wanted" && metadata.target() == module_path!()
}

/// Subscriber that only stores the newest time stamps of one thread.
struct Stamps {
    stamps: Box<[AtomicU64]>,
    /// Number of time stamps stored so far.
    count: AtomicU64,
}

impl Stamps {
    fn new() -> Self {
        let stamps = (0..STAMPS_COUNT).map(|_| AtomicU64::new(0)).collect();
        Stamps { stamps, count: AtomicU64::new(0) }
    }

    fn count(&self) -> u64 {
        // Relaxed: read by the thread that counted.
        self.count.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store_time(&self) {
        let count = self.count();
        // Relaxed, both: one thread writes and reads.
        self.stamps[count as usize % STAMPS_COUNT].store(clock::ticks(), Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
    }
}

impl Subscriber for Stamps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_recorded_span(metadata)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.store_time();
    }

    fn exit(&self, _: &Id) {
        self.store_time();
    }
}

impl<S: Subscriber> Layer<S> for Stamps {
    fn enabled(&self, metadata: &Metadata<'_>, _: layer::Context<'_, S>) -> bool {
        is_recorded_span(metadata)
    }

    fn on_enter(&self, _: &Id, _: layer::Context<'_, S>) {
        self.store_time();
    }

    fn on_exit(&self, _: &Id, _: layer::Context<'_, S>) {
        self.store_time();
    }
}
