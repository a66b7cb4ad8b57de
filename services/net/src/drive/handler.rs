//! Trait that a program implements to handle its connections.

use super::conn::{Conn, Connections};
use super::slab::ConnKey;
use crate::CloseReason;
use crate::engine::{Codec, WaterMarkCrossing};

/// Event handler of a program's connections, accepted and outgoing. Each thread has a handler of
/// its own, so that handlers need no locks.
///
/// A call that panics closes the connection it was made for; the thread goes on.
pub trait Handler: Send + 'static {
    /// Codec that splits the byte stream into messages.
    type Codec: Codec;
    /// Type of the program's data for each connection.
    type Data: Default + Send + 'static;

    /// Called when a connection was accepted and its TLS handshake, if any, is done.
    fn on_accept(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// Called when an outgoing connection is established and its TLS handshake, if any, is done.
    fn on_connect(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// Called with each complete message. Replies that the call sends on the same connection are
    /// sent together with the replies to all messages of the same read.
    fn on_message(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>, message: &[u8]);

    /// Called when the send queue has crossed a water mark. Above the high mark, no further
    /// messages of this connection are delivered until the queue has drained to the low mark.
    fn on_crossing(
        &mut self,
        conn: &mut Conn<'_, Self::Codec, Self::Data>,
        crossing: WaterMarkCrossing,
    ) {
        let _ = (conn, crossing);
    }

    /// Called after [`ConnHandle::trigger`](crate::ConnHandle::trigger); several triggers may be
    /// merged into one call.
    fn on_trigger(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// Called once for each connection that was closed, accepted or outgoing. If connecting or the
    /// TLS handshake failed, no other method was called for the connection before.
    fn on_close(
        &mut self,
        connections: &mut Connections<'_, Self::Codec, Self::Data>,
        key: ConnKey,
        data: Self::Data,
        why: &CloseReason,
    ) {
        let _ = (connections, key, data, why);
    }

    /// Called after another method of this handler panicked, with the panic's message. The
    /// handler's state is as the panic left it.
    fn on_panic(&mut self, message: &str) {
        let _ = message;
    }

    /// Called periodically, every `housekeep_interval`.
    fn housekeep(&mut self, connections: &mut Connections<'_, Self::Codec, Self::Data>) {
        let _ = connections;
    }
}
