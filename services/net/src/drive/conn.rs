//! Operations that a handler can perform on connections while it is called.

use super::core::ReactorState;
use super::endpoint::ConnectOptions;
use super::inbox::ConnHandle;
use super::slab::{ConnFlags, ConnKey};
use super::socket;
use crate::engine::Codec;
use crate::tls::Session;
use crate::{CloseReason, NetError, Stats, WriteError};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Access to the connection that a handler is called for.
pub struct Conn<'a, C, D> {
    pub(crate) core: &'a mut ReactorState<D>,
    pub(crate) codec: &'a C,
    pub(crate) key: ConnKey,
    pub(crate) received: ReceivedBytes<'a>,
}

/// Bytes that the latest read of a connection returned. One message in them is being handled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceivedBytes<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) message: &'a [u8],
    /// Range of the framed message in `bytes`; empty if the message began in an earlier read.
    pub(crate) frame: (usize, usize),
}

impl<C: Codec, D> Conn<'_, C, D> {
    /// Returns the key of this connection, unique in its thread.
    #[must_use]
    pub fn key(&self) -> ConnKey {
        self.key
    }

    /// Returns the program's data for this connection, mutably.
    ///
    /// # Panics
    /// Never: a connection stays in the slab while its handler runs.
    pub fn data_mut(&mut self) -> &mut D {
        let slot = self.core.slab.get_mut(self.key);
        &mut slot.expect("the connection was removed from the slab while its handler ran").data
    }

    /// Frames a message and sends it; all replies to one read are sent together.
    ///
    /// # Errors
    /// [`WriteError`]. After [`WriteError::Overflow`] or [`WriteError::Tls`] the connection is
    /// closed, and the peer may have received a part of the message; otherwise nothing of it is
    /// sent.
    ///
    /// # Cost
    /// A copy of the message; none if it is the message that the handler is called for and
    /// [`Codec::IS_EXACT`] holds: then it is sent from the read buffer.
    #[inline(always)]
    pub fn send(&mut self, message: &[u8]) -> Result<(), WriteError> {
        // By value: a reference would force both into memory for each message.
        let (codec, received) = (self.codec, self.received);
        let (from, to) = received.frame;
        if C::IS_EXACT && std::ptr::eq(received.message, message) && from < to {
            debug_assert!(
                encodes_as(codec, message, &received.bytes[from..to]),
                "Codec::IS_EXACT is true, but encode writes other bytes than decode read"
            );
            return self.core.reply_unchanged(received.bytes, from..to);
        }
        self.core.reply_encoded(codec, received.bytes, message)
    }

    /// Sends bytes without a frame; all replies to one read are sent together.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.core.reply_with(self.received.bytes, |out| {
            out.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Closes the connection once all queued bytes are sent. It then waits until the peer has
    /// closed its end or `linger` has passed. The handler gets no further message from the
    /// connection.
    pub fn close(&mut self) {
        let key = self.key;
        self.connections().close(key);
    }

    /// Closes the connection at once; queued bytes are lost.
    pub fn abort(&mut self) {
        let key = self.key;
        self.connections().abort(key);
    }

    /// Stops reading the connection until [`resume`](Self::resume). Messages that were already read
    /// wait, and TCP flow control slows the peer.
    pub fn suspend(&mut self) {
        let key = self.key;
        self.connections().suspend(key);
    }

    /// Resumes reading after [`suspend`](Self::suspend).
    pub fn resume(&mut self) {
        let key = self.key;
        self.connections().resume(key);
    }

    /// Returns a handle to this connection that any thread can use, also after the handler returns.
    #[must_use]
    pub fn handle(&self) -> ConnHandle<D> {
        ConnHandle { inbox: Arc::clone(&self.core.inbox), key: self.key }
    }

    /// Returns the peer's address; `None` if the kernel no longer knows it.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        let slot = self.core.slab.get(self.key)?;
        socket::peer_address(slot.fd.as_fd()).ok()
    }

    /// Returns the properties negotiated in the TLS handshake; `None` if the connection does not
    /// use TLS.
    #[must_use]
    pub fn tls_session(&self) -> Option<Session<'_>> {
        self.core.slab.get(self.key)?.protocol.tls().map(Session::new)
    }

    /// Returns access to all connections of this thread.
    pub fn connections(&mut self) -> Connections<'_, C, D> {
        // `Connections` can append to this connection by its key, but has no access to the bytes
        // that were read: replies that are ranges of them are copied first.
        let _ = self.core.call.replies.copied_bytes_mut(self.received.bytes);
        Connections { core: self.core, codec: self.codec }
    }
}

/// Returns `true` if `codec` encodes `message` as the bytes `frame`.
fn encodes_as<C: Codec>(codec: &C, message: &[u8], frame: &[u8]) -> bool {
    let mut written = Vec::new();
    codec.encode(message, &mut written).is_ok() && written == frame
}

/// Access to all connections of an event-loop thread, for its handler.
pub struct Connections<'a, C, D> {
    pub(crate) core: &'a mut ReactorState<D>,
    pub(crate) codec: &'a C,
}

impl<C: Codec, D> Connections<'_, C, D> {
    /// Returns the number of open connections of this thread.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.core.slab.len()
    }

    /// Returns `true` if this thread has no open connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the keys of all connections.
    pub fn keys(&self) -> impl Iterator<Item = ConnKey> + '_ {
        self.core.slab.keys().map(ConnKey::from)
    }

    /// Returns the program's data for the connection `key`, mutably; `None` if the connection is
    /// closed.
    pub fn data_mut(&mut self, key: ConnKey) -> Option<&mut D> {
        self.core.slab.get_mut(key).map(|slot| &mut slot.data)
    }

    /// Frames a message and sends it to the connection `key`. It is sent at the end of this
    /// iteration of the event loop.
    ///
    /// # Errors
    /// [`WriteError`], as for [`Conn::send`].
    pub fn send(&mut self, key: ConnKey, message: &[u8]) -> Result<(), WriteError> {
        let codec = self.codec;
        self.core.queue_write_with(key, |out| Ok(codec.encode(message, out)?))
    }

    /// Closes the connection `key` once its queued bytes are sent; see [`Conn::close`].
    pub fn close(&mut self, key: ConnKey) {
        if let Some(slot) = self.core.slab.get_mut(key) {
            slot.flags.insert(ConnFlags::CLOSING);
            self.core.enqueue_connection(key);
        }
        if self.core.call.key == Some(key) {
            self.core.call.should_stop = true;
            self.core.call.is_open = false;
        }
    }

    /// Closes the connection `key` at once; queued bytes are lost.
    pub fn abort(&mut self, key: ConnKey) {
        self.core.schedule_close(key, CloseReason::Local);
    }

    /// Stops reading the connection `key` until it is resumed; see [`Conn::suspend`].
    pub fn suspend(&mut self, key: ConnKey) {
        if let Some(slot) = self.core.slab.get_mut(key) {
            slot.flags.insert(ConnFlags::SUSPENDED);
        }
        if self.core.call.key == Some(key) {
            self.core.call.should_stop = true;
        }
    }

    /// Resumes reading the connection `key` after [`suspend`](Self::suspend).
    pub fn resume(&mut self, key: ConnKey) {
        self.core.resume_connection(key);
    }

    /// Starts to connect to an address, or as [`ConnectOptions`] say, and returns the connection's
    /// key; [`Handler::on_connect`](crate::Handler::on_connect) or
    /// [`Handler::on_close`](crate::Handler::on_close) reports the result.
    ///
    /// # Errors
    /// [`NetError`] if the attempt could not be started.
    pub fn connect(&mut self, to: impl Into<ConnectOptions>, data: D) -> Result<ConnKey, NetError> {
        self.core.connect(&to.into(), data).map_err(|(error, _)| error)
    }

    /// Returns the counters of this thread.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats
    }
}
