//! Queue of bytes that the kernel has not accepted yet.

/// Error of queueing more bytes than the send queue may hold. The peer does not read fast enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "send queue of {queued_bytes} bytes would exceed queued_bytes_max={queued_bytes_max}: the peer reads too slowly"
)]
pub struct SendQueueOverflow {
    /// Number of bytes that would have been queued.
    pub queued_bytes: usize,
    /// Maximum number of bytes queued for sending.
    pub queued_bytes_max: usize,
}

/// Crossing of the high- or low-water mark by a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaterMarkCrossing {
    /// The queue has risen above the high-water mark, so the program should pause sending.
    High,
    /// The queue has drained to the low-water mark, so the program may continue sending.
    Low,
}

/// Send queue of a connection, which owns memory only while bytes are queued.
#[derive(Debug, Default)]
pub struct OutboundQueue {
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that were sent already.
    sent_bytes: usize,
    is_above_high_water: bool,
}

impl OutboundQueue {
    /// Returns `true` if no bytes are queued and no memory is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of queued bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent_bytes
    }

    /// Returns the capacity of the buffer, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns `true` if the queue has exceeded the high-water mark, and not drained to the
    /// low-water mark since.
    #[must_use]
    pub fn is_above_high_water(&self) -> bool {
        self.is_above_high_water
    }

    /// Queues bytes; returns [`WaterMarkCrossing::High`] if the queue thereby rises above
    /// `high_bytes`.
    ///
    /// # Errors
    /// [`SendQueueOverflow`] if more than `bytes_max` would be queued; nothing is queued then.
    pub fn push(
        &mut self,
        bytes: &[u8],
        high_bytes: usize,
        bytes_max: usize,
    ) -> Result<Option<WaterMarkCrossing>, SendQueueOverflow> {
        let queued_bytes = self.len() + bytes.len();
        if queued_bytes > bytes_max {
            return Err(SendQueueOverflow { queued_bytes, queued_bytes_max: bytes_max });
        }
        // Sent bytes are removed before memory grows: fewer bytes are moved than were sent.
        if self.sent_bytes > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
        self.bytes.extend_from_slice(bytes);
        let crossed = !self.is_above_high_water && queued_bytes > high_bytes;
        self.is_above_high_water |= crossed;
        Ok(crossed.then_some(WaterMarkCrossing::High))
    }

    /// Returns the queued bytes that the kernel has not accepted.
    #[must_use]
    pub fn unsent_bytes(&self) -> &[u8] {
        &self.bytes[self.sent_bytes..]
    }

    /// Removes the first `bytes_count` bytes of [`unsent_bytes`](Self::unsent_bytes), which were
    /// sent. Returns [`WaterMarkCrossing::Low`] if the queue had exceeded the high-water mark, and
    /// now has at most `low_bytes`.
    ///
    /// # Panics
    /// If more bytes were sent than were queued.
    pub fn mark_sent(&mut self, bytes_count: usize, low_bytes: usize) -> Option<WaterMarkCrossing> {
        assert!(
            bytes_count <= self.len(),
            "{bytes_count} bytes marked as sent, but {} are queued",
            self.len()
        );
        self.sent_bytes += bytes_count;
        if self.sent_bytes == self.bytes.len() {
            self.bytes = Vec::new();
            self.sent_bytes = 0;
        }
        let crossed = self.is_above_high_water && self.len() <= low_bytes;
        self.is_above_high_water &= !crossed;
        crossed.then_some(WaterMarkCrossing::Low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_water_mark_is_reported_once_and_overflow_queues_nothing() {
        let mut queue = OutboundQueue::default();
        assert_eq!(queue.push(b"0123", 4, 8), Ok(None));
        assert_eq!(queue.push(b"4", 4, 8), Ok(Some(WaterMarkCrossing::High)));
        assert_eq!(queue.push(b"5", 4, 8), Ok(None));
        assert_eq!(
            queue.push(b"678", 4, 8),
            Err(SendQueueOverflow { queued_bytes: 9, queued_bytes_max: 8 })
        );
        assert_eq!(queue.unsent_bytes(), b"012345");
        assert_eq!(queue.mark_sent(3, 2), None);
        assert_eq!(queue.mark_sent(1, 2), Some(WaterMarkCrossing::Low));
        assert_eq!(queue.mark_sent(1, 2), None);
        assert_eq!(queue.unsent_bytes(), b"5");
        assert_eq!(queue.mark_sent(1, 2), None);
        assert_eq!((queue.is_empty(), queue.capacity_bytes()), (true, 0));
    }

    #[test]
    fn never_empty_queue_does_not_grow_with_throughput() {
        let mut queue = OutboundQueue::default();
        queue.push(&[0; 100], 1000, 1000).unwrap();
        for turn in 0..10_000_u32 {
            queue.push(&turn.to_be_bytes(), 1000, 1000).unwrap();
            queue.mark_sent(4, 0);
        }
        assert_eq!(queue.len(), 100);
        assert!(queue.capacity_bytes() < 1000, "{} bytes are allocated", queue.capacity_bytes());
    }
}
