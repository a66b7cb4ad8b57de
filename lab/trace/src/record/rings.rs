//! Ring files of a traced process, read while the process writes them.

use handover_probe::format::{
    self, Module, PAGE_BYTES, SEGMENT_BYTES, SEGMENT_FUNCTIONS, SEGMENT_LANE, SEGMENT_MODULES,
    SEGMENT_SITES, SegmentHeader, TraceHeader, decode_function_word, functions, header, thread,
};
use handover_probe::lane::{BLOCK_HEADER_WORDS, BLOCK_WORDS, CODE_BITS, event_words_count};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Size of a block in bytes.
const BLOCK_BYTES: u64 = BLOCK_WORDS * 8;
/// Offset, in a file's header, of the recording state, in words.
const STATE_WORD_OFFSET: u64 = header::STATE_FIELD as u64;
/// Offset, in a file's header, of the flag that stops the recording, in words.
const CLOSED_WORD_OFFSET: u64 = header::CLOSED_FIELD as u64;

/// Modules by number, and functions. A module is a program or shared object; a function is given as
/// site number, module and address in the module's file.
pub(super) type ModulesAndFunctions = (HashMap<u64, Module>, Vec<(u32, u64, u64)>);

/// Contents of the header page of a lane, which is one thread's ring.
#[derive(Debug, Clone)]
pub(super) struct LanePage {
    pub segment: SegmentHeader,
    /// Name of the lane's thread.
    pub name: Vec<u8>,
    /// Time stamp of the thread's exit; zero while it runs.
    pub end_ticks: u64,
    /// Number of events that the thread has lost.
    pub lost: u64,
    /// Time that the thread has waited for space in its ring.
    pub waited: Duration,
    /// Number of the thread's calls that were not traced.
    pub untraced_calls_count: u64,
}

/// Ring file of a process: the rings of all threads, sites, modules and functions.
#[derive(Debug)]
pub(super) struct RingFile {
    file: File,
    pub header: TraceHeader,
    /// Offset of the next segment to read.
    next_offset: u64,
    /// File offsets of the lanes.
    pub lane_offsets: Vec<u64>,
    /// File offsets of the tables of functions.
    function_table_offsets: Vec<u64>,
    /// File offsets of the segments that describe modules.
    module_offsets: Vec<u64>,
    /// Payloads of site segments, in file order.
    pub sites: Vec<Vec<u8>>,
}

impl RingFile {
    /// Opens a ring file; `None` while it is being created.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::options().read(true).write(true).open(path)?;
        let Some(header) = decode_header(&file) else { return Ok(None) };
        let (lane_offsets, function_table_offsets, module_offsets, sites) = Default::default();
        Ok(Some(Self {
            file,
            header,
            next_offset: PAGE_BYTES,
            lane_offsets,
            function_table_offsets,
            module_offsets,
            sites,
        }))
    }

    /// Reads the file's current header. If it cannot be read, returns the header of the time of
    /// `open`.
    pub(super) fn read_header(&self) -> TraceHeader {
        decode_header(&self.file).unwrap_or_else(|| self.header.clone())
    }

    /// Stores the path of the trace file in the ring file.
    pub(super) fn write_stream_path(&self, path: &Path) -> io::Result<()> {
        let text = path.as_os_str().as_encoded_bytes();
        let mut room = vec![0; format::STREAM_PATH_RANGE.len()];
        if text.len() < room.len() {
            room[..text.len()].copy_from_slice(text);
        }
        self.file.write_all_at(&room, format::STREAM_PATH_RANGE.start as u64)
    }

    /// Requests that the process stops recording. Its further events are not counted.
    pub(super) fn request_recording_stop(&self) -> io::Result<()> {
        self.write_word(CLOSED_WORD_OFFSET * 8, 1)
    }

    /// Requests that the process counts all further events as lost.
    pub(super) fn request_event_loss(&self) -> io::Result<()> {
        self.write_word(STATE_WORD_OFFSET * 8, format::STATE_FAILED)
    }

    fn write_word(&self, offset: u64, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), offset)
    }

    fn read_word(&self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Finds the segments that the process has appended since the last call.
    pub(super) fn read_new_segments(&mut self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        while self.next_offset + SEGMENT_BYTES <= end {
            let mut bytes = [0; SEGMENT_BYTES as usize];
            self.file.read_exact_at(&mut bytes, self.next_offset)?;
            let Some(segment) = SegmentHeader::decode(&bytes) else { break };
            if segment.bytes > end - self.next_offset {
                break;
            }
            match segment.kind {
                SEGMENT_LANE => self.lane_offsets.push(self.next_offset),
                SEGMENT_FUNCTIONS => self.function_table_offsets.push(self.next_offset),
                SEGMENT_MODULES => self.module_offsets.push(self.next_offset),
                SEGMENT_SITES => {
                    let Some(payload) = self.read_payload(self.next_offset)? else { break };
                    self.sites.push(payload);
                }
                _ => {}
            }
            self.next_offset += segment.bytes;
        }
        Ok(())
    }

    /// Reads a segment's payload; `None` until it is complete.
    fn read_payload(&self, offset: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = [0; SEGMENT_BYTES as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        let Some(segment) = SegmentHeader::decode(&bytes) else { return Ok(None) };
        let length = segment.words[0].min(segment.bytes - SEGMENT_BYTES) as usize;
        let mut payload = vec![0; length];
        self.file.read_exact_at(&mut payload, offset + SEGMENT_BYTES)?;
        Ok((format::checksum(&payload) == segment.payload_checksum).then_some(payload))
    }

    /// Reads the descriptions of modules (programs and shared objects), and the traced functions.
    pub(super) fn read_functions(&self) -> io::Result<ModulesAndFunctions> {
        let mut modules = HashMap::new();
        for offset in &self.module_offsets {
            let payload = self.read_payload(*offset)?;
            let module = payload.and_then(|payload| Module::decode(&payload));
            modules.extend(module.map(|module| (module.index, module)));
        }
        let mut all = Vec::new();
        for offset in &self.function_table_offsets {
            let first = self.read_word(offset + 8 * (3 + functions::FIRST_FIELD as u64))?;
            let count = self.read_word(offset + 8 * (3 + functions::COUNT_FIELD as u64))?;
            let mut table = vec![0; (count.min(1 << 18) * 8) as usize];
            self.file.read_exact_at(&mut table, offset + PAGE_BYTES)?;
            for (number, word) in (first..=u64::MAX).zip(table.as_chunks().0) {
                let place = decode_function_word(u64::from_le_bytes(*word));
                if let (Ok(number), Some((module, address))) = (u32::try_from(number), place) {
                    all.push((number, module, address));
                }
            }
        }
        Ok((modules, all))
    }

    /// Reads a lane's header page; `None` while the lane is being reassigned to another thread.
    pub(super) fn read_lane_page(&self, lane_offset: u64) -> io::Result<Option<LanePage>> {
        let mut page = vec![0; PAGE_BYTES as usize];
        self.file.read_exact_at(&mut page, lane_offset)?;
        let Some(segment) = SegmentHeader::decode(&page) else { return Ok(None) };
        let word = |at: usize| {
            let bytes = page[8 * at..8 * at + 8].as_chunks().0;
            u64::from_le_bytes(bytes[0])
        };
        let name_bytes =
            (segment.words[thread::NAME_BYTES_FIELD] as usize).min(thread::NAME_BYTES_MAX);
        Ok(Some(LanePage {
            segment,
            name: page[thread::PAGE_NAME_OFFSET_BYTES..thread::PAGE_NAME_OFFSET_BYTES + name_bytes]
                .to_vec(),
            end_ticks: word(thread::PAGE_END_FIELD),
            lost: word(thread::PAGE_LOST_FIELD),
            waited: Duration::from_nanos(word(thread::PAGE_WAITED_NS_FIELD)),
            untraced_calls_count: word(thread::PAGE_UNTRACED_CALLS_FIELD),
        }))
    }

    /// Returns the number of blocks of each ring.
    fn blocks_count(&self) -> u64 {
        (self.header.ring_words / BLOCK_WORDS).max(1)
    }

    /// Returns the offset of a block in the file. `block` counts from 0 and does not wrap around.
    fn block_offset(&self, lane_offset: u64, block: u64) -> u64 {
        lane_offset + PAGE_BYTES + (block % self.blocks_count()) * BLOCK_BYTES
    }

    /// Returns `true` if the writer has started to fill block `block` of a lane.
    pub(super) fn has_block_begun(&self, lane_offset: u64, block: u64) -> io::Result<bool> {
        Ok(self.read_word(self.block_offset(lane_offset, block))? == block + 1)
    }

    /// Returns the minimum number of unread blocks for which a lane is drained.
    pub(super) fn drain_blocks_min(&self) -> u64 {
        16.min(self.blocks_count() / 2)
    }

    /// Reads a block of a lane. Returns `false` if the writer has overwritten the block.
    pub(super) fn read_block(
        &self,
        lane_offset: u64,
        block: u64,
        to: &mut LaneBlock,
    ) -> io::Result<bool> {
        self.file.read_exact_at(&mut to.bytes, self.block_offset(lane_offset, block))?;
        for (word, bytes) in to.words.iter_mut().zip(to.bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(to.words[0] == block + 1)
    }

    /// Allows the writer of a lane to reuse the first `blocks` blocks.
    pub(super) fn mark_blocks_drained(&self, lane_offset: u64, blocks: u64) -> io::Result<()> {
        self.write_word(lane_offset + 8 * thread::PAGE_DRAINED_FIELD as u64, blocks)
    }

    /// Allows the process to reuse the lane for another thread.
    pub(super) fn free_lane(&self, lane_offset: u64) -> io::Result<()> {
        self.write_word(lane_offset + 8 * thread::PAGE_FREE_FIELD as u64, 1)
    }

    /// Returns the number of events that a lane has recorded so far.
    pub(super) fn recorded_events_count(&self, lane_offset: u64) -> io::Result<u64> {
        let mut newest = None;
        for at in 0..self.blocks_count() {
            let number = self.read_word(lane_offset + PAGE_BYTES + at * BLOCK_BYTES)?;
            newest = newest.max((number != 0).then_some(number));
        }
        let Some(number) = newest else { return Ok(0) };
        let mut block = LaneBlock::default();
        if !self.read_block(lane_offset, number - 1, &mut block)? {
            return Ok(0);
        }
        Ok(block.words[2] + event_codes(&block.words[BLOCK_HEADER_WORDS as usize..]).count() as u64)
    }
}

/// Returns the number of calls of all threads of the ring file at `path` that were not traced.
pub(super) fn read_untraced_calls_count(path: &Path) -> io::Result<u64> {
    let Some(mut rings) = RingFile::open(path)? else { return Ok(0) };
    rings.read_new_segments()?;
    let mut count = 0u64;
    for offset in &rings.lane_offsets {
        let page = rings.read_lane_page(*offset)?;
        count = count.saturating_add(page.map_or(0, |page| page.untraced_calls_count));
    }
    Ok(count)
}

/// Reads and decodes the header of a ring file; `None` while it is incomplete.
pub(super) fn decode_header(file: &File) -> Option<TraceHeader> {
    let mut page = vec![0; PAGE_BYTES as usize];
    file.read_exact_at(&mut page, 0).ok()?;
    TraceHeader::decode(&page)
}

/// Reusable buffer for one block of a lane, as bytes and as words.
#[derive(Debug)]
pub(super) struct LaneBlock {
    bytes: Vec<u8>,
    pub words: Vec<u64>,
}

impl Default for LaneBlock {
    fn default() -> Self {
        Self { bytes: vec![0; BLOCK_BYTES as usize], words: vec![0; BLOCK_WORDS as usize] }
    }
}

/// Iterates over the codes (site number and form) of the events in a block's words.
pub(super) fn event_codes(words: &[u64]) -> impl Iterator<Item = u64> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let event = words.get(at).copied().filter(|event| *event != 0)?;
        at += event_words_count(event) as usize;
        Some(event & ((1 << CODE_BITS) - 1))
    })
}
