//! The only module with `unsafe` in the engine: prefetching.

/// Prefetches the first cache line of `it`. Affects time only.
#[inline(always)]
pub(crate) fn prefetch<T>(it: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and does not fault, whatever the address; this
        // address is that of a live reference. It needs SSE, which is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(it).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = it;
}
