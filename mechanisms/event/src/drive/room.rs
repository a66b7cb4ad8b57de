//! Queue of the senders that wait for room in a full inbox.
//!
//! A sender counts itself, fences, tries once more and sleeps; the machine takes messages out,
//! fences and reads the count. Whichever fence comes first: either the sender finds room, or the
//! machine sees the sender's count.

use handover_base::futex::{self, Scope};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU32, Ordering, fence};
use handover_ring::PushError;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Room {
    state: CachePadded<State>,
}

#[derive(Default)]
struct State {
    waiting: AtomicU32,
    /// Changed whenever there may be room; the futex that the senders sleep on.
    changes: AtomicU32,
}

impl Room {
    /// Called by a sender: tries until there is room or `wait_ns_max` has passed.
    #[cold]
    pub(crate) fn wait<M>(
        &self,
        mut message: M,
        wait_ns_max: u64,
        mut push: impl FnMut(M) -> Result<(), PushError<M>>,
        mut nudge: impl FnMut(),
    ) -> Result<(), PushError<M>> {
        let deadline = Instant::now().checked_add(Duration::from_nanos(wait_ns_max));
        // Relaxed: ordered by the fence in the loop.
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let answer = loop {
            // Acquire: pairs with the Release in admit(): after a change that is seen here, push()
            // sees the room.
            let changes = self.state.changes.load(Ordering::Acquire);
            // SeqCst: pairs with the fence in has_waiting(); see the module's documentation.
            fence(Ordering::SeqCst);
            message = match push(message) {
                Err(PushError::Full(message)) => message,
                answer => break answer,
            };
            nudge(); // the machine may sleep with a full queue, if all was sent without waking it
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break Err(PushError::Full(message));
            }
            futex::wait(&self.state.changes, changes, left, Scope::Private);
        };
        // Relaxed: a count that orders nothing else.
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Called by the machine after it has taken messages out: returns `true` if senders wait.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        // SeqCst: pairs with the fence in wait(); see the module's documentation.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.state.waiting.load(Ordering::Relaxed) != 0
    }

    /// Called by the machine: lets up to `senders_max` of the waiting senders try again.
    #[cold]
    pub(crate) fn admit(&self, senders_max: u32) {
        // Release: pairs with the Acquire in wait().
        self.state.changes.fetch_add(1, Ordering::Release);
        futex::wake(&self.state.changes, senders_max, Scope::Private);
    }
}
