//! Wait of a task at a gate: a waiter that is polled, and may give up at any time.
//!
//! The node of a task is on the heap, as the task may move between threads, or be forgotten while
//! it is in the list. A task that gives up agrees with the participant that wakes it as a waiter
//! with a deadline does, by [`WakeRace`].

use super::gate::{Gate, WaitNode, Waiters, Withdrawals};
use super::race::WakeRace;
use handover_base::sync::{Arc, Mutex, MutexGuard, thread};
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::task::Waker;

/// Async task that waits, with its waker.
#[derive(Debug)]
pub struct TaskWaiter {
    waker: Mutex<Option<Waker>>,
    /// Race between the wake-up and the end of the wait by the task itself.
    race: WakeRace,
}

impl TaskWaiter {
    fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { waker: Mutex::new(Some(waker)), race: WakeRace::new() })
    }

    /// Ends the wait; returns the waker, which the caller must call. `None` if the task has given
    /// up.
    #[must_use]
    pub fn take_waker(&self) -> Option<Waker> {
        // The race first: a task that replaces its waker after this call has taken it finds the
        // race decided.
        if self.race.try_wake() { self.waker().take() } else { None }
    }

    /// Replaces the waker, unless it wakes the same task.
    fn set_waker(&self, waker: &Waker) {
        if !self.waker().as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            // Cloned, and the replaced waker dropped, without the lock: both call foreign code.
            let waker = waker.clone();
            let replaced = self.waker().replace(waker);
            drop(replaced);
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wait of an async task at a gate whose waiters have type `W`. It must be cancelled before it is
/// dropped, or else the gate's list keeps the waker, and the memory of the node.
#[derive(Debug)]
pub struct TaskWait<W> {
    /// Node and waiter of the async task; `None` before a poll has found the gate closed.
    queued: Option<(NonNull<WaitNode<W>>, Arc<TaskWaiter>)>,
}

// SAFETY: the node is owned like a box; the waiter in it is `Send`, and the task's part is `Sync`.
unsafe impl<W: Send> Send for TaskWait<W> {}
// SAFETY: no method with `&self` accesses the node.
unsafe impl<W: Send> Sync for TaskWait<W> {}

impl<W: From<Arc<TaskWaiter>>> TaskWait<W> {
    /// Creates a wait that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { queued: None }
    }

    /// Returns `true` if the gate was open at some time since the wait began. The writes before its
    /// opening are then visible. Otherwise the task of the last call is woken when the gate opens.
    pub fn poll(&mut self, gate: &Gate<W>, waker: &Waker) -> bool {
        if let Some((_, task)) = &self.queued {
            task.set_waker(waker);
            // After the waker was replaced: a participant that wins the race later takes the new
            // one.
            return task.race.is_woken();
        }
        let task = TaskWaiter::new(waker.clone());
        let node = NonNull::from(Box::leak(Box::new(WaitNode::new())));
        // SAFETY: cancel() alone frees the node, once its waiter was handed out or withdrawn;
        // nothing else accesses it.
        let refused = unsafe { gate.enqueue(node.as_ptr(), W::from(Arc::clone(&task))) }.is_err();
        if refused {
            // SAFETY: the node came from a box above, and the gate has not taken it.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        } else {
            self.queued = Some((node, task));
        }
        refused
    }

    /// Ends the wait at the gate that [`poll`](Self::poll) was given. Passes waiters to `wake`,
    /// which must wake them, if the gate was opened meanwhile.
    ///
    /// Yields the CPU while another participant, which has taken the list, has not come to this
    /// waiter.
    pub fn cancel(&mut self, gate: &Gate<W>, withdrawals: &Withdrawals, wake: impl Fn(Waiters<W>)) {
        let Some((node, task)) = self.queued.take() else { return };
        if task.race.expire() {
            loop {
                // SAFETY: poll() has enqueued the node in this gate; it is freed below, once its
                // waiter was withdrawn, or was handed out and the other participant has let go of
                // it.
                let withdrawn = unsafe { gate.withdraw(node.as_ptr(), withdrawals) };
                wake(withdrawn.waiters_to_wake);
                if withdrawn.was_queued || task.race.is_released() {
                    break;
                }
                thread::yield_now();
            }
        }
        // SAFETY: the node came from a box in poll(), and is in no list: it was withdrawn, or its
        // waiter was handed out before the race was decided.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }
}

impl<W: From<Arc<TaskWaiter>>> Default for TaskWait<W> {
    fn default() -> Self {
        Self::new()
    }
}
