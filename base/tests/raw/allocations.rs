//! An allocator that counts, for the tests of several crates, which include this file by its path.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of allocations and reallocations by this thread.
pub(crate) fn allocations_count() -> usize {
    COUNT.get()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; the counter is a
// thread-local cell without constructor and destructor, so counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller guarantees a layout that is valid for `alloc`, and it is passed on
        // unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that `at` came from this allocator, and so from the
        // system's, with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as in dealloc; the caller also guarantees a valid new size.
        unsafe { System.realloc(at, layout, size) }
    }
}
