//! Frames: 24 bytes of header, then the body. All numbers are little-endian.
//!
//! ```text
//!  0        4     5        8                 16                24
//!  ├────────┼─────┼────────┼─────────────────┼─────────────────┼─ ─ ─ ─
//!  │ body,  │kind │  zero  │ method, or code │ call            │ body
//!  │ bytes  │     │        │ of a refusal    │                 │
//! ```

use crate::FrameError;

/// The version of the protocol. Peers of different versions do not talk.
pub const VERSION: u16 = 3;

/// What is said about bulk transfers may be so long, whatever was agreed.
pub const BULK_BYTES_MAX: u32 = 2048;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Arguments; an answer is wanted.
    Request = 1,
    /// Arguments; no answer is wanted.
    OneWay = 2,
    /// A result.
    Response = 3,
    /// No result: the header's method is a [`Refusal`].
    Refusal = 4,
    /// The answer to that call is no longer wanted.
    Cancel = 5,
    /// The connection ends here, in good order.
    Bye = 6,
    /// Something about bulk transfers: the body is a [`BulkMessage`](super::BulkMessage).
    Bulk = 7,
    /// A piece of a bulk transfer: the method is where it belongs, the call whose it is.
    Data = 8,
}

impl Kind {
    fn of(byte: u8) -> Result<Self, FrameError> {
        Ok(match byte {
            1 => Kind::Request,
            2 => Kind::OneWay,
            3 => Kind::Response,
            4 => Kind::Refusal,
            5 => Kind::Cancel,
            6 => Kind::Bye,
            7 => Kind::Bulk,
            8 => Kind::Data,
            other => return Err(FrameError::Kind(other)),
        })
    }
}

/// Why a peer gives no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// No procedure of that name and provider.
    Unknown = 1,
    /// The arguments cannot be read.
    BadArguments = 2,
    /// The handler panicked.
    Panicked = 3,
    /// The handler's own error; the body is a [`Failure`](crate::Failure).
    Failed = 4,
    /// The result is longer than was agreed.
    TooLong = 5,
    /// Too many requests wait.
    Full = 6,
    /// It was done, and its result dropped: the caller does not read what waits for it.
    Unsent = 7,
}

impl Refusal {
    /// The refusal of that code; what a later version may add counts as its handler's panic.
    #[must_use]
    pub fn of(code: u64) -> Self {
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

/// What stands before each body.
///
/// ```
/// use handover_rpc::engine::{Header, Kind};
/// let header = Header { body_bytes: 5, kind: Kind::Request, method: 7, call: 9 };
/// assert_eq!(Header::decode(&header.encode(), 100), Ok(header));
/// assert!(Header::decode(&header.encode(), 4).is_err(), "longer than agreed");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// How many bytes follow.
    pub body_bytes: u32,
    /// What it is.
    pub kind: Kind,
    /// Which procedure; of a refusal, why.
    pub method: u64,
    /// Which call, as its caller counts.
    pub call: u64,
}

impl Header {
    /// As three words, for memory that is shared.
    #[inline]
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        [u64::from(self.body_bytes) | (self.kind as u64) << 32, self.method, self.call]
    }

    /// From three words of a peer.
    ///
    /// # Errors
    /// [`FrameError`] when they are no header, or promise more than `body_bytes_max`.
    #[inline]
    pub fn from_words(words: [u64; 3], body_bytes_max: u32) -> Result<Self, FrameError> {
        let [first, method, call] = words;
        if first >> 40 != 0 {
            return Err(FrameError::Reserved);
        }
        // Cut to its width, of which the rest was just looked at.
        let kind = Kind::of((first >> 32) as u8)?;
        let body_bytes = first as u32;
        let body_bytes_max = match kind {
            Kind::Bulk => body_bytes_max.max(BULK_BYTES_MAX),
            _ => body_bytes_max,
        };
        if body_bytes > body_bytes_max {
            let (bytes, bytes_max) = (body_bytes.into(), body_bytes_max.into());
            return Err(FrameError::TooLong { bytes, bytes_max });
        }
        Ok(Self { body_bytes, kind, method, call })
    }

    /// As bytes, for a stream.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (slot, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *slot = word.to_le_bytes();
        }
        bytes
    }

    /// From bytes of a peer.
    ///
    /// # Errors
    /// As [`from_words`](Self::from_words).
    pub fn decode(bytes: &[u8; HEADER_BYTES], body_bytes_max: u32) -> Result<Self, FrameError> {
        let mut words = [0; 3];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Self::from_words(words, body_bytes_max)
    }
}

/// Bytes of a greeting.
pub const HELLO_BYTES: usize = 24;

const MAGIC: [u8; 8] = *b"handover";

/// What each side says first, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// How long a body this side takes.
    pub message_bytes_max: u32,
    /// Slots of a direction of shared memory; 0 where none is shared.
    pub slots_count: u32,
    /// Bytes of a direction of shared memory; 0 where none is shared.
    pub shared_bytes: u32,
    /// This side never sleeps, and need not be woken.
    pub spins: bool,
    /// This side knows a shared [`Secret`](super::Secret) that the other one has to prove: a nonce follows.
    pub has_secret: bool,
}

impl Hello {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.spins.into();
        bytes[11] = self.has_secret.into();
        bytes[12..16].copy_from_slice(&self.message_bytes_max.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.slots_count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.shared_bytes.to_le_bytes());
        bytes
    }

    /// From bytes of a peer.
    ///
    /// # Errors
    /// [`FrameError::Magic`] and [`FrameError::Version`] when the peer is something else.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, FrameError> {
        if bytes[..8] != MAGIC {
            return Err(FrameError::Magic);
        }
        let its = u16::from_le_bytes([bytes[8], bytes[9]]);
        if its != VERSION {
            return Err(FrameError::Version { its, ours: VERSION });
        }
        if bytes[10] > 1 || bytes[11] > 1 {
            return Err(FrameError::Reserved);
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Self {
            spins: bytes[10] == 1,
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
        fn what_is_a_header_comes_back_and_nothing_else_is_one(words: [u64; 3], bytes_max: u32) {
            if let Ok(header) = Header::from_words(words, bytes_max) {
                prop_assert_eq!(header.words(), words);
                prop_assert!(header.body_bytes <= bytes_max.max(BULK_BYTES_MAX));
                prop_assert_eq!(Header::decode(&header.encode(), bytes_max), Ok(header));
            }
        }

        #[test]
        fn every_header_is_understood(
            kind in 1u8..=8, body_bytes: u32, method: u64, call: u64,
        ) {
            let kind = Kind::of(kind).expect("one of ours");
            let header = Header { body_bytes, kind, method, call };
            prop_assert_eq!(Header::from_words(header.words(), u32::MAX), Ok(header));
        }

        #[test]
        fn a_greeting_comes_back(
            message_bytes_max: u32, slots_count: u32, shared_bytes: u32, spins: bool,
            has_secret: bool,
        ) {
            let hello =
                Hello { message_bytes_max, slots_count, shared_bytes, spins, has_secret };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn another_version_is_told_apart_from_another_protocol() {
        let hello = Hello {
            message_bytes_max: 1,
            slots_count: 2,
            shared_bytes: 3,
            spins: false,
            has_secret: false,
        };
        let mut bytes = hello.encode();
        bytes[8] = 9;
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Version { its: 9, ours: VERSION }));
        bytes[0] = b'H';
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Magic));
    }
}
