//! The slot says that it is full, by a bit that changes from lap to lap.

use super::slots::{Slots, View};
use super::{Collect, LANE_BIT, Lane, LaneError, Post, validate};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Fixed slots, each with a mark that says in which lap it was filled: the receiver looks at the next
/// slot alone and writes nothing into it. It tells how far it is on a line of its own, a quarter of
/// the slots late, which the sender reads only when by what it remembers the lane is full.
#[derive(Debug)]
pub enum Laps {}

/// Slots before this position are the sender's again.
type Head = Arc<CachePadded<AtomicU64>>;

/// What the first word of a slot is marked with in this lap: 1 in the first, since memory begins
/// with zeros.
#[inline(always)]
fn mark<const W: usize>(slots: View<'_, W>, position: u64) -> u64 {
    (!slots.lap(position) & 1) << LANE_BIT.trailing_zeros()
}

/// The end of [`Laps`] that pushes.
pub struct Sender<const W: usize> {
    tail: u64,
    /// Positions below are known to be free.
    limit: u64,
    /// As asked for; the memory goes around in a power of two.
    slots_count: u64,
    slots: Slots<W>,
    shared_head: Head,
}

/// The end of [`Laps`] that pops.
pub struct Receiver<const W: usize> {
    head: u64,
    /// What the sender has been told.
    told: u64,
    /// How far to go before the sender is told.
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
        // Acquire: pairs with the Release in Receiver::tell(): what lay there has been taken.
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
        // Release: publishes the words behind it to the Acquire in Receiver::pop().
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
            // The last first: who looks for the first finds the others there too, and does not take the
            // line away while it is being written.
            let line = &line[..run.len() * W];
            for at in (0..run.len()).rev() {
                let (slot, words) = (&line[at * W..][..W], &run[at]);
                for (word, &value) in slot.iter().zip(words).skip(1) {
                    // Relaxed: the first word publishes them.
                    word.store(value, Ordering::Relaxed);
                }
                // Release: publishes the words behind it to the Acquire in Receiver::pop_all().
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
                // Relaxed: published by the first.
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
            // The sender is ahead: what comes next travels while these are seen to.
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
