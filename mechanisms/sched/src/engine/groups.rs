//! The groups of QFQ: an approximate order of any number of entities in constant time.
//!
//! Entities whose longest packet takes about as much virtual time (up to the same power of two) are of
//! one group. Within a group, beginnings are rounded down to a sixteenth of that power and sorted into a
//! ring of 64 lists, with a bit for each. A group begins as its first list does, and ends as the first
//! entity of that list. There is a word with a bit for each group that has begun by now, and one for the
//! others; of those that have begun, the one that ends first goes next.
//!
//! Source: F. Checconi, L. Rizzo, P. Valente, QFQ: Efficient Packet Scheduling with Tight Guarantees,
//! IEEE/ACM Transactions on Networking 21(3), 2013. There beginnings are rounded to the whole power, a
//! group ends two powers after it begins, and two more words note which groups are held up by others, so
//! that the first bit of one is the next to go. A flow may then be behind by five longest packets and
//! more (7.7 KB of 1500-byte packets on `1-100-10:1500:10`); with finer lists and the ends compared it is
//! behind by less than two, and as only groups with packets are compared, of which there are one to
//! fifteen in practice and 62 at most, the time stays constant.

use super::table::NONE;
use super::virtual_time::{VirtualTime, is_later};

const GROUPS: usize = 64;
const LISTS: u64 = 64;
/// A list holds the beginnings of a sixteenth of its group's power.
const FINER_DIGITS: u32 = 4;

/// What the groups know of an entity.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// When its next packet begins; when it has none, when the last one ended.
    pub(crate) start: u64,
    /// When its next packet ends.
    pub(crate) finish: u64,
    /// When it had no packet any more.
    pub(crate) epoch: u64,
    /// The next in its list.
    next: u32,
    group: u32,
}

impl Interval {
    /// Of an entity whose longest packet takes so long.
    pub(crate) fn new(longest: u64, time: &VirtualTime) -> Self {
        let epoch = time.epoch().wrapping_sub(2); // long ago
        let mut interval = Self { start: 0, finish: 0, epoch, next: NONE, group: 0 };
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
    /// When its first list begins.
    start: u64,
    /// Which lists are not empty; the first is the lowest bit.
    full: u64,
    /// Where the first list is in the ring.
    front: u64,
    /// The first and the last of each list.
    lists: [(u32, u32); LISTS as usize],
}

impl Group {
    /// The list that comes `offset` after the first.
    #[inline(always)]
    fn list(&mut self, offset: u64) -> &mut (u32, u32) {
        &mut self.lists[(self.front.wrapping_add(offset) % LISTS) as usize]
    }

    /// Which list an entity belongs to that begins at `start`. None begins later than the ring can hold,
    /// by the bounds of the algorithm; if one did, it would be put into the last list.
    #[inline(always)]
    fn offset(&self, start: u64, index: u32) -> u64 {
        match is_later(self.start, start) {
            true => 0,
            false => (start.wrapping_sub(self.start) >> digits(index)).min(LISTS - 1),
        }
    }

    /// Puts an entity at the end of a list.
    #[inline(always)]
    fn append<I: Intervals>(&mut self, intervals: &mut I, id: u32, offset: u64) {
        intervals.interval(id).next = NONE;
        self.full |= 1 << offset;
        let (first, last) = self.list(offset);
        let before = std::mem::replace(last, id);
        if *first == NONE {
            *first = id;
        } else {
            intervals.interval(before).next = id;
        }
    }
}

/// How many digits the lists of a group round away.
#[inline(always)]
fn digits(index: u32) -> u32 {
    index.saturating_sub(FINER_DIGITS) & 63
}

/// All groups, their sets, and the virtual time.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) time: VirtualTime,
    /// Groups that have begun by now, and those that begin later.
    eligible: u64,
    waiting: u64,
    /// When each group's first entity ends.
    finishes: Box<[u64; GROUPS]>,
    groups: Box<[Group; GROUPS]>,
    /// Whether an entity was taken out to be served for a while.
    is_serving: bool,
}

impl Groups {
    pub(crate) fn new() -> Self {
        let lists = [(NONE, NONE); LISTS as usize];
        let group = Group { start: 0, full: 0, front: 0, lists };
        Self {
            time: VirtualTime::new(),
            eligible: 0,
            waiting: 0,
            finishes: Box::new([0; GROUPS]),
            groups: Box::new([group; GROUPS]),
            is_serving: false,
        }
    }

    #[inline(always)]
    fn group(&mut self, index: u32) -> &mut Group {
        &mut self.groups[index as usize % GROUPS]
    }

    #[inline(always)]
    fn finish(&mut self, index: u32) -> &mut u64 {
        &mut self.finishes[index as usize % GROUPS]
    }

    /// Puts a group into the set to which it belongs.
    #[inline(always)]
    fn place(&mut self, index: u32) {
        let bit = 1 << (index & 63);
        if is_later(self.group(index).start, self.time.now()) {
            self.waiting |= bit;
            self.eligible &= !bit;
        } else {
            self.eligible |= bit;
            self.waiting &= !bit;
        }
    }

    /// Time has gone on from `before`: groups may have begun. Only those can have whose lists keep the
    /// highest digit that has changed. If none has begun, time leaps to the first that does.
    #[inline(always)]
    fn go_on(&mut self, before: u64) {
        if self.waiting == 0 {
            return;
        }
        if self.eligible == 0 && !self.is_serving {
            return self.leap();
        }
        let changed = self.time.now() ^ before;
        if changed == 0 {
            return;
        }
        let kept = u64::MAX >> changed.leading_zeros();
        let mut left = self.waiting & ((kept << FINER_DIGITS) | ((1 << FINER_DIGITS) - 1));
        while left != 0 {
            self.place(left.trailing_zeros());
            left &= left - 1;
        }
        if self.eligible == 0 && !self.is_serving {
            self.leap();
        }
    }

    /// To when the first of the waiting groups begins.
    #[inline(never)]
    fn leap(&mut self) {
        let now = self.time.now();
        let mut ahead = i64::MAX;
        let mut left = self.waiting;
        while left != 0 {
            let start = self.group(left.trailing_zeros()).start;
            ahead = ahead.min(start.wrapping_sub(now) as i64);
            left &= left - 1;
        }
        self.time.raise(now.wrapping_add(ahead.max(0) as u64));
        let mut left = self.waiting;
        while left != 0 {
            self.place(left.trailing_zeros());
            left &= left - 1;
        }
    }

    /// When an entity starts that had nothing to send: not before its last packet ended.
    #[inline(always)]
    pub(crate) fn start(&self, interval: &Interval) -> u64 {
        let now = self.time.now();
        let is_ahead = self.time.is_recent(interval.epoch) && is_later(interval.start, now);
        if is_ahead { interval.start } else { now }
    }

    /// An entity whose `start` and `finish` are set joins the others.
    #[inline(always)]
    pub(crate) fn join<I: Intervals>(&mut self, intervals: &mut I, id: u32) {
        let Interval { start, finish, group: index, .. } = *intervals.interval(id);
        let rounded = start >> digits(index) << digits(index);
        let is_alone = self.eligible | self.waiting == 0 && !self.is_serving;
        let group = self.group(index);
        if group.full != 0 {
            let back = group.start.wrapping_sub(rounded) >> digits(index);
            if !is_later(group.start, rounded) || back > group.full.leading_zeros().into() {
                let offset = group.offset(rounded, index);
                return group.append(intervals, id, offset);
            }
            group.full <<= back;
            group.front = group.front.wrapping_sub(back);
        }
        group.start = rounded;
        group.append(intervals, id, 0);
        *self.finish(index) = finish;
        if is_alone {
            self.time.raise(rounded);
        }
        self.place(index);
    }

    /// The group whose first entity goes next.
    #[inline(always)]
    fn first_group(&self) -> Option<u32> {
        if self.eligible == 0 {
            return None;
        }
        let mut best = self.eligible.trailing_zeros();
        let mut left = self.eligible & (self.eligible - 1);
        while left != 0 {
            let index = left.trailing_zeros();
            let (ours, theirs) =
                (self.finishes[best as usize % GROUPS], self.finishes[index as usize % GROUPS]);
            best = if is_later(ours, theirs) { index } else { best };
            left &= left - 1;
        }
        Some(best)
    }

    /// Who goes next.
    #[inline(always)]
    pub(crate) fn first(&mut self) -> Option<u32> {
        let index = self.first_group()?;
        Some(self.group(index).list(0).0)
    }

    /// The first list of a group loses its first entity: the group begins with what comes next.
    #[inline(always)]
    fn remove_first<I: Intervals>(&mut self, intervals: &mut I, index: u32, next: u32) {
        let group = self.group(index);
        group.list(0).0 = next;
        let mut first = next;
        if next == NONE {
            group.list(0).1 = NONE;
            group.full &= !1;
            if group.full == 0 {
                self.eligible &= !(1 << (index & 63));
                return;
            }
            let offset = u64::from(group.full.trailing_zeros());
            group.full >>= offset;
            group.front = group.front.wrapping_add(offset);
            group.start = group.start.wrapping_add(offset << digits(index));
            first = group.list(0).0;
            self.place(index);
        }
        *self.finish(index) = intervals.interval(first).finish;
    }

    /// The first has sent so many bytes, its `start` and `finish` are set anew, and it stays if
    /// `goes_on`.
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
        let Interval { start, finish, group: index, next, .. } = *interval;
        if !goes_on {
            interval.epoch = epoch;
            self.remove_first(intervals, index, next);
        } else {
            let group = self.group(index);
            let offset = group.offset(start, index);
            if next == NONE && offset == 0 {
                // Alone in its list and to be there again, it stays.
                *self.finish(index) = finish;
            } else {
                group.append(intervals, id, offset);
                self.remove_first(intervals, index, next);
            }
        }
        self.go_on(before);
    }

    /// Takes the first out, to be served for a while.
    #[inline(always)]
    pub(crate) fn take_first<I: Intervals>(&mut self, intervals: &mut I) -> Option<u32> {
        let id = self.first()?;
        let Interval { group: index, next, .. } = *intervals.interval(id);
        self.remove_first(intervals, index, next);
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

    /// No entity is left.
    pub(crate) fn begin_anew(&mut self) {
        self.time.begin_anew();
    }
}
