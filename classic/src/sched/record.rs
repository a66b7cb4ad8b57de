//! Waits of packets: the time-stamp files, and the quantiles.

use super::recorder::{Records, write_line};
use anyhow::Context;
use handover_base::clock;
use handover_program::files::FileReplacement;
use handover_sched::drive::Record;
use hdrhistogram::Histogram;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of records drained from one client's buffer before the next client's.
const DRAINED_RECORDS_MAX: usize = 8192;
/// Pause between two polls of the clients' buffers during the run.
const PAUSE: Duration = Duration::from_millis(2);
/// Size of the write buffer of a time-stamp file, in bytes.
const BUFFER_BYTES: usize = 1 << 18;
/// Number of significant digits of the waits in histograms.
const DIGITS: u8 = 3;
/// Maximum wait in histograms: 10 minutes; a longer wait counts as the maximum.
const WAIT_NS_MAX: u64 = 600_000_000_000;

/// Labels of the stages of a packet's wait, in order.
pub const STAGE_LABELS: [&str; 3] = ["client to arbiter", "in the scheduler", "mark to sink"];

/// Waits of the packets of a client or of all clients, and counts of their records.
pub struct PacketWaits {
    /// Waits by stage, in ns.
    pub stages: [Histogram<u64>; 3],
    /// Number of records written to time-stamp files.
    pub written: u64,
    /// Number of records lost because the buffer was full or the file failed.
    pub unwritten: u64,
    /// Time for which the client waited for space for its records.
    pub held_up: Duration,
}

impl Default for PacketWaits {
    fn default() -> PacketWaits {
        let stage = || match Histogram::new_with_bounds(1, WAIT_NS_MAX, DIGITS) {
            Ok(stage) => stage,
            Err(refused) => unreachable!("constant histogram bounds were refused: {refused}"),
        };
        let stages = [stage(), stage(), stage()];
        PacketWaits { stages, written: 0, unwritten: 0, held_up: Duration::ZERO }
    }
}

impl PacketWaits {
    pub fn add(&mut self, other: &PacketWaits) {
        for (sum, stage) in self.stages.iter_mut().zip(&other.stages) {
            match sum.add(stage) {
                Ok(()) => {}
                Err(refused) => {
                    unreachable!("histograms with equal bounds were not added: {refused}")
                }
            }
        }
        self.written += other.written;
        self.unwritten += other.unwritten;
        self.held_up += other.held_up;
    }

    /// Adds the waits of one packet to the histograms.
    fn add_record(&mut self, record: &Record) {
        let ticks = [
            record.cli_enq_ticks,
            record.sch_enq_ticks,
            record.sch_deq_ticks,
            record.cli_deq_ticks,
        ];
        // A dropped packet was never queued: it has no wait in the scheduler.
        let stages = if record.is_dropped { 1 } else { 3 };
        for (stage, pair) in self.stages.iter_mut().zip(ticks.windows(2)).take(stages) {
            // The stamps of two CPUs may differ by some ticks.
            stage.saturating_record(clock::ns_from_ticks(pair[1].saturating_sub(pair[0])));
        }
    }
}

/// Records of one client, and the file that they are written to.
struct ClientStream {
    records: Records,
    path: PathBuf,
    /// Time-stamp file of the client; `None` after a failure.
    file: Option<BufWriter<FileReplacement>>,
    waits: PacketWaits,
    failed: Option<io::Error>,
}

impl ClientStream {
    /// Writes up to [`DRAINED_RECORDS_MAX`] records to the file; returns the number of drained records.
    fn write_records(&mut self) -> usize {
        let ClientStream { records, file, waits, failed, .. } = self;
        records.drain(DRAINED_RECORDS_MAX, |record| {
            waits.add_record(&record);
            let written = file.as_mut().map(|file| write_line(&record, file));
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

    /// Completes the file; returns the waits, and the error if the file could not be written.
    fn close(mut self) -> (PacketWaits, Option<anyhow::Error>) {
        if let Some(file) = self.file.take() {
            let written = file.into_inner().map_err(|refused| {
                let (refused, file) = refused.into_parts();
                let _ = file.into_parts();
                refused
            });
            if let Err(refused) = written.and_then(FileReplacement::commit) {
                self.failed.get_or_insert(refused);
            }
        }
        let ClientStream { records, path, mut waits, failed, .. } = self;
        waits.held_up = records.waited_duration();
        waits.unwritten += records.lost_records_count();
        let failed = failed.map(|refused| {
            // The lines that were written went with the partial file.
            waits.unwritten += std::mem::take(&mut waits.written);
            anyhow::Error::new(refused).context(format!(
                "cannot write {}: the incomplete time-stamp file was deleted",
                path.display()
            ))
        });
        (waits, failed)
    }
}

/// Time-stamp files of all clients, while they are written.
pub struct RecordFiles(Vec<ClientStream>);

/// Waits of each client's packets, and the outcome of writing the time-stamp files.
pub struct WriteResults {
    pub waits: Vec<PacketWaits>,
    /// Time that writing took after all clients had ended.
    pub took: Duration,
    /// First error of a time-stamp file; `None` if all were written.
    pub failed: Option<anyhow::Error>,
}

impl RecordFiles {
    /// Creates the partial files of `PREFIXqueue-0.txt` and so on, one for each buffer.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub fn create(prefix: &Path, buffers: Vec<Records>) -> anyhow::Result<RecordFiles> {
        let mut streams = Vec::with_capacity(buffers.len());
        for (client, records) in buffers.into_iter().enumerate() {
            let mut path = prefix.as_os_str().to_os_string();
            path.push(format!("queue-{client}.txt"));
            let path = PathBuf::from(path);
            let file = FileReplacement::create(&path)
                .with_context(|| format!("-p: cannot create {path}", path = path.display()))?;
            let file = Some(BufWriter::with_capacity(BUFFER_BYTES, file));
            streams.push(ClientStream {
                records,
                path,
                file,
                waits: PacketWaits::default(),
                failed: None,
            });
        }
        Ok(RecordFiles(streams))
    }

    /// Writes all records; each file appears when it is complete. A failure does not stop the other
    /// files or the quantiles.
    ///
    /// Writing takes a CPU that the clients may be using: until they have finished, it writes only
    /// when a buffer is half full.
    pub fn write(mut self) -> WriteResults {
        while !self.0.iter().all(|stream| stream.records.is_closed()) {
            let pressing = self.0.iter_mut().filter(|stream| stream.records.is_half_full());
            if pressing.map(ClientStream::write_records).sum::<usize>() == 0 {
                thread::sleep(PAUSE);
            }
        }
        let began = Instant::now();
        let (mut all, mut failed) = (Vec::with_capacity(self.0.len()), None);
        for mut stream in self.0 {
            while !stream.records.is_finished() {
                stream.write_records();
            }
            let (waits, refused) = stream.close();
            all.push(waits);
            failed = failed.or(refused);
        }
        WriteResults { waits: all, took: began.elapsed(), failed }
    }
}
