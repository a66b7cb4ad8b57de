//! What is to be sent and the kernel has not taken.

/// More bytes were to be queued than the limit allows. The peer does not read, or not fast enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{queued_bytes} bytes would wait to be sent, where {queued_bytes_max} may")]
pub struct Overflow {
    /// How many there would have been.
    pub queued_bytes: usize,
    /// How many there may be.
    pub queued_bytes_max: usize,
}

/// A water mark that was crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// Upwards through the high one: whoever produces should pause.
    High,
    /// Then downwards through the low one: whoever produces may go on.
    Low,
}

/// The writing side of a connection: owns memory only while something waits to be sent.
#[derive(Debug, Default)]
pub struct Outbound {
    bytes: Vec<u8>,
    /// So many of them are sent.
    sent_bytes: usize,
    above: bool,
}

impl Outbound {
    /// Whether nothing waits, and no memory is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent_bytes
    }

    /// How much memory is held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether more waits than the high mark, or did and not yet less than the low one.
    #[must_use]
    pub fn is_above(&self) -> bool {
        self.above
    }

    /// Queues bytes; whether they filled the queue above `high_bytes`.
    ///
    /// # Errors
    /// [`Overflow`] when more than `bytes_max` would wait; then nothing is queued.
    pub fn push(
        &mut self,
        bytes: &[u8],
        high_bytes: usize,
        bytes_max: usize,
    ) -> Result<Option<Crossing>, Overflow> {
        let queued_bytes = self.len() + bytes.len();
        if queued_bytes > bytes_max {
            return Err(Overflow { queued_bytes, queued_bytes_max: bytes_max });
        }
        // What is sent is moved over before memory grows: moved bytes are at most those that were sent.
        if self.sent_bytes > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
        self.bytes.extend_from_slice(bytes);
        let crossed = !self.above && queued_bytes > high_bytes;
        self.above |= crossed;
        Ok(crossed.then_some(Crossing::High))
    }

    /// What is to be sent next.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent_bytes..]
    }

    /// So many of [`waiting`](Self::waiting) are sent; whether that emptied the queue to `low_bytes`.
    ///
    /// # Panics
    /// When more are sent than were waiting.
    pub fn sent(&mut self, bytes_count: usize, low_bytes: usize) -> Option<Crossing> {
        assert!(bytes_count <= self.len(), "more was sent than was waiting");
        self.sent_bytes += bytes_count;
        if self.sent_bytes == self.bytes.len() {
            self.bytes = Vec::new();
            self.sent_bytes = 0;
        }
        let crossed = self.above && self.len() <= low_bytes;
        self.above &= !crossed;
        crossed.then_some(Crossing::Low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_told_once_and_the_limit_refuses_whole() {
        let mut queue = Outbound::default();
        assert_eq!(queue.push(b"0123", 4, 8), Ok(None));
        assert_eq!(queue.push(b"4", 4, 8), Ok(Some(Crossing::High)));
        assert_eq!(queue.push(b"5", 4, 8), Ok(None));
        assert_eq!(
            queue.push(b"678", 4, 8),
            Err(Overflow { queued_bytes: 9, queued_bytes_max: 8 })
        );
        assert_eq!(queue.waiting(), b"012345");
        assert_eq!(queue.sent(3, 2), None);
        assert_eq!(queue.sent(1, 2), Some(Crossing::Low));
        assert_eq!(queue.sent(1, 2), None);
        assert_eq!(queue.waiting(), b"5");
        assert_eq!(queue.sent(1, 2), None);
        assert_eq!((queue.is_empty(), queue.capacity_bytes()), (true, 0));
    }

    #[test]
    fn a_queue_that_never_empties_does_not_grow_with_what_passes_through() {
        let mut queue = Outbound::default();
        queue.push(&[0; 100], 1000, 1000).unwrap();
        for turn in 0..10_000_u32 {
            queue.push(&turn.to_be_bytes(), 1000, 1000).unwrap();
            queue.sent(4, 0);
        }
        assert_eq!(queue.len(), 100);
        assert!(queue.capacity_bytes() < 1000, "{} bytes are held", queue.capacity_bytes());
    }
}
