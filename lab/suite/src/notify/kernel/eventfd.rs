//! The kernel's counter, `eventfd(2)`: one system call for a notification and one for a wait.
//!
//! It is what most libraries use: it works in an epoll set and across processes
//! without further effort. Each notification enters the kernel, even if no thread sleeps.

use super::descriptor;
use handover_notify::{Mechanism, Notify, PairError, Wait};
use rustix::event::EventfdFlags;
use rustix::io::retry_on_intr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Notification by an eventfd, as a type for generic code.
#[derive(Debug, Clone, Copy)]
pub enum EventFd {}

impl Mechanism for EventFd {
    const NAME: &'static str = "eventfd";
    const DESCRIPTION: &'static str = "write to and blocking read from an eventfd";
    const COUNTS_NOTIFICATIONS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| PairError::SystemCall { call: "eventfd2", error: errno.into() })?;
        let counter = Arc::new(counter);
        Ok((Sender { counter: Arc::clone(&counter) }, Receiver { counter }))
    }
}

/// Sender of notifications through an eventfd.
#[derive(Debug, Clone)]
pub struct Sender {
    counter: Arc<OwnedFd>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        if let Err(errno) = retry_on_intr(|| rustix::io::write(&self.counter, &1u64.to_ne_bytes()))
        {
            panic!("write to an eventfd failed: {errno}");
        }
    }
}

/// Receiver of notifications through an eventfd.
#[derive(Debug)]
pub struct Receiver {
    counter: Arc<OwnedFd>,
}

impl Wait for Receiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(&self.counter, &mut count)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(errno) => panic!("read from an eventfd failed: {errno}"),
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        // Only this receiver reads, so that a readable descriptor stays readable and the read does
        // not block.
        descriptor::wait_readable(&*self.counter, Some(timeout)).then(|| self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        self.wait_timeout(Duration::ZERO)
    }
}
