//! How a stream of bytes is cut into messages.

use crate::raw;
use std::ops::Range;

/// What a codec found at the beginning of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// A whole message.
    Message {
        /// Where it stands in the bytes, without its frame.
        body: Range<usize>,
        /// How many bytes it took, its frame included; at least one.
        used_bytes: usize,
    },
    /// Not a whole message yet.
    More {
        /// How many bytes there must be before another look is worth while, if that is known: more
        /// than there are. Where it is known, no byte beyond it is copied.
        needed_bytes: Option<usize>,
    },
}

/// Why bytes are not messages. The connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A message is longer than allowed: known from its frame, before its bytes have come.
    #[error("a message of {bytes} bytes, where {bytes_max} are allowed")]
    TooLong {
        /// How long it is, or how much of it has come without an end.
        bytes: u64,
        /// How long it may be.
        bytes_max: u64,
    },
    /// The bytes are no message of this codec.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// The codec broke its own promise: a message of no bytes, or one beyond what it was shown.
    #[error("the codec told of a message that cannot be")]
    Impossible,
}

/// A message that cannot be framed, because it is longer than the codec allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes, where {bytes_max} are allowed")]
pub struct TooLong {
    /// How long it is.
    pub bytes: usize,
    /// How long it may be.
    pub bytes_max: usize,
}

/// Cuts a stream into messages, and frames messages for a stream.
///
/// It holds no state of a connection: what is not a whole message yet is shown again, with more bytes
/// behind. For all messages `m` that it frames, decoding what `encode` wrote finds `m` and uses all.
pub trait Codec: Clone + Send + 'static {
    /// Whether `encode` writes every message, byte for byte, as it stood in the stream where `decode` found
    /// it. Then a message that is sent back as it came is not copied, but sent from where it was read.
    const IS_EXACT: bool = false;

    /// Looks for a message at the beginning of `bytes`, which are not empty. The first `seen_bytes`
    /// of them have been shown before, and were not a whole message.
    ///
    /// # Errors
    /// [`CodecError`] when no bytes that may follow could make this a message.
    fn decode(&self, bytes: &[u8], seen_bytes: usize) -> Result<Decoded, CodecError>;

    /// Appends the frame of `message` to `out`.
    ///
    /// # Errors
    /// [`TooLong`]; then nothing is appended.
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong>;
}

/// A length of 32 bits, big-endian, then so many bytes.
///
/// With a header, a number of fixed bytes stands between the length and the bytes that it counts, and is
/// part of the message: `LengthPrefixed::new(4096).with_header(24)` is a length, 24 bytes for whatever
/// the program keeps with each message, and at most 4096 bytes that were counted.
///
/// ```
/// use handover_net::engine::{Codec, Decoded, LengthPrefixed};
/// let codec = LengthPrefixed::new(1024);
/// let mut stream = Vec::new();
/// codec.encode(b"hello", &mut stream)?;
/// assert_eq!(stream, b"\0\0\0\x05hello");
/// assert_eq!(codec.decode(&stream, 0)?, Decoded::Message { body: 4..9, used_bytes: 9 });
/// assert_eq!(codec.decode(&stream[..6], 0)?, Decoded::More { needed_bytes: Some(9) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthPrefixed {
    length_max: u32,
    header_bytes: u32,
}

const LENGTH_BYTES: usize = 4;

impl LengthPrefixed {
    /// Lengths up to `length_max`, without a header.
    #[must_use]
    pub const fn new(length_max: u32) -> Self {
        Self { length_max, header_bytes: 0 }
    }

    /// So many bytes between a length and what it counts, which belong to the message.
    #[must_use]
    pub const fn with_header(self, header_bytes: u32) -> Self {
        Self { header_bytes, ..self }
    }
}

impl Codec for LengthPrefixed {
    const IS_EXACT: bool = true;

    #[inline]
    fn decode(&self, bytes: &[u8], _seen_bytes: usize) -> Result<Decoded, CodecError> {
        let Some(&length) = bytes.first_chunk::<LENGTH_BYTES>() else {
            let needed = LENGTH_BYTES + self.header_bytes as usize;
            return Ok(Decoded::More { needed_bytes: Some(needed) });
        };
        let length = u32::from_be_bytes(length);
        if length > self.length_max {
            return Err(CodecError::TooLong {
                bytes: length.into(),
                bytes_max: self.length_max.into(),
            });
        }
        let used_bytes = LENGTH_BYTES + self.header_bytes as usize + length as usize;
        if bytes.len() < used_bytes {
            return Ok(Decoded::More { needed_bytes: Some(used_bytes) });
        }
        Ok(Decoded::Message { body: LENGTH_BYTES..used_bytes, used_bytes })
    }

    /// The header is the message's first bytes.
    ///
    /// # Panics
    /// When the message is shorter than the header.
    #[inline]
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
        let header_bytes = self.header_bytes as usize;
        assert!(message.len() >= header_bytes, "a message without its header");
        let counted = message.len() - header_bytes;
        let Some(length) = u32::try_from(counted).ok().filter(|&it| it <= self.length_max) else {
            return Err(TooLong { bytes: counted, bytes_max: self.length_max as usize });
        };
        append_framed(length.to_be_bytes(), message, out);
        Ok(())
    }
}

/// Appends a length, and the message behind it.
#[inline]
fn append_framed(length: [u8; LENGTH_BYTES], message: &[u8], out: &mut Vec<u8>) {
    if message.len() <= raw::SHORT_BYTES {
        return raw::append_short(out, length, message);
    }
    out.reserve(LENGTH_BYTES + message.len());
    out.extend_from_slice(&length);
    out.extend_from_slice(message);
}

/// Lines that end in a line feed; a carriage return before it is no part of the line.
///
/// A message that is framed must hold no line feed of its own, or it is several lines to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    line_bytes_max: u32,
}

impl Lines {
    /// Lines up to so many bytes, their end not counted.
    #[must_use]
    pub const fn new(line_bytes_max: u32) -> Self {
        Self { line_bytes_max }
    }

    fn too_long(&self, bytes: usize) -> CodecError {
        CodecError::TooLong { bytes: bytes as u64, bytes_max: self.line_bytes_max.into() }
    }
}

impl Codec for Lines {
    fn decode(&self, bytes: &[u8], seen_bytes: usize) -> Result<Decoded, CodecError> {
        let line_bytes_max = self.line_bytes_max as usize;
        let fresh = bytes.get(seen_bytes..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|&byte| byte == b'\n') else {
            // One more may be the carriage return.
            if bytes.len() > line_bytes_max.saturating_add(1) {
                return Err(self.too_long(bytes.len()));
            }
            return Ok(Decoded::More { needed_bytes: None });
        };
        let end = seen_bytes + at;
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]).len();
        if line > line_bytes_max {
            return Err(self.too_long(line));
        }
        Ok(Decoded::Message { body: 0..line, used_bytes: end + 1 })
    }

    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
        let bytes_max = self.line_bytes_max as usize;
        if message.len() > bytes_max {
            return Err(TooLong { bytes: message.len(), bytes_max });
        }
        out.reserve(message.len() + 1);
        out.extend_from_slice(message);
        // So that the message's own is not taken for part of the end.
        if message.last() == Some(&b'\r') {
            out.push(b'\r');
        }
        out.push(b'\n');
        Ok(())
    }
}

/// No messages at all: bytes are handed over as they come, cut wherever the network cut them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raw;

impl Codec for Raw {
    const IS_EXACT: bool = true;

    #[inline]
    fn decode(&self, bytes: &[u8], _seen_bytes: usize) -> Result<Decoded, CodecError> {
        Ok(Decoded::Message { body: 0..bytes.len(), used_bytes: bytes.len() })
    }

    #[inline]
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
        out.extend_from_slice(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_four_gibibytes_is_refused_before_its_bytes_come() {
        let refused = LengthPrefixed::new(1 << 20).decode(&[0xff; 4], 0);
        let expected = CodecError::TooLong { bytes: 0xffff_ffff, bytes_max: 1 << 20 };
        assert_eq!(refused, Err(expected));
    }

    #[test]
    fn short_messages_and_long_ones_are_framed_behind_what_is_there() {
        let codec = LengthPrefixed::new(100);
        let letters: Vec<u8> = (1..=100).collect();
        for count in 0..letters.len() {
            let (mut stream, message) = (b"before".to_vec(), &letters[..count]);
            codec.encode(message, &mut stream).unwrap();
            let length = (count as u32).to_be_bytes();
            assert_eq!(stream, [b"before", &length[..], message].concat(), "of {count} bytes");
        }
    }

    #[test]
    fn a_line_may_end_with_a_carriage_return_and_be_as_long_as_allowed() {
        let lines = Lines::new(3);
        assert_eq!(lines.decode(b"abc\r\n", 0), Ok(Decoded::Message { body: 0..3, used_bytes: 5 }));
        assert_eq!(lines.decode(b"abc\r", 0), Ok(Decoded::More { needed_bytes: None }));
        assert!(lines.decode(b"abcd\n", 0).is_err());
        assert!(lines.decode(b"abcde", 0).is_err());
        let mut framed = Vec::new();
        lines.encode(b"ab\r", &mut framed).unwrap();
        let own = Decoded::Message { body: 0..3, used_bytes: 5 };
        assert_eq!(lines.decode(&framed, 0), Ok(own));
    }

    #[test]
    fn the_header_belongs_to_the_message_and_is_not_counted() {
        let codec = LengthPrefixed::new(2).with_header(3);
        let mut stream = Vec::new();
        codec.encode(b"hdrab", &mut stream).unwrap();
        assert_eq!(stream, b"\0\0\0\x02hdrab");
        assert_eq!(codec.decode(&stream, 0), Ok(Decoded::Message { body: 4..9, used_bytes: 9 }));
        assert!(codec.encode(b"hdrabc", &mut stream).is_err());
        assert_eq!(stream.len(), 9);
    }
}
