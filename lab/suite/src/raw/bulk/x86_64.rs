//! Copies with non-temporal stores of SSE2, AVX2 and AVX-512F.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_load_si128, _mm_prefetch, _mm_sfence,
    _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256, _mm512_load_si512,
    _mm512_stream_si512,
};

const LINE_BYTES: usize = 64;
/// Distance in bytes from the bytes that are copied to those that are prefetched.
const AHEAD_BYTES: usize = 2048;

/// Returns `true` if the processor has non-temporal stores of `width_bytes` bytes.
pub(super) fn has_stores(width_bytes: usize) -> bool {
    match width_bytes {
        64 => is_x86_feature_detected!("avx512f"),
        32 => is_x86_feature_detected!("avx2"),
        _ => width_bytes == 16,
    }
}

/// Copies with stores of `width_bytes` bytes.
///
/// # Safety
/// The processor has stores of this width; `bytes` bytes, whole blocks, are readable at `from` and
/// writable at `to`, both on cache lines, and nothing else writes them.
pub(super) unsafe fn copy(width_bytes: usize, from: *const u8, to: *mut u8, bytes: usize) {
    match width_bytes {
        // SAFETY: the caller promises that the processor has AVX-512F, and vouches for the ranges.
        64 => unsafe { by_lines(from, to, bytes) },
        // SAFETY: the caller promises that the processor has AVX2, and vouches for the ranges.
        32 => unsafe { by_halves(from, to, bytes) },
        // SAFETY: x86_64 implies SSE2; the caller vouches for the ranges.
        _ => unsafe { by_quarters(from, to, bytes) },
    }
}

/// Defines a function that copies with non-temporal stores of one width.
macro_rules! blocks {
    ($name:ident, $feature:literal, $held:ty, $load:ident, $store:ident) => {
        /// # Safety
        /// The processor has the feature; `bytes` bytes, whole blocks, are readable at `source` and
        /// writable at `target`, both on cache lines, and nothing else writes them.
        #[target_feature(enable = $feature)]
        unsafe fn $name(source: *const u8, target: *mut u8, bytes: usize) {
            const WIDTH: usize = size_of::<$held>();
            for at in (0..bytes).step_by(4 * WIDTH) {
                for line in (0..4 * WIDTH).step_by(LINE_BYTES) {
                    let ahead = source.wrapping_add(at + line + AHEAD_BYTES);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
                let place = |part: usize| source.wrapping_add(at + part * WIDTH).cast();
                // SAFETY: the offset is below `bytes`, a multiple of four widths, and a multiple
                // of the width from an aligned start.
                let first: $held = unsafe { $load(place(0)) };
                // SAFETY: as for `first`: the second of the four widths.
                let second: $held = unsafe { $load(place(1)) };
                // SAFETY: as for `first`: the third of the four widths.
                let third: $held = unsafe { $load(place(2)) };
                // SAFETY: as for `first`: the fourth of the four widths.
                let fourth: $held = unsafe { $load(place(3)) };
                let place = |part: usize| target.wrapping_add(at + part * WIDTH).cast();
                // SAFETY: the offset is below `bytes` and aligned like the source; the caller is
                // the only one that accesses the target.
                unsafe { $store(place(0), first) };
                // SAFETY: as for `first`: the second of the four widths of the target.
                unsafe { $store(place(1), second) };
                // SAFETY: as for `first`: the third of the four widths of the target.
                unsafe { $store(place(2), third) };
                // SAFETY: as for `first`: the fourth of the four widths of the target.
                unsafe { $store(place(3), fourth) };
            }
            _mm_sfence();
        }
    };
}

blocks!(by_lines, "avx512f", __m512i, _mm512_load_si512, _mm512_stream_si512);
blocks!(by_halves, "avx2", __m256i, _mm256_load_si256, _mm256_stream_si256);
blocks!(by_quarters, "sse2", __m128i, _mm_load_si128, _mm_stream_si128);
