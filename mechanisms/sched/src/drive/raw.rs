//! Asking for a cache line ahead of writing it.

use handover_base::sync::atomic::AtomicU64;

/// Asks for the line of a word, to write it soon. This has no effect but on time.
#[inline(always)]
pub(super) fn claim(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(handover_loom)))]
    {
        let word: *const AtomicU64 = word;
        // SAFETY: PREFETCHW accesses nothing in the sense of the language, cannot fault, and is a NOP
        // where the processor does not have it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) word,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(handover_loom))))]
    let _ = word;
}

/// Asks for the line of a word, to read it soon. This has no effect but on time.
#[inline(always)]
pub(super) fn fetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(handover_loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let word: *const AtomicU64 = word;
        // SAFETY: a prefetch reads nothing that the program can see and does not fault, whatever the
        // address; SSE, which it needs, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(handover_loom))))]
    let _ = word;
}
