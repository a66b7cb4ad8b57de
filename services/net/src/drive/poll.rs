//! Edge-triggered readiness of a thread's sockets: a trait and its implementations.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use super::slab::Key;
use crate::Backend;
use crate::error::Refused;
use rustix::event::epoll::EventFlags as Flags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Source of a readiness event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Connection(Key),
    Listener(u16),
    /// The thread's own wake-up: another thread has pushed a command.
    Wake,
}

/// First place number that no connection has; listeners and the wake-up are packed from here on.
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

/// Readiness that the kernel reports for one source.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) hung_up: bool,
    /// `true` if no further events come until the source is added again.
    pub(crate) lapsed: bool,
}

/// Kernel interface that reports which sockets are ready.
trait Watch: Sized {
    /// System call of `new`.
    const CREATE: &str;
    /// System call of `add`.
    const ADD: &str;
    /// System call of `wait`.
    const WAIT: &str;

    /// Creates an empty set; one wait reports at most `ready_max` events.
    fn new(ready_max: usize) -> Result<Self, Errno>;

    /// Watches a socket: every edge of `flags` is reported until it is removed.
    fn add(&mut self, fd: BorrowedFd<'_>, whose: Whose, flags: Flags) -> Result<(), Errno>;

    /// Removes a socket that is about to be closed.
    fn remove(&mut self, whose: Whose);

    /// Waits for events, for ever if `timeout_ns` is `None`, and returns their number.
    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(Whose, Told),
    ) -> Result<usize, Errno>;
}

/// Readiness source of one thread.
pub(crate) enum Poll {
    Epoll(epoll::Set),
    #[cfg(feature = "io-uring")]
    Uring(Box<uring::Uring>),
}

impl Poll {
    pub(crate) fn new(backend: Backend, ready_max: u32) -> Result<Self, Refused> {
        fn new<W: Watch>(ready_max: u32) -> Result<W, Refused> {
            W::new(ready_max as usize).map_err(|errno| (W::CREATE, errno))
        }
        Ok(match backend {
            Backend::Epoll => Self::Epoll(new(ready_max)?),
            #[cfg(feature = "io-uring")]
            Backend::Uring => Self::Uring(Box::new(new(ready_max)?)),
        })
    }

    /// Adds a source once: with edge-triggered events, connections need no re-arming.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, whose: Whose) -> Result<(), Refused> {
        fn add<W: Watch>(
            set: &mut W,
            fd: BorrowedFd<'_>,
            whose: Whose,
            flags: Flags,
        ) -> Result<(), Refused> {
            set.add(fd, whose, flags).map_err(|errno| (W::ADD, errno))
        }
        let flags = match whose {
            Whose::Connection(_) => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
            Whose::Listener(_) | Whose::Wake => Flags::IN | Flags::ET,
        };
        match self {
            Self::Epoll(set) => add(set, fd, whose, flags),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => add(&mut **ring, fd, whose, flags),
        }
    }

    /// Removes a source that is about to be closed.
    pub(crate) fn remove(&mut self, whose: Whose) {
        match self {
            Self::Epoll(set) => set.remove(whose),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => ring.remove(whose),
        }
    }

    /// Waits for events, for ever if `timeout_ns` is `None`, and returns their number.
    pub(crate) fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(Whose, Told),
    ) -> Result<usize, Refused> {
        #[inline]
        fn wait<W: Watch>(
            set: &mut W,
            timeout_ns: Option<u64>,
            each: impl FnMut(Whose, Told),
        ) -> Result<usize, Refused> {
            set.wait(timeout_ns, each).map_err(|errno| (W::WAIT, errno))
        }
        match self {
            Self::Epoll(set) => wait(set, timeout_ns, each),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => wait(&mut **ring, timeout_ns, each),
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
    fn refused_call_is_named_as_the_backend_makes_it() {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let mut poll = Poll::new(Backend::Epoll, 1).map_err(|_| "no epoll set").unwrap();
        let mut add = || poll.add(std::os::fd::AsFd::as_fd(&file), Whose::Wake);
        assert_eq!(add(), Ok(()));
        assert_eq!(add(), Err(("epoll_ctl", Errno::EXIST)));
    }

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
