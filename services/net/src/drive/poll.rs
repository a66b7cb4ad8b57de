//! Edge-triggered readiness of a thread's sockets.

use super::slab::ConnKey;
use crate::error::FailedSystemCall;
use handover_base::epoll::{Epoll, Flags};
use std::os::fd::BorrowedFd;

/// Source of a readiness event: a connection, a listener, or the thread's wake-up descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    Connection(ConnKey),
    /// Listener with this index in the thread's list.
    Listener(u16),
    /// Wake-up descriptor of the thread, to which another thread writes after pushing a command.
    Wake,
}

/// Smallest index that no connection can have. Listeners and the wake-up descriptor use the indices
/// from here on.
const RESERVED_INDEX_MIN: u32 = u32::MAX - 0x1_0000;

impl EventSource {
    /// Packs the source into the 64 bits that epoll stores with a descriptor.
    fn pack(self) -> u64 {
        let (index, generation) = match self {
            Self::Connection(key) => (key.index, key.generation),
            Self::Listener(index) => (RESERVED_INDEX_MIN + u32::from(index), 0),
            Self::Wake => (u32::MAX, 0),
        };
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Returns the source that [`pack`](Self::pack) has packed.
    fn unpack(packed: u64) -> Self {
        // Each part is cut to its own width.
        match packed as u32 {
            u32::MAX => Self::Wake,
            index if index >= RESERVED_INDEX_MIN => {
                Self::Listener((index - RESERVED_INDEX_MIN) as u16)
            }
            index => Self::Connection(ConnKey { index, generation: (packed >> 32) as u32 }),
        }
    }
}

/// Readiness of a descriptor, as reported by epoll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readiness {
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    pub(crate) is_hung_up: bool,
    /// `true` if urgent data of TCP has arrived, or is announced.
    pub(crate) is_urgent: bool,
}

/// Epoll set of an event-loop thread.
pub(crate) struct Poll(Epoll);

impl Poll {
    pub(crate) fn new(ready_max: u32) -> Result<Self, FailedSystemCall> {
        let set = Epoll::new(ready_max as usize);
        Ok(Self(set.map_err(|error| ("epoll_create1", error))?))
    }

    /// Adds a descriptor, whose events are reported edge-triggered until it is closed. It need not
    /// be armed again.
    pub(crate) fn add(
        &self,
        fd: BorrowedFd<'_>,
        source: EventSource,
    ) -> Result<(), FailedSystemCall> {
        let flags = match source {
            EventSource::Connection(_) => {
                Flags::IN | Flags::OUT | Flags::PRI | Flags::RDHUP | Flags::ET
            }
            EventSource::Listener(_) | EventSource::Wake => Flags::IN | Flags::ET,
        };
        self.0.add(fd, source.pack(), flags).map_err(|error| ("epoll_ctl", error))
    }

    /// Waits up to `timeout_ns` (for ever if `None`) and calls `each` with each event; returns
    /// their number.
    #[inline]
    pub(crate) fn wait(
        &self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(EventSource, Readiness),
    ) -> Result<usize, FailedSystemCall> {
        let waited = self.0.wait(timeout_ns, |word, flags| {
            let readiness = Readiness {
                is_readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
                is_writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
                is_hung_up: flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR),
                is_urgent: flags.intersects(Flags::PRI),
            };
            each(EventSource::unpack(word), readiness);
        });
        waited.map_err(|error| ("epoll_wait", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_is_reported_with_its_system_call() {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let poll = Poll::new(1).map_err(|_| "no epoll set").unwrap();
        let add = || poll.add(std::os::fd::AsFd::as_fd(&file), EventSource::Wake);
        add().unwrap();
        let (call, error) = add().unwrap_err();
        assert_eq!((call, error.kind()), ("epoll_ctl", std::io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn packed_event_source_unpacks_to_the_same_value() {
        for source in [
            EventSource::Wake,
            EventSource::Listener(0),
            EventSource::Listener(u16::MAX - 1),
            EventSource::Connection(ConnKey { index: 0, generation: 0 }),
            EventSource::Connection(ConnKey {
                index: RESERVED_INDEX_MIN - 1,
                generation: u32::MAX,
            }),
        ] {
            assert_eq!(EventSource::unpack(source.pack()), source);
        }
    }
}
