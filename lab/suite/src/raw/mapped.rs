//! Memory of a file without a name, mapped: in huge pages where the kernel has them, and all of it there.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ptr::NonNull;

/// A file of so many zeros.
pub(crate) fn file(bytes: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("handover-moved", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// A mapping of such a file.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapped {}
// SAFETY: as above; whoever copies through it promises to be alone at the place.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps as many bytes as the file was made with.
    pub(crate) fn of(file: &OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory; the file
        // was made so long.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        // SAFETY: the mapping just made; the advice changes no content.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        // SAFETY: as above; touching the pages changes no content either.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) };
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Has every byte be this one.
    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the whole mapping, which is writable; nobody copies before all have filled theirs.
        unsafe { self.start.as_ptr().write_bytes(byte, self.bytes) };
    }

    /// The byte at `at`.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.bytes, "{at} of {}", self.bytes);
        // SAFETY: within the mapping, as was asserted above; whoever writes it has said that it is done.
        unsafe { self.start.as_ptr().wrapping_add(at).read_volatile() }
    }

    /// Copies past the caches what lies at `at` to the same place of another mapping. Of one place there is
    /// one copy at a time.
    pub(crate) fn stream_to(&self, to: &Mapped, at: usize, bytes: usize) {
        assert!(at + bytes <= self.bytes.min(to.bytes), "{bytes} at {at} of {}", self.bytes);
        let from = self.start.as_ptr().wrapping_add(at);
        // SAFETY: within the mapping, as was asserted above; nobody writes to the source of a copy.
        let from = unsafe { std::slice::from_raw_parts(from, bytes) };
        let into = to.start.as_ptr().wrapping_add(at);
        // SAFETY: within the other mapping; the caller is the only one who copies to this place.
        let into = unsafe { std::slice::from_raw_parts_mut(into, bytes) };
        super::bulk::stream(from, into);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range that mmap returned, which nothing borrows from any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
