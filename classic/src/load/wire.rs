//! Format of a message, which the server echoes.
//!
//! ```text
//!   0        4                    20             28
//!   ┌────────┬────────────────────┬──────────────┬─────────────────────┐
//!   │ length │ connection's id    │ sent at, ns  │ the letters:        │
//!   │ u32    │ u128               │ u64          │ abc...zabc...       │
//!   └────────┴────────────────────┴──────────────┴─────────────────────┘
//! ```
//!
//! All numbers are big-endian; the length counts the letters alone.

/// Size of the header before a message's letters, in bytes.
pub const HEADER_BYTES: usize = 28;
/// Maximum number of letters in a message.
pub const LETTERS_MAX: u32 = 1 << 20;

/// Letters of the longest message. Shorter messages have its first letters.
#[derive(Debug, Clone)]
pub struct MessageText(Vec<u8>);

impl MessageText {
    /// Creates the letters of messages with at most `letters_max` letters.
    #[must_use]
    pub fn new(letters_max: u32) -> Self {
        Self((b'a'..=b'z').cycle().take(letters_max as usize).collect())
    }

    /// Appends a message of `letters_count` letters to `out`.
    ///
    /// # Panics
    /// Panics if `letters_count` is above the maximum that [`new`](Self::new) was given.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>, id: u128, sent_ns: u64, letters_count: u32) {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&letters_count.to_be_bytes());
        header[4..20].copy_from_slice(&id.to_be_bytes());
        header[20..].copy_from_slice(&sent_ns.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.0[..letters_count as usize]);
    }

    /// Checks the echo at the beginning of `bytes` against its message. Returns the time at which
    /// the message was sent, or `None` if the echo is incomplete.
    ///
    /// # Errors
    /// Fails with [`MessageError`] as soon as the bytes cannot become the expected message.
    #[inline]
    pub fn check(
        &self,
        bytes: &[u8],
        id: u128,
        letters_count: u32,
    ) -> Result<Option<u64>, MessageError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return check_length(bytes, letters_count).map(|()| None);
        };
        check_length(header, letters_count)?;
        let found_id = u128::from_be_bytes(field_at(header, 4));
        if found_id != id {
            return Err(MessageError::Id { found: found_id, expected: id });
        }
        let Some(letters) = rest.get(..letters_count as usize) else { return Ok(None) };
        if letters != &self.0[..letters_count as usize] {
            let at = letters.iter().zip(&self.0).take_while(|(one, other)| one == other).count();
            return Err(MessageError::Letter { at });
        }
        Ok(Some(u64::from_be_bytes(field_at(header, 20))))
    }
}

/// Returns the header field of `N` bytes at the offset `at`.
#[inline]
fn field_at<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

/// Checks the length in a message's header, if it has arrived.
#[inline]
fn check_length(bytes: &[u8], expected: u32) -> Result<(), MessageError> {
    match bytes.first_chunk::<4>().map(|length| u32::from_be_bytes(*length)) {
        Some(found) if found != expected => Err(MessageError::Length { found, expected }),
        _ => Ok(()),
    }
}

/// Difference between an echo and the message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The echo has another length than the message that was sent.
    #[error("received a message of {found} letters instead of {expected}")]
    Length {
        /// Length of the message received.
        found: u32,
        /// Length of the message sent.
        expected: u32,
    },
    /// The echo belongs to another connection.
    #[error("received the message of connection {found:x} on connection {expected:x}")]
    Id {
        /// Connection id in the message received.
        found: u128,
        /// Id of the connection on which the message was received.
        expected: u128,
    },
    /// A letter of the echo differs from that of the message that was sent.
    #[error("letter {at} of a received message differs from the one sent")]
    Letter {
        /// Index of the first letter that differs.
        at: usize,
    },
}

/// Generator of the lengths of a connection's messages, evenly distributed over a range. Equal
/// seeds give equal lengths, so that the receiver can predict the next one.
#[derive(Debug, Clone)]
pub struct Lengths {
    /// State of the random number generator.
    state: u64,
    min: u32,
    /// Number of different lengths in the range.
    lengths_count: u64,
}

impl Lengths {
    /// Creates a generator of lengths between `min` and `max`, inclusive.
    #[must_use]
    pub fn new(seed: u64, min: u32, max: u32) -> Self {
        // A state of zero would stay zero for ever.
        let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { state, min, lengths_count: u64::from(max.max(min) - min) + 1 }
    }

    /// Returns the length of the next message.
    #[inline]
    pub fn next_length(&mut self) -> u32 {
        // G. Marsaglia, "Xorshift RNGs" (2003), the triple 13, 7, 17.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // Less than the span, which has at most 32 bits.
        self.min + (((self.state >> 32) * self.lengths_count) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_message_is_rejected() {
        let letters = MessageText::new(30);
        let mut bytes = Vec::new();
        letters.append(&mut bytes, 7, 1234, 30);
        assert_eq!(bytes.len(), HEADER_BYTES + 30);
        assert_eq!(&bytes[..4], [0, 0, 0, 30]);
        assert_eq!(&bytes[HEADER_BYTES..], b"abcdefghijklmnopqrstuvwxyzabcd");
        assert_eq!(letters.check(&bytes, 7, 30), Ok(Some(1234)));
        for end in 0..bytes.len() {
            assert_eq!(letters.check(&bytes[..end], 7, 30), Ok(None), "{end} bytes");
        }
        assert_eq!(letters.check(&bytes, 8, 30), Err(MessageError::Id { found: 7, expected: 8 }));
        let other = Err(MessageError::Length { found: 30, expected: 29 });
        assert_eq!(letters.check(&bytes, 7, 29), other);
        assert_eq!(letters.check(&bytes[..4], 7, 29), other);
        bytes[HEADER_BYTES + 17] ^= 1;
        assert_eq!(letters.check(&bytes, 7, 30), Err(MessageError::Letter { at: 17 }));
    }

    #[test]
    fn lengths_cover_the_range_and_depend_on_the_seed() {
        let (mut one, mut other) = (Lengths::new(5, 3, 10), Lengths::new(5, 3, 10));
        let mut counts = [0; 16];
        for _ in 0..8000 {
            let length = one.next_length();
            assert_eq!(length, other.next_length());
            counts[length as usize] += 1;
        }
        for (length, count) in counts.iter().enumerate() {
            let expected = if (3..=10).contains(&length) { 800..=1200 } else { 0..=0 };
            assert!(expected.contains(count), "{length}: {count}");
        }
        assert_eq!(Lengths::new(0, 4, 4).next_length(), 4);
    }
}
