//! A recording: its files, its lanes, and who has them.

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

/// A thread's place in the recording.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    /// Counts the threads that had a lane, from 0; no two of a recording have the same.
    pub index: u64,
    pub tid: u64,
    pub name: String,
    pub begin_ticks: u64,
    /// Zero while it lives.
    pub end_ticks: u64,
    /// Where its lane lies in the rings' file.
    pub offset: u64,
    /// Everything it recorded is in the stream, and another may have its place.
    pub is_done: bool,
    pub lane: Arc<Lane<Memory>>,
}

#[derive(Debug)]
struct Seats {
    all: Vec<Seat>,
    rings: RingsFile,
    /// The sites that are named in the rings' file.
    sites_count: usize,
    overwritten: u64,
    threads_refused: u64,
    /// No event is counted for it any more.
    has_ended: bool,
    /// Counts of seats that were given away, and of events without a seat once it has ended.
    recorded_before: u64,
    lost_before: u64,
    /// The first thing that went wrong.
    failure: Option<io::Error>,
}

/// Shared by the recording's owner, its threads and its writing thread.
#[derive(Debug)]
pub(crate) struct Session {
    config: Config,
    header: Header,
    seats: Mutex<Seats>,
}

#[derive(Debug)]
struct Current {
    session: Arc<Session>,
    streamer: Option<Streamer>,
}

#[derive(Debug)]
struct Control {
    current: Option<Current>,
    /// What to begin at the first event, when nothing is being recorded.
    plan: Option<Config>,
    /// In a forked process, what its files' names have behind those that its parent was given.
    suffix: String,
    /// The exit handlers run: what is begun now would never be finished.
    is_ending: bool,
}

static CONTROL: Mutex<Control> =
    Mutex::new(Control { current: None, plan: None, suffix: String::new(), is_ending: false });
/// Whether there is a recording. Both words are for events that find no lane, in places where no lock can
/// be taken; a recording that begins or ends just then may miss one, which is counted as unrecorded.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
/// Events of its threads that have no lane.
static LOST_WITHOUT_LANE: AtomicU64 = AtomicU64::new(0);
/// Whether the clock is calibrated, which is done by one thread while it holds the control.
static IS_CALIBRATED: AtomicBool = AtomicBool::new(false);
/// How long an event may wait for room, in ns, as the recording wants it that began last.
static WAIT_NS: AtomicU64 = AtomicU64::new(0);
/// How long a thread sleeps before it looks for room again.
const WAIT_STEP: Duration = Duration::from_micros(20);
/// Events while nothing was being recorded.
static UNRECORDED: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording of this process; one at a time.
///
/// Dropping it finishes it; so does the process's end by `exit` or from `main`. A process that is killed
/// leaves files that can be read up to its last event.
#[derive(Debug)]
#[must_use = "dropping it ends the recording"]
pub struct Recording {
    session: Arc<Session>,
}

/// What became of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Where it is.
    pub path: PathBuf,
    /// Threads that recorded.
    pub threads_count: u64,
    /// Events in the file, or in the rings with [`Policy::Last`].
    pub recorded: u64,
    /// Events that should be there and are not: there was no room, the disk was full, a thread had no
    /// ring.
    pub lost: u64,
    /// Events that newer ones took the place of, with [`Policy::Last`].
    pub overwritten: u64,
    /// The file's length.
    pub bytes: u64,
    /// Why recording stopped early, or threads had no ring.
    pub failure: Option<io::Error>,
}

impl Recording {
    /// Begins to record what the sites that are on, now or later, say.
    ///
    /// # Errors
    /// When one runs already, a number is out of bounds, or the files cannot be made.
    ///
    /// # Blocking
    /// Calibrates the clock once a process, some 10 ms.
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

    /// Events that are lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let _inside = current::enter();
        let seats = lock(&self.session.seats);
        self.session.totals(&seats).1
    }

    /// Where it goes.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.session.config.path()
    }

    /// Stops recording, writes what is not yet written, and says what became of it. Sites stay as they
    /// are; an event that is being recorded at this moment may be in it or not.
    ///
    /// # Blocking
    /// Until the rings are empty and written.
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

/// Makes the calling thread's ring now, rather than at its first event: some milliseconds for one of 4 MiB,
/// which would otherwise stand in the trace between the first event and the second. Whether the thread
/// has one; it has none when nothing is being recorded.
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
    session.is_some_and(|session| take_seat(&session))
}

/// How many events sites that were on had, while nothing was being recorded.
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
    // Before the process has the writing thread: the kernel takes tens of milliseconds for it in a process
    // of several threads.
    flip::register();
    WAIT_NS.store(config.wait().as_nanos() as u64, Ordering::Relaxed);
    let session = Arc::new(Session::new(config)?);
    LOST_WITHOUT_LANE.store(0, Ordering::Relaxed);
    let streamer = match session.config.policy() {
        Policy::Last => None,
        Policy::Stream => {
            // Without a stream, nobody would ever empty or remove the rings.
            let removed = |_: &StartError| session.remove_rings();
            Some(Streamer::start(&session).inspect_err(removed)?)
        }
    };
    control.current = Some(Current { session: Arc::clone(&session), streamer });
    IS_RECORDING.store(true, Ordering::Relaxed);
    Ok(session)
}

/// The time on all clocks.
pub(crate) fn anchor() -> Anchor {
    let ns = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    // The tightest of a few: a preemption in between would shift the clocks against each other.
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
            boot: files::boot(),
            ring_words: config.ring_words(),
            program: files::program(),
            ..Header::default()
        };
        let path = match config.policy() {
            Policy::Last => config.path().to_owned(),
            Policy::Stream => files::rings_path(&config, header.session),
        };
        if config.policy() == Policy::Stream {
            files::sweep();
            header.rings = path.to_string_lossy().into_owned();
            let stream = std::path::absolute(config.path());
            header.stream = stream.unwrap_or_default().to_string_lossy().into_owned();
        }
        let sites = registry::sites_from(0);
        let made = RingsFile::create(&path, &header, &sites);
        let rings = made.map_err(|source| StartError::File { path, source })?;
        let seats = Seats {
            all: Vec::new(),
            rings,
            sites_count: sites.len(),
            overwritten: 0,
            threads_refused: 0,
            has_ended: false,
            recorded_before: 0,
            lost_before: 0,
            failure: None,
        };
        Ok(Self { config, header, seats: Mutex::new(seats) })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The header as it is at the moment.
    pub(crate) fn header(&self, state: u64) -> Header {
        let seats = lock(&self.seats);
        self.header_of(&seats, state)
    }

    fn header_of(&self, seats: &Seats, state: u64) -> Header {
        let (recorded, lost) = self.totals(seats);
        let unwritten = match self.config.policy() {
            Policy::Last => 0,
            // What came into a ring and did not reach the file.
            Policy::Stream => recorded.saturating_sub(seats.rings.streamed),
        };
        let errno = seats.failure.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
        let failed = seats.failure.is_some();
        Header {
            end: anchor(),
            state: if failed { format::STATE_FAILED } else { state },
            errno: errno as u64,
            lost: lost + if state == format::STATE_RECORDING { 0 } else { unwritten },
            threads_refused: seats.threads_refused,
            overwritten: seats.overwritten,
            ..self.header.clone()
        }
    }

    /// Events recorded and lost, by threads that have gone too.
    fn totals(&self, seats: &Seats) -> (u64, u64) {
        let recorded: u64 = seats.all.iter().map(|seat| seat.lane.survey().1).sum();
        let lost: u64 = seats.all.iter().map(|seat| seat.lane.counts().1).sum();
        let without_lane =
            if seats.has_ended { 0 } else { LOST_WITHOUT_LANE.load(Ordering::Relaxed) };
        (seats.recorded_before + recorded, seats.lost_before + lost + without_lane)
    }

    /// The threads so far.
    pub(crate) fn seats(&self) -> Vec<Seat> {
        lock(&self.seats).all.clone()
    }

    /// Everything of the thread `index` is in the stream: another may have its ring.
    pub(crate) fn is_done(&self, index: u64) {
        let mut seats = lock(&self.seats);
        if let Some(seat) = seats.all.iter_mut().find(|seat| seat.index == index) {
            seat.is_done = true;
        }
    }

    /// Recording stops, for `error`; the program goes on.
    pub(crate) fn fail(&self, error: io::Error) {
        let mut seats = lock(&self.seats);
        seats.all.iter().for_each(|seat| seat.lane.fail());
        seats.failure.get_or_insert(error);
    }

    /// A ring for the calling thread.
    fn sit_down(&self) -> io::Result<Writer<Memory>> {
        let mut seats = lock(&self.seats);
        let seats = &mut *seats;
        if self.config.policy() == Policy::Stream && seats.failure.is_some() {
            return Err(io::Error::other("recording has stopped"));
        }
        let index = seats.rings.lanes_count;
        let mut seat = Seat {
            index,
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u64,
            name: files::thread_name(),
            begin_ticks: clock::ticks(),
            end_ticks: 0,
            offset: 0,
            is_done: false,
            lane: self.empty_lane(seats)?,
        };
        seat.offset = seats.rings.last_offset;
        seats.rings.name_lane(&seat, self.config.policy() == Policy::Last)?;
        let writer = Writer::new(Arc::clone(&seat.lane));
        seats.all.push(seat);
        Ok(writer)
    }

    /// New memory, or that of a thread that has gone.
    fn empty_lane(&self, seats: &mut Seats) -> io::Result<Arc<Lane<Memory>>> {
        let overwrites = self.config.policy() == Policy::Last;
        let words = self.config.ring_words();
        let memory = if seats.all.len() < self.config.threads_count_max() {
            seats.rings.add_lane(words)?
        } else {
            let free = |seat: &Seat| seat.end_ticks != 0 && (overwrites || seat.is_done);
            let Some(at) = seats.all.iter().position(free) else {
                return Err(io::Error::other("every ring is taken"));
            };
            let gone = seats.all.remove(at);
            let (recorded, lost) = gone.lane.counts();
            seats.recorded_before += recorded;
            seats.lost_before += lost;
            if overwrites {
                seats.overwritten += recorded;
            }
            seats.rings.clear_lane(gone.offset, words)?
        };
        let when_full = match overwrites {
            true => WhenFull::Overwrite,
            false if self.config.wait().is_zero() => WhenFull::Lose,
            false => WhenFull::Wait,
        };
        Ok(Arc::new(Lane::new(memory, when_full)))
    }

    /// Once; nothing afterwards.
    fn end(&self) {
        let current = {
            let mut control = lock(&CONTROL);
            let is_ours = |current: &mut Current| std::ptr::eq(&*current.session, self);
            control.current.take_if(is_ours)
        };
        let Some(current) = current else { return };
        IS_RECORDING.store(false, Ordering::Relaxed);
        {
            let mut seats = lock(&self.seats);
            seats.lost_before += LOST_WITHOUT_LANE.load(Ordering::Relaxed);
            seats.has_ended = true;
            seats.all.iter().for_each(|seat| seat.lane.close());
            if seats.all.iter().any(|seat| !seat.lane.words().is_intact()) {
                let why = "its file was cut short while it was recorded";
                seats.failure.get_or_insert(io::Error::other(why));
            }
        }
        if let Some(streamer) = current.streamer {
            streamer.finish();
        }
        let mut seats = lock(&self.seats);
        let header = self.header_of(&seats, format::STATE_FINISHED);
        if let Err(error) = seats.rings.write_header(&header) {
            seats.failure.get_or_insert(error);
        }
        seats.rings.release();
        drop(seats);
        self.remove_rings();
    }

    /// Of a stream; those of the other policy are the trace.
    fn remove_rings(&self) {
        if self.config.policy() == Policy::Stream {
            lock(&self.seats).rings.remove(Path::new(&self.header.rings));
        }
    }

    fn summary(&self) -> Summary {
        let mut seats = lock(&self.seats);
        let (recorded, lost) = self.totals(&seats);
        let (recorded, lost, overwritten) = match self.config.policy() {
            Policy::Stream => {
                let streamed = seats.rings.streamed;
                (streamed, lost + recorded.saturating_sub(streamed), 0)
            }
            Policy::Last => {
                let kept: u64 = seats.all.iter().map(|seat| seat.lane.survey().0).sum();
                (kept, lost, recorded.saturating_sub(kept))
            }
        };
        Summary {
            path: self.config.path().to_owned(),
            threads_count: seats.rings.lanes_count,
            recorded,
            lost,
            overwritten,
            bytes: std::fs::metadata(self.config.path()).map_or(0, |data| data.len()),
            failure: seats.failure.take(),
        }
    }

    /// `count` more events are in the stream's file.
    pub(crate) fn streamed(&self, count: u64) {
        lock(&self.seats).rings.streamed += count;
    }
}

/// Gets the calling thread a writer, and says what the time was before that. `None` when it has none now: its
/// event is counted.
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
        Phase::Own => return None,
        Phase::Inside | Phase::Gone => {
            count_lost();
            return None;
        }
    }
    let _inside = current::enter();
    if !IS_CALIBRATED.load(Ordering::Relaxed) {
        // Under the lock, which a fork waits for: a child would wait for ever for half a calibration.
        let _control = lock(&CONTROL);
        clock::calibration();
        IS_CALIBRATED.store(true, Ordering::Relaxed);
    }
    let now = clock::ticks();
    let session = {
        let mut control = lock(&CONTROL);
        if control.current.is_none() {
            begin_as_planned(&mut control);
        }
        control.session()
    };
    let is_seated = session.is_some_and(|session| take_seat(&session));
    if !is_seated {
        count_lost();
    }
    is_seated.then_some(now)
}

/// Gets the calling thread a writer; `false` if there is none to be had.
fn take_seat(session: &Session) -> bool {
    // A signal handler may have done it in between.
    if current::with(|writer| !writer.lane().is_closed()).unwrap_or(false) {
        return true;
    }
    drop(current::take()); // of a recording that is finished
    if current::refused_by() == session.header.session {
        return false;
    }
    match session.sit_down() {
        Ok(writer) => {
            current::install(writer);
            true
        }
        Err(error) => {
            let mut seats = lock(&session.seats);
            seats.threads_refused += 1;
            seats.failure.get_or_insert(error);
            drop(seats);
            current::set_refused_by(session.header.session);
            false
        }
    }
}

/// Waits until the calling thread's ring has room, or what it waits for is over; `false` when that took too
/// long, or is not to be waited for.
#[cold]
pub(crate) fn wait_for_room() -> bool {
    if current::phase() != Phase::Ready {
        return false; // this thread may hold what the room waits for
    }
    let begin = clock::ticks();
    let wait_ticks = clock::ticks_from_ns(WAIT_NS.load(Ordering::Relaxed));
    while !current::with(Writer::has_room).unwrap_or(true) {
        if clock::ticks().saturating_sub(begin) > wait_ticks {
            return false;
        }
        // While this thread has the lock, a signal handler that interrupts it must not ask for it.
        let _inside = current::enter();
        // Not for long, and not at all where that would be waited for.
        if let Ok(control) = CONTROL.try_lock()
            && let Some(streamer) = control.current.as_ref().and_then(|it| it.streamer.as_ref())
        {
            streamer.wake();
        }
        std::thread::sleep(WAIT_STEP);
    }
    true
}

/// How many files of a name's are looked at for one that nobody records in.
const FILES_MAX: u32 = 1000;

fn begin_as_planned(control: &mut Control) {
    if control.is_ending {
        return;
    }
    let remote = || {
        let plan = remote::plan()?;
        let path = claim::with_suffix(plan.path(), &control.suffix);
        Some(if control.suffix.is_empty() { plan } else { plan.at(path) })
    };
    let Some(plan) = remote().or_else(|| control.plan.clone()) else { return };
    let pid = std::process::id();
    let is_taken = |error: &StartError| match error {
        StartError::File { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    };
    let mut begun = begin(control, plan.clone());
    // Others may have been given the same file: programs that inherit the environment, and shared objects
    // with a copy of this crate.
    for again in 1..FILES_MAX {
        if !begun.as_ref().is_err_and(is_taken) {
            break;
        }
        let suffix = if again == 1 { pid.to_string() } else { format!("{pid}.{again}") };
        begun = begin(control, plan.at(claim::with_suffix(plan.path(), &suffix)));
    }
    if let Err(error) = begun {
        control.plan = None; // said once, not for each event
        remote::forget_plan();
        let variable = environment::PATTERN_VARIABLE;
        let why = std::error::Error::source(&error).map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        eprintln!("handover-probe: {variable}: recording cannot begin: {error}{why}");
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

pub(crate) fn set_plan(plan: Config) {
    lock(&CONTROL).plan = Some(plan);
}

/// In the flag form, a site has made itself known: it is named in the rings' file.
pub(crate) fn sites_grew() {
    if current::phase() != Phase::Ready {
        return; // it will be named with the next
    }
    let _inside = current::enter();
    let Some(session) = lock(&CONTROL).session() else { return };
    let mut seats = lock(&session.seats);
    let new = registry::sites_from(seats.sites_count);
    if !new.is_empty() {
        match seats.rings.add_sites(&new) {
            Ok(()) => seats.sites_count += new.len(),
            Err(error) => {
                seats.failure.get_or_insert(error);
            }
        }
    }
}

/// The calling thread ends, and gives its writer back.
pub(crate) fn thread_ends(writer: Writer<Memory>) {
    let lane = Arc::clone(writer.lane());
    drop(writer); // the counts are exact now
    let end_ticks = clock::ticks();
    lane.words().header(format::thread::PAGE_END).store(end_ticks, Ordering::Relaxed);
    let Some(session) = lock(&CONTROL).session() else { return };
    let mut seats = lock(&session.seats);
    if let Some(seat) = seats.all.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, &lane)) {
        seat.end_ticks = end_ticks;
    }
}

/// What a fork must find free: held from before to after it, on the thread that forks.
struct HeldForFork {
    control: MutexGuard<'static, Control>,
    _registry: registry::Held,
    _inside: current::Inside,
}

thread_local! {
    static HELD: RefCell<Option<HeldForFork>> = const { RefCell::new(None) };
}

pub(crate) fn before_fork() {
    if current::phase() == Phase::Inside {
        return; // from a signal handler, say: the locks may be this thread's
    }
    let inside = current::enter();
    // In the order in which they are taken elsewhere. A session's own lock may be held by another
    // thread: the child leaves the session alone.
    let held =
        HeldForFork { control: lock(&CONTROL), _registry: registry::hold(), _inside: inside };
    // Where the thread's storage is gone already, nothing can be held over the fork.
    let _ = HELD.try_with(|slot| slot.replace(Some(held)));
}

pub(crate) fn after_fork_in_parent() {
    let _ = HELD.try_with(|slot| slot.take());
}

/// The rings are the parent's: the child begins files of its own at its first event, whatever the parent
/// has or would have recorded into.
pub(crate) fn after_fork_in_child() {
    current::forget();
    let held = HELD.try_with(|slot| slot.take());
    let Ok(Some(mut held)) = held else { return };
    let control = &mut *held.control;
    let pid = std::process::id().to_string();
    let parents = control.current.take();
    let plan = match &parents {
        Some(parents) => Some(parents.session.config().clone()),
        None => control.plan.take(),
    };
    control.plan = plan.map(|plan| plan.at(claim::with_suffix(plan.path(), &pid)));
    if !control.suffix.is_empty() {
        control.suffix.push('.');
    }
    control.suffix.push_str(&pid);
    IS_RECORDING.store(false, Ordering::Relaxed);
    // Its threads do not exist here, and its files are not ours to close in order.
    std::mem::forget(parents);
}

/// The process ends in order: what is not yet written is written, and threads that outlive it begin nothing
/// new.
pub(crate) fn process_ends() {
    if current::phase() == Phase::Inside {
        return; // from a signal handler, say: the locks may be this thread's
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
