//! Reports of stack switches to ThreadSanitizer, in builds for it; no code in other builds.
//!
//! ThreadSanitizer keeps a shadow of each call stack, updated by the calls and returns that it
//! sees, and needs the shadow's address before a switch. `corosensei` reports its switches
//! to AddressSanitizer, with its feature `sanitizer`.

use super::stack::Stack;

/// Marks a reused stack as accessible for AddressSanitizer. Its marks of the finished fiber's frames are still there,
/// as these frames did not return.
pub(super) fn unpoison_stack(stack: &Stack) {
    #[cfg(handover_sanitizer = "address")]
    {
        // SAFETY: the signature is that of sanitizer/asan_interface.h.
        unsafe extern "C" {
            fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
        }
        let start = stack.head.as_ptr().with_addr(stack.limit);
        // SAFETY: the memory from the limit to the head belongs to the stack, which is not in use.
        unsafe { __asan_unpoison_memory_region(start, stack.head.addr().get() - stack.limit) };
    }
    #[cfg(not(handover_sanitizer = "address"))]
    let _ = stack;
}

#[cfg(not(handover_sanitizer = "thread"))]
pub(super) use disabled::SanitizerState;
#[cfg(handover_sanitizer = "thread")]
pub(super) use enabled::SanitizerState;

#[cfg(not(handover_sanitizer = "thread"))]
mod disabled {
    /// Placeholder for the sanitizers' state of a fiber, in builds without sanitizers.
    pub(crate) struct SanitizerState;

    impl SanitizerState {
        pub(crate) fn new() -> Self {
            Self
        }
        #[inline(always)]
        pub(crate) fn leave_worker(&self) {}
        #[inline(always)]
        pub(crate) fn enter_fiber(&self) {}
        #[inline(always)]
        pub(crate) fn leave_fiber(&self) {}
        #[inline(always)]
        pub(crate) fn enter_worker(&self) {}
        #[inline(always)]
        pub(crate) fn destroy(&self) {}
    }
}

#[cfg(handover_sanitizer = "thread")]
mod enabled {
    use std::cell::Cell;
    use std::ffi::{c_uint, c_void};
    use std::ptr;

    /// Address of a shadow, ThreadSanitizer's copy of a call stack.
    type Address = *mut c_void;

    // SAFETY: the signatures are those of sanitizer/tsan_interface.h; the first two take no
    // pointer.
    unsafe extern "C" {
        safe fn __tsan_get_current_fiber() -> Address;
        safe fn __tsan_create_fiber(flags: c_uint) -> Address;
        fn __tsan_destroy_fiber(fiber: Address);
        fn __tsan_switch_to_fiber(fiber: Address, flags: c_uint);
    }

    /// Flags of a switch that, for ThreadSanitizer, orders earlier memory accesses before later
    /// ones.
    const ORDERED_SWITCH: c_uint = 0;

    /// ThreadSanitizer's state of a fiber and of the worker that runs it.
    ///
    /// A switch begins in one function and ends in another, of different depths. Its calls and returns go to a third
    /// shadow, which belongs to the fiber and is balanced from the fiber's begin to its end.
    pub(crate) struct SanitizerState {
        /// Shadow of the fiber's stack.
        fiber: Cell<Address>,
        /// Shadow for the calls and returns of a switch.
        switch: Cell<Address>,
        /// Shadow of the stack of the worker that runs the fiber.
        worker: Cell<Address>,
    }

    impl SanitizerState {
        pub(crate) fn new() -> Self {
            let null = || Cell::new(ptr::null_mut());
            Self { fiber: null(), switch: null(), worker: null() }
        }

        /// Announces a switch to the fiber; called on the worker's stack before the switch.
        #[inline(always)]
        pub(crate) fn leave_worker(&self) {
            if self.fiber.get().is_null() {
                self.fiber.set(__tsan_create_fiber(0));
                self.switch.set(__tsan_create_fiber(0));
            }
            self.worker.set(__tsan_get_current_fiber());
            // SAFETY: created by the first call, and not destroyed before the fiber's end.
            unsafe { __tsan_switch_to_fiber(self.switch.get(), ORDERED_SWITCH) };
        }

        /// Completes a switch to the fiber; called on the fiber's stack after the switch.
        #[inline(always)]
        pub(crate) fn enter_fiber(&self) {
            // SAFETY: created by leave_worker(), and not destroyed before the fiber's end.
            unsafe { __tsan_switch_to_fiber(self.fiber.get(), ORDERED_SWITCH) };
        }

        /// Announces a switch to the worker; called on the fiber's stack before the switch.
        #[inline(always)]
        pub(crate) fn leave_fiber(&self) {
            // SAFETY: created by leave_worker(), and not destroyed before the fiber's end.
            unsafe { __tsan_switch_to_fiber(self.switch.get(), ORDERED_SWITCH) };
        }

        /// Completes a switch to the worker; called on the worker's stack after the switch.
        #[inline(always)]
        pub(crate) fn enter_worker(&self) {
            // SAFETY: the shadow of this thread, which leave_worker() stored before the fiber ran.
            unsafe { __tsan_switch_to_fiber(self.worker.get(), ORDERED_SWITCH) };
        }

        /// Deletes ThreadSanitizer's state of a fiber that has finished; called on the worker's stack.
        pub(crate) fn destroy(&self) {
            for shadow in [&self.fiber, &self.switch] {
                // SAFETY: created by leave_worker(); enter_worker() has made another shadow the
                // current one, and the fiber is never resumed again.
                unsafe { __tsan_destroy_fiber(shadow.replace(ptr::null_mut())) };
            }
        }
    }
}
