//! Protocol state of one connection: reading side, writing side, TLS and time limits.

use super::codec::{Codec, CodecError};
use super::inbound::{Inbound, Taken, Truncated};
use super::outbound::{Crossing, Outbound, Overflow};
use super::tls::{Opened, Tls};
use crate::tls::TlsError;
use std::ops::{ControlFlow, Range};

/// Limits of every connection that the engine enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Maximum number of queued bytes.
    pub queued_bytes_max: usize,
    /// High-water mark: above it, [`Crossing::High`] is reported.
    pub high_bytes: usize,
    /// Low-water mark: down to it, [`Crossing::Low`] is reported.
    pub low_bytes: usize,
    /// Maximum time from a message's first byte to its last, in ns; 0 is no limit.
    pub message_timeout_ns: u64,
    /// Maximum time in which a peer takes none of the queued bytes, in ns; 0 is no limit.
    pub write_timeout_ns: u64,
    /// Maximum duration of the TLS handshake, in ns; 0 is no limit.
    pub handshake_timeout_ns: u64,
}

/// Time limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimedOut {
    /// A message was begun and not completed.
    #[error("a message was begun and not ended in time")]
    Message,
    /// Bytes were queued and the peer took none.
    #[error("the peer has read nothing in time")]
    Write,
    /// The TLS handshake was not completed.
    #[error("the handshake was not done in time")]
    Handshake,
}

/// Reason for which a handler's bytes could not be queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unqueued {
    /// Too many bytes would be queued.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The bytes could not be encrypted.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Engine of one connection: 8 bytes, without further memory while the connection is unsecured and
/// idle.
#[derive(Debug, Default)]
pub struct Link {
    busy: Option<Box<Busy>>,
}

#[derive(Debug, Default)]
struct Busy {
    reading: Reading,
    outbound: Outbound,
    /// Time at which bytes were last taken, or the queue became non-empty.
    progress_ns: u64,
    /// Time at which an incomplete TLS record began; `None` during the handshake.
    record_ns: Option<u64>,
    /// Number of sent bytes that the peer had not taken at the latest [`Link::is_taking`].
    untaken_bytes: usize,
    tls: Option<Box<Tls>>,
}

/// Reading side of a [`Link`], taken out while messages are handed over.
#[derive(Debug, Default)]
pub struct Reading {
    inbound: Inbound,
    /// Time at which the incomplete message began; `None` while we do not ask for it.
    begun_ns: Option<u64>,
}

impl Reading {
    /// Takes received bytes like [`Inbound::take_framed`]. With empty `bytes` it continues where
    /// `each` stopped it.
    ///
    /// # Errors
    /// [`CodecError`] of the codec; the connection has to be closed.
    #[inline]
    pub fn receive<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        now_ns: u64,
        each: impl FnMut(&[u8], Range<usize>) -> ControlFlow<()>,
    ) -> Result<Taken, CodecError> {
        let had_some = !self.inbound.is_empty();
        let taken = self.inbound.take_framed(bytes, codec, each)?;
        if self.inbound.is_empty() || taken.stopped {
            self.begun_ns = None;
        } else if !had_some || taken.messages_count > 0 || self.begun_ns.is_none() {
            self.begun_ns = Some(now_ns);
        }
        Ok(taken)
    }
}

impl Link {
    /// Creates the engine of a connection that uses TLS.
    #[must_use]
    pub fn secured(tls: Tls) -> Self {
        Self { busy: Some(Box::new(Busy { tls: Some(Box::new(tls)), ..Busy::default() })) }
    }

    /// Returns the connection's TLS, if it has any.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.busy.as_ref()?.tls.as_deref()
    }

    pub(crate) fn tls_mut(&mut self) -> Option<&mut Tls> {
        self.busy.as_mut()?.tls.as_deref_mut()
    }

    /// Returns `true` if the connection uses TLS.
    #[must_use]
    #[inline]
    pub fn is_secured(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.tls.is_some())
    }

    /// Opens received records like [`Tls::open`]. The message timeout applies to an incomplete
    /// record as well.
    ///
    /// # Errors
    /// [`TlsError`]; the connection has to be closed.
    ///
    /// # Panics
    /// If the connection is not secured.
    pub fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Result<Opened, TlsError> {
        let busy = self.busy.as_mut().expect("a link that is secured");
        let tls = busy.tls.as_mut().expect("a link that is secured");
        let before_bytes = plain.len();
        let opened = tls.open(sealed, plain, out)?;
        // A handshake has one time limit as a whole.
        if !tls.is_within_record() || tls.handshake_begun_ns().is_some() {
            busy.record_ns = None;
        } else if busy.record_ns.is_none() || plain.len() > before_bytes {
            busy.record_ns = Some(now_ns);
        }
        Ok(opened)
    }

    /// Restarts the message timeout of incomplete input after a time in which we did not read.
    pub fn read_again(&mut self, now_ns: u64) {
        if let Some(busy) = &mut self.busy {
            let begun = [&mut busy.reading.begun_ns, &mut busy.record_ns];
            begun.into_iter().flatten().for_each(|begun_ns| *begun_ns = now_ns);
        }
    }

    /// Seals the replies of a turn like [`Tls::seal`] and appends the records to `out`.
    ///
    /// # Errors
    /// [`TlsError`]; the connection has to be closed.
    ///
    /// # Panics
    /// If the connection is not secured.
    pub fn seal(
        &mut self,
        plain: &[u8],
        ends: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.tls_mut().expect("a link that is secured").seal(plain, ends, out)
    }

    /// Records the number of sent bytes that the peer has not taken, on a connection that has ended
    /// its side. Returns `true` if waiting for the rest makes sense: there is a rest, and it has
    /// shrunk since the previous call or this is the first.
    pub fn is_taking(&mut self, untaken_bytes: usize) -> bool {
        if untaken_bytes == 0 {
            return false;
        }
        let before = self.busy.as_ref().map_or(0, |busy| busy.untaken_bytes);
        self.busy.get_or_insert_default().untaken_bytes = untaken_bytes;
        before == 0 || untaken_bytes < before
    }

    /// Appends TLS's `close_notify` to `out`, once, if the connection is secured.
    pub fn part(&mut self, out: &mut Vec<u8>) {
        if let Some(tls) = self.tls_mut() {
            tls.part(out);
        }
    }

    /// Takes the reading side out, so that a message's handler can access the rest.
    #[inline]
    #[must_use]
    pub fn begin_reading(&mut self) -> Reading {
        self.busy.as_mut().map_or_else(Reading::default, |busy| std::mem::take(&mut busy.reading))
    }

    /// Keeps bytes whose messages are not wanted yet; [`receive`](Self::receive) continues with
    /// them.
    pub fn keep(&mut self, bytes: &[u8]) {
        let mut reading = self.begin_reading();
        reading.inbound.keep(bytes);
        reading.begun_ns = None;
        self.end_reading(reading);
    }

    /// Puts the reading side back.
    #[inline]
    pub fn end_reading(&mut self, reading: Reading) {
        if let Some(busy) = &mut self.busy {
            busy.reading = reading;
            self.release();
        } else if !reading.inbound.is_empty() {
            self.busy = Some(Box::new(Busy { reading, ..Busy::default() }));
        }
    }

    /// Returns `true` if nothing is pending in either direction and no memory is held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.busy.is_none()
    }

    /// Returns the number of received bytes that are not handed over.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.reading.inbound.len())
    }

    /// Returns the number of queued bytes, including those that wait for the handshake.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| {
            busy.outbound.len() + busy.tls.as_ref().map_or(0, |tls| tls.early_bytes())
        })
    }

    /// Returns the memory it holds in bytes, without its own size.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| {
            let tls = busy.tls.as_ref().map_or(0, |tls| size_of::<Tls>() + tls.held_bytes());
            let inbound = busy.reading.inbound.capacity_bytes();
            size_of::<Busy>() + inbound + busy.outbound.capacity_bytes() + tls
        })
    }

    /// Returns `true` from a crossing of the high-water mark until the queue is down to the low
    /// one.
    #[must_use]
    pub fn is_above(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.outbound.is_above())
    }

    /// Takes received bytes like [`Inbound::take`]. With empty `bytes` it continues where `each`
    /// stopped it.
    ///
    /// # Errors
    /// [`CodecError`] of the codec; the connection has to be closed.
    #[inline]
    pub fn receive<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        now_ns: u64,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Taken, CodecError> {
        let mut reading = self.begin_reading();
        let taken = reading.receive(bytes, codec, now_ns, |message, _frame| each(message));
        self.end_reading(reading);
        taken
    }

    /// Handles the end of the peer's side.
    ///
    /// # Errors
    /// [`Truncated`] if it ended in the middle of a message.
    pub fn receive_end(&self) -> Result<(), Truncated> {
        self.busy.as_ref().map_or(Ok(()), |busy| busy.reading.inbound.end())
    }

    /// Queues bytes that the kernel has not taken.
    ///
    /// # Errors
    /// [`Overflow`] if too many would be queued; nothing is queued, and the connection has to be
    /// closed.
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

    /// Queues bytes written outside of the connection's turn, sealed if it is secured. Before the
    /// end of the handshake they are kept apart, unsealed.
    ///
    /// # Errors
    /// [`Unqueued`]; the connection has to be closed.
    pub fn write(
        &mut self,
        bytes: &[u8],
        rules: &Rules,
        now_ns: u64,
    ) -> Result<Option<Crossing>, Unqueued> {
        let queued_bytes_max = rules.queued_bytes_max;
        let Some(tls) = self.tls_mut() else { return Ok(self.queue(bytes, rules, now_ns)?) };
        tls.may_keep(bytes.len(), queued_bytes_max)?;
        let mut sealed = Vec::new();
        tls.seal(bytes, &[], &mut sealed)?;
        Ok(self.queue(&sealed, rules, now_ns)?)
    }

    /// Returns the bytes to be sent next.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        self.busy.as_ref().map_or(&[], |busy| busy.outbound.waiting())
    }

    /// Removes `bytes_count` sent bytes of [`waiting`](Self::waiting); returns [`Crossing::Low`] if
    /// that brought the queue down to the low-water mark.
    ///
    /// # Panics
    /// If more bytes were sent than were queued.
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

    /// Returns the earliest time at which a limit will be exceeded, if one is running.
    #[must_use]
    pub fn deadline_ns(&self, rules: &Rules) -> Option<u64> {
        let busy = self.busy.as_ref()?;
        let message = busy.message_ns();
        let handshake = busy.tls.as_ref().and_then(|tls| tls.handshake_begun_ns());
        let write = (!busy.outbound.is_empty()).then_some(busy.progress_ns);
        [
            (message, rules.message_timeout_ns),
            (handshake, rules.handshake_timeout_ns),
            (write, rules.write_timeout_ns),
        ]
        .into_iter()
        .filter_map(|(since_ns, timeout_ns)| after(since_ns?, timeout_ns))
        .min()
    }

    /// Returns the limit that is exceeded at `now_ns`, if any; the connection has to be closed.
    #[must_use]
    pub fn timed_out(&self, rules: &Rules, now_ns: u64) -> Option<TimedOut> {
        let busy = self.busy.as_ref()?;
        let is_over = |since, timeout| after(since, timeout).is_some_and(|until| until <= now_ns);
        if !busy.outbound.is_empty() && is_over(busy.progress_ns, rules.write_timeout_ns) {
            return Some(TimedOut::Write);
        }
        let handshake = busy.tls.as_ref().and_then(|tls| tls.handshake_begun_ns());
        if handshake.is_some_and(|begun_ns| is_over(begun_ns, rules.handshake_timeout_ns)) {
            return Some(TimedOut::Handshake);
        }
        let begun_ns = busy.message_ns()?;
        is_over(begun_ns, rules.message_timeout_ns).then_some(TimedOut::Message)
    }

    fn release(&mut self) {
        if self.busy.as_ref().is_some_and(|it| {
            it.reading.inbound.is_empty() && it.outbound.is_empty() && it.tls.is_none()
        }) {
            self.busy = None;
        }
    }
}

impl Busy {
    /// Returns the time at which the incomplete message or record began.
    fn message_ns(&self) -> Option<u64> {
        [self.reading.begun_ns, self.record_ns].into_iter().flatten().min()
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
        handshake_timeout_ns: 2_000,
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
    fn a_peer_is_waited_for_as_long_as_it_takes_what_was_sent() {
        let mut link = Link::default();
        let waits = [900, 500, 499, 499, 0].map(|untaken_bytes| link.is_taking(untaken_bytes));
        assert_eq!(waits, [true, true, true, false, false]);
        assert!(!Link::default().is_taking(0));
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
