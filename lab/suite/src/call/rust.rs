//! The loops of `call/*` in Rust: inlined, in the same file, through a pointer, through a trait
//! object.

use crate::raw::calls::{hide_reference, hide_value};
use std::hint::black_box;

/// Counts to `n` with an inlined function, without calls; returns `n`.
pub extern "C" fn inline(n: u64) -> u64 {
    #[inline(always)]
    fn next(i: u64) -> u64 {
        i.wrapping_add(1)
    }
    let mut i = 0;
    while i < n {
        i = hide_value(next(i));
    }
    i
}

/// Calls a function of this file `n` times; returns the number of calls, which is `n`.
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

/// Calls a function through a pointer `n` times; returns the number of calls, which is `n`.
pub extern "C" fn pointer(n: u64) -> u64 {
    call_through_pointer(n, black_box(next))
}

/// Calls `next` through its pointer until it returns `n` or more. Returns that result; the first
/// argument is 0, and each later one the previous result.
#[inline(never)]
pub fn call_through_pointer(n: u64, next: fn(u64) -> u64) -> u64 {
    let mut i = 0;
    while i < n {
        i = next(i);
    }
    i
}

/// Function from a number to the next number, called through a trait object.
pub trait Increment {
    /// Returns the number after `i`.
    fn next(&self, i: u64) -> u64;
}

/// Implementation of [`Increment`] that adds one.
struct One;

impl Increment for One {
    fn next(&self, i: u64) -> u64 {
        i.wrapping_add(1)
    }
}

/// Calls a method of a trait object `n` times; returns the number of calls, which is `n`.
pub extern "C" fn dynamic(n: u64) -> u64 {
    // `black_box` hides the object's type, so that the compiler does not know its method table.
    let increment: &dyn Increment = &One;
    call_through_dyn(n, black_box(increment))
}

/// Calls [`Increment::next`] of a trait object until it returns `n` or more. Returns that result;
/// the first argument is 0, and each later one the previous result.
#[inline(never)]
pub fn call_through_dyn(n: u64, increment: &dyn Increment) -> u64 {
    let mut i = 0;
    while i < n {
        // Hidden before every call, as if each call found its object in some structure: a compiler
        // that knows that the object does not change looks its method up once, before the loop.
        i = hide_reference(&increment).next(i);
    }
    i
}
