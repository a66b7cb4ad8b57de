//! Unsafe operations of the models, which do by hand what the crate does for fibers.

use super::Flag;
use super::{Timed, Wakes};
use handover_fiber::model::{BiasedLock, Gate, Linked, ListLink, WaitNode, Withdrawals};
use std::ptr::NonNull;

/// Waits at the gate as a fiber does.
pub fn wait_at(gate: &Gate<Flag>, flag: Flag) {
    let mut node = WaitNode::new();
    // SAFETY: the node is valid until the flag is set, which happens after the waiter was handed
    // out.
    if unsafe { gate.enqueue(&raw mut node, flag.clone()) }.is_ok() {
        flag.wait();
    }
}

/// Waits at the gate as a fiber with a deadline, which passes at some moment; returns `true` if the
/// gate was opened before that.
pub fn wait_at_until<W: From<Timed> + Wakes>(
    gate: &Gate<W>,
    withdrawals: &Withdrawals,
    timed: Timed,
) -> bool {
    let mut node = WaitNode::new();
    // SAFETY: the node is valid until its waiter was handed out and has let go, or was withdrawn.
    if unsafe { gate.enqueue(&raw mut node, timed.clone().into()) }.is_err() {
        return true;
    }
    if !timed.expire() {
        timed.wait();
        return true;
    }
    loop {
        // SAFETY: the node was enqueued in this gate above, and is valid until this function
        // returns.
        let withdrawn = unsafe { gate.withdraw(&raw mut node, withdrawals) };
        for other in withdrawn.waiters_to_wake {
            assert!(other.try_wake(), "the other waiter would never be woken");
        }
        if withdrawn.was_queued || timed.is_released() {
            // The node may be reused now: loom reports any thread that still accesses it.
            let elsewhere = Gate::new();
            // SAFETY: no thread opens that gate, so the node is never accessed through it.
            assert!(unsafe { elsewhere.enqueue(&raw mut node, W::from(timed)) }.is_ok());
            return false;
        }
        handover_base::sync::thread::yield_now();
    }
}

/// Waits at a gate of timed waiters, without a deadline; calls `enqueued` once it is in the list.
pub fn wait_at_untimed(gate: &Gate<Timed>, timed: Timed, enqueued: impl FnOnce()) {
    let mut node = WaitNode::new();
    // SAFETY: the node is valid until the waiter was handed out and woken.
    if unsafe { gate.enqueue(&raw mut node, timed.clone()) }.is_ok() {
        enqueued();
        timed.wait();
    }
}

/// Calls `f` as the owner of the lock.
pub fn with_lock_as_owner<T, R>(
    queue: &BiasedLock<T>,
    fence: impl Fn(),
    f: impl FnOnce(&mut T) -> R,
) -> R {
    // SAFETY: only the model's main thread calls this.
    unsafe { queue.with_lock_as_owner(fence, f) }
}

/// Member of the modelled queues.
pub struct Item(Box<Body>);

#[repr(C)]
struct Body {
    link: ListLink,
    number: u32,
}

impl Item {
    pub fn new(number: u32) -> Self {
        Self(Box::new(Body { link: ListLink::new(), number }))
    }

    pub fn number(&self) -> u32 {
        self.0.number
    }
}

// SAFETY: the box is leaked into a pointer to its first field, the link, and rebuilt from that
// pointer once.
unsafe impl Linked for Item {
    fn into_link(self) -> NonNull<ListLink> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_link(link: NonNull<ListLink>) -> Self {
        // SAFETY: the caller guarantees that the link came from into_link().
        Self(unsafe { Box::from_raw(link.cast::<Body>().as_ptr()) })
    }
}
