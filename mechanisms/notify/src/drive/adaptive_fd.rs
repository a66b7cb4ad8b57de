//! This crate's mechanism with a descriptor: the same state word, but the receiver parks on an
//! eventfd. So it can sleep in an epoll set with its sockets, and senders make no system calls
//! while it is awake.
//!
//! ```
//! use handover_notify::{Config, Notify, Wait, adaptive_fd};
//! use rustix::event::epoll;
//!
//! let (sender, mut receiver) = adaptive_fd::pair(Config::default())?;
//! let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
//! epoll::add(&set, &receiver, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
//! let other = std::thread::spawn(move || sender.notify());
//! loop {
//!     if receiver.prepare_park() {
//!         // Nothing pending, and from now on a sender writes to the descriptor: sleep.
//!         let mut events = Vec::with_capacity(8);
//!         epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
//!     }
//!     // Awake, for whatever reason: senders need not write any more.
//!     if receiver.cancel_park().is_some() {
//!         break; // notified
//!     }
//! }
//! other.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::descriptor;
use super::waiting::{Deadline, NotifyCore, SleepStart, WaitState, deadline_after, time_left};
use crate::engine::Stats;
use crate::{Config, Mechanism, Notify, PairError, Wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// State shared by the sender and the receiver.
#[derive(Debug)]
struct Endpoints {
    core: NotifyCore,
    /// Eventfd that the receiver sleeps on, readable while senders' writes are unread.
    eventfd: OwnedFd,
}

/// Type that stands for the adaptive mechanism on an eventfd in generic code.
#[derive(Debug, Clone, Copy)]
pub enum AdaptiveFd {}

impl Mechanism for AdaptiveFd {
    const NAME: &'static str = "handover_fd";
    const DESCRIPTION: &'static str =
        "spins adaptively, then parks on an eventfd; wakes a sleeper only";
    const COUNTS_NOTIFICATIONS: bool = false;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        pair(Config::default())
    }
}

/// Creates a sender and a receiver that are connected within this process.
///
/// # Errors
/// [`PairError::Config`] if `config` is not valid, [`PairError::SystemCall`] if the kernel gives no
/// descriptor.
pub fn pair(config: Config) -> Result<(Sender, Receiver), PairError> {
    config.validate()?;
    let eventfd = descriptor::create_eventfd()?;
    let endpoints = Arc::new(Endpoints { core: NotifyCore::new(), eventfd });
    let waiting = WaitState::new(config);
    let receiver = Receiver {
        endpoints: Arc::clone(&endpoints),
        waiting,
        sleep_start: None,
        unread_writes: 0,
    };
    Ok((Sender { endpoints }, receiver))
}

/// Sending end of an adaptive mechanism on an eventfd. It costs as much as
/// [`adaptive::Sender`](crate::adaptive::Sender), with a write to an eventfd in place of the futex
/// wake.
#[derive(Debug, Clone)]
pub struct Sender {
    endpoints: Arc<Endpoints>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        self.endpoints.core.notify(|_word| descriptor::increment_eventfd(&self.endpoints.eventfd));
    }
}

/// Receiving end of an adaptive mechanism on an eventfd. It waits by itself with the methods of
/// [`Wait`], or in an epoll set between [`prepare_park`](Self::prepare_park) and
/// [`cancel_park`](Self::cancel_park).
#[derive(Debug)]
pub struct Receiver {
    endpoints: Arc<Endpoints>,
    /// Results of the receiver's earlier waits.
    waiting: WaitState,
    /// Time since which the receiver has been asleep in an epoll set; `None` if it is awake.
    sleep_start: Option<SleepStart>,
    /// Number of senders' writes to the eventfd that the receiver has not read, including writes to
    /// come. A sender makes one write for each notification that ends a declared sleep; the write
    /// may come after the notification is consumed. Negative if the write was read first.
    unread_writes: i64,
}

impl Receiver {
    /// Spins until a notification arrives, and consumes it. Returns `None` if none arrives for as
    /// long as recent waits suggest to spin. Call it when there is no more work, before
    /// [`prepare_park`](Self::prepare_park).
    ///
    /// # Blocking
    /// At most [`Config::spin_max`].
    pub fn spin_wait(&mut self) -> Option<u64> {
        (self.consume_or_cancel_park() || self.waiting.spin(&self.endpoints.core, None))
            .then_some(1)
    }

    /// Declares that the receiver is about to sleep on its descriptor. Returns `false` if it must
    /// not sleep.
    ///
    /// Returns `true` if nothing is pending: the next sender makes the descriptor readable, so
    /// sleep now, in epoll for example. Returns `false` if a notification is pending: do not sleep,
    /// but consume it with [`cancel_park`](Self::cancel_park) or [`try_wait`](Wait::try_wait).
    ///
    /// # Blocking
    /// Never.
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn prepare_park(&mut self) -> bool {
        drain_unread_writes(&self.endpoints.eventfd, &mut self.unread_writes);
        if !self.endpoints.core.word.declare_sleep() {
            return false;
        }
        self.sleep_start.get_or_insert_with(SleepStart::now);
        true
    }

    /// Ends the sleep declared by [`prepare_park`](Self::prepare_park), and consumes a pending
    /// notification. Returns `None` if none is pending.
    ///
    /// Call it when the sleep is over, for whatever reason. Until then the next notification costs
    /// its sender a system call.
    ///
    /// This empties the descriptor too. It may become readable once more because of a sender whose
    /// write was still on its way: one sleep then ends without a notification.
    ///
    /// # Blocking
    /// Never.
    pub fn cancel_park(&mut self) -> Option<u64> {
        if self.endpoints.core.word.withdraw_sleep() {
            // No sender has seen this declaration, so no write belongs to it.
            self.sleep_start = None;
            drain_unread_writes(&self.endpoints.eventfd, &mut self.unread_writes);
            return None;
        }
        self.try_wait()
    }

    /// Returns counters of the waits, by how they ended. Waits in an epoll set are included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.waiting.stats()
    }

    /// Consumes a pending notification, and ends a declared sleep; returns `true` if there was a
    /// notification.
    fn consume_or_cancel_park(&mut self) -> bool {
        match self.sleep_start {
            Some(_) => self.cancel_park().is_some(),
            None => self.waiting.poll(&self.endpoints.core),
        }
    }

    /// Waits when no notification is pending; returns `true` if notified before `deadline`.
    fn wait_until(&mut self, deadline: Deadline) -> bool {
        let Self { endpoints, waiting, unread_writes, .. } = self;
        let mut has_declared = false;
        let notified = waiting.wait(&endpoints.core, deadline, |_, _| {
            has_declared = true;
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return false;
            }
            descriptor::wait_readable(&endpoints.eventfd, left);
            // If this was the late write of an earlier sender, the next sleep must not see it.
            drain_unread_writes(&endpoints.eventfd, unread_writes);
            true
        });
        if notified && has_declared {
            *unread_writes += 1;
        }
        drain_unread_writes(&endpoints.eventfd, unread_writes);
        notified
    }
}

/// Reads the eventfd if senders' writes to it are unread, and updates their number.
fn drain_unread_writes(eventfd: &OwnedFd, unread_writes: &mut i64) {
    if *unread_writes > 0 {
        let writes = descriptor::read_eventfd_count(eventfd).unwrap_or(0);
        *unread_writes -= i64::try_from(writes).unwrap_or(i64::MAX);
    }
}

impl Wait for Receiver {
    fn wait(&mut self) -> u64 {
        if !self.consume_or_cancel_park() {
            while !self.wait_until(None) {}
        }
        1
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        if self.consume_or_cancel_park() {
            return Some(1);
        }
        if timeout.is_zero() {
            return None;
        }
        self.wait_until(deadline_after(timeout)).then_some(1)
    }

    /// Consumes all pending notifications like [`Wait::try_wait`]; if there are none, a declared
    /// sleep continues.
    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        let Some(asleep) = self.sleep_start else {
            return self.waiting.poll(&self.endpoints.core).then_some(1);
        };
        if !self.waiting.consume_after_sleep(&self.endpoints.core, asleep) {
            return None;
        }
        // The word went from SLEEPING to PENDING, so that one sender makes, or has made, a write.
        self.sleep_start = None;
        self.unread_writes += 1;
        drain_unread_writes(&self.endpoints.eventfd, &mut self.unread_writes);
        Some(1)
    }
}

/// Eventfd of the receiver, for an epoll set. Only poll the descriptor: the receiver itself reads
/// it.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoints.eventfd.as_fd()
    }
}
