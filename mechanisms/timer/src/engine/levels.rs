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
//!                             [ entries │ next ]──▶[ 31 entries │ next ]──▶ ...
//! ```
//!
//! Eleven digits cover 64 bits, hence no deadline is out of range and no turn of the wheel ends.

use super::entry::Entry;
use crate::raw::fetch;

const DIGIT_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
const LEVELS_COUNT: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// A block is 512 bytes.
const BLOCK_ENTRIES: usize = 31;
const ENTRIES_PER_LINE: usize = 4;
/// A slot of at most so many blocks is sorted as it is instead of being spread over lower levels.
const SORTED_BLOCKS_MAX: usize = 16;
/// The most entries that [`Opened::Sorted`] hands over.
pub(super) const SORTED_ENTRIES_MAX: usize = SORTED_BLOCKS_MAX * BLOCK_ENTRIES;
/// So many blocks are fine in any case, beside the newest of each slot.
const CROWDED_BLOCKS_MIN: usize = 8;
/// How many blocks are set aside for as many timers as fit into one.
const BLOCKS_PER_BLOCKFUL: usize = 4;
const NONE: u32 = u32::MAX;

/// A block and how many entries it holds, told by whoever leads there: so the way through a chain is
/// known one block ahead.
#[derive(Clone, Copy, Debug)]
struct Link {
    block: u32,
    len: u32,
}

impl Link {
    /// Leads nowhere. What it leads to is taken to be full, which spares the commonest path a test.
    const NONE: Self = Self { block: NONE, len: BLOCK_ENTRIES as u32 };
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Block {
    /// On through the chain, or through the free list.
    next: Link,
    /// Keeps the entries from lying across cache lines.
    _pad: u64,
    entries: [Entry; BLOCK_ENTRIES],
}

const _: () = assert!(size_of::<Block>() == 512);

impl Block {
    const EMPTY: Self = Self { next: Link::NONE, _pad: 0, entries: [Entry::NONE; BLOCK_ENTRIES] };
}

/// Where the sweep goes on.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    slot: usize,
    /// The block before the one to look at; [`NONE`] for the first of the slot.
    before: u32,
    /// Whether the timers that its entries speak of have been asked for.
    fetched: bool,
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
    /// The newest block of each slot.
    slots: Vec<Link>,
    blocks: Vec<Block>,
    free: u32,
    free_count: usize,
    sweep: Sweep,
}

impl Levels {
    pub(super) fn new(now_ns: u64, timers_reserved: usize) -> Self {
        let blocks = if timers_reserved == 0 {
            0
        } else {
            BLOCKS_PER_BLOCKFUL * timers_reserved.div_ceil(BLOCK_ENTRIES)
                + 2 * LEVELS_COUNT * SLOTS_PER_LEVEL
        };
        Self {
            base_ns: now_ns,
            floor_ns: now_ns,
            levels: 0,
            occupied: [0; LEVELS_COUNT],
            slots: vec![Link::NONE; LEVELS_COUNT * SLOTS_PER_LEVEL],
            blocks: Vec::with_capacity(blocks),
            free: NONE,
            free_count: 0,
            sweep: Sweep { slot: 0, before: NONE, fetched: false },
        }
    }

    /// Whether deadlines that are not below this belong in the wheel.
    pub(super) fn floor_ns(&self) -> u64 {
        self.floor_ns
    }

    /// Puts an entry into its slot, and returns which one that is; as an error if the slot has no room
    /// and it has to go there by [`push_grown`](Self::push_grown).
    ///
    /// Its deadline must not be below [`floor_ns`](Self::floor_ns).
    #[inline]
    pub(super) fn try_push(&mut self, entry: Entry) -> Result<usize, usize> {
        debug_assert!(entry.deadline_ns >= self.floor_ns, "below the floor");
        let index = self.slot_of(entry.deadline_ns);
        let slot = &mut self.slots[index];
        if slot.len as usize >= BLOCK_ENTRIES {
            return Err(index);
        }
        self.blocks[slot.block as usize].entries[slot.len as usize] = entry;
        slot.len += 1;
        Ok(index)
    }

    /// Puts an entry into its slot, wherever there is room.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        if let Err(index) = self.try_push(entry) {
            self.push_grown(index, entry);
        }
    }

    /// Takes the newest entry out of this slot, where [`push`](Self::push) has just put it. The slot
    /// keeps its block, if only to be found empty, as whoever starts and cancels in turn will want it
    /// again.
    #[inline]
    pub(super) fn take_newest(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        debug_assert!(slot.block != NONE && slot.len > 0, "nothing was put there");
        slot.len -= 1;
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
        if self.slots[first.slot].len == 0 {
            self.drop_head(first.slot); // nothing, as yet, to open it for
            return 0;
        }
        let is_last_digit = first.level == 0;
        let small = is_last_digit || self.is_small(first.slot);
        if small {
            for _ in 0..SORTED_BLOCKS_MAX {
                let Link { block, len } = self.slots[first.slot];
                let Some(head) = self.blocks.get(block as usize) else { break };
                sorted.extend_from_slice(&head.entries[..len as usize]);
                self.drop_head(first.slot);
            }
            let is_rest = self.slots[first.slot].block != NONE;
            self.base_ns = first.highest_ns;
            // What remains in a slot of the last digit is all due at the same time.
            self.floor_ns = self.base_ns.saturating_add(u64::from(!is_rest));
            return 0;
        }
        self.base_ns = first.lowest_ns;
        self.floor_ns = first.lowest_ns;
        self.spread(first.slot)
    }

    /// Files everything in a slot anew, and returns how many entries that were.
    fn spread(&mut self, index: usize) -> usize {
        let mut moved = 0;
        loop {
            let Link { block, len } = self.slots[index];
            let Some(head) = self.blocks.get(block as usize) else { return moved };
            // Two blocks ahead: one is dealt with in less time than another takes to come.
            if let Some(next) = self.blocks.get(head.next.block as usize) {
                self.fetch(next.next);
            }
            for at in 0..len as usize {
                self.push(self.blocks[block as usize].entries[at]);
            }
            self.drop_head(index);
            moved += len as usize;
        }
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
                self.spread(slot);
            }
        }
    }

    /// Whether there are so many blocks that much of what they hold must be stale, where `timers_count`
    /// timers are running.
    pub(super) fn is_crowded(&self, timers_count: usize) -> bool {
        let slots: u32 = self.occupied.iter().map(|slots| slots.count_ones()).sum();
        let blocks = self.blocks.len() - self.free_count;
        // The newest block of a slot may hold next to nothing; of others the sweep leaves none with
        // less than half.
        blocks > CROWDED_BLOCKS_MIN + slots as usize + 2 * timers_count / BLOCK_ENTRIES
    }

    /// Looks at one block further on, drops the entries that `keep` does not want, and returns how
    /// many. All blocks have their turn.
    ///
    /// It takes two calls a block, of which the first only asks, by `fetch_timer`, for what `keep` will
    /// look at.
    pub(super) fn sweep(
        &mut self,
        fetch_timer: impl Fn(Entry),
        keep: impl FnMut(Entry) -> bool,
    ) -> usize {
        let Sweep { slot: index, before, fetched } = self.sweep;
        let link = match before {
            NONE => self.slots[index],
            before => self.blocks[before as usize].next,
        };
        let (at, len) = (link.block, link.len as usize);
        if at == NONE {
            let slot = self.next_occupied(index + 1);
            self.sweep = Sweep { slot, before: NONE, fetched: false };
            return 0;
        }
        let next = self.blocks[at as usize].next;
        if !fetched {
            self.fetch(next);
            self.blocks[at as usize].entries[..len].iter().for_each(|&entry| fetch_timer(entry));
            self.sweep.fetched = true;
            return 0;
        }
        self.sweep.fetched = false;
        let kept = retain(&mut self.blocks[at as usize].entries[..len], keep);
        let link = match before {
            _ if kept > 0 && kept + next.len as usize <= BLOCK_ENTRIES && next.block != NONE => {
                // The next fits in beside what is left here, and is looked at here.
                let entries = self.blocks[next.block as usize].entries;
                let (after, rest) = (self.blocks[next.block as usize].next, next.len as usize);
                let merged = &mut self.blocks[at as usize];
                merged.entries[kept..kept + rest].copy_from_slice(&entries[..rest]);
                merged.next = after;
                self.release(next.block);
                Link { block: at, len: (kept + rest) as u32 }
            }
            NONE if kept == 0 => {
                self.drop_head(index);
                return len;
            }
            _ if kept == 0 => {
                self.release(at);
                next
            }
            _ => {
                self.sweep.before = at;
                Link { block: at, len: kept as u32 }
            }
        };
        match before {
            NONE => self.slots[index] = link,
            before => self.blocks[before as usize].next = link,
        }
        len - kept
    }

    #[inline]
    fn slot_of(&self, deadline_ns: u64) -> usize {
        let level = ((deadline_ns ^ self.base_ns) | 1).ilog2() / DIGIT_BITS;
        let digit = (deadline_ns >> (level * DIGIT_BITS)) as usize % SLOTS_PER_LEVEL;
        level as usize * SLOTS_PER_LEVEL + digit
    }

    /// Asks for the entries of a block, if there is one.
    #[inline]
    fn fetch(&self, link: Link) {
        if let Some(block) = self.blocks.get(link.block as usize) {
            fetch(block);
            let entries = &block.entries[..link.len as usize];
            entries.iter().skip(ENTRIES_PER_LINE - 1).step_by(ENTRIES_PER_LINE).for_each(fetch);
        }
    }

    /// The blocks of a slot.
    fn chain(&self, index: usize) -> impl Iterator<Item = (Link, &Block)> {
        let block = |link: Link| Some((link, self.blocks.get(link.block as usize)?));
        std::iter::successors(block(self.slots[index]), move |(_, at)| block(at.next))
    }

    fn is_small(&self, index: usize) -> bool {
        self.chain(index).nth(SORTED_BLOCKS_MAX).is_none()
    }

    /// Begins a block.
    #[cold]
    #[inline(never)]
    pub(super) fn push_grown(&mut self, index: usize, entry: Entry) {
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
            self.free = fresh.next.block;
            self.free_count -= 1;
        }
        fresh.next = old;
        fresh.entries[0] = entry;
        if old.block == NONE {
            self.levels |= 1 << level;
            self.occupied[level] |= 1 << (index % SLOTS_PER_LEVEL);
        }
        self.slots[index] = Link { block, len: 1 };
    }

    /// Frees the first block of a slot that has one.
    fn drop_head(&mut self, index: usize) {
        let level = index / SLOTS_PER_LEVEL;
        let head = self.slots[index].block;
        let next = self.blocks[head as usize].next;
        self.release(head);
        self.slots[index] = next;
        if next.block == NONE {
            self.occupied[level] &= !(1 << (index % SLOTS_PER_LEVEL));
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }

    fn release(&mut self, block: u32) {
        if self.sweep.before == block {
            self.sweep.before = NONE;
        }
        self.blocks[block as usize].next.block = self.free;
        self.free = block;
        self.free_count += 1;
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

/// Moves what `keep` wants to the front, and returns how many that are.
///
/// Without a branch on the answer: it cannot be foretold, and a wrong guess would have to wait for the
/// memory that the answer depends on, again and again, instead of waiting for all of it at once.
#[inline]
pub(super) fn retain(entries: &mut [Entry], mut keep: impl FnMut(Entry) -> bool) -> usize {
    let mut kept = 0;
    for at in 0..entries.len() {
        let entry = entries[at];
        entries[kept] = entry;
        kept += usize::from(keep(entry));
    }
    kept
}
