//! Snapshot of an endpoint's state as JSON, on request and on a signal.

use super::bulk::BulkStats;
use super::monitor::CallReport;
use super::random::random;
use super::state::{State, Stats};
use crate::{Config, EndpointError};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::SigId;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Snapshot of an endpoint, returned by [`Endpoint::dump`](crate::Endpoint::dump).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dump {
    /// Process id.
    pub pid: u32,
    /// Resolved configuration: `listen` has the actual addresses.
    pub config: Config,
    /// Counters of calls, requests and connections.
    pub stats: Stats,
    /// Counters of bulk transfers.
    pub bulk: BulkStats,
    /// Number of calls of this side that were started and not taken yet.
    pub calls_under_way_count: u32,
    /// Number of requests that wait until their answers can be sent, or until a handler has
    /// returned.
    pub requests_waiting_count: usize,
    /// Number of running timers.
    pub timers_count: usize,
    /// Connected peers.
    pub peers: Vec<PeerDump>,
    /// Calls by procedure; empty without monitoring.
    pub calls: Vec<CallReport>,
}

/// Snapshot of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerDump {
    /// Index in the endpoint's table of peers.
    pub place: u32,
    /// `true` if messages go through shared memory, `false` if they go over a stream.
    pub is_in_memory: bool,
    /// Process id of the peer, if memory is shared with it and it is visible in this pid namespace.
    pub pid: Option<i32>,
    /// Number of bytes queued for sending to the peer.
    pub queued_bytes: usize,
    /// Size of the buffer for receiving from the peer, in bytes, without shared memory.
    pub receive_buffer_bytes: usize,
    /// Maximum length of messages to the peer, in bytes.
    pub message_bytes_max: usize,
}

/// Signal on which the endpoint's state is written to a file.
#[derive(Debug)]
pub(crate) struct OnSignal {
    id: SigId,
    /// Receives one byte for each signal.
    bell: UnixStream,
    path: PathBuf,
}

impl OnSignal {
    /// # Errors
    /// The system call that failed, and its error.
    pub(crate) fn new(signal: i32, path: &Path) -> Result<Self, (&'static str, std::io::Error)> {
        let (bell, to) = UnixStream::pair().map_err(|error| ("socketpair", error))?;
        bell.set_nonblocking(true).map_err(|error| ("fcntl", error))?;
        // signal-hook makes this end nonblocking. If the socket's buffer is full, a wake-up is
        // already pending.
        let id = signal_hook::low_level::pipe::register(signal, to);
        let id = id.map_err(|error| ("sigaction", error))?;
        Ok(Self { id, bell, path: path.to_owned() })
    }

    pub(crate) fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// Returns `true` if the signal came since the last call.
    pub(crate) fn was_rung(&self) -> bool {
        let (mut rung, mut bytes) = (false, [0; 64]);
        while let Ok(1..) = (&self.bell).read(&mut bytes) {
            rung = true;
        }
        rung
    }

    /// Replaces the file with `text` atomically.
    pub(crate) fn write(&self, text: &str) -> std::io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{:032x}", random()?));
        // The random name cannot be prepared by others, and O_EXCL creates the file without
        // following links.
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = file.write_all(text.as_bytes());
        written.and_then(|()| std::fs::rename(&beside, &self.path)).inspect_err(|_| {
            // Removes the incomplete file.
            let _ = std::fs::remove_file(&beside);
        })
    }
}

impl Drop for OnSignal {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

pub(crate) fn refused((call, error): (&'static str, std::io::Error)) -> EndpointError {
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    EndpointError::Refused { call, place: "a signal".into(), errno }
}

impl State {
    pub(crate) fn dump(&self) -> Dump {
        Dump {
            pid: std::process::id(),
            config: self.config.clone(),
            stats: self.stats(),
            bulk: self.bulk.stats,
            calls_under_way_count: self.calls.count(),
            requests_waiting_count: self.put_off_count(),
            timers_count: self.timers.count(),
            peers: self.peer_dumps(),
            calls: self.monitor.as_ref().map_or_else(Vec::new, |it| it.report()),
        }
    }
}

impl Dump {
    /// Returns the snapshot as pretty-printed JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::config::json(self)
    }
}
