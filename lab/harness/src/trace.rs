//! Recording of a round with probe sites enabled.

use crate::fault::Fault;
use handover_probe::{Config, Recording};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Probe sites to enable in a round, and the destination of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// Empty folder for this recording only; each process writes one file.
    pub folder: PathBuf,
    /// Probe sites, in the form that [`handover_probe::enable`] accepts.
    pub sites: String,
    /// Size of each thread's ring buffer, which holds the thread's newest events.
    pub ring_bytes: u64,
}

/// Recording of this process's probe events, which ends on drop.
pub(crate) struct ActiveRecording<'a> {
    sites: &'a str,
    recording: Option<Recording>,
}

impl<'a> ActiveRecording<'a> {
    pub fn start(to: &'a TraceRequest) -> Result<Self, Fault> {
        let refused = |why: &dyn std::fmt::Display| {
            Fault::new(format!("cannot record the probe events of the round: {why}"))
        };
        let path = to.folder.join(format!("{}.trace", std::process::id()));
        let config = Config::last(path).ring_bytes(to.ring_bytes).threads_max(THREADS_MAX);
        let recording = Recording::start(config).map_err(|error| refused(&error))?;
        handover_probe::enable(&to.sites).map_err(|error| refused(&error))?;
        Ok(ActiveRecording { sites: &to.sites, recording: Some(recording) })
    }
}

impl Drop for ActiveRecording<'_> {
    fn drop(&mut self) {
        // Sites that were enabled can be disabled.
        let _ = handover_probe::disable(self.sites);
        if let Some(recording) = self.recording.take() {
            // The trace also contains the number of lost events.
            let _ = recording.finish();
        }
    }
}

/// Maximum number of threads whose events are recorded. The trace notes if there were more.
const THREADS_MAX: u64 = 2048;

/// Returns the time in ns that the calling thread has waited for a CPU while runnable. Returns
/// `None` if the kernel does not report it.
pub(crate) fn run_delay_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}
