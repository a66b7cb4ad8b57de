//! The arbiter: owner of the scheduler.

use super::clock::{PacketClock, RateError};
use super::hub::{ArbiterState, ENDED, Hub, Presence};
use super::lane::{LANE_SLOTS_MAX, Lane, Laps};
use super::port::Ledger;
use super::stamps::Stamping;
use super::sweep::Sweeper;
use super::wait::Patience;
use crate::Scheduler;
use handover_base::sync::{Arc, CachePadded};
use std::fmt;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Greatest [`Config::batch_max`].
pub const BATCH_MAX: u32 = 4096;

/// Longest [`Config::interval`].
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Longest time for which [`Stop::Drain`](super::Stop::Drain) waits for clients that fetch none of
/// their marks, once nothing else is left to do; the marks not fetched are counted in
/// [`Ledger::unfetched`].
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Token of a packet in an arbiter's scheduler: the client, and the client's tag.
///
/// One word instead of two halves, so that it is written and read at once: a read of one word right
/// after a write of its two halves has to wait until both have reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// Makes a token, for schedulers used without an arbiter. (A scheduler passed to an arbiter
    /// must be empty.)
    #[inline(always)]
    pub const fn new(client: u32, tag: u32) -> Self {
        Self((client as u64) << 32 | tag as u64)
    }

    /// Returns the client's index in the arbiter.
    #[inline(always)]
    pub(super) fn client(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the client's tag; with stamping, the index of the packet's stamps.
    #[inline(always)]
    pub(super) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// Configuration of an arbiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rate of the link in bit/s, at which packets are marked; `None` marks without a limit.
    pub bandwidth_bps: Option<u64>,
    /// Slots between a client and the arbiter, in `1..=LANE_SLOTS_MAX`: the number of packets that
    /// a client can send between two sweeps. 8 bytes each, 16 with stamps. With too few, clients
    /// are held back; many do not stay in the cache.
    pub mailbox_slots_count: u32,
    /// Interval between two sweeps; the arbiter sweeps again at once while a mailbox has a whole
    /// batch. Zero: it sweeps all the time. A longer interval saves cache misses and adds as much
    /// delay; clients are held back if the mailboxes fill up within it.
    pub interval: Duration,
    /// Packets taken from a client before the next client's turn, and packets marked per client
    /// before the mailboxes are read again, in `1..=BATCH_MAX`. Fewer: less delay; more: fewer
    /// cache misses per packet, up to some 32. From 8 on, without a limited rate and without stamps
    /// for each packet, marks are sent in groups of at least eight while there are packets to take.
    pub batch_max: u32,
    /// Kind of time stamps.
    pub stamping: Stamping,
    /// Behaviour of an idle arbiter.
    pub patience: Patience,
}

impl Default for Config {
    /// Returns no rate limit, 200 slots, continuous sweeps, and batches of 32 that share stamps;
    /// for one client.
    fn default() -> Self {
        Self {
            bandwidth_bps: None,
            mailbox_slots_count: 200,
            interval: Duration::ZERO,
            batch_max: 32,
            stamping: Stamping::Batch,
            patience: Patience::for_threads(2),
        }
    }
}

/// Error of a configuration with which no arbiter can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `mailbox_slots_count` is outside its range.
    #[error("mailbox_slots_count={slots_count}: must lie in 1..={LANE_SLOTS_MAX}")]
    Mailbox {
        /// The configured value.
        slots_count: u32,
    },
    /// `batch_max` is outside its range.
    #[error("batch_max={batch_max}: must lie in 1..={BATCH_MAX}")]
    Batch {
        /// The configured value.
        batch_max: u32,
    },
    /// The interval is too long.
    #[error("interval={interval:?}: must be at most {INTERVAL_MAX:?}")]
    Interval {
        /// The configured value.
        interval: Duration,
    },
    /// The scheduler holds packets, of which the arbiter does not know the clients.
    #[error("the scheduler contains {packets_count} packets: dequeue them first")]
    Queued {
        /// The number of packets.
        packets_count: usize,
    },
    /// The packet clock cannot represent the rate.
    #[error(transparent)]
    Rate(#[from] RateError),
}

impl Config {
    /// Checks that an arbiter can work with this configuration.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=LANE_SLOTS_MAX).contains(&self.mailbox_slots_count) {
            return Err(ConfigError::Mailbox { slots_count: self.mailbox_slots_count });
        }
        if !(1..=BATCH_MAX).contains(&self.batch_max) {
            return Err(ConfigError::Batch { batch_max: self.batch_max });
        }
        if self.interval > INTERVAL_MAX {
            return Err(ConfigError::Interval { interval: self.interval });
        }
        self.bandwidth_bps.map_or(Ok(()), |rate| PacketClock::new(rate).map(drop))?;
        Ok(())
    }
}

/// Owner of the scheduler: sweeps the clients' mailboxes, and marks packets as eligible in the
/// order of the algorithm and at the rate of the link.
///
/// Make it first, so that [`Hub`]s can be handed out; then [`run`](Self::run) it on a thread of
/// yours, or [`spawn`](Self::spawn) it.
pub struct Arbiter<S, L: Lane = Laps> {
    scheduler: S,
    config: Config,
    ending: Ending<L>,
}

/// Guard that notifies the clients that the arbiter has ended, for whatever reason.
pub(super) struct Ending<L: Lane>(pub(super) Arc<ArbiterState<L>>);

impl<L: Lane> Drop for Ending<L> {
    fn drop(&mut self) {
        self.0.raise(ENDED);
    }
}

impl<S: Scheduler<Token>> Arbiter<S> {
    /// Makes an arbiter around a scheduler, with [`Laps`] as mailboxes. Clients may join before it
    /// runs.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(scheduler: S, config: Config) -> Result<Self, ConfigError> {
        Self::with_lanes(scheduler, config)
    }
}

impl<S: Scheduler<Token>, L: Lane> Arbiter<S, L> {
    /// Makes an arbiter as [`new`](Arbiter::new) does, with another kind of mailboxes.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_lanes(scheduler: S, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        if !scheduler.is_empty() {
            return Err(ConfigError::Queued { packets_count: scheduler.len() });
        }
        let ending = Ending(Arc::new(ArbiterState::new(&config)));
        Ok(Self { scheduler, config, ending })
    }

    /// Returns a hub for this arbiter.
    pub fn hub(&self) -> Hub<L> {
        Hub { shared: Arc::clone(&self.ending.0) }
    }

    /// Runs until it is stopped.
    ///
    /// # Panics
    /// Panics if the scheduler does; the clients then see that the arbiter has ended.
    ///
    /// # Blocking
    /// Blocks until it is stopped. While idle it waits as [`Config::patience`] says.
    pub fn run(self) -> Closed<S> {
        let Self { scheduler, config, ending } = self;
        let shared = Arc::clone(&ending.0);
        match config.stamping {
            Stamping::None => {
                Sweeper::<S, L, 1, 1>::new(scheduler, &config, shared, |it| &mut it.bare).run()
            }
            Stamping::Batch | Stamping::Packet => {
                Sweeper::<S, L, 2, 4>::new(scheduler, &config, shared, |it| &mut it.stamped).run()
            }
        }
    }

    /// Runs on a new thread, which first calls `first` (to pin itself, for example).
    ///
    /// # Errors
    /// An error of the system if the thread cannot be started.
    pub fn spawn(self, first: impl FnOnce() + Send + 'static) -> io::Result<Running<S>>
    where
        S: Send + 'static,
    {
        let work = move || {
            first();
            self.run()
        };
        let thread = thread::Builder::new().name("sched-arbiter".to_owned()).spawn(work)?;
        Ok(Running { thread })
    }
}

impl<S, L: Lane> fmt::Debug for Arbiter<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arbiter({:?})", self.config)
    }
}

/// Arbiter that runs on a thread of its own.
#[derive(Debug)]
pub struct Running<S> {
    thread: JoinHandle<Closed<S>>,
}

impl<S> Running<S> {
    /// Waits until the arbiter has ended; stop it by [`Hub::stop`].
    ///
    /// # Panics
    /// Panics with the arbiter's payload, if it panicked.
    pub fn join(self) -> Closed<S> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns `true` if the thread has finished.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Remains of an arbiter that has ended.
#[derive(Clone)]
pub struct Closed<S> {
    /// The scheduler, with the packets queued in it.
    pub scheduler: S,
    /// Sum of the ledgers of clients that left before those kept; its client number has no meaning.
    pub earlier: Ledger,
    /// Number of sweeps over the mailboxes.
    pub sweeps: u64,
    /// Number of these sweeps that found no packet to take or to mark.
    pub sweeps_empty: u64,
    /// Time from start to end.
    pub elapsed_ns: u64,
    /// Ledgers in the order of joining; with the presence of clients that were there at the end.
    pub(super) clients: Vec<(Ledger, Option<Arc<CachePadded<Presence>>>)>,
}

/// Number of ledgers of departed clients that are kept for [`Closed`].
pub const LEDGERS_MAX: usize = 4096;

impl<S> Closed<S> {
    /// Returns the ledger of each client, in the order of joining; of the clients that left before
    /// the end, only the last [`LEDGERS_MAX`]. A client's own counts are current if it has left by
    /// the time of this call.
    pub fn clients(&self) -> Vec<Ledger> {
        let of = |(ledger, presence): &(Ledger, Option<Arc<CachePadded<Presence>>>)| {
            let counts = presence.as_ref().map_or(ledger.counts, |it| it.counts());
            Ledger { counts, ..*ledger }
        };
        self.clients.iter().map(of).collect()
    }

    /// Returns the sum of all ledgers.
    pub fn sum(&self) -> Ledger {
        let mut sum = self.earlier;
        self.clients().iter().for_each(|ledger| sum.add(ledger));
        sum
    }
}

impl<S> fmt::Debug for Closed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Closed({:?})", self.sum())
    }
}
