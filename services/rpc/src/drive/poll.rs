//! Readiness notifications of sockets, listeners, processes, the inbox and signals, by epoll.

use crate::config::PEERS_LIMIT;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Owner of a descriptor in the epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Socket of a peer: readable, writable, or closed.
    Peer {
        place: u32,
        generation: u32,
    },
    /// Process descriptor of a peer: the process has ended.
    Process {
        place: u32,
        generation: u32,
    },
    /// Eventfd that other threads of this process write to wake this one.
    Inbox,
    /// Socket that a signal handler writes to request a dump.
    Signal,
    Listener(u32),
    /// Connection whose handshake is under way.
    Greeting(u32),
}

const TAG_SHIFT: u32 = 62;
/// Tag bit of a process, beside the tag of the inbox. The generation and PLACE_BITS bits of the
/// place are below it.
const PROCESS: u64 = 1 << 61;
const PLACE_BITS: u32 = 21;
const _: () = assert!(PEERS_LIMIT < 1 << PLACE_BITS && PLACE_BITS + (TAG_SHIFT - 32) <= 61);
/// Bits of a generation that are kept in the packed value.
pub(crate) const GENERATION_MASK: u32 = (1 << (TAG_SHIFT - 32)) - 1;

impl Whose {
    fn pack(self) -> u64 {
        match self {
            Whose::Peer { place, generation } => {
                u64::from(generation & GENERATION_MASK) << 32 | u64::from(place)
            }
            Whose::Process { place, generation } => {
                let generation = u64::from(generation & GENERATION_MASK);
                1 << TAG_SHIFT | PROCESS | generation << PLACE_BITS | u64::from(place)
            }
            Whose::Inbox => 1 << TAG_SHIFT,
            Whose::Signal => 1 << TAG_SHIFT | 1,
            Whose::Listener(place) => 2 << TAG_SHIFT | u64::from(place),
            Whose::Greeting(place) => 3 << TAG_SHIFT | u64::from(place),
        }
    }

    fn unpack(packed: u64) -> Self {
        // Each cast truncates to the width of its field.
        let place = packed as u32;
        match packed >> TAG_SHIFT {
            0 => Whose::Peer { place, generation: (packed >> 32) as u32 & GENERATION_MASK },
            1 if packed & PROCESS != 0 => Whose::Process {
                place: place & ((1 << PLACE_BITS) - 1),
                generation: (packed >> PLACE_BITS) as u32 & GENERATION_MASK,
            },
            1 if place == 0 => Whose::Inbox,
            1 => Whose::Signal,
            2 => Whose::Listener(place),
            _ => Whose::Greeting(place),
        }
    }
}

/// Edge-triggered, so nothing need be drained before sleeping.
// OUT of a Unix socket is reported whenever its peer has read, which wakes a waiting caller shortly
// before the answer comes: a round trip took 1.16 x one between two blocking reads with OUT at the
// server only, and 1.46 x with OUT at both. 2026-11.
fn flags_of(whose: Whose) -> epoll::EventFlags {
    use epoll::EventFlags as Flags;
    match whose {
        Whose::Peer { .. } | Whose::Greeting(_) => {
            Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET
        }
        Whose::Process { .. } | Whose::Inbox | Whose::Signal | Whose::Listener(_) => {
            Flags::IN | Flags::ET
        }
    }
}

/// Maximum number of events in one call of epoll_wait.
const READY_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Poll {
    set: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { set: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, whose: Whose) -> Result<(), Errno> {
        epoll::add(&self.set, fd, epoll::EventData::new_u64(whose.pack()), flags_of(whose))
    }

    /// Changes the owner of a descriptor, from a handshake to a peer. Events that are pending are
    /// reported again.
    pub(crate) fn promote(&self, fd: impl AsFd, whose: Whose) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(whose.pack());
        epoll::modify(&self.set, fd, data, flags_of(whose))
    }

    /// Removes a descriptor from the set.
    pub(crate) fn remove(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.set, fd)
    }

    /// Waits for events, without limit if `timeout_ns` is `None`. Appends the owner of each ready
    /// descriptor, and `true` if its other end has closed.
    pub(crate) fn wait(
        &self,
        timeout_ns: Option<u64>,
        ready: &mut Vec<(Whose, bool)>,
    ) -> Result<(), Errno> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            // Less than 10^9, which fits an i64.
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let mut room = [const { MaybeUninit::uninit() }; READY_MAX];
        match epoll::wait(&self.set, &mut room[..], timeout.as_ref()) {
            Ok((events, _)) => {
                use epoll::EventFlags as Flags;
                let ends = Flags::HUP | Flags::RDHUP | Flags::ERR;
                for &epoll::Event { flags, data } in events.iter() {
                    ready.push((Whose::unpack(data.u64()), flags.intersects(ends)));
                }
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ready_comes_back_as_it_was() {
        for whose in [
            Whose::Inbox,
            Whose::Signal,
            Whose::Listener(7),
            Whose::Greeting(u32::MAX),
            Whose::Peer { place: u32::MAX, generation: GENERATION_MASK },
            Whose::Peer { place: 0, generation: 0 },
            Whose::Process { place: 0, generation: 0 },
            Whose::Process { place: PEERS_LIMIT - 1, generation: GENERATION_MASK },
        ] {
            assert_eq!(Whose::unpack(whose.pack()), whose);
        }
    }
}
