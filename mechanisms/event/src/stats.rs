//! Counters of a machine.

/// Counters of a machine since it was created.
///
/// `sent == handled + refused + dropped + waiting + returned`: `sent` is computed as this sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of messages sent to this machine by any thread, with any outcome. Timers and
    /// descriptors are not counted here.
    pub sent: u64,
    /// Number of messages passed to the handler, including the `unhandled` ones.
    pub handled: u64,
    /// Number of messages returned to their sender.
    pub refused: u64,
    /// Number of messages dropped in favour of newer ones, under [`WhenFull::DropOldest`](crate::WhenFull).
    pub dropped: u64,
    /// Number of messages in the queues.
    pub waiting: u64,
    /// Number of messages returned by closing the machine.
    pub returned: u64,
    /// Number of handled messages of a kind without a handler: see [`Context::unhandled`](crate::Context).
    pub unhandled: u64,
    /// Number of handler calls that panicked: for messages, timers, descriptors, and at the start.
    pub panicked: u64,
    /// Number of expired timers passed to the handler.
    pub timers: u64,
    /// Number of periods of periodic timers that had passed before the previous expiry was handled,
    /// and were reported with it: see [`Context::every_counted`](crate::Context::every_counted).
    pub timers_missed: u64,
    /// Number of readiness events of descriptors passed to the handler.
    pub descriptors: u64,
    /// Number of times that the thread went to sleep.
    pub parks: u64,
    /// Number of sleeps interrupted by a sender; the others ended at a deadline or by a descriptor.
    pub wakeups: u64,
    /// Number of waits that ended while the thread was spinning.
    pub spins: u64,
}
