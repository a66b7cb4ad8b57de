//! Splits the bytes of a stream into frames.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::FrameError;

/// Size of the receive buffer until a longer frame needs more, in bytes.
const USUAL_BYTES: usize = 1 << 16;

/// Receive buffer of a stream, which splits the received bytes into frames.
///
/// ```
/// use handover_rpc::engine::{FrameHeader, ReceiveBuffer, FrameKind};
/// let header = FrameHeader { body_bytes: 2, kind: FrameKind::OneWay, method: 7, call: 0 };
/// let mut inbound = ReceiveBuffer::new(100);
/// for byte in header.encode().into_iter().chain(*b"hi") {
///     assert_eq!(inbound.next_frame()?, None);
///     inbound.free_space()[0] = byte;
///     inbound.mark_received(1);
/// }
/// assert_eq!(inbound.next_frame()?, Some((header, &b"hi"[..])));
/// # Ok::<(), handover_rpc::FrameError>(())
/// ```
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// Index of the first byte that was not decoded yet.
    start: usize,
    /// Index after the last received byte.
    end: usize,
    body_bytes_max: u32,
    /// `true` if a frame of at least `USUAL_BYTES` bytes was returned since the last call of
    /// `shrink`.
    had_long_frame: bool,
}

impl ReceiveBuffer {
    /// Creates an empty buffer. Bodies longer than `body_bytes_max` are refused.
    #[must_use]
    pub fn new(body_bytes_max: u32) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, body_bytes_max, had_long_frame: false }
    }

    /// Returns the free part of the buffer, for the next bytes; it is never empty. The buffer grows
    /// with the received bytes, not with the length that a header announces.
    pub fn free_space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < FRAME_HEADER_BYTES.max(self.bytes.len() / 4) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end > self.bytes.len() / 2 || self.bytes.is_empty() {
                self.bytes.resize((2 * self.bytes.len()).max(USUAL_BYTES), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Marks the first `bytes_count` bytes of [`free_space`](Self::free_space) as received.
    ///
    /// # Panics
    /// Panics if `bytes_count` exceeds the length of the free part.
    pub fn mark_received(&mut self, bytes_count: usize) {
        assert!(
            bytes_count <= self.bytes.len() - self.end,
            "{bytes_count} bytes received, more than the buffer has free"
        );
        self.end += bytes_count;
    }

    /// Returns the next frame; `None` if it is not complete yet. For a [`FrameKind::Data`] frame,
    /// returns the header without the body, which [`take_body_bytes`](Self::take_body_bytes)
    /// returns as it arrives.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not a frame. The bytes after them cannot be decoded.
    pub fn next_frame(&mut self) -> Result<Option<(FrameHeader, &[u8])>, FrameError> {
        let come = &self.bytes[self.start..self.end];
        let Some((head, rest)) = come.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader::decode(head, self.body_bytes_max)?;
        if header.kind == FrameKind::Data {
            if header.body_bytes == 0 {
                return Err(FrameError::Bulk);
            }
            self.start += FRAME_HEADER_BYTES;
            return Ok(Some((header, &[])));
        }
        // A u32 fits a usize on the supported targets.
        let Some(body) = rest.get(..header.body_bytes as usize) else { return Ok(None) };
        self.start += FRAME_HEADER_BYTES + body.len();
        self.had_long_frame |= body.len() >= USUAL_BYTES;
        Ok(Some((header, body)))
    }

    /// Removes and returns at most `bytes_max` received bytes of a [`FrameKind::Data`] frame's
    /// body.
    pub fn take_body_bytes(&mut self, bytes_max: u64) -> &[u8] {
        let come = &self.bytes[self.start..self.end];
        let bytes = usize::try_from(bytes_max).map_or(come.len(), |max| come.len().min(max));
        self.start += bytes;
        &self.bytes[self.start - bytes..self.start]
    }

    /// Returns the number of received bytes that are still in the buffer.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` if the buffer has grown beyond its usual size.
    #[must_use]
    pub fn is_larger_than_usual(&self) -> bool {
        self.bytes.len() > USUAL_BYTES
    }

    /// Shrinks a buffer that has [grown](Self::is_larger_than_usual). Does so only if its pending
    /// bytes are few and no long frame was returned since the last call.
    pub fn shrink(&mut self) {
        let pending_bytes = self.pending_bytes();
        if !std::mem::take(&mut self.had_long_frame)
            && self.is_larger_than_usual()
            && pending_bytes < USUAL_BYTES / 2
        {
            let mut bytes = vec![0; if pending_bytes == 0 { 0 } else { USUAL_BYTES }];
            bytes[..pending_bytes].copy_from_slice(&self.bytes[self.start..self.end]);
            self.bytes = bytes;
            (self.start, self.end) = (0, pending_bytes);
        }
    }

    /// Returns the capacity of the buffer, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(inbound: &mut ReceiveBuffer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let free = inbound.free_space();
            let count = free.len().min(bytes.len());
            free[..count].copy_from_slice(&bytes[..count]);
            inbound.mark_received(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn memory_of_a_long_frame_is_freed_unless_another_one_arrives() {
        let mut inbound = ReceiveBuffer::new(1 << 20);
        let long = FrameHeader { body_bytes: 1 << 20, kind: FrameKind::OneWay, method: 0, call: 0 };
        let frame = [&long.encode()[..], &[7; 1 << 20]].concat();
        for _ in 0..2 {
            receive(&mut inbound, &frame[..frame.len() / 2]);
            inbound.shrink();
            assert_eq!(inbound.next_frame(), Ok(None), "returned half of a frame");
            receive(&mut inbound, &frame[frame.len() / 2..]);
            assert!(
                matches!(inbound.next_frame(), Ok(Some((_, body))) if body == &frame[FRAME_HEADER_BYTES..])
            );
            inbound.shrink();
            assert!(
                inbound.is_larger_than_usual(),
                "the buffer was freed right after a long frame"
            );
        }
        let short = FrameHeader { body_bytes: 0, ..long };
        receive(&mut inbound, &short.encode());
        assert_eq!(inbound.next_frame(), Ok(Some((short, &[][..]))));
        inbound.shrink();
        assert_eq!((inbound.is_larger_than_usual(), inbound.capacity_bytes()), (false, 0));
        receive(&mut inbound, &short.encode());
        assert_eq!(inbound.next_frame(), Ok(Some((short, &[][..]))));
        assert_eq!(inbound.capacity_bytes(), USUAL_BYTES);
    }

    #[test]
    fn pending_byte_does_not_keep_the_memory_of_a_long_frame() {
        let mut inbound = ReceiveBuffer::new(1 << 20);
        let long = FrameHeader { body_bytes: 1 << 20, kind: FrameKind::OneWay, method: 0, call: 0 };
        receive(&mut inbound, &[&long.encode()[..], &[7; 1 << 20]].concat());
        assert!(matches!(inbound.next_frame(), Ok(Some(_))));
        let short = FrameHeader { body_bytes: 0, ..long };
        let bytes = short.encode();
        receive(&mut inbound, &bytes[..1]);
        inbound.shrink();
        inbound.shrink();
        assert_eq!(
            (inbound.is_larger_than_usual(), inbound.capacity_bytes()),
            (false, USUAL_BYTES)
        );
        receive(&mut inbound, &bytes[1..]);
        assert_eq!(inbound.next_frame(), Ok(Some((short, &[][..]))));
    }
}
