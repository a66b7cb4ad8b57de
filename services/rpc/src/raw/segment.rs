//! Shared memory segment of two processes: a status of each end, and a ring of messages in each
//! direction.
//!
//! ```text
//!  ┌─────────────┬─────────────┬───────────┬───────────┬──────────────┬──────────────┐
//!  │ status of   │ status of   │ messages  │ messages  │ long bodies  │ long bodies  │
//!  │ connector   │ acceptor    │ of the 1st│ of the 2nd│ of the first │ of the second│
//!  └─────────────┴─────────────┴───────────┴───────────┴──────────────┴──────────────┘
//! ```
//!
//! The other process is not trusted, and may write anywhere in the segment at any time. Therefore
//! this process accesses the segment only through atomics, copies long bodies out before reading
//! them, and checks every offset against the agreed layout, which it keeps in its own memory.

use super::copy::{self, StoreKind};
use super::sealed::{create_sealed_file, is_mapping_safe};
use crate::SystemCallError;
use crate::error::failed_call;
use handover_base::prefetch;
use handover_base::sync::shared::{AtomicU32, AtomicU64};
use handover_notify::ParkWord;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Maximum length of a body that is stored in its slot, in words of 8 bytes.
const INLINE_BODY_WORDS_MAX: usize = 12;

/// Maximum length of a body that is stored in its slot, in bytes.
pub(crate) const INLINE_BODY_BYTES_MAX: usize = 8 * INLINE_BODY_WORDS_MAX;

/// Flags of one end of the connection: asleep, and waiting for space. The status has separate cache
/// lines, as it is read far more often than written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct EndStatus {
    /// Sleep state of this end: awake or asleep. All zeroes, as in a new file, mean awake.
    pub(crate) asleep: ParkWord,
    /// 1 if this end has more to send than there is space for. The peer that resets it to 0 wakes
    /// this end.
    pub(crate) wants_space: AtomicU32,
    /// CPU on which this end ran last, plus one; 0 if unknown. A hint.
    pub(crate) cpu_plus_one: AtomicU32,
    /// Number of other peers of this end, and of this end itself, on the peer's CPU. A hint.
    pub(crate) peer_cpu_sharers: AtomicU32,
}

/// Read position of one end of the connection, on a separate cache line.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ReadProgress {
    /// Number of the peer's messages that this end has read.
    pub(crate) taken: AtomicU64,
}

/// Status and read position of one end of the connection.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SegmentEnd {
    pub(crate) status: EndStatus,
    pub(crate) progress: ReadProgress,
}

/// Slot of one message in the ring. Only its first cache line is used if the body has at most 32
/// bytes.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct MessageSlot {
    /// Lower 32 bits: number of the message in this slot, counted from 1. A number other than
    /// expected is of an earlier lap of the ring. Upper 32 bits: number of the peer's messages that
    /// the sender of this one had read. Both numbers are truncated.
    pub(crate) sequence: AtomicU64,
    /// Header of the message, encoded as three words.
    pub(crate) header: [AtomicU64; 3],
    /// Body of the message, or the offset of a long body.
    pub(crate) inline: [AtomicU64; INLINE_BODY_WORDS_MAX],
}

const END_BYTES: usize = size_of::<SegmentEnd>();
const SLOT_BYTES: usize = size_of::<MessageSlot>();
const _: () = assert!(END_BYTES == 256 && SLOT_BYTES == 128);

/// Returns the total size of a segment, in bytes.
fn total_bytes(slots_count: u32, shared_bytes: u32) -> usize {
    2 * (END_BYTES + slots_count as usize * SLOT_BYTES + shared_bytes as usize)
}

/// Shared memory segment that this process has mapped.
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    slots_count: u32,
    /// Size of the buffer for long bodies in each direction, in bytes.
    shared_bytes: u32,
}

// SAFETY: the mapping belongs to the process, not to a thread; its words are accessed as atomics,
// and the long bodies by copies through raw pointers.
unsafe impl Send for Segment {}
// SAFETY: all words are atomics, and `write_body`, the only method that writes long bodies, takes
// `&mut self`.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates an unnamed segment that only this user can open. Returns it with its file for the
    /// peer.
    pub(crate) fn create(
        slots_count: u32,
        shared_bytes: u32,
    ) -> Result<(Self, OwnedFd), SystemCallError> {
        let file = create_sealed_file("handover-rpc", total_bytes(slots_count, shared_bytes))?;
        let mapped = Self::map(&file, slots_count, shared_bytes)?;
        Ok((mapped.ok_or_else(|| failed_call("fcntl")(Errno::PERM))?, file))
    }

    /// Maps the file of a segment. Returns `None` if the file is too short, or could be truncated
    /// while it is mapped.
    pub(crate) fn map(
        file: impl AsFd,
        slots_count: u32,
        shared_bytes: u32,
    ) -> Result<Option<Self>, SystemCallError> {
        let bytes = total_bytes(slots_count, shared_bytes);
        if !is_mapping_safe(&file, bytes)? {
            return Ok(None);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory;
        // is_mapping_safe() has checked that the file is at least `bytes` long and sealed against
        // shrinking.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }
            .map_err(failed_call("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed_call("mmap")(Errno::NOMEM))?;
        Ok(Some(Self { start, slots_count, shared_bytes }))
    }

    /// Returns the status and the read position of an end. Index 0 is the connector, 1 the
    /// acceptor.
    #[inline]
    pub(crate) fn end_by_index(&self, index: usize) -> &SegmentEnd {
        assert!(index < 2);
        // SAFETY: `index < 2` was asserted, and the two ends are the first 512 bytes of the
        // mapping.
        let at = unsafe { self.start.add(index * END_BYTES) };
        // SAFETY: the mapping is page-aligned and lives until `self` is dropped, and `SegmentEnd`
        // consists of atomics and padding, for which every bit pattern is valid.
        unsafe { at.cast::<SegmentEnd>().as_ref() }
    }

    /// Returns the slot for message `number` of the end `sender`.
    #[inline]
    pub(crate) fn slot(&self, sender: usize, number: u64) -> &MessageSlot {
        assert!(sender < 2);
        // Config and handshake check that the count is a power of two. For any other count, the
        // index would still be below it.
        let index = number as usize & (self.slots_count as usize - 1);
        let slots = 2 * END_BYTES + sender * self.slots_count as usize * SLOT_BYTES;
        // SAFETY: index < slots_count, and the mapping holds 2 * slots_count slots from 2 *
        // END_BYTES on.
        let at = unsafe { self.start.add(slots + index * SLOT_BYTES) };
        // SAFETY: the slot lies in the mapping, which lives until `self` is dropped, is aligned to
        // 128 bytes as the mapping is page-aligned, and consists of atomics.
        unsafe { at.cast::<MessageSlot>().as_ref() }
    }

    /// Prefetches the cache line of that slot for writing. A hint: it reads and writes nothing.
    #[inline]
    pub(crate) fn prefetch_slot_for_write(&self, sender: usize, number: u64) {
        prefetch::for_write(self.slot(sender, number));
    }

    /// Returns a pointer to the byte at `offset` in the end `sender`'s buffer for long bodies.
    /// Panics unless `bytes` bytes from there lie in the buffer.
    fn body_ptr(&self, sender: usize, offset: u32, bytes: usize) -> NonNull<u8> {
        let end = offset as usize + bytes;
        assert!(
            sender < 2 && end <= self.shared_bytes as usize,
            "the body lies outside of the buffer for long bodies"
        );
        let bodies = 2 * (END_BYTES + self.slots_count as usize * SLOT_BYTES);
        // SAFETY: `sender < 2` and `offset + bytes <= shared_bytes` were asserted, so the address
        // lies within the last 2 * shared_bytes of the mapping.
        unsafe { self.start.add(bodies + sender * self.shared_bytes as usize + offset as usize) }
    }

    /// Copies a long body to the segment, for the peer to read.
    ///
    /// # Panics
    /// Panics if the range lies outside of the buffer for long bodies.
    pub(crate) fn write_body(&mut self, sender: usize, offset: u32, body: &[u8]) {
        let to = self.body_ptr(sender, offset, body.len());
        // SAFETY: body_ptr() has checked that `to` has space for `body`; no reference to these
        // bytes exists in this process, and `body` is not part of the mapping. The other process
        // may write there at the same time, which affects only the peer: this process never reads
        // these bytes.
        unsafe { copy::copy(body.as_ptr(), to.as_ptr(), body.len(), StoreKind::Cached) }
    }

    /// Appends a copy of a long body to `into`. Bytes that the other process writes meanwhile may
    /// be part of the copy: it is the peer's own body, and it is decoded only from the copy.
    ///
    /// # Panics
    /// Panics if the range lies outside of the buffer for long bodies.
    pub(crate) fn read_body(&self, sender: usize, offset: u32, bytes: usize, into: &mut Vec<u8>) {
        let from = self.body_ptr(sender, offset, bytes);
        copy::reserve_apart(into, bytes);
        let room = NonNull::from(&mut into.spare_capacity_mut()[..bytes]).cast::<u8>();
        // SAFETY: body_ptr() has checked that `bytes` bytes are readable at `from`, and `room` is
        // as long and part of this vector's spare capacity. No reference to the mapping's bytes
        // exists in this process.
        unsafe { copy::copy(from.as_ptr(), room.as_ptr(), bytes, StoreKind::Cached) };
        // SAFETY: the capacity was reserved, and copy() has initialized these bytes.
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
        // SAFETY: map() made the mapping with this address and length, and no reference outlives
        // `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_base::sync::shared::Ordering;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn both_mappings_are_the_same_memory_and_directions_do_not_overlap() {
        let (mut ours, file) = Segment::create(4, 4096).expect("create a segment");
        let its = Segment::map(&file, 4, 4096).expect("mapped again").expect("it is sealed");
        for index in 0..2 {
            for number in 0..4 {
                let word = 100 * index as u64 + number + 1;
                // Relaxed: one thread.
                ours.slot(index, number).sequence.store(word, Ordering::Relaxed);
            }
            ours.end_by_index(index).progress.taken.store(7 + index as u64, Ordering::Relaxed);
            ours.write_body(index, 4092, &[index as u8 + 1; 4]);
        }
        for index in 0..2 {
            for number in 0..4 {
                let word = its.slot(index, number + 4).sequence.load(Ordering::Relaxed);
                assert_eq!(word, 100 * index as u64 + number + 1);
            }
            assert_eq!(
                its.end_by_index(index).progress.taken.load(Ordering::Relaxed),
                7 + index as u64
            );
            let mut body = vec![9];
            its.read_body(index, 4090, 6, &mut body);
            let own = index as u8 + 1;
            assert_eq!(body, [9, 0, 0, own, own, own, own]);
        }
    }

    #[test]
    fn file_that_could_shrink_or_is_too_short_is_not_mapped() {
        let (_, short) = Segment::create(2, 4096).expect("create a segment");
        assert!(matches!(Segment::map(&short, 4, 4096), Ok(None)));
        let open = memfd_create("open", MemfdFlags::CLOEXEC).expect("create a memfd");
        ftruncate(&open, 1 << 20).expect("resize the memfd");
        assert!(matches!(Segment::map(&open, 4, 4096), Ok(None)));
        let null = std::fs::File::open("/dev/null").expect("open /dev/null");
        assert!(matches!(Segment::map(&null, 4, 4096), Ok(None)));
    }

    #[test]
    #[should_panic(expected = "the body lies outside of the buffer for long bodies")]
    fn body_outside_of_the_buffer_for_long_bodies_is_not_read() {
        let (segment, _) = Segment::create(2, 4096).expect("create a segment");
        segment.read_body(1, 4095, 2, &mut Vec::new());
    }
}
