//! The same loops in Rust: inlined, in the same file, through a pointer, through a trait object.

use crate::raw::calls::{forget, forget_place};
use std::hint::black_box;

/// Nothing is called: the function was inlined.
pub extern "C" fn inline(n: u64) -> u64 {
    #[inline(always)]
    fn next(i: u64) -> u64 {
        i.wrapping_add(1)
    }
    let mut i = 0;
    while i < n {
        i = forget(next(i));
    }
    i
}

/// Calls a function of this file.
#[inline(never)]
pub extern "C" fn same_file(n: u64) -> u64 {
    let mut i = 0;
    while i < n {
        i = next(i);
    }
    i
}

#[inline(never)]
fn next(i: u64) -> u64 {
    i.wrapping_add(1)
}

/// Calls through a pointer.
pub extern "C" fn pointer(n: u64) -> u64 {
    through_pointer(n, black_box(next))
}

/// The loop of [`pointer()`], with a function of one's own: calls `next` with 0 and then with its own
/// answers, until one is not below `n`; returns that.
#[inline(never)]
pub fn through_pointer(n: u64, next: fn(u64) -> u64) -> u64 {
    let mut i = 0;
    while i < n {
        i = next(i);
    }
    i
}

/// What a trait object is asked.
pub trait Step {
    /// The number after `i`.
    fn next(&self, i: u64) -> u64;
}

/// Adds one.
struct One;

impl Step for One {
    fn next(&self, i: u64) -> u64 {
        i.wrapping_add(1)
    }
}

/// Calls a method of a trait object.
pub extern "C" fn dynamic(n: u64) -> u64 {
    // Hidden as what it is called through, so that its table of methods is not known either.
    let step: &dyn Step = &One;
    through_dyn(n, black_box(step))
}

/// The loop of [`dynamic`], with an object of one's own: asks it for the number after 0 and then after
/// its own answers, until one is not below `n`; returns that.
#[inline(never)]
pub fn through_dyn(n: u64, step: &dyn Step) -> u64 {
    let mut i = 0;
    while i < n {
        // Looked up anew for every call, as when each finds its object in some structure: a compiler
        // that knows the object is the same looks its method up once, before the loop.
        i = forget_place(&step).next(i);
    }
    i
}
