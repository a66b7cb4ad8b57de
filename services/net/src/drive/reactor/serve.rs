//! Service of a connection: sends queued bytes, reads once, handles the messages, and sends all
//! replies together.

use super::{Reactor, socket};
use crate::CloseReason;
use crate::drive::conn::{Conn, ReceivedBytes};
use crate::drive::core::{REPLY_BUFFER_KEPT_BYTES_MAX, ReactorState};
use crate::drive::handler::Handler;
use crate::drive::poll::EventSource;
use crate::drive::slab::{ConnFlags, ConnKey};
use crate::engine::{DeliveryResult, OpenedRecords, WaterMarkCrossing};
use crate::stage;
use handover_base::unwind;
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of consecutive reads that discard bytes of a closed connection. Then other
/// connections are served.
const DISCARDS_MAX: u32 = 16;

impl<H: Handler> Reactor<H> {
    /// Serves a connection once: sends queued bytes, reads once and handles the messages.
    pub(super) fn serve_connection(&mut self, key: ConnKey) {
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        slot.flags.remove(ConnFlags::QUEUED);
        if slot.flags.intersects(ConnFlags::CONNECTING) {
            if slot.flags.intersects(ConnFlags::CLOSING.union(ConnFlags::ABORTED)) {
                return self.finish_service(key); // The program has closed it already.
            }
            if !self.finish_connect(key) {
                return;
            }
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        if slot.flags.intersects(ConnFlags::TRIGGERED) {
            slot.flags.remove(ConnFlags::TRIGGERED);
            self.call(key, |handler, conn| handler.on_trigger(conn));
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        if slot.flags.intersects(ConnFlags::WRITABLE.union(ConnFlags::UNSENT)) {
            if slot.flags.intersects(ConnFlags::WRITABLE) {
                slot.flags.remove(ConnFlags::SEND_BLOCKED.union(ConnFlags::WRITABLE));
            }
            slot.flags.remove(ConnFlags::UNSENT);
            if let Err(why) = self.flush(key) {
                return self.close(key, &why);
            }
        }
        if let Err(why) = self.read(key) {
            if matches!(why, CloseReason::InvalidMessage(_)) {
                // Replies to earlier messages may be on their way.
                self.end_and_drain(key);
            }
            return self.close(key, &why);
        }
        self.finish_service(key);
    }

    /// Serves a connection as if epoll had reported it. Called before a time limit closes it: if
    /// the thread was busy, bytes that arrived in time may still wait to be read.
    pub(super) fn serve_unreported(&mut self, key: ConnKey) {
        let core = &mut self.core;
        let Some(slot) = core.slab.get_mut(key) else { return };
        if slot.flags.intersects(ConnFlags::QUEUED) {
            core.ready.retain(|source| *source != EventSource::Connection(key));
        }
        slot.flags.insert(ConnFlags::READABLE.union(ConnFlags::WRITABLE));
        self.serve_connection(key);
    }

    /// Completes an attempt to connect. Returns `false` if there is no result yet, or if it failed
    /// and the connection is closed.
    fn finish_connect(&mut self, key: ConnKey) -> bool {
        let now_ns = self.core.now_ns;
        let Some(slot) = self.core.slab.get_mut(key) else { return false };
        if !slot.flags.intersects(ConnFlags::WRITABLE) {
            return false;
        }
        match socket::is_connected(slot.fd.as_fd()) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(errno) => {
                self.close(key, &CloseReason::ConnectFailed(errno.into()));
                return false;
            }
        }
        slot.flags.remove(ConnFlags::CONNECTING.union(ConnFlags::WRITABLE));
        slot.flags.insert(ConnFlags::UNSENT);
        self.core.stats.connected_count += 1;
        let Some(tls) = slot.protocol.tls_mut() else {
            self.call(key, |handler, conn| handler.on_connect(conn));
            self.core.restart_idle_time(key);
            return true;
        };
        tls.restart_handshake_timeout(now_ns);
        if let Err(why) = self.open_records(key, 0) {
            self.close(key, &why);
            return false;
        }
        true
    }

    /// Reads a connection once and handles the messages, then TLS's `close_notify` if the peer sent
    /// it.
    fn read(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        self.read_once(key)?;
        let waits = ConnFlags::BACKLOG.union(ConnFlags::PEER_ENDED).union(ConnFlags::LINGERING);
        match self.core.slab.get_mut(key) {
            Some(slot)
                if slot.flags.intersects(ConnFlags::CLOSE_NOTIFIED)
                    && !slot.flags.intersects(waits) =>
            {
                self.handle_peer_end(key)
            }
            _ => Ok(()),
        }
    }

    fn read_once(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let (now_ms, now_ns) = (self.core.now_ms(), self.core.now_ns);
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        if slot.flags.intersects(ConnFlags::LINGERING) {
            return self.discard(key);
        }
        let has_backlog = slot.flags.intersects(ConnFlags::BACKLOG);
        if slot.flags.is_read_blocked() {
            let is_over = slot.flags.intersects(ConnFlags::HUNG_UP)
                && !slot.flags.intersects(ConnFlags::CLOSING);
            return if is_over { self.check_peer_end(key) } else { Ok(()) };
        }
        if !(has_backlog || slot.flags.intersects(ConnFlags::READABLE)) {
            return Ok(());
        }
        let mut bytes_count = 0;
        if has_backlog {
            // A peer may wait for the reply to a message that it has sent long ago. The rest of a
            // record is read only after the backlog.
            slot.active_ms = now_ms;
            slot.protocol.restart_message_timeout(now_ns);
        } else {
            match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                Ok(0) => return self.handle_stream_end(key),
                Ok(count) => bytes_count = count,
                Err(Errno::AGAIN) => {
                    slot.flags.remove(ConnFlags::READABLE);
                    return Ok(());
                }
                Err(errno) => return Err(CloseReason::Reset(errno.into())),
            }
            stage::record_read(bytes_count);
            slot.active_ms = now_ms;
            // A short read has emptied the socket. Later bytes cause an edge of their own.
            let reads_on = ConnFlags::HUNG_UP.union(ConnFlags::STOPS_SHORT);
            if bytes_count < self.buffer.len() && !slot.flags.intersects(reads_on) {
                slot.flags.remove(ConnFlags::READABLE);
            }
            self.core.stats.reads_count += 1;
            self.core.stats.read_bytes += bytes_count as u64;
            if slot.protocol.has_tls() {
                return self.open_records(key, bytes_count);
            }
        }
        let buffer = std::mem::take(&mut self.buffer);
        let delivered = self.deliver_messages(key, &buffer[..bytes_count]);
        self.buffer = buffer;
        delivered
    }

    /// Looks for a reset or the end of the stream on a connection that is not being read. The end
    /// counts only after the last byte.
    fn check_peer_end(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        socket::take_socket_error(slot.fd.as_fd())
            .map_err(|errno| CloseReason::Reset(errno.into()))?;
        if slot.flags.intersects(ConnFlags::BACKLOG) {
            return Ok(());
        }
        match socket::peek(slot.fd.as_fd()) {
            Ok(0) => self.handle_stream_end(key),
            // The rest may be TLS's close_notify alone; if it is data, the backlog keeps it.
            Ok(_) if slot.protocol.has_tls() => {
                match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                    Ok(bytes_count) => self.open_records(key, bytes_count),
                    Err(errno) => Err(CloseReason::Reset(errno.into())),
                }
            }
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(CloseReason::Reset(errno.into())),
        }
    }

    /// Decrypts the TLS records in the first `bytes_count` bytes of the read buffer. Sends
    /// handshake messages, and delivers the plaintext.
    fn open_records(&mut self, key: ConnKey, bytes_count: usize) -> Result<(), CloseReason> {
        let core = &mut self.core;
        let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
        let mut plain = std::mem::take(&mut core.plain);
        let mut sealed = std::mem::take(&mut core.sealed);
        plain.clear();
        sealed.clear();
        let records = &mut self.buffer[..bytes_count];
        let opened = slot.protocol.open_records(records, &mut plain, &mut sealed, core.now_ns);
        let sent = match sealed.is_empty() {
            true => Ok(()),
            false => send_or_queue(core, key, &sealed),
        };
        core.sealed = shrunk(sealed);
        let delivered = match (opened, sent) {
            (Err(error), _) => {
                self.end_and_drain(key);
                Err(CloseReason::Tls(error))
            }
            (Ok(_), Err(why)) => Err(why),
            (Ok(opened), Ok(())) => self.handle_opened_records(key, opened, &plain),
        };
        self.core.plain = shrunk(plain);
        delivered
    }

    /// Handles the result of decrypting records. This is the plaintext, and the end of the
    /// handshake or of the stream.
    fn handle_opened_records(
        &mut self,
        key: ConnKey,
        opened: OpenedRecords,
        plain: &[u8],
    ) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        if opened.is_ended {
            slot.flags.insert(ConnFlags::CLOSE_NOTIFIED);
        }
        if opened.is_ready {
            slot.flags.remove(ConnFlags::HANDSHAKING);
            let is_resumed = slot.protocol.tls().and_then(|tls| tls.is_resumed());
            self.core.stats.handshakes_count += 1;
            self.core.stats.resumed_count += u64::from(is_resumed == Some(true));
            let is_outgoing = slot.flags.intersects(ConnFlags::OUTGOING);
            self.call(key, |handler, conn| match is_outgoing {
                true => handler.on_connect(conn),
                false => handler.on_accept(conn),
            });
        }
        self.core.restart_idle_time(key);
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        if plain.is_empty() || slot.flags.intersects(ConnFlags::CLOSING.union(ConnFlags::ABORTED)) {
            return Ok(());
        }
        if slot.flags.intersects(ConnFlags::READ_BLOCKERS) {
            slot.protocol.append_undelivered(plain);
            slot.flags.insert(ConnFlags::BACKLOG);
            return Ok(());
        }
        self.deliver_messages(key, plain)
    }

    /// Delivers the messages in `bytes`, preceded by bytes buffered from earlier reads.
    fn deliver_messages(&mut self, key: ConnKey, bytes: &[u8]) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        let is_last = slot.flags.intersects(ConnFlags::LAST_MESSAGE);
        let mut reading = slot.protocol.detach_receive_buffer();
        let queued_bytes = slot.protocol.queued_bytes();
        self.core.start_handler_call(key, queued_bytes);
        self.core.call.should_stop = is_last;
        let Self { core, codec, handler, .. } = self;
        let now_ns = core.now_ns;
        let delivered = catch_unwind(AssertUnwindSafe(|| {
            reading.deliver_framed_messages(bytes, codec, now_ns, |message, frame| {
                stage::record_decoded(message.len());
                core.stats.messages_count += 1;
                let received = ReceivedBytes { bytes, message, frame: (frame.start, frame.end) };
                handler.on_message(&mut Conn { core, codec, key, received }, message);
                stage::record_dispatched(message.len());
                match core.call.should_stop {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
        }));
        // The peer may have waited for the replies, which are sent below.
        self.core.restart_idle_time(key);
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        slot.protocol.attach_receive_buffer(reading);
        let delivered = match delivered {
            Ok(delivered) => delivered,
            Err(payload) => {
                self.close_panicked(key, payload.as_ref());
                unwind::drop_payload(payload);
                return Ok(());
            }
        };
        let is_stopped = matches!(delivered, Ok(DeliveryResult { is_stopped: true, .. }));
        let is_stopped = is_stopped && slot.protocol.pending_bytes() > 0;
        slot.flags.remove(ConnFlags::BACKLOG);
        if is_stopped {
            slot.flags.insert(ConnFlags::BACKLOG);
        }
        if is_last && matches!(delivered, Ok(DeliveryResult { messages_count: 1.., .. })) {
            slot.flags.insert(ConnFlags::CLOSING);
        }
        self.send_replies(key, bytes);
        delivered.map(drop).map_err(CloseReason::InvalidMessage)
    }

    /// Sends the handler's replies to the bytes `received`; queues those that the kernel does not
    /// accept.
    pub(super) fn send_replies(&mut self, key: ConnKey, received: &[u8]) {
        let core = &mut self.core;
        core.call.key = None;
        if let Some(overflow) = core.call.overflow.take() {
            core.call.clear_replies();
            return self.close(key, &overflow.into());
        }
        if core.call.replies.is_empty() {
            return;
        }
        let mut replies = std::mem::take(&mut core.call.replies);
        let bytes = replies.as_contiguous(received);
        let is_secured = core.slab.get(key).is_some_and(|slot| slot.protocol.has_tls());
        let sent = match is_secured {
            true => seal_and_send(core, key, bytes),
            false => send_or_queue(core, key, bytes),
        };
        core.call.replies = replies;
        core.call.clear_replies();
        if let Err(why) = sent {
            self.close(key, &why);
        }
    }

    /// Sends as many queued bytes as the kernel accepts.
    fn flush(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let core = &mut self.core;
        let now_ms = core.now_ms();
        let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
        let unsent = slot.protocol.unsent_bytes();
        if unsent.is_empty()
            || slot.flags.intersects(ConnFlags::SEND_BLOCKED.union(ConnFlags::CONNECTING))
        {
            return Ok(());
        }
        let sent_bytes = socket::send(slot.fd.as_fd(), unsent)
            .map_err(|errno| CloseReason::Reset(errno.into()))?;
        stage::record_sent(sent_bytes);
        if sent_bytes < unsent.len() {
            slot.flags.insert(ConnFlags::SEND_BLOCKED);
            core.stats.delayed_count += 1;
        }
        core.stats.sends_count += u64::from(sent_bytes > 0);
        core.stats.sent_bytes += sent_bytes as u64;
        if let Some(WaterMarkCrossing::Low) =
            slot.protocol.mark_sent(sent_bytes, &core.limits, core.now_ns)
        {
            slot.flags.remove(ConnFlags::ABOVE_HIGH_WATER);
            slot.protocol.restart_message_timeout(core.now_ns);
            slot.active_ms = now_ms;
            core.pending_crossings.push((key, WaterMarkCrossing::Low));
        }
        Ok(())
    }

    /// Handles the end of the peer's stream. Over TLS, returns an error if no `close_notify` came
    /// before it, as the stream may be truncated.
    fn handle_stream_end(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let slot = self
            .core
            .slab
            .get(key)
            .filter(|slot| !slot.flags.intersects(ConnFlags::CLOSE_NOTIFIED));
        match slot.and_then(|slot| slot.protocol.tls()) {
            Some(tls) => Err(tls.truncation_error().into()),
            None => self.handle_peer_end(key),
        }
    }

    /// Handles the peer's close of its sending direction; bytes queued for the peer are still sent.
    fn handle_peer_end(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        slot.protocol.check_end_of_stream()?;
        slot.flags.remove(ConnFlags::READABLE);
        slot.flags.insert(ConnFlags::PEER_ENDED.union(ConnFlags::CLOSING));
        Ok(())
    }

    /// Reads and discards bytes of a lingering connection until the peer closes its end.
    fn discard(&mut self, key: ConnKey) -> Result<(), CloseReason> {
        let local_close_reason = self.local_close_reason();
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        for _ in 0..DISCARDS_MAX {
            match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                Ok(0) => return Err(local_close_reason),
                Ok(_) => {}
                Err(Errno::AGAIN) => {
                    slot.flags.remove(ConnFlags::READABLE);
                    return Ok(());
                }
                Err(_) => return Err(local_close_reason),
            }
        }
        Ok(())
    }

    /// Shuts down the sending direction, and reads and discards received bytes. A close with unread
    /// bytes would reset the connection and discard the last bytes sent.
    fn end_and_drain(&mut self, key: ConnKey) {
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        socket::shut_down_sending(slot.fd.as_fd());
        for _ in 0..DISCARDS_MAX {
            match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Sends TLS's `close_notify` once all other bytes are sent.
    fn send_close_notify(&mut self, key: ConnKey) {
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        if slot.protocol.queued_bytes() > 0 || !slot.protocol.has_tls() {
            return;
        }
        let mut sealed = std::mem::take(&mut self.core.sealed);
        sealed.clear();
        slot.protocol.append_close_notify(&mut sealed);
        if !sealed.is_empty() {
            // If the peer has disconnected, the next read reports it.
            let _ = send_or_queue(&mut self.core, key, &sealed);
        }
        self.core.sealed = sealed;
    }

    /// Ends the service of a connection in this iteration. Closes it, or queues it again or starts
    /// its timer if needed.
    pub(super) fn finish_service(&mut self, key: ConnKey) {
        let is_stopping = self.core.is_stopping;
        let local_close_reason = self.local_close_reason();
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        let flags = slot.flags;
        let more = ConnFlags::READABLE.union(ConnFlags::BACKLOG);
        if is_stopping
            && !flags.intersects(more.union(ConnFlags::CLOSING).union(ConnFlags::LINGERING))
        {
            // Everything read is handed over, except perhaps the beginning of a message.
            match slot.protocol.pending_bytes() {
                0 => slot.flags.insert(ConnFlags::CLOSING),
                _ => slot.flags.insert(ConnFlags::LAST_MESSAGE),
            }
        }
        let flags = slot.flags;
        if flags.intersects(ConnFlags::CLOSING)
            && !flags.intersects(ConnFlags::LINGERING.union(ConnFlags::CONNECTING))
        {
            self.send_close_notify(key);
            let Some(slot) = self.core.slab.get_mut(key) else { return };
            if slot.protocol.queued_bytes() == 0 {
                if flags.intersects(ConnFlags::PEER_ENDED) {
                    return self.close(key, &CloseReason::Peer);
                }
                socket::shut_down_sending(slot.fd.as_fd());
                // Bytes that still arrive are read and discarded: a close with unread bytes would
                // reset the connection and discard what the peer has not read yet.
                slot.protocol = Default::default();
                slot.flags.insert(ConnFlags::LINGERING.union(ConnFlags::READABLE));
                let now_ms = self.core.now_ms();
                if let Some(slot) = self.core.slab.get_mut(key) {
                    slot.active_ms = now_ms;
                }
                if let Err(why) = self.discard(key) {
                    return self.close(key, &why);
                }
            }
        } else if flags.intersects(ConnFlags::CLOSING.union(ConnFlags::ABORTED))
            && flags.intersects(ConnFlags::CONNECTING)
        {
            return self.close(key, &local_close_reason);
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        let flags = slot.flags;
        let should_requeue = match flags.intersects(ConnFlags::LINGERING) {
            true => flags.intersects(ConnFlags::READABLE),
            false => flags.intersects(more) && !flags.is_read_blocked(),
        };
        if should_requeue
            || flags.intersects(ConnFlags::UNSENT)
                && !flags.intersects(ConnFlags::SEND_BLOCKED.union(ConnFlags::CONNECTING))
        {
            self.core.enqueue_connection(key);
        }
        let Some(slot) = self.core.slab.get(key) else { return };
        if !slot.protocol.is_idle() || slot.flags.intersects(ConnFlags::LINGERING) {
            self.core.arm_timer(key);
        }
    }
}

/// Returns `buffer`, emptied and shrunk if its capacity exceeds `REPLY_BUFFER_KEPT_BYTES_MAX`.
fn shrunk(mut buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > REPLY_BUFFER_KEPT_BYTES_MAX {
        buffer.clear();
        buffer.shrink_to(REPLY_BUFFER_KEPT_BYTES_MAX);
    }
    buffer
}

/// Encrypts `replies`, and sends the TLS records or queues those that the kernel does not accept.
fn seal_and_send<D>(
    core: &mut ReactorState<D>,
    key: ConnKey,
    replies: &[u8],
) -> Result<(), CloseReason> {
    let mut sealed = std::mem::take(&mut core.sealed);
    sealed.clear();
    let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
    let sent = match slot.protocol.seal_messages(replies, &core.call.message_ends, &mut sealed) {
        Ok(()) if sealed.is_empty() => Ok(()),
        Ok(()) => send_or_queue(core, key, &sealed),
        Err(error) => Err(CloseReason::Tls(error)),
    };
    core.sealed = shrunk(sealed);
    sent
}

/// Sends bytes on the connection `key`; queues those that the kernel does not accept.
fn send_or_queue<D>(
    core: &mut ReactorState<D>,
    key: ConnKey,
    bytes: &[u8],
) -> Result<(), CloseReason> {
    let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
    let mut rest = bytes;
    let waits = ConnFlags::CONNECTING.union(ConnFlags::SEND_BLOCKED);
    if slot.protocol.unsent_bytes().is_empty() && !slot.flags.intersects(waits) {
        let sent_bytes = socket::send(slot.fd.as_fd(), rest)
            .map_err(|errno| CloseReason::Reset(errno.into()))?;
        stage::record_sent(sent_bytes);
        core.stats.sends_count += u64::from(sent_bytes > 0);
        core.stats.sent_bytes += sent_bytes as u64;
        rest = &rest[sent_bytes..];
        if rest.is_empty() {
            return Ok(());
        }
        slot.flags.insert(ConnFlags::SEND_BLOCKED);
        core.stats.delayed_count += 1;
    }
    if let Some(crossing) = slot.protocol.queue_bytes(rest, &core.limits, core.now_ns)? {
        slot.flags.insert(ConnFlags::ABOVE_HIGH_WATER);
        core.pending_crossings.push((key, crossing));
    }
    Ok(())
}
