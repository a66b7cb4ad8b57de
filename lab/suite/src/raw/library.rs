//! Functions of the C library, called as a C program calls them.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use std::io;

/// A mutex at an address of its own, locked by one thread alone.
pub(crate) struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

impl Mutex {
    /// A free mutex of this kind, `PTHREAD_MUTEX_NORMAL` or `PTHREAD_MUTEX_RECURSIVE`.
    pub(crate) fn new(kind: c_int) -> io::Result<Mutex> {
        let mutex = Mutex(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `attributes` is writable; this is what initialises it.
        done(unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: initialised above.
        let kinded = unsafe { libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind) };
        // SAFETY: the mutex is at its final address, nobody has locked it, and the attributes are
        // initialised.
        let made = unsafe { libc::pthread_mutex_init(mutex.0.get(), attributes.as_ptr()) };
        // SAFETY: initialised above, and not used any more.
        done(unsafe { libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) })?;
        done(kinded).and(done(made)).map(|()| mutex)
    }

    /// Locks, and unlocks.
    #[inline(always)]
    pub(crate) fn lock_unlock(&mut self) {
        // SAFETY: initialised by new(), and not moved since: the box keeps it in its place.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        // SAFETY: locked just above, by this thread: `&mut self` is the only way to it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: initialised, and free: every lock_unlock() has unlocked it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

/// A spin lock at an address of its own, locked by one thread alone.
pub(crate) struct Spin(Box<UnsafeCell<libc::pthread_spinlock_t>>);

impl Spin {
    /// A free spin lock.
    pub(crate) fn new() -> io::Result<Spin> {
        let spin = Spin(Box::new(UnsafeCell::new(0)));
        // SAFETY: the lock is at its final address, and nobody knows it yet.
        done(unsafe { libc::pthread_spin_init(spin.0.get(), libc::PTHREAD_PROCESS_PRIVATE) })?;
        Ok(spin)
    }

    /// Locks, and unlocks.
    #[inline(always)]
    pub(crate) fn lock_unlock(&mut self) {
        // SAFETY: initialised by new(), and not moved since: the box keeps it in its place.
        unsafe { libc::pthread_spin_lock(self.0.get()) };
        // SAFETY: locked just above, by this thread: `&mut self` is the only way to it.
        unsafe { libc::pthread_spin_unlock(self.0.get()) };
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // SAFETY: initialised, and free: every lock_unlock() has unlocked it.
        unsafe { libc::pthread_spin_destroy(self.0.get()) };
    }
}

/// What a pthread function returned, as a result.
fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The calling thread's name for itself.
#[inline(always)]
pub(crate) fn pthread_self() -> libc::pthread_t {
    // SAFETY: it takes nothing and only reads the calling thread's own.
    unsafe { libc::pthread_self() }
}

/// The kernel's number of the calling thread.
#[inline(always)]
pub(crate) fn gettid() -> libc::pid_t {
    // SAFETY: it takes nothing and touches no memory.
    unsafe { libc::gettid() }
}

/// Whether the environment has this variable.
#[inline(always)]
pub(crate) fn getenv(name: &CStr) -> bool {
    // SAFETY: `name` ends in a zero byte; the answer is compared and not followed. Who changes the
    // environment must see to it that no other thread reads it meanwhile (the contract of set_var).
    !unsafe { libc::getenv(name.as_ptr()) }.is_null()
}
