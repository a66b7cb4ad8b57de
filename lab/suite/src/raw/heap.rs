//! The allocator of the C library.

/// Makes the C library return free heap memory to the kernel.
pub(crate) fn trim() {
    // SAFETY: malloc_trim takes a number and releases only free memory.
    unsafe { libc::malloc_trim(0) };
}
