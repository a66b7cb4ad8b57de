//! Copies of memory with the least overhead: with non-temporal stores, and by the kernel between
//! processes.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

/// Size in bytes of a block, the unit of a copy's length. It is four registers of the widest
/// stores.
pub(crate) const BLOCK_BYTES: usize = 256;
const LINE_BYTES: usize = 64;

/// Width of the non-temporal stores of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreWidth {
    /// Stores of 64 bytes, which need AVX-512F.
    Bytes64,
    /// Stores of 32 bytes, which need AVX2.
    Bytes32,
    /// Stores of 16 bytes, which every x86-64 processor has (SSE2), and every aarch64 processor
    /// (STNP).
    Bytes16,
}

impl StoreWidth {
    /// All widths, the widest first.
    pub const ALL: [Self; 3] = [Self::Bytes64, Self::Bytes32, Self::Bytes16];

    fn bytes(self) -> usize {
        match self {
            Self::Bytes64 => 64,
            Self::Bytes32 => 32,
            Self::Bytes16 => 16,
        }
    }

    /// Returns `true` if the processor has stores of this width.
    pub fn is_supported(self) -> bool {
        processor::has_stores(self.bytes())
    }

    /// Returns the widest stores that the processor supports.
    pub(super) fn widest() -> Self {
        Self::ALL.into_iter().find(|width| width.is_supported()).unwrap_or(Self::Bytes16)
    }
}

/// Copies `from` to `to` with the widest non-temporal stores of the processor, prefetching the
/// source.
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
    // SAFETY: the asserts above check the width, whole blocks and alignment to a cache line; the
    // caller vouches for the ranges.
    unsafe { processor::copy(width.bytes(), from, to, bytes) };
}

/// Copies from an address of another process by `process_vm_readv`; returns the number of bytes
/// copied.
pub(crate) fn copy_from_process(pid: i32, address: u64, to: &mut [u8]) -> std::io::Result<usize> {
    // The kernel refuses an invalid address.
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let ours = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the kernel writes only to `to`, which is borrowed mutably, and checks the address
    // that it reads from.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_negative| std::io::Error::last_os_error())
}

/// Copies to an address of another process by `process_vm_writev`; returns the number of bytes
/// copied.
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
