//! Waits of packets: the time-stamp files, and the quantiles.

use super::recorder::{Records, write_line};
use anyhow::anyhow;
use handover_base::clock;
use handover_program::exit::to_usage_error;
use handover_program::files::FileReplacement;
use handover_sched::drive::Record;
use hdrhistogram::Histogram;
use rustix::io::Errno;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of one client's records that are written before those of the next client.
const DRAINED_RECORDS_MAX: usize = 8192;
/// Pause between two polls of the clients' buffers during the run.
const POLL_PAUSE: Duration = Duration::from_millis(2);
/// Size of the write buffer of a time-stamp file, in bytes.
const WRITE_BUFFER_BYTES: usize = 1 << 18;
/// Maximum number of descriptors besides those of the time-stamp files, with a margin.
const OTHER_DESCRIPTORS_MAX: usize = 64;
/// Number of significant digits of the waits in histograms.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Maximum wait in histograms, in ns: 10 minutes. A longer wait counts as the maximum.
const WAIT_NS_MAX: u64 = 600_000_000_000;

/// Labels of the stages of a packet's wait, in order.
pub const STAGE_LABELS: [&str; 3] = ["client to arbiter", "in the scheduler", "mark to sink"];

/// Waiting times of packets, and numbers of their time-stamp records.
pub struct PacketWaits {
    /// Waiting times at each stage of [`STAGE_LABELS`], in ns.
    pub stages: [Histogram<u64>; 3],
    /// Number of records written to time-stamp files.
    pub written_count: u64,
    /// Number of records lost because the buffer was full or the file failed.
    pub unwritten_count: u64,
    /// Time for which the client waited because its record buffer was full.
    pub buffer_wait: Duration,
}

impl Default for PacketWaits {
    fn default() -> PacketWaits {
        let stage = || {
            Histogram::new_with_bounds(1, WAIT_NS_MAX, SIGNIFICANT_DIGITS)
                .expect("constant histogram bounds were refused")
        };
        let stages = [stage(), stage(), stage()];
        PacketWaits { stages, written_count: 0, unwritten_count: 0, buffer_wait: Duration::ZERO }
    }
}

impl PacketWaits {
    /// Adds the waiting times and numbers of `other` to these.
    pub fn add(&mut self, other: &PacketWaits) {
        for (sum, stage) in self.stages.iter_mut().zip(&other.stages) {
            sum.add(stage).expect("histograms with equal bounds were not added");
        }
        self.written_count += other.written_count;
        self.unwritten_count += other.unwritten_count;
        self.buffer_wait += other.buffer_wait;
    }

    /// Adds the waiting times of one packet to the histograms.
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

/// Receiver of one client's records, and the file to which they are written.
struct ClientStream {
    records: Records,
    path: PathBuf,
    /// Time-stamp file of the client; `None` after a failure.
    file: Option<BufWriter<FileReplacement>>,
    waits: PacketWaits,
    /// First error of writing the file.
    first_error: Option<io::Error>,
}

impl ClientStream {
    /// Writes up to [`DRAINED_RECORDS_MAX`] records to the file. Returns their number, including
    /// records that could not be written.
    fn write_records(&mut self) -> usize {
        let ClientStream { records, file, waits, first_error, .. } = self;
        records.drain(DRAINED_RECORDS_MAX, |record| {
            waits.add_record(&record);
            let written = file.as_mut().map(|file| write_line(&record, file));
            match written {
                Some(Ok(())) => waits.written_count += 1,
                Some(Err(refused)) => {
                    waits.unwritten_count += 1;
                    first_error.get_or_insert(refused);
                    // The buffered data is discarded: writing it on drop would fail again.
                    let _ = file.take().map(BufWriter::into_parts);
                }
                None => waits.unwritten_count += 1,
            }
        })
    }

    /// Completes the file; returns the waiting times, and the error of writing, if any.
    fn close(mut self) -> (PacketWaits, Option<anyhow::Error>) {
        if let Some(file) = self.file.take() {
            let written = file.into_inner().map_err(|refused| {
                let (refused, file) = refused.into_parts();
                let _ = file.into_parts();
                refused
            });
            if let Err(refused) = written.and_then(FileReplacement::commit) {
                self.first_error.get_or_insert(refused);
            }
        }
        let ClientStream { records, path, mut waits, first_error, .. } = self;
        waits.buffer_wait = records.waited_duration();
        waits.unwritten_count += records.lost_records_count();
        let failed = first_error.map(|refused| {
            // The lines that were written went with the partial file.
            waits.unwritten_count += std::mem::take(&mut waits.written_count);
            anyhow::Error::new(refused).context(format!(
                "cannot write {}: the incomplete time-stamp file was deleted",
                path.display()
            ))
        });
        (waits, failed)
    }
}

/// Writer of the time-stamp files of all clients.
pub struct RecordFiles(Vec<ClientStream>);

/// Results of writing the time-stamp files, with the waiting times of the packets.
pub struct WriteResults {
    /// Waiting times of each client's packets.
    pub waits: Vec<PacketWaits>,
    /// Time from the end of all clients until the files were complete.
    pub duration_after_run: Duration,
    /// First error of a time-stamp file; `None` if all files were written.
    pub error: Option<anyhow::Error>,
}

impl RecordFiles {
    /// Creates the temporary files for `PREFIXqueue-0.txt` and so on, one for each buffer.
    ///
    /// # Errors
    /// A usage error if a file cannot be created; another error if this process has too few
    /// descriptors.
    pub fn create(prefix: &Path, buffers: Vec<Records>) -> anyhow::Result<RecordFiles> {
        let clients_count = buffers.len();
        let mut streams = Vec::with_capacity(clients_count);
        for (client, records) in buffers.into_iter().enumerate() {
            let mut path = prefix.as_os_str().to_os_string();
            path.push(format!("queue-{client}.txt"));
            let path = PathBuf::from(path);
            let file = FileReplacement::create(&path).map_err(|error| {
                let text = format!("cannot create the time-stamp file {}: {error}", path.display());
                match Errno::from_io_error(&error) {
                    Some(Errno::MFILE) => anyhow!(
                        "-t {clients_count}: {text}; raise the limit with `ulimit -n {}`, or choose \
                         fewer clients or --stamp none",
                        clients_count + OTHER_DESCRIPTORS_MAX
                    ),
                    _ => to_usage_error(format!(
                        "-p: {text}; name a prefix in a folder in which files can be created"
                    )),
                }
            })?;
            let file = Some(BufWriter::with_capacity(WRITE_BUFFER_BYTES, file));
            streams.push(ClientStream {
                records,
                path,
                file,
                waits: PacketWaits::default(),
                first_error: None,
            });
        }
        Ok(RecordFiles(streams))
    }

    /// Writes all records; a file gets its name when it is complete. An error does not stop the
    /// other files or the quantiles.
    ///
    /// Writing takes a CPU that the clients may be using: until they have finished, it writes only
    /// when a buffer is half full.
    pub fn write(mut self) -> WriteResults {
        while !self.0.iter().all(|stream| stream.records.is_closed()) {
            let pressing = self.0.iter_mut().filter(|stream| stream.records.is_half_full());
            if pressing.map(ClientStream::write_records).sum::<usize>() == 0 {
                thread::sleep(POLL_PAUSE);
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
        WriteResults { waits: all, duration_after_run: began.elapsed(), error: failed }
    }
}
