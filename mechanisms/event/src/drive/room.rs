//! Where senders wait until a full inbox has room.
//!
//! A sender counts itself, fences, tries once more and sleeps; the machine takes messages out,
//! fences and looks whether anybody is counted. One of the fences comes first: the sender finds
//! room, or the machine finds the sender.

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
    /// Changed whenever there may be room: what the senders sleep on.
    changes: AtomicU32,
}

impl Room {
    /// Sender: tries until there is room or `wait_ns_max` has passed.
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
            // Acquire: pairs with the Release in admit(): a change that was made before shows room.
            let changes = self.state.changes.load(Ordering::Acquire);
            // SeqCst: pairs with the fence in has_waiting(); see above.
            fence(Ordering::SeqCst);
            message = match push(message) {
                Err(PushError::Full(message)) => message,
                answer => break answer,
            };
            nudge(); // it may sleep on a queue that was filled without waking it
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break Err(PushError::Full(message));
            }
            futex::wait(&self.state.changes, changes, left, Scope::Private);
        };
        // Relaxed: a count that nothing else is ordered by.
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Machine, after it has taken messages out: whether senders wait.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        // SeqCst: pairs with the fence in wait(); see above.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.state.waiting.load(Ordering::Relaxed) != 0
    }

    /// Machine: lets up to `senders_max` of those that wait try again.
    #[cold]
    pub(crate) fn admit(&self, senders_max: u32) {
        // Release: pairs with the Acquire in wait().
        self.state.changes.fetch_add(1, Ordering::Release);
        futex::wake(&self.state.changes, senders_max, Scope::Private);
    }
}
