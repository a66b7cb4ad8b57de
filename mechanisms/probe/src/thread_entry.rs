//! Description of a recorded thread.

use crate::lane::Lane;
use crate::raw::mapping::Memory;
use handover_base::sync::Arc;

/// A thread's entry in the recording.
#[derive(Debug, Clone)]
pub(crate) struct ThreadEntry {
    /// Number of the thread among those that got a lane, from 0; unique within a recording.
    pub index: u64,
    pub tid: u64,
    pub name: String,
    pub begin_ticks: u64,
    /// Zero while the thread lives.
    pub end_ticks: u64,
    /// Offset of the thread's lane in the rings' file.
    pub offset: u64,
    /// `true` if all events are in the stream, so that another thread may take the lane.
    pub is_streamed: bool,
    pub lane: Arc<Lane<Memory>>,
}
