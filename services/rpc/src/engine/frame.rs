//! Frames: 24 bytes of header, then the body. All numbers are little-endian.
//!
//! ```text
//!  0        4     5        8                 16                24
//!  ├────────┼─────┼────────┼─────────────────┼─────────────────┼─ ─ ─ ─
//!  │ body,  │kind │  zero  │ method, or code │ call            │ body
//!  │ bytes  │     │        │ of a refusal    │                 │
//! ```

use crate::FrameError;

/// Version of the protocol. Peers of different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 4;

/// Maximum body length of a [`FrameKind::Bulk`] frame, in bytes, even if a smaller message limit
/// was agreed.
pub const BULK_MESSAGE_BYTES_MAX: u32 = 2048;

/// Length of a frame header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 24;

/// Kind of a frame. It is a message of a call or of a bulk transfer, or the end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Arguments of a call that expects an answer.
    Request = 1,
    /// Arguments of a call without an answer.
    OneWay = 2,
    /// Result of a call.
    Response = 3,
    /// Refusal of a call: the header's `method` is the code of a [`Refusal`].
    Refusal = 4,
    /// Cancellation: the caller no longer waits for the answer to that call.
    Cancel = 5,
    /// The sender closes the connection in an orderly way.
    Bye = 6,
    /// Message about a bulk transfer: the body is a [`BulkMessage`](super::BulkMessage).
    Bulk = 7,
    /// Piece of a bulk transfer: `method` is its offset, `call` the transfer number.
    Data = 8,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Result<Self, FrameError> {
        Ok(match byte {
            1 => FrameKind::Request,
            2 => FrameKind::OneWay,
            3 => FrameKind::Response,
            4 => FrameKind::Refusal,
            5 => FrameKind::Cancel,
            6 => FrameKind::Bye,
            7 => FrameKind::Bulk,
            8 => FrameKind::Data,
            other => return Err(FrameError::Kind(other)),
        })
    }
}

/// Reason why a peer answers a call with an error instead of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// No procedure of that name and provider is registered.
    Unknown = 1,
    /// The arguments cannot be decoded.
    BadArguments = 2,
    /// The handler panicked.
    Panicked = 3,
    /// The handler returned an error; the body is a [`Failure`](crate::Failure).
    Failed = 4,
    /// The result is longer than the agreed maximum.
    TooLong = 5,
    /// Too many requests are waiting at the peer.
    Full = 6,
    /// The result was dropped, because the caller does not read its answers. The handler has run.
    Unsent = 7,
}

impl Refusal {
    /// Returns the refusal with that code. An unknown code, of a later protocol version, counts as
    /// [`Panicked`](Self::Panicked).
    #[must_use]
    pub fn from_code(code: u64) -> Self {
        match code {
            1 => Refusal::Unknown,
            2 => Refusal::BadArguments,
            4 => Refusal::Failed,
            5 => Refusal::TooLong,
            6 => Refusal::Full,
            7 => Refusal::Unsent,
            _ => Refusal::Panicked,
        }
    }
}

/// Header of a frame, sent before its body.
///
/// ```
/// use handover_rpc::engine::{FrameHeader, FrameKind};
/// let header = FrameHeader { body_bytes: 5, kind: FrameKind::Request, method: 7, call: 9 };
/// assert_eq!(FrameHeader::decode(&header.encode(), 100), Ok(header));
/// assert!(FrameHeader::decode(&header.encode(), 4).is_err(), "decoded a body that exceeds the agreed maximum");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// Length of the body, in bytes.
    pub body_bytes: u32,
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Identifier of the procedure ([`Method::word`](super::Method::word)). In a refusal, it is the
    /// code of the refusal; in a data frame, the offset of the data.
    pub method: u64,
    /// Call number, assigned by the caller. In a data frame, it is the transfer number. It is 0 if
    /// there is neither.
    pub call: u64,
}

impl FrameHeader {
    /// Returns the header encoded as three words, for shared memory.
    #[inline]
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        [u64::from(self.body_bytes) | (self.kind as u64) << 32, self.method, self.call]
    }

    /// Decodes a header from three words of a peer.
    ///
    /// # Errors
    /// [`FrameError`] if they are not a header, or if the body is longer than `body_bytes_max`.
    #[inline]
    pub fn from_words(words: [u64; 3], body_bytes_max: u32) -> Result<Self, FrameError> {
        let [first, method, call] = words;
        if first >> 40 != 0 {
            return Err(FrameError::InvalidValue);
        }
        // The cast truncates to 8 bits; the bits above were checked to be zero.
        let kind = FrameKind::from_byte((first >> 32) as u8)?;
        let body_bytes = first as u32;
        let body_bytes_max = match kind {
            FrameKind::Bulk => body_bytes_max.max(BULK_MESSAGE_BYTES_MAX),
            _ => body_bytes_max,
        };
        if body_bytes > body_bytes_max {
            let (bytes, bytes_max) = (body_bytes.into(), body_bytes_max.into());
            return Err(FrameError::TooLong { bytes, bytes_max });
        }
        Ok(Self { body_bytes, kind, method, call })
    }

    /// Encodes the header as bytes, for a stream.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        for (slot, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *slot = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes a header from bytes of a peer.
    ///
    /// # Errors
    /// The errors of [`from_words`](Self::from_words).
    pub fn decode(
        bytes: &[u8; FRAME_HEADER_BYTES],
        body_bytes_max: u32,
    ) -> Result<Self, FrameError> {
        let mut words = [0; 3];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Self::from_words(words, body_bytes_max)
    }
}

/// Length of an encoded [`Hello`], in bytes.
pub const HELLO_BYTES: usize = 24;

/// First bytes of every hello.
const MAGIC: [u8; 8] = *b"handover";

/// First message that each end of a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Maximum body length that the sender accepts, in bytes.
    pub message_bytes_max: u32,
    /// Number of message slots in each direction of shared memory; 0 without shared memory.
    pub slots_count: u32,
    /// Size, in bytes, of the buffer for long bodies in each direction of shared memory. It is 0
    /// without shared memory.
    pub shared_bytes: u32,
    /// `true` if the sender never sleeps and need not be woken.
    pub spins: bool,
    /// `true` if the peer must prove that it knows the sender's shared [`Secret`](super::Secret). A
    /// nonce follows the hello.
    pub has_secret: bool,
    /// `true` if frames are sent through UCX, and not over the hello's connection.
    pub uses_ucx: bool,
}

/// Bit of [`Hello::spins`] in the byte of flags.
const SPINS_BIT: u8 = 1;
/// Bit of [`Hello::uses_ucx`] in the byte of flags.
const UCX_BIT: u8 = 1 << 1;

impl Hello {
    /// Encodes the hello as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        bytes[10] = (u8::from(self.spins) * SPINS_BIT) | (u8::from(self.uses_ucx) * UCX_BIT);
        bytes[11] = self.has_secret.into();
        bytes[12..16].copy_from_slice(&self.message_bytes_max.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.slots_count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.shared_bytes.to_le_bytes());
        bytes
    }

    /// Decodes a hello from bytes of a peer.
    ///
    /// # Errors
    /// [`FrameError::Magic`] and [`FrameError::Version`] if the peer speaks another protocol or
    /// version, and [`FrameError::InvalidValue`] if a flag is unknown.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, FrameError> {
        if bytes[..8] != MAGIC {
            return Err(FrameError::Magic);
        }
        let peer = u16::from_le_bytes([bytes[8], bytes[9]]);
        if peer != PROTOCOL_VERSION {
            return Err(FrameError::Version { peer, own: PROTOCOL_VERSION });
        }
        if bytes[10] > SPINS_BIT | UCX_BIT || bytes[11] > 1 {
            return Err(FrameError::InvalidValue);
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Self {
            spins: bytes[10] & SPINS_BIT != 0,
            uses_ucx: bytes[10] & UCX_BIT != 0,
            has_secret: bytes[11] == 1,
            message_bytes_max: word(12),
            slots_count: word(16),
            shared_bytes: word(20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_decode_to_a_header_that_encodes_to_them_or_are_refused(words: [u64; 3], bytes_max: u32) {
            if let Ok(header) = FrameHeader::from_words(words, bytes_max) {
                prop_assert_eq!(header.words(), words);
                prop_assert!(header.body_bytes <= bytes_max.max(BULK_MESSAGE_BYTES_MAX));
                prop_assert_eq!(FrameHeader::decode(&header.encode(), bytes_max), Ok(header));
            }
        }

        #[test]
        fn encoded_header_decodes_to_the_same_header(
            kind in 1u8..=8, body_bytes: u32, method: u64, call: u64,
        ) {
            let kind = FrameKind::from_byte(kind).expect("the frame kind is unknown");
            let header = FrameHeader { body_bytes, kind, method, call };
            prop_assert_eq!(FrameHeader::from_words(header.words(), u32::MAX), Ok(header));
        }

        #[test]
        fn encoded_hello_decodes_to_the_same_hello(
            message_bytes_max: u32, slots_count: u32, shared_bytes: u32, spins: bool,
            has_secret: bool, uses_ucx: bool,
        ) {
            let hello = Hello {
                message_bytes_max, slots_count, shared_bytes, spins, has_secret, uses_ucx,
            };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn other_version_and_other_protocol_are_different_errors() {
        let hello = Hello {
            message_bytes_max: 1,
            slots_count: 2,
            shared_bytes: 3,
            spins: false,
            has_secret: false,
            uses_ucx: false,
        };
        let mut bytes = hello.encode();
        bytes[8] = 9;
        assert_eq!(
            Hello::decode(&bytes),
            Err(FrameError::Version { peer: 9, own: PROTOCOL_VERSION })
        );
        bytes[0] = b'H';
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Magic));
    }
}
