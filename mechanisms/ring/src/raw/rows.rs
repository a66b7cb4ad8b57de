//! Memory of a ring: slots in a row, for `mpsc` each with a word beside it, so that the word that
//! says that a slot is filled travels to the other CPU on the same cache line as the value.
//!
//! ```text
//! spsc:   │ slot │ slot │ slot │ slot │ slot │ slot │ slot │ slot │    eight slots of 8 bytes on one line
//! mpsc:   │ word │ slot │ word │ slot │ word │ slot │ word │ slot │    four, with their words
//! ```
//!
//! The words are zero at first. The slots are vacant; the ring keeps track of the filled ones.

use crate::CapacityError;
use core::fmt;
use core::mem::MaybeUninit;
use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::AtomicU64;

/// Memory of one value: loom's cell in a loom model, otherwise a plain cell.
pub(crate) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Implementation of `Rows` outside loom models.
#[cfg(not(handover_loom))]
mod memory {
    use super::*;
    use core::marker::PhantomData;
    use core::ptr::NonNull;
    use handover_base::prefetch;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    /// Size of a cache line, which CPUs transfer as a unit.
    const LINE_BYTES: usize = 64;

    /// Alignment of the rows in bytes. Many processors fetch a cache line together with its
    /// neighbour, which must therefore hold no other data.
    const ALIGN_BYTES: usize = 128;

    /// Memory of a ring: an array of rows, each with a slot for a value. If `WORDS`, an atomic word
    /// precedes each slot.
    pub(crate) struct Rows<T, const WORDS: bool> {
        base: NonNull<u8>,
        layout: Layout,
        rows_count: usize,
        /// Makes `Rows` invariant in `T`, as one end writes slots that the other reads.
        /// `PhantomData<T>` would be covariant, and let a producer of `&'static str` push a shorter
        /// `&str`.
        slots: PhantomData<*mut T>,
    }

    impl<T, const WORDS: bool> Rows<T, WORDS> {
        /// Offset in bytes of the slot in its row.
        const SLOT_OFFSET: usize =
            if WORDS { size_of::<AtomicU64>().next_multiple_of(align_of::<T>()) } else { 0 };

        /// Distance in bytes between two rows. With a word, rows share a cache line if they fit,
        /// and no row lies across two lines.
        const ROW_BYTES: usize = {
            let row_bytes = Self::SLOT_OFFSET + size_of::<T>();
            if !WORDS {
                row_bytes
            } else if row_bytes > LINE_BYTES {
                row_bytes.next_multiple_of(if align_of::<T>() > LINE_BYTES {
                    align_of::<T>()
                } else {
                    LINE_BYTES
                })
            } else {
                row_bytes.next_power_of_two()
            }
        };

        /// Number of rows in a cache line, a power of two. It is approximate if a row's size is not
        /// a power of two.
        pub(crate) const ROWS_PER_LINE: u64 = {
            let row_bytes = Self::ROW_BYTES.next_power_of_two();
            if row_bytes < LINE_BYTES { (LINE_BYTES / row_bytes) as u64 } else { 1 }
        };

        /// Allocates `rows_count` rows with all words zero; `None` if there is not enough memory.
        pub(crate) fn new(rows_count: usize) -> Option<Self> {
            let bytes = rows_count.checked_mul(Self::ROW_BYTES)?.max(1);
            let align = ALIGN_BYTES.max(align_of::<T>());
            let layout = Layout::from_size_align(bytes, align).ok()?;
            // SAFETY: the layout's size is at least 1.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some(Self { base, layout, rows_count, slots: PhantomData })
        }

        /// Returns the slot of the row with index `row`.
        ///
        /// # Safety
        /// `row` is below the count that was passed to `new`.
        #[inline(always)]
        pub(crate) unsafe fn slot(&self, row: usize) -> &Slot<T> {
            debug_assert!(row < self.rows_count);
            // SAFETY: `row` is in range, as the caller guarantees, so that the slot lies within the
            // allocation.
            let slot = unsafe { self.base.add(row * Self::ROW_BYTES + Self::SLOT_OFFSET) };
            // SAFETY: the slot is aligned, since SLOT_OFFSET and ROW_BYTES are multiples of T's
            // alignment; MaybeUninit needs no initial value, and UnsafeCell allows writes behind a
            // shared reference.
            unsafe { slot.cast::<Slot<T>>().as_ref() }
        }

        /// Prefetches the cache line of a row for writing. This is a hint to the CPU and accesses
        /// nothing.
        #[inline(always)]
        pub(crate) fn prefetch_for_write(&self, row: usize) {
            prefetch::for_write(self.address(row));
        }

        /// Prefetches the cache line of a row for reading. This is a hint to the CPU and accesses
        /// nothing.
        #[inline(always)]
        pub(crate) fn prefetch_for_read(&self, row: usize) {
            prefetch::for_read(self.address(row));
        }

        /// Returns the address of the row with index `row`, which may be out of range.
        #[inline(always)]
        fn address(&self, row: usize) -> *const u8 {
            self.base.as_ptr().wrapping_add(row * Self::ROW_BYTES)
        }
    }

    impl<T> Rows<T, false> {
        /// Returns the address of the slot of the row with index `row`. The slots of all rows are
        /// an array.
        #[inline(always)]
        pub(crate) fn slot_pointer(&self, row: usize) -> *mut T {
            // A slot is as large as its value, and so is the distance of two rows without words.
            self.base.as_ptr().cast::<T>().wrapping_add(row)
        }
    }

    impl<T> Rows<T, true> {
        /// Returns the word of the row with index `row`.
        ///
        /// # Safety
        /// `row` is below the count that was passed to `new`.
        #[inline(always)]
        pub(crate) unsafe fn word(&self, row: usize) -> &AtomicU64 {
            debug_assert!(row < self.rows_count);
            // SAFETY: `row` is in range, as the caller guarantees, so that it lies within the
            // allocation.
            let word = unsafe { self.base.add(row * Self::ROW_BYTES) };
            // SAFETY: a row begins with its word, which new() zeroed and which is aligned, since
            // the base and the stride are multiples of 8; it is only accessed as an atomic.
            unsafe { word.cast::<AtomicU64>().as_ref() }
        }
    }

    impl<T, const WORDS: bool> Drop for Rows<T, WORDS> {
        fn drop(&mut self) {
            // SAFETY: new() allocated it with this layout, and only drop frees it.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
}

/// Substitute for `Rows` under loom, whose atomics and cells must be created one by one.
#[cfg(handover_loom)]
mod memory {
    use super::*;

    pub(crate) struct Rows<T, const WORDS: bool>(Vec<(AtomicU64, Slot<T>)>);

    impl<T, const WORDS: bool> Rows<T, WORDS> {
        /// Number of rows on a simulated cache line, enough to have partly filled lines.
        pub(crate) const ROWS_PER_LINE: u64 = 2;

        pub(crate) fn new(rows_count: usize) -> Option<Self> {
            let row = || (AtomicU64::new(0), Slot::new(MaybeUninit::uninit()));
            Some(Self((0..rows_count).map(|_| row()).collect()))
        }

        pub(crate) unsafe fn word(&self, row: usize) -> &AtomicU64 {
            &self.0[row].0
        }

        pub(crate) unsafe fn slot(&self, row: usize) -> &Slot<T> {
            &self.0[row].1
        }

        pub(crate) fn prefetch_for_write(&self, _: usize) {}

        pub(crate) fn prefetch_for_read(&self, _: usize) {}
    }
}

pub(crate) use memory::Rows;

// SAFETY: the rows own their memory like a Box; their values may move to another thread if T: Send.
unsafe impl<T: Send, const WORDS: bool> Send for Rows<T, WORDS> {}

// SAFETY: words are atomics. Slots are only accessed by the rings' unsafe code, which lets one
// thread at a time into a slot; this moves values between threads, as T: Send allows, and never
// shares one.
unsafe impl<T: Send, const WORDS: bool> Sync for Rows<T, WORDS> {}

/// Writes a value into a slot.
///
/// # Safety
/// The slot is vacant, and no other thread accesses it now.
#[inline(always)]
pub(crate) unsafe fn write_slot<T>(slot: &Slot<T>, value: T) {
    slot.with_mut(|slot| {
        // SAFETY: no other thread accesses this slot, as the caller guarantees.
        unsafe { (*slot).write(value) };
    });
}

/// Moves the value out of a slot, which is then vacant.
///
/// # Safety
/// The slot was filled, which happens before this call, and no other thread accesses it now.
#[inline(always)]
pub(crate) unsafe fn take_from_slot<T>(slot: &Slot<T>) -> T {
    slot.with_mut(|slot| {
        // SAFETY: no other thread accesses this slot, as the caller guarantees.
        let slot = unsafe { &*slot };
        // SAFETY: the slot is filled, as the caller guarantees, and counts as vacant from now on.
        unsafe { slot.assume_init_read() }
    })
}

/// Returns a reference to the value in a slot.
///
/// # Safety
/// The slot was filled, which happens before this call, and nothing writes or takes the value
/// during `'a`.
#[inline(always)]
pub(crate) unsafe fn value_in_slot<'a, T>(slot: &'a Slot<T>) -> &'a T {
    slot.with(|slot| {
        // SAFETY: nothing writes this slot during 'a, as the caller guarantees.
        let slot: &'a MaybeUninit<T> = unsafe { &*slot };
        // SAFETY: the slot is filled, as the caller guarantees.
        unsafe { slot.assume_init_ref() }
    })
}

/// Returns the error of a ring whose slots could not be allocated.
pub(crate) fn out_of_memory<T>(slots_count: u32) -> CapacityError {
    CapacityError::OutOfMemory { slots_count, slot_bytes: size_of::<T>() }
}

/// Writes the debug text of an end of a ring.
pub(super) fn fmt_end(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    len: usize,
    slots_count: usize,
    is_closed: bool,
) -> fmt::Result {
    write!(f, "{name}({len} of {slots_count} slots used, is_closed: {is_closed})")
}

/// Calls `next`, which drops one value, until it returns `false`. If a drop panics, the remaining
/// values are dropped while the panic unwinds; a second panic aborts, as usual.
pub(crate) fn drop_all_values(mut next: impl FnMut() -> bool) {
    /// Guard that calls the function for the remaining values, even if dropping one panics.
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
