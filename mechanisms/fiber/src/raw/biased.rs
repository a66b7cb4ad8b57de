//! Lock biased towards one owner that takes it all the time; others hardly ever do.
//!
//! The owner pays two plain stores and a load. This is sound because another thread that takes the
//! lock makes every thread of the process pass a full fence (`membarrier(2)`) between setting its
//! flag and reading the owner's: Dekker's algorithm with both fences on one side. Without that
//! system call the owner's fence is a real one.
//!
//! Source: Dice, Moir, Scherer, "Quickly Reacquirable Locks" (2003); liburcu and folly use the
//! system call in this way.

use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::{AtomicBool, Ordering};
use handover_base::sync::hint;

/// Value with a biased lock, which is cheap for one owner thread and expensive for others.
#[derive(Debug)]
pub struct BiasedLock<T> {
    /// `true` while the owner holds the lock or tries to lock it.
    is_owner_inside: AtomicBool,
    /// `true` while another thread holds the lock or waits for the owner to release it.
    is_remote_inside: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock accesses the value, on any thread, and `T` is `Send`.
unsafe impl<T: Send> Send for BiasedLock<T> {}
// SAFETY: only the holder of the lock accesses the value, so a shared reference gives exclusive
// access at most.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            is_owner_inside: AtomicBool::new(false),
            is_remote_inside: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the value as the owner, calls `f` and returns its result. `fence_light` is the owner's
    /// half of the fence.
    ///
    /// # Safety
    /// Only one thread at a time is the owner, and `f` does not lock this value again.
    #[inline]
    pub unsafe fn with_lock_as_owner<R>(
        &self,
        fence_light: impl Fn(),
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        loop {
            // Relaxed: ordered before the load below by the fence.
            self.is_owner_inside.store(true, Ordering::Relaxed);
            fence_light();
            // Acquire: pairs with the Release of a leaving remote thread.
            if !self.is_remote_inside.load(Ordering::Acquire) {
                break;
            }
            self.yield_to_remote();
        }
        // SAFETY: the owner's flag is set, and no remote thread is inside. A remote thread that
        // enters now sees the flag: its fence stands between its store and its load, and the
        // owner's fence between the owner's.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        // Release: publishes the accesses of `f` to the Acquire in with_lock_as_remote().
        self.is_owner_inside.store(false, Ordering::Release);
        result
    }

    /// Calls `f` without locking, and returns its result. For an owner whose value no other thread
    /// ever locks.
    ///
    /// # Safety
    /// Only one thread at a time is the owner, `f` does not lock this value again, and
    /// with_lock_as_remote() is never called.
    #[inline]
    pub unsafe fn with_value_unlocked<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller guarantees exclusive access.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    /// Lets another thread acquire the lock, and waits until that thread has released the lock.
    #[cold]
    fn yield_to_remote(&self) {
        // Release: pairs with the Acquire in with_lock_as_remote(); the value was not accessed.
        self.is_owner_inside.store(false, Ordering::Release);
        let mut spins_count = 0u32;
        // Acquire: pairs with the Release in with_lock_as_remote().
        while self.is_remote_inside.load(Ordering::Acquire) {
            pause_or_yield(&mut spins_count);
        }
    }

    /// Locks the value as a thread other than the owner, calls `f` and returns its result. Returns
    /// `None` if another such thread holds the lock. `fence_heavy` is the other half of the fence:
    /// when it returns, the owner's thread has passed a fence, too.
    pub fn with_lock_as_remote<R>(
        &self,
        fence_heavy: impl FnOnce(),
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        // Acquire: pairs with the Release below of the previous remote thread.
        if self.is_remote_inside.swap(true, Ordering::Acquire) {
            return None;
        }
        fence_heavy();
        let mut spins_count = 0u32;
        // Acquire: pairs with the Release of the leaving owner.
        while self.is_owner_inside.load(Ordering::Acquire) {
            pause_or_yield(&mut spins_count);
        }
        // SAFETY: the owner is outside and, since the fence, sees the remote flag before it
        // enters again; other remote threads are refused by the swap.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        // Release: publishes the accesses of `f` to the Acquire in with_lock_as_owner().
        self.is_remote_inside.store(false, Ordering::Release);
        Some(result)
    }
}

/// Pauses the first 63 times, then yields the CPU. The holder of the lock may have been preempted.
fn pause_or_yield(spins_count: &mut u32) {
    *spins_count += 1;
    if *spins_count < 64 {
        hint::spin_loop();
    } else {
        handover_base::sync::thread::yield_now();
    }
}

// Under Miri too, which sees a value that two threads access at once.
#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use handover_base::sync::atomic::fence;
    use std::thread;

    #[test]
    fn owner_and_thieves_change_the_value_one_at_a_time() {
        const EACH: u32 = if cfg!(miri) { 30 } else { 20_000 };
        // SeqCst: both halves of the fence.
        let fence_fully = || fence(Ordering::SeqCst);
        let value = BiasedLock::new(0);
        let stolen: u32 = thread::scope(|scope| {
            let steal = || {
                let tries =
                    (0..EACH).map(|_| value.with_lock_as_remote(fence_fully, |count| *count += 1));
                tries.flatten().count() as u32
            };
            let thieves = [scope.spawn(steal), scope.spawn(steal)];
            for _ in 0..EACH {
                // SAFETY: only this thread is the owner, and the closure locks nothing.
                unsafe { value.with_lock_as_owner(fence_fully, |count| *count += 1) };
            }
            thieves.map(|thief| thief.join().expect("a thief panicked")).iter().sum()
        });
        // SAFETY: the only thread left.
        assert_eq!(unsafe { value.with_value_unlocked(|count| *count) }, EACH + stolen);
    }
}
