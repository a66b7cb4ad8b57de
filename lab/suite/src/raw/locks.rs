//! The C library's locks that wait, each with the counter that it guards.

use std::cell::UnsafeCell;
use std::pin::Pin;

/// What the lock guards, on lines of its own with the lock.
#[repr(align(128))]
struct Guarded<L> {
    lock: UnsafeCell<L>,
    count: UnsafeCell<u64>,
}

macro_rules! locks {
    ($($(#[$doc:meta])* $name:ident: $raw:ty, $blank:expr, $init:expr, $lock:path, $unlock:path;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(Pin<Box<Guarded<$raw>>>);

        // SAFETY: the counter is reached in with() alone, with the lock held; the C functions are made for
        // several threads.
        unsafe impl Sync for $name {}
        // SAFETY: nothing of it belongs to a thread while nobody holds it.
        unsafe impl Send for $name {}

        impl $name {
            pub(crate) fn new() -> Self {
                let guarded = Guarded { lock: UnsafeCell::new($blank), count: UnsafeCell::new(0) };
                let guarded = Box::pin(guarded);
                // SAFETY: at its final place, and nobody else knows of it yet.
                let refused = unsafe { $init(guarded.lock.get()) };
                assert_eq!(refused, 0, "the C library cannot make a {}", stringify!($name));
                Self(guarded)
            }

            /// Waits for the lock, and frees it afterwards.
            #[inline]
            pub(crate) fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
                // SAFETY: initialised in new(), and at the same place since.
                let _taken = unsafe { $lock(self.0.lock.get()) };
                // SAFETY: the lock is held, and the reference ends before it is freed.
                let result = f(unsafe { &mut *self.0.count.get() });
                // SAFETY: taken above by this thread.
                unsafe { $unlock(self.0.lock.get()) };
                result
            }
        }
    )*};
}

locks! {
    /// `pthread_mutex_lock`, of the default kind: it sleeps at once.
    PthreadMutex: libc::pthread_mutex_t, libc::PTHREAD_MUTEX_INITIALIZER,
        |lock| libc::pthread_mutex_init(lock, std::ptr::null()),
        libc::pthread_mutex_lock, libc::pthread_mutex_unlock;
    /// `pthread_spin_lock`.
    PthreadSpin: libc::pthread_spinlock_t, 0,
        |lock| libc::pthread_spin_init(lock, libc::PTHREAD_PROCESS_PRIVATE),
        libc::pthread_spin_lock, libc::pthread_spin_unlock;
}
