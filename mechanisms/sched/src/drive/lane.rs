//! Lanes: the mailboxes between a client and the arbiter, in several layouts behind one trait.
//!
//! A lane has one sender, one receiver, and slots of 1, 2 or 4 words. Bit 63 of a slot's first word
//! is reserved for the lane: the sender passes it as zero. No operation blocks; a push to a full
//! lane fails.
//!
//! | lane | indicator of a full slot | cache lines transferred for 8 words sent one by one |
//! |---|---|---|
//! | [`Plain`] | the sender's index and the receiver's, each on a line of its own and read every time | up to 8 + 8 + 1 |
//! | [`Cached`] | the same indices, of which each side keeps a copy of the other's | up to 8 + 1 |
//! | [`Marks`] | the slot itself; the receiver clears it again, a line at a time | 1 to 8, and 1 back |
//! | [`Lines`] | the first slot of a line, written last, for all slots of the line | 1 |
//! | [`Laps`] | a bit of the slot itself, which alternates with every lap; no slot is cleared | 1 to 8 |
//!
//! "1 to 8": as often as the receiver polls while the sender is filling a line. Words pushed
//! together ([`Post::push`] several times, then [`Post::publish`]) travel together.
//!
//! # Source
//! Indices: L. Lamport, "Specifying concurrent program modules" (TOPLAS 1983). Remembered indices:
//! P. Lee, T. Bu, G. Chandranmenon, "A lock-free, cache-efficient shared ring buffer for multi-core
//! architectures" (ANCS 2009). Marks in the slots: J. Giacomoni, T. Moseley, M. Vachharajani,
//! "FastForward for efficient pipeline parallelism" (PPoPP 2008); probing ahead: J. Wang, K. Zhang,
//! X. Tang, B. Hua, "B-Queue: efficient and practical queuing for fast core-to-core communication"
//! (IJPP 2013); clearing by whole lines: V. Maffione, G. Lettieri, L. Rizzo, "Cache-aware design of
//! general-purpose single-producer single-consumer queues" (Software: Practice and Experience
//! 2019), whose "improved FastForward" [`Marks`] is.

mod index;
mod laps;
mod lines;
mod marks;
mod slots;

pub use index::{Cached, Plain};
pub use laps::Laps;
pub use lines::Lines;
pub use marks::Marks;

/// Greatest number of slots of a lane.
pub const LANE_SLOTS_MAX: u32 = 1 << 24;

/// Bit of a slot's first word that is reserved for the lane.
pub const LANE_BIT: u64 = 1 << 63;

/// Error of making a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The number of slots is outside its range.
    #[error("mailbox_slots_count={slots_count}: must lie in 1..={LANE_SLOTS_MAX}")]
    Slots {
        /// The requested number.
        slots_count: u32,
    },
}

/// Layout of the slots between two threads.
pub trait Lane: Send + Sync + 'static {
    /// Name in tables.
    const NAME: &'static str;
    /// End that pushes slots of `W` words.
    type Sender<const W: usize>: Post<W>;
    /// End that pops slots of `W` words.
    type Receiver<const W: usize>: Collect<W>;

    /// Makes a lane of at least `slots_count` slots: exactly as many with [`Laps`], [`Plain`] and
    /// [`Cached`]; the others round up to whole lines.
    ///
    /// # Errors
    /// [`LaneError`].
    #[allow(clippy::type_complexity)]
    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(Self::Sender<W>, Self::Receiver<W>), LaneError>;
}

/// Pushing end of a lane.
pub trait Post<const W: usize>: Send + 'static {
    /// `true` if [`publish`](Self::publish) has an effect.
    const NEEDS_PUBLISH: bool = true;

    /// Pushes a slot, with bit 63 of its first word zero; returns `false` if the lane is full, or
    /// looked full.
    ///
    /// The receiver sees the slot at the next [`publish`](Self::publish) at the latest.
    fn push(&mut self, words: [u64; W]) -> bool;

    /// Pushes as many of these slots, in order, as fit; returns their number.
    #[inline(always)]
    fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        slots.iter().take_while(|&&words| self.push(words)).count()
    }

    /// Returns `true` if a push would succeed. `true` holds until this end pushes; `false` may be
    /// stale.
    fn has_room(&mut self) -> bool;

    /// Returns a number of pushes that would succeed: not zero if [`has_room`] is `true`.
    /// `slots_count` is the number wanted; the result may be greater.
    ///
    /// [`has_room`]: Self::has_room
    #[inline(always)]
    fn free_count(&mut self, _slots_count: usize) -> usize {
        usize::from(self.has_room())
    }

    /// Makes all pushed slots visible to the receiver.
    fn publish(&mut self);
}

/// Popping end of a lane.
pub trait Collect<const W: usize>: Send + 'static {
    /// Pops the oldest slot, with bit 63 of its first word zero, if there is one.
    fn pop(&mut self) -> Option<[u64; W]>;

    /// Pops slots in order, as many as there are and `slots` has room for; returns their number.
    #[inline(always)]
    fn pop_all(&mut self, slots: &mut [[u64; W]]) -> usize {
        let mut popped = 0;
        for slot in slots {
            let Some(words) = self.pop() else { break };
            *slot = words;
            popped += 1;
        }
        popped
    }

    /// Announces that no pop follows soon, so that the sender learns of the free slots.
    fn release(&mut self);
}

/// Checks that a lane may have this number of slots.
fn validate(slots_count: u32) -> Result<(), LaneError> {
    match (1..=LANE_SLOTS_MAX).contains(&slots_count) {
        true => Ok(()),
        false => Err(LaneError::Slots { slots_count }),
    }
}
