//! Slot for the reply to one request: the protocol, without threads and time.
//!
//! A lock protects the slot. Each end holds it for some instructions, and not while it runs foreign
//! code.

use handover_base::sync::atomic::{AtomicBool, Ordering};
use handover_base::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::task::{Poll, Waker};

/// Slot for the reply to one request, shared by the replier and the requester.
pub struct ReplySlot<R> {
    state: Mutex<SlotState<R>>,
    /// `true` unless the state is [`SlotState::Awaited`]; a copy that is read without the lock.
    has_ended: AtomicBool,
}

/// State of a [`ReplySlot`].
enum SlotState<R> {
    /// The reply may still come. Contains the waker of a requester that waits.
    Awaited(Option<Waker>),
    /// The wait has ended. Contains the reply, unless it was taken or there is none.
    Ended(Option<R>),
}

impl<R> ReplySlot<R> {
    /// Creates a slot whose reply is awaited.
    pub fn new() -> Self {
        Self { state: Mutex::new(SlotState::Awaited(None)), has_ended: AtomicBool::new(false) }
    }

    /// Ends the wait with a reply, or without one, and wakes the requester if it waits. Called by
    /// the replier. Returns `Err` with the reply if the wait has ended before.
    pub fn end(&self, reply: Option<R>) -> Result<(), Option<R>> {
        if self.has_ended() {
            return Err(reply);
        }
        let mut state = self.lock();
        let SlotState::Awaited(waker) = &mut *state else { return Err(reply) };
        let waker = waker.take();
        *state = SlotState::Ended(reply);
        // Relaxed: a hint; the lock orders.
        self.has_ended.store(true, Ordering::Relaxed);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Returns `true` if the wait has ended; once true, it stays true.
    #[inline]
    pub fn has_ended(&self) -> bool {
        // Relaxed: a hint; the lock orders.
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Polls for the end of the wait; called by the requester. Until then, registers `waker` in
    /// place of an earlier one.
    pub fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        if self.has_ended() {
            return Poll::Ready(());
        }
        // Cloned, and the replaced waker dropped, without the lock: both call foreign code.
        let waker = waker.clone();
        let mut state = self.lock();
        let SlotState::Awaited(registered) = &mut *state else { return Poll::Ready(()) };
        let replaced = registered.replace(waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Takes the reply, `None` if there is none; called by the requester. If the wait has not
    /// ended, removes the registered waker.
    pub fn take(&self) -> Poll<Option<R>> {
        let mut state = self.lock();
        let removed = match &mut *state {
            SlotState::Ended(reply) => return Poll::Ready(reply.take()),
            SlotState::Awaited(registered) => registered.take(),
        };
        drop(state);
        drop(removed);
        Poll::Pending
    }

    /// Ends the wait and drops a reply that was not taken; called by the requester.
    pub fn abandon(&self) {
        let state = std::mem::replace(&mut *self.lock(), SlotState::Ended(None));
        // Relaxed: a hint; the lock orders.
        self.has_ended.store(true, Ordering::Relaxed);
        drop(state); // after the lock is released
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<R>> {
        // No code under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
