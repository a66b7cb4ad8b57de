//! A lock for one owner who takes it all the time, and others who hardly ever do.
//!
//! The owner pays two plain stores and a load. What makes that sound is that a stranger makes every
//! thread of the process pass a full fence (`membarrier(2)`) between saying that it comes and looking
//! whether the owner is inside: Dekker's algorithm with both fences on one side. Without that system call
//! the owner's fence is a real one.
//!
//! Source: Dice, Moir, Scherer, "Quickly Reacquirable Locks" (2003); liburcu and folly use the system call so.

use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::{AtomicBool, Ordering};
use handover_base::sync::hint;

/// A value with a biased lock around it.
#[derive(Debug)]
pub struct Biased<T> {
    is_owner_in: AtomicBool,
    is_stranger_in: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only who holds the lock reaches the value, on whatever thread.
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self {
            is_owner_in: AtomicBool::new(false),
            is_stranger_in: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `f` as the owner; `fence_light` is the owner's half of the fence.
    ///
    /// # Safety
    /// One thread at a time is the owner, and `f` does not come here again.
    #[inline]
    pub unsafe fn own<R>(&self, fence_light: impl Fn(), f: impl FnOnce(&mut T) -> R) -> R {
        loop {
            // Relaxed: ordered against the load below by the fence.
            self.is_owner_in.store(true, Ordering::Relaxed);
            fence_light();
            // Acquire: pairs with the Release with which a stranger leaves.
            if !self.is_stranger_in.load(Ordering::Acquire) {
                break;
            }
            self.step_back();
        }
        // SAFETY: we are in, and a stranger that comes now sees it: its fence stands between its flag and
        // its look at ours, and ours between our flag and our look at its.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        // Release: publishes what was done to the Acquire in visit().
        self.is_owner_in.store(false, Ordering::Release);
        result
    }

    /// Calls `f` as the owner, where nobody ever visits.
    ///
    /// # Safety
    /// One thread at a time is the owner, `f` does not come here again, and nobody ever visits.
    #[inline]
    pub unsafe fn own_alone<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's promise.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    #[cold]
    fn step_back(&self) {
        // Release: pairs with the Acquire in visit(); nothing was done.
        self.is_owner_in.store(false, Ordering::Release);
        let mut looks = 0u32;
        // Acquire: pairs with the Release in visit().
        while self.is_stranger_in.load(Ordering::Acquire) {
            wait(&mut looks);
        }
    }

    /// Calls `f` as a stranger, unless another one is inside; `fence_heavy` is the stranger's fence, which
    /// the owner's thread has passed too when it returns.
    pub fn visit<R>(&self, fence_heavy: impl FnOnce(), f: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: pairs with the Release below of the stranger before.
        if self.is_stranger_in.swap(true, Ordering::Acquire) {
            return None;
        }
        fence_heavy();
        let mut looks = 0u32;
        // Acquire: pairs with the Release with which the owner leaves.
        while self.is_owner_in.load(Ordering::Acquire) {
            wait(&mut looks);
        }
        // SAFETY: the owner is out and, since the fence, sees our flag before it goes in again; other
        // strangers have been turned away by the swap.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        // Release: publishes what was done to the Acquire in own().
        self.is_stranger_in.store(false, Ordering::Release);
        Some(result)
    }
}

/// A few looks with a pause, then lets others run: the one inside may have lost its CPU.
fn wait(looks: &mut u32) {
    *looks += 1;
    if *looks < 64 {
        hint::spin_loop();
    } else {
        handover_base::sync::thread::yield_now();
    }
}
