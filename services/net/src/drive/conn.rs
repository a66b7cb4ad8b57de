//! What a handler may do while it is called.

use super::core::Core;
use super::endpoint::Dial;
use super::inbox::Handle;
use super::slab::{Flags, Key};
use super::socket;
use crate::engine::Codec;
use crate::tls::Session;
use crate::{CloseReason, NetError, Stats, WriteError};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The connection that a handler is called for.
pub struct Conn<'a, C, D> {
    pub(crate) core: &'a mut Core<D>,
    pub(crate) codec: &'a C,
    pub(crate) key: Key,
    pub(crate) came: Came<'a>,
}

/// What was read of a connection, and the message in it that its handler is called for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) message: &'a [u8],
    /// Where that stands, with its frame: from, to. Nowhere if it had begun before these bytes.
    pub(crate) frame: (usize, usize),
}

impl<C: Codec, D> Conn<'_, C, D> {
    /// Which connection of this thread it is.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// What the program keeps with it.
    ///
    /// # Panics
    /// Never: the connection is there while its handler is called.
    pub fn data(&mut self) -> &mut D {
        let slot = self.core.slab.get_mut(self.key);
        &mut slot.expect("the connection is there while its handler is called").data
    }

    /// Frames a message and sends it, together with all other replies to what was read with it.
    ///
    /// # Errors
    /// [`WriteError`]; nothing of it is sent then.
    ///
    /// # Cost
    /// A copy of the message. Where it is the very message that the handler is called for, and
    /// [`Codec::IS_EXACT`], none: it is sent from where it was read.
    #[inline(always)]
    pub fn send(&mut self, message: &[u8]) -> Result<(), WriteError> {
        // By value: what is handed on by reference would have to be in memory for each message.
        let (codec, came) = (self.codec, self.came);
        let (from, to) = came.frame;
        if C::IS_EXACT && std::ptr::eq(came.message, message) && from < to {
            debug_assert!(is_exact(codec, message, &came.bytes[from..to]), "it is not exact");
            return self.core.reply_as_it_came(came.bytes, from..to);
        }
        self.core.reply_anew(codec, came.bytes, message)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// [`WriteError`]; nothing of it is sent then.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.core.reply_with(self.came.bytes, |out| {
            out.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Closes it when what waits is sent, and the peer has ended too or had `linger_ms` to read it. No
    /// further message of it comes.
    pub fn close(&mut self) {
        let key = self.key;
        self.room().close(key);
    }

    /// Closes it at once; what waits is lost.
    pub fn abort(&mut self) {
        let key = self.key;
        self.room().abort(key);
    }

    /// Reads nothing more from it until it is resumed: messages that have come already wait, and the
    /// peer will have to.
    pub fn suspend(&mut self) {
        let key = self.key;
        self.room().suspend(key);
    }

    /// Reads from it again.
    pub fn resume(&mut self) {
        let key = self.key;
        self.room().resume(key);
    }

    /// A handle to it for other threads, and for later.
    #[must_use]
    pub fn handle(&self) -> Handle<D> {
        Handle { inbox: Arc::clone(&self.core.inbox), key: self.key }
    }

    /// Who is at the other end; None where the kernel does not know any more.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        let slot = self.core.slab.get(self.key)?;
        socket::peer(slot.fd.as_fd()).ok()
    }

    /// What its TLS handshake has come to; None where it speaks in the clear.
    #[must_use]
    pub fn session(&self) -> Option<Session<'_>> {
        self.core.slab.get(self.key)?.link.tls().map(Session::new)
    }

    /// The thread's other connections.
    pub fn room(&mut self) -> Room<'_, C, D> {
        // Who may write to this one by its key knows nothing of what came.
        let _ = self.core.turn.replies.written(self.came.bytes);
        Room { core: self.core, codec: self.codec }
    }
}

/// Whether the codec writes that message as it came.
fn is_exact<C: Codec>(codec: &C, message: &[u8], frame: &[u8]) -> bool {
    let mut written = Vec::new();
    codec.encode(message, &mut written).is_ok() && written == frame
}

/// The connections of a thread.
pub struct Room<'a, C, D> {
    pub(crate) core: &'a mut Core<D>,
    pub(crate) codec: &'a C,
}

impl<C: Codec, D> Room<'_, C, D> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.core.slab.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every connection.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.core.slab.places_count()).filter_map(|place| self.core.slab.key_at(place))
    }

    /// What the program keeps with that connection, if it is there.
    pub fn data(&mut self, key: Key) -> Option<&mut D> {
        self.core.slab.get_mut(key).map(|slot| &mut slot.data)
    }

    /// Frames a message and sends it to that connection, at the end of this round.
    ///
    /// # Errors
    /// [`WriteError`]; nothing of it is sent then.
    pub fn send(&mut self, key: Key, message: &[u8]) -> Result<(), WriteError> {
        let codec = self.codec;
        self.core.write_with(key, |out| Ok(codec.encode(message, out)?))
    }

    /// Closes it, as [`Conn::close`].
    pub fn close(&mut self, key: Key) {
        if let Some(slot) = self.core.slab.get_mut(key) {
            slot.flags.set(Flags::CLOSING);
            self.core.list(key);
        }
        if self.core.turn.key == Some(key) {
            self.core.turn.is_enough = true;
            self.core.turn.is_open = false;
        }
    }

    /// Closes it at once, as [`Conn::abort`].
    pub fn abort(&mut self, key: Key) {
        self.core.doom(key, CloseReason::Ours);
    }

    /// As [`Conn::suspend`].
    pub fn suspend(&mut self, key: Key) {
        if let Some(slot) = self.core.slab.get_mut(key) {
            slot.flags.set(Flags::SUSPENDED);
        }
        if self.core.turn.key == Some(key) {
            self.core.turn.is_enough = true;
        }
    }

    /// As [`Conn::resume`].
    pub fn resume(&mut self, key: Key) {
        let now_ms = self.core.now_ms();
        if let Some(slot) = self.core.slab.get_mut(key) {
            if slot.flags.any(Flags::SUSPENDED) {
                slot.flags.clear(Flags::SUSPENDED);
                slot.link.read_again(self.core.now_ns);
                slot.active_ms = now_ms;
            }
            self.core.list(key);
        }
    }

    /// Connects to that address; [`Handler::on_connect`](crate::Handler::on_connect) or
    /// [`Handler::on_close`](crate::Handler::on_close) tells how it went.
    ///
    /// # Errors
    /// [`NetError`] when it could not even be tried.
    pub fn connect(&mut self, address: SocketAddr, data: D) -> Result<Key, NetError> {
        self.dial(Dial::to(address), data)
    }

    /// As [`connect`](Self::connect), from an address of ours or by TLS.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn dial(&mut self, dial: Dial, data: D) -> Result<Key, NetError> {
        self.core.dial(&dial, data).map_err(|(error, _)| error)
    }

    /// What this thread has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats
    }
}
