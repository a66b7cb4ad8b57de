//! One connection's part: what it may send now, and what must come back next.

use crate::wire::{Lengths, Letters, Wrong};

/// How much a connection is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// So many messages, so many times; each time begins when all of the one before have come back.
    Bursts {
        /// Messages in a burst.
        count: u64,
        /// Bursts.
        iterations: u64,
    },
    /// One after another until it is told to finish.
    Endless,
}

/// What a connection has sent and got back.
///
/// ```
/// use handover_load::{Client, Order, wire::{Lengths, Letters}};
/// let letters = Letters::new(10);
/// let lengths = Lengths::new(1, 3, 10);
/// let mut client = Client::new(9, lengths, Order::Bursts { count: 3, iterations: 2 }, 2);
/// assert_eq!(client.may_send(), 2); // its depth
/// let mut echoed = Vec::new();
/// client.send(&letters, 0, 2, usize::MAX, &mut echoed);
/// let (used_bytes, sent_ns) = client.receive(&letters, &echoed)?.expect("a whole message");
/// assert_eq!((sent_ns, client.received_count(), client.may_send()), (0, 1, 1));
/// client.receive(&letters, &echoed[used_bytes..])?;
/// // Two of the burst's three are back: its third may be sent, and nothing of the next burst.
/// assert_eq!(client.may_send(), 1);
/// # Ok::<(), handover_load::wire::Wrong>(())
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    id: u128,
    out: Lengths,
    back: Lengths,
    /// The length of the message that must come back next.
    next_length: u32,
    sent_count: u64,
    received_count: u64,
    /// Both in a burst alone.
    burst_count: u64,
    total_count: u64,
    /// It sends nothing beyond until more has come back.
    goal_count: u64,
    depth: u64,
}

impl Client {
    /// Nothing is sent yet; `depth` messages at most are under way at a time.
    #[must_use]
    pub fn new(id: u128, lengths: Lengths, order: Order, depth: u64) -> Self {
        let (burst_count, total_count) = match order {
            Order::Bursts { count, iterations } => (count.max(1), count.saturating_mul(iterations)),
            Order::Endless => (u64::MAX, u64::MAX),
        };
        let mut back = lengths.clone();
        let next_length = back.draw();
        Self {
            id,
            out: lengths,
            back,
            next_length,
            sent_count: 0,
            received_count: 0,
            burst_count,
            total_count,
            goal_count: burst_count.min(total_count),
            depth: depth.max(1),
        }
    }

    /// How many messages it has sent.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.sent_count
    }

    /// How many have come back.
    #[must_use]
    pub fn received_count(&self) -> u64 {
        self.received_count
    }

    /// How many it may send now, as far as it is concerned.
    #[must_use]
    #[inline]
    pub fn may_send(&self) -> u64 {
        let goal = self.goal_count.min(self.received_count.saturating_add(self.depth));
        goal.saturating_sub(self.sent_count)
    }

    /// Whether everything is sent and has come back.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.received_count >= self.total_count
    }

    /// Sends nothing more: what is under way is all that is to come back.
    pub fn finish(&mut self) {
        self.total_count = self.total_count.min(self.sent_count);
        self.goal_count = self.sent_count;
    }

    /// Appends `count` messages at most to `out`, while that is shorter than `bytes_max`. How many.
    pub fn send(
        &mut self,
        letters: &Letters,
        now_ns: u64,
        count: u64,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut done = 0;
        while done < count && out.len() < bytes_max {
            letters.append(out, self.id, now_ns, self.out.draw());
            done += 1;
        }
        self.sent_count += done;
        done
    }

    /// Checks what has come back; how many bytes the next message took and when it was sent, or None when
    /// it is not whole yet.
    ///
    /// # Errors
    /// [`Wrong`]: it is not what was sent.
    #[inline]
    pub fn receive(
        &mut self,
        letters: &Letters,
        bytes: &[u8],
    ) -> Result<Option<(usize, u64)>, Wrong> {
        let length = self.next_length;
        let Some(sent_ns) = letters.check(bytes, self.id, length)? else { return Ok(None) };
        self.next_length = self.back.draw();
        self.received_count += 1;
        if self.received_count == self.goal_count && self.received_count < self.total_count {
            let goal = self.goal_count.saturating_add(self.burst_count);
            self.goal_count = goal.min(self.total_count);
        }
        Ok(Some((crate::wire::HEADER_BYTES + length as usize, sent_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_waits_for_all_of_the_one_before() {
        let letters = Letters::new(10);
        let order = Order::Bursts { count: 3, iterations: 2 };
        let mut client = Client::new(1, Lengths::new(1, 3, 10), order, 100);
        let mut under_way = Vec::new();
        for burst in 1..=2 {
            assert_eq!(client.may_send(), 3);
            let sent = client.send(&letters, 5, client.may_send(), usize::MAX, &mut under_way);
            assert_eq!((sent, client.may_send(), client.is_done()), (3, 0, false));
            while client.received_count() < burst * 3 {
                assert_eq!(client.may_send(), 0);
                let (used, sent_ns) = client.receive(&letters, &under_way).unwrap().unwrap();
                assert_eq!(sent_ns, 5);
                under_way.drain(..used);
            }
        }
        assert!(client.is_done() && under_way.is_empty());
        assert_eq!(client.may_send(), 0);
    }

    #[test]
    fn one_that_is_told_to_finish_waits_for_what_is_under_way_alone() {
        let letters = Letters::new(3);
        let mut client = Client::new(1, Lengths::new(1, 3, 3), Order::Endless, 4);
        let mut under_way = Vec::new();
        assert_eq!(client.send(&letters, 0, client.may_send(), usize::MAX, &mut under_way), 4);
        client.finish();
        assert_eq!(client.may_send(), 0);
        while let Some((used, _)) = client.receive(&letters, &under_way).unwrap() {
            under_way.drain(..used);
        }
        assert!(client.is_done());
    }
}
