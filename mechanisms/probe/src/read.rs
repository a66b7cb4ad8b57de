//! Reader of traces: the events of each thread in time order, and counts of the missing ones.
//!
//! ```
//! # use handover_probe::{Config, Recording, disable, enable, probe, span, read::Trace};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("a.trace");
//! # if cfg!(miri) { return Ok(()); }
//! # let recording = Recording::start(Config::stream(&path))?;
//! # enable("doc.*")?;
//! # { let _span = span!("doc.work"); probe!("doc.found", 42); }
//! # disable("doc.*")?;
//! # let summary = recording.finish();
//! let trace = Trace::open(&path)?;
//! for event in trace.merged_events() {
//!     let name = trace.site(event.site).map_or("?", |site| &site.name);
//!     println!("{:>12} ns {:?} {name} {:?}", trace.ns_from_ticks(event.ticks), event.kind, event.values());
//! }
//! assert_eq!(trace.merged_events().count(), 3);
//! assert_eq!(trace.missing_events().total_count(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No input makes the reader panic, and data counts only if its checksum is right: damage is
//! skipped and counted. A file is read twice, once when it is opened and once by the iterators,
//! which hold one chunk or block of each thread in memory.
//!
//! Layers, each of which depends only on those above it: `source`; `thread`; `index`, which finds
//! the parts of the files that hold each thread's events; `trace`; `events`, which decodes one
//! thread's; `merged`.

mod events;
mod index;
mod merged;
mod repair;
mod source;
mod thread;
mod trace;

pub use events::{Event, EventKind, Events};
pub use merged::{MergeError, MergedEvents, MergedTraces, merge};
#[doc(hidden)]
pub use repair::repair_checksums;
pub use source::ReadAt;
pub(crate) use source::read_full;
pub use thread::{MissingEvents, Thread};
pub use trace::{RecordingState, Trace};

use crate::trace_file::with_suffix;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the paths of the traces of a process and of its forks, or of other processes that were
/// recorded with it. `path` is the first, then each `path.PID` follows, sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn find_traces(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![path.to_owned()];
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let other = entry?.file_name().to_string_lossy().into_owned();
        let suffix = other.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
        let is_pids = |suffix: &&str| suffix.split('.').all(|pid| pid.parse::<u32>().is_ok());
        // Not the entry's path, which has a folder even if `path` has none.
        found.extend(suffix.filter(is_pids).map(|suffix| with_suffix(path, suffix)));
    }
    found[1..].sort();
    Ok(found)
}
