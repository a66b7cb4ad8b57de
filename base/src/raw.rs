//! All unsafe code of this crate: the time-stamp counter, cpuid, `prctl` and `getrusage`.

use crate::usage::Usage;

/// Reads the time-stamp counter. Not ordered with the instructions around it.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    if cfg!(miri) {
        return 0; // Miri has no counter; the clock never chooses it there.
    }
    // SAFETY: every x86_64 processor has RDTSC, which accesses no memory. (A process that has
    // disabled it by prctl(PR_SET_TSC) is killed by SIGSEGV: memory stays safe.)
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the time-stamp counter after all earlier loads have completed and before anything later
/// begins.
#[inline(always)]
pub(crate) fn rdtsc_fenced() -> u64 {
    load_fence();
    let ticks = rdtsc();
    load_fence();
    ticks
}

#[inline(always)]
fn load_fence() {
    if cfg!(miri) {
        return;
    }
    // SAFETY: every x86_64 processor has SSE2 and with it LFENCE, which accesses no memory.
    unsafe { core::arch::x86_64::_mm_lfence() }
}

/// Selects the usage to read.
#[derive(Clone, Copy)]
pub(crate) enum UsageScope {
    Thread,
    Process,
}

/// Calls `getrusage`, which rustix lacks; returns zeroes under Miri, which lacks it too.
pub(crate) fn usage(scope: UsageScope) -> Usage {
    if cfg!(miri) {
        return Usage::default();
    }
    let target = match scope {
        UsageScope::Thread => libc::RUSAGE_THREAD,
        UsageScope::Process => libc::RUSAGE_SELF,
    };
    let mut out = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `out` is a writable rusage during the call.
    let answer = unsafe { libc::getrusage(target, out.as_mut_ptr()) };
    debug_assert_eq!(answer, 0, "getrusage fails only for a wrong `who` or pointer");
    // SAFETY: rusage consists of integers, for which zeroes are a valid value, so that it is
    // initialised even if the kernel wrote nothing.
    let out = unsafe { out.assume_init() };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Usage {
        user_ns: ns(out.ru_utime),
        system_ns: ns(out.ru_stime),
        switches_voluntary: out.ru_nvcsw as u64,
        switches_involuntary: out.ru_nivcsw as u64,
        rss_max_bytes: out.ru_maxrss as u64 * 1024, // Linux counts in KiB.
    }
}

/// Returns the twelve letters of a hypervisor's signature; `None` on bare metal and where there is
/// no cpuid.
pub(crate) fn hypervisor_signature() -> Option<[u8; 12]> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        const HYPERVISOR: u32 = 0x4000_0000;
        if cpuid(1).ecx & (1 << 31) == 0 {
            return None;
        }
        let registers = cpuid(HYPERVISOR);
        let mut letters = [0; 12];
        for (slot, word) in
            letters.chunks_exact_mut(4).zip([registers.ebx, registers.ecx, registers.edx])
        {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        Some(letters)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    None
}

/// Reads cpuid: (the counter is invariant, there is a hypervisor).
pub(crate) fn cpuid_tsc() -> (bool, bool) {
    const EXTENDED_MAX: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    let has_power = cpuid(EXTENDED_MAX).eax >= POWER;
    let invariant = has_power && cpuid(POWER).edx & (1 << 8) != 0;
    let hypervisor = cpuid(1).ecx & (1 << 31) != 0;
    (invariant, hypervisor)
}

#[allow(unused_unsafe)] // a safe function in newer compilers than the oldest supported
fn cpuid(leaf: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: every x86_64 processor has CPUID, which accesses no memory.
    unsafe { core::arch::x86_64::__cpuid(leaf) }
}

/// Returns `true` if this process has disabled reading of the counter.
pub(crate) fn tsc_is_forbidden() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int through the pointer, which is valid during the call.
    let answer = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    answer == 0 && mode == libc::PR_TSC_SIGSEGV
}
