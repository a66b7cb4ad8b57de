//! The scheduler's only owner.

use super::clock::{PacketClock, RateError};
use super::hub::{ENDED, Hub, Presence, Shared};
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

/// The most packets that may be taken from a client in a sweep.
pub const BATCH_MAX: u32 = 4096;

/// The longest polling interval.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// How long a [`Stop::Drain`](super::Stop::Drain) waits for clients that fetch none of their marks, once
/// there is nothing but these; what they leave is [`Ledger::unfetched`].
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// What a scheduler in a driver carries for each packet: who it came from, and where the rest of it is.
///
/// One word and not two halves, so that it is written and read at once: what is read in one piece
/// right after it was written in two has to wait until both have reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// For schedulers that are used without an arbiter. (One that an arbiter is given must be empty.)
    #[inline(always)]
    pub const fn new(client: u32, tag: u32) -> Self {
        Self((client as u64) << 32 | tag as u64)
    }

    /// The client's index in the arbiter.
    #[inline(always)]
    pub(super) fn client(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The client's tag; the number of the packet's stamps where there are any.
    #[inline(always)]
    pub(super) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// How an arbiter works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The link's rate in bit/s, at which packets are marked; none: as fast as it goes.
    pub bandwidth_bps: Option<u64>,
    /// Slots between a client and the arbiter, in `1..=LANE_SLOTS_MAX`: how much a client can send
    /// before the arbiter looks. 8 bytes each, 16 with stamps. Too few hold the clients back, many
    /// fall out of the cache.
    pub mailbox_slots_count: u32,
    /// The arbiter looks once in so long, and again at once as long as there is a mailbox with a whole
    /// batch in it; zero: all the time. Longer saves cache misses and adds as much delay; more than the
    /// mailboxes hold in that time holds the clients back.
    pub interval: Duration,
    /// Packets taken from a client before the next one's turn, and marked for each before the mailboxes
    /// are looked at again, in `1..=BATCH_MAX`. Fewer: less delay; more: fewer cache misses a packet, up
    /// to some 32. From 8 on, and without a limited rate, marks travel by eight while there is
    /// something to take.
    pub batch_max: u32,
    /// Which stages are stamped.
    pub stamping: Stamping,
    /// How the arbiter waits.
    pub patience: Patience,
}

impl Default for Config {
    /// As fast as it goes, 200 slots, looking all the time, batches of 32 stamped as such; for one
    /// client.
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

/// No arbiter can work so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No slot, or too many.
    #[error("a mailbox of {slots_count} slots: must lie in 1..={LANE_SLOTS_MAX}")]
    Mailbox {
        /// How many were asked for.
        slots_count: u32,
    },
    /// An empty batch, or too large a one.
    #[error("a batch of {batch_max}: must lie in 1..={BATCH_MAX}")]
    Batch {
        /// How large it was to be.
        batch_max: u32,
    },
    /// Too long an interval.
    #[error("a polling interval of {interval:?}: may be {INTERVAL_MAX:?} at most")]
    Interval {
        /// How long it was to be.
        interval: Duration,
    },
    /// A scheduler with packets in it, of which the arbiter would not know whose they are.
    #[error("the scheduler holds {packets_count} packets already")]
    Queued {
        /// How many.
        packets_count: usize,
    },
    /// The packet clock cannot represent the rate.
    #[error(transparent)]
    Rate(#[from] RateError),
}

impl Config {
    /// Whether an arbiter can work so.
    ///
    /// # Errors
    /// [`ConfigError`] names the first thing that is out of range, and the range.
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

/// Owns the scheduler: sweeps the clients' mailboxes, and marks packets eligible in the order that the
/// algorithm gives and at the link's rate.
///
/// Made first, so that [`Hub`]s can be handed out; then [`run`](Self::run) on a thread of the caller's,
/// or [`spawn`](Self::spawn)ed.
pub struct Arbiter<S, L: Lane = Laps> {
    scheduler: S,
    config: Config,
    ending: Ending<L>,
}

/// Tells the clients when the arbiter is gone, whatever it ended by.
pub(super) struct Ending<L: Lane>(pub(super) Arc<Shared<L>>);

impl<L: Lane> Drop for Ending<L> {
    fn drop(&mut self) {
        self.0.raise(ENDED);
    }
}

impl<S: Scheduler<Token>> Arbiter<S> {
    /// An arbiter around a scheduler, whose mailboxes are [`Laps`]. Clients may join before it runs.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(scheduler: S, config: Config) -> Result<Self, ConfigError> {
        Self::with_lanes(scheduler, config)
    }
}

impl<S: Scheduler<Token>, L: Lane> Arbiter<S, L> {
    /// The same with other mailboxes.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_lanes(scheduler: S, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        if !scheduler.is_empty() {
            return Err(ConfigError::Queued { packets_count: scheduler.len() });
        }
        let ending = Ending(Arc::new(Shared::new(&config)));
        Ok(Self { scheduler, config, ending })
    }

    /// A way to reach it.
    pub fn hub(&self) -> Hub<L> {
        Hub { shared: Arc::clone(&self.ending.0) }
    }

    /// Works until it is told to stop.
    ///
    /// # Panics
    /// If the scheduler does; the clients are told.
    ///
    /// # Blocking
    /// Until then. While there is nothing to do it waits as [`Config::patience`] says.
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

    /// Works on a thread of its own, on which `first` is called before (to pin it, say).
    ///
    /// # Errors
    /// The thread cannot be started.
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

/// An arbiter at work on a thread of its own.
#[derive(Debug)]
pub struct Running<S> {
    thread: JoinHandle<Closed<S>>,
}

impl<S> Running<S> {
    /// Waits until it has ended; it must be told to, by [`Hub::stop`].
    ///
    /// # Panics
    /// With what the arbiter panicked with, if it did.
    pub fn join(self) -> Closed<S> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// What an arbiter leaves.
#[derive(Clone)]
pub struct Closed<S> {
    /// The scheduler, with what is queued in it.
    pub scheduler: S,
    /// The sum of the ledgers of those that went before; its number is that of the last.
    pub earlier: Ledger,
    /// Times it looked at all the mailboxes.
    pub sweeps: u64,
    /// Of which so many found nothing, and had nothing to mark.
    pub sweeps_empty: u64,
    /// From its start to its end.
    pub elapsed_ns: u64,
    /// By the order of joining; with the presence of those that were there at the end.
    pub(super) clients: Vec<(Ledger, Option<Arc<CachePadded<Presence>>>)>,
}

/// Ledgers of clients that have gone, kept for [`Closed`].
pub const LEDGERS_MAX: usize = 4096;

impl<S> Closed<S> {
    /// What was done for each client, by the order of joining; of those that went before the end the
    /// last [`LEDGERS_MAX`] only. What a client says of itself is up to date when this is called, if it
    /// has left by then.
    pub fn clients(&self) -> Vec<Ledger> {
        let of = |(ledger, presence): &(Ledger, Option<Arc<CachePadded<Presence>>>)| {
            let counts = presence.as_ref().map_or(ledger.counts, |it| it.counts());
            Ledger { counts, ..*ledger }
        };
        self.clients.iter().map(of).collect()
    }

    /// All ledgers together.
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
