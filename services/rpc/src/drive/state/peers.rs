//! Connections: listening, handshakes, admission of peers, and the end of connections.

use super::{FRAMES_MAX, LOG, Place, STREAMS_TRIED_MAX, Sink, State};
use crate::clock;
use crate::config::SLOTS_LIMIT;
use crate::drive::greet::Greeting;
use crate::drive::link::AnyLink;
use crate::drive::listen;
use crate::drive::poll::{GENERATION_MASK, Poll, Whose};
use crate::drive::wire::Wire;
use crate::engine::{Backlog, PeerKey};
use crate::raw::{peer_process, whose};
use crate::{Address, EndpointError, Gone, LogLevel};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Maximum number of connections accepted from a listener before all other work has its turn.
const ACCEPTS_MAX: u32 = 64;
/// Part of the handshake timeout after which the oldest handshake makes room for another, if as
/// many are under way as allowed.
const PATIENCE_PART: u64 = 16;
/// Pause of a listener after a failed accept, in ns.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

impl State {
    pub(crate) fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
        self.security.check_listen(address)?;
        let listener = listen::listen(address)?;
        let whose = Whose::Listener(u32::try_from(self.listeners.len()).unwrap_or(u32::MAX));
        self.poll.add(&listener.fd, whose).map_err(|errno| EndpointError::Refused {
            call: "epoll_ctl",
            place: listener.address.to_string(),
            errno,
        })?;
        let known = listener.address.clone();
        self.config.listen.push(known.clone());
        self.listeners.push(listener);
        Ok(known)
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.address)
    }

    pub(crate) fn handshake_deadline_ns(&self) -> u64 {
        clock::now_ns() + u64::from(self.config.handshake_timeout_ms) * 1_000_000
    }

    /// Connects and starts a handshake. Returns the number of the handshake.
    pub(crate) fn knock(&mut self, address: &Address) -> Result<u32, EndpointError> {
        let timeout = Duration::from_millis(self.config.handshake_timeout_ms.into());
        if self.active.len() >= self.config.peers_max as usize {
            return Err(EndpointError::Full { peers_max: self.config.peers_max });
        }
        let deadline_ns = self.handshake_deadline_ns();
        let fd = listen::connect(address, timeout)?;
        let wire = self.security.connect(fd, address)?;
        self.knock_over(wire, address, deadline_ns)
    }

    /// Starts a handshake over a connected byte stream. Returns the number of the handshake.
    pub(crate) fn knock_over(
        &mut self,
        wire: Wire,
        address: &Address,
        deadline_ns: u64,
    ) -> Result<u32, EndpointError> {
        let (config, security) = (&self.config, &self.security);
        let greeting = Greeting::connected(wire, address.clone(), config, security, deadline_ns)?;
        self.greet(greeting).map_err(|errno| EndpointError::Refused {
            call: "epoll_ctl",
            place: address.to_string(),
            errno,
        })
    }

    /// Returns the result of that handshake and forgets it; `None` if it is not settled.
    pub(crate) fn settled(&mut self, greeting: u32) -> Option<Result<PeerKey, Gone>> {
        let at = self.settled.iter().position(|(place, _)| *place == greeting)?;
        Some(self.settled.swap_remove(at).1)
    }

    fn greet(&mut self, greeting: Greeting) -> Result<u32, Errno> {
        // A number whose settled result nobody has asked for yet is not reused.
        let is_settled = |place: usize| self.settled.iter().any(|(it, _)| *it as usize == place);
        let is_free = |place: usize| self.greetings.get(place).is_none_or(Option::is_none);
        let mut place = 0;
        while !is_free(place) || is_settled(place) {
            place += 1;
        }
        let number = u32::try_from(place).map_err(|_| Errno::MFILE)?;
        self.poll.add(greeting.fd(), Whose::Greeting(number))?;
        if place >= self.greetings.len() {
            self.greetings.resize_with(place + 1, || None);
        }
        self.greetings[place] = Some(greeting);
        Ok(number)
    }

    /// Accepts from each listener, at most ACCEPTS_MAX connections and while there is room for more
    /// handshakes. Further connections wait in the kernel's queue.
    pub(super) fn accept_some(&mut self) {
        self.accept_again_ns = None;
        for at in 0..self.listeners.len() {
            let again_ns = self.accept_from(at);
            self.accept_again_ns = self.accept_again_ns.into_iter().chain(again_ns).min();
        }
    }

    /// Returns the time to accept again; `None` to wait for an event of the listener.
    fn accept_from(&mut self, at: usize) -> Option<u64> {
        for _ in 0..ACCEPTS_MAX {
            if let Err(again_ns) = self.make_room_for_greeting() {
                return Some(again_ns);
            }
            match listen::accept(&self.listeners[at]) {
                Ok(Some(fd)) => {
                    let address = self.listeners[at].address.clone();
                    let deadline_ns = self.handshake_deadline_ns();
                    // A peer of a user that is not allowed is turned away at once.
                    if let Err(why) = self.accept(fd, address, deadline_ns) {
                        self.turn_away(&why);
                    }
                }
                Ok(None) => return None,
                // Accepting a connection is worth more than early notice of another one's end.
                Err(Errno::MFILE | Errno::NFILE) if self.unwatch_one_process() => {}
                // Descriptors have most likely run out; there may be some later.
                Err(_) => return Some(clock::now_ns() + ACCEPT_PAUSE_NS),
            }
        }
        Some(clock::now_ns())
    }

    fn accept(&mut self, fd: OwnedFd, address: Address, deadline_ns: u64) -> Result<(), Gone> {
        let wire = self.security.accept(fd, &address)?;
        let number = self.accept_over(wire, address, deadline_ns)?;
        // Most peers have already sent their first message.
        self.advance(number);
        Ok(())
    }

    /// Starts the handshake of a connection that was accepted at that address.
    pub(crate) fn accept_over(
        &mut self,
        wire: Wire,
        address: Address,
        deadline_ns: u64,
    ) -> Result<u32, Gone> {
        let (config, security) = (&self.config, &self.security);
        let greeting = Greeting::accepted(wire, address, config, security, deadline_ns)?;
        self.greet(greeting).map_err(Gone::of("epoll_ctl"))
    }

    /// Makes room for one more handshake. If there is none, the oldest one is turned away once it
    /// has lasted longer than a part of its timeout.
    ///
    /// # Errors
    /// The time to ask again.
    fn make_room_for_greeting(&mut self) -> Result<(), u64> {
        let max = self.config.handshakes_max as usize;
        if self.greetings.len() < max {
            return Ok(());
        }
        let under_way =
            || self.greetings.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?)));
        let strangers = || under_way().filter(|(_, it)| !it.is_ours());
        if strangers().count() < max {
            return Ok(());
        }
        let oldest = strangers().min_by_key(|(_, it)| it.deadline_ns);
        let Some((at, deadline_ns)) = oldest.map(|(at, it)| (at, it.deadline_ns)) else {
            return Ok(());
        };
        let timeout_ns = u64::from(self.config.handshake_timeout_ms) * 1_000_000;
        let patient_until_ns = deadline_ns - (timeout_ns - timeout_ns / PATIENCE_PART);
        if clock::now_ns() < patient_until_ns {
            return Err(patient_until_ns);
        }
        self.greetings[at] = None;
        self.settle(at as u32, false, Err(Gone::Silent));
        Ok(())
    }

    pub(super) fn advance(&mut self, number: u32) {
        let Some(greeting) = self.greetings.get_mut(number as usize).and_then(Option::as_mut)
        else {
            return; // The handshake was settled before.
        };
        match greeting.advance(&self.config, &self.security) {
            Ok(false) => {}
            Ok(true) => {
                if let Some(greeting) = self.greetings[number as usize].take() {
                    let was_ours = greeting.is_ours();
                    let settled = self.admit(greeting);
                    self.settle(number, was_ours, settled);
                }
            }
            Err(gone) => {
                let was_ours = greeting.is_ours();
                self.greetings[number as usize] = None;
                self.settle(number, was_ours, Err(gone));
            }
        }
    }

    /// Handles every connection and handshake as if epoll had reported it.
    #[cfg(test)]
    pub(crate) fn tell_of_all(&mut self) {
        for &place in &self.active {
            if let Some(link) = &mut self.places[place as usize].link {
                link.told();
            }
        }
        for number in 0..self.greetings.len() {
            self.advance(number as u32);
        }
        self.look(Some(0));
    }

    /// Returns the number of bytes that put-off requests count for.
    #[cfg(test)]
    pub(crate) fn put_off_bytes(&self) -> usize {
        self.places.iter().map(|it| it.put_off.bytes()).sum()
    }

    /// Returns `true` while a handshake is under way.
    #[cfg(test)]
    pub(crate) fn is_greeting(&self) -> bool {
        self.greetings.iter().any(Option::is_some)
    }

    pub(super) fn settle(&mut self, number: u32, was_ours: bool, settled: Result<PeerKey, Gone>) {
        while let Some(None) = self.greetings.last() {
            self.greetings.pop();
        }
        // Accepts again at once if listeners were paused, as there may be room now.
        self.accept_again_ns = self.accept_again_ns.map(|_| 0);
        if let Err(why) = &settled {
            self.turn_away(why);
        }
        if was_ours {
            self.settled.push((number, settled));
        }
    }

    fn turn_away(&mut self, why: &Gone) {
        self.stats.turned_away_count += 1;
        if self.logs(LogLevel::Warning) {
            tracing::warn!(target: LOG, %why, "a connection came to nothing");
        }
    }

    /// Adds a peer after a complete handshake, if both sides agree and there is room.
    fn admit(&mut self, greeting: Greeting) -> Result<PeerKey, Gone> {
        if self.active.len() >= self.config.peers_max as usize {
            return Err(Gone::Closed);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                link: None,
                message_bytes_max: 0,
                in_memory: false,
                is_told_of: true,
                put_off: Backlog::default(),
                is_caught_up_with: false,
                process: None,
            });
            // Fewer than peers_max, which is a u32.
            (self.places.len() - 1) as u32
        });
        let key = self.key(place);
        let whose = Whose::Peer { place, generation: key.generation };
        let agreed = match self.poll.promote(greeting.fd(), whose) {
            Ok(()) => greeting.agree(&self.config, &self.security),
            Err(errno) => Err(Gone::Broken { call: "epoll_ctl", errno }),
        };
        match agreed {
            Ok(mut agreed) => {
                let at = &mut self.places[place as usize];
                at.in_memory = agreed.link.in_memory();
                at.message_bytes_max = agreed.message_bytes_max as usize;
                at.is_told_of = true;
                at.process = watched_process(&self.poll, &agreed.link, key);
                if at.process.is_some() {
                    // If this fails, this connection is never waited for in a read.
                    agreed.link.bound_wait_in_read();
                }
                self.streams_count += usize::from(!at.in_memory);
                self.any_queued |= agreed.link.queued_bytes() > 0;
                at.link = Some(agreed.link);
                self.active.push(place);
                if self.config.spin_forever && !at.in_memory {
                    self.choose_who_tells(place);
                }
                if self.logs(LogLevel::Debug) {
                    tracing::debug!(target: LOG, place, "a peer is connected");
                }
                Ok(key)
            }
            Err(gone) => {
                self.free.push(place);
                Err(gone)
            }
        }
    }

    /// Chooses between epoll and plain reads for an endpoint that never sleeps. While it has few
    /// streams, it reads them without a pause and removes them from the epoll set, as notifications
    /// would cost their senders time. If there are more, epoll reports all of them.
    // A round trip over Unix sockets took 1.12 x the bare one with notifications and a read in
    // vain, and 0.95 x without both. 2026-11.
    fn choose_who_tells(&mut self, newest: u32) {
        let asks = self.streams_count <= STREAMS_TRIED_MAX;
        let mut lost = Vec::new();
        for &place in if asks { std::slice::from_ref(&newest) } else { &self.active[..] } {
            let at = &mut self.places[place as usize];
            let Some(link) = at.link.as_ref().filter(|_| at.is_told_of == asks) else { continue };
            let whose = Whose::Peer { place, generation: at.generation };
            let changed = match asks {
                true => self.poll.remove(link.socket()),
                false => self.poll.add(link.socket(), whose),
            };
            match changed {
                Ok(()) => at.is_told_of = !asks,
                Err(errno) => lost.push((PeerKey { place, generation: at.generation }, errno)),
            }
        }
        for (peer, errno) in lost {
            self.close(peer, &Gone::Broken { call: "epoll_ctl", errno });
        }
    }

    /// Returns `true` if there may be streams that are not in the epoll set.
    #[inline]
    pub(super) fn has_untold(&self) -> bool {
        self.config.spin_forever && self.streams_count > 0
    }

    /// Removes peers whose end was reported, after reading what they had sent.
    #[cold]
    pub(super) fn bury(&mut self, sink: &mut impl Sink) {
        for key in std::mem::take(&mut self.ended) {
            // As many frames as the longest ring holds: a peer that still sends is not read for
            // ever.
            for _ in 0..=SLOTS_LIMIT / FRAMES_MAX {
                if !self.is_connected(key) || !self.drain(key.place, sink, false) {
                    break;
                }
            }
            self.close(key, &Gone::HungUp);
        }
    }

    /// Closes the process descriptor of one peer. Returns `false` if there is none.
    #[cold]
    fn unwatch_one_process(&mut self) -> bool {
        self.places.iter_mut().any(|place| unwatch(&self.poll, place))
    }

    pub(crate) fn close(&mut self, peer: PeerKey, why: &Gone) {
        #[cfg(test)]
        crate::simulation::closing(why);
        let Some(link) = self.link(peer) else { return };
        link.close();
        let socket = link.linger();
        let place = &mut self.places[peer.place as usize];
        place.link = None;
        place.put_off = Backlog::default();
        place.is_caught_up_with = false;
        unwatch(&self.poll, place);
        place.generation = place.generation.wrapping_add(1) & GENERATION_MASK;
        self.streams_count -= usize::from(!place.in_memory);
        self.active.retain(|&it| it != peer.place);
        self.free.push(peer.place);
        if let Some(pool) = &self.pool {
            pool.forget(peer);
        }
        self.calls.fail(peer, why);
        if !self.others.await_none() {
            self.keep_promises();
        }
        self.bulk_forget(peer, why, socket);
        if let Some(monitor) = &mut self.monitor {
            monitor.gone(peer);
        }
        self.stats.gone_count += 1;
        if self.logs(LogLevel::Info) {
            tracing::info!(target: LOG, place = peer.place, %why, "a connection has ended");
        }
    }
}

/// Starts to watch the process of a peer on a Unix socket. Returns `None` for a peer in this
/// process, and if no descriptor is available: then only the end of the socket shows the end of the
/// peer.
fn watched_process(poll: &Poll, link: &AnyLink, peer: PeerKey) -> Option<OwnedFd> {
    let (pid, _) = whose(link.socket()).ok()?;
    if pid == i32::try_from(std::process::id()).ok() {
        return None;
    }
    let process = peer_process(link.socket(), pid)?;
    let PeerKey { place, generation } = peer;
    poll.add(&process, Whose::Process { place, generation }).is_ok().then_some(process)
}

/// Stops watching a peer's process. Returns `false` if it was not watched.
fn unwatch(poll: &Poll, place: &mut Place) -> bool {
    let Some(process) = place.process.take() else { return false };
    // Without this, a child of this process that inherited the descriptor would keep it in the
    // epoll set.
    let _ = poll.remove(process);
    true
}
