//! Requests that wait: until a running handler has returned, or until their peer reads its answers.
//!
//! Each peer has its own queue. A peer that does not read its answers delays only its own requests,
//! and costs other peers nothing until there is room for its answers again.

use super::{FRAMES_MAX, Sink, State};
use crate::Gone;
use crate::engine::{Header, Kind, PeerKey, Refusal};

#[derive(Debug)]
pub(super) struct PutOffRequest {
    header: Header,
    body: Vec<u8>,
}

/// Bytes that a request counts for while it is put off, in addition to its body.
const REQUEST_BYTES: usize = 128;
const _: () = assert!(size_of::<PutOffRequest>() <= REQUEST_BYTES / 2);

impl State {
    /// Returns `true` if so many bytes are queued for that peer that its requests must wait.
    /// Answers of the peer are still read: otherwise two choked sides could block each other for
    /// ever.
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
        // One-way requests have no number.
        let call = (header.kind == Kind::Request).then_some(header.call);
        put_off.push(call, bytes, PutOffRequest { header, body: body.to_vec() });
        self.catch_up_with(peer);
    }

    /// Refuses a request because too many bytes of that peer's requests are put off. A peer that
    /// does not read the refusals either is disconnected.
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

    /// Gives that peer a turn in [`catch_up`](Self::catch_up), if it has put-off requests and is
    /// not choked.
    pub(super) fn catch_up_with(&mut self, peer: PeerKey) {
        if self.is_choked(peer) {
            return; // flush() calls this again when there is room.
        }
        let place = &mut self.places[peer.place as usize];
        if !place.put_off.is_empty() && !place.is_caught_up_with {
            place.is_caught_up_with = true;
            self.caught_up_with.push_back(peer);
            self.catch_up = true;
        }
    }

    /// Handles put-off requests of peers that are not choked, at most FRAMES_MAX of each.
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
                // A handler may have closed the connection, or filled its queue.
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
