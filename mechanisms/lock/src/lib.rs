#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod backoff;
#[allow(unsafe_code)]
mod raw;
mod stage;
mod word;

pub use backoff::Backoff;
pub use raw::cell::{TryLock, TryLockGuard};
pub use word::RawTryLock;

/// Mutex of the crate `lock_api` over [`RawTryLock`]. Beyond [`TryLock`], it has mapped guards, and
/// guards that own an `Arc` of the mutex: [`lock_arc`](lock_api::Mutex::lock_arc) and
/// [`try_lock_arc`](lock_api::Mutex::try_lock_arc).
///
/// ```
/// use std::sync::Arc;
/// let mutex = Arc::new(handover_lock::Mutex::new(vec![1]));
/// let mut guard = mutex.try_lock_arc().expect("free"); // borrows nothing: it can be stored, or sent to a thread
/// std::thread::spawn(move || guard.push(2)).join().unwrap();
/// assert_eq!(*mutex.lock(), [1, 2]);
/// ```
#[cfg(all(feature = "lock_api", not(handover_loom)))]
pub type Mutex<T> = lock_api::Mutex<RawTryLock, T>;

/// Guard of a [`Mutex`].
#[cfg(all(feature = "lock_api", not(handover_loom)))]
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawTryLock, T>;

/// Guard that owns an `Arc` of its [`Mutex`].
#[cfg(all(feature = "lock_api", not(handover_loom)))]
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawTryLock, T>;
