//! The arbiter: owner of the scheduler.

use super::config::{ArbiterConfig, ArbiterConfigError};
use super::final_state::FinalState;
use super::hub::Hub;
use super::stamps::Stamping;
use super::state::{ArbiterState, FINISHED};
use super::sweep::Sweeper;
use super::word::Token;
use crate::Scheduler;
use handover_base::sync::Arc;
use std::fmt;
use std::io;
use std::thread::{self, JoinHandle};

/// Driver that owns a scheduler and runs on one thread. It reads the clients' mailboxes, and
/// releases packets for transmission, in the order of the algorithm and at the rate of the link.
///
/// Make it first, so that [`Hub`]s can be handed out; then [`run`](Self::run) it on a thread of
/// yours, or [`spawn`](Self::spawn) it.
pub struct Arbiter<S> {
    scheduler: S,
    config: ArbiterConfig,
    finish_guard: FinishGuard,
}

/// Guard whose destructor notifies the clients that the arbiter has finished, also after a panic.
pub(super) struct FinishGuard(pub(super) Arc<ArbiterState>);

impl Drop for FinishGuard {
    fn drop(&mut self) {
        self.0.raise_state(FINISHED);
    }
}

impl<S: Scheduler<Token>> Arbiter<S> {
    /// Creates an arbiter that runs `scheduler`. Clients may join before the arbiter runs.
    ///
    /// # Errors
    /// [`ArbiterConfigError`].
    pub fn new(scheduler: S, config: ArbiterConfig) -> Result<Self, ArbiterConfigError> {
        config.validate()?;
        if !scheduler.is_empty() {
            return Err(ArbiterConfigError::Queued { packets_count: scheduler.len() });
        }
        let finish_guard = FinishGuard(Arc::new(ArbiterState::new(&config)));
        Ok(Self { scheduler, config, finish_guard })
    }

    /// Returns a hub, through which clients join this arbiter.
    pub fn hub(&self) -> Hub {
        Hub { shared: Arc::clone(&self.finish_guard.0) }
    }

    /// Runs the arbiter on the calling thread until it is stopped, and returns its final state.
    ///
    /// # Panics
    /// Panics if the scheduler does; the clients then see that the arbiter has finished.
    ///
    /// # Blocking
    /// Blocks until it is stopped. While idle it waits as [`ArbiterConfig::idle_policy`] says.
    pub fn run(self) -> FinalState<S> {
        let Self { scheduler, config, finish_guard } = self;
        let shared = Arc::clone(&finish_guard.0);
        match config.stamping {
            Stamping::None => {
                Sweeper::<S, 1, 1>::new(scheduler, &config, shared, |it| &mut it.unstamped).run()
            }
            Stamping::Batch | Stamping::Packet => {
                Sweeper::<S, 2, 4>::new(scheduler, &config, shared, |it| &mut it.stamped).run()
            }
        }
    }

    /// Runs the arbiter on a new thread; returns a handle of the thread. The thread first calls
    /// `first` (to pin itself to a CPU, for example).
    ///
    /// # Errors
    /// An error of the system if the thread cannot be started.
    pub fn spawn(self, first: impl FnOnce() + Send + 'static) -> io::Result<ArbiterThread<S>>
    where
        S: Send + 'static,
    {
        let work = move || {
            first();
            self.run()
        };
        let thread = thread::Builder::new().name("sched-arbiter".to_owned()).spawn(work)?;
        Ok(ArbiterThread { thread })
    }
}

impl<S> fmt::Debug for Arbiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arbiter({:?})", self.config)
    }
}

/// Handle of the thread on which an arbiter runs.
#[derive(Debug)]
pub struct ArbiterThread<S> {
    thread: JoinHandle<FinalState<S>>,
}

impl<S> ArbiterThread<S> {
    /// Waits until the arbiter has finished, and returns its final state. ([`Hub::stop`] stops the
    /// arbiter.)
    ///
    /// # Panics
    /// Panics with the arbiter's payload, if it panicked.
    pub fn join(self) -> FinalState<S> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns `true` if the thread has finished.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
