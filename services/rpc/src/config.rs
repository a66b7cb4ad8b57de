//! Configuration of an endpoint: every bound, with its default.

use crate::{Address, ConfigError};
use handover_base::range;
use serde::{Deserialize, Serialize};

/// Configuration of an endpoint: limits, addresses, credentials and waiting behaviour.
///
/// Can be deserialized with serde, from JSON for example: keys that are left out have their defaults, and unknown keys
/// are errors. [`Endpoint::new`](crate::Endpoint::new) validates the values.
///
/// ```
/// use handover_rpc::Config;
/// let config = Config { spin_ns_max: 0, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { slots_count: 3, ..config }.validate().unwrap_err().to_string(),
///     "slots_count=3: must be a power of two",
/// );
/// # Ok::<(), handover_rpc::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum number of connected peers. Default 4,096.
    pub peers_max: u32,
    /// Maximum number of calls that this endpoint has under way. The same limit holds for the queue
    /// of other threads' requests ([`Caller`](crate::Caller)) to the endpoint's thread. Default
    /// 65,536.
    pub calls_max: u32,
    /// Maximum length of arguments and of results, in bytes. A connection uses the smaller of both endpoints' values.
    /// Default 1 MiB. On a stream, the receive buffer grows to twice the longest message of a peer. It shrinks again
    /// when no message longer than 64 KiB has arrived for a quarter of `message_timeout_ms`; an idle peer keeps 64 KiB.
    pub message_bytes_max: u32,
    /// Maximum number of bytes queued for sending to one peer, including results of the pool. Default 16 MiB. Above a
    /// quarter of this limit, calls to that peer are refused. Above half of it, requests of that peer are deferred, and
    /// those for the pool do not start; up to `queued_bytes_max` bytes of requests are deferred, and further ones are
    /// refused as [`PeerFull`](crate::CallError::PeerFull). Above all of it, results of pooled requests that had
    /// started before are dropped, as [`ResultUnsent`](crate::CallError::ResultUnsent), and a peer that does not read
    /// refusals is disconnected. Worst case for a peer: twice this limit, and the requests that the pool's threads are
    /// running.
    pub queued_bytes_max: u32,
    /// Maximum time, in ns, for which the endpoint spins before it sleeps. 0 sleeps at once.
    /// Default 20,000.
    pub spin_ns_max: u32,
    /// `true` to never sleep: for threads that have a CPU to themselves. Default false.
    pub spin_forever: bool,
    /// Number of message slots in each direction of shared memory; a power of two. Default 64, with
    /// which both directions fit the first-level cache.
    pub slots_count: u32,
    /// Size, in bytes, of the buffer for long messages in each direction of shared memory. It is a
    /// power of two of at least twice `message_bytes_max`. Its pages are allocated when they are
    /// first used. Default 4 MiB.
    pub shared_bytes: u32,
    /// Maximum time for a peer to complete the handshake, in ms. Default 5,000.
    pub handshake_timeout_ms: u32,
    /// Maximum time, in ms, in which a peer must complete a message on a stream. It counts from the
    /// message's first byte. 0 is no limit. Only time in which this endpoint is driven counts. The
    /// same limit holds for a TLS record. A peer that takes longer is disconnected, up to a quarter
    /// of this time later. Default 30,000.
    pub message_timeout_ms: u32,
    /// Maximum number of accepted connections whose handshake is not complete. Further connections wait in the kernel's
    /// queue (4,096 for each listener, or `net.core.somaxconn` if that is less) until one of these handshakes finishes,
    /// or until one is aborted to free its slot: the oldest of the IP address that has the most of them, once it has
    /// lasted for a sixteenth of `handshake_timeout_ms`. A host that opens many connections and stays silent thus
    /// displaces its own ones, and other hosts wait for a sixteenth of the timeout at most; refusing the newest instead
    /// would let that host keep everybody out. Unix sockets count as one address. Each listener accepts 64 connections
    /// before other work is done. Default 1,024.
    pub handshakes_max: u32,
    /// Number of threads that run the handlers registered for the pool. 0 runs them in the
    /// endpoint's own thread. Default 2.
    pub pool_threads: u32,
    /// `true` to run each of the pool's handlers as a fiber on the pool's threads
    /// (`handover_fiber`). Many of them can then wait at the same time. Default false.
    #[cfg(feature = "fibers")]
    pub pool_fibers: bool,
    /// Maximum number of requests that wait for the pool. If requests run as fibers, running ones
    /// count too. A further request is refused, and so is one of a peer with more than four times
    /// as many waiting requests as there are free slots. The pool takes one request of each peer in
    /// turn. Default 65,536.
    pub pool_queue_max: u32,
    /// Maximum total size, in bytes, of the requests that wait for the pool. Further ones are
    /// refused. Default 256 MiB.
    pub pool_queue_bytes_max: u32,
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
    pub bulk_maps: bool,
    /// `true` to let the kernel copy between processes (`process_vm_readv`, `process_vm_writev`) if
    /// memory cannot be mapped. Default true.
    pub bulk_uses_process_vm: bool,
    /// Addresses to listen at from the start. In the configuration that an endpoint returns: the
    /// addresses at which it listens. Default none.
    pub listen: Vec<Address>,
    /// CPUs that the pool's threads are pinned to, round robin. Default none: the kernel places them.
    pub pool_cpus: Vec<u32>,
    /// Maximum number of running timers. Default 65,536.
    pub timers_max: u32,
    /// `true` to record each procedure's calls, bytes and latencies. Default false.
    #[cfg(feature = "monitoring")]
    pub monitoring: bool,
    /// `true` to let peers stop this endpoint by [`stop_peer`](crate::Calling::stop_peer). Default
    /// false.
    pub remote_stop: bool,
    /// Most detailed level of the log messages that are passed to `tracing`. Its subscriber may
    /// filter further. Default all.
    pub log_level: LogLevel,
    /// Path of a file with a secret of at least 16 bytes. Both ends of every `tcp://` or `ucx://`
    /// connection of this endpoint must prove that they know it. Trailing white space is ignored.
    /// Only its owner should be able to read the file. Default none: over `tcp://`, **anybody who
    /// can reach the port can call**.
    ///
    /// The secret keeps strangers out. Later traffic is neither encrypted nor signed: use `tls://`
    /// against an attacker who can change packets on their way.
    pub secret_file: Option<String>,
    /// Certificate files for `tls://` addresses. Default none.
    pub tls: Option<TlsFiles>,
    /// Users allowed at the other end of a `uds://PATH` connection, accepted or initiated. Default this user and root.
    pub uds_peers: UdsPeers,
}

/// PEM files by which the two ends of a `tls://` connection authenticate each other. Each end shows
/// its certificate and requires the peer's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Users allowed at the other end of a `uds://PATH` connection, as reported by the kernel (`SO_PEERCRED`).
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
            peers_max: 4096,
            calls_max: 65_536,
            message_bytes_max: 1 << 20,
            queued_bytes_max: 1 << 24,
            spin_ns_max: 20_000,
            spin_forever: false,
            slots_count: 64,
            shared_bytes: 1 << 22,
            handshake_timeout_ms: 5_000,
            message_timeout_ms: 30_000,
            handshakes_max: 1024,
            pool_threads: 2,
            #[cfg(feature = "fibers")]
            pool_fibers: false,
            pool_queue_max: 65_536,
            pool_queue_bytes_max: 1 << 28,
            memories_max: 65_536,
            transfers_max: 4096,
            streamed_bytes_min: 1 << 22,
            bulk_maps: true,
            bulk_uses_process_vm: true,
            listen: Vec::new(),
            pool_cpus: Vec::new(),
            timers_max: 65_536,
            #[cfg(feature = "monitoring")]
            monitoring: false,
            remote_stop: false,
            log_level: LogLevel::default(),
            secret_file: None,
            tls: None,
            uds_peers: UdsPeers::default(),
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
        range::check("peers_max", self.peers_max, 1, PEERS_MAX_LIMIT)?;
        range::check("calls_max", self.calls_max, 1, 1 << 24)?;
        range::check(
            "message_bytes_max",
            self.message_bytes_max,
            MESSAGE_BYTES_LIMIT_MIN,
            SHARED_BYTES_LIMIT / 2,
        )?;
        range::check("queued_bytes_max", self.queued_bytes_max, 1024, u32::MAX)?;
        range::check("spin_ns_max", self.spin_ns_max, 0, 1_000_000_000)?;
        range::check("slots_count", self.slots_count, 2, SLOTS_COUNT_LIMIT)?;
        check_power_of_two("slots_count", self.slots_count)?;
        let shared_bytes_min = (2 * self.message_bytes_max).next_power_of_two().max(4096);
        range::check("shared_bytes", self.shared_bytes, shared_bytes_min, SHARED_BYTES_LIMIT)?;
        check_power_of_two("shared_bytes", self.shared_bytes)?;
        range::check("handshake_timeout_ms", self.handshake_timeout_ms, 1, 86_400_000)?;
        range::check("message_timeout_ms", self.message_timeout_ms, 0, 86_400_000)?;
        range::check("handshakes_max", self.handshakes_max, 1, PEERS_MAX_LIMIT)?;
        range::check("pool_threads", self.pool_threads, 0, 1024)?;
        range::check("pool_queue_max", self.pool_queue_max, 1, 1 << 24)?;
        range::check("pool_queue_bytes_max", self.pool_queue_bytes_max, 1024, u32::MAX)?;
        range::check("memories_max", self.memories_max, 1, 1 << 24)?;
        range::check("transfers_max", self.transfers_max, 1, 1 << 20)?;
        Ok(range::check("timers_max", self.timers_max, 1, 1 << 24)?)
    }
}

fn check_power_of_two(field: &'static str, value: u32) -> Result<(), ConfigError> {
    match value.is_power_of_two() {
        true => Ok(()),
        false => Err(ConfigError::NoPowerOfTwo { field, value: value.into() }),
    }
}
