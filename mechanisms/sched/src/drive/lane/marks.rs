//! The slot says that it is full: it is not null. The receiver makes it null again.

use super::slots::Slots;
use super::{Collect, LANE_BIT, Lane, LaneError, Post, validate};
use handover_base::sync::Arc;
use handover_base::sync::atomic::Ordering;

/// Fixed slots with null marks (improved FastForward): the receiver clears slots behind itself by whole
/// lines, and the sender goes into a line when the next one is null too: so there is always a null at
/// which the receiver stops. There is no index that both know.
#[derive(Debug)]
pub enum Marks {}

/// The end of [`Marks`] that pushes.
pub struct Sender<const W: usize> {
    tail: u64,
    /// Slots below, and a line more, are known to be null.
    limit: u64,
    slots: Arc<Slots<W>>,
}

/// The end of [`Marks`] that pops.
pub struct Receiver<const W: usize> {
    head: u64,
    /// Slots below are null again.
    cleared: u64,
    slots: Arc<Slots<W>>,
}

impl Lane for Marks {
    const NAME: &'static str = "marks";
    type Sender<const W: usize> = Sender<W>;
    type Receiver<const W: usize> = Receiver<W>;

    /// The line that is being filled and the one that is being emptied cannot be used again yet, so
    /// two more are made than would hold `slots_count`, and rounded up to a power of two.
    fn pair<const W: usize>(slots_count: u32) -> Result<(Sender<W>, Receiver<W>), LaneError> {
        validate(slots_count)?;
        let slots = Arc::new(Slots::new(slots_count as usize + 2 * Slots::<W>::PER_LINE));
        let sender = Sender { tail: 0, limit: 0, slots: Arc::clone(&slots) };
        Ok((sender, Receiver { head: 0, cleared: 0, slots }))
    }
}

impl<const W: usize> Post<W> for Sender<W> {
    const LAZY: bool = false;

    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_room() {
            return false;
        }
        self.slots.put_rest(self.tail, &words);
        // Release: publishes the words behind it to the Acquire in Receiver::pop().
        self.slots.first(self.tail).store(words[0] | LANE_BIT, Ordering::Release);
        self.tail += 1;
        true
    }

    #[inline(always)]
    fn has_room(&mut self) -> bool {
        if self.tail < self.limit {
            return true;
        }
        // The receiver clears in order, so that both lines are null if the last slot of the next is.
        let line = Slots::<W>::PER_LINE as u64;
        let last = self.limit + 2 * line - 1;
        // Acquire: pairs with the Release in Receiver::clear(): what lay there has been taken.
        if self.slots.first(last).load(Ordering::Acquire) != 0 {
            return false;
        }
        self.limit += line;
        self.slots.claim_ahead(self.limit);
        true
    }

    #[inline(always)]
    fn publish(&mut self) {}
}

impl<const W: usize> Receiver<W> {
    /// Clears up to a position, which begins a line.
    #[inline(always)]
    fn clear(&mut self, until: u64) {
        while self.cleared < until {
            // Release: its words have been read; pairs with the Acquire in Sender::has_room().
            self.slots.first(self.cleared).store(0, Ordering::Release);
            self.cleared += 1;
        }
    }
}

impl<const W: usize> Collect<W> for Receiver<W> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        // Acquire: pairs with the Release in Sender::push().
        let first = self.slots.first(self.head).load(Ordering::Acquire);
        if first == 0 {
            return None;
        }
        let words = self.slots.take(self.head, first & !LANE_BIT);
        self.head += 1;
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        let line = Slots::<W>::PER_LINE as u64;
        // Not the line of the head: the sender may be in it.
        self.clear(self.head - self.head % line);
    }
}
