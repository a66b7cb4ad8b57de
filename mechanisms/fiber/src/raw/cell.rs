//! Value behind a gate.

use super::gate::{Gate, PreviousState, WaitNode, Waiters, Withdrawals};
#[cfg(feature = "async")]
use super::task::TaskWait;
use super::waiter::Waiter;
#[cfg(feature = "async")]
use crate::drive::wait::wake_all;
use crate::drive::wait::{TasksToWake, suspend_caller, suspend_caller_until};
use std::cell::UnsafeCell;
#[cfg(feature = "async")]
use std::task::Waker;

/// Value that is written once, and can be read when the gate is open. The thread that claims the
/// gate writes it; any thread may read it.
#[derive(Debug)]
pub(crate) struct GateCell<T> {
    gate: Gate<Waiter>,
    /// Number of waiters that are removing themselves from the gate.
    withdrawals: Withdrawals,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value may be set on one thread and dropped on the thread that owns the cell; `T` is
// `Send`.
unsafe impl<T: Send> Send for GateCell<T> {}
// SAFETY: the gate lets one thread write, before any thread reads (`T: Sync` for the readers); the
// value may be dropped by another thread than the one that wrote it (`T: Send`).
unsafe impl<T: Send + Sync> Sync for GateCell<T> {}

impl<T> GateCell<T> {
    /// Creates a cell without a value.
    pub(crate) const fn new() -> Self {
        Self { gate: Gate::new(), withdrawals: Withdrawals::new(), value: UnsafeCell::new(None) }
    }

    /// Sets the value and opens the gate; returns the waiters to wake. Returns `value` as the error
    /// if a value was set before.
    #[inline]
    pub(crate) fn set(&self, value: T) -> Result<Option<Waiters<Waiter>>, T> {
        // A zero-sized value without a drop needs no write: opening the gate is enough.
        if size_of::<T>() != 0 || std::mem::needs_drop::<T>() {
            if !self.gate.claim() {
                return Err(value);
            }
            // SAFETY: claim() succeeded, so only this thread writes, and no thread reads before the
            // gate is open.
            unsafe { *self.value.get() = Some(value) };
        } else if self.gate.is_set() {
            return Err(value);
        } else {
            return match self.gate.set() {
                PreviousState::Open => Err(value),
                PreviousState::Waiting(waiters) => {
                    std::mem::forget(value);
                    Ok(Some(waiters))
                }
                PreviousState::Abandoned => Ok(None),
            };
        }
        match self.gate.set() {
            PreviousState::Waiting(waiters) => Ok(Some(waiters)),
            PreviousState::Abandoned | PreviousState::Open => Ok(None),
        }
    }

    /// Returns the value; `None` if it is not set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: is_set() has found the gate open, with an Acquire.
        self.gate.is_set().then(|| unsafe { self.value_unchecked() })
    }

    /// Waits until the gate is open, and returns the value. Returns even if the gate was closed
    /// again before the caller resumes.
    #[inline(always)] // see park_running()
    pub(crate) fn wait(&self) -> &T {
        wait_for_gate(&self.gate);
        // SAFETY: wait_for_gate() returns once it has found the gate open, or the thread that
        // opened it has woken this waiter.
        unsafe { self.value_unchecked() }
    }

    /// Waits until the gate is open or `deadline_ns` passes; returns the value. Returns `None` if
    /// the deadline passes first.
    pub(crate) fn wait_until(&self, deadline_ns: u64) -> Option<&T> {
        // SAFETY: `true` means that the gate was found open, or the thread that opened it has woken
        // this waiter.
        wait_for_gate_until(&self.gate, &self.withdrawals, deadline_ns)
            .then(|| unsafe { self.value_unchecked() })
    }

    /// Returns the value if it is set; otherwise registers `waker` to be woken when it is set.
    #[cfg(feature = "async")]
    pub(crate) fn poll_wait(&self, wait: &mut TaskWait<Waiter>, waker: &Waker) -> Option<&T> {
        self.get().or_else(|| {
            // SAFETY: `true` means that the gate was open since `wait` began, and the writes before
            // its opening are visible.
            wait.poll(&self.gate, waker).then(|| unsafe { self.value_unchecked() })
        })
    }

    /// Ends the wait of an async task, if the wait has begun.
    #[cfg(feature = "async")]
    pub(crate) fn cancel_wait(&self, wait: &mut TaskWait<Waiter>) {
        wait.cancel(&self.gate, &self.withdrawals, wake_all);
    }

    /// Returns the value without checking the gate.
    ///
    /// # Safety
    /// The gate was open at some time since this cell was borrowed, and the caller has synchronised
    /// with the thread that opened it.
    #[inline]
    unsafe fn value_unchecked(&self) -> &T {
        if size_of::<T>() == 0 && !std::mem::needs_drop::<T>() {
            // SAFETY: a value of this type was passed to set(), which forgot it; it has size zero,
            // so any aligned pointer points to it.
            return unsafe { std::ptr::NonNull::<T>::dangling().as_ref() };
        }
        // SAFETY: only reset() closes a gate with a value of this kind, and needs `&mut self`: so
        // the gate is still open, and no thread writes the value.
        let value = unsafe { &*self.value.get() };
        value.as_ref().expect("the gate is open, but the cell has no value")
    }

    /// Closes the gate, and removes and returns the value; `None` if it was not set.
    pub(crate) fn reset(&mut self) -> Option<T> {
        let is_set = self.gate.is_set();
        self.gate.reset();
        if is_set && size_of::<T>() == 0 && !std::mem::needs_drop::<T>() {
            // SAFETY: a value of this type was passed to set(), which forgot it; it has size zero.
            return Some(unsafe { std::ptr::NonNull::<T>::dangling().read() });
        }
        self.value.get_mut().take()
    }
}

impl GateCell<()> {
    /// Closes the gate; returns `true` if it was open. Sound because no one borrows a value of type
    /// `()`.
    pub(crate) fn close(&self) -> bool {
        self.gate.close(&self.withdrawals)
    }
}

/// Waits until the gate is open.
#[inline(always)] // see park_running()
pub(crate) fn wait_for_gate(gate: &Gate<Waiter>) {
    let mut node = WaitNode::new();
    let node = &raw mut node;
    suspend_caller(|waiter| {
        // SAFETY: the node is on the stack of the waiter, which leaves this function only when its
        // waiter was handed out or is returned here.
        unsafe { gate.enqueue(node, waiter) }.err()
    });
}

/// Waits until the gate is open, but not after `deadline_ns`. Returns `true` if the gate was open
/// before the deadline.
pub(crate) fn wait_for_gate_until(
    gate: &Gate<Waiter>,
    withdrawals: &Withdrawals,
    deadline_ns: u64,
) -> bool {
    let mut node = WaitNode::new();
    let node = &raw mut node;
    let mut tasks = TasksToWake::default();
    // SAFETY: the node is on the stack of the waiter, which leaves this function only when its
    // waiter was handed out, returned here, or withdrawn below: no code that may panic runs before.
    let commit = |waiter| unsafe { gate.enqueue(node, waiter) }.err();
    let is_woken = suspend_caller_until(deadline_ns, commit, |_| {
        // SAFETY: the node was enqueued above; if its waiter is being handed out,
        // suspend_caller_until() returns only after that has ended.
        let withdrawn = unsafe { gate.withdraw(node, withdrawals) };
        tasks.wake_others(withdrawn.waiters_to_wake);
        withdrawn.was_queued
    });
    tasks.wake();
    is_woken
}
