//! A fiber that waits until something is brought or its time comes: see [`Race`].
//!
//! The alarm lies on the stack of the fiber, which may use that again as soon as it goes on. So whoever wakes it takes
//! the fiber out first. Its timer is in the wheel of its worker, with which it stays until then: neither can the
//! timer find the alarm gone, nor can the fiber be at work elsewhere while its worker still puts it to sleep.

use super::control::{Control, Runnable, park, stay};
use super::race::Race;
use crate::drive::waiter::Waiter;
use crate::drive::worker::Worker;
use handover_timer::TimerId;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

/// What a fiber that waits has on its stack.
#[derive(Debug)]
struct Alarm {
    race: Race,
    fiber: UnsafeCell<Option<Runnable>>,
}

/// A fiber that may be woken by what is brought, unless its time has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ring(NonNull<Alarm>);

// SAFETY: it is for those who bring something, wherever they are; the race says who may touch the fiber.
unsafe impl Send for Ring {}

impl Ring {
    /// It has been brought: the fiber, to be woken, unless its time had come before.
    pub(crate) fn brought(self) -> Option<Runnable> {
        // SAFETY: the fiber goes on, and the alarm away, when somebody has taken the fiber out below or when it was
        // let go: both by this call, as there is one Ring to an alarm.
        let alarm = unsafe { self.0.as_ref() };
        if !alarm.race.bring() {
            return None;
        }
        // SAFETY: we have won the race, and so have the fiber alone.
        unsafe { (*alarm.fiber.get()).take() }
    }
}

/// What is due at a time: a fiber, or an alarm. One pointer, as a wheel may have a million of them.
#[derive(Debug)]
pub(crate) struct Due(NonNull<u8>);

const IS_ALARM: usize = 1;
const _: () = assert!(align_of::<Control>() > IS_ALARM && align_of::<Alarm>() > IS_ALARM);

// SAFETY: a fiber may be sent; an alarm is in the wheel of its own worker and nowhere else.
unsafe impl Send for Due {}

impl Due {
    /// A fiber that sleeps.
    #[inline]
    pub(crate) fn fiber(fiber: Runnable) -> Self {
        Self(fiber.into_control().cast())
    }

    fn alarm(alarm: NonNull<Alarm>) -> Self {
        Self(alarm.cast::<u8>().map_addr(|addr| addr | IS_ALARM))
    }

    /// Asks the processor for what it will touch.
    #[inline]
    pub(crate) fn fetch(&self) {
        Control::fetch(self.0.as_ptr());
    }

    /// Whose time has come; nobody if it was woken before.
    #[inline]
    pub(crate) fn come(self) -> Option<Runnable> {
        if self.0.addr().get() & IS_ALARM == 0 {
            // SAFETY: it was made of a fiber, which is given back here.
            return Some(unsafe { Runnable::from_control(self.0.cast()) });
        }
        self.come_alarm()
    }

    #[cold]
    fn come_alarm(self) -> Option<Runnable> {
        let at = self.0.as_ptr().map_addr(|addr| addr & !IS_ALARM).cast::<Alarm>();
        // SAFETY: a fiber that goes on turns its timer off, on this thread, before its alarm goes away.
        let alarm = unsafe { &*at };
        if !alarm.race.expire() {
            return None;
        }
        // SAFETY: we have won the race, and so have the fiber alone.
        unsafe { (*alarm.fiber.get()).take() }
    }
}

/// Suspends the fiber that runs until the waiter that `commit` was given is woken, or it is `deadline_ns`; whether it
/// was woken, or `commit` gave the waiter back. `withdraw` takes the waiter out from where `commit` has put it, if it
/// is still there, and says so.
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
        // SAFETY: it lies on the stack of the fiber, which is suspended here.
        let alarm = unsafe { at.as_ref() };
        // SAFETY: nobody else knows the alarm yet.
        unsafe { *alarm.fiber.get() = Some(fiber) };
        // SAFETY: called where nobody else knows it: the waiter was given back, and the timer is off.
        let take_back = || unsafe { (*alarm.fiber.get()).take() };
        let Some(id) = worker.start(deadline_ns, Due::alarm(at)) else { return take_back() };
        timer.set(Some(id));
        // Once it is somewhere it may be woken at once. But to run it has to come to this worker, which is here.
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
    // Who is found in its place there is woken by nobody else. Otherwise somebody has it in hand.
    while !withdraw(&Waiter::Alarm(Ring(at))) && !alarm.race.is_let_go() {
        looks += 1;
        if looks < 64 {
            std::hint::spin_loop();
        } else {
            crate::yield_now(); // that one has lost its CPU
        }
    }
    false
}
