//! System calls that have no safe wrapper elsewhere.

use std::sync::OnceLock;

/// A fence for the owner's side of a biased lock: none at all where the kernel can fence every thread.
pub(crate) fn has_heavy_fence() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        // SAFETY: the call takes no pointers.
        let registered = unsafe {
            libc::syscall(
                libc::SYS_membarrier,
                libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
                0,
                0,
            )
        };
        registered == 0
    })
}

/// Makes every running thread of the process pass a full fence.
pub(crate) fn fence_heavy() {
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
}

/// Lets the kernel end this thread's sleeps when they are over, and not up to 50 µs later.
pub(crate) fn slack_to_1_ns() {
    // SAFETY: the call takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Asks the processor to fetch the line at an address; whatever lies there, that takes time at most.
#[inline(always)]
pub(super) fn fetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and does not fault, whatever the address. SSE,
        // which it needs, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
