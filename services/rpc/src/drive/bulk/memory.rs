//! Local memory for bulk transfers.

use crate::MemoryError;
use crate::engine::BULK_SEGMENTS_MAX;
use crate::raw::{MemoryPiece, Region};
use std::fmt;
use std::sync::Arc;

/// Memory for bulk transfers: one or more segments, addressed by one contiguous range of offsets.
///
/// Others may change it at any time, for example peers with the right to write. Therefore there is
/// no slice of it: bytes are copied in and out, and a copy made during a write may mix old and new
/// bytes. Clones refer to the same memory.
///
/// ```
/// use handover_rpc::BulkMemory;
/// let shared = BulkMemory::shared(100)?; // Mapped by both processes if they share a machine.
/// let plain = BulkMemory::plain(vec![7; 50]); // An ordinary vector.
/// let both = BulkMemory::joined([shared.clone(), plain])?;
/// assert_eq!(both.len_bytes(), 150);
/// both.write(99, b"ab");
/// let mut two = [0; 2];
/// both.read(100, &mut two);
/// assert_eq!(two, *b"b\x07");
/// # Ok::<(), handover_rpc::MemoryError>(())
/// ```
#[derive(Clone)]
pub struct BulkMemory {
    segments: Arc<Vec<MemorySegment>>,
    /// Total length of the segments, in bytes.
    bytes: u64,
}

/// Segment of a memory.
struct MemorySegment {
    region: Arc<Region>,
    /// Offset of the segment in the memory, in bytes.
    start: u64,
}

impl fmt::Debug for BulkMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkMemory")
            .field("bytes", &self.bytes)
            .field("segments", &self.segments.len())
            .finish()
    }
}

impl BulkMemory {
    /// Allocates zeroed memory that peers of this user on this machine can map. All pages are
    /// allocated at once. This is the fastest kind of memory, except for peers over `ucx://`; see
    /// [`Bulk::allocate_memory`](crate::Bulk::allocate_memory).
    ///
    /// A peer with any right to this memory can read all of it. Read-only rights guard against
    /// mistakes, not attacks: a hostile process of this user can reopen the memory's file for
    /// writing.
    ///
    /// # Errors
    /// [`MemoryError::AllocationFailed`] if there is not enough memory.
    pub fn shared(bytes: usize) -> Result<Self, MemoryError> {
        match Region::create_shared(bytes) {
            Ok(region) => Ok(Self::from_region(region)),
            Err(error) => Err(MemoryError::AllocationFailed { bytes, error }),
        }
    }

    /// Allocates zeroed memory in an unnamed file of that folder's file system. Only this user can
    /// open the file, and it disappears with the memory or with a killed process. Peers access it
    /// in the same way as a vector.
    ///
    /// # Errors
    /// [`MemoryError::AllocationFailed`] if there is no such folder, or no space.
    pub fn in_folder(folder: &std::path::Path, bytes: usize) -> Result<Self, MemoryError> {
        match Region::create_in_folder(folder, bytes) {
            Ok(region) => Ok(Self::from_region(region)),
            Err(error) => Err(MemoryError::AllocationFailed { bytes, error }),
        }
    }

    /// Creates memory from a vector without a copy. [`into_vecs`](Self::into_vecs) returns the
    /// vector.
    #[must_use]
    pub fn plain(vec: Vec<u8>) -> Self {
        Self::from_region(Region::from_vec(vec))
    }

    /// Joins several memories into one, in this order.
    ///
    /// # Errors
    /// [`MemoryError::TooManySegments`] if they have more than 64 segments in total.
    pub fn joined(memories: impl IntoIterator<Item = Self>) -> Result<Self, MemoryError> {
        let mut regions = Vec::new();
        for memory in memories {
            regions.extend(memory.segments.iter().map(|it| Arc::clone(&it.region)));
        }
        match regions.len() {
            segments_count if segments_count > BULK_SEGMENTS_MAX => {
                Err(MemoryError::TooManySegments {
                    segments_count,
                    segments_max: BULK_SEGMENTS_MAX,
                })
            }
            _ => Ok(Self::from_regions(regions)),
        }
    }

    pub(super) fn from_region(region: Region) -> Self {
        Self::from_regions(vec![Arc::new(region)])
    }

    fn from_regions(regions: Vec<Arc<Region>>) -> Self {
        let mut bytes = 0;
        let segment = |region: Arc<Region>| {
            let start = bytes;
            bytes += region.len_bytes() as u64;
            MemorySegment { region, start }
        };
        let segments = Arc::new(regions.into_iter().map(segment).collect());
        Self { segments, bytes }
    }

    /// Returns the length of the memory, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn segments_count(&self) -> usize {
        self.segments.len()
    }

    /// Fills `into` with the bytes of the memory from `offset` on.
    ///
    /// # Panics
    /// Panics if the range extends beyond the end of the memory.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let mut rest = into;
        for run in self.contiguous_pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(run.bytes);
            run.region.read(run.offset, now);
            rest = later;
        }
    }

    /// Copies `bytes` into the memory from `offset` on.
    ///
    /// # Panics
    /// Panics if the range extends beyond the end of the memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for run in self.contiguous_pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at(run.bytes);
            run.region.write(run.offset, now);
            rest = later;
        }
    }

    /// Returns a copy of the complete memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut vec = vec![0; usize::try_from(self.bytes).unwrap_or(usize::MAX)];
        self.read(0, &mut vec);
        vec
    }

    /// Returns the contents of each segment as a vector. Segments that were made from vectors are
    /// not copied.
    ///
    /// # Errors
    /// Returns the memory if it is in use elsewhere: by a clone, by an endpoint that has registered
    /// it, by a transfer under way, or by a peer that has not released it.
    pub fn into_vecs(self) -> Result<Vec<Vec<u8>>, Self> {
        let bytes = self.bytes;
        let segments = match Arc::try_unwrap(self.segments) {
            Ok(segments) => segments,
            Err(segments) => return Err(Self { segments, bytes }),
        };
        // With a count of 1, this thread has the only reference, so no other thread can clone it.
        if segments.iter().any(|it| Arc::strong_count(&it.region) > 1) {
            return Err(Self { segments: Arc::new(segments), bytes });
        }
        let regions = segments.into_iter().map(|it| it.region);
        Ok(regions.filter_map(Arc::into_inner).map(Region::into_vec).collect())
    }

    /// Returns `true` if `other` is a clone of this memory.
    pub(crate) fn is_same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.segments, &other.segments)
    }

    /// Iterates over the memory regions of the segments.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.segments.iter().map(|it| &it.region)
    }

    /// Iterates over the contiguous pieces that make up the `bytes` bytes from `offset` on.
    ///
    /// # Panics
    /// Panics if the range extends beyond the end of the memory.
    #[inline]
    pub(crate) fn contiguous_pieces(
        &self,
        mut offset: u64,
        mut bytes: u64,
    ) -> impl Iterator<Item = MemoryPiece<'_>> {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at offset {offset} are outside of this memory of {} bytes",
            self.bytes
        );
        std::iter::from_fn(move || {
            let run = self.first_contiguous_piece(offset, bytes)?;
            offset += run.bytes as u64;
            bytes -= run.bytes as u64;
            Some(run)
        })
    }

    /// Returns the first contiguous piece of the `bytes` bytes from `offset` on; `None` if `bytes`
    /// is 0.
    #[inline]
    pub(crate) fn first_contiguous_piece(
        &self,
        offset: u64,
        bytes: u64,
    ) -> Option<MemoryPiece<'_>> {
        let at = match &self.segments[..] {
            [_] => 0,
            more => more.partition_point(|it| it.start <= offset).checked_sub(1)?,
        };
        let segment = self.segments.get(at).filter(|_| bytes > 0)?;
        let within = offset - segment.start;
        // At most the segment's length, which is a usize.
        let rest =
            (segment.region.len_bytes() as u64).checked_sub(within).filter(|&rest| rest > 0)?;
        let run_bytes = rest.min(bytes) as usize;
        Some(MemoryPiece { region: &segment.region, offset: within as usize, bytes: run_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_run_through_the_segments_without_empty_ones() {
        let segments = [vec![1; 3], vec![], vec![2; 2], vec![3; 1]];
        let joined = BulkMemory::joined(segments.map(BulkMemory::plain)).expect("four of them");
        assert_eq!((joined.len_bytes(), joined.segments_count()), (6, 4));
        assert_eq!(joined.to_vec(), [1, 1, 1, 2, 2, 3]);
        joined.write(2, &[7, 8, 9]);
        assert_eq!(joined.to_vec(), [1, 1, 7, 8, 9, 3]);
        let lengths: Vec<usize> = joined.contiguous_pieces(1, 4).map(|run| run.bytes).collect();
        assert_eq!(lengths, [2, 2]);
        assert_eq!(joined.contiguous_pieces(6, 0).count(), 0);
        let vecs = joined.into_vecs().expect("nobody else has it");
        assert_eq!(vecs, [vec![1, 1, 7], vec![], vec![8, 9], vec![3]]);
    }

    #[test]
    fn into_vecs_returns_the_vectors_only_to_the_last_holder() {
        let memory = BulkMemory::plain(vec![5; 10]);
        let clone = memory.clone();
        let memory = memory.into_vecs().expect_err("there is a clone");
        drop(clone);
        let joined = BulkMemory::joined([memory.clone()]).expect("join the memories");
        let memory = memory.into_vecs().expect_err("it is part of another");
        drop(joined);
        assert_eq!(memory.into_vecs().expect("it is free"), [vec![5; 10]]);
    }

    #[test]
    #[should_panic(expected = "outside of this memory")]
    fn range_outside_of_the_memory_panics() {
        BulkMemory::plain(vec![0; 10]).read(9, &mut [0; 2]);
    }
}
