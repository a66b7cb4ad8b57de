//! The timers' records: a slab whose slots carry a generation.

use super::entry::Entry;
use crate::raw::fetch;
use std::num::NonZeroU64;

/// Handle of a timer of one wheel. When the timer has ended, no other timer of the wheel ever gets
/// it.
///
/// A handle of another wheel may name a running timer of this one, and is not distinguished: keep
/// handles with their wheel. It never names a timer where none is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(
    /// Index of the record in the upper half; in the lower the record's stamp while the timer runs,
    /// without [`ODD`].
    NonZeroU64,
);

impl TimerId {
    #[inline]
    pub(super) fn of(key: u64) -> Option<Self> {
        NonZeroU64::new(key).map(Self)
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    #[inline]
    fn stamp(self) -> u32 {
        self.0.get() as u32
    }

    /// Key of the timer's entries: the whole handle.
    #[inline]
    pub(super) fn key(self) -> u64 {
        self.0.get()
    }
}

/// Flag in a stamp: the timer was moved or is periodic, and has an [`Oddity`].
const ODD: u32 = 1;
/// Increment of a stamp whenever its timer ends.
const GENERATION: u32 = 2;
/// Stamp of a record that has been through all generations and is not used again.
const RETIRED: u32 = 0;

/// Additional data of a timer that was moved or is periodic.
#[derive(Clone, Copy, Debug, Default)]
struct Oddity {
    /// Deadline of the one valid entry of the timer; its other entries are stale.
    filed_ns: u64,
    /// Period; `None` for a timer that expires once.
    period_ns: Option<NonZeroU64>,
}

/// Relation of an entry to its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The timer is due at the entry's deadline, and then ends.
    Once,
    /// The timer was due at the entry's deadline when the entry was filed, and was put off since.
    PutOff,
    /// The timer is due at the entry's deadline, and again after that.
    Periodic(NonZeroU64),
    /// The timer was cancelled, or moved to an earlier deadline.
    Stale,
}

/// A slot of the slab.
#[derive(Debug)]
struct Record<T> {
    deadline_ns: u64,
    /// `None` if the slot is vacant.
    payload: Option<T>,
    /// Generation and [`ODD`]. Entries and handles carry it.
    stamp: u32,
}

#[derive(Debug)]
pub(super) struct Records<T> {
    /// All slots. As small as possible: at a million timers, random accesses to it take most of the
    /// time.
    places: Vec<Record<T>>,
    /// Additional data by slot; only as long as odd timers have required.
    oddities: Vec<Oddity>,
    /// Indices of vacant slots, in an array of their own, so that starting many timers reads it in
    /// order instead of following a chain through memory.
    ///
    /// Its length is that of `places`; elements from `vacant_count` on are unused.
    vacant: Vec<u32>,
    vacant_count: usize,
    /// Number of retired slots.
    retired_count: usize,
    timers_max: u32,
}

impl<T> Records<T> {
    pub(super) fn new(timers_max: u32, timers_reserved: u32) -> Self {
        let places = timers_reserved as usize;
        Self {
            places: Vec::with_capacity(places),
            oddities: Vec::with_capacity(places),
            vacant: Vec::with_capacity(places),
            vacant_count: 0,
            retired_count: 0,
            timers_max,
        }
    }

    /// Number of running timers.
    #[inline]
    pub(super) fn live_count(&self) -> usize {
        self.places.len() - self.vacant_count - self.retired_count
    }

    /// Number of slots: an upper bound of the timers that ran at once, exact while no slot is
    /// retired.
    #[inline]
    pub(super) fn peak_count(&self) -> usize {
        self.places.len()
    }

    /// Stores a timer in a slot, or returns the payload if there is none.
    #[inline]
    pub(super) fn occupy(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, T> {
        let Some(&index) = self.vacant.get(self.vacant_count.wrapping_sub(1)) else {
            return self.occupy_new(deadline_ns, payload);
        };
        self.vacant_count -= 1;
        let record = &mut self.places[index as usize];
        let Some(id) = id(index, record.stamp) else {
            return self.occupy_other(deadline_ns, payload);
        };
        record.deadline_ns = deadline_ns;
        record.payload = Some(payload);
        Ok(id)
    }

    /// Occupies another slot, as the vacant one that was chosen is retired.
    #[cold]
    #[inline(never)]
    fn occupy_other(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, T> {
        self.retired_count += 1;
        self.occupy(deadline_ns, payload)
    }

    #[cold]
    #[inline(never)]
    fn occupy_new(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, T> {
        let index = self.places.len() as u32;
        if self.live_count() >= self.timers_max as usize || index == u32::MAX {
            return Err(payload);
        }
        let Some(id) = id(index, GENERATION) else { return Err(payload) };
        self.places.push(Record { deadline_ns, payload: Some(payload), stamp: GENERATION });
        self.vacant.push(0);
        Ok(id)
    }

    /// Makes the timer of this slot, which was just occupied, periodic.
    pub(super) fn set_periodic(&mut self, index: u32, period_ns: NonZeroU64) {
        self.oddity(index).period_ns = Some(period_ns);
    }

    /// Frees the slot of a running timer, and returns the payload; `None` if it is not running.
    #[inline]
    pub(super) fn end(&mut self, id: TimerId) -> Option<T> {
        let record = self.places.get_mut(id.index() as usize)?;
        if record.stamp & !ODD != id.stamp() {
            return None;
        }
        let payload = record.payload.take()?;
        // The stamp may wrap to RETIRED.
        record.stamp = id.stamp().wrapping_add(GENERATION);
        self.vacant[self.vacant_count] = id.index();
        self.vacant_count += 1;
        Some(payload)
    }

    /// Sets another deadline for a running timer; returns `true` if its entry must be filed anew,
    /// as it would be checked too late. `None` if the timer is not running.
    pub(super) fn reschedule(&mut self, id: TimerId, deadline_ns: u64) -> Option<bool> {
        let index = self.find(id)?;
        let filed_ns = self.oddity(index).filed_ns;
        self.places[index as usize].deadline_ns = deadline_ns;
        Some(deadline_ns < filed_ns)
    }

    /// Sets the deadline of the timer in this slot, which is odd.
    pub(super) fn set_deadline(&mut self, index: u32, deadline_ns: u64) {
        self.places[index as usize].deadline_ns = deadline_ns;
    }

    /// Makes the entry to file for the odd timer in this slot. Its other entries are stale from now
    /// on.
    pub(super) fn entry(&mut self, index: u32) -> Entry {
        let Record { deadline_ns, stamp, .. } = self.places[index as usize];
        self.oddity(index).filed_ns = deadline_ns;
        Entry::new(deadline_ns, u64::from(index) << 32 | u64::from(stamp & !ODD))
    }

    /// Returns the additional data of the timer in this slot, and makes it odd if it is not.
    fn oddity(&mut self, index: u32) -> &mut Oddity {
        let at = index as usize;
        let record = &mut self.places[at];
        if record.stamp & ODD == 0 {
            record.stamp |= ODD;
            let filed_ns = record.deadline_ns;
            if self.oddities.len() <= at {
                let places = self.places.capacity();
                self.oddities.reserve_exact(places - self.oddities.len());
                self.oddities.resize(self.places.len(), Oddity::default());
            }
            self.oddities[at] = Oddity { filed_ns, period_ns: None };
        }
        &mut self.oddities[at]
    }

    /// Returns the slot of a running timer.
    ///
    /// A vacant slot has the stamp of its next timer, which a handle of another wheel may carry.
    #[inline]
    pub(super) fn find(&self, id: TimerId) -> Option<u32> {
        let record = self.places.get(id.index() as usize)?;
        let is_running = record.stamp & !ODD == id.stamp() && record.payload.is_some();
        is_running.then_some(id.index())
    }

    pub(super) fn deadline_ns(&self, index: u32) -> u64 {
        self.places[index as usize].deadline_ns
    }

    pub(super) fn payload(&self, index: u32) -> Option<&T> {
        self.places[index as usize].payload.as_ref()
    }

    pub(super) fn payload_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places[index as usize].payload.as_mut()
    }

    /// Prefetches the timer's slot, before the timer is taken out.
    #[inline]
    pub(super) fn fetch(&self, entry: Entry) {
        if let Some(record) = self.places.get(entry.index() as usize) {
            fetch(record);
        }
    }

    /// Returns the relation of `entry` to its timer.
    #[inline]
    pub(super) fn standing(&self, entry: Entry) -> Standing {
        let stamp = self.places[entry.index() as usize].stamp;
        if stamp == entry.check() { Standing::Once } else { self.standing_odd(entry, stamp) }
    }

    #[cold]
    #[inline(never)]
    fn standing_odd(&self, entry: Entry, stamp: u32) -> Standing {
        let at = entry.index() as usize;
        if stamp != entry.check() | ODD {
            return Standing::Stale;
        }
        let Oddity { filed_ns, period_ns } = self.oddities[at];
        match period_ns {
            _ if filed_ns != entry.deadline_ns => Standing::Stale,
            _ if filed_ns != self.places[at].deadline_ns => Standing::PutOff,
            Some(period_ns) => Standing::Periodic(period_ns),
            None => Standing::Once,
        }
    }
}

/// Makes the handle of a timer in slot `index` with this stamp, which is not odd; `None` if it is
/// retired.
#[inline]
fn id(index: u32, stamp: u32) -> Option<TimerId> {
    if stamp == RETIRED {
        return None;
    }
    TimerId::of(u64::from(index) << 32 | u64::from(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_has_been_through_all_generations_is_not_used_again() {
        let mut records = Records::new(1, 0);
        let first = records.occupy(1, "first").expect("room");
        assert_eq!(records.end(first), Some("first"));
        records.places[0].stamp = u32::MAX - ODD; // as after all other generations
        let last = records.occupy(2, "last").expect("room");
        assert_eq!(last.index(), 0);
        assert_eq!(records.end(last), Some("last"));
        let other = records.occupy(3, "other").expect("the bound is of timers, not of places");
        assert_eq!(other.index(), 1);
        assert_eq!(records.live_count(), 1);
        assert_eq!(records.occupy(4, "too many"), Err("too many"));
        assert_eq!((records.end(first), records.end(last)), (None, None));
        assert_eq!(records.standing(Entry::new(1, first.key())), Standing::Stale);
        assert_eq!(records.end(other), Some("other"));
        assert_eq!(records.live_count(), 0);
    }

    #[test]
    fn only_the_entry_that_was_filed_last_speaks_for_a_timer_that_moved() {
        let mut records = Records::new(1, 0);
        let id = records.occupy(100, ()).expect("room");
        let first = Entry::new(100, id.key());
        assert_eq!(records.standing(first), Standing::Once);
        assert_eq!(records.reschedule(id, 200), Some(false));
        assert_eq!(records.standing(first), Standing::PutOff);
        assert_eq!(records.reschedule(id, 150), Some(false), "it is looked at in time");
        assert_eq!(records.reschedule(id, 50), Some(true));
        let second = records.entry(id.index());
        assert_eq!(records.standing(first), Standing::Stale);
        assert_eq!(records.standing(second), Standing::Once);
    }
}
