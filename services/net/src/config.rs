//! Limits of a thread and its connections, with their defaults.

use crate::ConfigError;
use crate::engine::ConnectionLimits;
use handover_base::range;
use std::time::Duration;

/// Policy for new connections while the thread is full or the process is out of descriptors. They
/// wait, or they are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FullConnectionsPolicy {
    /// The connection waits in the kernel's accept queue until another one closes.
    #[default]
    Wait,
    /// The connection is accepted and closed at once, so that its peer notices. The thread holds
    /// one descriptor in reserve to do so when the process can open no more.
    Reject,
}

/// Limits of one event-loop thread and of each of its connections.
///
/// ```
/// use handover_net::Config;
/// let config = Config::default().read_bytes(16_384);
/// config.validate()?;
/// assert_eq!(
///     config.read_bytes(1).validate().unwrap_err().to_string(),
///     "read_bytes=1: must lie in 512..=16777216",
/// );
/// # Ok::<(), handover_net::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Maximum number of open connections of a thread. Default 1,048,576. Memory grows with the
    /// greatest number of connections that were open at once.
    pub connections_max: u32,
    /// Maximum number of connections that a thread accepts from one peer address. The thread closes
    /// further ones at once. 0, the default, is no limit.
    pub connections_per_address_max: u32,
    /// Policy for new connections while the thread is full or the process is out of descriptors.
    /// Default: [`FullConnectionsPolicy::Wait`].
    pub when_full: FullConnectionsPolicy,
    /// Size of the thread's read buffer, in bytes. It is the maximum of one read, after which other
    /// connections are served. Default 65,536.
    pub read_bytes: u32,
    /// Maximum number of bytes queued for sending on a connection. A connection that would exceed
    /// it is closed. Default 1 MiB.
    pub queued_bytes_max: u32,
    /// High-water mark of the send queue, in bytes: above it, the connection is not read. Reading
    /// resumes when the queue has drained to `low_water_bytes`. Default 65,536.
    pub high_water_bytes: u32,
    /// Low-water mark of the send queue, in bytes: once the queue has drained to it, reading
    /// resumes. Default 16,384.
    pub low_water_bytes: u32,
    /// Time without a byte from the peer after which the connection is closed. It does not count
    /// while the connection is not read: above the high-water mark, suspended, being closed, or
    /// until the messages received before are handled. Zero, the default, is no limit. The close
    /// may be late by an eighth of this time.
    pub idle_timeout: Duration,
    /// Time without a byte from a peer after which the kernel sends keepalive probes. It is rounded
    /// up to whole seconds; zero sends none. There are four probes, a quarter of this time apart;
    /// without an answer the connection is reset, so that a vanished peer is noticed after twice
    /// this time. The cost is one packet each way per idle connection in this time. While sent
    /// bytes are not acknowledged, the kernel retransmits them instead of probing, for twice this
    /// time, and then resets the connection. Default 120 s.
    pub keepalive: Duration,
    /// Maximum time from the first byte of a message to its last. Zero is no limit. Default 10 s.
    pub message_timeout: Duration,
    /// Maximum time for which sending may stall because the peer does not read. Zero is no limit.
    /// Default 30 s.
    pub write_timeout: Duration,
    /// Maximum time to establish an outgoing connection; zero waits until the kernel gives up.
    /// Default 10 s.
    pub connect_timeout: Duration,
    /// Maximum duration of the TLS handshake; zero is no limit. Default 10 s.
    pub handshake_timeout: Duration,
    /// Maximum time that a locally closed connection waits for the peer to close it. The wait
    /// begins again when the peer acknowledges further bytes. Without this wait the peer would lose
    /// bytes that it has not read. Default 2 s.
    pub linger: Duration,
    /// Interval of calls of [`Handler::housekeep`](crate::Handler::housekeep), 1 ms to a day; zero,
    /// the default, never calls it.
    pub housekeep_interval: Duration,
    /// Maximum time for which a thread spins before it sleeps; zero, the default, never spins. It
    /// spins while recent spins have found work. Use it for threads with a CPU of their own.
    pub spin_max: Duration,
    /// Maximum number of queued commands from other threads to a thread. Default 1,024.
    pub commands_max: u32,
    /// Maximum number of bytes in all queued write commands to a thread. A single command may be
    /// larger. Default 16 MiB.
    pub commands_bytes_max: u32,
    /// Maximum number of readiness events fetched from the kernel at a time. Default 256, at most
    /// 1,024.
    pub ready_max: u32,
    /// Maximum number of connections that a thread accepts before it serves the open ones.
    /// Default 64.
    pub accepts_max: u32,
}

handover_base::setters!(Config {
    connections_max: u32,
    connections_per_address_max: u32,
    when_full: FullConnectionsPolicy,
    read_bytes: u32,
    queued_bytes_max: u32,
    high_water_bytes: u32,
    low_water_bytes: u32,
    idle_timeout: Duration,
    keepalive: Duration,
    message_timeout: Duration,
    write_timeout: Duration,
    connect_timeout: Duration,
    handshake_timeout: Duration,
    linger: Duration,
    housekeep_interval: Duration,
    spin_max: Duration,
    commands_max: u32,
    commands_bytes_max: u32,
    ready_max: u32,
    accepts_max: u32,
});

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 1 << 20,
            connections_per_address_max: 0,
            when_full: FullConnectionsPolicy::default(),
            read_bytes: 1 << 16,
            queued_bytes_max: 1 << 20,
            high_water_bytes: 1 << 16,
            low_water_bytes: 1 << 14,
            idle_timeout: Duration::ZERO,
            keepalive: Duration::from_millis(120_000),
            message_timeout: Duration::from_millis(10_000),
            write_timeout: Duration::from_millis(30_000),
            connect_timeout: Duration::from_millis(10_000),
            handshake_timeout: Duration::from_millis(10_000),
            linger: Duration::from_millis(2_000),
            housekeep_interval: Duration::ZERO,
            spin_max: Duration::ZERO,
            commands_max: 1_024,
            commands_bytes_max: 1 << 24,
            ready_max: 256,
            accepts_max: 64,
        }
    }
}

/// Greatest valid value of a timeout: one day.
const TIMEOUT_LIMIT: Duration = Duration::from_secs(86_400);
/// Greatest valid value of `keepalive`: the kernel's limit.
const KEEPALIVE_LIMIT: Duration = Duration::from_secs(32_767);
/// Greatest valid value of `spin_max`.
const SPIN_LIMIT: Duration = Duration::from_millis(1);

impl Config {
    /// Checks that every field is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] with the field's name, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range::check("connections_max", self.connections_max, 1, 1 << 27)?;
        range::check("read_bytes", self.read_bytes, 512, 1 << 24)?;
        range::check("queued_bytes_max", self.queued_bytes_max, 1, u32::MAX)?;
        range::check("high_water_bytes", self.high_water_bytes, 1, self.queued_bytes_max)?;
        range::check("low_water_bytes", self.low_water_bytes, 0, self.high_water_bytes)?;
        let zero = Duration::ZERO;
        range::check("idle_timeout", self.idle_timeout, zero, TIMEOUT_LIMIT)?;
        range::check("keepalive", self.keepalive, zero, KEEPALIVE_LIMIT)?;
        range::check("message_timeout", self.message_timeout, zero, TIMEOUT_LIMIT)?;
        range::check("write_timeout", self.write_timeout, zero, TIMEOUT_LIMIT)?;
        range::check("connect_timeout", self.connect_timeout, zero, TIMEOUT_LIMIT)?;
        range::check("handshake_timeout", self.handshake_timeout, zero, TIMEOUT_LIMIT)?;
        let millisecond = Duration::from_millis(1);
        range::check("linger", self.linger, millisecond, TIMEOUT_LIMIT)?;
        if !self.housekeep_interval.is_zero() {
            let interval = self.housekeep_interval;
            range::check("housekeep_interval", interval, millisecond, TIMEOUT_LIMIT)?;
        }
        range::check("spin_max", self.spin_max, zero, SPIN_LIMIT)?;
        range::check("commands_max", self.commands_max, 1, 1 << 24)?;
        range::check("commands_bytes_max", self.commands_bytes_max, 1, u32::MAX)?;
        range::check("ready_max", self.ready_max, 1, 1_024)?;
        range::check("accepts_max", self.accepts_max, 1, 1 << 16)
    }

    /// Returns the limits that a connection's [`ProtocolState`](crate::engine::ProtocolState)
    /// enforces.
    #[must_use]
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            queued_bytes_max: self.queued_bytes_max as usize,
            high_bytes: self.high_water_bytes as usize,
            low_bytes: self.low_water_bytes as usize,
            message_timeout_ns: to_ns(self.message_timeout),
            write_timeout_ns: to_ns(self.write_timeout),
            handshake_timeout_ns: to_ns(self.handshake_timeout),
        }
    }
}

/// Converts a duration to ns; one of more than 584 years becomes `u64::MAX`.
pub(crate) fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn housekeep_interval_is_zero_or_at_least_1_ms() {
        let check = |interval| Config::default().housekeep_interval(interval).validate();
        assert_eq!(check(Duration::ZERO), Ok(()));
        assert_eq!(check(Duration::from_millis(1)), Ok(()));
        let error = check(Duration::from_micros(999)).unwrap_err().to_string();
        assert_eq!(error, "housekeep_interval=999µs: must lie in 1ms..=86400s");
    }
}
