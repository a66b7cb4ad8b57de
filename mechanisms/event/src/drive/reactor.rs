//! The epoll set of a thread, and the tokens that map its events to watches.

use crate::{Interest, Ready};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Owner of an event; stored in the epoll entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// Index of the machine in its group.
    pub(crate) machine: u16,
    /// Distinguishes stale events of an ended watch from those of the next watch in the same slot.
    pub(crate) generation: u16,
    pub(crate) slot: u32,
}

impl Token {
    /// Entry of the thread itself: the eventfd through which other threads wake it.
    pub(crate) const WAKE: Self = Self { machine: u16::MAX, generation: 0, slot: u32::MAX };
    /// Entry of the thread itself: the signals that stop it.
    pub(crate) const SIGNAL: Self = Self { machine: u16::MAX, generation: 1, slot: u32::MAX };

    fn pack(self) -> u64 {
        u64::from(self.machine) << 48 | u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn unpack(packed: u64) -> Self {
        // Each cast truncates to the width of its field.
        Self {
            machine: (packed >> 48) as u16,
            generation: (packed >> 32) as u16,
            slot: packed as u32,
        }
    }
}

/// Maximum number of events fetched in one call; `descriptors_per_round_max` is not greater.
const READY_LIMIT: usize = 1024;

pub(crate) struct Reactor {
    set: OwnedFd,
    /// Events of the last call; those from `next` on are unread.
    ready: Vec<(Token, Ready)>,
    next: usize,
    ready_max: usize,
}

impl Reactor {
    /// Makes a set with the eventfd only. `ready_max` is the maximum number of events per call.
    pub(crate) fn new(ready_max: u32, counter: BorrowedFd<'_>) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered: each write reports one event, and the counter need not be read.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, counter, epoll::EventData::new_u64(Token::WAKE.pack()), flags)?;
        let ready_max = (ready_max as usize).min(READY_LIMIT);
        Ok(Self { set, ready: Vec::with_capacity(ready_max), next: 0, ready_max })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.set, fd, epoll::EventData::new_u64(token.pack()), flags(interest))
    }

    pub(crate) fn modify(
        &self,
        fd: impl AsFd,
        token: Token,
        interest: Interest,
    ) -> Result<(), Errno> {
        epoll::modify(&self.set, fd, epoll::EventData::new_u64(token.pack()), flags(interest))
    }

    pub(crate) fn delete(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.set, fd)
    }

    /// Fetches events from the kernel; with `None` it waits for ever.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.ready.clear();
        self.next = 0;
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Not kept between calls: the event type contains a raw pointer, which would make this
        // struct `!Send`.
        let mut room = [const { MaybeUninit::uninit() }; READY_LIMIT];
        match epoll::wait(&self.set, &mut room[..self.ready_max], timeout.as_ref()) {
            Ok((events, _)) => {
                let ready = events.iter().map(|&epoll::Event { flags, data }| {
                    (Token::unpack(data.u64()), readiness(flags))
                });
                self.ready.extend(ready);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Returns `true` if fetched events are unread.
    pub(crate) fn has_ready(&self) -> bool {
        self.next < self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<(Token, Ready)> {
        let event = *self.ready.get(self.next)?;
        self.next += 1;
        Some(event)
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN | epoll::EventFlags::RDHUP, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags.set(epoll::EventFlags::ET, interest.edge);
    flags
}

fn readiness(flags: epoll::EventFlags) -> Ready {
    use epoll::EventFlags as Flags;
    Ready {
        readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
        writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
        hung_up: flags.intersects(Flags::RDHUP | Flags::HUP),
        failed: flags.contains(Flags::ERR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_token_unpacks_to_the_same_value() {
        for token in [
            Token::WAKE,
            Token::SIGNAL,
            Token { machine: 0, generation: 0, slot: 0 },
            Token { machine: 65_534, generation: 65_535, slot: 7 },
            Token { machine: 1, generation: 2, slot: u32::MAX },
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
