//! The sockets of a thread, by their edges: one trait, and who implements it.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use super::slab::Key;
use crate::Backend;
use rustix::event::epoll::EventFlags as Flags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Whose readiness it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Connection(Key),
    Listener(u16),
    /// Another thread has a command.
    Wake,
}

/// Places from here on are no connections'.
const SPECIAL: u32 = u32::MAX - 0x1_0000;

impl Whose {
    fn pack(self) -> u64 {
        let (place, generation) = match self {
            Self::Connection(key) => (key.place, key.generation),
            Self::Listener(index) => (SPECIAL + u32::from(index), 0),
            Self::Wake => (u32::MAX, 0),
        };
        u64::from(generation) << 32 | u64::from(place)
    }

    fn unpack(packed: u64) -> Self {
        // Each part is cut to its own width.
        match packed as u32 {
            u32::MAX => Self::Wake,
            place if place >= SPECIAL => Self::Listener((place - SPECIAL) as u16),
            place => Self::Connection(Key { place, generation: (packed >> 32) as u32 }),
        }
    }
}

/// What the kernel says of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) hung_up: bool,
    /// Nothing more of it will be told until it is added once more.
    pub(crate) lapsed: bool,
}

/// Whoever knows which sockets are ready.
trait Watch: Sized {
    /// Nothing is watched yet; so many are told of at a time at most.
    fn new(ready_max: usize) -> Result<Self, Errno>;

    /// Watches it, once and for all: each edge of these is told.
    fn add(&mut self, fd: BorrowedFd<'_>, whose: Whose, flags: Flags) -> Result<(), Errno>;

    /// It is about to be closed.
    fn remove(&mut self, whose: Whose);

    /// Asks who is ready; `None` waits for ever. How many there were.
    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(Whose, Told),
    ) -> Result<usize, Errno>;
}

/// That of a thread.
pub(crate) enum Poll {
    Epoll(epoll::Set),
    #[cfg(feature = "io-uring")]
    Uring(Box<uring::Uring>),
}

impl Poll {
    pub(crate) fn new(backend: Backend, ready_max: u32) -> Result<Self, Errno> {
        let ready_max = ready_max as usize;
        Ok(match backend {
            Backend::Epoll => Self::Epoll(Watch::new(ready_max)?),
            #[cfg(feature = "io-uring")]
            Backend::Uring => Self::Uring(Box::new(Watch::new(ready_max)?)),
        })
    }

    /// Once and for all: by its edges, a connection need not be told about again.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, whose: Whose) -> Result<(), Errno> {
        let flags = match whose {
            Whose::Connection(_) => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
            Whose::Listener(_) | Whose::Wake => Flags::IN | Flags::ET,
        };
        match self {
            Self::Epoll(set) => set.add(fd, whose, flags),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => ring.add(fd, whose, flags),
        }
    }

    /// It is about to be closed.
    pub(crate) fn remove(&mut self, whose: Whose) {
        match self {
            Self::Epoll(set) => set.remove(whose),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => ring.remove(whose),
        }
    }

    /// Asks the kernel what is ready; `None` waits for ever. How many there were.
    pub(crate) fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(Whose, Told),
    ) -> Result<usize, Errno> {
        match self {
            Self::Epoll(set) => set.wait(timeout_ns, each),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => ring.wait(timeout_ns, each),
        }
    }
}

fn told(flags: Flags) -> Told {
    Told {
        readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
        writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
        hung_up: flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR),
        lapsed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ready_comes_back_as_it_was() {
        for whose in [
            Whose::Wake,
            Whose::Listener(0),
            Whose::Listener(u16::MAX - 1),
            Whose::Connection(Key { place: 0, generation: 0 }),
            Whose::Connection(Key { place: SPECIAL - 1, generation: u32::MAX }),
        ] {
            assert_eq!(Whose::unpack(whose.pack()), whose);
        }
    }
}
