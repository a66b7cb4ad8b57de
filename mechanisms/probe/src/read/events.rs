//! The events of one thread.

use super::index::read_block_words;
use super::source::{ReadAt, read_full};
use super::thread::TracePiece;
use super::trace::Trace;
use crate::chunk::unpack;
use crate::format::parse_varint;
use crate::lane::{CODE_BITS, FORM_LEAVE, event_words_count};

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// Execution of a `probe!`.
    Mark,
    /// Start of a span.
    Enter,
    /// End of a span. If the span's start is missing, the site was switched on within the span, or
    /// the start was lost.
    Leave,
}

/// Event that was read from a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Time stamp in ticks, which [`Trace::ns_from_ticks`] converts.
    pub ticks: u64,
    /// Index of the event's thread in [`Trace::threads`].
    pub thread: usize,
    /// Number of the event's site, for [`Trace::site`].
    pub site: u32,
    /// Kind of the event.
    pub kind: EventKind,
    values: [u64; 2],
    values_count: u8,
}

impl Event {
    /// Returns the values recorded with the event, as 64 bits each.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values[..usize::from(self.values_count)]
    }
}

/// Iterator over a thread's events in time order; see [`Trace::events`].
///
/// Times within a thread do not go back: where two CPUs' counters disagree slightly, the later
/// event gets the time of the earlier.
#[derive(Debug)]
pub struct Events<'a, S> {
    trace: &'a Trace<S>,
    /// Index of the thread in [`Trace::threads`].
    thread: usize,
    /// Index of the piece to load next, in [`Thread::pieces`](super::Thread::pieces).
    next_piece: usize,
    /// Contents of the piece that was loaded last.
    loaded: LoadedPiece,
    /// Index of the next byte or word of `loaded` to decode.
    offset: usize,
    /// Base time of the block, or time of the last event of the chunk, in ticks.
    base_ticks: u64,
    /// Largest time stamp of the events decoded so far. Later events get no smaller one.
    last_ticks: u64,
    /// `true` if a piece could not be loaded.
    is_truncated: bool,
}

/// Contents of a piece of a trace: packed events, events as varints, or a block's words.
#[derive(Debug)]
enum LoadedPiece {
    Packed(Vec<u8>),
    Varints(Vec<u8>),
    BlockWords(Vec<u64>),
}

impl<S: ReadAt> Trace<S> {
    /// Iterates over the events of the thread at `index` of [`threads`](Trace::threads), in time
    /// order. It is empty if `index` is out of range.
    pub fn events(&self, index: usize) -> Events<'_, S> {
        Events {
            trace: self,
            thread: index,
            next_piece: 0,
            loaded: LoadedPiece::BlockWords(Vec::new()),
            offset: 0,
            base_ticks: 0,
            last_ticks: 0,
            is_truncated: false,
        }
    }
}

impl<S: ReadAt> Events<'_, S> {
    /// Returns `true` if events are missing because the file was truncated, or they were
    /// overwritten, while it was open.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Loads the next piece of the trace; returns `false` if there is none.
    fn load_next_piece(&mut self) -> bool {
        let pieces = self.trace.threads.get(self.thread).map(|thread| &thread.pieces);
        let Some(piece) = pieces.and_then(|pieces| pieces.get(self.next_piece)) else {
            return false;
        };
        self.next_piece += 1;
        let loaded = match *piece {
            TracePiece::Chunk { offset, bytes, base_ticks, is_packed } => {
                self.base_ticks = base_ticks;
                self.offset = 0;
                // Reuses the previous chunk's memory.
                let mut to = match std::mem::replace(
                    &mut self.loaded,
                    LoadedPiece::BlockWords(Vec::new()),
                ) {
                    LoadedPiece::Varints(bytes) | LoadedPiece::Packed(bytes) => bytes,
                    LoadedPiece::BlockWords(_) => Vec::new(),
                };
                to.resize(bytes, 0);
                match read_full(&self.trace.stream, offset, &mut to) {
                    Ok(count) if count != bytes => None,
                    Ok(_) if is_packed => Some(LoadedPiece::Packed(to)),
                    Ok(_) => Some(LoadedPiece::Varints(to)),
                    Err(_) => None,
                }
            }
            TracePiece::Block { file, offset, number, from_word } => {
                self.offset = from_word as usize;
                let source = self.trace.source(file);
                let words = source.and_then(|source| read_block_words(source, offset).ok()?);
                // The process may have overwritten the block since.
                words.filter(|words| words[0] == number).map(|words| {
                    self.base_ticks = words[1];
                    LoadedPiece::BlockWords(words)
                })
            }
        };
        self.is_truncated |= loaded.is_none();
        self.loaded = loaded.unwrap_or(LoadedPiece::BlockWords(Vec::new()));
        true
    }

    /// Creates an event from its decoded parts.
    fn make_event(&mut self, ticks: u64, code: u64, values: [u64; 2]) -> Event {
        self.last_ticks = self.last_ticks.max(ticks);
        let code = code & ((1 << CODE_BITS) - 1);
        let site = (code >> 2) as u32;
        let kind = match self.trace.is_span.get(site as usize) {
            _ if code & 3 == FORM_LEAVE => EventKind::Leave,
            Some(true) => EventKind::Enter,
            _ => EventKind::Mark,
        };
        let values_count = (event_words_count(code) - 1) as u8;
        let (ticks, thread) = (self.last_ticks, self.thread);
        Event { ticks, thread, site, kind, values, values_count }
    }

    /// Decodes the next event of the loaded piece; `None` at its end.
    fn decode_next(&mut self) -> Option<Event> {
        match &self.loaded {
            LoadedPiece::Packed(bytes) => {
                let (since, code) = unpack(*bytes.get(self.offset..)?.first_chunk()?);
                self.offset += 4;
                self.base_ticks = self.base_ticks.wrapping_add(since);
                // A packed event has no values, even if a damaged one's form has.
                Some(self.make_event(self.base_ticks, code, [0; 2]))
            }
            LoadedPiece::BlockWords(words) => {
                let event = words.get(self.offset).copied().filter(|event| *event != 0)?;
                let count = event_words_count(event) as usize;
                let value = |index: usize| match words.get(self.offset + index) {
                    Some(value) if index < count => *value,
                    _ => 0,
                };
                let values = [value(1), value(2)];
                self.offset += count;
                let ticks = self.base_ticks.wrapping_add(event >> CODE_BITS);
                Some(self.make_event(ticks, event, values))
            }
            LoadedPiece::Varints(bytes) => {
                let (since, rest) = parse_varint(bytes.get(self.offset..)?)?;
                let (code, mut rest) = parse_varint(rest)?;
                let mut values = [0; 2];
                for value in &mut values[..event_words_count(code) as usize - 1] {
                    (*value, rest) = parse_varint(rest)?;
                }
                self.offset = bytes.len() - rest.len();
                self.base_ticks = self.base_ticks.wrapping_add(since);
                Some(self.make_event(self.base_ticks, code, values))
            }
        }
    }
}

impl<S: ReadAt> Iterator for Events<'_, S> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.decode_next() {
                return Some(event);
            }
            if !self.load_next_piece() {
                return None;
            }
        }
    }
}
