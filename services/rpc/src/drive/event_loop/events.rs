//! Events of the kernel and of the clock: readiness, connections, handshakes and deadlines.

use super::{EventLoop, LOG_TARGET};
use crate::clock;
use crate::drive::handshakes::FinishedHandshake;
use crate::drive::listen;
use crate::drive::peers::STALLED_SWEEPS_MAX;
use crate::drive::poll::{EventSource, PollEvent};
use crate::{Address, CloseReason, EndpointError, LogLevel, Transport};
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Maximum number of connections accepted from a listener before other work is done.
const ACCEPTS_MAX: u32 = 64;
/// Pause of a listener after a failed accept, in ns.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// Time between two sweeps for unused memory if `message_timeout` is 0, in ns.
const SWEEP_NS: u64 = 4_000_000_000;
/// Minimum time between two sweeps, in ns.
const SWEEP_NS_MIN: u64 = 1_000_000;

impl EventLoop {
    /// Calls epoll if [`EPOLL_INTERVAL_NS`] has passed since the last call. Returns `true` if there
    /// were events, or if there may be data in streams that epoll does not report. Peers that are
    /// reported as closed are handled in the next iteration.
    #[inline]
    pub(in crate::drive) fn poll_if_due_before_iteration(&mut self) -> bool {
        self.record_poll_if_due(false) && (self.poll(Some(0)) | self.has_streams_outside_epoll())
    }

    /// Calls epoll if [`EPOLL_INTERVAL_NS`] has passed since the last call, or if `is_forced`.
    /// Returns `true` if there were events.
    pub(super) fn poll_if_due(&mut self, is_forced: bool) -> bool {
        self.record_poll_if_due(is_forced) && self.poll(Some(0))
    }

    /// Returns `true` if epoll must be called now, and records the time of that call.
    pub(in crate::drive) fn record_poll_if_due(&mut self, is_forced: bool) -> bool {
        let now_ticks = clock::ticks();
        let is_due =
            is_forced || now_ticks.wrapping_sub(self.last_poll_ticks) >= self.poll_interval_ticks;
        if is_due {
            self.last_poll_ticks = now_ticks;
        }
        is_due
    }

    /// Returns `true` if streams may be read without notifications of epoll.
    #[inline]
    fn has_streams_outside_epoll(&self) -> bool {
        self.config.spin_forever && self.peers.streams_count > 0
    }

    /// Calls epoll with this timeout, `None` for no limit, and handles the events. Returns `true`
    /// if there were any.
    pub(crate) fn poll(&mut self, timeout_ns: Option<u64>) -> bool {
        let mut events = std::mem::take(&mut self.epoll_events);
        // An error is impossible: the epoll descriptor and the buffer are valid.
        let _ = self.poll.wait(timeout_ns, &mut events);
        let mut any = false;
        for PollEvent { source, is_end, is_urgent } in events.drain(..) {
            match source {
                EventSource::Inbox => {}
                // Handled in each iteration.
                #[cfg(feature = "ucx")]
                EventSource::Ucx => continue,
                #[cfg(feature = "signal-dump")]
                EventSource::Signal => {
                    if let Some(signal) = &mut self.signal_dump {
                        signal.handle_signals();
                        let is_due = signal.is_due;
                        self.record_due_callbacks(is_due);
                    }
                }
                EventSource::Listener => self.accept_from_all(),
                EventSource::Handshake(number) => self.advance_handshake(number),
                EventSource::Peer(peer) => {
                    if let Some(link) = self.peers.on_ready(peer, is_end || is_urgent)
                        && is_end
                        && link.is_in_shared_memory()
                    {
                        self.reported_closed.push(peer);
                    }
                }
                EventSource::Process(peer) => {
                    if self.peers.on_ready(peer, true).is_some() {
                        self.reported_closed.push(peer);
                    }
                }
            }
            any = true;
        }
        self.epoll_events = events;
        any | self.handle_deadlines()
    }

    // Deadlines.

    /// Does all work whose time has come: for timers, sweeps, connection attempts, handshakes and
    /// paused listeners. Returns `true` if there was new work, which the caller must do before it
    /// sleeps.
    fn handle_deadlines(&mut self) -> bool {
        if self.bulk.has_lingering_memory() {
            self.bulk.free_lingering_memory();
        }
        let (timer_ns, had_callbacks) = (self.timers.next_deadline_ns(), self.has_callbacks);
        self.record_due_callbacks(timer_ns.is_some_and(|at_ns| at_ns <= clock::now_ns()));
        let mut did = self.has_callbacks && !had_callbacks;
        if self.sweep_at_ns != u64::MAX && self.sweep_at_ns <= clock::now_ns() {
            self.sweep_at_ns = u64::MAX;
            if self.peers.sweep(!self.config.connections.message_timeout.is_zero()) {
                self.schedule_sweep();
            }
            self.fail_calls_of_closed();
            did = true;
        }
        if self.accept_again_ns.is_none() && self.handshakes.is_empty() {
            return did;
        }
        let now_ns = clock::now_ns();
        if self.accept_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.accept_from_all();
            did = true;
        }
        for number in self.handshakes.due_attempts(now_ns) {
            self.advance_handshake(number);
        }
        while let Some(late) = self.handshakes.pop_timed_out(now_ns) {
            self.finish_handshake(late);
            did = true;
        }
        did
    }

    /// Returns the time of the earliest deadline, in ns; `u64::MAX` if there is none.
    pub(super) fn next_deadline_ns(&mut self) -> u64 {
        // Timers that are known to be due do not count: while a handler runs, they wait until it
        // has returned.
        let timer_ns = self.timers.next_deadline_ns().filter(|_| !self.has_callbacks);
        let others = [self.handshakes.next_ns(), self.accept_again_ns, timer_ns];
        others.into_iter().flatten().fold(self.sweep_at_ns, u64::min)
    }

    #[cold]
    pub(super) fn schedule_sweep(&mut self) {
        let every_ns = match clock::ns_from_duration(self.config.connections.message_timeout) {
            0 => SWEEP_NS,
            timeout_ns => (timeout_ns / u64::from(STALLED_SWEEPS_MAX)).max(SWEEP_NS_MIN),
        };
        self.sweep_at_ns = clock::now_ns() + every_ns;
    }

    // Connections that begin.

    /// Returns the deadline, in ns, of a handshake that starts now.
    pub(crate) fn handshake_deadline_ns(&self) -> u64 {
        clock::now_ns() + clock::ns_from_duration(self.config.connections.handshake_timeout)
    }

    /// Starts a connection attempt; returns the number of its entry in [`Handshakes`].
    pub(crate) fn start_connecting(&mut self, address: &Address) -> Result<u32, EndpointError> {
        let peers_max = self.config.connections.peers_max;
        if self.peers.active.len() >= peers_max as usize {
            return Err(EndpointError::TooManyPeers { peers_max });
        }
        if address.transport() == Transport::Ucx && address.is_complete() {
            self.peers.ucx.start(address, &self.poll)?;
        }
        let number = self.handshakes.connect(address, self.handshake_deadline_ns())?;
        self.advance_handshake(number);
        Ok(number)
    }

    /// Accepts connections from all listeners, at most ACCEPTS_MAX from each. Further connections
    /// wait in the kernel's queue.
    fn accept_from_all(&mut self) {
        self.accept_again_ns = None;
        for at in 0..self.listeners.len() {
            let again_ns = self.accept_from(at);
            self.accept_again_ns = self.accept_again_ns.into_iter().chain(again_ns).min();
        }
    }

    /// Accepts connections from one listener, at most ACCEPTS_MAX. Returns the time at which to
    /// accept again, or `None` to wait for an event of the listener.
    fn accept_from(&mut self, index: usize) -> Option<u64> {
        for _ in 0..ACCEPTS_MAX {
            if !self.handshakes.has_room(&self.config)
                && !listen::is_connection_waiting(&self.listeners[index])
            {
                return None;
            }
            match self.handshakes.make_room(&self.config, clock::now_ns()) {
                Ok(false) => {}
                Ok(true) => self.count_failed(&CloseReason::HandshakeTimeout),
                Err(again_ns) => return Some(again_ns),
            }
            match listen::accept(&self.listeners[index]) {
                Ok(Some((fd, remote))) => {
                    let address = self.listeners[index].address.clone();
                    // A peer of a user that is not allowed is turned away at once.
                    if let Err(why) = self.accept(fd, address, remote) {
                        self.count_failed(&why);
                    }
                }
                Ok(None) => return None,
                // Accepting a connection is worth more than early notice of another one's end.
                Err(Errno::MFILE | Errno::NFILE) if self.peers.close_one_pidfd(&self.poll) => {}
                // Descriptors have most likely run out; there may be some later.
                Err(_) => return Some(clock::now_ns() + ACCEPT_PAUSE_NS),
            }
        }
        Some(clock::now_ns())
    }

    /// Starts the handshake of an accepted connection.
    fn accept(
        &mut self,
        fd: OwnedFd,
        address: Address,
        remote: Option<IpAddr>,
    ) -> Result<(), CloseReason> {
        let wire = self.security.new_acceptor_wire(fd, &address)?;
        let deadline_ns = self.handshake_deadline_ns();
        let parts = (&self.poll, &self.config, &self.security);
        let number = self.handshakes.accept(wire, (address, remote), deadline_ns, parts)?;
        // Most peers have already sent their first message.
        self.advance_handshake(number);
        Ok(())
    }

    /// Continues a handshake, and finishes it if it is complete or has failed.
    fn advance_handshake(&mut self, number: u32) {
        let parts = (&self.poll, &self.config, &self.security);
        if let Some(finished) = self.handshakes.advance(number, clock::now_ns(), parts) {
            self.finish_handshake(finished);
        }
    }

    /// Adds the peer of a successful handshake, or counts the failure. Stores the result if this
    /// endpoint has initiated the connection.
    fn finish_handshake(&mut self, finished: FinishedHandshake) {
        let FinishedHandshake { number, connected_to, result } = finished;
        let admitted = result.and_then(|handshake| {
            self.peers.add_peer(handshake, &self.poll, &self.config, &self.security)
        });
        self.fail_calls_of_closed();
        // Accepts again at once if listeners were paused, as there may be free slots now.
        self.accept_again_ns = self.accept_again_ns.map(|_| 0);
        match &admitted {
            Ok(peer) if self.is_logged(LogLevel::Debug) => {
                tracing::debug!(target: LOG_TARGET, slot = peer.slot, "a peer is connected");
            }
            Ok(_) => {}
            Err(why) => self.count_failed(why),
        }
        let timeout = self.config.connections.handshake_timeout;
        self.handshakes.finish(number, connected_to, admitted, timeout);
    }

    /// Counts and logs a connection that was refused or whose handshake has failed.
    fn count_failed(&mut self, why: &CloseReason) {
        self.stats.turned_away_count += 1;
        if self.is_logged(LogLevel::Warning) {
            tracing::warn!(target: LOG_TARGET, %why, "a handshake has failed");
        }
    }

    // Interface of the simulation.

    /// Starts a handshake over a simulated byte stream, as connector or acceptor. Returns the
    /// number of the handshake.
    #[cfg(test)]
    pub(crate) fn start_simulated(
        &mut self,
        wire: crate::drive::wire::Wire,
        address: &Address,
        is_connector: bool,
    ) -> u32 {
        let deadline_ns = self.handshake_deadline_ns();
        let parts = (&self.poll, &self.config, &self.security);
        if is_connector {
            let number = self.handshakes.connect_over(wire, address, deadline_ns, parts);
            return number.expect("cannot start the handshake of an initiated connection");
        }
        self.handshakes
            .accept(wire, (address.clone(), None), deadline_ns, parts)
            .expect("cannot start the handshake of an accepted connection")
    }

    /// Handles every connection and handshake as if epoll had reported it.
    #[cfg(test)]
    pub(crate) fn poll_simulated(&mut self) {
        for peer in self.peers.keys().collect::<Vec<_>>() {
            self.peers.on_ready(peer, false);
        }
        for number in 0..self.handshakes.len() {
            self.advance_handshake(number as u32);
        }
        self.poll(Some(0));
    }
}
