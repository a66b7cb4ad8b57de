//! The timers themselves: a slab whose places carry a generation.

use super::entry::Entry;
use crate::raw::fetch;
use std::num::NonZeroU64;

/// One running timer of one wheel. When the timer is over, no other ever has the same.
///
/// A handle of another wheel is not told apart from one's own: keep them with their wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: NonZeroU64,
}

/// The stamp of a place: whether the timer is periodic in its lowest bit, above it the generation,
/// which is changed whenever the place falls vacant and does not come round within centuries.
const PERIODIC: u64 = 1;
const GENERATION: u64 = 2;

/// One place. With a payload of 8 bytes it is 32 bytes and never lies across two cache lines.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Record<T> {
    pub(super) deadline_ns: u64,
    stamp: u64,
    /// None when the place is vacant.
    payload: Option<T>,
}

impl<T> Record<T> {
    #[inline]
    fn generation(&self) -> u64 {
        self.stamp / GENERATION
    }

    #[inline]
    pub(super) fn is_periodic(&self) -> bool {
        self.stamp & PERIODIC != 0
    }

    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        self.payload.is_none()
    }

    pub(super) fn payload(&self) -> Option<&T> {
        self.payload.as_ref()
    }

    /// The handle of the timer that runs in this place, which is at `index`.
    #[inline]
    pub(super) fn id(&self, index: u32) -> TimerId {
        // Generations begin with 1 and only grow.
        TimerId { index, generation: NonZeroU64::new(self.generation()).unwrap_or(NonZeroU64::MIN) }
    }

    #[inline]
    fn vacate(&mut self) -> Option<T> {
        self.stamp = (self.generation() + 1) * GENERATION;
        self.payload.take()
    }
}

#[derive(Debug)]
pub(super) struct Records<T> {
    places: Vec<Record<T>>,
    /// By place, what entries of its timer carry since it was last changed, which is when those
    /// written before become stale. Apart, so that most of it stays in the cache: entries are
    /// looked up in no order, and half of them may be stale.
    ///
    /// It comes round after 2^32 changes. A stale entry that is taken for a valid one then is
    /// looked at twice, with no other effect: the deadline has the last word.
    checks: Vec<u32>,
    /// Apart from the places, so that starting many timers reads it in order instead of following a
    /// chain through memory.
    vacant: Vec<u32>,
    /// By place, as long as periodic timers have needed it to be; apart, as most are not.
    periods_ns: Vec<u64>,
    timers_max: u32,
}

impl<T> Records<T> {
    pub(super) fn new(timers_max: u32, timers_reserved: u32) -> Self {
        Self {
            places: Vec::with_capacity(timers_reserved as usize),
            checks: Vec::with_capacity(timers_reserved as usize),
            vacant: Vec::with_capacity(timers_reserved as usize),
            periods_ns: Vec::new(),
            timers_max,
        }
    }

    /// How many timers are running.
    #[inline]
    pub(super) fn live_count(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// The most timers that ever ran at once.
    #[inline]
    pub(super) fn peak_count(&self) -> usize {
        self.places.len()
    }

    /// Occupies a place, or gives the payload back.
    #[inline]
    pub(super) fn occupy(&mut self, deadline_ns: u64, payload: T) -> Result<(TimerId, Entry), T> {
        let Some(index) = self.vacant.pop() else {
            return self.occupy_new(deadline_ns, payload);
        };
        let record = &mut self.places[index as usize];
        record.deadline_ns = deadline_ns;
        record.payload = Some(payload);
        let id = record.id(index);
        Ok((id, Entry::new(deadline_ns, index, self.checks[index as usize])))
    }

    #[cold]
    #[inline(never)]
    fn occupy_new(&mut self, deadline_ns: u64, payload: T) -> Result<(TimerId, Entry), T> {
        let index = self.places.len() as u32;
        if index >= self.timers_max {
            return Err(payload);
        }
        let record = Record { deadline_ns, stamp: GENERATION, payload: Some(payload) };
        let occupied = (record.id(index), Entry::new(deadline_ns, index, 0));
        self.places.push(record);
        self.checks.push(0);
        // All of them may fall vacant; `vacant` is empty now, hence there is nothing to move.
        self.vacant.reserve(self.places.capacity());
        Ok(occupied)
    }

    /// Makes the timer in this place, which has just been occupied, a periodic one.
    pub(super) fn set_periodic(&mut self, index: u32, period_ns: NonZeroU64) {
        if self.periods_ns.len() <= index as usize {
            self.periods_ns.reserve_exact(self.places.capacity() - self.periods_ns.len());
            self.periods_ns.resize(self.places.len(), 0);
        }
        self.periods_ns[index as usize] = period_ns.get();
        self.places[index as usize].stamp |= PERIODIC;
    }

    /// Frees the place of a timer that is running, and returns what it held with its entry.
    #[inline]
    pub(super) fn end(&mut self, id: TimerId) -> Option<(T, Entry)> {
        let record = self.places.get_mut(id.index as usize)?;
        if record.generation() != id.generation.get() {
            return None;
        }
        let deadline_ns = record.deadline_ns;
        let payload = record.vacate()?;
        self.vacant.push(id.index);
        let check = self.retag(id.index);
        Some((payload, Entry::new(deadline_ns, id.index, check)))
    }

    /// Frees the place that `entry` speaks of.
    #[inline]
    pub(super) fn expire(&mut self, index: u32) -> Option<T> {
        let payload = self.places[index as usize].vacate()?;
        self.vacant.push(index);
        self.retag(index);
        Some(payload)
    }

    /// Entries of this timer are stale from now on; returns what they carried.
    #[inline]
    pub(super) fn retag(&mut self, index: u32) -> u32 {
        let check = &mut self.checks[index as usize];
        *check = check.wrapping_add(1);
        check.wrapping_sub(1)
    }

    /// What is to be filed for the timer that runs in this place.
    #[inline]
    pub(super) fn entry(&self, index: u32) -> Entry {
        Entry::new(self.at(index).deadline_ns, index, self.checks[index as usize])
    }

    /// The place of a timer that is running.
    pub(super) fn find(&self, id: TimerId) -> Option<u32> {
        let record = self.places.get(id.index as usize)?;
        (record.generation() == id.generation.get() && record.payload.is_some()).then_some(id.index)
    }

    /// None when the timer that runs in this place is due only once.
    pub(super) fn period_ns(&self, index: u32) -> Option<NonZeroU64> {
        if !self.at(index).is_periodic() {
            return None;
        }
        NonZeroU64::new(self.periods_ns[index as usize])
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> &Record<T> {
        &self.places[index as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Record<T> {
        &mut self.places[index as usize]
    }

    pub(super) fn payload_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places[index as usize].payload.as_mut()
    }

    /// Asks for the timer's place, ahead of taking it out, if `entry` is still valid.
    #[inline]
    pub(super) fn fetch_valid(&self, entry: Entry) {
        // Without a branch, as whether it is cannot be foretold.
        let index = if self.is_valid(entry) { entry.index() } else { 0 };
        fetch(self.at(index));
    }

    /// Asks for the timer's place, ahead of taking it out.
    #[inline]
    pub(super) fn fetch(&self, entry: Entry) {
        if let Some(record) = self.places.get(entry.index() as usize) {
            fetch(record);
        }
    }

    /// Asks for what [`is_valid`](Self::is_valid) will look at.
    #[inline]
    pub(super) fn fetch_check(&self, entry: Entry) {
        if let Some(check) = self.checks.get(entry.index() as usize) {
            fetch(check);
        }
    }

    /// Whether `entry` still speaks of its timer.
    #[inline]
    pub(super) fn is_valid(&self, entry: Entry) -> bool {
        self.checks[entry.index() as usize] == entry.check()
    }
}
