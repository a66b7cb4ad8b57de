//! Signals read from a descriptor.

use crate::{SignalError, raw};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Set of blocked signals that arrive through a descriptor instead of interrupting a thread.
///
/// The signals are blocked for good, for the calling thread and for threads that it starts
/// afterwards: call [`block`](Self::block) in `main` before any thread is started. A signal kills
/// the process if a thread does not block it.
///
/// ```no_run
/// # use handover_event::{Config, Machine, Signals, handler};
/// let signals = Signals::block(&[Signals::INT, Signals::TERM])?;
/// let mut machine = Machine::new(handler(|_message: (), _cx| ()), Config::default())?;
/// machine.stop_on(signals)?;
/// let ended = machine.run()?; // EndReason::Signal(2) after Ctrl-C
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// SIGHUP: the terminal was closed.
    pub const HUP: i32 = 1;
    /// SIGINT: Ctrl-C.
    pub const INT: i32 = 2;
    /// SIGUSR1: its meaning is defined by the program.
    pub const USR1: i32 = 10;
    /// SIGTERM: request to terminate the process.
    pub const TERM: i32 = 15;

    /// Blocks these signals and opens a descriptor that receives them.
    ///
    /// # Errors
    /// [`SignalError::SystemCall`] when a number is no signal or no descriptor is available; then
    /// no signal is blocked.
    pub fn block(signals: &[i32]) -> Result<Self, SignalError> {
        match raw::signals::block_signals(signals) {
            Ok(fd) => Ok(Self { fd }),
            Err((call, error)) => Err(SignalError::SystemCall { call, error }),
        }
    }

    /// Returns the number of the next pending signal; `None` if no signal is pending. Several
    /// instances of one signal may have merged.
    ///
    /// # Blocking
    /// Never.
    #[must_use]
    pub fn take(&self) -> Option<i32> {
        raw::signals::read_signal(&self.fd)
    }
}

/// Descriptor that becomes readable when a signal is pending; [`Signals::take`] reads it.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
