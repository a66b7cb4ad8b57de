//! A connection's turn: what waits is sent, one read is taken, its messages are handled, and all replies
//! go out together.

use super::{REPLIES_KEPT_BYTES, Reactor, socket};
use crate::CloseReason;
use crate::drive::conn::Conn;
use crate::drive::core::Core;
use crate::drive::handler::Handler;
use crate::drive::slab::{Flags, Key};
use crate::engine::{Crossing, Taken};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Nothing is read while any of these holds.
const NOT_READ: Flags =
    Flags::SUSPENDED.or(Flags::ABOVE).or(Flags::CLOSING).or(Flags::CONNECTING).or(Flags::ABORTED);
/// How many reads of what nobody wants any more make a turn.
const DISCARDS_MAX: u32 = 16;

impl<H: Handler> Reactor<H> {
    /// Gives a connection its turn.
    pub(super) fn serve(&mut self, key: Key) {
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        slot.flags.clear(Flags::LISTED);
        if slot.flags.any(Flags::CONNECTING) && !self.has_connected(key) {
            return;
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        if slot.flags.any(Flags::TRIGGERED) {
            slot.flags.clear(Flags::TRIGGERED);
            self.call(key, |handler, conn| handler.on_trigger(conn));
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        if slot.flags.any(Flags::WRITABLE.or(Flags::DIRTY)) {
            if slot.flags.any(Flags::WRITABLE) {
                slot.flags.clear(Flags::CLOGGED.or(Flags::WRITABLE));
            }
            slot.flags.clear(Flags::DIRTY);
            if let Err(why) = self.flush(key) {
                return self.close(key, &why);
            }
        }
        if let Err(why) = self.read(key) {
            return self.close(key, &why);
        }
        self.after(key);
    }

    /// Whether a connection that was being made is there now. If it failed, it is closed.
    fn has_connected(&mut self, key: Key) -> bool {
        let Some(slot) = self.core.slab.get_mut(key) else { return false };
        if !slot.flags.any(Flags::WRITABLE) {
            return false;
        }
        if let Err(errno) = socket::connected(slot.fd.as_fd()) {
            self.close(key, &CloseReason::Unconnected(errno));
            return false;
        }
        slot.flags.clear(Flags::CONNECTING.or(Flags::WRITABLE));
        slot.flags.set(Flags::DIRTY);
        let now_ms = self.core.now_ms();
        if let Some(slot) = self.core.slab.get_mut(key) {
            slot.active_ms = now_ms;
        }
        self.core.stats.connected_count += 1;
        self.call(key, |handler, conn| handler.on_connect(conn));
        true
    }

    /// One read and what follows from it.
    fn read(&mut self, key: Key) -> Result<(), CloseReason> {
        let now_ms = self.core.now_ms();
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        if slot.flags.any(Flags::LINGERING) {
            return self.discard(key);
        }
        let has_backlog = slot.flags.any(Flags::BACKLOG);
        if slot.flags.any(NOT_READ) || !(has_backlog || slot.flags.any(Flags::READABLE)) {
            return Ok(());
        }
        let mut bytes_count = 0;
        if !has_backlog {
            match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                Ok(0) => return self.peer_ended(key),
                Ok(count) => bytes_count = count,
                Err(Errno::AGAIN) => {
                    slot.flags.clear(Flags::READABLE);
                    return Ok(());
                }
                Err(errno) => return Err(CloseReason::Reset(errno)),
            }
            slot.active_ms = now_ms;
            // Less than was asked for is all there was. What comes later makes an edge of its own.
            if bytes_count < self.buffer.len() && !slot.flags.any(Flags::HUNG_UP) {
                slot.flags.clear(Flags::READABLE);
            }
            self.core.stats.reads_count += 1;
            self.core.stats.read_bytes += bytes_count as u64;
        }
        self.hand_over(key, bytes_count)
    }

    /// Hands over the messages in the first bytes of the buffer, behind what was left of earlier ones.
    fn hand_over(&mut self, key: Key, bytes_count: usize) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        let is_last = slot.flags.any(Flags::LAST);
        let mut link = std::mem::take(&mut slot.link);
        self.core.begin(key, link.queued_bytes());
        let Self { core, codec, handler, buffer, .. } = self;
        let now_ns = core.now_ns;
        let bytes = &buffer[..bytes_count];
        let handed = catch_unwind(AssertUnwindSafe(|| {
            link.receive(bytes, codec, now_ns, |message| {
                handler.on_message(&mut Conn { core, codec, key }, message);
                let enough = core.turn.halt || core.turn.replies.len() >= core.rules.high_bytes;
                match enough || is_last {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
        }));
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        slot.link = link;
        let taken = match handed {
            Ok(taken) => taken,
            Err(panic) => {
                self.panicked(key, panic.as_ref());
                return Ok(());
            }
        };
        let stopped = matches!(taken, Ok(Taken { stopped: true, .. }));
        slot.flags.clear(Flags::BACKLOG);
        if stopped {
            slot.flags.set(Flags::BACKLOG);
        }
        if let Ok(taken) = taken {
            self.core.stats.messages_count += taken.messages_count;
            if is_last && taken.messages_count > 0 {
                slot.flags.set(Flags::CLOSING);
            }
        }
        self.reply(key);
        taken.map(drop).map_err(CloseReason::Broken)
    }

    /// Sends what the handler wrote; what the kernel does not take will wait.
    pub(super) fn reply(&mut self, key: Key) {
        let core = &mut self.core;
        core.turn.key = None;
        if let Some(overflow) = core.turn.overflow.take() {
            core.turn.replies.clear();
            return self.close(key, &overflow.into());
        }
        if core.turn.replies.is_empty() {
            return;
        }
        let mut replies = std::mem::take(&mut core.turn.replies);
        let sent = send_or_queue(core, key, &replies);
        replies.clear();
        if replies.capacity() > REPLIES_KEPT_BYTES {
            replies.shrink_to(REPLIES_KEPT_BYTES);
        }
        core.turn.replies = replies;
        if let Err(why) = sent {
            self.close(key, &why);
        }
    }

    /// Sends what waits, as far as the kernel takes it.
    fn flush(&mut self, key: Key) -> Result<(), CloseReason> {
        let core = &mut self.core;
        let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
        let waiting = slot.link.waiting();
        if waiting.is_empty() || slot.flags.any(Flags::CLOGGED.or(Flags::CONNECTING)) {
            return Ok(());
        }
        let sent_bytes = socket::send(slot.fd.as_fd(), waiting).map_err(CloseReason::Reset)?;
        if sent_bytes < waiting.len() {
            slot.flags.set(Flags::CLOGGED);
            core.stats.delayed_count += 1;
        }
        core.stats.sends_count += u64::from(sent_bytes > 0);
        core.stats.sent_bytes += sent_bytes as u64;
        if let Some(Crossing::Low) = slot.link.sent(sent_bytes, &core.rules, core.now_ns) {
            slot.flags.clear(Flags::ABOVE);
            core.crossed.push((key, Crossing::Low));
        }
        Ok(())
    }

    /// The peer sends nothing more; what waits for it is sent nevertheless.
    fn peer_ended(&mut self, key: Key) -> Result<(), CloseReason> {
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        slot.link.receive_end()?;
        slot.flags.clear(Flags::READABLE);
        slot.flags.set(Flags::ENDED.or(Flags::CLOSING));
        Ok(())
    }

    /// Reads what nobody wants any more, until the peer ends.
    fn discard(&mut self, key: Key) -> Result<(), CloseReason> {
        let our_reason = self.our_reason();
        let Some(slot) = self.core.slab.get_mut(key) else { return Ok(()) };
        for _ in 0..DISCARDS_MAX {
            match socket::read(slot.fd.as_fd(), &mut self.buffer) {
                Ok(0) => return Err(our_reason),
                Ok(_) => {}
                Err(Errno::AGAIN) => {
                    slot.flags.clear(Flags::READABLE);
                    return Ok(());
                }
                Err(_) => return Err(our_reason),
            }
        }
        Ok(())
    }

    /// After a turn: whether there is another, until when, or whether it was the last.
    pub(super) fn after(&mut self, key: Key) {
        let stopping = self.core.stopping;
        let our_reason = self.our_reason();
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        let flags = slot.flags;
        let more = Flags::READABLE.or(Flags::BACKLOG);
        if stopping && !flags.any(more.or(Flags::CLOSING).or(Flags::LINGERING)) {
            // All that has come is handed over, but perhaps for the beginning of a message.
            match slot.link.pending_bytes() {
                0 => slot.flags.set(Flags::CLOSING),
                _ => slot.flags.set(Flags::LAST),
            }
        }
        let flags = slot.flags;
        if flags.any(Flags::CLOSING) && !flags.any(Flags::LINGERING.or(Flags::CONNECTING)) {
            if slot.link.queued_bytes() == 0 {
                if flags.any(Flags::ENDED) {
                    return self.close(key, &CloseReason::Peer);
                }
                socket::end(slot.fd.as_fd());
                // What it still sends is read and forgotten: closing over it would reset the connection,
                // and take from the peer what it has not read yet.
                slot.link = Default::default();
                slot.flags.set(Flags::LINGERING.or(Flags::READABLE));
                let now_ms = self.core.now_ms();
                if let Some(slot) = self.core.slab.get_mut(key) {
                    slot.active_ms = now_ms;
                }
                if let Err(why) = self.discard(key) {
                    return self.close(key, &why);
                }
            }
        } else if flags.any(Flags::CLOSING.or(Flags::ABORTED)) && flags.any(Flags::CONNECTING) {
            return self.close(key, &our_reason);
        }
        let Some(slot) = self.core.slab.get_mut(key) else { return };
        let flags = slot.flags;
        let is_again = match flags.any(Flags::LINGERING) {
            true => flags.any(Flags::READABLE),
            false => flags.any(more) && !flags.any(NOT_READ),
        };
        if is_again || flags.any(Flags::DIRTY) && !flags.any(Flags::CLOGGED.or(Flags::CONNECTING)) {
            self.core.list(key);
        }
        let Some(slot) = self.core.slab.get(key) else { return };
        if !slot.link.is_idle() || slot.flags.any(Flags::LINGERING) {
            self.core.arm(key);
        }
    }
}

fn send_or_queue<D>(core: &mut Core<D>, key: Key, replies: &[u8]) -> Result<(), CloseReason> {
    let Some(slot) = core.slab.get_mut(key) else { return Ok(()) };
    let mut rest = replies;
    let waits = Flags::CONNECTING.or(Flags::CLOGGED);
    if slot.link.queued_bytes() == 0 && !slot.flags.any(waits) {
        let sent_bytes = socket::send(slot.fd.as_fd(), rest).map_err(CloseReason::Reset)?;
        core.stats.sends_count += u64::from(sent_bytes > 0);
        core.stats.sent_bytes += sent_bytes as u64;
        rest = &rest[sent_bytes..];
        if rest.is_empty() {
            return Ok(());
        }
        slot.flags.set(Flags::CLOGGED);
        core.stats.delayed_count += 1;
    }
    if let Some(crossing) = slot.link.queue(rest, &core.rules, core.now_ns)? {
        slot.flags.set(Flags::ABOVE);
        core.crossed.push((key, crossing));
    }
    Ok(())
}
