//! The messages of other threads, as the thread sees them that goes to sleep.

use super::inbox::Inbox;

/// The messages of other threads, as the thread that handles them sees them.
///
/// Messages are handled in the order in which their senders were given a place, and a sender fills its
/// place a moment later. One that is preempted in between hides those behind it. They have rung, and
/// woken the thread in vain; and the one that is late does not ring if it only calls. So a thread must
/// not sleep for long while a push has begun: it looks again by itself.
pub trait Incoming {
    /// Returns `true` if a message can be popped; `false` may be stale.
    fn has_any(&self) -> bool;

    /// Returns `true` if a push has begun whose message was not popped yet. To be asked after the sleep was
    /// declared: of a push that begins later, or that this does not tell of, the sender or one behind
    /// it sees the declaration.
    fn has_begun_push(&mut self) -> bool;
}

impl<M> Incoming for Inbox<M> {
    #[inline]
    fn has_any(&self) -> bool {
        !self.is_empty()
    }

    fn has_begun_push(&mut self) -> bool {
        // Not is_empty(), which asks only whether the next message is filled in.
        let begun_count = self.len();
        begun_count != 0
    }
}
