//! Trace file of a recording, into which rings are drained.

use super::rings::LanePage;
use handover_probe::chunk::{Chunk, ChunkPosition};
use handover_probe::format::{
    FILE_STREAM, PAGE_BYTES, SEGMENT_THREAD, SegmentHeader, TraceHeader, thread,
};
use handover_probe::trace_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Trace file of one process, to which its rings are drained.
#[derive(Debug)]
pub(super) struct TraceStreamFile {
    file: File,
    /// Length of the file in bytes; the next segment is appended there.
    length_bytes: u64,
    /// Offset and number of events of each chunk in the file. If the disk is full, the last chunks
    /// are dropped.
    chunks: Vec<(u64, u64)>,
}

impl TraceStreamFile {
    /// Creates the file, and replaces an older trace.
    pub(super) fn create(path: &Path, header: &TraceHeader) -> io::Result<Self> {
        let page = TraceHeader { kind: FILE_STREAM, ..header.clone() }.encode();
        let older = trace_file::open_trace_for_read(path).ok();
        let file = trace_file::create_trace_file(path, &page)?;
        // Closing the last handle of a replaced file frees its disk space, in 36 ms of CPU time for
        // 175 MB. Meanwhile rings are to be drained.
        if let Some(older) = older {
            drop(std::thread::Builder::new().spawn(move || {
                // Of this thread alone; without it, draining is delayed.
                let _ = rustix::process::nice(19);
                drop(older);
            }));
        }
        Ok(Self { file, length_bytes: PAGE_BYTES, chunks: Vec::new() })
    }

    pub(super) fn write_header(&self, header: &TraceHeader) -> io::Result<()> {
        let page = TraceHeader { kind: FILE_STREAM, ..header.clone() }.encode();
        self.file.write_all_at(&page, 0)
    }

    /// Appends a segment. If that fails, readers see no part of it.
    pub(super) fn append_segment(&mut self, segment: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(segment, self.length_bytes) {
            // If this fails too, readers detect the rest by its checksum.
            let _ = self.file.set_len(self.length_bytes);
            return Err(error);
        }
        self.length_bytes += segment.len() as u64;
        Ok(())
    }

    /// Appends a chunk of events, and stores its position in `chunks`.
    pub(super) fn append_chunk(
        &mut self,
        chunk: &mut Chunk,
        position: &ChunkPosition,
    ) -> io::Result<()> {
        let start = self.length_bytes;
        self.append_segment(chunk.segment(position))?;
        self.chunks.push((start, chunk.events_count()));
        Ok(())
    }

    /// Appends a segment that describes a lane's thread. It has the thread's name and its number of
    /// lost events.
    pub(super) fn append_thread_segment(&mut self, page: &LanePage) -> io::Result<()> {
        let mut words = page.segment.words;
        words[thread::END_FIELD] = page.end_ticks;
        words[thread::RECORDED_FIELD] = 0;
        words[thread::LOST_FIELD] = page.lost;
        words[thread::NAME_BYTES_FIELD] = page.name.len() as u64;
        self.append_segment(&SegmentHeader::encode_with_payload(SEGMENT_THREAD, words, &page.name))
    }

    /// Appends a segment. If the disk is full, first drops the last chunks of events to make space.
    /// Returns the number of events dropped.
    pub(super) fn append_dropping_chunks(&mut self, segment: &[u8]) -> io::Result<u64> {
        let mut dropped_count = 0;
        loop {
            let Err(error) = self.append_segment(segment) else { return Ok(dropped_count) };
            let Some((start, count)) = self.chunks.pop() else { return Err(error) };
            self.file.set_len(start)?;
            self.length_bytes = start;
            dropped_count += count;
        }
    }
}
