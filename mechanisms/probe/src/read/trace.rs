//! A recording of one process, opened.

use super::index::{RING_WORDS_MAX, TraceIndex};
use super::source::{ReadAt, read_full};
use super::thread::{MissingEvents, Thread, TraceFile};
use crate::error::ReadError;
use crate::files;
use crate::format::{self, FILE_STREAM, PAGE_BYTES, STATE_RECORDING, TraceHeader};
use crate::lane::CODE_BITS;
use crate::site::{Site, SiteKind};
use crate::trace_file::{self, open_regular_file};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Number of possible site numbers in an event's code. The two lowest bits of a code are the form.
const SITE_NUMBERS: usize = 1 << (CODE_BITS - 2);

/// State of a recording when its header was last written: finished, failed or unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordingState {
    /// The recording was finished normally.
    Finished,
    /// Recording stopped early because of an error with this errno; 0 if the error has none. For a
    /// full disk it is 28.
    Failed(u64),
    /// The recording was not finished: the process was killed, or is still recording.
    Unfinished,
}

/// Recording of one process, opened for reading.
#[derive(Debug)]
pub struct Trace<S = File> {
    pub(super) stream: S,
    /// Contents of the file of rings; `None` if the trace is complete without it.
    rings: Option<S>,
    header: TraceHeader,
    sites: HashMap<u32, Site>,
    /// For each site number: `true` if the site is a span.
    pub(super) is_span: Vec<bool>,
    pub(super) threads: Vec<Thread>,
    /// Missing events of all threads, and of threads without a ring.
    missing: MissingEvents,
    /// Number of damaged bytes in the trace's files.
    damaged_bytes: u64,
    /// Path of the file of rings from which the trace was completed, if any.
    rings_path: Option<PathBuf>,
    ns_per_tick: f64,
}

impl Trace {
    /// Opens the trace at `path`, and rings that a killed process has left.
    ///
    /// # Errors
    /// If the file cannot be read, is not a trace, or its first page is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let header = read_header(&file)?;
        let rings_path =
            (header.kind == FILE_STREAM && !header.rings.is_empty()).then(|| header.rings.into());
        // read() ignores rings of another recording at this path.
        let rings = rings_path.as_ref().and_then(|path: &PathBuf| open_regular_file(path).ok());
        let mut trace = Self::read(file, rings)?;
        trace.rings_path = rings_path.filter(|_| trace.rings.is_some());
        Ok(trace)
    }

    /// Returns the path of the file of rings from which the trace was completed. The file may be
    /// removed once the trace has been copied. `None` if the trace was complete.
    #[must_use]
    pub fn rings_path(&self) -> Option<&Path> {
        self.rings_path.as_deref()
    }
}

impl Trace<Vec<u8>> {
    /// Reads a trace from memory.
    ///
    /// # Errors
    /// Like [`Trace::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ReadError> {
        Self::read(bytes, None)
    }
}

/// Reads and decodes the first page of a file.
fn read_header(source: &impl ReadAt) -> Result<TraceHeader, ReadError> {
    let mut page = vec![0; PAGE_BYTES as usize];
    let count = read_full(source, 0, &mut page)?;
    if count < 8 || page[..8] != format::MAGIC.to_le_bytes() {
        return Err(ReadError::NotATrace);
    }
    TraceHeader::decode(&page[..count]).ok_or(ReadError::DamagedHeader)
}

impl<S: ReadAt> Trace<S> {
    /// Reads a trace from `stream` and, if given, from its `rings`. The rings may contain events
    /// that were not drained to the stream.
    ///
    /// # Errors
    /// If the bytes cannot be read, are not a trace, or their first page is damaged.
    pub fn read(stream: S, rings: Option<S>) -> Result<Self, ReadError> {
        let header = read_header(&stream)?;
        // Before the segments are read: the recording may end meanwhile.
        let is_live = header.boot == files::boot_id() && trace_file::is_live(&header);
        let is_ours = |rings: &S| {
            self::read_header(rings)
                .is_ok_and(|rings| (rings.session, rings.pid) == (header.session, header.pid))
        };
        let rings = rings.filter(is_ours);
        let mut index = TraceIndex::new(is_live);
        if let Some(rings) = &rings {
            index.read_segments(rings, TraceFile::Rings)?;
        }
        index.read_segments(&stream, TraceFile::Stream)?;
        let is_cut_off =
            rings.is_none() && header.kind == FILE_STREAM && header.state == STATE_RECORDING;
        let unread_max = if is_cut_off { header.ring_words.min(RING_WORDS_MAX) } else { 0 };
        let damaged_bytes = index.damaged_bytes;
        let (threads, sites) = index.into_threads(unread_max);
        // Also for the first thread of which the stream has no description yet.
        let mut missing = MissingEvents { unread_max, ..MissingEvents::default() };
        threads.iter().for_each(|thread| missing.add(thread.missing));
        // The header's counts include events of no thread, and of threads whose rings were reused.
        missing.lost = missing.lost.max(header.lost);
        missing.overwritten = missing.overwritten.saturating_add(header.overwritten);
        let ns_per_tick = ns_per_tick(&header);
        let mut is_span = Vec::new();
        for site in sites.values().filter(|site| site.kind == SiteKind::Span) {
            // An event cannot hold a larger number.
            let number = site.number as usize & (SITE_NUMBERS - 1);
            is_span.resize(is_span.len().max(number + 1), false);
            is_span[number] |= number == site.number as usize;
        }
        Ok(Self {
            stream,
            rings,
            header,
            sites,
            is_span,
            threads,
            missing,
            damaged_bytes,
            rings_path: None,
            ns_per_tick,
        })
    }

    /// Returns the ID of the recorded process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Returns the ID of the recorded process's parent.
    #[must_use]
    pub fn parent_pid(&self) -> u32 {
        self.header.parent_pid
    }

    /// Returns the path of the recorded program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.header.program
    }

    /// Returns the state of the recording when its header was last written.
    #[must_use]
    pub fn state(&self) -> RecordingState {
        match self.header.state {
            STATE_RECORDING => RecordingState::Unfinished,
            format::STATE_FAILED => RecordingState::Failed(self.header.errno),
            _ => RecordingState::Finished,
        }
    }

    /// Returns the numbers of missing events of all threads, including threads without a ring.
    #[must_use]
    pub fn missing_events(&self) -> MissingEvents {
        self.missing
    }

    /// Returns the number of bytes of the trace's files that were skipped as damaged.
    #[must_use]
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// Returns the number of threads that recorded nothing because no ring was free.
    #[must_use]
    pub fn refused_threads_count(&self) -> u64 {
        self.header.threads_refused
    }

    /// Returns all sites of the trace, ordered by number.
    #[must_use]
    pub fn sites(&self) -> Vec<&Site> {
        let mut sites: Vec<&Site> = self.sites.values().collect();
        sites.sort_unstable_by_key(|site| site.number);
        sites
    }

    /// Returns the site with this number; `None` if the trace does not contain it.
    #[must_use]
    pub fn site(&self, number: u32) -> Option<&Site> {
        self.sites.get(&number)
    }

    /// Returns the recorded threads, in the order in which they started to record.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns the time stamp, in ticks, of the recording's begin.
    #[must_use]
    pub fn begin_ticks(&self) -> u64 {
        self.header.begin.ticks
    }

    /// Returns the time stamp, in ticks, of the recording's end or of its header's last update.
    /// Returns `None` if unknown.
    #[must_use]
    pub fn end_ticks(&self) -> Option<u64> {
        let end_ticks = self.header.end.ticks;
        (end_ticks != 0).then_some(end_ticks)
    }

    /// Converts a time stamp in ticks to ns of CLOCK_MONOTONIC. All processes since the machine's
    /// boot share this clock. The result is negative if a damaged time stamp lies before the boot.
    #[must_use]
    pub fn ns_from_ticks(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let since_begin = ticks.wrapping_sub(begin.ticks) as i64 as f64;
        // A damaged rate may give any number: `as` saturates.
        (begin.monotonic_ns as i64).saturating_add((since_begin * self.ns_per_tick) as i64)
    }

    /// Converts a time stamp in ticks to ns since 1970. Uses the wall clock's offset at the start
    /// of the recording.
    #[must_use]
    pub fn realtime_ns_from_ticks(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let shift = (begin.realtime_ns as i64).saturating_sub(begin.monotonic_ns as i64);
        self.ns_from_ticks(ticks).saturating_add(shift)
    }

    /// Returns `true` if the times of both traces can be compared: they were recorded with the same
    /// clock, in the same boot of the machine.
    #[must_use]
    pub fn has_time_line_of(&self, other: &Self) -> bool {
        (self.header.is_tsc, self.header.boot) == (other.header.is_tsc, other.header.boot)
    }

    /// Returns the contents of one of the trace's files, if present.
    pub(super) fn source(&self, file: TraceFile) -> Option<&S> {
        match file {
            TraceFile::Stream => Some(&self.stream),
            TraceFile::Rings => self.rings.as_ref(),
        }
    }
}

/// Returns the duration of a tick in ns, computed from the header.
fn ns_per_tick(header: &TraceHeader) -> f64 {
    let (begin, end) = (header.begin, header.end);
    // The two ends of a long recording give the rate more precisely than the calibration.
    /// Minimum duration of a recording, in ns, to compute the tick rate from its clock readings.
    const CLOCK_SPAN_NS_MIN: u64 = 1_000_000_000;
    let span_ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns);
    let span_ticks = end.ticks.saturating_sub(begin.ticks);
    if header.is_tsc && span_ns > CLOCK_SPAN_NS_MIN && span_ticks > 0 {
        span_ns as f64 / span_ticks as f64
    } else {
        1e9 / header.ticks_hz
    }
}
