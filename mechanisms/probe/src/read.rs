//! Reading a trace: what its threads did, in the order of time, and how much of it is missing.
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
//! Whatever the bytes are, nothing here panics and nothing is believed without its checksum: damage is
//! passed over and counted. A file is read twice, once when it is opened and once by the iterators, which
//! hold one stretch of each thread in memory and no more.

mod events;
mod index;
mod mend;
mod merged;

pub use events::{Event, EventKind, Events};
#[doc(hidden)]
pub use mend::mended;
pub use merged::{Incomparable, Merged, MergedOf, merge};

use crate::error::ReadError;
use crate::format::{self, FILE_STREAM, Header, PAGE_BYTES, STATE_RECORDING};
use crate::lane::CODE_BITS;
use crate::site::{Kind, Site};
use index::{Piece, Which};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many numbers of sites there are; the two bits below tell an event's form.
const SITE_NUMBERS: usize = 1 << (CODE_BITS - 2);

/// Bytes that can be read in any order: a file, or memory.
pub trait ReadAt {
    /// Reads from `offset` on; fewer than asked for where the bytes end.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;

    /// How many there are.
    ///
    /// # Errors
    /// When that cannot be told.
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

/// Fills `to`, or as much of it as there are bytes.
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

/// What should be in a trace and is not, in events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Lost while recording, as it was counted: no room, a full disk, no ring for the thread.
    pub lost: u64,
    /// Given up for newer ones, as [`Policy::Last`](crate::Policy::Last) does; not part of `total`.
    pub overwritten: u64,
    /// Recorded, but in a stretch of the file that is damaged or cut off.
    pub damaged: u64,
    /// At most so many were in rings that are not there any more. Zero unless the process was killed and
    /// its rings removed.
    pub unread_max: u64,
}

impl Missing {
    /// All but those that newer ones took the place of: at most so many are missing.
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

/// How a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// It was finished.
    Finished,
    /// It stopped early: the number of the operating system's error, 28 for a full disk, 0 if it was
    /// none of its.
    Failed(u64),
    /// It was not finished: the process was killed, or is still at it.
    Open,
}

/// A thread, with its events.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Thread {
    /// Its number in the trace, as the recording counted threads.
    pub number: u64,
    /// The kernel's number of it.
    pub tid: u64,
    /// What it was called.
    pub name: String,
    /// When it recorded its first event.
    pub begin_ticks: u64,
    /// When it ended; `None` if it outlived the recording, or nobody can tell.
    pub end_ticks: Option<u64>,
    /// Events that can be read.
    pub events_count: u64,
    /// Events that cannot.
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
    /// Of each site's number, whether it is a span: asked for each event.
    is_span: Vec<bool>,
    threads: Vec<Thread>,
    missing: Missing,
    damaged_bytes: u64,
    rings_path: Option<PathBuf>,
    ns_per_tick: f64,
}

impl Trace {
    /// Opens the trace at `path`, with the rings that a killed process has left, if they are there.
    ///
    /// # Errors
    /// When the file cannot be read, is none, or its first page is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let header = header(&file)?;
        let rings_path =
            (header.kind == FILE_STREAM && !header.rings.is_empty()).then(|| header.rings.into());
        // Those of another recording by that name are passed over in read().
        let rings = rings_path.as_ref().and_then(|path: &PathBuf| File::open(path).ok());
        let mut trace = Self::read(file, rings)?;
        trace.rings_path = rings_path.filter(|_| trace.rings.is_some());
        Ok(trace)
    }

    /// Where the rings are that the trace was completed from: they may be removed once it was copied.
    #[must_use]
    pub fn rings_path(&self) -> Option<&Path> {
        self.rings_path.as_deref()
    }
}

impl Trace<Vec<u8>> {
    /// Reads a trace from memory.
    ///
    /// # Errors
    /// As [`Trace::open`].
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
    /// Reads a trace and, where it is a stream, the rings that it was fed from.
    ///
    /// # Errors
    /// When the bytes cannot be read, are no trace, or their first page is damaged.
    pub fn read(stream: S, rings: Option<S>) -> Result<Self, ReadError> {
        let header = header(&stream)?;
        let is_ours = |rings: &S| {
            self::header(rings)
                .is_ok_and(|rings| (rings.session, rings.pid) == (header.session, header.pid))
        };
        let rings = rings.filter(is_ours);
        let mut index = index::Index::default();
        index.walk(&stream, Which::Stream)?;
        if let Some(rings) = &rings {
            index.walk(rings, Which::Rings)?;
        }
        let has_rings = rings.is_some() || header.kind != FILE_STREAM;
        let (threads, sites, damaged_bytes) = index.finish(&header, has_rings);
        let mut missing = Missing::default();
        threads.iter().for_each(|thread| missing.add(thread.missing));
        // What belongs to no thread, or to threads whose rings others have taken.
        missing.lost = missing.lost.max(header.lost);
        missing.overwritten = missing.overwritten.saturating_add(header.overwritten);
        let ns_per_tick = ns_per_tick(&header);
        let mut is_span = Vec::new();
        for site in sites.values().filter(|site| site.kind == Kind::Span) {
            // An event has no larger number.
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

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Its parent.
    #[must_use]
    pub fn parent_pid(&self) -> u32 {
        self.header.parent_pid
    }

    /// The program's path.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.header.program
    }

    /// How recording ended.
    #[must_use]
    pub fn end(&self) -> End {
        match self.header.state {
            STATE_RECORDING => End::Open,
            format::STATE_FAILED => End::Failed(self.header.errno),
            _ => End::Finished,
        }
    }

    /// What is missing, of all threads and of those that have no place in the trace.
    #[must_use]
    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// Bytes of the file that could not be made sense of.
    #[must_use]
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// Threads for which there was no ring.
    #[must_use]
    pub fn threads_refused(&self) -> u64 {
        self.header.threads_refused
    }

    /// The sites, in the order of their numbers.
    #[must_use]
    pub fn sites(&self) -> Vec<&Site> {
        let mut sites: Vec<&Site> = self.sites.values().collect();
        sites.sort_unstable_by_key(|site| site.number);
        sites
    }

    /// The site of an event; `None` if the trace does not name it.
    #[must_use]
    pub fn site(&self, number: u32) -> Option<&Site> {
        self.sites.get(&number)
    }

    /// The threads, in the order in which they began to record.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The events of the thread at `index` of [`threads`](Trace::threads), in the order of time; none
    /// for an index beyond.
    pub fn events(&self, index: usize) -> Events<'_, S> {
        Events::new(self, index)
    }

    /// The events of all threads, in the order of time.
    ///
    /// # Cost
    /// Memory for one stretch of each thread, some 200 kB.
    pub fn merged(&self) -> Merged<'_, S> {
        Merged::new(self)
    }

    /// When recording ended, or was last known to go on; `None` if nobody knows.
    #[must_use]
    pub fn end_ticks(&self) -> Option<u64> {
        let end_ticks = self.header.end.ticks;
        (end_ticks != 0).then_some(end_ticks)
    }

    /// A time stamp in ns on CLOCK_MONOTONIC's time line, which all processes since the machine's start
    /// share. Negative where a damaged one lies before that.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let since_begin = ticks.wrapping_sub(begin.ticks) as i64 as f64;
        // Whatever a damaged rate makes of it, `as` saturates.
        (begin.monotonic_ns as i64).saturating_add((since_begin * self.ns_per_tick) as i64)
    }

    /// As [`ns`](Trace::ns), in ns since 1970, as the clock stood when recording began.
    #[must_use]
    pub fn realtime_ns(&self, ticks: u64) -> i64 {
        let begin = self.header.begin;
        let shift = (begin.realtime_ns as i64).saturating_sub(begin.monotonic_ns as i64);
        self.ns(ticks).saturating_add(shift)
    }

    /// Recordings whose time stamps can be compared have the same.
    fn time_line(&self) -> (bool, [u64; 2]) {
        (self.header.is_tsc, self.header.boot)
    }

    fn source(&self, which: Which) -> Option<&S> {
        match which {
            Which::Stream => Some(&self.stream),
            Which::Rings => self.rings.as_ref(),
        }
    }
}

fn ns_per_tick(header: &Header) -> f64 {
    let (begin, end) = (header.begin, header.end);
    // The longer the recording, the better its two ends tell the rate.
    const SPAN_NS_MIN: u64 = 1_000_000_000;
    let span_ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns);
    if header.is_tsc && span_ns > SPAN_NS_MIN {
        span_ns as f64 / end.ticks.saturating_sub(begin.ticks) as f64
    } else {
        1e9 / header.ticks_hz
    }
}

/// The traces of a process and of those that were forked from it while it was recorded: `path`, and
/// `path.PID` for each of them.
///
/// # Errors
/// When the folder cannot be read.
pub fn family(path: &Path) -> io::Result<Vec<PathBuf>> {
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
