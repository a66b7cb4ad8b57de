//! This crate's mechanism: spins adaptively, then parks on a futex; a sender wakes only a sleeper.
//!
//! ```
//! use handover_notify::{Config, Notify, Wait, adaptive};
//! let (sender, mut receiver) = adaptive::pair(Config::default())?;
//! let other = std::thread::spawn(move || sender.notify());
//! receiver.wait();
//! other.join().unwrap();
//! let stats = receiver.stats();
//! assert_eq!(stats.found_pending + stats.by_spinning + stats.by_sleeping, 1);
//! # Ok::<(), handover_notify::ConfigError>(())
//! ```
//!
//! Across processes, both sides use a [`NotifyCore`] in memory that both have mapped; see
//! [`shared`](crate::shared).

use super::waiting::{Deadline, WaitState, deadline_after, time_left};
use crate::engine::Stats;
use crate::{Config, ConfigError, Mechanism, Notify, PairError, Wait};
use core::ops::Deref;
use handover_base::futex::{self, Scope};
use std::sync::Arc;
use std::time::Duration;

pub use super::waiting::NotifyCore;

/// Maximum duration of one sleep of a receiver whose senders may be other processes. A notification
/// is delayed by at most this time if its sender is killed while sending it.
///
/// An idle receiver wakes ten times a second for this. To recover at once, each sender would have
/// to make a system call for every notification that finds one pending.
pub const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Type that stands for the adaptive mechanism on a futex in generic code.
#[derive(Debug, Clone, Copy)]
pub enum Adaptive {}

impl Mechanism for Adaptive {
    const NAME: &'static str = "handover";
    const DESCRIPTION: &'static str =
        "spins adaptively, then parks on a futex; wakes a sleeper only";
    const COUNTS_NOTIFICATIONS: bool = false;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        Ok(pair(Config::default())?)
    }
}

/// Creates a sender and a receiver that are connected within this process.
///
/// # Errors
/// [`ConfigError`] if `config` is not valid.
///
/// # Cost
/// One allocation; the first call in a process also times the spin loop, some tens of µs.
pub fn pair(config: Config) -> Result<(Sender, Receiver), ConfigError> {
    let core = Arc::new(NotifyCore::new());
    let receiver = Receiver::from_core(Arc::clone(&core), Scope::Private, config)?;
    Ok((Sender::from_core(core, Scope::Private), receiver))
}

/// Sending end of an adaptive mechanism on a futex.
///
/// # Cost of a notification
/// Reading this CPU's number and one exchange, 5 to 10 ns if the cache line is present; the
/// transfer of a line if the receiver has accessed it since; a futex wake, about 1 µs, only if the
/// receiver sleeps.
#[derive(Debug, Clone)]
pub struct Sender<C = Arc<NotifyCore>> {
    core: C,
    /// Scope of the futex: this process, or several processes.
    scope: Scope,
}

impl<C: Deref<Target = NotifyCore>> Sender<C> {
    /// Creates a sender on an existing core. `scope` must be the same as the receiver's:
    /// [`Scope::Shared`] if the two are in different processes.
    pub fn from_core(core: C, scope: Scope) -> Self {
        Self { core, scope }
    }
}

impl<C: Deref<Target = NotifyCore> + Send + Sync> Notify for Sender<C> {
    #[inline]
    fn notify(&self) {
        self.core.notify(|word| {
            futex::wake(word, 1, self.scope);
        });
    }
}

/// Receiving end of an adaptive mechanism on a futex.
///
/// # Cost of a wait
/// If a notification is pending: an exchange and the transfer of a cache line. If none is: spins
/// for [`Config::spin_per_sleep`] times the cost of a sleep and at most [`Config::spin_max`], only
/// while that pays and the sender is on another CPU; then a futex wait, and 1 to 20 µs from the
/// wake until it runs again. Across processes it wakes at least every [`SLEEP_MAX`] to find
/// notifications whose sender was killed before its wake.
#[derive(Debug)]
pub struct Receiver<C = Arc<NotifyCore>> {
    core: C,
    /// Scope of the futex: this process, or several processes.
    scope: Scope,
    /// Results of the receiver's earlier waits.
    waiting: WaitState,
}

impl<C: Deref<Target = NotifyCore>> Receiver<C> {
    /// Creates a receiver on an existing core. A notification that is pending there is the first
    /// that it receives.
    ///
    /// A core must have at most one receiver at a time. Two would take notifications from each
    /// other; memory stays safe.
    ///
    /// # Errors
    /// [`ConfigError`] if `config` is not valid.
    pub fn from_core(core: C, scope: Scope, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { core, scope, waiting: WaitState::new(config) })
    }

    /// Returns counters of the waits, by how they ended.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.waiting.stats()
    }

    /// Waits when no notification is pending; returns `true` if notified before `deadline`.
    fn wait_until(&mut self, deadline: Deadline) -> bool {
        let scope = self.scope;
        self.waiting.wait(&self.core, deadline, |word, expected| match time_left(deadline) {
            Some(Duration::ZERO) => false,
            left => {
                let sleep = match scope {
                    Scope::Private => left,
                    Scope::Shared => Some(left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX))),
                };
                futex::wait(word, expected, sleep, scope);
                true
            }
        })
    }
}

impl<C: Deref<Target = NotifyCore> + Send> Wait for Receiver<C> {
    #[inline]
    fn wait(&mut self) -> u64 {
        if !self.waiting.poll(&self.core) {
            while !self.wait_until(None) {}
        }
        1
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        if self.waiting.poll(&self.core) {
            return Some(1);
        }
        if timeout.is_zero() {
            return None;
        }
        self.wait_until(deadline_after(timeout)).then_some(1)
    }

    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        self.waiting.poll(&self.core).then_some(1)
    }
}
