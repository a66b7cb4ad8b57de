//! What has come and is not a whole message yet.

use super::codec::{Codec, CodecError, Decoded};
use std::ops::{ControlFlow, Range};

/// The stream ended in the middle of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended {bytes} bytes into a message")]
pub struct Truncated {
    /// How much of it had come.
    pub bytes: usize,
}

/// How far [`Inbound::take`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Messages that were handed over.
    pub messages_count: u64,
    /// Whether it stopped because it was asked to, with bytes left that may hold further messages.
    pub stopped: bool,
}

/// The reading side of a connection: owns memory only while the beginning of a message is pending, or
/// messages that were not wanted yet.
///
/// A byte is copied here at most once, however the network cuts the stream; most are never copied, as
/// messages that came whole are handed over where they stand. Memory follows what has come, not what a
/// length promises.
#[derive(Debug, Default)]
pub struct Inbound {
    kept: Vec<u8>,
    /// So many of them the codec has seen in vain.
    seen_bytes: usize,
}

impl Inbound {
    /// Whether nothing is kept, and no memory held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many bytes are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// How much memory is held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// Takes bytes that came and hands over the messages that are whole by now, in order, until `each`
    /// says that it is enough. What is left is kept. With no bytes it goes on with what was kept.
    ///
    /// # Errors
    /// As the codec's. What is kept then is of no use any more.
    #[inline]
    pub fn take<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Taken, CodecError> {
        self.take_framed(bytes, codec, |message, _frame| each(message))
    }

    /// As [`take`](Self::take), and tells where in `bytes` a message stands with its frame; of one that had
    /// begun before them, an empty range.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub fn take_framed<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        mut each: impl FnMut(&[u8], Range<usize>) -> ControlFlow<()>,
    ) -> Result<Taken, CodecError> {
        let mut taken = Taken::default();
        let mut rest = bytes;
        if !self.kept.is_empty() {
            let mut each = |message: &[u8]| each(message, 0..0);
            match self.take_kept(bytes, codec, &mut taken, &mut each)? {
                Some(left) => rest = left,
                None => return Ok(taken),
            }
        }
        while !rest.is_empty() {
            match codec.decode(rest, 0)? {
                Decoded::Message { body, used_bytes } => {
                    let message = checked(rest, body, used_bytes)?;
                    let at = bytes.len() - rest.len();
                    rest = &rest[used_bytes..];
                    taken.messages_count += 1;
                    if each(message, at..at + used_bytes).is_break() {
                        self.kept.extend_from_slice(rest);
                        taken.stopped = true;
                        return Ok(taken);
                    }
                }
                Decoded::More { .. } => {
                    self.kept.extend_from_slice(rest);
                    self.seen_bytes = rest.len();
                    break;
                }
            }
        }
        Ok(taken)
    }

    /// Keeps bytes that nobody wants yet, to go on with them later.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// [`Truncated`] when it did so in the middle of a message.
    pub fn end(&self) -> Result<(), Truncated> {
        match self.kept.len() {
            0 => Ok(()),
            bytes => Err(Truncated { bytes }),
        }
    }

    /// Goes on with what is kept, with as many of `bytes` behind it as it takes. What is left of
    /// `bytes` when nothing is kept any more; None when something is.
    fn take_kept<'a, C: Codec>(
        &mut self,
        bytes: &'a [u8],
        codec: &C,
        taken: &mut Taken,
        each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<&'a [u8]>, CodecError> {
        let mut at = 0;
        // How many of `bytes` are at the end of what is kept.
        let mut copied = 0;
        loop {
            let pending = &self.kept[at..];
            match codec.decode(pending, self.seen_bytes)? {
                Decoded::Message { body, used_bytes } => {
                    let message = checked(pending, body, used_bytes)?;
                    let enough = each(message).is_break();
                    taken.messages_count += 1;
                    self.seen_bytes = 0;
                    at += used_bytes;
                    let left = self.kept.len() - at;
                    if enough {
                        self.kept.drain(..at);
                        self.kept.extend_from_slice(&bytes[copied..]);
                        self.release();
                        taken.stopped = true;
                        return Ok(None);
                    }
                    if left <= copied {
                        // The rest stands in `bytes` too: no need of a copy.
                        self.kept = Vec::new();
                        return Ok(Some(&bytes[copied - left..]));
                    }
                }
                Decoded::More { needed_bytes } => {
                    let rest = &bytes[copied..];
                    if rest.is_empty() {
                        self.seen_bytes = pending.len();
                        self.kept.drain(..at);
                        return Ok(None);
                    }
                    let wanted = match needed_bytes {
                        Some(needed) => needed.saturating_sub(pending.len()).clamp(1, rest.len()),
                        None => rest.len(),
                    };
                    self.seen_bytes = pending.len();
                    self.kept.extend_from_slice(&rest[..wanted]);
                    copied += wanted;
                }
            }
        }
    }

    fn release(&mut self) {
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
    }
}

/// The message, if the codec told of one that can be.
#[inline]
fn checked(bytes: &[u8], body: Range<usize>, used_bytes: usize) -> Result<&[u8], CodecError> {
    match bytes.get(body) {
        Some(message) if (1..=bytes.len()).contains(&used_bytes) => Ok(message),
        _ => Err(CodecError::Impossible),
    }
}
