//! One connection: both sides, and how long they may take.

use super::codec::{Codec, CodecError};
use super::inbound::{Inbound, Taken, Truncated};
use super::outbound::{Crossing, Outbound, Overflow};
use std::ops::ControlFlow;

/// The bounds of every connection, as the engine knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The most bytes that may wait to be sent.
    pub queued_bytes_max: usize,
    /// Above so many, [`Crossing::High`] is told.
    pub high_bytes: usize,
    /// Down to so many, [`Crossing::Low`] is told.
    pub low_bytes: usize,
    /// How long a message may take from its first byte to its last; 0 is for ever.
    pub message_timeout_ns: u64,
    /// How long a peer may take none of the bytes that wait; 0 is for ever.
    pub write_timeout_ns: u64,
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimedOut {
    /// A message was begun and not ended.
    #[error("a message was begun and not ended in time")]
    Message,
    /// Bytes waited and the peer took none.
    #[error("the peer has read nothing in time")]
    Write,
}

/// The engine of one connection: 8 bytes, and nothing else while the connection is idle.
#[derive(Debug, Default)]
pub struct Link {
    busy: Option<Box<Busy>>,
}

#[derive(Debug, Default)]
struct Busy {
    inbound: Inbound,
    outbound: Outbound,
    /// When the message began that is pending, unless it is we who let it wait.
    begun_ns: Option<u64>,
    /// When bytes were taken last, or began to wait.
    progress_ns: u64,
}

impl Link {
    /// Whether nothing is pending in either direction, and no memory held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.busy.is_none()
    }

    /// How many bytes have come and are not handed over.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.inbound.len())
    }

    /// How many bytes wait to be sent.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.outbound.len())
    }

    /// How much memory it holds, its own size not counted.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| {
            size_of::<Busy>() + busy.inbound.capacity_bytes() + busy.outbound.capacity_bytes()
        })
    }

    /// Whether more waits to be sent than is good, by the water marks.
    #[must_use]
    pub fn is_above(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.outbound.is_above())
    }

    /// Bytes have come: as [`Inbound::take`]. With no bytes it goes on where `each` stopped it.
    ///
    /// # Errors
    /// As the codec's; the connection is to be closed.
    #[inline]
    pub fn receive<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        now_ns: u64,
        each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Taken, CodecError> {
        let Some(busy) = &mut self.busy else {
            let mut inbound = Inbound::default();
            let taken = inbound.take(bytes, codec, each)?;
            if !inbound.is_empty() {
                let begun_ns = (!taken.stopped).then_some(now_ns);
                self.busy = Some(Box::new(Busy { inbound, begun_ns, ..Busy::default() }));
            }
            return Ok(taken);
        };
        let taken = busy.inbound.take(bytes, codec, each)?;
        if busy.inbound.is_empty() || taken.stopped {
            busy.begun_ns = None;
        } else if taken.messages_count > 0 || busy.begun_ns.is_none() {
            busy.begun_ns = Some(now_ns);
        }
        self.release();
        Ok(taken)
    }

    /// The peer sends nothing more.
    ///
    /// # Errors
    /// [`Truncated`] when it stopped in the middle of a message.
    pub fn receive_end(&self) -> Result<(), Truncated> {
        self.busy.as_ref().map_or(Ok(()), |busy| busy.inbound.end())
    }

    /// Queues bytes that the kernel has not taken.
    ///
    /// # Errors
    /// [`Overflow`] when too many would wait; nothing is queued, and the connection is to be closed.
    pub fn queue(
        &mut self,
        bytes: &[u8],
        rules: &Rules,
        now_ns: u64,
    ) -> Result<Option<Crossing>, Overflow> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let busy = self.busy.get_or_insert_default();
        if busy.outbound.is_empty() {
            busy.progress_ns = now_ns;
        }
        let pushed = busy.outbound.push(bytes, rules.high_bytes, rules.queued_bytes_max);
        self.release();
        pushed
    }

    /// What is to be sent next.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        self.busy.as_ref().map_or(&[], |busy| busy.outbound.waiting())
    }

    /// So many of [`waiting`](Self::waiting) were taken.
    ///
    /// # Panics
    /// When more were taken than waited.
    pub fn sent(&mut self, bytes_count: usize, rules: &Rules, now_ns: u64) -> Option<Crossing> {
        let Some(busy) = &mut self.busy else {
            assert_eq!(bytes_count, 0, "more was sent than was waiting");
            return None;
        };
        if bytes_count > 0 {
            busy.progress_ns = now_ns;
        }
        let crossed = busy.outbound.sent(bytes_count, rules.low_bytes);
        self.release();
        crossed
    }

    /// Until when something must have happened, if anything must.
    #[must_use]
    pub fn deadline_ns(&self, rules: &Rules) -> Option<u64> {
        let busy = self.busy.as_ref()?;
        let message = busy.begun_ns.and_then(|begun| after(begun, rules.message_timeout_ns));
        let write = match busy.outbound.is_empty() {
            true => None,
            false => after(busy.progress_ns, rules.write_timeout_ns),
        };
        match (message, write) {
            (Some(message), Some(write)) => Some(message.min(write)),
            (message, write) => message.or(write),
        }
    }

    /// What has taken too long by now, if anything has; the connection is to be closed.
    #[must_use]
    pub fn timed_out(&self, rules: &Rules, now_ns: u64) -> Option<TimedOut> {
        let busy = self.busy.as_ref()?;
        let is_over = |since, timeout| after(since, timeout).is_some_and(|until| until <= now_ns);
        if !busy.outbound.is_empty() && is_over(busy.progress_ns, rules.write_timeout_ns) {
            return Some(TimedOut::Write);
        }
        let begun_ns = busy.begun_ns?;
        is_over(begun_ns, rules.message_timeout_ns).then_some(TimedOut::Message)
    }

    fn release(&mut self) {
        if self.busy.as_ref().is_some_and(|it| it.inbound.is_empty() && it.outbound.is_empty()) {
            self.busy = None;
        }
    }
}

fn after(since_ns: u64, timeout_ns: u64) -> Option<u64> {
    (timeout_ns > 0).then(|| since_ns.saturating_add(timeout_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::LengthPrefixed;

    const RULES: Rules = Rules {
        queued_bytes_max: 100,
        high_bytes: 50,
        low_bytes: 10,
        message_timeout_ns: 1_000,
        write_timeout_ns: 500,
    };
    const CODEC: LengthPrefixed = LengthPrefixed::new(8);

    fn go(_: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn one_byte_at_a_time_does_not_put_the_deadline_off() {
        let mut link = Link::default();
        for (now_ns, byte) in [(100, 0), (400, 0), (900, 0), (1_099, 2)] {
            link.receive(&[byte], &CODEC, now_ns, go).unwrap();
            assert_eq!(link.deadline_ns(&RULES), Some(1_100));
            assert_eq!(link.timed_out(&RULES, now_ns), None);
        }
        assert_eq!(link.timed_out(&RULES, 1_100), Some(TimedOut::Message));
    }

    #[test]
    fn a_message_that_we_let_wait_is_not_the_peers_delay() {
        let mut link = Link::default();
        let stop = |_: &[u8]| ControlFlow::Break(());
        let taken = link.receive(b"\0\0\0\x01a\0\0\0\x01b\0", &CODEC, 0, stop).unwrap();
        assert_eq!(taken, Taken { messages_count: 1, stopped: true });
        assert_eq!(link.deadline_ns(&RULES), None);
        let taken = link.receive(&[], &CODEC, 5_000, go).unwrap();
        assert_eq!(taken, Taken { messages_count: 1, stopped: false });
        assert_eq!((link.pending_bytes(), link.deadline_ns(&RULES)), (1, Some(6_000)));
    }

    #[test]
    fn a_reader_that_takes_nothing_is_found_out_and_one_that_takes_little_is_not() {
        let mut link = Link::default();
        link.queue(&[0; 20], &RULES, 0).unwrap();
        link.sent(1, &RULES, 400);
        assert_eq!(link.timed_out(&RULES, 899), None);
        link.queue(&[0; 20], &RULES, 890).unwrap();
        assert_eq!(link.timed_out(&RULES, 900), Some(TimedOut::Write));
    }

    #[test]
    fn an_idle_link_is_a_pointer_and_holds_nothing() {
        assert_eq!(size_of::<Link>(), 8);
        let mut link = Link::default();
        link.receive(b"\0\0", &CODEC, 0, go).unwrap();
        link.queue(b"reply", &RULES, 0).unwrap();
        assert!(!link.is_idle());
        link.receive(b"\0\0", &CODEC, 0, go).unwrap();
        link.sent(5, &RULES, 0);
        assert_eq!((link.is_idle(), link.held_bytes()), (true, 0));
    }
}
