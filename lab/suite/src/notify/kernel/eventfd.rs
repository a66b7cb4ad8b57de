//! The kernel's counter, `eventfd(2)`: one system call for a notification and one for a wait.
//!
//! This is the usual way, and that of libraries: it works in an epoll set and across processes
//! without further effort. Each notification enters the kernel, even if no thread sleeps.

use super::descriptor::{self, Blocking};
use crate::{Mechanism, Notify, PairError, Wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The mechanism as a type, for generic code.
#[derive(Debug, Clone, Copy)]
pub enum EventFd {}

impl Mechanism for EventFd {
    const NAME: &'static str = "eventfd";
    const DESCRIPTION: &'static str = "write to and blocking read from an eventfd";
    const COUNTS_NOTIFICATIONS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let counter = Arc::new(descriptor::eventfd(Blocking::Yes)?);
        Ok((Sender { counter: Arc::clone(&counter) }, Receiver { counter }))
    }
}

/// The sending side.
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

/// The receiving side; its descriptor is readable while a notification is pending.
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
            // Another process that shares the open file has made it non-blocking.
            descriptor::wait_readable(&*self.counter, None);
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        // Only this receiver reads, so that a readable descriptor stays readable and the read does
        // not block.
        descriptor::wait_readable(&*self.counter, Some(timeout))
            .then(|| descriptor::read_count(&self.counter))
            .flatten()
    }

    fn try_wait(&mut self) -> Option<u64> {
        self.wait_timeout(Duration::ZERO)
    }
}

/// The descriptor for sending from another process: pass it there, and convert it to a [`Sender`].
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// Makes a sender on an eventfd from elsewhere.
///
/// [`notify`](Notify::notify) blocks while the counter is at its maximum, 2^64 - 2, which another
/// process with the descriptor can set, and panics if the descriptor is no eventfd: only use one
/// from a trusted process.
impl From<OwnedFd> for Sender {
    fn from(counter: OwnedFd) -> Self {
        Self { counter: Arc::new(counter) }
    }
}

/// The descriptor for an epoll set. Only poll it: the receiver itself reads it.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// Makes a receiver on an eventfd (blocking, not a semaphore) from elsewhere. It must be the only
/// reader: if another process reads a count that this one was about to read, a wait with a timeout
/// blocks beyond its timeout.
impl From<OwnedFd> for Receiver {
    fn from(counter: OwnedFd) -> Self {
        Self { counter: Arc::new(counter) }
    }
}
