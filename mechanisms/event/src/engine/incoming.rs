//! Check for messages of other threads, for a thread that is about to sleep.

use super::inbox::Inbox;

/// Inboxes that a thread checks before it sleeps.
///
/// Messages are handled in the order in which their senders were given a slot, and a sender fills
/// its slot a moment later. A sender that is preempted in between hides the messages behind it.
/// Their senders have already woken the thread, in vain, and the preempted sender does not wake it
/// if it uses `send_quiet`. So a thread must not sleep for long while a push has begun: it checks
/// again after a short time.
pub trait IncomingMessages {
    /// Returns `true` if a message can be popped. After `false`, a sender may have pushed one
    /// since.
    fn has_any(&self) -> bool;

    /// Returns `true` if a push has begun whose message was not popped. Call it after declaring the
    /// sleep: then the sender of each push that it misses, or a sender behind that one, sees the
    /// declaration and wakes the thread.
    fn has_begun_push(&mut self) -> bool;
}

impl<M> IncomingMessages for Inbox<M> {
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
