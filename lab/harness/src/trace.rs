//! A round that is recorded: the probes' sites are on while it lasts.

use crate::fault::Fault;
use handover_probe::{Config, Recording};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which sites are on in a round, and where what they say goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTo {
    /// A folder, empty and nobody else's: a file a process comes to lie in it.
    pub folder: PathBuf,
    /// The sites, as [`handover_probe::enable`] takes them.
    pub sites: String,
    /// Of each thread's events the newest are kept, in so much memory.
    pub ring_bytes: u64,
}

/// While it lives, this process is recorded.
pub(crate) struct Tracing<'a> {
    sites: &'a str,
    recording: Option<Recording>,
}

impl<'a> Tracing<'a> {
    pub fn begin(to: &'a TraceTo) -> Result<Self, Fault> {
        let refused = |why: &dyn std::fmt::Display| Fault::new(format!("cannot record: {why}"));
        let path = to.folder.join(format!("{}.trace", std::process::id()));
        let config = Config::last(path).ring_bytes(to.ring_bytes).threads_max(THREADS_MAX);
        let recording = Recording::start(config).map_err(|error| refused(&error))?;
        handover_probe::enable(&to.sites).map_err(|error| refused(&error))?;
        Ok(Tracing { sites: &to.sites, recording: Some(recording) })
    }
}

impl Drop for Tracing<'_> {
    fn drop(&mut self) {
        // What was switched on can be switched off.
        let _ = handover_probe::disable(self.sites);
        if let Some(recording) = self.recording.take() {
            // What is lost stands in the trace, too.
            let _ = recording.finish();
        }
    }
}

/// More parties than this have no ring, and the trace says so.
const THREADS_MAX: u64 = 2048;

/// How long the calling thread has waited for a CPU while it could have run, in ns; `None` where the
/// kernel does not tell.
pub(crate) fn run_delay_ns() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_ascii_whitespace().nth(1)?.parse().ok()
}
