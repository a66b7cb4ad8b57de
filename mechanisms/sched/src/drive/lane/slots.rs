//! The memory of a lane: whole cache lines of words, all zero at first.

use crate::drive::raw;
use handover_base::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Words in a cache line. Under the model half a line, so that lanes are soon gone around.
pub(super) const LINE_WORDS: usize = if cfg!(handover_loom) { 4 } else { 8 };

/// A cache line. Loom's atomics are larger than a word; nothing depends on it.
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// Lines ahead that a sender asks for before it writes them: as many as are on their way at once.
#[cfg(not(handover_loom))]
const AHEAD_LINES: usize = 4;

/// Slots of `W` words, a power of two of them. Both ends have a clone.
#[derive(Clone)]
pub(super) struct Slots<const W: usize> {
    lines: Arc<[Line]>,
    /// The logarithm of how many slots there are.
    lap_shift: u32,
}

/// The same, borrowed, for loops that go over many: an atomic access may change anything as far as the
/// compiler knows, but not this.
#[derive(Clone, Copy)]
pub(super) struct View<'a, const W: usize> {
    lines: &'a [Line],
    lap_shift: u32,
}

impl<const W: usize> Slots<W> {
    /// Slots in a line: none lies across two.
    pub(super) const PER_LINE: usize = {
        assert!(W > 0 && LINE_WORDS.is_multiple_of(W));
        LINE_WORDS / W
    };

    /// At least so many slots, in whole lines and a power of two of them.
    pub(super) fn new(slots_count: usize) -> Self {
        let lines_count = slots_count.div_ceil(Self::PER_LINE).next_power_of_two();
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            lines: (0..lines_count).map(|_| line()).collect(),
            lap_shift: (lines_count * Self::PER_LINE).ilog2(),
        }
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        1 << self.lap_shift
    }

    /// The slots, for a loop.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_, W> {
        View { lines: &self.lines, lap_shift: self.lap_shift }
    }

    /// [`View::first`].
    #[inline(always)]
    pub(super) fn first(&self, position: u64) -> &AtomicU64 {
        self.view().first(position)
    }

    /// [`View::put_rest`].
    #[inline(always)]
    pub(super) fn put_rest(&self, position: u64, words: &[u64; W]) {
        self.view().put_rest(position, words);
    }

    /// [`View::take`].
    #[inline(always)]
    pub(super) fn take(&self, position: u64, first: u64) -> [u64; W] {
        self.view().take(position, first)
    }

    /// [`View::lap`].
    #[inline(always)]
    pub(super) fn lap(&self, position: u64) -> u64 {
        self.view().lap(position)
    }

    /// [`View::claim_ahead`].
    #[inline(always)]
    pub(super) fn claim_ahead(&self, position: u64) {
        self.view().claim_ahead(position);
    }
}

impl<'a, const W: usize> View<'a, W> {
    /// Words `0..W` of the slot at a position, which goes around.
    #[inline(always)]
    fn word(self, position: u64, word: usize) -> &'a AtomicU64 {
        let at = position as usize * W;
        let line = (at / LINE_WORDS) & (self.lines.len() - 1);
        &self.lines[line].0[at % LINE_WORDS + word]
    }

    /// The first word.
    #[inline(always)]
    pub(super) fn first(self, position: u64) -> &'a AtomicU64 {
        self.word(position, 0)
    }

    /// Puts all words but the first into a slot, which is the caller's.
    #[inline(always)]
    pub(super) fn put_rest(self, position: u64, words: &[u64; W]) {
        for (word, &value) in words.iter().enumerate().skip(1) {
            // Relaxed: the first word, or an index, publishes them.
            self.word(position, word).store(value, Ordering::Relaxed);
        }
    }

    /// All words of a slot whose first was seen to be `first`.
    #[inline(always)]
    pub(super) fn take(self, position: u64, first: u64) -> [u64; W] {
        // Relaxed: what has shown the slot full was loaded with Acquire.
        std::array::from_fn(|word| match word {
            0 => first,
            _ => self.word(position, word).load(Ordering::Relaxed),
        })
    }

    /// Which lap a position lies in.
    #[inline(always)]
    pub(super) fn lap(self, position: u64) -> u64 {
        position >> self.lap_shift
    }

    /// Asks for a line further on, when the position begins a line.
    #[inline(always)]
    pub(super) fn claim_ahead(self, position: u64) {
        #[cfg(not(handover_loom))]
        if (position as usize).is_multiple_of(Slots::<W>::PER_LINE) {
            raw::claim(self.first(position + (AHEAD_LINES * Slots::<W>::PER_LINE) as u64));
        }
        #[cfg(handover_loom)]
        raw::claim(self.first(position));
    }

    /// Asks for the lines of so many slots from a position on, to read them soon.
    #[inline(always)]
    pub(super) fn fetch(self, position: u64, slots_count: usize) {
        for slot in (0..slots_count).step_by(Slots::<W>::PER_LINE) {
            crate::raw::fetch(self.first(position + slot as u64));
        }
    }

    /// The words from a position to the end of its line.
    #[inline(always)]
    pub(super) fn rest_of_line(self, position: u64) -> &'a [AtomicU64] {
        let at = position as usize * W;
        &self.lines[(at / LINE_WORDS) & (self.lines.len() - 1)].0[at % LINE_WORDS..]
    }
}
