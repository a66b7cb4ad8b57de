//! Protocol state of one connection: receive buffer, send queue, TLS and time limits.

use super::codec::{Codec, CodecError};
use super::inbound::{DeliveryResult, InboundBuffer, TruncatedMessageError};
use super::outbound::{OutboundQueue, SendQueueOverflow, WaterMarkCrossing};
use super::tls::{OpenedRecords, TlsState};
use crate::tls::TlsError;
use std::ops::{ControlFlow, Range};

/// Limits of a connection that its [`ProtocolState`] enforces.
/// [`Config::connection_limits`](crate::Config::connection_limits) creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// Maximum number of bytes that are queued for sending.
    pub queued_bytes_max: usize,
    /// High-water mark in bytes: a send queue above it reports [`WaterMarkCrossing::High`].
    pub high_bytes: usize,
    /// Low-water mark in bytes: a send queue that has drained to it reports
    /// [`WaterMarkCrossing::Low`].
    pub low_bytes: usize,
    /// Maximum time from a message's first byte to its last, in ns; 0 is no limit.
    pub message_timeout_ns: u64,
    /// Maximum time, in ns, for which the peer may accept none of the queued bytes. 0 is no limit.
    pub write_timeout_ns: u64,
    /// Maximum duration of the TLS handshake, in ns; 0 is no limit.
    pub handshake_timeout_ns: u64,
}

handover_base::setters!(ConnectionLimits {
    queued_bytes_max: usize,
    high_bytes: usize,
    low_bytes: usize,
    message_timeout_ns: u64,
    write_timeout_ns: u64,
    handshake_timeout_ns: u64,
});

/// Error of a connection that has exceeded a time limit. There are time limits for a message, for
/// sending and for the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    /// The peer began a message and did not complete it in time.
    #[error("the peer did not complete a message within message_timeout")]
    Message,
    /// Bytes were queued, and the peer accepted none of them in time.
    #[error("the peer read nothing for write_timeout")]
    Write,
    /// The TLS handshake was not completed in time.
    #[error("the peer did not complete the TLS handshake within handshake_timeout")]
    Handshake,
}

/// Error of queueing bytes for sending: the send queue is full, or encryption failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// More bytes would be queued than the limit allows.
    #[error(transparent)]
    Overflow(#[from] SendQueueOverflow),
    /// The bytes could not be encrypted.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Protocol state of one connection, in 8 bytes. It needs no further memory while the connection is
/// idle without TLS.
#[derive(Debug, Default)]
pub struct ProtocolState {
    state: Option<Box<ActiveState>>,
}

/// State of a connection that has buffered bytes or uses TLS.
#[derive(Debug, Default)]
struct ActiveState {
    receive_buffer: ReceiveBuffer,
    outbound: OutboundQueue,
    /// Time in ns at which the kernel last accepted bytes, or the queue became non-empty.
    progress_ns: u64,
    /// Time, in ns, at which the incomplete TLS record began to arrive. It is `None` if there is
    /// none, and during the handshake.
    record_ns: Option<u64>,
    /// Number of sent bytes that the peer had not acknowledged at the latest call of
    /// [`ProtocolState::should_await_acknowledgements`].
    unacknowledged_bytes: usize,
    tls: Option<Box<TlsState>>,
}

/// Receive buffer of a [`ProtocolState`], detached from it while messages are delivered.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    inbound: InboundBuffer,
    /// Time, in ns, at which the incomplete message began to arrive. It is `None` if there is none,
    /// or while the connection is not read.
    started_ns: Option<u64>,
}

impl ReceiveBuffer {
    /// Delivers received messages like [`InboundBuffer::deliver_framed_messages`]. With empty
    /// `bytes` it continues after the message at which `each` stopped it.
    ///
    /// # Errors
    /// [`CodecError`] of the codec; the connection has to be closed.
    #[inline]
    pub fn deliver_framed_messages<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        now_ns: u64,
        each: impl FnMut(&[u8], Range<usize>) -> ControlFlow<()>,
    ) -> Result<DeliveryResult, CodecError> {
        let had_pending = !self.inbound.is_empty();
        let delivered = self.inbound.deliver_framed_messages(bytes, codec, each)?;
        if self.inbound.is_empty() || delivered.is_stopped {
            self.started_ns = None;
        } else if !had_pending || delivered.messages_count > 0 || self.started_ns.is_none() {
            self.started_ns = Some(now_ns);
        }
        Ok(delivered)
    }
}

impl ProtocolState {
    /// Creates the protocol state of a connection that uses TLS.
    #[must_use]
    pub fn with_tls(tls: TlsState) -> Self {
        Self {
            state: Some(Box::new(ActiveState {
                tls: Some(Box::new(tls)),
                ..ActiveState::default()
            })),
        }
    }

    /// Returns the TLS state of the connection; `None` if it does not use TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsState> {
        self.state.as_ref()?.tls.as_deref()
    }

    pub(crate) fn tls_mut(&mut self) -> Option<&mut TlsState> {
        self.state.as_mut()?.tls.as_deref_mut()
    }

    /// Returns `true` if the connection uses TLS.
    #[must_use]
    #[inline]
    pub fn has_tls(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.tls.is_some())
    }

    /// Decrypts received TLS records like [`TlsState::open_records`]. The message timeout applies
    /// to an incomplete record, too.
    ///
    /// # Errors
    /// [`TlsError`]; the connection has to be closed.
    ///
    /// # Panics
    /// If the connection is not secured.
    pub fn open_records(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Result<OpenedRecords, TlsError> {
        let state = self.state.as_mut().expect("the connection does not use TLS");
        let tls = state.tls.as_mut().expect("the connection does not use TLS");
        let before_bytes = plain.len();
        let opened = tls.open_records(sealed, plain, out)?;
        // A handshake has one time limit as a whole.
        if !tls.is_within_record() || tls.handshake_started_ns().is_some() {
            state.record_ns = None;
        } else if state.record_ns.is_none() || plain.len() > before_bytes {
            state.record_ns = Some(now_ns);
        }
        Ok(opened)
    }

    /// Restarts the message timeout after a pause in which the connection was not read.
    pub fn restart_message_timeout(&mut self, now_ns: u64) {
        if let Some(state) = &mut self.state {
            let starts = [&mut state.receive_buffer.started_ns, &mut state.record_ns];
            starts.into_iter().flatten().for_each(|started_ns| *started_ns = now_ns);
        }
    }

    /// Encrypts the replies to one read like [`TlsState::seal_messages`], and appends the records
    /// to `out`.
    ///
    /// # Errors
    /// [`TlsError`]; the connection has to be closed.
    ///
    /// # Panics
    /// If the connection is not secured.
    pub fn seal_messages(
        &mut self,
        plain: &[u8],
        ends: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.tls_mut().expect("the connection does not use TLS").seal_messages(plain, ends, out)
    }

    /// Stores the number of unacknowledged bytes; returns `true` while it decreases and is not 0.
    /// At the first call it need not decrease. On a connection that was shut down, the caller waits
    /// for acknowledgements while this returns `true`.
    pub fn should_await_acknowledgements(&mut self, unacknowledged_bytes: usize) -> bool {
        if unacknowledged_bytes == 0 {
            return false;
        }
        let before = self.state.as_ref().map_or(0, |state| state.unacknowledged_bytes);
        self.state.get_or_insert_default().unacknowledged_bytes = unacknowledged_bytes;
        before == 0 || unacknowledged_bytes < before
    }

    /// Appends TLS's `close_notify` to `out`, once, if the connection uses TLS.
    pub fn append_close_notify(&mut self, out: &mut Vec<u8>) {
        if let Some(tls) = self.tls_mut() {
            tls.append_close_notify(out);
        }
    }

    /// Detaches the receive buffer, so that a message's handler can access the rest of the protocol
    /// state.
    #[inline]
    #[must_use]
    pub fn detach_receive_buffer(&mut self) -> ReceiveBuffer {
        self.state
            .as_mut()
            .map_or_else(ReceiveBuffer::default, |state| std::mem::take(&mut state.receive_buffer))
    }

    /// Buffers bytes whose messages are not to be delivered yet;
    /// [`deliver_messages`](Self::deliver_messages) continues with them.
    pub fn append_undelivered(&mut self, bytes: &[u8]) {
        let mut reading = self.detach_receive_buffer();
        reading.inbound.append_undelivered(bytes);
        reading.started_ns = None;
        self.attach_receive_buffer(reading);
    }

    /// Puts back the receive buffer that [`detach_receive_buffer`](Self::detach_receive_buffer)
    /// returned.
    #[inline]
    pub fn attach_receive_buffer(&mut self, receive_buffer: ReceiveBuffer) {
        if let Some(state) = &mut self.state {
            state.receive_buffer = receive_buffer;
            self.free_if_idle();
        } else if !receive_buffer.inbound.is_empty() {
            self.state = Some(Box::new(ActiveState { receive_buffer, ..ActiveState::default() }));
        }
    }

    /// Returns `true` if nothing is buffered in either direction and no memory is allocated.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state.is_none()
    }

    /// Returns the number of received bytes whose messages were not delivered yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.receive_buffer.inbound.len())
    }

    /// Returns the number of bytes queued for sending, including plaintext that waits for the TLS
    /// handshake.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| {
            state.outbound.len() + state.tls.as_ref().map_or(0, |tls| tls.early_plaintext_bytes())
        })
    }

    /// Returns the size of the heap memory of the protocol state, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| {
            let tls = state.tls.as_ref().map_or(0, |tls| size_of::<TlsState>() + tls.heap_bytes());
            let inbound = state.receive_buffer.inbound.capacity_bytes();
            size_of::<ActiveState>() + inbound + state.outbound.capacity_bytes() + tls
        })
    }

    /// Returns `true` if the send queue has exceeded the high-water mark, and not drained to the
    /// low-water mark since.
    #[must_use]
    pub fn is_above_high_water(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.outbound.is_above_high_water())
    }

    /// Delivers received messages like [`InboundBuffer::deliver_messages`]. With empty `bytes` it
    /// continues after the message at which `each` stopped it.
    ///
    /// # Errors
    /// [`CodecError`] of the codec; the connection has to be closed.
    #[inline]
    pub fn deliver_messages<C: Codec>(
        &mut self,
        bytes: &[u8],
        codec: &C,
        now_ns: u64,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<DeliveryResult, CodecError> {
        let mut reading = self.detach_receive_buffer();
        let delivered =
            reading.deliver_framed_messages(bytes, codec, now_ns, |message, _frame| each(message));
        self.attach_receive_buffer(reading);
        delivered
    }

    /// Checks at the end of the peer's stream that no incomplete message is buffered.
    ///
    /// # Errors
    /// [`TruncatedMessageError`] if the stream ended in the middle of a message.
    pub fn check_end_of_stream(&self) -> Result<(), TruncatedMessageError> {
        self.state
            .as_ref()
            .map_or(Ok(()), |state| state.receive_buffer.inbound.check_end_of_stream())
    }

    /// Queues bytes that the kernel has not accepted; returns the crossing of the high-water mark,
    /// if any.
    ///
    /// # Errors
    /// [`SendQueueOverflow`] if too many would be queued; nothing is queued, and the connection has
    /// to be closed.
    pub fn queue_bytes(
        &mut self,
        bytes: &[u8],
        limits: &ConnectionLimits,
        now_ns: u64,
    ) -> Result<Option<WaterMarkCrossing>, SendQueueOverflow> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let state = self.state.get_or_insert_default();
        if state.outbound.is_empty() {
            state.progress_ns = now_ns;
        }
        let pushed = state.outbound.push(bytes, limits.high_bytes, limits.queued_bytes_max);
        self.free_if_idle();
        pushed
    }

    /// Queues bytes for sending, after encrypting them if the connection uses TLS. It serves writes
    /// outside the service of the connection. Before the end of the handshake the plaintext is
    /// buffered.
    ///
    /// # Errors
    /// [`QueueError`]; the connection has to be closed.
    pub fn seal_and_queue(
        &mut self,
        bytes: &[u8],
        limits: &ConnectionLimits,
        now_ns: u64,
    ) -> Result<Option<WaterMarkCrossing>, QueueError> {
        let queued_bytes_max = limits.queued_bytes_max;
        let Some(tls) = self.tls_mut() else { return Ok(self.queue_bytes(bytes, limits, now_ns)?) };
        tls.check_early_limit(bytes.len(), queued_bytes_max)?;
        let mut sealed = Vec::new();
        tls.seal_messages(bytes, &[], &mut sealed)?;
        Ok(self.queue_bytes(&sealed, limits, now_ns)?)
    }

    /// Returns the queued bytes that the kernel has not accepted.
    #[must_use]
    pub fn unsent_bytes(&self) -> &[u8] {
        self.state.as_ref().map_or(&[], |state| state.outbound.unsent_bytes())
    }

    /// Removes the first `bytes_count` bytes of [`unsent_bytes`](Self::unsent_bytes), which were
    /// sent. Returns [`WaterMarkCrossing::Low`] if the queue had exceeded the high-water mark, and
    /// has now drained to the low-water mark.
    ///
    /// # Panics
    /// If more bytes were sent than were queued.
    pub fn mark_sent(
        &mut self,
        bytes_count: usize,
        limits: &ConnectionLimits,
        now_ns: u64,
    ) -> Option<WaterMarkCrossing> {
        let Some(state) = &mut self.state else {
            assert_eq!(bytes_count, 0, "{bytes_count} bytes marked as sent, but none are queued");
            return None;
        };
        if bytes_count > 0 {
            state.progress_ns = now_ns;
        }
        let crossed = state.outbound.mark_sent(bytes_count, limits.low_bytes);
        self.free_if_idle();
        crossed
    }

    /// Returns the earliest time, in ns, at which a time limit will be exceeded. Returns `None` if
    /// none applies.
    #[must_use]
    pub fn deadline_ns(&self, limits: &ConnectionLimits) -> Option<u64> {
        let state = self.state.as_ref()?;
        let message = state.incomplete_since_ns();
        let handshake = state.tls.as_ref().and_then(|tls| tls.handshake_started_ns());
        let write = (!state.outbound.is_empty()).then_some(state.progress_ns);
        [
            (message, limits.message_timeout_ns),
            (handshake, limits.handshake_timeout_ns),
            (write, limits.write_timeout_ns),
        ]
        .into_iter()
        .filter_map(|(since_ns, timeout_ns)| deadline_after(since_ns?, timeout_ns))
        .min()
    }

    /// Returns the time limit that is exceeded at `now_ns`. The connection has to be closed then.
    /// Returns `None` if no limit is exceeded.
    #[must_use]
    pub fn exceeded_timeout(&self, limits: &ConnectionLimits, now_ns: u64) -> Option<TimeoutError> {
        let state = self.state.as_ref()?;
        let is_over =
            |since, timeout| deadline_after(since, timeout).is_some_and(|until| until <= now_ns);
        if !state.outbound.is_empty() && is_over(state.progress_ns, limits.write_timeout_ns) {
            return Some(TimeoutError::Write);
        }
        let handshake = state.tls.as_ref().and_then(|tls| tls.handshake_started_ns());
        if handshake.is_some_and(|started_ns| is_over(started_ns, limits.handshake_timeout_ns)) {
            return Some(TimeoutError::Handshake);
        }
        let started_ns = state.incomplete_since_ns()?;
        is_over(started_ns, limits.message_timeout_ns).then_some(TimeoutError::Message)
    }

    fn free_if_idle(&mut self) {
        if self.state.as_ref().is_some_and(|it| {
            it.receive_buffer.inbound.is_empty() && it.outbound.is_empty() && it.tls.is_none()
        }) {
            self.state = None;
        }
    }
}

impl ActiveState {
    /// Returns the time, in ns, at which the incomplete message or record began to arrive. Returns
    /// `None` if there is none.
    fn incomplete_since_ns(&self) -> Option<u64> {
        [self.receive_buffer.started_ns, self.record_ns].into_iter().flatten().min()
    }
}

/// Returns the end of a time limit that began at `since_ns`. Returns `None` if `timeout_ns` is 0,
/// which is no limit.
fn deadline_after(since_ns: u64, timeout_ns: u64) -> Option<u64> {
    (timeout_ns > 0).then(|| since_ns.saturating_add(timeout_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::LengthPrefixCodec;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        queued_bytes_max: 100,
        high_bytes: 50,
        low_bytes: 10,
        message_timeout_ns: 1_000,
        write_timeout_ns: 500,
        handshake_timeout_ns: 2_000,
    };
    const CODEC: LengthPrefixCodec = LengthPrefixCodec::new(8);

    fn go(_: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn trickled_bytes_do_not_extend_message_deadline() {
        let mut protocol = ProtocolState::default();
        for (now_ns, byte) in [(100, 0), (400, 0), (900, 0), (1_099, 2)] {
            protocol.deliver_messages(&[byte], &CODEC, now_ns, go).unwrap();
            assert_eq!(protocol.deadline_ns(&LIMITS), Some(1_100));
            assert_eq!(protocol.exceeded_timeout(&LIMITS, now_ns), None);
        }
        assert_eq!(protocol.exceeded_timeout(&LIMITS, 1_100), Some(TimeoutError::Message));
    }

    #[test]
    fn undelivered_message_does_not_run_the_message_timeout() {
        let mut protocol = ProtocolState::default();
        let stop = |_: &[u8]| ControlFlow::Break(());
        let delivered =
            protocol.deliver_messages(b"\0\0\0\x01a\0\0\0\x01b\0", &CODEC, 0, stop).unwrap();
        assert_eq!(delivered, DeliveryResult { messages_count: 1, is_stopped: true });
        assert_eq!(protocol.deadline_ns(&LIMITS), None);
        let delivered = protocol.deliver_messages(&[], &CODEC, 5_000, go).unwrap();
        assert_eq!(delivered, DeliveryResult { messages_count: 1, is_stopped: false });
        assert_eq!((protocol.pending_bytes(), protocol.deadline_ns(&LIMITS)), (1, Some(6_000)));
    }

    #[test]
    fn write_timeout_expires_only_without_progress() {
        let mut protocol = ProtocolState::default();
        protocol.queue_bytes(&[0; 20], &LIMITS, 0).unwrap();
        protocol.mark_sent(1, &LIMITS, 400);
        assert_eq!(protocol.exceeded_timeout(&LIMITS, 899), None);
        protocol.queue_bytes(&[0; 20], &LIMITS, 890).unwrap();
        assert_eq!(protocol.exceeded_timeout(&LIMITS, 900), Some(TimeoutError::Write));
    }

    #[test]
    fn linger_continues_while_unacknowledged_bytes_shrink() {
        let mut protocol = ProtocolState::default();
        let waits = [900, 500, 499, 499, 0].map(|unacknowledged_bytes| {
            protocol.should_await_acknowledgements(unacknowledged_bytes)
        });
        assert_eq!(waits, [true, true, true, false, false]);
        assert!(!ProtocolState::default().should_await_acknowledgements(0));
    }

    #[test]
    fn idle_link_takes_8_bytes_and_no_heap() {
        assert_eq!(size_of::<ProtocolState>(), 8);
        let mut protocol = ProtocolState::default();
        protocol.deliver_messages(b"\0\0", &CODEC, 0, go).unwrap();
        protocol.queue_bytes(b"reply", &LIMITS, 0).unwrap();
        assert!(!protocol.is_idle());
        protocol.deliver_messages(b"\0\0", &CODEC, 0, go).unwrap();
        protocol.mark_sent(5, &LIMITS, 0);
        assert_eq!((protocol.is_idle(), protocol.heap_bytes()), (true, 0));
    }
}
