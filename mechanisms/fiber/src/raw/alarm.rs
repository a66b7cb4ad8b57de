//! Fiber that waits for a wake-up until a deadline: see [`Race`].
//!
//! The alarm is on the stack of the fiber, which may reuse that memory as soon as it goes on. So
//! the waking thread takes the fiber out first. The alarm's timer is in the wheel of the fiber's
//! worker, and the fiber stays with that worker until it goes on: the timer never finds the alarm
//! gone, and the fiber never runs elsewhere while its worker is still suspending it.

use super::control::{Control, Runnable, park, stay};
use super::race::Race;
use crate::drive::waiter::Waiter;
use crate::drive::worker::Worker;
use handover_timer::TimerId;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

/// State of a timed wait, on the stack of the waiting fiber.
#[derive(Debug)]
struct Alarm {
    race: Race,
    fiber: UnsafeCell<Option<Runnable>>,
}

/// Right to wake a fiber, unless its deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ring(NonNull<Alarm>);

// SAFETY: a ring accesses the alarm through `brought` only, which may run on any thread: `fiber` is
// accessed by the winner of the race only, and a `Runnable` is `Send`.
unsafe impl Send for Ring {}

impl Ring {
    /// Returns the fiber, to be woken, unless its deadline had passed before.
    pub(crate) fn brought(self) -> Option<Runnable> {
        // SAFETY: the alarm is valid until the fiber was taken out below or `bring` has let go. Both
        // happen in this call, which is made once, as only one Ring of an alarm is passed on.
        let alarm = unsafe { self.0.as_ref() };
        if !alarm.race.bring() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*alarm.fiber.get()).take() }
    }
}

/// Payload of a timer: a fiber, or an alarm. A single pointer, as a wheel may hold a million of
/// them.
#[derive(Debug)]
pub(crate) struct Due(NonNull<u8>);

const IS_ALARM: usize = 1;
const _: () = assert!(align_of::<Control>() > IS_ALARM && align_of::<Alarm>() > IS_ALARM);

// SAFETY: a fiber is `Send`; an alarm is only in the wheel of its own worker, and never leaves that
// thread.
unsafe impl Send for Due {}

impl Due {
    /// Makes the payload for a sleeping fiber.
    #[inline]
    pub(crate) fn fiber(fiber: Runnable) -> Self {
        Self(fiber.into_control().cast())
    }

    fn alarm(alarm: NonNull<Alarm>) -> Self {
        Self(alarm.cast::<u8>().map_addr(|addr| addr | IS_ALARM))
    }

    /// Prefetches the memory that `come` accesses.
    #[inline]
    pub(crate) fn fetch(&self) {
        Control::fetch(self.0.as_ptr());
    }

    /// Returns the fiber whose deadline has passed; `None` if it was woken before.
    #[inline]
    pub(crate) fn come(self) -> Option<Runnable> {
        if self.0.addr().get() & IS_ALARM == 0 {
            // SAFETY: without the tag, the pointer came from into_control(), and is converted back
            // once, as `self` is consumed.
            return Some(unsafe { Runnable::from_control(self.0.cast()) });
        }
        self.come_alarm()
    }

    #[cold]
    fn come_alarm(self) -> Option<Runnable> {
        let at = self.0.as_ptr().map_addr(|addr| addr & !IS_ALARM).cast::<Alarm>();
        // SAFETY: a fiber that goes on cancels its timer, on this thread, before its alarm ends.
        let alarm = unsafe { &*at };
        if !alarm.race.expire() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*alarm.fiber.get()).take() }
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
    let alarm = Alarm { race: Race::new(), fiber: UnsafeCell::new(None) };
    let at = NonNull::from(&alarm);
    let timer: Cell<Option<TimerId>> = Cell::new(None);
    let needs_not = Cell::new(false);
    let was_staying = stay(running, true);
    park(running, |fiber| {
        // SAFETY: the alarm is on the stack of the fiber, which is suspended during this closure.
        let alarm = unsafe { at.as_ref() };
        // SAFETY: no other code knows the alarm yet.
        unsafe { *alarm.fiber.get() = Some(fiber) };
        // SAFETY: called only while no other code knows the alarm: before commit(), or after it
        // returned the waiter and the timer was cancelled.
        let take_back = || unsafe { (*alarm.fiber.get()).take() };
        let Some(id) = worker.start(deadline_ns, Due::alarm(at)) else { return take_back() };
        timer.set(Some(id));
        // From commit() on, the fiber may be woken. But it can only run on this worker, which runs
        // this closure.
        let _given_back = commit(Waiter::Alarm(Ring(at)))?;
        needs_not.set(true);
        worker.cancel(id);
        take_back()
    });
    stay(running, was_staying);
    let Some(id) = timer.get() else { return false };
    if needs_not.get() {
        return true;
    }
    if alarm.race.is_brought() {
        worker.cancel(id);
        return true;
    }
    let mut looks = 0u32;
    // A waiter that withdraw() finds is woken by no other thread. Otherwise another thread has it,
    // and will let go of it or put it back.
    while !withdraw(&Waiter::Alarm(Ring(at))) && !alarm.race.is_let_go() {
        looks += 1;
        if looks < 64 {
            std::hint::spin_loop();
        } else {
            crate::yield_now(); // the waking thread was preempted
        }
    }
    false
}
