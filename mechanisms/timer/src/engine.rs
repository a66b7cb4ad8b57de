//! The wheel: pure transitions, to which the time is told.
//!
//! ```text
//!              start                                    pop_due
//!                │                                         ▲ the earlier of the two
//!   below the    │    from the                   ┌─────────┴─────────┐
//!   floor        │    floor on             ┌──────────┐        ┌───────────┐
//!      ┌─────────┴─────────┐               │  sorted  │        │   late    │
//!      ▼                   ▼               │ a slot's │        │  a heap   │
//!    late               levels ───open────▶│  worth   │        │           │
//!                                          └──────────┘        └───────────┘
//! ```
//!
//! `levels` holds what is to come, coarsely ordered. When everything earlier is gone its first slot
//! is opened: a small one is sorted whole, a great one is spread over the levels below. Opening moves
//! the floor up; what is started below the floor goes to `late`. To tell the next deadline exactly, a
//! slot is opened before its time, and the floor runs ahead of the clock; when many timers are started
//! in between, [`Levels::rewind`] takes it back.
//!
//! A cancelled timer leaves its entry behind, as a stale one, which is dropped when it is met. Whether
//! there are too many of them is looked at when a block of entries is begun, so that cancelling keeps
//! no count: at a million timers the processor waits for memory, and what it can wait for at once
//! depends on how few instructions lie between one access and the next. [`Levels::sweep`] then frees
//! more than is begun.

mod entry;
mod heap;
mod levels;
mod records;

use crate::{Config, ConfigError, Full};
use entry::Entry;
use heap::Heap;
use levels::{Levels, SORTED_ENTRIES_MAX};
pub use records::TimerId;
use records::{Records, Standing};
use std::fmt;
use std::num::NonZeroU64;

/// So many timers below the floor are fine in any case.
const LATE_MIN: usize = 128;
/// A rewind moves entries that were opened ahead of the time; it waits for one late timer for so many
/// of them, so that moving them is paid for.
const AHEAD_PER_LATE: usize = 8;
/// When slots are opened whose time has come, so many entries are gathered at least.
const GATHERED_MIN: usize = 96;
/// When a timer is popped from among the sorted ones, the place of the one that is so many after it is
/// asked for.
const FETCHED_AHEAD: usize = 16;
/// In place of a slot of the wheel: in the heap of late ones.
const LATE: usize = usize::MAX;
/// The key of no timer.
const NOBODY: u64 = 0;
/// When a block is begun while there are too many of them, so many steps are taken to free others, of
/// which two look at a block.
const SWEEPS_PER_BLOCK: usize = 8;

/// A timer that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired<T> {
    /// Its handle. That of a one-shot timer has ceased to be valid.
    pub id: TimerId,
    /// When it was due. Of a periodic timer that is due several times, the first of them.
    pub deadline_ns: u64,
    /// How many more deadlines of a periodic timer have passed by now: they are told once, here,
    /// rather than handed over one by one. Always 0 for a one-shot timer.
    pub missed_count: u64,
    /// What was handed over at the start; a clone of it if the timer goes on.
    pub payload: T,
}

/// Timers by their deadlines, each with something to hand over when it is due.
///
/// Deadlines are in ns on any clock that does not go backwards; all of `u64` will do. Timers expire
/// in the order of their deadlines, to the nanosecond, and never early; those with the same
/// deadline expire in no particular order.
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
/// Start, cancel and expire take a time that does not depend on how many timers there are. Apart from
/// growth (see [`Config::timers_reserved`]) nothing allocates.
pub struct Wheel<T> {
    records: Records<T>,
    levels: Levels,
    /// Below everything in `levels`, the earliest first, from `sorted_at` on.
    sorted: Vec<Entry>,
    sorted_at: usize,
    /// Below the floor of `levels`.
    late: Heap,
    /// How many may be in `late` before something is done about it.
    late_max: usize,
    /// How many entries a rewind would have to move, at a guess.
    ahead_count: usize,
    /// The key of the timer that was started last, if its entry is where it was put then: the newest of its slot
    /// or the last of the heap. Whoever cancels it at once leaves nothing behind.
    newest: u64,
    /// Where that one was put.
    newest_slot: usize,
    now_ns: u64,
    /// How to clone the payload of a periodic timer; known once there is one.
    clone: Option<fn(&T) -> T>,
}

/// The earliest entry of all, which speaks for a timer.
struct Top {
    entry: Entry,
    side: Side,
    standing: Standing,
}

/// Which of the two holds the earliest entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Sorted,
    Late,
}

impl<T> Wheel<T> {
    /// A wheel without timers; `now_ns` is the time.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is not valid.
    pub fn new(config: Config, now_ns: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let reserved = config.timers_reserved as usize;
        Ok(Self {
            records: Records::new(config.timers_max, config.timers_reserved),
            levels: Levels::new(now_ns, reserved),
            sorted: Vec::with_capacity(GATHERED_MIN + SORTED_ENTRIES_MAX),
            sorted_at: 0,
            late: Heap::with_capacity((2 * reserved).max(LATE_MIN + 1)),
            late_max: LATE_MIN,
            ahead_count: 0,
            newest: NOBODY,
            newest_slot: LATE,
            now_ns,
            clone: None,
        })
    }

    /// How many timers are running.
    pub fn len(&self) -> usize {
        self.records.live_count()
    }

    /// Whether no timer is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this timer is running.
    pub fn contains(&self, id: TimerId) -> bool {
        self.records.find(id).is_some()
    }

    /// What this timer will hand over; None when it is not running.
    pub fn get(&self, id: TimerId) -> Option<&T> {
        self.records.payload(self.records.find(id)?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let index = self.records.find(id)?;
        self.records.payload_mut(index)
    }

    /// When this timer is due; None when it is not running.
    pub fn deadline_ns(&self, id: TimerId) -> Option<u64> {
        Some(self.records.deadline_ns(self.records.find(id)?))
    }

    /// Starts a timer that is due once, at `deadline_ns`; if that is over, with the next
    /// [`pop_due`](Self::pop_due).
    ///
    /// # Errors
    /// [`Full`] gives the payload back when `timers_max` timers are running.
    ///
    /// # Cost
    /// Constant; but for a deadline that is over, the logarithm of how many such there are.
    #[inline]
    pub fn start(&mut self, deadline_ns: u64, payload: T) -> Result<TimerId, Full<T>> {
        let id = self.records.occupy(deadline_ns, payload).map_err(Full)?;
        self.newest = id.key();
        self.newest_slot = self.add(Entry::new(deadline_ns, id.key()));
        Ok(id)
    }

    /// Starts a timer that is due at `first_ns` and then every `period_ns`.
    ///
    /// It does not drift: its deadlines are `first_ns` and whole periods later, however late it is
    /// popped. Deadlines that have passed unnoticed by then come as one [`Expired`] that counts them.
    /// It goes on until it is cancelled, or the next deadline would exceed `u64::MAX`.
    ///
    /// # Errors
    /// [`Full`] gives the payload back when `timers_max` timers are running.
    pub fn start_periodic(
        &mut self,
        first_ns: u64,
        period_ns: NonZeroU64,
        payload: T,
    ) -> Result<TimerId, Full<T>>
    where
        T: Clone,
    {
        let id = self.records.occupy(first_ns, payload).map_err(Full)?;
        self.records.set_periodic(id.index(), period_ns);
        self.clone = Some(T::clone);
        self.refile(Entry::new(first_ns, id.key()));
        Ok(id)
    }

    /// Ends a timer and returns what it would have handed over; None, and nothing is touched, when it
    /// is over already.
    ///
    /// # Cost
    /// Constant: a look at the timer's own place. Its remains are cleared away later.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let payload = self.records.end(id)?;
        if self.newest == id.key() {
            if self.newest_slot == LATE {
                return self.cancel_late(payload);
            }
            self.levels.take_newest(self.newest_slot);
            return Some(payload);
        }
        Some(payload)
    }

    /// Gives a running timer another deadline; false, and nothing is touched, when it is over
    /// already. A periodic timer goes on from the new deadline, with its period.
    ///
    /// # Cost
    /// Putting a timer off is one store, however often it is done before the timer would have been
    /// due, when it is moved once. Moving it to an earlier deadline costs as much as cancel and start.
    pub fn reschedule(&mut self, id: TimerId, deadline_ns: u64) -> bool {
        let Some(comes_late) = self.records.reschedule(id, deadline_ns) else { return false };
        if comes_late {
            let entry = self.records.entry(id.index());
            self.refile(entry);
        }
        true
    }

    /// The earliest deadline of all, exactly; None when no timer is running.
    ///
    /// A caller that sleeps until then finds a timer due when it wakes: the wheel has no housekeeping
    /// of its own to be woken for.
    ///
    /// # Cost
    /// Mostly a look at one entry and its timer. Work that it has to do (sorting, dropping what was
    /// cancelled) is done once and not again when the timer is popped.
    pub fn next_deadline_ns(&mut self) -> Option<u64> {
        self.settle(u64::MAX).map(|top| top.entry.deadline_ns)
    }

    /// The earliest timer that is due at `now_ns`, if any. A one-shot timer is over with this, a
    /// periodic one goes on.
    ///
    /// Call it until it returns None, or as often as is fair to whoever else wants the thread. Timers
    /// may be started, cancelled and rescheduled in between; one that is started with a deadline
    /// that is over is due at once.
    ///
    /// # Cost
    /// Constant, amortised: a timer is moved a few times between its start and its end.
    #[inline]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<Expired<T>> {
        self.now_ns = self.now_ns.max(now_ns);
        let Some(Top { entry, side, standing }) = self.settle(now_ns) else {
            self.levels.advance(now_ns);
            return None;
        };
        if entry.deadline_ns > now_ns {
            return None;
        }
        let id = entry.id()?;
        if let Standing::Periodic(period_ns) = standing {
            return self.pop_periodic(id, period_ns, entry, side, now_ns);
        }
        self.remove(side);
        let payload = self.records.end(id)?;
        Some(Expired { id, deadline_ns: entry.deadline_ns, missed_count: 0, payload })
    }

    /// Hands what is due at `now_ns` to `f`, earliest first, but no more than `expired_max`; returns
    /// how many. Where it returns `expired_max` there may be more.
    pub fn expire(
        &mut self,
        now_ns: u64,
        expired_max: usize,
        mut f: impl FnMut(Expired<T>),
    ) -> usize {
        let mut count = 0;
        while count < expired_max {
            let Some(expired) = self.pop_due(now_ns) else { break };
            f(expired);
            count += 1;
        }
        count
    }

    #[cold]
    #[inline(never)]
    fn pop_periodic(
        &mut self,
        id: TimerId,
        period_ns: NonZeroU64,
        entry: Entry,
        side: Side,
        now_ns: u64,
    ) -> Option<Expired<T>> {
        let (deadline_ns, index, period_ns) = (entry.deadline_ns, entry.index(), period_ns.get());
        let missed_count = (now_ns - deadline_ns) / period_ns;
        let last_ns = deadline_ns + missed_count * period_ns; // not above now_ns
        let payload = match (last_ns.checked_add(period_ns), self.clone) {
            (Some(next_ns), Some(clone)) => {
                let payload = clone(self.records.payload(index)?);
                self.records.set_deadline(index, next_ns);
                self.remove(side);
                let entry = self.records.entry(index);
                self.refile(entry);
                payload
            }
            _ => {
                self.remove(side);
                self.records.end(id)?
            }
        };
        Some(Expired { id, deadline_ns, missed_count, payload })
    }

    /// Finds the earliest timer and where its entry is on top; opens no slot that begins after
    /// `limit_ns`.
    #[inline]
    fn settle(&mut self, limit_ns: u64) -> Option<Top> {
        loop {
            let (entry, side) = match (self.sorted.get(self.sorted_at), self.late.first()) {
                (Some(&sorted), Some(&late)) if late.deadline_ns < sorted.deadline_ns => {
                    (late, Side::Late)
                }
                (Some(&sorted), _) => (sorted, Side::Sorted),
                (None, Some(&late)) => (late, Side::Late),
                (None, None) => {
                    if !self.open(limit_ns) {
                        return None;
                    }
                    continue;
                }
            };
            let standing = self.records.standing(entry);
            if matches!(standing, Standing::Once | Standing::Periodic(_)) {
                return Some(Top { entry, side, standing });
            }
            self.drop_top(entry, side, standing);
        }
    }

    /// Drops the entry on top of that side, as no timer is due at its deadline.
    fn drop_top(&mut self, entry: Entry, side: Side, standing: Standing) {
        self.remove(side);
        if standing == Standing::PutOff {
            let entry = self.records.entry(entry.index());
            self.refile(entry);
        }
    }

    /// Opens the first slot, unless it begins after `limit_ns`, and further ones if there is little
    /// in it and their time has come.
    #[inline(never)]
    fn open(&mut self, limit_ns: u64) -> bool {
        let mut opened = false;
        self.newest = NOBODY;
        self.sorted.clear();
        self.sorted_at = 0;
        while self.sorted.len() < GATHERED_MIN {
            let Some(first) = self.levels.first() else { break };
            let limit_ns = if opened { limit_ns.min(self.now_ns) } else { limit_ns };
            if first.lowest_ns > limit_ns {
                break;
            }
            if first.lowest_ns <= self.now_ns {
                self.ahead_count = 0;
            }
            let begin = self.sorted.len();
            self.ahead_count += self.levels.open(first, &mut self.sorted);
            opened = true;
            // Slots follow each other in order: each is sorted for itself.
            self.sorted[begin..].sort_unstable_by_key(|entry| entry.deadline_ns);
        }
        if !opened {
            return false;
        }
        self.sorted.iter().take(FETCHED_AHEAD).for_each(|&entry| self.records.fetch(entry));
        self.late_max = LATE_MIN.max(self.ahead_count / AHEAD_PER_LATE + self.sorted.len() / 2);
        true
    }

    /// Files an entry anew.
    fn refile(&mut self, entry: Entry) {
        self.newest = NOBODY;
        self.add(entry);
    }

    /// Files an entry where it belongs, and returns which slot of the wheel that is, or [`LATE`].
    #[inline]
    fn add(&mut self, entry: Entry) -> usize {
        if entry.deadline_ns >= self.levels.floor_ns() {
            return match self.levels.try_push(entry) {
                Ok(slot) => slot,
                Err(slot) => self.add_grown(slot, entry),
            };
        }
        self.late.push(entry);
        if self.late.len() > self.late_max {
            self.relieve_late();
        }
        LATE
    }

    /// There are many timers below the floor. If they are there because the floor ran ahead of the
    /// time, takes it back, so that starting a timer remains a matter of constant time.
    #[cold]
    #[inline(never)]
    fn relieve_late(&mut self) {
        self.late.retain(|&entry| self.records.standing(entry) != Standing::Stale);
        if self.late.len() > self.late_max / 2 && self.now_ns < self.levels.floor_ns() {
            self.levels.rewind(self.now_ns);
            self.ahead_count = 0;
            let floor_ns = self.levels.floor_ns();
            for at in std::mem::take(&mut self.sorted_at)..self.sorted.len() {
                let entry = self.sorted[at];
                if entry.deadline_ns >= floor_ns {
                    self.levels.push(entry);
                } else {
                    self.late.push(entry);
                }
            }
            self.sorted.clear();
            self.late.retain(|&entry| {
                let stays = entry.deadline_ns < floor_ns;
                if !stays {
                    self.levels.push(entry);
                }
                stays
            });
        }
        self.late_max = LATE_MIN.max(2 * self.late.len());
    }

    /// Drops the entry on top of that side.
    fn remove(&mut self, side: Side) {
        match side {
            Side::Sorted => {
                if let Some(&entry) = self.sorted.get(self.sorted_at + FETCHED_AHEAD) {
                    self.records.fetch(entry);
                }
                self.sorted_at += 1;
            }
            Side::Late => drop(self.late.pop()),
        }
    }

    /// The rest of a cancel that found the timer to be the newest, and that in the heap.
    #[cold]
    #[inline(never)]
    fn cancel_late(&mut self, payload: T) -> Option<T> {
        let newest = self.newest;
        self.late.take_last(|entry| entry.key == newest);
        Some(payload)
    }

    /// Files an entry that begins a block of its slot. If there are many blocks, clears away the
    /// remains of some timers: more of them than are left behind before the next block is begun.
    #[cold]
    #[inline(never)]
    fn add_grown(&mut self, slot: usize, entry: Entry) -> usize {
        self.levels.push_grown(slot, entry);
        let records = &self.records;
        for _ in 0..SWEEPS_PER_BLOCK {
            if !self.levels.is_crowded(records.peak_count()) {
                break;
            }
            self.newest = NOBODY; // perhaps not where it was put any more
            self.levels.sweep(
                |entry| records.fetch(entry),
                |entry| records.standing(entry) != Standing::Stale,
            );
        }
        slot
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("timers", &self.len())
            .field("now_ns", &self.now_ns)
            .finish_non_exhaustive()
    }
}
