//! Check for messages of other threads, for a thread that is about to sleep.

use super::inbox::Inbox;

/// Inboxes of a thread, checked before it sleeps.
///
/// Messages are handled in the order in which their senders were given a slot, and a sender fills
/// its slot a moment later. A sender that is preempted in between hides the messages behind it.
/// Their senders have already woken the thread, in vain, and the preempted sender does not wake it
/// if it uses `send_quiet`. So a thread must not sleep for long while a push has begun: it checks again
/// after a short time.
pub trait Incoming {
    /// Returns `true` if a message can be popped; `false` may be stale.
    fn has_any(&self) -> bool;

    /// Returns `true` if a push has started whose message was not popped yet. Must be called after
    /// the sleep was declared: the sender of a later push, or of one that this method misses, or a
    /// sender behind it, sees the declaration.
    fn has_begun_push(&mut self) -> bool;
}

impl<M> Incoming for Inbox<M> {
    #[inline]
    fn has_any(&self) -> bool {
        !self.is_empty()
    }

    fn has_begun_push(&mut self) -> bool {
        // Not is_empty(), which checks only whether the next slot is filled.
        let begun_count = self.len();
        begun_count != 0
    }
}
