//! Requests that wait: behind a handler that waits itself, or until their peer reads its answers.
//!
//! Each peer has a queue of its own. A peer that does not read its answers keeps only its own requests waiting, and
//! costs the others nothing until there is room for its answers again.

use super::{FRAMES_MAX, Sink, State};
use crate::Gone;
use crate::engine::{Header, Kind, PeerKey, Refusal};

#[derive(Debug)]
pub(super) struct PutOffRequest {
    header: Header,
    body: Vec<u8>,
}

/// Bytes that a request takes while it is put off, besides its body.
const REQUEST_BYTES: usize = 128;
const _: () = assert!(size_of::<PutOffRequest>() <= REQUEST_BYTES / 2);

impl State {
    /// Returns `true` if so much waits to be sent to that peer that its requests must wait too. Its answers are read
    /// all the same: two that choke each other would never end.
    pub(super) fn is_choked(&mut self, peer: PeerKey) -> bool {
        self.queued_bytes(peer) > self.config.queued_bytes_max as usize / 2
    }

    pub(super) fn queued_bytes(&mut self, peer: PeerKey) -> usize {
        self.link(peer).map_or(0, |link| link.queued_bytes())
    }

    pub(super) fn put_off(&mut self, peer: PeerKey, header: Header, body: &[u8]) {
        let put_off = &mut self.places[peer.place as usize].put_off;
        let bytes = body.len() + REQUEST_BYTES;
        if put_off.bytes() + bytes > self.config.queued_bytes_max as usize {
            return self.refuse_full(peer, header);
        }
        // Requests that want no answer have no number.
        let call = (header.kind == Kind::Request).then_some(header.call);
        put_off.push(call, bytes, PutOffRequest { header, body: body.to_vec() });
        self.catch_up_with(peer);
    }

    /// No more of that peer's requests are kept. A peer that does not read that either is disconnected.
    #[cold]
    fn refuse_full(&mut self, peer: PeerKey, header: Header) {
        self.stats.requests_count += 1;
        if header.kind == Kind::OneWay {
            return self.handled_one_way(peer, Err(Refusal::Full));
        }
        self.respond(peer, header.call, Err(Refusal::Full), &[]);
        if self.queued_bytes(peer) > self.config.queued_bytes_max as usize {
            self.close(peer, &Gone::Flooded);
        }
    }

    /// Gives that peer a turn in [`catch_up`](Self::catch_up), if it has requests that need not wait for room.
    pub(super) fn catch_up_with(&mut self, peer: PeerKey) {
        if self.is_choked(peer) {
            return; // Until flush() finds room.
        }
        let place = &mut self.places[peer.place as usize];
        if !place.put_off.is_empty() && !place.is_caught_up_with {
            place.is_caught_up_with = true;
            self.caught_up_with.push_back(peer);
            self.catch_up = true;
        }
    }

    /// Does what was put off, of peers whose answers can be sent: of each so many at most as one is read at a time.
    #[cold]
    pub(super) fn catch_up(&mut self, sink: &mut impl Sink) -> bool {
        let mut did = self.chores && self.do_chores();
        for _ in 0..self.caught_up_with.len() {
            let Some(peer) = self.caught_up_with.pop_front() else { break };
            if !self.is_connected(peer) {
                continue;
            }
            self.places[peer.place as usize].is_caught_up_with = false;
            for _ in 0..FRAMES_MAX {
                // A handler may have ended the connection, or filled it.
                if !self.is_connected(peer) || self.is_choked(peer) {
                    break;
                }
                let place = &mut self.places[peer.place as usize];
                let Some(PutOffRequest { header, body }) = place.put_off.pop() else { break };
                self.stats.requests_count += 1;
                sink.request(self, peer, header, &body);
                did = true;
            }
            if self.is_connected(peer) {
                self.catch_up_with(peer);
            }
        }
        self.catch_up = !self.caught_up_with.is_empty() || self.chores;
        did
    }
}
