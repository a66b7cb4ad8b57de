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
