//! Queue from other threads to an endpoint's thread: answers of the pool, calls, closures, and stop
//! requests.

use super::pool::PoolAnswer;
use super::promises::{Answer, Promise};
use crate::engine::PeerKey;
use crate::mailbox::{Mailbox, PostError, ReceiverState};
use crate::{CallError, Method};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Request of another thread to the endpoint's thread. It is a call, a cancellation, or a closure
/// of type `E` to run between handlers.
pub(crate) enum PostedRequest<E> {
    Call(PostedCall),
    /// Cancellation of the call to which this answer belongs.
    Cancel(Arc<Answer>),
    /// Closure to run between handlers.
    Closure(E),
}

/// Call that another thread has started.
pub(crate) struct PostedCall {
    pub(crate) peer: PeerKey,
    pub(crate) method: Method,
    pub(crate) arguments: Vec<u8>,
    pub(crate) deadline_ns: u64,
    pub(crate) promise: Promise,
}

/// Queue from other threads to an endpoint, with the eventfd that wakes the endpoint's thread.
pub(crate) struct Inbox<E> {
    pub(crate) mailbox: Mailbox<PoolAnswer, PostedRequest<E>>,
    pub(crate) eventfd: OwnedFd,
    /// Maximum number of queued calls and closures of other threads.
    posts_max: usize,
}

impl<E> Inbox<E> {
    pub(crate) fn new(posts_max: usize) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mailbox: Mailbox::new(), eventfd: event, posts_max })
    }

    pub(crate) fn push_answer(&self, answer: PoolAnswer) {
        self.wake_if_asleep(self.mailbox.push_answer(answer));
    }

    /// Queues a request for the endpoint's thread, and wakes the thread if it sleeps.
    ///
    /// # Errors
    /// [`CallError::Full`] if `posts_max` posts wait, and [`CallError::EndpointStopped`] if no
    /// thread drives the endpoint.
    pub(crate) fn post(&self, post: PostedRequest<E>) -> Result<(), CallError> {
        let posts_max = match post {
            // Exempt from the limit, as there are no more cancellations than calls.
            PostedRequest::Cancel(_) => usize::MAX,
            PostedRequest::Call(_) | PostedRequest::Closure(_) => self.posts_max,
        };
        let receiver = self.mailbox.post(post, posts_max).map_err(|refusal| match refusal {
            PostError::Full => CallError::Full,
            PostError::Closed => CallError::EndpointStopped,
        })?;
        self.wake_if_asleep(receiver);
        Ok(())
    }

    pub(crate) fn request_stop(&self) {
        self.wake_if_asleep(self.mailbox.request_stop());
    }

    fn wake_if_asleep(&self, receiver: ReceiverState) {
        if receiver == ReceiverState::Asleep {
            // write() fails only if the eventfd's counter is at its maximum: then a wake-up is
            // already pending.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}

handover_base::debug_struct!(Inbox<E>);
