//! Who knocks, and what to do when there is no room.

use super::{Reactor, socket};
use crate::drive::core::Due;
use crate::drive::handler::Handler;
use crate::drive::inbox::{Command, Inbox};
use crate::drive::poll::Whose;
use crate::tls::Server;
use crate::{Listen, NetError, WhenFull};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// How long until accepting is tried again although none of ours was closed, in ns: descriptors may have
/// been freed elsewhere in the process.
const RETRY_NS: u64 = 100_000_000;

/// A listening socket, and whom its connections are for.
pub(crate) struct Listener<D> {
    fd: OwnedFd,
    /// Nothing is accepted until there is room again.
    paused: bool,
    /// What its connections are to speak.
    tls: Option<Server>,
    /// The threads that take turns; none: all are ours.
    threads: Vec<Taker<D>>,
    next: usize,
}

/// A thread that connections are handed to. While there is one of these the thread does not end; that is
/// told it even by a listener's thread that panics.
struct Taker<D> {
    inbox: Arc<Inbox<D>>,
    is_own: bool,
}

impl<D> Drop for Taker<D> {
    fn drop(&mut self) {
        if !self.is_own {
            self.inbox.giver_gone();
        }
    }
}

/// Who has room for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    Own,
    /// That one of the listener's threads, which keeps a place for it.
    KeptBy(usize),
    NoRoom,
}

impl<H: Handler> Reactor<H> {
    /// Listens; the address, with the port that the kernel chose where 0 was asked for.
    ///
    /// # Errors
    /// [`NetError::Refused`], most often because the address is in use.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, NetError> {
        self.listen_at(&address.into())
    }

    /// As [`listen`](Self::listen), by TLS if that is asked for.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_at(&mut self, listen: &Listen) -> Result<SocketAddr, NetError> {
        self.listen_with(listen, false, Vec::new())
    }

    /// Listens beside others of this process at the same address, who must do the same: the kernel spreads
    /// connections among them.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_shared(&mut self, address: SocketAddr) -> Result<SocketAddr, NetError> {
        self.listen_shared_at(&address.into())
    }

    /// As [`listen_shared`](Self::listen_shared), by TLS if that is asked for.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_shared_at(&mut self, listen: &Listen) -> Result<SocketAddr, NetError> {
        self.listen_with(listen, true, Vec::new())
    }

    pub(crate) fn listen_with(
        &mut self,
        listen: &Listen,
        shared: bool,
        threads: Vec<Arc<Inbox<H::Data>>>,
    ) -> Result<SocketAddr, NetError> {
        let refused = |(call, errno)| NetError::Refused { call, errno };
        let fd = socket::listen(listen.address, shared).map_err(refused)?;
        let index = u16::try_from(self.listeners.len()).unwrap_or(u16::MAX);
        if index == u16::MAX {
            return Err(refused(("listen", Errno::MFILE)));
        }
        self.core
            .poll
            .add(fd.as_fd(), Whose::Listener(index))
            .map_err(|errno| refused(("epoll_ctl", errno)))?;
        let address =
            socket::address(fd.as_fd()).map_err(|errno| refused(("getsockname", errno)))?;
        let tls = listen.tls.clone();
        let takers = threads.into_iter().map(|inbox| {
            let is_own = Arc::ptr_eq(&inbox, &self.core.inbox);
            if !is_own {
                inbox.expect_giver();
            }
            Taker { inbox, is_own }
        });
        let threads = takers.collect();
        self.listeners.push(Listener { fd, paused: false, tls, threads, next: 0 });
        Ok(address)
    }

    /// Accepts everybody whom the kernel has accepted, and nobody after that.
    pub(super) fn accept_the_last(&mut self) {
        for index in 0..self.listeners.len() {
            // As many at most as there may be; each round takes what stood there, and the kernel's queue
            // is bounded.
            let rounds_max = socket::BACKLOG as u32 / self.core.config.accepts_max + 1;
            for _ in 0..rounds_max {
                self.core.ready.retain(|it| *it != Whose::Listener(index as u16));
                self.accept(index as u16);
                if !self.core.ready.contains(&Whose::Listener(index as u16)) {
                    break;
                }
            }
        }
        // And with them go those who would hand over.
        for (index, _) in (0..).zip(&self.listeners) {
            self.core.poll.remove(Whose::Listener(index));
        }
        self.listeners.clear();
    }

    /// Accepts who knocks there: some, and then others have their turn.
    pub(super) fn accept(&mut self, index: u16) {
        for _ in 0..self.core.config.accepts_max {
            let Some((taker, turn)) = self.taker(index) else { return };
            if taker == Has::NoRoom && self.core.config.when_full == WhenFull::Wait {
                return self.pause(index);
            }
            let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
            let accepted = socket::accept(listener.fd.as_fd());
            match (&accepted, taker) {
                (Ok(_), _) => listener.next = turn,
                (Err(_), Has::KeptBy(thread)) => listener.threads[thread].inbox.took_given(),
                (Err(_), _) => {}
            }
            match accepted {
                Ok(_turned_away) if taker == Has::NoRoom => self.core.stats.turned_away_count += 1,
                Ok((fd, peer)) => self.place(index, taker, fd, peer),
                Err(Errno::AGAIN) => return,
                // Gone before it was accepted, or never quite there.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.turn_one_away(index) => {}
                Err(_) => return self.pause(index),
            }
        }
        self.core.list_listener(index);
    }

    /// Who has room for one more from that listener: of the threads that it hands over to, the next that has.
    fn taker(&self, index: u16) -> Option<(Has, usize)> {
        let listener = self.listeners.get(usize::from(index))?;
        let own = if self.core.slab.is_full() { Has::NoRoom } else { Has::Own };
        let count = listener.threads.len();
        for step in 1..=count {
            let at = (listener.next + step) % count;
            let thread = &listener.threads[at];
            let found = match thread.is_own {
                true => own,
                false if thread.inbox.keeps_place() => Has::KeptBy(at),
                false => Has::NoRoom,
            };
            if found != Has::NoRoom {
                return Some((found, at));
            }
        }
        Some((if count > 0 { Has::NoRoom } else { own }, listener.next))
    }

    /// Gives an accepted connection to whoever has room for it.
    fn place(&mut self, index: u16, taker: Has, fd: OwnedFd, peer: Option<SocketAddr>) {
        let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
        let mut fd = fd;
        let tls = listener.tls.clone();
        if let Has::KeptBy(thread) = taker {
            let inbox = &listener.threads[thread].inbox;
            let adopt = Command::Adopt(fd, peer, tls.clone());
            match inbox.push(adopt).map_err(|it| it.into_inner()) {
                // It has no time: then it is ours.
                Err(Command::Adopt(refused, ..)) => {
                    inbox.took_given();
                    fd = refused;
                }
                _ => return,
            }
        }
        // Where there is no room it is closed, and counted.
        if self.take_in(fd, peer, tls.as_ref()).is_err() {
            self.resume_accepting();
        }
    }

    /// There is no descriptor left: lets go of the reserve, accepts one with it and closes that, if that is
    /// what is wanted.
    fn turn_one_away(&mut self, index: u16) -> bool {
        if self.core.config.when_full == WhenFull::Wait || self.reserve.take().is_none() {
            return false;
        }
        let Some(listener) = self.listeners.get(usize::from(index)) else { return false };
        let turned_away = socket::accept(listener.fd.as_fd()).is_ok();
        self.core.stats.turned_away_count += u64::from(turned_away);
        self.refill_reserve();
        turned_away
    }

    pub(super) fn refill_reserve(&mut self) {
        if self.core.config.when_full == WhenFull::TurnAway && self.reserve.is_none() {
            self.reserve = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok();
        }
    }

    /// Accepts nothing there until there is room: until one of ours is closed, or some time has passed.
    fn pause(&mut self, index: u16) {
        let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
        if !listener.paused {
            listener.paused = true;
            self.core.stats.accept_pauses_count += 1;
        }
        if !self.accept_due {
            self.accept_due = true;
            self.later(RETRY_NS, Due::Accept);
        }
    }

    /// There may be room again.
    pub(super) fn resume_accepting(&mut self) {
        self.refill_reserve();
        for (index, listener) in (0..).zip(&mut self.listeners) {
            if listener.paused {
                listener.paused = false;
                self.core.list_listener(index);
            }
        }
    }
}
