//! Lane whose slots are full if a bit in them matches the lap.

use super::slots::{LaneSlots, SlotsView};
use super::traits::validate;
use super::{LANE_BIT, Lane, LaneError, LaneReceiver, LaneSender};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lane with fixed slots, each with a bit that shows in which lap it was filled: the receiver reads
/// only the next slot, and writes nothing into it. It publishes its position on a line of its own,
/// after each quarter of the slots; the sender reads that line only when the lane is full by its
/// cached copy.
#[derive(Debug)]
pub enum Laps {}

/// Slots before this position are free for the sender.
type Head = Arc<CachePadded<AtomicU64>>;

/// Returns the lane's bit of a slot filled in this lap: 1 in the first lap, as memory is zero at
/// first.
#[inline(always)]
fn lap_bit<const W: usize>(slots: SlotsView<'_, W>, position: u64) -> u64 {
    (!slots.lap(position) & 1) << LANE_BIT.trailing_zeros()
}

/// Pushing end of [`Laps`].
pub struct LapsSender<const W: usize> {
    tail: u64,
    /// Positions before this one are known to be free.
    limit: u64,
    /// Number of slots in use, as requested; the memory wraps around at a power of two.
    slots_count: u64,
    slots: LaneSlots<W>,
    shared_head: Head,
}

/// Popping end of [`Laps`].
pub struct LapsReceiver<const W: usize> {
    head: u64,
    /// Position last published to the sender.
    published_head: u64,
    /// Number of pops after which the position is published.
    publish_interval: u64,
    slots: LaneSlots<W>,
    shared_head: Head,
}

impl Lane for Laps {
    const NAME: &'static str = "laps";
    type Sender<const W: usize> = LapsSender<W>;
    type Receiver<const W: usize> = LapsReceiver<W>;

    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(LapsSender<W>, LapsReceiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = LaneSlots::new(slots_count as usize);
        let slots_count = u64::from(slots_count);
        let shared_head = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let sender = LapsSender {
            tail: 0,
            limit: slots_count,
            slots_count,
            slots: slots.clone(),
            shared_head: Arc::clone(&shared_head),
        };
        let publish_interval = (slots_count / 4).max(1);
        Ok((
            sender,
            LapsReceiver { head: 0, published_head: 0, publish_interval, slots, shared_head },
        ))
    }
}

impl<const W: usize> LapsSender<W> {
    #[cold]
    #[inline(never)]
    fn refresh_limit(&mut self) -> bool {
        // Acquire: pairs with the Release in LapsReceiver::publish_head(): the old contents were
        // taken.
        self.limit = self.shared_head.load(Ordering::Acquire) + self.slots_count;
        self.tail < self.limit
    }
}

impl<const W: usize> LaneSender<W> for LapsSender<W> {
    const NEEDS_PUBLISH: bool = false;

    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_free_slot() {
            return false;
        }
        let slots = self.slots.view();
        slots.prefetch_ahead(self.tail);
        slots.write_rest(self.tail, &words);
        // Release: publishes the slot's other words to the Acquire in LapsReceiver::pop().
        slots.first(self.tail).store(words[0] | lap_bit(slots, self.tail), Ordering::Release);
        self.tail += 1;
        true
    }

    #[inline(always)]
    fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        let count = slots.len().min(self.free_count(slots.len()));
        let (view, mut tail, mut rest) = (self.slots.view(), self.tail, &slots[..count]);
        while !rest.is_empty() {
            view.prefetch_ahead(tail);
            let (line, lap_bit) = (view.rest_of_line(tail), lap_bit(view, tail));
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
                // Release: publishes the slot's other words to the Acquire in
                // LapsReceiver::pop_all().
                slot[0].store(words[0] | lap_bit, Ordering::Release);
            }
            tail += run.len() as u64;
        }
        self.tail = tail;
        count
    }

    #[inline(always)]
    fn free_count(&mut self, slots_count: usize) -> usize {
        if self.limit - self.tail < slots_count as u64 {
            self.refresh_limit();
        }
        (self.limit - self.tail) as usize
    }

    #[inline(always)]
    fn has_free_slot(&mut self) -> bool {
        self.tail < self.limit || self.refresh_limit()
    }

    #[inline(always)]
    fn publish(&mut self) {}
}

impl<const W: usize> LapsReceiver<W> {
    #[inline(always)]
    fn publish_head(&mut self) {
        self.published_head = self.head;
        // Release: pairs with the Acquire in LapsSender::refresh_limit().
        self.shared_head.store(self.head, Ordering::Release);
    }
}

impl<const W: usize> LaneReceiver<W> for LapsReceiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        let slots = self.slots.view();
        // Acquire: pairs with the Release in LapsSender::push().
        let first = slots.first(self.head).load(Ordering::Acquire);
        if first & LANE_BIT != lap_bit(slots, self.head) {
            if self.published_head != self.head {
                self.publish_head();
            }
            return None;
        }
        let words = slots.read(self.head, first & !LANE_BIT);
        self.head += 1;
        if self.head - self.published_head >= self.publish_interval {
            self.publish_head();
        }
        Some(words)
    }

    #[inline(always)]
    fn pop_all(&mut self, slots: &mut [[u64; W]]) -> usize {
        let (view, mut head, mut count) = (self.slots.view(), self.head, 0);
        'lines: while count < slots.len() {
            let (line, lap_bit) =
                (view.rest_of_line(head + count as u64), lap_bit(view, head + count as u64));
            for (slot, words) in slots[count..].iter_mut().zip(line.chunks_exact(W)) {
                // Acquire: pairs with the Release in LapsSender::push() and LapsSender::push_all().
                let first = words[0].load(Ordering::Acquire) ^ lap_bit;
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
            // The sender is ahead: the next slots are prefetched while these are processed.
            view.prefetch(head, count);
        }
        let unpublished = head - self.published_head;
        if unpublished >= self.publish_interval || (count == 0 && unpublished > 0) {
            self.publish_head();
        }
        count
    }

    #[inline(always)]
    fn release(&mut self) {}
}
