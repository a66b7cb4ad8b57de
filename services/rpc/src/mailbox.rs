//! Queue from other threads to an endpoint's thread, without system calls: its contents, and the
//! decision to wake the thread.
//!
//! A sender queues, and then reads from a [`ParkWord`] whether the thread sleeps; the thread
//! declares its sleep there, and checks the queue once more.

use handover_base::sync::atomic::{AtomicBool, Ordering};
use handover_base::sync::{Mutex, MutexGuard};
use handover_notify::{ParkWord, SleepObject};
use std::sync::PoisonError;

/// Queues that other threads fill for an endpoint's thread, and a stop flag. They contain the
/// pool's answers and other threads' requests.
#[derive(Debug)]
pub struct Mailbox<A, P> {
    /// Answers from the pool's threads.
    answers: Mutex<Vec<A>>,
    /// Requests of other threads.
    posts: Mutex<Posts<P>>,
    /// `true` if an answer, a request of another thread or a stop request is waiting.
    has_items: AtomicBool,
    /// Sleep state of the endpoint's thread.
    asleep: ParkWord,
    /// `true` if the endpoint's thread must stop.
    is_stop_requested: AtomicBool,
}

/// Queue of the requests of other threads.
#[derive(Debug)]
struct Posts<P> {
    /// `true` while a thread drives the endpoint, and so handles requests of other threads.
    is_open: bool,
    queued: Vec<P>,
}

/// Error of queueing a request for the endpoint's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The maximum number of requests is queued.
    Full,
    /// No thread drives the endpoint.
    Closed,
}

/// State of the thread that receives from a mailbox. The caller must wake a thread that is asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "no other sender wakes the thread"]
pub enum ReceiverState {
    /// The thread is awake and finds what was queued.
    Awake,
    /// The thread sleeps or is about to sleep. The caller must wake it, because no other sender
    /// will.
    Asleep,
}

impl<A, P> Mailbox<A, P> {
    /// Creates an empty mailbox, which refuses requests of other threads.
    pub fn new() -> Self {
        Self {
            answers: Mutex::new(Vec::new()),
            posts: Mutex::new(Posts { is_open: false, queued: Vec::new() }),
            has_items: AtomicBool::new(false),
            asleep: ParkWord::new(),
            is_stop_requested: AtomicBool::new(false),
        }
    }

    /// Queues an answer from a thread of the pool. Returns [`ReceiverState::Asleep`] if the caller
    /// must wake the endpoint's thread.
    pub fn push_answer(&self, answer: A) -> ReceiverState {
        lock_ignoring_poison(&self.answers).push(answer);
        self.announce()
    }

    /// Starts to accept requests of other threads.
    pub fn open(&self) {
        lock_ignoring_poison(&self.posts).is_open = true;
    }

    /// Refuses all later requests of other threads, and returns the queued ones. Dropping one may
    /// call code that posts again.
    #[must_use = "dropping a post may call code of a user"]
    pub fn close(&self) -> Vec<P> {
        let mut posts = lock_ignoring_poison(&self.posts);
        posts.is_open = false;
        std::mem::take(&mut posts.queued)
    }

    /// Queues a request of another thread if fewer than `posts_max` are queued. Returns
    /// [`ReceiverState::Asleep`] if the caller must wake the endpoint's thread. A refused request
    /// is dropped after the lock was released.
    ///
    /// # Errors
    /// [`PostError`] if too many wait, or if the mailbox is closed.
    pub fn post(&self, post: P, posts_max: usize) -> Result<ReceiverState, PostError> {
        let mut posts = lock_ignoring_poison(&self.posts);
        let refusal = if !posts.is_open {
            PostError::Closed
        } else if posts.queued.len() >= posts_max {
            PostError::Full
        } else {
            posts.queued.push(post);
            drop(posts);
            return Ok(self.announce());
        };
        drop(posts);
        drop(post);
        Err(refusal)
    }

    /// Requests the endpoint's thread to stop. Returns [`ReceiverState::Asleep`] if the caller must
    /// wake it.
    pub fn request_stop(&self) -> ReceiverState {
        // Relaxed: ordered by the exchange of `has_items` in announce(). An exchange, as loom also
        // tries stores that an exchange in take_stop_request() overwrites without having seen them.
        self.is_stop_requested.swap(true, Ordering::Relaxed);
        self.announce()
    }

    /// Sets `has_items`, and returns the state of the endpoint's thread.
    fn announce(&self) -> ReceiverState {
        // Release: publishes the stop request to the Acquire in take_all(); `answers` and `posts`
        // have their own locks. An exchange and no store: it continues the release sequence of an
        // announcement by another thread, so that the one exchange in take_all() acquires both.
        self.has_items.swap(true, Ordering::Release);
        match self.asleep.claim_wake(|| None) {
            Some(_) => ReceiverState::Asleep,
            None => ReceiverState::Awake,
        }
    }

    /// Announces that this thread is about to sleep. It must check [`has_items`](Self::has_items)
    /// once more afterwards.
    pub fn declare_sleep(&self) {
        self.asleep.declare_sleep(SleepObject::Elsewhere);
    }

    /// Announces that this thread is awake.
    pub fn declare_awake(&self) {
        self.asleep.withdraw_sleep();
    }

    /// Returns `true` if an answer, a request or a stop request is waiting.
    #[inline]
    pub fn has_items(&self) -> bool {
        // Acquire: pairs with the Release in announce().
        self.has_items.load(Ordering::Acquire)
    }

    /// Moves all queued answers and requests to the end of `answers` and `posts`.
    pub fn take_all(&self, answers: &mut Vec<A>, posts: &mut Vec<P>) {
        // Acquire: pairs with the Release in announce(), so that a stop request whose announcement
        // is taken here is seen. A later announcement sets the flag again.
        self.has_items.swap(false, Ordering::Acquire);
        answers.append(&mut lock_ignoring_poison(&self.answers));
        posts.append(&mut lock_ignoring_poison(&self.posts).queued);
    }

    /// Returns `true` if a stop was requested since the last call.
    pub fn take_stop_request(&self) -> bool {
        // Relaxed both: ordered by the exchange of `has_items` in take_all().
        self.is_stop_requested.load(Ordering::Relaxed)
            && self.is_stop_requested.swap(false, Ordering::Relaxed)
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub(crate) fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent after a panic: each change of it is a single call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
