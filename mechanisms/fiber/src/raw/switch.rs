//! Switch between stacks: suspends the running code, and continues code that was suspended.
//!
//! A switch saves what the compiler cannot save for it: the stack pointer, the address to continue
//! at, the frame pointer, and a register that LLVM reserves. All other registers are declared as
//! changed. It is inlined, and jumps instead of calling and returning, so that the processor's
//! prediction of return addresses stays correct on both sides.
//!
//! A fiber may switch to another fiber or to its worker. This is why fibers do not use
//! `corosensei`, whose coroutines return to the code that has resumed them: a yield was two
//! switches. Like there, the registers with modes of the floating-point units are not switched.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod context;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub(crate) use context::Context;
use context::EntryFn;

impl Context {
    /// Creates a context that starts with `entry`, on the stack that ends at `top`.
    ///
    /// # Safety
    /// `top` is a multiple of 16. The memory below it is writable and used by nothing else, and is
    /// large enough for `entry`.
    #[inline]
    pub(super) unsafe fn starting(top: *mut u8, entry: EntryFn) -> Self {
        let frame = top.wrapping_sub(size_of::<processor::Frame>());
        // SAFETY: the caller guarantees writable memory below `top`; the frame's size is a multiple
        // of 16, so that its address is aligned.
        unsafe { frame.cast::<processor::Frame>().write(processor::first_frame(entry)) };
        Self::with_stack_pointer(frame)
    }
}

/// Suspends the running code as the context `from`, and continues the context `to` with `request`.
/// Returns when a switch continues `from`: the context that this switch has suspended, and its
/// request.
///
/// # Safety
/// `from` is valid until it is continued, and so is the stack of the caller. `to` was suspended by
/// a switch or created by [`Context::starting`], was not continued since, and its stack is valid.
/// The code of `to` may run on this thread.
#[inline(always)] // see the module's documentation
pub(super) unsafe fn switch(
    from: *const Context,
    to: *const Context,
    request: *mut (),
) -> (*const Context, *mut ()) {
    // SAFETY: the caller's promise covers these arguments.
    unsafe { processor::switch(from, to, request) }
}

// A sanitizer would have to know of these switches.
#[cfg(all(test, not(any(miri, handover_sanitizer = "address", handover_sanitizer = "thread"))))]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::ptr;

    /// Answers each request with the next higher address.
    extern "C" fn count(from: *const Context, request: *mut (), own: *const Context) -> ! {
        let (mut from, mut request) = (from, request);
        loop {
            let answer = request.wrapping_byte_add(1);
            // SAFETY: the test's switch has suspended `from`, and its stack outlives this context.
            (from, request) = unsafe { switch(own, from, answer) };
        }
    }

    #[test]
    fn switched_contexts_exchange_requests_and_keep_their_variables() {
        let mut stacks = [(); 2].map(|()| vec![0u128; 4096]);
        let others = stacks.each_mut().map(|stack| {
            let top = stack.as_mut_ptr_range().end.cast::<u8>();
            // SAFETY: the end of the vector is aligned to 16; its memory is used by nothing else.
            unsafe { Context::starting(top, count) }
        });
        let own = Context::of_running();
        let kept: [usize; 12] = std::array::from_fn(black_box);
        for round in 0..100usize {
            let other = &raw const others[round % 2];
            let request = ptr::without_provenance_mut(round);
            // SAFETY: the other context was created above, or suspended by its own switch; its
            // stack and `own` are valid until the end of the test.
            let (suspended, answer) = unsafe { switch(&raw const own, other, request) };
            assert_eq!((suspended, answer.addr()), (other, round + 1));
        }
        assert_eq!(kept, std::array::from_fn(|index| index));
    }
}
