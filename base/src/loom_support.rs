//! Parts of the crates' loom models: a bounded exploration, a futex, and an executor of one future.

use crate::sync::atomic::{AtomicU32, Ordering};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::task::Wake;

/// Explores with loom all executions of `run` with at most `preemptions_max` preemptions. The limit
/// is one higher if the variable `HANDOVER_LONG` is set.
pub fn explore(preemptions_max: usize, run: impl Fn() + Send + Sync + 'static) {
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max + usize::from(is_long));
    builder.check(run);
}

/// Model of a futex. Its lock makes comparing and falling asleep one step, as the kernel's bucket
/// lock does. A wake ends the sleep of a current sleeper, and has no effect on a later one.
#[derive(Debug, Default)]
pub struct Futex {
    /// Lock that makes comparing and falling asleep one step.
    bucket: Mutex<()>,
    /// Condition variable on which threads sleep.
    sleeper: Condvar,
}

impl Futex {
    /// Sleeps until [`wake`](Self::wake) is called, if `word` has the value `expected`.
    pub fn wait(&self, word: &AtomicU32, expected: u32) {
        let bucket = self.bucket.lock().expect("never poisoned");
        // Relaxed: the kernel's comparison gives no stronger guarantee.
        if word.load(Ordering::Relaxed) == expected {
            drop(self.sleeper.wait(bucket).expect("never poisoned"));
        }
    }

    /// Wakes one thread that sleeps in [`wait`](Self::wait).
    pub fn wake(&self) {
        let _bucket = self.bucket.lock().expect("never poisoned");
        self.sleeper.notify_one();
    }
}

/// Waker of a thread that runs a future. It stays set until the thread consumes it.
#[derive(Default)]
struct ThreadToken {
    /// `true` after a wake-up that the thread has not consumed.
    is_set: Mutex<bool>,
    /// Notified when `is_set` becomes `true`.
    set: Condvar,
}

impl Wake for ThreadToken {
    fn wake(self: Arc<Self>) {
        *self.is_set.lock().expect("never poisoned") = true;
        self.set.notify_one();
    }
}

impl ThreadToken {
    /// Waits until the token is set, and clears it.
    fn consume(&self) {
        let mut is_set = self.is_set.lock().expect("never poisoned");
        while !*is_set {
            is_set = self.set.wait(is_set).expect("never poisoned");
        }
        *is_set = false;
    }
}

/// Runs a future to completion. Loom reports a deadlock if the waker of the future is not called.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let token = Arc::new(ThreadToken::default());
    let waker = Waker::from(Arc::clone(&token));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => token.consume(),
        }
    }
}

/// Polls a future once; returns its output if it is ready. The future is then dropped, as if its
/// task was cancelled.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
