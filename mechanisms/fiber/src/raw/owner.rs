//! A worker's exclusive access to its own state.

use super::biased::BiasedLock;
use super::control::HomeAddress;
use super::kernel;
use super::stack::IS_SANITIZED;
use crate::drive::state::{RuntimeState, WorkerState};
use crate::engine::ReadyQueue;
use handover_base::sync::shared::{Ordering, fence};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Exclusive access to a worker's state; the worker's thread claims it once.
#[derive(Debug)]
pub(crate) struct WorkerOwner {
    worker: NonNull<WorkerState>,
    shared: Arc<RuntimeState>,
    /// `true` if the kernel supports `membarrier(2)`.
    has_heavy_fence: bool,
    /// `true` if other workers may steal fibers from the queue.
    has_thieves: bool,
    /// Makes the type `!Send`, because the queue is accessed without a lock.
    not_send: PhantomData<*mut ()>,
}

impl WorkerOwner {
    /// Claims exclusive access to the state of worker `index`; `None` if it was claimed before.
    pub(crate) fn claim(shared: Arc<RuntimeState>, index: usize) -> Option<Self> {
        let worker = shared.workers.get(index)?;
        worker.claim_ownership().then(|| Self {
            worker: NonNull::from(worker),
            has_heavy_fence: kernel::enable_heavy_fence(),
            has_thieves: shared.has_stealing(),
            shared: Arc::clone(&shared),
            not_send: PhantomData,
        })
    }

    #[inline]
    pub(crate) fn runtime_state(&self) -> &Arc<RuntimeState> {
        &self.shared
    }

    /// Returns the address of the worker's state, as stored in its fibers.
    #[inline]
    pub(crate) fn home_address(&self) -> HomeAddress {
        HomeAddress::for_worker(self)
    }

    /// Calls `f` with the worker's run queue and returns its result; `f` must not use this owner.
    #[inline(always)] // it is a few moves where no worker steals
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut ReadyQueue) -> R) -> R {
        let queue: &BiasedLock<ReadyQueue> = &self.queue;
        if !self.has_thieves {
            // SAFETY: a worker has one owner, which stays on its thread; `f` only works on the
            // queue; and without stealing no worker calls with_queue_of_worker().
            return unsafe { queue.with_value_unlocked(f) };
        }
        // SAFETY: a worker has one owner, which stays on its thread; `f` only works on the queue.
        unsafe { queue.with_lock_as_owner(|| self.fence_light(), f) }
    }

    /// Returns `true` if a fiber may switch to another fiber of this worker, having put itself into
    /// the run queue before it is suspended: no other worker takes it from there. Always `false` in
    /// sanitizer builds.
    #[inline]
    pub(crate) fn can_switch_directly(&self) -> bool {
        !self.has_thieves && !IS_SANITIZED
    }

    /// Executes the owner's half of the fence; [`fence_heavy`](Self::fence_heavy) is the other
    /// half.
    #[inline(always)] // usually no instruction
    pub(crate) fn fence_light(&self) {
        if self.has_heavy_fence {
            fence_compiler();
        } else {
            // SeqCst: pairs with the fence in fence_heavy().
            fence(Ordering::SeqCst);
        }
    }

    /// Calls `f` with another worker's run queue and returns its result. Returns `None` if a third
    /// worker is accessing the queue, or this worker never steals.
    pub(crate) fn with_queue_of_worker<R>(
        &self,
        other: &WorkerState,
        f: impl FnOnce(&mut ReadyQueue) -> R,
    ) -> Option<R> {
        if !self.has_thieves {
            return None;
        }
        other.queue.with_lock_as_remote(|| self.fence_heavy(), f)
    }

    /// Executes the fence that pairs with the light fences of all workers.
    pub(crate) fn fence_heavy(&self) {
        if self.has_heavy_fence {
            kernel::fence_heavy();
        } else {
            // SeqCst: pairs with the fence in fence_light().
            fence(Ordering::SeqCst);
        }
    }
}

impl Deref for WorkerOwner {
    type Target = WorkerState;

    #[inline]
    fn deref(&self) -> &WorkerState {
        // SAFETY: `worker` is one of the workers of `shared`, which `self` keeps alive, and which
        // never move.
        unsafe { self.worker.as_ref() }
    }
}

/// Prevents the compiler from moving memory accesses across this call; generates no instruction.
/// This is the owner's half of the fence whose other half is the membarrier in
/// [`WorkerOwner::fence_heavy`].
#[inline]
fn fence_compiler() {
    // SAFETY: the block contains no instruction; without `nomem` the compiler must assume that it
    // accesses memory.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}
