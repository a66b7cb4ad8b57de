//! Values in slices: the slots of a ring between two positions, which are one or two pieces of
//! memory.

use super::{Consumer, Producer, SpscShared};
use crate::{ChunkError, stage};
use core::marker::PhantomData;
use core::{fmt, ptr, slice};

/// Memory of consecutive slots, as two arrays because it may wrap around. The second begins with
/// the first slot of the ring, or is empty.
struct Pieces<T> {
    first: *mut T,
    first_len: usize,
    second: *mut T,
    second_len: usize,
}

impl<T> Pieces<T> {
    /// Returns the memory of the slots from `position` on. `len` is at most the number of slots of
    /// the ring.
    fn new(shared: &SpscShared<T>, position: u64, len: usize) -> Self {
        let row = shared.row(position);
        let first_len = len.min(shared.mask as usize + 1 - row);
        Self {
            first: shared.rows.slot_pointer(row),
            first_len,
            second: shared.rows.slot_pointer(0),
            second_len: len - first_len,
        }
    }

    /// Returns the slots as slices.
    ///
    /// # Safety
    /// The slots hold values, and no other thread accesses them during `'a`; this thread writes
    /// none of them.
    unsafe fn as_slices<'a>(&self) -> (&'a [T], &'a [T]) {
        // SAFETY: new() took the pointer and the length from the allocation of the rows, which are
        // aligned for T; the slots are filled and not written, as the caller guarantees.
        let first = unsafe { slice::from_raw_parts(self.first, self.first_len) };
        // SAFETY: as for the first.
        let second = unsafe { slice::from_raw_parts(self.second, self.second_len) };
        (first, second)
    }

    /// Returns the slots as slices to write.
    ///
    /// # Safety
    /// The slots hold values, and nothing else accesses them during `'a`.
    unsafe fn as_mut_slices<'a>(&self) -> (&'a mut [T], &'a mut [T]) {
        // SAFETY: new() took the pointer and the length from the allocation of the rows, which are
        // aligned for T; the slots are filled and not accessed elsewhere, as the caller guarantees.
        let first = unsafe { slice::from_raw_parts_mut(self.first, self.first_len) };
        // SAFETY: as for the first, of which it has no slot: both have at most as many slots as the
        // ring has rows.
        let second = unsafe { slice::from_raw_parts_mut(self.second, self.second_len) };
        (first, second)
    }
}

impl<T: Copy> Producer<T> {
    /// Returns a chunk of `count` vacant slots, which are written in place and then pushed
    /// together. They are set to default values first.
    ///
    /// ```
    /// let (mut producer, mut consumer) = handover_ring::spsc::ring::<u8>(8)?;
    /// let mut chunk = producer.write_chunk(5)?;
    /// let (first, _second) = chunk.as_mut_slices(); // the second is empty unless the chunk wraps around
    /// first[..3].copy_from_slice(b"abc");
    /// chunk.commit(3); // pushes three values
    /// let chunk = consumer.read_chunk(3)?;
    /// assert_eq!(chunk.as_slices().0, b"abc");
    /// chunk.commit_all();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ChunkError::TooFew`] if fewer than `count` slots were vacant at some moment during the
    /// call, [`ChunkError::Closed`] for ever once the ring is closed.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A store of each slot, and a load of the consumer's line if fewer slots are vacant by the
    /// position last read. To push values that lie in a slice, [`push_slice`](Self::push_slice)
    /// writes each slot once only.
    pub fn write_chunk(&mut self, count: usize) -> Result<WriteChunk<'_, T>, ChunkError>
    where
        T: Default,
    {
        let available = self.vacant_slots(count);
        if self.is_closed() || available < count {
            let closed = self.shared.publish_and_check_closed(self.tail);
            return Err(if closed { ChunkError::Closed } else { ChunkError::TooFew { available } });
        }
        let pieces = Pieces::new(&self.shared, self.tail, count);
        for (first, len) in [(pieces.first, pieces.first_len), (pieces.second, pieces.second_len)] {
            for index in 0..len {
                // SAFETY: `index < len`, so that the slot is one of the `count` from the tail on,
                // which vacant_slots() found below the limit: the consumer has taken their values,
                // and accesses them once published.
                unsafe { first.wrapping_add(index).write(T::default()) };
            }
        }
        Ok(WriteChunk { producer: self, len: count, values: PhantomData })
    }

    /// Pushes the values of a slice, in order, until the ring is full; returns the number pushed.
    ///
    /// If fewer than all values were pushed, the ring is full or closed; call
    /// [`is_closed`](Self::is_closed) to find out.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// One or two copies of memory, and one store to the producer's line for all values.
    pub fn push_slice(&mut self, values: &[T]) -> usize {
        let vacant = if self.is_closed() { 0 } else { self.vacant_slots(values.len()) };
        let (pushed, refused) = values.split_at(vacant.min(values.len()));
        let pieces = Pieces::new(&self.shared, self.tail, pushed.len());
        let (first, second) = pushed.split_at(pieces.first_len);
        // SAFETY: `first` has `first_len` values. The slots are among those that vacant_slots()
        // found below the limit: the consumer has taken their values, and accesses them again once
        // they are published.
        unsafe { ptr::copy_nonoverlapping(first.as_ptr(), pieces.first, first.len()) };
        // SAFETY: as for the first; `second` has `second_len` values.
        unsafe { ptr::copy_nonoverlapping(second.as_ptr(), pieces.second, second.len()) };
        self.tail += pushed.len() as u64;
        self.shared.publish_rest(self.tail);
        if !refused.is_empty() {
            self.shared.publish_and_check_closed(self.tail);
        }
        pushed.len()
    }

    /// Returns the number of vacant slots; reads the consumer's position if fewer than `wanted` are
    /// known.
    fn vacant_slots(&mut self, wanted: usize) -> usize {
        if self.limit - self.tail < wanted as u64 {
            self.limit = self.shared.refresh_limit();
        }
        (self.limit - self.tail) as usize
    }
}

impl<T> Consumer<T> {
    /// Returns a chunk of the `count` oldest values, which are read in place and then popped
    /// together.
    ///
    /// # Errors
    /// [`ChunkError::TooFew`] if fewer than `count` values were ready, [`ChunkError::Closed`] if no
    /// more can come.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the producer's line if fewer values are known to be ready.
    pub fn read_chunk(&mut self, count: usize) -> Result<ReadChunk<'_, T>, ChunkError> {
        // Before the count: no value comes after the producer has sealed the ring.
        let is_sealed = self.is_sealed();
        let available = self.ready_values(count);
        if available >= count {
            return Ok(ReadChunk { consumer: self, len: count, values: PhantomData });
        }
        Err(if is_sealed { ChunkError::Closed } else { ChunkError::TooFew { available } })
    }

    /// Pops values into a slice until the slice is full or no more are ready. Returns the number
    /// popped.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// One or two copies of memory, and one store to the consumer's line for all values.
    pub fn pop_slice(&mut self, values: &mut [T]) -> usize
    where
        T: Copy,
    {
        let popped = self.ready_values(values.len()).min(values.len());
        if popped > 0 {
            let chunk = ReadChunk { consumer: self, len: popped, values: PhantomData };
            let (first, second) = chunk.as_slices();
            values[..first.len()].copy_from_slice(first);
            values[first.len()..popped].copy_from_slice(second);
            chunk.commit_all();
        }
        popped
    }

    /// Returns the number of values that are ready. Reads the producer's position if fewer than
    /// `wanted` are known.
    fn ready_values(&mut self, wanted: usize) -> usize {
        if self.ready - self.head < wanted as u64 {
            self.read_tail();
        }
        (self.ready - self.head) as usize
    }
}

/// Vacant slots at the end of a ring, to be written in place and pushed by
/// [`commit`](Self::commit). If it is dropped, nothing is pushed.
#[must_use = "a chunk pushes nothing unless it is committed"]
pub struct WriteChunk<'a, T: Copy> {
    producer: &'a mut Producer<T>,
    len: usize,
    /// Makes the chunk `Sync` only if `T` is, as the chunk gives access to values.
    values: PhantomData<&'a mut T>,
}

impl<T: Copy> WriteChunk<'_, T> {
    /// Returns the slots as two slices, in the order in which they are popped. The second is empty
    /// unless the chunk goes beyond the end of the ring's memory.
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        let pieces = Pieces::new(&self.producer.shared, self.producer.tail, self.len);
        // SAFETY: write_chunk() wrote default values to these slots, which lie between the tail and
        // the limit; the consumer does not access them before commit(), which consumes the chunk
        // that the slices borrow mutably.
        unsafe { pieces.as_mut_slices() }
    }

    /// Returns the number of slots.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Pushes the first `count` values.
    ///
    /// # Panics
    /// If the chunk has fewer than `count` slots; nothing is pushed.
    pub fn commit(self, count: usize) {
        assert!(count <= self.len, "cannot commit {count} values of a chunk of {}", self.len);
        self.producer.tail += count as u64;
        self.producer.shared.publish_rest(self.producer.tail);
    }

    /// Pushes all values.
    pub fn commit_all(self) {
        let count = self.len;
        self.commit(count);
    }
}

impl<T: Copy> fmt::Debug for WriteChunk<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spsc::WriteChunk({} slots)", self.len)
    }
}

/// Oldest values of a ring, to be read in place and popped by [`commit`](Self::commit). If it is
/// dropped, all stay in the ring.
///
/// Sharing a chunk between threads needs `T: Sync`, as sharing a `&[T]` does.
#[must_use = "a chunk pops nothing unless it is committed"]
pub struct ReadChunk<'a, T> {
    consumer: &'a mut Consumer<T>,
    len: usize,
    /// Makes the chunk `Sync` only if `T` is, as the chunk gives access to values.
    values: PhantomData<&'a mut T>,
}

impl<T> ReadChunk<'_, T> {
    /// Returns the values as two slices, the oldest first. The second is empty unless the chunk
    /// goes beyond the end of the ring's memory.
    pub fn as_slices(&self) -> (&[T], &[T]) {
        // SAFETY: read_chunk() found `len` values from the head on to be ready, which read_tail()
        // has acquired; they are taken, and their slots released, by commit() only, which consumes
        // the chunk that the slices borrow.
        unsafe { self.pieces().as_slices() }
    }

    /// Returns the values as two slices, like [`as_slices`](Self::as_slices), to change them in
    /// place.
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        // SAFETY: as in as_slices(); the slices borrow the chunk mutably.
        unsafe { self.pieces().as_mut_slices() }
    }

    fn pieces(&self) -> Pieces<T> {
        Pieces::new(&self.consumer.shared, self.consumer.head, self.len)
    }

    /// Returns the number of values.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Pops and drops the first `count` values.
    ///
    /// # Panics
    /// If the chunk has fewer than `count` values, which then stay; or if dropping a value panics:
    /// that value and those before it have been popped.
    ///
    /// # Cost
    /// One store to the consumer's line; for values with a destructor, one call each.
    pub fn commit(self, count: usize) {
        assert!(count <= self.len, "cannot commit {count} values of a chunk of {}", self.len);
        if core::mem::needs_drop::<T>() {
            self.consumer.pop_batch(count, drop);
            return;
        }
        self.consumer.head += count as u64;
        stage::record_popped_by_one(self.consumer.head, &*self.consumer.shared);
        self.consumer.release_slots();
    }

    /// Pops and drops all values.
    pub fn commit_all(self) {
        let count = self.len;
        self.commit(count);
    }
}

impl<T> fmt::Debug for ReadChunk<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spsc::ReadChunk({} values)", self.len)
    }
}
