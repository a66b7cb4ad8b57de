//! Calls into the C library that the classic `node-microbench` measures besides function calls,
//! each made `n` times.

use crate::raw::library as raw;
use crate::raw::locks::{NormalMutex, PthreadSpin, RecursiveMutex};
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::ffi::CStr;
use std::hint::black_box;
use std::io;

/// Locks and unlocks a free mutex `n` times with `pthread_mutex_lock` and `pthread_mutex_unlock`.
///
/// # Errors
/// Fails if the C library cannot create a mutex.
pub fn mutex_lock_unlock(n: u64) -> io::Result<()> {
    let mutex = NormalMutex::new()?;
    for _ in 0..n {
        mutex.with_lock(|_| ());
    }
    Ok(())
}

/// Locks and unlocks a free recursive mutex `n` times.
///
/// # Errors
/// Fails if the C library cannot create a mutex.
pub fn recursive_mutex_lock_unlock(n: u64) -> io::Result<()> {
    let mutex = RecursiveMutex::new()?;
    for _ in 0..n {
        mutex.with_lock(|_| ());
    }
    Ok(())
}

/// Locks and unlocks a free spin lock `n` times with `pthread_spin_lock` and `pthread_spin_unlock`.
///
/// # Errors
/// Fails if the C library cannot create a spin lock.
pub fn spin_lock_unlock(n: u64) -> io::Result<()> {
    let spin = PthreadSpin::new()?;
    for _ in 0..n {
        spin.with_lock(|_| ());
    }
    Ok(())
}

/// Sets a flag by an exchange and clears it by a store, `n` times. Both are sequentially
/// consistent, the default of C's `atomic_flag_test_and_set` and `atomic_flag_clear`.
pub fn atomic_lock_unlock(n: u64) {
    let flag = AtomicBool::new(false);
    let flag = black_box(&flag);
    for _ in 0..n {
        // SeqCst twice: C's default is measured; only this thread uses the flag.
        while flag.swap(true, Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        flag.store(false, Ordering::SeqCst);
    }
}

/// Calls `pthread_self` `n` times.
pub fn call_pthread_self(n: u64) {
    for _ in 0..n {
        black_box(raw::pthread_self());
    }
}

/// Calls `gettid`, a system call, `n` times.
pub fn call_gettid(n: u64) {
    for _ in 0..n {
        black_box(raw::gettid());
    }
}

/// Calls `getenv` for the variable `name`, `n` times. Returns `true` if the variable exists and `n`
/// is not 0.
pub fn call_getenv(n: u64, name: &CStr) -> bool {
    let mut found = false;
    for _ in 0..n {
        found = raw::getenv(black_box(name));
    }
    found
}
