//! What is written in answer to bytes that came, until it is sent.

use std::ops::Range;

/// The replies to what was read together, in order.
///
/// A reply that is a part of the bytes that came is not copied, as long as nothing but the part behind it
/// follows: it stays a range of them. So each method that may have to copy is shown those bytes, the same ones
/// until [`clear`](Self::clear).
#[derive(Debug)]
pub struct Replies {
    /// What was written, and copied.
    written: Vec<u8>,
    /// Which of the bytes that came go out behind it: from here to there.
    from: usize,
    to: usize,
}

/// Where `from` and `to` stand while there are none: behind no byte.
const NOWHERE: usize = usize::MAX;

impl Default for Replies {
    fn default() -> Self {
        Self { written: Vec::new(), from: NOWHERE, to: NOWHERE }
    }
}

impl Replies {
    /// How many bytes they are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.written.len() + (self.to - self.from)
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replies with a part of the bytes that came.
    ///
    /// # Panics
    /// When it is not within them; perhaps only later.
    pub fn push_came(&mut self, bytes: &[u8], part: Range<usize>) {
        if !self.extend_came(&part) {
            self.write_out(bytes);
            (self.from, self.to) = (part.start, part.end);
        }
    }

    /// The same, where it follows what was pushed so last; else false, and nothing.
    #[inline(always)]
    pub fn extend_came(&mut self, part: &Range<usize>) -> bool {
        let follows = self.to == part.start;
        if follows {
            self.to = part.end;
        }
        follows
    }

    /// To append further replies to, behind all others.
    #[inline]
    pub fn written(&mut self, bytes: &[u8]) -> &mut Vec<u8> {
        if self.to != NOWHERE {
            self.write_out(bytes);
        }
        &mut self.written
    }

    /// All of them, behind each other.
    pub fn whole<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.written.is_empty() && self.to != NOWHERE {
            true => &bytes[self.from..self.to],
            false => self.written(bytes),
        }
    }

    /// There are none any more; memory beyond `kept_bytes` is given back.
    pub fn clear(&mut self, kept_bytes: usize) {
        (self.from, self.to) = (NOWHERE, NOWHERE);
        self.written.clear();
        self.written.shrink_to(kept_bytes);
    }

    /// Copies what was not copied.
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
