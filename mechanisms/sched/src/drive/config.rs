//! Configuration of an arbiter.

use super::clock::{PacketClock, RateError};
use super::lane::LANE_SLOTS_MAX;
use super::stamps::Stamping;
use super::wait::IdlePolicy;
use std::time::Duration;

/// Maximum of [`ArbiterConfig::batch_max`].
pub const BATCH_MAX: u32 = 4096;

/// Maximum of [`ArbiterConfig::interval`].
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Maximum time that [`StopMode::Drain`](super::StopMode::Drain) waits while no client fetches a
/// released packet. It counts while there is no other work. Packets that are not fetched are
/// counted in [`Ledger::unfetched`](super::Ledger::unfetched).
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Configuration of an arbiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArbiterConfig {
    /// Rate of the link in bit/s, which limits the release of packets; `None` for no limit.
    pub bandwidth_bps: Option<u64>,
    /// Capacity, in packets, of the mailbox from a client to the arbiter, in `1..=LANE_SLOTS_MAX`.
    /// A client can send this many between two sweeps. Each packet takes 8 bytes, 16 with stamps.
    /// With few slots, clients have to wait; very many slots do not stay in the cache.
    pub mailbox_slots_count: u32,
    /// Interval between two sweeps over the mailboxes; zero for continuous sweeps. The arbiter
    /// sweeps again at once while a mailbox has a full batch. A longer interval saves cache misses
    /// and adds as much delay; clients have to wait if their mailboxes fill up within it.
    pub interval: Duration,
    /// Maximum number of packets that the scheduler receives from one client before it receives
    /// those of the next, in `1..=BATCH_MAX`. It is also the maximum number released per client
    /// before the scheduler receives more. Smaller: less delay; greater, up to some 32: fewer cache
    /// misses per packet. Without a limited rate and without stamps for each packet, released
    /// packets are returned in groups: from 8 on, of at least eight while there are packets to
    /// read. Below 8, a single client's packets without stamps are read and returned up to eight at
    /// a time, and the scheduler still receives and releases this many in turn.
    pub batch_max: u32,
    /// Granularity of the packets' time stamps.
    pub stamping: Stamping,
    /// Waiting strategy of the arbiter while it has no work.
    pub idle_policy: IdlePolicy,
}

handover_base::setters!(ArbiterConfig {
    bandwidth_bps: Option<u64>,
    mailbox_slots_count: u32,
    interval: Duration,
    batch_max: u32,
    stamping: Stamping,
    idle_policy: IdlePolicy,
});

impl Default for ArbiterConfig {
    /// Returns the defaults: no rate limit, 200 slots, continuous sweeps, and batches of 32. The
    /// packets of a batch share stamps; the idle policy is that for one client.
    fn default() -> Self {
        Self {
            bandwidth_bps: None,
            mailbox_slots_count: 200,
            interval: Duration::ZERO,
            batch_max: 32,
            stamping: Stamping::Batch,
            idle_policy: IdlePolicy::for_threads(2),
        }
    }
}

/// Error of [`ArbiterConfig::validate`] and [`Arbiter::new`](super::Arbiter::new).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArbiterConfigError {
    /// [`ArbiterConfig::mailbox_slots_count`] is outside its range.
    #[error("mailbox_slots_count={slots_count}: must lie in 1..={LANE_SLOTS_MAX}")]
    Mailbox {
        /// Configured number of slots.
        slots_count: u32,
    },
    /// [`ArbiterConfig::batch_max`] is outside its range.
    #[error("batch_max={batch_max}: must lie in 1..={BATCH_MAX}")]
    Batch {
        /// Configured batch size.
        batch_max: u32,
    },
    /// [`ArbiterConfig::interval`] is longer than [`INTERVAL_MAX`].
    #[error("interval={interval:?}: must be at most {INTERVAL_MAX:?}")]
    Interval {
        /// Configured interval.
        interval: Duration,
    },
    /// The scheduler passed to the arbiter already contains packets, which belong to no client.
    #[error("the scheduler contains {packets_count} packets: dequeue them first")]
    Queued {
        /// Number of packets in the scheduler.
        packets_count: usize,
    },
    /// [`ArbiterConfig::bandwidth_bps`] is outside its range.
    #[error(transparent)]
    Rate(#[from] RateError),
}

impl ArbiterConfig {
    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// [`ArbiterConfigError`] names the first invalid value and its range.
    pub fn validate(&self) -> Result<(), ArbiterConfigError> {
        if !(1..=LANE_SLOTS_MAX).contains(&self.mailbox_slots_count) {
            return Err(ArbiterConfigError::Mailbox { slots_count: self.mailbox_slots_count });
        }
        if !(1..=BATCH_MAX).contains(&self.batch_max) {
            return Err(ArbiterConfigError::Batch { batch_max: self.batch_max });
        }
        if self.interval > INTERVAL_MAX {
            return Err(ArbiterConfigError::Interval { interval: self.interval });
        }
        self.bandwidth_bps.map_or(Ok(()), |rate| PacketClock::new(rate).map(drop))?;
        Ok(())
    }
}
