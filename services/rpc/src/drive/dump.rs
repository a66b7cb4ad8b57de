//! What an endpoint is doing, as a document: for whoever asks, and on a signal.

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

/// An endpoint at one moment. As JSON by [`Endpoint::dump`](crate::Endpoint::dump).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dump {
    /// The process.
    pub pid: u32,
    /// The configuration, resolved: `listen` is where it listens.
    pub config: Config,
    /// What was done so far.
    pub stats: Stats,
    /// What was moved so far.
    pub bulk: BulkStats,
    /// Calls of this side that were started and not taken yet.
    pub calls_under_way_count: u32,
    /// Requests that wait until their answers can be sent, or until a handler has returned.
    pub requests_waiting_count: usize,
    /// Timers that run.
    pub timers_count: usize,
    /// Who is connected.
    pub peers: Vec<PeerDump>,
    /// Calls by procedure; empty while nobody monitors.
    pub calls: Vec<CallReport>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerDump {
    /// Which place it has in this endpoint.
    pub place: u32,
    /// Whether messages go through shared memory, and not over a stream.
    pub is_in_memory: bool,
    /// Its process id, where memory is shared with it and it is visible in this pid namespace.
    pub pid: Option<i32>,
    /// How many bytes wait to be sent to it.
    pub queued_bytes: usize,
    /// Memory held for receiving from it, in bytes; besides what is shared.
    pub receive_buffer_bytes: usize,
    /// How long its messages may be, in bytes.
    pub message_bytes_max: usize,
}

/// A signal, on which the endpoint's state goes to a file.
#[derive(Debug)]
pub(crate) struct OnSignal {
    id: SigId,
    /// A byte a signal.
    bell: UnixStream,
    path: PathBuf,
}

impl OnSignal {
    /// # Errors
    /// The call that failed, and why.
    pub(crate) fn new(signal: i32, path: &Path) -> Result<Self, (&'static str, std::io::Error)> {
        let (bell, to) = UnixStream::pair().map_err(|error| ("socketpair", error))?;
        bell.set_nonblocking(true).map_err(|error| ("fcntl", error))?;
        // Nonblocking too, by signal-hook's own doing: a full one is rung already.
        let id = signal_hook::low_level::pipe::register(signal, to);
        let id = id.map_err(|error| ("sigaction", error))?;
        Ok(Self { id, bell, path: path.to_owned() })
    }

    pub(crate) fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// Whether it was rung since last asked.
    pub(crate) fn was_rung(&self) -> bool {
        let (mut rung, mut bytes) = (false, [0; 64]);
        while let Ok(1..) = (&self.bell).read(&mut bytes) {
            rung = true;
        }
        rung
    }

    /// Puts it in the file's place, whole or not at all.
    pub(crate) fn write(&self, text: &str) -> std::io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{:032x}", random()?));
        // A file of this process's own making, under a name that nobody could prepare: O_EXCL follows no link.
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = file.write_all(text.as_bytes());
        written.and_then(|()| std::fs::rename(&beside, &self.path)).inspect_err(|_| {
            // What is half written is of no use.
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
    /// As JSON, in lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::config::json(self)
    }
}
