//! Signals as something to read.

use crate::{SignalError, raw};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Signals that come as readiness of a descriptor instead of interrupting.
///
/// They are blocked for the calling thread, and for threads that it starts from then on, for good:
/// make it in `main` before any thread is started, or a thread that does not block them is killed
/// by them.
///
/// ```no_run
/// # use handover_event::{Config, Machine, Signals, handler};
/// let signals = Signals::block(&[Signals::INT, Signals::TERM])?;
/// let mut machine = Machine::new(handler(|_message: (), _cx| ()), Config::default())?;
/// machine.stop_on(signals)?;
/// let ended = machine.run()?; // Ended::Signal(2) after Ctrl-C
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// SIGHUP: the terminal is gone.
    pub const HUP: i32 = 1;
    /// SIGINT: Ctrl-C.
    pub const INT: i32 = 2;
    /// SIGUSR1.
    pub const USR1: i32 = 10;
    /// SIGTERM: please end.
    pub const TERM: i32 = 15;

    /// Blocks these signals and makes them readable.
    ///
    /// # Errors
    /// [`SignalError::Refused`] when a number is no signal or there is no descriptor; then none is
    /// blocked.
    pub fn block(signals: &[i32]) -> Result<Self, SignalError> {
        match raw::signals::block(signals) {
            Ok(fd) => Ok(Self { fd }),
            Err((call, errno)) => Err(SignalError::Refused { call, errno }),
        }
    }

    /// The next that has come, by its number, if one has. Several of the same may have merged.
    ///
    /// # Blocking
    /// Never.
    #[must_use]
    pub fn take(&self) -> Option<i32> {
        raw::signals::next(&self.fd)
    }
}

/// To be watched; [`Signals::take`] reads.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
