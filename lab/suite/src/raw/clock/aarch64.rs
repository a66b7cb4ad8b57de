//! The virtual counter of aarch64, in place of x86_64's time-stamp counter.

/// Reads the virtual counter.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets programs read; touches no memory.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks,
            options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// Reads the virtual counter. No instruction does this after all earlier instructions.
#[inline(always)]
pub(crate) fn rdtscp() -> u64 {
    rdtsc()
}

pub(crate) fn has_rdtscp() -> bool {
    false
}

/// Reads the virtual counter after all earlier loads have completed.
#[inline(always)]
pub(crate) fn lfence_rdtsc() -> u64 {
    let ticks: u64;
    // SAFETY: the barriers and the register, which programs may read, touch no memory.
    unsafe {
        core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", out(reg) ticks,
            options(nostack, preserves_flags));
    }
    ticks
}

/// Delays all later loads and stores until earlier loads have completed.
#[inline(always)]
pub(crate) fn load_fence() {
    // SAFETY: a barrier touches no memory.
    unsafe { core::arch::asm!("dmb ishld", options(nostack, preserves_flags)) };
}
