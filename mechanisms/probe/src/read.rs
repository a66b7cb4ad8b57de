//! Reader of traces: the events of each thread in time order, and counts of the missing ones.
//!
//! ```
//! # use handover_probe::{Config, Recording, disable, enable, probe, span, read::Trace};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("a.trace");
//! # if cfg!(miri) { return Ok(()); }
//! # let recording = Recording::start(Config::stream(&path))?;
//! # enable("doc.*")?;
//! # { let _span = span!("doc.work"); probe!("doc.found", 42); }
//! # disable("doc.*")?;
//! # let summary = recording.finish();
//! let trace = Trace::open(&path)?;
//! for event in trace.merged() {
//!     let name = trace.site(event.site).map_or("?", |site| &site.name);
//!     println!("{:>12} ns {:?} {name} {:?}", trace.ns(event.ticks), event.kind, event.values());
//! }
//! assert_eq!(trace.merged().count(), 3);
//! assert_eq!(trace.missing().total(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No input makes the reader panic, and data counts only if its checksum is right: damage is
//! skipped and counted. A file is read twice, once when it is opened and once by the iterators,
//! which hold one chunk or block of each thread in memory.

mod events;
mod index;
mod mend;
mod merged;

pub use events::{Event, EventKind, Events};
#[doc(hidden)]
pub use mend::mended;
pub use merged::{Incomparable, Merged, MergedProcesses, merge};

use crate::error::ReadError;
use crate::format::{self, FILE_STREAM, Header, PAGE_BYTES, STATE_RECORDING};
use crate::lane::CODE_BITS;
use crate::site::{Kind, Site};
use index::{Piece, TraceFile};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Number of distinct site numbers; the two lowest bits of a code are the event's form.
const SITE_NUMBERS: usize = 1 << (CODE_BITS - 2);

/// Random access to bytes: a file, or memory.
pub trait ReadAt {
    /// Reads bytes from `offset` on, and returns their number; 0 at the end.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// If the length cannot be determined.
    fn bytes(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, to, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = to.len().min(self.len() - start);
        to[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Fills `to` from `offset` on, or as much of it as the source has, and returns the number of
/// bytes.
pub(crate) fn read_full(source: &impl ReadAt, mut offset: u64, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match source.read_at(offset, &mut to[done..]) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Counts of events that are missing from a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Events counted as lost while recording: no room, a full disk, or no ring for the thread.
    pub lost: u64,
    /// Events overwritten by newer ones with [`Policy::Last`](crate::Policy::Last); not part of
    /// `total`.
    pub overwritten: u64,
    /// Events that were recorded in a part of the file that is damaged or cut off.
    pub damaged: u64,
    /// Upper bound of the events in rings that no longer exist. Zero unless the process was killed
    /// and its rings were removed.
    pub unread_max: u64,
}

impl Missing {
    /// Returns an upper bound of the missing events, without the overwritten ones.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lost.saturating_add(self.damaged).saturating_add(self.unread_max)
    }

    fn add(&mut self, other: Missing) {
        self.lost = self.lost.saturating_add(other.lost);
        self.overwritten = self.overwritten.saturating_add(other.overwritten);
        self.damaged = self.damaged.saturating_add(other.damaged);
        self.unread_max = self.unread_max.saturating_add(other.unread_max);
    }
}

/// State of a recording when its header was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The recording was finished.
    Finished,
    /// Recording stopped early, with this errno (28 for a full disk), or 0 if the error was not the
    /// operating system's.
    Failed(u64),
    /// The recording is not finished: the process was killed, or is still recording.
    Open,
}

/// A recorded thread.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Thread {
    /// The thread's number in the trace, in the order in which threads began to record.
    pub number: u64,
    /// The kernel's thread ID.
    pub tid: u64,
    /// The thread's name.
    pub name: String,
    /// Time stamp at which the thread began to record.
    pub begin_ticks: u64,
    /// Time stamp at which the thread ended; `None` if it outlived the recording, or the end is
    /// unknown.
    pub end_ticks: Option<u64>,
    /// Number of events that can be read.
    pub events_count: u64,
    /// Events that cannot be read.
    pub missing: Missing,
    pieces: Vec<Piece>,
}

/// A recording of one process.
#[derive(Debug)]
pub struct Trace<S = File> {
    stream: S,
    rings: Option<S>,
    header: Header,
    sites: HashMap<u32, Site>,
    /// `true` at the numbers of sites that are spans: a vector, as each event looks it up.
    is_span: Vec<bool>,
    threads: Vec<Thread>,
    missing: Missing,
    damaged_bytes: u64,
    rings_path: Option<PathBuf>,
    ns_per_tick: f64,
}

impl Trace {
    /// Opens the trace at `path`, and the rings that a killed process has left, if they exist.
    ///
    /// # Errors
    /// If the file cannot be read, is not a trace, or its first page is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let header = header(&file)?;
        let rings_path =
            (header.kind == FILE_STREAM && !header.rings.is_empty()).then(|| header.rings.into());
        // read() ignores rings of another recording at this path.
        let rings = rings_path.as_ref().and_then(|path: &PathBuf| File::open(path).ok());
        let mut trace = Self::read(file, rings)?;
        trace.rings_path = rings_path.filter(|_| trace.rings.is_some());
        Ok(trace)
    }

    /// Path of the rings that completed the trace; they may be removed once the trace has been
    /// copied.
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

fn header(source: &impl ReadAt) -> Result<Header, ReadError> {
    let mut page = vec![0; PAGE_BYTES as usize];
    let count = read_full(source, 0, &mut page)?;
    if count < 8 || page[..8] != format::MAGIC.to_le_bytes() {
        return Err(ReadError::Foreign);
    }
    Header::decode(&page[..count]).ok_or(ReadError::Header)
}

impl<S: ReadAt> Trace<S> {
    /// Reads a trace and, if it is a stream, the rings that it was written from.
    ///
    /// # Errors
    /// If the bytes cannot be read, are not a trace, or their first page is damaged.
    pub fn read(stream: S, rings: Option<S>) -> Result<Self, ReadError> {
        let header = header(&stream)?;
        let is_ours = |rings: &S| {
            self::header(rings)
                .is_ok_and(|rings| (rings.session, rings.pid) == (header.session, header.pid))
        };
        let rings = rings.filter(is_ours);
        let mut index = index::Index::default();
        index.walk(&stream, TraceFile::Stream)?;
        if let Some(rings) = &rings {
            index.walk(rings, TraceFile::Rings)?;
        }
        let has_rings = rings.is_some() || header.kind != FILE_STREAM;
        let (threads, sites, damaged_bytes) = index.finish(&header, has_rings);
        let mut missing = Missing::default();
        threads.iter().for_each(|thread| missing.add(thread.missing));
        // The header's counts include events of no thread, and of threads whose rings were reused.
        missing.lost = missing.lost.max(header.lost);
        missing.overwritten = missing.overwritten.saturating_add(header.overwritten);
        let ns_per_tick = ns_per_tick(&header);
        let mut is_span = Vec::new();
        for site in sites.values().filter(|site| site.kind == Kind::Span) {
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

    /// ID of the recorded process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// ID of the recorded process's parent.
    #[must_use]
    pub fn parent_pid(&self) -> u32 {
        self.header.parent_pid
    }

    /// Path of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.header.program
    }

    /// Returns the state in which the recording ended.
    #[must_use]
    pub fn end(&self) -> End {
        match self.header.state {
            STATE_RECORDING => End::Open,
            format::STATE_FAILED => End::Failed(self.header.errno),
            _ => End::Finished,
        }
    }

    /// Missing events of all threads, those without a ring included.
    #[must_use]
    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// Bytes of the file that could not be parsed.
    #[must_use]
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// Number of threads for which there was no ring.
    #[must_use]
    pub fn threads_refused(&self) -> u64 {
        self.header.threads_refused
    }

    /// Returns the sites, ordered by number.
    #[must_use]
    pub fn sites(&self) -> Vec<&Site> {
        let mut sites: Vec<&Site> = self.sites.values().collect();
        sites.sort_unstable_by_key(|site| site.number);
        sites
    }

    /// Returns the site of an event; `None` if the trace does not name it.
    #[must_use]
    pub fn site(&self, number: u32) -> Option<&Site> {
        self.sites.get(&number)
    }

    /// The threads, in the order in which they began to record.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Iterates over the events of the thread at `index` of [`threads`](Trace::threads), in time
    /// order; over none if `index` is out of range.
    pub fn events(&self, index: usize) -> Events<'_, S> {
        Events::new(self, index)
    }

    /// Iterates over the events of all threads, in time order.
    ///
    /// # Cost
    /// Memory for one chunk or block of each thread, some 200 kB.
    pub fn merged(&self) -> Merged<'_, S> {
        Merged::new(self)
    }

    /// Time stamp of the recording's end, or of the last update of the header; `None` if unknown.
    #[must_use]
    pub fn end_ticks(&self) -> Option<u64> {
        let end_ticks = self.header.end.ticks;
        (end_ticks != 0).then_some(end_ticks)
    }

    /// Converts a time stamp to ns of CLOCK_MONOTONIC, which all processes since the machine's boot
    /// share. Negative if a damaged time stamp lies before the boot.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let since_begin = ticks.wrapping_sub(begin.ticks) as i64 as f64;
        // A damaged rate may give any number: `as` saturates.
        (begin.monotonic_ns as i64).saturating_add((since_begin * self.ns_per_tick) as i64)
    }

    /// Like [`ns`](Trace::ns), in ns since 1970, by the wall clock's offset when recording began.
    #[must_use]
    pub fn realtime_ns(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let shift = (begin.realtime_ns as i64).saturating_sub(begin.monotonic_ns as i64);
        self.ns(ticks).saturating_add(shift)
    }

    /// Identifies the clock and the boot: time stamps are comparable if these are equal.
    fn time_line(&self) -> (bool, [u64; 2]) {
        (self.header.is_tsc, self.header.boot)
    }

    fn source(&self, file: TraceFile) -> Option<&S> {
        match file {
            TraceFile::Stream => Some(&self.stream),
            TraceFile::Rings => self.rings.as_ref(),
        }
    }
}

fn ns_per_tick(header: &Header) -> f64 {
    let (begin, end) = (header.begin, header.end);
    // The two ends of a long recording give the rate more precisely than the calibration.
    const SPAN_NS_MIN: u64 = 1_000_000_000;
    let span_ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns);
    if header.is_tsc && span_ns > SPAN_NS_MIN {
        span_ns as f64 / end.ticks.saturating_sub(begin.ticks) as f64
    } else {
        1e9 / header.ticks_hz
    }
}

/// Finds the traces of a process and of its forks that were recorded too: `path` first, then each
/// `path.PID`, sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn find_traces(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![path.to_owned()];
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let other = entry.file_name().to_string_lossy().into_owned();
        let suffix = other.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
        let is_pids = |suffix: &str| suffix.split('.').all(|pid| pid.parse::<u32>().is_ok());
        if suffix.is_some_and(is_pids) {
            found.push(entry.path());
        }
    }
    found[1..].sort();
    Ok(found)
}
