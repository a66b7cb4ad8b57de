//! Every bound of an endpoint, with its default.

use crate::{Address, ConfigError};
use serde::{Deserialize, Serialize};

/// What an endpoint may take, and how it waits.
///
/// Read from and written to anything that serde knows, JSON first of all ([`from_json`](Self::from_json));
/// what is left out has its default.
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
    /// How many peers may be connected. Default 4,096.
    pub peers_max: u32,
    /// How many calls may be under way from this side, and how many calls and errands of other threads may wait for
    /// the endpoint's own ([`Caller`](crate::Caller)). Default 65,536.
    pub calls_max: u32,
    /// How long arguments and results may be, in bytes. The smaller of both sides' counts. Default 1 MiB.
    /// On a stream, memory for receiving grows to twice the longest message of a peer, and is given back when none
    /// longer than 64 KiB has come for a quarter of `message_timeout_ms`; a silent peer keeps 64 KiB.
    pub message_bytes_max: u32,
    /// How many bytes may wait to be sent to a peer, results of the pool among them. Above a quarter of it, calls to
    /// that peer are refused. Above half of it, requests of the peer are put off, and those for the pool do not begin;
    /// so many bytes of requests are put off, and the rest refused as [`PeerFull`](crate::CallError::PeerFull). Above
    /// all of it, results of pooled requests that had begun before are dropped, as
    /// [`ResultUnsent`](crate::CallError::ResultUnsent), and a peer that does not read refusals is disconnected.
    /// Worst case for a peer: twice this, and what the pool's threads are at. Default 16 MiB.
    pub queued_bytes_max: u32,
    /// How long to look for something to do before sleeping, in ns. 0 sleeps at once. Default 20,000.
    pub spin_ns_max: u32,
    /// Never sleep: for threads with a CPU to themselves. Default false.
    pub spin_forever: bool,
    /// How many messages a direction of shared memory holds; a power of two. Default 64:
    /// both directions fit the nearest cache.
    pub slots_count: u32,
    /// How many bytes of long messages a direction of shared memory holds, a power of two of at least twice
    /// `message_bytes_max`; memory is taken as it is used. Default 4 MiB.
    pub shared_bytes: u32,
    /// How long a peer may take to agree on a connection, in ms. Default 5,000.
    pub handshake_timeout_ms: u32,
    /// How long a message of a peer on a stream may take from its first byte to its last, in ms, while this endpoint is
    /// driven; 0 is for ever. The same holds for a record of TLS. A peer that takes longer is disconnected, up to a
    /// quarter later. Default 30,000.
    pub message_timeout_ms: u32,
    /// How many connections may be accepted and not agreed upon yet. Beyond, connections wait in the kernel's queue
    /// (4,096 of each listener, or as many as `net.core.somaxconn` says) until one of these is settled, or has been
    /// silent for a sixteenth of `handshake_timeout_ms` and is turned away. 64 of a listener are accepted before
    /// others have their turn. Default 1,024.
    pub handshakes_max: u32,
    /// How many threads run the handlers that are registered for the pool; 0: the endpoint's own. Default 2.
    pub pool_threads: u32,
    /// Run each of the pool's handlers as a fiber on those threads (`handover_fiber`), so that many may wait for
    /// something at a time. Default false.
    pub pool_fibers: bool,
    /// How many requests may wait for the pool, with those that run where they are fibers; beyond, they are refused.
    /// Peers have turns, a request each. Default 65,536.
    pub pool_queue_max: u32,
    /// How many bytes they and their arguments may take meanwhile; beyond, they are refused. Default 256 MiB.
    pub pool_queue_bytes_max: u32,
    /// How many memories may be registered for bulk transfers. Default 65,536.
    pub memories_max: u32,
    /// How many bulk transfers may be under way from this side, and from each peer. Default 4,096.
    pub transfers_max: u32,
    /// Memory at least so long is filled past the caches, in bytes: for what is longer than they are, and
    /// not read at once. Default 4 MiB.
    pub streamed_bytes_min: u64,
    /// Map peers' memory where it can be. Without, bulk transfers go by messages. Default true.
    pub bulk_maps: bool,
    /// Have the kernel copy between processes what cannot be mapped. Default true.
    pub bulk_looks_into_processes: bool,
    /// Where to listen from the beginning, as [`Address`]es are written. Of a configuration that is read back
    /// from an endpoint: where it listens. Default nowhere.
    pub listen: Vec<Address>,
    /// The CPUs that the pool's threads are pinned to, in turn. Default wherever the kernel puts them.
    pub pool_cpus: Vec<u32>,
    /// How many timers may run. Default 65,536.
    pub timers_max: u32,
    /// Count each call by its procedure, with bytes and latencies. Default false.
    pub monitoring: bool,
    /// Let peers end [`serve`](crate::Endpoint::serve) ([`stop_peer`](crate::Calling::stop_peer)). Default
    /// false.
    pub remote_stop: bool,
    /// How much is handed to `tracing`, whose subscriber may let through less. Default all of it.
    pub log_level: LogLevel,
    /// Path of a file with a secret of at least 16 bytes, which both sides of every `tcp://` connection of this
    /// endpoint must prove to know; white space at its end does not count. Only its owner should be able to read
    /// it. Default none: over `tcp://`, **anybody who can reach the port can call**.
    ///
    /// The secret keeps strangers out. What is sent afterwards is neither encrypted nor signed: whoever can
    /// change packets on their way needs `tls://` against him.
    pub secret_file: Option<String>,
    /// Certificates for `tls://`. Default none.
    pub tls: Option<TlsFiles>,
    /// Users that may be at the other end of a `uds://PATH`, either side. Default this user and root.
    pub uds_peers: UdsPeers,
}

/// Files in PEM by which the two sides of a `tls://` connection know each other. Each side shows its
/// certificate and demands the other's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Path of this endpoint's chain of certificates, its own first. Clients look for the host of the address
    /// among its names.
    pub certificates: String,
    /// Path of the private key of the first certificate.
    pub private_key: String,
    /// Path of the certificates of the authorities that sign peers' certificates. No others are trusted, those
    /// of the system among them.
    pub roots: String,
}

/// Users that may be at the other end of a `uds://PATH`, as the kernel tells of a peer (`SO_PEERCRED`).
///
/// In JSON: `"same_user_or_root"`, `{"uids": [33, 1000]}` or `"any"`. `sm://` and `uds://@NAME` are for
/// processes of one user always.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UdsPeers {
    /// The effective user of this process, and root.
    #[default]
    SameUserOrRoot,
    /// These users and nobody else.
    Uids(Vec<u32>),
    /// Everybody whom the file's mode lets in. It is 0600 until it is changed.
    Any,
}

/// How much is logged, in margo's words. Lines go to `tracing`, as of target `handover_rpc`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What nobody can go on after: nothing so far.
    Critical,
    /// And what was lost: ERROR.
    Error,
    /// And what somebody should know, a stranger that does not greet for example: WARN.
    Warning,
    /// And connections that end: INFO.
    Info,
    /// And connections that begin: DEBUG.
    Debug,
    /// And everything else: TRACE.
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
            pool_fibers: false,
            pool_queue_max: 65_536,
            pool_queue_bytes_max: 1 << 28,
            memories_max: 65_536,
            transfers_max: 4096,
            streamed_bytes_min: 1 << 22,
            bulk_maps: true,
            bulk_looks_into_processes: true,
            listen: Vec::new(),
            pool_cpus: Vec::new(),
            timers_max: 65_536,
            monitoring: false,
            remote_stop: false,
            log_level: LogLevel::default(),
            secret_file: None,
            tls: None,
            uds_peers: UdsPeers::default(),
        }
    }
}

/// The most peers that an endpoint may have.
pub(crate) const PEERS_LIMIT: u32 = 1 << 20;
/// The least that a message may be long at most; what a peer says is held to it too.
pub(crate) const MESSAGE_BYTES_LEAST: u32 = 64;
/// The most slots of a direction; what a peer asks for is held to it too.
pub(crate) const SLOTS_LIMIT: u32 = 1 << 16;
/// The most bytes of a direction; what a peer asks for is held to it too.
pub(crate) const SHARED_BYTES_LIMIT: u32 = 1 << 28;

impl Config {
    /// A configuration as JSON, looked at.
    ///
    /// ```
    /// use handover_rpc::Config;
    /// let config = Config::from_json(r#"{"listen": ["tcp://127.0.0.1:0"], "pool_threads": 4}"#)?;
    /// assert_eq!((config.pool_threads, config.spin_ns_max), (4, 20_000));
    /// let refused = Config::from_json(r#"{"pool_thread": 4}"#).unwrap_err().to_string();
    /// assert!(refused.starts_with("unknown field `pool_thread`, expected one of `peers_max`"));
    /// assert_eq!(Config::from_json(&config.to_json())?, config);
    /// # Ok::<(), handover_rpc::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        if !json.trim_start().starts_with('{') {
            // A list would be taken for the values, in their order.
            return Err(ConfigError::Json { said: "an object is wanted: {\"key\": value}".into() });
        }
        let read: Result<Self, _> = serde_json::from_str(json);
        let config = read.map_err(|error| ConfigError::Json { said: error.to_string() })?;
        config.validate()?;
        Ok(config)
    }

    /// All of it as JSON, what was left out with its default.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// Whether everything is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the knob, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("peers_max", self.peers_max, 1, PEERS_LIMIT)?;
        within("calls_max", self.calls_max, 1, 1 << 24)?;
        within(
            "message_bytes_max",
            self.message_bytes_max,
            MESSAGE_BYTES_LEAST,
            SHARED_BYTES_LIMIT / 2,
        )?;
        within("queued_bytes_max", self.queued_bytes_max, 1024, u32::MAX)?;
        within("spin_ns_max", self.spin_ns_max, 0, 1_000_000_000)?;
        within("slots_count", self.slots_count, 2, SLOTS_LIMIT)?;
        power_of_two("slots_count", self.slots_count)?;
        let shared_bytes_min = (2 * self.message_bytes_max).next_power_of_two().max(4096);
        within("shared_bytes", self.shared_bytes, shared_bytes_min, SHARED_BYTES_LIMIT)?;
        power_of_two("shared_bytes", self.shared_bytes)?;
        within("handshake_timeout_ms", self.handshake_timeout_ms, 1, 86_400_000)?;
        within("message_timeout_ms", self.message_timeout_ms, 0, 86_400_000)?;
        within("handshakes_max", self.handshakes_max, 1, PEERS_LIMIT)?;
        within("pool_threads", self.pool_threads, 0, 1024)?;
        within("pool_queue_max", self.pool_queue_max, 1, 1 << 24)?;
        within("pool_queue_bytes_max", self.pool_queue_bytes_max, 1024, u32::MAX)?;
        within("memories_max", self.memories_max, 1, 1 << 24)?;
        within("transfers_max", self.transfers_max, 1, 1 << 20)?;
        within("timers_max", self.timers_max, 1, 1 << 24)
    }
}

/// In lines, as people read it.
pub(crate) fn json(value: &impl Serialize) -> String {
    // Numbers, names and lists of them can always be written.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn within(knob: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::OutOfRange {
            knob,
            value: value.into(),
            min: min.into(),
            max: max.into(),
        }),
    }
}

fn power_of_two(knob: &'static str, value: u32) -> Result<(), ConfigError> {
    match value.is_power_of_two() {
        true => Ok(()),
        false => Err(ConfigError::NoPowerOfTwo { knob, value: value.into() }),
    }
}
