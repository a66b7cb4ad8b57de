//! Sleep of threads that wait for space in a full inbox, on a futex.

use crate::engine::waiting_senders::WaitingSenders;
use handover_base::futex::{self, Scope};
use handover_ring::PushError;
use std::time::{Duration, Instant};

/// Repeats `push` until the inbox has space or `wait_max` has passed, sleeping in between.
/// Called by a thread. Calls `wake_machine` before each sleep: the machine may sleep with a full
/// inbox, if all messages were sent without waking it.
#[cold]
pub(crate) fn wait_for_space<M>(
    senders: &WaitingSenders,
    message: M,
    wait_max: Duration,
    push: impl FnMut(M) -> Result<(), PushError<M>>,
    mut wake_machine: impl FnMut(),
) -> Result<(), PushError<M>> {
    // `None`, no deadline, if the time is beyond the range of `Instant`.
    let deadline = Instant::now().checked_add(wait_max);
    senders.wait(message, push, |word, expected| {
        wake_machine();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        futex::wait(word, expected, left, Scope::Private);
        true
    })
}

/// Wakes up to `senders_max` of the waiting threads, and as many of the waiting tasks. These then
/// try again. Called by the machine.
#[cold]
pub(crate) fn admit_senders(senders: &WaitingSenders, senders_max: u32) {
    senders.admit(senders_max, |word| {
        futex::wake(word, senders_max, Scope::Private);
    });
}
