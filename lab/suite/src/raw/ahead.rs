//! Prefetch hints. They are no accesses in the sense of the language.

/// Prefetches the cache line of `place` for reading.
#[inline(always)]
pub(crate) fn fetch<T>(place: &T) {
    // SAFETY: PREFETCHT0 writes nothing, cannot fault, and the address is that of a live reference.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) place,
            options(nostack, preserves_flags, readonly));
    }
}

/// Prefetches the cache line of `place` for writing.
#[inline(always)]
pub(crate) fn claim<T>(place: &T) {
    // SAFETY: PREFETCHW changes no value, cannot fault, and is a NOP on processors without it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place,
            options(nostack, preserves_flags, readonly));
    }
}
