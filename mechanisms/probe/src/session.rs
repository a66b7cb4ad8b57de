//! Recordings: files, lanes, and the threads that own the lanes.

use crate::claim;
use crate::config::{Config, Policy};
use crate::error::StartError;
use crate::files::{self, RingsFile};
use crate::format::{self, Anchor, Header};
use crate::lane::{Lane, WhenFull, Words, Writer};
use crate::raw::current::{self, Phase};
use crate::raw::mapping::Memory;
use crate::raw::{bus, flip, hooks};
use crate::stream::Streamer;
use crate::{environment, registry, remote};
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread's entry in the recording.
#[derive(Debug, Clone)]
pub(crate) struct ThreadEntry {
    /// Number of the thread among those that got a lane, from 0; unique within a recording.
    pub index: u64,
    pub tid: u64,
    pub name: String,
    pub begin_ticks: u64,
    /// Zero while the thread lives.
    pub end_ticks: u64,
    /// Offset of the thread's lane in the rings' file.
    pub offset: u64,
    /// `true` if all events are in the stream, so that another thread may take the lane.
    pub is_streamed: bool,
    pub lane: Arc<Lane<Memory>>,
}

#[derive(Debug)]
struct ThreadTable {
    entries: Vec<ThreadEntry>,
    rings: RingsFile,
    /// Number of sites that are listed in the rings' file.
    sites_count: usize,
    overwritten: u64,
    threads_refused: u64,
    /// `true` once the recording has ended, with events without a lane counted in `lost_before`.
    has_ended: bool,
    /// Counts of threads whose lanes were given to other threads; once the recording has ended,
    /// also of events without a lane.
    recorded_before: u64,
    lost_before: u64,
    /// First error.
    failure: Option<io::Error>,
}

/// State shared by the recording's owner, the recorded threads and the writing thread.
#[derive(Debug)]
pub(crate) struct Session {
    config: Config,
    header: Header,
    threads: Mutex<ThreadTable>,
}

#[derive(Debug)]
struct Current {
    session: Arc<Session>,
    streamer: Option<Streamer>,
}

#[derive(Debug)]
struct Control {
    current: Option<Current>,
    /// Configuration to begin a recording with at the first event, if none runs.
    pending_config: Option<Config>,
    /// In a forked process, the suffix of its files' names after the parent's name.
    suffix: String,
    /// `true` once the exit handlers run: a recording that begins later would never be finished.
    is_ending: bool,
}

static CONTROL: Mutex<Control> = Mutex::new(Control {
    current: None,
    pending_config: None,
    suffix: String::new(),
    is_ending: false,
});
/// `true` while there is a recording. This and the next word are for events without a lane, in
/// places where no lock can be taken; at the moment a recording begins or ends, such an event may
/// be counted as unrecorded instead.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
/// Lost events of the recording's threads that have no lane.
static LOST_WITHOUT_LANE: AtomicU64 = AtomicU64::new(0);
/// `true` once the clock is calibrated; a thread calibrates it while it holds `CONTROL`.
static IS_CALIBRATED: AtomicBool = AtomicBool::new(false);
/// Maximum wait of an event for room, in ns, as configured by the recording that began last.
static WAIT_NS: AtomicU64 = AtomicU64::new(0);
/// Pause between two checks of a waiting thread for room.
const WAIT_STEP: Duration = Duration::from_micros(20);
/// Number of events while there was no recording.
static UNRECORDED: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording of this process; there is one at a time.
///
/// Dropping it finishes the recording, and so does the process's end by `exit` or by returning from
/// `main`. A process that is killed leaves files that can be read up to its last event.
#[derive(Debug)]
#[must_use = "dropping it ends the recording"]
pub struct Recording {
    session: Arc<Session>,
}

/// Result of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Path of the trace.
    pub path: PathBuf,
    /// Number of threads that recorded.
    pub threads_count: u64,
    /// Events in the file, or in the rings with [`Policy::Last`].
    pub recorded: u64,
    /// Events that were lost: there was no room, the disk was full, or a thread had no ring.
    pub lost: u64,
    /// Events that newer ones have overwritten, with [`Policy::Last`].
    pub overwritten: u64,
    /// Length of the file.
    pub bytes: u64,
    /// First error: recording stopped early, or threads had no ring.
    pub failure: Option<io::Error>,
}

impl Recording {
    /// Begins to record the events of all sites that are on, now or later.
    ///
    /// # Errors
    /// If a recording runs already, the process is ending, a number is out of bounds, or the files
    /// cannot be created.
    ///
    /// # Blocking
    /// Calibrates the clock once a process, for some 10 ms.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let _inside = current::enter();
        let mut control = lock(&CONTROL);
        if control.is_ending {
            return Err(StartError::Ending);
        }
        if let Some(current) = &control.current {
            return Err(StartError::Running { path: current.session.config.path().to_owned() });
        }
        let session = begin(&mut control, config)?;
        Ok(Self { session })
    }

    /// Number of events lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let _inside = current::enter();
        let threads = lock(&self.session.threads);
        self.session.totals(&threads).1
    }

    /// Path of the trace.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.session.config.path()
    }

    /// Stops recording, writes all events that are not written yet, and returns a summary. Sites
    /// stay on or off; an event that is being recorded at this moment may be missing.
    ///
    /// # Blocking
    /// Waits until the rings are drained and written.
    #[must_use = "it says what was lost"]
    pub fn finish(self) -> Summary {
        let _inside = current::enter();
        self.session.end();
        self.session.summary()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _inside = current::enter();
        self.session.end();
    }
}

/// Makes the calling thread's ring now rather than at its first event, and returns `true` if the
/// thread has one. It takes some milliseconds for 4 MiB, which would otherwise pass between the
/// first event and the second. Returns `false` if there is no recording.
pub fn prepare() -> bool {
    let is_open = |writer: &Writer<Memory>| !writer.lane().is_closed();
    if current::with(is_open).unwrap_or(false) {
        return true;
    }
    if current::is_busy() || current::phase() != Phase::Ready {
        return false;
    }
    let _inside = current::enter();
    let session = lock(&CONTROL).session();
    session.is_some_and(|session| attach_to_session(&session))
}

/// Number of events of sites that were on while there was no recording.
#[must_use]
pub fn unrecorded() -> u64 {
    UNRECORDED.load(Ordering::Relaxed)
}

fn begin(control: &mut Control, config: Config) -> Result<Arc<Session>, StartError> {
    config.validate()?;
    hooks::install();
    bus::install();
    clock::calibration();
    IS_CALIBRATED.store(true, Ordering::Relaxed);
    // Before the process has the writing thread: in a process of several threads, the kernel takes
    // tens of milliseconds for the registration.
    flip::register();
    WAIT_NS.store(config.wait().as_nanos() as u64, Ordering::Relaxed);
    let session = Arc::new(Session::new(config)?);
    LOST_WITHOUT_LANE.store(0, Ordering::Relaxed);
    let streamer = match session.config.policy() {
        Policy::Last => None,
        Policy::Stream => {
            // Without a writing thread, the rings would never be drained or removed.
            let removed = |_: &StartError| session.remove_rings();
            Some(Streamer::start(&session).inspect_err(removed)?)
        }
    };
    control.current = Some(Current { session: Arc::clone(&session), streamer });
    IS_RECORDING.store(true, Ordering::Relaxed);
    Ok(session)
}

/// Reads all clocks.
pub(crate) fn anchor() -> Anchor {
    let ns = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    // The narrowest of five readings: a preemption in between would shift the clocks against each
    // other.
    let tries = (0..5).map(|_| {
        let before = clock::ticks();
        let monotonic_ns = ns(rustix::time::ClockId::Monotonic);
        let after = clock::ticks();
        (after.saturating_sub(before), before, monotonic_ns)
    });
    let (width, before, monotonic_ns) = tries.min().unwrap_or_default();
    let realtime_ns = ns(rustix::time::ClockId::Realtime);
    Anchor { ticks: before + width / 2, monotonic_ns, realtime_ns }
}

impl Session {
    fn new(config: Config) -> Result<Self, StartError> {
        let calibration = clock::calibration();
        let begin = anchor();
        let mut header = Header {
            session: begin.ticks ^ u64::from(std::process::id()) << 40 ^ begin.realtime_ns << 8 | 1,
            pid: std::process::id(),
            parent_pid: rustix::process::getppid()
                .map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
            is_tsc: calibration.source == clock::Source::Tsc,
            ticks_hz: calibration.ticks_hz,
            begin,
            boot: files::boot_id(),
            ring_words: config.ring_words(),
            program: files::program_path(),
            ..Header::default()
        };
        let path = match config.policy() {
            Policy::Last => config.path().to_owned(),
            Policy::Stream => files::rings_path(&config, header.session),
        };
        if config.policy() == Policy::Stream {
            files::remove_stale_rings();
            header.rings = path.to_string_lossy().into_owned();
            let stream = std::path::absolute(config.path());
            header.stream = stream.unwrap_or_default().to_string_lossy().into_owned();
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
        };
        Ok(Self { config, header, threads: Mutex::new(threads) })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the header with current counts.
    pub(crate) fn header(&self, state: u64) -> Header {
        let threads = lock(&self.threads);
        self.header_of(&threads, state)
    }

    fn header_of(&self, threads: &ThreadTable, state: u64) -> Header {
        let (recorded, lost) = self.totals(threads);
        let unwritten = match self.config.policy() {
            Policy::Last => 0,
            // Events in the rings that did not reach the file.
            Policy::Stream => recorded.saturating_sub(threads.rings.streamed),
        };
        let errno = threads.failure.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
        let failed = threads.failure.is_some();
        Header {
            end: anchor(),
            state: if failed { format::STATE_FAILED } else { state },
            errno: errno as u64,
            lost: lost + if state == format::STATE_RECORDING { 0 } else { unwritten },
            threads_refused: threads.threads_refused,
            overwritten: threads.overwritten,
            ..self.header.clone()
        }
    }

    /// Sums the recorded and the lost events, those of ended threads included.
    fn totals(&self, threads: &ThreadTable) -> (u64, u64) {
        let recorded: u64 = threads.entries.iter().map(|entry| entry.lane.count_events().1).sum();
        let lost: u64 = threads.entries.iter().map(|entry| entry.lane.counts().1).sum();
        let without_lane =
            if threads.has_ended { 0 } else { LOST_WITHOUT_LANE.load(Ordering::Relaxed) };
        (threads.recorded_before + recorded, threads.lost_before + lost + without_lane)
    }

    /// Returns the entries of all threads so far.
    pub(crate) fn threads(&self) -> Vec<ThreadEntry> {
        lock(&self.threads).entries.clone()
    }

    /// Marks the thread `index` as completely streamed: another thread may take its ring.
    pub(crate) fn mark_streamed(&self, index: u64) {
        let mut threads = lock(&self.threads);
        if let Some(entry) = threads.entries.iter_mut().find(|entry| entry.index == index) {
            entry.is_streamed = true;
        }
    }

    /// Stops recording because of `error`; the program goes on.
    pub(crate) fn fail(&self, error: io::Error) {
        let mut threads = lock(&self.threads);
        threads.entries.iter().for_each(|entry| entry.lane.fail());
        threads.failure.get_or_insert(error);
    }

    /// Makes an entry and a ring for the calling thread.
    fn add_thread(&self) -> io::Result<Writer<Memory>> {
        let mut threads = lock(&self.threads);
        let threads = &mut *threads;
        if self.config.policy() == Policy::Stream && threads.failure.is_some() {
            return Err(io::Error::other("recording has stopped"));
        }
        let index = threads.rings.lanes_count;
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
        entry.offset = threads.rings.last_offset;
        threads.rings.write_lane_thread(&entry, self.config.policy() == Policy::Last)?;
        let writer = Writer::new(Arc::clone(&entry.lane));
        threads.entries.push(entry);
        Ok(writer)
    }

    /// Makes a lane in new memory, or in that of a thread that has ended.
    fn new_lane(&self, threads: &mut ThreadTable) -> io::Result<Arc<Lane<Memory>>> {
        let overwrites = self.config.policy() == Policy::Last;
        let words = self.config.ring_words();
        let memory = if threads.entries.len() < self.config.threads_count_max() {
            threads.rings.add_lane(words)?
        } else {
            let free =
                |entry: &ThreadEntry| entry.end_ticks != 0 && (overwrites || entry.is_streamed);
            let Some(at) = threads.entries.iter().position(free) else {
                return Err(io::Error::other("all rings are in use; raise Config::threads_max"));
            };
            let ended = threads.entries.remove(at);
            let (recorded, lost) = ended.lane.counts();
            threads.recorded_before += recorded;
            threads.lost_before += lost;
            if overwrites {
                threads.overwritten += recorded;
            }
            threads.rings.clear_lane(ended.offset, words)?
        };
        let when_full = match overwrites {
            true => WhenFull::Overwrite,
            false if self.config.wait().is_zero() => WhenFull::Lose,
            false => WhenFull::Wait,
        };
        Ok(Arc::new(Lane::new(memory, when_full)))
    }

    /// Ends the recording; does nothing after the first call.
    fn end(&self) {
        let current = {
            let mut control = lock(&CONTROL);
            let is_ours = |current: &mut Current| std::ptr::eq(&*current.session, self);
            control.current.take_if(is_ours)
        };
        let Some(current) = current else { return };
        IS_RECORDING.store(false, Ordering::Relaxed);
        {
            let mut threads = lock(&self.threads);
            threads.lost_before += LOST_WITHOUT_LANE.load(Ordering::Relaxed);
            threads.has_ended = true;
            threads.entries.iter().for_each(|entry| entry.lane.close());
            if threads.entries.iter().any(|entry| !entry.lane.words().is_intact()) {
                let why = "the trace file was truncated during the recording";
                threads.failure.get_or_insert(io::Error::other(why));
            }
        }
        if let Some(streamer) = current.streamer {
            streamer.finish();
        }
        let mut threads = lock(&self.threads);
        let header = self.header_of(&threads, format::STATE_FINISHED);
        if let Err(error) = threads.rings.write_header(&header) {
            threads.failure.get_or_insert(error);
        }
        threads.rings.release();
        drop(threads);
        self.remove_rings();
    }

    /// Removes a stream's rings; with the other policy, the rings are the trace.
    fn remove_rings(&self) {
        if self.config.policy() == Policy::Stream {
            lock(&self.threads).rings.remove(Path::new(&self.header.rings));
        }
    }

    fn summary(&self) -> Summary {
        let mut threads = lock(&self.threads);
        let (recorded, lost) = self.totals(&threads);
        let (recorded, lost, overwritten) = match self.config.policy() {
            Policy::Stream => {
                let streamed = threads.rings.streamed;
                (streamed, lost + recorded.saturating_sub(streamed), 0)
            }
            Policy::Last => {
                let kept: u64 =
                    threads.entries.iter().map(|entry| entry.lane.count_events().0).sum();
                (kept, lost, recorded.saturating_sub(kept))
            }
        };
        Summary {
            path: self.config.path().to_owned(),
            threads_count: threads.rings.lanes_count,
            recorded,
            lost,
            overwritten,
            bytes: std::fs::metadata(self.config.path()).map_or(0, |data| data.len()),
            failure: threads.failure.take(),
        }
    }

    /// Counts `count` more events as written to the stream's file.
    pub(crate) fn streamed(&self, count: u64) {
        lock(&self.threads).rings.streamed += count;
    }
}

/// Gives the calling thread a writer, and returns the time read before that. Returns `None` if the
/// thread gets none; the event is then counted.
#[cold]
pub(crate) fn attach() -> Option<u64> {
    if current::is_busy() {
        if !current::count_interrupted() {
            count_lost();
        }
        return None;
    }
    match current::phase() {
        Phase::Ready => {}
        Phase::Internal => return None,
        Phase::Inside | Phase::Ended => {
            count_lost();
            return None;
        }
    }
    let _inside = current::enter();
    if !IS_CALIBRATED.load(Ordering::Relaxed) {
        // Under the lock, which a fork waits for: a child forked during the calibration would wait
        // for it for ever.
        let _control = lock(&CONTROL);
        clock::calibration();
        IS_CALIBRATED.store(true, Ordering::Relaxed);
    }
    let now = clock::ticks();
    let session = {
        let mut control = lock(&CONTROL);
        if control.current.is_none() {
            begin_pending(&mut control);
        }
        control.session()
    };
    let is_attached = session.is_some_and(|session| attach_to_session(&session));
    if !is_attached {
        count_lost();
    }
    is_attached.then_some(now)
}

/// Gives the calling thread a writer; returns `false` if it cannot have one.
fn attach_to_session(session: &Session) -> bool {
    // A signal handler may have made one since.
    if current::with(|writer| !writer.lane().is_closed()).unwrap_or(false) {
        return true;
    }
    drop(current::take()); // of a finished recording
    if current::refused_by() == session.header.session {
        return false;
    }
    match session.add_thread() {
        Ok(writer) => {
            current::install(writer);
            true
        }
        Err(error) => {
            let mut threads = lock(&session.threads);
            threads.threads_refused += 1;
            threads.failure.get_or_insert(error);
            drop(threads);
            current::set_refused_by(session.header.session);
            false
        }
    }
}

/// Waits until the calling thread's ring has room or its lane is closed. Returns `false` after the
/// maximum wait, or if the thread must not wait.
#[cold]
pub(crate) fn wait_for_room() -> bool {
    if current::phase() != Phase::Ready {
        return false; // this thread may hold a lock that the writing thread needs
    }
    let begin = clock::ticks();
    let wait_ticks = clock::ticks_from_ns(WAIT_NS.load(Ordering::Relaxed));
    while !current::with(Writer::has_room).unwrap_or(true) {
        if clock::ticks().saturating_sub(begin) > wait_ticks {
            return false;
        }
        // While this thread holds the lock, a signal handler that interrupts it must not take it.
        let _inside = current::enter();
        // Held briefly, and not waited for: a thread in begin() or end() may hold it for long.
        if let Ok(control) = CONTROL.try_lock()
            && let Some(streamer) = control.current.as_ref().and_then(|it| it.streamer.as_ref())
        {
            streamer.wake();
        }
        std::thread::sleep(WAIT_STEP);
    }
    true
}

/// Maximum number of file names that are tried for one that no process records into.
const FILES_MAX: u32 = 1000;

fn begin_pending(control: &mut Control) {
    if control.is_ending {
        return;
    }
    let remote = || {
        let plan = remote::requested_config()?;
        let path = claim::with_suffix(plan.path(), &control.suffix);
        Some(if control.suffix.is_empty() { plan } else { plan.at(path) })
    };
    let Some(plan) = remote().or_else(|| control.pending_config.clone()) else { return };
    let pid = std::process::id();
    let is_recorded_already = |error: &StartError| match error {
        StartError::File { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    };
    let mut begun = begin(control, plan.clone());
    // The same path may have been given to others: to programs that inherit the environment, and to
    // shared objects with a copy of this crate.
    for again in 1..FILES_MAX {
        if !begun.as_ref().is_err_and(is_recorded_already) {
            break;
        }
        let suffix = if again == 1 { pid.to_string() } else { format!("{pid}.{again}") };
        begun = begin(control, plan.at(claim::with_suffix(plan.path(), &suffix)));
    }
    if let Err(error) = begun {
        control.pending_config = None; // reported once, not for each event
        remote::discard_request();
        let variable = environment::PATTERN_VARIABLE;
        let why = std::error::Error::source(&error).map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        eprintln!("handover-probe: {variable}: cannot start the recording: {error}{why}");
    }
}

/// Counts an event that found no lane.
pub(crate) fn count_lost() {
    let counter =
        if IS_RECORDING.load(Ordering::Relaxed) { &LOST_WITHOUT_LANE } else { &UNRECORDED };
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Control {
    fn session(&self) -> Option<Arc<Session>> {
        self.current.as_ref().map(|current| Arc::clone(&current.session))
    }
}

pub(crate) fn set_pending_config(config: Config) {
    lock(&CONTROL).pending_config = Some(config);
}

/// Lists sites of the flag form that have registered since in the rings' file.
pub(crate) fn write_new_sites() {
    if current::phase() != Phase::Ready {
        return; // it is listed with the next site that registers
    }
    let _inside = current::enter();
    let Some(session) = lock(&CONTROL).session() else { return };
    let mut threads = lock(&session.threads);
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

/// Records the calling thread's end, and drops its writer.
pub(crate) fn on_thread_exit(writer: Writer<Memory>) {
    let lane = Arc::clone(writer.lane());
    drop(writer); // makes the counts exact
    let end_ticks = clock::ticks();
    lane.words().header(format::thread::PAGE_END).store(end_ticks, Ordering::Relaxed);
    let Some(session) = lock(&CONTROL).session() else { return };
    let mut threads = lock(&session.threads);
    if let Some(entry) = threads.entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.lane, &lane)) {
        entry.end_ticks = end_ticks;
    }
}

/// Locks held around a fork by the forking thread, so that the child finds them free.
struct ForkLocks {
    control: MutexGuard<'static, Control>,
    _registry: registry::RegistryLock,
    _inside: current::Inside,
}

thread_local! {
    static FORK_LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

pub(crate) fn before_fork() {
    if current::phase() == Phase::Inside {
        return; // in a signal handler, for example: this thread may hold the locks
    }
    let inside = current::enter();
    // In the same order as elsewhere. Another thread may hold the session's own lock: the child
    // does not use the session.
    let held = ForkLocks {
        control: lock(&CONTROL),
        _registry: registry::lock_for_fork(),
        _inside: inside,
    };
    // If the thread's local storage is destroyed already, nothing can be held over the fork.
    let _ = FORK_LOCKS.try_with(|slot| slot.replace(Some(held)));
}

pub(crate) fn after_fork_in_parent() {
    let _ = FORK_LOCKS.try_with(|slot| slot.take());
}

/// Prepares the child: the rings belong to the parent, so that the child begins files of its own at
/// its first event, derived from the parent's current or planned ones.
pub(crate) fn after_fork_in_child() {
    current::forget();
    let held = FORK_LOCKS.try_with(|slot| slot.take());
    let Ok(Some(mut held)) = held else { return };
    let control = &mut *held.control;
    let pid = std::process::id().to_string();
    let parents = control.current.take();
    let plan = match &parents {
        Some(parents) => Some(parents.session.config().clone()),
        None => control.pending_config.take(),
    };
    control.pending_config = plan.map(|plan| plan.at(claim::with_suffix(plan.path(), &pid)));
    if !control.suffix.is_empty() {
        control.suffix.push('.');
    }
    control.suffix.push_str(&pid);
    IS_RECORDING.store(false, Ordering::Relaxed);
    // The parent's threads do not exist here, and its files must not be finished by the child.
    std::mem::forget(parents);
}

/// Finishes the recording when the process exits, and prevents threads that still run from starting
/// a new one.
pub(crate) fn on_process_exit() {
    if current::phase() == Phase::Inside {
        return; // in a signal handler, for example: this thread may hold the locks
    }
    let _inside = current::enter();
    let session = {
        let mut control = lock(&CONTROL);
        control.is_ending = true;
        control.session()
    };
    if let Some(session) = session {
        session.end();
    }
}
