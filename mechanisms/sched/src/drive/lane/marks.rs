//! Lane whose slots are full if they are not null; the receiver resets them to null.

use super::slots::LaneSlots;
use super::traits::validate;
use super::{LANE_BIT, Lane, LaneError, LaneReceiver, LaneSender};
use handover_base::sync::Arc;
use handover_base::sync::atomic::Ordering;

/// Lane with fixed slots and null marks (improved FastForward): the receiver clears slots behind
/// itself by whole lines, and the sender enters a line when the next one is null, too: so there is
/// always a null slot at which the receiver stops. The two sides share no index.
#[derive(Debug)]
pub enum Marks {}

/// Pushing end of [`Marks`].
pub struct MarksSender<const W: usize> {
    tail: u64,
    /// Slots before this position, and one more line, are known to be null.
    limit: u64,
    slots: Arc<LaneSlots<W>>,
}

/// Popping end of [`Marks`].
pub struct MarksReceiver<const W: usize> {
    head: u64,
    /// Slots before this position are null again.
    cleared: u64,
    slots: Arc<LaneSlots<W>>,
}

impl Lane for Marks {
    const NAME: &'static str = "marks";
    type Sender<const W: usize> = MarksSender<W>;
    type Receiver<const W: usize> = MarksReceiver<W>;

    /// Makes two more lines than hold `slots_count`, since the line being filled and the line being
    /// emptied cannot be reused yet; the number is rounded up to a power of two.
    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(MarksSender<W>, MarksReceiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = Arc::new(LaneSlots::new(slots_count as usize + 2 * LaneSlots::<W>::PER_LINE));
        let sender = MarksSender { tail: 0, limit: 0, slots: Arc::clone(&slots) };
        Ok((sender, MarksReceiver { head: 0, cleared: 0, slots }))
    }
}

impl<const W: usize> LaneSender<W> for MarksSender<W> {
    const NEEDS_PUBLISH: bool = false;

    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_free_slot() {
            return false;
        }
        self.slots.write_rest(self.tail, &words);
        // Release: publishes the slot's other words to the Acquire in MarksReceiver::pop().
        self.slots.first(self.tail).store(words[0] | LANE_BIT, Ordering::Release);
        self.tail += 1;
        true
    }

    #[inline(always)]
    fn has_free_slot(&mut self) -> bool {
        if self.tail < self.limit {
            return true;
        }
        // The receiver clears in order, so both lines are null if the last slot of the next one is.
        let line = LaneSlots::<W>::PER_LINE as u64;
        let last = self.limit + 2 * line - 1;
        // Acquire: pairs with the Release in MarksReceiver::clear(): the old contents were taken.
        if self.slots.first(last).load(Ordering::Acquire) != 0 {
            return false;
        }
        self.limit += line;
        self.slots.prefetch_ahead(self.limit);
        true
    }

    #[inline(always)]
    fn publish(&mut self) {}
}

impl<const W: usize> MarksReceiver<W> {
    /// Clears the slots before `until`, which is the begin of a line.
    #[inline(always)]
    fn clear(&mut self, until: u64) {
        while self.cleared < until {
            // Release: the slot's words were read; pairs with the Acquire in
            // MarksSender::has_free_slot().
            self.slots.first(self.cleared).store(0, Ordering::Release);
            self.cleared += 1;
        }
    }
}

impl<const W: usize> LaneReceiver<W> for MarksReceiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        // Acquire: pairs with the Release in MarksSender::push().
        let first = self.slots.first(self.head).load(Ordering::Acquire);
        if first == 0 {
            return None;
        }
        let words = self.slots.read(self.head, first & !LANE_BIT);
        self.head += 1;
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        let line = LaneSlots::<W>::PER_LINE as u64;
        // Not the line of `head`: the sender may be filling it.
        self.clear(self.head - self.head % line);
    }
}
