//! Index of a file: its pieces, their threads, and counts of missing events.

use super::source::{ReadAt, read_full};
use super::thread::{MissingEvents, Thread, TraceFile, TracePiece};
use crate::format::{
    self, PAGE_BYTES, SEGMENT_BYTES, SEGMENT_CHUNK, SEGMENT_FUNCTIONS, SEGMENT_LANE, SEGMENT_MAGIC,
    SEGMENT_MODULES, SEGMENT_PACKED, SEGMENT_SITES, SEGMENT_THREAD, SegmentHeader, chunk,
    decode_function_word, functions, thread,
};
use crate::lane::{BLOCK_HEADER_WORDS, BLOCK_WORDS, event_words_count};
use crate::site::Site;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Maximum size in bytes of a segment's payload. A segment with a larger one is damaged.
const PAYLOAD_BYTES_MAX: u64 = 1 << 28;
/// Number of bytes read at a time during the search for the next segment.
const WINDOW_BYTES: usize = 1 << 16;
/// Size of a block in bytes.
const BLOCK_BYTES: u64 = BLOCK_WORDS * 8;
/// Number of words of the largest ring that the recorder creates.
pub(super) const RING_WORDS_MAX: u64 = 1 << 29;

/// Chunks and blocks that contain the events of one thread, with counts from their headers.
#[derive(Debug, Default)]
struct ThreadIndex {
    /// Description of the thread.
    thread: Thread,
    /// Chunks of the stream that contain events of the thread.
    chunks: Vec<TracePiece>,
    /// Position in the ring after the last event that a chunk contains.
    position_end: u64,
    /// Number of events in `chunks`.
    chunk_events: u64,
    /// Number of events that the thread recorded up to the last one in `chunks`.
    recorded_in_chunks: u64,
    /// Number of events that the thread recorded: the greatest number in its headers.
    recorded: u64,
    /// Number of events that the thread has lost: the greatest number in its headers.
    lost: u64,
    /// Blocks of the rings that contain events of the thread.
    blocks: Vec<IndexedBlock>,
    /// Number of blocks of the thread's ring.
    ring_blocks: u64,
}

/// Block of a ring, with events of one thread.
#[derive(Debug, Clone, Copy)]
struct IndexedBlock {
    /// Number of the block in its lane, from 1.
    number: u64,
    file: TraceFile,
    /// Offset of the block in the file.
    offset: u64,
    /// Number of the thread's events recorded before the block.
    recorded_before: u64,
    /// Number of the thread's events lost before the block.
    lost_before: u64,
    events_count: u64,
    /// Index of the first word to read. Chunks contain the events in earlier words.
    from_word: u64,
}

/// Index of a trace's files, collected from all segments.
///
/// The files are read in the order in which events move, the rings first: of events that the
/// process moves to the stream meanwhile, at least the chunks are found.
#[derive(Debug, Default)]
pub(super) struct TraceIndex {
    /// `true` if the process is still recording. The counts in its files do not belong to one
    /// moment, and the last segment of a file may be incomplete.
    is_live: bool,
    /// Index of each thread, by the thread's number.
    threads: BTreeMap<u64, ThreadIndex>,
    /// Sites, by number.
    sites: HashMap<u32, Site>,
    /// Programs and shared objects whose functions were traced, by index.
    modules: HashMap<u64, format::Module>,
    /// Traced functions: number, module's index, and address in the module's file.
    functions: Vec<(u32, u64, u64)>,
    /// Number of damaged bytes in the files.
    pub(super) damaged_bytes: u64,
}

impl TraceIndex {
    /// Creates an index without segments.
    pub(super) fn new(is_live: bool) -> Self {
        Self { is_live, ..Self::default() }
    }

    /// Reads all segments of a file. Skips damaged segments, and counts their bytes.
    pub(super) fn read_segments(
        &mut self,
        source: &impl ReadAt,
        file: TraceFile,
    ) -> io::Result<()> {
        let end = source.bytes()?;
        let mut offset = PAGE_BYTES;
        while offset + SEGMENT_BYTES <= end {
            let mut bytes = [0; SEGMENT_BYTES as usize];
            read_full(source, offset, &mut bytes)?;
            match SegmentHeader::decode(&bytes) {
                Some(segment) => {
                    if !self.read_segment(source, file, offset, end, &segment)? {
                        self.count_damage(offset, offset.saturating_add(segment.bytes), end);
                    }
                    offset = offset.saturating_add(segment.bytes);
                }
                None => {
                    let next = next_segment(source, offset + 8, end)?;
                    // A lane without its first word is being cleared for another thread.
                    if !self.is_live || bytes[..8] != [0; 8] {
                        self.count_damage(offset, next, end);
                    }
                    offset = next;
                }
            }
        }
        self.count_damage(offset, end, end);
        Ok(())
    }

    /// Counts the bytes `from..to` of a file as damaged. Those at its `end` may be a segment that
    /// the process is writing.
    fn count_damage(&mut self, from: u64, to: u64, end: u64) {
        if to < end || !self.is_live {
            self.damaged_bytes += to.min(end).saturating_sub(from);
        }
    }

    /// Reads one segment; returns `false` if it is damaged or incomplete.
    fn read_segment(
        &mut self,
        source: &impl ReadAt,
        file: TraceFile,
        offset: u64,
        end: u64,
        segment: &SegmentHeader,
    ) -> io::Result<bool> {
        if segment.kind == SEGMENT_LANE {
            return self.add_lane(source, file, offset, end, segment);
        }
        if segment.kind == SEGMENT_FUNCTIONS {
            return self.add_functions(source, offset, end, segment);
        }
        // A chunk's intact header counts its events, even if the payload cannot be read.
        if is_chunk(segment) {
            let thread_index = self.threads.entry(segment.words[chunk::LANE_FIELD]).or_default();
            let events = segment.words[chunk::EVENTS_BEFORE_FIELD]
                .saturating_add(segment.words[chunk::EVENTS_FIELD]);
            thread_index.recorded = thread_index.recorded.max(events);
            thread_index.lost = thread_index.lost.max(segment.words[chunk::LOST_BEFORE_FIELD]);
        }
        let bytes = segment.bytes - SEGMENT_BYTES;
        if bytes > PAYLOAD_BYTES_MAX || offset + SEGMENT_BYTES + bytes > end {
            return Ok(false);
        }
        let mut payload = vec![0; bytes as usize];
        let count = read_full(source, offset + SEGMENT_BYTES, &mut payload)?;
        let length = match segment.kind {
            SEGMENT_CHUNK | SEGMENT_PACKED => segment.words[chunk::PAYLOAD_BYTES_FIELD],
            SEGMENT_THREAD => segment.words[thread::NAME_BYTES_FIELD],
            SEGMENT_SITES | SEGMENT_MODULES => segment.words[0],
            _ => return Ok(true), // of a later version
        };
        let Some(payload) = usize::try_from(length).ok().and_then(|end| payload.get(..end)) else {
            return Ok(false);
        };
        if count as u64 != bytes
            || format::segment_checksum(segment.kind, payload) != segment.payload_checksum
        {
            return Ok(false);
        }
        Ok(match segment.kind {
            SEGMENT_CHUNK | SEGMENT_PACKED => self.add_chunk(offset, payload.len(), segment),
            SEGMENT_THREAD => self.add_thread(segment, payload),
            SEGMENT_MODULES => self.add_module(payload),
            _ => self.add_sites(payload),
        })
    }

    /// Adds the sites of a segment; returns `false` if the segment is damaged.
    fn add_sites(&mut self, payload: &[u8]) -> bool {
        let sites = format::decode_sites(payload);
        let is_valid = sites.is_some();
        self.sites.extend(sites.unwrap_or_default().into_iter().map(|site| (site.number, site)));
        is_valid
    }

    /// Adds the module of a segment; returns `false` if the segment is damaged.
    fn add_module(&mut self, payload: &[u8]) -> bool {
        let module = format::Module::decode(payload);
        let is_valid = module.is_some();
        self.modules.extend(module.map(|module| (module.index, module)));
        is_valid
    }

    /// Adds the functions of a segment; returns `false` if the segment is damaged.
    fn add_functions(
        &mut self,
        source: &impl ReadAt,
        offset: u64,
        end: u64,
        segment: &SegmentHeader,
    ) -> io::Result<bool> {
        let (first, count) =
            (segment.words[functions::FIRST_FIELD], segment.words[functions::COUNT_FIELD]);
        let table_bytes = count.saturating_mul(8);
        if table_bytes > PAYLOAD_BYTES_MAX
            || PAGE_BYTES + table_bytes != segment.bytes
            || offset + segment.bytes > end
        {
            return Ok(false);
        }
        let mut table = vec![0; table_bytes as usize];
        read_full(source, offset + PAGE_BYTES, &mut table)?;
        for (number, word) in (first..=u64::MAX).zip(table.as_chunks().0) {
            let place = decode_function_word(u64::from_le_bytes(*word));
            if let (Ok(number), Some((module, address))) = (u32::try_from(number), place) {
                self.functions.push((number, module, address));
            }
        }
        Ok(true)
    }

    /// Adds a site for each traced function that has none. The name consists of the module and the
    /// function's address there.
    fn add_function_sites(&mut self) {
        for (number, module, address) in self.functions.drain(..) {
            let Some(module) = self.modules.get(&module) else { continue };
            self.sites.entry(number).or_insert_with(|| {
                let name = module.unnamed_function(address);
                format::function_site(number, name, module.path.clone(), 0)
            });
        }
    }

    /// Adds the description of a thread and its counts of events. Always returns `true`.
    fn add_thread(&mut self, segment: &SegmentHeader, name: &[u8]) -> bool {
        let thread_index = self.threads.entry(segment.words[thread::LANE_FIELD]).or_default();
        thread_index.set_description(segment, &String::from_utf8_lossy(name));
        thread_index.lost = thread_index.lost.max(segment.words[thread::LOST_FIELD]);
        thread_index.recorded = thread_index.recorded.max(segment.words[thread::RECORDED_FIELD]);
        true
    }

    /// Adds a chunk of a thread's events. Always returns `true`.
    fn add_chunk(&mut self, offset: u64, bytes: usize, segment: &SegmentHeader) -> bool {
        let words = &segment.words;
        let thread_index = self.threads.entry(words[chunk::LANE_FIELD]).or_default();
        let base_ticks = words[chunk::BASE_FIELD];
        let is_packed = segment.kind == SEGMENT_PACKED;
        let offset = offset + SEGMENT_BYTES;
        thread_index.chunks.push(TracePiece::Chunk { offset, bytes, base_ticks, is_packed });
        thread_index.position_end = thread_index.position_end.max(words[chunk::POSITION_END_FIELD]);
        thread_index.chunk_events =
            thread_index.chunk_events.saturating_add(words[chunk::EVENTS_FIELD]);
        let recorded = words[chunk::EVENTS_BEFORE_FIELD].saturating_add(words[chunk::EVENTS_FIELD]);
        thread_index.recorded_in_chunks = thread_index.recorded_in_chunks.max(recorded);
        true
    }

    /// Adds the thread and the blocks of a lane. Returns `false` if the segment is damaged or
    /// incomplete.
    fn add_lane(
        &mut self,
        source: &impl ReadAt,
        file: TraceFile,
        offset: u64,
        end: u64,
        segment: &SegmentHeader,
    ) -> io::Result<bool> {
        let Some(ring_bytes) = segment.bytes.checked_sub(PAGE_BYTES) else { return Ok(false) };
        let blocks_count = ring_bytes / BLOCK_BYTES;
        if !(ring_bytes / 8).is_power_of_two()
            || blocks_count < 2
            || ring_bytes / 8 > RING_WORDS_MAX
        {
            return Ok(false);
        }
        let mut page = vec![0; PAGE_BYTES as usize];
        read_full(source, offset, &mut page)?;
        let words: Vec<u64> =
            page.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let name_bytes = segment.words[thread::NAME_BYTES_FIELD].min(thread::NAME_BYTES_MAX as u64);
        let name = &page
            [thread::PAGE_NAME_OFFSET_BYTES..thread::PAGE_NAME_OFFSET_BYTES + name_bytes as usize];
        let thread_index = self.threads.entry(segment.words[thread::LANE_FIELD]).or_default();
        thread_index.set_description(segment, &String::from_utf8_lossy(name));
        let end_ticks = words[thread::PAGE_END_FIELD];
        thread_index.thread.end_ticks = (end_ticks != 0).then_some(end_ticks);
        thread_index.lost = thread_index.lost.max(words[thread::PAGE_LOST_FIELD]);
        thread_index.recorded = thread_index.recorded.max(words[thread::PAGE_RECORDED_FIELD]);
        thread_index.ring_blocks = blocks_count;
        for at in 0..blocks_count {
            let start = offset + PAGE_BYTES + at * BLOCK_BYTES;
            if start + BLOCK_BYTES > end {
                return Ok(false);
            }
            if let Some(block) = read_block(source, file, start, at, blocks_count)? {
                thread_index.blocks.push(block);
            }
        }
        Ok(true)
    }

    /// Returns the threads with their pieces and missing events, of which `unread_max` may be in
    /// the lost ring of each thread. Returns also the sites by number.
    pub(super) fn into_threads(mut self, unread_max: u64) -> (Vec<Thread>, HashMap<u32, Site>) {
        self.add_function_sites();
        let threads = self.threads.into_iter();
        let finish = |(number, index): (u64, ThreadIndex)| {
            index.into_thread(number, unread_max, self.is_live)
        };
        (threads.map(finish).collect(), self.sites)
    }
}

impl ThreadIndex {
    /// Stores the thread's ID, times and name from a segment.
    fn set_description(&mut self, segment: &SegmentHeader, name: &str) {
        self.thread.tid = segment.words[thread::TID_FIELD];
        self.thread.begin_ticks = segment.words[thread::BEGIN_FIELD];
        let end = segment.words[thread::END_FIELD];
        self.thread.end_ticks = (end != 0).then_some(end).or(self.thread.end_ticks);
        name.clone_into(&mut self.thread.name);
    }

    /// Converts to a thread whose pieces contain each event once.
    fn into_thread(mut self, number: u64, unread_max: u64, is_live: bool) -> Thread {
        self.blocks.sort_unstable_by_key(|block| block.number);
        self.blocks.dedup_by_key(|block| block.number);
        let found_count = self.blocks.len();
        if is_live {
            // Blocks that are not of the newest turn of the ring were replaced after they were
            // read, by blocks that were not read.
            let newest = self.blocks.last().map_or(0, |block| block.number);
            self.blocks.retain(|block| newest - block.number < self.ring_blocks);
            // The events that these headers count later may be in no piece yet.
            self.recorded = 0;
            // The process may have added events to a block before it began the next.
            for at in 1..self.blocks.len() {
                let next = self.blocks[at];
                let block = &mut self.blocks[at - 1];
                if next.number == block.number + 1 {
                    block.events_count = next.recorded_before.saturating_sub(block.recorded_before);
                }
            }
        }
        let is_overtaken = self.blocks.len() < found_count;
        let (position_end, recorded_in_chunks) = (self.position_end, self.recorded_in_chunks);
        // Keeps blocks that the chunks do not hold, or hold only in part. The memory of others may
        // have been reused for another thread.
        self.blocks.retain_mut(|block| {
            let start = (block.number - 1).saturating_mul(BLOCK_WORDS);
            let done = position_end.saturating_sub(start);
            block.from_word = done.max(BLOCK_HEADER_WORDS);
            let all = block.recorded_before.saturating_add(block.events_count);
            done < BLOCK_WORDS && (done <= BLOCK_HEADER_WORDS || all > recorded_in_chunks)
        });
        self.recorded = self.recorded.max(recorded_in_chunks);
        let mut in_blocks = 0u64;
        for block in &self.blocks {
            // If chunks hold the beginning of a block, its events there are counted with them.
            let all = block.recorded_before.saturating_add(block.events_count);
            self.recorded = self.recorded.max(all);
            self.lost = self.lost.max(block.lost_before);
            let begun = block.from_word > BLOCK_HEADER_WORDS;
            in_blocks = in_blocks.saturating_add(if begun {
                all.saturating_sub(recorded_in_chunks).min(block.events_count)
            } else {
                block.events_count
            });
        }
        let events_count = self.chunk_events.saturating_add(in_blocks);
        let missing_count = self.recorded.saturating_sub(events_count);
        let overwritten = match self.blocks.first() {
            _ if !self.chunks.is_empty() => 0,
            _ if is_overtaken => missing_count,
            first => first.map_or(0, |block| block.recorded_before),
        };
        let damaged = missing_count.saturating_sub(overwritten);
        let blocks = self.blocks.iter().map(|block| TracePiece::Block {
            file: block.file,
            offset: block.offset,
            number: block.number,
            from_word: block.from_word,
        });
        let pieces = self.chunks.iter().copied().chain(blocks).collect();
        let missing = MissingEvents { lost: self.lost, overwritten, damaged, unread_max };
        Thread { number, pieces, events_count, missing, ..self.thread }
    }
}

/// Returns `true` if the segment contains a chunk.
fn is_chunk(segment: &SegmentHeader) -> bool {
    matches!(segment.kind, SEGMENT_CHUNK | SEGMENT_PACKED)
}

/// Reads the header of the block at index `at` of a ring. Returns `None` if the block is empty.
fn read_block(
    source: &impl ReadAt,
    file: TraceFile,
    offset: u64,
    at: u64,
    blocks_count: u64,
) -> io::Result<Option<IndexedBlock>> {
    let Some(words) = read_block_words(source, offset)? else { return Ok(None) };
    let number = words[0];
    // The number determines the block's place. Another number, or none, is of a block that was
    // being started.
    if number == 0 || (number - 1) % blocks_count != at {
        return Ok(None);
    }
    let mut events_count = 0;
    let mut word = BLOCK_HEADER_WORDS as usize;
    while let Some(event) = words.get(word).filter(|event| **event != 0) {
        word += event_words_count(*event) as usize;
        events_count += 1;
    }
    Ok(Some(IndexedBlock {
        number,
        file,
        offset,
        recorded_before: words[2],
        lost_before: words[3],
        events_count,
        from_word: BLOCK_HEADER_WORDS,
    }))
}

/// Returns the words of the block at `offset`. Words beyond the file's end are zero. Returns `None`
/// if the process has begun another block there meanwhile.
pub(super) fn read_block_words(source: &impl ReadAt, offset: u64) -> io::Result<Option<Vec<u64>>> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    read_full(source, offset, &mut bytes)?;
    // The number of a block is cleared before its other words are.
    let mut number = [0; 8];
    read_full(source, offset, &mut number)?;
    let words = || bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    Ok(bytes.starts_with(&number).then(words))
}

/// Returns the offset of the first intact segment at or after `offset`; `end` if there is none.
fn next_segment(source: &impl ReadAt, offset: u64, end: u64) -> io::Result<u64> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut start = offset;
    while start < end {
        let count = read_full(source, start, &mut window)?;
        let mut at = 0;
        while at + 8 <= count {
            if window[at..at + 4] == SEGMENT_MAGIC.to_le_bytes() {
                let mut bytes = [0; SEGMENT_BYTES as usize];
                read_full(source, start + at as u64, &mut bytes)?;
                if SegmentHeader::decode(&bytes).is_some() {
                    return Ok(start + at as u64);
                }
            }
            at += 8;
        }
        if count < WINDOW_BYTES {
            break;
        }
        start += count as u64;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begun_block_after_a_damaged_chunk_counts_its_remaining_events() {
        // A damaged chunk, an intact one that ends in a block, and that block with 3 more events.
        let events = [16_384, 2_998, 3];
        let recorded: u64 = events.iter().sum();
        let chunk = TracePiece::Chunk { offset: 0, bytes: 0, base_ticks: 0, is_packed: false };
        let index = ThreadIndex {
            chunks: vec![chunk],
            position_end: BLOCK_HEADER_WORDS + 2,
            chunk_events: events[1],
            recorded_in_chunks: events[0] + events[1],
            blocks: vec![IndexedBlock {
                number: 1,
                file: TraceFile::Rings,
                offset: 0,
                recorded_before: recorded - 5,
                lost_before: 0,
                events_count: 5,
                from_word: BLOCK_HEADER_WORDS,
            }],
            ..ThreadIndex::default()
        };
        let thread = index.into_thread(0, 0, false);
        assert_eq!(thread.events_count, events[1] + events[2]);
        assert_eq!(thread.missing.damaged, events[0]);
    }
}
