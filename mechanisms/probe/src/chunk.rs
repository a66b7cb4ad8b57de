//! Chunks: consecutive events of one thread, encoded for the file.
//!
//! ```text
//!  packed    │ time since the event before : 16 │ site and form : 16 │           4 bytes an event, no more
//!  varints   │ time since the event before │ site and form │ value │ value │     a varint each
//! ```
//!
//! **A busy thread's events are packed.** Packing a block fails if an event has values, follows a
//! pause of 2^16 ticks or more, or has a site number of 2^14 or more; this is found while packing.
//! A fixed width needs neither branches nor lengths, and takes a quarter of the time of varints.
//! Events that cannot be packed are encoded as varints, in a chunk of their own.

use crate::format::{
    SEGMENT_BYTES, SEGMENT_CHUNK, SEGMENT_PACKED, SegmentHeader, chunk, segment_checksum,
    write_varint,
};
use crate::lane::{CODE_BITS, DrainedEvent, event_words_count};

/// Maximum size in bytes of an event that is encoded as four varints.
const VARINT_EVENT_BYTES_MAX: usize = 10 + 3 + 10 + 10;
/// Size in bytes of a packed event.
const PACKED_BYTES: usize = 4;
/// Number of bits of each half of a packed event. One half is the time, the other the code.
const HALF_BITS: u32 = 16;
/// Mask of the bits of an event that contain its code (site and form).
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;
/// Size in bytes of a segment's header.
const HEADER_BYTES: usize = SEGMENT_BYTES as usize;

/// Position of a chunk of events in a trace. It has the chunk's thread, and the number of events
/// before it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChunkPosition {
    /// Number of the lane (a thread's ring) from which the events were read.
    pub lane: u64,
    /// Number of events of the chunk's thread in earlier chunks of the stream.
    pub events_before: u64,
    /// Number of events of the chunk's thread that were lost before the chunk.
    pub lost_before: u64,
    /// Position in the lane's ring after the chunk's last event.
    pub position_end: u64,
}

/// Encoder of chunks of events. Its memory is reused from chunk to chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Buffer for the segment's header and the events, with free space at its end.
    bytes: Vec<u8>,
    /// Number of bytes in use in `bytes`: the header and the events so far.
    end: usize,
    /// `true` if the events are packed, `false` if they are varints.
    is_packed: bool,
    events_count: u64,
    /// Time stamp of the first event.
    base_ticks: u64,
    /// Time stamp of the last event.
    last_ticks: u64,
}

impl Default for Chunk {
    fn default() -> Self {
        let bytes = vec![0; HEADER_BYTES];
        Self {
            bytes,
            end: HEADER_BYTES,
            is_packed: false,
            events_count: 0,
            base_ticks: 0,
            last_ticks: 0,
        }
    }
}

impl Chunk {
    /// Removes all events, to start the next chunk.
    pub fn clear(&mut self) {
        (self.end, self.events_count, self.is_packed) = (HEADER_BYTES, 0, false);
    }

    /// Returns the number of events in the chunk.
    #[must_use]
    pub fn events_count(&self) -> u64 {
        self.events_count
    }

    /// Appends an event, encoded as varints. Returns `false`, without a change, if the chunk
    /// contains packed events; the caller must then start the next chunk.
    pub fn push(&mut self, event: &DrainedEvent) -> bool {
        if self.is_packed {
            return false;
        }
        self.reserve(VARINT_EVENT_BYTES_MAX);
        self.push_varints(event);
        true
    }

    /// Appends all events of a block, or its last events. Returns `false`, without a change, if the
    /// caller must start the next chunk. The events' times are relative to `base_ticks`, and zeroes
    /// may follow the events.
    pub fn push_block(&mut self, base_ticks: u64, words: &[u64]) -> bool {
        if self.is_packed || self.events_count == 0 {
            let is_first = self.events_count == 0;
            if self.pack(base_ticks, words) {
                return true;
            }
            if !is_first {
                return false;
            }
        }
        self.reserve(words.len() * VARINT_EVENT_BYTES_MAX);
        let mut at = 0;
        while let Some(event) = words.get(at).copied().filter(|event| *event != 0) {
            let value = |index: usize| words.get(at + index).copied().unwrap_or(0);
            let ticks = base_ticks.wrapping_add(event >> CODE_BITS);
            let values = [value(1), value(2)];
            self.push_varints(&DrainedEvent { ticks, code: event & CODE_MASK, values });
            at += event_words_count(event) as usize;
        }
        true
    }

    /// Completes the chunk's segment with header and padding, and returns the segment's bytes.
    pub fn segment(&mut self, position: &ChunkPosition) -> &[u8] {
        let payload_bytes = self.end - HEADER_BYTES;
        let padded_end = self.end.next_multiple_of(8);
        self.reserve(8);
        self.bytes[self.end..padded_end].fill(0);
        let kind = if self.is_packed { SEGMENT_PACKED } else { SEGMENT_CHUNK };
        let mut words = [0; 8];
        words[chunk::LANE_FIELD] = position.lane;
        words[chunk::EVENTS_FIELD] = self.events_count;
        words[chunk::BASE_FIELD] = self.base_ticks;
        words[chunk::POSITION_END_FIELD] = position.position_end;
        words[chunk::EVENTS_BEFORE_FIELD] = position.events_before;
        words[chunk::LOST_BEFORE_FIELD] = position.lost_before;
        words[chunk::LAST_FIELD] = self.last_ticks;
        words[chunk::PAYLOAD_BYTES_FIELD] = payload_bytes as u64;
        let payload_checksum = segment_checksum(kind, &self.bytes[HEADER_BYTES..self.end]);
        let segment = SegmentHeader { kind, bytes: padded_end as u64, payload_checksum, words };
        self.bytes[..HEADER_BYTES].copy_from_slice(&segment.encode());
        &self.bytes[..padded_end]
    }

    /// Ensures that the buffer has space for `bytes` more bytes.
    fn reserve(&mut self, bytes: usize) {
        if self.bytes.len() < self.end + bytes {
            self.bytes.resize(self.end + bytes, 0);
        }
    }

    /// Appends a block's events in packed form. Returns `false`, without a change, if an event
    /// cannot be packed.
    #[inline]
    fn pack(&mut self, base_ticks: u64, words: &[u64]) -> bool {
        let count = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let Some(first) = words.first().filter(|_| count > 0) else { return true };
        let first_ticks = base_ticks.wrapping_add(first >> CODE_BITS);
        let last_ticks = if self.events_count == 0 { first_ticks } else { self.last_ticks };
        self.reserve(count * PACKED_BYTES);
        let room = &mut self.bytes[self.end..self.end + count * PACKED_BYTES];
        let mut before = last_ticks.wrapping_sub(base_ticks);
        let mut unpackable = 0;
        for (to, word) in room.as_chunks_mut().0.iter_mut().zip(words) {
            let (ticks, code) = (word >> CODE_BITS, word & CODE_MASK);
            // Huge if time goes back: another CPU's counter may be slightly behind.
            let since = ticks.wrapping_sub(before);
            before = ticks;
            // Non-zero for a bit in the upper half of either, or for a form that has values.
            unpackable |= (since | code) >> HALF_BITS | (code ^ code >> 1) & 1;
            *to = (since as u32 | (code as u32) << HALF_BITS).to_le_bytes();
        }
        if unpackable != 0 {
            return false;
        }
        if self.events_count == 0 {
            self.base_ticks = first_ticks;
        }
        self.last_ticks = base_ticks.wrapping_add(before);
        self.end += count * PACKED_BYTES;
        self.events_count += count as u64;
        self.is_packed = true;
        true
    }

    /// Appends an event as varints; the caller has reserved the space.
    #[inline]
    fn push_varints(&mut self, event: &DrainedEvent) {
        /// Exclusive upper bound of the numbers whose varints take at most two bytes.
        const SHORT_VARINT_END: u64 = 1 << 14;
        if self.events_count == 0 {
            (self.base_ticks, self.last_ticks) = (event.ticks, event.ticks);
        }
        // Another CPU's counter may be slightly behind; a thread's time does not go back.
        let ticks = event.ticks.max(self.last_ticks);
        let since = ticks - self.last_ticks;
        self.last_ticks = ticks;
        self.events_count += 1;
        let out = &mut self.bytes[self.end..];
        let values_count = event_words_count(event.code) as usize - 1;
        if since < SHORT_VARINT_END && event.code < SHORT_VARINT_END && values_count == 0 {
            // Two varints of one or two bytes each, combined in a register.
            let (since, since_bytes) = short_varint(since);
            let (code, code_bytes) = short_varint(event.code);
            let both = since | code << (8 * since_bytes);
            out[..4].copy_from_slice(&both.to_le_bytes());
            self.end += (since_bytes + code_bytes) as usize;
            return;
        }
        let mut at = write_varint(out, 0, since);
        at = write_varint(out, at, event.code);
        for value in &event.values[..values_count] {
            at = write_varint(out, at, *value);
        }
        self.end += at;
    }
}

/// Encodes a number below 2^14 as a varint of one or two bytes. Returns the varint and its length
/// in bytes.
#[inline]
fn short_varint(number: u64) -> (u32, u32) {
    let (low, high) = ((number & 0x7f) as u32, (number >> 7) as u32);
    let is_long = u32::from(high != 0);
    (low | is_long << 7 | high << 8, 1 + is_long)
}

/// Decodes a packed event: ticks since the previous event, and code (site and form).
#[inline]
#[must_use]
pub fn unpack(bytes: [u8; PACKED_BYTES]) -> (u64, u64) {
    let both = u64::from(u32::from_le_bytes(bytes));
    (both & ((1 << HALF_BITS) - 1), both >> HALF_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{append_varint, parse_varint};
    use crate::lane::{FORM_LEAVE, FORM_ONE_VALUE, FORM_TWO_VALUES};
    use proptest::prelude::*;

    /// Words of a block with events at these times and codes, and with values where their forms
    /// have any.
    fn block(events: &[(u64, u64)]) -> Vec<u64> {
        let words = events.iter().flat_map(|(since, code)| {
            let event = since << CODE_BITS | code;
            [event, 77, 1 << 40].into_iter().take(event_words_count(event) as usize)
        });
        words.chain([0, 0]).collect()
    }

    /// Decodes the chunk's segment into times and codes.
    fn read(chunk: &mut Chunk) -> Vec<(u64, u64)> {
        let bytes = chunk.segment(&ChunkPosition::default()).to_vec();
        let segment = SegmentHeader::decode(&bytes).unwrap();
        assert_eq!(segment.bytes, bytes.len() as u64);
        let payload = &bytes[HEADER_BYTES..][..segment.words[chunk::PAYLOAD_BYTES_FIELD] as usize];
        assert_eq!(segment_checksum(segment.kind, payload), segment.payload_checksum);
        let mut ticks = segment.words[chunk::BASE_FIELD];
        let mut events = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            let (since, code);
            if segment.kind == SEGMENT_PACKED {
                let (event, behind) = rest.split_first_chunk().unwrap();
                ((since, code), rest) = (unpack(*event), behind);
            } else {
                (since, rest) = parse_varint(rest).unwrap();
                (code, rest) = parse_varint(rest).unwrap();
                for _ in 1..event_words_count(code) {
                    (_, rest) = parse_varint(rest).unwrap();
                }
            }
            ticks += since;
            events.push((ticks, code));
        }
        assert_eq!(segment.words[chunk::EVENTS_FIELD], events.len() as u64);
        assert_eq!(segment.words[chunk::LAST_FIELD], ticks);
        events
    }

    #[test]
    fn block_without_values_is_packed_and_others_become_varints_in_a_new_chunk() {
        let busy = block(&[(10, 4), (70, 4 | FORM_LEAVE), (90, (1 << 16) - 4)]);
        let mut chunk = Chunk::default();
        assert!(chunk.push_block(1000, &busy) && chunk.push_block(2000, &busy));
        assert!(!chunk.push(&DrainedEvent { ticks: 5000, code: 4, values: [0; 2] }));
        for other in
            [(10, 4 | FORM_ONE_VALUE), (10, 4 | FORM_TWO_VALUES), (1 << 17, 4), (10, 1 << 16)]
        {
            assert!(!chunk.push_block(3000, &block(&[other])), "{other:?}");
        }
        // A time before the last event's.
        assert!(!chunk.push_block(2000, &busy));
        let codes = [4, 7, (1 << 16) - 4];
        let expected: Vec<(u64, u64)> = [1010, 1070, 1090, 2010, 2070, 2090]
            .into_iter()
            .zip(codes.into_iter().cycle())
            .collect();
        assert_eq!(read(&mut chunk), expected);
        chunk.clear();
        assert!(chunk.push_block(3000, &block(&[(10, 4 | FORM_TWO_VALUES)])));
        assert!(chunk.push_block(4000, &busy), "packable events were not encoded as varints");
        assert!(chunk.push(&DrainedEvent { ticks: 3999, code: 4, values: [0; 2] }));
        let expected = [(3010, 6), (4010, 4), (4070, 7), (4090, (1 << 16) - 4), (4090, 4)];
        assert_eq!(
            read(&mut chunk),
            expected,
            "the events read differ from the events written, or a time goes back"
        );
    }

    #[test]
    fn empty_block_adds_no_event() {
        let mut chunk = Chunk::default();
        assert!(chunk.push_block(1000, &[]) && chunk.push_block(1000, &[0, 0]));
        assert_eq!(chunk.events_count(), 0);
    }

    proptest! {
        #[test]
        fn encoded_events_decode_to_the_same_events(
            blocks in proptest::collection::vec(
                proptest::collection::vec((0..100_000u64, 4..(1 << 18) as u64), 0..20), 1..8),
            kind in 0..3,
        ) {
            let mut chunk = Chunk::default();
            let (mut expected, mut seen, mut base_ticks) = (Vec::new(), Vec::new(), 1 << 40);
            for mut events in blocks {
                // Blocks that can be packed, that could be but for values, and of any events.
                let mut since = 0;
                for (step, code) in &mut events {
                    if kind < 2 {
                        (*step, *code) = (*step % 60_000, (*code % (1 << 16)) | 4);
                    }
                    if kind == 0 && matches!(*code & 3, FORM_ONE_VALUE | FORM_TWO_VALUES) {
                        *code |= FORM_LEAVE;
                    }
                    since += *step;
                    *step = since;
                }
                expected.extend(events.iter().map(|(since, code)| (base_ticks + since, *code)));
                let words = block(&events);
                if !chunk.push_block(base_ticks, &words) {
                    seen.extend(read(&mut chunk));
                    chunk.clear();
                    prop_assert!(chunk.push_block(base_ticks, &words));
                }
                base_ticks += since + 1;
            }
            seen.extend(read(&mut chunk));
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn short_varints_equal_general_varints(since in 0..20_000u64, code in 1..20_000u64) {
            let mut chunk = Chunk::default();
            for ticks in [0, since] {
                chunk.push(&DrainedEvent { ticks, code: code & !3, values: [7, 8] });
            }
            let mut plainly = Vec::new();
            for since in [0, since] {
                append_varint(&mut plainly, since);
                append_varint(&mut plainly, code & !3);
            }
            prop_assert_eq!(&chunk.bytes[HEADER_BYTES..chunk.end], plainly);
        }
    }
}
