//! Locks that are tried, and waited for with growing pauses.

use super::handle::{guard, limit, refuse_null, require};
use crate::status::handover_status;
use ::handover_lock::{Backoff, RawTryLock};
use std::mem::MaybeUninit;
use std::time::Instant;

use handover_status::*;

/// Lock of one word, for critical sections of some ns; opaque.
pub struct handover_lock {
    lock: RawTryLock,
}

/// Creates an unlocked lock.
///
/// Threads: any. Blocking: never. Ownership: the caller destroys the lock.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_lock_create(
    lock: Option<&mut MaybeUninit<Option<Box<handover_lock>>>>,
) -> handover_status {
    guard(|| {
        require("lock", lock)?.write(Some(Box::new(handover_lock { lock: RawTryLock::new() })));
        Ok(())
    })
}

/// Takes the lock if it is free.
///
/// Errors: `HANDOVER_BUSY`, which sets no last error, if it is held, by this thread too.
/// Threads: any number at the same time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_lock_try(lock: Option<&handover_lock>) -> handover_status {
    let Some(lock) = lock else { return refuse_null("lock") };
    if lock.lock.try_lock() { HANDOVER_OK } else { HANDOVER_BUSY }
}

/// Takes the lock, and waits for it for at most `timeout_ns`, by spinning and then by yielding the
/// CPU. It is neither fair nor recursive: a thread that holds the lock waits for itself.
///
/// Errors: `HANDOVER_TIMED_OUT`, which sets no last error. Threads: any number at the same time.
/// Blocking: up to `timeout_ns`; without a limit with `HANDOVER_FOREVER`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_lock_take(
    lock: Option<&handover_lock>,
    timeout_ns: u64,
) -> handover_status {
    let Some(lock) = lock else { return refuse_null("lock") };
    if lock.lock.try_lock() {
        return HANDOVER_OK;
    }
    let limit = limit(timeout_ns).map(|timeout| (Instant::now(), timeout));
    let mut backoff = Backoff::new();
    loop {
        backoff.wait();
        // Reading first leaves the word's cache line with its holder.
        if !lock.lock.is_locked() && lock.lock.try_lock() {
            return HANDOVER_OK;
        }
        if limit.is_some_and(|(start, timeout)| start.elapsed() >= timeout) {
            return HANDOVER_TIMED_OUT;
        }
    }
}

/// Frees the lock.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` if it is not held.
/// Threads: the one that took the lock, which is not checked. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_lock_free(lock: Option<&handover_lock>) -> handover_status {
    let Some(lock) = lock else { return refuse_null("lock") };
    if lock.lock.is_locked() {
        lock.lock.unlock();
        return HANDOVER_OK;
    }
    guard(|| Err(HANDOVER_INVALID_ARGUMENT.because("lock: not held")))
}

/// Destroys a lock; null is ignored.
///
/// Threads: any, while no other thread uses this lock. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_lock_destroy(lock: Option<Box<handover_lock>>) {
    drop(lock);
}
