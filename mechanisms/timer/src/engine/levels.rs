//! The wheel's levels of slots; each slot is a chain of blocks of entries.
//!
//! ```text
//!             10        9       ...      2        1        0      digits of six bits of a deadline
//!  base     [ 0 ]    [ 17 ]            [ 40 ]   [ 3 ]    [ 61 ]
//!  entry    [ 0 ]    [ 17 ]            [ 52 ]   [ 9 ]    [ 20 ]
//!                                        │ the highest digit that differs from the base's: level 2
//!                                        ▼
//!  level 2                    slots 0 .. [ 52 ] .. 63   everything here comes after levels 0 and 1
//!                                        │
//!                                        ▼ newest block first
//!                             [ 252 entries ]──▶[ 252 entries ]──▶[ 28 entries ]
//! ```
//!
//! Eleven digits cover 64 bits, so that no deadline is out of range and the wheel never turns
//! around.

use super::entry::TimerEntry;
use crate::raw::prefetch_for_read;
use std::hint::select_unpredictable;
use std::ops::Range;

/// Number of bits of a digit of a deadline.
const DIGIT_BITS: u32 = 6;
/// Number of slots of a level, one for each value of its digit.
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// Number of levels, one for each digit of a deadline.
const LEVELS_COUNT: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Number of slots of all levels.
const SLOTS_COUNT: usize = LEVELS_COUNT * SLOTS_PER_LEVEL;
/// Index of a slot behind those of the levels, which is always full: for deadlines below the
/// earliest one that an added entry may have.
pub(super) const LATE_SLOT: usize = SLOTS_COUNT;
/// Number of entries in a cache line.
const ENTRIES_PER_LINE: usize = 4;
/// Number of entries in the first block of a slot. It is small, as many slots have few entries.
const SMALL_BLOCK_ENTRIES: usize = 7 * ENTRIES_PER_LINE;
/// Number of entries in the other blocks of a slot, a multiple of [`SMALL_BLOCK_ENTRIES`].
///
/// They take an odd number of cache lines: lines at the same position in the blocks of several
/// slots, which are filled equally fast, would otherwise compete for the same sets of a cache.
const LARGE_BLOCK_ENTRIES: usize = 9 * SMALL_BLOCK_ENTRIES;
/// Maximum number of blocks of a slot whose entries are sorted at once. The entries of a larger
/// slot move to lower levels first.
const SORTED_BLOCKS_MAX: usize = 3;
/// Maximum number of entries that [`WheelLevels::drain_first_slot`] takes from one slot.
pub(super) const SORTED_ENTRIES_MAX: usize = SORTED_BLOCKS_MAX * LARGE_BLOCK_ENTRIES;
/// Number of entries to sort below which the wheel opens a further slot, if the slot is due.
pub(super) const SORTED_ENTRIES_TARGET: usize = 96;
/// Total capacity of the blocks other than the newest of each slot above which a wheel with few
/// timers is swept of stale entries.
const CROWDED_ENTRIES_MIN: usize = 252;
/// Number of checked entries after which the sweep for a new block ends, even if it has freed less
/// than that block.
const SWEPT_ENTRIES: usize = 4 * LARGE_BLOCK_ENTRIES;
/// Value of [`Link::first`] for no block.
const NO_BLOCK: u32 = u32::MAX;

/// Reference to a block of entries, in the chain of a slot's blocks.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Index of the block's first entry in [`WheelLevels::entries`], or [`NO_BLOCK`]. It identifies
    /// the block.
    first: u32,
    /// Number of entries in the block.
    len: u32,
}

impl Link {
    /// Link to no block.
    const NONE: Self = Self { first: NO_BLOCK, len: 0 };

    /// Returns the indices of the block's entries; none for a link to no block.
    #[inline]
    fn range(self) -> Range<usize> {
        let first = self.first as usize;
        if self.first == NO_BLOCK { 0..0 } else { first..first + self.len as usize }
    }
}

/// Description of a block.
#[derive(Clone, Copy, Debug)]
struct BlockHeader {
    /// Next block of the slot's chain, or of the list of free blocks. In that list, `len` is
    /// unused.
    next: Link,
    /// Number of entries that the block has room for.
    capacity: u32,
}

/// Chain of blocks of entries, newest block first.
#[derive(Clone, Copy, Debug)]
struct Slot {
    newest: Link,
    /// Number of entries that the newest block has room for. 0 without a block, which then counts
    /// as full: this saves a test on the most common path.
    capacity: u32,
    /// Number of blocks.
    blocks_count: u32,
}

impl Slot {
    const EMPTY: Self = Self { newest: Link::NONE, capacity: 0, blocks_count: 0 };
}

/// Place of a deadline's digit, by the highest bit in which the deadline differs from the base.
#[derive(Clone, Copy)]
struct DigitPlace {
    /// Index of the first slot of the digit's level.
    first_slot: u16,
    /// Number of bits below the digit.
    shift: u16,
}

/// Places of the digits that contain each bit.
const DIGIT_PLACES: [DigitPlace; u64::BITS as usize] = {
    let mut places = [DigitPlace { first_slot: 0, shift: 0 }; u64::BITS as usize];
    let mut bit = 0;
    while bit < places.len() {
        let level = bit / DIGIT_BITS as usize;
        places[bit] = DigitPlace {
            first_slot: (level * SLOTS_PER_LEVEL) as u16,
            shift: (level * DIGIT_BITS as usize) as u16,
        };
        bit += 1;
    }
    places
};

/// Position of [`WheelLevels::sweep`] in the chains of blocks.
#[derive(Clone, Copy, Debug)]
struct SweepPosition {
    /// Index of the slot whose chain is processed.
    slot: usize,
    /// Block before the next one to process, as in [`Link::first`]. It is [`NO_BLOCK`] if the next
    /// one is the first of the slot.
    before: u32,
    /// `true` if the records of the timers in the next block were prefetched.
    is_prefetched: bool,
}

/// Earliest slot that contains entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstSlot {
    /// Index of the slot's level.
    level: usize,
    /// Index of the slot among those of all levels.
    slot: usize,
    /// Lower bound of the deadlines in the slot.
    pub(super) lowest_ns: u64,
    /// Upper bound of the deadlines in the slot.
    highest_ns: u64,
}

/// Entries of future timers, in slots by deadline; each slot is a chain of blocks.
#[derive(Debug)]
pub(super) struct WheelLevels {
    /// Time in ns with which a deadline is compared to find its level. The level is that of the
    /// highest digit in which the two differ.
    base_ns: u64,
    /// Earliest deadline that an added entry may have, in ns. Equal to `base_ns`, or greater by one
    /// once the slot of `base_ns` itself was emptied.
    deadline_ns_min: u64,
    /// Bitmap of the levels that contain entries.
    levels: u32,
    /// For each level, a bitmap of the slots that contain entries.
    occupied: [u64; LEVELS_COUNT],
    /// For each level, a bitmap of the slots with more than one block.
    chained: [u64; LEVELS_COUNT],
    /// Slots of all levels, and [`LATE_SLOT`].
    slots: Box<[Slot; SLOTS_COUNT + 1]>,
    /// Entries of all blocks.
    entries: Vec<TimerEntry>,
    /// Headers of the blocks, in the order of the blocks; of each large block, only the first is
    /// used. They are apart from the entries, so that the block after the next can be prefetched.
    headers: Vec<BlockHeader>,
    /// First block in the list of free small blocks, as in [`Link::first`].
    first_free_small: u32,
    /// First block in the list of free large blocks, as in [`Link::first`].
    first_free_large: u32,
    /// Total capacity of all blocks that are not the newest of their slot.
    older_capacity: usize,
    sweep_position: SweepPosition,
}

impl WheelLevels {
    pub(super) fn new(now_ns: u64, timers_reserved: usize) -> Self {
        let entries_reserved = if timers_reserved == 0 { 0 } else { entries_max(timers_reserved) };
        Self {
            base_ns: now_ns,
            deadline_ns_min: now_ns,
            levels: 0,
            occupied: [0; LEVELS_COUNT],
            chained: [0; LEVELS_COUNT],
            slots: Box::new([Slot::EMPTY; SLOTS_COUNT + 1]),
            entries: Vec::with_capacity(entries_reserved),
            headers: Vec::with_capacity(entries_reserved / SMALL_BLOCK_ENTRIES),
            first_free_small: NO_BLOCK,
            first_free_large: NO_BLOCK,
            older_capacity: 0,
            sweep_position: SweepPosition { slot: 0, before: NO_BLOCK, is_prefetched: false },
        }
    }

    /// Returns the earliest deadline that an added entry may have, in ns.
    pub(super) fn deadline_ns_min(&self) -> u64 {
        self.deadline_ns_min
    }

    /// Adds an entry to its slot and returns the slot's index. Fails with the index if the newest
    /// block is full: the caller must then use [`push_in_new_block`](Self::push_in_new_block).
    /// Fails with [`LATE_SLOT`] if the deadline is below
    /// [`deadline_ns_min`](Self::deadline_ns_min).
    ///
    /// Has one branch for both, so that the compiler can inline it where a timer is started.
    #[inline(always)]
    pub(super) fn try_push(&mut self, entry: TimerEntry) -> Result<usize, usize> {
        let is_late = entry.deadline_ns < self.deadline_ns_min;
        let slot = self.slot_of(entry.deadline_ns);
        self.try_push_to_slot(select_unpredictable(is_late, LATE_SLOT, slot), entry)
    }

    /// Does [`try_push`](Self::try_push) with the index of the entry's slot.
    ///
    /// Prefetches the cache line of the entries that will follow: their stores would wait for it in
    /// a block that was last used long ago.
    #[inline]
    fn try_push_to_slot(&mut self, index: usize, entry: TimerEntry) -> Result<usize, usize> {
        let slot = &mut self.slots[index];
        if slot.newest.len >= slot.capacity {
            return Err(index);
        }
        let at = (slot.newest.first + slot.newest.len) as usize;
        self.entries[at] = entry;
        slot.newest.len += 1;
        prefetch_for_read(self.entries.as_ptr().wrapping_add(at + ENTRIES_PER_LINE));
        Ok(index)
    }

    /// Adds an entry to its slot, in a new block if necessary.
    #[inline]
    pub(super) fn push(&mut self, entry: TimerEntry) {
        self.push_to_slot(self.slot_of(entry.deadline_ns), entry);
    }

    /// Does [`push`](Self::push) with the index of the entry's slot.
    #[inline]
    fn push_to_slot(&mut self, index: usize, entry: TimerEntry) {
        debug_assert_eq!(
            index,
            self.slot_of(entry.deadline_ns),
            "an entry was added to another slot"
        );
        if self.try_push_to_slot(index, entry).is_err() {
            self.push_in_new_block(index, entry);
        }
    }

    /// Removes the newest entry of slot `index`. The slot keeps its block even if that is empty, as
    /// a caller that starts and cancels alternately needs it again.
    #[inline]
    pub(super) fn remove_newest(&mut self, index: usize) {
        let newest = &mut self.slots[index].newest;
        debug_assert!(newest.len > 0, "remove_newest() was called for an empty slot");
        newest.len -= 1;
    }

    /// Returns the earliest slot with entries; `None` if there are no entries.
    pub(super) fn first_slot(&self) -> Option<FirstSlot> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros() as usize;
        let (lowest_ns, highest_ns) = self.slot_bounds_ns(level, digit);
        Some(FirstSlot { level, slot: level * SLOTS_PER_LEVEL + digit, lowest_ns, highest_ns })
    }

    /// Returns the lower and the upper bound of the deadlines in a slot, in ns.
    fn slot_bounds_ns(&self, level: usize, digit: usize) -> (u64, u64) {
        let shift = DIGIT_BITS * level as u32;
        // Deadlines on this level agree with the base in all higher digits.
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        let lowest_ns = (self.base_ns & above) | ((digit as u64) << shift);
        (lowest_ns, lowest_ns | ((1 << shift) - 1))
    }

    /// Moves the entries of the earliest slot to `unsorted`, or to lower levels if they are many.
    /// Returns the number of entries moved to lower levels. On level 0, leaves what exceeds
    /// [`SORTED_ENTRIES_MAX`].
    ///
    /// Calls `prefetch_timer` for each entry moved to `unsorted`. The next block is fetched
    /// meanwhile.
    pub(super) fn drain_first_slot(
        &mut self,
        first: FirstSlot,
        unsorted: &mut Vec<TimerEntry>,
        mut prefetch_timer: impl FnMut(TimerEntry),
    ) -> usize {
        if self.slots[first.slot].newest.len == 0 {
            self.drop_head(first.slot); // an empty block: nothing to open
            return 0;
        }
        let is_last_digit = first.level == 0;
        if is_last_digit || self.slots[first.slot].blocks_count as usize <= SORTED_BLOCKS_MAX {
            for _ in 0..SORTED_BLOCKS_MAX {
                let head = self.slots[first.slot].newest;
                if head.first == NO_BLOCK {
                    break;
                }
                self.prefetch(self.next_link(head));
                let entries = &self.entries[head.range()];
                entries.iter().for_each(|&entry| prefetch_timer(entry));
                unsorted.extend_from_slice(entries);
                self.drop_head(first.slot);
            }
            let has_rest = self.slots[first.slot].newest.first != NO_BLOCK;
            self.base_ns = first.highest_ns;
            // The rest of a slot of the last digit all has the same deadline.
            self.deadline_ns_min = self.base_ns.saturating_add(u64::from(!has_rest));
            return 0;
        }
        self.base_ns = first.lowest_ns;
        self.deadline_ns_min = first.lowest_ns;
        // Deadlines in this slot agree with the base down to its level. Those that also agree in
        // the digit below, which is 0 in the base, belong farther down.
        let level_below = first.level - 1;
        let shift = level_below as u32 * DIGIT_BITS;
        self.cascade(first.slot, |levels, deadline_ns| {
            match (deadline_ns >> shift) as usize % SLOTS_PER_LEVEL {
                0 => levels.slot_of(deadline_ns),
                digit => level_below * SLOTS_PER_LEVEL + digit,
            }
        })
    }

    /// Moves all entries of slot `index` to the slots of their deadlines, which must be other
    /// slots. `slot_of` returns the same as [`slot_of`](Self::slot_of). Returns the number of
    /// entries.
    #[inline]
    fn cascade(&mut self, index: usize, slot_of: impl Fn(&Self, u64) -> usize) -> usize {
        let mut moved = 0;
        self.prefetch(self.next_link(self.slots[index].newest));
        loop {
            let head = self.slots[index].newest;
            if head.first == NO_BLOCK {
                return moved;
            }
            // Two blocks ahead, as the next one may be small.
            self.prefetch(self.next_link(self.next_link(head)));
            for at in head.range() {
                let entry = self.entries[at];
                self.push_to_slot(slot_of(self, entry.deadline_ns), entry);
            }
            self.drop_head(index);
            moved += head.len as usize;
        }
    }

    /// Returns the link to the block after that of `link`; [`Link::NONE`] if there is none.
    #[inline]
    fn next_link(&self, link: Link) -> Link {
        self.headers.get(header_index(link.first)).map_or(Link::NONE, |header| header.next)
    }

    /// Advances `base_ns` to `now_ns`; all entries up to this time must have been removed.
    pub(super) fn advance(&mut self, now_ns: u64) {
        // Every entry is in a slot that begins after now_ns. So now_ns agrees with the base in the
        // digits above the entry's level, and is below the entry in that level's digit: the highest
        // digit in which the entry differs from now_ns is the one in which it differs from the
        // base, and it stays where it is.
        if now_ns > self.base_ns {
            self.base_ns = now_ns;
            self.deadline_ns_min = now_ns;
        }
    }

    /// Moves `base_ns` back to `now_ns`, so that deadlines from `now_ns` on can be added again.
    /// They could not, because slots were opened before their time. No effect if such deadlines may
    /// be added already.
    pub(super) fn rewind(&mut self, now_ns: u64) {
        if now_ns >= self.base_ns {
            return;
        }
        // Entries differ from now_ns in the digit in which the base does, or in a higher one. Only
        // entries on lower levels, which agree with the base in that digit, must move.
        let level = self.slot_of(now_ns) / SLOTS_PER_LEVEL;
        self.base_ns = now_ns;
        self.deadline_ns_min = now_ns;
        for level in 0..level {
            while self.occupied[level] != 0 {
                let digit = self.occupied[level].trailing_zeros() as usize;
                let slot = level * SLOTS_PER_LEVEL + digit;
                self.cascade(slot, Self::slot_of);
            }
        }
    }

    /// Returns `true` if so many blocks are in use that many entries must be stale. `timers_count`
    /// is an upper bound of the number of running timers.
    pub(super) fn is_crowded(&self, timers_count: usize) -> bool {
        // The newest block of a slot may be almost empty. Of the others, repeated sweeps leave no
        // two neighbours that fit into one.
        self.older_capacity > CROWDED_ENTRIES_MIN + 2 * timers_count
    }

    /// Removes stale entries, for which `keep` returns `false`, if there are many blocks: until as
    /// much is free as a new block takes, or enough entries were checked. `timers_count` is an
    /// upper bound of the number of running timers.
    pub(super) fn sweep_for_new_block(
        &mut self,
        timers_count: usize,
        prefetch_timer: impl Fn(TimerEntry),
        keep: impl Fn(TimerEntry) -> bool,
    ) {
        let older_target = self.older_capacity.saturating_sub(LARGE_BLOCK_ENTRIES);
        let mut checked_count = 0;
        while self.is_crowded(timers_count)
            && self.older_capacity > older_target
            && checked_count < SWEPT_ENTRIES
        {
            checked_count += self.sweep(&prefetch_timer, &keep);
        }
    }

    /// Removes the entries for which `keep` returns `false` from the next block. Returns the number
    /// of entries checked. Successive calls cycle over all slots with more than one block.
    ///
    /// A block takes two calls; the first only prefetches by `prefetch_timer` what `keep` will
    /// read.
    fn sweep(
        &mut self,
        prefetch_timer: impl Fn(TimerEntry),
        keep: impl Fn(TimerEntry) -> bool,
    ) -> usize {
        let SweepPosition { slot: index, before, is_prefetched } = self.sweep_position;
        let link = match before {
            NO_BLOCK => self.slots[index].newest,
            before => self.headers[header_index(before)].next,
        };
        if link.first == NO_BLOCK {
            let slot = self.next_chained(index + 1);
            self.sweep_position = SweepPosition { slot, before: NO_BLOCK, is_prefetched: false };
            return 0;
        }
        let (first, len, next) = (link.first, link.len as usize, self.next_link(link));
        if !is_prefetched {
            self.prefetch(next);
            self.entries[link.range()].iter().for_each(|&entry| prefetch_timer(entry));
            self.sweep_position.is_prefetched = true;
            return 0;
        }
        self.sweep_position.is_prefetched = false;
        let kept = retain(&mut self.entries[link.range()], keep);
        let room = self.headers[header_index(first)].capacity as usize - kept;
        let link = match before {
            _ if kept > 0 && next.len as usize <= room && next.first != NO_BLOCK => {
                // The next block's entries fit behind those left here, and are checked here with
                // the next step.
                self.entries.copy_within(next.range(), first as usize + kept);
                self.headers[header_index(first)].next = self.next_link(next);
                self.release_older(index, next.first);
                Link { first, len: kept as u32 + next.len }
            }
            NO_BLOCK if kept == 0 => {
                self.drop_head(index);
                return len;
            }
            _ if kept == 0 => {
                self.release_older(index, first);
                next
            }
            _ => {
                self.sweep_position.before = first;
                Link { first, len: kept as u32 }
            }
        };
        match before {
            NO_BLOCK => self.slots[index].newest = link,
            before => self.headers[header_index(before)].next = link,
        }
        len
    }

    /// Returns the index of the slot for a deadline.
    #[inline]
    fn slot_of(&self, deadline_ns: u64) -> usize {
        let highest_bit = ((deadline_ns ^ self.base_ns) | 1).ilog2();
        let DigitPlace { first_slot, shift } = DIGIT_PLACES[highest_bit as usize];
        first_slot as usize + (deadline_ns >> shift) as usize % SLOTS_PER_LEVEL
    }

    /// Prefetches the entries of a block; no effect for a link to no block.
    #[inline]
    fn prefetch(&self, link: Link) {
        let entries = &self.entries[link.range()];
        // The last one may lie in a further line.
        entries
            .iter()
            .step_by(ENTRIES_PER_LINE)
            .chain(entries.last())
            .for_each(|entry| prefetch_for_read(entry));
    }

    /// Adds an entry to a new block of slot `index`.
    #[cold]
    #[inline(never)]
    pub(super) fn push_in_new_block(&mut self, index: usize, entry: TimerEntry) {
        let old = self.slots[index];
        let is_first = old.newest.first == NO_BLOCK;
        let (first_free, capacity) = match is_first {
            true => (&mut self.first_free_small, SMALL_BLOCK_ENTRIES),
            false => (&mut self.first_free_large, LARGE_BLOCK_ENTRIES),
        };
        let mut first = *first_free;
        if first == NO_BLOCK {
            first = self.entries.len() as u32; // at most entries_max(2^28)
            self.entries.resize(first as usize + capacity, TimerEntry::NONE);
            let header = BlockHeader { next: Link::NONE, capacity: capacity as u32 };
            self.headers.resize(header_index(self.entries.len() as u32), header);
        } else {
            *first_free = self.headers[header_index(first)].next.first;
        }
        self.headers[header_index(first)].next = old.newest;
        self.entries[first as usize] = entry;
        self.slots[index] = Slot {
            newest: Link { first, len: 1 },
            capacity: capacity as u32,
            blocks_count: old.blocks_count + 1,
        };
        self.older_capacity += old.capacity as usize;
        let (level, bit) = (index / SLOTS_PER_LEVEL, 1 << (index % SLOTS_PER_LEVEL));
        if is_first {
            self.levels |= 1 << level;
            self.occupied[level] |= bit;
        } else {
            self.chained[level] |= bit;
        }
    }

    /// Frees the newest block of slot `index`, which must have one.
    fn drop_head(&mut self, index: usize) {
        let head = self.slots[index].newest;
        let next = self.next_link(head);
        self.release(index, head.first);
        let slot = &mut self.slots[index];
        slot.newest = next;
        slot.capacity = 0;
        if next.first != NO_BLOCK {
            slot.capacity = self.headers[header_index(next.first)].capacity;
            self.older_capacity -= slot.capacity as usize;
            return;
        }
        let level = index / SLOTS_PER_LEVEL;
        self.occupied[level] &= !(1 << (index % SLOTS_PER_LEVEL));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Frees the block whose first entry is `first`, of slot `index`. It is not the newest, and no
    /// longer in the chain.
    fn release_older(&mut self, index: usize, first: u32) {
        self.older_capacity -= self.headers[header_index(first)].capacity as usize;
        self.release(index, first);
    }

    /// Adds the block whose first entry is `first`, of slot `index`, to the list of free blocks of
    /// its size.
    fn release(&mut self, index: usize, first: u32) {
        self.slots[index].blocks_count -= 1;
        if self.slots[index].blocks_count == 1 {
            self.chained[index / SLOTS_PER_LEVEL] &= !(1 << (index % SLOTS_PER_LEVEL));
        }
        if self.sweep_position.before == first {
            self.sweep_position.before = NO_BLOCK;
        }
        let header = &mut self.headers[header_index(first)];
        let first_free = match header.capacity as usize {
            SMALL_BLOCK_ENTRIES => &mut self.first_free_small,
            _ => &mut self.first_free_large,
        };
        header.next.first = std::mem::replace(first_free, first);
    }

    /// Returns the index of the first slot with more than one block from `index` on, or else from 0
    /// on. Returns 0 if there is none.
    fn next_chained(&self, index: usize) -> usize {
        let (level, digit) = (index / SLOTS_PER_LEVEL, index % SLOTS_PER_LEVEL);
        let rest = self.chained.get(level).map_or(0, |&slots| slots & (u64::MAX << digit));
        if rest != 0 {
            return level * SLOTS_PER_LEVEL + rest.trailing_zeros() as usize;
        }
        let levels = (level + 1..LEVELS_COUNT).chain(0..LEVELS_COUNT);
        let found = levels.map(|level| (level, self.chained[level])).find(|(_, slots)| *slots != 0);
        found.map_or(0, |(level, slots)| level * SLOTS_PER_LEVEL + slots.trailing_zeros() as usize)
    }
}

/// Returns the index in [`WheelLevels::headers`] of the block whose first entry is `first`.
#[inline]
fn header_index(first: u32) -> usize {
    first as usize / SMALL_BLOCK_ENTRIES
}

/// Returns the maximum number of entries of all blocks while at most `timers_count` timers run.
///
/// Each slot may have a small block, and a large newest one that is almost empty. The others are
/// swept above twice as many entries as timers run, and may double meanwhile: a sweep merges a
/// block only when the next one was swept too.
fn entries_max(timers_count: usize) -> usize {
    let older_max = 2 * (CROWDED_ENTRIES_MIN + 2 * timers_count);
    let large_max = older_max.div_ceil(LARGE_BLOCK_ENTRIES) + SLOTS_COUNT;
    SLOTS_COUNT * SMALL_BLOCK_ENTRIES + large_max * LARGE_BLOCK_ENTRIES
}

/// Moves the entries for which `keep` returns `true` to the front; returns the number of these
/// entries.
///
/// It has no branch on the result: that is unpredictable, and each misprediction would wait for the
/// memory that the result depends on, instead of waiting for all of it at once.
#[inline]
pub(super) fn retain(
    entries: &mut [TimerEntry],
    mut keep: impl FnMut(TimerEntry) -> bool,
) -> usize {
    let mut kept = 0;
    for at in 0..entries.len() {
        let entry = entries[at];
        entries[kept] = entry;
        kept += usize::from(keep(entry));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless the counts of blocks, their capacities and the entries' number agree with the
    /// chains.
    fn check_chains(levels: &WheelLevels) {
        let mut older_capacity = 0;
        for (index, slot) in levels.slots[..SLOTS_COUNT].iter().enumerate() {
            let block = |link: Link| (link.first != NO_BLOCK).then_some(link);
            let chain: Vec<Link> =
                std::iter::successors(block(slot.newest), |&link| block(levels.next_link(link)))
                    .collect();
            assert_eq!(chain.len(), slot.blocks_count as usize, "slot {index}");
            let capacities =
                chain.iter().map(|link| levels.headers[header_index(link.first)].capacity);
            let capacities: Vec<u32> = capacities.collect();
            assert_eq!(capacities.first().copied().unwrap_or(0), slot.capacity, "slot {index}");
            assert!(chain.iter().zip(&capacities).all(|(link, capacity)| link.len <= *capacity));
            older_capacity += capacities.iter().skip(1).sum::<u32>() as usize;
            let (level, digit) = (index / SLOTS_PER_LEVEL, index % SLOTS_PER_LEVEL);
            assert_eq!(levels.occupied[level] >> digit & 1 != 0, !chain.is_empty(), "slot {index}");
            assert_eq!(levels.chained[level] >> digit & 1 != 0, chain.len() > 1, "slot {index}");
        }
        assert_eq!(older_capacity, levels.older_capacity);
    }

    #[test]
    fn swept_and_drained_slots_lose_no_entry_and_count_their_blocks() {
        let mut levels = WheelLevels::new(0, 0);
        let (steps, steps_per_drain) = if cfg!(miri) { (100_u64, 25) } else { (20_000, 500) };
        let hash = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let is_stale = |key: u64| hash(key) % 3 == 0;
        let (mut opened, mut drained_count) = (Vec::new(), 0);
        let mut drain = |levels: &mut WheelLevels, opened: &mut Vec<TimerEntry>| {
            let Some(first) = levels.first_slot() else { return false };
            levels.drain_first_slot(first, opened, |_| drained_count += 1);
            true
        };
        for at in 1..=steps {
            let deadline_ns = levels.deadline_ns_min() + hash(at) % 100_000;
            levels.push(TimerEntry::new(deadline_ns, at));
            levels.sweep(|_| (), |entry| !is_stale(entry.key));
            if at % steps_per_drain == 0 {
                assert!(drain(&mut levels, &mut opened));
                check_chains(&levels);
            }
        }
        levels.rewind(0);
        check_chains(&levels);
        while drain(&mut levels, &mut opened) {}
        check_chains(&levels);
        assert_eq!(opened.len(), drained_count);
        let mut keys: Vec<u64> = opened.iter().map(|entry| entry.key).collect();
        keys.sort_unstable();
        assert!(cfg!(miri) || keys.len() < steps as usize, "no stale entry was swept");
        keys.retain(|&key| !is_stale(key));
        assert!(keys.into_iter().eq((1..=steps).filter(|&key| !is_stale(key))));
    }
}
