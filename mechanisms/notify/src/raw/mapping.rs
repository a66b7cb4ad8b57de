//! Memory shared with other processes.

use crate::adaptive;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Type that is valid if all its bytes are zero. It may lie in memory that several processes map.
///
/// # Safety
/// All zeroes, and indeed any bytes, are a valid value of the type, also while other processes
/// write to it at any time: it consists of atomics and padding, without pointers. Its size and
/// alignment are at most a page's. It needs no drop.
pub unsafe trait ZeroInit: Send + Sync + 'static {}

// SAFETY: an AtomicU32 in a repr(transparent) wrapper, an AtomicU64 and repr(C) padding; 128 bytes.
unsafe impl ZeroInit for adaptive::NotifyCore {}

/// Shared mapping of the beginning of a file, for reading and writing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its contents are only accessed as
// ZeroInit types, which are Send and Sync.
unsafe impl Send for Mapping {}

// SAFETY: get() is the only access by reference, and only gives ZeroInit types, which are Sync.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`. The caller ensures that the file has as many and
    /// cannot be truncated (otherwise an access would raise SIGBUS).
    pub(crate) fn map_file(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Returns the value at the beginning of the mapping.
    #[inline]
    pub(crate) fn get<C: ZeroInit>(&self) -> &C {
        assert!(size_of::<C>() <= self.bytes, "the value is larger than the mapping");
        // SAFETY: `start` is page-aligned and `bytes` long, mapped until `self` is dropped, and any
        // bytes there are a valid C, now and after any write by others (ZeroInit).
        unsafe { self.start.cast::<C>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: map_file() mapped exactly this address and length, and no reference outlives
        // `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
