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
//! together ([`LaneSender::push`] several times, then [`LaneSender::publish`]) travel together.
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
mod traits;

pub use index::{Cached, Plain};
pub use laps::Laps;
pub use lines::Lines;
pub use marks::Marks;
pub use traits::{LANE_BIT, LANE_SLOTS_MAX, Lane, LaneError, LaneReceiver, LaneSender};
