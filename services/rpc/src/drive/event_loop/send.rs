//! Sending: calls, one-way requests, answers, and the end of a connection.

use super::EventLoop;
use crate::drive::hooks::{CallOutcome, CallRole};
use crate::engine::{CallId, Header, Kind, ONE_WAY, PeerKey, Refusal};
use crate::{CallError, CloseReason, stage};

impl EventLoop {
    #[inline]
    pub(in crate::drive) fn send(
        &mut self,
        peer: PeerKey,
        header: Header,
        body: &[u8],
    ) -> Result<(), CallError> {
        self.peers.send(peer, header, body).inspect_err(|_| self.fail_calls_of_closed())
    }

    /// Starts a call. If it cannot be sent, returns an error, and no call is under way.
    #[inline]
    pub(crate) fn start(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
        deadline_ns: u64,
    ) -> Result<CallId, CallError> {
        self.peers.check_send(peer, body.len(), self.config.queued_bytes_max)?;
        let Some(id) = self.calls.start(peer, deadline_ns) else { return Err(CallError::Full) };
        self.stats.calls_count += 1;
        stage::forward(id.word());
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        let header = Header { body_bytes, kind: Kind::Request, method, call: id.word() };
        self.hooks.begin(CallRole::Caller, peer, id.word(), method, body.len());
        match self.send(peer, header, body) {
            Ok(()) => {
                stage::sent(id.word());
                Ok(id)
            }
            Err(error) => {
                self.hooks.end(CallRole::Caller, peer, id.word(), 0, CallOutcome::Disconnected);
                self.calls.forget(id);
                Err(error)
            }
        }
    }

    pub(crate) fn send_one_way(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
    ) -> Result<(), CallError> {
        self.peers.check_send(peer, body.len(), self.config.queued_bytes_max)?;
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        self.hooks.begin(CallRole::Caller, peer, ONE_WAY, method, body.len());
        let header = Header { body_bytes, kind: Kind::OneWay, method, call: 0 };
        let sent = self.send(peer, header, body);
        self.hooks.end(CallRole::Caller, peer, ONE_WAY, 0, CallOutcome::Result);
        // There is no answer that could report it later.
        if self.peers.has_hung_up(peer) { Err(CloseReason::ClosedByPeer.into()) } else { sent }
    }

    #[inline]
    pub(crate) fn respond(
        &mut self,
        peer: PeerKey,
        call: u64,
        answer: Result<(), Refusal>,
        body: &[u8],
    ) {
        self.hooks.end(CallRole::Server, peer, call, body.len(), answer.into());
        let Some(at) = self.peers.get(peer) else { return };
        let fits = body.len() <= at.message_bytes_max;
        // The text of a refusal may be too long, too.
        let answer = if fits { answer } else { Err(Refusal::TooLong) };
        let (kind, method) = match answer {
            Ok(()) => (Kind::Response, 0),
            Err(refusal) => (Kind::Refusal, refusal as u64),
        };
        let has_body = matches!(answer, Ok(()) | Err(Refusal::Failed)) && fits;
        let body = if has_body { body } else { &[] };
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        // An error is ignored: a disconnected peer needs no answer.
        let _ = self.send(peer, Header { body_bytes, kind, method, call }, body);
        stage::responded(call);
    }

    /// Defers a request, or refuses it if too many bytes of that peer's requests are deferred.
    /// Disconnects a peer that does not read the refusals either.
    pub(super) fn defer(&mut self, peer: PeerKey, header: Header, body: &[u8]) {
        let queued_bytes_max = self.config.queued_bytes_max;
        if self.peers.defer(peer, header, body, queued_bytes_max) {
            self.has_deferred |= self.peers.scheduled_count() > 0;
            return;
        }
        self.stats.requests_count += 1;
        if header.kind == Kind::OneWay {
            return self.hooks.end(CallRole::Server, peer, ONE_WAY, 0, CallOutcome::Refused);
        }
        self.respond(peer, header.call, Err(Refusal::Full), &[]);
        if self.peers.queued_bytes(peer) > queued_bytes_max as usize {
            self.close(peer, CloseReason::AnswersUnread);
        }
    }

    /// Cancels a call made by this endpoint; a later answer is dropped.
    pub(crate) fn cancel(&mut self, id: CallId) {
        let Some(peer) = self.calls.peer(id) else { return };
        let pending = self.calls.is_done(id) == Some(false);
        self.calls.forget(id);
        if pending {
            self.hooks.end(CallRole::Caller, peer, id.word(), 0, CallOutcome::Cancelled);
            let header = Header { body_bytes: 0, kind: Kind::Cancel, method: 0, call: id.word() };
            // An error is ignored: a disconnected peer need not be notified.
            let _ = self.send(peer, header, &[]);
        }
    }

    pub(crate) fn disconnect(&mut self, peer: PeerKey) -> bool {
        let known = self.peers.is_connected(peer);
        let header = Header { body_bytes: 0, kind: Kind::Bye, method: 0, call: 0 };
        let _ = self.send(peer, header, &[]);
        self.close(peer, CloseReason::ClosedLocally);
        known
    }
}
