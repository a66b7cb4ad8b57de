//! Received bytes that are not a complete message yet.

use super::codec::{Codec, CodecError, DecodeResult};
use std::ops::{ControlFlow, Range};

/// Error of a stream that ended in the middle of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer closed the connection after {bytes} bytes of an incomplete message")]
pub struct TruncatedMessageError {
    /// Number of bytes of the message that were received.
    pub bytes: usize,
}

/// Result of [`InboundBuffer::deliver_messages`]: number of delivered messages, and whether `each`
/// stopped the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryResult {
    /// Number of messages that the call delivered.
    pub messages_count: u64,
    /// `true` if `each` returned `Break`; further complete messages may be buffered.
    pub is_stopped: bool,
}

/// Receive buffer of a connection. It holds an incomplete message, and messages that are not to be
/// delivered yet. It owns no memory while it is empty.
///
/// A byte is copied here at most once, however the network cuts the stream; most are never copied,
/// as messages that arrive whole are handed over from the read buffer. Memory grows with the bytes
/// that have arrived, not with a length that a frame announces.
#[derive(Debug, Default)]
pub struct InboundBuffer {
    buffered: Vec<u8>,
    /// Number of buffered bytes that the codec has seen already, without a complete message in
    /// them.
    seen_bytes: usize,
}

impl InboundBuffer {
    /// Returns `true` if no bytes are buffered and no memory is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffered.is_empty()
    }

    /// Returns the number of buffered bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffered.len()
    }

    /// Returns the capacity of the buffer, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.buffered.capacity()
    }

    /// Passes each message that the received `bytes` complete to `each`, until `each` returns
    /// `Break`. Buffers the rest. With empty `bytes` it continues with buffered messages.
    ///
    /// # Errors
    /// [`CodecError`] of the codec; the kept bytes are of no further use then.
    #[inline]
    pub fn deliver_messages<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<DeliveryResult, CodecError> {
        self.deliver_framed_messages(bytes, codec, |message, _frame| each(message))
    }

    /// Delivers messages like [`deliver_messages`](Self::deliver_messages), each with the range of
    /// its frame in `bytes`. The range is empty if the message began in earlier bytes.
    ///
    /// # Errors
    /// Those of [`deliver_messages`](Self::deliver_messages).
    #[inline]
    pub fn deliver_framed_messages<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        mut each: impl FnMut(&[u8], Range<usize>) -> ControlFlow<()>,
    ) -> Result<DeliveryResult, CodecError> {
        let mut delivered = DeliveryResult::default();
        let mut rest = bytes;
        if !self.buffered.is_empty() {
            let mut each = |message: &[u8]| each(message, 0..0);
            match self.deliver_buffered(bytes, codec, &mut delivered, &mut each)? {
                Some(left) => rest = left,
                None => return Ok(delivered),
            }
        }
        while !rest.is_empty() {
            match codec.decode(rest, 0)? {
                DecodeResult::Message { body, used_bytes } => {
                    let message = checked_message(rest, body, used_bytes)?;
                    let at = bytes.len() - rest.len();
                    rest = &rest[used_bytes..];
                    delivered.messages_count += 1;
                    if each(message, at..at + used_bytes).is_break() {
                        self.buffered.extend_from_slice(rest);
                        delivered.is_stopped = true;
                        return Ok(delivered);
                    }
                }
                DecodeResult::More { .. } => {
                    self.buffered.extend_from_slice(rest);
                    self.seen_bytes = rest.len();
                    break;
                }
            }
        }
        Ok(delivered)
    }

    /// Buffers bytes whose messages are not to be delivered yet, for a later
    /// [`deliver_messages`](Self::deliver_messages).
    pub fn append_undelivered(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(bytes);
    }

    /// Checks at the end of the stream that no incomplete message is buffered.
    ///
    /// # Errors
    /// [`TruncatedMessageError`] if the stream ended in the middle of a message.
    pub fn check_end_of_stream(&self) -> Result<(), TruncatedMessageError> {
        match self.buffered.len() {
            0 => Ok(()),
            bytes => Err(TruncatedMessageError { bytes }),
        }
    }

    /// Delivers the messages that begin in the buffer, after appending the part of `bytes` that
    /// they need. Returns the rest of `bytes` if the buffer is then empty, otherwise `None`.
    fn deliver_buffered<'a, C: Codec>(
        &mut self,
        bytes: &'a [u8],
        codec: &C,
        delivered: &mut DeliveryResult,
        each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<&'a [u8]>, CodecError> {
        let mut at = 0;
        // Number of leading bytes of `bytes` that were appended to `buffered`.
        let mut copied = 0;
        loop {
            let pending = &self.buffered[at..];
            match codec.decode(pending, self.seen_bytes)? {
                DecodeResult::Message { body, used_bytes } => {
                    let message = checked_message(pending, body, used_bytes)?;
                    let should_stop = each(message).is_break();
                    delivered.messages_count += 1;
                    self.seen_bytes = 0;
                    at += used_bytes;
                    let left = self.buffered.len() - at;
                    if should_stop {
                        self.buffered.drain(..at);
                        self.buffered.extend_from_slice(&bytes[copied..]);
                        self.free_if_empty();
                        delivered.is_stopped = true;
                        return Ok(None);
                    }
                    if left <= copied {
                        // `bytes` contains the rest too, so that it need not be copied.
                        self.buffered = Vec::new();
                        return Ok(Some(&bytes[copied - left..]));
                    }
                }
                DecodeResult::More { needed_bytes } => {
                    let rest = &bytes[copied..];
                    if rest.is_empty() {
                        self.seen_bytes = pending.len();
                        self.buffered.drain(..at);
                        return Ok(None);
                    }
                    let wanted = match needed_bytes {
                        Some(needed) => needed.saturating_sub(pending.len()).clamp(1, rest.len()),
                        None => rest.len(),
                    };
                    self.seen_bytes = pending.len();
                    self.buffered.extend_from_slice(&rest[..wanted]);
                    copied += wanted;
                }
            }
        }
    }

    fn free_if_empty(&mut self) {
        if self.buffered.is_empty() {
            self.buffered = Vec::new();
        }
    }
}

/// Returns the message at `body` after checking the ranges that the codec has returned. It is an
/// error if `body` or `used_bytes` exceeds `bytes`, or if `used_bytes` is 0.
#[inline]
fn checked_message(
    bytes: &[u8],
    body: Range<usize>,
    used_bytes: usize,
) -> Result<&[u8], CodecError> {
    match bytes.get(body) {
        Some(message) if (1..=bytes.len()).contains(&used_bytes) => Ok(message),
        _ => Err(CodecError::InvalidRange),
    }
}
