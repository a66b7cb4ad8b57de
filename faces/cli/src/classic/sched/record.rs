//! Waits of packets: the time-stamp files, written during the run, and the quantiles.

use crate::commands::files;
use anyhow::Context;
use handover_base::clock;
use handover_sched::drive::{Record, Records};
use hdrhistogram::Histogram;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Maximum number of records taken from one client before the next one's turn.
const TURN_RECORDS: usize = 8192;
/// Pause when no client has any records.
const PAUSE: Duration = Duration::from_millis(1);
/// Size of a file's buffer.
const BUFFER_BYTES: usize = 1 << 18;
/// Significant digits of waits, and their maximum of 10 minutes; longer waits count as the maximum.
const DIGITS: u8 = 3;
const WAIT_NS_MAX: u64 = 600_000_000_000;

/// Stages of a packet's wait, in order.
pub const STAGES: [&str; 3] = ["client to arbiter", "in the scheduler", "mark to sink"];

/// Waits of one client's packets.
pub struct Waits {
    /// Waits by stage, in ns.
    pub stages: [Histogram<u64>; 3],
    /// Number of lines in the client's file.
    pub written: u64,
    /// Number of records lost because the ring was full or the file failed.
    pub unwritten: u64,
}

impl Default for Waits {
    fn default() -> Waits {
        let stage = || match Histogram::new_with_bounds(1, WAIT_NS_MAX, DIGITS) {
            Ok(stage) => stage,
            Err(refused) => unreachable!("bounds known to be good: {refused}"),
        };
        Waits { stages: [stage(), stage(), stage()], written: 0, unwritten: 0 }
    }
}

impl Waits {
    /// Adds the waits of another client.
    pub fn add(&mut self, other: &Waits) {
        for (sum, stage) in self.stages.iter_mut().zip(&other.stages) {
            match sum.add(stage) {
                Ok(()) => {}
                Err(refused) => unreachable!("the same bounds: {refused}"),
            }
        }
        self.written += other.written;
        self.unwritten += other.unwritten;
    }

    fn take(&mut self, record: &Record) {
        let ticks = [
            record.cli_enq_ticks,
            record.sch_enq_ticks,
            record.sch_deq_ticks,
            record.cli_deq_ticks,
        ];
        // A dropped packet was never queued: it has no wait in the scheduler.
        let stages = if record.dropped { 1 } else { 3 };
        for (stage, pair) in self.stages.iter_mut().zip(ticks.windows(2)).take(stages) {
            // The stamps of two CPUs may differ by some ticks.
            stage.saturating_record(clock::ns(pair[1].saturating_sub(pair[0])));
        }
    }
}

/// One client's ring of records, and its file.
struct Stream {
    records: Records,
    path: PathBuf,
    file: Option<BufWriter<File>>,
    waits: Waits,
    failed: Option<io::Error>,
}

impl Stream {
    fn take(&mut self) -> usize {
        let Stream { records, file, waits, failed, .. } = self;
        records.drain(TURN_RECORDS, |record| {
            waits.take(&record);
            let written = file.as_mut().map(|file| record.write_line(file));
            match written {
                Some(Ok(())) => waits.written += 1,
                Some(Err(refused)) => {
                    waits.unwritten += 1;
                    failed.get_or_insert(refused);
                    // The buffered data is discarded: writing it on drop would fail again.
                    let _ = file.take().map(BufWriter::into_parts);
                }
                None => waits.unwritten += 1,
            }
        })
    }

    fn close(mut self) -> (Waits, Option<anyhow::Error>) {
        if let Some(mut file) = self.file.take()
            && let Err(refused) = file.flush()
        {
            self.failed.get_or_insert(refused);
            let _ = file.into_parts();
        }
        self.waits.unwritten += self.records.lost();
        let path = self.path;
        let failed = self.failed.map(|refused| {
            anyhow::Error::new(refused)
                .context(format!("{}: time stamps were lost", path.display()))
        });
        (self.waits, failed)
    }
}

/// The record streams of all clients.
pub struct Streams(Vec<Stream>);

impl Streams {
    /// Creates `PREFIXqueue-0.txt` and so on, one file for each ring.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub fn create(prefix: &Path, rings: Vec<Records>) -> anyhow::Result<Streams> {
        let mut streams = Vec::with_capacity(rings.len());
        for (client, records) in rings.into_iter().enumerate() {
            let mut path = prefix.as_os_str().to_os_string();
            path.push(format!("queue-{client}.txt"));
            let path = PathBuf::from(path);
            let file = files::create(&path)
                .with_context(|| format!("-p: {} could not be made", path.display()))?;
            let file = Some(BufWriter::with_capacity(BUFFER_BYTES, file));
            streams.push(Stream { records, path, file, waits: Waits::default(), failed: None });
        }
        Ok(Streams(streams))
    }

    /// Writes until every client has ended and all its records have been taken. A failure does not
    /// stop the other files or the quantiles.
    pub fn write(mut self) -> (Vec<Waits>, Option<anyhow::Error>) {
        loop {
            // Checked before the rings are emptied: earlier records are then taken in this turn.
            let over = self.0.iter().all(|stream| stream.records.is_finished());
            let taken: usize = self.0.iter_mut().map(Stream::take).sum();
            match taken {
                0 if over => break,
                0 => thread::sleep(PAUSE),
                _ => {}
            }
        }
        let mut waits = Vec::with_capacity(self.0.len());
        let mut failed = None;
        for stream in self.0 {
            let (waited, refused) = stream.close();
            waits.push(waited);
            failed = failed.or(refused);
        }
        (waits, failed)
    }
}
