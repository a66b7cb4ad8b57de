//! The C library's locks, in place and pinned, which only a guard can unlock.

use crate::lock::contend::Lock;
use core::cell::UnsafeCell;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;

/// C functions of one kind of lock of the C library. Each takes the lock's address as its argument.
///
/// # Safety
/// For implementors: `TRY_LOCK` returns 0 to one caller at a time, until `UNLOCK`.
///
/// For callers: the lock was initialised by `INIT` at this address and not destroyed since;
/// `UNLOCK` is called by the thread to which `TRY_LOCK` returned 0, once for each; `DESTROY` is
/// called when no thread holds the lock and none will use it again.
pub unsafe trait Primitive: 'static {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    type Raw;
    const ZEROED: Self::Raw;
    const INIT: unsafe fn(*mut Self::Raw) -> i32;
    const TRY_LOCK: LockFunction<Self::Raw>;
    const UNLOCK: LockFunction<Self::Raw>;
    const DESTROY: LockFunction<Self::Raw>;
}

/// C function that takes the address of a lock, and returns 0 if it succeeds.
pub type LockFunction<R> = unsafe extern "C" fn(*mut R) -> i32;

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
        let rc = unsafe { (P::INIT)(lock.raw.get()) };
        assert_eq!(rc, 0, "the C library failed to initialise a {}", P::NAME);
        lock
    }

    #[inline]
    fn try_lock(&self) -> Option<PosixGuard<'_, P>> {
        // SAFETY: a `Self` is only made by new_unlocked(), which initialised the lock at this
        // address.
        let taken = unsafe { (P::TRY_LOCK)(self.raw.get()) } == 0;
        taken.then(|| PosixGuard { lock: self, _not_send: PhantomData })
    }
}

impl<P: Primitive> Drop for PosixGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: each successful try_lock makes one PosixGuard, which cannot leave its thread:
        // this thread holds the lock, and this is the only unlock of that try.
        unsafe { (P::UNLOCK)(self.lock.raw.get()) };
    }
}

impl<P: Primitive> Drop for Posix<P> {
    fn drop(&mut self) {
        // If a guard was forgotten, the lock is still held, and destroying a held lock is undefined
        // behaviour: it is left as it is. In glibc it owns nothing outside its own bytes.
        let raw = self.raw.get();
        // SAFETY: initialised at this address by new_unlocked(); `&mut self` excludes other users.
        if unsafe { (P::TRY_LOCK)(raw) } == 0 {
            // SAFETY: this thread took the lock one line above.
            unsafe { (P::UNLOCK)(raw) };
            // SAFETY: the lock is free, and `&mut self` in drop excludes any later use.
            unsafe { (P::DESTROY)(raw) };
        }
    }
}

/// C functions that [`PthreadMutex`] calls.
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

    // SAFETY: `raw` is valid for writing, by the contract of the trait; no attributes means the
    // default kind.
    const INIT: unsafe fn(*mut Self::Raw) -> i32 =
        |raw| unsafe { libc::pthread_mutex_init(raw, core::ptr::null()) };
    const TRY_LOCK: LockFunction<Self::Raw> = libc::pthread_mutex_trylock;
    const UNLOCK: LockFunction<Self::Raw> = libc::pthread_mutex_unlock;
    const DESTROY: LockFunction<Self::Raw> = libc::pthread_mutex_destroy;
}

/// C functions that [`PthreadSpin`] calls.
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

    // SAFETY: `raw` is valid for writing, by the contract of the trait.
    const INIT: unsafe fn(*mut Self::Raw) -> i32 =
        |raw| unsafe { libc::pthread_spin_init(raw, libc::PTHREAD_PROCESS_PRIVATE) };
    const TRY_LOCK: LockFunction<Self::Raw> = libc::pthread_spin_trylock;
    const UNLOCK: LockFunction<Self::Raw> = libc::pthread_spin_unlock;
    const DESTROY: LockFunction<Self::Raw> = libc::pthread_spin_destroy;
}

/// C functions that [`PosixSem`] calls.
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

    // SAFETY: `raw` is valid for writing, by the contract of the trait; 0: within this process; 1:
    // free.
    const INIT: unsafe fn(*mut Self::Raw) -> i32 = |raw| unsafe { libc::sem_init(raw, 0, 1) };
    const TRY_LOCK: LockFunction<Self::Raw> = libc::sem_trywait;
    const UNLOCK: LockFunction<Self::Raw> = libc::sem_post;
    const DESTROY: LockFunction<Self::Raw> = libc::sem_destroy;
}
