#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod channel;
mod config;
mod drain;
mod error;
pub mod queue;
#[allow(unsafe_code)]
mod raw;
mod stage;
#[cfg(doctest)]
mod variance;

pub use config::{SLOTS_COUNT_MAX, validate};
pub use error::{
    CapacityError, ChunkError, ClosedError, PushError, ReceiveError, ReplyError, SendError,
    TimeoutError,
};

/// Ring buffer with one producer and one consumer.
///
/// # The algorithm
/// Slots in a circle and two positions that count from zero and never wrap (64 bits): the
/// producer's, below which values are published, and the consumer's, below which they have been
/// popped. Each has a cache line of its own and is stored with every push and pop. The other side
/// loads it only when the ring, by the position that it remembers, is full or empty. So in a stream
/// most pushes and pops access only their own line and the slot's.
///
/// The remaining cost is the transfer of the slots' lines from core to core, and both sides
/// prefetch them: the consumer lines that it knows to be filled, the producer lines that it knows
/// to be vacant. Prefetching any other line would take it from the side that still works on it.
///
/// # Source
/// The remembered opposite index: Lee, Bu, Chandranmenon, "A lock-free, cache-efficient shared ring
/// buffer for multi-core architectures" (ANCS 2009).
pub mod spsc {
    pub use crate::raw::spsc::{Consumer, Drain, Producer, ring};
    #[cfg(not(handover_loom))]
    pub use crate::raw::spsc::{ReadChunk, WriteChunk};
}

/// Ring buffer with many producers and one consumer.
///
/// # The algorithm
/// Each slot has a sequence beside it. A producer reserves a position by moving the tail (one
/// compare-and-swap, repeated only if another producer came first), fills the slot, and writes the
/// position into the sequence. The consumer only reads the sequence of the next slot: while it
/// waits it does not disturb the producers, and with one producer a value costs the transfer of one
/// line.
///
/// If a producer is interrupted between reserving a position and filling the slot, the consumer
/// does not see values that others push after it until the producer continues; no other thread is
/// blocked, and no value is lost.
///
/// # Source
/// D. Vyukov, "Bounded MPMC queue" (1024cores.net, 2010), with one consumer, and with the
/// consumer's position apart instead of written back into the slots.
pub mod mpsc {
    pub use crate::raw::mpsc::{Consumer, Drain, Producer, ring};
}

/// Ring buffer with many producers and many consumers; each value goes to one of the consumers.
///
/// # The algorithm
/// Each slot has a word beside it that says whose turn it is: four times the number of the lap
/// around the ring while the slot is vacant, one more while it is filled, two more if consumers are
/// to skip it. A producer reads the turn of the next slot and, if it is vacant in this lap,
/// reserves it by moving the tail (one compare-and-swap), fills it, and passes the turn on; a
/// consumer does the same with the head. Producers never read the head, nor consumers the tail. A
/// waiting side reads only its position and the word of the next slot.
///
/// If a thread is interrupted between reserving a slot and passing its turn on, values behind a
/// slot that is being filled are not popped, and a push that comes around to a slot that is being
/// emptied is refused as if the ring were full, until the thread continues; no other thread is
/// blocked, and no value is lost.
///
/// With one consumer, [`mpsc`] is cheaper: its consumer makes no read-modify-write.
///
/// # Source
/// D. Vyukov, "Bounded MPMC queue" (1024cores.net, 2010), with turns in place of sequence numbers,
/// so that the number of slots need not be a power of two.
pub mod mpmc {
    pub use crate::raw::mpmc::{Consumer, Producer, ring};
}

/// Mailbox in one cache line, through which one thread sends another a request and gets the reply.
/// There is one request at a time.
///
/// # The algorithm
/// One word stores which side owns the line. The caller writes the request and hands the line over,
/// the server writes the reply into the same line and hands it back. Nothing else is shared, so
/// that a request and its reply cost the transfer of one line to the other CPU and back, if both
/// fit into 56 bytes.
pub mod mailbox {
    pub use crate::raw::mailbox::{Caller, Server, pair};
}
