//! Copies with the non-temporal stores of aarch64.

/// Returns `true` if the processor has non-temporal stores of `width_bytes` bytes.
pub(super) fn has_stores(width_bytes: usize) -> bool {
    width_bytes == 16
}

/// Copies with stores of 16 bytes, two by each instruction.
///
/// # Safety
/// The processor has stores of this width; `bytes` bytes, whole blocks, are readable at `from` and
/// writable at `to`, both on cache lines, and nothing else writes them.
pub(super) unsafe fn copy(_width_bytes: usize, from: *const u8, to: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: reads and writes `bytes` bytes, which the caller promises to be accessible, in pieces
    // of 64, of which a block is a multiple; prefetching cannot fault. The barrier orders the
    // stores before a later one.
    unsafe {
        core::arch::asm!(
            "2:",
            "prfm pldl1strm, [{from}, #2048]",
            "ldp q0, q1, [{from}], #32",
            "ldp q2, q3, [{from}], #32",
            "stnp q0, q1, [{to}]",
            "stnp q2, q3, [{to}, #32]",
            "add {to}, {to}, #64",
            "subs {left}, {left}, #64",
            "b.ne 2b",
            "dmb ishst",
            left = inout(reg) bytes => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            out("v0") _,
            out("v1") _,
            out("v2") _,
            out("v3") _,
            options(nostack),
        );
    }
}
