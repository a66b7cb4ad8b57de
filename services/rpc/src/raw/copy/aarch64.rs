//! Copies on aarch64: by pairs of vector registers, four registers in each iteration.
//!
//! Both kinds of stores are ordinary ones: STNP is no more than a hint, whose effect has not been
//! measured on hardware.

/// Copies `bytes` bytes between two ranges that do not overlap.
///
/// # Safety
/// The requirements of [`copy`](super::copy).
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, _is_streaming: bool) {
    // SAFETY: reads `bytes` bytes at `from` and writes them to `to`, both of which the caller
    // promises to be accessible: blocks of 64 bytes while as many are left, then words, then bytes.
    // `left` is the number of bytes left, less the length of the next piece.
    unsafe {
        core::arch::asm!(
            "subs {left}, {left}, #64",
            "b.lo 3f",
            "2:",
            "ldp q0, q1, [{from}], #32",
            "ldp q2, q3, [{from}], #32",
            "subs {left}, {left}, #64",
            "stp q0, q1, [{to}], #32",
            "stp q2, q3, [{to}], #32",
            "b.hs 2b",
            "3:",
            "add {left}, {left}, #64",
            "4:",
            "subs {left}, {left}, #8",
            "b.lo 5f",
            "ldr {word}, [{from}], #8",
            "str {word}, [{to}], #8",
            "b 4b",
            "5:",
            "add {left}, {left}, #8",
            "6:",
            "cbz {left}, 7f",
            "ldrb {word:w}, [{from}], #1",
            "strb {word:w}, [{to}], #1",
            "sub {left}, {left}, #1",
            "b 6b",
            "7:",
            left = inout(reg) bytes => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            word = out(reg) _,
            out("v0") _,
            out("v1") _,
            out("v2") _,
            out("v3") _,
            options(nostack),
        );
    }
}
