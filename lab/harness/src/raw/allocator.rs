//! Global allocator that counts the allocations of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// Allocations of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationCounts {
    /// Number of allocations and reallocations.
    pub allocations: u64,
    /// Number of bytes allocated; a reallocation counts the bytes by which the memory grows.
    pub bytes: u64,
}

thread_local! {
    /// Allocations of this thread through a [`CountingAllocator`].
    static COUNTS: Cell<AllocationCounts> =
        const { Cell::new(AllocationCounts { allocations: 0, bytes: 0 }) };
}

impl AllocationCounts {
    /// Returns the counts of the calling thread.
    pub(crate) fn of_this_thread() -> AllocationCounts {
        COUNTS.get()
    }

    /// Returns the allocations of the calling thread since `self` was read.
    pub(crate) fn since(self) -> AllocationCounts {
        let now = COUNTS.get();
        AllocationCounts {
            allocations: now.allocations - self.allocations,
            bytes: now.bytes - self.bytes,
        }
    }

    /// Counts an allocation of the calling thread.
    #[inline]
    fn add(bytes: usize) {
        let counts = COUNTS.get();
        COUNTS.set(AllocationCounts {
            allocations: counts.allocations + 1,
            bytes: counts.bytes + bytes as u64,
        });
    }
}

/// Returns `true` if the program's global allocator is a [`CountingAllocator`].
pub(crate) fn is_counting() -> bool {
    let before = AllocationCounts::of_this_thread();
    drop(black_box(Box::new(0_u8)));
    AllocationCounts::of_this_thread() != before
}

/// Runs `operation`, whose allocations are not counted.
pub(crate) fn without_counting<R>(operation: impl FnOnce() -> R) -> R {
    let before = AllocationCounts::of_this_thread();
    let result = operation();
    COUNTS.set(before);
    result
}

/// Global allocator that counts the allocations of each thread, and takes the memory from another
/// allocator.
///
/// If a benchmark program has it as its global allocator, each figure shows the allocations and the
/// allocated bytes of an operation.
///
/// ```
/// use handover_harness::CountingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
/// # fn main() {}
/// ```
///
/// # Cost
/// Two additions to thread-local variables for each allocation, and nothing for its release.
#[derive(Debug, Default)]
pub struct CountingAllocator<A = System>(A);

impl CountingAllocator {
    /// Creates an allocator that takes the memory from the system's allocator.
    #[must_use]
    pub const fn system() -> Self {
        CountingAllocator(System)
    }
}

impl<A> CountingAllocator<A> {
    /// Creates an allocator that takes the memory from `inner`.
    pub const fn new(inner: A) -> Self {
        CountingAllocator(inner)
    }
}

// SAFETY: every call goes unchanged to the inner allocator, whose result is returned. COUNTS is a
// thread-local cell with a constant initial value and without a destructor, so that counting
// neither allocates nor panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        AllocationCounts::add(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        AllocationCounts::add(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that this allocator, and therefore the inner one, returned
        // `memory` for `layout`.
        unsafe { self.0.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        AllocationCounts::add(size.saturating_sub(layout.size()));
        // SAFETY: the caller guarantees that the inner allocator returned `memory` for `layout`,
        // and that `size` is not 0 and does not overflow when it is rounded up to the alignment.
        unsafe { self.0.realloc(memory, layout, size) }
    }
}
