//! A lane's memory: a page of header and a ring, mapped from a file, so that they outlive the process.

use super::bus::Range;
use crate::format::PAGE_BYTES;
use crate::lane::Words;
use handover_base::sync::shared::{AtomicU64, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Words of the page before the ring.
const HEADER_WORDS: u64 = PAGE_BYTES / 8;

/// A mapped lane.
#[derive(Debug)]
pub struct Memory {
    /// The ring's first word; the header lies right before it.
    ring: NonNull<AtomicU64>,
    /// The ring's words less one; their number is a power of two.
    mask: u64,
    /// Handles faults where the file is cut short.
    range: &'static Range,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is reached as atomics alone.
unsafe impl Send for Memory {}

// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps a header and `words_count` words, a power of two, at `offset` of `file`, where the caller has
    /// made sure that they are on the disk. Where they are not any more when they are touched, other memory
    /// takes their place (see [`Range`]).
    pub(crate) fn map(file: &File, offset: u64, words_count: u64) -> Result<Self, Errno> {
        if !words_count.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(PAGE_BYTES + words_count * 8).map_err(|_| Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Populated, so that no event pays for a page.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file.as_fd(), offset) }?;
        // SAFETY: the mapping is longer than the page of the header.
        let ring = unsafe { start.byte_add(PAGE_BYTES as usize) };
        let ring = NonNull::new(ring.cast()).ok_or(Errno::NOMEM)?;
        let range = Range::watch(start.expose_provenance(), bytes);
        Ok(Self { ring, mask: words_count - 1, range })
    }

    #[inline(always)]
    fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: masked, the position is below the ring's number of words, all of which are mapped.
        let word = unsafe { self.ring.add((position & self.mask) as usize) };
        // SAFETY: mapped as long as `self` is; whatever the bytes are, and whoever else writes them, they
        // are an AtomicU64.
        unsafe { word.as_ref() }
    }

    /// The word at `index` of the page before the ring.
    pub(crate) fn header(&self, index: usize) -> &AtomicU64 {
        assert!((index as u64) < HEADER_WORDS);
        // SAFETY: the header's words lie right before the ring, mapped as long as `self` is.
        let word = unsafe { self.ring.sub(HEADER_WORDS as usize - index) };
        // SAFETY: as above; any bytes are an AtomicU64.
        unsafe { word.as_ref() }
    }
}

impl Words for Memory {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.mask + 1
    }

    #[inline(always)]
    fn load(&self, position: u64) -> u64 {
        // Acquire: pairs with Release in store().
        self.word(position).load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&self, position: u64, word: u64) {
        // Release: pairs with Acquire in load().
        self.word(position).store(word, Ordering::Release);
    }

    fn clear(&self, position: u64, count: u64) {
        // In order, the block's number first: relaxed, as the number that comes last is a Release.
        for at in position..position + count {
            self.word(at).store(0, Ordering::Relaxed);
        }
    }

    fn note(&self, recorded: u64, lost: u64) {
        self.header(crate::format::thread::PAGE_RECORDED).store(recorded, Ordering::Relaxed);
        self.header(crate::format::thread::PAGE_LOST).store(lost, Ordering::Relaxed);
    }

    fn is_intact(&self) -> bool {
        !self.range.is_cut()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.range.release();
        let bytes = (HEADER_WORDS + self.mask + 1) as usize * 8;
        // SAFETY: the header lies right before the ring, in the same mapping.
        let start = unsafe { self.ring.byte_sub(PAGE_BYTES as usize) };
        // SAFETY: mapped by map() with this very address and length, and no reference outlives `self`.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
