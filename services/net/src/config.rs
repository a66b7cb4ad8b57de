//! Every bound of a thread and its connections, with its default.

use crate::ConfigError;
use crate::engine::Rules;

/// What becomes of a connection that is knocking while there is no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It stays in the kernel's queue until another closes; its peer waits.
    #[default]
    Wait,
    /// It is accepted and closed at once, so that its peer knows. A descriptor is kept in reserve for
    /// it, for when the process may open no more.
    TurnAway,
}

/// By what a thread learns which of its sockets are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backend {
    /// epoll(7), by its edges.
    #[default]
    Epoll,
    /// io_uring(7): a standing poll for each socket, on Linux from 5.19 on, where it is allowed.
    #[cfg(feature = "io-uring")]
    Uring,
}

/// The bounds of one thread, and of each of its connections.
///
/// ```
/// use handover_net::Config;
/// let config = Config { read_bytes: 16_384, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { read_bytes: 1, ..config }.validate().unwrap_err().to_string(),
///     "read_bytes=1: must lie in 512..=16777216",
/// );
/// # Ok::<(), handover_net::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How many connections a thread may hold. Default 1,048,576. Memory follows the most that ever
    /// were.
    pub connections_max: u32,
    /// How many connections a thread accepts from one address; 0, the default, does not count. Beyond it
    /// they are closed at once.
    pub connections_per_address_max: u32,
    /// What becomes of those that knock while there is no room. Default: they wait.
    pub when_full: WhenFull,
    /// How many bytes one read takes at most: the thread's one read buffer. Default 65,536. It is also
    /// what a connection gets before others have their turn.
    pub read_bytes: u32,
    /// How many bytes may wait to be sent on a connection; beyond, it is closed. Default 1 MiB.
    pub queued_bytes_max: u32,
    /// Above so many, a connection is not read until it is down to `low_water_bytes`. Default 65,536.
    pub high_water_bytes: u32,
    /// See `high_water_bytes`. Default 16,384.
    pub low_water_bytes: u32,
    /// How long a connection may be without a byte from its peer, in ms; 0, the default, is for ever. It
    /// is closed up to an eighth later.
    pub idle_timeout_ms: u32,
    /// After how much silence of a peer the kernel asks whether it is still there, in ms, counted in whole seconds; 0
    /// never asks. It asks four times, a quarter of this apart, and without an answer the connection is reset: a peer
    /// that has gone without a word is noticed after twice this. It costs an idle connection a packet each way in this
    /// time. While bytes that were sent are not acknowledged, the kernel sends those again in place of asking, for a
    /// quarter of an hour. Default 120,000.
    pub keepalive_ms: u32,
    /// How long a message may take from its first byte to its last, in ms; 0 is for ever. Default 10,000.
    pub message_timeout_ms: u32,
    /// How long a peer may read nothing of what waits for it, in ms; 0 is for ever. Default 30,000.
    pub write_timeout_ms: u32,
    /// How long it may take to connect, in ms; 0 is as long as the kernel tries. Default 10,000.
    pub connect_timeout_ms: u32,
    /// How long TLS's handshake may take, in ms; 0 is for ever. Default 10,000.
    pub handshake_timeout_ms: u32,
    /// How long a connection that we have ended waits for its peer to end too, in ms, or to take more of
    /// what was sent. Default 2,000. What the peer has still to read would be lost without.
    pub linger_ms: u32,
    /// How often the housekeeper comes, in ms; 0, the default, is never.
    pub housekeep_ms: u32,
    /// How long a thread looks for something to do before it sleeps, in ns, while that has paid lately; 0,
    /// the default, never does. It is for threads with a CPU to themselves.
    pub spin_ns_max: u32,
    /// How many commands of other threads may wait. Default 1,024.
    pub commands_max: u32,
    /// How many bytes in them. Default 16 MiB.
    pub commands_bytes_max: u32,
    /// How many ready connections are taken from the kernel at a time. Default 256, at most 1,024.
    pub ready_max: u32,
    /// How many connections are accepted before others have their turn. Default 64.
    pub accepts_max: u32,
    /// By what the thread learns which sockets are ready. Default: epoll.
    pub backend: Backend,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 1 << 20,
            connections_per_address_max: 0,
            when_full: WhenFull::default(),
            read_bytes: 1 << 16,
            queued_bytes_max: 1 << 20,
            high_water_bytes: 1 << 16,
            low_water_bytes: 1 << 14,
            idle_timeout_ms: 0,
            keepalive_ms: 120_000,
            message_timeout_ms: 10_000,
            write_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            handshake_timeout_ms: 10_000,
            linger_ms: 2_000,
            housekeep_ms: 0,
            spin_ns_max: 0,
            commands_max: 1_024,
            commands_bytes_max: 1 << 24,
            ready_max: 256,
            accepts_max: 64,
            backend: Backend::default(),
        }
    }
}

/// The longest time-out: a day.
const TIMEOUT_MS_LIMIT: u32 = 86_400_000;
/// The longest silence before the kernel asks that it can be told: 32,767 s.
const KEEPALIVE_MS_LIMIT: u32 = 32_767_000;

impl Config {
    /// Whether everything is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the knob, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("connections_max", self.connections_max, 1, 1 << 27)?;
        within("read_bytes", self.read_bytes, 512, 1 << 24)?;
        within("queued_bytes_max", self.queued_bytes_max, 1, u32::MAX)?;
        within("high_water_bytes", self.high_water_bytes, 1, self.queued_bytes_max)?;
        within("low_water_bytes", self.low_water_bytes, 0, self.high_water_bytes)?;
        within("idle_timeout_ms", self.idle_timeout_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("keepalive_ms", self.keepalive_ms, 0, KEEPALIVE_MS_LIMIT)?;
        within("message_timeout_ms", self.message_timeout_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("write_timeout_ms", self.write_timeout_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("connect_timeout_ms", self.connect_timeout_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("handshake_timeout_ms", self.handshake_timeout_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("linger_ms", self.linger_ms, 1, TIMEOUT_MS_LIMIT)?;
        within("housekeep_ms", self.housekeep_ms, 0, TIMEOUT_MS_LIMIT)?;
        within("spin_ns_max", self.spin_ns_max, 0, 1_000_000)?;
        within("commands_max", self.commands_max, 1, 1 << 24)?;
        within("commands_bytes_max", self.commands_bytes_max, 1, u32::MAX)?;
        within("ready_max", self.ready_max, 1, 1_024)?;
        within("accepts_max", self.accepts_max, 1, 1 << 16)
    }

    /// What the engine is to know of it.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            queued_bytes_max: self.queued_bytes_max as usize,
            high_bytes: self.high_water_bytes as usize,
            low_bytes: self.low_water_bytes as usize,
            message_timeout_ns: ns(self.message_timeout_ms),
            write_timeout_ns: ns(self.write_timeout_ms),
            handshake_timeout_ns: ns(self.handshake_timeout_ms),
        }
    }
}

pub(crate) fn ns(ms: u32) -> u64 {
    u64::from(ms) * 1_000_000
}

fn within(knob: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::OutOfRange { knob, value, min, max }),
    }
}
