//! All of this crate's `unsafe`: records whose payloads are absent if they are vacant, and
//! prefetching of memory.

mod record;

pub(crate) use record::{HAS_EXTRA, RETIRED, Record, STAMP_INCREMENT};

/// Prefetches the cache line at `address` for reading. This is a hint to the CPU and accesses
/// nothing.
#[inline(always)]
pub(crate) fn prefetch_for_read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, handover_portable))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect on memory and does not fault at any address.
        // x86-64 includes SSE, which it needs.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, handover_portable))))]
    // SAFETY: a prefetch is no memory access in the language's sense and does not fault at any
    // address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, handover_portable, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
