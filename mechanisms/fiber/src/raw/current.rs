//! Which worker this thread is.

use crate::drive::worker::Worker;
use std::cell::Cell;
use std::ptr;

thread_local! {
    static CURRENT: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// The worker that this thread is, if any.
///
/// Never inlined: the compiler takes it that a function stays on its thread, and may keep the address of a
/// thread-local variable across a suspension from which a fiber comes back on another. Within here there is
/// none.
#[inline(never)]
pub(crate) fn current() -> Option<&'static Worker> {
    // SAFETY: set by enter() to a worker that is borrowed until it is unset. The callers are in this crate,
    // and none keeps the reference across a suspension, nor beyond the fiber's run.
    unsafe { CURRENT.get().as_ref() }
}

/// Calls `run` with `worker` as this thread's.
pub(crate) fn enter<R>(worker: &Worker, run: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(ptr::null());
        }
    }
    CURRENT.set(worker);
    let _leave = Leave;
    run()
}
