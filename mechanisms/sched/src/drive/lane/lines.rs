//! Lane that transfers whole cache lines: slots become visible when their line is full.

use super::slots::LaneSlots;
use super::traits::validate;
use super::{LANE_BIT, Lane, LaneError, LaneReceiver, LaneSender};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lane that batches by lines: pushes are collected at the sender and are written as a line, whose
/// first slot gets the lap's bit after all others were written. A line that is published before it
/// is full ends with a filler.
///
/// A line travels once, whatever the receiver does meanwhile; slots that are published one by
/// one take a line each.
#[derive(Debug)]
pub enum Lines {}

/// Marks the end of a line that is not full. Differs from every slot's first word: bit 63 is the
/// lane's, and no word is all ones below it.
const FILLER: u64 = !LANE_BIT;

/// At least the number of slots in any line.
const PENDING_MAX: usize = 8;

struct SharedLines<const W: usize> {
    slots: LaneSlots<W>,
    /// Lines before this position, counted in slots, are free for the sender.
    head: CachePadded<AtomicU64>,
}

/// Pushing end of [`Lines`].
pub struct LinesSender<const W: usize> {
    /// Position of the next line.
    tail: u64,
    limit: u64,
    pending_count: usize,
    pending: [[u64; W]; PENDING_MAX],
    shared: Arc<SharedLines<W>>,
}

/// Popping end of [`Lines`].
pub struct LinesReceiver<const W: usize> {
    head: u64,
    published_head: u64,
    shared: Arc<SharedLines<W>>,
}

/// Returns the bit of this lap, as in [`Laps`](super::Laps).
#[inline(always)]
fn lap_bit<const W: usize>(slots: &LaneSlots<W>, position: u64) -> u64 {
    (!slots.lap(position) & 1) << LANE_BIT.trailing_zeros()
}

impl Lane for Lines {
    const NAME: &'static str = "lines";
    type Sender<const W: usize> = LinesSender<W>;
    type Receiver<const W: usize> = LinesReceiver<W>;

    /// Makes at least two lines, and a power of two of them.
    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(LinesSender<W>, LinesReceiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = LaneSlots::new((slots_count as usize).max(2 * LaneSlots::<W>::PER_LINE));
        let limit = slots.count();
        let head = CachePadded::new(AtomicU64::new(0));
        let shared = Arc::new(SharedLines { slots, head });
        let pending = [[0; W]; PENDING_MAX];
        let sender =
            LinesSender { tail: 0, limit, pending_count: 0, pending, shared: Arc::clone(&shared) };
        Ok((sender, LinesReceiver { head: 0, published_head: 0, shared }))
    }
}

impl<const W: usize> LinesSender<W> {
    /// Writes the pending slots as a line, which must be free.
    #[inline(always)]
    fn write_line(&mut self) {
        let slots = &self.shared.slots;
        slots.prefetch_ahead(self.tail);
        if self.pending_count < LaneSlots::<W>::PER_LINE {
            let filler = slots.first(self.tail + self.pending_count as u64);
            // Relaxed: published by the lap bit below.
            filler.store(FILLER, Ordering::Relaxed);
        }
        for (at, words) in self.pending[..self.pending_count].iter().enumerate().rev() {
            let position = self.tail + at as u64;
            slots.write_rest(position, words);
            if at > 0 {
                // Relaxed: published by the lap bit below.
                slots.first(position).store(words[0], Ordering::Relaxed);
            }
        }
        let first = self.pending[0][0] | lap_bit(slots, self.tail);
        // Release: publishes the whole line to the Acquire in LinesReceiver::pop().
        slots.first(self.tail).store(first, Ordering::Release);
        self.tail += LaneSlots::<W>::PER_LINE as u64;
        self.pending_count = 0;
    }
}

impl<const W: usize> LaneSender<W> for LinesSender<W> {
    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_free_slot() {
            return false;
        }
        self.pending[self.pending_count] = words;
        self.pending_count += 1;
        if self.pending_count == LaneSlots::<W>::PER_LINE {
            self.write_line();
        }
        true
    }

    #[inline(always)]
    fn has_free_slot(&mut self) -> bool {
        if self.tail == self.limit {
            // Acquire: pairs with the Release in LinesReceiver::release(): the lines were read.
            self.limit = self.shared.head.load(Ordering::Acquire) + self.shared.slots.count();
        }
        self.tail < self.limit
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.pending_count > 0 {
            self.write_line();
        }
    }
}

impl<const W: usize> LaneReceiver<W> for LinesReceiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        let slots = &self.shared.slots;
        let line = LaneSlots::<W>::PER_LINE as u64;
        if !self.head.is_multiple_of(line) {
            // Relaxed: the lap bit of this line was acquired.
            let first = slots.first(self.head).load(Ordering::Relaxed);
            if first != FILLER {
                let words = slots.read(self.head, first);
                self.head += 1;
                return Some(words);
            }
            self.head = self.head.next_multiple_of(line);
        }
        // Acquire: pairs with the Release in LinesSender::write_line().
        let first = slots.first(self.head).load(Ordering::Acquire);
        if first & LANE_BIT != lap_bit(slots, self.head) {
            return None;
        }
        let words = slots.read(self.head, first & !LANE_BIT);
        self.head += 1;
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        let line = LaneSlots::<W>::PER_LINE as u64;
        let done = self.head - self.head % line;
        if done != self.published_head {
            self.published_head = done;
            // Release: the lines before `done` were read; pairs with the Acquire in has_free_slot().
            self.shared.head.store(done, Ordering::Release);
        }
    }
}
