//! The connections of a thread, each in 64 bytes at most, in places that do not move.

use crate::engine::{Link, Seat};
use handover_timer::TimerId;
use std::os::fd::OwnedFd;

/// Which connection of a thread. A place is given to others later; a key is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

/// What a thread keeps of a connection.
pub(crate) struct Slot<D> {
    pub(crate) fd: OwnedFd,
    /// When a byte came last, in ms; wraps around every 49 days.
    pub(crate) active_ms: u32,
    pub(crate) seat: Seat,
    pub(crate) flags: Flags,
    pub(crate) timer: Option<TimerId>,
    pub(crate) link: Link,
    pub(crate) data: D,
}

/// The state of a connection, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u32);

impl Flags {
    /// The kernel may have something to read.
    pub(crate) const READABLE: Self = Self(1);
    /// It stands in the list of those that are to be served.
    pub(crate) const LISTED: Self = Self(1 << 1);
    /// Not connected yet.
    pub(crate) const CONNECTING: Self = Self(1 << 2);
    /// The peer has ended, or something is wrong: read until that is seen.
    pub(crate) const HUNG_UP: Self = Self(1 << 3);
    /// To be closed when what waits is sent.
    pub(crate) const CLOSING: Self = Self(1 << 4);
    /// We have ended, and wait for the peer to.
    pub(crate) const LINGERING: Self = Self(1 << 5);
    /// The user wants nothing read.
    pub(crate) const SUSPENDED: Self = Self(1 << 6);
    /// More waits to be sent than is good.
    pub(crate) const ABOVE: Self = Self(1 << 7);
    /// Messages have come that are not handed over.
    pub(crate) const BACKLOG: Self = Self(1 << 8);
    /// There is room to send again.
    pub(crate) const WRITABLE: Self = Self(1 << 9);
    /// Bytes were queued that nobody has tried to send.
    pub(crate) const DIRTY: Self = Self(1 << 10);
    /// Closed at once, whatever waits.
    pub(crate) const ABORTED: Self = Self(1 << 11);
    /// It asked for a call from its own thread.
    pub(crate) const TRIGGERED: Self = Self(1 << 12);
    /// The peer has ended.
    pub(crate) const ENDED: Self = Self(1 << 13);
    /// The thread is stopping: the next message is the last.
    pub(crate) const LAST: Self = Self(1 << 15);
    /// TLS's handshake is not done.
    pub(crate) const SECURING: Self = Self(1 << 16);
    /// It is we who connected.
    pub(crate) const OUTGOING: Self = Self(1 << 17);
    /// The peer has said TLS's good-bye.
    pub(crate) const PARTED: Self = Self(1 << 18);
    /// The kernel took less than it was given: it will say when there is room.
    pub(crate) const CLOGGED: Self = Self(1 << 14);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Whether any of them is set.
    pub(crate) fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

struct Entry<D> {
    generation: u32,
    slot: Option<Slot<D>>,
}

/// Entries stand in blocks of so many, so that growing moves nothing.
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

    /// How many places there are, vacant ones included.
    pub(crate) fn places_count(&self) -> u32 {
        // At most `max`, which is 32 bits.
        self.blocks
            .last()
            .map_or(0, |last| ((self.blocks.len() - 1) * BLOCK_ENTRIES + last.len()) as u32)
    }

    /// The key that the next connection will have; None when there is no room.
    pub(crate) fn next_key(&self) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        match self.vacant.last() {
            Some(&place) => Some(Key { place, generation: self.entry(place)?.generation }),
            None => Some(Key { place: self.places_count(), generation: 0 }),
        }
    }

    /// Puts a connection at its [`next_key`](Self::next_key).
    pub(crate) fn insert(&mut self, key: Key, slot: Slot<D>) {
        self.len += 1;
        if self.vacant.last() == Some(&key.place) {
            self.vacant.pop();
            if let Some(entry) = self.entry_mut(key.place) {
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
        let entry = self.entry_mut(key.place)?;
        match entry.generation == key.generation {
            true => entry.slot.as_mut(),
            false => None,
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Slot<D>> {
        let entry = self.entry(key.place)?;
        match entry.generation == key.generation {
            true => entry.slot.as_ref(),
            false => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot<D>> {
        let entry = self.entry_mut(key.place)?;
        if entry.generation != key.generation {
            return None;
        }
        let slot = entry.slot.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant.push(key.place);
        self.len -= 1;
        Some(slot)
    }

    /// Who is at that place, if anybody.
    pub(crate) fn key_at(&self, place: u32) -> Option<Key> {
        let entry = self.entry(place)?;
        entry.slot.as_ref().map(|_| Key { place, generation: entry.generation })
    }

    #[inline]
    fn entry(&self, place: u32) -> Option<&Entry<D>> {
        let place = place as usize;
        self.blocks.get(place / BLOCK_ENTRIES)?.get(place % BLOCK_ENTRIES)
    }

    #[inline]
    fn entry_mut(&mut self, place: u32) -> Option<&mut Entry<D>> {
        let place = place as usize;
        self.blocks.get_mut(place / BLOCK_ENTRIES)?.get_mut(place % BLOCK_ENTRIES)
    }
}

/// The bytes that a thread keeps for an idle connection whose user data is a `D`.
#[must_use]
pub const fn idle_bytes<D>() -> usize {
    size_of::<Entry<D>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_with_a_word_of_user_data_takes_64_bytes_at_most() {
        assert!(idle_bytes::<u64>() <= 64, "{} bytes", idle_bytes::<u64>());
        assert!(idle_bytes::<()>() <= 48, "{} bytes", idle_bytes::<()>());
    }

    #[test]
    fn a_key_is_not_taken_for_the_next_in_its_place() {
        let slot = |data| Slot {
            fd: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(),
            active_ms: 0,
            seat: Seat::NONE,
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
        assert_eq!(third.place, first.place);
        assert!(slab.get(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.get(third).map(|it| it.data), Some(3));
        assert_eq!((slab.len(), slab.places_count()), (2, 2));
    }
}
