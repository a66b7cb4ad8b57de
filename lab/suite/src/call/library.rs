//! Calls into the C library that the classic `node-microbench` counts beside its function calls, each
//! made `n` times.

use crate::raw::library as raw;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::ffi::CStr;
use std::hint::black_box;
use std::io;

/// `pthread_mutex_lock` and `unlock` of a mutex that is free.
///
/// # Errors
/// If the C library cannot make one.
pub fn mutex_lock_unlock(n: u64) -> io::Result<()> {
    mutex_of_kind(libc::PTHREAD_MUTEX_NORMAL, n)
}

/// The same of a mutex that its owner may lock again.
///
/// # Errors
/// If the C library cannot make one.
pub fn recursive_mutex_lock_unlock(n: u64) -> io::Result<()> {
    mutex_of_kind(libc::PTHREAD_MUTEX_RECURSIVE, n)
}

fn mutex_of_kind(kind: i32, n: u64) -> io::Result<()> {
    let mut mutex = raw::Mutex::new(kind)?;
    for _ in 0..n {
        mutex.lock_unlock();
    }
    Ok(())
}

/// `pthread_spin_lock` and `unlock` of a spin lock that is free.
///
/// # Errors
/// If the C library cannot make one.
pub fn spin_lock_unlock(n: u64) -> io::Result<()> {
    let mut spin = raw::Spin::new()?;
    for _ in 0..n {
        spin.lock_unlock();
    }
    Ok(())
}

/// A flag set by an exchange and cleared by a store, both sequentially consistent: what C's
/// `atomic_flag_test_and_set` and `atomic_flag_clear` do when no order is named.
pub fn atomic_lock_unlock(n: u64) {
    let flag = AtomicBool::new(false);
    let flag = black_box(&flag);
    for _ in 0..n {
        // SeqCst twice: C's default is what is measured; the flag is this thread's alone.
        while flag.swap(true, Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        flag.store(false, Ordering::SeqCst);
    }
}

/// `pthread_self`.
pub fn pthread_self(n: u64) {
    for _ in 0..n {
        black_box(raw::pthread_self());
    }
}

/// `gettid`, which is a system call.
pub fn gettid(n: u64) {
    for _ in 0..n {
        black_box(raw::gettid());
    }
}

/// `getenv` of the variable `name`; says whether the last call, if any, found it.
pub fn getenv(n: u64, name: &CStr) -> bool {
    let mut found = false;
    for _ in 0..n {
        found = raw::getenv(black_box(name));
    }
    found
}
