//! What the models do by hand that the crate does with fibers.

use super::Flag;
use super::Timed;
use handover_fiber::model::{Biased, Gate, Link, Linked, Node};
use std::ptr::NonNull;

/// Waits at the gate as a fiber does.
pub fn wait_at(gate: &Gate<Flag>, flag: Flag) {
    let mut node = Node::new();
    // SAFETY: the node stays until the flag was raised, which is after the waiter was handed out.
    if unsafe { gate.enlist(&raw mut node, flag.clone()) }.is_ok() {
        flag.wait();
    }
}

/// Waits at the gate as a fiber does whose time comes at some moment; whether the gate was opened before that.
pub fn wait_at_until(gate: &Gate<Timed>, timed: Timed) -> bool {
    let mut node = Node::new();
    // SAFETY: the node stays until its waiter was handed out, and had let go, or was withdrawn.
    if unsafe { gate.enlist(&raw mut node, timed.clone()) }.is_err() {
        return true;
    }
    if !timed.expire() {
        timed.wait();
        return true;
    }
    loop {
        // SAFETY: as above.
        let withdrawn = unsafe { gate.withdraw(&raw mut node) };
        for other in withdrawn.opened_for {
            assert!(other.offer(), "the others wait for ever");
        }
        if withdrawn.was_there || timed.is_let_go() {
            // Its place is its own again: loom sees whoever still looks at it.
            let elsewhere = Gate::new();
            // SAFETY: nobody opens that gate.
            assert!(unsafe { elsewhere.enlist(&raw mut node, timed) }.is_ok());
            return false;
        }
        handover_base::sync::thread::yield_now();
    }
}

/// Waits at the same gate as one without a time.
pub fn wait_at_as(gate: &Gate<Timed>, timed: Timed) {
    let mut node = Node::new();
    // SAFETY: the node stays until the waiter was handed out, and said so.
    if unsafe { gate.enlist(&raw mut node, timed.clone()) }.is_ok() {
        timed.wait();
    }
}

/// The one owner's way in.
pub fn own<T, R>(queue: &Biased<T>, fence: impl Fn(), f: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: the model's main thread alone calls this.
    unsafe { queue.own(fence, f) }
}

/// Something to queue.
pub struct Item(Box<Body>);

#[repr(C)]
struct Body {
    link: Link,
    number: u32,
}

impl Item {
    pub fn new(number: u32) -> Self {
        Self(Box::new(Body { link: Link::new(), number }))
    }

    pub fn number(&self) -> u32 {
        self.0.number
    }
}

// SAFETY: the box is given up for its pointer, of which the link is the first field, and made of it again.
unsafe impl Linked for Item {
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: the caller's promise: it came from into_link().
        Self(unsafe { Box::from_raw(link.cast::<Body>().as_ptr()) })
    }
}
