//! Replies to received bytes, collected until they are sent together.

use std::ops::Range;

/// Replies to one read, in order.
///
/// A reply that is a part of the received bytes is stored as a range and not copied, as long as the
/// next reply is the part right after it. Every method that may have to copy gets the received
/// bytes as an argument, the same ones until [`clear`](Self::clear).
#[derive(Debug)]
pub struct Replies {
    /// Replies that were written or copied.
    written: Vec<u8>,
    /// Range of the received bytes that is sent after `written`: `from..to`.
    from: usize,
    to: usize,
}

/// Value of `from` and `to` while there is no range: no part begins there.
const NOWHERE: usize = usize::MAX;

impl Default for Replies {
    fn default() -> Self {
        Self { written: Vec::new(), from: NOWHERE, to: NOWHERE }
    }
}

impl Replies {
    /// Returns the number of reply bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.written.len() + (self.to - self.from)
    }

    /// Returns `true` if there are no replies.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replies with a part of the received bytes.
    ///
    /// # Panics
    /// If the range is not within `bytes`; possibly only in a later call.
    pub fn push_came(&mut self, bytes: &[u8], part: Range<usize>) {
        if !self.extend_came(&part) {
            self.write_out(bytes);
            (self.from, self.to) = (part.start, part.end);
        }
    }

    /// Replies with `part` if it directly follows the latest part; otherwise returns `false` and
    /// does nothing.
    #[inline(always)]
    pub fn extend_came(&mut self, part: &Range<usize>) -> bool {
        let follows = self.to == part.start;
        if follows {
            self.to = part.end;
        }
        follows
    }

    /// Returns the buffer to append further replies to.
    #[inline]
    pub fn written(&mut self, bytes: &[u8]) -> &mut Vec<u8> {
        if self.to != NOWHERE {
            self.write_out(bytes);
        }
        &mut self.written
    }

    /// Returns all replies, contiguous.
    pub fn whole<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.written.is_empty() && self.to != NOWHERE {
            true => &bytes[self.from..self.to],
            false => self.written(bytes),
        }
    }

    /// Removes all replies; shrinks the buffer to `kept_bytes`.
    pub fn clear(&mut self, kept_bytes: usize) {
        (self.from, self.to) = (NOWHERE, NOWHERE);
        self.written.clear();
        self.written.shrink_to(kept_bytes);
    }

    /// Copies the range of received bytes to `written`.
    #[cold]
    fn write_out(&mut self, bytes: &[u8]) {
        if self.to != NOWHERE {
            self.written.extend_from_slice(&bytes[self.from..self.to]);
            (self.from, self.to) = (NOWHERE, NOWHERE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAME: &[u8] = b"0123456789";

    #[test]
    fn parts_that_follow_each_other_are_not_copied() {
        let mut replies = Replies::default();
        replies.push_came(CAME, 2..4);
        replies.push_came(CAME, 4..4);
        replies.push_came(CAME, 4..7);
        assert_eq!(replies.len(), 5);
        assert_eq!(replies.whole(CAME).as_ptr(), CAME[2..].as_ptr());
        assert_eq!(replies.whole(CAME), b"23456");
    }

    #[test]
    fn whatever_is_written_keeps_its_order() {
        let mut replies = Replies::default();
        replies.push_came(CAME, 0..2);
        replies.push_came(CAME, 0..2);
        replies.written(CAME).extend_from_slice(b"ab");
        replies.push_came(CAME, 8..10);
        replies.push_came(CAME, 3..4);
        replies.push_came(CAME, 4..5);
        assert_eq!((replies.len(), replies.is_empty()), (10, false));
        assert_eq!(replies.whole(CAME), b"0101ab8934");
        replies.clear(0);
        assert!(replies.is_empty() && replies.written.capacity() == 0);
        replies.push_came(b"xyz", 0..1);
        assert_eq!(replies.whole(b"xyz"), b"x");
    }
}
