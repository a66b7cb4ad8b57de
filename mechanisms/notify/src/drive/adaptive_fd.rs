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
use super::waiting::{Core, Deadline, SleepStart, WaitState, deadline, time_left};
use crate::engine::Stats;
use crate::{Config, Mechanism, Notify, PairError, Wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// State shared by the sender and the receiver.
#[derive(Debug)]
struct Endpoints {
    core: Core,
    /// An eventfd to sleep on; a read returns at once if it is zero.
    counter: OwnedFd,
}

/// The adaptive mechanism on an eventfd as a type, for generic code.
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

/// Creates a connected sender and receiver within this process.
///
/// # Errors
/// [`PairError::Config`] if `config` is not valid, [`PairError::SystemCall`] if the kernel gives no
/// descriptor.
pub fn pair(config: Config) -> Result<(Sender, Receiver), PairError> {
    config.validate()?;
    let counter = descriptor::eventfd()?;
    let endpoints = Arc::new(Endpoints { core: Core::new(), counter });
    let waiting = WaitState::new(config);
    let receiver =
        Receiver { endpoints: Arc::clone(&endpoints), waiting, parked: None, writes_owed: 0 };
    Ok((Sender { endpoints }, receiver))
}

/// Sending end. It costs as much as [`adaptive::Sender`](crate::adaptive::Sender), with a write to
/// an eventfd in place of the futex wake.
#[derive(Debug, Clone)]
pub struct Sender {
    endpoints: Arc<Endpoints>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        self.endpoints.core.notify(|_word| descriptor::add_one(&self.endpoints.counter));
    }
}

/// Receiving end. It waits by itself with the methods of [`Wait`], or in an epoll set between
/// [`prepare_park`](Self::prepare_park) and [`cancel_park`](Self::cancel_park).
#[derive(Debug)]
pub struct Receiver {
    endpoints: Arc<Endpoints>,
    waiting: WaitState,
    /// Time since which the receiver has been asleep in an epoll set; `None` if it is not.
    parked: Option<SleepStart>,
    /// Number of writes to the eventfd that senders have made or will make, minus the writes read.
    /// A sender makes one write for each notification that ends a declared sleep; the write may
    /// come after the notification is consumed. Negative if the write was read first.
    writes_owed: i64,
}

impl Receiver {
    /// Spins for as long as recent waits suggest, and consumes a notification that arrives
    /// meanwhile; `None` if none arrives. Call it when there is no more work, before
    /// [`prepare_park`](Self::prepare_park).
    ///
    /// # Blocking
    /// At most [`Config::spin_ns_max`].
    pub fn spin_wait(&mut self) -> Option<u64> {
        (self.consume_or_cancel_park() || self.waiting.spin(&self.endpoints.core, None))
            .then_some(1)
    }

    /// Declares that the receiver is about to sleep on its descriptor.
    ///
    /// Returns `true` if nothing is pending: the next sender makes the descriptor readable, so
    /// sleep now, in epoll for example. Returns `false` if a notification is pending: do not sleep,
    /// but consume it with [`cancel_park`](Self::cancel_park) or [`try_wait`](Wait::try_wait).
    ///
    /// # Blocking
    /// Never.
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn prepare_park(&mut self) -> bool {
        read_owed_writes(&self.endpoints.counter, &mut self.writes_owed);
        if !self.endpoints.core.word.declare_sleep() {
            return false;
        }
        self.parked.get_or_insert_with(SleepStart::now);
        true
    }

    /// Ends the sleep declared by [`prepare_park`](Self::prepare_park), and consumes a
    /// notification; `None` if none is pending.
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
        if self.endpoints.core.word.withdraw() {
            // No sender has seen this declaration, so no write belongs to it.
            self.parked = None;
            read_owed_writes(&self.endpoints.counter, &mut self.writes_owed);
            return None;
        }
        self.try_wait()
    }

    /// Returns the number of waits, including those in an epoll set, by the way in which they completed, and related
    /// counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.waiting.stats()
    }

    /// Consumes a notification and returns `true`; if none is pending, ends a declared sleep.
    fn consume_or_cancel_park(&mut self) -> bool {
        match self.parked {
            Some(_) => self.cancel_park().is_some(),
            None => self.waiting.poll(&self.endpoints.core),
        }
    }

    fn wait_until(&mut self, deadline: Deadline) -> bool {
        let Self { endpoints, waiting, writes_owed, .. } = self;
        let mut has_declared = false;
        let notified = waiting.wait(&endpoints.core, deadline, |_, _| {
            has_declared = true;
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return false;
            }
            descriptor::wait_readable(&endpoints.counter, left);
            // If this was the late write of an earlier sender, the next sleep must not see it.
            read_owed_writes(&endpoints.counter, writes_owed);
            true
        });
        if notified && has_declared {
            *writes_owed += 1;
        }
        read_owed_writes(&endpoints.counter, writes_owed);
        notified
    }
}

/// Reads those of the outstanding writes that have been made.
fn read_owed_writes(counter: &OwnedFd, writes_owed: &mut i64) {
    if *writes_owed > 0 {
        let writes = descriptor::read_count(counter).unwrap_or(0);
        *writes_owed -= i64::try_from(writes).unwrap_or(i64::MAX);
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
        self.wait_until(deadline(timeout)).then_some(1)
    }

    /// Like [`Wait::try_wait`]; if nothing is pending, a declared sleep continues.
    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        let Some(asleep) = self.parked else {
            return self.waiting.poll(&self.endpoints.core).then_some(1);
        };
        if !self.waiting.wake(&self.endpoints.core, asleep) {
            return None;
        }
        // The word went from SLEEPING to PENDING, so that one sender makes, or has made, a write.
        self.parked = None;
        self.writes_owed += 1;
        read_owed_writes(&self.endpoints.counter, &mut self.writes_owed);
        Some(1)
    }
}

/// The descriptor for an epoll set. Only poll it: the receiver itself reads it.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoints.counter.as_fd()
    }
}
