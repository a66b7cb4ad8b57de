//! The wheel: pure transitions. Time is an argument.
//!
//! ```text
//!              start                                    pop_due
//!                │                                         ▲ the earlier of the two
//!   below the    │    from the                   ┌─────────┴─────────┐
//!   bound        │    bound on             ┌──────────┐        ┌───────────┐
//!      ┌─────────┴─────────┐               │  sorted  │        │added_late │
//!      ▼                   ▼               │ a slot's │        │  a heap   │
//!  added_late           levels ───open────▶│  worth   │        │           │
//!                                          └──────────┘        └───────────┘
//! ```
//!
//! `levels` holds future timers, coarsely ordered. When all earlier ones are gone, its first slot
//! is opened: a small one is sorted as a whole, a large one is spread over the levels below.
//! Opening raises the bound, which is the least deadline that `levels` accepts; timers started
//! below the bound go to the heap `added_late`. To give the next deadline exactly, a slot is opened
//! before its time, and the bound runs ahead of the clock; if many timers are started in between,
//! [`WheelLevels::rewind`] takes the bound back.
//!
//! A cancelled timer leaves its entry behind, which is then stale and is dropped when its slot is
//! opened, or later if the slot was open already. The capacity of the blocks is checked only when a
//! block of entries is started, so that cancelling keeps no count: at a million timers the
//! processor waits for memory, and the number of accesses that it can have in flight depends on how
//! few instructions lie between them. [`WheelLevels::sweep_for_new_block`] then frees as much as is
//! started, in the long run.

mod entry;
mod heap;
mod levels;
mod records;
mod sort;

use crate::{Config, ConfigError, WheelFull};
use entry::TimerEntry;
use heap::EntryHeap;
use levels::{LATE_SLOT, SORTED_ENTRIES_MAX, SORTED_ENTRIES_TARGET, WheelLevels, retain};
pub use records::TimerId;
use records::{EntryState, TimerRecords};
use sort::sort_into;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// Number of entries in [`Wheel::added_late`] up to which [`Wheel::shrink_late`] never runs.
const LATE_MIN: usize = 128;
/// Maximum number of entries that [`WheelLevels::rewind`] moves for each entry in
/// [`Wheel::added_late`]. The cost of moving them is thus spread over the timers in the heap.
const AHEAD_PER_LATE: usize = 8;
/// Value of `newest_key` if the newest timer is unknown; no timer has this key.
const NO_KEY: u64 = 0;
/// Expired timer, as returned by [`Wheel::pop_due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredTimer<T> {
    /// Handle of the timer; valid only if the timer is periodic and continues.
    pub id: TimerId,
    /// Deadline of the timer in ns; the first one missed, if a periodic timer has missed several.
    pub deadline_ns: u64,
    /// Number of further deadlines of a periodic timer that have passed and are not reported again.
    /// Always 0 for other timers.
    pub missed_count: u64,
    /// Payload passed when the timer was started. For a periodic timer that continues, it is a
    /// clone.
    pub payload: T,
}

/// Set of timers (timer wheel). Each has a deadline and a payload, which is returned when the timer
/// expires.
///
/// Deadlines are in ns on any clock that does not go backwards, over the full range of `u64`.
/// Timers expire in the order of their deadlines, to the nanosecond, and never early; those with
/// the same deadline expire in no particular order.
///
/// Whatever the payloads borrow must live longer than the wheel.
///
/// ```
/// use handover_timer::{Config, Wheel};
/// let mut wheel = Wheel::new(Config::default(), 0)?;
/// let retry = wheel.start(2_000, "retry")?;
/// wheel.start(1_000, "ping")?;
/// assert_eq!(wheel.next_deadline_ns(), Some(1_000)); // sleep until then
/// assert_eq!(wheel.pop_due(1_500).unwrap().payload, "ping");
/// assert_eq!(wheel.pop_due(1_500), None);
/// assert_eq!(wheel.cancel(retry), Some("retry"));
/// assert_eq!(wheel.cancel(retry), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// Start, cancel and expire take a time that does not depend on the number of timers. Nothing
/// allocates except for growth (see [`Config::timers_reserved`]).
pub struct Wheel<T> {
    records: TimerRecords<T>,
    levels: WheelLevels,
    /// Entries with the earliest deadlines, in order; none is later than an entry in `levels`. They
    /// begin at index `sorted_at`.
    sorted: Vec<TimerEntry>,
    /// Index in `sorted` of the first entry that was not removed.
    sorted_at: usize,
    /// Entries of the slots that are being opened, not sorted yet; otherwise unused.
    unsorted: Vec<TimerEntry>,
    /// Entries whose deadlines `levels` does not accept: those below
    /// [`WheelLevels::deadline_ns_min`] when added.
    added_late: EntryHeap,
    /// Number of entries in `added_late` above which [`shrink_late`](Self::shrink_late) runs.
    late_max: usize,
    /// Estimated number of entries that [`WheelLevels::rewind`] would move.
    ahead_count: usize,
    /// Key of the timer started last, or [`NO_KEY`]. It is set while the timer's entry is still the
    /// newest of its slot or the last of the heap. Cancelling this timer leaves no stale entry.
    newest_key: u64,
    /// Slot of the newest timer's entry; [`LATE_SLOT`] if it is in `added_late`.
    newest_slot: usize,
    /// Latest time that was passed to `new` or [`pop_due`](Self::pop_due), in ns.
    now_ns: u64,
    /// Function that clones a payload; `None` until a periodic timer is started.
    clone: Option<fn(&T) -> T>,
}

/// Earliest entry that is neither stale nor postponed, and its container.
struct EarliestEntry {
    entry: TimerEntry,
    container: Container,
    state: EntryState,
}

/// Container of the earliest entry: the sorted entries, or the heap of entries that were added
/// after their slot was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Sorted,
    AddedLate,
}

impl<T> Wheel<T> {
    /// Creates a wheel without timers. `now_ns` is the current time on the clock of the deadlines.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is not valid.
    pub fn new(config: Config, now_ns: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let reserved = config.timers_reserved as usize;
        // Opened slots may have more entries than timers run, as some are stale.
        let opened_reserved =
            if reserved == 0 { 0 } else { SORTED_ENTRIES_TARGET + SORTED_ENTRIES_MAX };
        Ok(Self {
            records: TimerRecords::new(config.timers_max, config.timers_reserved),
            levels: WheelLevels::new(now_ns, reserved),
            sorted: Vec::with_capacity(opened_reserved),
            sorted_at: 0,
            unsorted: Vec::with_capacity(opened_reserved),
            // One more than the greatest `late_max`.
            added_late: EntryHeap::with_capacity((2 * reserved).max(LATE_MIN) + 1),
            late_max: LATE_MIN,
            ahead_count: 0,
            newest_key: NO_KEY,
            newest_slot: LATE_SLOT,
            now_ns,
            clone: None,
        })
    }

    /// Returns the number of running timers.
    pub fn len(&self) -> usize {
        self.records.running_count()
    }

    /// Returns `true` if no timer is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the timer with this handle is running.
    pub fn contains(&self, id: TimerId) -> bool {
        self.records.find_index(id).is_some()
    }

    /// Returns the payload of a timer; `None` if the timer is not running.
    pub fn get(&self, id: TimerId) -> Option<&T> {
        self.records.payload(self.records.find_index(id)?)
    }

    /// Returns the payload of a timer, mutably; `None` if the timer is not running.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let index = self.records.find_index(id)?;
        self.records.payload_mut(index)
    }

    /// Returns the deadline of a timer in ns; `None` if the timer is not running.
    pub fn deadline_ns(&self, id: TimerId) -> Option<u64> {
        Some(self.records.deadline_ns(self.records.find_index(id)?))
    }

    /// Starts a timer that expires once, at `deadline_ns`. If that time has passed, it expires at
    /// the next [`pop_due`](Self::pop_due).
    ///
    /// # Errors
    /// [`WheelFull`] returns the payload if `timers_max` timers are running.
    ///
    /// # Cost
    /// Constant; for a deadline that has passed, logarithmic in the number of such timers.
    #[inline(always)]
    pub fn start(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, WheelFull<T>> {
        match self.records.insert_in_vacant(deadline_ns, payload) {
            Ok(id) => {
                self.newest_key = id.key();
                self.newest_slot = self.add(TimerEntry::new(deadline_ns, id.key()));
                Ok(id)
            }
            Err(payload) => self.start_in_other_record(deadline_ns, payload),
        }
    }

    /// Does [`start`](Self::start) if the next vacant record cannot be used: in another one or in a
    /// new one.
    #[cold]
    #[inline(never)]
    fn start_in_other_record(
        &mut self,
        deadline_ns: u64,
        payload: T,
    ) -> Result<TimerId, WheelFull<T>> {
        let id = self.records.insert(deadline_ns, payload).map_err(WheelFull)?;
        self.newest_key = id.key();
        self.newest_slot = self.add(TimerEntry::new(deadline_ns, id.key()));
        Ok(id)
    }

    /// Starts a timer that expires once, at the latest time passed to [`new`](Self::new) or
    /// [`pop_due`](Self::pop_due) plus `after`. The deadline is at most `u64::MAX`.
    ///
    /// The wheel reads no clock: if [`pop_due`](Self::pop_due) was called long ago, the timer
    /// expires earlier than `after` from now. Then add to the present time, and call
    /// [`start`](Self::start).
    ///
    /// ```
    /// use handover_timer::{Config, Wheel};
    /// use std::time::Duration;
    /// let mut wheel = Wheel::new(Config::default(), 1_000)?;
    /// let id = wheel.start_after(Duration::from_micros(2), "retry")?;
    /// assert_eq!(wheel.deadline_ns(id), Some(3_000));
    /// assert_eq!(wheel.time_to_next(1_000), Some(Duration::from_micros(2))); // sleep for this time
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WheelFull`] returns the payload if `timers_max` timers are running.
    ///
    /// # Cost
    /// Like [`start`](Self::start).
    pub fn start_after(&mut self, after: Duration, payload: T) -> Result<TimerId, WheelFull<T>> {
        self.start(self.now_ns.saturating_add(saturating_ns(after)), payload)
    }

    /// Starts a timer that expires at `first_ns` and then every `period_ns` ns.
    ///
    /// It does not drift: its deadlines are `first_ns` and whole periods later, however late it is
    /// popped. Several deadlines that have passed by then are returned as one [`ExpiredTimer`] that
    /// counts them. The timer goes on until it is cancelled, or the next deadline would exceed
    /// `u64::MAX`.
    ///
    /// # Errors
    /// [`WheelFull`] returns the payload if `timers_max` timers are running.
    pub fn start_periodic(
        &mut self,
        first_ns: u64,
        period_ns: NonZeroU64,
        payload: T,
    ) -> Result<TimerId, WheelFull<T>>
    where
        T: Clone,
    {
        let id = self.records.insert(first_ns, payload).map_err(WheelFull)?;
        self.records.set_periodic(id.index(), period_ns);
        self.clone = Some(T::clone);
        self.add_again(TimerEntry::new(first_ns, id.key()));
        Ok(id)
    }

    /// Cancels a timer and returns its payload; `None` if the timer is not running.
    ///
    /// # Cost
    /// Constant: an access to the timer's record. Its stale entry is removed later.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let payload = self.records.remove(id)?;
        if self.newest_key == id.key() {
            if self.newest_slot == LATE_SLOT {
                return self.cancel_late(payload);
            }
            self.levels.remove_newest(self.newest_slot);
            return Some(payload);
        }
        Some(payload)
    }

    /// Returns an iterator over the running timers, in no particular order. Each item is the
    /// handle, the deadline in ns and the payload.
    ///
    /// # Cost
    /// An access to each record: as many as timers have run at once.
    pub fn iter(&self) -> impl Iterator<Item = (TimerId, u64, &T)> {
        self.records.iter()
    }

    /// Cancels the timers for which `keep` returns `false`, and drops their payloads. `keep` gets
    /// the handle, the deadline in ns and the payload of each timer, in no particular order.
    ///
    /// # Panics
    /// If `keep` does, or dropping a payload: the timers cancelled by then stay cancelled.
    ///
    /// # Cost
    /// An access to each record, as in [`iter`](Self::iter), and a [`cancel`](Self::cancel) for
    /// each cancelled timer.
    pub fn retain(&mut self, mut keep: impl FnMut(TimerId, u64, &mut T) -> bool) {
        for index in 0..self.records.records_count() as u32 {
            let Some(id) = self.records.running_id(index) else { continue };
            let deadline_ns = self.records.deadline_ns(index);
            if let Some(payload) = self.records.payload_mut(index)
                && !keep(id, deadline_ns, payload)
            {
                self.cancel(id);
            }
        }
    }

    /// Cancels all timers and drops their payloads. Keeps the memory; handles of cancelled timers
    /// stay invalid.
    ///
    /// # Panics
    /// If dropping a payload panics: the timers cancelled by then stay cancelled.
    ///
    /// # Cost
    /// Like [`retain`](Self::retain).
    pub fn clear(&mut self) {
        self.retain(|_, _, _| false);
    }

    /// Changes the deadline of a running timer; returns `false` if the timer is not running. A
    /// periodic timer continues from the new deadline, with its period.
    ///
    /// # Cost
    /// A later deadline is one store, any number of times; the entry is moved once, when the timer
    /// would have expired. An earlier deadline costs as much as cancel and start.
    pub fn reschedule(&mut self, id: TimerId, deadline_ns: u64) -> bool {
        let Some(needs_new_entry) = self.records.reschedule(id, deadline_ns) else { return false };
        if needs_new_entry {
            let entry = self.records.new_entry(id.index());
            self.add_again(entry);
        }
        true
    }

    /// Sets the deadline of a running timer to the latest time passed to [`new`](Self::new) or
    /// [`pop_due`](Self::pop_due) plus `after`, at most `u64::MAX`. Returns `false` if the timer is
    /// not running. Otherwise like [`reschedule`](Self::reschedule).
    pub fn reschedule_after(&mut self, id: TimerId, after: Duration) -> bool {
        self.reschedule(id, self.now_ns.saturating_add(saturating_ns(after)))
    }

    /// Returns the exact earliest deadline in ns; `None` if no timer is running.
    ///
    /// A caller that sleeps until then finds a timer due when it wakes: the wheel has no
    /// housekeeping that needs a wake-up.
    ///
    /// # Cost
    /// Mostly an access to one entry and its timer. Work on the way (sorting, dropping stale
    /// entries) is done once, and not again when the timer is popped.
    pub fn next_deadline_ns(&mut self) -> Option<u64> {
        self.find_earliest(u64::MAX).map(|top| top.entry.deadline_ns)
    }

    /// Returns the time from `now_ns` to the earliest deadline, zero if it has passed. Returns
    /// `None` if no timer is running.
    ///
    /// # Cost
    /// Like [`next_deadline_ns`](Self::next_deadline_ns).
    pub fn time_to_next(&mut self, now_ns: u64) -> Option<Duration> {
        let deadline_ns = self.next_deadline_ns()?;
        Some(Duration::from_nanos(deadline_ns.saturating_sub(now_ns)))
    }

    /// Returns the earliest timer due at `now_ns`, and ends it unless it is periodic. Returns
    /// `None` if no timer is due.
    ///
    /// Call it until it returns `None`, or as often as is fair to other work on the thread. Timers
    /// may be started, cancelled and rescheduled in between; a timer started with a deadline that
    /// has passed is due at once.
    ///
    /// # Cost
    /// Constant, amortised: a timer is moved a few times between its start and its end.
    #[inline]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<ExpiredTimer<T>> {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(&entry) = self.sorted.get(self.sorted_at)
            && self.added_late.first().is_none_or(|late| late.deadline_ns >= entry.deadline_ns)
        {
            let deadline_ns = entry.deadline_ns;
            if deadline_ns > now_ns {
                return None; // stale or not, it is the earliest entry
            }
            if self.records.entry_state(entry) == EntryState::Once {
                self.sorted_at += 1;
                let id = entry.id()?;
                let payload = self.records.remove(id)?;
                return Some(ExpiredTimer { id, deadline_ns, missed_count: 0, payload });
            }
        }
        self.pop_due_slow(now_ns)
    }

    /// Slow path of [`pop_due`](Self::pop_due): a slot must be opened, or the earliest entry is in
    /// `added_late`, stale, postponed, or of a periodic timer.
    #[inline(never)]
    fn pop_due_slow(&mut self, now_ns: u64) -> Option<ExpiredTimer<T>> {
        let Some(EarliestEntry { entry, container, state }) = self.find_earliest(now_ns) else {
            self.levels.advance(now_ns);
            return None;
        };
        if entry.deadline_ns > now_ns {
            return None;
        }
        let id = entry.id()?;
        if let EntryState::Periodic(period_ns) = state {
            return self.pop_periodic(id, period_ns, entry, container, now_ns);
        }
        self.remove_first(container);
        let payload = self.records.remove(id)?;
        Some(ExpiredTimer { id, deadline_ns: entry.deadline_ns, missed_count: 0, payload })
    }

    /// Passes at most `expired_max` timers that are due at `now_ns` to `f`, earliest first; returns
    /// their number. If it returns `expired_max`, more timers may be due.
    pub fn expire(
        &mut self,
        now_ns: u64,
        expired_max: usize,
        mut f: impl FnMut(ExpiredTimer<T>),
    ) -> usize {
        let mut count = 0;
        while count < expired_max {
            let Some(expired) = self.pop_due(now_ns) else { break };
            f(expired);
            count += 1;
        }
        count
    }

    /// Returns the expiry of a periodic timer, and starts the timer's next period. `entry` is the
    /// timer's entry and the first of `container`.
    #[cold]
    #[inline(never)]
    fn pop_periodic(
        &mut self,
        id: TimerId,
        period_ns: NonZeroU64,
        entry: TimerEntry,
        container: Container,
        now_ns: u64,
    ) -> Option<ExpiredTimer<T>> {
        let (deadline_ns, index, period_ns) = (entry.deadline_ns, entry.index(), period_ns.get());
        let missed_count = (now_ns - deadline_ns) / period_ns;
        let last_ns = deadline_ns + missed_count * period_ns; // not above now_ns
        let payload = match (last_ns.checked_add(period_ns), self.clone) {
            (Some(next_ns), Some(clone)) => {
                let payload = clone(self.records.payload(index)?);
                self.records.set_deadline(index, next_ns);
                self.remove_first(container);
                let entry = self.records.new_entry(index);
                self.add_again(entry);
                payload
            }
            _ => {
                self.remove_first(container);
                self.records.remove(id)?
            }
        };
        Some(ExpiredTimer { id, deadline_ns, missed_count, payload })
    }

    /// Returns the earliest entry that is neither stale nor postponed. Returns `None` if there are
    /// no timers, or only timers in slots that begin after `limit_ns`. These slots stay unopened.
    #[inline]
    fn find_earliest(&mut self, limit_ns: u64) -> Option<EarliestEntry> {
        loop {
            let (entry, container) =
                match (self.sorted.get(self.sorted_at), self.added_late.first()) {
                    (Some(&sorted), Some(&late)) if late.deadline_ns < sorted.deadline_ns => {
                        (late, Container::AddedLate)
                    }
                    (Some(&sorted), _) => (sorted, Container::Sorted),
                    (None, Some(&late)) => (late, Container::AddedLate),
                    (None, None) => {
                        if !self.open_due_slots(limit_ns) {
                            return None;
                        }
                        continue;
                    }
                };
            let state = self.records.entry_state(entry);
            if matches!(state, EntryState::Once | EntryState::Periodic(_)) {
                return Some(EarliestEntry { entry, container, state });
            }
            self.discard_or_add_again(entry, container, state);
        }
    }

    /// Removes the first entry of `container`, which is stale or postponed. Adds a new entry if it
    /// is postponed.
    fn discard_or_add_again(&mut self, entry: TimerEntry, container: Container, state: EntryState) {
        self.remove_first(container);
        if state == EntryState::Postponed {
            let entry = self.records.new_entry(entry.index());
            self.add_again(entry);
        }
    }

    /// Moves the entries of the first slot, and of further due slots while there are few entries,
    /// to `sorted`, in order. Returns `false` if the first slot begins after `limit_ns`, or there
    /// is none.
    #[inline(never)]
    fn open_due_slots(&mut self, limit_ns: u64) -> bool {
        let mut opened = false;
        self.newest_key = NO_KEY;
        self.unsorted.clear();
        let records = &self.records;
        while self.unsorted.len() < SORTED_ENTRIES_TARGET {
            let Some(first) = self.levels.first_slot() else { break };
            let limit_ns = if opened { limit_ns.min(self.now_ns) } else { limit_ns };
            if first.lowest_ns > limit_ns {
                break;
            }
            if first.lowest_ns <= self.now_ns {
                self.ahead_count = 0;
            }
            self.ahead_count += self.levels.drain_first_slot(first, &mut self.unsorted, |entry| {
                records.prefetch(entry);
            });
            opened = true;
        }
        if !opened {
            return false;
        }
        // Stale entries are not worth sorting. The records of all entries were prefetched while
        // their slots were drained, and are still in the cache when the timers are popped.
        let kept_count = retain(&mut self.unsorted, |entry| records.is_running(entry));
        sort_into(&mut self.sorted, &self.unsorted[..kept_count]);
        self.sorted_at = 0;
        let late_max = self.ahead_count / AHEAD_PER_LATE + self.sorted.len() / 2;
        // At most as for the heap of all timers in `shrink_late`: `new` reserves memory for this.
        self.late_max = LATE_MIN.max(late_max.min(2 * self.records.records_count()));
        true
    }

    /// Adds an entry like [`add`](Self::add), but without recording its timer as the newest.
    fn add_again(&mut self, entry: TimerEntry) {
        self.newest_key = NO_KEY;
        self.add(entry);
    }

    /// Adds an entry to its slot or, if that was opened, to `added_late`. Returns the slot, or
    /// [`LATE_SLOT`].
    #[inline(always)]
    fn add(&mut self, entry: TimerEntry) -> usize {
        match self.levels.try_push(entry) {
            Ok(slot) => slot,
            Err(slot) => self.add_elsewhere(slot, entry),
        }
    }

    /// Adds an entry for which its slot has no room: to `added_late` if the slot is [`LATE_SLOT`],
    /// otherwise in a new block. Returns the slot.
    #[cold]
    #[inline(never)]
    fn add_elsewhere(&mut self, slot: usize, entry: TimerEntry) -> usize {
        if slot != LATE_SLOT {
            self.add_in_new_block(slot, entry);
        } else {
            self.added_late.push(entry);
            if self.added_late.len() > self.late_max {
                self.shrink_late();
            }
        }
        slot
    }

    /// Removes stale entries from the heap `added_late`. If there are still many because the least
    /// deadline of `levels` is ahead of the time, rewinds `levels`, so that the cost of starting a
    /// timer stays constant.
    #[cold]
    #[inline(never)]
    fn shrink_late(&mut self) {
        let is_stale = |entry| self.records.entry_state(entry) == EntryState::Stale;
        self.added_late.retain(|&entry| !is_stale(entry));
        if self.added_late.len() > self.late_max / 2 && self.now_ns < self.levels.deadline_ns_min()
        {
            self.levels.rewind(self.now_ns);
            self.ahead_count = 0;
            let deadline_ns_min = self.levels.deadline_ns_min();
            for &entry in &self.sorted[std::mem::take(&mut self.sorted_at)..] {
                if is_stale(entry) {
                    continue; // memory is reserved for one entry of each timer
                }
                if entry.deadline_ns >= deadline_ns_min {
                    self.levels.push(entry);
                } else {
                    self.added_late.push(entry);
                }
            }
            self.sorted.clear();
            self.added_late.retain(|&entry| {
                let stays = entry.deadline_ns < deadline_ns_min;
                if !stays {
                    self.levels.push(entry);
                }
                stays
            });
        }
        self.late_max = LATE_MIN.max(2 * self.added_late.len());
    }

    /// Removes the first entry of `container`.
    fn remove_first(&mut self, container: Container) {
        match container {
            Container::Sorted => self.sorted_at += 1,
            Container::AddedLate => drop(self.added_late.pop()),
        }
    }

    /// Removes the entry of the newest timer, just cancelled, from the heap `added_late`; returns
    /// `payload`.
    #[cold]
    #[inline(never)]
    fn cancel_late(&mut self, payload: T) -> Option<T> {
        let newest = self.newest_key;
        self.added_late.pop_last_if(|entry| entry.key == newest);
        Some(payload)
    }

    /// Adds an entry to a new block of its slot. If the blocks have room for many more entries than
    /// timers run, removes the stale entries of some.
    fn add_in_new_block(&mut self, slot: usize, entry: TimerEntry) {
        self.levels.push_in_new_block(slot, entry);
        let records = &self.records;
        if self.levels.is_crowded(records.records_count()) {
            self.newest_key = NO_KEY; // its entry may move
            self.levels.sweep_for_new_block(
                records.records_count(),
                |entry| records.prefetch(entry),
                |entry| records.entry_state(entry) != EntryState::Stale,
            );
        }
    }
}

/// Returns a duration in ns; `u64::MAX` if the number of ns exceeds it.
fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("timers", &self.len())
            .field("now_ns", &self.now_ns)
            .finish_non_exhaustive()
    }
}
