//! Senders that wait for space in a full inbox, threads and tasks: the protocol, without system
//! calls and time.
//!
//! A sender counts or registers itself, fences, tries once more and sleeps; the machine takes
//! messages out, fences and checks for senders. Whichever fence comes first: either the sender
//! finds space, or the machine sees the sender.

use handover_base::sync::CachePadded;
use handover_base::sync::atomic::{AtomicU32, Ordering, fence};
use handover_base::wakers::WakerQueue;
use handover_ring::PushError;
#[cfg(feature = "async")]
use {handover_base::wakers::Registration, std::task::Waker};

/// Senders that wait for space in one inbox.
#[derive(Debug, Default)]
pub struct WaitingSenders {
    state: CachePadded<WaitingState>,
}

/// Counters and wakers of [`WaitingSenders`].
#[derive(Debug, Default)]
struct WaitingState {
    /// Number of waiting threads.
    waiting: AtomicU32,
    /// Counter that changes whenever there may be space; the futex word on which the threads sleep.
    changes: AtomicU32,
    /// Waiting tasks.
    tasks: WakerQueue,
}

impl WaitingSenders {
    /// Repeats `push` while the inbox is full, until `sleep` returns `false`; returns the last
    /// result. Called by a thread.
    ///
    /// `sleep` is called with a word and the value that it has while the sender may sleep. It must
    /// return at once if the word differs, and when [`admit`](Self::admit) wakes the sender; it may
    /// return early. It returns `false` if the time is over.
    #[cold]
    pub fn wait<M>(
        &self,
        mut message: M,
        mut push: impl FnMut(M) -> Result<(), PushError<M>>,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> Result<(), PushError<M>> {
        // Relaxed: ordered by the fence in the loop.
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let answer = loop {
            // Acquire: pairs with the Release in admit(): after a change that is seen here, push()
            // sees the space.
            let changes = self.state.changes.load(Ordering::Acquire);
            // SeqCst: pairs with the fence in has_waiting(); see the module's documentation.
            fence(Ordering::SeqCst);
            message = match push(message) {
                Err(PushError::Full(message)) => message,
                answer => break answer,
            };
            if !sleep(&self.state.changes, changes) {
                break Err(PushError::Full(message));
            }
        };
        // Relaxed: a count that orders nothing else.
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Tries `push`, and registers the task if the inbox is full. Returns the result of the last
    /// `push`. Called by a task, which waits for its waker after [`PushError::Full`], and calls
    /// [`leave`](Self::leave) if it gives up. It must then also wake the machine, which may sleep.
    #[cfg(feature = "async")]
    pub fn push_or_register<M>(
        &self,
        message: M,
        registration: &mut Registration,
        waker: &Waker,
        mut push: impl FnMut(M) -> Result<(), PushError<M>>,
    ) -> Result<(), PushError<M>> {
        // Not registered while it takes a slot, so that the machine then admits another task.
        let was_admitted = !self.state.tasks.unregister(registration);
        let message = match push(message) {
            Err(PushError::Full(message)) => message,
            answer => {
                if was_admitted {
                    self.state.tasks.wake_one();
                }
                return answer;
            }
        };
        // Contains the fence that pairs with the one in has_waiting(); see the module's
        // documentation.
        self.state.tasks.register(registration, waker);
        let answer = push(message);
        if !matches!(answer, Err(PushError::Full(_))) {
            self.leave(registration);
        }
        answer
    }

    /// Ends the wait of a task. The machine admits one task at a time, so a task that was admitted
    /// admits the next.
    #[cfg(feature = "async")]
    pub fn leave(&self, registration: &mut Registration) {
        if !self.state.tasks.unregister(registration) {
            self.state.tasks.wake_one();
        }
    }

    /// Returns `true` if senders wait for space; called by the machine after it has removed
    /// messages.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        // SeqCst: pairs with the fences in wait() and WakerQueue::register(); see the module's
        // documentation.
        fence(Ordering::SeqCst);
        // Relaxed, like the load in is_empty(): ordered by the fence.
        self.state.waiting.load(Ordering::Relaxed) != 0 || !self.state.tasks.is_empty()
    }

    /// Lets waiting threads and up to `tasks_max` waiting tasks try again; called by the machine.
    /// `wake` gets the futex word on which the threads sleep, and wakes them.
    #[cold]
    pub fn admit(&self, tasks_max: u32, wake: impl FnOnce(&AtomicU32)) {
        // Release: pairs with the Acquire in wait().
        self.state.changes.fetch_add(1, Ordering::Release);
        wake(&self.state.changes);
        for _ in 0..tasks_max {
            if !self.state.tasks.wake_one() {
                break;
            }
        }
    }
}
