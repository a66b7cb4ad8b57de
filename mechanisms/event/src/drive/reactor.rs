//! The epoll set of a thread, and the tokens that map its events to watches.

use crate::{Interest, Ready, WatchId};
use handover_base::epoll::{Epoll, Flags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Value stored in an epoll entry. It identifies the machine and the watch that the entry's events
/// belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpollToken {
    /// Index of the machine in its group.
    pub(crate) machine: u16,
    /// Low bits of the watch's generation. They distinguish late events of a stopped watch from
    /// events of the next watch in the same slot.
    pub(crate) generation: u16,
    /// Index of the watch's slot.
    pub(crate) slot: u32,
}

impl EpollToken {
    /// Token of the thread's own eventfd, through which other threads wake it.
    pub(crate) const WAKE: Self = Self { machine: u16::MAX, generation: 0, slot: u32::MAX };
    /// Token of the descriptor for signals that stop the thread.
    pub(crate) const SIGNAL: Self = Self { machine: u16::MAX, generation: 1, slot: u32::MAX };

    /// Returns the token of a watch of the machine with index `machine`.
    pub(crate) fn for_watch(machine: u32, WatchId(key): WatchId) -> Self {
        // The machine is below MACHINES_LIMIT, which is 2^16; the generation is truncated.
        Self { machine: machine as u16, generation: key.generation as u16, slot: key.index }
    }

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

/// Epoll set of a thread, with the events fetched from it.
pub(crate) struct Reactor {
    set: Epoll,
    /// Events returned by the last fetch; those from index `next` on are unread.
    ready: Vec<(EpollToken, Ready)>,
    /// Index of the next unread event in `ready`.
    next: usize,
}

impl Reactor {
    /// Creates an epoll set that contains only `eventfd`. One fetch returns at most `ready_max`
    /// events.
    pub(crate) fn new(ready_max: u32, eventfd: BorrowedFd<'_>) -> io::Result<Self> {
        let set = Epoll::new(ready_max as usize)?;
        // Edge-triggered: each write reports one event, and the eventfd need not be read.
        set.add(eventfd, EpollToken::WAKE.pack(), Flags::IN | Flags::ET)?;
        Ok(Self { set, ready: Vec::with_capacity(ready_max as usize), next: 0 })
    }

    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        token: EpollToken,
        interest: Interest,
    ) -> io::Result<()> {
        self.set.add(fd, token.pack(), flags(interest))
    }

    pub(crate) fn modify(
        &self,
        fd: impl AsFd,
        token: EpollToken,
        interest: Interest,
    ) -> io::Result<()> {
        self.set.modify(fd, token.pack(), flags(interest))
    }

    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        self.set.remove(fd)
    }

    /// Waits up to `timeout_ns` for events (for ever if `None`) and fetches them from the kernel.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.ready.clear();
        self.next = 0;
        let Self { set, ready, .. } = self;
        set.wait(timeout_ns, |word, flags| {
            ready.push((EpollToken::unpack(word), readiness(flags)))
        })?;
        Ok(())
    }

    /// Returns `true` if fetched events are unread.
    pub(crate) fn has_ready(&self) -> bool {
        self.next < self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<(EpollToken, Ready)> {
        let event = *self.ready.get(self.next)?;
        self.next += 1;
        Some(event)
    }
}

/// Converts an interest to epoll flags.
fn flags(interest: Interest) -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::IN | Flags::RDHUP, interest.read);
    flags.set(Flags::OUT, interest.write);
    flags.set(Flags::ET, interest.edge);
    flags
}

/// Converts epoll flags to a readiness.
fn readiness(flags: Flags) -> Ready {
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
            EpollToken::WAKE,
            EpollToken::SIGNAL,
            EpollToken { machine: 0, generation: 0, slot: 0 },
            EpollToken { machine: 65_534, generation: 65_535, slot: 7 },
            EpollToken { machine: 1, generation: 2, slot: u32::MAX },
        ] {
            assert_eq!(EpollToken::unpack(token.pack()), token);
        }
    }
}
