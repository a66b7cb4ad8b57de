//! Entries that the wheel sorts: 16 bytes, so that the timer itself is not accessed before its slot
//! is opened.

use super::TimerId;

/// Time at which a timer must be checked, with the timer's key. An entry is *stale* if its timer
/// was cancelled or moved to an earlier deadline since, and *postponed* if the timer was; the
/// timer's record determines which.
///
/// Two words rather than three fields, so that it travels in two registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimerEntry {
    /// Time in ns at which the timer is checked; never after the timer's deadline.
    pub(super) deadline_ns: u64,
    /// Key of the timer, as in [`TimerId`]. Its upper half is the index of the timer's record, its
    /// lower half the record's stamp.
    pub(super) key: u64,
}

impl TimerEntry {
    /// Placeholder entry that belongs to no timer.
    pub(super) const NONE: Self = Self { deadline_ns: 0, key: u64::MAX };

    #[inline]
    pub(super) fn new(deadline_ns: u64, key: u64) -> Self {
        Self { deadline_ns, key }
    }

    /// Returns the handle of the timer; `None` for the key 0, which no timer has.
    #[inline]
    pub(super) fn id(self) -> Option<TimerId> {
        TimerId::from_key(self.key)
    }

    /// Returns the index of the timer's record.
    #[inline]
    pub(super) fn index(self) -> u32 {
        (self.key >> 32) as u32
    }

    /// Returns the stamp that the timer's record had when the entry was created. Later timers of
    /// the same record have other stamps.
    #[inline]
    pub(super) fn stamp(self) -> u32 {
        self.key as u32
    }
}
