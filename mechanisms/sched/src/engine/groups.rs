//! The groups of QFQ: an approximate order of any number of entities in constant time.
//!
//! Entities whose longest packet takes about as much virtual time (a power of two) are of one group.
//! Within a group, beginnings are rounded down to that power and sorted into a ring of 64 lists, with a
//! bit for each; the group begins and ends as its first list does. Groups are in one of four sets, each
//! one word: may it go yet (eligible) or not, and would it end before all eligible groups of larger
//! packets (ready) or not (blocked). Which goes next, and which group moves from one set to another, are
//! scans of bits.
//!
//! Source: F. Checconi, L. Rizzo, P. Valente, QFQ: Efficient Packet Scheduling with Tight Guarantees,
//! IEEE/ACM Transactions on Networking 21(3), 2013.

use super::table::NONE;
use super::virtual_time::{VirtualTime, is_later};

const GROUPS: usize = 64;
const LISTS: u64 = 64;

/// Eligible and ready, ineligible and ready, eligible and blocked, ineligible and blocked.
const ER: usize = 0;
const IR: usize = 1;
const EB: usize = 2;
const IB: usize = 3;

/// What the groups know of an entity.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// When its next packet begins; when it has none, when the last one ended.
    pub(crate) start: u64,
    /// When it had no packet any more.
    pub(crate) epoch: u64,
    /// The next in its list.
    next: u32,
    /// Which group, which is also how many binary digits its lists round away.
    group: u32,
}

impl Interval {
    /// Of an entity whose longest packet takes so long.
    pub(crate) fn new(longest: u64, time: &VirtualTime) -> Self {
        let epoch = time.epoch().wrapping_sub(2); // long ago
        let mut interval = Self { start: 0, epoch, next: NONE, group: 0 };
        interval.set_longest(longest);
        interval
    }

    /// Its longest packet takes so long from now on. It must not be in a list.
    pub(crate) fn set_longest(&mut self, longest: u64) {
        self.group = u64::BITS - longest.saturating_sub(1).leading_zeros();
        debug_assert!(self.group < GROUPS as u32 - 2);
    }
}

/// Where the intervals lie.
pub(crate) trait Intervals {
    fn interval(&mut self, id: u32) -> &mut Interval;
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// When its first list begins, and when that ends at the latest.
    start: u64,
    finish: u64,
    /// Which lists are not empty; the first is the lowest bit.
    full: u64,
    /// Where the first list is in the ring.
    front: u64,
    lists: [u32; LISTS as usize],
}

impl Group {
    /// The list that comes `offset` after the first.
    #[inline(always)]
    fn list(&mut self, offset: u64) -> &mut u32 {
        &mut self.lists[((self.front + offset) % LISTS) as usize]
    }
}

/// All groups, their sets, and the virtual time.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) time: VirtualTime,
    sets: [u64; 4],
    groups: Box<[Group; GROUPS]>,
    /// Whether an entity was taken out to be served for a while.
    is_serving: bool,
}

/// `moment` without its last digits.
#[inline(always)]
fn round_down(moment: u64, digits: u32) -> u64 {
    moment & (u64::MAX << (digits & 63))
}

/// The bits above this one.
#[inline(always)]
fn above(set: u64, index: u32) -> u64 {
    set & (u64::MAX << (index & 63)) & !(1 << (index & 63))
}

impl Groups {
    pub(crate) fn new() -> Self {
        let group = Group { start: 0, finish: 0, full: 0, front: 0, lists: [NONE; LISTS as usize] };
        Self {
            time: VirtualTime::new(),
            sets: [0; 4],
            groups: Box::new([group; GROUPS]),
            is_serving: false,
        }
    }

    #[inline(always)]
    fn group(&mut self, index: u32) -> &mut Group {
        &mut self.groups[index as usize % GROUPS]
    }

    #[inline(always)]
    fn clear(&mut self, index: u32, set: usize) {
        self.sets[set] &= !(1 << (index & 63));
    }

    /// Into which set this group belongs, and puts it there.
    #[inline(always)]
    fn place(&mut self, index: u32) {
        let (start, finish) = (self.group(index).start, self.group(index).finish);
        let mut set = usize::from(is_later(start, self.time.now()));
        let larger = above(self.sets[ER], index);
        if larger != 0 && is_later(finish, self.group(larger.trailing_zeros()).finish) {
            set |= EB;
        }
        self.sets[set] |= 1 << (index & 63);
    }

    #[inline(always)]
    fn shift(&mut self, mask: u64, from: usize, to: usize) {
        self.sets[to] |= self.sets[from] & mask;
        self.sets[from] &= !mask;
    }

    /// Groups that begin by now are eligible. Only those can have begun whose lists round away the
    /// highest digit in which virtual time has changed.
    #[inline(always)]
    fn make_eligible(&mut self, before: u64) {
        let now = self.time.now();
        let changed = now ^ before;
        if changed == 0 {
            return;
        }
        let mask = u64::MAX >> changed.leading_zeros();
        for (from, to) in [(IR, ER), (IB, EB)] {
            let mut left = self.sets[from] & mask;
            while left != 0 {
                let index = left.trailing_zeros();
                left &= left - 1;
                if !is_later(self.group(index).start, now) {
                    self.shift(1 << index, from, to);
                }
            }
        }
    }

    /// Somebody goes: if nobody is ready, time leaps to whoever is first.
    #[inline(always)]
    fn go_on(&mut self, before: u64) {
        let ineligible = self.sets[IR] | self.sets[IB];
        if ineligible != 0 {
            if self.sets[ER] == 0 {
                let start = self.group(ineligible.trailing_zeros()).start;
                self.time.raise(start);
            }
            self.make_eligible(before);
        }
        if self.sets[ER] == 0 && self.sets[IR] | self.sets[EB] | self.sets[IB] != 0 {
            self.place_all();
        }
    }

    /// Whatever the sets are, afterwards they are as they should be, and a group is ready if there is
    /// one at all.
    #[cold]
    #[inline(never)]
    fn place_all(&mut self) {
        let all = self.sets.iter().fold(0, |all, set| all | set);
        let now = self.time.now();
        let starts = (0..GROUPS as u32).filter(|index| all >> index & 1 != 0);
        let ahead = starts.map(|index| self.groups[index as usize].start.wrapping_sub(now) as i64);
        if let Some(ahead) = ahead.min().filter(|&ahead| ahead > 0) {
            self.time.raise(now.wrapping_add(ahead as u64));
        }
        self.sets = [0; 4];
        for index in (0..GROUPS as u32).rev().filter(|index| all >> index & 1 != 0) {
            self.place(index);
        }
    }

    /// A group that ended at `finish` has gone on: those that it held up are ready, unless the next one
    /// holds them up as well.
    #[inline(always)]
    fn unblock(&mut self, index: u32, finish: u64) {
        let larger = above(self.sets[ER], index);
        if larger != 0 && !is_later(self.group(larger.trailing_zeros()).finish, finish) {
            return;
        }
        let mask = (1 << (index & 63)) - 1;
        self.shift(mask, EB, ER);
        self.shift(mask, IB, IR);
    }

    /// Puts an entity into the list of its beginning. None begins later than the ring can hold, by the
    /// bounds of the algorithm; if one did, it would be put into the last list.
    #[inline(always)]
    fn insert<I: Intervals>(&mut self, intervals: &mut I, id: u32, rounded: u64) {
        let index = intervals.interval(id).group;
        let group = self.group(index);
        let offset = (rounded.wrapping_sub(group.start) >> (index & 63)).min(LISTS - 1);
        let first = std::mem::replace(group.list(offset), id);
        group.full |= 1 << offset;
        intervals.interval(id).next = first;
    }

    /// An entity whose `start` is set joins the others.
    #[inline(always)]
    pub(crate) fn join<I: Intervals>(&mut self, intervals: &mut I, id: u32) {
        let Interval { start, group: index, .. } = *intervals.interval(id);
        let mut rounded = round_down(start, index);
        let now = self.time.now();
        let is_alone = self.sets == [0; 4] && !self.is_serving;
        let group = self.group(index);
        if group.full != 0 {
            if !is_later(group.start, rounded) {
                return self.insert(intervals, id, rounded);
            }
            let back = group.start.wrapping_sub(rounded) >> (index & 63);
            if back > u64::from(group.full.leading_zeros()) {
                rounded = group.start;
                return self.insert(intervals, id, rounded);
            }
            group.full <<= back;
            group.front = group.front.wrapping_sub(back) % LISTS;
            for set in 0..4 {
                self.clear(index, set);
            }
        } else if is_alone && is_later(rounded, now) {
            self.time.raise(rounded);
        }
        let group = self.group(index);
        group.start = rounded;
        group.finish = rounded.wrapping_add(2 << (index & 63));
        self.place(index);
        self.insert(intervals, id, rounded);
    }

    /// Who goes next.
    #[inline(always)]
    pub(crate) fn first(&mut self) -> Option<u32> {
        let ready = self.sets[ER];
        if ready == 0 {
            return None;
        }
        Some(*self.group(ready.trailing_zeros()).list(0))
    }

    /// The first list of a group has lost its first entity: the group begins with what comes next.
    #[inline(always)]
    fn move_front(&mut self, index: u32) {
        let group = self.group(index);
        let before = group.finish;
        if *group.list(0) != NONE {
            return;
        }
        group.full &= !1;
        if group.full == 0 {
            self.clear(index, ER);
        } else {
            let offset = u64::from(group.full.trailing_zeros());
            group.full >>= offset;
            group.front = (group.front + offset) % LISTS;
            group.start = group.start.wrapping_add(offset << (index & 63));
            group.finish = group.start.wrapping_add(2 << (index & 63));
            self.clear(index, ER);
            self.place(index);
        }
        self.unblock(index, before);
    }

    /// The first has sent so many bytes, its `start` is set anew, and it stays if `goes_on`.
    #[inline(always)]
    pub(crate) fn served<I: Intervals>(
        &mut self,
        intervals: &mut I,
        id: u32,
        bytes: u32,
        goes_on: bool,
    ) {
        let before = self.time.now();
        self.time.advance(bytes);
        let epoch = self.time.epoch();
        let interval = intervals.interval(id);
        let Interval { start, group: index, next, .. } = *interval;
        let rounded = round_down(start, index);
        let group = self.group(index);
        if !goes_on || rounded != group.start {
            interval.epoch = epoch;
            *group.list(0) = next;
            if goes_on {
                self.insert(intervals, id, rounded);
            }
            self.move_front(index);
        }
        self.go_on(before);
    }

    /// Takes the first out, to be served for a while.
    #[inline(always)]
    pub(crate) fn take_first<I: Intervals>(&mut self, intervals: &mut I) -> Option<u32> {
        let id = self.first()?;
        let Interval { group: index, next, .. } = *intervals.interval(id);
        *self.group(index).list(0) = next;
        self.move_front(index);
        self.is_serving = true;
        Some(id)
    }

    /// The entity that was taken out has been served since the moment `since`, and has joined the others
    /// again if it had more to send.
    #[inline(always)]
    pub(crate) fn end_service(&mut self, since: u64) {
        self.is_serving = false;
        self.go_on(since);
    }

    /// When an entity starts that had nothing to send: not before its last packet ended, and not after
    /// those that are ready and larger, lest it be behind all of them.
    #[inline(always)]
    pub(crate) fn start<I: Intervals>(&mut self, intervals: &mut I, id: u32) -> u64 {
        let Interval { start: last, epoch, group: index, .. } = *intervals.interval(id);
        let now = self.time.now();
        if !self.time.is_recent(epoch) {
            return now;
        }
        let limit = round_down(now, index).wrapping_add(1 << (index & 63));
        let rounded = round_down(last, index);
        if is_later(last, now) && !is_later(rounded, limit) {
            return last;
        }
        let larger = above(self.sets[ER], index);
        if larger != 0 {
            let next = self.group(larger.trailing_zeros()).finish;
            if is_later(rounded, next) {
                return if is_later(limit, next) { next } else { limit };
            }
        }
        now
    }

    /// No entity is left.
    pub(crate) fn begin_anew(&mut self) {
        self.time.begin_anew();
    }
}
