//! Description of a recorded thread.

use crate::lane::Lane;
use crate::raw::mapping::LaneMemory;
use handover_base::sync::Arc;

/// Recorded thread: its name, times, and lane.
#[derive(Debug, Clone)]
pub(crate) struct ThreadEntry {
    /// Number of the thread in its recording. Threads are numbered from 0 as they are assigned
    /// lanes.
    pub index: u64,
    pub tid: u64,
    pub name: String,
    /// Time stamp at which the thread started to record.
    pub begin_ticks: u64,
    /// Time stamp of the thread's exit; zero while it runs.
    pub end_ticks: u64,
    /// Offset of the thread's lane in the file of rings.
    pub offset: u64,
    /// `true` if all events of the thread are in the stream. Another thread may then reuse the
    /// lane.
    pub is_streamed: bool,
    pub lane: Arc<Lane<LaneMemory>>,
}
