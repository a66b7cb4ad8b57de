//! Recording of function calls in C and C++ programs, and of probes in any program.
//!
//! The program is started with a library in `LD_PRELOAD`, which its function entries call: those
//! compiled to call `__cyg_profile_func_enter` (`-finstrument-functions`), and those with space for
//! a jump (`-fpatchable-function-entry=5`), which are patched before `main`. The library writes
//! each thread's events into a ring in memory that this process shares and drains, so that the
//! events survive if the program or this process is killed.
//!
//! ```no_run
//! use handover_trace::record::{RecordOptions, record};
//! let recorded = record(&RecordOptions::new("a.trace"), &["./program".into()], &|| None)?;
//! for one in &recorded.written {
//!     println!("{}: {} events", one.path.display(), one.events_count);
//! }
//! # Ok::<(), handover_trace::record::RecordError>(())
//! ```

mod names;
mod program;
mod ring_drain;
mod rings;
mod stream;
mod trace_paths;

pub use names::add_function_names;
pub use program::ProgramError;

use crate::text::saturating_sum;
use handover_probe::Policy;
use handover_probe::read::{self, RecordingState, Trace};
use handover_probe::trace_file::{self, with_suffix};
use program::TraceableProgram;
use ring_drain::{RingDrain, untraced_calls_note};
use rustix::fs::FallocateFlags;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;
use trace_paths::{
    OlderTraces, find_trace_paths, free_trace_path, put_first_trace_at_file, rename_trace,
    trace_header,
};

/// Recording library for C and C++ programs, a shared object. It is built from `c/`, and empty on
/// platforms without support for it.
pub const RECORDING_LIBRARY_IMAGE: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libhandover-trace.so"));
/// Header with the probe macros for C and C++.
pub const PROBE_HEADER_SOURCE: &str = include_str!("../c/handover_probe.h");

/// Environment variable by which the recording library finds the folder with its settings.
const FOLDER_VARIABLE: &str = "HANDOVER_TRACE_RECORD";
/// Interval at which the rings are drained. Signals are forwarded, and the program's exit is
/// checked, at the same interval. A ring of 4 MiB holds half a million events.
const DRAIN_INTERVAL: Duration = Duration::from_millis(4);
/// Delay between the program's exit and the end of the recording. Other recorded processes can
/// notice the exit in this time.
const END_DELAY: Duration = Duration::from_millis(2);
/// Disk space reserved for the recording library's log, in bytes.
const LOG_BYTES: u64 = 1 << 14;
/// Maximum time that a thread waits for space in its ring by default. The recorder was late by up
/// to 4 ms beyond the 21 ms for which a ring of 4 MiB lasts at 24 million events per second.
const WAIT_DEFAULT: Duration = Duration::from_millis(50);
/// Maximum of [`RecordOptions::depth`]. It is the depth of the call stack that the recording
/// library keeps per thread.
const DEPTH_MAX: u32 = 1023;
/// Error number by which the recording library reports that the trace file was truncated
/// during the recording.
const ERRNO_TRUNCATED: i32 = rustix::io::Errno::NODATA.raw_os_error();

/// Options of a recording: selection of events, and the file to write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordOptions {
    /// Path of the program's trace. The traces of processes that it starts are at `FILE.PID`, or at
    /// `FILE.PARENT.PID` if a Rust program forked them.
    pub file: PathBuf,
    /// Policy of the recording.
    pub policy: Policy,
    /// Size of each thread's ring, in bytes.
    pub ring_bytes: u64,
    /// Patterns of functions and probes to record; all if empty.
    pub include: Vec<String>,
    /// Patterns of functions and probes to exclude, even if a pattern of `include` matches them.
    pub exclude: Vec<String>,
    /// Maximum depth of recorded calls, up to 1023. Deeper calls are omitted.
    pub depth: u32,
    /// Minimum duration of recorded calls, up to a day. Shorter calls are omitted.
    pub min_duration: Duration,
    /// Maximum time that a thread with a full ring waits before its event is lost. For streams
    /// only. `None`: 50 ms for programs in C and C++, for which the waits are reported, and none
    /// for the probes of Rust programs.
    pub wait: Option<Duration>,
    /// `true` to run a program even if it has nothing to trace. Programs that it starts, or
    /// libraries that it loads, may have.
    pub force: bool,
}

handover_base::setters!(RecordOptions {
    file: PathBuf,
    policy: Policy,
    ring_bytes: u64,
    include: Vec<String>,
    exclude: Vec<String>,
    depth: u32,
    min_duration: Duration,
    wait: Option<Duration>,
    force: bool,
});

impl RecordOptions {
    /// Creates options for a stream of all events.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            policy: Policy::Stream,
            ring_bytes: 1 << 22,
            include: Vec::new(),
            exclude: Vec::new(),
            depth: DEPTH_MAX,
            min_duration: Duration::ZERO,
            wait: None,
            force: false,
        }
    }
}

/// Error of recording a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program cannot be traced.
    #[error(transparent)]
    Refused(#[from] ProgramError),
    /// A pattern has a form that cannot be passed to the recording library.
    #[error(
        "invalid pattern {pattern:?}: patterns must be on one line, without a comma at the ends, and shorter than 4000 bytes together"
    )]
    Pattern {
        /// Pattern that is invalid.
        pattern: String,
    },
    /// The recording library cannot use the path of the trace or of a folder. The path is not
    /// UTF-8, has more than one line, or is too long. Or it contains `%p`, which probes of Rust
    /// programs replace by the process ID.
    #[error(
        "{}: invalid path: it must be UTF-8, on one line, shorter than 4000 bytes and without %p", path.display()
    )]
    Path {
        /// Invalid path.
        path: PathBuf,
    },
    /// A file could not be created.
    #[error("cannot write {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// The program could not be started.
    #[error("cannot start {}", path.display())]
    Start {
        /// Path of the program.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// Waiting for the exit of the program failed.
    #[error("cannot wait for the exit of the program")]
    Wait(#[source] io::Error),
}

/// Trace file that a recording has written.
#[derive(Debug)]
#[non_exhaustive]
pub struct WrittenTrace {
    /// Path of the trace.
    pub path: PathBuf,
    /// Process id of the recorded process.
    pub pid: u32,
    /// Path of the process's program.
    pub program: String,
    /// Number of threads that recorded events.
    pub threads_count: usize,
    /// Number of events in the trace.
    pub events_count: u64,
    /// Numbers of missing events, one for each cause.
    pub missing: read::MissingEvents,
    /// State of the recording: finished, failed or unfinished.
    pub end: RecordingState,
    /// Size of the trace file in bytes.
    pub bytes: u64,
}

/// Result of recording a program: its exit status, the traces, and messages for the user.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordResult {
    /// Exit status of the recorded program.
    pub status: ExitStatus,
    /// Traces that were written, the program's own first.
    pub written: Vec<WrittenTrace>,
    /// Messages for the user, such as functions that could not be traced or named.
    pub notes: Vec<String>,
}

impl RecordResult {
    /// Returns the program's exit code, or 128 plus the number of the signal that killed it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let code = self.status.code().or(self.status.signal().map(|signal| 128 + signal));
        u8::try_from(code.unwrap_or(1)).unwrap_or(1)
    }
}

/// Runs `command` and records it until it exits. `signals` is called every few milliseconds and
/// may return a signal to forward to the program.
///
/// # Errors
/// If the program cannot be traced or started, or a file cannot be created. A disk that fills up
/// later is not an error: the program continues, and the loss is reported in
/// [`WrittenTrace::missing`].
///
/// # Blocking
/// Blocks until the program has exited. Processes that outlive it are no longer recorded.
pub fn record(
    options: &RecordOptions,
    command: &[OsString],
    signals: &dyn Fn() -> Option<i32>,
) -> Result<RecordResult, RecordError> {
    let found = program::find_traceable_program(command, options.force)?;
    let file = absolute(&options.file)?;
    let error = |source| RecordError::File { path: file.clone(), source };
    // Checks now, not after the program has run, that the file can be created.
    trace_file::check_trace_path(&file).map_err(error)?;
    let older = OlderTraces::find(&file).map_err(error)?;
    // With this policy the library creates the file itself, and never replaces an existing one.
    let is_temporary = options.policy == Policy::Last && older.contains(&file);
    let suffix = format!("{}.new", std::process::id());
    let target = if is_temporary { with_suffix(&file, &suffix) } else { file.clone() };
    let folders = RecorderFolders::create(options, &target)?;
    let begin_ns = handover_base::clock::monotonic_ns();
    let mut child = folders.start(options, &found, command, &file)?;
    let mut follower =
        folders.rings.as_ref().map(|rings| RingDrain::new(rings.path(), &file, older.clone()));
    let status =
        wait_for_exit(&mut child, follower.as_mut(), signals).map_err(RecordError::Wait)?;
    let mut notes = Vec::new();
    if let Some(mut follower) = follower {
        std::thread::sleep(END_DELAY);
        follower.finish(&mut notes);
    }
    if is_temporary {
        for path in find_trace_paths(&target, &older) {
            let pid = trace_header(&path).map_or(0, |header| header.pid);
            rename_trace(&path, &free_trace_path(&file, pid, &older), &mut notes);
        }
    }
    put_first_trace_at_file(&file, child.id(), begin_ns, &older, &mut notes);
    let mut written = Vec::new();
    for path in find_trace_paths(&file, &older) {
        if options.policy == Policy::Last {
            if let Err(error) = add_function_names(&path, &mut notes) {
                let path = path.display();
                notes.push(format!("cannot add the names of functions to {path}: {error}"));
            }
            match rings::read_untraced_calls_count(&path) {
                Ok(0) | Err(_) => {} // Trace::open() reports an error below
                Ok(count) => notes.push(untraced_calls_note(&path, count)),
            }
        }
        match Trace::open(&path) {
            Ok(trace) => written.push(describe_trace(path, &trace)),
            Err(error) => notes.push(format!("{}: {error}", path.display())),
        }
    }
    if !written.is_empty() {
        older.remove(&file);
    }
    folders.report(&found, &written, &mut notes);
    Ok(RecordResult { status, written, notes })
}

/// Collects the counts and the size of a trace that was written.
fn describe_trace(path: PathBuf, trace: &Trace) -> WrittenTrace {
    WrittenTrace {
        pid: trace.pid(),
        program: trace.program().to_owned(),
        threads_count: trace.threads().len(),
        events_count: saturating_sum(trace.threads().iter().map(|thread| thread.events_count)),
        missing: trace.missing_events(),
        end: trace.state(),
        bytes: std::fs::metadata(&path).map_or(0, |data| data.len()),
        path,
    }
}

/// Waits for the program's exit. Meanwhile, drains rings and forwards signals.
fn wait_for_exit(
    child: &mut Child,
    mut follower: Option<&mut RingDrain>,
    signals: &dyn Fn() -> Option<i32>,
) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(follower) = &mut follower {
            follower.drain_full_rings();
        }
        let signal = signals().and_then(rustix::process::Signal::from_named_raw);
        if let (Some(signal), Some(pid)) =
            (signal, rustix::process::Pid::from_raw(child.id() as i32))
        {
            // Fails if the program has exited, which try_wait() reports.
            let _ = rustix::process::kill_process(pid, signal);
        }
        std::thread::sleep(DRAIN_INTERVAL);
    }
}

/// Returns the absolute path, with symbolic links resolved. Returns an error if the recording
/// library cannot use the path.
fn absolute(path: &Path) -> Result<PathBuf, RecordError> {
    let absolute = path
        .canonicalize()
        .or_else(|_| std::path::absolute(path))
        .map_err(|source| RecordError::File { path: path.to_owned(), source })?;
    let is_usable = |text: &&str| text.len() < 4000 && !text.contains('\n') && !text.contains("%p");
    let text = absolute.to_str().filter(is_usable);
    text.map(PathBuf::from).ok_or(RecordError::Path { path: absolute.clone() })
}

/// Temporary folders of a recording. One is for the recording library and its settings, one for the
/// rings of a stream.
#[derive(Debug)]
struct RecorderFolders {
    /// Folder with the recording library, its settings and its log.
    folder: TempDir,
    /// Folder with the rings of a stream.
    rings: Option<TempDir>,
    /// Lock files, locked as long as this process lives. They contain the PIDs of the recorder and
    /// the program.
    locks: Vec<File>,
}

/// Prefix of the names of a recording's temporary folders.
const FOLDER_PREFIX: &str = "handover-trace.";
/// Name of the lock file in each temporary folder.
const LOCK: &str = "recorder";

/// Creates and locks the lock file of a folder. The lock marks the folder as in use by this
/// process.
fn lock_folder(folder: &Path) -> io::Result<File> {
    let mut file = File::create_new(folder.join(LOCK))?;
    // Until the PID is written below, the file is empty and `is_stale` returns `false`.
    if !trace_file::lock_file(&file) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Removes folders in `parent` that killed recorders have left behind.
fn remove_stale_folders(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(FOLDER_PREFIX)
            && entry.metadata().is_ok_and(|data| {
                data.is_dir() && data.uid() == rustix::process::geteuid().as_raw()
            });
        if is_ours && is_stale(&entry.path()) {
            // A failure is harmless: the folder only occupies space.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns `true` if the folder is no longer needed. No running recorder or program uses it, and no
/// unfinished trace needs its rings.
fn is_stale(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(LOCK)) else { return false };
    let pids = std::fs::read_to_string(folder.join(LOCK)).unwrap_or_default();
    let program = pids.lines().nth(1).and_then(|pid| pid.parse().ok());
    let others = std::fs::read_dir(folder).into_iter().flatten().flatten();
    !pids.is_empty()
        && trace_file::lock_file(&file)
        && !program.is_some_and(trace_file::is_process_alive)
        // Files that are not rings are not needed without their recorder.
        && !others.map(|it| it.path()).any(|path| trace_file::is_trace(&path) && trace_file::is_rings_file_needed(&path))
}

impl RecorderFolders {
    /// Creates the folders, the lock files, and the files that the library reads or writes.
    fn create(options: &RecordOptions, file: &Path) -> Result<Self, RecordError> {
        let mut temporary = std::env::temp_dir();
        // Both separate the files in LD_PRELOAD.
        if temporary.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
            temporary = PathBuf::from("/tmp");
        }
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| RecordError::File { path, source }
        };
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix(FOLDER_PREFIX);
            builder
        };
        let memory = Path::new("/dev/shm");
        [&temporary, memory].into_iter().for_each(remove_stale_folders);
        let folder = builder().tempdir_in(&temporary).map_err(error(&temporary))?;
        let rings = match options.policy {
            Policy::Last => None,
            // In memory, which needs no disk; otherwise next to the file.
            Policy::Stream => Some(builder().tempdir_in(memory).or_else(|_| {
                let temporary = file.parent().unwrap_or(Path::new("/"));
                builder().tempdir_in(temporary).map_err(error(temporary))
            })?),
        };
        let folders = [Some(&folder), rings.as_ref()];
        let locked = folders
            .into_iter()
            .flatten()
            .map(|it| lock_folder(it.path()).map_err(error(it.path())));
        let locks = locked.collect::<Result<_, _>>()?;
        let folders = Self { folder, rings, locks };
        // Reserves space for the library's messages, for the case of a full disk.
        let log = folders.log_path();
        let made = File::create_new(&log).map_err(error(&log))?;
        let _ = rustix::fs::fallocate(&made, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES);
        let failure = folders.failure_path();
        std::fs::write(&failure, [0; 4]).map_err(error(&failure))?;
        let library = folders.library_path();
        std::fs::write(&library, RECORDING_LIBRARY_IMAGE).map_err(error(&library))?;
        let settings = folders.folder.path().join("settings");
        std::fs::write(&settings, folders.settings_text(options, file)?)
            .map_err(error(&settings))?;
        Ok(folders)
    }

    fn library_path(&self) -> PathBuf {
        self.folder.path().join("libhandover-trace.so")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns the path of the file into which the recording library writes an error number.
    fn failure_path(&self) -> PathBuf {
        self.folder.path().join("failure")
    }

    /// Returns the settings for the recording library, one per line.
    fn settings_text(&self, options: &RecordOptions, file: &Path) -> Result<String, RecordError> {
        let rings = match &self.rings {
            Some(rings) => {
                rings.path().to_str().ok_or(RecordError::Path { path: rings.path().to_owned() })?
            }
            None => "",
        };
        let list = |patterns: &[String]| -> Result<String, RecordError> {
            let joined = patterns.join(",");
            let is_too_long = joined.len() >= 4000;
            let refused = patterns.iter().find(|it| it.contains('\n'));
            match refused.or(patterns.last().filter(|_| is_too_long)) {
                Some(pattern) => Err(RecordError::Pattern { pattern: pattern.clone() }),
                None => Ok(joined),
            }
        };
        let calibration = handover_base::clock::calibration();
        let hz = match calibration.source {
            handover_base::clock::ClockSource::Tsc => calibration.ticks_hz,
            // The library measures the rate itself, of the counter that it reads.
            _ => 0.0,
        };
        Ok(format!(
            "file={}\nrings={rings}\ninclude={}\nexclude={}\nring_bytes={}\ndepth={}\nmin_ns={}\nwait_ns={}\nticks_hz={hz}\n",
            file.display(),
            list(&options.include)?,
            list(&options.exclude)?,
            options.ring_bytes,
            options.depth,
            options.min_duration.as_nanos(),
            options.wait.unwrap_or(WAIT_DEFAULT).as_nanos(),
        ))
    }

    /// Starts the program with the environment that makes it record.
    fn start(
        &self,
        options: &RecordOptions,
        found: &TraceableProgram,
        command_line: &[OsString],
        file: &Path,
    ) -> Result<Child, RecordError> {
        let mut command = Command::new(&found.path);
        command.args(&command_line[1..]).arg0(&command_line[0]);
        if found.can_load_library {
            let mut preload = self.library_path().into_os_string();
            if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty())
            {
                preload.push(":");
                preload.push(others);
            }
            command.env("LD_PRELOAD", preload).env(FOLDER_VARIABLE, self.folder.path());
        }
        // For probes: Rust programs write trace files of their own. Each has another name, because
        // a program replaces the finished trace of another.
        let mut pattern =
            if options.include.is_empty() { vec!["*".to_owned()] } else { options.include.clone() };
        pattern.extend(options.exclude.iter().map(|pattern| format!("-{pattern}")));
        let own = with_suffix(file, "%p");
        command.env(handover_probe::PATTERN_VARIABLE, pattern.join(","));
        command.env(handover_probe::FILE_VARIABLE, own);
        command.env(handover_probe::POLICY_VARIABLE, options.policy.to_string());
        command.env(handover_probe::RING_VARIABLE, options.ring_bytes.to_string());
        let wait = options.wait.unwrap_or_default();
        command.env(handover_probe::WAIT_VARIABLE, duration_to_ms(wait).to_string());
        let started = command.spawn();
        let child =
            started.map_err(|source| RecordError::Start { path: found.path.clone(), source })?;
        for mut lock in &self.locks {
            // Without this line, later recorders cannot know that the program outlives this
            // process.
            let _ = writeln!(lock, "{}", child.id());
        }
        Ok(child)
    }

    /// Appends messages for the user to `notes`: reasons why functions or events were not recorded.
    fn report(&self, found: &TraceableProgram, written: &[WrittenTrace], notes: &mut Vec<String>) {
        let log = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let sum = |key: &str| -> u64 {
            let values = log.split_whitespace().filter_map(|word| word.strip_prefix(key));
            values.filter_map(|value| value.parse::<u64>().ok()).sum()
        };
        let (too_short, unpatchable) = (sum("short="), sum("odd="));
        if too_short > 0 {
            notes.push(format!(
                "{too_short} functions have less space at their entry than a jump needs and are not traced: compile with \
                 -fpatchable-function-entry=5"
            ));
        }
        if unpatchable > 0 {
            notes.push(format!("{unpatchable} functions could not be patched and are not traced"));
        }
        if sum("full=") > 0 {
            notes.push(
                "the program has more functions or modules than the recorder can number: later ones \
                 are not traced"
                    .to_owned(),
            );
        }
        let unread = sum("unread=");
        if unread > 0 {
            notes.push(format!(
                "{unread} files of the program could not be read (is /proc mounted?): their functions are \
                 not traced"
            ));
        }
        let failure = std::fs::read(self.failure_path()).unwrap_or_default();
        let errno = failure.first_chunk().map_or(0, |word| i32::from_le_bytes(*word));
        if errno != 0 {
            let why = match errno {
                ERRNO_TRUNCATED => "the trace file was truncated during the recording".to_owned(),
                errno => io::Error::from_raw_os_error(errno).to_string(),
            };
            notes.push(format!("the recording is incomplete: {why}"));
        } else if found.can_load_library && log.is_empty() {
            notes.push(
                "the recording library was not loaded: LD_PRELOAD has no effect on this program, or \
                 the folder for temporary files is mounted with noexec (choose another with TMPDIR=DIR)"
                    .to_owned(),
            );
        } else if written.is_empty() && notes.is_empty() {
            notes.push(
                "nothing was recorded: no selected function was called, and no probe \
                 was passed"
                    .to_owned(),
            );
        }
    }
}

/// Returns a duration in ms, rounded up: a wait of less than 1 ms must not become 0, which is no
/// wait.
fn duration_to_ms(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_programs_would_read_otherwise_is_refused() {
        for (path, is_usable) in [("/a.trace", true), ("/a\nb.trace", false), ("/%p.trace", false)]
        {
            assert_eq!(absolute(Path::new(path)).is_ok(), is_usable, "{path}");
        }
    }

    #[test]
    fn wait_is_rounded_up_to_whole_milliseconds() {
        let to_ms = |wait_us| duration_to_ms(Duration::from_micros(wait_us));
        assert_eq!([0, 500, 1000, 1001].map(to_ms), [0, 1, 1, 2]);
    }
}
