//! Deflate with a dictionary: a text that resembles every record.
//!
//! Deflate encodes a repetition as a distance into the last 32 KiB. A record's body is a few
//! kilobytes, mostly names of fields and contenders, and repeats little by itself. So the
//! compressor reads [`DICTIONARY`] first; that output is discarded, and the output for the record
//! is kept: a third of its size without a dictionary. The decoder also reads the dictionary first,
//! as an uncompressed block.

use flate2::bufread::DeflateDecoder;
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output, create_comp_flags_from_zip_params,
};
use std::io::{self, Read};
use std::sync::LazyLock;

/// Fields, ids and sentences of records as this project writes them. **Never change it**: bodies
/// that were packed with it could no longer be read. Another dictionary needs another form of
/// bodies ([`FORM`](super::FORM)).
const DICTIONARY: &[u8] = include_bytes!("dictionary.txt");

/// Returns the header of deflate's block for the dictionary: not the last block, not compressed.
const fn header() -> [u8; 5] {
    let length = DICTIONARY.len() as u16;
    let ([low, high], [not_low, not_high]) = (length.to_le_bytes(), (!length).to_le_bytes());
    [0, low, high, not_low, not_high]
}

/// Maximum distance in deflate.
const WINDOW_BYTES: usize = 1 << 15;
const _: () = assert!(DICTIONARY.len() < WINDOW_BYTES);

/// Compressor that has read the dictionary, up to a byte boundary. It is cloned for each text, as
/// reading the dictionary takes longer than compressing any text.
static PRIMED: LazyLock<CompressorOxide> = LazyLock::new(|| {
    const LEVEL_BEST: i32 = 9;
    const NO_HEADER: i32 = -15;
    let flags = create_comp_flags_from_zip_params(LEVEL_BEST, NO_HEADER, 0);
    let mut compressor = CompressorOxide::new(flags);
    compress_to_output(&mut compressor, DICTIONARY, TDEFLFlush::Sync, |_| true);
    compressor
});

/// Appends the deflated text to `packed`.
pub fn deflate(text: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    let mut compressor = PRIMED.clone();
    let keep = |some: &[u8]| {
        packed.extend_from_slice(some);
        true
    };
    match compress_to_output(&mut compressor, text, TDEFLFlush::Finish, keep) {
        (TDEFLStatus::Done, _) => Ok(()),
        (status, _) => Err(io::Error::other(format!("deflate has ended with {status:?}"))),
    }
}

/// Inflates a text; refuses one of more than `bytes_max` bytes.
pub fn inflate(packed: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let header = header();
    let mut decoder = DeflateDecoder::new(header.chain(DICTIONARY).chain(packed));
    io::copy(&mut (&mut decoder).take(DICTIONARY.len() as u64), &mut io::sink())?;
    let mut text = Vec::new();
    // A few bytes from an untrusted file may inflate to gigabytes.
    decoder.take(bytes_max as u64 + 1).read_to_end(&mut text)?;
    match text.len() <= bytes_max {
        true => Ok(text),
        false => Err(io::Error::other(format!("it inflates to more than {bytes_max} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        deflate(text, &mut packed).expect("packed");
        packed
    }

    #[test]
    fn what_was_deflated_comes_back() {
        for text in [&b""[..], b"a", &DICTIONARY[500..3000], &[0xff; 70_000], DICTIONARY] {
            assert!(inflate(&packed(text), text.len()).expect("unpacked") == text);
        }
        let known = packed(&DICTIONARY[500..3000]).len();
        assert!(known < 100, "{known} bytes for what the dictionary has");
    }

    #[test]
    fn what_is_no_deflated_text_or_too_long_a_one_is_refused() {
        assert!(inflate(&[7, 7, 7], 100).is_err());
        let whole = packed(b"some text that is cut");
        assert!(inflate(&whole[..whole.len() - 3], 100).is_err());
        let refused = inflate(&packed(&[0; 101]), 100).expect_err("too long");
        assert!(refused.to_string().contains("more than 100 bytes"), "{refused}");
    }

    #[test]
    fn the_dictionary_is_the_one_that_stores_were_packed_with() {
        let mut sum = flate2::Crc::new();
        sum.update(DICTIONARY);
        assert_eq!((DICTIONARY.len(), sum.sum()), (13_908, 24_367_361));
    }

    #[test]
    fn what_another_deflate_has_written_behind_the_dictionary_is_read() {
        // Output of zlib, called from Python.
        let packed = [0xab, 0x26, 0xa6, 0x40, 0xac, 0x05, 0x00];
        let text = inflate(&packed, 100).expect("unpacked");
        assert_eq!(text, br#"{"contender":"handover","kind":"ours"}"#);
    }
}
