//! The crate's only home of `unsafe`: memory shared with other processes, and the CPU's number.

use crate::{adaptive, futex};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The CPU this thread runs on at the moment; `None` where that cannot be told.
///
/// The C library's own, which reads it from the thread's registered rseq area: 2 to 3 ns, where
/// the vDSO's getcpu takes 10. It stands on the path of each notification.
#[inline]
pub(crate) fn current_cpu() -> Option<u32> {
    if cfg!(miri) {
        return None; // Miri has no CPUs.
    }
    // SAFETY: no arguments, no memory, no state.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).ok()
}

/// Types that may lie in memory mapped by several processes.
///
/// # Safety
/// All zeroes, and indeed any bytes, are a value of the type, and it stays one whatever others
/// write to it at any time: it is made of core's atomics and padding, without pointers. Its size
/// and alignment are at most a page's. Nothing needs dropping.
pub unsafe trait ZeroFresh: Send + Sync + 'static {}

// SAFETY: an AtomicU32 in a repr(transparent) wrapper, an AtomicU64 and repr(C) padding; 128 bytes.
unsafe impl ZeroFresh for adaptive::Core {}

// SAFETY: one AtomicU32 and repr(C) padding; 128 bytes.
unsafe impl ZeroFresh for futex::Core {}

/// The beginning of a file, mapped shared for reading and writing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; what lies in it is reached through
// ZeroFresh types alone, which are Send and Sync.
unsafe impl Send for Mapping {}

// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, of which the caller has made sure that they exist
    /// and cannot go away (touching them would otherwise raise SIGBUS).
    pub(crate) fn of(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// What lies at its beginning.
    #[inline]
    pub(crate) fn get<C: ZeroFresh>(&self) -> &C {
        assert!(size_of::<C>() <= self.bytes, "mapped for something smaller");
        // SAFETY: `start` is page-aligned and `bytes` long, mapped until `self` is dropped, and
        // whatever bytes are there are a C, now and after any write by others (ZeroFresh).
        unsafe { self.start.cast::<C>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by of() with this very address and length, and no reference outlives
        // `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
