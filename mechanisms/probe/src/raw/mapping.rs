//! A lane's memory: a header and a ring, mapped from a file, so that it outlives the process.

use super::sigbus::MappedRange;
use crate::format::PAGE_BYTES;
use crate::lane::LaneWords;
use handover_base::sync::shared::{AtomicU64, Ordering, fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use std::fs::File;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Number of words of the header page before the ring.
const HEADER_WORDS: u64 = PAGE_BYTES / 8;

/// Memory of a lane, mapped from a file: a header page and a ring.
#[derive(Debug)]
pub struct LaneMemory {
    /// Pointer to the first word of the ring; the header page precedes the ring.
    ring: NonNull<AtomicU64>,
    /// Mask that maps a position to a word of the ring. It is the number of words, a power of two,
    /// minus one.
    mask: u64,
    /// Registration of the mapping with the handler of SIGBUS.
    range: &'static MappedRange,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed through atomics
// only.
unsafe impl Send for LaneMemory {}

// SAFETY: shared references give access to atomics only; `ring`, `mask` and `range` never change.
unsafe impl Sync for LaneMemory {}

impl LaneMemory {
    /// Maps a lane at `offset` of `file`: its header and a ring of `words_count` words. The caller
    /// has allocated its disk blocks. If the file is truncated later, anonymous memory replaces
    /// the mapping at the next access (see [`MappedRange`]).
    pub(crate) fn map(file: &File, offset: u64, words_count: u64) -> Result<Self, Errno> {
        if !words_count.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        // Lanes begin at multiples of PAGE_BYTES, and mappings at multiples of the kernel's page
        // size, which may be larger.
        let before = offset % page_size() as u64;
        let bytes = before + PAGE_BYTES + words_count * 8;
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Populated, so that no event pays for a page fault.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, access, flags, file.as_fd(), offset - before)
        }?;
        // SAFETY: the mapping is before + PAGE_BYTES + 8 * words_count long, so that the offset
        // lies within it.
        let ring = unsafe { start.byte_add((before + PAGE_BYTES) as usize) };
        let ring = NonNull::new(ring.cast()).ok_or(Errno::NOMEM)?;
        let range = MappedRange::register(start.expose_provenance(), bytes);
        Ok(Self { ring, mask: words_count - 1, range })
    }

    /// Returns the word of the ring at `position`, modulo the number of words.
    #[inline(always)]
    fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the masked position is at most `mask`, and the ring has `mask + 1` mapped words.
        let word = unsafe { self.ring.add((position & self.mask) as usize) };
        // SAFETY: the word is mapped and aligned as long as `self` lives; any bytes are a valid
        // AtomicU64, and every other access is atomic too.
        unsafe { word.as_ref() }
    }

    /// Returns the word of the header page at `index`.
    pub(crate) fn header_word(&self, index: usize) -> &AtomicU64 {
        assert!((index as u64) < HEADER_WORDS);
        // SAFETY: `index < HEADER_WORDS` was checked above; the header lies right before the ring,
        // in the same mapping.
        let word = unsafe { self.ring.sub(HEADER_WORDS as usize - index) };
        // SAFETY: the word is mapped and aligned as long as `self` lives; any bytes are a valid
        // AtomicU64.
        unsafe { word.as_ref() }
    }
}

impl LaneWords for LaneMemory {
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
        // Relaxed all: the number that is written last is a Release.
        self.word(position).store(0, Ordering::Relaxed);
        // Release: a reader of the file finds the block's old number gone before its words are. x86
        // keeps the order of stores in any case.
        fence(Ordering::Release);
        for at in position + 1..position + count {
            self.word(at).store(0, Ordering::Relaxed);
        }
    }

    fn store_counts(&self, recorded: u64, lost: u64) {
        self.header_word(crate::format::thread::PAGE_RECORDED_FIELD)
            .store(recorded, Ordering::Relaxed);
        self.header_word(crate::format::thread::PAGE_LOST_FIELD).store(lost, Ordering::Relaxed);
    }

    fn is_intact(&self) -> bool {
        !self.range.is_truncated()
    }
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        self.range.unregister();
        // The mapping begins at the start of the page that contains the header.
        let before = (self.ring.addr().get() - PAGE_BYTES as usize) % page_size();
        let bytes = before + (HEADER_WORDS + self.mask + 1) as usize * 8;
        // SAFETY: `before` bytes and the header of PAGE_BYTES lie right before the ring, in the
        // same mapping.
        let start = unsafe { self.ring.byte_sub(before + PAGE_BYTES as usize) };
        // SAFETY: map() mapped exactly this address and length, and no reference outlives `self`.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
