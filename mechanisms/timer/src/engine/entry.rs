//! What the wheel sorts: 16 bytes, so that the timer itself is not touched before it is due.

use super::TimerId;

/// Where a timer was told to be looked at. It is *stale* when the timer was cancelled or moved
/// to an earlier deadline since, and *early* when it was put off since: its record tells.
///
/// Two words and not three fields, so that it travels in two registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// When to look; never after the deadline of the timer that it belongs to.
    pub(super) deadline_ns: u64,
    /// The timer's place above, the stamp of that place below: as a [`TimerId`] has it.
    pub(super) key: u64,
}

impl Entry {
    /// No timer's.
    pub(super) const NONE: Self = Self { deadline_ns: 0, key: u64::MAX };

    #[inline]
    pub(super) fn new(deadline_ns: u64, key: u64) -> Self {
        Self { deadline_ns, key }
    }

    /// The handle of the timer; None of no timer's entry.
    #[inline]
    pub(super) fn id(self) -> Option<TimerId> {
        TimerId::of(self.key)
    }

    /// The place of the timer's record.
    #[inline]
    pub(super) fn index(self) -> u32 {
        (self.key >> 32) as u32
    }

    /// What told the timer's entries from earlier ones when this was written.
    #[inline]
    pub(super) fn check(self) -> u32 {
        self.key as u32
    }
}
