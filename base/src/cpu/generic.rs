//! A processor about which nothing is known, and Miri's: no time-stamp counter, no prefetches.

/// `false`, as there is no counter; the clock is CLOCK_MONOTONIC.
pub(crate) const HAS_TIMESTAMP_COUNTER: bool = false;

/// Name of the counter in messages.
pub(crate) const COUNTER_NAME: &str = "TSC";

/// Name of the counter as a [`ClockSource`](crate::clock::ClockSource), printed and parsed.
pub(crate) const COUNTER_SOURCE: &str = "tsc";

/// Name of the kernel's clock source that reads the counter.
pub(crate) const KERNEL_COUNTER_SOURCE: &str = "tsc";

/// Returns 0, because there is no time-stamp counter.
pub(crate) fn read_timestamp_counter() -> u64 {
    0
}

/// Returns 0, because there is no time-stamp counter.
pub(crate) fn read_timestamp_counter_fenced() -> u64 {
    0
}

/// Returns 0, because there is no time-stamp counter.
pub(crate) fn declared_counter_hz() -> u64 {
    0
}

/// Does nothing, because no prefetch instruction is known.
#[inline(always)]
pub(crate) fn prefetch_for_read<T>(_: *const T) {}

/// Does nothing, because no prefetch instruction is known.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(_: *const T) {}

/// Returns `None`, because hypervisors are identified by cpuid alone.
pub(crate) fn hypervisor_signature() -> Option<[u8; 12]> {
    None
}

/// Returns `false` twice, because no counter and no hypervisor can be detected.
pub(crate) fn is_invariant_and_has_hypervisor() -> (bool, bool) {
    (false, false)
}
