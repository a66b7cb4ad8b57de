//! The thread that empties the rings into a file.

use crate::error::StartError;
use crate::files;
use crate::format::{self, Header, Segment, chunk, put_varint};
use crate::lane::{Drained, Drainer, words_of};
use crate::registry;
use crate::session::{Seat, Session};
use handover_base::sync::Arc;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks. A ring of 4 MiB holds half a million events: 50 ms at ten million a second.
const PERIOD: Duration = Duration::from_millis(4);
/// It takes a thread's events when there are so many blocks of them, so that a chunk's header is lost in
/// it. They are in safety before: the ring outlives the process.
const BLOCKS_WORTHWHILE: u64 = 16;
/// Events in a chunk.
const CHUNK_EVENTS_MAX: u64 = 1 << 16;

/// The thread, from the outside.
#[derive(Debug)]
pub(crate) struct Streamer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Streamer {
    pub(crate) fn start(session: &Arc<Session>) -> Result<Self, StartError> {
        let path = session.config().path().to_owned();
        let wrong = |source| StartError::File { path: path.clone(), source };
        let header = session.header(format::STATE_RECORDING);
        let file = StreamFile::create(&path, &header).map_err(wrong)?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let (session, stop) = (Arc::clone(session), Arc::clone(&stop));
            let mut work =
                Work { session, file, sources: Vec::new(), payload: Vec::new(), has_failed: false };
            move || work.run(&stop)
        };
        let builder = std::thread::Builder::new().name("handover-probe".into());
        let thread = builder.spawn(run).map_err(|source| StartError::File { path, source })?;
        Ok(Self { stop, thread })
    }

    /// Has everything written, and returns when it is.
    pub(crate) fn finish(self) {
        // Release: pairs with Acquire in run(): what was recorded is there to be read.
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // It fails only if the thread panicked, and then there is nothing to be had from it.
        let _ = self.thread.join();
    }
}

#[derive(Debug)]
struct StreamFile {
    file: File,
    end: u64,
    sites_count: usize,
}

impl StreamFile {
    fn create(path: &std::path::Path, header: &Header) -> io::Result<Self> {
        let file = files::create(path)?;
        let mut stream = Self { file, end: format::PAGE_BYTES, sites_count: 0 };
        stream.write_header(header)?;
        stream.add_sites()?;
        Ok(stream)
    }

    fn write_header(&self, header: &Header) -> io::Result<()> {
        let page = Header { kind: format::FILE_STREAM, ..header.clone() }.encode();
        self.file.write_all_at(&page, 0)
    }

    fn add_sites(&mut self) -> io::Result<()> {
        if registry::sites_count() == self.sites_count {
            return Ok(());
        }
        let sites = registry::sites_from(self.sites_count);
        let payload = format::encode_sites(&sites);
        self.append(&format::sites_segment(&payload))?;
        self.sites_count += sites.len();
        Ok(())
    }

    /// All of it or nothing, as far as readers are concerned: what a full disk cuts off is cut away.
    fn append(&mut self, segment: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(segment, self.end) {
            // If this fails too, readers find the rest by its checksum.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += segment.len() as u64;
        Ok(())
    }
}

/// A thread whose ring is emptied.
#[derive(Debug)]
struct Source {
    seat: Seat,
    drainer: Drainer,
    events_count: u64,
    is_named: bool,
}

#[derive(Debug)]
struct Work {
    session: Arc<Session>,
    file: StreamFile,
    sources: Vec<Source>,
    payload: Vec<u8>,
    has_failed: bool,
}

impl Work {
    fn run(&mut self, stop: &AtomicBool) {
        loop {
            // Acquire: pairs with Release in finish().
            let stops = stop.load(Ordering::Acquire);
            if !self.has_failed
                && let Err(error) = self.look(stops)
            {
                self.has_failed = true;
                self.session.fail(error);
            }
            if stops {
                break;
            }
            std::thread::park_timeout(PERIOD);
        }
        let header = self.session.header(format::STATE_FINISHED);
        if let Err(error) = self.file.write_header(&header) {
            self.session.fail(error);
        }
    }

    /// Takes what is worthwhile, or everything.
    fn look(&mut self, everything: bool) -> io::Result<()> {
        self.meet();
        self.file.add_sites()?;
        for at in 0..self.sources.len() {
            loop {
                let source = &self.sources[at];
                let is_over = source.seat.end_ticks != 0;
                let much = source.drainer.is_behind(&source.seat.lane, BLOCKS_WORTHWHILE);
                if !(everything || is_over || much) || !self.take(at)? {
                    break;
                }
            }
        }
        for at in (0..self.sources.len()).rev() {
            if everything || self.sources[at].seat.end_ticks != 0 {
                self.end(at)?;
            }
        }
        Ok(())
    }

    /// Finds new threads, and those that have ended.
    fn meet(&mut self) {
        for seat in self.session.seats() {
            match self.sources.iter_mut().find(|source| source.seat.index == seat.index) {
                Some(source) => source.seat.end_ticks = seat.end_ticks,
                None if seat.is_done => {}
                None => self.sources.push(Source {
                    seat,
                    drainer: Drainer::default(),
                    events_count: 0,
                    is_named: false,
                }),
            }
        }
    }

    /// Writes a chunk of a thread's events; `false` when there was none.
    fn take(&mut self, at: usize) -> io::Result<bool> {
        let source = &mut self.sources[at];
        self.payload.clear();
        let (mut count, mut last, mut base) = (0, 0, 0);
        let before = source.events_count;
        while count < CHUNK_EVENTS_MAX {
            let Some(event) = source.drainer.next(&source.seat.lane) else { break };
            if count == 0 {
                (base, last) = (event.ticks, event.ticks);
            }
            // Another CPU's counter may be behind by a hair; a thread's time does not go back.
            let ticks = event.ticks.max(last);
            encode(&mut self.payload, &event, ticks - last);
            last = ticks;
            count += 1;
        }
        if count == 0 {
            return Ok(false);
        }
        if !source.is_named {
            self.file.append(&files::thread_segment(&source.seat))?;
            source.is_named = true;
        }
        let mut words = [0; 8];
        words[chunk::LANE] = source.seat.index;
        words[chunk::EVENTS] = count;
        words[chunk::BASE] = base;
        words[chunk::POSITION_END] = source.drainer.position();
        words[chunk::EVENTS_BEFORE] = before;
        words[chunk::LOST_BEFORE] = source.drainer.lost_before();
        words[chunk::LAST] = last;
        words[chunk::PAYLOAD_BYTES] = self.payload.len() as u64;
        self.file.append(&Segment::wrap(format::SEGMENT_CHUNK, words, &self.payload))?;
        source.events_count += count;
        source.drainer.release(&source.seat.lane);
        self.session.streamed(count);
        Ok(true)
    }

    /// Says how a thread ended, once it has and is written.
    fn end(&mut self, at: usize) -> io::Result<()> {
        let source = &self.sources[at];
        self.file.append(&files::thread_segment(&source.seat))?;
        self.session.is_done(source.seat.index);
        self.sources.swap_remove(at);
        Ok(())
    }
}

/// Time since the event before, site and form, values: a varint each.
#[inline]
fn encode(out: &mut Vec<u8>, event: &Drained, since_ticks: u64) {
    const SHORT: u64 = 1 << 14;
    let values_count = words_of(event.code) as usize - 1;
    if since_ticks < SHORT && event.code < SHORT && values_count == 0 {
        // Nearly always: two numbers of one byte or two, put together in a register.
        let (since, since_bytes) = short_varint(since_ticks);
        let (code, code_bytes) = short_varint(event.code);
        let both = since | code << (8 * since_bytes);
        out.extend_from_slice(&both.to_le_bytes());
        out.truncate(out.len() - 4 + (since_bytes + code_bytes) as usize);
        return;
    }
    put_varint(out, since_ticks);
    put_varint(out, event.code);
    for value in &event.values[..values_count] {
        put_varint(out, *value);
    }
}

/// The varint of a number below 2^14, and its length.
#[inline]
fn short_varint(number: u64) -> (u32, u32) {
    let (low, high) = ((number & 0x7f) as u32, (number >> 7) as u32);
    let is_long = u32::from(high != 0);
    (low | is_long << 7 | high << 8, 1 + is_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_numbers_are_written_as_long_ones_are(since in 0..20_000u64, code in 1..20_000u64) {
            let event = Drained { ticks: 0, code: code & !3, values: [7, 8] };
            let (mut quickly, mut plainly) = (vec![9], vec![9]);
            encode(&mut quickly, &event, since);
            put_varint(&mut plainly, since);
            put_varint(&mut plainly, event.code);
            prop_assert_eq!(quickly, plainly);
        }
    }
}
