//! Time stamps of a packet, four of each.

use std::fmt;

/// Granularity of time stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// No stamps.
    None,
    /// Packets that are sent, taken, marked or transmitted together share a stamp.
    #[default]
    Batch,
    /// Every packet has its own stamps, at the cost of four clock reads for each.
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
    /// Time when the client sent it to the arbiter.
    pub cli_enq_ticks: u64,
    /// Time when the arbiter passed it to the scheduler.
    pub sch_enq_ticks: u64,
    /// Time when the arbiter marked it as eligible, or dropped it.
    pub sch_deq_ticks: u64,
    /// Time when the client saw that, and transmitted it.
    pub cli_deq_ticks: u64,
    /// Flow of the packet.
    pub flow: u32,
    /// Length of the packet.
    pub length_bytes: u32,
    /// `true` if it was dropped and not transmitted.
    pub dropped: bool,
}

/// Receiver of the packets' records, on the client's thread.
pub trait Trace {
    /// `true` if records are used.
    const IS_ENABLED: bool = true;

    /// Records a packet that was transmitted or dropped.
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
