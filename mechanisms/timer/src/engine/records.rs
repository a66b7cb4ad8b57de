//! The timers themselves: a slab whose places carry a generation.

use super::entry::Entry;
use crate::raw::fetch;
use std::num::NonZeroU64;

/// One running timer of one wheel. When the timer is over, no other ever has the same.
///
/// A handle of another wheel may name a running timer of this one, and is not told apart from its own:
/// keep handles with their wheel. It never names a timer where none is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(
    /// The place above; below, the stamp of the place while the timer runs, without [`ODD`].
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

    /// The same, as entries carry it.
    #[inline]
    pub(super) fn key(self) -> u64 {
        self.0.get()
    }
}

/// In a stamp: the timer was moved or is periodic, and [`Oddity`] has more about it.
const ODD: u32 = 1;
/// What a stamp grows by whenever its place falls vacant.
const GENERATION: u32 = 2;
/// The stamp of a place that has been through all generations and is not used again.
const RETIRED: u32 = 0;

/// What is kept of a timer that was moved or is periodic.
#[derive(Clone, Copy, Debug, Default)]
struct Oddity {
    /// The deadline of the one entry that speaks for the timer; its others are stale.
    filed_ns: u64,
    /// None when the timer is due only once.
    period_ns: Option<NonZeroU64>,
}

/// What an entry says of its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is due at the entry's deadline, and is over then.
    Once,
    /// It was due at the entry's deadline when the entry was filed, and was put off since.
    PutOff,
    /// It is due at the entry's deadline, and again after that.
    Periodic(NonZeroU64),
    /// Nothing: it was cancelled, or moved to an earlier deadline.
    Stale,
}

/// One place.
#[derive(Debug)]
struct Record<T> {
    deadline_ns: u64,
    /// None when the place is vacant.
    payload: Option<T>,
    /// Its generation and [`ODD`]. Entries and handles carry it.
    stamp: u32,
}

#[derive(Debug)]
pub(super) struct Records<T> {
    /// In as little memory as can be: at a million timers, what is at random places in it is what takes
    /// the time.
    places: Vec<Record<T>>,
    /// By place, as long as odd timers have needed it to be.
    oddities: Vec<Oddity>,
    /// Apart from the places, so that starting many timers reads it in order instead of following a
    /// chain through memory.
    ///
    /// As long as there are places; those from `vacant_count` on mean nothing.
    vacant: Vec<u32>,
    vacant_count: usize,
    /// How many places are retired.
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

    /// How many timers are running.
    #[inline]
    pub(super) fn live_count(&self) -> usize {
        self.places.len() - self.vacant_count - self.retired_count
    }

    /// The most timers that ever ran at once.
    #[inline]
    pub(super) fn peak_count(&self) -> usize {
        self.places.len()
    }

    /// Occupies a place, or gives the payload back.
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

    /// The place that was to be occupied is at its end.
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

    /// Makes the timer in this place, which has just been occupied, a periodic one.
    pub(super) fn set_periodic(&mut self, index: u32, period_ns: NonZeroU64) {
        self.oddity(index).period_ns = Some(period_ns);
    }

    /// Frees the place of a timer that is running, and returns what it held.
    #[inline]
    pub(super) fn end(&mut self, id: TimerId) -> Option<T> {
        let record = self.places.get_mut(id.index() as usize)?;
        if record.stamp & !ODD != id.stamp() {
            return None;
        }
        let payload = record.payload.take()?;
        // It may come round to RETIRED.
        record.stamp = id.stamp().wrapping_add(GENERATION);
        self.vacant[self.vacant_count] = id.index();
        self.vacant_count += 1;
        Some(payload)
    }

    /// Sets another deadline for a timer that is running; whether its entry has to be filed anew, as
    /// it would come too late. None when the timer is over.
    pub(super) fn reschedule(&mut self, id: TimerId, deadline_ns: u64) -> Option<bool> {
        let index = self.find(id)?;
        let filed_ns = self.oddity(index).filed_ns;
        self.places[index as usize].deadline_ns = deadline_ns;
        Some(deadline_ns < filed_ns)
    }

    /// Gives the timer that runs in this place, which is an odd one, its deadline.
    pub(super) fn set_deadline(&mut self, index: u32, deadline_ns: u64) {
        self.places[index as usize].deadline_ns = deadline_ns;
    }

    /// What is to be filed for the odd timer that runs in this place. Its other entries are stale
    /// from now on.
    pub(super) fn entry(&mut self, index: u32) -> Entry {
        let Record { deadline_ns, stamp, .. } = self.places[index as usize];
        self.oddity(index).filed_ns = deadline_ns;
        Entry::new(deadline_ns, u64::from(index) << 32 | u64::from(stamp & !ODD))
    }

    /// What there is to know about the timer in this place, which is made an odd one if it is not.
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

    /// The place of a timer that is running.
    ///
    /// A vacant place has the stamp of its next timer, which a handle of another wheel may carry.
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

    /// Asks for the timer's place, ahead of taking it out, as `entry` is not stale.
    #[inline]
    pub(super) fn fetch(&self, entry: Entry) {
        if let Some(record) = self.places.get(entry.index() as usize) {
            fetch(record);
        }
    }

    /// What `entry` says of its timer.
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

/// The handle of a timer in the place `index`, whose stamp is this and not odd; None if it is retired.
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
        records.places[0].stamp = u32::MAX - ODD; // as after all others
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
