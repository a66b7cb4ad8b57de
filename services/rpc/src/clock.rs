//! Clock of this crate: that of `handover_base`, or, in a thread that has called `set` in a test, a
//! simulated clock that stands still until it is set again.

#[cfg(not(test))]
pub(crate) use handover_base::clock::{now_ns, ns, ticks, ticks_from_ns};
#[cfg(test)]
pub(crate) use simulated::{now_ns, ns, set, ticks, ticks_from_ns};

#[cfg(test)]
mod simulated {
    use handover_base::clock;
    use std::cell::Cell;

    thread_local! {
        static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Sets this thread's clock to a simulated time.
    pub(crate) fn set(now_ns: u64) {
        NOW_NS.set(Some(now_ns));
    }

    pub(crate) fn now_ns() -> u64 {
        NOW_NS.get().unwrap_or_else(clock::now_ns)
    }

    pub(crate) fn ticks() -> u64 {
        NOW_NS.get().unwrap_or_else(clock::ticks)
    }

    pub(crate) fn ns(ticks: u64) -> u64 {
        NOW_NS.get().map_or_else(|| clock::ns(ticks), |_| ticks)
    }

    pub(crate) fn ticks_from_ns(ns: u64) -> u64 {
        NOW_NS.get().map_or_else(|| clock::ticks_from_ns(ns), |_| ns)
    }
}
