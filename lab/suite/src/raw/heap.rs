//! The allocator of the C library.

/// Returns free memory to the kernel.
pub(crate) fn trim() {
    // SAFETY: malloc_trim takes a number and releases only free memory.
    unsafe { libc::malloc_trim(0) };
}
