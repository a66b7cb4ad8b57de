//! Functions of the C library, called as in a C program.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use std::io;

/// A mutex at its own address, locked by one thread alone.
pub(crate) struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

impl Mutex {
    /// Creates a free mutex of kind `PTHREAD_MUTEX_NORMAL` or `PTHREAD_MUTEX_RECURSIVE`.
    pub(crate) fn new(kind: c_int) -> io::Result<Mutex> {
        let mutex = Mutex(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `attributes` is writable; this call initialises it.
        done(unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: `attributes` was initialised above.
        let kinded = unsafe { libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind) };
        // SAFETY: the mutex is at its final address in the box and unlocked, and `attributes` was
        // initialised above.
        let made = unsafe { libc::pthread_mutex_init(mutex.0.get(), attributes.as_ptr()) };
        // SAFETY: `attributes` was initialised above, and is not used after this call.
        done(unsafe { libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) })?;
        done(kinded).and(done(made)).map(|()| mutex)
    }

    /// Locks and unlocks the mutex.
    #[inline(always)]
    pub(crate) fn lock_unlock(&mut self) {
        // SAFETY: new() has initialised the mutex, which has not moved since, as it is boxed.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        // SAFETY: this thread has locked it in the line above; `&mut self` excludes other users.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: new() has initialised the mutex, and every lock_unlock() has unlocked it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

/// A spin lock at its own address, locked by one thread alone.
pub(crate) struct Spin(Box<UnsafeCell<libc::pthread_spinlock_t>>);

impl Spin {
    /// Creates a free spin lock.
    pub(crate) fn new() -> io::Result<Spin> {
        let spin = Spin(Box::new(UnsafeCell::new(0)));
        // SAFETY: the lock is at its final address in the box, and no other code has a pointer to
        // it.
        done(unsafe { libc::pthread_spin_init(spin.0.get(), libc::PTHREAD_PROCESS_PRIVATE) })?;
        Ok(spin)
    }

    /// Locks and unlocks the spin lock.
    #[inline(always)]
    pub(crate) fn lock_unlock(&mut self) {
        // SAFETY: new() has initialised the lock, which has not moved since, as it is boxed.
        unsafe { libc::pthread_spin_lock(self.0.get()) };
        // SAFETY: this thread has locked it in the line above; `&mut self` excludes other users.
        unsafe { libc::pthread_spin_unlock(self.0.get()) };
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // SAFETY: new() has initialised the lock, and every lock_unlock() has unlocked it.
        unsafe { libc::pthread_spin_destroy(self.0.get()) };
    }
}

/// Converts the return value of a pthread function.
fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Returns the calling thread's pthread id.
#[inline(always)]
pub(crate) fn pthread_self() -> libc::pthread_t {
    // SAFETY: pthread_self takes no arguments and only reads the calling thread's own data.
    unsafe { libc::pthread_self() }
}

/// The kernel's number of the calling thread.
#[inline(always)]
pub(crate) fn gettid() -> libc::pid_t {
    // SAFETY: it takes nothing and touches no memory.
    unsafe { libc::gettid() }
}

/// Returns `true` if the environment has this variable.
#[inline(always)]
pub(crate) fn getenv(name: &CStr) -> bool {
    // SAFETY: `name` ends in a zero byte; the result is only compared with null. By the contract of
    // set_var, no thread changes the environment while another may read it.
    !unsafe { libc::getenv(name.as_ptr()) }.is_null()
}
