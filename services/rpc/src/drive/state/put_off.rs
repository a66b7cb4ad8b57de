//! Requests that wait: behind a handler that waits itself, or until their peer reads its answers.

use super::{Sink, State};
use crate::Gone;
use crate::engine::{Header, Kind, PeerKey, Refusal};

#[derive(Debug)]
pub(super) struct PutOffRequest {
    pub(super) peer: PeerKey,
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

/// What a request with that body takes while it is put off.
fn kept_bytes(body: &[u8]) -> usize {
    body.len() + size_of::<PutOffRequest>()
}

impl State {
    /// Whether so much waits to be sent to that peer that its requests must wait too. What it answers is
    /// read all the same: two that choke each other would never end.
    pub(super) fn is_choked(&mut self, peer: PeerKey) -> bool {
        self.queued_bytes(peer) > self.config.queued_bytes_max as usize / 2
    }

    pub(super) fn queued_bytes(&mut self, peer: PeerKey) -> usize {
        self.link(peer).map_or(0, |link| link.queued_bytes())
    }

    pub(super) fn put_off(&mut self, peer: PeerKey, header: Header, body: &[u8]) {
        let place = &mut self.places[peer.place as usize];
        let bytes = place.put_off_bytes + kept_bytes(body);
        if bytes > self.config.queued_bytes_max as usize {
            return self.refuse_full(peer, header);
        }
        place.put_off_bytes = bytes;
        self.put_off.push_back(PutOffRequest { peer, header, body: body.to_vec() });
        self.catch_up = true;
    }

    /// No more of that peer's requests are kept. Who does not read that either is given up.
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

    pub(super) fn count_put_off(&mut self, peer: PeerKey) {
        let its = self.put_off.iter().filter(|it| it.peer == peer);
        let bytes = its.map(|it| kept_bytes(&it.body)).sum();
        self.places[peer.place as usize].put_off_bytes = bytes;
    }

    /// Does what was put off, of those whose answers can be sent.
    #[cold]
    pub(super) fn catch_up(&mut self, sink: &mut impl Sink) -> bool {
        let mut did = self.chores && self.do_chores();
        for _ in 0..self.put_off.len() {
            let Some(request) = self.put_off.pop_front() else { break };
            if !self.is_connected(request.peer) {
                continue;
            }
            if self.is_choked(request.peer) {
                self.put_off.push_back(request);
                continue;
            }
            let place = &mut self.places[request.peer.place as usize];
            place.put_off_bytes -= kept_bytes(&request.body);
            self.stats.requests_count += 1;
            sink.request(self, request.peer, request.header, &request.body);
            did = true;
        }
        self.catch_up = !self.put_off.is_empty() || self.chores;
        did
    }
}
