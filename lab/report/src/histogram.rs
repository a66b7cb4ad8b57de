//! Decoding and merging of the histograms in records. Imported records are not trusted, so sizes
//! are checked before memory is allocated for them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::io::Read;

/// First bytes of a histogram in HdrHistogram's format V2, compressed. The length of the compressed
/// bytes follows, with four bytes.
const COMPRESSED_COOKIE: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// First bytes of a histogram in HdrHistogram's format V2.
const COOKIE: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
/// Length of the header in HdrHistogram's format V2.
const HEADER_BYTES: usize = 40;
/// Maximum length of a histogram without compression. One of three digits with each counter at its
/// maximum has less.
const INFLATED_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of significant decimal digits, which the lab's histograms have. The counters of
/// one of five digits take 50 MB.
const DIGITS_MAX: u32 = 3;

/// Returns the histogram of a record; `None` if the text is empty or invalid, or the histogram is
/// empty or of more than three digits.
pub(crate) fn decode_histogram(text: &str) -> Option<Histogram<u64>> {
    let bytes = inflate_checked(text)?;
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
    (!histogram.is_empty()).then_some(histogram)
}

/// Merges the histograms of several records, and returns the result in the same form. Invalid ones
/// are left out. The result is empty if there are none, or memory is short.
pub fn merge_histograms<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut histograms = texts.filter_map(decode_histogram);
    let Some(mut merged) = histograms.next() else { return String::new() };
    merged.auto(true);
    let mut bytes = Vec::new();
    let is_complete = histograms.all(|it| merged.add(&it).is_ok());
    match is_complete && V2DeflateSerializer::new().serialize(&merged, &mut bytes).is_ok() {
        true => STANDARD.encode(bytes),
        false => String::new(),
    }
}

/// Returns the bytes of a histogram in format V2, without compression. Returns `None` if the text
/// is invalid, or its header has a size that is too large.
fn inflate_checked(text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text).ok()?;
    let compressed = bytes.strip_prefix(&COMPRESSED_COOKIE)?.get(4..)?;
    let mut bytes = Vec::new();
    ZlibDecoder::new(compressed).take(INFLATED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let word = |at| bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let (payload_bytes, digits) = (word(4)?, word(12)?);
    let is_valid = bytes.starts_with(&COOKIE)
        && payload_bytes as usize <= bytes.len().saturating_sub(HEADER_BYTES)
        && digits <= DIGITS_MAX;
    is_valid.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::ZlibEncoder;
    use hdrhistogram::serialization::V2Serializer;

    /// Compresses and encodes bytes as a record's histogram.
    fn encode(bytes: &[u8]) -> String {
        let mut compressed = Vec::new();
        let mut encoder = ZlibEncoder::new(bytes, Compression::best());
        encoder.read_to_end(&mut compressed).expect("read from memory");
        let length = u32::try_from(compressed.len()).expect("a short text");
        STANDARD.encode([&COMPRESSED_COOKIE[..], &length.to_be_bytes(), &compressed].concat())
    }

    /// Returns a histogram of 99 equal samples in format V2.
    fn bytes_of(digits: u8, sample: u64) -> Vec<u8> {
        let mut histogram = Histogram::<u64>::new(digits).expect("valid digits");
        histogram.record_n(sample, 99).expect("a histogram that resizes itself");
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram, &mut bytes).expect("write to memory");
        bytes
    }

    #[test]
    fn histogram_with_a_size_above_its_bytes_is_refused_before_allocation() {
        let bytes = bytes_of(3, 53_000);
        assert_eq!(decode_histogram(&encode(&bytes)).map(|it| it.len()), Some(99));
        let mut huge = bytes.clone();
        huge[4..8].fill(0xff);
        assert_eq!(inflate_checked(&encode(&huge)), None);
        // Compressed twice: the decoder would inflate the inner one without these checks.
        let inner = STANDARD.decode(encode(&huge)).expect("base64");
        assert_eq!(inflate_checked(&encode(&inner)), None);
        assert_eq!(
            inflate_checked(&encode(&[bytes, vec![0; 8 << 20]].concat())).map(|it| it.len()),
            Some(1 << 20)
        );
    }

    #[test]
    fn histogram_of_more_than_three_digits_is_refused() {
        assert!(decode_histogram(&encode(&bytes_of(4, 53_000))).is_none());
    }

    #[test]
    fn merged_histogram_has_the_samples_of_all_valid_ones() {
        let [low, high] = [900, 2_000_000_000].map(|it| encode(&bytes_of(3, it)));
        let merged = merge_histograms([&*low, "rubbish", &high].into_iter());
        let merged = decode_histogram(&merged).expect("a histogram");
        assert_eq!((merged.len(), merged.count_at(900)), (198, 99));
        assert!(merged.equivalent(merged.max(), 2_000_000_000));
        assert_eq!(merge_histograms(["", "rubbish"].into_iter()), "");
    }
}
