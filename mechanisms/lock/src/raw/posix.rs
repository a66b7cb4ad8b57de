//! The C library's locks, in place and pinned, with a guard as the only way to unlock them.

use crate::contend::Contender;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;

/// One kind of lock of the C library. Each function is the C function of that name on `raw`.
///
/// # Safety
/// For implementors: `try_lock` gives true to one caller at a time, until `unlock`.
///
/// For callers: `raw` was initialised by `init` at this very address and not destroyed since;
/// `unlock` is called by the thread whose `try_lock` gave true, once for each; `destroy` is called
/// when nobody holds the lock and nobody will use it again.
pub unsafe trait Primitive: 'static {
    const NAME: &'static str;
    const WHAT: &'static str;
    type Raw;
    const ZEROED: Self::Raw;
    unsafe fn init(raw: *mut Self::Raw) -> i32;
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool;
    unsafe fn unlock(raw: *mut Self::Raw);
    unsafe fn destroy(raw: *mut Self::Raw);
}

/// A lock of the C library as a [`Contender`]: [`PthreadMutex`], [`PthreadSpin`] or [`PosixSem`].
///
/// It lies in place (no pointer to follow on the way to the word, which would be charged to it)
/// and is pinned, because POSIX forbids moving it. Its guard stays on its thread, because POSIX
/// forbids unlocking from another.
#[repr(align(128))]
pub struct Posix<P: Primitive> {
    raw: UnsafeCell<P::Raw>,
    _never_moves: PhantomPinned,
}

/// The permission that a [`Posix`] lock gives; dropping it unlocks. Not `Send`.
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct PosixHeld<'a, P: Primitive> {
    lock: &'a Posix<P>,
    stays_here: PhantomData<*const ()>,
}

// SAFETY: every use of `raw` is a call of a thread-safe C function on its address.
unsafe impl<P: Primitive> Sync for Posix<P> {}

// SAFETY: the lock owns no thread; a guard borrows it, so it cannot be sent away while it is held.
unsafe impl<P: Primitive> Send for Posix<P> {}

impl<P: Primitive> Contender for Posix<P> {
    const NAME: &'static str = P::NAME;
    const WHAT: &'static str = P::WHAT;
    type Held<'a> = PosixHeld<'a, P>;

    fn new_free() -> Pin<Box<Self>> {
        let lock = Box::pin(Self { raw: UnsafeCell::new(P::ZEROED), _never_moves: PhantomPinned });
        // SAFETY: the address is final (pinned, !Unpin), and nobody else knows it yet.
        let rc = unsafe { P::init(lock.raw.get()) };
        assert_eq!(rc, 0, "the C library cannot initialise a {}", P::NAME);
        lock
    }

    #[inline]
    fn try_lock(&self) -> Option<PosixHeld<'_, P>> {
        // SAFETY: the only way to a `Self` is new_free(), which initialised it where it lies.
        let taken = unsafe { P::try_lock(self.raw.get()) };
        taken.then(|| PosixHeld { lock: self, stays_here: PhantomData })
    }
}

impl<P: Primitive> Drop for PosixHeld<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a PosixHeld is made by a successful try_lock alone, once for each, and cannot
        // leave its thread: this thread is the holder, and this is the one unlock.
        unsafe { P::unlock(self.lock.raw.get()) }
    }
}

impl<P: Primitive> Drop for Posix<P> {
    fn drop(&mut self) {
        // A lock whose guard was forgotten is still held, and destroying a held lock is undefined:
        // it is then left as it is. In glibc it owns nothing outside its own bytes.
        let raw = self.raw.get();
        // SAFETY: initialised where it lies, as in try_lock(); `&mut self` means no other user.
        if unsafe { P::try_lock(raw) } {
            // SAFETY: taken by this thread one line above.
            unsafe { P::unlock(raw) };
            // SAFETY: free, and nobody can use it again: it is being dropped.
            unsafe { P::destroy(raw) };
        }
    }
}

impl<P: Primitive> fmt::Debug for Posix<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(P::NAME).finish_non_exhaustive()
    }
}

impl<P: Primitive> fmt::Debug for PosixHeld<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&P::NAME).finish()
    }
}

/// [`Primitive`] of [`PthreadMutex`].
pub struct MutexCalls;

/// The C library's mutex of the default kind, tried with `pthread_mutex_trylock`.
pub type PthreadMutex = Posix<MutexCalls>;

// SAFETY: POSIX promises mutual exclusion for a default mutex that is initialised, unlocked by its
// owner and not moved; the callers' side of the trait says just that.
unsafe impl Primitive for MutexCalls {
    const NAME: &'static str = "pthread_mutex";
    const WHAT: &'static str = "pthread_mutex_trylock and _unlock";
    type Raw = libc::pthread_mutex_t;
    const ZEROED: Self::Raw = libc::PTHREAD_MUTEX_INITIALIZER;

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing; no attributes means the default kind.
        unsafe { libc::pthread_mutex_init(raw, core::ptr::null()) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller's promise: initialised, in place.
        (unsafe { libc::pthread_mutex_trylock(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: free and never used again.
        unsafe { libc::pthread_mutex_destroy(raw) };
    }
}

/// [`Primitive`] of [`PthreadSpin`].
pub struct SpinCalls;

/// The C library's spinlock, tried with `pthread_spin_trylock`.
pub type PthreadSpin = Posix<SpinCalls>;

// SAFETY: as for MutexCalls, with POSIX's words on spin locks.
unsafe impl Primitive for SpinCalls {
    const NAME: &'static str = "pthread_spin";
    const WHAT: &'static str = "pthread_spin_trylock and _unlock";
    type Raw = libc::pthread_spinlock_t;
    const ZEROED: Self::Raw = 0;

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing.
        unsafe { libc::pthread_spin_init(raw, libc::PTHREAD_PROCESS_PRIVATE) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller's promise: initialised, in place.
        (unsafe { libc::pthread_spin_trylock(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: this thread holds it.
        unsafe { libc::pthread_spin_unlock(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: free and never used again.
        unsafe { libc::pthread_spin_destroy(raw) };
    }
}

/// [`Primitive`] of [`PosixSem`].
pub struct SemCalls;

/// A POSIX semaphore of one, tried with `sem_trywait` and freed with `sem_post`.
pub type PosixSem = Posix<SemCalls>;

// SAFETY: a semaphore that starts at one, and is posted only by those who took it down, lets one
// at a time through.
unsafe impl Primitive for SemCalls {
    const NAME: &'static str = "posix_sem";
    const WHAT: &'static str = "sem_trywait and sem_post";
    type Raw = libc::sem_t;
    // SAFETY: sem_t is a union of a byte array and a long, for which zeroes are a value.
    const ZEROED: Self::Raw = unsafe { core::mem::zeroed() };

    unsafe fn init(raw: *mut Self::Raw) -> i32 {
        // SAFETY: `raw` is valid for writing; 0: within this process; 1: free.
        unsafe { libc::sem_init(raw, 0, 1) }
    }
    #[inline]
    unsafe fn try_lock(raw: *mut Self::Raw) -> bool {
        // SAFETY: the caller's promise: initialised, in place.
        (unsafe { libc::sem_trywait(raw) }) == 0
    }
    #[inline]
    unsafe fn unlock(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: this thread took it down.
        unsafe { libc::sem_post(raw) };
    }
    unsafe fn destroy(raw: *mut Self::Raw) {
        // SAFETY: the caller's promise: nobody waits on it and nobody will.
        unsafe { libc::sem_destroy(raw) };
    }
}
