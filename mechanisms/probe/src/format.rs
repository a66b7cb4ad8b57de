//! File format of a trace: little-endian, all numbers 64-bit words; without I/O.
//!
//! ```text
//!  file      │ header, 4096 bytes │ segment │ segment │ …
//!  segment   │ 12 words: magic and kind, bytes, checksum of the payload, … , checksum of these │ payload │
//!
//!  rings     │ header │ sites │ lane: a page of header, then the ring │ lane │ …      (mapped by the process)
//!  stream    │ header │ sites │ thread │ chunk │ chunk │ thread │ chunk │ …             (appended)
//! ```
//! A chunk holds consecutive events of one thread; [`chunk`](crate::chunk) describes their
//! encoding.

pub use crate::layout::*;

use crate::site::{KIND_SPAN, Site, SiteKind};
use std::ops::Range;

/// Readings of three clocks at one moment: ticks, CLOCK_MONOTONIC and CLOCK_REALTIME.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockAnchor {
    pub ticks: u64,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

impl ClockAnchor {
    /// Returns the three readings, as stored in a header.
    fn words(&self) -> [u64; 3] {
        [self.ticks, self.monotonic_ns, self.realtime_ns]
    }
}

/// Contents of a trace file's first page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceHeader {
    /// Kind of the file: [`FILE_RINGS`] or [`FILE_STREAM`].
    pub kind: u64,
    /// Number that identifies the recording.
    pub session: u64,
    pub pid: u32,
    pub parent_pid: u32,
    /// `true` if ticks are the processor's time-stamp counter, `false` if they are ns of
    /// CLOCK_MONOTONIC.
    pub is_tsc: bool,
    /// Number of ticks per second.
    pub ticks_hz: f64,
    /// Clock readings at the start of the recording.
    pub begin: ClockAnchor,
    /// ID of the machine's boot during which the process was recorded.
    pub boot: [u64; 2],
    /// Number of words of each thread's ring.
    pub ring_words: u64,
    /// Time at which the process started, in clock ticks since the boot, which tells processes with
    /// the same ID apart. 0 if unknown.
    pub process_start: u64,
    // The words from here on change while recording; the checksum does not cover them.
    /// Clock readings when this header was written.
    pub end: ClockAnchor,
    /// State of the recording: one of the constants `STATE_*`.
    pub state: u64,
    /// Error number (errno) if recording has failed, otherwise 0. It is also 0 if the error was not
    /// the operating system's.
    pub errno: u64,
    /// Number of lost events of all threads. It is complete once the recording is finished.
    pub lost: u64,
    /// Number of threads that recorded nothing because no lane was free.
    pub threads_refused: u64,
    /// Number of events that were discarded because another thread reused their lane.
    pub overwritten: u64,
    /// Path of the recorded program.
    pub program: String,
    /// Path of the file of rings from which the stream is written.
    pub rings: String,
    /// Path of the stream's file, to which the events of the rings are written.
    pub stream: String,
}

/// Byte range of the program's path in a file's header.
const PROGRAM_PATH_RANGE: Range<usize> =
    header::PROGRAM_PATH_OFFSET_BYTES..header::RINGS_PATH_OFFSET_BYTES;
/// Byte range, in a file's header, of the path of the file of rings.
const RINGS_PATH_RANGE: Range<usize> =
    header::RINGS_PATH_OFFSET_BYTES..header::STREAM_PATH_OFFSET_BYTES;
/// Byte range, in a file's header, of the path of the stream's file.
pub const STREAM_PATH_RANGE: Range<usize> = header::STREAM_PATH_OFFSET_BYTES..PAGE_BYTES as usize;

impl TraceHeader {
    /// Encodes the header as the first page of a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        let mut words = [0; header::WORDS_COUNT];
        words[header::MAGIC_FIELD] = MAGIC;
        words[header::KIND_FIELD] = self.kind;
        words[header::SESSION_FIELD] = self.session;
        words[header::PIDS_FIELD] = u64::from(self.pid) | u64::from(self.parent_pid) << 32;
        words[header::IS_TSC_FIELD] = u64::from(self.is_tsc);
        words[header::TICKS_HZ_FIELD] = self.ticks_hz.to_bits();
        words[header::BEGIN_FIELD..][..3].copy_from_slice(&self.begin.words());
        words[header::BOOT_FIELD..][..2].copy_from_slice(&self.boot);
        words[header::RING_WORDS_FIELD] = self.ring_words;
        words[header::PROCESS_START_FIELD] = self.process_start;
        words[header::CHECKSUM_FIELD] = words_checksum(&words[..header::CHECKSUM_FIELD]);
        words[header::END_FIELD..][..3].copy_from_slice(&self.end.words());
        words[header::STATE_FIELD] = self.state;
        words[header::ERRNO_FIELD] = self.errno;
        words[header::LOST_FIELD] = self.lost;
        words[header::REFUSED_FIELD] = self.threads_refused;
        words[header::OVERWRITTEN_FIELD] = self.overwritten;
        for (bytes, word) in page.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        write_padded_text(&mut page[PROGRAM_PATH_RANGE], &self.program);
        write_padded_text(&mut page[RINGS_PATH_RANGE], &self.rings);
        write_padded_text(&mut page[STREAM_PATH_RANGE], &self.stream);
        page
    }

    /// Decodes a header; `None` if the page is not a header, or is damaged.
    pub fn decode(page: &[u8]) -> Option<Self> {
        if page.len() < PAGE_BYTES as usize {
            return None;
        }
        let mut words = [0; header::WORDS_COUNT];
        for (word, bytes) in words.iter_mut().zip(page.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let sound = words[header::MAGIC_FIELD] == MAGIC
            && words[header::CHECKSUM_FIELD] == words_checksum(&words[..header::CHECKSUM_FIELD]);
        let anchor = |at: usize| ClockAnchor {
            ticks: words[at],
            monotonic_ns: words[at + 1],
            realtime_ns: words[at + 2],
        };
        sound.then(|| Self {
            kind: words[header::KIND_FIELD],
            session: words[header::SESSION_FIELD],
            pid: words[header::PIDS_FIELD] as u32,
            parent_pid: (words[header::PIDS_FIELD] >> 32) as u32,
            is_tsc: words[header::IS_TSC_FIELD] == 1,
            ticks_hz: f64::from_bits(words[header::TICKS_HZ_FIELD]),
            begin: anchor(header::BEGIN_FIELD),
            boot: [words[header::BOOT_FIELD], words[header::BOOT_FIELD + 1]],
            ring_words: words[header::RING_WORDS_FIELD],
            process_start: words[header::PROCESS_START_FIELD],
            end: anchor(header::END_FIELD),
            state: words[header::STATE_FIELD],
            errno: words[header::ERRNO_FIELD],
            lost: words[header::LOST_FIELD],
            threads_refused: words[header::REFUSED_FIELD],
            overwritten: words[header::OVERWRITTEN_FIELD],
            program: parse_padded_text(&page[PROGRAM_PATH_RANGE]),
            rings: parse_padded_text(&page[RINGS_PATH_RANGE]),
            stream: parse_padded_text(&page[STREAM_PATH_RANGE]),
        })
    }
}

/// Copies `text` into a field that was filled with zeroes. A text that is too long is cut at a
/// character boundary.
fn write_padded_text(to: &mut [u8], text: &str) {
    let mut end = text.len().min(to.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// Parses a text that ends at the first zero.
fn parse_padded_text(from: &[u8]) -> String {
    let end = from.iter().position(|byte| *byte == 0).unwrap_or(from.len());
    String::from_utf8_lossy(&from[..end]).into_owned()
}

/// Header of a segment, a part of a trace file. The meaning of `words` depends on `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Kind of the segment: one of the constants `SEGMENT_*`.
    pub kind: u32,
    /// Length of the segment in bytes, including header and padding. The payload is padded to 8
    /// bytes.
    pub bytes: u64,
    /// Checksum of the payload.
    pub payload_checksum: u64,
    /// Words whose meaning depends on the kind. Modules such as `chunk` name them.
    pub words: [u64; 8],
}

/// Decodes the word of one function in a table of functions. Returns the index of the module, and
/// the function's address in the module's file. Returns `None` if the word is empty.
#[must_use]
pub fn decode_function_word(word: u64) -> Option<(u64, u64)> {
    use functions::{MODULE_SHIFT, PRESENT_FLAG};
    let module = (word & !PRESENT_FLAG) >> MODULE_SHIFT;
    (word & PRESENT_FLAG != 0).then_some((module, word & ((1 << MODULE_SHIFT) - 1)))
}

/// Program or shared object (module) that the recorded process has mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// Number of the module in the trace.
    pub index: u64,
    /// Load bias of the module: the difference between an address in memory and in its file.
    pub bias: u64,
    /// Address of the module's first byte in memory.
    pub start: u64,
    /// Address after the module's last byte in memory.
    pub end: u64,
    /// Build ID from the linker; empty if there is none.
    pub build_id: Vec<u8>,
    /// Path of the module's file.
    pub path: String,
}

impl Module {
    /// Decodes a module from a segment's payload; `None` if the payload is not a valid module.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let mut number = || {
            let (number, behind) = parse_varint(rest)?;
            rest = behind;
            Some(number)
        };
        let (index, bias, start, end) = (number()?, number()?, number()?, number()?);
        let id_bytes = usize::try_from(number()?).ok()?;
        let (build_id, behind) = rest.split_at_checked(id_bytes)?;
        let (path_bytes, behind) = parse_varint(behind)?;
        let path = behind.get(..usize::try_from(path_bytes).ok()?)?;
        let path = String::from_utf8_lossy(path).into_owned();
        Some(Self { index, bias, start, end, build_id: build_id.to_vec(), path })
    }

    /// Returns a name for a function without a symbol: the module's file name and the function's
    /// offset.
    #[must_use]
    pub fn unnamed_function(&self, offset: u64) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        format!("{name}+{offset:#x}")
    }
}

/// Returns a site that represents a traced function at this source position.
#[must_use]
pub fn function_site(number: u32, name: String, file: String, line: u32) -> Site {
    Site { number, name, file, line, kind: SiteKind::Span, values_count: 0, is_on: false }
}

impl SegmentHeader {
    /// Encodes the header, with its checksum.
    pub fn encode(&self) -> [u8; SEGMENT_BYTES as usize] {
        let mut words = [0; SEGMENT_WORDS];
        words[0] = u64::from(SEGMENT_MAGIC) | u64::from(self.kind) << 32;
        words[1] = self.bytes;
        words[2] = self.payload_checksum;
        words[3..11].copy_from_slice(&self.words);
        words[11] = words_checksum(&words[..11]);
        let mut bytes = [0; SEGMENT_BYTES as usize];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes a segment's header; `None` if the bytes are not a header, or are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_BYTES as usize)?;
        let mut words = [0; SEGMENT_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let segment = Self {
            kind: (words[0] >> 32) as u32,
            bytes: words[1],
            payload_checksum: words[2],
            words: words[3..11].try_into().ok()?,
        };
        let sound = words[0] as u32 == SEGMENT_MAGIC
            && words[11] == words_checksum(&words[..11])
            && segment.bytes.is_multiple_of(8)
            && (SEGMENT_BYTES..=SEGMENT_BYTES_MAX).contains(&segment.bytes);
        sound.then_some(segment)
    }

    /// Encodes a segment with this payload, including header and padding.
    pub fn encode_with_payload(kind: u32, words: [u64; 8], payload: &[u8]) -> Vec<u8> {
        let padded = payload.len().next_multiple_of(8);
        let segment = Self {
            kind,
            bytes: SEGMENT_BYTES + padded as u64,
            payload_checksum: checksum(payload),
            words,
        };
        let mut bytes = Vec::with_capacity(SEGMENT_BYTES as usize + padded);
        bytes.extend_from_slice(&segment.encode());
        bytes.extend_from_slice(payload);
        bytes.resize(SEGMENT_BYTES as usize + padded, 0);
        bytes
    }
}

/// Returns `hash` updated with a further word.
fn hash_word(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ CHECKSUM_MULTIPLIER) * u128::from(CHECKSUM_MULTIPLIER);
    (product as u64) ^ (product >> 64) as u64
}

/// Returns a checksum that detects accidental damage, but not forgery.
pub fn checksum(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = chunks
        .iter()
        .fold(bytes.len() as u64, |hash, chunk| hash_word(hash, u64::from_le_bytes(*chunk)));
    hash_word(hash, u64::from_le_bytes(last))
}

/// Returns the checksum of a segment's payload. For packed events four independent sums are
/// computed in parallel, as a single sum would wait for each multiplication.
pub fn segment_checksum(kind: u32, payload: &[u8]) -> u64 {
    if kind != SEGMENT_PACKED {
        return checksum(payload);
    }
    let (chunks, rest) = payload.as_chunks::<32>();
    let mut lanes = [1, 2, 3, 4];
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks().0) {
            *lane = hash_word(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes.iter().fold(checksum(rest) ^ payload.len() as u64, |hash, lane| hash_word(hash, *lane))
}

/// Returns the checksum of the words of a header.
pub fn words_checksum(words: &[u64]) -> u64 {
    words.iter().fold(CHECKSUM_MULTIPLIER, |hash, word| hash_word(hash, *word))
}

/// Appends a number as a varint: 7 bits per byte, the lowest bits first.
#[inline]
pub fn append_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a number as a varint at index `at`; returns the index after the varint. Panics if `out`
/// is too short for the varint, which has up to ten bytes.
#[inline]
pub fn write_varint(out: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        out[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    out[at] = number as u8;
    at + 1
}

/// Parses a varint; returns the number and the bytes after the varint. Returns `None` if the varint
/// is incomplete or too long.
#[inline]
pub fn parse_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Encodes the payload of a segment that lists sites.
pub fn encode_sites(sites: &[Site]) -> Vec<u8> {
    let mut out = Vec::new();
    append_varint(&mut out, sites.len() as u64);
    for site in sites {
        let kind = if site.kind == SiteKind::Span { KIND_SPAN } else { 0 };
        for number in [site.number, site.line, kind.into(), site.values_count.into()] {
            append_varint(&mut out, number.into());
        }
        for text in [&site.name, &site.file] {
            append_varint(&mut out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// Encodes a segment whose payload is an encoded list of sites. Its first word is the payload's
/// length.
pub fn encode_sites_segment(payload: &[u8]) -> Vec<u8> {
    SegmentHeader::encode_with_payload(
        SEGMENT_SITES,
        [payload.len() as u64, 0, 0, 0, 0, 0, 0, 0],
        payload,
    )
}

/// Decodes the payload of a segment that lists sites; `None` if it is not valid.
pub fn decode_sites(mut payload: &[u8]) -> Option<Vec<Site>> {
    let number = |payload: &mut &[u8]| {
        let (number, rest) = parse_varint(payload)?;
        *payload = rest;
        Some(number)
    };
    let text = |payload: &mut &[u8]| {
        let (bytes, rest) = parse_varint(payload)?;
        let text = rest.get(..usize::try_from(bytes).ok()?)?;
        *payload = &rest[text.len()..];
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let count = number(&mut payload)?;
    let mut sites = Vec::new();
    for _ in 0..count {
        let [id, line, kind, values_count] = [
            number(&mut payload)?,
            number(&mut payload)?,
            number(&mut payload)?,
            number(&mut payload)?,
        ];
        sites.push(Site {
            number: u32::try_from(id).ok()?,
            name: text(&mut payload)?,
            file: text(&mut payload)?,
            line: u32::try_from(line).ok()?,
            kind: if kind == u64::from(KIND_SPAN) { SiteKind::Span } else { SiteKind::Mark },
            values_count: u8::try_from(values_count).ok()?,
            is_on: false,
        });
    }
    Some(sites)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_round_trips_and_a_damaged_header_is_rejected() {
        let header = TraceHeader {
            kind: FILE_STREAM,
            session: 7,
            pid: 12,
            parent_pid: 11,
            is_tsc: true,
            ticks_hz: 2.1e9,
            process_start: 5,
            begin: ClockAnchor { ticks: 1, monotonic_ns: 2, realtime_ns: 3 },
            lost: 9,
            program: "prög".into(),
            rings: "/dev/shm/x".into(),
            ..TraceHeader::default()
        };
        let mut page = header.encode();
        assert_eq!(TraceHeader::decode(&page), Some(header));
        page[17] ^= 1;
        assert_eq!(TraceHeader::decode(&page), None);
        assert_eq!(TraceHeader::decode(&page[..100]), None);
    }

    proptest! {
        #[test]
        fn varint_round_trips(first: u64, shift in 0..64) {
            let mut bytes = Vec::new();
            append_varint(&mut bytes, first >> shift);
            append_varint(&mut bytes, first);
            let (small, rest) = parse_varint(&bytes).unwrap();
            let (number, rest) = parse_varint(rest).unwrap();
            prop_assert_eq!((small, number, rest), (first >> shift, first, &[][..]));
        }

        #[test]
        fn random_bytes_decode_to_at_most_ten_byte_varints(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Some((_, rest)) = parse_varint(&bytes) {
                prop_assert!(rest.len() < bytes.len() && bytes.len() - rest.len() <= 10);
            }
        }

        #[test]
        fn one_flipped_bit_changes_the_checksum(
            bytes in proptest::collection::vec(any::<u8>(), 1..100),
            bit: proptest::sample::Index,
        ) {
            let bit = bit.index(bytes.len() * 8);
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            for kind in [SEGMENT_CHUNK, SEGMENT_PACKED] {
                prop_assert_ne!(segment_checksum(kind, &bytes), segment_checksum(kind, &flipped));
            }
        }

        #[test]
        fn segment_round_trips(kind: u32, words: [u64; 8], payload in proptest::collection::vec(any::<u8>(), 0..50)) {
            let bytes = SegmentHeader::encode_with_payload(kind, words, &payload);
            let segment = SegmentHeader::decode(&bytes).unwrap();
            prop_assert_eq!((segment.kind, segment.words, segment.bytes), (kind, words, bytes.len() as u64));
            prop_assert_eq!(segment.payload_checksum, checksum(&payload));
        }
    }
}
