//! Sleep of senders that wait for room in a full inbox, on a futex.

use crate::engine::room::WaitingSenders;
use handover_base::futex::{self, Scope};
use handover_ring::PushError;
use std::time::{Duration, Instant};

/// Called by a sender: tries until there is room or `wait_ns_max` has passed. Calls `wake_machine`
/// before each sleep: the machine may sleep with a full inbox, if all was sent without waking it.
#[cold]
pub(crate) fn wait<M>(
    room: &WaitingSenders,
    message: M,
    wait_ns_max: u64,
    push: impl FnMut(M) -> Result<(), PushError<M>>,
    mut wake_machine: impl FnMut(),
) -> Result<(), PushError<M>> {
    let deadline = Instant::now().checked_add(Duration::from_nanos(wait_ns_max));
    room.wait(message, push, |word, expected| {
        wake_machine();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        futex::wait(word, expected, left, Scope::Private);
        true
    })
}

/// Called by the machine: lets up to `senders_max` of the waiting senders try again.
#[cold]
pub(crate) fn admit(room: &WaitingSenders, senders_max: u32) {
    room.admit(|word| {
        futex::wake(word, senders_max, Scope::Private);
    });
}
