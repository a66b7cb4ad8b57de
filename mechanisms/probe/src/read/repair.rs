//! Repair of checksums, for tests of readers: damage behind a wrong checksum would never be read.

use crate::format::{
    self, MAGIC, PAGE_BYTES, SEGMENT_BYTES, SEGMENT_CHUNK, SEGMENT_MAGIC, SEGMENT_PACKED,
    SEGMENT_THREAD, chunk, thread,
};

/// Number of words of a file's header that its checksum covers. The checksum follows them.
const HEADER_WORDS: usize = 15;
/// Number of words of a segment's header that its checksum covers. The checksum follows them.
const SEGMENT_WORDS: usize = 11;

/// Returns the bytes of a trace with corrected checksums in its header and its segments. Stops at
/// the first invalid segment.
#[doc(hidden)]
#[must_use]
pub fn repair_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.starts_with(&MAGIC.to_le_bytes()) && bytes.len() as u64 >= PAGE_BYTES {
        write_checksum(&mut bytes, HEADER_WORDS);
    }
    let mut at = PAGE_BYTES as usize;
    while let Some(segment) = bytes.get_mut(at..) {
        let Some(length) = repair_segment(segment) else { break };
        at = at.saturating_add(length);
    }
    bytes
}

/// Corrects the checksums of a segment, and returns its length in bytes. Returns `None` if the
/// segment is invalid.
fn repair_segment(segment: &mut [u8]) -> Option<usize> {
    let payload_at = SEGMENT_BYTES as usize;
    if segment.len() < payload_at || !segment.starts_with(&SEGMENT_MAGIC.to_le_bytes()) {
        return None;
    }
    let length = usize::try_from(word(segment, 1)).ok()?;
    let kind = (word(segment, 0) >> 32) as u32;
    let payload_bytes = match kind {
        SEGMENT_CHUNK | SEGMENT_PACKED => word(segment, 3 + chunk::PAYLOAD_BYTES_FIELD),
        SEGMENT_THREAD => word(segment, 3 + thread::NAME_BYTES_FIELD),
        _ => word(segment, 3),
    };
    let payload_end = usize::try_from(payload_bytes).ok().and_then(|it| it.checked_add(payload_at));
    if let Some(payload) = payload_end.and_then(|end| segment.get(payload_at..end)) {
        let checksum = format::segment_checksum(kind, payload);
        segment[16..24].copy_from_slice(&checksum.to_le_bytes());
    }
    write_checksum(segment, SEGMENT_WORDS);
    (length >= payload_at).then_some(length)
}

/// Returns the word at `index` of `bytes`.
fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
    u64::from_le_bytes(word)
}

/// Computes the checksum of the first `count` words and stores it after them.
fn write_checksum(bytes: &mut [u8], count: usize) {
    let words: Vec<u64> = (0..count).map(|index| word(bytes, index)).collect();
    let checksum = format::words_checksum(&words);
    bytes[8 * count..8 * count + 8].copy_from_slice(&checksum.to_le_bytes());
}
