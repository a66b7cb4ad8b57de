//! Drains the rings of a recording's processes into trace files.

use super::names;
use super::rings::{LaneBlock, RingFile, event_codes};
use super::stream::TraceStreamFile;
use super::trace_paths::{OlderTraces, trace_path};
use handover_base::clock::{self, ClockSource};
use handover_probe::chunk::{Chunk, ChunkPosition};
use handover_probe::format::{
    self, ClockAnchor, TraceHeader, encode_sites, encode_sites_segment, thread,
};
use handover_probe::lane::{BLOCK_HEADER_WORDS, BLOCK_WORDS, event_words_count};
use handover_probe::trace_file;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of events at which a chunk is complete.
const CHUNK_EVENTS: u64 = 1 << 14;
/// Exclusive upper bound of site numbers.
const SITES_END: usize = 1 << 18;
/// Number of drains of the rings between two checks for exited processes.
const DRAINS_PER_LIVENESS_CHECK: u32 = 64;

/// Draining of the rings of all recorded processes into their trace files.
#[derive(Debug, Default)]
pub(super) struct RingDrain {
    /// Folder in which each process creates its ring file.
    folder: PathBuf,
    /// Path of the first process's trace file. The paths of the others have a suffix.
    file: PathBuf,
    /// Traces of an earlier recording, which may be replaced.
    older: OlderTraces,
    /// Names of the ring files that were found so far.
    known_files: HashSet<OsString>,
    processes: Vec<FollowedProcess>,
    /// Messages for the user.
    notes: Vec<String>,
    drains_count: u32,
}

impl RingDrain {
    pub(super) fn new(folder: &Path, file: &Path, older: OlderTraces) -> Self {
        Self { folder: folder.to_owned(), file: file.to_owned(), older, ..Self::default() }
    }

    /// Drains the rings that have enough events. At times, also completes the trace files of exited
    /// processes.
    pub(super) fn drain_full_rings(&mut self) {
        self.find_new_processes();
        self.processes.iter_mut().for_each(|one| one.drain(false));
        self.drains_count += 1;
        if self.drains_count.is_multiple_of(DRAINS_PER_LIVENESS_CHECK) {
            for at in (0..self.processes.len()).rev() {
                if !trace_file::is_process_alive(self.processes[at].rings.header.pid) {
                    self.processes.swap_remove(at).finish(&mut self.notes);
                }
            }
        }
    }

    /// Stops the recording of all processes, and completes their trace files.
    pub(super) fn finish(&mut self, notes: &mut Vec<String>) {
        self.find_new_processes();
        for one in &self.processes {
            // If this fails, the ring is still read as far as it was written.
            let _ = one.rings.request_recording_stop();
        }
        for one in self.processes.drain(..) {
            one.finish(&mut self.notes);
        }
        notes.append(&mut self.notes);
    }

    /// Starts to follow processes that have created a ring file since the last call.
    fn find_new_processes(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut new = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if self.known_files.contains(&name) {
                continue;
            }
            let rings = match RingFile::open(&entry.path()) {
                Ok(Some(rings)) => rings,
                Ok(None) => continue, // it is just being made
                Err(error) => {
                    self.notes.push(format!("{}: {error}", entry.path().display()));
                    self.known_files.insert(name);
                    continue;
                }
            };
            self.known_files.insert(name);
            new.push((rings, entry.path()));
        }
        // The process that began first has the trace file without a suffix.
        new.sort_by_key(|(rings, _)| rings.header.begin.ticks);
        for (rings, path) in new {
            match FollowedProcess::begin(rings, path, &self.file, &self.older) {
                Ok(one) => self.processes.push(one),
                Err(error) => self.notes.push(format!("{}: {error}", self.file.display())),
            }
        }
    }
}

/// Reading position in a lane, which is the ring of one thread.
#[derive(Debug, Default)]
struct LaneCursor {
    /// Offset of the lane in the ring file.
    offset: u64,
    /// Number of the thread that owns the lane. It changes when another thread reuses the lane.
    index: Option<u64>,
    /// Number of the block that contains the next event to read.
    block: u64,
    /// Index of the next event's first word in this block.
    word: usize,
    /// Number of the thread's events in the trace file.
    events_count: u64,
    /// Number of events lost before the last block that was read.
    lost_before: u64,
    /// `true` if the thread has exited and all its events are written.
    is_done: bool,
}

/// Process whose rings are drained to a trace file.
#[derive(Debug)]
struct FollowedProcess {
    rings: RingFile,
    rings_path: PathBuf,
    stream: TraceStreamFile,
    /// Path of the trace file.
    path: PathBuf,
    lanes: Vec<LaneCursor>,
    chunk: Chunk,
    block: LaneBlock,
    /// For each site number: `true` if the trace has an event of the site.
    has_events: Vec<bool>,
    /// Number of site segments that were copied to the trace file.
    copied_site_segments_count: usize,
    /// Number of lost events of exited threads whose lanes were freed.
    lost: u64,
    /// Time that exited threads have waited for space in their rings.
    waited: Duration,
    /// Number of calls of exited threads that were not traced.
    untraced_calls_count: u64,
    /// First error of writing the trace file. It ends the recording of the process.
    failure: Option<io::Error>,
}

impl FollowedProcess {
    /// Creates the trace file of a process. The first process uses `file` itself. Of the finished
    /// traces, only those in `older` are replaced; others are of this recording.
    fn begin(
        rings: RingFile,
        rings_path: PathBuf,
        file: &Path,
        older: &OlderTraces,
    ) -> io::Result<Self> {
        let header = TraceHeader {
            rings: rings_path.to_string_lossy().into_owned(),
            ..rings.header.clone()
        };
        let pid = header.pid;
        let mut attempt = 0;
        let (stream, path) = loop {
            let path = trace_path(file, pid, attempt);
            if trace_file::is_ended_trace(&path) && !older.contains(&path) {
                attempt += 1;
                continue;
            }
            // Named before the file is created: if this process is killed then, both files may
            // exist alone.
            rings.write_stream_path(&path)?;
            match TraceStreamFile::create(&path, &header) {
                Ok(stream) => break (stream, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let (lanes, chunk, block) = Default::default();
        let (has_events, waited, failure) = (vec![false; SITES_END], Duration::ZERO, None);
        Ok(Self {
            rings,
            rings_path,
            stream,
            path,
            lanes,
            chunk,
            block,
            has_events,
            copied_site_segments_count: 0,
            lost: 0,
            waited,
            untraced_calls_count: 0,
            failure,
        })
    }

    /// Drains rings that have enough events, or all rings if `should_drain_all`.
    fn drain(&mut self, should_drain_all: bool) {
        if self.failure.is_none()
            && let Err(error) = self.try_drain(should_drain_all)
        {
            // The program continues and counts further events as lost.
            let _ = self.rings.request_event_loss();
            self.failure = Some(error);
        }
    }

    /// Drains like [`drain`](Self::drain), but returns errors of writing the trace file.
    fn try_drain(&mut self, should_drain_all: bool) -> io::Result<()> {
        self.rings.read_new_segments()?;
        while self.copied_site_segments_count < self.rings.sites.len() {
            let segment = encode_sites_segment(&self.rings.sites[self.copied_site_segments_count]);
            self.stream.append_segment(&segment)?;
            self.copied_site_segments_count += 1;
        }
        for offset in self.rings.lane_offsets[self.lanes.len()..].iter().copied() {
            self.lanes.push(LaneCursor::new(offset));
        }
        for at in 0..self.lanes.len() {
            self.drain_lane(at, should_drain_all)?;
        }
        Ok(())
    }

    /// Drains the lane at index `at` if it has enough events, or its thread has exited. In the
    /// latter case, also frees the lane.
    fn drain_lane(&mut self, at: usize, should_drain_all: bool) -> io::Result<()> {
        let Some(page) = self.rings.read_lane_page(self.lanes[at].offset)? else { return Ok(()) };
        let lane = &mut self.lanes[at];
        let index = page.segment.words[thread::LANE_FIELD];
        if lane.index != Some(index) {
            *lane = LaneCursor { index: Some(index), ..LaneCursor::new(lane.offset) };
            self.stream.append_thread_segment(&page)?;
        }
        if lane.is_done {
            return Ok(());
        }
        let has_ended = page.end_ticks != 0;
        let is_worthwhile =
            self.rings.has_block_begun(lane.offset, lane.block + self.rings.drain_blocks_min())?;
        if should_drain_all || has_ended || is_worthwhile {
            while self.write_chunk(at, should_drain_all || has_ended)? {}
        }
        if has_ended {
            self.stream.append_thread_segment(&page)?;
            self.lost += page.lost;
            self.waited += page.waited;
            self.untraced_calls_count += page.untraced_calls_count;
            self.lanes[at].is_done = true;
            self.rings.free_lane(self.lanes[at].offset)?;
        }
        Ok(())
    }

    /// Writes a chunk of a lane's events. Returns `false` if no further events can be taken. The
    /// chunk takes events of complete blocks or, if `should_drain_all`, all events.
    fn write_chunk(&mut self, at: usize, should_drain_all: bool) -> io::Result<bool> {
        let lane = &mut self.lanes[at];
        self.chunk.clear();
        let (mut block, mut word) = (lane.block, lane.word);
        while self.chunk.events_count() < CHUNK_EVENTS {
            // Checked before the block is read: only then is a complete block read completely.
            let is_complete = self.rings.has_block_begun(lane.offset, block + 1)?;
            if !is_complete && !should_drain_all {
                break;
            }
            if !self.rings.read_block(lane.offset, block, &mut self.block)? {
                break;
            }
            let words = &self.block.words;
            let (base, rest) = (words[1], words.get(word..).unwrap_or_default());
            if !self.chunk.push_block(base, rest) {
                break; // the time base of the event needs the next chunk
            }
            lane.lost_before = words[3];
            let mut words_count = 0;
            for code in event_codes(rest) {
                self.has_events[(code >> 2) as usize] = true;
                words_count += event_words_count(code) as usize;
            }
            word = (word + words_count).min(words.len());
            if !is_complete {
                break;
            }
            (block, word) = (block + 1, BLOCK_HEADER_WORDS as usize);
        }
        let count = self.chunk.events_count();
        if count > 0 {
            let is_begun = word > BLOCK_HEADER_WORDS as usize;
            let position = ChunkPosition {
                lane: lane.index.unwrap_or(0),
                events_before: lane.events_count,
                lost_before: lane.lost_before,
                position_end: block * BLOCK_WORDS + if is_begun { word as u64 } else { 0 },
            };
            self.stream.append_chunk(&mut self.chunk, &position)?;
            lane.events_count += count;
        }
        let has_advanced = block > lane.block;
        (lane.block, lane.word) = (block, word);
        if has_advanced {
            self.rings.mark_blocks_drained(lane.offset, block)?;
        }
        Ok(count > 0 && has_advanced)
    }

    /// Drains the remaining events, and completes the trace file. Also appends the names of
    /// functions.
    fn finish(mut self, notes: &mut Vec<String>) {
        self.drain(true);
        let mut lost = self.lost;
        for lane in &self.lanes {
            let page = self.rings.read_lane_page(lane.offset).ok().flatten();
            if let Some(page) = page.filter(|_| !lane.is_done) {
                // Events that are in the ring and did not get into the file.
                let recorded = self.rings.recorded_events_count(lane.offset).unwrap_or(0);
                lost += page.lost + recorded.saturating_sub(lane.events_count);
                self.waited += page.waited;
                self.untraced_calls_count += page.untraced_calls_count;
                // If this fails, the thread has no end in the trace, which readers handle.
                let _ = self.stream.append_thread_segment(&page);
            }
        }
        if !self.waited.is_zero() {
            notes.push(format!(
                "{path}: threads waited for {waited_ms:.1} ms in all for space in their rings, which is part of the \
                 times of their calls; larger rings (--ring) make this rarer; with --wait 0 events are lost instead",
                path = self.path.display(),
                waited_ms = self.waited.as_secs_f64() * 1e3,
            ));
        }
        if self.untraced_calls_count > 0 {
            notes.push(untraced_calls_note(&self.path, self.untraced_calls_count));
        }
        match self.write_names(notes) {
            Ok(discarded) => lost += discarded,
            Err(error) => notes.push(format!(
                "cannot add the names of functions to {path}: {error}",
                path = self.path.display()
            )),
        }
        let errno = self.failure.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
        let state =
            if self.failure.is_some() { format::STATE_FAILED } else { format::STATE_FINISHED };
        let now = self.rings.read_header();
        let end = if now.end.ticks > now.begin.ticks {
            now.end
        } else if clock::calibration().source == ClockSource::Tsc {
            ClockAnchor::now() // the process has not recorded its own end
        } else {
            // Unknown: the process's clock, the time-stamp counter, is not ours.
            ClockAnchor::default()
        };
        let header = TraceHeader {
            state,
            errno: errno as u64,
            lost: now.lost + lost,
            rings: String::new(),
            end,
            ..now
        };
        match self.stream.write_header(&header) {
            // A failure is harmless: the file only occupies space.
            Ok(()) => drop(std::fs::remove_file(&self.rings_path)),
            Err(error) => notes.push(format!("{}: {error}", self.path.display())),
        }
    }

    /// Appends the names of functions with events. Returns the number of events dropped to make
    /// space.
    fn write_names(&mut self, notes: &mut Vec<String>) -> io::Result<u64> {
        let (modules, mut functions) = self.rings.read_functions()?;
        functions.retain(|(number, ..)| self.has_events.get(*number as usize) == Some(&true));
        if functions.is_empty() {
            return Ok(0);
        }
        let sites = names::resolve_sites(&modules, &functions, notes);
        self.stream.append_dropping_chunks(&encode_sites_segment(&encode_sites(&sites)))
    }
}

impl LaneCursor {
    fn new(offset: u64) -> Self {
        Self { offset, word: BLOCK_HEADER_WORDS as usize, ..Self::default() }
    }
}

/// Returns the message for the user about calls that are not in the trace at `path`.
pub(super) fn untraced_calls_note(path: &Path, count: u64) -> String {
    format!(
        "{path}: number of calls that are not in the trace: {count}. They were nested deeper than --depth permits, or \
         on a stack that the program had created itself",
        path = path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_probe::format::FILE_RINGS;
    use handover_probe::read::Trace;
    use handover_probe::trace_file::with_suffix;

    #[test]
    fn process_that_began_first_gets_the_file_without_a_suffix() {
        let folder = tempfile::tempdir().unwrap();
        let rings = folder.path().join("rings");
        std::fs::create_dir(&rings).unwrap();
        for pid in 1..=8 {
            // Neither the first nor the last file in the folder is that of process 5.
            let begin = ClockAnchor { ticks: u64::from(pid + 3) % 8, ..ClockAnchor::default() };
            let header = TraceHeader { kind: FILE_RINGS, pid, begin, ..TraceHeader::default() };
            std::fs::write(rings.join(pid.to_string()), header.encode()).unwrap();
        }
        let file = folder.path().join("a.trace");
        let mut drain = RingDrain::new(&rings, &file, OlderTraces::default());
        drain.find_new_processes();
        assert_eq!((drain.processes.len(), drain.notes.len()), (8, 0));
        assert_eq!(Trace::open(&file).unwrap().pid(), 5);
    }

    #[test]
    fn trace_of_an_exited_process_of_the_same_recording_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let rings = folder.path().join("rings");
        std::fs::create_dir(&rings).unwrap();
        let file = folder.path().join("a.trace");
        let older = TraceHeader { session: 1, state: format::STATE_FINISHED, ..Default::default() };
        std::fs::write(&file, older.encode()).unwrap();
        let mut drain = RingDrain::new(&rings, &file, OlderTraces::find(&file).unwrap());
        // Greater than any process ID, so that both processes count as exited.
        let pids = [1 << 23, (1 << 23) + 1];
        for pid in pids {
            let session = u64::from(pid);
            let header = TraceHeader { kind: FILE_RINGS, session, pid, ..TraceHeader::default() };
            std::fs::write(rings.join(pid.to_string()), header.encode()).unwrap();
            (0..DRAINS_PER_LIVENESS_CHECK).for_each(|_| drain.drain_full_rings());
            assert_eq!((drain.processes.len(), drain.notes.len()), (0, 0));
        }
        let second = with_suffix(&file, &pids[1].to_string());
        assert_eq!([&file, &second].map(|path| Trace::open(path).unwrap().pid()), pids);
    }
}
