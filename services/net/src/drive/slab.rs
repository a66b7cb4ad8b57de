//! Slab of a thread's connections: at most 64 bytes each, in slots that do not move.

use crate::engine::{Link, Permit};
use handover_timer::TimerId;
use std::os::fd::OwnedFd;

/// Identifier of a connection in its thread. A slot is reused; a key is not, until the slot's
/// 32-bit generation wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// State that a thread keeps for one connection.
pub(crate) struct Slot<D> {
    pub(crate) fd: OwnedFd,
    /// Time of the latest byte received, in ms; wraps around every 49 days.
    pub(crate) active_ms: u32,
    pub(crate) permit: Permit,
    pub(crate) flags: Flags,
    pub(crate) timer: Option<TimerId>,
    pub(crate) link: Link,
    pub(crate) data: D,
}

/// State bits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u32);

impl Flags {
    /// The socket may have bytes to read.
    pub(crate) const READABLE: Self = Self(1);
    /// The connection is in the queue of connections to be served.
    pub(crate) const QUEUED: Self = Self(1 << 1);
    /// The connection is not established yet.
    pub(crate) const CONNECTING: Self = Self(1 << 2);
    /// The peer has ended its side, or the socket has an error: reading goes on until that is
    /// found.
    pub(crate) const HUNG_UP: Self = Self(1 << 3);
    /// The connection is to be closed when all queued bytes are sent.
    pub(crate) const CLOSING: Self = Self(1 << 4);
    /// We have ended our side and wait for the peer to end its own.
    pub(crate) const LINGERING: Self = Self(1 << 5);
    /// The program has suspended reading.
    pub(crate) const SUSPENDED: Self = Self(1 << 6);
    /// The send queue has crossed the high-water mark and is not yet down to the low one.
    pub(crate) const ABOVE_HIGH_WATER: Self = Self(1 << 7);
    /// Bytes were read whose messages are not handed over yet.
    pub(crate) const BACKLOG: Self = Self(1 << 8);
    /// The socket may have space to send again.
    pub(crate) const WRITABLE: Self = Self(1 << 9);
    /// Bytes were queued, and no attempt to send them has been made.
    pub(crate) const UNSENT: Self = Self(1 << 10);
    /// The connection is to be closed at once; queued bytes are lost.
    pub(crate) const ABORTED: Self = Self(1 << 11);
    /// A trigger is pending: `on_trigger` is to be called.
    pub(crate) const TRIGGERED: Self = Self(1 << 12);
    /// The end of the peer's side has been read.
    pub(crate) const PEER_ENDED: Self = Self(1 << 13);
    /// The thread is stopping: the next message is the last to be handed over.
    pub(crate) const LAST_MESSAGE: Self = Self(1 << 15);
    /// The TLS handshake is not done.
    pub(crate) const HANDSHAKING: Self = Self(1 << 16);
    /// The connection was made by us.
    pub(crate) const OUTGOING: Self = Self(1 << 17);
    /// The peer has sent TLS's `close_notify`.
    pub(crate) const CLOSE_NOTIFIED: Self = Self(1 << 18);
    /// The kernel took fewer bytes than offered, and will report when it has space.
    pub(crate) const SEND_BLOCKED: Self = Self(1 << 14);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Returns `true` if any bit of `other` is set.
    pub(crate) fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

struct Entry<D> {
    generation: u32,
    slot: Option<Slot<D>>,
}

/// Entries per block. Blocks do not grow, so that entries are never moved.
const BLOCK_ENTRIES: usize = 1024;

pub(crate) struct Slab<D> {
    blocks: Vec<Vec<Entry<D>>>,
    vacant: Vec<u32>,
    len: u32,
    max: u32,
}

impl<D> Slab<D> {
    pub(crate) const fn new(max: u32) -> Self {
        Self { blocks: Vec::new(), vacant: Vec::new(), len: 0, max }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.max
    }

    /// Returns the number of slots, vacant ones included.
    pub(crate) fn slots_count(&self) -> u32 {
        // At most `max`, a `u32`.
        self.blocks
            .last()
            .map_or(0, |last| ((self.blocks.len() - 1) * BLOCK_ENTRIES + last.len()) as u32)
    }

    /// Returns the key that the next connection will have; `None` if the slab is full.
    pub(crate) fn next_key(&self) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        match self.vacant.last() {
            Some(&index) => Some(Key { index, generation: self.entry(index)?.generation }),
            None => Some(Key { index: self.slots_count(), generation: 0 }),
        }
    }

    /// Inserts a connection at its [`next_key`](Self::next_key).
    pub(crate) fn insert(&mut self, key: Key, slot: Slot<D>) {
        self.len += 1;
        if self.vacant.last() == Some(&key.index) {
            self.vacant.pop();
            if let Some(entry) = self.entry_mut(key.index) {
                entry.slot = Some(slot);
            }
            return;
        }
        if self.blocks.last().is_none_or(|last| last.len() == BLOCK_ENTRIES) {
            self.blocks.push(Vec::with_capacity(BLOCK_ENTRIES));
        }
        if let Some(last) = self.blocks.last_mut() {
            last.push(Entry { generation: key.generation, slot: Some(slot) });
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Slot<D>> {
        let entry = self.entry_mut(key.index)?;
        match entry.generation == key.generation {
            true => entry.slot.as_mut(),
            false => None,
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Slot<D>> {
        let entry = self.entry(key.index)?;
        match entry.generation == key.generation {
            true => entry.slot.as_ref(),
            false => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot<D>> {
        let entry = self.entry_mut(key.index)?;
        if entry.generation != key.generation {
            return None;
        }
        let slot = entry.slot.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant.push(key.index);
        self.len -= 1;
        Some(slot)
    }

    /// Returns the key of the connection in slot `index`, if there is one.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let entry = self.entry(index)?;
        entry.slot.as_ref().map(|_| Key { index, generation: entry.generation })
    }

    #[inline]
    fn entry(&self, index: u32) -> Option<&Entry<D>> {
        let index = index as usize;
        self.blocks.get(index / BLOCK_ENTRIES)?.get(index % BLOCK_ENTRIES)
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<D>> {
        let index = index as usize;
        self.blocks.get_mut(index / BLOCK_ENTRIES)?.get_mut(index % BLOCK_ENTRIES)
    }
}

/// Returns the number of bytes that a thread keeps for an idle connection with user data `D`.
#[must_use]
pub const fn idle_bytes<D>() -> usize {
    size_of::<Entry<D>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_with_8_bytes_of_data_takes_at_most_64_bytes() {
        assert!(idle_bytes::<u64>() <= 64, "{} bytes", idle_bytes::<u64>());
        assert!(idle_bytes::<()>() <= 48, "{} bytes", idle_bytes::<()>());
    }

    #[test]
    fn stale_key_does_not_match_later_connection_in_same_slot() {
        let slot = |data| Slot {
            fd: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(),
            active_ms: 0,
            permit: Permit::NONE,
            flags: Flags::default(),
            timer: None,
            link: Link::default(),
            data,
        };
        let mut slab = Slab::new(2);
        let first = slab.next_key().unwrap();
        slab.insert(first, slot(1));
        let second = slab.next_key().unwrap();
        slab.insert(second, slot(2));
        assert_eq!(slab.next_key(), None);
        assert_eq!(slab.remove(first).map(|it| it.data), Some(1));
        let third = slab.next_key().unwrap();
        slab.insert(third, slot(3));
        assert_eq!(third.index, first.index);
        assert!(slab.get(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.get(third).map(|it| it.data), Some(3));
        assert_eq!((slab.len(), slab.slots_count()), (2, 2));
    }
}
