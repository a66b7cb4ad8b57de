//! Copies of memory with the least overhead: with non-temporal stores, and by the kernel between
//! processes.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_load_si128, _mm_prefetch, _mm_sfence,
    _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256, _mm512_load_si512,
    _mm512_stream_si512,
};

/// Size in bytes of a block, the unit of a copy's length. It is four registers of the widest
/// stores.
pub(crate) const BLOCK_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
/// Distance in bytes from the copied bytes to the source bytes that are prefetched.
const AHEAD_BYTES: usize = 2048;

/// Width of the non-temporal stores of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreWidth {
    /// Stores of 64 bytes, which need AVX-512F.
    Bytes64,
    /// Stores of 32 bytes, which need AVX2.
    Bytes32,
    /// Stores of 16 bytes, which every x86-64 processor has (SSE2).
    Bytes16,
}

impl StoreWidth {
    /// All widths, the widest first.
    pub const ALL: [Self; 3] = [Self::Bytes64, Self::Bytes32, Self::Bytes16];

    /// Returns `true` if the processor has stores of this width.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Bytes64 => is_x86_feature_detected!("avx512f"),
            Self::Bytes32 => is_x86_feature_detected!("avx2"),
            Self::Bytes16 => true,
        }
    }

    /// Returns the widest stores that the processor supports.
    pub(super) fn widest() -> Self {
        Self::ALL.into_iter().find(|width| width.is_supported()).unwrap_or(Self::Bytes16)
    }
}

/// Copies `from` to `to` with the widest non-temporal stores of the processor, prefetching the source.
///
/// # Panics
/// Panics if the slices differ in length, are not whole blocks, or do not begin on a cache line.
pub(crate) fn copy_streaming(from: &[u8], to: &mut [u8]) {
    copy_streaming_with(StoreWidth::widest(), from, to);
}

/// Copies `from` to `to` with non-temporal stores of the given width.
///
/// # Panics
/// Panics like `copy_streaming`, and if the processor does not support the width.
pub fn copy_streaming_with(width: StoreWidth, from: &[u8], to: &mut [u8]) {
    assert!(
        from.len() == to.len(),
        "cannot copy {} bytes to a slice of {} bytes",
        from.len(),
        to.len()
    );
    // SAFETY: both ranges are borrowed, `to` mutably, and the assert above checks their lengths.
    unsafe { copy_streaming_range(width, from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies a range that may be shared with another process, with non-temporal stores of one width.
///
/// # Panics
/// Panics like `copy_streaming_with`.
///
/// # Safety
/// `bytes` bytes are readable at `from` and writable at `to`, and nothing else writes them during
/// the copy.
pub(super) unsafe fn copy_streaming_range(
    width: StoreWidth,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) {
    assert!(bytes.is_multiple_of(BLOCK_BYTES), "{bytes} bytes: not a multiple of {BLOCK_BYTES}");
    let is_on_line = |at: *const u8| at.align_offset(LINE_BYTES) == 0;
    assert!(
        is_on_line(from) && is_on_line(to),
        "the source or the target does not start on a cache line"
    );
    assert!(width.is_supported(), "the processor lacks stores of {width:?}");
    match width {
        // SAFETY: the asserts above check AVX-512F, whole blocks and alignment to a cache line; the
        // caller vouches for the ranges.
        StoreWidth::Bytes64 => unsafe { by_lines(from, to, bytes) },
        // SAFETY: the asserts above check AVX2, whole blocks and alignment to a cache line; the
        // caller vouches for the ranges.
        StoreWidth::Bytes32 => unsafe { by_halves(from, to, bytes) },
        // SAFETY: x86_64 implies SSE2; the asserts above check whole blocks and alignment to a
        // cache line; the caller vouches for the ranges.
        StoreWidth::Bytes16 => unsafe { by_quarters(from, to, bytes) },
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
                // SAFETY: the offset is below `bytes` and aligned like the source; the caller is the
                // only one that accesses the target.
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

/// Copies from an address of another process by `process_vm_readv`; returns the number of bytes copied.
pub(crate) fn copy_from_process(pid: i32, address: u64, to: &mut [u8]) -> std::io::Result<usize> {
    // The kernel refuses an invalid address.
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let ours = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the kernel writes only to `to`, which is borrowed mutably, and checks the address
    // that it reads from.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_negative| std::io::Error::last_os_error())
}

/// Copies to an address of another process by `process_vm_writev`; returns the number of bytes copied.
pub(crate) fn copy_to_process(pid: i32, address: u64, from: &[u8]) -> std::io::Result<usize> {
    // The kernel refuses an invalid address.
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: from.len() };
    let ours = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: the kernel reads only `from`, and checks the address that it writes to, which the
    // process has published for this purpose.
    let count =
        unsafe { libc::process_vm_writev(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_negative| std::io::Error::last_os_error())
}
