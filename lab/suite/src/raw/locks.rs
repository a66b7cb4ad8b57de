//! The C library's blocking locks, each with the counter that it guards.

use core::ffi::c_int;
use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;

/// A lock and the counter that it protects, alone on their cache lines.
#[repr(align(128))]
struct LockWithCounter<L> {
    lock: UnsafeCell<L>,
    count: UnsafeCell<u64>,
}

macro_rules! locks {
    ($($(#[$doc:meta])* $name:ident: $raw:ty, $blank:expr, $init:expr, $lock:path, $unlock:path;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(Pin<Box<LockWithCounter<$raw>>>);

        // SAFETY: only with_lock() accesses the counter, with the lock held; the C functions may be
        // called by several threads.
        unsafe impl Sync for $name {}
        // SAFETY: no thread holds the lock while the value is moved, and its memory does not belong
        // to a thread.
        unsafe impl Send for $name {}

        impl $name {
            pub(crate) fn new() -> io::Result<Self> {
                let guarded = LockWithCounter { lock: UnsafeCell::new($blank), count: UnsafeCell::new(0) };
                let guarded = Box::pin(guarded);
                // SAFETY: the lock is pinned at its final address, and no other code has a pointer
                // to it.
                errno_to_result(unsafe { $init(guarded.lock.get()) })?;
                Ok(Self(guarded))
            }

            /// Locks, calls `f` with the counter, and unlocks; returns the result of `f`.
            #[inline]
            pub(crate) fn with_lock<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
                // SAFETY: new() has initialised the lock, which is pinned.
                let _taken = unsafe { $lock(self.0.lock.get()) };
                // SAFETY: this thread holds the lock, and the reference ends before the unlock
                // below.
                let result = f(unsafe { &mut *self.0.count.get() });
                // SAFETY: this thread has taken the lock above.
                unsafe { $unlock(self.0.lock.get()) };
                result
            }
        }
    )*};
}

/// Converts the return value of a pthread function, an error number or 0, to a result.
fn errno_to_result(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Initialises a mutex of a kind other than the default; returns an error number or 0.
///
/// # Safety
/// `mutex` is writable, at its final address, and not in use.
unsafe fn init_kind(mutex: *mut libc::pthread_mutex_t, kind: c_int) -> c_int {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: `attributes` is writable; this call initialises it, and fails only without memory.
    let made = unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
    if made != 0 {
        return made;
    }
    // SAFETY: `attributes` was initialised above.
    let refused = unsafe { libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind) };
    // SAFETY: the caller vouches for the mutex; `attributes` was initialised above.
    let made = unsafe { libc::pthread_mutex_init(mutex, attributes.as_ptr()) };
    // SAFETY: `attributes` was initialised above, and is not used after this call.
    unsafe { libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) };
    if refused != 0 { refused } else { made }
}

locks! {
    /// The C library's mutex of the default kind, whose callers sleep at once.
    PthreadMutex: libc::pthread_mutex_t, libc::PTHREAD_MUTEX_INITIALIZER,
        |lock| libc::pthread_mutex_init(lock, std::ptr::null()),
        libc::pthread_mutex_lock, libc::pthread_mutex_unlock;
    /// The C library's mutex of the kind `PTHREAD_MUTEX_NORMAL`.
    NormalMutex: libc::pthread_mutex_t, libc::PTHREAD_MUTEX_INITIALIZER,
        |lock| init_kind(lock, libc::PTHREAD_MUTEX_NORMAL),
        libc::pthread_mutex_lock, libc::pthread_mutex_unlock;
    /// The C library's mutex of the recursive kind.
    RecursiveMutex: libc::pthread_mutex_t, libc::PTHREAD_MUTEX_INITIALIZER,
        |lock| init_kind(lock, libc::PTHREAD_MUTEX_RECURSIVE),
        libc::pthread_mutex_lock, libc::pthread_mutex_unlock;
    /// The C library's spinlock.
    PthreadSpin: libc::pthread_spinlock_t, 0,
        |lock| libc::pthread_spin_init(lock, libc::PTHREAD_PROCESS_PRIVATE),
        libc::pthread_spin_lock, libc::pthread_spin_unlock;
}
