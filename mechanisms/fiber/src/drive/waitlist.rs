//! Queue of the participants that wait on a mutex, a condition, a barrier or a channel, first in,
//! first out.

use crate::raw::Waiter;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of a synchronisation primitive, and the queue of its waiters. One lock guards both. The
/// lock is held for a few instructions, and never across a suspension.
#[derive(Debug)]
pub(crate) struct Waitlist<S> {
    inner: Mutex<WaitlistState<S>>,
}

/// Contents of a [`Waitlist`].
#[derive(Debug)]
pub(crate) struct WaitlistState<S> {
    pub(crate) state: S,
    pub(crate) waiters: VecDeque<Waiter>,
}

impl<S> Waitlist<S> {
    pub(crate) const fn new(state: S) -> Self {
        Self { inner: Mutex::new(WaitlistState { state, waiters: VecDeque::new() }) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, WaitlistState<S>> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another participant wakes the caller; returns at once if `decide` returns `true`
    /// for the state.
    #[inline(always)] // see park_running()
    pub(crate) fn wait_unless(&self, decide: impl FnOnce(&mut S) -> bool) {
        super::wait::suspend_caller(|waiter| {
            let mut locked = self.lock();
            if decide(&mut locked.state) {
                return Some(waiter);
            }
            locked.waiters.push_back(waiter);
            None
        });
    }

    /// Waits as `wait_unless` does, until `deadline_ns` at most. Returns `true` if the caller was
    /// woken or did not need to wait.
    pub(crate) fn wait_until_unless(
        &self,
        deadline_ns: u64,
        decide: impl FnOnce(&mut S) -> bool,
    ) -> bool {
        let commit = |waiter| {
            let mut locked = self.lock();
            if decide(&mut locked.state) {
                return Some(waiter);
            }
            locked.waiters.push_back(waiter);
            None
        };
        super::wait::suspend_caller_until(deadline_ns, commit, |waiter| self.withdraw(waiter))
    }

    /// Removes a waiter whose deadline has passed; returns `true` if it was still queued.
    pub(crate) fn withdraw(&self, waiter: &Waiter) -> bool {
        remove_waiter(&mut self.lock().waiters, waiter)
    }
}

/// Removes `waiter` from the queue; returns `true` if it was still queued.
pub(crate) fn remove_waiter(waiters: &mut VecDeque<Waiter>, waiter: &Waiter) -> bool {
    let at = waiters.iter().position(|one| one.is_same(waiter));
    at.and_then(|at| waiters.remove(at)).is_some()
}
