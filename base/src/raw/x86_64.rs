//! Instructions of x86_64: the time-stamp counter, cpuid and prefetches.

/// `true`, as x86-64 processors have a time-stamp counter.
pub(crate) const HAS_TIMESTAMP_COUNTER: bool = true;

/// Name of the counter in messages.
pub(crate) const COUNTER_NAME: &str = "TSC";

/// Name of the counter as a [`ClockSource`](crate::clock::ClockSource), printed and parsed.
pub(crate) const COUNTER_SOURCE: &str = "tsc";

/// Name of the kernel's clock source that reads the counter.
pub(crate) const KERNEL_COUNTER_SOURCE: &str = "tsc";

/// Reads the time-stamp counter, without ordering against the instructions before and after.
#[inline(always)]
pub(crate) fn read_timestamp_counter() -> u64 {
    // SAFETY: every x86_64 processor has RDTSC, which accesses no memory. (A process that has
    // disabled it by prctl(PR_SET_TSC) is killed by SIGSEGV: memory stays safe.)
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the time-stamp counter after all earlier loads, and before all later instructions.
#[inline(always)]
pub(crate) fn read_timestamp_counter_fenced() -> u64 {
    load_fence();
    let ticks = read_timestamp_counter();
    load_fence();
    ticks
}

/// Returns 0, because programs cannot read the rate of the counter.
pub(crate) fn declared_counter_hz() -> u64 {
    0
}

#[inline(always)]
fn load_fence() {
    // SAFETY: every x86_64 processor has SSE2 and with it LFENCE, which accesses no memory.
    unsafe { core::arch::x86_64::_mm_lfence() }
}

/// Prefetches the cache line at `address` for reading.
#[inline(always)]
pub(crate) fn prefetch_for_read<T>(address: *const T) {
    // SAFETY: PREFETCHT0 is no memory access in the language's sense and cannot fault at any
    // address.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
}

/// Prefetches the cache line at `address` for writing.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(address: *const T) {
    // SAFETY: PREFETCHW is no memory access in the language's sense, cannot fault at any address,
    // and is a NOP on processors that lack it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
}

/// Returns the twelve-byte signature of the hypervisor from cpuid; `None` without a hypervisor.
pub(crate) fn hypervisor_signature() -> Option<[u8; 12]> {
    const HYPERVISOR_LEAF: u32 = 0x4000_0000;
    if cpuid(1).ecx & (1 << 31) == 0 {
        return None;
    }
    let registers = cpuid(HYPERVISOR_LEAF);
    let mut signature = [0; 12];
    let words = [registers.ebx, registers.ecx, registers.edx];
    for (slot, word) in signature.chunks_exact_mut(4).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    Some(signature)
}

/// Returns two flags from cpuid: if the counter is invariant, and if there is a hypervisor.
pub(crate) fn is_invariant_and_has_hypervisor() -> (bool, bool) {
    const EXTENDED_LEAVES_LEAF: u32 = 0x8000_0000;
    const POWER_LEAF: u32 = 0x8000_0007;
    let has_power = cpuid(EXTENDED_LEAVES_LEAF).eax >= POWER_LEAF;
    let invariant = has_power && cpuid(POWER_LEAF).edx & (1 << 8) != 0;
    let hypervisor = cpuid(1).ecx & (1 << 31) != 0;
    (invariant, hypervisor)
}

#[allow(unused_unsafe)] // a safe function in newer compilers than the oldest supported
fn cpuid(leaf: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: every x86_64 processor has CPUID, which accesses no memory.
    unsafe { core::arch::x86_64::__cpuid(leaf) }
}
