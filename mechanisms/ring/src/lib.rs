#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod config;
mod drain;
mod error;
pub mod queue;
#[allow(unsafe_code)]
mod raw;
mod stage;

pub use config::{SLOTS_COUNT_MAX, validate};
pub use error::{CapacityError, PushError, ReplyError, SendError, Unanswered};

/// One producer, one consumer.
///
/// # The algorithm
/// Slots in a circle and two positions that count from zero and never wrap (64 bits): the producer's,
/// up to which values are published, and the consumer's, below which they have been popped. Each
/// stands in a line of its own and is stored with every push and pop, but looked at by the other side
/// only when, by what it remembers, the ring is full or empty. So in a stream most pushes and pops
/// touch their own line and the slot's alone.
///
/// What then costs is the slots' lines on their way from core to core, and both sides ask for them
/// ahead: the consumer for lines that it knows to be filled, the producer for lines that it knows to
/// be vacant. Never for others: that would take a line from who is still at work on it.
///
/// # Source
/// The remembered opposite index: Lee, Bu, Chandranmenon, "A lock-free, cache-efficient shared ring
/// buffer for multi-core architectures" (ANCS 2009).
pub mod spsc {
    pub use crate::raw::spsc::{Consumer, Drain, Producer, ring};
}

/// Many producers, one consumer.
///
/// # The algorithm
/// Each slot has a sequence beside it. A producer takes a position by moving the tail (one
/// compare-and-swap, repeated only if another was quicker), fills the slot, and writes the position
/// into the sequence. The consumer looks at the sequence of the next slot and at nothing else: while
/// it waits it does not disturb the producers, and with one producer a value costs one line's trip.
///
/// A producer that is interrupted between taking a position and filling the slot holds up what
/// others push after it: the consumer sees nothing until it goes on, but nobody else is blocked and
/// nothing is lost.
///
/// # Source
/// D. Vyukov, "Bounded MPMC queue" (1024cores.net, 2010), with one consumer, and with the
/// consumer's position apart instead of written back into the slots.
pub mod mpsc {
    pub use crate::raw::mpsc::{Consumer, Drain, Producer, ring};
}

/// One request at a time from one thread to another, and its reply back, in one cache line.
///
/// # The algorithm
/// A baton: one word says whose the line is. The caller writes the request and hands the line over, the
/// server writes the reply into the same line and hands it back. Nothing else is shared, so that a
/// request and its reply cost what one line costs to the other CPU and back, if both fit into
/// 56 bytes.
pub mod mailbox {
    pub use crate::raw::mailbox::{Caller, Server, pair};
}
