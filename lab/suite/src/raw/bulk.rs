//! Copying as barely as it can be done: past the caches, and by the kernel from process to process.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_load_si128, _mm_prefetch, _mm_sfence,
    _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256, _mm512_load_si512,
    _mm512_stream_si512,
};

/// Copied in a turn of the loop.
pub(crate) const BLOCK_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
const AHEAD_BYTES: usize = 2048;

/// Copies past the caches, asking for the source ahead, with the widest stores that the processor has.
///
/// # Panics
/// When the two are not equally long, not whole blocks, or not on cache lines.
pub(crate) fn stream(from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len() && from.len().is_multiple_of(BLOCK_BYTES), "whole blocks");
    let is_on_line = |place: *const u8| place.align_offset(LINE_BYTES) == 0;
    assert!(is_on_line(from.as_ptr()) && is_on_line(to.as_ptr()), "lines");
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F, and the lengths and places are as looked at above.
        unsafe { by_lines(from, to) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; else as above.
        unsafe { by_halves(from, to) }
    } else {
        // SAFETY: every processor of this architecture has SSE2; else as above.
        unsafe { by_quarters(from, to) }
    }
}

/// Stores of one width, in blocks of whole lines.
macro_rules! blocks {
    ($name:ident, $feature:literal, $held:ty, $load:ident, $store:ident) => {
        /// # Safety
        /// As [`stream`] has looked.
        #[target_feature(enable = $feature)]
        unsafe fn $name(from: &[u8], to: &mut [u8]) {
            const HELD_COUNT: usize = BLOCK_BYTES / size_of::<$held>();
            let (source, target) = (from.as_ptr(), to.as_mut_ptr());
            for at in (0..from.len()).step_by(BLOCK_BYTES) {
                for line in (0..BLOCK_BYTES).step_by(LINE_BYTES) {
                    let ahead = source.wrapping_add(at + line + AHEAD_BYTES);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
                let mut held = [None::<$held>; HELD_COUNT];
                for (part, held) in held.iter_mut().enumerate() {
                    let place = source.wrapping_add(at + part * size_of::<$held>());
                    // SAFETY: below from.len(), and aligned, as the whole is to a line.
                    *held = Some(unsafe { $load(place.cast()) });
                }
                for (part, held) in held.into_iter().flatten().enumerate() {
                    let place = target.wrapping_add(at + part * size_of::<$held>());
                    // SAFETY: below to.len(), aligned as above, and borrowed for this.
                    unsafe { $store(place.cast(), held) };
                }
            }
            _mm_sfence();
        }
    };
}

blocks!(by_lines, "avx512f", __m512i, _mm512_load_si512, _mm512_stream_si512);
blocks!(by_halves, "avx2", __m256i, _mm256_load_si256, _mm256_stream_si256);
blocks!(by_quarters, "sse2", __m128i, _mm_load_si128, _mm_stream_si128);

/// Has the kernel copy from that place in a process. How many bytes.
pub(crate) fn copy_from_process(pid: i32, address: u64, to: &mut [u8]) -> std::io::Result<usize> {
    // A place that is none is refused by the kernel.
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let ours = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the kernel writes nothing but the slice, which is borrowed for that; what it reads it looks at itself.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_negative| std::io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Copy = unsafe fn(&[u8], &mut [u8]);

    #[repr(align(64))]
    struct Lines([u8; 1024]);

    #[test]
    fn stores_of_every_width_copy_the_same() {
        let from = Lines(std::array::from_fn(|at| (at * 37 / 8) as u8));
        let widths: [(bool, Copy); 3] = [
            (is_x86_feature_detected!("avx512f"), by_lines),
            (is_x86_feature_detected!("avx2"), by_halves),
            (true, by_quarters),
        ];
        for (_, copy) in widths.into_iter().filter(|(is_here, _)| *is_here) {
            let mut to = Lines([0; 1024]);
            // SAFETY: the processor can, and 768 bytes on cache lines are three blocks.
            unsafe { copy(&from.0[..768], &mut to.0[..768]) };
            assert_eq!(to.0[..768], from.0[..768]);
            assert!(to.0[768..].iter().all(|it| *it == 0));
        }
    }
}
