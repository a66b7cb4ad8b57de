//! Splits the bytes of a stream into frames.

use super::frame::{HEADER_BYTES, Header, Kind};
use crate::FrameError;

/// Size of the receive buffer until a longer frame needs more, in bytes.
const ROOM_BYTES: usize = 1 << 16;

/// Receive buffer of a stream, with the bytes that are not decoded yet.
///
/// ```
/// use handover_rpc::engine::{Header, Inbound, Kind};
/// let header = Header { body_bytes: 2, kind: Kind::OneWay, method: 7, call: 0 };
/// let mut inbound = Inbound::new(100);
/// for byte in header.encode().into_iter().chain(*b"hi") {
///     assert_eq!(inbound.frame()?, None);
///     inbound.room()[0] = byte;
///     inbound.filled(1);
/// }
/// assert_eq!(inbound.frame()?, Some((header, &b"hi"[..])));
/// # Ok::<(), handover_rpc::FrameError>(())
/// ```
#[derive(Debug)]
pub struct Inbound {
    bytes: Vec<u8>,
    /// End of the decoded bytes.
    start: usize,
    /// End of the received bytes.
    end: usize,
    body_bytes_max: u32,
    /// `true` if a frame of at least `ROOM_BYTES` bytes was returned since the last call of
    /// `shrink`.
    had_long: bool,
}

impl Inbound {
    /// Creates an empty buffer. Bodies longer than `body_bytes_max` are refused.
    #[must_use]
    pub fn new(body_bytes_max: u32) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, body_bytes_max, had_long: false }
    }

    /// Returns the free part of the buffer, for the next bytes; it is never empty. The buffer grows
    /// with the received bytes, not with the length that a header announces.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < HEADER_BYTES.max(self.bytes.len() / 4) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end > self.bytes.len() / 2 || self.bytes.is_empty() {
                self.bytes.resize((2 * self.bytes.len()).max(ROOM_BYTES), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Marks `bytes_count` bytes of [`room`](Self::room) as received.
    ///
    /// # Panics
    /// Panics if `bytes_count` is more than the room.
    pub fn filled(&mut self, bytes_count: usize) {
        assert!(bytes_count <= self.bytes.len() - self.end, "more than there is room for");
        self.end += bytes_count;
    }

    /// Returns the next frame if it is complete. For a [`Kind::Data`] frame, returns the header
    /// without the body, which [`take`](Self::take) returns as it arrives.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not a frame. The bytes after them cannot be decoded.
    pub fn frame(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        let come = &self.bytes[self.start..self.end];
        let Some((head, rest)) = come.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(head, self.body_bytes_max)?;
        if header.kind == Kind::Data {
            if header.body_bytes == 0 {
                return Err(FrameError::Bulk);
            }
            self.start += HEADER_BYTES;
            return Ok(Some((header, &[])));
        }
        // A u32 fits a usize on the supported targets.
        let Some(body) = rest.get(..header.body_bytes as usize) else { return Ok(None) };
        self.start += HEADER_BYTES + body.len();
        self.had_long |= body.len() >= ROOM_BYTES;
        Ok(Some((header, body)))
    }

    /// Returns received bytes of a [`Kind::Data`] frame's body, at most `bytes_max`.
    pub fn take(&mut self, bytes_max: u64) -> &[u8] {
        let come = &self.bytes[self.start..self.end];
        let bytes = usize::try_from(bytes_max).map_or(come.len(), |max| come.len().min(max));
        self.start += bytes;
        &self.bytes[self.start - bytes..self.start]
    }

    /// Returns the number of received bytes that were not returned by [`frame`](Self::frame) or
    /// [`take`](Self::take).
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` if the buffer has grown beyond its usual size.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.bytes.len() > ROOM_BYTES
    }

    /// Frees a buffer that has [grown](Self::is_grown), if the pending bytes fit into one of the
    /// usual size and no long frame was returned since the last call.
    pub fn shrink(&mut self) {
        let pending_bytes = self.pending_bytes();
        if !std::mem::take(&mut self.had_long) && self.is_grown() && pending_bytes < ROOM_BYTES / 2
        {
            let mut bytes = vec![0; if pending_bytes == 0 { 0 } else { ROOM_BYTES }];
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

    fn receive(inbound: &mut Inbound, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = inbound.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            inbound.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn memory_of_a_long_frame_is_given_back_when_no_other_has_come() {
        let mut inbound = Inbound::new(1 << 20);
        let long = Header { body_bytes: 1 << 20, kind: Kind::OneWay, method: 0, call: 0 };
        let frame = [&long.encode()[..], &[7; 1 << 20]].concat();
        for _ in 0..2 {
            receive(&mut inbound, &frame[..frame.len() / 2]);
            inbound.shrink();
            assert_eq!(inbound.frame(), Ok(None), "and half of it is kept");
            receive(&mut inbound, &frame[frame.len() / 2..]);
            assert!(
                matches!(inbound.frame(), Ok(Some((_, body))) if body == &frame[HEADER_BYTES..])
            );
            inbound.shrink();
            assert!(inbound.is_grown(), "there has been a long one just now");
        }
        let short = Header { body_bytes: 0, ..long };
        receive(&mut inbound, &short.encode());
        assert_eq!(inbound.frame(), Ok(Some((short, &[][..]))));
        inbound.shrink();
        assert_eq!((inbound.is_grown(), inbound.capacity_bytes()), (false, 0));
        receive(&mut inbound, &short.encode());
        assert_eq!(inbound.frame(), Ok(Some((short, &[][..]))));
        assert_eq!(inbound.capacity_bytes(), ROOM_BYTES);
    }

    #[test]
    fn pending_byte_does_not_keep_the_memory_of_a_long_frame() {
        let mut inbound = Inbound::new(1 << 20);
        let long = Header { body_bytes: 1 << 20, kind: Kind::OneWay, method: 0, call: 0 };
        receive(&mut inbound, &[&long.encode()[..], &[7; 1 << 20]].concat());
        assert!(matches!(inbound.frame(), Ok(Some(_))));
        let short = Header { body_bytes: 0, ..long };
        let bytes = short.encode();
        receive(&mut inbound, &bytes[..1]);
        inbound.shrink();
        inbound.shrink();
        assert_eq!((inbound.is_grown(), inbound.capacity_bytes()), (false, ROOM_BYTES));
        receive(&mut inbound, &bytes[1..]);
        assert_eq!(inbound.frame(), Ok(Some((short, &[][..]))));
    }
}
