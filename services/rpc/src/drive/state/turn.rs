//! One turn of the event loop: receives from all peers, and sends queued data.

use super::{FRAMES_MAX, STREAMS_TRIED_MAX, Sink, State, TURNS_PER_LOOK};
use crate::drive::monitor::{Ending, Side};
use crate::drive::pool::Done;
use crate::engine::{Header, Kind, Outcome, PeerKey, Refusal};
use crate::{Gone, stage};

/// Turns that a piece of a bulk transfer counts as: it takes so long that the clock is read after
/// each.
const PIECE_TURNS: u32 = TURNS_PER_LOOK;

impl State {
    /// Does all pending work without waiting. Returns `true` if there was any.
    #[inline]
    pub(crate) fn turn(&mut self, sink: &mut impl Sink, eager: bool) -> bool {
        let mut did = false;
        if self.inbox.has_any() {
            did |= self.take_inbox();
        }
        if self.any_queued {
            did |= self.flush();
        }
        if self.bulk.is_busy() && self.bulk_turn() {
            self.turns += PIECE_TURNS;
            did = true;
        }
        let eager_streams = eager && self.streams_count <= STREAMS_TRIED_MAX;
        let mut at = 0;
        while at < self.active.len() {
            let place = self.active[at];
            did |= self.drain(place, sink, eager_streams);
            // If the connection was closed, another peer has taken its index in the list.
            at += usize::from(self.active.get(at) == Some(&place));
        }
        if !self.ended.is_empty() {
            self.bury(sink);
            did = true;
        }
        if self.catch_up && sink.catches_up() {
            did |= self.catch_up(sink);
        }
        did |= self.flush_if_due();
        self.turns += 1;
        if self.turns >= TURNS_PER_LOOK {
            self.turns = 0;
            // Events found here are handled in the next turn, so the result keeps the caller from
            // sleeping before.
            did |= self.look_if_due(eager && !eager_streams);
        }
        did
    }

    #[inline]
    pub(super) fn drain(&mut self, place: u32, sink: &mut impl Sink, eager: bool) -> bool {
        let key = self.key(place);
        for count in 0..FRAMES_MAX {
            let Some(at) = self.places.get_mut(place as usize) else { return true };
            let Some(link) = at.link.as_mut().filter(|_| at.generation == key.generation) else {
                return true;
            };
            // After the first frame, only bytes that were read with it are decoded: the frame's
            // recipient need not wait for a system call that finds nothing more.
            match link.receive(&mut self.body, eager && count == 0) {
                Ok(Some(header)) => {
                    // A handler that waits for a call receives into another buffer meanwhile.
                    let body = std::mem::take(&mut self.body);
                    self.frame(key, header, &body, sink);
                    self.body = body;
                }
                Ok(None) => {
                    if self.sweep_at_ns == u64::MAX && link.wants_sweep() {
                        self.sweep_later();
                    }
                    self.turns += count;
                    return count > 0;
                }
                Err(gone) => {
                    self.close(key, &gone);
                    return true;
                }
            }
        }
        self.turns += FRAMES_MAX;
        true
    }

    #[inline]
    fn frame(&mut self, peer: PeerKey, header: Header, body: &[u8], sink: &mut impl Sink) {
        match header.kind {
            Kind::Request | Kind::OneWay => {
                stage::received(header.call);
                let behind = !self.places[peer.place as usize].put_off.is_empty();
                if behind || self.any_queued && self.is_choked(peer) {
                    self.put_off(peer, header, body);
                } else {
                    self.stats.requests_count += 1;
                    sink.request(self, peer, header, body);
                }
            }
            Kind::Response => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.answered(peer, header.call, &Outcome::Result, body.len());
                }
                self.complete(header.call, peer, Outcome::Result, body);
            }
            Kind::Refusal => {
                let refused = Outcome::Refused(Refusal::of(header.method));
                if let Some(monitor) = &mut self.monitor {
                    monitor.answered(peer, header.call, &refused, body.len());
                }
                self.complete(header.call, peer, refused, body);
            }
            Kind::Cancel => {
                if let Some(pool) = &self.pool {
                    pool.cancel(peer, header.call);
                }
                if let Some(monitor) = &mut self.monitor {
                    monitor.end(Side::Server, peer, header.call, 0, Ending::GivenUp);
                }
                self.places[peer.place as usize].put_off.cancel(header.call);
            }
            Kind::Bye => self.close(peer, &Gone::HungUp),
            Kind::Bulk | Kind::Data => self.bulk_frame(peer, header, body),
        }
    }

    #[inline]
    fn complete(&mut self, call: u64, peer: PeerKey, outcome: Outcome, body: &[u8]) {
        self.calls.complete(call, peer, outcome, body);
        stage::completed(call);
        if !self.others.await_none() {
            self.keep_promise(call);
        }
    }

    #[cold]
    fn bulk_frame(&mut self, peer: PeerKey, header: Header, body: &[u8]) {
        let queued_before = self.queued_bytes(peer);
        let understood = match header.kind {
            Kind::Data => self.bulk_data(peer, header, body),
            _ => self.bulk_message(peer, body),
        };
        let queued_bytes = self.queued_bytes(peer);
        if let Err(error) = understood {
            self.close(peer, &error.into());
        } else if queued_bytes > queued_before.max(self.config.queued_bytes_max as usize) {
            // Answers to bulk messages are not put off as requests are, so the peer must read them.
            self.close(peer, &Gone::Flooded);
        }
    }

    #[cold]
    fn take_inbox(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.inbox.take(&mut done, &mut self.others.posts);
        self.stopped |= self.inbox.take_stop();
        let did = !done.is_empty() || self.stopped;
        for Done { peer, call, answer, body } in done.drain(..) {
            self.respond(peer, call, answer, &body);
            self.tell_pool(peer, body.len());
        }
        self.done = done;
        did | self.do_posts()
    }

    /// Tells the pool that answers of `taken_bytes` bytes were taken for that peer, and how many
    /// bytes are queued for it.
    fn tell_pool(&mut self, peer: PeerKey, taken_bytes: usize) {
        let queued_bytes = self.queued_bytes(peer);
        let Some(pool) = &self.pool else { return };
        for job in pool.told(peer, taken_bytes, queued_bytes) {
            match job.one_way {
                true => self.handled_one_way(peer, Err(Refusal::Full)),
                false => self.respond(peer, job.call, Err(Refusal::Full), &[]),
            }
        }
    }

    #[cold]
    fn flush(&mut self) -> bool {
        let (mut did, mut queued) = (false, false);
        for at in (0..self.active.len()).rev() {
            let key = self.key(self.active[at]);
            let at = &mut self.places[key.place as usize];
            let Some(link) = at.link.as_mut().filter(|it| it.queued_bytes() > 0) else { continue };
            if !at.is_told_of {
                link.told();
            }
            match link.flush() {
                Ok(went) => {
                    let queued_bytes = link.queued_bytes();
                    queued |= queued_bytes > 0;
                    if went {
                        did = true;
                        self.catch_up_with(key);
                        self.tell_pool(key, 0);
                    }
                }
                Err(gone) => self.close(key, &gone),
            }
        }
        self.any_queued = queued;
        did
    }

    /// Has queued frames sent in this turn, and in the next ones those for which there is no room.
    pub(in crate::drive) fn flush_in_turn(&mut self) {
        self.is_flush_due = true;
        self.any_queued = true;
    }

    #[inline]
    pub(in crate::drive) fn flush_if_due(&mut self) -> bool {
        std::mem::take(&mut self.is_flush_due) && self.flush()
    }
}
