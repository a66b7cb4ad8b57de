//! Time stamps of a packet, four of each.

use std::fmt;

/// Granularity of the packets' time stamps: none, one per batch, or one per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// Packets have no time stamps.
    None,
    /// Packets share a time stamp if they are sent, read, released or transmitted in one batch.
    #[default]
    Batch,
    /// Every packet has its own time stamps, at the cost of four clock reads each.
    Packet,
}

impl fmt::Display for Stamping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stamping::None => "none",
            Stamping::Batch => "batch",
            Stamping::Packet => "packet",
        })
    }
}

/// Time stamps of one packet, in ticks of [`handover_base::clock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time when the client sent the packet to the arbiter.
    pub cli_enq_ticks: u64,
    /// Time when the arbiter passed the packet to the scheduler.
    pub sch_enq_ticks: u64,
    /// Time when the arbiter released or dropped the packet.
    pub sch_deq_ticks: u64,
    /// Time when the client transmitted the packet, or learnt that it was dropped.
    pub cli_deq_ticks: u64,
    /// Flow of the packet.
    pub flow: u32,
    /// Length of the packet in bytes.
    pub length_bytes: u32,
    /// `true` if the packet was dropped, `false` if it was transmitted.
    pub is_dropped: bool,
}

/// Consumer of the packets' time stamps, called on the client's thread.
pub trait Trace {
    /// `true` if records are to be created; `false` saves the cost.
    const IS_ENABLED: bool = true;

    /// Records the time stamps of a packet that was transmitted or dropped.
    fn record(&mut self, record: &Record);
}

/// Discards the records.
impl Trace for () {
    const IS_ENABLED: bool = false;

    #[inline(always)]
    fn record(&mut self, _: &Record) {}
}

/// Keeps all records in memory.
impl Trace for Vec<Record> {
    fn record(&mut self, record: &Record) {
        self.push(*record);
    }
}

impl<T: Trace> Trace for Option<T> {
    const IS_ENABLED: bool = T::IS_ENABLED;

    #[inline(always)]
    fn record(&mut self, record: &Record) {
        if let Some(trace) = self {
            trace.record(record);
        }
    }
}
