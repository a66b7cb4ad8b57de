//! Counters of a machine.

/// Counters since the machine was created.
///
/// `sent == handled + refused + dropped + waiting + returned`: `sent` is computed as this sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages sent to this machine by any thread, with any outcome. Timers and descriptors are
    /// not counted here.
    pub sent: u64,
    /// Messages given to the handler, including the `unhandled` ones.
    pub handled: u64,
    /// Messages returned to their sender.
    pub refused: u64,
    /// Messages dropped to make room for newer ones, under
    /// [`WhenFull::DropOldest`](crate::WhenFull).
    pub dropped: u64,
    /// Messages in the queues.
    pub waiting: u64,
    /// Messages returned by closing the machine.
    pub returned: u64,
    /// Handled messages of a kind without a handler: see [`Context::unhandled`](crate::Context).
    pub unhandled: u64,
    /// Handler calls that ended in a panic: for messages, timers, descriptors, and at the start.
    pub panicked: u64,
    /// Expired timers given to the handler.
    pub timers: u64,
    /// Periods of periodic timers that had passed before the previous expiry was handled, and were
    /// reported with it: see [`Context::every_counted`](crate::Context::every_counted).
    pub timers_missed: u64,
    /// Readiness events of descriptors given to the handler.
    pub descriptors: u64,
    /// Times that the thread went to sleep.
    pub parks: u64,
    /// Sleeps ended by a sender; the others ended by a deadline or a descriptor.
    pub wakeups: u64,
    /// Waits that ended while the thread was spinning.
    pub spins: u64,
}
