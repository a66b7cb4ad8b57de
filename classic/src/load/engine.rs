//! State machine of one connection: the messages it may send, and the one it must receive next.

use crate::load::wire::{Lengths, MessageError, MessageText};

/// Limit on the number of messages that a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageQuota {
    /// Messages are sent in bursts. A burst starts when all echoes of the previous one have
    /// arrived.
    Bursts {
        /// Number of messages in a burst.
        count: u64,
        /// Number of bursts.
        iterations: u64,
    },
    /// Messages are sent without limit, until [`Client::finish`].
    Endless,
}

/// Client of one connection: counts its messages, and checks their echoes.
///
/// ```
/// use handover_classic::load::{Client, MessageQuota, wire::{Lengths, MessageText}};
/// let letters = MessageText::new(10);
/// let lengths = Lengths::new(1, 3, 10);
/// let mut client = Client::new(9, lengths, MessageQuota::Bursts { count: 3, iterations: 2 }, 2);
/// assert_eq!(client.sendable_count(), 2); // its depth
/// let mut echoed = Vec::new();
/// client.send(&letters, 0, 2, usize::MAX, &mut echoed);
/// let (used_bytes, sent_ns) = client.receive(&letters, &echoed)?.expect("a whole message");
/// assert_eq!((sent_ns, client.received_count(), client.sendable_count()), (0, 1, 1));
/// client.receive(&letters, &echoed[used_bytes..])?;
/// // Two of the burst's three are received: its third may be sent, and nothing of the next burst.
/// assert_eq!(client.sendable_count(), 1);
/// # Ok::<(), handover_classic::load::wire::MessageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    /// Id of the connection, which each message contains.
    id: u128,
    /// Generator of the lengths of the messages to send.
    sent_lengths: Lengths,
    /// Generator of the lengths of the echoes that follow the next one.
    echo_lengths: Lengths,
    /// Length of the next expected echo, in letters.
    next_length: u32,
    sent_count: u64,
    received_count: u64,
    /// Number of messages in one burst; `u64::MAX` for [`MessageQuota::Endless`].
    burst_count: u64,

    /// Number of messages in all bursts; `u64::MAX` for [`MessageQuota::Endless`].
    total_count: u64,
    /// Number of messages up to the end of the current burst. The next burst starts when all of
    /// these have been echoed.
    burst_end_count: u64,
    /// Maximum number of outstanding messages.
    depth: u64,
}

impl Client {
    /// Creates a client with at most `depth` outstanding messages at a time.
    #[must_use]
    pub fn new(id: u128, lengths: Lengths, order: MessageQuota, depth: u64) -> Self {
        let (burst_count, total_count) = match order {
            MessageQuota::Bursts { count, iterations } => {
                (count.max(1), count.saturating_mul(iterations))
            }
            MessageQuota::Endless => (u64::MAX, u64::MAX),
        };
        let mut back = lengths.clone();
        let next_length = back.next_length();
        Self {
            id,
            sent_lengths: lengths,
            echo_lengths: back,
            next_length,
            sent_count: 0,
            received_count: 0,
            burst_count,
            total_count,
            burst_end_count: burst_count.min(total_count),
            depth: depth.max(1),
        }
    }

    /// Returns the number of messages sent.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.sent_count
    }

    /// Returns the number of echoes received.
    #[must_use]
    pub fn received_count(&self) -> u64 {
        self.received_count
    }

    /// Returns the number of messages that may be sent now. Burst and depth limit it.
    #[must_use]
    #[inline]
    pub fn sendable_count(&self) -> u64 {
        let goal = self.burst_end_count.min(self.received_count.saturating_add(self.depth));
        goal.saturating_sub(self.sent_count)
    }

    /// Returns `true` if all messages have been sent and echoed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.received_count >= self.total_count
    }

    /// Forbids further messages. From now on, only the echoes of outstanding messages are expected.
    pub fn finish(&mut self) {
        self.total_count = self.total_count.min(self.sent_count);
        self.burst_end_count = self.sent_count;
    }

    /// Appends up to `count` messages to `out`, but starts none once `out` has `bytes_max` bytes.
    /// Returns the number of appended messages.
    pub fn send(
        &mut self,
        letters: &MessageText,
        now_ns: u64,
        count: u64,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut done = 0;
        while done < count && out.len() < bytes_max {
            letters.append(out, self.id, now_ns, self.sent_lengths.next_length());
            done += 1;
        }
        self.sent_count += done;
        done
    }

    /// Checks the echo at the beginning of `bytes`. Returns its size in bytes and the time at which
    /// its message was sent, or `None` if it is incomplete.
    ///
    /// # Errors
    /// Fails with [`MessageError`] if the bytes differ from those sent.
    #[inline]
    pub fn receive(
        &mut self,
        letters: &MessageText,
        bytes: &[u8],
    ) -> Result<Option<(usize, u64)>, MessageError> {
        let length = self.next_length;
        let Some(sent_ns) = letters.check(bytes, self.id, length)? else { return Ok(None) };
        self.next_length = self.echo_lengths.next_length();
        self.received_count += 1;
        if self.received_count == self.burst_end_count && self.received_count < self.total_count {
            let goal = self.burst_end_count.saturating_add(self.burst_count);
            self.burst_end_count = goal.min(self.total_count);
        }
        Ok(Some((crate::load::wire::HEADER_BYTES + length as usize, sent_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_waits_for_the_previous_burst() {
        let letters = MessageText::new(10);
        let order = MessageQuota::Bursts { count: 3, iterations: 2 };
        let mut client = Client::new(1, Lengths::new(1, 3, 10), order, 100);
        let mut under_way = Vec::new();
        for burst in 1..=2 {
            assert_eq!(client.sendable_count(), 3);
            let sent =
                client.send(&letters, 5, client.sendable_count(), usize::MAX, &mut under_way);
            assert_eq!((sent, client.sendable_count(), client.is_done()), (3, 0, false));
            while client.received_count() < burst * 3 {
                assert_eq!(client.sendable_count(), 0);
                let (used, sent_ns) = client.receive(&letters, &under_way).unwrap().unwrap();
                assert_eq!(sent_ns, 5);
                under_way.drain(..used);
            }
        }
        assert!(client.is_done() && under_way.is_empty());
        assert_eq!(client.sendable_count(), 0);
    }

    #[test]
    fn finished_client_waits_only_for_outstanding_messages() {
        let letters = MessageText::new(3);
        let mut client = Client::new(1, Lengths::new(1, 3, 3), MessageQuota::Endless, 4);
        let mut under_way = Vec::new();
        assert_eq!(
            client.send(&letters, 0, client.sendable_count(), usize::MAX, &mut under_way),
            4
        );
        client.finish();
        assert_eq!(client.sendable_count(), 0);
        while let Some((used, _)) = client.receive(&letters, &under_way).unwrap() {
            under_way.drain(..used);
        }
        assert!(client.is_done());
    }
}
