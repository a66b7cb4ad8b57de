//! Sending: calls, one-way requests, answers, and the end of a connection.

use super::EventLoop;
use crate::drive::call_monitor::CallOutcome;
use crate::drive::call_monitor::CallRole::{Caller, Server};
use crate::engine::{CallId, FrameHeader, FrameKind, ONE_WAY_CALL_NUMBER, PeerKey, Refusal};
use crate::{CallError, CloseReason, stage};

impl EventLoop {
    /// Sends a frame, or queues it. If this fails, the connection is closed.
    #[inline]
    pub(in crate::drive) fn send_frame(
        &mut self,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    ) -> Result<(), CallError> {
        self.peers.send(peer, header, body).inspect_err(|_| self.fail_calls_of_closed())
    }

    /// Starts a call by sending its request. If that fails, no call is under way.
    #[inline]
    pub(crate) fn start_call(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
        deadline_ns: u64,
    ) -> Result<CallId, CallError> {
        self.peers.check_send(peer, body.len())?;
        let Some(id) = self.calls.start(peer, deadline_ns) else { return Err(CallError::Full) };
        self.stats.calls_count += 1;
        stage::record_forwarded(id.word());
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        let header = FrameHeader { body_bytes, kind: FrameKind::Request, method, call: id.word() };
        self.call_monitor.record_start(Caller, peer, id.word(), method, body.len());
        match self.send_frame(peer, header, body) {
            Ok(()) => {
                stage::record_sent(id.word());
                Ok(id)
            }
            Err(error) => {
                self.call_monitor.record_end(Caller, peer, id.word(), 0, CallOutcome::Disconnected);
                self.calls.remove(id);
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
        self.peers.check_send(peer, body.len())?;
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        self.call_monitor.record_start(Caller, peer, ONE_WAY_CALL_NUMBER, method, body.len());
        let header = FrameHeader { body_bytes, kind: FrameKind::OneWay, method, call: 0 };
        let sent = self.send_frame(peer, header, body);
        self.call_monitor.record_end(Caller, peer, ONE_WAY_CALL_NUMBER, 0, CallOutcome::Result);
        // There is no answer that could report it later.
        if self.peers.has_hung_up(peer) { Err(CloseReason::ClosedByPeer.into()) } else { sent }
    }

    /// Records the end of a one-way request of a peer, to which no answer is sent.
    #[inline]
    pub(crate) fn record_one_way_end(&mut self, peer: PeerKey, outcome: Result<(), Refusal>) {
        self.call_monitor.record_end(Server, peer, ONE_WAY_CALL_NUMBER, 0, outcome.into());
    }

    /// Sends the answer to a request: the result or a refusal.
    #[inline]
    pub(crate) fn send_response(
        &mut self,
        peer: PeerKey,
        call: u64,
        answer: Result<(), Refusal>,
        body: &[u8],
    ) {
        self.call_monitor.record_end(Server, peer, call, body.len(), answer.into());
        let Some(at) = self.peers.get(peer) else { return };
        let fits = body.len() <= at.message_bytes_max;
        // The text of a refusal may be too long, too.
        let answer = if fits { answer } else { Err(Refusal::TooLong) };
        let (kind, method) = match answer {
            Ok(()) => (FrameKind::Response, 0),
            Err(refusal) => (FrameKind::Refusal, refusal as u64),
        };
        let has_body = matches!(answer, Ok(()) | Err(Refusal::Failed)) && fits;
        let body = if has_body { body } else { &[] };
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        // An error is ignored: a disconnected peer needs no answer.
        let _ = self.send_frame(peer, FrameHeader { body_bytes, kind, method, call }, body);
        stage::record_responded(call);
    }

    /// Defers a request, or refuses it if too many bytes of that peer's requests are deferred.
    /// Disconnects a peer that does not read the refusals either.
    pub(super) fn defer_request(&mut self, peer: PeerKey, header: FrameHeader, body: &[u8]) {
        if self.peers.defer(peer, header, body) {
            self.has_deferred_work |= self.peers.scheduled_count() > 0;
            return;
        }
        self.stats.requests_count += 1;
        if header.kind == FrameKind::OneWay {
            return self.record_one_way_end(peer, Err(Refusal::Full));
        }
        self.send_response(peer, header.call, Err(Refusal::Full), &[]);
        if self.peers.queued_bytes(peer) > self.config.connections.queued_bytes_max as usize {
            self.close(peer, CloseReason::AnswersUnread);
        }
    }

    /// Cancels a call made by this endpoint; a later answer is dropped.
    pub(crate) fn cancel_call(&mut self, id: CallId) {
        let Some(peer) = self.calls.peer(id) else { return };
        let pending = self.calls.is_done(id) == Some(false);
        self.calls.remove(id);
        if pending {
            self.call_monitor.record_end(Caller, peer, id.word(), 0, CallOutcome::Cancelled);
            let header =
                FrameHeader { body_bytes: 0, kind: FrameKind::Cancel, method: 0, call: id.word() };
            // An error is ignored: a disconnected peer need not be notified.
            let _ = self.send_frame(peer, header, &[]);
        }
    }

    pub(crate) fn disconnect(&mut self, peer: PeerKey) -> bool {
        let known = self.peers.is_connected(peer);
        let header = FrameHeader { body_bytes: 0, kind: FrameKind::Bye, method: 0, call: 0 };
        let _ = self.send_frame(peer, header, &[]);
        self.close(peer, CloseReason::ClosedLocally);
        known
    }
}
