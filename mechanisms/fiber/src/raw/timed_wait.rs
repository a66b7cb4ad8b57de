//! Suspension of a fiber until it is woken, or until a deadline.

use super::control::{FiberControl, park_running, set_running_local};
use super::race::WakeRace;
use super::waiter::{TimedWait, TimedWaker, TimerPayload, Waiter};
use crate::drive::worker::Worker;
use handover_timer::TimerId;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

/// Suspends the running fiber until its waiter is woken, or until `deadline_ns`. Returns `true` if
/// the waiter was woken, or `commit`, which stores the waiter, has returned it. `withdraw` removes
/// the waiter that `commit` has stored, and returns `true` if it was still stored.
pub(crate) fn suspend_fiber_until(
    worker: &Worker,
    running: NonNull<FiberControl>,
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    mut withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    let timed_wait = TimedWait { race: WakeRace::new(), fiber: UnsafeCell::new(None) };
    let at = NonNull::from(&timed_wait);
    let timer: Cell<Option<TimerId>> = Cell::new(None);
    let is_unneeded = Cell::new(false);
    let was_local = set_running_local(running, true);
    park_running(running, |fiber| {
        // SAFETY: the timed wait is on the stack of the fiber, which is suspended during this
        // closure.
        let timed_wait = unsafe { at.as_ref() };
        // SAFETY: no other code knows the timed wait yet.
        unsafe { *timed_wait.fiber.get() = Some(fiber) };
        // SAFETY: called only while no other code knows the timed wait: before commit(), or after
        // it returned the waiter and the timer was cancelled.
        let reclaim_fiber = || unsafe { (*timed_wait.fiber.get()).take() };
        let Some(id) = worker.start_timer(deadline_ns, TimerPayload::for_timed_wait(at)) else {
            return reclaim_fiber();
        };
        timer.set(Some(id));
        // From commit() on, the fiber may be woken. But it can only run on this worker, which runs
        // this closure.
        let _returned = commit(Waiter::TimedFiber(TimedWaker(at)))?;
        is_unneeded.set(true);
        worker.cancel_timer(id);
        reclaim_fiber()
    });
    set_running_local(running, was_local);
    let Some(id) = timer.get() else { return false };
    if is_unneeded.get() {
        return true;
    }
    if timed_wait.race.is_woken() {
        worker.cancel_timer(id);
        return true;
    }
    let mut spins_count = 0u32;
    // A waiter that withdraw() finds is woken by no other thread. Otherwise another thread has it,
    // and will let go of it or put it back.
    while !withdraw(&Waiter::TimedFiber(TimedWaker(at))) && !timed_wait.race.is_released() {
        spins_count += 1;
        if spins_count < 64 {
            std::hint::spin_loop();
        } else {
            crate::yield_now(); // the waking thread was preempted
        }
    }
    false
}
