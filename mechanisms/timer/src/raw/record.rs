//! The record of a timer. Its stamp determines whether it holds a payload, so that no byte is
//! needed for that.

use super::prefetch_for_read;
use std::mem::MaybeUninit;

/// Size of a record in bytes up to which none lies in two cache lines, as memory is aligned to 16
/// bytes.
const ONE_LINE_BYTES_MAX: usize = 16;

/// Flag in a record's stamp: the timer was rescheduled or is periodic, and so has additional data.
pub(crate) const HAS_EXTRA: u32 = 1;
/// Flag in a record's stamp: no timer uses the record, and it has no payload.
const VACANT: u32 = 2;
/// Difference between the stamps of two successive timers of a record, without flags.
pub(crate) const STAMP_INCREMENT: u32 = 4;
/// Stamp of a record that has used up its stamps and is never used again, without flags.
pub(crate) const RETIRED: u32 = 0;

/// Record of a running timer, or a vacant record.
///
/// At a million timers, random accesses to records take most of the time: each byte less helps.
/// With a payload of 4 bytes a record has 16, so that none lies in two cache lines if memory is
/// aligned to 16. With one of 8 bytes, it has 24, and some do: the deadline is then between the
/// other two fields, which are accessed when a timer ends, so that a start, which writes all three,
/// finds them in the cache.
pub(crate) struct Record<T> {
    payload: MaybeUninit<T>,
    deadline_ns: u64,
    /// Generation of the record, combined with the flags [`HAS_EXTRA`] and [`VACANT`]. Entries and
    /// handles of the current timer contain the same generation, so that stale ones are recognised.
    ///
    /// Invariant: `payload` is initialised unless `VACANT` is set.
    stamp: u32,
}

impl<T> Record<T> {
    /// Creates the record of a running timer. `stamp` has no flags.
    #[inline]
    pub(crate) fn new(stamp: u32, deadline_ns: u64, payload: T) -> Self {
        debug_assert_eq!(stamp % STAMP_INCREMENT, 0, "the stamp of a new record has flags");
        Self { payload: MaybeUninit::new(payload), deadline_ns, stamp: stamp & !VACANT }
    }

    /// Returns the deadline in ns of the running timer, or of the last one.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    #[inline]
    pub(crate) fn set_deadline_ns(&mut self, deadline_ns: u64) {
        self.deadline_ns = deadline_ns;
    }

    /// Returns the stamp without [`HAS_EXTRA`]. That of a vacant record differs from those of all
    /// entries.
    #[inline]
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp & !HAS_EXTRA
    }

    /// Returns `true` if a timer with this stamp is running in the record. `stamp` is that of a
    /// handle, which may be a number from anywhere.
    #[inline]
    pub(crate) fn has_timer(&self, stamp: u32) -> bool {
        self.stamp() == stamp && stamp & VACANT == 0
    }

    /// Returns the stamp, including its flags.
    #[inline]
    pub(crate) fn stamp_with_flags(&self) -> u32 {
        self.stamp
    }

    /// Prefetches the stamp and the first cache line of the payload.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_for_read(&self.stamp);
        if size_of::<Self>() > ONE_LINE_BYTES_MAX {
            prefetch_for_read(&self.payload); // it may be in another line
        }
    }

    /// Returns the stamp that the next timer of this vacant record will have; [`RETIRED`] if there
    /// is none.
    #[inline]
    pub(crate) fn next_stamp(&self) -> u32 {
        self.stamp & !VACANT
    }

    /// Sets the flag [`HAS_EXTRA`].
    pub(crate) fn set_has_extra(&mut self) {
        self.stamp |= HAS_EXTRA;
    }

    /// Stores the next timer in this vacant record.
    #[inline]
    pub(crate) fn fill(&mut self, deadline_ns: u64, payload: T) {
        debug_assert_ne!(self.stamp & VACANT, 0, "a record in use was filled again");
        self.deadline_ns = deadline_ns;
        self.payload.write(payload); // a payload that was here, against the contract, is leaked
        self.stamp &= !VACANT;
    }

    /// Vacates the record of the timer with this stamp, and returns the timer's payload. Returns
    /// `None` if the record is vacant or has another stamp.
    #[inline]
    pub(crate) fn vacate(&mut self, stamp: u32) -> Option<T> {
        if !self.has_timer(stamp) {
            return None;
        }
        // The generation may wrap to RETIRED.
        self.stamp = stamp.wrapping_add(STAMP_INCREMENT) | VACANT;
        // SAFETY: has_timer() was true, so VACANT was not set and the payload is initialised.
        // VACANT is set now, so the payload is not used again.
        Some(unsafe { self.payload.assume_init_read() })
    }

    /// Returns the payload; `None` if the record is vacant.
    #[inline]
    pub(crate) fn payload(&self) -> Option<&T> {
        // SAFETY: VACANT is not set, so the payload is initialised.
        (self.stamp & VACANT == 0).then(|| unsafe { self.payload.assume_init_ref() })
    }

    /// Returns the payload, mutably; `None` if the record is vacant.
    #[inline]
    pub(crate) fn payload_mut(&mut self) -> Option<&mut T> {
        // SAFETY: VACANT is not set, so the payload is initialised.
        (self.stamp & VACANT == 0).then(|| unsafe { self.payload.assume_init_mut() })
    }

    /// Sets the stamp of a vacant record as if all but the last of its stamps were used up.
    #[cfg(test)]
    pub(crate) fn skip_to_last_stamp(&mut self) {
        assert_ne!(self.stamp & VACANT, 0, "the record is in use");
        self.stamp = RETIRED.wrapping_sub(STAMP_INCREMENT) | VACANT;
    }
}

impl<T> Drop for Record<T> {
    fn drop(&mut self) {
        if self.stamp & VACANT == 0 {
            // SAFETY: VACANT is not set, so the payload is initialised; nothing accesses it after
            // this.
            unsafe { self.payload.assume_init_drop() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::rc::Rc;

    const STAMP: u32 = 7 * STAMP_INCREMENT;

    #[test]
    fn record_has_no_byte_for_the_presence_of_its_payload() {
        assert_eq!(size_of::<Record<u32>>(), 16);
        assert_eq!(size_of::<Record<u64>>(), 24);
    }

    #[test]
    fn deadline_of_a_record_in_two_cache_lines_is_between_the_other_fields() {
        assert_eq!(offset_of!(Record<u64>, payload), 0);
        assert_eq!(offset_of!(Record<u64>, deadline_ns), 8);
        assert_eq!(offset_of!(Record<u64>, stamp), 16);
    }

    #[test]
    fn payload_is_returned_or_dropped_once() {
        let payload = Rc::new(());
        let mut record = Record::new(STAMP, 1, Rc::clone(&payload));
        assert_eq!(Rc::strong_count(record.payload().expect("it is running")), 2);
        record.set_has_extra();
        assert!(record.vacate(STAMP + STAMP_INCREMENT).is_none());
        drop(record.vacate(STAMP));
        assert_eq!(Rc::strong_count(&payload), 1);
        assert!(record.vacate(STAMP).is_none() && record.payload().is_none());
        assert_eq!(record.next_stamp(), STAMP + STAMP_INCREMENT);

        record.fill(2, Rc::clone(&payload));
        assert!(record.payload_mut().is_some());
        assert_eq!((record.deadline_ns(), Rc::strong_count(&payload)), (2, 2));
        drop(record);
        assert_eq!(Rc::strong_count(&payload), 1);

        let mut vacant = Record::new(STAMP, 1, Rc::clone(&payload));
        drop(vacant.vacate(STAMP));
        drop(vacant);
        assert_eq!(Rc::strong_count(&payload), 1);
    }

    #[test]
    fn stamp_with_any_flags_names_no_vacant_record() {
        let mut record = Record::new(STAMP, 1, "payload");
        assert!(record.has_timer(STAMP));
        record.vacate(STAMP);
        for flags in 0..STAMP_INCREMENT {
            let stamp = record.next_stamp() | flags;
            assert!(!record.has_timer(stamp) && record.vacate(stamp).is_none());
        }
    }
}
