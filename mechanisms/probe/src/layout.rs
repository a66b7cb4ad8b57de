//! Numbers of a trace's format: the one definition for this crate and for the recording library in
//! C.
//!
//! The build script of handover-trace includes this file and writes a C header from it, so it
//! depends on nothing.

/// Magic number of a trace: the first word of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HANDPRB1");
/// Magic number of a segment: the lower half of its first word.
pub const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"hpsg");
/// Size in bytes of a file's header, and of a lane's header.
pub const PAGE_BYTES: u64 = 4096;
/// Number of words of a segment's header.
pub const SEGMENT_WORDS: usize = 12;
/// Size of a segment's header in bytes.
pub const SEGMENT_BYTES: u64 = 8 * SEGMENT_WORDS as u64;
/// Maximum size of a segment in bytes. A header with a larger size is damaged.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 33;

/// Kind of a file of rings.
pub const FILE_RINGS: u64 = 1;
/// Kind of the file of a stream.
pub const FILE_STREAM: u64 = 2;

/// Kind of a segment that lists sites.
pub const SEGMENT_SITES: u32 = 1;
/// Kind of a segment with a header page and the ring of a lane.
pub const SEGMENT_LANE: u32 = 2;
/// Kind of a segment that describes a thread.
pub const SEGMENT_THREAD: u32 = 3;
/// Kind of a segment with a chunk of events encoded as varints.
pub const SEGMENT_CHUNK: u32 = 4;
/// Kind of a segment that describes a module: a program or shared object with traced functions.
pub const SEGMENT_MODULES: u32 = 5;
/// Kind of a segment with a header page and a table of functions. The table has the functions'
/// addresses, indexed by number.
pub const SEGMENT_FUNCTIONS: u32 = 6;
/// Kind of a segment with a chunk of packed events, of four bytes each.
pub const SEGMENT_PACKED: u32 = 7;

/// State of a file that is being recorded.
pub const STATE_RECORDING: u64 = 0;
/// State of a file whose recording was finished normally.
pub const STATE_FINISHED: u64 = 1;
/// State of a file whose recording stopped because of an error.
pub const STATE_FAILED: u64 = 2;

/// Indices of the fields of a file's header, in words.
pub mod header {
    /// Index of the magic number.
    pub const MAGIC_FIELD: usize = 0;
    /// Index of the file's kind, `FILE_RINGS` or `FILE_STREAM`.
    pub const KIND_FIELD: usize = 1;
    /// Index of the number that identifies the recording.
    pub const SESSION_FIELD: usize = 2;
    /// Index of the word with the process ID (lower half) and the parent's process ID (upper half).
    pub const PIDS_FIELD: usize = 3;
    /// Index of a flag that is set if ticks are the time-stamp counter.
    pub const IS_TSC_FIELD: usize = 4;
    /// Index of the number of ticks per second.
    pub const TICKS_HZ_FIELD: usize = 5;
    /// Index of the first of three clock readings at the recording's start. They are ticks,
    /// CLOCK_MONOTONIC and CLOCK_REALTIME.
    pub const BEGIN_FIELD: usize = 6;
    /// Index of the first of two words with the ID of the machine's boot.
    pub const BOOT_FIELD: usize = 9;
    /// Index of the number of words of each thread's ring.
    pub const RING_WORDS_FIELD: usize = 11;
    /// Index of the time at which the process started, in clock ticks since the boot; 0 if unknown.
    pub const PROCESS_START_FIELD: usize = 12;
    /// Index of the checksum of all earlier words. The words after it change during the recording.
    pub const CHECKSUM_FIELD: usize = 15;
    /// Index of the first of three clock readings at the recording's end. They are ticks,
    /// CLOCK_MONOTONIC and CLOCK_REALTIME.
    pub const END_FIELD: usize = 16;
    /// Index of the recording's state, one of the constants `STATE_*`.
    pub const STATE_FIELD: usize = 19;
    /// Index of the error number (errno) if recording has failed.
    pub const ERRNO_FIELD: usize = 20;
    /// Index of the number of lost events.
    pub const LOST_FIELD: usize = 21;
    /// Index of the number of threads that recorded nothing because no lane was free.
    pub const REFUSED_FIELD: usize = 22;
    /// Index of the number of events discarded because their lane was reused.
    pub const OVERWRITTEN_FIELD: usize = 23;
    /// Number of words of the header that are used.
    pub const WORDS_COUNT: usize = 24;
    /// Index of the flag that tells the recorded process to stop recording. The process that drains
    /// the rings sets it.
    pub const CLOSED_FIELD: usize = 24;
    /// Byte offset of the program's path in the header.
    pub const PROGRAM_PATH_OFFSET_BYTES: usize = 512;
    /// Byte offset, in the header, of the path of the file of rings.
    pub const RINGS_PATH_OFFSET_BYTES: usize = 1024;
    /// Byte offset, in the header, of the path of the stream's file.
    pub const STREAM_PATH_OFFSET_BYTES: usize = 3072;
}

/// Indices of the fields of a chunk, in the words of its segment's header.
pub mod chunk {
    /// Index of the number of the lane from which the events were read.
    pub const LANE_FIELD: usize = 0;
    /// Index of the number of events in the chunk.
    pub const EVENTS_FIELD: usize = 1;
    /// Index of the time stamp of the chunk's first event.
    pub const BASE_FIELD: usize = 2;
    /// Index of the position in the lane's ring after the chunk's last event.
    pub const POSITION_END_FIELD: usize = 3;
    /// Index of the number of the thread's events in earlier chunks.
    pub const EVENTS_BEFORE_FIELD: usize = 4;
    /// Index of the number of the thread's events lost before the chunk.
    pub const LOST_BEFORE_FIELD: usize = 5;
    /// Index of the time stamp of the chunk's last event.
    pub const LAST_FIELD: usize = 6;
    /// Index of the length of the payload in bytes, without padding.
    pub const PAYLOAD_BYTES_FIELD: usize = 7;
}

/// Indices of a thread's and a lane's fields among the words of the segment's header. A lane's
/// counts change all the time, and are words of its page (`PAGE_*`) after the segment's header.
pub mod thread {
    /// Index of the number of the lane, which is also the thread's number.
    pub const LANE_FIELD: usize = 0;
    /// Index of the thread ID of the kernel.
    pub const TID_FIELD: usize = 1;
    /// Index of the time stamp at which the thread started to record.
    pub const BEGIN_FIELD: usize = 2;
    /// Index of the time stamp of the thread's exit.
    pub const END_FIELD: usize = 3;
    /// Index of the number of events that the thread recorded.
    pub const RECORDED_FIELD: usize = 4;
    /// Index of the number of events that the thread lost.
    pub const LOST_FIELD: usize = 5;
    /// Index of the length of the thread's name in bytes.
    pub const NAME_BYTES_FIELD: usize = 6;
    /// Index, in a lane's page, of the number of recorded events.
    pub const PAGE_RECORDED_FIELD: usize = 16;
    /// Index, in a lane's page, of the number of lost events.
    pub const PAGE_LOST_FIELD: usize = 17;
    /// Index, in a lane's page, of the time stamp of the thread's exit.
    pub const PAGE_END_FIELD: usize = 18;
    /// Index, in a lane's page, of the number of blocks that another process has drained.
    pub const PAGE_DRAINED_FIELD: usize = 19;
    /// Index, in a lane's page, of a flag that is set once another thread may reuse the lane.
    pub const PAGE_FREE_FIELD: usize = 20;
    /// Index, in a lane's page, of the time, in ns, that the thread has waited for space. Only the
    /// recording library in C writes it.
    pub const PAGE_WAITED_NS_FIELD: usize = 21;
    /// Index, in a lane's page, of the number of calls that were not traced because they were
    /// nested too deeply or on another stack than the thread's. Only the recording library in C
    /// writes it.
    pub const PAGE_UNTRACED_CALLS_FIELD: usize = 22;
    /// Index of a flag that is set if the lane's new events overwrite old ones.
    pub const OVERWRITES_FIELD: usize = 7;
    /// Byte offset of the thread's name in a lane's page.
    pub const PAGE_NAME_OFFSET_BYTES: usize = 256;
    /// Maximum length of a thread's name in bytes.
    pub const NAME_BYTES_MAX: usize = 64;
}

/// Fields of a table of functions: a header page, then one word for each function.
pub mod functions {
    /// Index of the field with the first function's number.
    pub const FIRST_FIELD: usize = 0;
    /// Index of the field with the number of functions.
    pub const COUNT_FIELD: usize = 1;
    /// Flag that is set in each word that contains a function.
    pub const PRESENT_FLAG: u64 = 1 << 63;
    /// Position of the module's number in the word of a function, in bits.
    pub const MODULE_SHIFT: u32 = 48;
}

/// Size of a block of events in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Number of words of a block's header. They are the block's number, its base time, and the numbers
/// of events recorded and lost before it.
pub const BLOCK_HEADER_WORDS: u64 = 4;
/// Number of low bits of an event that contain its code: the site's number and the form.
pub const CODE_BITS: u32 = 20;
/// Form (the lowest two bits) of the event at the end of a span.
pub const FORM_LEAVE: u64 = 3;

/// Multiplier of the checksum's hash: 2^64 divided by the golden ratio.
pub const CHECKSUM_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
