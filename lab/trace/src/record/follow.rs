//! Drains the rings of a recording's processes into trace files.

use super::names;
use super::rings::{Block, Rings, codes};
use super::stream::{Stream, sites_segment};
use handover_probe::chunk::{Chunk, Whose};
use handover_probe::claim::{self, with_suffix};
use handover_probe::format::{self, Header, encode_sites, thread};
use handover_probe::lane::{BLOCK_HEADER_WORDS, BLOCK_WORDS, words_of};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Number of events from which on a chunk is written.
const CHUNK_EVENTS: u64 = 1 << 14;
/// Upper bound of all sites' numbers.
const SITES_END: usize = 1 << 18;
/// Number of rounds between two checks whether processes still live.
const LOOKS_EACH: u32 = 64;

#[derive(Debug)]
pub(super) struct Follower {
    folder: PathBuf,
    file: PathBuf,
    known: HashSet<OsString>,
    followed: Vec<Followed>,
    done: Vec<PathBuf>,
    notes: Vec<String>,
    looks_count: u32,
}

impl Follower {
    pub(super) fn new(folder: &Path, file: &Path) -> Self {
        let (known, followed, done, notes) = Default::default();
        let (folder, file) = (folder.to_owned(), file.to_owned());
        Self { folder, file, known, followed, done, notes, looks_count: 0 }
    }

    /// Drains rings that have enough events, and finishes the files of ended processes.
    pub(super) fn look(&mut self) {
        self.meet();
        self.followed.iter_mut().for_each(|one| one.look(false));
        self.looks_count += 1;
        if self.looks_count.is_multiple_of(LOOKS_EACH) {
            for at in (0..self.followed.len()).rev() {
                if !claim::lives(self.followed[at].rings.header.pid) {
                    let one = self.followed.swap_remove(at);
                    self.done.push(one.finish(&mut self.notes));
                }
            }
        }
    }

    /// Drains all events, and finishes all files.
    pub(super) fn finish(&mut self, notes: &mut Vec<String>) {
        self.meet();
        for one in &self.followed {
            // If this fails, the ring is still read as far as it was written.
            let _ = one.rings.close();
        }
        for one in self.followed.drain(..) {
            self.done.push(one.finish(&mut self.notes));
        }
        notes.append(&mut self.notes);
    }

    /// Returns the paths of the files that were written.
    pub(super) fn paths(self) -> Vec<PathBuf> {
        self.done
    }

    /// Finds processes that have begun to record.
    fn meet(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if self.known.contains(&name) {
                continue;
            }
            let rings = match Rings::open(&entry.path()) {
                Ok(Some(rings)) => rings,
                Ok(None) => continue, // it is just being made
                Err(error) => {
                    self.notes.push(format!("{}: {error}", entry.path().display()));
                    self.known.insert(name);
                    continue;
                }
            };
            self.known.insert(name);
            match Followed::begin(rings, entry.path(), &self.file) {
                Ok(one) => self.followed.push(one),
                Err(error) => self.notes.push(format!("{}: {error}", self.file.display())),
            }
        }
    }
}

#[derive(Debug)]
struct Lane {
    offset: u64,
    /// Number of its thread; changes when the lane is given to another thread.
    index: Option<u64>,
    /// Position of the next event to read: block, and word in it.
    block: u64,
    word: usize,
    events_count: u64,
    lost_before: u64,
    is_done: bool,
}

#[derive(Debug)]
struct Followed {
    rings: Rings,
    rings_path: PathBuf,
    stream: Stream,
    path: PathBuf,
    lanes: Vec<Lane>,
    chunk: Chunk,
    block: Block,
    /// Sites with at least one event, by their number.
    seen: Vec<bool>,
    sites_count: usize,
    /// Lost events of threads that have ended and whose lanes were freed.
    lost: u64,
    failure: Option<io::Error>,
}

impl Followed {
    /// Creates the trace file of a process: the first process gets the file's own name.
    fn begin(rings: Rings, rings_path: PathBuf, file: &Path) -> io::Result<Self> {
        let header =
            Header { rings: rings_path.to_string_lossy().into_owned(), ..rings.header.clone() };
        let pid = header.pid;
        let beside = |again: u32| match again {
            0 => file.to_owned(),
            1 => with_suffix(file, &pid.to_string()),
            _ => with_suffix(file, &format!("{pid}.{again}")),
        };
        let mut again = 0;
        let (stream, path) = loop {
            let path = beside(again);
            // Named before the file is created: if this process is killed then, both files may
            // exist alone.
            rings.name_stream(&path)?;
            match Stream::create(&path, &header) {
                Ok(stream) => break (stream, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again < 1000 => {
                    again += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let (lanes, chunk, block) = Default::default();
        let (seen, failure) = (vec![false; SITES_END], None);
        Ok(Self {
            rings,
            rings_path,
            stream,
            path,
            lanes,
            chunk,
            block,
            seen,
            sites_count: 0,
            lost: 0,
            failure,
        })
    }

    /// Drains rings that have enough events, or all events if `everything`.
    fn look(&mut self, everything: bool) {
        if self.failure.is_none()
            && let Err(error) = self.try_look(everything)
        {
            // The program goes on and counts further events as lost.
            let _ = self.rings.fail();
            self.failure = Some(error);
        }
    }

    fn try_look(&mut self, everything: bool) -> io::Result<()> {
        self.rings.look()?;
        while self.sites_count < self.rings.sites.len() {
            let segment = sites_segment(&self.rings.sites[self.sites_count]);
            self.stream.append(&segment)?;
            self.sites_count += 1;
        }
        for offset in self.rings.lanes[self.lanes.len()..].iter().copied() {
            self.lanes.push(Lane::new(offset));
        }
        for at in 0..self.lanes.len() {
            self.look_at_lane(at, everything)?;
        }
        Ok(())
    }

    fn look_at_lane(&mut self, at: usize, everything: bool) -> io::Result<()> {
        let Some(page) = self.rings.page(self.lanes[at].offset)? else { return Ok(()) };
        let lane = &mut self.lanes[at];
        let index = page.segment.words[thread::LANE];
        if lane.index != Some(index) {
            *lane = Lane { index: Some(index), ..Lane::new(lane.offset) };
            self.stream.append_thread(&page)?;
        }
        if lane.is_done {
            return Ok(());
        }
        let has_ended = page.end_ticks != 0;
        let much = self.rings.has_begun(lane.offset, lane.block + self.rings.worthwhile())?;
        if everything || has_ended || much {
            while self.take(at, everything || has_ended)? {}
        }
        if has_ended {
            self.stream.append_thread(&page)?;
            self.lost += page.lost;
            self.lanes[at].is_done = true;
            self.rings.free(self.lanes[at].offset)?;
        }
        Ok(())
    }

    /// Writes a chunk of a lane's events: from complete blocks, or all if `everything`. Returns
    /// `false` once nothing more can be taken.
    fn take(&mut self, at: usize, everything: bool) -> io::Result<bool> {
        let lane = &mut self.lanes[at];
        self.chunk.clear();
        let (mut block, mut word) = (lane.block, lane.word);
        while self.chunk.count() < CHUNK_EVENTS {
            // Checked before the block is read: only then is a complete block read completely.
            let is_complete = self.rings.has_begun(lane.offset, block + 1)?;
            if !is_complete && !everything {
                break;
            }
            if !self.rings.block(lane.offset, block, &mut self.block)? {
                break;
            }
            let words = &self.block.words;
            let (base, rest) = (words[1], words.get(word..).unwrap_or_default());
            if !self.chunk.push_block(base, rest) {
                break; // its base time needs the next chunk
            }
            lane.lost_before = words[3];
            let mut words_count = 0;
            for code in codes(rest) {
                self.seen[(code >> 2) as usize] = true;
                words_count += words_of(code) as usize;
            }
            word = (word + words_count).min(words.len());
            if !is_complete {
                break;
            }
            (block, word) = (block + 1, BLOCK_HEADER_WORDS as usize);
        }
        let count = self.chunk.count();
        if count > 0 {
            let is_begun = word > BLOCK_HEADER_WORDS as usize;
            let whose = Whose {
                lane: lane.index.unwrap_or(0),
                events_before: lane.events_count,
                lost_before: lane.lost_before,
                position_end: block * BLOCK_WORDS + if is_begun { word as u64 } else { 0 },
            };
            self.stream.append_chunk(&mut self.chunk, &whose)?;
            lane.events_count += count;
        }
        let has_moved = block > lane.block;
        (lane.block, lane.word) = (block, word);
        if has_moved {
            self.rings.drained(lane.offset, block)?;
        }
        Ok(count > 0 && has_moved)
    }

    /// Drains the rest, appends names, completes the file and returns its path.
    fn finish(mut self, notes: &mut Vec<String>) -> PathBuf {
        self.look(true);
        let mut lost = self.lost;
        for lane in &self.lanes {
            let page = self.rings.page(lane.offset).ok().flatten();
            if let Some(page) = page.filter(|_| !lane.is_done) {
                // Events that are in the ring and did not get into the file.
                let recorded = self.rings.recorded(lane.offset).unwrap_or(0);
                lost += page.lost + recorded.saturating_sub(lane.events_count);
                // If this fails, the thread has no end in the trace, which readers handle.
                let _ = self.stream.append_thread(&page);
            }
        }
        match self.name(notes) {
            Ok(given_up) => lost += given_up,
            Err(error) => {
                notes.push(format!("{}: functions have no names: {error}", self.path.display()))
            }
        }
        let errno = self.failure.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
        let now = self.rings.header_now();
        let header = Header {
            state: if self.failure.is_some() {
                format::STATE_FAILED
            } else {
                format::STATE_FINISHED
            },
            errno: if self.failure.is_some() { errno as u64 } else { 0 },
            lost: now.lost + lost,
            rings: String::new(),
            end: if now.end.ticks > now.begin.ticks { now.end } else { now_on_all_clocks() },
            ..now
        };
        match self.stream.write_header(&header) {
            // A failure is harmless: the file only takes space.
            Ok(()) => drop(std::fs::remove_file(&self.rings_path)),
            Err(error) => notes.push(format!("{}: {error}", self.path.display())),
        }
        self.path
    }

    /// Appends the names of functions with events; returns the number of events given up for space.
    fn name(&mut self, notes: &mut Vec<String>) -> io::Result<u64> {
        let (modules, mut functions) = self.rings.functions()?;
        functions.retain(|(number, ..)| self.seen.get(*number as usize) == Some(&true));
        if functions.is_empty() {
            return Ok(0);
        }
        let sites = names::sites(&modules, &functions, notes);
        self.stream.append_surely(&sites_segment(&encode_sites(&sites)))
    }
}

/// Returns the current time, for a process that could not record its own end.
fn now_on_all_clocks() -> format::Anchor {
    let ns = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    format::Anchor {
        ticks: handover_base::clock::ticks(),
        monotonic_ns: ns(rustix::time::ClockId::Monotonic),
        realtime_ns: ns(rustix::time::ClockId::Realtime),
    }
}

impl Lane {
    fn new(offset: u64) -> Self {
        let word = BLOCK_HEADER_WORDS as usize;
        let (index, block, events_count, lost_before) = (None, 0, 0, 0);
        Self { offset, index, block, word, events_count, lost_before, is_done: false }
    }
}
