//! The sockets of a thread: an epoll set, by its edges.

use super::slab::Key;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

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
}

/// The most that the kernel is asked for at a time; `ready_max` is not above.
const READY_LIMIT: usize = 1024;

pub(crate) struct Poll {
    set: OwnedFd,
    ready_max: usize,
}

impl Poll {
    pub(crate) fn new(ready_max: u32) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { set, ready_max: (ready_max as usize).min(READY_LIMIT) })
    }

    /// Once and for all: by its edges, a connection need not be told about again.
    pub(crate) fn add(&self, fd: impl AsFd, whose: Whose) -> Result<(), Errno> {
        use epoll::EventFlags as Flags;
        let mut flags = Flags::IN | Flags::ET;
        if matches!(whose, Whose::Connection(_)) {
            flags |= Flags::OUT | Flags::RDHUP;
        }
        epoll::add(&self.set, fd, epoll::EventData::new_u64(whose.pack()), flags)
    }

    /// Asks the kernel what is ready; `None` waits for ever. How many there were.
    pub(crate) fn wait(
        &self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(Whose, Told),
    ) -> Result<usize, Errno> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            // Below 10^9.
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // Not kept between calls: the kernel's record holds a pointer, which cannot change threads.
        let mut room = [const { MaybeUninit::uninit() }; READY_LIMIT];
        match epoll::wait(&self.set, &mut room[..self.ready_max], timeout.as_ref()) {
            Ok((events, _)) => {
                for &epoll::Event { flags, data } in events.iter() {
                    each(Whose::unpack(data.u64()), told(flags));
                }
                Ok(events.len())
            }
            Err(Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }
}

fn told(flags: epoll::EventFlags) -> Told {
    use epoll::EventFlags as Flags;
    Told {
        readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
        writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
        hung_up: flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR),
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
