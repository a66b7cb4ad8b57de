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
//! A cancelled timer leaves its entry behind, as a stale one, which is dropped when it is met.
//! [`Levels::sweep`] goes round when there are more of them than timers.

mod entry;
mod heap;
mod levels;
mod records;

use crate::{Config, ConfigError, Full};
use entry::Entry;
use heap::Heap;
use levels::{Levels, SORTED_ENTRIES_MAX};
use records::Records;
pub use records::TimerId;
use std::cmp::Reverse;
use std::fmt;
use std::num::NonZeroU64;

/// So many timers below the floor are fine in any case.
const LATE_MIN: usize = 128;
/// A rewind moves entries that were opened ahead of the time; it waits for one late timer for so many
/// of them, so that moving them is paid for.
const AHEAD_PER_LATE: usize = 8;
/// When slots are opened whose time has come, so many entries are gathered at least.
const GATHERED_MIN: usize = 96;
/// In place of a slot of the wheel: in the heap of late ones.
const LATE: usize = usize::MAX;
/// So many stale entries are fine in any case.
const STALE_MIN: usize = 256;

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
    /// Below everything in `levels`; the earliest last.
    sorted: Vec<Entry>,
    /// Below the floor of `levels`.
    late: Heap,
    /// How many may be in `late` before something is done about it.
    late_max: usize,
    /// How many entries a rewind would have to move, at a guess.
    ahead_count: usize,
    /// How many entries are stale, wherever they are.
    stale_count: usize,
    /// Of the timer that was started last. Whoever cancels it at once leaves nothing behind.
    newest: Entry,
    /// Where that one was put.
    newest_slot: usize,
    now_ns: u64,
    /// How to clone the payload of a periodic timer; known once there is one.
    clone: Option<fn(&T) -> T>,
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
        let entries = if reserved == 0 { 0 } else { 2 * reserved + STALE_MIN };
        Ok(Self {
            records: Records::new(config.timers_max, config.timers_reserved),
            levels: Levels::new(now_ns, entries),
            sorted: Vec::with_capacity(GATHERED_MIN + SORTED_ENTRIES_MAX),
            late: Heap::with_capacity(entries.max(LATE_MIN + 1)),
            late_max: LATE_MIN,
            ahead_count: 0,
            stale_count: 0,
            newest: Entry::NONE,
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
        self.records.at(self.records.find(id)?).payload()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let index = self.records.find(id)?;
        self.records.payload_mut(index)
    }

    /// When this timer is due; None when it is not running.
    pub fn deadline_ns(&self, id: TimerId) -> Option<u64> {
        Some(self.records.at(self.records.find(id)?).deadline_ns)
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
        let (id, entry) = self.records.occupy(deadline_ns, payload).map_err(Full)?;
        self.newest = entry;
        self.newest_slot = self.add(entry);
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
        let (id, entry) = self.records.occupy(first_ns, payload).map_err(Full)?;
        self.records.set_periodic(entry.index(), period_ns);
        self.clone = Some(T::clone);
        self.add(entry);
        Ok(id)
    }

    /// Ends a timer and returns what it would have handed over; None, and nothing is touched, when it
    /// is over already.
    ///
    /// # Cost
    /// Constant: a look at the timer's own place. Once as many have been cancelled as ever ran at the
    /// same time, each cancel also clears away up to 31 remains of others.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let (payload, entry) = self.records.end(id)?;
        if entry != self.newest || !self.take_newest() {
            self.clear_away();
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
        let Some(index) = self.records.find(id) else { return false };
        let record = self.records.at_mut(index);
        let earlier = deadline_ns < record.deadline_ns;
        record.deadline_ns = deadline_ns;
        if earlier {
            self.records.retag(index);
            self.clear_away();
            self.add(self.records.entry(index));
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
        self.settle(u64::MAX).map(|(entry, _)| entry.deadline_ns)
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
        let Some((entry, side)) = self.settle(now_ns) else {
            self.levels.advance(now_ns);
            return None;
        };
        if entry.deadline_ns > now_ns {
            return None;
        }
        let record = self.records.at(entry.index());
        let id = record.id(entry.index());
        if record.is_periodic() {
            return self.pop_periodic(id, entry, side, now_ns);
        }
        self.remove(side);
        let payload = self.records.expire(entry.index())?;
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
        entry: Entry,
        side: Side,
        now_ns: u64,
    ) -> Option<Expired<T>> {
        let (deadline_ns, index) = (entry.deadline_ns, entry.index());
        let period_ns = self.records.period_ns(index)?.get();
        let missed_count = (now_ns - deadline_ns) / period_ns;
        let last_ns = deadline_ns + missed_count * period_ns; // not above now_ns
        let payload = match (last_ns.checked_add(period_ns), self.clone) {
            (Some(next_ns), Some(clone)) => {
                let payload = clone(self.records.at(index).payload()?);
                self.records.at_mut(index).deadline_ns = next_ns;
                self.records.retag(index);
                self.remove(side);
                self.add(self.records.entry(index));
                payload
            }
            _ => {
                self.remove(side);
                self.records.expire(index)?
            }
        };
        Some(Expired { id, deadline_ns, missed_count, payload })
    }

    /// Finds the earliest timer and where its entry is on top; opens no slot that begins after
    /// `limit_ns`.
    #[inline]
    fn settle(&mut self, limit_ns: u64) -> Option<(Entry, Side)> {
        loop {
            let (entry, side) = match (self.sorted.last(), self.late.first()) {
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
            let record = self.records.at(entry.index());
            let deadline_ns = record.deadline_ns;
            let valid = self.records.is_valid(entry) && !record.is_vacant();
            if valid && deadline_ns == entry.deadline_ns {
                return Some((entry, side));
            }
            self.remove(side);
            if valid && deadline_ns > entry.deadline_ns {
                self.add(self.records.entry(entry.index())); // put off in the meantime
            } else {
                self.stale_count -= 1;
            }
        }
    }

    /// Opens the first slot, unless it begins after `limit_ns`, and further ones if there is little
    /// in it and their time has come.
    #[inline(never)]
    fn open(&mut self, limit_ns: u64) -> bool {
        let mut opened = None;
        while self.sorted.len() < GATHERED_MIN {
            let Some(first) = self.levels.first() else { break };
            let limit_ns = if opened.is_none() { limit_ns } else { limit_ns.min(self.now_ns) };
            if first.lowest_ns > limit_ns {
                break;
            }
            if first.lowest_ns <= self.now_ns {
                self.ahead_count = 0;
            }
            self.ahead_count += self.levels.open(first, &mut self.sorted);
            opened = Some(first);
        }
        let Some(last) = opened else { return false };
        let kept = levels::retain(&mut self.sorted, |entry| self.records.is_valid(entry));
        self.stale_count -= self.sorted.len() - kept;
        self.sorted.truncate(kept);
        // Asked for all at once, and while they are sorted, as they will be wanted one by one.
        self.sorted.iter().for_each(|&entry| self.records.fetch(entry));
        self.levels.look_ahead(
            last,
            GATHERED_MIN,
            |entry| self.records.fetch_valid(entry),
            |entry| self.records.fetch_check(entry),
        );
        self.sorted.sort_unstable_by_key(|entry| Reverse(entry.deadline_ns));
        self.late_max = LATE_MIN.max(self.ahead_count / AHEAD_PER_LATE + self.sorted.len() / 2);
        true
    }

    /// Takes out the entry of the timer that was started last, if it is still where it was put.
    #[inline]
    fn take_newest(&mut self) -> bool {
        match self.newest_slot {
            LATE => self.late.take_last(self.newest),
            slot => self.levels.take_newest(slot, self.newest),
        }
    }

    /// Files an entry where it belongs, and returns which slot of the wheel that is, or [`LATE`].
    #[inline]
    fn add(&mut self, entry: Entry) -> usize {
        if entry.deadline_ns >= self.levels.floor_ns() {
            return self.levels.push(entry);
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
        self.stale_count -= self.late.retain(|&entry| self.records.is_valid(entry));
        if self.late.len() > self.late_max / 2 && self.now_ns < self.levels.floor_ns() {
            self.levels.rewind(self.now_ns);
            self.ahead_count = 0;
            let floor_ns = self.levels.floor_ns();
            while let Some(entry) = self.sorted.pop() {
                if entry.deadline_ns >= floor_ns {
                    self.levels.push(entry);
                } else {
                    self.late.push(entry);
                }
            }
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
            Side::Sorted => drop(self.sorted.pop()),
            Side::Late => drop(self.late.pop()),
        }
    }

    /// An entry has become stale. Bounds how many there are.
    #[inline]
    fn clear_away(&mut self) {
        self.stale_count += 1;
        if self.stale_count > self.records.peak_count().max(STALE_MIN) {
            self.sweep();
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep(&mut self) {
        let records = &self.records;
        self.stale_count -=
            self.levels.sweep(|entry| records.fetch_check(entry), |entry| records.is_valid(entry));
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
