//! How peers come and go: those who knock are greeted and let in, the dead are seen off.

use super::{FRAMES_MAX, LOG, Place, STREAMS_TRIED_MAX, Sink, State};
use crate::config::SLOTS_LIMIT;
use crate::drive::greet::Greeting;
use crate::drive::listen;
use crate::drive::poll::{GENERATION_MASK, Whose};
use crate::engine::PeerKey;
use crate::{Address, EndpointError, Gone, LogLevel};
use handover_base::clock;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::Duration;

/// How many may have connected and not said yet who they are.
const STRANGERS_MAX: usize = 1024;
/// How long not to accept after the kernel has refused to.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

impl State {
    pub(crate) fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
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

    fn handshake_deadline_ns(&self) -> u64 {
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
        let greeting = Greeting::connected(fd, address.clone(), &self.config, deadline_ns)?;
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
        let free = |(place, it): (usize, &Option<_>)| it.is_none() && !is_settled(place);
        let place = self.greetings.iter().enumerate().position(free).unwrap_or_else(|| {
            self.greetings.push(None);
            self.greetings.len() - 1
        });
        let number = u32::try_from(place).map_err(|_| Errno::MFILE)?;
        self.poll.add(&greeting.fd, Whose::Greeting(number))?;
        self.greetings[place] = Some(greeting);
        Ok(number)
    }

    pub(super) fn accept_all(&mut self) {
        self.accept_again_ns = None;
        for at in 0..self.listeners.len() {
            loop {
                match listen::accept(&self.listeners[at]) {
                    Ok(Some(fd)) => {
                        let address = self.listeners[at].address.clone();
                        let deadline_ns = self.handshake_deadline_ns();
                        let greeting = Greeting::accepted(fd, address, deadline_ns);
                        self.make_room_for_greeting();
                        // Of somebody else's, nothing is waited for.
                        if greeting.check_user().is_err() || self.greet(greeting).is_err() {
                            self.stats.turned_away_count += 1;
                        }
                    }
                    Ok(None) => break,
                    // No descriptors, most likely: perhaps there are some later.
                    Err(_) => {
                        self.accept_again_ns = Some(clock::now_ns() + ACCEPT_PAUSE_NS);
                        break;
                    }
                }
            }
        }
    }

    /// Who connects and says nothing keeps others out, and descriptors, no longer than until there are too many.
    fn make_room_for_greeting(&mut self) {
        let knocks =
            || self.greetings.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?)));
        let strangers = || knocks().filter(|(_, it)| !it.is_ours());
        if strangers().count() < STRANGERS_MAX {
            return;
        }
        if let Some((at, _)) = strangers().min_by_key(|(_, it)| it.deadline_ns) {
            self.greetings[at] = None;
            self.settle(at as u32, false, Err(Gone::Silent));
        }
    }

    pub(super) fn advance(&mut self, number: u32) {
        let Some(greeting) = self.greetings.get_mut(number as usize).and_then(Option::as_mut)
        else {
            return; // Settled already.
        };
        match greeting.advance() {
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

    pub(super) fn settle(&mut self, number: u32, was_ours: bool, settled: Result<PeerKey, Gone>) {
        if let Err(why) = &settled {
            self.stats.turned_away_count += 1;
            if self.logs(LogLevel::Warning) {
                tracing::warn!(target: LOG, %why, "a connection came to nothing");
            }
        }
        if was_ours {
            self.settled.push((number, settled));
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
                put_off_bytes: 0,
            });
            // Fewer than peers_max, which is a u32.
            (self.places.len() - 1) as u32
        });
        let key = self.key(place);
        let whose = Whose::Peer { place, generation: key.generation };
        let agreed = match self.poll.promote(greeting.fd.as_fd(), whose) {
            Ok(()) => greeting.agree(&self.config),
            Err(errno) => Err(Gone::Broken { call: "epoll_ctl", errno }),
        };
        match agreed {
            Ok(agreed) => {
                let at = &mut self.places[place as usize];
                at.in_memory = agreed.link.in_memory();
                at.message_bytes_max = agreed.message_bytes_max as usize;
                at.put_off_bytes = 0;
                at.is_told_of = true;
                self.streams_count += usize::from(!at.in_memory);
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

    pub(crate) fn close(&mut self, peer: PeerKey, why: &Gone) {
        let Some(link) = self.link(peer) else { return };
        link.close();
        let socket = link.linger();
        let place = &mut self.places[peer.place as usize];
        place.link = None;
        place.put_off_bytes = 0;
        place.generation = place.generation.wrapping_add(1) & GENERATION_MASK;
        self.streams_count -= usize::from(!place.in_memory);
        self.active.retain(|&it| it != peer.place);
        self.free.push(peer.place);
        self.put_off.retain(|it| it.peer != peer);
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
