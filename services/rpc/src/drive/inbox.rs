//! Queue from other threads to an endpoint's thread: answers of the pool, calls, closures, and the
//! request to stop.

use super::locked;
use super::pool::PoolAnswer;
use super::promises::{Answer, Promise};
use crate::engine::PeerKey;
use crate::{CallError, Method};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

/// Work of another thread for the endpoint's thread. `E` is a closure to run between handlers.
pub(crate) enum Post<E> {
    Call(PostedCall),
    /// Cancels the call that is to set this answer.
    Cancel(Arc<Answer>),
    Errand(E),
}

/// Call that another thread has started.
pub(crate) struct PostedCall {
    pub(crate) peer: PeerKey,
    pub(crate) method: Method,
    pub(crate) arguments: Vec<u8>,
    pub(crate) deadline_ns: u64,
    pub(crate) promise: Promise,
}

struct Posts<E> {
    /// `true` while a thread drives the endpoint and will take posts.
    open: bool,
    waiting: Vec<Post<E>>,
}

/// Queue from other threads to an endpoint.
pub(crate) struct Inbox<E> {
    answers: Mutex<Vec<PoolAnswer>>,
    posts: Mutex<Posts<E>>,
    /// `true` if `answers` or `posts` is not empty, or `stop` was set.
    any: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    event: OwnedFd,
    /// Maximum number of calls and errands of other threads that may wait.
    posts_max: usize,
}

impl<E> Inbox<E> {
    pub(crate) fn new(posts_max: usize) -> Result<Self, Errno> {
        Ok(Self {
            posts_max,
            answers: Mutex::default(),
            posts: Mutex::new(Posts { open: false, waiting: Vec::new() }),
            any: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Returns the eventfd that wakes the endpoint's thread.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(crate) fn push(&self, answer: PoolAnswer) {
        locked(&self.answers).push(answer);
        self.notify();
    }

    /// Accepts posts from now on.
    pub(crate) fn open(&self) {
        locked(&self.posts).open = true;
    }

    /// Refuses posts from now on, and drops those that were not taken.
    pub(crate) fn close(&self) {
        // Dropping a post may wake a thread that posts again, so this must not happen under the
        // lock.
        let waiting = {
            let mut posts = locked(&self.posts);
            posts.open = false;
            std::mem::take(&mut posts.waiting)
        };
        drop(waiting);
    }

    /// # Errors
    /// [`CallError::Full`] if `posts_max` posts wait, and [`CallError::Ended`] if no thread drives
    /// the endpoint.
    pub(crate) fn post(&self, post: Post<E>) -> Result<(), CallError> {
        self.post_within(self.posts_max, post)
    }

    /// Posts the end of a call that was posted before. Exempt from the limit: there are no more of
    /// these than of calls.
    pub(crate) fn post_end(&self, post: Post<E>) -> Result<(), CallError> {
        self.post_within(usize::MAX, post)
    }

    fn post_within(&self, posts_max: usize, post: Post<E>) -> Result<(), CallError> {
        let mut posts = locked(&self.posts);
        if !posts.open {
            return Err(CallError::Ended);
        }
        if posts.waiting.len() >= posts_max {
            return Err(CallError::Full);
        }
        posts.waiting.push(post);
        drop(posts);
        self.notify();
        Ok(())
    }

    pub(crate) fn stop(&self) {
        // Relaxed: ordered by the Release store to `any` in notify().
        self.stop.store(true, Ordering::Relaxed);
        self.notify();
    }

    fn notify(&self) {
        // Release: publishes `stop` to the Acquire in has_any() and take(); `answers` and `posts`
        // have their own locks.
        self.any.store(true, Ordering::Release);
        // SeqCst: pairs with the fence in EventLoop::sleep between the store to `asleep` and the
        // last turn.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // write() fails only if the eventfd's counter is at its maximum: then a wake-up is
            // already pending.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Announces that this side sleeps, to be followed by a fence and one more turn; or, with
    /// `false`, that it is awake.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        // Relaxed: ordered by the fence in EventLoop::sleep.
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Acquire: pairs with the Release in notify().
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self, answers: &mut Vec<PoolAnswer>, posts: &mut Vec<Post<E>>) {
        // Acquire: pairs with the Release in notify(), so that a `stop` whose flag is cleared here
        // is seen. A later notify() sets the flag again.
        self.any.swap(false, Ordering::Acquire);
        answers.append(&mut locked(&self.answers));
        posts.append(&mut locked(&self.posts).waiting);
    }

    /// Returns `true` if the endpoint was told to stop since the last call.
    pub(crate) fn take_stop(&self) -> bool {
        // Relaxed: only a flag; if `any` announced it, the Acquire load of `any` has ordered it.
        self.stop.swap(false, Ordering::Relaxed)
    }
}

impl<E> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}
