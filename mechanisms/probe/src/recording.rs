//! The recording of this process: its begin and end, and the threads that record.

use crate::config::{Config, Policy};
use crate::config_request;
use crate::environment::PATTERN_VARIABLE;
use crate::error::StartError;
use crate::format;
use crate::lane::Writer;
use crate::raw::current::{self, ThreadPhase};
use crate::raw::hooks::{self, ProcessHooks};
use crate::raw::mapping::LaneMemory;
use crate::raw::{sigbus, switching};
use crate::registry;
use crate::session::{LOST_WITHOUT_LANE, Session, Summary, lock};
use crate::site::CONTROL as CONTROL_ENTRY;
use crate::stream::Streamer;
use crate::trace_file;
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Running recording, with the thread that writes its stream.
#[derive(Debug)]
struct RunningRecording {
    session: Arc<Session>,
    /// Thread that writes the stream; `None` with [`Policy::Last`].
    streamer: Option<Streamer>,
}

/// State of this process's recordings: the running one, and the configuration of the next one.
#[derive(Debug)]
struct Control {
    /// Running recording, if any.
    current: Option<RunningRecording>,
    /// Configuration of the recording that the next event starts if none is running.
    pending_config: Option<Config>,
    /// Text of the last request with which no recording could be started; empty if there is none.
    /// It is not tried again; a later request, which contains another time, is.
    failed_request: Vec<u8>,
    /// Suffix that a forked process appends to its parent's file names; empty if not forked.
    suffix: String,
    /// `true` once the process's exit handlers run. No recording may start then, because it would
    /// never be finished.
    is_ending: bool,
}

/// State of this process's recordings.
static CONTROL: Mutex<Control> = Mutex::new(Control {
    current: None,
    pending_config: None,
    failed_request: Vec::new(),
    suffix: String::new(),
    is_ending: false,
});
/// `true` while there is a recording. Read for events without a lane, which must not acquire a
/// lock. While a recording starts or ends, such an event may be counted as unrecorded.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
/// `true` once the clock is calibrated. A thread calibrates the clock while it holds `CONTROL`.
static IS_CALIBRATED: AtomicBool = AtomicBool::new(false);
/// Maximum time, in ns, that a thread waits for space in its ring. It is set by the latest
/// recording.
static WAIT_NS: AtomicU64 = AtomicU64::new(0);
/// Time that a waiting thread sleeps between two checks for space in its ring.
const WAIT_STEP: Duration = Duration::from_micros(20);
/// Number of events that sites reported while there was no recording.
static UNRECORDED: AtomicU64 = AtomicU64::new(0);

/// Recording of this process's events. A process has at most one recording at a time.
///
/// Dropping it finishes the recording, and so does the process's end by `exit` or by returning from
/// `main`. A process that is killed leaves files that can be read up to its last event.
#[derive(Debug)]
#[must_use = "dropping it ends the recording"]
pub struct Recording {
    session: Arc<Session>,
}

impl Recording {
    /// Starts a recording of the events of all sites while they are on.
    ///
    /// # Errors
    /// If a recording runs already, the process is ending, a number is out of bounds, or the files
    /// cannot be created.
    ///
    /// # Blocking
    /// Calibrates the clock once a process, for some 10 ms.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let _inside = current::enter_crate();
        let mut control = lock(&CONTROL);
        if control.is_ending {
            return Err(StartError::ProcessExiting);
        }
        if let Some(current) = &control.current {
            return Err(StartError::AlreadyRunning {
                path: current.session.config().path().to_owned(),
            });
        }
        let session = start_recording(&mut control, config)?;
        Ok(Self { session })
    }

    /// Returns the number of events lost in this recording so far; 0 in a forked child of the
    /// process that started it.
    #[must_use]
    pub fn lost_events_count(&self) -> u64 {
        if !self.session.is_of_this_process() {
            return 0;
        }
        let _inside = current::enter_crate();
        self.session.lost_events_count()
    }

    /// Returns the path of the trace.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.session.config().path()
    }

    /// Stops recording, writes all events that are not written yet, and returns a summary. Sites
    /// stay on or off; an event that is being recorded at this moment may be missing.
    ///
    /// In a forked child of the process that started the recording, the recording goes on in the
    /// parent, and the summary has an error and no counts.
    ///
    /// # Blocking
    /// Waits until the rings are drained and written.
    #[must_use = "it says what was lost"]
    pub fn finish(self) -> Summary {
        if !self.session.is_of_this_process() {
            return self.session.parents_summary();
        }
        let _inside = current::enter_crate();
        finish_recording(&self.session);
        self.session.summary()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _inside = current::enter_crate();
        finish_recording(&self.session);
    }
}

/// Creates the calling thread's ring before its first event. Returns `false` if there is no
/// recording or no free ring. The creation at the first event would take some milliseconds for 4
/// MiB.
pub fn prepare() -> bool {
    let is_open = |writer: &Writer<LaneMemory>| !writer.lane().is_closed();
    if current::with_writer(is_open).unwrap_or(false) {
        return true;
    }
    if current::is_writer_busy() || current::thread_phase() != ThreadPhase::InProgram {
        return false;
    }
    let _inside = current::enter_crate();
    let session = lock(&CONTROL).session();
    session.is_some_and(|session| install_writer_for(&session))
}

/// Returns the number of events that sites reported while there was no recording.
#[must_use]
pub fn unrecorded_events_count() -> u64 {
    UNRECORDED.load(Ordering::Relaxed)
}

/// Installs the fork and exit handlers of this crate. Call it before a lock is taken that a
/// child would inherit as locked.
pub(crate) fn install_hooks() {
    hooks::install_hooks(ProcessHooks {
        before_fork,
        after_fork_in_parent,
        after_fork_in_child,
        on_exit: on_process_exit,
    });
}

/// Starts a recording: creates its files and, for a stream, the thread that writes it.
fn start_recording(control: &mut Control, config: Config) -> Result<Arc<Session>, StartError> {
    config.validate()?;
    install_hooks();
    sigbus::install_fault_handler();
    clock::calibration();
    IS_CALIBRATED.store(true, Ordering::Relaxed);
    // Before the process has the writing thread: in a process of several threads, the kernel takes
    // tens of milliseconds for the registration.
    switching::register_for_membarrier();
    WAIT_NS.store(config.wait_max.as_nanos() as u64, Ordering::Relaxed);
    let session = Arc::new(Session::new(config)?);
    LOST_WITHOUT_LANE.store(0, Ordering::Relaxed);
    let streamer = match session.config().policy() {
        Policy::Last => None,
        Policy::Stream => {
            // Without a writing thread, the rings would never be drained or removed.
            let removed = |_: &StartError| session.remove_rings();
            Some(Streamer::start(&session).inspect_err(removed)?)
        }
    };
    control.current = Some(RunningRecording { session: Arc::clone(&session), streamer });
    IS_RECORDING.store(true, Ordering::Relaxed);
    Ok(session)
}

/// Finishes the recording. Further calls have no effect.
fn finish_recording(session: &Session) {
    let current = {
        let mut control = lock(&CONTROL);
        let is_ours = |current: &mut RunningRecording| std::ptr::eq(&*current.session, session);
        control.current.take_if(is_ours)
    };
    let Some(current) = current else { return };
    IS_RECORDING.store(false, Ordering::Relaxed);
    session.close_lanes();
    if let Some(streamer) = current.streamer {
        streamer.finish();
    }
    session.finish_files();
}

/// Creates a writer for the calling thread. Returns the time, in ticks, before its creation.
/// Returns `None` if the thread gets no writer. The event is then counted as missing.
#[cold]
pub(crate) fn attach_thread() -> Option<u64> {
    if current::is_writer_busy() {
        if !current::count_interrupted_event() {
            count_lost();
        }
        return None;
    }
    match current::thread_phase() {
        ThreadPhase::InProgram => {}
        ThreadPhase::InternalThread => return None,
        ThreadPhase::InProbe | ThreadPhase::Exited => {
            count_lost();
            return None;
        }
    }
    let _inside = current::enter_crate();
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
            start_pending(&mut control);
        }
        control.session()
    };
    let is_attached = session.is_some_and(|session| install_writer_for(&session));
    if !is_attached {
        count_lost();
    }
    is_attached.then_some(now)
}

/// Creates and installs a writer of `session` for the calling thread. Returns `false` if there is
/// no free ring.
fn install_writer_for(session: &Session) -> bool {
    // A signal handler may have made one since.
    if current::with_writer(|writer| !writer.lane().is_closed()).unwrap_or(false) {
        return true;
    }
    drop(current::take_writer()); // of a finished recording
    if current::refusing_session() == session.id() {
        return false;
    }
    match session.add_thread() {
        Ok(writer) => {
            current::install_writer(writer, on_thread_exit);
            true
        }
        Err(error) => {
            session.refuse_thread(error);
            current::set_refusing_session(session.id());
            false
        }
    }
}

/// Waits until the calling thread's ring has space or is closed. Returns `false` after the maximum
/// wait, or if the thread must not wait.
#[cold]
pub(crate) fn wait_for_space() -> bool {
    if current::thread_phase() != ThreadPhase::InProgram {
        return false; // this thread may hold a lock that the writing thread needs
    }
    let begin = clock::ticks();
    let wait_ticks = clock::ticks_from_ns(WAIT_NS.load(Ordering::Relaxed));
    while !current::with_writer(Writer::has_space).unwrap_or(true) {
        if clock::ticks().saturating_sub(begin) > wait_ticks {
            return false;
        }
        // While this thread holds the lock, a signal handler that interrupts it must not take it.
        let _inside = current::enter_crate();
        // Held briefly, and not waited for: a thread in start_recording() or finish_recording() may
        // hold it for long.
        if let Ok(control) = CONTROL.try_lock()
            && let Some(streamer) = control.current.as_ref().and_then(|it| it.streamer.as_ref())
        {
            streamer.wake();
        }
        std::thread::sleep(WAIT_STEP);
    }
    true
}

/// Maximum number of file names to try for a trace, while other processes record to these files.
const FILE_NAMES_MAX: u32 = 1000;

/// Returns another process's request: its text, and the configuration in it. Returns `None` if
/// there is none, or its text is that of the request that has `failed`.
fn untried_request(failed: &[u8]) -> Option<(Vec<u8>, Config)> {
    // Compared without an allocation, as each event without a recording comes here.
    if !failed.is_empty() && CONTROL_ENTRY.iter_written_bytes().eq(failed.iter().copied()) {
        return None;
    }
    let text = CONTROL_ENTRY.written_bytes();
    config_request::pending_request().map(|config| (text, config))
}

/// Starts the recording that another process or the environment has configured, if any. If this
/// fails, the error is reported once. Only a new request of another process is then tried.
fn start_pending(control: &mut Control) {
    if control.is_ending {
        return;
    }
    let (text, requested) = untried_request(&control.failed_request).unzip();
    let remote = requested.map(|config| {
        let path = trace_file::with_suffix(config.path(), &control.suffix);
        if control.suffix.is_empty() { config } else { config.with_path(path) }
    });
    let Some(plan) = remote.or_else(|| control.pending_config.clone()) else { return };
    let pid = std::process::id();
    let is_recorded_already = |error: &StartError| match error {
        StartError::File { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    };
    let mut begun = start_recording(control, plan.clone());
    // The same path may have been given to others: to programs that inherit the environment, and to
    // shared objects with a copy of this crate.
    for again in 1..FILE_NAMES_MAX {
        if !begun.as_ref().is_err_and(is_recorded_already) {
            break;
        }
        let suffix = if again == 1 { pid.to_string() } else { format!("{pid}.{again}") };
        begun =
            start_recording(control, plan.with_path(trace_file::with_suffix(plan.path(), &suffix)));
    }
    if let Err(error) = begun {
        control.pending_config = None; // reported once, not for each event
        if let Some(text) = text {
            control.failed_request = text;
        }
        let why = std::error::Error::source(&error).map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        eprintln!("handover-probe: {PATTERN_VARIABLE}: cannot start the recording: {error}{why}");
    }
}

/// Counts an event of a thread without a lane as lost. Without a recording, counts it as
/// unrecorded.
pub(crate) fn count_lost() {
    let counter =
        if IS_RECORDING.load(Ordering::Relaxed) { &LOST_WITHOUT_LANE } else { &UNRECORDED };
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Control {
    /// Returns the state of the running recording, if any.
    fn session(&self) -> Option<Arc<Session>> {
        self.current.as_ref().map(|current| Arc::clone(&current.session))
    }
}

/// Stores the configuration of the recording that the next event starts.
pub(crate) fn set_pending_config(config: Config) {
    lock(&CONTROL).pending_config = Some(config);
}

/// Adds new sites to the file of rings. These are sites without patched code that have registered
/// since the last call.
pub(crate) fn write_new_sites() {
    if current::thread_phase() != ThreadPhase::InProgram {
        return; // it is listed with the next site that registers
    }
    let _inside = current::enter_crate();
    let Some(session) = lock(&CONTROL).session() else { return };
    session.write_new_sites();
}

/// Records that the calling thread exits, and drops its writer.
fn on_thread_exit(writer: Writer<LaneMemory>) {
    let lane = Arc::clone(writer.lane());
    drop(writer); // makes the counts exact
    let end_ticks = clock::ticks();
    lane.words().header_word(format::thread::PAGE_END_FIELD).store(end_ticks, Ordering::Relaxed);
    let Some(session) = lock(&CONTROL).session() else { return };
    session.end_thread(&lane, end_ticks);
}

/// Locks that the forking thread holds during a fork. They keep other threads from holding these
/// locks in the child.
struct ForkLocks {
    control: MutexGuard<'static, Control>,
    _registry: MutexGuard<'static, registry::Registry>,
    _inside: current::InsideGuard,
}

thread_local! {
    /// Locks that this thread holds during a fork.
    static FORK_LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Acquires this crate's locks before a fork, so that they are free in the child.
extern "C" fn before_fork() {
    if current::thread_phase() == ThreadPhase::InProbe {
        return; // in a signal handler, for example: this thread may hold the locks
    }
    let inside = current::enter_crate();
    // In the same order as elsewhere. Another thread may hold the session's own lock: the child
    // does not lock it, see Session::is_of_this_process().
    let held = ForkLocks {
        control: lock(&CONTROL),
        _registry: registry::lock_registry_only(),
        _inside: inside,
    };
    // If the thread's local storage is destroyed already, nothing can be held over the fork.
    let _ = FORK_LOCKS.try_with(|slot| slot.replace(Some(held)));
}

/// Releases the locks that [`before_fork`] has acquired.
extern "C" fn after_fork_in_parent() {
    let _ = FORK_LOCKS.try_with(|slot| slot.take());
}

/// Prepares the child of a fork to record into files of its own. Its file names are derived from
/// the parent's.
extern "C" fn after_fork_in_child() {
    current::leak_writer();
    let held = FORK_LOCKS.try_with(|slot| slot.take());
    let Ok(Some(mut held)) = held else { return };
    let control = &mut *held.control;
    let pid = std::process::id().to_string();
    let parents = control.current.take();
    let plan = match &parents {
        Some(parents) => Some(parents.session.config().clone()),
        None => control.pending_config.take(),
    };
    control.pending_config =
        plan.map(|plan| plan.with_path(trace_file::with_suffix(plan.path(), &pid)));
    if !control.suffix.is_empty() {
        control.suffix.push('.');
    }
    control.suffix.push_str(&pid);
    IS_RECORDING.store(false, Ordering::Relaxed);
    // The parent's threads do not exist here, and its files must not be finished by the child.
    std::mem::forget(parents);
}

/// Finishes the recording when the process exits. Prevents other threads from starting another
/// recording.
extern "C" fn on_process_exit() {
    if current::thread_phase() == ThreadPhase::InProbe {
        return; // in a signal handler, for example: this thread may hold the locks
    }
    let _inside = current::enter_crate();
    let session = {
        let mut control = lock(&CONTROL);
        control.is_ending = true;
        control.session()
    };
    if let Some(session) = session {
        finish_recording(&session);
    }
}
