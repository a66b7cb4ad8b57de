//! Counters of a machine.

/// Counters of a machine since it was created.
///
/// `sent == handled + refused + dropped + waiting + returned`: `sent` is computed as this sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of messages sent to this machine by any thread, including refused and dropped ones.
    /// Timers and descriptors do not count.
    pub sent: u64,
    /// Number of messages passed to the handler, including those counted in `unhandled`.
    pub handled: u64,
    /// Number of messages returned to their sender because the queue was full or the machine
    /// closed.
    pub refused: u64,
    /// Number of messages dropped because newer ones arrived, under
    /// [`WhenFull::DropOldest`](crate::WhenFull).
    pub dropped: u64,
    /// Number of messages in the machine's queues at the time of the call.
    pub waiting: u64,
    /// Number of queued messages that were returned when the machine was closed.
    pub returned: u64,
    /// Number of handled messages of a kind without a handler: see
    /// [`Context::unhandled`](crate::Context).
    pub unhandled: u64,
    /// Number of handler calls that panicked, those of `started` included.
    pub panicked: u64,
    /// Number of expired timers passed to the handler.
    pub timers: u64,
    /// Number of skipped periods of periodic timers. They had passed before the timer's expiry was
    /// handled; see [`Context::every_counted`](crate::Context::every_counted).
    pub timers_missed: u64,
    /// Number of readiness events of descriptors passed to the handler.
    pub descriptors: u64,
    /// Number of times that the machine's thread went to sleep.
    pub parks: u64,
    /// Number of the thread's sleeps that a sender interrupted. The others ended at a deadline or
    /// by a descriptor.
    pub wakeups: u64,
    /// Number of the thread's waits that ended while it was spinning.
    pub spins: u64,
}
