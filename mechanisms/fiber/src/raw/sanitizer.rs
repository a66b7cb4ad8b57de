//! Reports of stack switches to ThreadSanitizer and AddressSanitizer, in builds for them; no code
//! in other builds.
//!
//! ThreadSanitizer keeps a shadow of each call stack, updated by the calls and returns that it
//! sees, and needs the shadow's address before a switch. AddressSanitizer needs the bounds of the
//! stack, and keeps some frames elsewhere, in a fake stack. In these builds, fibers switch to their
//! worker only, and not to each other.

use super::stack::Stack;

/// Marks a reused stack as accessible for AddressSanitizer. Its marks of the finished fiber's
/// frames are still there, as these frames did not return.
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

#[cfg(handover_sanitizer = "address")]
pub(super) use address::SanitizerState;
#[cfg(not(any(handover_sanitizer = "address", handover_sanitizer = "thread")))]
pub(super) use disabled::SanitizerState;
#[cfg(handover_sanitizer = "thread")]
pub(super) use thread::SanitizerState;

#[cfg(not(any(handover_sanitizer = "address", handover_sanitizer = "thread")))]
mod disabled {
    /// Placeholder for the sanitizers' state of a fiber, in builds without sanitizers.
    pub(crate) struct SanitizerState;

    impl SanitizerState {
        pub(crate) fn new(_limit: usize, _top: usize) -> Self {
            Self
        }
        #[inline(always)]
        pub(crate) fn leave_worker(&self) {}
        #[inline(always)]
        pub(crate) fn enter_fiber(&self) {}
        #[inline(always)]
        pub(crate) fn leave_fiber(&self) {}
        #[inline(always)]
        pub(crate) fn finish_fiber(&self) {}
        #[inline(always)]
        pub(crate) fn enter_worker(&self) {}
        #[inline(always)]
        pub(crate) fn destroy(&self) {}
    }
}

#[cfg(handover_sanitizer = "address")]
mod address {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;

    // SAFETY: the signatures are those of sanitizer/common_interface_defs.h.
    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(
            fake_stack: *mut *mut c_void,
            bottom: *const c_void,
            bytes: usize,
        );
        fn __sanitizer_finish_switch_fiber(
            fake_stack: *mut c_void,
            old_bottom: *mut *const c_void,
            old_bytes: *mut usize,
        );
    }

    /// Stack, by its lowest address and its size in bytes, and its fake stack while the stack is
    /// suspended.
    struct StackState {
        bottom: Cell<*const c_void>,
        bytes: Cell<usize>,
        fake_stack: Cell<*mut c_void>,
    }

    impl StackState {
        fn new(bottom: usize, bytes: usize) -> Self {
            Self {
                bottom: Cell::new(ptr::with_exposed_provenance(bottom)),
                bytes: Cell::new(bytes),
                fake_stack: Cell::new(ptr::null_mut()),
            }
        }
    }

    /// AddressSanitizer's state of a fiber and of the worker that runs it.
    pub(crate) struct SanitizerState {
        fiber: StackState,
        worker: StackState,
    }

    impl SanitizerState {
        /// Creates the state of a fiber on the stack between two addresses.
        pub(crate) fn new(limit: usize, top: usize) -> Self {
            Self { fiber: StackState::new(limit, top - limit), worker: StackState::new(0, 0) }
        }

        /// Announces a switch to the fiber; called on the worker's stack before the switch.
        #[inline(always)]
        pub(crate) fn leave_worker(&self) {
            let StackState { bottom, bytes, .. } = &self.fiber;
            let fake_stack = self.worker.fake_stack.as_ptr();
            // SAFETY: the bounds are those of the fiber's stack, and the pointer is valid for
            // writes.
            unsafe { __sanitizer_start_switch_fiber(fake_stack, bottom.get(), bytes.get()) };
        }

        /// Completes a switch to the fiber; called on the fiber's stack after the switch.
        #[inline(always)]
        pub(crate) fn enter_fiber(&self) {
            let (bottom, bytes) = (self.worker.bottom.as_ptr(), self.worker.bytes.as_ptr());
            // SAFETY: the fake stack is that of this fiber's last suspension, or null; the pointers
            // are valid for writes.
            unsafe {
                __sanitizer_finish_switch_fiber(self.fiber.fake_stack.get(), bottom, bytes);
            }
        }

        /// Announces a switch to the worker; called on the fiber's stack before the switch.
        #[inline(always)]
        pub(crate) fn leave_fiber(&self) {
            self.start_switch_to_worker(self.fiber.fake_stack.as_ptr());
        }

        /// Announces the last switch to the worker; called on the fiber's stack before the switch.
        /// Deletes the fake stack.
        #[inline(always)]
        pub(crate) fn finish_fiber(&self) {
            self.start_switch_to_worker(ptr::null_mut());
        }

        #[inline(always)]
        fn start_switch_to_worker(&self, fake_stack: *mut *mut c_void) {
            let StackState { bottom, bytes, .. } = &self.worker;
            // SAFETY: enter_fiber() has stored the bounds of the worker's stack; the pointer is
            // null, or valid for writes.
            unsafe { __sanitizer_start_switch_fiber(fake_stack, bottom.get(), bytes.get()) };
        }

        /// Completes a switch to the worker; called on the worker's stack after the switch.
        #[inline(always)]
        pub(crate) fn enter_worker(&self) {
            let fake_stack = self.worker.fake_stack.get();
            // SAFETY: leave_worker() has stored the worker's fake stack; null pointers take no
            // bounds.
            unsafe {
                __sanitizer_finish_switch_fiber(fake_stack, ptr::null_mut(), ptr::null_mut());
            }
        }

        #[inline(always)]
        pub(crate) fn destroy(&self) {}
    }
}

#[cfg(handover_sanitizer = "thread")]
mod thread {
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
    /// A switch begins in one function and ends in another, of different depths. Its calls and
    /// returns go to a third shadow, which belongs to the fiber and is balanced from the fiber's
    /// begin to its end.
    pub(crate) struct SanitizerState {
        /// Shadow of the fiber's stack.
        fiber: Cell<Address>,
        /// Shadow for the calls and returns of a switch.
        switch: Cell<Address>,
        /// Shadow of the stack of the worker that runs the fiber.
        worker: Cell<Address>,
    }

    impl SanitizerState {
        pub(crate) fn new(_limit: usize, _top: usize) -> Self {
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

        /// Announces the last switch to the worker; called on the fiber's stack before the switch.
        #[inline(always)]
        pub(crate) fn finish_fiber(&self) {
            self.leave_fiber();
        }

        /// Completes a switch to the worker; called on the worker's stack after the switch.
        #[inline(always)]
        pub(crate) fn enter_worker(&self) {
            // SAFETY: the shadow of this thread, which leave_worker() stored before the fiber ran.
            unsafe { __tsan_switch_to_fiber(self.worker.get(), ORDERED_SWITCH) };
        }

        /// Deletes ThreadSanitizer's state of a fiber that has finished; called on the worker's
        /// stack.
        pub(crate) fn destroy(&self) {
            for shadow in [&self.fiber, &self.switch] {
                // SAFETY: created by leave_worker(); enter_worker() has made another shadow the
                // current one, and the fiber is never resumed again.
                unsafe { __tsan_destroy_fiber(shadow.replace(ptr::null_mut())) };
            }
        }
    }
}
