//! What a fiber can do to itself.

use crate::raw;
use handover_base::clock;
use std::time::Duration;

/// Lets the others run, then goes on; on an ordinary thread, lets other threads run.
///
/// # Blocking
/// Until the fibers that could run before it have had their turn.
#[inline(always)] // see raw::park
pub fn yield_now() {
    match raw::current().and_then(|worker| worker.running()) {
        Some(running) => raw::suspend(running),
        None => std::thread::yield_now(),
    }
}

/// Waits for `duration`, never less.
///
/// # Blocking
/// The fiber; its worker goes on with others. On an ordinary thread, the thread.
#[inline(always)] // see raw::park
pub fn sleep(duration: Duration) {
    sleep_until_ns(deadline_ns(duration));
}

/// Waits until `deadline_ns` on CLOCK_MONOTONIC.
///
/// # Blocking
/// As [`sleep`].
#[inline(always)] // see raw::park
pub fn sleep_until_ns(deadline_ns: u64) {
    let Some(worker) = raw::current() else { return sleep_as_thread(deadline_ns) };
    let Some(running) = worker.running() else { return };
    raw::park(running, |fiber| worker.sleep_until(deadline_ns, fiber));
}

/// The time that it is in so long, on CLOCK_MONOTONIC.
#[inline]
pub(super) fn deadline_ns(timeout: Duration) -> u64 {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(nanos)
}

/// Whether it is that time already.
pub(super) fn is_past(deadline_ns: u64) -> bool {
    now_ns() >= deadline_ns
}

#[cold]
fn sleep_as_thread(deadline_ns: u64) {
    let left = deadline_ns.saturating_sub(now_ns());
    std::thread::sleep(Duration::from_nanos(left));
}

/// Not inlined, as it looks at a variable of the thread, which may be another after a suspension.
#[inline(never)]
fn now_ns() -> u64 {
    clock::now_ns()
}

/// Whether a fiber calls.
#[must_use]
pub fn is_fiber() -> bool {
    current_id().is_some()
}

/// The number of the fiber that calls.
#[must_use]
pub fn current_id() -> Option<u64> {
    raw::current().and_then(|worker| worker.running()).map(raw::id_of)
}

/// The worker on which the fiber that calls is running, counted from 0.
#[must_use]
pub fn current_worker() -> Option<u32> {
    raw::current().map(super::worker::Worker::index)
}
