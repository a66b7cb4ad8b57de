//! The C library's locks, in place and pinned, which only a guard can unlock.

use crate::lock::contend::Lock;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;

/// C functions of one kind of lock of the C library. Each method calls the C function of the same purpose on `raw`.
///
/// # Safety
/// For implementors: `try_lock` returns true to one caller at a time, until `unlock`.
///
/// For callers: `raw` was initialised by `init` at this address and not destroyed since; `unlock`
/// is called by the thread whose `try_lock` returned true, once for each; `destroy` is called when
/// no thread holds the lock and none will use it again.
pub unsafe trait Primitive: 'static {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    type Raw;
    const ZEROED: Self::Raw;
    unsafe fn init(raw: *mut Self::Raw) -> i32;
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool;
    unsafe fn unlock(raw: *mut Self::Raw);
    unsafe fn destroy(raw: *mut Self::Raw);
}

/// A lock of the C library as a [`Lock`]: [`PthreadMutex`], [`PthreadSpin`] or [`PosixSem`].
///
/// It lies in place, so that no pointer must be followed to reach the word, and is pinned, because
/// POSIX forbids moving it. Its guard stays on its thread, because POSIX forbids unlocking from
/// another.
#[repr(align(128))]
pub struct Posix<P: Primitive> {
    raw: UnsafeCell<P::Raw>,
    _pinned: PhantomPinned,
}

/// Guard of a [`Posix`] lock; dropping it unlocks. Not `Send`.
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct PosixGuard<'a, P: Primitive> {
    lock: &'a Posix<P>,
    _not_send: PhantomData<*const ()>,
}

// SAFETY: `raw` is only used by calls of thread-safe C functions on its address.
unsafe impl<P: Primitive> Sync for Posix<P> {}

// SAFETY: the lock belongs to no thread; a guard borrows it, so that it cannot move while it is
// held.
unsafe impl<P: Primitive> Send for Posix<P> {}

impl<P: Primitive> Lock for Posix<P> {
    const NAME: &'static str = P::NAME;
    const DESCRIPTION: &'static str = P::DESCRIPTION;
    type Guard<'a> = PosixGuard<'a, P>;

    fn new_unlocked() -> Pin<Box<Self>> {
        let lock = Box::pin(Self { raw: UnsafeCell::new(P::ZEROED), _pinned: PhantomPinned });
        // SAFETY: the address is final (pinned, !Unpin), and no other thread knows it yet.
        let rc = unsafe { P::init(lock.raw.get()) };
        assert_eq!(rc, 0, "the C library failed to initialise a {}", P::NAME);
        lock
    }

    #[inline]
    fn try_lock(&self) -> Option<PosixGuard<'_, P>> {
        // SAFETY: a `Self` is only made by new_unlocked(), which initialised the lock at this address.
        let taken = unsafe { P::try_lock(self.raw.get()) };
        taken.then(|| PosixGuard { lock: self, _not_send: PhantomData })
    }
}

impl<P: Primitive> Drop for PosixGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: each successful try_lock makes one PosixGuard, which cannot leave its thread: this
        // thread holds the lock, and this is the only unlock of that try.
        unsafe { P::unlock(self.lock.raw.get()) }
    }
}

impl<P: Primitive> Drop for Posix<P> {
    fn drop(&mut self) {
        // If a guard was forgotten, the lock is still held, and destroying a held lock is undefined
        // behaviour: it is left as it is. In glibc it owns nothing outside its own bytes.
        let raw = self.raw.get();
        // SAFETY: initialised at this address by new_unlocked(); `&mut self` excludes other users.
        if unsafe { P::try_lock(raw) } {
            // SAFETY: this thread took the lock one line above.
            unsafe { P::unlock(raw) };
            // SAFETY: the lock is free, and `&mut self` in drop excludes any later use.
            unsafe { P::destroy(raw) };
        }
    }
}

impl<P: Primitive> fmt::Debug for Posix<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(P::NAME).finish_non_exhaustive()
    }
}

impl<P: Primitive> fmt::Debug for PosixGuard<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PosixGuard").field(&P::NAME).finish()
    }
}

/// C functions of [`PthreadMutex`].
pub struct MutexCalls;

/// The C library's mutex of the default kind, tried with `pthread_mutex_trylock`.
pub type PthreadMutex = Posix<MutexCalls>;

// SAFETY: POSIX guarantees mutual exclusion for a default mutex that is initialised, unlocked by
// its owner and not moved, which the trait demands of callers.
unsafe impl Primitive for MutexCalls {
    const NAME: &'static str = "pthread_mutex";
    const DESCRIPTION: &'static str = "pthread_mutex_trylock and _unlock";
    type Raw = libc::pthread_mutex_t;
    const ZEROED: Self::Raw = libc::PTHREAD_MUTEX_INITIALIZER;

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing; no attributes means the default kind.
        unsafe { libc::pthread_mutex_init(raw, core::ptr::null()) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller guarantees that it is initialised at this address.
        (unsafe { libc::pthread_mutex_trylock(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that the mutex is free and never used again.
        unsafe { libc::pthread_mutex_destroy(raw) };
    }
}

/// C functions of [`PthreadSpin`].
pub struct SpinCalls;

/// The C library's spinlock, tried with `pthread_spin_trylock`.
pub type PthreadSpin = Posix<SpinCalls>;

// SAFETY: POSIX guarantees mutual exclusion for a spin lock that is initialised, unlocked by its
// owner and not moved, which the trait demands of callers.
unsafe impl Primitive for SpinCalls {
    const NAME: &'static str = "pthread_spin";
    const DESCRIPTION: &'static str = "pthread_spin_trylock and _unlock";
    type Raw = libc::pthread_spinlock_t;
    const ZEROED: Self::Raw = 0;

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing.
        unsafe { libc::pthread_spin_init(raw, libc::PTHREAD_PROCESS_PRIVATE) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller guarantees that it is initialised at this address.
        (unsafe { libc::pthread_spin_trylock(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that this thread holds the lock.
        unsafe { libc::pthread_spin_unlock(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that the lock is free and never used again.
        unsafe { libc::pthread_spin_destroy(raw) };
    }
}

/// C functions of [`PosixSem`].
pub struct SemCalls;

/// A POSIX semaphore with the initial value 1, tried with `sem_trywait` and freed with `sem_post`.
pub type PosixSem = Posix<SemCalls>;

// SAFETY: a semaphore that starts at 1, and is only posted by a thread after its successful
// sem_trywait, admits one thread at a time.
unsafe impl Primitive for SemCalls {
    const NAME: &'static str = "posix_sem";
    const DESCRIPTION: &'static str = "sem_trywait and sem_post";
    type Raw = libc::sem_t;
    // SAFETY: sem_t is a union of a byte array and a long, for which zeroes are a valid value.
    const ZEROED: Self::Raw = unsafe { core::mem::zeroed() };

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing; 0: within this process; 1: free.
        unsafe { libc::sem_init(raw, 0, 1) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller guarantees that it is initialised at this address.
        (unsafe { libc::sem_trywait(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that this thread has taken the semaphore.
        unsafe { libc::sem_post(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller guarantees that no thread waits on the semaphore or will use it again.
        unsafe { libc::sem_destroy(raw) };
    }
}
