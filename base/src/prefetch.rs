//! Prefetches of cache lines. Hints: they access no memory in the language's sense, cannot fault at
//! any address, and affect time only. They compile to nothing where the processor is not x86_64.

use crate::cpu;

/// Prefetches the cache line at `place` for reading.
#[inline(always)]
pub fn for_read<T>(place: *const T) {
    cpu::prefetch_for_read(place);
}

/// Prefetches the cache line at `place` for writing: the line is taken from other CPUs' caches.
#[inline(always)]
pub fn for_write<T>(place: *const T) {
    cpu::prefetch_for_write(place);
}
