//! Ours with a descriptor: the same word, but it parks on an eventfd, so that the receiver can
//! sleep in an epoll set among its sockets and still be spared the system calls while it is awake.
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
use super::waiting::{Asleep, Core, Deadline, Waiting, deadline, time_left};
use crate::engine::Stats;
use crate::{Config, Mechanism, Notify, PairError, Wait};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What the two sides share.
#[derive(Debug)]
struct Ends {
    core: Core,
    /// Not blocking, so that it can be emptied without knowing whether there is anything in it.
    counter: OwnedFd,
}

/// The mechanism as a type, for code that runs with each of them.
#[derive(Debug, Clone, Copy)]
pub enum AdaptiveFd {}

impl Mechanism for AdaptiveFd {
    const NAME: &'static str = "handover_fd";
    const WHAT: &'static str = "spins adaptively, then parks on an eventfd; wakes a sleeper only";
    const COUNTS: bool = false;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        pair(Config::default())
    }
}

/// Two sides within this process.
///
/// # Errors
/// [`PairError::Config`] when `config` is not valid, [`PairError::Refused`] when there is no
/// descriptor to be had.
pub fn pair(config: Config) -> Result<(Sender, Receiver), PairError> {
    config.validate()?;
    let counter = descriptor::eventfd(descriptor::Blocking::No)?;
    let ends = Arc::new(Ends { core: Core::new(), counter });
    let waiting = Waiting::new(config);
    let receiver = Receiver { ends: Arc::clone(&ends), waiting, parked: None, writes_owed: 0 };
    Ok((Sender { ends }, receiver))
}

/// The side that wakes. Costs as [`adaptive::Sender`](crate::adaptive::Sender), with a write to an
/// eventfd in place of the futex wake.
#[derive(Debug, Clone)]
pub struct Sender {
    ends: Arc<Ends>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        self.ends.core.notify(|_word| descriptor::add_one(&self.ends.counter));
    }
}

/// The side that waits: by itself, with the methods of [`Wait`], or in an epoll set, with
/// [`prepare_park`](Self::prepare_park) before and [`cancel_park`](Self::cancel_park) after.
#[derive(Debug)]
pub struct Receiver {
    ends: Arc<Ends>,
    waiting: Waiting,
    /// Since when the word says SLEEPING on behalf of an epoll set, if it does.
    parked: Option<Asleep>,
    /// Writes to the counter that senders have made or are about to make, less those read. Each
    /// notification that ends a declared sleep is one write, and it may still be on its way when
    /// the notification is consumed; negative when it was read first.
    writes_owed: i64,
}

impl Receiver {
    /// Spins as long as has paid lately and consumes what comes meanwhile: what to do between
    /// having run out of work and [`prepare_park`](Self::prepare_park).
    ///
    /// # Blocking
    /// [`Config::spin_ns_max`] at most.
    pub fn spin_wait(&mut self) -> Option<u64> {
        (self.look_unparked() || self.waiting.spin(&self.ends.core, None)).then_some(1)
    }

    /// Declares that the receiver is about to sleep on its descriptor.
    ///
    /// True: nothing is pending, and the next sender makes the descriptor readable; sleep now, in
    /// epoll or however. False: a notification is pending; do not sleep, but consume it by
    /// [`cancel_park`](Self::cancel_park) or [`try_wait`](Wait::try_wait).
    ///
    /// # Blocking
    /// Never.
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn prepare_park(&mut self) -> bool {
        settle(&self.ends.counter, &mut self.writes_owed);
        if !self.ends.core.word.declare_sleep() {
            return false;
        }
        self.parked.get_or_insert_with(Asleep::now);
        true
    }

    /// Takes the declaration back, and consumes a notification if one came meanwhile.
    ///
    /// Call it when the sleep is over, whatever ended it. Until then the next notification costs
    /// its sender a system call.
    ///
    /// The descriptor is emptied here too. It may become readable once more for a sender whose
    /// write was still on its way: one sleep then ends for nothing.
    ///
    /// # Blocking
    /// Never.
    pub fn cancel_park(&mut self) -> Option<u64> {
        if self.ends.core.word.withdraw() {
            // No sender has seen this declaration, so no write belongs to it.
            self.parked = None;
            settle(&self.ends.counter, &mut self.writes_owed);
            return None;
        }
        self.try_wait()
    }

    /// How the waits ended so far, those in an epoll set included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.waiting.stats()
    }

    /// Consumes what is pending and, if nothing is, ends the park that is under way.
    fn look_unparked(&mut self) -> bool {
        match self.parked {
            Some(_) => self.cancel_park().is_some(),
            None => self.waiting.look(&self.ends.core),
        }
    }

    fn wait_until(&mut self, deadline: Deadline) -> bool {
        let Self { ends, waiting, writes_owed, .. } = self;
        let mut declared = false;
        let notified = waiting.wait(&ends.core, deadline, |_, _| {
            declared = true;
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return false;
            }
            descriptor::wait_readable(&ends.counter, left);
            // If that was the late write of an earlier sender, the next sleep must not see it.
            settle(&ends.counter, writes_owed);
            true
        });
        if notified && declared {
            *writes_owed += 1;
        }
        settle(&ends.counter, writes_owed);
        notified
    }
}

/// Reads the writes that are owed, as far as they have arrived.
fn settle(counter: &OwnedFd, writes_owed: &mut i64) {
    if *writes_owed > 0 {
        let writes = descriptor::read_count(counter).unwrap_or(0);
        *writes_owed -= i64::try_from(writes).unwrap_or(i64::MAX);
    }
}

impl Wait for Receiver {
    fn wait(&mut self) -> u64 {
        if !self.look_unparked() {
            while !self.wait_until(None) {}
        }
        1
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        if self.look_unparked() {
            return Some(1);
        }
        if timeout.is_zero() {
            return None;
        }
        self.wait_until(deadline(timeout)).then_some(1)
    }

    /// As [`Wait::try_wait`]; a park that is under way goes on if nothing is pending.
    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        let Some(asleep) = self.parked else {
            return self.waiting.look(&self.ends.core).then_some(1);
        };
        if !self.waiting.wake(&self.ends.core, asleep) {
            return None;
        }
        // The word went from SLEEPING to PENDING, so one sender owes (or has made) its write.
        self.parked = None;
        self.writes_owed += 1;
        settle(&self.ends.counter, &mut self.writes_owed);
        Some(1)
    }
}

/// The descriptor to put into an epoll set. Only poll it: the receiver reads it itself.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.counter.as_fd()
    }
}
