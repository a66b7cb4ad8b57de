//! Codecs, which cut a stream of bytes into messages.

use crate::raw;
use std::ops::Range;

/// Result of decoding some bytes. It is the range of the first message, or the number of bytes that
/// it needs if it is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeResult {
    /// The bytes start with a complete message.
    Message {
        /// Range of the message in the bytes, without its frame.
        body: Range<usize>,
        /// Length of the framed message in bytes; at least one.
        used_bytes: usize,
    },
    /// The bytes are the beginning of a message that is not complete yet.
    More {
        /// Minimum number of bytes, from the beginning of the message, with which decoding can
        /// succeed; more than were passed. `None` if unknown. If known, no byte beyond it is
        /// copied.
        needed_bytes: Option<usize>,
    },
}

/// Error of decoding received bytes: a message that is too long or malformed, or a faulty codec.
/// The connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The message is longer than the codec allows; detected before all its bytes have arrived.
    #[error("message of {bytes} bytes exceeds the codec's limit of {bytes_max}")]
    TooLong {
        /// Length of the message in bytes. It is the length in its frame, or that received so far
        /// without an end.
        bytes: u64,
        /// Maximum length of a message in bytes.
        bytes_max: u64,
    },
    /// The bytes are not a message in this codec's format.
    #[error("malformed message: {0}; does the peer use the same codec?")]
    Malformed(&'static str),
    /// The codec broke its contract: its result uses 0 bytes, or more than were passed to it.
    #[error("Codec::decode used 0 bytes for a message, or more than were passed to it")]
    InvalidRange,
}

/// Error of framing a message that is longer than the codec allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message of {bytes} bytes exceeds the codec's limit of {bytes_max}")]
pub struct MessageTooLongError {
    /// Length of the message, in bytes.
    pub bytes: usize,
    /// Maximum length of a message, in bytes.
    pub bytes_max: usize,
}

/// Framing of messages: splits a byte stream into messages, and frames messages for a stream.
///
/// A codec holds no state of a connection: the bytes of an incomplete message are passed again,
/// followed by more. For every message `m` that `encode` frames, `decode` of the result returns `m`
/// and uses all bytes.
pub trait Codec: Clone + Send + 'static {
    /// `true` if encoding a decoded message always yields the message's original bytes. A message
    /// that is sent back unchanged is then sent from the read buffer, without a copy.
    const IS_EXACT: bool = false;

    /// Decodes the message at the beginning of `bytes`, which are not empty. The first `seen_bytes`
    /// of them were passed in an earlier call and did not contain a complete message.
    ///
    /// # Errors
    /// [`CodecError`] if no further bytes can make this a message.
    fn decode(&self, bytes: &[u8], seen_bytes: usize) -> Result<DecodeResult, CodecError>;

    /// Appends `message` with its frame to `out`.
    ///
    /// # Errors
    /// [`MessageTooLongError`]; nothing is appended then.
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), MessageTooLongError>;
}

/// Codec that prefixes each message with its length, in 32 bits, big-endian.
///
/// An optional header of fixed size stands between the length and the counted bytes and is part of
/// the message: `LengthPrefixCodec::new(4096).with_header(24)` is a length, 24 bytes that the
/// program keeps with each message, and at most 4096 counted bytes.
///
/// ```
/// use handover_net::engine::{Codec, DecodeResult, LengthPrefixCodec};
/// let codec = LengthPrefixCodec::new(1024);
/// let mut stream = Vec::new();
/// codec.encode(b"hello", &mut stream)?;
/// assert_eq!(stream, b"\0\0\0\x05hello");
/// assert_eq!(codec.decode(&stream, 0)?, DecodeResult::Message { body: 4..9, used_bytes: 9 });
/// assert_eq!(codec.decode(&stream[..6], 0)?, DecodeResult::More { needed_bytes: Some(9) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthPrefixCodec {
    /// Maximum value of the length prefix, in bytes; the header is not counted.
    length_max: u32,
    /// Size of each message's header in bytes; the length prefix does not count it.
    header_bytes: u32,
}

const LENGTH_BYTES: usize = 4;

impl LengthPrefixCodec {
    /// Creates a codec without a header for messages of up to `length_max` bytes.
    #[must_use]
    pub const fn new(length_max: u32) -> Self {
        Self { length_max, header_bytes: 0 }
    }

    /// Sets the size, in bytes, of the header. The header belongs to the message, but the message's
    /// length does not count it.
    #[must_use]
    pub const fn with_header(self, header_bytes: u32) -> Self {
        Self { header_bytes, ..self }
    }
}

impl Codec for LengthPrefixCodec {
    const IS_EXACT: bool = true;

    #[inline]
    fn decode(&self, bytes: &[u8], _seen_bytes: usize) -> Result<DecodeResult, CodecError> {
        let Some(&length) = bytes.first_chunk::<LENGTH_BYTES>() else {
            let needed = LENGTH_BYTES + self.header_bytes as usize;
            return Ok(DecodeResult::More { needed_bytes: Some(needed) });
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
            return Ok(DecodeResult::More { needed_bytes: Some(used_bytes) });
        }
        Ok(DecodeResult::Message { body: LENGTH_BYTES..used_bytes, used_bytes })
    }

    /// Appends the length prefix, and then `message`, which begins with the message's header.
    ///
    /// # Panics
    /// If the message is shorter than the header.
    #[inline]
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), MessageTooLongError> {
        let header_bytes = self.header_bytes as usize;
        assert!(
            message.len() >= header_bytes,
            "message of {} bytes is shorter than its header of {header_bytes}",
            message.len()
        );
        let counted = message.len() - header_bytes;
        let Some(length) = u32::try_from(counted).ok().filter(|&it| it <= self.length_max) else {
            return Err(MessageTooLongError {
                bytes: counted,
                bytes_max: self.length_max as usize,
            });
        };
        append_framed(length.to_be_bytes(), message, out);
        Ok(())
    }
}

#[inline]
fn append_framed(length: [u8; LENGTH_BYTES], message: &[u8], out: &mut Vec<u8>) {
    if message.len() <= raw::SHORT_MESSAGE_BYTES_MAX {
        return raw::append_short_message(out, length, message);
    }
    out.reserve(LENGTH_BYTES + message.len());
    out.extend_from_slice(&length);
    out.extend_from_slice(message);
}

/// Codec for lines that end in a line feed. A carriage return before the line feed is not part of
/// the line.
///
/// A message to be framed must not contain a line feed: the peer would read several lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinesCodec {
    line_bytes_max: u32,
}

impl LinesCodec {
    /// Creates a codec for lines of up to `line_bytes_max` bytes, without the line end.
    #[must_use]
    pub const fn new(line_bytes_max: u32) -> Self {
        Self { line_bytes_max }
    }

    fn too_long_error(&self, bytes: usize) -> CodecError {
        CodecError::TooLong { bytes: bytes as u64, bytes_max: self.line_bytes_max.into() }
    }
}

impl Codec for LinesCodec {
    fn decode(&self, bytes: &[u8], seen_bytes: usize) -> Result<DecodeResult, CodecError> {
        let line_bytes_max = self.line_bytes_max as usize;
        let fresh = bytes.get(seen_bytes..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|&byte| byte == b'\n') else {
            // The last byte may be the carriage return.
            if bytes.len() > line_bytes_max.saturating_add(1) {
                return Err(self.too_long_error(bytes.len()));
            }
            return Ok(DecodeResult::More { needed_bytes: None });
        };
        let end = seen_bytes + at;
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]).len();
        if line > line_bytes_max {
            return Err(self.too_long_error(line));
        }
        Ok(DecodeResult::Message { body: 0..line, used_bytes: end + 1 })
    }

    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), MessageTooLongError> {
        let bytes_max = self.line_bytes_max as usize;
        if message.len() > bytes_max {
            return Err(MessageTooLongError { bytes: message.len(), bytes_max });
        }
        out.reserve(message.len() + 1);
        out.extend_from_slice(message);
        // Keeps `decode` from taking the message's own carriage return for part of the line end.
        if message.last() == Some(&b'\r') {
            out.push(b'\r');
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Codec without framing: each message consists of the bytes of one read, however the network split
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    const IS_EXACT: bool = true;

    #[inline]
    fn decode(&self, bytes: &[u8], _seen_bytes: usize) -> Result<DecodeResult, CodecError> {
        Ok(DecodeResult::Message { body: 0..bytes.len(), used_bytes: bytes.len() })
    }

    #[inline]
    fn encode(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), MessageTooLongError> {
        out.extend_from_slice(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_length_is_refused_before_its_bytes_arrive() {
        let refused = LengthPrefixCodec::new(1 << 20).decode(&[0xff; 4], 0);
        let expected = CodecError::TooLong { bytes: 0xffff_ffff, bytes_max: 1 << 20 };
        assert_eq!(refused, Err(expected));
    }

    #[test]
    fn encode_appends_short_and_long_messages_to_existing_bytes() {
        let codec = LengthPrefixCodec::new(100);
        let letters: Vec<u8> = (1..=100).collect();
        for count in 0..letters.len() {
            let (mut stream, message) = (b"before".to_vec(), &letters[..count]);
            codec.encode(message, &mut stream).unwrap();
            let length = (count as u32).to_be_bytes();
            assert_eq!(stream, [b"before", &length[..], message].concat(), "of {count} bytes");
        }
    }

    #[test]
    fn line_of_maximum_length_may_end_in_crlf() {
        let lines = LinesCodec::new(3);
        assert_eq!(
            lines.decode(b"abc\r\n", 0),
            Ok(DecodeResult::Message { body: 0..3, used_bytes: 5 })
        );
        assert_eq!(lines.decode(b"abc\r", 0), Ok(DecodeResult::More { needed_bytes: None }));
        assert!(lines.decode(b"abcd\n", 0).is_err());
        assert!(lines.decode(b"abcde", 0).is_err());
        let mut framed = Vec::new();
        lines.encode(b"ab\r", &mut framed).unwrap();
        let own = DecodeResult::Message { body: 0..3, used_bytes: 5 };
        assert_eq!(lines.decode(&framed, 0), Ok(own));
    }

    #[test]
    fn header_is_part_of_message_but_not_of_length() {
        let codec = LengthPrefixCodec::new(2).with_header(3);
        let mut stream = Vec::new();
        codec.encode(b"hdrab", &mut stream).unwrap();
        assert_eq!(stream, b"\0\0\0\x02hdrab");
        assert_eq!(
            codec.decode(&stream, 0),
            Ok(DecodeResult::Message { body: 4..9, used_bytes: 9 })
        );
        assert!(codec.encode(b"hdrabc", &mut stream).is_err());
        assert_eq!(stream.len(), 9);
    }
}
