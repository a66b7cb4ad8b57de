//! Who waits: a fiber, which leaves its worker to others, or a thread, which sleeps.

use crate::raw::{self, Runnable};
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, Thread};

/// Somebody who waits, and the right to wake it.
#[derive(Debug)]
pub(crate) enum Waiter {
    Fiber(Runnable),
    Thread(Arc<Sleeper>),
}

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Waiter {
    /// Has it go on.
    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Self::Fiber(fiber) => wake_fiber(fiber),
            Self::Thread(sleeper) => {
                // Release: pairs with the Acquire in wait().
                sleeper.is_woken.store(true, Ordering::Release);
                sleeper.thread.unpark();
            }
        }
    }
}

#[inline]
fn wake_fiber(fiber: Runnable) {
    match raw::current() {
        Some(worker) if fiber.home() == worker.address() => worker.push(fiber),
        Some(worker) => worker.send(fiber),
        None => fiber.send_home(false),
    }
}

/// Suspends the caller and hands it to `commit`, which puts it where it will be woken, or gives it back.
///
/// `commit` runs when the fiber is suspended already, on its worker: whoever wakes it may do so at once.
#[inline]
pub(crate) fn wait(commit: impl FnOnce(Waiter) -> Option<Waiter>) {
    let Some(running) = raw::current().and_then(|worker| worker.running()) else {
        return wait_as_thread(commit);
    };
    raw::park(running, |fiber| match commit(Waiter::Fiber(fiber)) {
        Some(Waiter::Fiber(fiber)) => Some(fiber),
        _ => None,
    });
}

#[cold]
fn wait_as_thread(commit: impl FnOnce(Waiter) -> Option<Waiter>) {
    let sleeper = Arc::new(Sleeper { thread: thread::current(), is_woken: AtomicBool::new(false) });
    if commit(Waiter::Thread(Arc::clone(&sleeper))).is_some() {
        return;
    }
    // Acquire: pairs with the Release in wake().
    while !sleeper.is_woken.load(Ordering::Acquire) {
        thread::park();
    }
}
