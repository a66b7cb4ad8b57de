//! The memory of a ring: slots in a row, for `mpsc` each with a word beside it, so that what says that it is
//! filled travels to the other CPU on the cache line of what it was filled with.
//!
//! ```text
//! spsc:   │ slot │ slot │ slot │ slot │ slot │ slot │ slot │ slot │    eight slots of 8 bytes on one line
//! mpsc:   │ word │ slot │ word │ slot │ word │ slot │ word │ slot │    four, with their words
//! ```
//!
//! The words are zero at first; the slots are vacant, and whoever uses them knows which are not.

use crate::CapacityError;
use core::mem::MaybeUninit;
use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::AtomicU64;

/// A slot: loom's cell under the model, a bare one otherwise.
pub(crate) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

#[cfg(not(handover_loom))]
mod memory {
    use super::*;
    use core::marker::PhantomData;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    /// What one CPU takes from another at a time.
    const LINE_BYTES: usize = 64;

    /// Fetching a line brings its neighbour too on many machines: nothing else shall be there.
    const ALIGN_BYTES: usize = 128;

    /// The rows: a slot each, with `WORDS` a word before it.
    pub(crate) struct Rows<T, const WORDS: bool> {
        base: NonNull<u8>,
        layout: Layout,
        rows_count: usize,
        /// Both ends share the slots, one writes what the other reads: invariant in `T`, as a shared
        /// cell is. `PhantomData<T>` would be covariant, and let a producer of `&'static str` push
        /// a shorter `&str`.
        slots: PhantomData<*mut T>,
    }

    impl<T, const WORDS: bool> Rows<T, WORDS> {
        /// How far the slot lies behind the beginning of its row.
        const FIRST: usize =
            if WORDS { size_of::<AtomicU64>().next_multiple_of(align_of::<T>()) } else { 0 };

        /// From row to row. With a word, rows share a line where they fit, and never lie across two.
        const STRIDE: usize = {
            let row_bytes = Self::FIRST + size_of::<T>();
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

        /// Rows on a line, a power of two: exactly, where a row's size is one too, and else nearly.
        pub(crate) const IN_LINE: u64 = {
            let row_bytes = Self::STRIDE.next_power_of_two();
            if row_bytes < LINE_BYTES { (LINE_BYTES / row_bytes) as u64 } else { 1 }
        };

        /// So many rows, with all words zero. `None` if there is not so much memory.
        pub(crate) fn new(rows_count: usize) -> Option<Self> {
            let bytes = rows_count.checked_mul(Self::STRIDE)?.max(1);
            let align = ALIGN_BYTES.max(align_of::<T>());
            let layout = Layout::from_size_align(bytes, align).ok()?;
            // SAFETY: the layout has a size above zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some(Self { base, layout, rows_count, slots: PhantomData })
        }

        /// The slot of a row.
        ///
        /// # Safety
        /// `row` is below the count that `new` was given.
        #[inline(always)]
        pub(crate) unsafe fn slot(&self, row: usize) -> &Slot<T> {
            debug_assert!(row < self.rows_count);
            // SAFETY: the slot lies within the allocation, as the caller promises.
            let slot = unsafe { self.base.add(row * Self::STRIDE + Self::FIRST) };
            // SAFETY: it is aligned, since FIRST and STRIDE are multiples of T's alignment; a slot
            // needs no initial value; it is a cell, so that a shared reference says nothing of it.
            unsafe { slot.cast::<Slot<T>>().as_ref() }
        }

        /// Asks for the line of a row, to write it soon. A hint: it reads and writes nothing.
        #[inline(always)]
        pub(crate) fn claim(&self, row: usize) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: PREFETCHW accesses nothing in the sense of the language, cannot fault at any
            // address, and is a NOP where the processor does not have it.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) self.address(row),
                    options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = self.address(row);
        }

        /// Asks for the line of a row, to read it soon. A hint: it reads and writes nothing.
        #[inline(always)]
        pub(crate) fn fetch(&self, row: usize) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: PREFETCHT0 accesses nothing in the sense of the language and cannot fault at any
            // address.
            unsafe {
                core::arch::asm!("prefetcht0 [{}]", in(reg) self.address(row),
                    options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = self.address(row);
        }

        /// Where a row lies, or would lie.
        #[inline(always)]
        fn address(&self, row: usize) -> *const u8 {
            self.base.as_ptr().wrapping_add(row * Self::STRIDE)
        }
    }

    impl<T> Rows<T, true> {
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
    }

    impl<T, const WORDS: bool> Drop for Rows<T, WORDS> {
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

    pub(crate) struct Rows<T, const WORDS: bool>(Vec<(AtomicU64, Slot<T>)>);

    impl<T, const WORDS: bool> Rows<T, WORDS> {
        /// Two are enough to have lines that are partly filled.
        pub(crate) const IN_LINE: u64 = 2;

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

        pub(crate) fn claim(&self, _: usize) {}

        pub(crate) fn fetch(&self, _: usize) {}
    }
}

pub(crate) use memory::Rows;

// SAFETY: the memory is owned like a Box's; what lies in it may go to another thread if T may.
unsafe impl<T: Send, const WORDS: bool> Send for Rows<T, WORDS> {}

// SAFETY: words are atomics, and slots are cells that are reached only through the unsafe of the
// algorithms, which let one thread at a time into a slot; that moves values between threads, as
// T: Send allows, and never shares one.
unsafe impl<T: Send, const WORDS: bool> Sync for Rows<T, WORDS> {}

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
