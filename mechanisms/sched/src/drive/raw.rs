//! Prefetching of a cache line for a write.

use handover_base::sync::atomic::AtomicU64;

/// Prefetches the line of a word that will be written soon. Affects time only.
#[inline(always)]
pub(super) fn prefetch_for_write(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(handover_loom)))]
    {
        let word: *const AtomicU64 = word;
        // SAFETY: PREFETCHW neither accesses memory in the sense of the language nor faults, and is
        // a NOP on processors without it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) word,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(handover_loom))))]
    let _ = word;
}
