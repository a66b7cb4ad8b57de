//! Memory of a lane: whole cache lines of words, initially zero.

use handover_base::prefetch;
use handover_base::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Number of words in a cache line. In the loom models it is half, so that lanes wrap around soon.
pub(super) const LINE_WORDS: usize = if cfg!(handover_loom) { 4 } else { 8 };

/// Words of one cache line. Loom's atomics are larger than a word; no code depends on their size.
#[repr(align(64))]
struct CacheLine([AtomicU64; LINE_WORDS]);

/// Distance, in cache lines, from the slot being pushed to the line that the sender prefetches. It
/// is the number of lines that are in transfer at once.
#[cfg(not(handover_loom))]
const AHEAD_LINES: usize = 4;

/// Shared memory of a lane: slots of `W` words each; their number is a power of two. The sender and
/// the receiver have a clone each.
#[derive(Clone)]
pub(super) struct LaneSlots<const W: usize> {
    lines: Arc<[CacheLine]>,
    /// Binary logarithm of the number of slots; a position shifted right by this number is its lap.
    lap_shift: u32,
}

/// Borrowed view of the slots, for loops over many of them. The compiler must assume that an atomic
/// access changes any memory, but not these copied fields.
#[derive(Clone, Copy)]
pub(super) struct SlotsView<'a, const W: usize> {
    lines: &'a [CacheLine],
    lap_shift: u32,
}

impl<const W: usize> LaneSlots<W> {
    /// Number of slots in a cache line; no slot spans two lines.
    pub(super) const SLOTS_PER_LINE: usize = {
        assert!(W > 0 && LINE_WORDS.is_multiple_of(W));
        LINE_WORDS / W
    };

    /// Allocates at least `slots_count` slots; the number of cache lines is a power of two.
    pub(super) fn new(slots_count: usize) -> Self {
        let lines_count = slots_count.div_ceil(Self::SLOTS_PER_LINE).next_power_of_two();
        let line = || CacheLine(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            lines: (0..lines_count).map(|_| line()).collect(),
            lap_shift: (lines_count * Self::SLOTS_PER_LINE).ilog2(),
        }
    }

    #[inline(always)]
    pub(super) fn view(&self) -> SlotsView<'_, W> {
        SlotsView { lines: &self.lines, lap_shift: self.lap_shift }
    }
}

impl<'a, const W: usize> SlotsView<'a, W> {
    /// Returns word `word` of the slot at `position`; positions wrap around.
    #[inline(always)]
    fn word(self, position: u64, word: usize) -> &'a AtomicU64 {
        let at = position as usize * W;
        let line = (at / LINE_WORDS) & (self.lines.len() - 1);
        &self.lines[line].0[at % LINE_WORDS + word]
    }

    #[inline(always)]
    pub(super) fn first_word(self, position: u64) -> &'a AtomicU64 {
        self.word(position, 0)
    }

    /// Writes all words of a free slot except the first. Only the sender may call this.
    #[inline(always)]
    pub(super) fn write_rest(self, position: u64, words: &[u64; W]) {
        for (word, &value) in words.iter().enumerate().skip(1) {
            // Relaxed: the first word publishes them.
            self.word(position, word).store(value, Ordering::Relaxed);
        }
    }

    /// Returns all words of a slot whose first word was loaded as `first`.
    #[inline(always)]
    pub(super) fn read_words(self, position: u64, first: u64) -> [u64; W] {
        // Relaxed: the first word was loaded with Acquire.
        std::array::from_fn(|word| match word {
            0 => first,
            _ => self.word(position, word).load(Ordering::Relaxed),
        })
    }

    /// Returns the lap of a position: the number of times that its slot was filled before.
    #[inline(always)]
    pub(super) fn lap_number(self, position: u64) -> u64 {
        position >> self.lap_shift
    }

    /// Prefetches the line that is [`AHEAD_LINES`] after `position`, if a line begins at
    /// `position`.
    #[inline(always)]
    pub(super) fn prefetch_ahead(self, position: u64) {
        #[cfg(not(handover_loom))]
        if (position as usize).is_multiple_of(LaneSlots::<W>::SLOTS_PER_LINE) {
            prefetch::for_write(
                self.first_word(position + (AHEAD_LINES * LaneSlots::<W>::SLOTS_PER_LINE) as u64),
            );
        }
        #[cfg(handover_loom)]
        prefetch::for_write(self.first_word(position));
    }

    /// Prefetches `slots_count` slots from `position` on, for reading.
    #[inline(always)]
    pub(super) fn prefetch(self, position: u64, slots_count: usize) {
        for slot in (0..slots_count).step_by(LaneSlots::<W>::SLOTS_PER_LINE) {
            prefetch::for_read(self.first_word(position + slot as u64));
        }
    }

    /// Returns the words from the slot at `position` to the end of its cache line.
    #[inline(always)]
    pub(super) fn words_to_line_end(self, position: u64) -> &'a [AtomicU64] {
        let at = position as usize * W;
        &self.lines[(at / LINE_WORDS) & (self.lines.len() - 1)].0[at % LINE_WORDS..]
    }
}
