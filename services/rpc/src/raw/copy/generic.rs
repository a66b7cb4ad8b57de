//! Copies on a processor about which nothing is known, and under Miri: byte by byte.

/// Copies `bytes` bytes between two ranges that do not overlap.
///
/// # Safety
/// The requirements of [`copy`](super::copy).
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, _is_streaming: bool) {
    for at in 0..bytes {
        // Volatile: the compiler neither repeats nor combines the accesses.
        // SAFETY: at < bytes, and the caller promises that `bytes` bytes are readable.
        let byte = unsafe { from.wrapping_add(at).read_volatile() };
        // SAFETY: at < bytes, and the caller promises that `bytes` bytes are writable.
        unsafe { to.wrapping_add(at).write_volatile(byte) };
    }
}
