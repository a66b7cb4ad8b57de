//! Time stamps of each packet's stages, and a recorder that passes them to another thread without
//! blocking the client.

use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_ring::spsc;
use std::fmt;
use std::io;
use std::str::FromStr;

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

/// Error of parsing an unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no way of stamping: write none, batch or packet")]
pub struct StampingError {
    text: String,
}

impl FromStr for Stamping {
    type Err = StampingError;

    fn from_str(text: &str) -> Result<Self, StampingError> {
        match text {
            "none" => Ok(Stamping::None),
            "batch" => Ok(Stamping::Batch),
            "packet" => Ok(Stamping::Packet),
            _ => Err(StampingError { text: text.to_owned() }),
        }
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

impl Record {
    /// Writes the packet's line: `cli_enq`, then `sch_enq`, `sch_deq` and `cli_deq` as differences
    /// from the stamp before, in ticks, then the length and, for a dropped packet, `D`; separated
    /// by tabs.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn write_line(&self, out: &mut impl io::Write) -> io::Result<()> {
        let sch_enq = self.sch_enq_ticks.saturating_sub(self.cli_enq_ticks);
        let sch_deq = self.sch_deq_ticks.saturating_sub(self.sch_enq_ticks);
        let cli_deq = self.cli_deq_ticks.saturating_sub(self.sch_deq_ticks);
        let flags = if self.dropped { "D" } else { "" };
        let (cli_enq, length) = (self.cli_enq_ticks, self.length_bytes);
        writeln!(out, "{cli_enq}\t{sch_enq}\t{sch_deq}\t{cli_deq}\t{length}\t{flags}")
    }
}

/// Receiver of the packets' records, on the client's thread.
pub trait Trace {
    /// `true` if records are used.
    const WANTED: bool = true;

    /// Records a packet that was transmitted or dropped.
    fn record(&mut self, record: &Record);
}

/// Discards the records.
impl Trace for () {
    const WANTED: bool = false;

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
    const WANTED: bool = T::WANTED;

    #[inline(always)]
    fn record(&mut self, record: &Record) {
        if let Some(trace) = self {
            trace.record(record);
        }
    }
}

/// Makes a recorder that carries records to another thread. It has room for `records_max`; a record
/// beyond that is counted and lost, and the client goes on.
///
/// # Panics
/// Panics if `records_max` is not in `1..=handover_ring::SLOTS_COUNT_MAX`, or the memory cannot be
/// allocated.
pub fn recorder(records_max: u32) -> (Recorder, Records) {
    let (producer, consumer) = match spsc::ring(records_max) {
        Ok(ends) => ends,
        Err(refused) => panic!("a recorder of {records_max} records: {refused}"),
    };
    let lost = Arc::new(AtomicU64::new(0));
    (Recorder { producer, lost_here: 0, lost: Arc::clone(&lost) }, Records { consumer, lost })
}

/// The client's end: pass it to [`Client::poll`](super::Client::poll). Dropping it tells the other
/// end that no more records come.
#[derive(Debug)]
pub struct Recorder {
    producer: spsc::Producer<Record>,
    lost_here: u64,
    lost: Arc<AtomicU64>,
}

impl Recorder {
    /// Returns the number of records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost_here
    }
}

impl Trace for Recorder {
    #[inline]
    fn record(&mut self, record: &Record) {
        if self.producer.push_later(*record).is_err() {
            self.lost_here += 1;
            // Relaxed: a statistic that only this thread writes.
            self.lost.store(self.lost_here, Ordering::Relaxed);
        }
    }
}

/// The writer's end.
#[derive(Debug)]
pub struct Records {
    consumer: spsc::Consumer<Record>,
    lost: Arc<AtomicU64>,
}

impl Records {
    /// Passes up to `records_max` records to `each`, in order; returns their number. 0 does not
    /// mean that no more come: see [`is_finished`](Self::is_finished).
    pub fn drain(&mut self, records_max: usize, each: impl FnMut(Record)) -> usize {
        self.consumer.pop_batch(records_max, each)
    }

    /// Returns `true` if all records were drained and the recorder was dropped. Once true, it stays
    /// true.
    pub fn is_finished(&self) -> bool {
        self.consumer.is_finished()
    }

    /// Returns the number of records for which there was no room. Final once
    /// [`is_finished`](Self::is_finished).
    pub fn lost(&self) -> u64 {
        // Relaxed: a statistic; the end of the ring orders the final value.
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cli_enq_ticks: u64) -> Record {
        Record {
            cli_enq_ticks,
            sch_enq_ticks: cli_enq_ticks + 10,
            sch_deq_ticks: cli_enq_ticks + 30,
            cli_deq_ticks: cli_enq_ticks + 60,
            flow: 3,
            length_bytes: 1500,
            dropped: false,
        }
    }

    #[test]
    fn a_line_holds_the_first_stamp_and_the_stages_after_it() {
        let mut line = Vec::new();
        record(1000).write_line(&mut line).unwrap();
        Record { dropped: true, ..record(5) }.write_line(&mut line).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "1000\t10\t20\t30\t1500\t\n5\t10\t20\t30\t1500\tD\n"
        );
    }

    #[test]
    fn records_beyond_the_room_are_counted_and_the_others_come_in_order() {
        let (mut recorder, mut records) = recorder(4);
        (0..10).for_each(|n| recorder.record(&record(n)));
        assert_eq!(recorder.lost(), 6);
        drop(recorder);
        let mut seen = Vec::new();
        while !records.is_finished() {
            records.drain(3, |record| seen.push(record.cli_enq_ticks));
        }
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!(records.lost(), 6);
    }

    #[test]
    fn the_names_of_the_stampings_read_back() {
        for stamping in [Stamping::None, Stamping::Batch, Stamping::Packet] {
            assert_eq!(stamping.to_string().parse(), Ok(stamping));
        }
        let wrong = "all".parse::<Stamping>().unwrap_err();
        assert!(wrong.to_string().contains("none, batch or packet"), "{wrong}");
    }
}
