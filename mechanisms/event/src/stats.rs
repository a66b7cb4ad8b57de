//! What a machine has done.

/// Counts since the machine was made.
///
/// Nothing is lost: `sent == handled + refused + dropped + waiting + returned`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages sent to this machine, by anybody, whatever became of them. Timers and descriptors
    /// are not messages in this count.
    pub sent: u64,
    /// Messages given to the handler, those without a handler of their own included.
    pub handled: u64,
    /// Messages that came back to their sender.
    pub refused: u64,
    /// Messages that made room for newer ones, under [`WhenFull::DropOldest`](crate::WhenFull).
    pub dropped: u64,
    /// Messages that stand in the queues.
    pub waiting: u64,
    /// Messages that were handed back when the machine was closed.
    pub returned: u64,
    /// Of those handled, the ones that had no handler: see [`Context::unhandled`](crate::Context).
    pub unhandled: u64,
    /// Of what was handled, timers and readiness included, what ended in a panic that was contained.
    pub panicked: u64,
    /// Timers that expired and were given to the handler.
    pub timers: u64,
    /// Periods of periodic timers that had passed by the time the one before was handled, and were
    /// told with it: see [`Context::every_counted`](crate::Context::every_counted).
    pub timers_missed: u64,
    /// Readiness of descriptors, and signals, given to the handler.
    pub descriptors: u64,
    /// Times that the thread went to sleep.
    pub parks: u64,
    /// Of those, the ones that a sender ended; the others ended by a deadline or a descriptor.
    pub wakeups: u64,
    /// Waits that ended while the thread was spinning.
    pub spins: u64,
}
