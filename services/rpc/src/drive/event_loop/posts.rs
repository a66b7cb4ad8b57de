//! Work for other threads, and work between handlers: timers, closures and dumps.

use super::{Callback, CallbackContext, EventLoop};
use crate::CallError;
use crate::clock;
use crate::drive::inbox::{PostedCall, PostedRequest};
use crate::drive::pool::PoolAnswer;
use crate::engine::{PeerKey, Refusal};

impl EventLoop {
    /// Handles the answers, calls and closures that other threads have queued; returns `true` if
    /// there were any.
    #[cold]
    pub(super) fn handle_inbox(&mut self) -> bool {
        let mut answers = std::mem::take(&mut self.answers);
        self.inbox.mailbox.take_all(&mut answers, &mut self.posts);
        self.is_stop_requested |= self.inbox.mailbox.take_stop_request();
        let did = !answers.is_empty() || self.is_stop_requested;
        for PoolAnswer { peer, call, answer, body } in answers.drain(..) {
            self.send_response(peer, call, answer, &body);
            self.update_pool_backlog(peer, body.len());
        }
        self.answers = answers;
        did | self.handle_posts()
    }

    /// Reports to the pool the size of a peer's unsent answers. These are the answers that the
    /// endpoint has taken from the pool, and the bytes queued for sending to the peer.
    pub(super) fn update_pool_backlog(&mut self, peer: PeerKey, taken_bytes: usize) {
        let queued_bytes = self.peers.queued_bytes(peer);
        let Some(pool) = &self.pool else { return };
        for job in pool.update_unsent_bytes(peer, taken_bytes, queued_bytes) {
            match job.is_one_way {
                true => self.record_one_way_end(peer, Err(Refusal::Full)),
                false => self.send_response(peer, job.call, Err(Refusal::Full), &[]),
            }
        }
    }

    /// Starts the calls of other threads, and queues their closures; returns `true` if there were
    /// any.
    fn handle_posts(&mut self) -> bool {
        let mut posts = std::mem::take(&mut self.posts);
        let any = !posts.is_empty();
        for post in posts.drain(..) {
            match post {
                PostedRequest::Call(call) => self.start_posted(call),
                PostedRequest::Cancel(answer) => self.abandon(answer.call_number()),
                PostedRequest::Closure(errand) => self.closures.push_back(errand),
            }
        }
        self.posts = posts;
        self.record_due_callbacks(!self.closures.is_empty());
        any
    }

    /// Starts a call of another thread, and a timer for its deadline.
    fn start_posted(&mut self, posted: PostedCall) {
        let PostedCall { peer, method, arguments, deadline_ns, promise } = posted;
        if deadline_ns != u64::MAX && self.timers.is_full() {
            return promise.set_result(Err(CallError::Full)); // Before anything is sent.
        }
        let id = match self.start_call(peer, method.word(), &arguments, deadline_ns) {
            Ok(id) => id,
            Err(error) => return promise.set_result(Err(error)),
        };
        promise.set_call_number(id.word());
        let late: Callback = Box::new(move |moment| {
            let event_loop = &mut *moment.event_loop;
            if let Some((id, promise, _)) = event_loop.awaited_calls.remove(&id.word()) {
                event_loop.cancel_call(id);
                promise.set_result(Err(CallError::Deadline));
            }
        });
        let timer = match deadline_ns {
            u64::MAX => Ok(None),
            at_ns => self.timers.start(at_ns, late).map(Some),
        };
        match timer {
            Ok(timer) => {
                self.awaited_calls.insert(id.word(), (id, promise, timer));
            }
            Err(_) => {
                self.cancel_call(id);
                promise.set_result(Err(CallError::Full));
            }
        }
    }

    /// Cancels a call that another thread no longer waits for. Dropping its promise sets
    /// [`CallError::EndpointStopped`].
    fn abandon(&mut self, call: u64) {
        let Some((id, _promise, timer)) = self.awaited_calls.remove(&call) else { return };
        timer.map(|it| self.timers.cancel(it));
        self.cancel_call(id);
    }

    /// Fails all requests of other threads with [`CallError::EndpointStopped`], as this thread
    /// stops driving the endpoint.
    pub(in crate::drive) fn fail_awaited_calls(&mut self) {
        self.closures.clear();
        for call in self.awaited_calls.keys().copied().collect::<Vec<_>>() {
            self.abandon(call);
        }
    }

    /// Runs the callbacks of due timers and the closures of other threads. Dumps the state if a
    /// signal was received. Returns `true` if there was any work.
    #[cold]
    pub(super) fn run_callbacks(&mut self) -> bool {
        self.has_callbacks = false;
        let mut did = self.dump_if_requested();
        while let Some(errand) = self.closures.pop_front() {
            errand(&mut CallbackContext { event_loop: self });
            did = true;
        }
        // Timers that are started meanwhile and are due at once run next time.
        let now_ns = clock::now_ns();
        while let Some(callback) = self.timers.pop_due_callback(now_ns) {
            callback(&mut CallbackContext { event_loop: self });
            did = true;
        }
        did
    }

    #[cfg(feature = "signal-dump")]
    fn dump_if_requested(&mut self) -> bool {
        let Some(mut signal) = self.signal_dump.take() else { return false };
        let is_due = std::mem::take(&mut signal.is_due);
        if is_due {
            (signal.callback)(&self.dump());
        }
        self.signal_dump = Some(signal);
        is_due
    }

    #[cfg(not(feature = "signal-dump"))]
    fn dump_if_requested(&mut self) -> bool {
        false
    }
}
