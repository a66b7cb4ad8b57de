//! Operations of a fiber on itself: yielding, sleeping, identity.

use crate::raw::{PendingYield, park_running, running_fiber_id, this_worker, this_worker_inlined};
use handover_base::clock;
use std::time::{Duration, Instant};

/// Suspends the calling fiber until other ready fibers have run. On an ordinary thread, yields to
/// other threads.
///
/// # Blocking
/// Blocks until the fibers that are ahead in the queue have run.
#[inline(always)] // see park_running()
pub fn yield_now() {
    if let Some(pending) = begin_yield() {
        pending.complete();
    }
}

/// Begins the yield of the calling fiber: decides which fiber runs next. Returns `None` if there is
/// nothing to suspend: no other fiber is ready, or the caller is an ordinary thread, which has then
/// yielded.
///
/// Never inlined: see [`this_worker`].
#[inline(never)]
fn begin_yield() -> Option<PendingYield> {
    let worker = this_worker_inlined();
    match worker.and_then(|worker| Some((worker, worker.running_fiber()?))) {
        Some((worker, running)) => worker.begin_yield(running),
        None => yield_thread(),
    }
}

/// Yields the CPU to other threads; returns `None`. Never inlined, so that [`begin_yield`] calls no
/// function and saves no registers.
#[inline(never)]
fn yield_thread() -> Option<PendingYield> {
    std::thread::yield_now();
    // With a constant, the compiler would return in the caller, after this call.
    std::hint::black_box(None)
}

/// Suspends the calling fiber or thread for at least `duration`. A fiber does not sleep if 2^28
/// fibers of its worker do.
///
/// # Blocking
/// Blocks the fiber; its worker runs others. On an ordinary thread, blocks the thread.
#[inline(always)] // see park_running()
pub fn sleep(duration: Duration) {
    sleep_until_ns(deadline_ns_after(duration));
}

/// Suspends the calling fiber or thread until `deadline`.
///
/// # Blocking
/// As [`sleep`].
#[inline(always)] // see park_running()
pub fn sleep_until(deadline: Instant) {
    sleep_until_ns(deadline_ns_at(deadline));
}

/// Suspends the calling fiber or thread until `deadline_ns` on CLOCK_MONOTONIC.
///
/// # Blocking
/// As [`sleep`].
#[inline(always)] // see park_running()
pub fn sleep_until_ns(deadline_ns: u64) {
    let Some(worker) = this_worker() else { return sleep_as_thread(deadline_ns) };
    let Some(running) = worker.running_fiber() else { return sleep_as_thread(deadline_ns) };
    park_running(running, |fiber| worker.sleep_until(deadline_ns, fiber));
}

/// Returns the deadline on CLOCK_MONOTONIC, in ns, that is `timeout` from now.
#[inline]
pub(super) fn deadline_ns_after(timeout: Duration) -> u64 {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(nanos)
}

/// Returns `deadline` in ns on CLOCK_MONOTONIC, or the current time if `deadline` has passed.
pub(super) fn deadline_ns_at(deadline: Instant) -> u64 {
    deadline_ns_after(deadline.saturating_duration_since(Instant::now()))
}

pub(super) fn has_passed(deadline_ns: u64) -> bool {
    now_ns() >= deadline_ns
}

/// Makes the calling thread, which runs no fiber, sleep until `deadline_ns`.
#[cold]
fn sleep_as_thread(deadline_ns: u64) {
    let left = deadline_ns.saturating_sub(now_ns());
    std::thread::sleep(Duration::from_nanos(left));
}

/// Returns the current time on CLOCK_MONOTONIC, in ns. Never inlined: the function reads a
/// thread-local variable, and a fiber may resume on another thread after a suspension.
#[inline(never)]
fn now_ns() -> u64 {
    clock::now_ns()
}

/// Returns `true` if the caller is a fiber.
#[must_use]
pub fn is_fiber() -> bool {
    current_id().is_some()
}

/// Returns the calling fiber's identification number; `None` if the caller is no fiber.
#[must_use]
pub fn current_id() -> Option<u64> {
    this_worker().and_then(|worker| worker.running_fiber()).map(running_fiber_id)
}

/// Returns the index, from 0, of the calling fiber's worker; `None` if the caller is no fiber.
#[must_use]
pub fn current_worker() -> Option<u32> {
    this_worker().map(|worker| worker.index())
}
