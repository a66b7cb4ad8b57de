//! Clock of this crate: that of `handover_base`, or, in a test thread that has called `set`, a
//! simulated clock that stands still until it is set again.

#[cfg(all(not(test), feature = "monitoring"))]
pub(crate) use handover_base::clock::ns_from_ticks;
#[cfg(not(test))]
pub(crate) use handover_base::clock::{now_ns, ticks, ticks_from_ns};
#[cfg(all(test, feature = "monitoring"))]
pub(crate) use simulated::ns_from_ticks;
#[cfg(test)]
pub(crate) use simulated::{now_ns, set, ticks, ticks_from_ns};
use std::time::Duration;

/// Returns the current time plus `timeout`, in ns.
pub(crate) fn after(timeout: Duration) -> u64 {
    now_ns().saturating_add(ns_from_duration(timeout))
}

/// Returns a time in ns; `u64::MAX` if it is longer.
pub(crate) fn ns_from_duration(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

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

    #[cfg(feature = "monitoring")]
    pub(crate) fn ns_from_ticks(ticks: u64) -> u64 {
        NOW_NS.get().map_or_else(|| clock::ns_from_ticks(ticks), |_| ticks)
    }

    pub(crate) fn ticks_from_ns(ns: u64) -> u64 {
        NOW_NS.get().map_or_else(|| clock::ticks_from_ns(ns), |_| ns)
    }
}
