//! Sending: calls, one-way requests, answers, and the end of a connection.

use super::{ONE_WAY, State};
use crate::drive::monitor::{Ending, Side};
use crate::engine::{CallId, Header, Kind, PeerKey, Refusal};
use crate::{CallError, Gone, stage};

impl State {
    #[inline]
    pub(in crate::drive) fn send(
        &mut self,
        peer: PeerKey,
        header: Header,
        body: &[u8],
    ) -> Result<(), CallError> {
        let Some(link) = self.link(peer) else { return Err(CallError::Stale) };
        match link.send(header, body) {
            Ok(()) => {
                if link.queued_bytes() > 0 {
                    self.any_queued = true;
                }
                Ok(())
            }
            Err(gone) => {
                self.close(peer, &gone);
                Err(gone.into())
            }
        }
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
        self.may_send(peer, body)?;
        let Some(id) = self.calls.start(peer, deadline_ns) else { return Err(CallError::Full) };
        self.stats.calls_count += 1;
        stage::forward(id.word());
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        let header = Header { body_bytes, kind: Kind::Request, method, call: id.word() };
        if let Some(monitor) = &mut self.monitor {
            monitor.begin(Side::Caller, peer, id.word(), method, body.len());
        }
        match self.send(peer, header, body) {
            Ok(()) => {
                stage::sent(id.word());
                Ok(id)
            }
            Err(error) => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.end(Side::Caller, peer, id.word(), 0, Ending::Gone);
                }
                self.calls.forget(id);
                Err(error)
            }
        }
    }

    #[inline]
    fn may_send(&self, peer: PeerKey, body: &[u8]) -> Result<(), CallError> {
        let Some(place) = self.place(peer) else { return Err(CallError::Stale) };
        if body.len() > place.message_bytes_max {
            let (bytes, bytes_max) = (body.len(), place.message_bytes_max);
            return Err(CallError::TooLong { bytes, bytes_max });
        }
        let quarter_bytes = self.config.queued_bytes_max as usize / 4;
        if self.any_queued
            && place.link.as_ref().is_some_and(|link| link.queued_bytes() > quarter_bytes)
        {
            return Err(CallError::Full);
        }
        Ok(())
    }

    pub(crate) fn send_one_way(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
    ) -> Result<(), CallError> {
        self.may_send(peer, body)?;
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        if let Some(monitor) = &mut self.monitor {
            monitor.begin(Side::Caller, peer, ONE_WAY, method, body.len());
        }
        let sent =
            self.send(peer, Header { body_bytes, kind: Kind::OneWay, method, call: 0 }, body);
        if let Some(monitor) = &mut self.monitor {
            monitor.end(Side::Caller, peer, ONE_WAY, 0, Ending::Result);
        }
        sent
    }

    /// Records the outcome of a one-way request.
    pub(crate) fn handled_one_way(&mut self, peer: PeerKey, outcome: Result<(), Refusal>) {
        if let Some(monitor) = &mut self.monitor {
            monitor.responded(peer, ONE_WAY, outcome, 0);
        }
    }

    #[inline]
    pub(crate) fn respond(
        &mut self,
        peer: PeerKey,
        call: u64,
        answer: Result<(), Refusal>,
        body: &[u8],
    ) {
        if let Some(monitor) = &mut self.monitor {
            monitor.responded(peer, call, answer, body.len());
        }
        let Some(place) = self.place(peer) else { return };
        let fits = body.len() <= place.message_bytes_max;
        // The text of a refusal may be too long, too.
        let answer = if fits { answer } else { Err(Refusal::TooLong) };
        let (kind, method) = match answer {
            Ok(()) => (Kind::Response, 0),
            Err(refusal) => (Kind::Refusal, refusal as u64),
        };
        let told = matches!(answer, Ok(()) | Err(Refusal::Failed)) && fits;
        let body = if told { body } else { &[] };
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        // An error is ignored: a disconnected peer needs no answer.
        let _ = self.send(peer, Header { body_bytes, kind, method, call }, body);
        stage::responded(call);
    }

    /// Ends a call of this side; a later answer is dropped.
    pub(crate) fn give_up(&mut self, id: CallId) {
        let Some(peer) = self.calls.peer(id) else { return };
        let pending = self.calls.is_done(id) == Some(false);
        self.calls.forget(id);
        if pending {
            if let Some(monitor) = &mut self.monitor {
                monitor.end(Side::Caller, peer, id.word(), 0, Ending::GivenUp);
            }
            let header = Header { body_bytes: 0, kind: Kind::Cancel, method: 0, call: id.word() };
            // An error is ignored: a disconnected peer need not be told.
            let _ = self.send(peer, header, &[]);
        }
    }

    pub(crate) fn disconnect(&mut self, peer: PeerKey) -> bool {
        let known = self.is_connected(peer);
        let header = Header { body_bytes: 0, kind: Kind::Bye, method: 0, call: 0 };
        let _ = self.send(peer, header, &[]);
        self.close(peer, &Gone::Closed);
        known
    }
}
