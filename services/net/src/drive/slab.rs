//! State of a thread's connections: at most 64 bytes each.

use crate::engine::{Permit, ProtocolState};
use handover_base::slab::{self, Slab};
use handover_timer::TimerId;
use std::os::fd::OwnedFd;

/// Key of a connection, unique in its thread. A key is not reused until the 32-bit generation of
/// its slot wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl From<slab::Key> for ConnKey {
    #[inline]
    fn from(slab::Key { index, generation }: slab::Key) -> Self {
        Self { index, generation }
    }
}

impl From<ConnKey> for slab::Key {
    #[inline]
    fn from(ConnKey { index, generation }: ConnKey) -> Self {
        Self { index, generation }
    }
}

/// State that a thread keeps for one connection.
pub(crate) struct ConnSlot<D> {
    pub(crate) fd: OwnedFd,
    /// Time, in ms, of the latest received byte or change of state. It wraps around every 49 days.
    pub(crate) active_ms: u32,
    pub(crate) permit: Permit,
    pub(crate) flags: ConnFlags,
    pub(crate) timer: Option<TimerId>,
    pub(crate) protocol: ProtocolState,
    pub(crate) data: D,
}

/// Set of state bits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnFlags(u32);

impl ConnFlags {
    /// The socket may have bytes to read.
    pub(crate) const READABLE: Self = Self(1);
    /// The connection is in the queue of connections to be served.
    pub(crate) const QUEUED: Self = Self(1 << 1);
    /// The connection is not established yet.
    pub(crate) const CONNECTING: Self = Self(1 << 2);
    /// The peer has closed its end, or the socket has an error. The connection is read until a read
    /// returns the end or the error.
    pub(crate) const HUNG_UP: Self = Self(1 << 3);
    /// The connection is to be closed when all queued bytes are sent.
    pub(crate) const CLOSING: Self = Self(1 << 4);
    /// This program has shut down its sending direction and waits for the peer to close the
    /// connection.
    pub(crate) const LINGERING: Self = Self(1 << 5);
    /// The program has suspended reading of the connection.
    pub(crate) const SUSPENDED: Self = Self(1 << 6);
    /// The send queue has risen above the high-water mark and not drained to the low-water mark
    /// since.
    pub(crate) const ABOVE_HIGH_WATER: Self = Self(1 << 7);
    /// Bytes were read whose messages have not been delivered yet.
    pub(crate) const BACKLOG: Self = Self(1 << 8);
    /// The socket may have space to send again.
    pub(crate) const WRITABLE: Self = Self(1 << 9);
    /// Bytes were queued for sending, and the thread has not tried to send them yet.
    pub(crate) const UNSENT: Self = Self(1 << 10);
    /// The connection is to be closed at once; queued bytes are lost.
    pub(crate) const ABORTED: Self = Self(1 << 11);
    /// A trigger is pending, so `on_trigger` is to be called.
    pub(crate) const TRIGGERED: Self = Self(1 << 12);
    /// A read has returned the end of the peer's stream.
    pub(crate) const PEER_ENDED: Self = Self(1 << 13);
    /// The thread is stopping, so the next message is the last to be delivered.
    pub(crate) const LAST_MESSAGE: Self = Self(1 << 15);
    /// The TLS handshake is not complete.
    pub(crate) const HANDSHAKING: Self = Self(1 << 16);
    /// The connection was initiated by this program.
    pub(crate) const OUTGOING: Self = Self(1 << 17);
    /// The peer has sent TLS's `close_notify`.
    pub(crate) const CLOSE_NOTIFIED: Self = Self(1 << 18);
    /// A read may return before the socket is empty: at the mark of urgent data of TCP, or after
    /// bytes that carry a descriptor over a Unix socket. The connection is read until a read finds
    /// nothing.
    pub(crate) const STOPS_SHORT: Self = Self(1 << 19);
    /// The kernel accepted fewer bytes than offered, and will report when it has space.
    pub(crate) const SEND_BLOCKED: Self = Self(1 << 14);

    /// Flags that each forbid reading a connection after the TLS handshake, if it uses TLS.
    pub(crate) const READ_BLOCKERS: Self = Self::SUSPENDED
        .union(Self::ABOVE_HIGH_WATER)
        .union(Self::CLOSING)
        .union(Self::CONNECTING)
        .union(Self::ABORTED);
    /// Flags that each forbid reading during the TLS handshake. The handshake continues even if the
    /// program has suspended or closed the connection.
    const HANDSHAKE_BLOCKERS: Self = Self::CONNECTING.union(Self::ABORTED);

    /// Returns `true` if the connection must not be read now.
    pub(crate) fn is_read_blocked(self) -> bool {
        self.intersects(match self.intersects(Self::HANDSHAKING) {
            true => Self::HANDSHAKE_BLOCKERS,
            false => Self::READ_BLOCKERS,
        })
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Returns the number of bytes that a thread needs for an idle connection without TLS. `D` is the
/// program's data for each connection.
#[must_use]
pub const fn idle_connection_bytes<D>() -> usize {
    Slab::<ConnSlot<D>>::ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_with_8_bytes_of_data_takes_at_most_64_bytes() {
        assert!(idle_connection_bytes::<u64>() <= 64, "{} bytes", idle_connection_bytes::<u64>());
        assert!(idle_connection_bytes::<()>() <= 48, "{} bytes", idle_connection_bytes::<()>());
    }
}
