//! The switch between stacks, told to ThreadSanitizer where a build is for it; without, nothing.
//!
//! It keeps a shadow of each call stack, which it takes for its thread's unless it is told. AddressSanitizer is told
//! by `corosensei`, with its feature `sanitizer`.

#[cfg(handover_sanitizer = "thread")]
pub(super) use with::Shadow;
#[cfg(not(handover_sanitizer = "thread"))]
pub(super) use without::Shadow;

#[cfg(not(handover_sanitizer = "thread"))]
mod without {
    /// The shadow of a fiber's stack: none.
    #[derive(Clone, Copy)]
    pub(in crate::raw) struct Shadow;

    impl Shadow {
        pub(in crate::raw) const fn new() -> Self {
            Self
        }
        #[inline(always)]
        pub(in crate::raw) fn enter(&self) {}
        #[inline(always)]
        pub(in crate::raw) fn leave(&self) {}
        #[inline(always)]
        pub(in crate::raw) fn end(&self) {}
    }
}

#[cfg(handover_sanitizer = "thread")]
mod with {
    use std::cell::Cell;
    use std::ffi::{c_uint, c_void};
    use std::ptr;

    // SAFETY: these are the signatures of sanitizer/tsan_interface.h.
    unsafe extern "C" {
        safe fn __tsan_get_current_fiber() -> *mut c_void;
        safe fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    }

    /// The thread's own order of the two stacks' accesses is an order for the sanitizer too.
    const IS_ORDERED: c_uint = 0;

    /// The shadow of a fiber's stack, and of the stack of the worker that runs it.
    pub(in crate::raw) struct Shadow {
        fiber: Cell<*mut c_void>,
        worker: Cell<*mut c_void>,
    }

    impl Shadow {
        pub(in crate::raw) const fn new() -> Self {
            Self { fiber: Cell::new(ptr::null_mut()), worker: Cell::new(ptr::null_mut()) }
        }

        /// The worker is about to switch to the fiber.
        #[inline(always)]
        pub(in crate::raw) fn enter(&self) {
            if self.fiber.get().is_null() {
                self.fiber.set(__tsan_create_fiber(0));
            }
            self.worker.set(__tsan_get_current_fiber());
            // SAFETY: created above or in an earlier call, and not destroyed: only end() does that.
            unsafe { __tsan_switch_to_fiber(self.fiber.get(), IS_ORDERED) };
        }

        /// The fiber is about to switch to its worker.
        #[inline(always)]
        pub(in crate::raw) fn leave(&self) {
            // SAFETY: the shadow of this thread's own stack, which enter() has found.
            unsafe { __tsan_switch_to_fiber(self.worker.get(), IS_ORDERED) };
        }

        /// The fiber is over, and the worker runs.
        pub(in crate::raw) fn end(&self) {
            // SAFETY: created by enter(); leave() has switched away from it, and nobody enters it any more.
            unsafe { __tsan_destroy_fiber(self.fiber.replace(ptr::null_mut())) };
        }
    }
}
