//! Lane: the mailbox between a client and the arbiter.
//!
//! A lane has one sender, one receiver, and slots of 1, 2 or 4 words. Bit 63 of a slot's first word
//! shows in which lap the slot was filled; the sender passes it as zero. The receiver reads only
//! the next slot, and writes nothing into it: words that are sent together travel together, and no
//! other line is transferred for them. The receiver publishes its position on a line of its own,
//! after each quarter of the slots; the sender reads that line only when the lane is full by its
//! cached copy. No operation blocks; a push to a full lane fails.
//!
//! # Source
//! Marks in the slots: J. Giacomoni, T. Moseley, M. Vachharajani, "FastForward for efficient
//! pipeline parallelism" (PPoPP 2008). Cached index: P. Lee, T. Bu, G. Chandranmenon, "A lock-free,
//! cache-efficient shared ring buffer for multi-core architectures" (ANCS 2009).

mod slots;

use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};
use slots::{LaneSlots, SlotsView};

/// Maximum number of slots of a lane (a mailbox in one direction).
pub const LANE_SLOTS_MAX: u32 = 1 << 24;

/// Bit of a slot's first word that is inverted in each lap, to mark new slots. Callers pass it as
/// zero.
const LAP_BIT: u64 = 1 << 63;

/// Error of [`lane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The requested number of slots is outside `1..=LANE_SLOTS_MAX`.
    #[error("mailbox_slots_count={slots_count}: must lie in 1..={LANE_SLOTS_MAX}")]
    Slots {
        /// Requested number of slots.
        slots_count: u32,
    },
}

/// Position up to which the receiver has read the slots; the sender may reuse these.
type SharedHead = Arc<CachePadded<AtomicU64>>;

/// Returns the value of [`LAP_BIT`] in slots that are filled in the lap of `position`. The bit is
/// set in the first lap, as memory is zero initially, and inverted in each later lap.
#[inline(always)]
fn lap_bit<const W: usize>(slots: SlotsView<'_, W>, position: u64) -> u64 {
    (!slots.lap_number(position) & 1) << LAP_BIT.trailing_zeros()
}

/// Sending end of a lane, which pushes slots.
pub struct LaneSender<const W: usize> {
    /// Position of the next slot to push.
    tail: u64,
    /// Position up to which slots are known to be free.
    limit: u64,
    /// Requested capacity of the lane in slots. The memory wraps around at a power of two.
    slots_count: u64,
    slots: LaneSlots<W>,
    shared_head: SharedHead,
}

/// Receiving end of a lane, which pops slots.
pub struct LaneReceiver<const W: usize> {
    /// Position of the next slot to pop.
    head: u64,
    /// Receiver's position as last published to the sender.
    published_head: u64,
    /// Number of pops after which the receiver's position is published to the sender.
    publish_interval: u64,
    slots: LaneSlots<W>,
    shared_head: SharedHead,
}

/// Creates a lane of exactly `slots_count` slots of `W` words (1, 2 or 4). Returns its sender and
/// receiver.
///
/// # Errors
/// [`LaneError`].
pub fn lane<const W: usize>(
    slots_count: u32,
) -> Result<(LaneSender<W>, LaneReceiver<W>), LaneError> {
    if !(1..=LANE_SLOTS_MAX).contains(&slots_count) {
        return Err(LaneError::Slots { slots_count });
    }
    let slots = LaneSlots::new(slots_count as usize);
    let slots_count = u64::from(slots_count);
    let shared_head = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let sender = LaneSender {
        tail: 0,
        limit: slots_count,
        slots_count,
        slots: slots.clone(),
        shared_head: Arc::clone(&shared_head),
    };
    let publish_interval = (slots_count / 4).max(1);
    let receiver =
        LaneReceiver { head: 0, published_head: 0, publish_interval, slots, shared_head };
    Ok((sender, receiver))
}

impl<const W: usize> LaneSender<W> {
    /// Reads the receiver's position; returns `true` if a slot is free.
    #[cold]
    #[inline(never)]
    fn refresh_limit(&mut self) -> bool {
        // Acquire: pairs with the Release in LaneReceiver::publish_head(): the old contents were
        // read.
        self.limit = self.shared_head.load(Ordering::Acquire) + self.slots_count;
        self.tail < self.limit
    }

    /// Pushes a slot and makes it visible to the receiver. Returns `false` if the lane is full. The
    /// slot's first word must have bit 63 clear.
    #[inline(always)]
    pub fn push(&mut self, words: [u64; W]) -> bool {
        if self.tail == self.limit && !self.refresh_limit() {
            return false;
        }
        let slots = self.slots.view();
        slots.prefetch_ahead(self.tail);
        slots.write_rest(self.tail, &words);
        // Release: publishes the slot's other words to the Acquire in LaneReceiver::pop().
        slots.first_word(self.tail).store(words[0] | lap_bit(slots, self.tail), Ordering::Release);
        self.tail += 1;
        true
    }

    /// Pushes slots in order until the lane is full; returns the number of slots pushed.
    #[inline(always)]
    pub fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        let count = slots.len().min(self.free_count(slots.len()));
        let (view, mut tail, mut rest) = (self.slots.view(), self.tail, &slots[..count]);
        while !rest.is_empty() {
            view.prefetch_ahead(tail);
            let (line, lap_bit) = (view.words_to_line_end(tail), lap_bit(view, tail));
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
                // LaneReceiver::pop_all().
                slot[0].store(words[0] | lap_bit, Ordering::Release);
            }
            tail += run.len() as u64;
        }
        self.tail = tail;
        count
    }

    /// Returns the number of slots known to be free. If it is less than `wanted_count`, updates it
    /// from the receiver's position first. The result is zero only if the lane was full when read.
    #[inline(always)]
    pub fn free_count(&mut self, wanted_count: usize) -> usize {
        if self.limit - self.tail < wanted_count as u64 {
            self.refresh_limit();
        }
        (self.limit - self.tail) as usize
    }
}

impl<const W: usize> LaneReceiver<W> {
    /// Publishes the receiver's position to the sender.
    #[inline(always)]
    fn publish_head(&mut self) {
        self.published_head = self.head;
        // Release: pairs with the Acquire in LaneSender::refresh_limit().
        self.shared_head.store(self.head, Ordering::Release);
    }

    /// Pops the oldest slot, and clears bit 63 of its first word. Returns `None` if the lane is
    /// empty.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<[u64; W]> {
        let slots = self.slots.view();
        // Acquire: pairs with the Release in LaneSender::push().
        let first = slots.first_word(self.head).load(Ordering::Acquire);
        if first & LAP_BIT != lap_bit(slots, self.head) {
            if self.published_head != self.head {
                self.publish_head();
            }
            return None;
        }
        let words = slots.read_words(self.head, first & !LAP_BIT);
        self.head += 1;
        if self.head - self.published_head >= self.publish_interval {
            self.publish_head();
        }
        Some(words)
    }

    /// Pops slots in order into `slots` until the lane is empty or `slots` is full. Returns the
    /// number of slots popped.
    #[inline(always)]
    pub fn pop_all(&mut self, slots: &mut [[u64; W]]) -> usize {
        let (view, mut head, mut count) = (self.slots.view(), self.head, 0);
        'lines: while count < slots.len() {
            let (line, lap_bit) =
                (view.words_to_line_end(head + count as u64), lap_bit(view, head + count as u64));
            for (slot, words) in slots[count..].iter_mut().zip(line.chunks_exact(W)) {
                // Acquire: pairs with the Release in LaneSender::push() and LaneSender::push_all().
                let first = words[0].load(Ordering::Acquire) ^ lap_bit;
                if first & LAP_BIT != 0 {
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
}
