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
}

impl Inbound {
    /// Nothing has come; no body may be longer than that.
    #[must_use]
    pub fn new(body_bytes_max: u32) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, body_bytes_max }
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
        Ok(Some((header, body)))
    }

    /// What has come of data, `bytes_max` at most.
    pub fn take(&mut self, bytes_max: u64) -> &[u8] {
        let come = &self.bytes[self.start..self.end];
        let bytes = usize::try_from(bytes_max).map_or(come.len(), |max| come.len().min(max));
        self.start += bytes;
        &self.bytes[self.start - bytes..self.start]
    }

    /// How much memory is held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
