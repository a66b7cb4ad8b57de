//! Threads of a trace: the parts of its files that hold their events, and counts of missing ones.

/// One of the two files of a trace: the stream, or the file of rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceFile {
    Stream,
    Rings,
}

/// Part of a trace's file with consecutive events of one thread. It is a chunk of a stream, or a
/// block of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) enum TracePiece {
    /// Chunk of a stream, with the offset of its events in the file.
    Chunk { offset: u64, bytes: usize, base_ticks: u64, is_packed: bool },
    /// Block of a ring, with its number, or its events from the word `from_word` on.
    Block { file: TraceFile, offset: u64, number: u64, from_word: u64 },
}

/// Numbers of events that are missing from a trace, one for each cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingEvents {
    /// Events lost while recording, because of a full ring, a full disk or a missing ring.
    pub lost: u64,
    /// Events that newer events have overwritten, with [`Policy::Last`](crate::Policy::Last). They
    /// are not part of [`total_count`](Self::total_count).
    pub overwritten: u64,
    /// Events in a part of the file that is damaged or missing.
    pub damaged: u64,
    /// Upper bound of the number of events in rings that no longer exist. It is zero unless the
    /// process was killed and its rings were removed. Threads that began after the last write to
    /// the stream are unknown, and count as one.
    pub unread_max: u64,
}

impl MissingEvents {
    /// Returns an upper bound of the number of missing events, not counting overwritten ones.
    #[must_use]
    pub fn total_count(&self) -> u64 {
        self.lost.saturating_add(self.damaged).saturating_add(self.unread_max)
    }

    pub(super) fn add(&mut self, other: MissingEvents) {
        self.lost = self.lost.saturating_add(other.lost);
        self.overwritten = self.overwritten.saturating_add(other.overwritten);
        self.damaged = self.damaged.saturating_add(other.damaged);
        self.unread_max = self.unread_max.saturating_add(other.unread_max);
    }
}

/// Recorded thread of a trace.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Thread {
    /// Number of the thread in the trace, in the order in which threads started to record.
    pub number: u64,
    /// Thread ID of the kernel.
    pub tid: u64,
    /// Name of the thread.
    pub name: String,
    /// Time stamp at which the thread started to record.
    pub begin_ticks: u64,
    /// Time stamp of the thread's exit. It is `None` if the thread outlived the recording, or the
    /// exit is unknown.
    pub end_ticks: Option<u64>,
    /// Number of the thread's events that can be read.
    pub events_count: u64,
    /// Numbers of the thread's missing events, one for each cause.
    pub missing: MissingEvents,
    pub(super) pieces: Vec<TracePiece>,
}
