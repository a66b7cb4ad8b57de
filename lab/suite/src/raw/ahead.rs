//! Hints for the caches. They access nothing in the sense of the language.

/// Asks for the line of a place, to read it soon.
#[inline(always)]
pub(crate) fn fetch<T>(place: &T) {
    // SAFETY: PREFETCHT0 writes nothing, cannot fault, and the address is that of a live reference.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) place,
            options(nostack, preserves_flags, readonly));
    }
}

/// Asks for the line of a place, to write it soon.
#[inline(always)]
pub(crate) fn claim<T>(place: &T) {
    // SAFETY: PREFETCHW changes no value, cannot fault, and is a NOP where the processor does not have it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place,
            options(nostack, preserves_flags, readonly));
    }
}
