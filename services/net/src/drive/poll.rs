//! Edge-triggered readiness of a thread's sockets: a trait and its implementations.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use super::slab::Key;
use crate::Backend;
use crate::error::FailedCall;
use rustix::event::epoll::EventFlags as Flags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Source of a readiness event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    Connection(Key),
    Listener(u16),
    /// The thread's own wake-up: another thread has pushed a command.
    Wake,
}

/// First index that no connection has; listeners and the wake-up are packed from here on.
const RESERVED_INDEX_MIN: u32 = u32::MAX - 0x1_0000;

impl EventSource {
    fn pack(self) -> u64 {
        let (index, generation) = match self {
            Self::Connection(key) => (key.index, key.generation),
            Self::Listener(index) => (RESERVED_INDEX_MIN + u32::from(index), 0),
            Self::Wake => (u32::MAX, 0),
        };
        u64::from(generation) << 32 | u64::from(index)
    }

    fn unpack(packed: u64) -> Self {
        // Each part is cut to its own width.
        match packed as u32 {
            u32::MAX => Self::Wake,
            index if index >= RESERVED_INDEX_MIN => {
                Self::Listener((index - RESERVED_INDEX_MIN) as u16)
            }
            index => Self::Connection(Key { index, generation: (packed >> 32) as u32 }),
        }
    }
}

/// Readiness that the kernel reports for one source.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    pub(crate) is_hung_up: bool,
    /// `true` if no further events come until the source is added again.
    pub(crate) is_disarmed: bool,
}

/// Kernel interface that reports which sockets are ready.
trait PollBackend: Sized {
    /// System call of `new`.
    const CREATE: &str;
    /// System call of `add`.
    const ADD: &str;
    /// System call of `wait`.
    const WAIT: &str;

    /// Creates an empty set; one wait reports at most `ready_max` events.
    fn new(ready_max: usize) -> Result<Self, Errno>;

    /// Watches a socket: every edge of `flags` is reported until it is removed.
    fn add(&mut self, fd: BorrowedFd<'_>, source: EventSource, flags: Flags) -> Result<(), Errno>;

    /// Removes a socket that is about to be closed.
    fn remove(&mut self, source: EventSource);

    /// Waits for events, for ever if `timeout_ns` is `None`, and returns their number.
    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(EventSource, Readiness),
    ) -> Result<usize, Errno>;
}

/// Readiness source of one thread.
pub(crate) enum Poll {
    Epoll(epoll::EpollSet),
    #[cfg(feature = "io-uring")]
    Uring(Box<uring::Uring>),
}

impl Poll {
    pub(crate) fn new(backend: Backend, ready_max: u32) -> Result<Self, FailedCall> {
        fn new<W: PollBackend>(ready_max: u32) -> Result<W, FailedCall> {
            W::new(ready_max as usize).map_err(|errno| (W::CREATE, errno))
        }
        Ok(match backend {
            Backend::Epoll => Self::Epoll(new(ready_max)?),
            #[cfg(feature = "io-uring")]
            Backend::Uring => Self::Uring(Box::new(new(ready_max)?)),
        })
    }

    /// Adds a source once: with edge-triggered events, connections need no re-arming.
    pub(crate) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        source: EventSource,
    ) -> Result<(), FailedCall> {
        fn add<W: PollBackend>(
            set: &mut W,
            fd: BorrowedFd<'_>,
            source: EventSource,
            flags: Flags,
        ) -> Result<(), FailedCall> {
            set.add(fd, source, flags).map_err(|errno| (W::ADD, errno))
        }
        let flags = match source {
            EventSource::Connection(_) => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
            EventSource::Listener(_) | EventSource::Wake => Flags::IN | Flags::ET,
        };
        match self {
            Self::Epoll(set) => add(set, fd, source, flags),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => add(&mut **ring, fd, source, flags),
        }
    }

    /// Removes a source that is about to be closed.
    pub(crate) fn remove(&mut self, source: EventSource) {
        match self {
            Self::Epoll(set) => set.remove(source),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => ring.remove(source),
        }
    }

    /// Waits for events, for ever if `timeout_ns` is `None`, and returns their number.
    pub(crate) fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        each: impl FnMut(EventSource, Readiness),
    ) -> Result<usize, FailedCall> {
        #[inline]
        fn wait<W: PollBackend>(
            set: &mut W,
            timeout_ns: Option<u64>,
            each: impl FnMut(EventSource, Readiness),
        ) -> Result<usize, FailedCall> {
            set.wait(timeout_ns, each).map_err(|errno| (W::WAIT, errno))
        }
        match self {
            Self::Epoll(set) => wait(set, timeout_ns, each),
            #[cfg(feature = "io-uring")]
            Self::Uring(ring) => wait(&mut **ring, timeout_ns, each),
        }
    }
}

fn readiness(flags: Flags) -> Readiness {
    Readiness {
        is_readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
        is_writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
        is_hung_up: flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR),
        is_disarmed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_is_reported_with_its_system_call() {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let mut poll = Poll::new(Backend::Epoll, 1).map_err(|_| "no epoll set").unwrap();
        let mut add = || poll.add(std::os::fd::AsFd::as_fd(&file), EventSource::Wake);
        assert_eq!(add(), Ok(()));
        assert_eq!(add(), Err(("epoll_ctl", Errno::EXIST)));
    }

    #[test]
    fn packed_event_source_unpacks_to_the_same_value() {
        for source in [
            EventSource::Wake,
            EventSource::Listener(0),
            EventSource::Listener(u16::MAX - 1),
            EventSource::Connection(Key { index: 0, generation: 0 }),
            EventSource::Connection(Key { index: RESERVED_INDEX_MIN - 1, generation: u32::MAX }),
        ] {
            assert_eq!(EventSource::unpack(source.pack()), source);
        }
    }
}
