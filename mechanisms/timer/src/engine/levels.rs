//! The wheel proper: levels of slots, each slot a chain of blocks of entries.
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
//!                             [ entries │ next ]──▶[ 15 entries │ next ]──▶ ...
//! ```
//!
//! Eleven digits cover 64 bits, hence no deadline is out of range and no turn of the wheel ends.

use super::entry::Entry;

const DIGIT_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
const LEVELS_COUNT: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// A block is 256 bytes: four cache lines in a row, which the processor fetches ahead.
const BLOCK_ENTRIES: usize = 15;
/// A slot of at most so many blocks is sorted as it is instead of being spread over lower levels.
const SORTED_BLOCKS_MAX: usize = 4;
/// The most entries that [`Opened::Sorted`] hands over.
pub(super) const SORTED_ENTRIES_MAX: usize = SORTED_BLOCKS_MAX * BLOCK_ENTRIES;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Block {
    /// The next block of the chain, or of the free list.
    next: u32,
    /// How many entries; not kept for the first block of a chain, whose slot knows.
    len: u32,
    /// Keeps the entries from lying across cache lines.
    _pad: u64,
    entries: [Entry; BLOCK_ENTRIES],
}

const _: () = assert!(size_of::<Block>() == 256);

impl Block {
    const EMPTY: Self = Self { next: NONE, len: 0, _pad: 0, entries: [Entry::NONE; BLOCK_ENTRIES] };
}

/// A chain of blocks. When there is none its first block is taken to be full, which spares the
/// commonest path a test.
#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    head_len: u32,
}

impl Slot {
    const EMPTY: Self = Self { head: NONE, head_len: BLOCK_ENTRIES as u32 };
}

/// Where the sweep goes on.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    slot: usize,
    /// The block before the one to look at; [`NONE`] for the first of the slot.
    before: u32,
}

/// The earliest slot that holds anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    level: usize,
    slot: usize,
    /// The earliest and the latest deadline that belong there.
    pub(super) lowest_ns: u64,
    highest_ns: u64,
}

#[derive(Debug)]
pub(super) struct Levels {
    /// Deadlines are placed by how they differ from this.
    base_ns: u64,
    /// Deadlines from here on belong in the wheel. It is `base_ns`, or one more once the slot of
    /// `base_ns` itself has been handed over.
    floor_ns: u64,
    /// A bit for each level that holds anything.
    levels: u32,
    /// A bit for each slot that holds anything.
    occupied: [u64; LEVELS_COUNT],
    slots: Vec<Slot>,
    blocks: Vec<Block>,
    free: u32,
    sweep: Sweep,
}

impl Levels {
    pub(super) fn new(now_ns: u64, entries_reserved: usize) -> Self {
        // Chains that were swept are half full at least, but for the first and last of their blocks.
        let blocks = (entries_reserved * 2 / BLOCK_ENTRIES + 2 * LEVELS_COUNT * SLOTS_PER_LEVEL)
            .min(entries_reserved);
        Self {
            base_ns: now_ns,
            floor_ns: now_ns,
            levels: 0,
            occupied: [0; LEVELS_COUNT],
            slots: vec![Slot::EMPTY; LEVELS_COUNT * SLOTS_PER_LEVEL],
            blocks: Vec::with_capacity(blocks),
            free: NONE,
            sweep: Sweep { slot: 0, before: NONE },
        }
    }

    /// Whether deadlines that are not below this belong in the wheel.
    pub(super) fn floor_ns(&self) -> u64 {
        self.floor_ns
    }

    /// Puts an entry into its slot.
    ///
    /// Its deadline must not be below [`floor_ns`](Self::floor_ns).
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(entry.deadline_ns >= self.floor_ns, "below the floor");
        let index = self.slot_of(entry.deadline_ns);
        let slot = &mut self.slots[index];
        if slot.head_len as usize >= BLOCK_ENTRIES {
            return self.push_grown(index, entry);
        }
        self.blocks[slot.head as usize].entries[slot.head_len as usize] = entry;
        slot.head_len += 1;
    }

    /// Takes `entry` out if it is the newest of its slot. The slot keeps its block, if only to be
    /// found empty, as whoever starts and cancels in turn will want it again.
    #[inline]
    pub(super) fn take_newest(&mut self, entry: Entry) -> bool {
        let index = self.slot_of(entry.deadline_ns);
        let slot = &mut self.slots[index];
        let newest = slot.head_len.wrapping_sub(1) as usize;
        let Some(head) = self.blocks.get(slot.head as usize) else { return false };
        let taken = head.entries.get(newest) == Some(&entry);
        slot.head_len -= u32::from(taken);
        taken
    }

    pub(super) fn first(&self) -> Option<First> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros();
        let shift = DIGIT_BITS * level as u32;
        // Deadlines on this level agree with the base in all higher digits.
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        let lowest_ns = (self.base_ns & above) | (u64::from(digit) << shift);
        Some(First {
            level,
            slot: level * SLOTS_PER_LEVEL + digit as usize,
            lowest_ns,
            highest_ns: lowest_ns | ((1 << shift) - 1),
        })
    }

    /// Takes the earliest slot: into `sorted` if it is small enough, in any order as yet; else its
    /// entries go to lower levels, and the answer is how many.
    pub(super) fn open(&mut self, first: First, sorted: &mut Vec<Entry>) -> usize {
        if self.slots[first.slot].head_len == 0 {
            self.drop_head(first.slot); // nothing, as yet, to open it for
            return 0;
        }
        let is_last_digit = first.level == 0;
        let small = is_last_digit || self.is_small(first.slot);
        if small {
            for _ in 0..SORTED_BLOCKS_MAX {
                let Some((block, len)) = self.take_head(first.slot) else { break };
                sorted.extend_from_slice(&block.entries[..len]);
            }
            let is_rest = self.slots[first.slot].head != NONE;
            self.base_ns = first.highest_ns;
            // What remains in a slot of the last digit is all due at the same time.
            self.floor_ns = self.base_ns.saturating_add(u64::from(!is_rest));
            return 0;
        }
        self.base_ns = first.lowest_ns;
        self.floor_ns = first.lowest_ns;
        let mut moved = 0;
        while let Some((block, len)) = self.take_head(first.slot) {
            block.entries[..len].iter().for_each(|&entry| self.push(entry));
            moved += len;
        }
        moved
    }

    /// Time has come to `now_ns`, and everything up to it was taken out.
    pub(super) fn advance(&mut self, now_ns: u64) {
        // Every entry is in a slot that begins after now_ns. Hence now_ns agrees with the base in
        // the digits above the entry's level and is below the entry in that level's: the entry's
        // highest digit to differ from now_ns is the one that differs from the base, and it stays.
        if now_ns > self.base_ns {
            self.base_ns = now_ns;
            self.floor_ns = now_ns;
        }
    }

    /// Takes back what was opened before its time: deadlines from `now_ns` on belong in the wheel
    /// again. Nothing is done if that is so.
    pub(super) fn rewind(&mut self, now_ns: u64) {
        if now_ns >= self.base_ns {
            return;
        }
        // Entries differ from now_ns where the base does, or above. Only those below that digit,
        // where they agree with the base, have to move.
        let level = self.slot_of(now_ns) / SLOTS_PER_LEVEL;
        self.base_ns = now_ns;
        self.floor_ns = now_ns;
        for level in 0..level {
            while self.occupied[level] != 0 {
                let digit = self.occupied[level].trailing_zeros() as usize;
                let slot = level * SLOTS_PER_LEVEL + digit;
                while let Some((block, len)) = self.take_head(slot) {
                    block.entries[..len].iter().for_each(|&entry| self.push(entry));
                }
            }
        }
    }

    /// Looks at one block further on, drops the entries that `keep` does not want, and returns how
    /// many. All blocks have their turn.
    pub(super) fn sweep(&mut self, keep: impl FnMut(&Entry) -> bool) -> usize {
        let Sweep { slot: index, before } = self.sweep;
        let at = match before {
            NONE => self.slots[index].head,
            before => self.blocks[before as usize].next,
        };
        if at == NONE {
            self.sweep = Sweep { slot: self.next_occupied(index + 1), before: NONE };
            return 0;
        }
        let len = match before {
            NONE => self.slots[index].head_len,
            _ => self.blocks[at as usize].len,
        } as usize;
        let kept = self.blocks[at as usize].retain(len, keep);
        if before == NONE {
            if kept == 0 {
                self.drop_head(index);
            } else {
                self.slots[index].head_len = kept as u32;
                self.sweep.before = at;
            }
            return len - kept;
        }
        let is_head = self.slots[index].head == before;
        let before_len = match is_head {
            true => self.slots[index].head_len,
            false => self.blocks[before as usize].len,
        } as usize;
        if before_len + kept <= BLOCK_ENTRIES {
            let Block { next, entries, .. } = self.blocks[at as usize];
            let merged = &mut self.blocks[before as usize];
            merged.entries[before_len..before_len + kept].copy_from_slice(&entries[..kept]);
            merged.next = next;
            merged.len = (before_len + kept) as u32;
            if is_head {
                self.slots[index].head_len = merged.len;
            }
            self.release(at);
        } else {
            self.blocks[at as usize].len = kept as u32;
            self.sweep.before = at;
        }
        len - kept
    }

    #[inline]
    fn slot_of(&self, deadline_ns: u64) -> usize {
        let level = ((deadline_ns ^ self.base_ns) | 1).ilog2() / DIGIT_BITS;
        let digit = (deadline_ns >> (level * DIGIT_BITS)) as usize % SLOTS_PER_LEVEL;
        level as usize * SLOTS_PER_LEVEL + digit
    }

    fn is_small(&self, index: usize) -> bool {
        let mut at = self.slots[index].head;
        for _ in 0..SORTED_BLOCKS_MAX {
            if at == NONE {
                return true;
            }
            at = self.blocks[at as usize].next;
        }
        at == NONE
    }

    /// Begins a block.
    #[cold]
    #[inline(never)]
    fn push_grown(&mut self, index: usize, entry: Entry) {
        let level = index / SLOTS_PER_LEVEL;
        let old = self.slots[index];
        let block = if self.free == NONE {
            self.blocks.push(Block::EMPTY);
            (self.blocks.len() - 1) as u32
        } else {
            self.free
        };
        let fresh = &mut self.blocks[block as usize];
        if self.free != NONE {
            self.free = fresh.next;
        }
        fresh.next = old.head;
        if old.head == NONE {
            self.levels |= 1 << level;
            self.occupied[level] |= 1 << (index % SLOTS_PER_LEVEL);
        } else {
            self.blocks[old.head as usize].len = old.head_len;
        }
        self.blocks[block as usize].entries[0] = entry;
        self.slots[index] = Slot { head: block, head_len: 1 };
    }

    fn take_head(&mut self, index: usize) -> Option<(Block, usize)> {
        let Slot { head, head_len } = self.slots[index];
        if head == NONE {
            return None;
        }
        let block = self.blocks[head as usize];
        self.drop_head(index);
        Some((block, head_len as usize))
    }

    fn drop_head(&mut self, index: usize) {
        let level = index / SLOTS_PER_LEVEL;
        let head = self.slots[index].head;
        let next = self.blocks[head as usize].next;
        self.release(head);
        self.slots[index] = if next == NONE {
            self.occupied[level] &= !(1 << (index % SLOTS_PER_LEVEL));
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
            Slot::EMPTY
        } else {
            Slot { head: next, head_len: self.blocks[next as usize].len }
        };
    }

    fn release(&mut self, block: u32) {
        if self.sweep.before == block {
            self.sweep.before = NONE;
        }
        self.blocks[block as usize].next = self.free;
        self.free = block;
    }

    /// The first occupied slot from `index` on, round to the first.
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

impl Block {
    /// Keeps of the first `len` entries what `keep` says, and returns how many.
    fn retain(&mut self, len: usize, mut keep: impl FnMut(&Entry) -> bool) -> usize {
        let mut kept = 0;
        for at in 0..len {
            let entry = self.entries[at];
            self.entries[kept] = entry;
            kept += usize::from(keep(&entry));
        }
        kept
    }
}
