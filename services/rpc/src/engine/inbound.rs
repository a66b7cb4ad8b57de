//! Bytes of a stream become frames, however they were cut.

use super::frame::{HEADER_BYTES, Header, Kind};
use crate::FrameError;

/// What was asked of the kernel at a time, before a longer frame is known.
const ROOM_BYTES: usize = 1 << 16;

/// What has come of a stream and was not understood yet.
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
    /// What is understood ends here.
    start: usize,
    /// What has come ends here.
    end: usize,
    body_bytes_max: u32,
    /// A frame longer than the usual room has come since memory was last given back, or asked about.
    had_long: bool,
}

impl Inbound {
    /// Nothing has come; no body may be longer than that.
    #[must_use]
    pub fn new(body_bytes_max: u32) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, body_bytes_max, had_long: false }
    }

    /// Where the next bytes go: never empty. Memory grows with what has come, not with what a header
    /// promises.
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

    /// So many bytes of [`room`](Self::room) have come.
    ///
    /// # Panics
    /// When that is more than there was room for.
    pub fn filled(&mut self, bytes_count: usize) {
        assert!(bytes_count <= self.bytes.len() - self.end, "more than there is room for");
        self.end += bytes_count;
    }

    /// The next frame, if it has come whole; of data its header, without what follows, which is
    /// [taken](Self::take) as it comes.
    ///
    /// # Errors
    /// [`FrameError`] when it is none. Nothing after it can be understood.
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
        // A u32 fits a usize here.
        let Some(body) = rest.get(..header.body_bytes as usize) else { return Ok(None) };
        self.start += HEADER_BYTES + body.len();
        self.had_long |= body.len() >= ROOM_BYTES;
        Ok(Some((header, body)))
    }

    /// What has come of data, `bytes_max` at most.
    pub fn take(&mut self, bytes_max: u64) -> &[u8] {
        let come = &self.bytes[self.start..self.end];
        let bytes = usize::try_from(bytes_max).map_or(come.len(), |max| come.len().min(max));
        self.start += bytes;
        &self.bytes[self.start - bytes..self.start]
    }

    /// Bytes that have come and are not yet part of a frame or of data that was [taken](Self::take).
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` if more memory is held than for frames of usual length.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.bytes.len() > ROOM_BYTES
    }

    /// Gives memory back that has [grown](Self::is_grown), if nothing is pending and no long frame has come since this
    /// was last called.
    pub fn shrink(&mut self) {
        if !std::mem::take(&mut self.had_long) && self.is_grown() && self.pending_bytes() == 0 {
            self.bytes = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// How much memory is held.
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
}
