//! How words go from one thread to another: the mailboxes between a client and the arbiter, in
//! several lay-outs behind one trait.
//!
//! A lane has one sender and one receiver and slots of 1, 2 or 4 words. Bit 63 of a slot's first word
//! is the lane's own: the sender leaves it zero. Nothing here blocks; a full lane says so.
//!
//! | lane | who says that a slot is full | lines that travel for 8 words one by one |
//! |---|---|---|
//! | [`Plain`] | the sender's index, on a line of its own, and the receiver's, each read every time | up to 8 + 8 + 1 |
//! | [`Cached`] | the same, each side remembering what it last saw of the other | up to 8 + 1 |
//! | [`Marks`] | the slot itself, which the receiver clears again, a line at a time | 1 to 8, and 1 back |
//! | [`Lines`] | the first slot of a line, written last and for all of them | 1 |
//! | [`Laps`] | the slot itself, by a bit that changes with every lap: nothing is cleared | 1 to 8 |
//!
//! "1 to 8": as many as the receiver looks while the sender is filling a line. Words that are pushed
//! together ([`Post::push`] several times, then [`Post::publish`]) travel together.
//!
//! # Source
//! Indices: L. Lamport, "Specifying concurrent program modules" (TOPLAS 1983). Remembered indices:
//! P. Lee, T. Bu, G. Chandranmenon, "A lock-free, cache-efficient shared ring buffer for multi-core
//! architectures" (ANCS 2009). Marks in the slots: J. Giacomoni, T. Moseley, M. Vachharajani,
//! "FastForward for efficient pipeline parallelism" (PPoPP 2008); probing ahead: J. Wang, K. Zhang,
//! X. Tang, B. Hua, "B-Queue: efficient and practical queuing for fast core-to-core communication"
//! (IJPP 2013); clearing by whole lines: V. Maffione, G. Lettieri, L. Rizzo, "Cache-aware design of
//! general-purpose single-producer single-consumer queues" (Software: Practice and Experience 2019),
//! whose "improved FastForward" [`Marks`] is.

mod index;
mod laps;
mod lines;
mod marks;
mod slots;

pub use index::{Cached, Plain};
pub use laps::Laps;
pub use lines::Lines;
pub use marks::Marks;

/// The most slots that a lane may have.
pub const LANE_SLOTS_MAX: u32 = 1 << 24;

/// The bit of a slot's first word that is the lane's own.
pub const LANE_BIT: u64 = 1 << 63;

/// A lane's slots cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// None, or more than a lane may have.
    #[error("a mailbox of {slots_count} slots: must lie in 1..={LANE_SLOTS_MAX}")]
    Slots {
        /// How many were asked for.
        slots_count: u32,
    },
}

/// A lay-out of the slots between two threads.
pub trait Lane: Send + Sync + 'static {
    /// Its name in tables.
    const NAME: &'static str;
    /// The end that pushes slots of `W` words.
    type Sender<const W: usize>: Post<W>;
    /// The end that pops them.
    type Receiver<const W: usize>: Collect<W>;

    /// A lane of at least so many slots ([`Laps`], [`Plain`] and [`Cached`]: of exactly so many;
    /// the others round up to lines).
    ///
    /// # Errors
    /// [`LaneError`].
    #[allow(clippy::type_complexity)]
    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(Self::Sender<W>, Self::Receiver<W>), LaneError>;
}

/// The end of a lane that pushes.
pub trait Post<const W: usize>: Send + 'static {
    /// Whether [`publish`](Self::publish) does anything.
    const LAZY: bool = true;

    /// Pushes a slot, of whose first word bit 63 is zero; false: the lane is full, or looked so.
    ///
    /// The receiver sees it by the next [`publish`](Self::publish) at the latest.
    fn push(&mut self, words: [u64; W]) -> bool;

    /// Pushes as many of these, in order, as there is room for; how many.
    #[inline(always)]
    fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        slots.iter().take_while(|&&words| self.push(words)).count()
    }

    /// Whether a push would succeed. True stays true until this end pushes; false may be stale.
    fn has_room(&mut self) -> bool;

    /// For how many of so many pushes there is room at least: not zero where [`has_room`] is true.
    ///
    /// [`has_room`]: Self::has_room
    #[inline(always)]
    fn room(&mut self, _slots_count: usize) -> usize {
        usize::from(self.has_room())
    }

    /// Shows the receiver all that was pushed.
    fn publish(&mut self);
}

/// The end of a lane that pops.
pub trait Collect<const W: usize>: Send + 'static {
    /// Pops the oldest slot, bit 63 of its first word zero, if there is one.
    fn pop(&mut self) -> Option<[u64; W]>;

    /// Pops as many as there are, in order, as long as `slots` has room; how many.
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

    /// Says that no pop follows soon: the sender may be told what room there is.
    fn release(&mut self);
}

/// Whether a lane may have so many slots.
fn validate(slots_count: u32) -> Result<(), LaneError> {
    match (1..=LANE_SLOTS_MAX).contains(&slots_count) {
        true => Ok(()),
        false => Err(LaneError::Slots { slots_count }),
    }
}
