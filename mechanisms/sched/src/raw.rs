//! The sole home of `unsafe`: asking for memory ahead of looking at it.

/// Asks the processor to fetch `it`, or its first cache line if it is greater. This has no effect but
/// on time.
#[inline(always)]
pub(crate) fn fetch<T>(it: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and does not fault, whatever the
        // address; this one is of a live reference. SSE, which it needs, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(it).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = it;
}
