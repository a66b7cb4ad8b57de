//! One iteration of the event loop: receives from all peers, and sends queued data.

use super::{EventLoop, ITERATIONS_PER_CLOCK_READ, RequestSink};
use crate::config::SLOTS_COUNT_LIMIT;
use crate::drive::call_monitor::CallOutcome;
use crate::drive::call_monitor::CallRole::{Caller, Server};
use crate::drive::peers::{DeferredRequest, EAGER_STREAMS_MAX};
use crate::engine::{CallCompletion, FrameHeader, FrameKind, PeerKey, Refusal};
use crate::{CloseReason, stage};

/// Maximum number of consecutive frames received from one peer before other peers are served.
const FRAMES_MAX: u32 = 64;
/// Number of iterations that a piece of a bulk transfer counts as. A piece takes long, so that the
/// clock is read after each.
const PIECE_ITERATIONS: u32 = ITERATIONS_PER_CLOCK_READ;

impl EventLoop {
    /// Does all pending work without waiting; returns `true` if there was any. With `eager`, a few
    /// streams are read even without a notification.
    #[inline]
    pub(crate) fn run_iteration<S: RequestSink>(&mut self, sink: &mut S, eager: bool) -> bool {
        let mut did = false;
        if self.inbox.mailbox.has_items() {
            did |= self.handle_inbox();
        }
        if self.peers.has_queued_frames {
            did |= self.flush();
        }
        did |= self.peers.ucx.progress();
        if self.peers.ucx.has_completed_operations() {
            self.handle_remote_completions();
        }
        if self.bulk.has_data_to_transfer() && self.advance_transfers() {
            self.iterations_since_clock_read += PIECE_ITERATIONS;
            did = true;
        }
        let eager_streams = eager && self.peers.streams_count <= EAGER_STREAMS_MAX;
        if eager_streams {
            let mut at = 0;
            while at < self.peers.active.len() {
                let slot = self.peers.active[at];
                did |= self.receive(slot, sink, true);
                // If the connection was closed, another peer has taken its index in the list.
                at += usize::from(self.peers.active.get(at) == Some(&slot));
            }
        } else {
            let mut from = 0;
            while let Some(slot) = self.peers.next_receivable(from) {
                did |= self.receive(slot, sink, false);
                from = slot + 1;
            }
        }
        if !self.reported_closed.is_empty() {
            self.close_reported(sink);
            did = true;
        }
        if self.has_deferred_work && S::CAN_HANDLE_DEFERRED {
            did |= self.handle_deferred(sink);
        }
        did |= self.flush_if_requested();
        self.iterations_since_clock_read += 1;
        if self.iterations_since_clock_read >= ITERATIONS_PER_CLOCK_READ {
            self.iterations_since_clock_read = 0;
            // Events found here are handled in the next iteration, so the result keeps the caller
            // from sleeping before.
            did |= self.poll_if_due(eager && !eager_streams);
        }
        did
    }

    /// Receives frames from the peer in slot `slot`, at most FRAMES_MAX. Returns `true` if there
    /// was any work.
    #[inline]
    fn receive(&mut self, slot: u32, sink: &mut impl RequestSink, eager: bool) -> bool {
        let key = self.peers.slot_key(slot);
        for count in 0..FRAMES_MAX {
            let Some(link) = self.peers.link_mut(key) else { return true };
            // After the first frame, only bytes that were read with it are decoded: the frame's
            // recipient need not wait for a system call that finds nothing more.
            match link.receive(&mut self.body, eager && count == 0) {
                Ok(Some(header)) => {
                    // A handler that waits for a call receives into another buffer meanwhile.
                    let body = std::mem::take(&mut self.body);
                    self.handle_frame(key, header, &body, sink);
                    self.body = body;
                }
                Ok(None) => {
                    if self.sweep_at_ns == u64::MAX && link.needs_sweep() {
                        self.schedule_sweep();
                    }
                    self.peers.set_drained(slot);
                    self.iterations_since_clock_read += count;
                    return count > 0;
                }
                Err(gone) => {
                    self.close(key, gone);
                    return true;
                }
            }
        }
        self.iterations_since_clock_read += FRAMES_MAX;
        true
    }

    /// Handles a frame of a peer: a request, an answer, or a message about a bulk transfer.
    #[inline]
    fn handle_frame(
        &mut self,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
        sink: &mut impl RequestSink,
    ) {
        match header.kind {
            FrameKind::Request | FrameKind::OneWay => {
                stage::record_received(header.call);
                if self.peers.has_deferred(peer)
                    || self.peers.has_queued_frames && self.peers.should_defer_requests(peer)
                {
                    self.defer_request(peer, header, body);
                } else {
                    self.stats.requests_count += 1;
                    sink.handle_request(self, peer, header, body);
                }
            }
            FrameKind::Response => self.complete(header.call, peer, CallCompletion::Result, body),
            FrameKind::Refusal => {
                let outcome = CallCompletion::Refused(Refusal::from_code(header.method));
                self.complete(header.call, peer, outcome, body);
            }
            FrameKind::Cancel => {
                if let Some(pool) = &self.pool {
                    pool.cancel_job(peer, header.call);
                }
                self.call_monitor.record_end(Server, peer, header.call, 0, CallOutcome::Cancelled);
                self.peers.slots[peer.slot as usize].deferred.cancel(header.call);
            }
            FrameKind::Bye => self.close(peer, CloseReason::ClosedByPeer),
            FrameKind::Bulk | FrameKind::Data => self.handle_bulk_frame(peer, header, body),
        }
    }

    /// Stores the outcome of a call, and passes it to a waiting thread.
    #[inline]
    fn complete(&mut self, call: u64, peer: PeerKey, outcome: CallCompletion, body: &[u8]) {
        self.call_monitor.record_end(Caller, peer, call, body.len(), CallOutcome::from(&outcome));
        self.calls.complete_call(call, peer, outcome, body);
        stage::record_completed(call);
        if !self.awaited_calls.is_empty() {
            self.answer_awaited_call(call);
        }
    }

    #[cold]
    fn handle_bulk_frame(&mut self, peer: PeerKey, header: FrameHeader, body: &[u8]) {
        let queued_before = self.peers.queued_bytes(peer);
        let handled = self.with_bulk_exchange(|it| match header.kind {
            FrameKind::Data => it.handle_data_frame(peer, header, body),
            _ => it.handle_bulk_message(peer, body),
        });
        let queued_bytes = self.peers.queued_bytes(peer);
        if let Err(error) = handled {
            self.close(peer, error.into());
        } else if queued_bytes
            > queued_before.max(self.config.connections.queued_bytes_max as usize)
        {
            // Answers to bulk messages are not deferred as requests are, so the peer must read
            // them.
            self.close(peer, CloseReason::AnswersUnread);
        }
    }

    /// Handles the completed UCX operations of bulk transfers.
    #[cold]
    fn handle_remote_completions(&mut self) {
        let completed = self.peers.ucx.take_completed();
        self.with_bulk_exchange(|it| it.handle_remote_completions(&completed));
    }

    /// Copies and sends pieces of the bulk transfers under way; returns `true` if there was any
    /// work.
    #[cold]
    fn advance_transfers(&mut self) -> bool {
        let did = self.with_bulk_exchange(|it| it.run_bulk_iteration());
        // Before handlers run, which would take the queued bytes for those of a peer that does not
        // read.
        self.flush_if_requested() || did
    }

    /// Handles the last frames of peers whose connections the kernel has reported as closed. Then
    /// removes these peers, and drops their deferred requests.
    #[cold]
    fn close_reported(&mut self, sink: &mut impl RequestSink) {
        // A peer stays in the list until it is closed: if a handler calls it meanwhile, the
        // iterations that wait for the result close it.
        while let Some(&key) = self.reported_closed.first() {
            // As many frames as the longest ring holds: a peer that still sends is not read for
            // ever.
            for _ in 0..=SLOTS_COUNT_LIMIT / FRAMES_MAX {
                if !self.peers.is_connected(key) || !self.receive(key.slot, sink, false) {
                    break;
                }
            }
            self.close(key, CloseReason::ClosedByPeer);
            self.reported_closed.retain(|&it| it != key);
        }
    }

    /// Runs callbacks, and handles at most FRAMES_MAX deferred requests of each peer. Skips peers
    /// that do not read their answers. Returns `true` if there was any work.
    #[cold]
    fn handle_deferred(&mut self, sink: &mut impl RequestSink) -> bool {
        let mut did = self.has_callbacks && self.run_callbacks();
        for _ in 0..self.peers.scheduled_count() {
            let Some(peer) = self.peers.pop_scheduled() else { break };
            for _ in 0..FRAMES_MAX {
                // A handler may have closed the connection, or filled its queue.
                let request = self.peers.pop_deferred(peer);
                let Some(DeferredRequest { header, body }) = request else { break };
                self.stats.requests_count += 1;
                sink.handle_request(self, peer, header, &body);
                did = true;
            }
            self.peers.schedule(peer);
        }
        self.has_deferred_work = self.peers.scheduled_count() > 0 || self.has_callbacks;
        did
    }

    /// Sends queued frames of all peers while there is space; returns `true` if any bytes were
    /// sent.
    #[cold]
    fn flush(&mut self) -> bool {
        let mut did = false;
        self.peers.has_queued_frames = false;
        for at in (0..self.peers.active.len()).rev() {
            // More than one connection may have been closed meanwhile.
            let Some(&slot) = self.peers.active.get(at) else { continue };
            let key = self.peers.slot_key(slot);
            if self.peers.flush(key) {
                did = true;
                self.peers.schedule(key);
                self.has_deferred_work |= self.peers.scheduled_count() > 0;
                self.update_pool_backlog(key, 0);
            }
            self.fail_calls_of_closed();
        }
        did
    }

    /// Sends queued frames if a flush was requested. Returns `true` if any bytes were sent.
    #[inline]
    fn flush_if_requested(&mut self) -> bool {
        self.peers.take_flush_request() && self.flush()
    }
}
