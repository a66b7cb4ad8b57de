//! Fiber that waits for a wake-up until a deadline: see [`Race`].
//!
//! The [`TimedWait`] is on the stack of the fiber, which may reuse that memory as soon as it goes
//! on. So the waking thread takes the fiber out first. Its timer is in the wheel of the fiber's
//! worker, and the fiber stays with that worker until it goes on: the timer never finds freed
//! memory, and the fiber never runs elsewhere while its worker is still suspending it.

use super::control::{Control, Runnable, park, set_local};
use super::race::Race;
use crate::drive::waiter::Waiter;
use crate::drive::worker::Worker;
use handover_timer::TimerId;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

/// State of a timed wait, on the stack of the waiting fiber.
#[derive(Debug)]
struct TimedWait {
    race: Race,
    fiber: UnsafeCell<Option<Runnable>>,
}

/// Right to wake a fiber, unless its deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimedWaker(NonNull<TimedWait>);

// SAFETY: a waker accesses the timed wait through `take_fiber` only, which may run on any thread:
// `fiber` is accessed by the winner of the race only, and a `Runnable` is `Send`.
unsafe impl Send for TimedWaker {}

impl TimedWaker {
    /// Returns the fiber, to be woken, unless its deadline had passed before.
    pub(crate) fn take_fiber(self) -> Option<Runnable> {
        // SAFETY: the timed wait is valid until the fiber was taken out below or `try_wake` has let
        // go. Both happen in this call, which is made once, as only one waker of a timed wait is
        // passed on.
        let timed_wait = unsafe { self.0.as_ref() };
        if !timed_wait.race.try_wake() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*timed_wait.fiber.get()).take() }
    }
}

/// Payload of a timer: a fiber, or a timed wait. A single pointer, as a wheel may hold a million of
/// them.
#[derive(Debug)]
pub(crate) struct TimerPayload(NonNull<u8>);

const TIMED_WAIT_TAG: usize = 1;
const _: () =
    assert!(align_of::<Control>() > TIMED_WAIT_TAG && align_of::<TimedWait>() > TIMED_WAIT_TAG);

// SAFETY: a fiber is `Send`; a timed wait is only in the wheel of its own worker, and never leaves
// that thread.
unsafe impl Send for TimerPayload {}

impl TimerPayload {
    /// Makes the payload for a sleeping fiber.
    #[inline]
    pub(crate) fn for_fiber(fiber: Runnable) -> Self {
        Self(fiber.into_control().cast())
    }

    fn for_timed_wait(timed_wait: NonNull<TimedWait>) -> Self {
        Self(timed_wait.cast::<u8>().map_addr(|addr| addr | TIMED_WAIT_TAG))
    }

    /// Prefetches the memory that `expire` accesses.
    #[inline]
    pub(crate) fn prefetch(&self) {
        Control::prefetch(self.0.as_ptr());
    }

    /// Returns the fiber whose deadline has passed; `None` if it was woken before.
    #[inline]
    pub(crate) fn expire(self) -> Option<Runnable> {
        if self.0.addr().get() & TIMED_WAIT_TAG == 0 {
            // SAFETY: without the tag, the pointer came from into_control(), and is converted back
            // once, as `self` is consumed.
            return Some(unsafe { Runnable::from_control(self.0.cast()) });
        }
        self.expire_timed_wait()
    }

    #[cold]
    fn expire_timed_wait(self) -> Option<Runnable> {
        let at = self.0.as_ptr().map_addr(|addr| addr & !TIMED_WAIT_TAG).cast::<TimedWait>();
        // SAFETY: a fiber that goes on cancels its timer, on this thread, before its timed wait
        // ends.
        let timed_wait = unsafe { &*at };
        if !timed_wait.race.expire() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*timed_wait.fiber.get()).take() }
    }
}

/// Suspends the running fiber until the waiter that was passed to `commit` is woken, or until
/// `deadline_ns`; returns `true` if it was woken, or `commit` returned the waiter. `withdraw`
/// removes the waiter from where `commit` has stored it, and returns `true` if it was still there.
pub(crate) fn wait_until(
    worker: &Worker,
    running: NonNull<Control>,
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    mut withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    let timed_wait = TimedWait { race: Race::new(), fiber: UnsafeCell::new(None) };
    let at = NonNull::from(&timed_wait);
    let timer: Cell<Option<TimerId>> = Cell::new(None);
    let is_unneeded = Cell::new(false);
    let was_local = set_local(running, true);
    park(running, |fiber| {
        // SAFETY: the timed wait is on the stack of the fiber, which is suspended during this
        // closure.
        let timed_wait = unsafe { at.as_ref() };
        // SAFETY: no other code knows the timed wait yet.
        unsafe { *timed_wait.fiber.get() = Some(fiber) };
        // SAFETY: called only while no other code knows the timed wait: before commit(), or after
        // it returned the waiter and the timer was cancelled.
        let reclaim_fiber = || unsafe { (*timed_wait.fiber.get()).take() };
        let Some(id) = worker.start(deadline_ns, TimerPayload::for_timed_wait(at)) else {
            return reclaim_fiber();
        };
        timer.set(Some(id));
        // From commit() on, the fiber may be woken. But it can only run on this worker, which runs
        // this closure.
        let _returned = commit(Waiter::TimedFiber(TimedWaker(at)))?;
        is_unneeded.set(true);
        worker.cancel(id);
        reclaim_fiber()
    });
    set_local(running, was_local);
    let Some(id) = timer.get() else { return false };
    if is_unneeded.get() {
        return true;
    }
    if timed_wait.race.is_woken() {
        worker.cancel(id);
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
