//! A segment that two processes map: what either says of itself, and a ring of messages each way.
//!
//! ```text
//!  ┌─────────────┬─────────────┬───────────┬───────────┬──────────────┬──────────────┐
//!  │ said by the │ said by the │ messages  │ messages  │ long bodies  │ long bodies  │
//!  │ connector   │ acceptor    │ of the 1st│ of the 2nd│ of the first │ of the second│
//!  └─────────────┴─────────────┴───────────┴───────────┴──────────────┴──────────────┘
//! ```
//!
//! The other process may be anything, and may write anywhere in it at any time. So nothing in it is ever a
//! Rust value but an atomic, long bodies are copied out before they are looked at, and every place is held
//! to the layout that was agreed on, which this process keeps in memory of its own.

use super::copy::{self, Store};
use super::sealed::is_sound;
use handover_base::sync::shared::{AtomicU32, AtomicU64};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

const WORDS_INLINE: usize = 12;

/// How long a body may be that stands in its message.
pub(crate) const INLINE_BYTES: usize = 8 * WORDS_INLINE;

/// What a side says of itself. Apart from the messages, as it is read far more often than written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Status {
    /// 1: this side sleeps, or is about to. Whoever makes it 0 again rings its bell.
    pub(crate) asleep: AtomicU32,
    /// 1: this side has more to send than there is room for. Whoever makes it 0 again rings its bell.
    pub(crate) wants_room: AtomicU32,
}

/// How far a side has read.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Progress {
    /// How many messages of the other side it has taken.
    pub(crate) taken: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Side {
    pub(crate) status: Status,
    pub(crate) progress: Progress,
}

/// A message: on one cache line, as long as its body is of 32 bytes at most.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// How many messages there are with this one; what is less is of an earlier lap.
    pub(crate) sequence: AtomicU64,
    pub(crate) header: [AtomicU64; 3],
    /// The body, or where in the long bodies it begins.
    pub(crate) inline: [AtomicU64; WORDS_INLINE],
}

const SIDE_BYTES: usize = size_of::<Side>();
const SLOT_BYTES: usize = size_of::<Slot>();
const _: () = assert!(SIDE_BYTES == 256 && SLOT_BYTES == 128);

/// What a segment of that layout needs.
fn total_bytes(slots_count: u32, shared_bytes: u32) -> usize {
    2 * (SIDE_BYTES + slots_count as usize * SLOT_BYTES + shared_bytes as usize)
}

/// Why a segment could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentError {
    Refused(&'static str, Errno),
    /// A file that could be cut off while it is mapped, or is too short.
    NotSealed,
}

fn refused(call: &'static str) -> impl Fn(Errno) -> SegmentError {
    move |errno| SegmentError::Refused(call, errno)
}

/// The mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    slots_count: u32,
    shared_bytes: u32,
}

// SAFETY: the mapping belongs to the process, not to a thread; what lies in it is reached as atomics, and
// the long bodies by copying through raw pointers.
unsafe impl Send for Segment {}
// SAFETY: as above. Methods that copy into a direction take `&mut self`.
unsafe impl Sync for Segment {}

impl Segment {
    /// A fresh segment, of this user alone and of no name, and the file to pass on.
    pub(crate) fn create(
        slots_count: u32,
        shared_bytes: u32,
    ) -> Result<(Self, OwnedFd), SegmentError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("handover-rpc", flags).map_err(refused("memfd_create"))?;
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(refused("fchmod"))?;
        let bytes = total_bytes(slots_count, shared_bytes);
        ftruncate(&file, bytes as u64).map_err(refused("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(refused("fcntl(F_ADD_SEALS)"))?;
        Ok((Self::map(&file, slots_count, shared_bytes)?, file))
    }

    /// Maps a file that a peer has passed on.
    pub(crate) fn map(
        file: impl AsFd,
        slots_count: u32,
        shared_bytes: u32,
    ) -> Result<Self, SegmentError> {
        let bytes = total_bytes(slots_count, shared_bytes);
        match is_sound(&file, bytes) {
            Ok(true) => {}
            Ok(false) => return Err(SegmentError::NotSealed),
            Err((call, errno)) => return Err(SegmentError::Refused(call, errno)),
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory; the file
        // is at least `bytes` long and stays so, by its seal.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }
            .map_err(refused("mmap"))?;
        let start =
            NonNull::new(start.cast()).ok_or(SegmentError::Refused("mmap", Errno::NOMEM))?;
        Ok(Self { start, slots_count, shared_bytes })
    }

    /// What side 0, the connector, or 1 says of itself.
    #[inline]
    pub(crate) fn side(&self, side: usize) -> &Side {
        assert!(side < 2);
        // SAFETY: the two sides are the first 512 bytes of the mapping, which is page-aligned.
        let at = unsafe { self.start.add(side * SIDE_BYTES) };
        // SAFETY: mapped until `self` is dropped, aligned, and made of atomics and padding, of which any
        // bytes are a value whatever the other process writes.
        unsafe { at.cast::<Side>().as_ref() }
    }

    /// The place of the message of that number, of those that `side` sends.
    #[inline]
    pub(crate) fn slot(&self, side: usize, number: u64) -> &Slot {
        assert!(side < 2);
        // The count is a power of two: config and handshake see to it. Were it none, this would still be
        // below it.
        let index = number as usize & (self.slots_count as usize - 1);
        let slots = 2 * SIDE_BYTES + side * self.slots_count as usize * SLOT_BYTES;
        // SAFETY: index < slots_count, and the mapping holds 2 * slots_count slots from 2 * SIDE_BYTES on.
        let at = unsafe { self.start.add(slots + index * SLOT_BYTES) };
        // SAFETY: as in side(): mapped, aligned to 128, atomics only.
        unsafe { at.cast::<Slot>().as_ref() }
    }

    /// Asks for the line of that message, to write it soon. A hint: it reads and writes nothing.
    #[inline]
    pub(crate) fn claim(&self, side: usize, number: u64) {
        let slot: *const Slot = self.slot(side, number);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: PREFETCHW accesses nothing in the sense of the language, cannot fault at any address, and is
        // a NOP where the processor does not have it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) slot,
                options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = slot;
    }

    /// Where bodies of `side` begin; the caller stays within `bytes` from `offset`.
    fn body(&self, side: usize, offset: u32, bytes: usize) -> NonNull<u8> {
        let end = offset as usize + bytes;
        assert!(side < 2 && end <= self.shared_bytes as usize, "outside of what is shared");
        let bodies = 2 * (SIDE_BYTES + self.slots_count as usize * SLOT_BYTES);
        // SAFETY: side * shared_bytes + offset lies within the 2 * shared_bytes that end the mapping.
        unsafe { self.start.add(bodies + side * self.shared_bytes as usize + offset as usize) }
    }

    /// Copies a long body to where the other side will read it.
    ///
    /// # Panics
    /// When that is outside of what is shared.
    pub(crate) fn write_body(&mut self, side: usize, offset: u32, body: &[u8]) {
        let to = self.body(side, offset, body.len());
        // SAFETY: body() has checked that `to` has room for it; no reference to these bytes exists in this
        // process, and `body` is not part of the mapping. The other process may write there at the same
        // time, to its own confusion: these bytes are never read here.
        unsafe { copy::copy(body.as_ptr(), to.as_ptr(), body.len(), Store::Cached) }
    }

    /// Copies a long body out, behind what is in `into`. What another process writes meanwhile may be part
    /// of it: it is the peer's body, and looked at only where it cannot change any more.
    ///
    /// # Panics
    /// When that is outside of what is shared.
    pub(crate) fn read_body(&self, side: usize, offset: u32, bytes: usize, into: &mut Vec<u8>) {
        let from = self.body(side, offset, bytes);
        into.reserve(bytes);
        let room = NonNull::from(&mut into.spare_capacity_mut()[..bytes]).cast::<u8>();
        // SAFETY: body() has checked that `from` has so many bytes, and `room` is as long and this
        // vector's own. No reference to the mapping's bytes exists in this process.
        unsafe { copy::copy(from.as_ptr(), room.as_ptr(), bytes, Store::Cached) };
        // SAFETY: the capacity was reserved, and these bytes have just been written.
        unsafe { into.set_len(into.len() + bytes) };
    }

    pub(crate) fn slots_count(&self) -> u32 {
        self.slots_count
    }

    pub(crate) fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let bytes = total_bytes(self.slots_count, self.shared_bytes);
        // SAFETY: mapped by map() with this address and length, and no reference outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_base::sync::shared::Ordering;

    #[test]
    fn both_mappings_are_the_same_memory_and_directions_do_not_overlap() {
        let (mut ours, file) = Segment::create(4, 4096).expect("a memfd");
        let its = Segment::map(&file, 4, 4096).expect("mapped again");
        for side in 0..2 {
            for number in 0..4 {
                let word = 100 * side as u64 + number + 1;
                // Relaxed: one thread.
                ours.slot(side, number).sequence.store(word, Ordering::Relaxed);
            }
            ours.side(side).progress.taken.store(7 + side as u64, Ordering::Relaxed);
            ours.write_body(side, 4092, &[side as u8 + 1; 4]);
        }
        for side in 0..2 {
            for number in 0..4 {
                let word = its.slot(side, number + 4).sequence.load(Ordering::Relaxed);
                assert_eq!(word, 100 * side as u64 + number + 1);
            }
            assert_eq!(its.side(side).progress.taken.load(Ordering::Relaxed), 7 + side as u64);
            let mut body = vec![9];
            its.read_body(side, 4090, 6, &mut body);
            let own = side as u8 + 1;
            assert_eq!(body, [9, 0, 0, own, own, own, own]);
        }
    }

    #[test]
    fn a_file_that_could_shrink_or_is_too_short_is_not_mapped() {
        let (_, short) = Segment::create(2, 4096).expect("a memfd");
        assert_eq!(Segment::map(&short, 4, 4096).err(), Some(SegmentError::NotSealed));
        let open = memfd_create("open", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&open, 1 << 20).expect("longer");
        assert_eq!(Segment::map(&open, 4, 4096).err(), Some(SegmentError::NotSealed));
        let null = std::fs::File::open("/dev/null").expect("there is one");
        assert_eq!(Segment::map(&null, 4, 4096).err(), Some(SegmentError::NotSealed));
    }

    #[test]
    #[should_panic(expected = "outside of what is shared")]
    fn a_body_outside_of_what_is_shared_is_not_read() {
        let (segment, _) = Segment::create(2, 4096).expect("a memfd");
        segment.read_body(1, 4095, 2, &mut Vec::new());
    }
}
