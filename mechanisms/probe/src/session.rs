//! A recording: its files, its lanes, and who has them.

use crate::config::{Config, Policy};
use crate::error::StartError;
use crate::files::{self, RingsFile};
use crate::format::{self, Anchor, Header};
use crate::lane::{Lane, WhenFull, Writer};
use crate::raw::current::{self, Phase};
use crate::raw::mapping::Memory;
use crate::raw::{flip, hooks};
use crate::stream::Streamer;
use crate::{environment, registry, remote};
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicU64, Ordering};
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
    /// Counts of seats that were given away.
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
    /// Events of threads that have no lane.
    lost_without_lane: AtomicU64,
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
}

static CONTROL: Mutex<Control> = Mutex::new(Control { current: None, plan: None });
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
        let mut control = lock(&CONTROL);
        if let Some(current) = &control.current {
            return Err(StartError::Running { path: current.session.config.path().to_owned() });
        }
        let session = begin(&mut control, config)?;
        Ok(Self { session })
    }

    /// Events that are lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let seats = lock(&self.session.seats);
        let of_seats: u64 = seats.all.iter().map(|seat| seat.lane.counts().1).sum();
        seats.lost_before + of_seats + self.session.lost_without_lane.load(Ordering::Relaxed)
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
        self.session.end();
        self.session.summary()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
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
    let is_recording = lock(&CONTROL).current.is_some();
    is_recording && attach()
}

/// How many events sites that were on had, while nothing was being recorded.
#[must_use]
pub fn unrecorded() -> u64 {
    UNRECORDED.load(Ordering::Relaxed)
}

fn begin(control: &mut Control, config: Config) -> Result<Arc<Session>, StartError> {
    config.validate()?;
    hooks::install();
    // Before the process has the writing thread: the kernel takes tens of milliseconds for it in a process
    // of several threads.
    flip::register();
    WAIT_NS.store(config.wait().as_nanos() as u64, Ordering::Relaxed);
    let session = Arc::new(Session::new(config)?);
    let streamer = match session.config.policy() {
        Policy::Last => None,
        Policy::Stream => {
            // Without a stream, nobody would ever empty or remove the rings.
            let removed = |_: &StartError| files::remove(&session.header.rings);
            Some(Streamer::start(&session).inspect_err(removed)?)
        }
    };
    control.current = Some(Current { session: Arc::clone(&session), streamer });
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
            header.rings = path.to_string_lossy().into_owned();
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
            recorded_before: 0,
            lost_before: 0,
            failure: None,
        };
        Ok(Self { config, header, seats: Mutex::new(seats), lost_without_lane: AtomicU64::new(0) })
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
        let without_lane = self.lost_without_lane.load(Ordering::Relaxed);
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
        if let Some(current) = current {
            lock(&self.seats).all.iter().for_each(|seat| seat.lane.close());
            if let Some(streamer) = current.streamer {
                streamer.finish();
            }
            let seats = lock(&self.seats);
            let header = self.header_of(&seats, format::STATE_FINISHED);
            let written = seats.rings.write_header(&header);
            drop(seats);
            if let Err(error) = written {
                lock(&self.seats).failure.get_or_insert(error);
            }
            if self.config.policy() == Policy::Stream {
                files::remove(&self.header.rings);
            }
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

/// Gets the calling thread a writer. `false` when it has none now; its event is counted.
#[cold]
pub(crate) fn attach() -> bool {
    if current::phase() != Phase::Ready {
        let control = CONTROL.try_lock();
        let session = control.as_ref().ok().and_then(|control| control.current.as_ref());
        count_lost(session.map(|current| &*current.session));
        return false;
    }
    current::set_phase(Phase::Attaching);
    if let Some(writer) = current::take() {
        drop(writer); // of a recording that is finished
    }
    let attached = attach_to_current();
    current::set_phase(Phase::Ready);
    attached
}

fn attach_to_current() -> bool {
    let session = {
        let mut control = lock(&CONTROL);
        if control.current.is_none() {
            begin_as_planned(&mut control);
        }
        control.current.as_ref().map(|current| Arc::clone(&current.session))
    };
    let Some(session) = session else {
        count_lost(None);
        return false;
    };
    if current::refused_by() == session.header.session {
        count_lost(Some(&session));
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
            count_lost(Some(&session));
            false
        }
    }
}

/// Waits until the calling thread's ring has room, or what it waits for is over; `false` when that took too
/// long, or is not to be waited for.
#[cold]
pub(crate) fn wait_for_room() -> bool {
    if current::never_waits() {
        return false;
    }
    let begin = clock::ticks();
    let wait_ticks = clock::ticks_from_ns(WAIT_NS.load(Ordering::Relaxed));
    while !current::with(Writer::has_room).unwrap_or(true) {
        if clock::ticks().saturating_sub(begin) > wait_ticks {
            return false;
        }
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

fn begin_as_planned(control: &mut Control) {
    let Some(plan) = remote::plan().or_else(|| control.plan.clone()) else { return };
    let plan = files::beside_the_living(plan);
    if let Err(error) = begin(control, plan) {
        control.plan = None; // said once, not for each event
        remote::forget_plan();
        let variable = environment::PATTERN_VARIABLE;
        eprintln!("handover-probe: {variable}: recording cannot begin: {error}");
    }
}

fn count_lost(session: Option<&Session>) {
    match session {
        Some(session) => session.lost_without_lane.fetch_add(1, Ordering::Relaxed),
        None => UNRECORDED.fetch_add(1, Ordering::Relaxed),
    };
}

pub(crate) fn set_plan(plan: Config) {
    lock(&CONTROL).plan = Some(plan);
}

/// In the flag form, a site has made itself known: it is named in the rings' file.
pub(crate) fn sites_grew() {
    if current::phase() != Phase::Ready {
        return; // it will be named with the next
    }
    let session = lock(&CONTROL).current.as_ref().map(|current| Arc::clone(&current.session));
    let Some(session) = session else { return };
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
    let session = lock(&CONTROL).current.as_ref().map(|current| Arc::clone(&current.session));
    let Some(session) = session else { return };
    let mut seats = lock(&session.seats);
    if let Some(seat) = seats.all.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, &lane)) {
        seat.end_ticks = end_ticks;
    }
}

/// What a fork must find free: held from before to after it, on the thread that forks.
struct HeldForFork {
    control: MutexGuard<'static, Control>,
    _registry: registry::Held,
}

thread_local! {
    static HELD: RefCell<Option<HeldForFork>> = const { RefCell::new(None) };
}

pub(crate) fn before_fork() {
    // In the order in which they are taken elsewhere. A session's own lock may be held by another
    // thread: the child leaves the session alone.
    let held = HeldForFork { control: lock(&CONTROL), _registry: registry::hold() };
    // Where the thread's storage is gone already, nothing can be held over the fork.
    let _ = HELD.try_with(|slot| slot.replace(Some(held)));
}

pub(crate) fn after_fork_in_parent() {
    let _ = HELD.try_with(|slot| slot.take());
}

/// The rings are the parent's: the child begins a file of its own at its first event.
pub(crate) fn after_fork_in_child() {
    current::forget();
    let held = HELD.try_with(|slot| slot.take());
    let Ok(Some(mut held)) = held else { return };
    if let Some(parents) = held.control.current.take() {
        let config = parents.session.config();
        let mut path = config.path().as_os_str().to_owned();
        path.push(format!(".{}", std::process::id()));
        held.control.plan = Some(config.at(path.into()));
        // Its threads do not exist here, and its files are not ours to close in order.
        std::mem::forget(parents);
    }
}

/// The process ends in order: what is not yet written is written.
pub(crate) fn process_ends() {
    let session = match CONTROL.try_lock() {
        Ok(control) => control.current.as_ref().map(|current| Arc::clone(&current.session)),
        Err(_) => None, // another thread is at it, and has what it needs
    };
    if let Some(session) = session {
        session.end();
    }
}
