//! Replies to received bytes, collected until they are sent together.

use std::ops::Range;

/// Replies to the messages of one read, in order.
///
/// A reply that is a part of the received bytes is stored as a range and not copied, as long as the
/// next reply is the part right after it. Every method that may have to copy gets the received
/// bytes as an argument, the same ones until [`clear`](Self::clear).
#[derive(Debug)]
pub struct ReplyBuffer {
    /// Replies that the handler has written, or that were copied from received bytes.
    written: Vec<u8>,
    /// Start, in the received bytes, of the range to be sent after `written`.
    range_start: usize,
    /// End of the range that begins at `range_start`.
    range_end: usize,
}

/// Value of `range_start` and `range_end` if there is no range. No part of the received bytes
/// begins there.
const NO_RANGE: usize = usize::MAX;

impl Default for ReplyBuffer {
    fn default() -> Self {
        Self { written: Vec::new(), range_start: NO_RANGE, range_end: NO_RANGE }
    }
}

impl ReplyBuffer {
    /// Returns the number of bytes in all replies.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.written.len() + (self.range_end - self.range_start)
    }

    /// Returns `true` if there are no replies.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a range of the received bytes to the replies.
    ///
    /// # Panics
    /// If the range is not within `bytes`; possibly only in a later call.
    pub fn push_range(&mut self, bytes: &[u8], part: Range<usize>) {
        if !self.extend_range(&part) {
            self.copy_pending_range(bytes);
            (self.range_start, self.range_end) = (part.start, part.end);
        }
    }

    /// Appends `part` to the replies if it directly follows the latest range. Otherwise returns
    /// `false` and does nothing.
    #[inline(always)]
    pub fn extend_range(&mut self, part: &Range<usize>) -> bool {
        let follows = self.range_end == part.start;
        if follows {
            self.range_end = part.end;
        }
        follows
    }

    /// Copies the pending range of `bytes`, and returns the buffer for further replies.
    #[inline]
    pub fn copied_bytes_mut(&mut self, bytes: &[u8]) -> &mut Vec<u8> {
        if self.range_end != NO_RANGE {
            self.copy_pending_range(bytes);
        }
        &mut self.written
    }

    /// Returns all replies as one slice; copies the pending range first if the replies are not
    /// contiguous.
    pub fn as_contiguous<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.written.is_empty() && self.range_end != NO_RANGE {
            true => &bytes[self.range_start..self.range_end],
            false => self.copied_bytes_mut(bytes),
        }
    }

    /// Removes all replies, and limits the buffer's capacity to `kept_bytes` bytes.
    pub fn clear(&mut self, kept_bytes: usize) {
        (self.range_start, self.range_end) = (NO_RANGE, NO_RANGE);
        self.written.clear();
        self.written.shrink_to(kept_bytes);
    }

    /// Copies the pending range of the received `bytes` to `written`.
    #[cold]
    fn copy_pending_range(&mut self, bytes: &[u8]) {
        if self.range_end != NO_RANGE {
            self.written.extend_from_slice(&bytes[self.range_start..self.range_end]);
            (self.range_start, self.range_end) = (NO_RANGE, NO_RANGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: &[u8] = b"0123456789";

    #[test]
    fn adjacent_ranges_are_not_copied() {
        let mut replies = ReplyBuffer::default();
        replies.push_range(RECEIVED, 2..4);
        replies.push_range(RECEIVED, 4..4);
        replies.push_range(RECEIVED, 4..7);
        assert_eq!(replies.len(), 5);
        assert_eq!(replies.as_contiguous(RECEIVED).as_ptr(), RECEIVED[2..].as_ptr());
        assert_eq!(replies.as_contiguous(RECEIVED), b"23456");
    }

    #[test]
    fn ranges_and_written_bytes_keep_their_order() {
        let mut replies = ReplyBuffer::default();
        replies.push_range(RECEIVED, 0..2);
        replies.push_range(RECEIVED, 0..2);
        replies.copied_bytes_mut(RECEIVED).extend_from_slice(b"ab");
        replies.push_range(RECEIVED, 8..10);
        replies.push_range(RECEIVED, 3..4);
        replies.push_range(RECEIVED, 4..5);
        assert_eq!((replies.len(), replies.is_empty()), (10, false));
        assert_eq!(replies.as_contiguous(RECEIVED), b"0101ab8934");
        replies.clear(0);
        assert!(replies.is_empty() && replies.written.capacity() == 0);
        replies.push_range(b"xyz", 0..1);
        assert_eq!(replies.as_contiguous(b"xyz"), b"x");
    }
}
