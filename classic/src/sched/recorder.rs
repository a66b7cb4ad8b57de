//! Buffer that carries a client's time stamps to the thread that writes them.

use clap::ValueEnum;
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_ring::spsc;
use handover_sched::drive::{Record, Trace};
use std::io;
use std::thread;
use std::time::Duration;

/// Action when the buffer is full: wait for space, or drop the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum WhenFull {
    /// Let the client wait until some stamps have been written. No stamp is lost
    #[default]
    Block,
    /// Drop the stamps, and count them
    Drop,
}

/// Maximum number of records in a chunk. A full chunk is sent to the writer as a whole.
const CHUNK_RECORDS_MAX: u32 = 8192;

/// Interval between checks whether a full buffer has space again.
const SPACE_PAUSE: Duration = Duration::from_micros(50);

/// Creates a buffer for at least `records_max` records, and returns its two ends. A client fills
/// it, and another thread drains it during the run or after it. Memory is allocated as the buffer
/// fills.
///
/// # Panics
/// If `records_max` is not in `1..=handover_ring::SLOTS_COUNT_MAX`.
pub(super) fn new_buffer(records_max: u32, when_full: WhenFull) -> (Recorder, Records) {
    assert!(records_max > 0, "records_max=0: it must be at least 1");
    let chunk_records = (records_max / 4).clamp(1, CHUNK_RECORDS_MAX);
    // One chunk more is at the recorder, being filled; it has a slot of its own at the end.
    let chunks_max = (records_max.div_ceil(chunk_records) - 1).max(1);
    let (producer, consumer) = match spsc::ring(chunks_max + 1) {
        Ok(ends) => ends,
        Err(error) => panic!("records_max={records_max}: {error}"),
    };
    let losses = Arc::new(Losses { lost_count: AtomicU64::new(0), waited_ns: AtomicU64::new(0) });
    let recorder = Recorder {
        chunk: Vec::new(),
        chunk_records_max: chunk_records as usize,
        chunks_max: chunks_max as usize,
        producer,
        when_full,
        losses: Arc::clone(&losses),
    };
    (recorder, Records { chunk: Vec::new().into_iter(), consumer, losses })
}

/// Effects of a full buffer: lost records and waiting time. Only the recorder writes.
#[derive(Debug)]
struct Losses {
    /// Number of records that were dropped.
    lost_count: AtomicU64,
    /// Time for which the client waited for space.
    waited_ns: AtomicU64,
}

/// Sending end of the buffer, for [`Client::poll`](handover_sched::drive::Client::poll).
/// Dropping it sends the last records and closes the buffer.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Records that have not been sent yet.
    chunk: Vec<Record>,
    /// Number of records in a full chunk.
    chunk_records_max: usize,
    /// Maximum number of chunks that were sent and not received yet. The last chunk may exceed it.
    chunks_max: usize,
    producer: spsc::Producer<Vec<Record>>,
    when_full: WhenFull,
    losses: Arc<Losses>,
}

impl Recorder {
    /// Sends a full chunk and allocates the next. Returns `false` if the chunk cannot be sent; the
    /// new record is then lost.
    #[cold]
    #[inline(never)]
    fn make_space(&mut self) -> bool {
        if self.chunk.capacity() > 0 && !(self.wait_for_space() && self.send_chunk()) {
            return false;
        }
        self.chunk = Vec::with_capacity(self.chunk_records_max);
        true
    }

    /// Waits until the full chunk can be sent. Returns `false` if there is no space and `when_full`
    /// is `Drop`, or the receiving end was dropped.
    fn wait_for_space(&self) -> bool {
        let mut began_ns = None;
        while self.producer.len() >= self.chunks_max {
            if self.when_full == WhenFull::Drop || self.producer.is_closed() {
                return false;
            }
            began_ns.get_or_insert_with(clock::now_ns);
            thread::sleep(SPACE_PAUSE);
        }
        if let Some(began_ns) = began_ns {
            // Relaxed: a statistic.
            self.losses.waited_ns.fetch_add(clock::now_ns() - began_ns, Ordering::Relaxed);
        }
        true
    }

    /// Sends the chunk. If the receiving end was dropped, keeps the chunk and returns `false`.
    fn send_chunk(&mut self) -> bool {
        match self.producer.push(std::mem::take(&mut self.chunk)) {
            Ok(()) => true,
            Err(error) => {
                self.chunk = error.into_inner();
                false
            }
        }
    }
}

impl Trace for Recorder {
    #[inline]
    fn record(&mut self, record: &Record) {
        if self.chunk.len() == self.chunk.capacity() && !self.make_space() {
            // Relaxed: a statistic.
            self.losses.lost_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.chunk.push(*record);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // There is a slot for the last chunk.
        if !self.chunk.is_empty() && !self.send_chunk() {
            // Relaxed: a statistic; the end of the ring orders it.
            self.losses.lost_count.fetch_add(self.chunk.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Receiving end of the buffer, for the thread that writes the time-stamp files.
#[derive(Debug)]
pub(super) struct Records {
    /// Records of the last received chunk that were not drained yet.
    chunk: std::vec::IntoIter<Record>,
    consumer: spsc::Consumer<Vec<Record>>,
    losses: Arc<Losses>,
}

impl Records {
    /// Calls `each` with up to `records_max` records in order; returns their number. More
    /// records may follow after it returns 0: see [`is_finished`](Self::is_finished). Records
    /// arrive in chunks, the last of them when the recorder is dropped.
    pub(super) fn drain(&mut self, records_max: usize, mut each: impl FnMut(Record)) -> usize {
        let mut drained = 0;
        while drained < records_max {
            let Some(record) = self.chunk.next() else {
                let Some(chunk) = self.consumer.pop() else { break };
                self.chunk = chunk.into_iter();
                continue;
            };
            each(record);
            drained += 1;
        }
        drained
    }

    /// Returns `true` if at least half of the buffer is full. A writer that has waited until now
    /// drains it before the client has to wait.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.consumer.len() >= self.consumer.slots_count()
    }

    /// Returns `true` if the recorder has been dropped. The remaining records can
    /// still be drained.
    pub(super) fn is_closed(&self) -> bool {
        self.consumer.is_closed()
    }

    /// Returns `true` if the recorder has been dropped and all its records have been drained.
    pub(super) fn is_finished(&self) -> bool {
        self.chunk.as_slice().is_empty() && self.consumer.is_finished()
    }

    /// Returns the number of lost records. Complete when [`is_finished`](Self::is_finished).
    pub(super) fn lost_records_count(&self) -> u64 {
        // Relaxed: a statistic; the end of the ring orders the last one.
        self.losses.lost_count.load(Ordering::Relaxed)
    }

    /// Returns the time for which the client waited for space. Complete when
    /// [`is_finished`](Self::is_finished).
    pub(super) fn waited_duration(&self) -> Duration {
        // Relaxed: as in lost_records_count().
        Duration::from_nanos(self.losses.waited_ns.load(Ordering::Relaxed))
    }
}

/// Writes the tab-separated line of a packet to a time-stamp file. Its fields: `cli_enq`,
/// `sch_enq`, `sch_deq`, `cli_deq`, length, and `D` if the packet was dropped. The stamps are in
/// ticks; each but the first is the difference from the stamp before.
pub(super) fn write_line(record: &Record, out: &mut impl io::Write) -> io::Result<()> {
    // Formatting by `write!` would take five times as long, and there are millions of lines.
    let mut digits = itoa::Buffer::new();
    for field in [
        record.cli_enq_ticks,
        record.sch_enq_ticks.saturating_sub(record.cli_enq_ticks),
        record.sch_deq_ticks.saturating_sub(record.sch_enq_ticks),
        record.cli_deq_ticks.saturating_sub(record.sch_deq_ticks),
        u64::from(record.length_bytes),
    ] {
        out.write_all(digits.format(field).as_bytes())?;
        out.write_all(b"\t")?;
    }
    out.write_all(if record.is_dropped { b"D\n" } else { b"\n" })
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
            is_dropped: false,
        }
    }

    #[test]
    fn line_contains_the_first_stamp_and_the_stage_durations() {
        let mut line = Vec::new();
        write_line(&record(1000), &mut line).unwrap();
        write_line(&Record { is_dropped: true, ..record(5) }, &mut line).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "1000\t10\t20\t30\t1500\t\n5\t10\t20\t30\t1500\tD\n"
        );
    }

    #[test]
    fn longest_numbers_are_written_whole() {
        let mut line = Vec::new();
        let most = Record { cli_enq_ticks: u64::MAX, length_bytes: u32::MAX, ..Record::default() };
        write_line(&Record { is_dropped: true, ..most }, &mut line).unwrap();
        assert_eq!(line, b"18446744073709551615\t0\t0\t0\t4294967295\tD\n");
        line.clear();
        let most = Record { cli_deq_ticks: u64::MAX, ..Record::default() };
        write_line(&most, &mut line).unwrap();
        assert_eq!(line, b"0\t0\t0\t18446744073709551615\t0\t\n");
    }

    fn drained(mut records: Records) -> (Vec<u64>, Records) {
        let mut seen = Vec::new();
        while !records.is_finished() {
            records.drain(3, |record| seen.push(record.cli_enq_ticks));
        }
        (seen, records)
    }

    #[test]
    fn dropping_recorder_counts_lost_records_and_keeps_the_order() {
        let (mut recorder, records) = new_buffer(4, WhenFull::Drop);
        assert!(!records.is_half_full());
        (0..10).for_each(|n| recorder.record(&record(n)));
        // Relaxed: one thread.
        assert_eq!(recorder.losses.lost_count.load(Ordering::Relaxed), 6);
        assert!(records.is_half_full() && !records.is_closed());
        let reader = thread::spawn(|| drained(records));
        drop(recorder);
        let (seen, records) = reader.join().unwrap();
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!((records.lost_records_count(), records.waited_duration()), (6, Duration::ZERO));
    }

    #[test]
    fn blocking_recorder_loses_no_record_and_reports_its_waiting_time() {
        for records_max in [1, 7, 10_000] {
            let (mut recorder, records) = new_buffer(records_max, WhenFull::Block);
            let client =
                thread::spawn(move || (0..2_000).for_each(|n| recorder.record(&record(n))));
            if records_max < 2_000 {
                while !records.is_half_full() {
                    thread::yield_now();
                }
            }
            let (seen, records) = drained(records);
            client.join().unwrap();
            assert!(seen.into_iter().eq(0..2_000), "{records_max}");
            assert_eq!(records.lost_records_count(), 0);
            assert!(records_max < 2_000 || records.waited_duration() == Duration::ZERO);
        }
    }

    #[test]
    fn recorder_with_a_dropped_reader_counts_records_as_lost_and_does_not_wait() {
        let (mut recorder, records) = new_buffer(4, WhenFull::Block);
        recorder.record(&record(0));
        let losses = Arc::clone(&records.losses);
        drop(records);
        (1..10).for_each(|n| recorder.record(&record(n)));
        drop(recorder);
        // Relaxed: one thread.
        assert_eq!(losses.lost_count.load(Ordering::Relaxed), 10);
    }
}
