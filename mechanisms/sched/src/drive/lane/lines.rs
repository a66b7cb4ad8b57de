//! Lane that transfers whole cache lines: slots become visible when their line is full.

use super::slots::Slots;
use super::{Collect, LANE_BIT, Lane, LaneError, Post, validate};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lane that batches by lines: pushes gather at the sender and are written as a line, whose first
/// slot gets the lap's bit after all others were written. A line that is published before it is
/// full ends with a filler.
///
/// A line travels once, whatever the receiver does meanwhile; slots that are published one by
/// one take a line each.
#[derive(Debug)]
pub enum Lines {}

/// Marks the end of a line that is not full. Differs from every slot's first word: bit 63 is the
/// lane's, and no word is all ones below it.
const FILLER: u64 = !LANE_BIT;

/// At least the number of slots in any line.
const GATHERED_MAX: usize = 8;

struct Shared<const W: usize> {
    slots: Slots<W>,
    /// Lines before this position, counted in slots, are free for the sender.
    head: CachePadded<AtomicU64>,
}

/// Pushing end of [`Lines`].
pub struct Sender<const W: usize> {
    /// Position of the next line.
    tail: u64,
    limit: u64,
    gathered_count: usize,
    gathered: [[u64; W]; GATHERED_MAX],
    shared: Arc<Shared<W>>,
}

/// Popping end of [`Lines`].
pub struct Receiver<const W: usize> {
    head: u64,
    told: u64,
    shared: Arc<Shared<W>>,
}

/// Returns the bit of this lap, as in [`Laps`](super::Laps).
#[inline(always)]
fn mark<const W: usize>(slots: &Slots<W>, position: u64) -> u64 {
    (!slots.lap(position) & 1) << LANE_BIT.trailing_zeros()
}

impl Lane for Lines {
    const NAME: &'static str = "lines";
    type Sender<const W: usize> = Sender<W>;
    type Receiver<const W: usize> = Receiver<W>;

    /// Makes at least two lines, and a power of two of them.
    fn pair<const W: usize>(slots_count: u32) -> Result<(Sender<W>, Receiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = Slots::new((slots_count as usize).max(2 * Slots::<W>::PER_LINE));
        let limit = slots.count();
        let head = CachePadded::new(AtomicU64::new(0));
        let shared = Arc::new(Shared { slots, head });
        let gathered = [[0; W]; GATHERED_MAX];
        let sender =
            Sender { tail: 0, limit, gathered_count: 0, gathered, shared: Arc::clone(&shared) };
        Ok((sender, Receiver { head: 0, told: 0, shared }))
    }
}

impl<const W: usize> Sender<W> {
    /// Writes the gathered slots as a line, for which there must be room.
    #[inline(always)]
    fn write_line(&mut self) {
        let slots = &self.shared.slots;
        slots.claim_ahead(self.tail);
        if self.gathered_count < Slots::<W>::PER_LINE {
            let filler = slots.first(self.tail + self.gathered_count as u64);
            // Relaxed: published by the mark below.
            filler.store(FILLER, Ordering::Relaxed);
        }
        for (at, words) in self.gathered[..self.gathered_count].iter().enumerate().rev() {
            let position = self.tail + at as u64;
            slots.put_rest(position, words);
            if at > 0 {
                // Relaxed: published by the mark below.
                slots.first(position).store(words[0], Ordering::Relaxed);
            }
        }
        let marked = self.gathered[0][0] | mark(slots, self.tail);
        // Release: publishes the whole line to the Acquire in Receiver::pop().
        slots.first(self.tail).store(marked, Ordering::Release);
        self.tail += Slots::<W>::PER_LINE as u64;
        self.gathered_count = 0;
    }
}

impl<const W: usize> Post<W> for Sender<W> {
    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_room() {
            return false;
        }
        self.gathered[self.gathered_count] = words;
        self.gathered_count += 1;
        if self.gathered_count == Slots::<W>::PER_LINE {
            self.write_line();
        }
        true
    }

    #[inline(always)]
    fn has_room(&mut self) -> bool {
        if self.tail == self.limit {
            // Acquire: pairs with the Release in Receiver::release(): the lines were read.
            self.limit = self.shared.head.load(Ordering::Acquire) + self.shared.slots.count();
        }
        self.tail < self.limit
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.gathered_count > 0 {
            self.write_line();
        }
    }
}

impl<const W: usize> Collect<W> for Receiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        let slots = &self.shared.slots;
        let line = Slots::<W>::PER_LINE as u64;
        if !self.head.is_multiple_of(line) {
            // Relaxed: the mark of this line was acquired.
            let first = slots.first(self.head).load(Ordering::Relaxed);
            if first != FILLER {
                let words = slots.take(self.head, first);
                self.head += 1;
                return Some(words);
            }
            self.head = self.head.next_multiple_of(line);
        }
        // Acquire: pairs with the Release in Sender::write_line().
        let first = slots.first(self.head).load(Ordering::Acquire);
        if first & LANE_BIT != mark(slots, self.head) {
            return None;
        }
        let words = slots.take(self.head, first & !LANE_BIT);
        self.head += 1;
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        let line = Slots::<W>::PER_LINE as u64;
        let done = self.head - self.head % line;
        if done != self.told {
            self.told = done;
            // Release: the lines before `done` were read; pairs with the Acquire in has_room().
            self.shared.head.store(done, Ordering::Release);
        }
    }
}
