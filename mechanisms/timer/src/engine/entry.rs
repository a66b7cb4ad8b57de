//! Entries that the wheel sorts: 16 bytes, so that the timer itself is not accessed before it is
//! due.

use super::TimerId;

/// A time at which a timer is to be checked. It is *stale* if the timer was cancelled or moved to
/// an earlier deadline since, and *early* if it was postponed since; the timer's record determines
/// which.
///
/// Two words rather than three fields, so that it travels in two registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Time to check; never after the deadline of its timer.
    pub(super) deadline_ns: u64,
    /// Index of the timer's record in the upper half, stamp of the record in the lower: as in
    /// [`TimerId`].
    pub(super) key: u64,
}

impl Entry {
    /// Entry of no timer.
    pub(super) const NONE: Self = Self { deadline_ns: 0, key: u64::MAX };

    #[inline]
    pub(super) fn new(deadline_ns: u64, key: u64) -> Self {
        Self { deadline_ns, key }
    }

    /// Handle of the timer; `None` for an entry of no timer.
    #[inline]
    pub(super) fn id(self) -> Option<TimerId> {
        TimerId::from_key(self.key)
    }

    /// Index of the timer's record.
    #[inline]
    pub(super) fn index(self) -> u32 {
        (self.key >> 32) as u32
    }

    /// Stamp of the timer's record when this was written; it differs for other timers of the
    /// record.
    #[inline]
    pub(super) fn stamp(self) -> u32 {
        self.key as u32
    }
}
