//! What the wheel sorts: 16 bytes, so that the timer itself is not touched before it is due.

/// Where a timer was told to be looked at. It is *stale* when the timer was cancelled or moved
/// to an earlier deadline since, and *early* when it was put off since: its record tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// When to look; never after the deadline of the timer that it belongs to.
    pub(super) deadline_ns: u64,
    /// The timer's record.
    pub(super) index: u32,
    /// The record's [`check`](super::records::Record::check) when this was written.
    pub(super) check: u32,
}
