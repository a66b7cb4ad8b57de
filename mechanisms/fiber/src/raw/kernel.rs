//! System calls without a safe wrapper elsewhere.

use std::sync::OnceLock;

/// Registers the process for `membarrier(2)` at the first call; returns `true` if the kernel
/// supports that call. The owner of a biased lock then needs no fence instruction.
pub(crate) fn enable_heavy_fence() -> bool {
    static HAS_MEMBARRIER: OnceLock<bool> = OnceLock::new();
    *HAS_MEMBARRIER.get_or_init(|| {
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

/// Makes every running thread of the process pass a full fence. Aborts the process if the kernel
/// refuses, as under a seccomp filter that was installed later: the owners of biased locks rely on
/// it.
pub(crate) fn fence_heavy() {
    // SAFETY: the call takes no pointers.
    let passed = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)
    };
    if passed != 0 {
        abort_without_fence();
    }
}

#[cold]
#[inline(never)]
fn abort_without_fence() -> ! {
    let error = std::io::Error::last_os_error();
    eprintln!(
        "handover-fiber: membarrier failed: {error}; allow it in the seccomp filter, or install the filter before the \
         first runtime is created"
    );
    std::process::abort();
}

/// Sets this thread's timer slack to 1 ns. With the default, its sleeps could end up to 50 µs late.
pub(crate) fn set_timer_slack_1_ns() {
    // SAFETY: the call takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}
