//! Child processes that run this program again.

use crate::raw::spawn_self;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// `true` if a child process can run a pass: `main` calls
/// [`dispatch_participant`](crate::dispatch_participant).
static CAN_SELF_EXEC: AtomicBool = AtomicBool::new(false);

/// Remembers that this program calls [`dispatch_participant`](crate::dispatch_participant).
pub(crate) fn allow_self_exec() {
    // Relaxed: the flag publishes no other data.
    CAN_SELF_EXEC.store(true, Ordering::Relaxed);
}

/// Returns `true` if [`allow_self_exec`] was called in this process.
pub(crate) fn can_self_exec() -> bool {
    // Relaxed: the flag publishes no other data.
    CAN_SELF_EXEC.load(Ordering::Relaxed)
}

/// Child process that runs this program. It is killed and waited for on drop.
pub(crate) struct Process {
    id: Pid,
    /// Exit status of the child; `None` until it was waited for. Afterwards its process id may
    /// belong to another process.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts this program again as a child process, with `word` as its only argument.
    pub fn start_with_argument(word: &str) -> io::Result<Process> {
        Process::start(std::env::vars_os(), Some(CString::new(word)?))
    }

    /// Starts this program again as a child process, with one more environment variable.
    pub fn start_with_variable(name: &str, value: &str) -> io::Result<Process> {
        let own = std::env::vars_os().filter(|(it, _)| it != name);
        Process::start(own.chain([(name.into(), value.into())]), None)
    }

    /// Starts this program again with these environment variables, and perhaps one argument.
    fn start(
        variables: impl Iterator<Item = (OsString, OsString)>,
        word: Option<CString>,
    ) -> io::Result<Process> {
        let environment: Result<Vec<CString>, _> = variables
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        Ok(Process { id: spawn_self(&environment?, word.as_deref())?, ended: None })
    }

    /// Returns the child's exit status; `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.wait(WaitOptions::NOHANG)
    }

    /// Waits for the child as `how` requests; returns its exit status, or `None` if it still runs.
    /// The status is requested from the kernel only until it is known.
    fn wait(&mut self, how: WaitOptions) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some((_, status))) = retry_on_intr(|| waitpid(Some(self.id), how))
        {
            self.ended = Some(ExitStatus::from_raw(status.as_raw()));
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process(self.id, Signal::KILL);
            self.wait(WaitOptions::empty());
        }
    }
}
