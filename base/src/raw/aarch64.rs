//! Instructions of aarch64: the virtual counter and prefetches.

/// `true`, as every aarch64 processor has a virtual counter.
pub(crate) const HAS_TIMESTAMP_COUNTER: bool = true;

/// Name of the counter in messages.
pub(crate) const COUNTER_NAME: &str = "virtual counter";

/// Name of the counter as a [`ClockSource`](crate::clock::ClockSource), printed and parsed.
pub(crate) const COUNTER_SOURCE: &str = "cntvct";

/// Name of the kernel's clock source that reads the counter.
pub(crate) const KERNEL_COUNTER_SOURCE: &str = "arch_sys_counter";

/// Reads the virtual counter, without ordering against the instructions before and after.
#[inline(always)]
pub(crate) fn read_timestamp_counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux, macOS and Windows let programs read; accesses no memory.
    // (A process that has disabled it by prctl(PR_SET_TSC) is killed by SIGSEGV: memory stays
    // safe.)
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks,
            options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// Reads the virtual counter after all earlier loads, and before all later instructions.
#[inline(always)]
pub(crate) fn read_timestamp_counter_fenced() -> u64 {
    let ticks: u64;
    // The DSB waits for the loads. The first ISB keeps the processor from reading the counter
    // before that, the second from starting later instructions before it has read the counter.
    // SAFETY: reads a register, as in read_timestamp_counter(); the barriers access no memory.
    // Without `nomem` the compiler moves no memory access across the block.
    unsafe {
        core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks,
            options(nostack, preserves_flags));
    }
    ticks
}

/// Returns the rate of the counter that the firmware declares, in Hz; 0 if it declares none.
pub(crate) fn declared_counter_hz() -> u64 {
    let hz: u64;
    // SAFETY: reads a register that programs may read; accesses no memory.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz,
            options(nomem, nostack, preserves_flags, pure));
    }
    // The architecture defines the lower 32 bits only.
    hz & 0xffff_ffff
}

/// Prefetches the cache line at `address` for reading.
#[inline(always)]
pub(crate) fn prefetch_for_read<T>(address: *const T) {
    // SAFETY: PRFM is no memory access in the language's sense and cannot fault at any address.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
}

/// Prefetches the cache line at `address` for writing.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(address: *const T) {
    // SAFETY: PRFM is no memory access in the language's sense and cannot fault at any address.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
}

/// Returns `None`, because the processor does not identify its hypervisor to programs.
pub(crate) fn hypervisor_signature() -> Option<[u8; 12]> {
    None
}

/// Returns `true` and `false`: the counter is invariant, and no hypervisor can be detected. The
/// architecture requires a counter of constant rate in all power states, which all CPUs share.
pub(crate) fn is_invariant_and_has_hypervisor() -> (bool, bool) {
    (true, false)
}
