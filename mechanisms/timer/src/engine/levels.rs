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
//!                             [ entries ]──▶[ 124 entries ]──▶ ...
//! ```
//!
//! Eleven digits cover 64 bits, so that no deadline is out of range and the wheel never turns around.

use super::entry::TimerEntry;
use crate::raw::prefetch_for_read;
use std::ops::Range;

/// Number of bits of a digit of a deadline.
const DIGIT_BITS: u32 = 6;
/// Number of slots of a level, one for each value of its digit.
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// Number of levels, one for each digit of a deadline.
const LEVELS_COUNT: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Number of slots of all levels.
const SLOTS_COUNT: usize = LEVELS_COUNT * SLOTS_PER_LEVEL;
/// Number of entries in a cache line.
const ENTRIES_PER_LINE: usize = 4;
/// Number of cache lines of a block. It is odd, so that the lines at the same position in the blocks of several slots,
/// which are filled equally fast, do not compete for the same sets of a cache.
const BLOCK_LINES: usize = 31;
/// Number of entries in a block.
const BLOCK_ENTRIES: usize = BLOCK_LINES * ENTRIES_PER_LINE;
/// Maximum number of blocks of a slot whose entries are sorted at once. The entries of a larger
/// slot move to lower levels first.
const SORTED_BLOCKS_MAX: usize = 4;
/// Maximum number of entries that [`WheelLevels::drain_first_slot`] takes from one slot.
pub(super) const SORTED_ENTRIES_MAX: usize = SORTED_BLOCKS_MAX * BLOCK_ENTRIES;
/// Number of entries to sort below which the wheel opens a further slot, if the slot is due.
pub(super) const SORTED_ENTRIES_TARGET: usize = 96;
/// Number of blocks above which a wheel with few timers is swept of stale entries. The newest block
/// of each slot does not count.
const CROWDED_BLOCKS_MIN: usize = 8;
/// Number of blocks to allocate in advance for every [`BLOCK_ENTRIES`] reserved timers.
const RESERVED_BLOCKS_PER_FULL_BLOCK: usize = 4;
/// Index of a first entry that stands for no block.
const NO_BLOCK: u32 = u32::MAX;

/// Reference to a block of entries, in the chain of a slot's blocks.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Index of the block's first entry in [`WheelLevels::entries`], or [`NO_BLOCK`]. It identifies the block.
    first: u32,
    /// Number of entries in the block.
    len: u32,
}

impl Link {
    /// Link to no block. It counts as a full block, which saves a test on the most common path.
    const NONE: Self = Self { first: NO_BLOCK, len: BLOCK_ENTRIES as u32 };

    /// Returns the indices of the block's entries; none for a link to no block.
    #[inline]
    fn range(self) -> Range<usize> {
        let first = self.first as usize;
        if self.first == NO_BLOCK { 0..0 } else { first..first + self.len as usize }
    }
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
    /// Block before the next one to process, as in [`Link::first`]. It is [`NO_BLOCK`] if the next one is the first of
    /// the slot.
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
    /// Link to the newest block of each slot.
    slots: Box<[Link; SLOTS_COUNT]>,
    /// Number of blocks of each slot.
    blocks_counts: Vec<u32>,
    /// Entries of all blocks.
    entries: Vec<TimerEntry>,
    /// For each block, the link to the next block of its slot's chain, or of the list of free blocks. They are apart
    /// from the entries, so that the blocks after the next can be prefetched.
    next_links: Vec<Link>,
    /// First block in the list of free blocks, as in [`Link::first`].
    first_free: u32,
    /// Number of free blocks.
    free_count: usize,
    sweep_position: SweepPosition,
}

impl WheelLevels {
    pub(super) fn new(now_ns: u64, timers_reserved: usize) -> Self {
        let blocks = if timers_reserved == 0 {
            0
        } else {
            RESERVED_BLOCKS_PER_FULL_BLOCK * timers_reserved.div_ceil(BLOCK_ENTRIES)
                + 2 * SLOTS_COUNT
        };
        Self {
            base_ns: now_ns,
            deadline_ns_min: now_ns,
            levels: 0,
            occupied: [0; LEVELS_COUNT],
            slots: Box::new([Link::NONE; SLOTS_COUNT]),
            blocks_counts: vec![0; SLOTS_COUNT],
            entries: Vec::with_capacity(blocks * BLOCK_ENTRIES),
            next_links: Vec::with_capacity(blocks),
            first_free: NO_BLOCK,
            free_count: 0,
            sweep_position: SweepPosition { slot: 0, before: NO_BLOCK, is_prefetched: false },
        }
    }

    /// Returns the earliest deadline that an added entry may have, in ns.
    pub(super) fn deadline_ns_min(&self) -> u64 {
        self.deadline_ns_min
    }

    /// Adds an entry to its slot and returns the slot's index; fails with the index if the newest
    /// block is full. The caller must then use [`push_in_new_block`](Self::push_in_new_block).
    ///
    /// The entry's deadline must not be below [`deadline_ns_min`](Self::deadline_ns_min).
    #[inline]
    pub(super) fn try_push(&mut self, entry: TimerEntry) -> Result<usize, usize> {
        debug_assert!(
            entry.deadline_ns >= self.deadline_ns_min,
            "an entry was added whose deadline is below deadline_ns_min"
        );
        self.try_push_to_slot(self.slot_of(entry.deadline_ns), entry)
    }

    /// Does [`try_push`](Self::try_push) with the index of the entry's slot.
    ///
    /// Prefetches the cache line of the entries that will follow: in a block that was not used for long, the store would
    /// wait for it.
    #[inline]
    fn try_push_to_slot(&mut self, index: usize, entry: TimerEntry) -> Result<usize, usize> {
        let slot = &mut self.slots[index];
        if slot.len as usize >= BLOCK_ENTRIES {
            return Err(index);
        }
        let at = (slot.first + slot.len) as usize;
        self.entries[at] = entry;
        slot.len += 1;
        if let Some(next_line) = self.entries.get(at + ENTRIES_PER_LINE) {
            prefetch_for_read(next_line);
        }
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

    /// Removes the newest entry of slot `index`. The slot keeps its block even if that is empty, as a caller that
    /// starts and cancels alternately needs it again.
    #[inline]
    pub(super) fn remove_newest(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        debug_assert!(
            slot.first != NO_BLOCK && slot.len > 0,
            "remove_newest() was called for an empty slot"
        );
        slot.len -= 1;
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
    /// Calls `prefetch_timer` for each entry moved to `unsorted`. The next block is fetched meanwhile.
    pub(super) fn drain_first_slot(
        &mut self,
        first: FirstSlot,
        unsorted: &mut Vec<TimerEntry>,
        mut prefetch_timer: impl FnMut(TimerEntry),
    ) -> usize {
        if self.slots[first.slot].len == 0 {
            self.drop_head(first.slot); // an empty block: nothing to open
            return 0;
        }
        let is_last_digit = first.level == 0;
        if is_last_digit || self.blocks_counts[first.slot] as usize <= SORTED_BLOCKS_MAX {
            for _ in 0..SORTED_BLOCKS_MAX {
                let head = self.slots[first.slot];
                if head.first == NO_BLOCK {
                    break;
                }
                self.prefetch(self.next_link(head));
                let entries = &self.entries[head.range()];
                entries.iter().for_each(|&entry| prefetch_timer(entry));
                unsorted.extend_from_slice(entries);
                self.drop_head(first.slot);
            }
            let has_rest = self.slots[first.slot].first != NO_BLOCK;
            self.base_ns = first.highest_ns;
            // The rest of a slot of the last digit all has the same deadline.
            self.deadline_ns_min = self.base_ns.saturating_add(u64::from(!has_rest));
            return 0;
        }
        self.base_ns = first.lowest_ns;
        self.deadline_ns_min = first.lowest_ns;
        // Deadlines in this slot agree with the base down to its level. Those that also agree in the digit below, which
        // is 0 in the base, belong farther down.
        let level_below = first.level - 1;
        let shift = level_below as u32 * DIGIT_BITS;
        self.cascade(first.slot, |levels, deadline_ns| {
            match (deadline_ns >> shift) as usize % SLOTS_PER_LEVEL {
                0 => levels.slot_of(deadline_ns),
                digit => level_below * SLOTS_PER_LEVEL + digit,
            }
        })
    }

    /// Moves all entries of slot `index` to the slots of their deadlines, which must be other slots. `slot_of` returns
    /// the same as [`slot_of`](Self::slot_of). Returns the number of entries.
    #[inline]
    fn cascade(&mut self, index: usize, slot_of: impl Fn(&Self, u64) -> usize) -> usize {
        let mut moved = 0;
        loop {
            let head = self.slots[index];
            if head.first == NO_BLOCK {
                return moved;
            }
            // Prefetches two blocks ahead: processing one takes less time than fetching one.
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
        self.next_links.get(link.first as usize / BLOCK_ENTRIES).copied().unwrap_or(Link::NONE)
    }

    /// Advances `base_ns` to `now_ns`; all entries up to this time must have been removed.
    pub(super) fn advance(&mut self, now_ns: u64) {
        // Every entry is in a slot that begins after now_ns. So now_ns agrees with the base in the digits above the
        // entry's level, and is below the entry in that level's digit: the highest digit in which the entry differs
        // from now_ns is the one in which it differs from the base, and it stays where it is.
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

    /// Returns `true` if so many blocks are in use that many entries must be stale. `timers_count` is an upper bound
    /// of the number of running timers.
    pub(super) fn is_crowded(&self, timers_count: usize) -> bool {
        let slots: u32 = self.occupied.iter().map(|slots| slots.count_ones()).sum();
        let blocks = self.next_links.len() - self.free_count;
        // The newest block of a slot may be almost empty; of the others, the sweep leaves none less than half full.
        blocks > CROWDED_BLOCKS_MIN + slots as usize + 2 * timers_count / BLOCK_ENTRIES
    }

    /// Removes the entries for which `keep` returns `false` from the next block. Returns the number
    /// removed. Successive calls cycle over all blocks.
    ///
    /// A block takes two calls; the first only prefetches by `prefetch_timer` what `keep` will read.
    pub(super) fn sweep(
        &mut self,
        prefetch_timer: impl Fn(TimerEntry),
        keep: impl FnMut(TimerEntry) -> bool,
    ) -> usize {
        let SweepPosition { slot: index, before, is_prefetched } = self.sweep_position;
        let link = match before {
            NO_BLOCK => self.slots[index],
            before => self.next_links[before as usize / BLOCK_ENTRIES],
        };
        if link.first == NO_BLOCK {
            let slot = self.next_occupied(index + 1);
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
        let link = match before {
            _ if kept > 0
                && kept + next.len as usize <= BLOCK_ENTRIES
                && next.first != NO_BLOCK =>
            {
                // The next block's entries fit behind those left here, and are checked here with the next step.
                self.entries.copy_within(next.range(), first as usize + kept);
                self.next_links[first as usize / BLOCK_ENTRIES] = self.next_link(next);
                self.release(index, next.first);
                Link { first, len: kept as u32 + next.len }
            }
            NO_BLOCK if kept == 0 => {
                self.drop_head(index);
                return len;
            }
            _ if kept == 0 => {
                self.release(index, first);
                next
            }
            _ => {
                self.sweep_position.before = first;
                Link { first, len: kept as u32 }
            }
        };
        match before {
            NO_BLOCK => self.slots[index] = link,
            before => self.next_links[before as usize / BLOCK_ENTRIES] = link,
        }
        len - kept
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
        self.entries[link.range()].iter().step_by(ENTRIES_PER_LINE).for_each(prefetch_for_read);
    }

    /// Adds an entry to a new block of slot `index`.
    #[cold]
    #[inline(never)]
    pub(super) fn push_in_new_block(&mut self, index: usize, entry: TimerEntry) {
        let level = index / SLOTS_PER_LEVEL;
        let old = self.slots[index];
        let first = if self.first_free == NO_BLOCK {
            let first = self.entries.len();
            self.entries.resize(first + BLOCK_ENTRIES, TimerEntry::NONE);
            self.next_links.push(old);
            first as u32 // entries are less than 2^30: at most twice as many as timers, and a few blocks
        } else {
            let free = &mut self.next_links[self.first_free as usize / BLOCK_ENTRIES];
            self.free_count -= 1;
            let next_free = std::mem::replace(free, old).first;
            std::mem::replace(&mut self.first_free, next_free)
        };
        self.entries[first as usize] = entry;
        if old.first == NO_BLOCK {
            self.levels |= 1 << level;
            self.occupied[level] |= 1 << (index % SLOTS_PER_LEVEL);
        }
        self.slots[index] = Link { first, len: 1 };
        self.blocks_counts[index] += 1;
    }

    /// Frees the newest block of slot `index`, which must have one.
    fn drop_head(&mut self, index: usize) {
        let level = index / SLOTS_PER_LEVEL;
        let head = self.slots[index];
        let next = self.next_link(head);
        self.release(index, head.first);
        self.slots[index] = next;
        if next.first == NO_BLOCK {
            self.occupied[level] &= !(1 << (index % SLOTS_PER_LEVEL));
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }

    /// Adds the block whose first entry is `first`, of slot `index`, to the list of free blocks.
    fn release(&mut self, index: usize, first: u32) {
        self.blocks_counts[index] -= 1;
        if self.sweep_position.before == first {
            self.sweep_position.before = NO_BLOCK;
        }
        self.next_links[first as usize / BLOCK_ENTRIES].first = self.first_free;
        self.first_free = first;
        self.free_count += 1;
    }

    /// Returns the index of the first slot with entries from `index` on, or else from 0 on. Returns
    /// 0 if there is none.
    fn next_occupied(&self, index: usize) -> usize {
        let (level, digit) = (index / SLOTS_PER_LEVEL, index % SLOTS_PER_LEVEL);
        let rest = self.occupied.get(level).map_or(0, |&slots| slots & (u64::MAX << digit));
        if rest != 0 {
            return level * SLOTS_PER_LEVEL + rest.trailing_zeros() as usize;
        }
        let above = self.levels & u32::MAX.checked_shl(level as u32 + 1).unwrap_or(0);
        let levels = if above == 0 { self.levels } else { above };
        if levels == 0 {
            return 0;
        }
        let level = levels.trailing_zeros() as usize;
        level * SLOTS_PER_LEVEL + self.occupied[level].trailing_zeros() as usize
    }
}

/// Moves the entries for which `keep` returns `true` to the front; returns the number of these entries.
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

    /// Fails unless the count of each slot's blocks is the length of its chain.
    fn check_counts(levels: &WheelLevels) {
        for (index, &count) in levels.blocks_counts.iter().enumerate() {
            let block = |link: Link| (link.first != NO_BLOCK).then_some(link);
            let chain = std::iter::successors(block(levels.slots[index]), |&link| {
                block(levels.next_link(link))
            });
            assert_eq!(chain.count(), count as usize, "slot {index}");
        }
    }

    #[test]
    fn blocks_of_each_slot_are_counted() {
        let mut levels = WheelLevels::new(0, 0);
        let steps: u64 = if cfg!(miri) { 300 } else { 20_000 };
        let hash = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let (mut opened, mut drained_count) = (Vec::new(), 0);
        for at in 1..=steps {
            let deadline_ns = levels.deadline_ns_min() + hash(at) % 100_000;
            levels.push(TimerEntry::new(deadline_ns, at));
            levels.sweep(|_| (), |entry| hash(entry.key) % 3 != 0);
            if at % 100 == 0 {
                let first = levels.first_slot().expect("entries were added");
                levels.drain_first_slot(first, &mut opened, |_| drained_count += 1);
                check_counts(&levels);
            }
        }
        assert_eq!(opened.len(), drained_count);
        assert!(drained_count > 0);
        levels.rewind(0);
        check_counts(&levels);
    }
}
