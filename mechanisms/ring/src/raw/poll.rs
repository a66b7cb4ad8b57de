//! Polling of a cache line that another CPU is about to write.

/// Delays the next poll of a cache line until the load of the previous poll has completed.
///
/// A processor that polls in a loop has many loads in flight at once. When the line changes hands,
/// some of them turn out to be too early and are repeated, while the other end waits. Without this,
/// a round trip took 1.2 to 1.8 times as long as through the bare line, varying from run to run;
/// with it, 0.8 to 0.9 times (suite ring/mailbox, AMD Zen 4, 2026-11). A PAUSE is as steady but
/// takes longer: 65 ns instead of 52.
///
/// Does nothing on other processors than x86_64: the repetition is the price of x86's order of
/// loads, which aarch64 does not promise. Not measured there.
#[inline(always)]
pub(super) fn delay_next_poll() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, handover_portable))))]
    // SAFETY: every x86_64 has LFENCE (SSE2), which only affects when instructions begin.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}
