//! Way from a fiber to the state of its worker.

use super::control::{HomeAddress, Runnable};
use crate::drive::state::{RuntimeState, WorkerState};
use std::ptr::NonNull;
use std::sync::Arc;

impl HomeAddress {
    #[inline]
    pub(crate) fn for_worker(worker: &WorkerState) -> Self {
        Self(NonNull::from(worker).cast())
    }
}

/// Returns the state of the fiber's worker.
#[inline]
fn home_of(fiber: &Runnable) -> &WorkerState {
    // SAFETY: only HomeAddress::for_worker() makes an address, from a worker's state. The state
    // belongs to a runtime, and this fiber has not ended. A runtime that ends before its fibers,
    // because it was abandoned or a worker panicked, leaks the state: Runtime::stop_and_leak().
    unsafe { fiber.home().0.cast().as_ref() }
}

impl Runnable {
    /// Returns `true` if the fiber's worker is one of this runtime.
    pub(crate) fn belongs_to(&self, shared: &Arc<RuntimeState>) -> bool {
        home_of(self).belongs_to(shared)
    }

    /// Pushes the fiber into its worker's inbox, from another thread. `is_same_runtime` is `true`
    /// if this thread is a worker of the same runtime.
    pub(crate) fn push_to_home(self, is_same_runtime: bool) {
        // SAFETY: as in home_of(). The reference is used after the fiber was pushed and may have
        // ended: see below.
        let worker: &WorkerState = unsafe { self.home().0.cast().as_ref() };
        // Once the fiber is in the inbox it may run and end, and its runtime may end while this
        // thread still unparks the worker. The end of a runtime waits for its workers; any other
        // thread keeps it alive.
        let _keep = if is_same_runtime { None } else { worker.upgrade_runtime() };
        worker.inbox.push(self);
        worker.unpark();
    }
}
