//! A value behind a gate.

use super::gate::{Gate, Node, Opened, Waiters};
use crate::drive::waiter::Waiter;
use std::cell::UnsafeCell;

/// Written once by who claims the gate, read by all once it stands open.
#[derive(Debug)]
pub(crate) struct GateCell<T> {
    gate: Gate<Waiter>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value goes from who sets it to who owns the cell.
unsafe impl<T: Send> Send for GateCell<T> {}
// SAFETY: the gate lets one thread write, before any reads (T: Sync for those), and the value may be
// dropped by another thread than the one that wrote it (T: Send).
unsafe impl<T: Send + Sync> Sync for GateCell<T> {}

impl<T> GateCell<T> {
    /// Without a value.
    pub(crate) const fn new() -> Self {
        Self { gate: Gate::new(), value: UnsafeCell::new(None) }
    }

    /// Gives it its value, once.
    #[inline]
    pub(crate) fn set(&self, value: T) -> Result<Option<Waiters<Waiter>>, T> {
        // A value without bytes and without a drop has nothing to write: opening the gate will do.
        if size_of::<T>() != 0 || std::mem::needs_drop::<T>() {
            if !self.gate.claim() {
                return Err(value);
            }
            // SAFETY: claimed by us alone, and nobody reads before the gate is open.
            unsafe { *self.value.get() = Some(value) };
        } else if self.gate.is_set() {
            return Err(value);
        } else {
            return match self.gate.set() {
                Opened::Before => Err(value),
                Opened::For(waiters) => {
                    std::mem::forget(value);
                    Ok(Some(waiters))
                }
                Opened::ForNobody => Ok(None),
            };
        }
        match self.gate.set() {
            Opened::For(waiters) => Ok(Some(waiters)),
            Opened::ForNobody | Opened::Before => Ok(None),
        }
    }

    /// Its value, if it has one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: the gate is open.
        self.gate.is_set().then(|| unsafe { self.seen_open() })
    }

    /// Waits until the gate is open, and gives the value: also to one that goes on only after the gate was
    /// closed again.
    #[inline(always)] // see park()
    pub(crate) fn wait(&self) -> &T {
        enlist(&self.gate);
        // SAFETY: enlist() returns when it has found the gate open, or whoever opened it has woken us.
        unsafe { self.seen_open() }
    }

    /// The same until `deadline_ns` at most; the value, unless the time came first.
    pub(crate) fn wait_until(&self, deadline_ns: u64) -> Option<&T> {
        // SAFETY: as in wait(): true says that it was found open, or that whoever opened it has woken us.
        enlist_until(&self.gate, deadline_ns).then(|| unsafe { self.seen_open() })
    }

    /// The value.
    ///
    /// # Safety
    /// The gate was open since this cell was borrowed, and the caller has synchronised with whoever opened it.
    #[inline]
    unsafe fn seen_open(&self) -> &T {
        if size_of::<T>() == 0 && !std::mem::needs_drop::<T>() {
            // SAFETY: a value of this type was given to set(), which forgot it; it has no bytes, so any
            // aligned pointer is one to it.
            return unsafe { std::ptr::NonNull::<T>::dangling().as_ref() };
        }
        // SAFETY: only reset() closes a gate with such a value behind it, and it needs the cell alone: so the gate
        // is open still, and nobody writes the value.
        let value = unsafe { &*self.value.get() };
        value.as_ref().expect("written before the gate was opened")
    }

    /// Takes the value, and is as new.
    pub(crate) fn reset(&mut self) -> Option<T> {
        let is_set = self.gate.is_set();
        self.gate.reset();
        if is_set && size_of::<T>() == 0 && !std::mem::needs_drop::<T>() {
            // SAFETY: a value of this type was given to set(), which forgot it; it has no bytes.
            return Some(unsafe { std::ptr::NonNull::<T>::dangling().read() });
        }
        self.value.get_mut().take()
    }
}

impl GateCell<()> {
    /// Closes it: there is no value that somebody might be looking at.
    pub(crate) fn close(&self) -> bool {
        self.gate.close()
    }
}

/// Waits before the gate until it is open.
#[inline(always)] // see park()
pub(crate) fn enlist(gate: &Gate<Waiter>) {
    let mut node = Node::new();
    let place = &raw mut node;
    crate::drive::waiter::wait(|waiter| {
        // SAFETY: the node is on the stack of the one that waits, which goes on, and leaves this function,
        // only when its waiter was handed out or is given back here.
        unsafe { gate.enlist(place, waiter) }.err()
    });
}

/// The same until `deadline_ns` at most; whether it need not wait longer.
pub(crate) fn enlist_until(gate: &Gate<Waiter>, deadline_ns: u64) -> bool {
    let mut node = Node::new();
    let place = &raw mut node;
    // SAFETY: the node is on the stack of the one that waits, which goes on, and leaves this function, only when its
    // waiter was handed out, given back here, or withdrawn below.
    let commit = |waiter| unsafe { gate.enlist(place, waiter) }.err();
    crate::drive::waiter::wait_until(deadline_ns, commit, |_| {
        // SAFETY: it was enlisted here, and if it is handed out it is there until that is said.
        let withdrawn = unsafe { gate.withdraw(place) };
        withdrawn.opened_for.for_each(Waiter::wake);
        withdrawn.was_there
    })
}
