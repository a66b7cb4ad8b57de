//! What a program does with its connections.

use super::conn::{Conn, Room};
use super::slab::Key;
use crate::CloseReason;
use crate::engine::{Codec, Crossing};

/// What a program does with its connections, those that it accepts and those that it makes. Each thread
/// has a handler of its own, so that nothing in it needs a lock.
///
/// A call that panics closes the connection that it was for, and the thread goes on.
pub trait Handler: Send + 'static {
    /// How bytes become messages.
    type Codec: Codec;
    /// What is kept with each connection.
    type Data: Default + Send + 'static;

    /// A peer has connected, and TLS's handshake, where there is one, is done.
    fn on_accept(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// We have connected, and TLS's handshake, where there is one, is done.
    fn on_connect(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// A message has come, whole. What is written to the same connection meanwhile goes out together
    /// with the replies to all that was read with it.
    fn on_message(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>, message: &[u8]);

    /// A water mark was crossed. Above the high one, no further messages of this connection come until
    /// it is below the low one.
    fn on_crossing(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>, crossing: Crossing) {
        let _ = (conn, crossing);
    }

    /// Somebody called [`Handle::trigger`](crate::Handle::trigger). Several calls may come as one.
    fn on_trigger(&mut self, conn: &mut Conn<'_, Self::Codec, Self::Data>) {
        let _ = conn;
    }

    /// A connection is closed; each that was accepted, or that we asked for, once. Where it was not made,
    /// or TLS's handshake came to no good end, there was no other call for it before.
    fn on_close(
        &mut self,
        room: &mut Room<'_, Self::Codec, Self::Data>,
        key: Key,
        data: Self::Data,
        why: &CloseReason,
    ) {
        let _ = (room, key, data, why);
    }

    /// A call of this handler panicked, with this message. The handler is left as the panic left it.
    fn on_panic(&mut self, message: &str) {
        let _ = message;
    }

    /// Every `housekeep_ms`.
    fn housekeep(&mut self, room: &mut Room<'_, Self::Codec, Self::Data>) {
        let _ = room;
    }
}
