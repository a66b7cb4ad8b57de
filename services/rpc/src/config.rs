//! Configuration of an endpoint: every bound, with its default.

use crate::{Address, ConfigError, clock};
use handover_base::range;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Configuration of an endpoint: limits, addresses, credentials and waiting behaviour.
///
/// Can be deserialized with serde, from JSON for example: keys that are left out have their
/// defaults. Unknown keys are errors, and so is a list in place of a group's object. Times are
/// integers in the unit that the key names: `spin_ns_max`, and in `connections`
/// `handshake_timeout_ms` and `message_timeout_ms`. [`Endpoint::new`](crate::Endpoint::new)
/// validates the values.
///
/// ```
/// use handover_rpc::{Config, SharedMemoryConfig};
/// use std::time::Duration;
///
/// let config = Config::default().spin_max(Duration::ZERO);
/// config.validate()?;
/// assert_eq!(
///     config.shared_memory(SharedMemoryConfig::default().slots_count(3)).validate().unwrap_err().to_string(),
///     "shared_memory.slots_count=3: must be a power of two",
/// );
/// # Ok::<(), handover_rpc::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Maximum number of calls that this endpoint has under way. The same limit holds for the queue
    /// of other threads' requests ([`Caller`](crate::Caller)) to the endpoint's thread. Default
    /// 65,536.
    pub calls_max: u32,
    /// Maximum number of running timers. Default 65,536.
    pub timers_max: u32,
    /// Maximum time for which the endpoint spins before it sleeps, at most 1 s. Zero sleeps at
    /// once. Otherwise, where peers in shared memory run on the same CPU, the endpoint also yields
    /// to them before it sleeps, and instead of spinning while that pays. Default 20 µs.
    #[serde(rename = "spin_ns_max", with = "integer_ns")]
    pub spin_max: Duration,
    /// `true` to never sleep: for threads that have a CPU to themselves. Default false.
    pub spin_forever: bool,
    /// Addresses to listen at from the start. In the configuration that an endpoint returns: the
    /// addresses at which it listens. Default none.
    pub listen: Vec<Address>,
    /// Most detailed level of the log messages that are passed to `tracing`. Its subscriber may
    /// filter further. Default all.
    pub log_level: LogLevel,
    /// `true` to record each procedure's calls, bytes and latencies. Default false.
    #[cfg(feature = "monitoring")]
    pub monitoring: bool,
    /// Limits of connections and their handshakes.
    #[serde(deserialize_with = "from_object")]
    pub connections: ConnectionsConfig,
    /// Credentials, and rights of peers.
    #[serde(deserialize_with = "from_object")]
    pub access: AccessConfig,
    /// Sizes of the shared memory of an `sm://` connection.
    #[serde(deserialize_with = "from_object")]
    pub shared_memory: SharedMemoryConfig,
    /// Threads for the handlers that are registered for the pool.
    #[serde(deserialize_with = "from_object")]
    pub pool: PoolConfig,
    /// Limits and ways of bulk transfers.
    #[serde(deserialize_with = "from_object")]
    pub bulk: BulkConfig,
}

handover_base::setters!(Config {
    calls_max: u32,
    timers_max: u32,
    spin_max: Duration,
    spin_forever: bool,
    listen: Vec<Address>,
    log_level: LogLevel,
    #[cfg(feature = "monitoring")]
    monitoring: bool,
    connections: ConnectionsConfig,
    access: AccessConfig,
    shared_memory: SharedMemoryConfig,
    pool: PoolConfig,
    bulk: BulkConfig,
});

/// Limits of connections and their handshakes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConnectionsConfig {
    /// Maximum number of connected peers. Default 4,096.
    pub peers_max: u32,
    /// Maximum number of accepted connections whose handshake is not complete. Further connections
    /// wait in the kernel's queue (4,096 for each listener, or `net.core.somaxconn` if that is
    /// less) until one of these handshakes finishes, or until one is aborted to free its slot: the
    /// oldest of the IP address that has the most of them, once it has lasted for a sixteenth of
    /// `handshake_timeout`. A host that opens many connections and stays silent thus displaces its
    /// own ones, and other hosts wait for a sixteenth of the timeout at most; refusing the newest
    /// instead would let that host keep everybody out. Unix sockets count as one address. Each
    /// listener accepts 64 connections before other work is done. Default 1,024.
    pub handshakes_max: u32,
    /// Maximum time for a peer to complete the handshake: 1 ms to a day. Default 5 s.
    #[serde(rename = "handshake_timeout_ms", with = "integer_ms")]
    pub handshake_timeout: Duration,
    /// Maximum time in which a peer must complete a message on a stream, at most a day. It counts
    /// from the message's first byte. Zero is no limit. Only time in which this endpoint is driven
    /// counts. The same limit holds for a TLS record. A peer that takes longer is disconnected, up
    /// to a quarter of this time later. Default 30 s.
    #[serde(rename = "message_timeout_ms", with = "integer_ms")]
    pub message_timeout: Duration,
    /// Maximum length of arguments and of results, in bytes. A connection uses the smaller of both
    /// endpoints' values. Default 1 MiB. On a stream, the receive buffer grows to less than four
    /// times the longest message of a peer. It shrinks again when no message longer than 64 KiB has
    /// arrived for a quarter of `message_timeout`; an idle peer keeps 64 KiB.
    pub message_bytes_max: u32,
    /// Maximum number of bytes queued for sending to one peer, including results of the pool.
    /// Default 16 MiB. Above a quarter of this limit, calls to that peer are refused. Above half of
    /// it, requests of that peer are deferred, and those for the pool do not start; up to
    /// `queued_bytes_max` bytes of requests, or one longer request, are deferred, and further ones
    /// are refused as [`PeerFull`](crate::CallError::PeerFull). Above all of it, results of pooled
    /// requests that had started before are dropped, as
    /// [`ResultUnsent`](crate::CallError::ResultUnsent), and a peer that does not read refusals is
    /// disconnected. Worst case for a peer: twice this limit, or this limit and `message_bytes_max`
    /// if that is more, and the requests that the pool's threads are running.
    pub queued_bytes_max: u32,
}

handover_base::setters!(ConnectionsConfig {
    peers_max: u32,
    handshakes_max: u32,
    handshake_timeout: Duration,
    message_timeout: Duration,
    message_bytes_max: u32,
    queued_bytes_max: u32,
});

/// Credentials of an endpoint, and rights of its peers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessConfig {
    /// Path of a file with a secret of at least 16 bytes. Both ends of every `tcp://` or `ucx://`
    /// connection of this endpoint must prove that they know it. Trailing white space is ignored.
    /// The file may have at most 16 MiB, and only its owner should be able to read it. Default
    /// none: over `tcp://`, **anybody who can reach the port can call**.
    ///
    /// The secret keeps strangers out. Later traffic is neither encrypted nor signed: use `tls://`
    /// against an attacker who can change packets on their way.
    pub secret_file: Option<String>,
    /// Certificate files for `tls://` addresses. Default none.
    #[serde(deserialize_with = "tls_files_from_object")]
    pub tls: Option<TlsFiles>,
    /// Users allowed at the other end of a `uds://PATH` connection, accepted or initiated. Default
    /// this user and root.
    pub uds_peers: UdsPeers,
    /// `true` to let peers stop this endpoint by [`stop_peer`](crate::Calling::stop_peer). Default
    /// false.
    pub remote_stop: bool,
}

handover_base::setters!(AccessConfig {
    secret_file: Option<String>,
    tls: Option<TlsFiles>,
    uds_peers: UdsPeers,
    remote_stop: bool,
});

/// Sizes of the shared memory of an `sm://` connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SharedMemoryConfig {
    /// Number of message slots in each direction; a power of two. Default 64, with which both
    /// directions fit the first-level cache.
    pub slots_count: u32,
    /// Size, in bytes, of the buffer for long messages in each direction. It is a power of two of
    /// at least twice `message_bytes_max`. Its pages are allocated when they are first used.
    /// Default 4 MiB.
    pub shared_bytes: u32,
}

handover_base::setters!(SharedMemoryConfig { slots_count: u32, shared_bytes: u32 });

/// Threads for the handlers that are registered for the pool, and limits of their queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Number of threads. 0 runs the handlers in the endpoint's own thread. Default 2.
    pub threads: u32,
    /// `true` to run each of the handlers as a fiber on the pool's threads (`handover_fiber`). Many
    /// of them can then wait at the same time. Default false.
    #[cfg(feature = "fibers")]
    pub fibers: bool,
    /// CPUs that the threads are pinned to, round robin. Default none: the kernel places them.
    pub cpus: Vec<u32>,
    /// Maximum number of requests that wait for the pool. If requests run as fibers, running ones
    /// count too. A further request is refused, and so is one of a peer with more than four times
    /// as many waiting requests as there are free slots. The pool takes one request of each peer in
    /// turn. Default 65,536.
    pub queue_max: u32,
    /// Maximum total size, in bytes, of the requests that wait for the pool. Further ones are
    /// refused. Default 256 MiB.
    pub queue_bytes_max: u32,
}

handover_base::setters!(PoolConfig {
    threads: u32,
    #[cfg(feature = "fibers")]
    fibers: bool,
    cpus: Vec<u32>,
    queue_max: u32,
    queue_bytes_max: u32,
});

/// Limits and ways of bulk transfers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BulkConfig {
    /// Maximum number of memories registered for bulk transfers. Default 65,536.
    pub memories_max: u32,
    /// Maximum number of bulk transfers under way. It limits those that this endpoint has started,
    /// and those of each peer. Default 4,096.
    pub transfers_max: u32,
    /// Minimum length, in bytes, of a memory that bulk transfers write with non-temporal stores.
    /// These bypass the caches. They suit memory that is larger than the caches and not read at
    /// once. Default 4 MiB.
    pub streamed_bytes_min: u64,
    /// `true` to map peers' memory for bulk transfers where possible. If false, bulk transfers use
    /// messages. Default true.
    pub maps: bool,
    /// `true` to let the kernel copy between processes (`process_vm_readv`, `process_vm_writev`) if
    /// memory cannot be mapped. Default true.
    pub uses_process_vm: bool,
}

handover_base::setters!(BulkConfig {
    memories_max: u32,
    transfers_max: u32,
    streamed_bytes_min: u64,
    maps: bool,
    uses_process_vm: bool,
});

/// PEM files by which the two ends of a `tls://` connection authenticate each other. Each end shows
/// its certificate and requires the peer's. [`default`](Self::default) names no files: all three
/// must be set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsFiles {
    /// Path of this endpoint's certificate chain, its own certificate first. Clients look for the
    /// host of the address among that certificate's names.
    pub certificates: String,
    /// Path of the private key of this endpoint's certificate.
    pub private_key: String,
    /// Path of the CA certificates with which peers' certificates are verified. No others are
    /// trusted, not even the system's.
    pub roots: String,
}

handover_base::setters!(TlsFiles { certificates: String, private_key: String, roots: String });

/// Users allowed at the other end of a `uds://PATH` connection, as reported by the kernel
/// (`SO_PEERCRED`).
///
/// In JSON: `"same_user_or_root"`, `{"uids": [33, 1000]}` or `"any"`. `sm://` and `uds://@NAME`
/// always connect processes of one user only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UdsPeers {
    /// Only the effective user of this process, and root.
    #[default]
    SameUserOrRoot,
    /// Only users with these user ids.
    Uids(Vec<u32>),
    /// Every user whom the mode of the socket file allows to open it. The mode is 0600 until it is
    /// changed.
    Any,
}

/// Least severe level of the messages that are logged; the levels have margo's names. Messages are
/// passed to `tracing` with the target `handover_rpc`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// No messages are logged.
    Off,
    /// Only fatal failures of the endpoint are logged. There are none so far.
    Critical,
    /// Fatal failures and lost data are logged (ERROR).
    Error,
    /// Errors and warnings (WARN) are logged.
    Warning,
    /// Errors, warnings and closed connections (INFO) are logged.
    Info,
    /// All of [`Info`](Self::Info) is logged, as well as established connections (DEBUG).
    Debug,
    /// All messages are logged, up to the most detailed (TRACE).
    #[default]
    Trace,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            calls_max: 65_536,
            timers_max: 65_536,
            spin_max: Duration::from_micros(20),
            spin_forever: false,
            listen: Vec::new(),
            log_level: LogLevel::default(),
            #[cfg(feature = "monitoring")]
            monitoring: false,
            connections: ConnectionsConfig::default(),
            access: AccessConfig::default(),
            shared_memory: SharedMemoryConfig::default(),
            pool: PoolConfig::default(),
            bulk: BulkConfig::default(),
        }
    }
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            peers_max: 4096,
            handshakes_max: 1024,
            handshake_timeout: Duration::from_millis(5_000),
            message_timeout: Duration::from_millis(30_000),
            message_bytes_max: 1 << 20,
            queued_bytes_max: 1 << 24,
        }
    }
}

impl Default for SharedMemoryConfig {
    fn default() -> Self {
        Self {
            // Both directions fit the first-level cache.
            slots_count: 64,
            shared_bytes: 1 << 22,
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            #[cfg(feature = "fibers")]
            fibers: false,
            cpus: Vec::new(),
            queue_max: 65_536,
            queue_bytes_max: 1 << 28,
        }
    }
}

impl Default for BulkConfig {
    fn default() -> Self {
        Self {
            memories_max: 65_536,
            transfers_max: 4096,
            streamed_bytes_min: 1 << 22,
            maps: true,
            uses_process_vm: true,
        }
    }
}

/// Maximum value of `peers_max` and of `handshakes_max`.
pub(crate) const PEERS_MAX_LIMIT: u32 = 1 << 20;
/// Minimum of `message_bytes_max`, in a configuration and in a peer's hello.
pub(crate) const MESSAGE_BYTES_LIMIT_MIN: u32 = 64;
/// Maximum of `slots_count`, in a configuration and in a peer's hello.
pub(crate) const SLOTS_COUNT_LIMIT: u32 = 1 << 16;
/// Maximum of `shared_bytes`, in a configuration and in a peer's hello.
pub(crate) const SHARED_BYTES_LIMIT: u32 = 1 << 28;

impl Config {
    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let day = Duration::from_secs(86_400);
        range::check("calls_max", self.calls_max, 1, 1 << 24)?;
        range::check("timers_max", self.timers_max, 1, 1 << 24)?;
        range::check("spin_max", self.spin_max, Duration::ZERO, Duration::from_secs(1))?;

        let it = &self.connections;
        range::check("connections.peers_max", it.peers_max, 1, PEERS_MAX_LIMIT)?;
        range::check("connections.handshakes_max", it.handshakes_max, 1, PEERS_MAX_LIMIT)?;
        let (name, millisecond) = ("connections.handshake_timeout", Duration::from_millis(1));
        range::check(name, it.handshake_timeout, millisecond, day)?;
        range::check("connections.message_timeout", it.message_timeout, Duration::ZERO, day)?;
        let message_bytes_max = it.message_bytes_max;
        let (min, max) = (MESSAGE_BYTES_LIMIT_MIN, SHARED_BYTES_LIMIT / 2);
        range::check("connections.message_bytes_max", message_bytes_max, min, max)?;
        range::check("connections.queued_bytes_max", it.queued_bytes_max, 1024, u32::MAX)?;

        let SharedMemoryConfig { slots_count, shared_bytes } = self.shared_memory;
        let name = "shared_memory.slots_count";
        range::check(name, slots_count, 2, SLOTS_COUNT_LIMIT)?;
        check_power_of_two(name, slots_count)?;
        let name = "shared_memory.shared_bytes";
        let shared_bytes_min = (2 * message_bytes_max).next_power_of_two().max(4096);
        range::check(name, shared_bytes, shared_bytes_min, SHARED_BYTES_LIMIT)?;
        check_power_of_two(name, shared_bytes)?;

        range::check("pool.threads", self.pool.threads, 0, 1024)?;
        range::check("pool.queue_max", self.pool.queue_max, 1, 1 << 24)?;
        range::check("pool.queue_bytes_max", self.pool.queue_bytes_max, 1024, u32::MAX)?;

        range::check("bulk.memories_max", self.bulk.memories_max, 1, 1 << 24)?;
        Ok(range::check("bulk.transfers_max", self.bulk.transfers_max, 1, 1 << 20)?)
    }
}

fn check_power_of_two(field: &'static str, value: u32) -> Result<(), ConfigError> {
    match value.is_power_of_two() {
        true => Ok(()),
        false => Err(ConfigError::NoPowerOfTwo { field, value: value.into() }),
    }
}

/// Deserializes a struct from an object only. What is derived accepts a list too, as the values of
/// the fields in their order. Formats without keys are not human-readable.
fn from_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    match from.is_human_readable() {
        true => from.deserialize_map(ObjectVisitor(PhantomData)),
        false => T::deserialize(from),
    }
}

/// Deserializes the names of certificate files, if there are any, from an object only.
fn tls_files_from_object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TlsFiles>, D::Error> {
    #[derive(Deserialize)]
    struct FromObject(#[serde(deserialize_with = "from_object")] TlsFiles);

    Ok(Option::<FromObject>::deserialize(from)?.map(|files| files.0))
}

/// Times as integers in ms, rounded up.
mod integer_ms {
    use super::{Deserialize, Deserializer, Duration, clock};
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(clock::ns_from_duration(*time).div_ceil(1_000_000))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Times as integers in ns.
mod integer_ns {
    use super::{Deserialize, Deserializer, Duration, clock};
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(clock::ns_from_duration(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}
