//! The worker of the current thread.

use crate::drive::worker::Worker;
use std::cell::Cell;
use std::ptr;

thread_local! {
    /// Pointer to this thread's worker, or null.
    static THIS_WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// Returns this thread's worker; `None` if the thread is not a worker.
///
/// Never inlined: the compiler assumes that a function stays on its thread, and may keep the
/// address of a thread-local variable across a suspension after which the fiber runs on another
/// thread. This function contains no suspension.
#[inline(never)]
pub(crate) fn this_worker() -> Option<&'static Worker> {
    this_worker_inlined()
}

/// Returns this thread's worker as [`this_worker`] does. For functions that are themselves never
/// inlined, and contain no suspension.
#[inline(always)]
pub(crate) fn this_worker_inlined() -> Option<&'static Worker> {
    // SAFETY: with_this_worker() sets the pointer to a worker that is borrowed until the pointer is
    // reset. All callers are in this crate, and none keeps the reference across a suspension, or
    // beyond the fiber's run.
    unsafe { THIS_WORKER.get().as_ref() }
}

/// Calls `run` with `worker` as this thread's worker, and returns the result of `run`.
pub(crate) fn with_this_worker<R>(worker: &Worker, run: impl FnOnce() -> R) -> R {
    struct RestoreOnDrop;
    impl Drop for RestoreOnDrop {
        fn drop(&mut self) {
            THIS_WORKER.set(ptr::null());
        }
    }
    THIS_WORKER.set(worker);
    let _leave = RestoreOnDrop;
    run()
}
