//! What the models do by hand that the crate does with fibers.

use super::Flag;
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
