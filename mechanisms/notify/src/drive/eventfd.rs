//! The kernel's counter: `eventfd(2)`, one system call a notification and one a wait.
//!
//! What one uses by default, and what libraries use: it works in an epoll set and across processes
//! without further ado. Each notification enters the kernel, whether anybody sleeps or not.

use super::descriptor::{self, Blocking};
use crate::{Mechanism, Notify, PairError, Wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The mechanism as a type, for code that runs with each of them.
#[derive(Debug, Clone, Copy)]
pub enum EventFd {}

impl Mechanism for EventFd {
    const NAME: &'static str = "eventfd";
    const WHAT: &'static str = "write to and blocking read from an eventfd";
    const COUNTS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let counter = Arc::new(descriptor::eventfd(Blocking::Yes)?);
        Ok((Sender { counter: Arc::clone(&counter) }, Receiver { counter }))
    }
}

/// The side that wakes.
#[derive(Debug, Clone)]
pub struct Sender {
    counter: Arc<OwnedFd>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        descriptor::add_one(&self.counter);
    }
}

/// The side that waits; readable in an epoll set while something is pending.
#[derive(Debug)]
pub struct Receiver {
    counter: Arc<OwnedFd>,
}

impl Wait for Receiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        loop {
            if let Some(count) = descriptor::read_count(&self.counter) {
                return count;
            }
            // Somebody made the open file non-blocking, as another process that shares it may.
            descriptor::wait_readable(&*self.counter, None);
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        // Only this receiver reads, so what is readable stays so, and the read does not block.
        descriptor::wait_readable(&*self.counter, Some(timeout))
            .then(|| descriptor::read_count(&self.counter))
            .flatten()
    }

    fn try_wait(&mut self) -> Option<u64> {
        self.wait_timeout(Duration::ZERO)
    }
}

/// To send from another process: pass it there, and make a [`Sender`] of it by `From`.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// A sender on an eventfd that came from elsewhere.
///
/// Its [`notify`](Notify::notify) blocks while the counter is at its maximum, 2^64 - 2, to which another
/// process that has the descriptor can set it, and panics if it is no eventfd: take it from a process
/// that is trusted.
impl From<OwnedFd> for Sender {
    fn from(counter: OwnedFd) -> Self {
        Self { counter: Arc::new(counter) }
    }
}

/// The descriptor to put into an epoll set. Only poll it: the receiver reads it itself.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// A receiver on an eventfd (blocking, not a semaphore) that came from elsewhere. It must be the
/// only one that reads: if another process reads what this one was about to, a wait with a timeout
/// blocks beyond it.
impl From<OwnedFd> for Receiver {
    fn from(counter: OwnedFd) -> Self {
        Self { counter: Arc::new(counter) }
    }
}
