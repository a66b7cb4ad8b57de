//! Acceptance of connections, also when no more can be opened.

use super::{Reactor, socket};
use crate::drive::core::TimerPurpose;
use crate::drive::handler::Handler;
use crate::drive::inbox::{Command, Inbox};
use crate::drive::poll::EventSource;
use crate::tls::TlsServerConfig;
use crate::{FullConnectionsPolicy, ListenOptions, NetError};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Interval, in ns, at which a paused listener retries to accept. Other parts of the process may
/// have closed descriptors.
const ACCEPT_RETRY_NS: u64 = 100_000_000;

/// Listening socket, and the threads to which it hands accepted connections.
pub(crate) struct Listener<D> {
    fd: OwnedFd,
    /// `true` while accepting is paused, because no connection can be opened.
    is_paused: bool,
    /// TLS configuration of accepted connections; `None` for plain text.
    tls: Option<TlsServerConfig>,
    /// Threads that get connections round robin; empty if this thread keeps all connections.
    targets: Vec<AcceptTarget<D>>,
    /// Index in `targets` of the thread that got the latest connection.
    latest_target: usize,
}

/// Thread to which a listener hands connections: its own or another one. Another thread does not
/// exit while its `AcceptTarget` exists; dropping that unregisters the listener, even if the
/// listener's thread panics.
struct AcceptTarget<D> {
    inbox: Arc<Inbox<D>>,
    is_this_thread: bool,
}

impl<D> Drop for AcceptTarget<D> {
    fn drop(&mut self) {
        if !self.is_this_thread {
            self.inbox.remove_remote_listener();
        }
    }
}

/// Thread that gets the next connection: this one, another one with a slot reserved, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetChoice {
    ThisThread,
    /// Another thread, in which a slot is reserved. Contains the thread's index in the listener's
    /// list of targets.
    Reserved(usize),
    NoSpace,
}

impl<H: Handler> Reactor<H> {
    /// Listens at a `SocketAddr` for plain text, or as [`ListenOptions`] say for TLS; returns the
    /// actual address, with the port that the kernel chose for port 0.
    ///
    /// # Errors
    /// [`NetError::SystemCall`], usually because the address is in use.
    pub fn listen(&mut self, at: impl Into<ListenOptions>) -> Result<SocketAddr, NetError> {
        self.add_listener(&at.into(), false, Vec::new())
    }

    /// Listens like [`listen`](Self::listen), at an address that event loops share
    /// (`SO_REUSEPORT`). Each of them makes this call, and the kernel distributes connections among
    /// them.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_shared_with(&mut self, listen: &ListenOptions) -> Result<SocketAddr, NetError> {
        self.add_listener(listen, true, Vec::new())
    }

    /// Listens at an address. Connections go round robin to `threads`, or all to this thread if
    /// there are none.
    pub(crate) fn add_listener(
        &mut self,
        listen: &ListenOptions,
        shared: bool,
        threads: Vec<Arc<Inbox<H::Data>>>,
    ) -> Result<SocketAddr, NetError> {
        let fd = socket::listen(listen.address, shared)?;
        let index = u16::try_from(self.listeners.len()).unwrap_or(u16::MAX);
        if index == u16::MAX {
            return Err(("listen", Errno::MFILE).into());
        }
        self.core.poll.add(fd.as_fd(), EventSource::Listener(index))?;
        let address = socket::local_address(fd.as_fd()).map_err(|errno| ("getsockname", errno))?;
        let tls = listen.tls.clone();
        let targets = threads.into_iter().map(|inbox| {
            let is_this_thread = Arc::ptr_eq(&inbox, &self.core.inbox);
            if !is_this_thread {
                inbox.add_remote_listener(&self.core.inbox);
            }
            AcceptTarget { inbox, is_this_thread }
        });
        let targets = targets.collect();
        self.listeners.push(Listener { fd, is_paused: false, tls, targets, latest_target: 0 });
        Ok(address)
    }

    /// Accepts the connections in the kernel's accept queues, as many as possible. Then closes the
    /// listeners.
    pub(super) fn drain_and_close_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            // Bounded by the length of the kernel's queue: each round accepts what was in it.
            let rounds_max = socket::LISTEN_BACKLOG as u32 / self.core.config.accepts_max + 1;
            for _ in 0..rounds_max {
                self.core.ready.retain(|it| *it != EventSource::Listener(index as u16));
                self.accept_from_listener(index as u16);
                if !self.core.ready.contains(&EventSource::Listener(index as u16)) {
                    break;
                }
            }
        }
        // Dropping the listeners also drops their `AcceptTarget`s.
        self.listeners.clear();
    }

    /// Accepts connections from the listener `index`, at most `accepts_max` in an iteration of the
    /// event loop.
    pub(super) fn accept_from_listener(&mut self, index: u16) {
        for _ in 0..self.core.config.accepts_max {
            let Some((choice, target)) = self.choose_target(index) else { return };
            if choice == TargetChoice::NoSpace
                && self.core.config.when_full == FullConnectionsPolicy::Wait
            {
                if self.await_slot(index) {
                    return self.pause(index);
                }
                continue;
            }
            let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
            let accepted = socket::accept(listener.fd.as_fd());
            match (&accepted, choice) {
                (Ok(_), _) => listener.latest_target = target,
                (Err(_), TargetChoice::Reserved(thread)) => {
                    listener.targets[thread].inbox.release_reserved_slot()
                }
                (Err(_), _) => {}
            }
            match accepted {
                Ok(_turned_away) if choice == TargetChoice::NoSpace => {
                    self.core.stats.turned_away_count += 1
                }
                Ok((fd, peer)) => self.deliver(index, choice, fd, peer),
                Err(Errno::AGAIN) => return,
                // The connection was aborted before it was accepted, or not established.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.reject_one(index) => {}
                Err(_) => return self.pause(index),
            }
        }
        self.core.enqueue_listener(index);
    }

    /// Chooses the thread for the listener's next connection, round robin among those with free
    /// slots. Returns the choice and its index in `targets`. `None` if there is no such listener.
    fn choose_target(&self, index: u16) -> Option<(TargetChoice, usize)> {
        let listener = self.listeners.get(usize::from(index))?;
        let own =
            if self.core.slab.is_full() { TargetChoice::NoSpace } else { TargetChoice::ThisThread };
        let count = listener.targets.len();
        for offset in 1..=count {
            let at = (listener.latest_target + offset) % count;
            let thread = &listener.targets[at];
            let found = match thread.is_this_thread {
                true => own,
                false if thread.inbox.reservations.try_reserve_slot() => TargetChoice::Reserved(at),
                false => TargetChoice::NoSpace,
            };
            if found != TargetChoice::NoSpace {
                return Some((found, at));
            }
        }
        Some((if count > 0 { TargetChoice::NoSpace } else { own }, listener.latest_target))
    }

    /// Asks the listener's other threads to notify this one of a free slot. Returns `false` if one
    /// has a free slot already.
    fn await_slot(&self, index: u16) -> bool {
        let Some(listener) = self.listeners.get(usize::from(index)) else { return true };
        let mut others = listener.targets.iter().filter(|it| !it.is_this_thread);
        others.all(|it| it.inbox.reservations.start_awaiting_slot())
    }

    /// Passes an accepted connection to the chosen thread. The calling thread keeps the connection
    /// if the chosen one refuses it.
    fn deliver(&mut self, index: u16, choice: TargetChoice, fd: OwnedFd, peer: Option<SocketAddr>) {
        let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
        let mut fd = fd;
        let tls = listener.tls.clone();
        if let TargetChoice::Reserved(thread) = choice {
            let inbox = &listener.targets[thread].inbox;
            let adopt = Command::Adopt(fd, peer, tls.clone());
            match inbox.push_command(adopt).map_err(|it| it.into_inner()) {
                // The thread's queue of commands is full, or the thread has ended: this thread
                // keeps it.
                Err(Command::Adopt(refused, ..)) => {
                    inbox.release_reserved_slot();
                    fd = refused;
                }
                _ => return,
            }
        }
        // Without space here the connection is closed and counted as turned away.
        if self.add_accepted(fd, peer, tls.as_ref()).is_err() {
            self.resume_accepting();
        }
    }

    /// Rejects one connection when no descriptor is free; returns `true` if it did. It closes the
    /// descriptor held in reserve, accepts the connection and closes it. Under
    /// `FullConnectionsPolicy::Wait` it does nothing.
    fn reject_one(&mut self, index: u16) -> bool {
        if self.core.config.when_full == FullConnectionsPolicy::Wait
            || self.reserve_fd.take().is_none()
        {
            return false;
        }
        let Some(listener) = self.listeners.get(usize::from(index)) else { return false };
        let turned_away = socket::accept(listener.fd.as_fd()).is_ok();
        self.core.stats.turned_away_count += u64::from(turned_away);
        self.open_reserve_fd();
        turned_away
    }

    pub(super) fn open_reserve_fd(&mut self) {
        if self.core.config.when_full == FullConnectionsPolicy::Reject && self.reserve_fd.is_none()
        {
            self.reserve_fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok();
        }
    }

    /// Pauses a listener until one of its threads has a free slot, or `ACCEPT_RETRY_NS` have
    /// passed.
    fn pause(&mut self, index: u16) {
        let Some(listener) = self.listeners.get_mut(usize::from(index)) else { return };
        if !listener.is_paused {
            listener.is_paused = true;
            self.core.stats.accept_pauses_count += 1;
        }
        if !self.is_accept_retry_scheduled {
            self.is_accept_retry_scheduled = true;
            self.start_timer(ACCEPT_RETRY_NS, TimerPurpose::RetryAccept);
        }
    }

    /// Resumes all paused listeners, as it may be possible to open connections again.
    pub(super) fn resume_accepting(&mut self) {
        self.open_reserve_fd();
        for (index, listener) in (0..).zip(&mut self.listeners) {
            if listener.is_paused {
                listener.is_paused = false;
                self.core.enqueue_listener(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::BytesCodec;
    use crate::{CloseReason, Config, Conn};
    use handover_base::clock;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Time limit for a connection to reach the kernel's queue, at least ten times the usual
    /// duration.
    const TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

    /// Handler that calls a function for each accepted connection.
    struct Hook(Box<dyn FnMut() + Send>);

    impl Handler for Hook {
        type Codec = BytesCodec;
        type Data = ();

        fn on_accept(&mut self, _conn: &mut Conn<'_, BytesCodec, ()>) {
            (self.0)();
        }

        fn on_message(&mut self, _conn: &mut Conn<'_, BytesCodec, ()>, _message: &[u8]) {}
    }

    fn reactor(connections_max: u32, on_accept: impl FnMut() + Send + 'static) -> Reactor<Hook> {
        let config = Config { connections_max, ..Config::default() };
        Reactor::new(config, BytesCodec, Hook(Box::new(on_accept))).expect("a reactor")
    }

    /// Lets `first` listen for itself and for `second`, as
    /// [`AcceptPolicy::RoundRobin`](crate::AcceptPolicy) does.
    fn listen(first: &mut Reactor<Hook>, second: &Reactor<Hook>) -> SocketAddr {
        let threads = vec![Arc::clone(first.inbox()), Arc::clone(second.inbox())];
        let here = ListenOptions::new("127.0.0.1:0".parse().expect("parse the address"));
        first.add_listener(&here, false, threads).expect("a free port")
    }

    /// Connects, and waits until the connection can be accepted.
    fn connect(first: &Reactor<Hook>, address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).expect("the kernel answers");
        let mut listener = [PollFd::new(&first.listeners[0].fd, PollFlags::IN)];
        assert_eq!(poll(&mut listener, Some(&TIMEOUT)), Ok(1));
        stream
    }

    #[test]
    fn paused_listener_resumes_when_another_thread_closes_a_connection() {
        let (mut first, mut second) = (reactor(1, || {}), reactor(1, || {}));
        let address = listen(&mut first, &second);
        let _peers = [(); 3].map(|()| {
            let peer = connect(&first, address);
            first.accept_from_listener(0);
            peer
        });
        assert_eq!((first.core.slab.len(), second.commands.len()), (1, 1));
        second.execute_commands();
        first.execute_commands();
        assert!(first.listeners[0].is_paused, "not paused although both threads are full");
        let key = second.core.slab.key_at(0).expect("one connection");
        second.close(key.into(), &CloseReason::Local);
        first.execute_commands();
        first.serve_ready();
        assert_eq!(second.commands.len(), 1, "the third connection was not handed over");
    }

    #[test]
    fn listener_that_misses_the_last_slot_during_a_takeover_resumes_after_it() {
        let first = Arc::new(Mutex::new(reactor(1, || {})));
        // While `second` takes a connection over, it counts as open and as reserved.
        let mut second = reactor(2, {
            let first = Arc::clone(&first);
            move || first.lock().expect("the mutex is poisoned").accept_from_listener(0)
        });
        let lock = || first.lock().expect("the mutex is poisoned");
        let address = listen(&mut lock(), &second);
        let accept = || {
            let peer = connect(&lock(), address);
            lock().accept_from_listener(0);
            peer
        };
        let _accepted = [accept(), accept()];
        assert_eq!((lock().core.slab.len(), second.commands.len()), (1, 1));
        let _third = connect(&lock(), address);
        second.execute_commands();
        let mut first = lock();
        assert!(first.listeners[0].is_paused, "not paused although no slot is free");
        first.execute_commands();
        first.serve_ready();
        assert_eq!(second.commands.len(), 1, "the third connection was not handed over");
    }

    /// Checks that a connection does not become idle if it is accepted, and its first bytes read,
    /// 15 s after the start of an iteration, as if another handler call had taken this time.
    fn check_late_activity(tls: Option<&TlsServerConfig>) {
        let config = Config::default().idle_timeout(Duration::from_secs(10));
        let mut reactor =
            Reactor::new(config, BytesCodec, Hook(Box::new(|| {}))).expect("a reactor");
        let (mut peer, accepted) = UnixStream::pair().expect("a pair of sockets");
        for is_read in [false, true] {
            reactor.core.now_ns = clock::now_ns().saturating_sub(15_000_000_000);
            if is_read {
                peer.write_all(&[22, 3, 1]).expect("space in the socket"); // an incomplete record
                reactor.serve_unreported(reactor.core.slab.key_at(0).expect("a connection").into());
            } else {
                let accepted = accepted.try_clone().expect("a free descriptor");
                reactor.add_accepted(accepted.into(), None, tls).expect("a free slot");
            }
            reactor.core.now_ns = clock::now_ns();
            reactor.sweep_idle_connections();
            assert_eq!(reactor.core.slab.len(), 1, "closed as idle; is_read: {is_read}");
        }
    }

    #[test]
    fn connection_that_is_active_late_in_an_iteration_does_not_become_idle() {
        check_late_activity(None);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_connection_that_is_active_late_in_an_iteration_does_not_become_idle() {
        let identity = crate::tls::Identity::generate(&["localhost"]).expect("an identity");
        let tls = TlsServerConfig::new(&identity, Default::default()).expect("a configuration");
        check_late_activity(Some(&tls));
    }
}
