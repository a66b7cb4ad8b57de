//! The memory of a ring: rows of a word and some slots, so that what says that a slot is filled
//! travels to the other CPU on the same cache line as what it was filled with.
//!
//! ```text
//! DENSE:   │ word │ slot │ slot │ slot │ slot │ slot │ slot │ slot │   one line (slots of 8 bytes)
//! single:  │ word │ slot │ word │ slot │ word │ slot │ word │ slot │   four rows on one line
//! ```
//!
//! The words are zero at first; the slots are vacant, and whoever uses them knows which are not.

use crate::CapacityError;
use core::mem::MaybeUninit;
use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::AtomicU64;

/// What one CPU takes from another at a time.
#[cfg(not(handover_loom))]
const LINE_BYTES: usize = 64;

/// A slot: loom's cell under the model, a bare one otherwise.
pub(crate) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

#[cfg(not(handover_loom))]
mod memory {
    use super::*;
    use core::marker::PhantomData;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    /// Fetching a line brings its neighbour too on many machines: nothing else shall be there.
    const ALIGN_BYTES: usize = 128;

    /// How many rows ahead a producer asks for.
    const AHEAD: usize = 4;

    /// The rows; with `DENSE` as many slots behind each word as a cache line holds, else one.
    pub(crate) struct Rows<T, const DENSE: bool> {
        base: NonNull<u8>,
        layout: Layout,
        rows_count: usize,
        slots: PhantomData<T>,
    }

    impl<T, const DENSE: bool> Rows<T, DENSE> {
        /// Where the first slot lies.
        const FIRST: usize = size_of::<AtomicU64>().next_multiple_of(align_of::<T>());

        /// Slots in a row. What has no size gets a word each: a place must differ from the next.
        pub(crate) const SLOTS: usize =
            if !DENSE || size_of::<T>() == 0 || Self::FIRST + size_of::<T>() > LINE_BYTES {
                1
            } else {
                (LINE_BYTES - Self::FIRST) / size_of::<T>()
            };

        /// Without what is left over at the end.
        const ROW_BYTES: usize = Self::FIRST + Self::SLOTS * size_of::<T>();

        /// From row to row. Single rows share a line where they fit, and never lie across two.
        const STRIDE: usize = if Self::SLOTS > 1 {
            LINE_BYTES
        } else if Self::ROW_BYTES > LINE_BYTES {
            Self::ROW_BYTES.next_multiple_of(if align_of::<T>() > LINE_BYTES {
                align_of::<T>()
            } else {
                LINE_BYTES
            })
        } else {
            Self::ROW_BYTES.next_power_of_two()
        };

        /// So many rows, with all words zero. `None` if there is not so much memory.
        pub(crate) fn new(rows_count: usize) -> Option<Self> {
            let bytes = rows_count.checked_mul(Self::STRIDE).filter(|&bytes| bytes > 0)?;
            let align = ALIGN_BYTES.max(align_of::<T>());
            let layout = Layout::from_size_align(bytes, align).ok()?;
            // SAFETY: the layout has a size above zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some(Self { base, layout, rows_count, slots: PhantomData })
        }

        /// The word of a row.
        ///
        /// # Safety
        /// `row` is below the count that `new` was given.
        #[inline(always)]
        pub(crate) unsafe fn word(&self, row: usize) -> &AtomicU64 {
            debug_assert!(row < self.rows_count);
            // SAFETY: the row lies within the allocation, as the caller promises.
            let word = unsafe { self.base.add(row * Self::STRIDE) };
            // SAFETY: a row begins with its word, which was zeroed and is aligned, since the base
            // and the stride are multiples of 8; it is only ever used as an atomic.
            unsafe { word.cast::<AtomicU64>().as_ref() }
        }

        /// A slot of a row.
        ///
        /// # Safety
        /// `row` is below the count that `new` was given, `slot` below `SLOTS`.
        #[inline(always)]
        pub(crate) unsafe fn slot(&self, row: usize, slot: usize) -> &Slot<T> {
            debug_assert!(row < self.rows_count && slot < Self::SLOTS);
            let offset = row * Self::STRIDE + Self::FIRST + slot * size_of::<T>();
            // SAFETY: the slot lies within the allocation, as the caller promises.
            let slot = unsafe { self.base.add(offset) };
            // SAFETY: it is aligned, since FIRST and STRIDE are multiples of T's alignment; a slot
            // needs no initial value; it is a cell, so that a shared reference says nothing of it.
            unsafe { slot.cast::<Slot<T>>().as_ref() }
        }
    }

    /// A place in the rows, going around: what a ring's end keeps instead of an index, so that it need
    /// not reckon where that lies. One address tells the slot and the row: a row of several slots is
    /// an aligned line, and in a row of one the word lies right before it.
    pub(crate) struct Cursor<T> {
        place: NonNull<u8>,
        first: NonNull<u8>,
        last: NonNull<u8>,
        slots: PhantomData<T>,
    }

    impl<T> Clone for Cursor<T> {
        #[inline(always)]
        fn clone(&self) -> Self {
            Self { ..*self }
        }
    }

    // SAFETY: a place and no more; what is done there has a safety contract of its own.
    unsafe impl<T: Send> Send for Cursor<T> {}
    // SAFETY: as above; nothing is done through a shared cursor but reading atomics.
    unsafe impl<T: Send> Sync for Cursor<T> {}

    impl<T> Rows<T, true> {
        /// The first slot of the first row.
        pub(crate) fn cursor(&self) -> Cursor<T> {
            // SAFETY: the last row lies within the allocation.
            let last = unsafe { self.base.add((self.rows_count - 1) * Self::STRIDE) };
            // SAFETY: a row is at least as long as FIRST.
            let place = unsafe { self.base.add(Self::FIRST) };
            Cursor { place, first: self.base, last, slots: PhantomData }
        }
    }

    impl<T> Cursor<T> {
        const FIRST: usize = Rows::<T, true>::FIRST;
        const SLOTS: usize = Rows::<T, true>::SLOTS;
        const END: usize = Rows::<T, true>::ROW_BYTES;

        /// How far the place lies behind the beginning of its row.
        #[inline(always)]
        fn offset(&self) -> usize {
            if Self::SLOTS > 1 { self.place.addr().get() % LINE_BYTES } else { Self::FIRST }
        }

        /// The beginning of the row.
        #[inline(always)]
        fn row(&self) -> NonNull<u8> {
            // SAFETY: a place lies in a row, so far behind its beginning.
            unsafe { self.place.sub(self.offset()) }
        }

        /// Whether this is the first slot of its row.
        #[inline(always)]
        pub(crate) fn is_first(&self) -> bool {
            self.offset() == Self::FIRST
        }

        /// Slots from here to the end of the row.
        #[inline(always)]
        pub(crate) fn slots_left(&self) -> usize {
            if Self::SLOTS > 1 { (Self::END - self.offset()) / size_of::<T>() } else { 1 }
        }

        /// On to the next slot; whether that lies in another row.
        #[inline(always)]
        pub(crate) fn advance(&mut self) -> bool {
            if Self::SLOTS > 1 {
                // SAFETY: a place lies in a row, and the end of a row within the allocation or at its
                // end.
                let next = unsafe { self.place.add(size_of::<T>()) };
                if next.addr().get() % LINE_BYTES != Self::END % LINE_BYTES {
                    self.place = next;
                    return false;
                }
                seldom();
            }
            *self = self.next_row();
            true
        }

        /// On by so many slots, at most by all that are left in this row; whether that leads to
        /// another row.
        #[inline(always)]
        pub(crate) fn skip(&mut self, count: usize) -> bool {
            if count == self.slots_left() {
                *self = self.next_row();
                return true;
            }
            // SAFETY: so many slots follow in this row, and another one.
            self.place = unsafe { self.place.add(count * size_of::<T>()) };
            false
        }

        /// A slot further on in the row.
        ///
        /// # Safety
        /// The rows are still there, and so many slots are left in this one, and another one.
        #[inline(always)]
        pub(crate) unsafe fn slot_at(&self, ahead: usize) -> &Slot<T> {
            // SAFETY: within the row, as the caller promises.
            let slot = unsafe { self.place.add(ahead * size_of::<T>()) };
            // SAFETY: as in Rows::slot().
            unsafe { slot.cast::<Slot<T>>().as_ref() }
        }

        /// The first slot of the next row.
        #[inline(always)]
        pub(crate) fn next_row(&self) -> Self {
            let row = self.row();
            let row = if row == self.last {
                self.first
            } else {
                // SAFETY: not the last, so there is one behind it.
                unsafe { row.add(Rows::<T, true>::STRIDE) }
            };
            // SAFETY: a row is at least as long as FIRST.
            let place = unsafe { row.add(Self::FIRST) };
            Self { place, ..*self }
        }

        /// Asks for a row further on, to write it soon.
        ///
        /// A hint: it reads and writes nothing, at any address, and so behind the last row too.
        #[inline(always)]
        pub(crate) fn claim_ahead(&self) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                let ahead = self.place.as_ptr().wrapping_add(AHEAD * Rows::<T, true>::STRIDE);
                // SAFETY: PREFETCHW accesses nothing in the sense of the language, cannot fault, and is
                // a NOP where the processor does not have it.
                unsafe {
                    core::arch::asm!("prefetchw [{}]", in(reg) ahead,
                        options(nostack, preserves_flags, readonly));
                }
            }
        }

        /// The word of the row.
        ///
        /// # Safety
        /// The rows are still there.
        #[inline(always)]
        pub(crate) unsafe fn word(&self) -> &AtomicU64 {
            // SAFETY: as in Rows::word(): a cursor is always at a row.
            unsafe { self.row().cast::<AtomicU64>().as_ref() }
        }

        /// The slot.
        ///
        /// # Safety
        /// The rows are still there.
        #[inline(always)]
        pub(crate) unsafe fn slot(&self) -> &Slot<T> {
            // SAFETY: as in Rows::slot(): a cursor is always at a slot of a row.
            unsafe { self.place.cast::<Slot<T>>().as_ref() }
        }
    }

    /// Has the compiler branch to what follows, where it would reckon both ways and choose, and make
    /// each place depend on the last by that.
    #[cold]
    #[inline]
    fn seldom() {}

    impl<T, const DENSE: bool> Drop for Rows<T, DENSE> {
        fn drop(&mut self) {
            // SAFETY: allocated by new() with this layout, and freed here only.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
}

/// The same under loom, whose words and cells have to be made one by one: small, and no pointers.
#[cfg(handover_loom)]
mod memory {
    use super::*;
    use std::sync::Arc;

    pub(crate) struct Rows<T, const DENSE: bool>(Arc<RowsOf<T>>);

    type RowsOf<T> = Vec<(AtomicU64, Vec<Slot<T>>)>;

    impl<T, const DENSE: bool> Rows<T, DENSE> {
        /// Two are enough to have rows that are partly filled.
        pub(crate) const SLOTS: usize = if DENSE { 2 } else { 1 };

        pub(crate) fn new(rows_count: usize) -> Option<Self> {
            let slots = || (0..Self::SLOTS).map(|_| Slot::new(MaybeUninit::uninit())).collect();
            Some(Self(Arc::new((0..rows_count).map(|_| (AtomicU64::new(0), slots())).collect())))
        }

        pub(crate) unsafe fn word(&self, row: usize) -> &AtomicU64 {
            &self.0[row].0
        }

        pub(crate) unsafe fn slot(&self, row: usize, slot: usize) -> &Slot<T> {
            &self.0[row].1[slot]
        }
    }

    pub(crate) struct Cursor<T> {
        row: usize,
        slot: usize,
        rows: Arc<RowsOf<T>>,
    }

    impl<T> Clone for Cursor<T> {
        fn clone(&self) -> Self {
            Self { row: self.row, slot: self.slot, rows: Arc::clone(&self.rows) }
        }
    }

    // SAFETY: as Rows.
    unsafe impl<T: Send> Send for Cursor<T> {}
    // SAFETY: as Rows.
    unsafe impl<T: Send> Sync for Cursor<T> {}

    impl<T> Rows<T, true> {
        pub(crate) fn cursor(&self) -> Cursor<T> {
            Cursor { row: 0, slot: 0, rows: Arc::clone(&self.0) }
        }
    }

    impl<T> Cursor<T> {
        pub(crate) fn is_first(&self) -> bool {
            self.slot == 0
        }

        pub(crate) fn slots_left(&self) -> usize {
            Rows::<T, true>::SLOTS - self.slot
        }

        pub(crate) fn advance(&mut self) -> bool {
            self.slot += 1;
            let crosses = self.slot == Rows::<T, true>::SLOTS;
            if crosses {
                *self = self.next_row();
            }
            crosses
        }

        pub(crate) fn claim_ahead(&self) {}

        pub(crate) fn skip(&mut self, count: usize) -> bool {
            self.slot += count;
            let crosses = self.slot == Rows::<T, true>::SLOTS;
            if crosses {
                *self = self.next_row();
            }
            crosses
        }

        pub(crate) unsafe fn slot_at(&self, ahead: usize) -> &Slot<T> {
            &self.rows[self.row].1[self.slot + ahead]
        }

        pub(crate) fn next_row(&self) -> Self {
            let row = (self.row + 1) % self.rows.len();
            Self { row, slot: 0, rows: Arc::clone(&self.rows) }
        }

        pub(crate) unsafe fn word(&self) -> &AtomicU64 {
            &self.rows[self.row].0
        }

        pub(crate) unsafe fn slot(&self) -> &Slot<T> {
            &self.rows[self.row].1[self.slot]
        }
    }
}

pub(crate) use memory::{Cursor, Rows};

// SAFETY: the memory is owned like a Box's; what lies in it may go to another thread if T may.
unsafe impl<T: Send, const DENSE: bool> Send for Rows<T, DENSE> {}

// SAFETY: words are atomics, and slots are cells that are reached only through the unsafe of the
// algorithms, which let one thread at a time into a slot; that moves values between threads, as
// T: Send allows, and never shares one.
unsafe impl<T: Send, const DENSE: bool> Sync for Rows<T, DENSE> {}

/// Puts a value into a slot.
///
/// # Safety
/// The slot is vacant, and no other thread reaches for it now.
#[inline(always)]
pub(crate) unsafe fn fill<T>(slot: &Slot<T>, value: T) {
    slot.with_mut(|slot| {
        // SAFETY: nobody else is in this slot, as the caller promises.
        unsafe { (*slot).write(value) };
    });
}

/// Takes the value out of a slot, which is vacant from then on.
///
/// # Safety
/// The slot is filled, what filled it happened before, and no other thread reaches for it now.
#[inline(always)]
pub(crate) unsafe fn take<T>(slot: &Slot<T>) -> T {
    slot.with_mut(|slot| {
        // SAFETY: nobody else is in this slot, as the caller promises.
        let slot = unsafe { &*slot };
        // SAFETY: it is filled, as the caller promises, and counts as vacant from here on.
        unsafe { slot.assume_init_read() }
    })
}

/// What a ring that cannot be had is refused with.
pub(crate) fn out_of_memory<T>(slots_count: u32) -> CapacityError {
    CapacityError::OutOfMemory { slots_count, slot_bytes: size_of::<T>() }
}

/// Calls `next` until it says false, although it may panic: what is left is dropped while the first
/// panic unwinds. A second one aborts, as ever.
pub(crate) fn drop_all(mut next: impl FnMut() -> bool) {
    struct Rest<F: FnMut() -> bool>(F);
    impl<F: FnMut() -> bool> Drop for Rest<F> {
        fn drop(&mut self) {
            while (self.0)() {}
        }
    }
    let rest = Rest(&mut next);
    while (rest.0)() {}
    core::mem::forget(rest);
}
