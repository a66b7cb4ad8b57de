//! The files of a recording, and the facts about the process that they hold.

use crate::config::Config;
use crate::format::{self, PAGE_BYTES, SegmentHeader, TraceHeader, thread};
use crate::lane::LaneWords;
use crate::raw::mapping::LaneMemory;
use crate::site::Site;
use crate::thread_entry::ThreadEntry;
use crate::trace_file::{self, reserve_bytes, with_suffix};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// File with the rings into which the threads record. The threads map their lanes; the file also
/// has a header, and segments that list sites.
#[derive(Debug)]
pub(crate) struct RingsFile {
    file: File,
    /// Length of the file in bytes, at which the next segment or lane is appended.
    end: u64,
    /// Number of threads to which a lane was assigned so far.
    pub threads_count: u64,
    /// Offset in the file of the lane that was assigned last.
    pub last_lane_offset: u64,
    /// Number of events written from the rings to the stream's file.
    pub streamed: u64,
}

impl RingsFile {
    /// Creates the file at `path`, with `header` and a list of `sites`.
    pub(crate) fn create(path: &Path, header: &TraceHeader, sites: &[Site]) -> io::Result<Self> {
        let page = TraceHeader { kind: format::FILE_RINGS, ..header.clone() }.encode();
        let file = trace_file::create_trace_file(path, &page)?;
        let mut rings =
            Self { file, end: PAGE_BYTES, threads_count: 0, last_lane_offset: 0, streamed: 0 };
        rings.add_sites(sites).inspect_err(|_| trace_file::discard_trace_file(path))?;
        Ok(rings)
    }

    /// Writes `header` to the file, with the kind [`format::FILE_RINGS`].
    pub(crate) fn write_header(&self, header: &TraceHeader) -> io::Result<()> {
        let page = TraceHeader { kind: format::FILE_RINGS, ..header.clone() }.encode();
        self.file.write_all_at(&page, 0)
    }

    /// Appends a segment that lists `sites`.
    pub(crate) fn add_sites(&mut self, sites: &[Site]) -> io::Result<()> {
        let mut payload = format::encode_sites(sites);
        // Padded to a whole page: lanes begin at page boundaries.
        let bytes = format::SEGMENT_BYTES + payload.len() as u64;
        let padded = bytes.next_multiple_of(PAGE_BYTES) - format::SEGMENT_BYTES;
        payload.resize(padded as usize, 0);
        let segment = format::encode_sites_segment(&payload);
        self.file.write_all_at(&segment, self.end)?;
        self.end += segment.len() as u64;
        Ok(())
    }

    /// Unlocks the file. Call it after the last write to the file.
    pub(crate) fn release(&self) {
        trace_file::unlock_file(&self.file);
    }

    /// Removes the file at `path`, unless `path` now names another file.
    pub(crate) fn remove(&self, path: &Path) {
        if trace_file::is_at_path(&self.file, path) {
            // A failure only leaves the file in place.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Appends a lane to the file and returns its memory mapping. Preallocates the lane's disk
    /// blocks, so that writes to the mapping cannot fail for lack of space.
    pub(crate) fn add_lane(&mut self, words_count: u64) -> io::Result<LaneMemory> {
        let bytes = PAGE_BYTES + words_count * 8;
        reserve_bytes(&self.file, self.end, bytes)?;
        let memory = LaneMemory::map(&self.file, self.end, words_count)?;
        self.last_lane_offset = self.end;
        self.end += bytes;
        self.threads_count += 1;
        Ok(memory)
    }

    /// Maps the lane at `offset` and clears it, so that another thread can reuse it.
    pub(crate) fn clear_lane(&mut self, offset: u64, words_count: u64) -> io::Result<LaneMemory> {
        let memory = LaneMemory::map(&self.file, offset, words_count)?;
        memory.clear(0, words_count);
        for word in 0..PAGE_BYTES as usize / 8 {
            memory.header_word(word).store(0, handover_base::sync::shared::Ordering::Relaxed);
        }
        self.last_lane_offset = offset;
        self.threads_count += 1;
        Ok(memory)
    }

    /// Writes the description of a thread into its lane's header. The header's flag says if new
    /// events overwrite old ones.
    pub(crate) fn write_lane_thread(
        &self,
        entry: &ThreadEntry,
        overwrites: bool,
    ) -> io::Result<()> {
        let name = truncated_name(&entry.name);
        let mut words = thread_words(entry);
        words[thread::OVERWRITES_FIELD] = overwrites.into();
        let bytes = PAGE_BYTES + entry.lane.words().count() * 8;
        let segment =
            SegmentHeader { kind: format::SEGMENT_LANE, bytes, payload_checksum: 0, words };
        self.file.write_all_at(name, entry.offset + thread::PAGE_NAME_OFFSET_BYTES as u64)?;
        self.file.write_all_at(&segment.encode(), entry.offset)
    }
}

/// Encodes the segment that describes a thread.
pub(crate) fn thread_segment(entry: &ThreadEntry) -> Vec<u8> {
    SegmentHeader::encode_with_payload(
        format::SEGMENT_THREAD,
        thread_words(entry),
        truncated_name(&entry.name),
    )
}

/// Encodes a thread's numbers, such as its ID, as words for its segment's header.
fn thread_words(entry: &ThreadEntry) -> [u64; 8] {
    let (recorded, lost) = entry.lane.recorded_and_lost_counts();
    let mut words = [0; 8];
    words[thread::LANE_FIELD] = entry.index;
    words[thread::TID_FIELD] = entry.tid;
    words[thread::BEGIN_FIELD] = entry.begin_ticks;
    words[thread::END_FIELD] = entry.end_ticks;
    words[thread::RECORDED_FIELD] = recorded;
    words[thread::LOST_FIELD] = lost;
    words[thread::NAME_BYTES_FIELD] = truncated_name(&entry.name).len() as u64;
    words
}

/// Truncates a thread's name to [`thread::NAME_BYTES_MAX`] bytes, at a character boundary.
fn truncated_name(name: &str) -> &[u8] {
    let end =
        (0..=name.len().min(thread::NAME_BYTES_MAX)).rev().find(|at| name.is_char_boundary(*at));
    &name.as_bytes()[..end.unwrap_or(0)]
}

/// Folder in which files of rings are created by default. It is in memory, so that the rings
/// outlive their process without disk I/O.
const RINGS_FOLDER: &str = "/dev/shm";
/// Prefix of the names of files of rings in [`RINGS_FOLDER`].
const RINGS_PREFIX: &str = "handover-rings.";

/// Returns the path for the file of rings. It is the configured one, else one in [`RINGS_FOLDER`],
/// else one beside the trace.
pub(crate) fn rings_path(config: &Config, session: u64) -> PathBuf {
    if let Some(path) = &config.rings_path {
        return path.clone();
    }
    let memory = Path::new(RINGS_FOLDER);
    if memory.is_dir() && rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok() {
        return memory.join(format!("{RINGS_PREFIX}{}.{session:016x}", std::process::id()));
    }
    with_suffix(config.path(), "rings")
}

/// Returns the absolute path of a recording's file, with symbolic links resolved if it exists.
/// Readers open it later, from another folder, and follow no links.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Removes the files of rings that killed processes left behind. Files with the last events of an
/// existing trace stay.
pub(crate) fn remove_stale_rings() {
    for entry in std::fs::read_dir(RINGS_FOLDER).into_iter().flatten().flatten() {
        let is_rings = entry.file_name().to_string_lossy().starts_with(RINGS_PREFIX);
        if is_rings && !trace_file::is_rings_file_needed(&entry.path()) {
            // Fails for another user's file, which then stays.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the ID of the machine's current boot. Time stamps of different boots are not comparable.
pub(crate) fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range: std::ops::Range<usize>| {
        digits.get(range).and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or(0)
    };
    [half(0..16), half(16..32)]
}

/// Returns the path of the running program; empty if unknown.
pub(crate) fn program_path() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.to_string_lossy().into_owned()
}

/// Returns the name of the calling thread, from Rust or else from the kernel.
pub(crate) fn thread_name() -> String {
    if let Some(name) = std::thread::current().name() {
        return name.to_owned();
    }
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}
