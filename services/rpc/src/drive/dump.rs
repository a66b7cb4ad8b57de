//! Counters and snapshots of an endpoint, for printing with serde.

use super::bulk::BulkStats;
#[cfg(feature = "monitoring")]
use super::monitor::CallReport;
use crate::Config;
use serde::Serialize;

/// Counters of calls, requests and connections of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Number of connected peers.
    pub peers_count: u32,
    /// Number of calls started by this endpoint.
    pub calls_count: u64,
    /// Number of peers' requests that were handled or refused.
    pub requests_count: u64,
    /// Number of answers that arrived after their call was completed or cancelled.
    pub late_count: u64,
    /// Number of connections that were closed.
    pub closed_count: u64,
    /// Number of connections that were refused or failed in the handshake.
    pub turned_away_count: u64,
    /// Number of times that the endpoint's thread went to sleep.
    pub sleeps_count: u64,
}

/// Snapshot of an endpoint, returned by [`Endpoint::dump`](crate::Endpoint::dump).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dump {
    /// Process id of the endpoint.
    pub pid: u32,
    /// Configuration of the endpoint, with the actual addresses in `listen`.
    pub config: Config,
    /// Counters of calls, requests and connections.
    pub stats: Stats,
    /// Counters of bulk transfers.
    pub bulk: BulkStats,
    /// Number of calls of this endpoint whose results were not returned yet.
    pub calls_under_way_count: u32,
    /// Number of peers' requests that are deferred. They wait until answers can be sent, or until a
    /// running handler has returned.
    pub requests_waiting_count: usize,
    /// Number of running timers.
    pub timers_count: usize,
    /// Snapshots of the connected peers.
    pub peers: Vec<PeerDump>,
    /// Statistics of calls by procedure; empty without monitoring.
    #[cfg(feature = "monitoring")]
    pub calls: Vec<CallReport>,
}

/// Snapshot of a connected peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerDump {
    /// Index of the peer in the endpoint's table.
    pub slot: u32,
    /// `true` if messages go through shared memory, `false` if they go over a stream or UCX.
    pub is_in_memory: bool,
    /// Process id of the peer. `None` if the peer shares no memory with this endpoint, or is not
    /// visible in this pid namespace.
    pub pid: Option<i32>,
    /// Number of bytes queued for sending to the peer.
    pub queued_bytes: usize,
    /// Size of the buffer for receiving from the peer's stream, in bytes; 0 if there is no stream.
    pub receive_buffer_bytes: usize,
    /// Maximum length of messages to the peer, in bytes.
    pub message_bytes_max: usize,
}
