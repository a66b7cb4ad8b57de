//! The timers' records: a slab whose slots carry a generation.

use super::entry::TimerEntry;
use crate::raw::{HAS_EXTRA, RETIRED, Record, STAMP_INCREMENT};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};

/// Handle of a timer. No other timer of the same wheel has the same handle at any time.
///
/// A handle of another wheel is refused like that of a timer that has ended: each wheel numbers the
/// timers of a record from a start of its own. The starts of the first 1,000 wheels of a process
/// are at least 2^17 apart, so that a handle is refused unless its record has held 2^17 timers more
/// in one of the two wheels than in the other. Beyond that, and with more wheels, it may name a
/// running timer: keep handles with their wheel. It never names a timer where none is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(
    /// Index of the timer's record in the upper half, the record's stamp in the lower, without
    /// flags.
    NonZeroU64,
);

impl TimerId {
    /// Returns the handle as a number, for a foreign interface; it is not 0.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Converts a number from [`to_bits`](Self::to_bits) back into the handle; `None` for 0. Any
    /// other number is a handle, of a timer that may not be running.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
    }

    #[inline]
    pub(super) fn from_key(key: u64) -> Option<Self> {
        NonZeroU64::new(key).map(Self)
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// Returns the stamp of the timer's record.
    #[inline]
    fn stamp(self) -> u32 {
        self.0.get() as u32
    }

    /// Returns all bits of the handle: the key in the timer's entries.
    #[inline]
    pub(super) fn key(self) -> u64 {
        self.0.get()
    }
}

/// Number of generations from which each wheel gets the one that its records begin with. It is half
/// of all generations, so that each record of any wheel has at least as many.
const FIRST_GENERATIONS: u32 = 1 << 29;
/// Number of wheels that this process has created.
static WHEELS_COUNT: AtomicU32 = AtomicU32::new(0);

/// Additional data of a timer that was rescheduled or is periodic.
#[derive(Clone, Copy, Debug, Default)]
struct ExtraData {
    /// Deadline in ns of the timer's only valid entry; its other entries are stale.
    entry_ns: u64,
    /// Period of the timer in ns; `None` if the timer expires once.
    period_ns: Option<NonZeroU64>,
}

/// State of an entry by its timer's record: valid (`Once` or `Periodic`), postponed or stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    /// The timer is due at the entry's deadline, and is removed when it expires.
    Once,
    /// The timer was postponed after the entry was added. It is not due at the entry's deadline.
    Postponed,
    /// The timer is due at the entry's deadline, and then again after this period.
    Periodic(NonZeroU64),
    /// The timer was cancelled, or moved to an earlier deadline. The entry is to be discarded.
    Stale,
}

/// Data of all running timers, by record index.
pub(super) struct TimerRecords<T> {
    /// Records of all timers.
    records: Vec<Record<T>>,
    /// Additional data of timers, by record index; shorter than `records` if the last records need
    /// none.
    extras: Vec<ExtraData>,
    /// Indices of vacant records. An array, so that starting many timers reads it in order instead
    /// of following a chain through memory.
    ///
    /// Its length is that of `records`; elements from `vacant_count` on are unused.
    vacant_indices: Vec<u32>,
    /// Number of vacant records.
    vacant_count: usize,
    /// Number of records that have used up their stamps.
    retired_count: usize,
    timers_max: u32,
    /// Stamp of a new record.
    first_stamp: u32,
}

/// Returns the stamp of new records in the wheel with this number.
///
/// Multiples of the golden ratio, modulo 1, divide the interval as evenly as any sequence: see
/// Knuth, The Art of Computer Programming 3, section 6.4, theorem S.
fn first_stamp(wheel: u32) -> u32 {
    let fraction = u64::from(wheel.wrapping_mul(0x9E37_79B9)); // of 2^32
    let generation = (fraction * u64::from(FIRST_GENERATIONS)) >> 32;
    (generation as u32 + 1) * STAMP_INCREMENT
}

impl<T> TimerRecords<T> {
    pub(super) fn new(timers_max: u32, timers_reserved: u32) -> Self {
        let slots = timers_reserved as usize;
        Self {
            records: Vec::with_capacity(slots),
            extras: Vec::with_capacity(slots),
            vacant_indices: Vec::with_capacity(slots),
            vacant_count: 0,
            retired_count: 0,
            timers_max,
            // Relaxed: only a number that no other wheel has.
            first_stamp: first_stamp(WHEELS_COUNT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Returns the number of running timers.
    #[inline]
    pub(super) fn running_count(&self) -> usize {
        self.records.len() - self.vacant_count - self.retired_count
    }

    /// Returns the number of records. It is the maximum number of timers that ran at once, or more
    /// once records are retired.
    #[inline]
    pub(super) fn records_count(&self) -> usize {
        self.records.len()
    }

    /// Stores a timer and returns its handle; `Err` with the payload if `timers_max` timers are
    /// running.
    #[inline(never)]
    pub(super) fn insert(&mut self, deadline_ns: u64, mut payload: T) -> Result<TimerId, T> {
        loop {
            payload = match self.insert_in_vacant(deadline_ns, payload) {
                Ok(id) => return Ok(id),
                Err(payload) => payload,
            };
            if self.vacant_count == 0 {
                return self.insert_in_new(deadline_ns, payload);
            }
            // The stamps of the vacant record are used up.
            self.vacant_count -= 1;
            self.retired_count += 1;
        }
    }

    /// Does [`insert`](Self::insert) for the most common case: `Err` with the payload if no record
    /// is vacant, or the stamps of the next vacant one are used up.
    #[inline]
    pub(super) fn insert_in_vacant(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, T> {
        let Some(&index) = self.vacant_indices.get(self.vacant_count.wrapping_sub(1)) else {
            return Err(payload);
        };
        let record = &mut self.records[index as usize];
        let Some(id) = timer_id(index, record.next_stamp()) else { return Err(payload) };
        self.vacant_count -= 1;
        record.fill(deadline_ns, payload);
        Ok(id)
    }

    /// Stores a timer in a new record; `Err` with the payload if `timers_max` timers are running.
    fn insert_in_new(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, T> {
        let index = self.records.len() as u32;
        if self.running_count() >= self.timers_max as usize || index == u32::MAX {
            return Err(payload);
        }
        let stamp = self.first_stamp;
        let Some(id) = timer_id(index, stamp) else { return Err(payload) };
        self.records.push(Record::new(stamp, deadline_ns, payload));
        self.vacant_indices.push(0);
        Ok(id)
    }

    /// Makes the timer in record `index`, which was just stored, periodic.
    pub(super) fn set_periodic(&mut self, index: u32, period_ns: NonZeroU64) {
        self.extra(index).period_ns = Some(period_ns);
    }

    /// Vacates the record of a timer and returns the payload; `None` if the timer is not running.
    #[inline]
    pub(super) fn remove(&mut self, id: TimerId) -> Option<T> {
        let payload = self.records.get_mut(id.index() as usize)?.vacate(id.stamp())?;
        self.vacant_indices[self.vacant_count] = id.index();
        self.vacant_count += 1;
        Some(payload)
    }

    /// Changes the deadline of a running timer; returns `Some(true)` if the caller must add a new
    /// entry. The old entry would then be checked too late. Returns `None` if the timer is not
    /// running.
    pub(super) fn reschedule(&mut self, id: TimerId, deadline_ns: u64) -> Option<bool> {
        let index = self.find_index(id)?;
        let entry_ns = self.extra(index).entry_ns;
        self.records[index as usize].set_deadline_ns(deadline_ns);
        Some(deadline_ns < entry_ns)
    }

    /// Sets the deadline of the timer in record `index`, which has additional data.
    pub(super) fn set_deadline(&mut self, index: u32, deadline_ns: u64) {
        self.records[index as usize].set_deadline_ns(deadline_ns);
    }

    /// Creates a new entry for the timer in record `index`, which has additional data. The timer's
    /// other entries are stale from now on.
    pub(super) fn new_entry(&mut self, index: u32) -> TimerEntry {
        let record = &self.records[index as usize];
        let (deadline_ns, stamp) = (record.deadline_ns(), record.stamp());
        self.extra(index).entry_ns = deadline_ns;
        TimerEntry::new(deadline_ns, u64::from(index) << 32 | u64::from(stamp))
    }

    /// Returns the additional data of the timer in record `index`, after creating it if there is
    /// none.
    fn extra(&mut self, index: u32) -> &mut ExtraData {
        let at = index as usize;
        let record = &mut self.records[at];
        if record.stamp_with_flags() & HAS_EXTRA == 0 {
            record.set_has_extra();
            let entry_ns = record.deadline_ns();
            if self.extras.len() <= at {
                let slots = self.records.capacity();
                self.extras.reserve_exact(slots - self.extras.len());
                self.extras.resize(self.records.len(), ExtraData::default());
            }
            self.extras[at] = ExtraData { entry_ns, period_ns: None };
        }
        &mut self.extras[at]
    }

    /// Returns the index of a running timer's record; `None` if the timer is not running.
    #[inline]
    pub(super) fn find_index(&self, id: TimerId) -> Option<u32> {
        let record = self.records.get(id.index() as usize)?;
        record.has_timer(id.stamp()).then_some(id.index())
    }

    /// Returns the handle of the running timer in record `index`. Returns `None` if the record is
    /// vacant, or there is none.
    pub(super) fn running_id(&self, index: u32) -> Option<TimerId> {
        let record = self.records.get(index as usize)?;
        record.payload()?;
        timer_id(index, record.stamp())
    }

    /// Returns an iterator over the running timers, with their handles, deadlines in ns and
    /// payloads.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TimerId, u64, &T)> {
        self.records.iter().zip(0_u32..).filter_map(|(record, index)| {
            let payload = record.payload()?;
            Some((timer_id(index, record.stamp())?, record.deadline_ns(), payload))
        })
    }

    pub(super) fn deadline_ns(&self, index: u32) -> u64 {
        self.records[index as usize].deadline_ns()
    }

    pub(super) fn payload(&self, index: u32) -> Option<&T> {
        self.records[index as usize].payload()
    }

    pub(super) fn payload_mut(&mut self, index: u32) -> Option<&mut T> {
        self.records[index as usize].payload_mut()
    }

    /// Prefetches the record of an entry's timer: what [`is_running`](Self::is_running) and
    /// [`remove`](Self::remove) access.
    #[inline]
    pub(super) fn prefetch(&self, entry: TimerEntry) {
        if let Some(record) = self.records.get(entry.index() as usize) {
            record.prefetch();
        }
    }

    /// Returns `true` if the timer of `entry` is running. The entry may be stale all the same, as
    /// it is if the timer was moved to an earlier deadline.
    ///
    /// Unlike [`entry_state`](Self::entry_state), it has no branch on the result.
    #[inline]
    pub(super) fn is_running(&self, entry: TimerEntry) -> bool {
        self.records[entry.index() as usize].stamp() == entry.stamp()
    }

    /// Returns the state of `entry` by the record of its timer.
    #[inline]
    pub(super) fn entry_state(&self, entry: TimerEntry) -> EntryState {
        let stamp = self.records[entry.index() as usize].stamp_with_flags();
        if stamp == entry.stamp() {
            EntryState::Once
        } else {
            self.entry_state_with_extra(entry, stamp)
        }
    }

    /// Does [`entry_state`](Self::entry_state) for a timer with additional data.
    #[cold]
    #[inline(never)]
    fn entry_state_with_extra(&self, entry: TimerEntry, stamp: u32) -> EntryState {
        let at = entry.index() as usize;
        if stamp != entry.stamp() | HAS_EXTRA {
            return EntryState::Stale;
        }
        let ExtraData { entry_ns, period_ns } = self.extras[at];
        match period_ns {
            _ if entry_ns != entry.deadline_ns => EntryState::Stale,
            _ if entry_ns != self.records[at].deadline_ns() => EntryState::Postponed,
            Some(period_ns) => EntryState::Periodic(period_ns),
            None => EntryState::Once,
        }
    }
}

/// Returns the handle of the timer in record `index` with this stamp. Returns `None` if the record
/// is retired. The stamp has no flags.
#[inline]
fn timer_id(index: u32, stamp: u32) -> Option<TimerId> {
    if stamp == RETIRED {
        return None;
    }
    TimerId::from_key(u64::from(index) << 32 | u64::from(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_generations_of_a_thousand_wheels_are_far_apart() {
        let mut stamps: Vec<_> = (0..1_000).map(first_stamp).collect();
        stamps.sort_unstable();
        assert!(stamps.windows(2).all(|two| two[1] - two[0] >= STAMP_INCREMENT << 17));
        let ranges = (0..u32::MAX).step_by(1_000_003).map(first_stamp);
        let generations = ranges.map(|stamp| (u32::MAX - stamp) / STAMP_INCREMENT + 1);
        assert!(generations.min() >= Some(FIRST_GENERATIONS));
        assert!(stamps.iter().all(|stamp| stamp % STAMP_INCREMENT == 0 && *stamp != RETIRED));
    }

    #[test]
    fn slot_is_retired_after_its_last_generation() {
        let mut records = TimerRecords::new(1, 0);
        let first = records.insert(1, "first").expect("too many timers");
        assert_eq!(records.remove(first), Some("first"));
        records.records[0].skip_to_last_stamp(); // as after all other generations
        let last = records.insert(2, "last").expect("too many timers");
        assert_eq!(last.index(), 0);
        assert_eq!(records.remove(last), Some("last"));
        let other = records.insert(3, "other").expect("the limit counts timers, not slots");
        assert_eq!(other.index(), 1);
        assert_eq!(records.running_count(), 1);
        assert_eq!(records.insert(4, "too many"), Err("too many"));
        assert_eq!((records.remove(first), records.remove(last)), (None, None));
        assert_eq!(records.entry_state(TimerEntry::new(1, first.key())), EntryState::Stale);
        assert_eq!(records.remove(other), Some("other"));
        assert_eq!(records.running_count(), 0);
    }

    #[test]
    fn earlier_deadline_makes_the_old_entry_stale() {
        let mut records = TimerRecords::new(1, 0);
        let id = records.insert(100, ()).expect("too many timers");
        let first = TimerEntry::new(100, id.key());
        assert_eq!(records.entry_state(first), EntryState::Once);
        assert_eq!(records.reschedule(id, 200), Some(false));
        assert_eq!(records.entry_state(first), EntryState::Postponed);
        assert_eq!(
            records.reschedule(id, 150),
            Some(false),
            "requested an entry although the queued one is earlier"
        );
        assert_eq!(records.reschedule(id, 50), Some(true));
        let second = records.new_entry(id.index());
        assert_eq!(records.entry_state(first), EntryState::Stale);
        assert_eq!(records.entry_state(second), EntryState::Once);
    }
}
