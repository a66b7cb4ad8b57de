//! Child processes that run this program again.

use crate::raw::start_again;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// `true` if `main` calls [`dispatch_partner`](crate::dispatch_partner), so that a child can run a pass.
static CAN_START_AGAIN: AtomicBool = AtomicBool::new(false);

/// Remembers that this program calls [`dispatch_partner`](crate::dispatch_partner).
pub(crate) fn allow_start_again() {
    // Relaxed: the flag publishes no other data.
    CAN_START_AGAIN.store(true, Ordering::Relaxed);
}

/// Returns `true` if [`allow_start_again`] was called in this process.
pub(crate) fn can_start_again() -> bool {
    // Relaxed: the flag publishes no other data.
    CAN_START_AGAIN.load(Ordering::Relaxed)
}

/// A child process; killed and waited for when dropped.
pub(crate) struct Process {
    id: Pid,
    /// Exit status of the child after it was waited for; its process id may then belong to another process.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts this program again with one argument.
    pub fn with_argument(word: &str) -> io::Result<Process> {
        Process::start(std::env::vars_os(), Some(CString::new(word)?))
    }

    /// Starts this program again with one more environment variable.
    pub fn with_variable(name: &str, value: &str) -> io::Result<Process> {
        let own = std::env::vars_os().filter(|(it, _)| it != name);
        Process::start(own.chain([(name.into(), value.into())]), None)
    }

    fn start(
        variables: impl Iterator<Item = (OsString, OsString)>,
        word: Option<CString>,
    ) -> io::Result<Process> {
        let environment: Result<Vec<CString>, _> = variables
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        Ok(Process { id: start_again(&environment?, word.as_deref())?, ended: None })
    }

    /// Returns the child's exit status; `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.wait(WaitOptions::NOHANG)
    }

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
