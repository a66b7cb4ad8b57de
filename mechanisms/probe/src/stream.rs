//! Thread that drains the rings into a stream's file.

use crate::chunk::{Chunk, ChunkPosition};
use crate::error::StartError;
use crate::files;
use crate::format::{self, TraceHeader};
use crate::lane::{BLOCK_WORDS, Drainer, LaneWords};
use crate::raw::{current, signals};
use crate::registry;
use crate::session::Session;
use crate::thread_entry::ThreadEntry;
use crate::trace_file;
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between two drains of the rings while there are few events. A ring of 4 MiB holds half
/// a million events: 50 ms at ten million a second.
const PERIOD: Duration = Duration::from_millis(4);
/// Interval between two drains of the rings while there are many events. Events written a
/// millisecond ago are still in the caches, and most of the ring is free for times in which this
/// thread does not run.
const PERIOD_BUSY: Duration = Duration::from_millis(1);
/// Minimum number of a thread's unread blocks for which its ring is drained. With fewer, a chunk's
/// header is large relative to its events. Undrained events are not lost if the process is killed:
/// the ring outlives it.
const BLOCKS_WORTHWHILE: u64 = 16;
/// Number of events at which a chunk is complete. So few events, their chunk and the written bytes
/// stay in a core's caches.
const CHUNK_EVENTS: u64 = 1 << 14;

/// Handle of the thread that drains the rings into a stream's file.
#[derive(Debug)]
pub(crate) struct Streamer {
    /// Flag that tells the thread to stop.
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Streamer {
    /// Creates the stream's file and starts the thread.
    pub(crate) fn start(session: &Arc<Session>) -> Result<Self, StartError> {
        let path = session.config().path().to_owned();
        let file_error = |source| StartError::File { path: path.clone(), source };
        let header = session.current_header(format::STATE_RECORDING);
        let file = StreamFile::create(&path, &header).map_err(file_error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let (session, stop) = (Arc::clone(session), Arc::clone(&stop));
            let mut drain_loop = DrainLoop {
                session,
                file,
                sources: Vec::new(),
                chunk: Chunk::default(),
                block: Box::new([0; BLOCK_WORDS as usize]),
                has_failed: false,
            };
            move || {
                // Its own events are not recorded: it would wait for itself, and produce events for
                // ever.
                current::mark_thread_internal();
                drain_loop.run(&stop);
            }
        };
        let builder = std::thread::Builder::new().name("handover-probe".into());
        // The thread inherits the mask. It must not take a signal that the program's own threads
        // block to wait for it, or run a handler of the program.
        let blocked = signals::block_signals();
        let spawned = builder.spawn(run);
        drop(blocked);
        let thread = spawned
            .inspect_err(|_| trace_file::discard_trace_file(&path))
            .map_err(|source| StartError::File { path, source })?;
        Ok(Self { stop, thread })
    }

    /// Makes the streaming thread drain the rings at once, because another thread waits for space.
    pub(crate) fn wake(&self) {
        self.thread.thread().unpark();
    }

    /// Stops the streaming thread, and waits until it has written all events.
    pub(crate) fn finish(self) {
        // Release: pairs with Acquire in run(): events recorded before are visible to the last
        // pass.
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // An error means that the thread panicked; there is no result to return then.
        let _ = self.thread.join();
    }
}

/// Trace file of a stream, to which segments are appended.
#[derive(Debug)]
struct StreamFile {
    file: File,
    /// Length of the file in bytes, at which the next segment is appended.
    end: u64,
    /// Number of sites already listed in the file.
    sites_count: usize,
}

impl StreamFile {
    /// Creates the file at `path`, with `header`.
    fn create(path: &std::path::Path, header: &TraceHeader) -> io::Result<Self> {
        let page = TraceHeader { kind: format::FILE_STREAM, ..header.clone() }.encode();
        let file = trace_file::create_trace_file(path, &page)?;
        let mut stream = Self { file, end: format::PAGE_BYTES, sites_count: 0 };
        stream.add_sites().inspect_err(|_| trace_file::discard_trace_file(path))?;
        Ok(stream)
    }

    fn write_header(&self, header: &TraceHeader) -> io::Result<()> {
        let page = TraceHeader { kind: format::FILE_STREAM, ..header.clone() }.encode();
        self.file.write_all_at(&page, 0)
    }

    /// Appends a segment with the sites that have registered since the last call.
    fn add_sites(&mut self) -> io::Result<()> {
        if registry::sites_count() == self.sites_count {
            return Ok(());
        }
        let sites = registry::sites_from(self.sites_count);
        let payload = format::encode_sites(&sites);
        self.append(&format::encode_sites_segment(&payload))?;
        self.sites_count += sites.len();
        Ok(())
    }

    /// Appends a segment to the file. On an error, such as a full disk, truncates the file to its
    /// previous end.
    fn append(&mut self, segment: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(segment, self.end) {
            // If this fails too, readers detect the partial segment by its checksum.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += segment.len() as u64;
        Ok(())
    }
}

/// Recorded thread whose ring is drained.
#[derive(Debug)]
struct Source {
    entry: ThreadEntry,
    drainer: Drainer,
    /// Number of the thread's events in the stream.
    events_count: u64,
    /// `true` once a segment with the thread's name is in the stream.
    is_named: bool,
}

/// Loop of the thread that drains the rings into the stream's file.
#[derive(Debug)]
struct DrainLoop {
    session: Arc<Session>,
    file: StreamFile,
    /// Recorded threads, in any order.
    sources: Vec<Source>,
    chunk: Chunk,
    /// Buffer for the words of a block.
    block: Box<[u64; BLOCK_WORDS as usize]>,
    /// `true` once writing has failed. Then nothing more is written.
    has_failed: bool,
}

impl DrainLoop {
    /// Drains the rings until `stop` is set, then finishes the file.
    fn run(&mut self, stop: &AtomicBool) {
        loop {
            // Acquire: pairs with Release in finish().
            let is_stopping = stop.load(Ordering::Acquire);
            let mut is_busy = false;
            if !self.has_failed {
                is_busy = self.drain(is_stopping).unwrap_or_else(|error| {
                    self.has_failed = true;
                    self.session.record_failure(error);
                    false
                });
            }
            if is_stopping {
                break;
            }
            std::thread::park_timeout(if is_busy { PERIOD_BUSY } else { PERIOD });
        }
        let header = self.session.current_header(format::STATE_FINISHED);
        if let Err(error) = self.file.write_header(&header) {
            self.session.record_failure(error);
        }
        trace_file::unlock_file(&self.file.file);
    }

    /// Drains the rings with many unread blocks and those of exited threads; drains all rings if
    /// `should_drain_all`. Returns `true` if it wrote events.
    fn drain(&mut self, should_drain_all: bool) -> io::Result<bool> {
        let mut has_written = false;
        self.update_sources();
        self.file.add_sites()?;
        for at in 0..self.sources.len() {
            loop {
                let source = &self.sources[at];
                let should_read_to_end = should_drain_all || source.entry.end_ticks != 0;
                let lane = &source.entry.lane;
                let worthwhile = BLOCKS_WORTHWHILE.min(lane.words().count() / BLOCK_WORDS / 2);
                let is_behind = source.drainer.is_behind(lane, worthwhile);
                if !(should_read_to_end || is_behind)
                    || !self.write_chunk(at, should_read_to_end)?
                {
                    break;
                }
                has_written = true;
            }
        }
        for at in (0..self.sources.len()).rev() {
            if should_drain_all || self.sources[at].entry.end_ticks != 0 {
                self.write_thread_end(at)?;
            }
        }
        Ok(has_written)
    }

    /// Updates `sources`: adds new threads, and stores the exit times of exited threads.
    fn update_sources(&mut self) {
        for entry in self.session.thread_entries() {
            match self.sources.iter_mut().find(|source| source.entry.index == entry.index) {
                Some(source) => source.entry.end_ticks = entry.end_ticks,
                None if entry.is_streamed => {}
                None => self.sources.push(Source {
                    entry,
                    drainer: Drainer::default(),
                    events_count: 0,
                    is_named: false,
                }),
            }
        }
    }

    /// Writes a chunk of events of the thread at index `at`. Returns `false` if there were none.
    /// Events of an incomplete block are read only if `should_read_to_end`: reading takes the cache
    /// line away from the writing thread.
    fn write_chunk(&mut self, at: usize, should_read_to_end: bool) -> io::Result<bool> {
        let source = &mut self.sources[at];
        let lane = &*source.entry.lane;
        self.chunk.clear();
        while self.chunk.events_count() < CHUNK_EVENTS {
            let drainer_before = source.drainer.clone();
            let is_taken = if let Some((base, words)) =
                source.drainer.copy_block_rest(lane, &mut self.block)
            {
                let is_taken = self.chunk.push_block(base, words);
                if is_taken {
                    source.drainer.skip_block();
                }
                is_taken
            } else if should_read_to_end && let Some(event) = source.drainer.next_event(lane) {
                self.chunk.push(&event)
            } else {
                false
            };
            if !is_taken {
                // No event is left, or the next one belongs to the next chunk.
                source.drainer = drainer_before;
                break;
            }
        }
        let count = self.chunk.events_count();
        if count == 0 {
            return Ok(false);
        }
        if !source.is_named {
            self.file.append(&files::thread_segment(&source.entry))?;
            source.is_named = true;
        }
        let position = ChunkPosition {
            lane: source.entry.index,
            events_before: source.events_count,
            lost_before: source.drainer.lost_before(),
            position_end: source.drainer.position(),
        };
        self.file.append(self.chunk.segment(&position))?;
        source.events_count += count;
        source.drainer.release(lane);
        self.session.add_streamed_count(count);
        Ok(true)
    }

    /// Writes the last segment of a thread, and removes the thread from `sources`. Its ring is
    /// empty.
    fn write_thread_end(&mut self, at: usize) -> io::Result<()> {
        let source = self.sources.swap_remove(at);
        // First, so that the ring of a thread whose end is in the stream is free.
        self.session.mark_streamed(source.entry.index);
        self.file.append(&files::thread_segment(&source.entry))
    }
}
