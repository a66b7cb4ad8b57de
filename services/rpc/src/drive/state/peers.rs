//! How peers come and go: those who knock are greeted and let in, the dead are seen off.

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

/// Connections accepted from a listener before everything else has its turn.
const ACCEPTS_MAX: u32 = 64;
/// While as many handshakes are under way as there may be, a peer that has been silent for this part of its time
/// makes room for another.
const PATIENCE_PART: u64 = 16;
/// How long not to accept after the kernel has refused to.
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

    /// Connects without waiting for an agreement; which greeting it is.
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

    /// As [`knock`](Self::knock), over a byte stream that is connected.
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

    /// How that greeting was settled, if it was.
    pub(crate) fn settled(&mut self, greeting: u32) -> Option<Result<PeerKey, Gone>> {
        let at = self.settled.iter().position(|(place, _)| *place == greeting)?;
        Some(self.settled.swap_remove(at).1)
    }

    fn greet(&mut self, greeting: Greeting) -> Result<u32, Errno> {
        // Not the number of one that is settled, and whose end somebody is about to ask for.
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

    /// Accepts from each listener as long as there is room for another handshake, and so many at most. The others
    /// wait in the kernel's queue.
    pub(super) fn accept_some(&mut self) {
        self.accept_again_ns = None;
        for at in 0..self.listeners.len() {
            let again_ns = self.accept_from(at);
            self.accept_again_ns = self.accept_again_ns.into_iter().chain(again_ns).min();
        }
    }

    /// Returns when to accept again, if not only when the kernel tells.
    fn accept_from(&mut self, at: usize) -> Option<u64> {
        for _ in 0..ACCEPTS_MAX {
            if let Err(again_ns) = self.make_room_for_greeting() {
                return Some(again_ns);
            }
            match listen::accept(&self.listeners[at]) {
                Ok(Some(fd)) => {
                    let address = self.listeners[at].address.clone();
                    let deadline_ns = self.handshake_deadline_ns();
                    // Of a user that is not allowed, nothing is waited for.
                    if let Err(why) = self.accept(fd, address, deadline_ns) {
                        self.turn_away(&why);
                    }
                }
                Ok(None) => return None,
                // A connection is worth more than to know early that another has ended.
                Err(Errno::MFILE | Errno::NFILE) if self.unwatch_one_process() => {}
                // No descriptors, most likely: perhaps there are some later.
                Err(_) => return Some(clock::now_ns() + ACCEPT_PAUSE_NS),
            }
        }
        Some(clock::now_ns())
    }

    fn accept(&mut self, fd: OwnedFd, address: Address, deadline_ns: u64) -> Result<(), Gone> {
        let wire = self.security.accept(fd, &address)?;
        let number = self.accept_over(wire, address, deadline_ns)?;
        // Most often it has said already who it is.
        self.advance(number);
        Ok(())
    }

    /// Greets whoever has connected to that address over that byte stream.
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

    /// Makes room for one more handshake. A peer that connects and says nothing keeps others out no longer than for
    /// a part of its time.
    ///
    /// # Errors
    /// When to ask again.
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
            return; // Settled already.
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

    /// Does as if the kernel had told of every connection and every greeting.
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

    /// Bytes of requests that are put off, as far as they count against their peers.
    #[cfg(test)]
    pub(crate) fn put_off_bytes(&self) -> usize {
        self.places.iter().map(|it| it.put_off.bytes()).sum()
    }

    /// Returns `true` while a connection is neither agreed upon nor refused.
    #[cfg(test)]
    pub(crate) fn is_greeting(&self) -> bool {
        self.greetings.iter().any(Option::is_some)
    }

    pub(super) fn settle(&mut self, number: u32, was_ours: bool, settled: Result<PeerKey, Gone>) {
        while let Some(None) = self.greetings.last() {
            self.greetings.pop();
        }
        // There is room for another, if one had to wait.
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

    /// A greeting is whole: there is one more peer, if it agrees and there is room.
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
                    // Refused at worst: then it is never waited for there.
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

    /// An endpoint that never sleeps asks a few streams itself, without a pause, and has the kernel not tell of them:
    /// that would cost whoever sends. When there are more, it tells of all.
    // A round trip over Unix sockets took 1.12 x the bare one with that and a look in vain, and 0.95 x without
    // both. 2026-11.
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

    /// Whether there may be streams of which the kernel does not tell.
    #[inline]
    pub(super) fn has_untold(&self) -> bool {
        self.config.spin_forever && self.streams_count > 0
    }

    /// Whose end was told of, and has been read to it.
    #[cold]
    pub(super) fn bury(&mut self, sink: &mut impl Sink) {
        for key in std::mem::take(&mut self.ended) {
            // As much as fits the longest ring: what is not dead after all is not listened to for ever.
            for _ in 0..=SLOTS_LIMIT / FRAMES_MAX {
                if !self.is_connected(key) || !self.drain(key.place, sink, false) {
                    break;
                }
            }
            self.close(key, &Gone::HungUp);
        }
    }

    /// Gives back the descriptor of one peer's process, if there is any.
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

/// The process of a peer on a Unix socket, whose end the kernel tells of from now on. `None` for a peer of this very
/// process, and where there is no descriptor to be had: then the end of the socket alone is the end of the peer.
fn watched_process(poll: &Poll, link: &AnyLink, peer: PeerKey) -> Option<OwnedFd> {
    let (pid, _) = whose(link.socket()).ok()?;
    if pid == i32::try_from(std::process::id()).ok() {
        return None;
    }
    let process = peer_process(link.socket(), pid)?;
    let PeerKey { place, generation } = peer;
    poll.add(&process, Whose::Process { place, generation }).is_ok().then_some(process)
}

/// Ends the watch of a peer's process, if there is one.
fn unwatch(poll: &Poll, place: &mut Place) -> bool {
    let Some(process) = place.process.take() else { return false };
    // Otherwise a child of this process that has inherited the descriptor keeps it in the set.
    let _ = poll.remove(process);
    true
}
