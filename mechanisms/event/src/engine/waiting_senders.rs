//! Senders that wait for space in a full inbox: the protocol, without system calls and time.
//!
//! A sender counts itself, fences, tries once more and sleeps; the machine takes messages out, fences and reads the
//! count. Whichever fence comes first: either the sender finds space, or the machine sees the sender's count.

use handover_base::sync::CachePadded;
use handover_base::sync::atomic::{AtomicU32, Ordering, fence};
use handover_ring::PushError;

/// Senders that wait for space in one inbox.
#[derive(Debug, Default)]
pub struct WaitingSenders {
    state: CachePadded<WaitingState>,
}

/// Counters of [`WaitingSenders`].
#[derive(Debug, Default)]
struct WaitingState {
    /// Number of waiting senders.
    waiting: AtomicU32,
    /// Counter that changes whenever there may be space; the futex word on which the senders sleep.
    changes: AtomicU32,
}

impl WaitingSenders {
    /// Repeats `push` while the inbox is full, until `sleep` returns `false`; returns the last result. Called by a
    /// sender.
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
            // Acquire: pairs with the Release in admit(): after a change that is seen here, push() sees the space.
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

    /// Returns `true` if senders wait for space; called by the machine after it has removed messages.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        // SeqCst: pairs with the fence in wait(); see the module's documentation.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.state.waiting.load(Ordering::Relaxed) != 0
    }

    /// Lets waiting senders try again; called by the machine. `wake` gets the futex word on which they sleep, and
    /// wakes them.
    #[cold]
    pub fn admit(&self, wake: impl FnOnce(&AtomicU32)) {
        // Release: pairs with the Acquire in wait().
        self.state.changes.fetch_add(1, Ordering::Release);
        wake(&self.state.changes);
    }
}
