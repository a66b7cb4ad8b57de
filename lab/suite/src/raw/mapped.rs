//! Mapped memory of an anonymous file: in huge pages if the kernel has them, with all pages
//! populated.

use super::bulk::StoreWidth;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ptr::NonNull;

pub(crate) fn create_memory_file(bytes: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("handover-moved", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Mapping of a file made by [`create_memory_file`].
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: every caller of the copying methods ensures that no other thread accesses the same range
// at that time.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file that [`create_memory_file`] has created with `bytes` bytes.
    pub(crate) fn map(file: &OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the hint is null, so the kernel chooses a free range and no existing mapping is
        // touched; the file was created with `bytes` bytes.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        // SAFETY: the range is the mapping just created; the advice changes no content.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        // SAFETY: the range is the mapping just created; populating pages changes no content.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) };
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the range is the whole mapping, which is writable; no copy begins before every
        // participant has filled its memory.
        unsafe { self.start.as_ptr().write_bytes(byte, self.bytes) };
    }

    pub(crate) fn byte_at(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.read(at, &mut byte);
        byte[0]
    }

    /// Copies bytes of the mapping, from offset `at` on, into `to`. The caller ensures that no
    /// other participant writes them meanwhile.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.range(at, to.len());
        // SAFETY: range() has checked the bounds, `to` is borrowed mutably and is not part of the
        // mapping, of which no references exist; the caller ensures that nothing writes the range.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes to offset `at` of the mapping. The caller ensures that no other participant
    /// accesses that range meanwhile.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let to = self.range(at, from.len());
        // SAFETY: as in read(); the caller ensures that nothing else accesses the range.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// Returns the address of the range of `bytes` bytes at offset `at`.
    fn range(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at offset {at} extend beyond the end of a mapping of {} bytes",
            self.bytes
        );
        self.start.as_ptr().wrapping_add(at)
    }

    /// Copies `bytes` bytes at offset `at` to the same offset of the mapping `to`, with
    /// non-temporal stores. The caller ensures that no other copy writes the range and that nothing
    /// writes the source.
    pub(crate) fn stream_to(&self, to: &Mapping, at: usize, bytes: usize) {
        let (from, to) = (self.range(at, bytes), to.range(at, bytes));
        // SAFETY: range() has checked the bounds of both mappings; nothing writes the source of
        // a copy, and the caller is the only one that accesses this range of the target.
        unsafe { super::bulk::copy_streaming_range(StoreWidth::widest(), from, to, bytes) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is what mmap returned, and no reference to it outlives a method call.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
