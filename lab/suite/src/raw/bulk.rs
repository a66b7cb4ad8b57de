//! Copying as barely as it can be done: past the caches, and by the kernel from process to process.

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm512_load_si512, _mm512_stream_si512,
};

/// Copied in a turn of the loop.
pub(crate) const BLOCK_BYTES: usize = 256;
const AHEAD_BYTES: usize = 2048;

/// Whether the processor can.
pub(crate) fn streams() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Copies past the caches, asking for the source ahead.
///
/// # Panics
/// When the two are not equally long, not whole blocks, not on cache lines, or the processor cannot.
pub(crate) fn stream(from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len() && from.len().is_multiple_of(BLOCK_BYTES), "whole blocks");
    assert!(from.as_ptr().align_offset(64) == 0 && to.as_ptr().align_offset(64) == 0, "lines");
    assert!(streams(), "no AVX-512");
    // SAFETY: the processor has AVX-512F, and the lengths and places are as looked at above.
    unsafe { blocks(from, to) }
}

/// # Safety
/// As [`stream`] has looked.
#[target_feature(enable = "avx512f")]
unsafe fn blocks(from: &[u8], to: &mut [u8]) {
    let (source, target) = (from.as_ptr(), to.as_mut_ptr());
    for at in (0..from.len()).step_by(BLOCK_BYTES) {
        let mut held = [None::<__m512i>; 4];
        for (line, held) in held.iter_mut().enumerate() {
            let place = at + 64 * line;
            _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(place + AHEAD_BYTES).cast());
            // SAFETY: a whole line below from.len(), on a line's boundary.
            *held = Some(unsafe { _mm512_load_si512(source.wrapping_add(place).cast()) });
        }
        for (line, held) in held.into_iter().flatten().enumerate() {
            let place = at + 64 * line;
            // SAFETY: a whole line below to.len(), on a line's boundary, borrowed for this.
            unsafe { _mm512_stream_si512(target.wrapping_add(place).cast(), held) };
        }
    }
    _mm_sfence();
}

/// Has the kernel copy from that place in a process. How many bytes.
pub(crate) fn copy_from_process(pid: i32, address: u64, to: &mut [u8]) -> std::io::Result<usize> {
    // A place that is none is refused by the kernel.
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let ours = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the kernel writes nothing but the slice, which is borrowed for that; what it reads it looks at itself.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_negative| std::io::Error::last_os_error())
}
