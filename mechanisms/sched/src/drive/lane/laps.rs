//! Lane whose slots are full if a bit in them matches the lap.

use super::slots::{Slots, View};
use super::{Collect, LANE_BIT, Lane, LaneError, Post, validate};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lane with fixed slots, each with a bit that tells in which lap it was filled: the receiver reads
/// only the next slot, and writes nothing into it. It publishes its position on a line of its own,
/// after each quarter of the slots; the sender reads that line only when the lane is full by its
/// cached copy.
#[derive(Debug)]
pub enum Laps {}

/// Slots before this position are free for the sender.
type Head = Arc<CachePadded<AtomicU64>>;

/// Returns the bit of a slot filled in this lap: 1 in the first lap, since memory begins as zeros.
#[inline(always)]
fn mark<const W: usize>(slots: View<'_, W>, position: u64) -> u64 {
    (!slots.lap(position) & 1) << LANE_BIT.trailing_zeros()
}

/// Pushing end of [`Laps`].
pub struct Sender<const W: usize> {
    tail: u64,
    /// Positions before this one are known to be free.
    limit: u64,
    /// Number of slots in use, as requested; the memory wraps around at a power of two.
    slots_count: u64,
    slots: Slots<W>,
    shared_head: Head,
}

/// Popping end of [`Laps`].
pub struct Receiver<const W: usize> {
    head: u64,
    /// Position last published to the sender.
    told: u64,
    /// Number of pops after which the position is published.
    patience: u64,
    slots: Slots<W>,
    shared_head: Head,
}

impl Lane for Laps {
    const NAME: &'static str = "laps";
    type Sender<const W: usize> = Sender<W>;
    type Receiver<const W: usize> = Receiver<W>;

    fn pair<const W: usize>(slots_count: u32) -> Result<(Sender<W>, Receiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = Slots::new(slots_count as usize);
        let slots_count = u64::from(slots_count);
        let shared_head = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let sender = Sender {
            tail: 0,
            limit: slots_count,
            slots_count,
            slots: slots.clone(),
            shared_head: Arc::clone(&shared_head),
        };
        let patience = (slots_count / 4).max(1);
        Ok((sender, Receiver { head: 0, told: 0, patience, slots, shared_head }))
    }
}

impl<const W: usize> Sender<W> {
    #[cold]
    #[inline(never)]
    fn look(&mut self) -> bool {
        // Acquire: pairs with the Release in Receiver::tell(): the old contents were taken.
        self.limit = self.shared_head.load(Ordering::Acquire) + self.slots_count;
        self.tail < self.limit
    }
}

impl<const W: usize> Post<W> for Sender<W> {
    const LAZY: bool = false;

    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_room() {
            return false;
        }
        let slots = self.slots.view();
        slots.claim_ahead(self.tail);
        slots.put_rest(self.tail, &words);
        // Release: publishes the slot's other words to the Acquire in Receiver::pop().
        slots.first(self.tail).store(words[0] | mark(slots, self.tail), Ordering::Release);
        self.tail += 1;
        true
    }

    #[inline(always)]
    fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        let count = slots.len().min(self.room(slots.len()));
        let (view, mut tail, mut rest) = (self.slots.view(), self.tail, &slots[..count]);
        while !rest.is_empty() {
            view.claim_ahead(tail);
            let (line, mark) = (view.rest_of_line(tail), mark(view, tail));
            let run;
            (run, rest) = rest.split_at(rest.len().min(line.len() / W));
            // The last slot first: a receiver that sees the first slot also finds the others, and
            // does not take the line away while it is being written.
            let line = &line[..run.len() * W];
            for at in (0..run.len()).rev() {
                let (slot, words) = (&line[at * W..][..W], &run[at]);
                for (word, &value) in slot.iter().zip(words).skip(1) {
                    // Relaxed: the first word publishes them.
                    word.store(value, Ordering::Relaxed);
                }
                // Release: publishes the slot's other words to the Acquire in Receiver::pop_all().
                slot[0].store(words[0] | mark, Ordering::Release);
            }
            tail += run.len() as u64;
        }
        self.tail = tail;
        count
    }

    #[inline(always)]
    fn room(&mut self, slots_count: usize) -> usize {
        if self.limit - self.tail < slots_count as u64 {
            self.look();
        }
        (self.limit - self.tail) as usize
    }

    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.tail < self.limit || self.look()
    }

    #[inline(always)]
    fn publish(&mut self) {}
}

impl<const W: usize> Receiver<W> {
    #[inline(always)]
    fn tell(&mut self) {
        self.told = self.head;
        // Release: pairs with the Acquire in Sender::look().
        self.shared_head.store(self.head, Ordering::Release);
    }
}

impl<const W: usize> Collect<W> for Receiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        let slots = self.slots.view();
        // Acquire: pairs with the Release in Sender::push().
        let first = slots.first(self.head).load(Ordering::Acquire);
        if first & LANE_BIT != mark(slots, self.head) {
            if self.told != self.head {
                self.tell();
            }
            return None;
        }
        let words = slots.take(self.head, first & !LANE_BIT);
        self.head += 1;
        if self.head - self.told >= self.patience {
            self.tell();
        }
        Some(words)
    }

    #[inline(always)]
    fn pop_all(&mut self, slots: &mut [[u64; W]]) -> usize {
        let (view, mut head, mut count) = (self.slots.view(), self.head, 0);
        'lines: while count < slots.len() {
            let (line, mark) =
                (view.rest_of_line(head + count as u64), mark(view, head + count as u64));
            for (slot, words) in slots[count..].iter_mut().zip(line.chunks_exact(W)) {
                // Acquire: pairs with the Release in Sender::push() and Sender::push_all().
                let first = words[0].load(Ordering::Acquire) ^ mark;
                if first & LANE_BIT != 0 {
                    break 'lines;
                }
                // Relaxed: published by the first word.
                *slot = std::array::from_fn(|at| match at {
                    0 => first,
                    _ => words[at].load(Ordering::Relaxed),
                });
                count += 1;
            }
        }
        head += count as u64;
        self.head = head;
        if count == slots.len() {
            // The sender is ahead: the next slots are fetched while these are processed.
            view.fetch(head, count);
        }
        let untold = head - self.told;
        if untold >= self.patience || (count == 0 && untold > 0) {
            self.tell();
        }
        count
    }

    #[inline(always)]
    fn release(&mut self) {}
}
