//! State of a thread that its handler can access during a call.

use super::endpoint::ConnectOptions;
use super::inbox::Inbox;
use super::poll::{EventSource, Poll};
use super::slab::{ConnFlags, ConnKey, ConnSlot};
use super::socket;
use crate::engine::{
    Codec, ConnectionLimits, PerIpLimiter, Permit, ProtocolState, ReplyBuffer, SendQueueOverflow,
    TlsState, WaterMarkCrossing,
};
use crate::{CloseReason, Config, NetError, Stats, WriteError, stage};
use handover_base::clock;
use handover_base::slab::Slab;
use handover_timer::Wheel;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Flags that each forbid further writes to a connection.
const WRITE_BLOCKERS: ConnFlags =
    ConnFlags::CLOSING.union(ConnFlags::LINGERING).union(ConnFlags::ABORTED);

/// Purpose of a timer in the thread's timer wheel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimerPurpose {
    /// Check of a connection's deadline.
    Connection(ConnKey),
    /// Search for idle connections, in at most `SWEEP_SLOTS_MAX` slots at a time.
    Sweep,
    /// Periodic call of [`Handler::housekeep`](crate::Handler::housekeep).
    Housekeep,
    /// Retry of accepting connections after a pause. Other parts of the process may have closed
    /// descriptors.
    RetryAccept,
    /// End of normal reading after a stop request. Afterwards at most one more message of each
    /// connection is delivered.
    LastMessages,
    /// End of the grace period after a stop request, at which all open connections are closed.
    GraceEnd,
}

/// State of an event-loop thread, except for its handler and codec.
pub(crate) struct ReactorState<D> {
    pub(crate) slab: Slab<ConnSlot<D>>,
    pub(crate) poll: Poll,
    pub(crate) wheel: Wheel<TimerPurpose>,
    /// Queue of connections and listeners to be served, without duplicates.
    pub(crate) ready: VecDeque<EventSource>,
    /// Connections that are about to be closed, each with the reason.
    pub(crate) pending_closes: Vec<(ConnKey, CloseReason)>,
    /// Crossings of water marks to be reported to the handler.
    pub(crate) pending_crossings: Vec<(ConnKey, WaterMarkCrossing)>,
    pub(crate) inbox: Arc<Inbox<D>>,
    pub(crate) config: Config,
    pub(crate) limits: ConnectionLimits,
    /// Maximum time to establish an outgoing connection, in ns; 0 is no limit.
    pub(crate) connect_timeout_ns: u64,
    /// Maximum time that a closed connection waits for the peer to close it, in ns.
    pub(crate) linger_ns: u64,
    pub(crate) limiter: PerIpLimiter,
    pub(crate) stats: Stats,
    /// Time in ns at the start of this iteration of the event loop.
    pub(crate) now_ns: u64,
    pub(crate) is_stopping: bool,
    pub(crate) call: HandlerCallState,
    /// Buffer for the plaintext of decrypted TLS records, shared by all connections.
    pub(crate) plain: Vec<u8>,
    /// Buffer for encrypted TLS records to be sent, shared by all connections.
    pub(crate) sealed: Vec<u8>,
}

/// Maximum capacity, in bytes, that a thread's buffers for replies and for TLS records keep after
/// use.
pub(crate) const REPLY_BUFFER_KEPT_BYTES_MAX: usize = 1 << 18;

/// State of the handler call in progress: its connection, the replies so far, and their limits.
#[derive(Default)]
pub(crate) struct HandlerCallState {
    /// Connection that the handler is called for; `None` outside a call.
    pub(crate) key: Option<ConnKey>,
    /// `true` while bytes can be written to the connection.
    pub(crate) is_open: bool,
    /// Replies of the call so far, which are sent together at its end.
    pub(crate) replies: ReplyBuffer,
    /// End of each message in `replies`. Filled only if each message is a TLS record of its own.
    pub(crate) message_ends: Vec<usize>,
    /// `true` if each message on the connection is a TLS record of its own.
    pub(crate) has_record_per_message: bool,
    /// Number of bytes that were queued for sending before this call.
    pub(crate) queued_bytes: usize,
    /// Number of reply bytes above which `enforce_reply_limits` is called. It is the high-water
    /// mark or, if less, the send queue's free space. 0 if each message is a TLS record of its own.
    replies_max: usize,
    /// `true` if no further message of the present read is to be delivered.
    pub(crate) should_stop: bool,
    /// Overflow of the send queue during the call, if any.
    pub(crate) overflow: Option<SendQueueOverflow>,
}

impl HandlerCallState {
    fn set_replies_max(&mut self, limits: &ConnectionLimits) {
        let free_bytes = limits.queued_bytes_max.saturating_sub(self.queued_bytes);
        self.replies_max =
            if self.has_record_per_message { 0 } else { free_bytes.min(limits.high_bytes) };
    }

    pub(crate) fn clear_replies(&mut self) {
        self.replies.clear(REPLY_BUFFER_KEPT_BYTES_MAX);
        self.message_ends.clear();
    }
}

/// Appends a listener to the queue of ready sources unless the queue contains it. Queued twice, it
/// would accept twice as many connections in an iteration.
pub(crate) fn enqueue_listener_once(ready: &mut VecDeque<EventSource>, source: EventSource) {
    if !ready.contains(&source) {
        ready.push_back(source);
    }
}

impl<D> ReactorState<D> {
    /// Returns the time in ms at the start of this iteration. It is truncated to 32 bits, as
    /// connections store it.
    pub(crate) fn now_ms(&self) -> u32 {
        // Truncated to 32 bits: only differences are used.
        (self.now_ns / 1_000_000) as u32
    }

    /// Begins the idle time of a connection anew, if there is an idle timeout. Reads the clock, as
    /// handler calls may have taken long since the start of this iteration.
    pub(crate) fn restart_idle_time(&mut self, key: ConnKey) {
        if !self.config.idle_timeout.is_zero()
            && let Some(slot) = self.slab.get_mut(key)
        {
            slot.active_ms = (clock::now_ns() / 1_000_000) as u32; // truncated like now_ms()
        }
    }

    /// Returns the time in ns since `active_ms`, the time in ms at which a connection was active.
    /// The time may be later than the start of this iteration; then the result is 0.
    pub(crate) fn since_ns(&self, active_ms: u32) -> u64 {
        let since_ms = self.now_ms().wrapping_sub(active_ms).cast_signed();
        since_ms.max(0) as u64 * 1_000_000
    }

    /// Prepares `call` for a handler call for the connection `key`.
    pub(crate) fn start_handler_call(&mut self, key: ConnKey, queued_bytes: usize) {
        self.call.key = Some(key);
        self.call.queued_bytes = queued_bytes;
        self.call.should_stop = false;
        let slot = self.slab.get(key);
        self.call.is_open = slot.is_some_and(|slot| !slot.flags.intersects(WRITE_BLOCKERS));
        let tls = slot.and_then(|slot| slot.protocol.tls());
        self.call.has_record_per_message = tls.is_some_and(TlsState::has_record_per_message);
        self.call.set_replies_max(&self.limits);
    }

    /// Queues a connection to be served in this iteration or the next, unless it is queued already.
    pub(crate) fn enqueue_connection(&mut self, key: ConnKey) {
        if let Some(slot) = self.slab.get_mut(key)
            && !slot.flags.intersects(ConnFlags::QUEUED)
        {
            slot.flags.insert(ConnFlags::QUEUED);
            self.ready.push_back(EventSource::Connection(key));
        }
    }

    /// Resumes reading a connection if it is suspended, and queues it to be served.
    pub(crate) fn resume_connection(&mut self, key: ConnKey) {
        let now_ms = self.now_ms();
        if let Some(slot) = self.slab.get_mut(key)
            && slot.flags.intersects(ConnFlags::SUSPENDED)
        {
            slot.flags.remove(ConnFlags::SUSPENDED);
            slot.protocol.restart_message_timeout(self.now_ns);
            slot.active_ms = now_ms;
        }
        self.enqueue_connection(key);
    }

    /// Queues a listener to accept in this iteration or the next.
    pub(crate) fn enqueue_listener(&mut self, index: u16) {
        enqueue_listener_once(&mut self.ready, EventSource::Listener(index));
    }

    pub(crate) fn schedule_close(&mut self, key: ConnKey, why: CloseReason) {
        if let Some(slot) = self.slab.get_mut(key)
            && !slot.flags.intersects(ConnFlags::ABORTED)
        {
            slot.flags.insert(ConnFlags::ABORTED);
            self.pending_closes.push((key, why));
        }
        if self.call.key == Some(key) {
            self.call.should_stop = true;
            self.call.is_open = false;
        }
    }

    /// Appends bytes to the replies of the connection that is being served. `received` are the
    /// bytes of its latest read.
    #[inline]
    pub(crate) fn reply_with(
        &mut self,
        received: &[u8],
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if !self.call.is_open {
            return Err(WriteError::Closed);
        }
        append(self.call.replies.copied_bytes_mut(received))?;
        self.check_reply_limits(received)
    }

    /// Frames a message and appends it to the replies. Not inlined, so that handlers stay small
    /// enough to be inlined into the loop over messages.
    #[inline(never)]
    pub(crate) fn reply_encoded<C: Codec>(
        &mut self,
        codec: &C,
        received: &[u8],
        message: &[u8],
    ) -> Result<(), WriteError> {
        self.reply_with(received, |out| Ok(codec.encode(message, out)?))
    }

    /// Appends the range `part` of `received` to the replies, if possible without a copy.
    #[inline(always)]
    pub(crate) fn reply_unchanged(
        &mut self,
        received: &[u8],
        part: Range<usize>,
    ) -> Result<(), WriteError> {
        if self.call.replies.extend_range(&part) {
            stage::record_written(&self.call.replies);
            return Ok(());
        }
        self.begin_unchanged_range(received, part)
    }

    /// Appends the range `part` of `received` to the replies, which do not end directly before it.
    /// Does not copy it if the reply limits allow `received` from `part` on. Checks this and that
    /// the connection is open, so that later parts need no check; every call that changes either
    /// condition copies the range first.
    #[inline(never)]
    fn begin_unchanged_range(
        &mut self,
        received: &[u8],
        part: Range<usize>,
    ) -> Result<(), WriteError> {
        let call = &mut self.call;
        if !call.is_open {
            return Err(WriteError::Closed);
        }
        let written = call.replies.copied_bytes_mut(received);
        if written.len() + (received.len() - part.start) <= call.replies_max {
            call.replies.push_range(received, part);
            stage::record_written(&call.replies);
            return Ok(());
        }
        written.extend_from_slice(&received[part]);
        self.check_reply_limits(received)
    }

    /// Calls `enforce_reply_limits` if the replies of this handler call exceed `replies_max`.
    #[inline]
    fn check_reply_limits(&mut self, received: &[u8]) -> Result<(), WriteError> {
        stage::record_written(&self.call.replies);
        match self.call.replies.len() > self.call.replies_max {
            true => self.enforce_reply_limits(received),
            false => Ok(()),
        }
    }

    /// Handles replies above `replies_max`. Sends them early if the send queue has no space, and
    /// stops the delivery of messages above the high-water mark.
    fn enforce_reply_limits(&mut self, received: &[u8]) -> Result<(), WriteError> {
        let call = &mut self.call;
        if call.has_record_per_message {
            call.message_ends.push(call.replies.len());
        }
        if let Some(key) = call.key
            && call.queued_bytes + call.replies.len() > self.limits.queued_bytes_max
        {
            self.send_early(key, received)?;
        }
        self.call.should_stop |= self.call.replies.len() > self.limits.high_bytes;
        Ok(())
    }

    /// Appends bytes to the send queue of the connection `key`, which may be the one being served.
    pub(crate) fn queue_write_with(
        &mut self,
        key: ConnKey,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.call.key == Some(key) {
            // Replies that are ranges of the read buffer were copied before `Connections` was
            // handed out.
            return self.reply_with(&[], append);
        }
        let slot = self.slab.get_mut(key).filter(|slot| !slot.flags.intersects(WRITE_BLOCKERS));
        let Some(slot) = slot else { return Err(WriteError::Closed) };
        let mut bytes = Vec::new();
        append(&mut bytes)?;
        match slot.protocol.seal_and_queue(&bytes, &self.limits, self.now_ns) {
            Ok(crossing) => {
                slot.flags.insert(ConnFlags::UNSENT);
                if let Some(crossing) = crossing {
                    slot.flags.insert(ConnFlags::ABOVE_HIGH_WATER);
                    self.pending_crossings.push((key, crossing));
                }
                self.enqueue_connection(key);
                Ok(())
            }
            Err(why) => {
                self.schedule_close(key, why.clone().into());
                Err(why.into())
            }
        }
    }

    /// Sends the replies to one read before the handler returns. The queue has no space for them.
    #[cold]
    fn send_early(&mut self, key: ConnKey, received: &[u8]) -> Result<(), WriteError> {
        let call = &mut self.call;
        let replies = call.replies.copied_bytes_mut(received);
        let Some(slot) = self.slab.get_mut(key) else { return Err(WriteError::Closed) };
        let blocked = ConnFlags::CONNECTING.union(ConnFlags::SEND_BLOCKED);
        if call.queued_bytes == 0 && !slot.flags.intersects(blocked) {
            if slot.protocol.has_tls() {
                return self.seal_early(key);
            }
            // An error is reported again when the rest is sent.
            let sent_bytes = socket::send(slot.fd.as_fd(), replies).unwrap_or(0);
            replies.drain(..sent_bytes);
            self.stats.sends_count += u64::from(sent_bytes > 0);
            self.stats.sent_bytes += sent_bytes as u64;
        }
        let queued_bytes = call.queued_bytes + call.replies.len();
        match queued_bytes > self.limits.queued_bytes_max {
            true => Err(self.record_overflow(queued_bytes)),
            false => Ok(()),
        }
    }

    /// Encrypts the replies of a TLS connection and sends them before the handler returns. All of
    /// them are copied already; encrypted records cannot be withdrawn, so those that the kernel
    /// does not accept are queued.
    fn seal_early(&mut self, key: ConnKey) -> Result<(), WriteError> {
        let Some(slot) = self.slab.get_mut(key) else { return Err(WriteError::Closed) };
        self.sealed.clear();
        let call = &mut self.call;
        slot.protocol.seal_messages(
            call.replies.copied_bytes_mut(&[]),
            &call.message_ends,
            &mut self.sealed,
        )?;
        call.clear_replies();
        let sealed = std::mem::take(&mut self.sealed);
        let sent_bytes = socket::send(slot.fd.as_fd(), &sealed).unwrap_or(0);
        self.stats.sends_count += u64::from(sent_bytes > 0);
        self.stats.sent_bytes += sent_bytes as u64;
        if sent_bytes < sealed.len() {
            slot.flags.insert(ConnFlags::SEND_BLOCKED);
            self.stats.delayed_count += 1;
        }
        let queued = slot.protocol.queue_bytes(&sealed[sent_bytes..], &self.limits, self.now_ns);
        call.queued_bytes = slot.protocol.queued_bytes();
        call.set_replies_max(&self.limits);
        self.sealed = sealed;
        match queued {
            Ok(None) => {}
            Ok(Some(crossing)) => {
                slot.flags.insert(ConnFlags::ABOVE_HIGH_WATER);
                self.pending_crossings.push((key, crossing));
            }
            Err(overflow) => return Err(self.record_overflow(overflow.queued_bytes)),
        }
        Ok(())
    }

    /// Records that the send queue would overflow; returns the error. The connection is closed when
    /// its handler returns. Until then nothing more is sent: the peer may have received a part of
    /// the latest message.
    fn record_overflow(&mut self, queued_bytes: usize) -> WriteError {
        let queued_bytes_max = self.limits.queued_bytes_max;
        let overflow = SendQueueOverflow { queued_bytes, queued_bytes_max };
        self.call.overflow = Some(overflow);
        self.call.should_stop = true;
        self.call.is_open = false;
        self.call.clear_replies();
        overflow.into()
    }

    /// Adds a socket to the epoll set and the slab; returns the key of its connection. `Err` with
    /// `data` if it fails.
    pub(crate) fn add_connection(
        &mut self,
        fd: OwnedFd,
        permit: Permit,
        flags: ConnFlags,
        protocol: ProtocolState,
        data: D,
    ) -> Result<ConnKey, (NetError, D)> {
        let Some(key) = self.slab.next_key().map(ConnKey::from) else {
            self.limiter.release(permit);
            return Err((NetError::Full { connections_max: self.config.connections_max }, data));
        };
        if let Err(refused) = self.poll.add(fd.as_fd(), EventSource::Connection(key)) {
            self.limiter.release(permit);
            return Err((refused.into(), data));
        }
        let active_ms = self.now_ms();
        let slot = ConnSlot { fd, active_ms, permit, flags, timer: None, protocol, data };
        // Not full: it has a next key.
        let _ = self.slab.insert(slot);
        self.restart_idle_time(key);
        self.adjust_open_count(1);
        Ok(key)
    }

    /// Adds `change` to the number of open connections. Publishes it to threads that hand
    /// connections to this one.
    pub(crate) fn adjust_open_count(&mut self, change: i8) {
        self.stats.open_count = self.stats.open_count.wrapping_add_signed(change.into());
        self.inbox.publish_open_count(self.stats.open_count);
    }

    /// Starts to connect a new socket; returns its connection's key, or the error with `data`.
    pub(crate) fn connect(
        &mut self,
        options: &ConnectOptions,
        data: D,
    ) -> Result<ConnKey, (NetError, D)> {
        if self.is_stopping {
            return Err((NetError::Stopping, data));
        }
        if self.slab.is_full() {
            return Err((NetError::Full { connections_max: self.config.connections_max }, data));
        }
        let (protocol, flags) = match options.tls.as_deref() {
            None => (ProtocolState::default(), ConnFlags::CONNECTING),
            Some(client) => match client.start_handshake(self.now_ns) {
                Ok(tls) => (
                    ProtocolState::with_tls(tls),
                    ConnFlags::CONNECTING.union(ConnFlags::HANDSHAKING),
                ),
                Err(error) => return Err((error.into(), data)),
            },
        };
        let fd = match socket::connect(options.address, options.source, &self.config) {
            Ok(fd) => fd,
            Err(refused) => return Err((refused.into(), data)),
        };
        let key = self.add_connection(
            fd,
            Permit::NONE,
            flags.union(ConnFlags::OUTGOING),
            protocol,
            data,
        )?;
        self.arm_timer(key);
        Ok(key)
    }

    /// Returns the limits of a connection with these `flags`. There is no message timeout while
    /// this thread does not read the connection.
    pub(crate) fn limits_with_flags(&self, flags: ConnFlags) -> ConnectionLimits {
        match flags.is_read_blocked() {
            true => ConnectionLimits { message_timeout_ns: 0, ..self.limits },
            false => self.limits,
        }
    }

    /// Returns the time in ns at which the connection times out; `None` if it has no deadline.
    pub(crate) fn deadline_ns(&self, slot: &ConnSlot<D>) -> Option<u64> {
        let phase_ns = if slot.flags.intersects(ConnFlags::CONNECTING) {
            Some(self.connect_timeout_ns).filter(|&ns| ns > 0)
        } else if slot.flags.intersects(ConnFlags::LINGERING) {
            Some(self.linger_ns)
        } else {
            return slot.protocol.deadline_ns(&self.limits_with_flags(slot.flags));
        };
        phase_ns.map(|ns| self.now_ns + ns.saturating_sub(self.since_ns(slot.active_ms)))
    }

    /// Starts or moves the timer of a connection that has a deadline. If the connection has none,
    /// its timer is left to expire: usually there is another deadline by then.
    pub(crate) fn arm_timer(&mut self, key: ConnKey) {
        let Some(slot) = self.slab.get(key) else { return };
        let Some(deadline_ns) = self.deadline_ns(slot) else { return };
        if let Some(timer) = slot.timer
            && self.wheel.reschedule(timer, deadline_ns)
        {
            return;
        }
        // The wheel holds one timer for each connection, and a few more.
        let timer = self.wheel.start(deadline_ns, TimerPurpose::Connection(key)).ok();
        if let Some(slot) = self.slab.get_mut(key) {
            slot.timer = timer;
        }
    }
}
