//! Prefetches of cache lines. Hints: they access no memory in the language's sense, cannot fault at
//! any address, and affect time only. They compile to nothing on processors other than x86_64 and
//! aarch64.

use crate::cpu;

/// Prefetches the cache line at `address` for reading.
#[inline(always)]
pub fn for_read<T>(address: *const T) {
    cpu::prefetch_for_read(address);
}

/// Prefetches the cache line at `address` for writing. This invalidates the line in other CPUs'
/// caches.
#[inline(always)]
pub fn for_write<T>(address: *const T) {
    cpu::prefetch_for_write(address);
}
