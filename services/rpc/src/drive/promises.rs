//! Results of calls that other threads and fibers wait for.

use super::timers::Timer;
use crate::CallError;
use crate::engine::{CallId, ONE_WAY_CALL_NUMBER};
use crate::mailbox::lock_ignoring_poison;
use handover_base::sync::shared::{AtomicU64, Ordering};
#[cfg(feature = "fibers")]
use handover_fiber::Eventual;
#[cfg(not(feature = "fibers"))]
use std::sync::OnceLock as Eventual;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Result that a thread or fiber waits for; set once.
pub(crate) struct Answer<T = Vec<u8>> {
    result: Eventual<Result<T, CallError>>,
    /// Waker of a future that waits for the result.
    waker: Mutex<Option<Waker>>,
    /// Number of the call once it is under way. Only the endpoint's thread reads and writes it.
    call: AtomicU64,
}

impl<T> Answer<T> {
    /// Returns the result; `None` if it is not set yet.
    pub(crate) fn try_get_result(&self) -> Option<&Result<T, CallError>> {
        #[cfg(feature = "fibers")]
        return self.result.test();
        #[cfg(not(feature = "fibers"))]
        return self.result.get();
    }

    pub(crate) fn wait_for_result(&self) -> &Result<T, CallError> {
        self.result.wait()
    }

    /// Returns the result if it is set. Otherwise stores `waker`, to be woken when the result is
    /// set.
    pub(crate) fn poll_result(&self, waker: &Waker) -> Option<&Result<T, CallError>> {
        // Wakers are the user's code: cloned before the lock is taken, and dropped after it is
        // released.
        let mut other = Some(waker.clone());
        let mut known = lock_ignoring_poison(&self.waker);
        let result = self.try_get_result();
        // Written under the lock: the thread that sets the result takes the waker after this.
        if result.is_none() {
            std::mem::swap(&mut *known, &mut other);
        }
        drop(known);
        result
    }

    /// Returns the number of the call; [`ONE_WAY_CALL_NUMBER`] before the call has started.
    pub(crate) fn call_number(&self) -> u64 {
        // Relaxed: only the endpoint's thread reads and writes it.
        self.call.load(Ordering::Relaxed)
    }

    /// Stores the result, and wakes the thread, fiber or future that waits for it.
    fn set(&self, answer: Result<T, CallError>) {
        // The value is set once: by set_result(), or when the promise is dropped.
        let _ = self.result.set(answer);
        let waker = lock_ignoring_poison(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Write end of an [`Answer`]. Dropping it sets [`CallError::EndpointStopped`] if no result was
/// set.
pub(crate) struct Promise<T = Vec<u8>>(Option<Arc<Answer<T>>>);

/// Creates an answer that is not set, and its write end.
pub(crate) fn new_promise<T>() -> (Promise<T>, Arc<Answer<T>>) {
    let (waker, call) = (Mutex::new(None), AtomicU64::new(ONE_WAY_CALL_NUMBER));
    let answer = Arc::new(Answer { result: Eventual::new(), waker, call });
    (Promise(Some(Arc::clone(&answer))), answer)
}

impl<T> Promise<T> {
    /// Stores the number of the call, for a later cancellation.
    pub(crate) fn set_call_number(&self, call: u64) {
        if let Some(to) = &self.0 {
            // Relaxed: only the endpoint's thread reads and writes it.
            to.call.store(call, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_result(mut self, answer: Result<T, CallError>) {
        if let Some(to) = self.0.take() {
            to.set(answer);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.set(Err(CallError::EndpointStopped));
        }
    }
}

/// Call that another thread waits for, and the timer of its deadline.
pub(crate) type AwaitedCall = (CallId, Promise, Option<Timer>);
