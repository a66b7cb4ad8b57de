//! The descriptors of a thread: an epoll set, and whose is what in it.

use crate::{Interest, Ready};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Whose readiness it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// Which of a group's machines.
    pub(crate) machine: u16,
    /// So that what the kernel told before a watch ended is not taken for the next in its place.
    pub(crate) generation: u16,
    pub(crate) slot: u32,
}

impl Token {
    /// The thread's own: somebody wakes it.
    pub(crate) const WAKE: Self = Self { machine: u16::MAX, generation: 0, slot: u32::MAX };
    /// The thread's own: a signal that stops it.
    pub(crate) const SIGNAL: Self = Self { machine: u16::MAX, generation: 1, slot: u32::MAX };

    fn pack(self) -> u64 {
        u64::from(self.machine) << 48 | u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn unpack(packed: u64) -> Self {
        // Each part is cut to its own width.
        Self {
            machine: (packed >> 48) as u16,
            generation: (packed >> 32) as u16,
            slot: packed as u32,
        }
    }
}

/// The most that the kernel is asked for at a time; `descriptors_per_round_max` is not above.
const READY_LIMIT: usize = 1024;

pub(crate) struct Reactor {
    set: OwnedFd,
    /// What the kernel told last, from `next` on not yet looked at.
    ready: Vec<(Token, Ready)>,
    next: usize,
    ready_max: usize,
}

impl Reactor {
    /// An empty set. `ready_max` is how many the kernel tells at a time.
    pub(crate) fn new(ready_max: u32, counter: BorrowedFd<'_>) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // By its edges: each write tells once, and nobody has to read.
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

    /// Asks the kernel what is ready; `None` waits for ever.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.ready.clear();
        self.next = 0;
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Not kept between calls: the kernel's record holds a pointer, which cannot change threads.
        let mut room = [const { MaybeUninit::uninit() }; READY_LIMIT];
        match epoll::wait(&self.set, &mut room[..self.ready_max], timeout.as_ref()) {
            Ok((events, _)) => {
                let told = events.iter().map(|&epoll::Event { flags, data }| {
                    (Token::unpack(data.u64()), readiness(flags))
                });
                self.ready.extend(told);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether something that the kernel told is not looked at yet.
    pub(crate) fn has_ready(&self) -> bool {
        self.next < self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<(Token, Ready)> {
        let told = *self.ready.get(self.next)?;
        self.next += 1;
        Some(told)
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
    fn a_token_comes_back_as_it_was() {
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
