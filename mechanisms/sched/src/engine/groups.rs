//! Groups of QFQ: an approximate order of any number of entities in constant time.
//!
//! Entities whose longest packets take about the same virtual time (up to the same power of two)
//! form a group. Within a group, virtual start times are rounded down to a sixteenth of that power
//! and sorted into a ring of 64 lists, with a bit for each list. A group's start time is that of
//! its first list, and its finish time that of the first entity in this list. One word has a bit
//! for each group that is eligible (has started by now), another for each group that is waiting.
//! The eligible group with the earliest finish time is served next.
//!
//! Source: F. Checconi, L. Rizzo, P. Valente, QFQ: Efficient Packet Scheduling with Tight
//! Guarantees, IEEE/ACM Transactions on Networking 21(3), 2013. In the paper, start times are
//! rounded to the whole power, a group finishes two powers after it starts, and two more words
//! record which groups are blocked by others, so that the first bit of one word is the next group.
//! There a flow may lag by five longest packets and more (7.7 KB of 1500-byte packets on
//! `1-100-10:1500:10`); with finer lists and compared finish times it lags by less than two. Only
//! groups with packets are compared, of which there are one to fifteen in practice and at most 62,
//! so the time stays constant.

use super::table::NO_FLOW;
use super::virtual_time::{VirtualTime, is_later};

/// Number of groups of entities: flows or aggregates.
const GROUPS: usize = 64;
/// Number of lists in each group.
const LISTS: u64 = 64;
/// Base-2 logarithm of 16, the number of lists that divide 2^`i` units of start time in group `i`.
const FINER_BITS: u32 = 4;

/// Virtual start and finish times of an entity: a flow or an aggregate of flows. It also has the
/// entity's position in [`Groups`].
#[derive(Clone, Copy, Debug)]
pub struct VirtualInterval {
    /// Virtual start time of the entity's next packet. If there is none, virtual finish time of its
    /// last packet.
    pub(crate) start: u64,
    /// Virtual finish time of the entity's next packet.
    pub(crate) finish: u64,
    /// Epoch of the virtual time in which the entity last became idle.
    pub(crate) epoch: u64,
    /// Index of the next entity in the same list, or [`NO_FLOW`].
    next: u32,
    /// Index of the entity's group.
    group: u32,
}

impl VirtualInterval {
    /// Creates the state of an entity whose longest packet takes the virtual time `longest`.
    pub(crate) fn new(longest: u64, time: &VirtualTime) -> Self {
        let epoch = time.epoch().wrapping_sub(2); // older than any recent epoch
        let mut interval = Self { start: 0, finish: 0, epoch, next: NO_FLOW, group: 0 };
        interval.set_longest(longest);
        interval
    }

    /// Sets the virtual time of the entity's longest packet. The entity must not be in a list.
    pub(crate) fn set_longest(&mut self, longest: u64) {
        self.group = u64::BITS - longest.saturating_sub(1).leading_zeros();
        debug_assert!(self.group < GROUPS as u32 - 2);
    }
}

/// Access to the [`VirtualInterval`] of each entity by index.
pub(crate) trait IntervalTable {
    fn interval(&mut self, id: u32) -> &mut VirtualInterval;
}

/// Entities whose longest packets take about the same virtual time, in lists by start time.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Virtual start time of the group's first list.
    start: u64,
    /// Bitmap of the non-empty lists; bit 0 stands for the first list.
    non_empty: u64,
    /// Index of the first list in `lists`; indices wrap around.
    first_list: u64,
    /// Indices of the first and the last entity of each list.
    lists: [(u32, u32); LISTS as usize],
}

impl Group {
    /// Returns the first and the last entity of the list at `offset` from the first list.
    #[inline(always)]
    fn list(&mut self, offset: u64) -> &mut (u32, u32) {
        &mut self.lists[(self.first_list.wrapping_add(offset) % LISTS) as usize]
    }

    /// Returns the offset, from the first list, of the list for this start time. By the algorithm's
    /// bounds no start time lies beyond the last list; one that did would be put into the last
    /// list.
    #[inline(always)]
    fn offset(&self, start: u64, index: u32) -> u64 {
        match is_later(self.start, start) {
            true => 0,
            false => (start.wrapping_sub(self.start) >> rounded_bits(index)).min(LISTS - 1),
        }
    }

    /// Appends entity `id` to the list at `offset` from the first list.
    #[inline(always)]
    fn append<I: IntervalTable>(&mut self, intervals: &mut I, id: u32, offset: u64) {
        intervals.interval(id).next = NO_FLOW;
        self.non_empty |= 1 << offset;
        let (first, last) = self.list(offset);
        let before = std::mem::replace(last, id);
        if *first == NO_FLOW {
            *first = id;
        } else {
            intervals.interval(before).next = id;
        }
    }
}

/// Returns the number of low bits of a start time that the lists of group `index` ignore.
#[inline(always)]
fn rounded_bits(index: u32) -> u32 {
    index.saturating_sub(FINER_BITS) & 63
}

/// All groups of entities, bitmaps of the eligible and of the waiting groups, and the virtual time.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) time: VirtualTime,
    /// Bitmap of the groups whose start time has been reached.
    eligible: u64,
    /// Bitmap of the groups that start later.
    waiting: u64,
    /// Finish time of each group's first entity.
    finishes: Box<[u64; GROUPS]>,
    groups: Box<[Group; GROUPS]>,
    /// `true` while an entity that [`take_first`](Self::take_first) removed is being served.
    is_serving: bool,
}

impl Groups {
    pub(crate) fn new() -> Self {
        let lists = [(NO_FLOW, NO_FLOW); LISTS as usize];
        let group = Group { start: 0, non_empty: 0, first_list: 0, lists };
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

    /// Returns the finish time of the first entity of group `index`.
    #[inline(always)]
    fn finish(&mut self, index: u32) -> &mut u64 {
        &mut self.finishes[index as usize % GROUPS]
    }

    /// Moves a group's bit to the eligible or the waiting bitmap, by its start time.
    #[inline(always)]
    fn update_group(&mut self, index: u32) {
        let bit = 1 << (index & 63);
        if is_later(self.group(index).start, self.time.now()) {
            self.waiting |= bit;
            self.eligible &= !bit;
        } else {
            self.eligible |= bit;
            self.waiting &= !bit;
        }
    }

    /// Moves groups that have started since `before` to the eligible bitmap. Only groups whose
    /// lists keep the highest digit that has changed can have started. If none is eligible, the
    /// time jumps to the first start.
    #[inline(always)]
    fn update_eligible(&mut self, before: u64) {
        if self.waiting == 0 {
            return;
        }
        if self.eligible == 0 && !self.is_serving {
            return self.jump_to_first_start();
        }
        let changed = self.time.now() ^ before;
        if changed == 0 {
            return;
        }
        let unchanged = u64::MAX >> changed.leading_zeros();
        let mut remaining = self.waiting & ((unchanged << FINER_BITS) | ((1 << FINER_BITS) - 1));
        while remaining != 0 {
            self.update_group(remaining.trailing_zeros());
            remaining &= remaining - 1;
        }
        if self.eligible == 0 && !self.is_serving {
            self.jump_to_first_start();
        }
    }

    /// Advances the virtual time to the earliest start of the waiting groups.
    #[inline(never)]
    fn jump_to_first_start(&mut self) {
        let now = self.time.now();
        let mut ahead = i64::MAX;
        let mut remaining = self.waiting;
        while remaining != 0 {
            let start = self.group(remaining.trailing_zeros()).start;
            ahead = ahead.min(start.wrapping_sub(now) as i64);
            remaining &= remaining - 1;
        }
        self.time.raise_to(now.wrapping_add(ahead.max(0) as u64));
        let mut remaining = self.waiting;
        while remaining != 0 {
            self.update_group(remaining.trailing_zeros());
            remaining &= remaining - 1;
        }
    }

    /// Returns the virtual start time of an entity that was idle. It is the later of the current
    /// virtual time and the finish time of the entity's last packet.
    #[inline(always)]
    pub(crate) fn start_time(&self, interval: &VirtualInterval) -> u64 {
        let is_ahead = self.time.is_ahead(interval.start, interval.epoch);
        if is_ahead { interval.start } else { self.time.now() }
    }

    /// Adds an entity, whose `start` and `finish` the caller has set, to its group.
    #[inline(always)]
    pub(crate) fn insert_entity<I: IntervalTable>(&mut self, intervals: &mut I, id: u32) {
        let VirtualInterval { start, finish, group: index, .. } = *intervals.interval(id);
        let rounded = start >> rounded_bits(index) << rounded_bits(index);
        let was_empty = self.eligible | self.waiting == 0 && !self.is_serving;
        let group = self.group(index);
        if group.non_empty != 0 {
            let lists_back = group.start.wrapping_sub(rounded) >> rounded_bits(index);
            if !is_later(group.start, rounded)
                || lists_back > group.non_empty.leading_zeros().into()
            {
                let offset = group.offset(rounded, index);
                return group.append(intervals, id, offset);
            }
            group.non_empty <<= lists_back;
            group.first_list = group.first_list.wrapping_sub(lists_back);
        }
        group.start = rounded;
        group.append(intervals, id, 0);
        *self.finish(index) = finish;
        if was_empty {
            self.time.raise_to(rounded);
        }
        self.update_group(index);
    }

    /// Returns the eligible group with the earliest finish time; `None` if no group is eligible.
    #[inline(always)]
    fn first_group(&self) -> Option<u32> {
        if self.eligible == 0 {
            return None;
        }
        let mut best = self.eligible.trailing_zeros();
        let mut remaining = self.eligible & (self.eligible - 1);
        while remaining != 0 {
            let index = remaining.trailing_zeros();
            let (best_finish, other_finish) =
                (self.finishes[best as usize % GROUPS], self.finishes[index as usize % GROUPS]);
            best = if is_later(best_finish, other_finish) { index } else { best };
            remaining &= remaining - 1;
        }
        Some(best)
    }

    /// Returns the entity to serve next; `None` if no group is eligible.
    #[inline(always)]
    pub(crate) fn first_entity(&mut self) -> Option<u32> {
        let index = self.first_group()?;
        Some(self.group(index).list(0).0)
    }

    /// Removes the first entity of a group's first list, and updates the group's start and finish
    /// times.
    #[inline(always)]
    fn remove_first<I: IntervalTable>(&mut self, intervals: &mut I, index: u32, next: u32) {
        let group = self.group(index);
        group.list(0).0 = next;
        let mut first = next;
        if next == NO_FLOW {
            group.list(0).1 = NO_FLOW;
            group.non_empty &= !1;
            if group.non_empty == 0 {
                self.eligible &= !(1 << (index & 63));
                return;
            }
            let offset = u64::from(group.non_empty.trailing_zeros());
            group.non_empty >>= offset;
            group.first_list = group.first_list.wrapping_add(offset);
            group.start = group.start.wrapping_add(offset << rounded_bits(index));
            first = group.list(0).0;
            self.update_group(index);
        }
        *self.finish(index) = intervals.interval(first).finish;
    }

    /// Takes an entity out of its group, at any position. The caller may add it again, and then
    /// calls [`end_change`](Self::end_change).
    #[cold]
    pub(crate) fn take_out<I: IntervalTable>(&mut self, intervals: &mut I, id: u32) {
        let VirtualInterval { group: index, next, .. } = *intervals.interval(id);
        if self.group(index).list(0).0 == id {
            self.remove_first(intervals, index, next);
            if self.group(index).non_empty == 0 {
                self.waiting &= !(1 << (index & 63));
            }
            return;
        }
        let group = self.group(index);
        let mut remaining = group.non_empty;
        while remaining != 0 {
            let offset = u64::from(remaining.trailing_zeros());
            remaining &= remaining - 1;
            let (mut before, mut at) = (NO_FLOW, group.list(offset).0);
            while at != NO_FLOW && at != id {
                before = at;
                at = intervals.interval(at).next;
            }
            if at == NO_FLOW {
                continue;
            }
            let (first, last) = group.list(offset);
            if *last == id {
                *last = before;
            }
            match before {
                NO_FLOW => *first = next,
                before => intervals.interval(before).next = next,
            }
            if *first == NO_FLOW {
                group.non_empty &= !(1 << offset);
            }
            return;
        }
        debug_assert!(false, "entity {id} is in no list of its group");
    }

    /// If no group is eligible, advances the virtual time to the earliest start of a waiting group.
    pub(crate) fn end_change(&mut self) {
        if self.eligible == 0 && self.waiting != 0 && !self.is_serving {
            self.jump_to_first_start();
        }
    }

    /// Records that the first entity, `id`, has sent `bytes` bytes, and advances the virtual time.
    /// The caller has updated the entity's `start` and `finish`; the entity stays if `has_more`.
    #[inline(always)]
    pub(crate) fn record_service<I: IntervalTable>(
        &mut self,
        intervals: &mut I,
        id: u32,
        bytes: u32,
        has_more: bool,
    ) {
        let before = self.time.now();
        self.time.advance(bytes);
        let epoch = self.time.epoch();
        let interval = intervals.interval(id);
        let VirtualInterval { start, finish, group: index, next, .. } = *interval;
        if !has_more {
            interval.epoch = epoch;
            self.remove_first(intervals, index, next);
        } else {
            let group = self.group(index);
            let offset = group.offset(start, index);
            if next == NO_FLOW && offset == 0 {
                // Alone in its list, and to be put there again: it stays.
                *self.finish(index) = finish;
            } else {
                group.append(intervals, id, offset);
                self.remove_first(intervals, index, next);
            }
        }
        self.update_eligible(before);
    }

    /// Removes and returns the entity to serve next, to be served for several packets.
    #[inline(always)]
    pub(crate) fn take_first<I: IntervalTable>(&mut self, intervals: &mut I) -> Option<u32> {
        let id = self.first_entity()?;
        let VirtualInterval { group: index, next, .. } = *intervals.interval(id);
        self.remove_first(intervals, index, next);
        self.is_serving = true;
        Some(id)
    }

    /// Records that the entity from [`take_first`](Self::take_first) has been served. `since` is
    /// the virtual time at which it was removed. If it has more packets, the caller has added it
    /// again.
    #[inline(always)]
    pub(crate) fn end_service(&mut self, since: u64) {
        self.is_serving = false;
        self.update_eligible(since);
    }

    /// Ends the busy period of the virtual time; called when the last packet has left,
    /// unless it was skipped as a lone packet.
    pub(crate) fn end_busy_period(&mut self) {
        self.time.end_busy_period();
    }
}
