//! State of a thread that its handler can access while it is called.

use super::endpoint::Dial;
use super::inbox::Inbox;
use super::poll::{EventSource, Poll};
use super::slab::{Flags, Key, Slot};
use super::socket;
use crate::config::ns;
use crate::engine::{Codec, Crossing, Limits, Link, Overflow, PerIpLimiter, Permit, Replies, Tls};
use crate::{CloseReason, Config, NetError, Stats, WriteError, stage};
use handover_base::slab::Slab;
use handover_timer::Wheel;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Flags that forbid further writes to a connection, if any of them is set.
const CLOSED: Flags = Flags::CLOSING.or(Flags::LINGERING).or(Flags::ABORTED);

/// Purpose of a timer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimerPurpose {
    Connection(Key),
    /// Check for idle connections, at most `SWEEP_SLOTS_MAX` slots at a time.
    Sweep,
    Housekeep,
    /// Retry of accepting, in case other parts of the process have freed descriptors.
    RetryAccept,
    /// End of normal reading after a stop: each connection gets one more message.
    LastMessages,
    /// End of the grace period after a stop: all connections are closed.
    GraceEnd,
}

pub(crate) struct Core<D> {
    pub(crate) slab: Slab<Slot<D>>,
    pub(crate) poll: Poll,
    pub(crate) wheel: Wheel<TimerPurpose>,
    /// Queue of connections and listeners to be served, each at most once.
    pub(crate) ready: VecDeque<EventSource>,
    /// Connections to be closed, with the reason.
    pub(crate) pending_closes: Vec<(Key, CloseReason)>,
    pub(crate) pending_crossings: Vec<(Key, Crossing)>,
    pub(crate) inbox: Arc<Inbox<D>>,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) limiter: PerIpLimiter,
    pub(crate) stats: Stats,
    /// Time at the beginning of this round.
    pub(crate) now_ns: u64,
    pub(crate) is_stopping: bool,
    pub(crate) turn: Turn,
    /// Buffers for opened and for sealed TLS records, reused by each connection during its turn.
    pub(crate) plain: Vec<u8>,
    pub(crate) sealed: Vec<u8>,
}

/// Capacity above which a reply buffer is shrunk after use.
pub(crate) const REPLIES_KEPT_BYTES: usize = 1 << 18;

/// State of the handler call in progress.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) key: Option<Key>,
    /// `true` while the connection can still be written to.
    pub(crate) is_open: bool,
    /// Replies so far, sent together at the end of the call.
    pub(crate) replies: Replies,
    /// End of each message in `replies`; filled only if each message is a TLS record of its own.
    pub(crate) ends: Vec<usize>,
    pub(crate) record_per_message: bool,
    /// Bytes that were queued for sending before this turn.
    pub(crate) queued_bytes: usize,
    /// Number of reply bytes above which `enforce_reply_limits` is called: the high-water mark, or
    /// the space left in the queue, or 0 if each message is a TLS record of its own.
    replies_max: usize,
    /// `true` if no further message is to be handed over in this turn.
    pub(crate) should_stop: bool,
    pub(crate) overflow: Option<Overflow>,
}

impl Turn {
    fn set_replies_max(&mut self, limits: &Limits) {
        let free_bytes = limits.queued_bytes_max.saturating_sub(self.queued_bytes);
        self.replies_max =
            if self.record_per_message { 0 } else { free_bytes.min(limits.high_bytes) };
    }

    /// Discards all replies of this turn.
    pub(crate) fn clear_replies(&mut self) {
        self.replies.clear(REPLIES_KEPT_BYTES);
        self.ends.clear();
    }
}

/// Queues a listener unless it is queued already: twice, it would accept twice as many in a round.
pub(crate) fn enqueue_listener_once(ready: &mut VecDeque<EventSource>, source: EventSource) {
    if !ready.contains(&source) {
        ready.push_back(source);
    }
}

impl<D> Core<D> {
    /// Returns the time in ms, in the width in which connections store it.
    pub(crate) fn now_ms(&self) -> u32 {
        // Truncated to 32 bits: only differences are used.
        (self.now_ns / 1_000_000) as u32
    }

    /// Prepares a handler call for the connection `key`.
    pub(crate) fn begin(&mut self, key: Key, queued_bytes: usize) {
        self.turn.key = Some(key);
        self.turn.queued_bytes = queued_bytes;
        self.turn.should_stop = false;
        let slot = self.slab.get(key);
        self.turn.is_open = slot.is_some_and(|slot| !slot.flags.any(CLOSED));
        let tls = slot.and_then(|slot| slot.link.tls());
        self.turn.record_per_message = tls.is_some_and(Tls::has_record_per_message);
        self.turn.set_replies_max(&self.limits);
    }

    /// Queues a connection to be served in this round or the next.
    pub(crate) fn enqueue(&mut self, key: Key) {
        if let Some(slot) = self.slab.get_mut(key)
            && !slot.flags.any(Flags::QUEUED)
        {
            slot.flags.set(Flags::QUEUED);
            self.ready.push_back(EventSource::Connection(key));
        }
    }

    /// Queues a listener to accept in this round or the next.
    pub(crate) fn enqueue_listener(&mut self, index: u16) {
        enqueue_listener_once(&mut self.ready, EventSource::Listener(index));
    }

    pub(crate) fn schedule_close(&mut self, key: Key, why: CloseReason) {
        if let Some(slot) = self.slab.get_mut(key)
            && !slot.flags.any(Flags::ABORTED)
        {
            slot.flags.set(Flags::ABORTED);
            self.pending_closes.push((key, why));
        }
        if self.turn.key == Some(key) {
            self.turn.should_stop = true;
            self.turn.is_open = false;
        }
    }

    /// Appends bytes to the replies of the connection that is being served; `received` is what was
    /// read of it in this turn.
    #[inline]
    pub(crate) fn reply_with(
        &mut self,
        received: &[u8],
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if !self.turn.is_open {
            return Err(WriteError::Closed);
        }
        append(self.turn.replies.written(received))?;
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

    /// Replies with the range `close_notify` of `received`, if possible without a copy.
    #[inline(always)]
    pub(crate) fn reply_unchanged(
        &mut self,
        received: &[u8],
        part: Range<usize>,
    ) -> Result<(), WriteError> {
        if self.turn.replies.extend_range(&part) {
            stage::written(&self.turn.replies);
            return Ok(());
        }
        self.begin_unchanged_range(received, part)
    }

    /// Replies with `close_notify` where it does not extend an uncopied range. Checks that the
    /// connection is open and that the queue has space for all of `received` from `close_notify`
    /// on, so that later parts need no check; every call that changes either condition copies the
    /// range first.
    #[inline(never)]
    fn begin_unchanged_range(
        &mut self,
        received: &[u8],
        part: Range<usize>,
    ) -> Result<(), WriteError> {
        let turn = &mut self.turn;
        if !turn.is_open {
            return Err(WriteError::Closed);
        }
        let written = turn.replies.written(received);
        if written.len() + (received.len() - part.start) <= turn.replies_max {
            turn.replies.push_range(received, part);
            stage::written(&turn.replies);
            return Ok(());
        }
        written.extend_from_slice(&received[part]);
        self.check_reply_limits(received)
    }

    #[inline]
    fn check_reply_limits(&mut self, received: &[u8]) -> Result<(), WriteError> {
        stage::written(&self.turn.replies);
        match self.turn.replies.len() > self.turn.replies_max {
            true => self.enforce_reply_limits(received),
            false => Ok(()),
        }
    }

    /// Handles a reply that is a TLS record of its own, or that exceeds a water mark or the limit.
    fn enforce_reply_limits(&mut self, received: &[u8]) -> Result<(), WriteError> {
        let turn = &mut self.turn;
        if turn.record_per_message {
            turn.ends.push(turn.replies.len());
        }
        if let Some(key) = turn.key
            && turn.queued_bytes + turn.replies.len() > self.limits.queued_bytes_max
        {
            self.send_early(key, received)?;
        }
        self.turn.should_stop |= self.turn.replies.len() > self.limits.high_bytes;
        Ok(())
    }

    /// Appends bytes to the send queue of the connection `key`, which may be the one being served.
    pub(crate) fn write_with(
        &mut self,
        key: Key,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.turn.key == Some(key) {
            // Replies that are ranges of the read buffer were copied before `Connections` was handed out.
            return self.reply_with(&[], append);
        }
        let slot = self.slab.get_mut(key).filter(|slot| !slot.flags.any(CLOSED));
        let Some(slot) = slot else { return Err(WriteError::Closed) };
        let mut bytes = Vec::new();
        append(&mut bytes)?;
        match slot.link.write(&bytes, &self.limits, self.now_ns) {
            Ok(crossing) => {
                slot.flags.set(Flags::UNSENT);
                if let Some(crossing) = crossing {
                    slot.flags.set(Flags::ABOVE_HIGH_WATER);
                    self.pending_crossings.push((key, crossing));
                }
                self.enqueue(key);
                Ok(())
            }
            Err(why) => {
                self.schedule_close(key, why.clone().into());
                Err(why.into())
            }
        }
    }

    /// Tries to send the replies of one read early, as the queue has no space for them.
    #[cold]
    fn send_early(&mut self, key: Key, received: &[u8]) -> Result<(), WriteError> {
        let turn = &mut self.turn;
        let replies = turn.replies.written(received);
        let Some(slot) = self.slab.get_mut(key) else { return Err(WriteError::Closed) };
        let blocked = Flags::CONNECTING.or(Flags::SEND_BLOCKED);
        if turn.queued_bytes == 0 && !slot.flags.any(blocked) {
            if slot.link.is_secured() {
                return self.seal_early(key);
            }
            // An error is reported again when the rest is sent.
            let sent_bytes = socket::send(slot.fd.as_fd(), replies).unwrap_or(0);
            replies.drain(..sent_bytes);
            self.stats.sends_count += 1;
            self.stats.sent_bytes += sent_bytes as u64;
        }
        let queued_bytes = turn.queued_bytes + turn.replies.len();
        match queued_bytes > self.limits.queued_bytes_max {
            true => Err(self.record_overflow(queued_bytes)),
            false => Ok(()),
        }
    }

    /// Seals and sends the replies of a secured connection early. All of them are copied already;
    /// sealed records cannot be taken back, so that those the kernel refuses are queued.
    fn seal_early(&mut self, key: Key) -> Result<(), WriteError> {
        let Some(slot) = self.slab.get_mut(key) else { return Err(WriteError::Closed) };
        self.sealed.clear();
        let turn = &mut self.turn;
        slot.link.seal(turn.replies.written(&[]), &turn.ends, &mut self.sealed)?;
        turn.clear_replies();
        let sealed = std::mem::take(&mut self.sealed);
        let sent_bytes = socket::send(slot.fd.as_fd(), &sealed).unwrap_or(0);
        self.stats.sends_count += 1;
        self.stats.sent_bytes += sent_bytes as u64;
        if sent_bytes < sealed.len() {
            slot.flags.set(Flags::SEND_BLOCKED);
        }
        let queued = slot.link.queue(&sealed[sent_bytes..], &self.limits, self.now_ns);
        turn.queued_bytes = slot.link.queued_bytes();
        turn.set_replies_max(&self.limits);
        self.sealed = sealed;
        match queued {
            Ok(None) => {}
            Ok(Some(crossing)) => {
                slot.flags.set(Flags::ABOVE_HIGH_WATER);
                self.pending_crossings.push((key, crossing));
            }
            Err(overflow) => return Err(self.record_overflow(overflow.queued_bytes)),
        }
        Ok(())
    }

    /// Records an overflow: the connection is closed when its handler returns.
    fn record_overflow(&mut self, queued_bytes: usize) -> WriteError {
        let queued_bytes_max = self.limits.queued_bytes_max;
        let overflow = Overflow { queued_bytes, queued_bytes_max };
        self.turn.overflow = Some(overflow);
        self.turn.should_stop = true;
        self.turn.clear_replies();
        overflow.into()
    }

    /// Adds a socket to the poll set and the slab.
    pub(crate) fn open(
        &mut self,
        fd: OwnedFd,
        permit: Permit,
        flags: Flags,
        link: Link,
        data: D,
    ) -> Result<Key, NetError> {
        let full = NetError::Full { connections_max: self.config.connections_max };
        let Some(key) = self.slab.next_key().map(Key::from) else {
            self.limiter.release(permit);
            return Err(full);
        };
        if let Err(refused) = self.poll.add(fd.as_fd(), EventSource::Connection(key)) {
            self.limiter.release(permit);
            return Err(refused.into());
        }
        let active_ms = self.now_ms();
        let slot = Slot { fd, active_ms, permit, flags, timer: None, link, data };
        // Not full: it has a next key.
        let _ = self.slab.insert(slot);
        self.adjust_open_count(1);
        Ok(key)
    }

    /// Counts one connection more or fewer, and publishes the number to threads that hand over.
    pub(crate) fn adjust_open_count(&mut self, more: i8) {
        self.stats.open_count = self.stats.open_count.wrapping_add_signed(more.into());
        self.inbox.publish_open_count(self.stats.open_count);
    }

    pub(crate) fn dial(&mut self, dial: &Dial, data: D) -> Result<Key, (NetError, D)> {
        if self.is_stopping {
            return Err((NetError::Stopping, data));
        }
        if self.slab.is_full() {
            return Err((NetError::Full { connections_max: self.config.connections_max }, data));
        }
        let (link, flags) = match dial.tls.as_deref() {
            None => (Link::default(), Flags::CONNECTING),
            Some(client) => match client.begin(self.now_ns) {
                Ok(tls) => (Link::secured(tls), Flags::CONNECTING.or(Flags::HANDSHAKING)),
                Err(error) => return Err((error.into(), data)),
            },
        };
        let fd = match socket::connect(dial.address, dial.source, &self.config) {
            Ok(fd) => fd,
            Err(refused) => return Err((refused.into(), data)),
        };
        // `is_full` returned `false` above: there is a key.
        let Some(key) = self.slab.next_key().map(Key::from) else {
            return Err((NetError::Full { connections_max: self.config.connections_max }, data));
        };
        if let Err(refused) = self.poll.add(fd.as_fd(), EventSource::Connection(key)) {
            return Err((refused.into(), data));
        }
        let slot = Slot {
            fd,
            active_ms: self.now_ms(),
            permit: Permit::NONE,
            flags: flags.or(Flags::OUTGOING),
            timer: None,
            link,
            data,
        };
        // Not full: it has a next key.
        let _ = self.slab.insert(slot);
        self.adjust_open_count(1);
        self.arm(key);
        Ok(key)
    }

    /// Returns the rules that apply now: no message timeout while we do not read the connection.
    pub(crate) fn limits_for(&self, flags: Flags) -> Limits {
        match flags.any(Flags::SUSPENDED.or(Flags::ABOVE_HIGH_WATER)) {
            true => Limits { message_timeout_ns: 0, ..self.limits },
            false => self.limits,
        }
    }

    /// Returns the time at which the connection times out, if it has a deadline.
    pub(crate) fn deadline_ns(&self, slot: &Slot<D>) -> Option<u64> {
        let phase_ms = if slot.flags.any(Flags::CONNECTING) {
            Some(self.config.connect_timeout_ms).filter(|&ms| ms > 0)
        } else if slot.flags.any(Flags::LINGERING) {
            Some(self.config.linger_ms)
        } else {
            return slot.link.deadline_ns(&self.limits_for(slot.flags));
        };
        let since_ms = self.now_ms().wrapping_sub(slot.active_ms);
        phase_ms.map(|ms| self.now_ns + ns(ms.saturating_sub(since_ms)))
    }

    /// Starts or moves the timer of a connection that has a deadline. The timer of a connection
    /// without one is left to expire: usually there is another deadline by then.
    pub(crate) fn arm(&mut self, key: Key) {
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
