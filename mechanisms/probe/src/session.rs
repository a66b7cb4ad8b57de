//! State of a recording: its files, and a lane for each recorded thread.

use crate::config::{Config, Policy};
use crate::error::StartError;
use crate::files::{self, RingsFile};
use crate::format::{self, ClockAnchor, TraceHeader};
use crate::lane::{Lane, LaneWords, WhenFull, Writer};
use crate::raw::mapping::LaneMemory;
use crate::registry;
use crate::thread_entry::ThreadEntry;
use crate::trace_file;
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicU64, Ordering};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of events of the current recording that threads without a lane have lost.
pub(crate) static LOST_WITHOUT_LANE: AtomicU64 = AtomicU64::new(0);

/// Threads of a recording, and the file of rings.
#[derive(Debug)]
struct ThreadTable {
    /// Recorded threads that have a lane.
    entries: Vec<ThreadEntry>,
    /// File that contains the lanes: the rings into which the threads record.
    rings: RingsFile,
    /// Number of sites already listed in the file of rings.
    sites_count: usize,
    /// Number of events that were discarded because another thread reused their lane.
    overwritten: u64,
    /// Number of threads that recorded nothing because no lane was free.
    threads_refused: u64,
    /// `true` once the recording has stopped. `lost_before` then includes the lost events of
    /// threads without a lane.
    has_ended: bool,
    /// Number of events recorded by exited threads whose lanes were reused.
    recorded_before: u64,
    /// Number of events lost by exited threads whose lanes were reused.
    lost_before: u64,
    /// First error of the recording; `None` without errors.
    failure: Option<io::Error>,
    /// `true` once the stream cannot be written any more. Then no further thread records.
    has_stopped: bool,
}

/// State of one recording, shared by its owner, the recorded threads and the writing thread.
#[derive(Debug)]
pub(crate) struct Session {
    config: Config,
    /// Header of the trace at the start of the recording.
    header: TraceHeader,
    threads: Mutex<ThreadTable>,
}

/// Summary of a finished recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Path of the trace.
    pub path: PathBuf,
    /// Number of threads to which a ring was assigned.
    pub threads_count: u64,
    /// Number of events that can be read from the trace.
    pub recorded: u64,
    /// Number of events lost because of a full ring, a full disk or a missing ring.
    pub lost: u64,
    /// Number of events that newer events have overwritten, with [`Policy::Last`].
    pub overwritten: u64,
    /// Length of the trace file in bytes.
    pub bytes: u64,
    /// First error that stopped the recording or left a thread without a ring; `None` without
    /// errors.
    pub failure: Option<io::Error>,
}

/// Locks a mutex, even if it is poisoned. No panic leaves the mutex's value half written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClockAnchor {
    /// Reads all clocks at one moment.
    #[must_use]
    pub fn now() -> Self {
        // The narrowest of five readings: a preemption in between would shift the clocks against
        // each other.
        let tries = (0..5).map(|_| {
            let before = clock::ticks();
            let monotonic_ns = clock::monotonic_ns();
            let after = clock::ticks();
            (after.saturating_sub(before), before, monotonic_ns)
        });
        let (width, before, monotonic_ns) = tries.min().unwrap_or_default();
        let realtime = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let realtime_ns = realtime.tv_sec as u64 * 1_000_000_000 + realtime.tv_nsec as u64;
        Self { ticks: before + width / 2, monotonic_ns, realtime_ns }
    }
}

impl Session {
    /// Creates the files of a recording that starts now.
    pub(crate) fn new(config: Config) -> Result<Self, StartError> {
        let calibration = clock::calibration();
        let begin = ClockAnchor::now();
        let mut header = TraceHeader {
            session: begin.ticks ^ u64::from(std::process::id()) << 40 ^ begin.realtime_ns << 8 | 1,
            pid: std::process::id(),
            parent_pid: rustix::process::getppid()
                .map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
            is_tsc: calibration.source == clock::ClockSource::Tsc,
            ticks_hz: calibration.ticks_hz,
            begin,
            boot: files::boot_id(),
            ring_words: config.ring_words(),
            process_start: trace_file::process_start(std::process::id()).unwrap_or(0),
            program: files::program_path(),
            ..TraceHeader::default()
        };
        let path = match config.policy() {
            Policy::Last => config.path().to_owned(),
            Policy::Stream => files::resolve(&files::rings_path(&config, header.session)),
        };
        if config.policy() == Policy::Stream {
            files::remove_stale_rings();
            header.rings = path.to_string_lossy().into_owned();
            header.stream = files::resolve(config.path()).to_string_lossy().into_owned();
        }
        let sites = registry::sites_from(0);
        let made = RingsFile::create(&path, &header, &sites);
        let rings = made.map_err(|source| StartError::File { path, source })?;
        let threads = ThreadTable {
            entries: Vec::new(),
            rings,
            sites_count: sites.len(),
            overwritten: 0,
            threads_refused: 0,
            has_ended: false,
            recorded_before: 0,
            lost_before: 0,
            failure: None,
            has_stopped: false,
        };
        Ok(Self { config, header, threads: Mutex::new(threads) })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number that identifies the recording.
    pub(crate) fn id(&self) -> u64 {
        self.header.session
    }

    /// Returns `true` if the calling process has created the session. In a forked child of that
    /// process, the session's lock may be held for ever, by a thread that the child does not have.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.header.pid == std::process::id()
    }

    /// Returns the summary of a recording of this process's parent: without any counts.
    pub(crate) fn parents_summary(&self) -> Summary {
        let why = "the recording belongs to the parent process, which forked this one";
        Summary {
            path: self.config.path().to_owned(),
            threads_count: 0,
            recorded: 0,
            lost: 0,
            overwritten: 0,
            bytes: 0,
            failure: Some(io::Error::other(why)),
        }
    }

    /// Returns the number of events lost so far.
    pub(crate) fn lost_events_count(&self) -> u64 {
        self.totals(&lock(&self.threads)).1
    }

    /// Returns the header with the recording's state `state` and the current counts.
    pub(crate) fn current_header(&self, state: u64) -> TraceHeader {
        let threads = lock(&self.threads);
        self.header_of(&threads, state)
    }

    /// Returns the header with the recording's state `state` and the counts of `threads`.
    fn header_of(&self, threads: &ThreadTable, state: u64) -> TraceHeader {
        let (recorded, lost) = self.totals(threads);
        let unwritten = match self.config.policy() {
            Policy::Last => 0,
            // Events in the rings that did not reach the file.
            Policy::Stream => recorded.saturating_sub(threads.rings.streamed),
        };
        let errno = threads.failure.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
        let failed = threads.failure.is_some();
        TraceHeader {
            end: ClockAnchor::now(),
            state: if failed { format::STATE_FAILED } else { state },
            errno: errno as u64,
            lost: lost + if state == format::STATE_RECORDING { 0 } else { unwritten },
            threads_refused: threads.threads_refused,
            overwritten: threads.overwritten,
            ..self.header.clone()
        }
    }

    /// Returns the number of recorded and of lost events, summed over all threads. Exited threads
    /// are included.
    fn totals(&self, threads: &ThreadTable) -> (u64, u64) {
        let recorded: u64 =
            threads.entries.iter().map(|entry| entry.lane.ring_and_recorded_counts().1).sum();
        let lost: u64 =
            threads.entries.iter().map(|entry| entry.lane.recorded_and_lost_counts().1).sum();
        let without_lane =
            if threads.has_ended { 0 } else { LOST_WITHOUT_LANE.load(Ordering::Relaxed) };
        (threads.recorded_before + recorded, threads.lost_before + lost + without_lane)
    }

    /// Returns copies of the descriptions of all threads that have a lane.
    pub(crate) fn thread_entries(&self) -> Vec<ThreadEntry> {
        lock(&self.threads).entries.clone()
    }

    /// Records that all events of thread `index` are in the stream. Another thread may then reuse
    /// its ring.
    pub(crate) fn mark_streamed(&self, index: u64) {
        let mut threads = lock(&self.threads);
        if let Some(entry) = threads.entries.iter_mut().find(|entry| entry.index == index) {
            entry.is_streamed = true;
        }
    }

    /// Stops recording because of `error`; the program runs on.
    pub(crate) fn record_failure(&self, error: io::Error) {
        let mut threads = lock(&self.threads);
        threads.entries.iter().for_each(|entry| entry.lane.record_failure());
        threads.failure.get_or_insert(error);
        threads.has_stopped = true;
    }

    /// Creates a ring for the calling thread, and a writer of the ring.
    pub(crate) fn add_thread(&self) -> io::Result<Writer<LaneMemory>> {
        let mut threads = lock(&self.threads);
        let threads = &mut *threads;
        if threads.has_stopped {
            return Err(io::Error::other(
                "cannot add the thread: recording has stopped because of an earlier error",
            ));
        }
        let index = threads.rings.threads_count;
        let mut entry = ThreadEntry {
            index,
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u64,
            name: files::thread_name(),
            begin_ticks: clock::ticks(),
            end_ticks: 0,
            offset: 0,
            is_streamed: false,
            lane: self.new_lane(threads)?,
        };
        entry.offset = threads.rings.last_lane_offset;
        threads.rings.write_lane_thread(&entry, self.config.policy() == Policy::Last)?;
        let writer = Writer::new(Arc::clone(&entry.lane));
        threads.entries.push(entry);
        Ok(writer)
    }

    /// Creates a lane in new memory, or reuses the memory of an exited thread's lane.
    fn new_lane(&self, threads: &mut ThreadTable) -> io::Result<Arc<Lane<LaneMemory>>> {
        let overwrites = self.config.policy() == Policy::Last;
        let words = self.config.ring_words();
        let memory = if threads.entries.len() < self.config.threads_count_max() {
            threads.rings.add_lane(words)?
        } else {
            let free =
                |entry: &ThreadEntry| entry.end_ticks != 0 && (overwrites || entry.is_streamed);
            let Some(at) = threads.entries.iter().position(free) else {
                return Err(io::Error::other(
                    "no ring is free for this thread: raise Config::threads_max",
                ));
            };
            let ended = threads.entries.remove(at);
            let (recorded, lost) = ended.lane.recorded_and_lost_counts();
            threads.recorded_before += recorded;
            threads.lost_before += lost;
            if overwrites {
                threads.overwritten += recorded;
            }
            threads.rings.clear_lane(ended.offset, words)?
        };
        let when_full = match overwrites {
            true => WhenFull::Overwrite,
            false if self.config.wait_max.is_zero() => WhenFull::Lose,
            false => WhenFull::Wait,
        };
        Ok(Arc::new(Lane::new(memory, when_full)))
    }

    /// Counts a thread that gets no ring because of `error`.
    pub(crate) fn refuse_thread(&self, error: io::Error) {
        let mut threads = lock(&self.threads);
        threads.threads_refused += 1;
        threads.failure.get_or_insert(error);
    }

    /// Records the exit time of the thread that wrote to `lane`. Has no effect if the lane belongs
    /// to another recording.
    pub(crate) fn end_thread(&self, lane: &Arc<Lane<LaneMemory>>, end_ticks: u64) {
        let mut threads = lock(&self.threads);
        let is_its = |entry: &&mut ThreadEntry| Arc::ptr_eq(&entry.lane, lane);
        if let Some(entry) = threads.entries.iter_mut().find(is_its) {
            entry.end_ticks = end_ticks;
        }
    }

    /// Lists, in the file of rings, the sites that have registered since the last call.
    pub(crate) fn write_new_sites(&self) {
        let mut threads = lock(&self.threads);
        let new = registry::sites_from(threads.sites_count);
        if !new.is_empty() {
            match threads.rings.add_sites(&new) {
                Ok(()) => threads.sites_count += new.len(),
                Err(error) => {
                    threads.failure.get_or_insert(error);
                }
            }
        }
    }

    /// Closes all lanes, so that threads record no more events.
    pub(crate) fn close_lanes(&self) {
        let mut threads = lock(&self.threads);
        threads.lost_before += LOST_WITHOUT_LANE.load(Ordering::Relaxed);
        threads.has_ended = true;
        threads.entries.iter().for_each(|entry| entry.lane.close());
        if threads.entries.iter().any(|entry| !entry.lane.words().is_intact()) {
            let why = "the trace file was truncated during the recording";
            threads.failure.get_or_insert(io::Error::other(why));
        }
    }

    /// Completes the recording's files. Call it once the lanes are closed and a stream is written.
    pub(crate) fn finish_files(&self) {
        let mut threads = lock(&self.threads);
        let header = self.header_of(&threads, format::STATE_FINISHED);
        if let Err(error) = threads.rings.write_header(&header) {
            threads.failure.get_or_insert(error);
        }
        threads.rings.release();
        drop(threads);
        self.remove_rings();
    }

    /// Removes the file of rings if the policy is [`Policy::Stream`]. (With [`Policy::Last`], the
    /// rings are the trace.)
    pub(crate) fn remove_rings(&self) {
        if self.config.policy() == Policy::Stream {
            lock(&self.threads).rings.remove(Path::new(&self.header.rings));
        }
    }

    /// Returns the summary of the recording, and takes its first error.
    pub(crate) fn summary(&self) -> Summary {
        let mut threads = lock(&self.threads);
        let (recorded, lost) = self.totals(&threads);
        let (recorded, lost, overwritten) = match self.config.policy() {
            Policy::Stream => {
                let streamed = threads.rings.streamed;
                (streamed, lost + recorded.saturating_sub(streamed), 0)
            }
            Policy::Last => {
                let kept: u64 = threads
                    .entries
                    .iter()
                    .map(|entry| entry.lane.ring_and_recorded_counts().0)
                    .sum();
                (kept, lost, recorded.saturating_sub(kept))
            }
        };
        Summary {
            path: self.config.path().to_owned(),
            threads_count: threads.rings.threads_count,
            recorded,
            lost,
            overwritten,
            bytes: std::fs::metadata(self.config.path()).map_or(0, |data| data.len()),
            failure: threads.failure.take(),
        }
    }

    /// Adds `count` to the number of events written to the stream's file.
    pub(crate) fn add_streamed_count(&self, count: u64) {
        lock(&self.threads).rings.streamed += count;
    }
}
