//! Sleeping in the kernel until a word changes.
//!
//! A thin, safe layer over `futex(2)`: `FUTEX_WAIT` and `FUTEX_WAKE` on one 32-bit word of
//! [`sync::shared`](crate::sync::shared), with outcomes named instead of numbered. On systems
//! other than Linux a mutex and a condition variable take its place, within a process.
//!
//! ```
//! use handover_base::futex::{self, Scope, WaitOutcome};
//! use handover_base::sync::shared::{AtomicU32, Ordering};
//! use std::{sync::Arc, thread, time::Duration};
//!
//! let word = Arc::new(AtomicU32::new(0));
//! let sleeper = thread::spawn({
//!     let word = Arc::clone(&word);
//!     move || {
//!         // A wake-up is a hint: look again at the word, always.
//!         while word.load(Ordering::Acquire) == 0 { // pairs with the Release below
//!             futex::wait(&word, 0, Some(Duration::from_secs(10)), Scope::Private);
//!         }
//!     }
//! });
//! word.store(1, Ordering::Release); // publishes to the Acquire above
//! futex::wake(&word, 1, Scope::Private);
//! sleeper.join().unwrap();
//! ```
//!
//! Source: Franke, Russell, Kirkwood, "Fuss, Futexes and Furwocks" (Ottawa Linux Symposium 2002);
//! Drepper, "Futexes Are Tricky" (2011); futex(2).

use crate::os;
use crate::sync::shared::AtomicU32;
use std::io::ErrorKind;
use std::time::Duration;

/// Set of threads that may wait on a futex word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Only threads of this process wait. The kernel finds the waiters by address, which is
    /// cheaper.
    Private,
    /// Threads of any process that maps the word's page may wait. The kernel finds the waiters by
    /// the page itself.
    Shared,
}

/// Reason why [`wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitOutcome {
    /// A [`wake`] woke this thread, or (rarely) the kernel woke it spuriously.
    Woken,
    /// The word did not contain the expected value, so that the thread did not sleep.
    ValueChanged,
    /// The timeout has passed.
    TimedOut,
    /// The thread has run a signal handler.
    Interrupted,
}

/// Sleeps if `word` contains `expected`, until a wake-up, a signal or the timeout; returns the
/// reason.
///
/// Comparing and going to sleep are one step with respect to [`wake`]: a waker that stores another
/// value and then wakes is never missed. Every outcome may be stale by the time the caller sees it,
/// so callers loop on the word itself. The kernel's comparison does not synchronise with the thread
/// that wrote the word: load it again with `Acquire`.
///
/// `timeout` is relative and counts on CLOCK_MONOTONIC; `None` waits without a limit. Only a wake
/// with the same scope finds the waiter.
///
/// # Panics
/// If the kernel refuses futexes (because of a seccomp filter, for example).
///
/// # Blocking
/// Up to `timeout`. Returns at once if the word differs.
///
/// # Cost
/// One system call (about 100 to 300 ns) if the word differs; otherwise a sleep and a wake-up (some
/// µs, tens of µs from a deeply idle CPU).
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    scope: Scope,
) -> WaitOutcome {
    match os::futex_wait(word, expected, timeout, scope == Scope::Shared) {
        Ok(()) => WaitOutcome::Woken,
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => WaitOutcome::ValueChanged,
            ErrorKind::TimedOut => WaitOutcome::TimedOut,
            ErrorKind::Interrupted => WaitOutcome::Interrupted,
            _ => panic!("futex(FUTEX_WAIT) failed: {error}; is it blocked by a seccomp filter?"),
        },
    }
}

/// Wakes at most `waiters_max` threads that sleep on `word`; returns the number of woken threads.
///
/// `u32::MAX` wakes all. Store the new value before waking, or the sleepers go back to sleep.
///
/// # Panics
/// If the kernel refuses futexes (because of a seccomp filter, for example).
///
/// # Cost
/// One system call, about 100 to 300 ns if no thread sleeps, 1 to 3 µs if one does: keep track of
/// sleepers, and call this only if there is one.
pub fn wake(word: &AtomicU32, waiters_max: u32, scope: Scope) -> u32 {
    if waiters_max == 0 {
        return 0; // The kernel would wake one: it counts before it compares.
    }
    match os::futex_wake(word, waiters_max, scope == Scope::Shared) {
        Ok(woken_count) => woken_count,
        Err(error) => {
            panic!("futex(FUTEX_WAKE) failed: {error}; is it blocked by a seccomp filter?")
        }
    }
}
