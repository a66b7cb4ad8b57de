//! The C library's blocking locks, each with the counter that it guards.

use std::cell::UnsafeCell;
use std::pin::Pin;

/// A lock with its counter, on their own cache lines.
#[repr(align(128))]
struct Guarded<L> {
    lock: UnsafeCell<L>,
    count: UnsafeCell<u64>,
}

macro_rules! locks {
    ($($(#[$doc:meta])* $name:ident: $raw:ty, $blank:expr, $init:expr, $lock:path, $unlock:path;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(Pin<Box<Guarded<$raw>>>);

        // SAFETY: only with() accesses the counter, with the lock held; the C functions may be
        // called by several threads.
        unsafe impl Sync for $name {}
        // SAFETY: no thread holds the lock while the value is moved, and its memory does not belong
        // to a thread.
        unsafe impl Send for $name {}

        impl $name {
            pub(crate) fn new() -> Self {
                let guarded = Guarded { lock: UnsafeCell::new($blank), count: UnsafeCell::new(0) };
                let guarded = Box::pin(guarded);
                // SAFETY: the lock is pinned at its final address, and no other code has a pointer
                // to it.
                let refused = unsafe { $init(guarded.lock.get()) };
                assert_eq!(refused, 0, "the C library cannot make a {}", stringify!($name));
                Self(guarded)
            }

            /// Waits for the lock, calls `f`, and frees the lock.
            #[inline]
            pub(crate) fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
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

locks! {
    /// `pthread_mutex_lock` of the default kind, which sleeps at once.
    PthreadMutex: libc::pthread_mutex_t, libc::PTHREAD_MUTEX_INITIALIZER,
        |lock| libc::pthread_mutex_init(lock, std::ptr::null()),
        libc::pthread_mutex_lock, libc::pthread_mutex_unlock;
    /// `pthread_spin_lock`.
    PthreadSpin: libc::pthread_spinlock_t, 0,
        |lock| libc::pthread_spin_init(lock, libc::PTHREAD_PROCESS_PRIVATE),
        libc::pthread_spin_lock, libc::pthread_spin_unlock;
}
