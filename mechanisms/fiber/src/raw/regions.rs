//! List of all slabs of stacks, for a signal handler that must find the stack at an address.

use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::ptr;

/// Addresses and layout of a slab of stacks. It is a node of a list that never shrinks, so that
/// signal handlers can search the list without locking.
pub(super) struct StackRegion {
    /// Lowest address of the slab.
    pub(super) start: usize,
    /// Size of the slab.
    pub(super) bytes: usize,
    /// Distance in bytes between two stacks.
    pub(super) stride: usize,
    pub(super) guard_bytes: usize,
    /// Number of different offsets at which stacks start in their uppermost page.
    pub(super) colours: usize,
    /// Size of the control block at the upper end of each stack.
    pub(super) head_bytes: usize,
    pub(super) next: *const StackRegion,
}

/// List of all slabs, the newest first.
static REGIONS: AtomicPtr<StackRegion> = AtomicPtr::new(ptr::null_mut());

/// Adds a slab to the list; sets the `next` of `region`.
pub(super) fn register_region(region: StackRegion) {
    // Relaxed: compared, not dereferenced.
    let mut next = REGIONS.load(Ordering::Relaxed);
    let region = Box::into_raw(Box::new(StackRegion { next, ..region }));
    // Release: publishes the region to the Acquire in find_region().
    while let Err(now) =
        REGIONS.compare_exchange_weak(next, region, Ordering::Release, Ordering::Relaxed)
    {
        next = now;
        // SAFETY: not published yet, so only this thread accesses it.
        unsafe { (*region).next = next };
    }
}

/// Returns the slab that contains the address `addr`; `None` if none does.
pub(super) fn find_region(addr: usize) -> Option<&'static StackRegion> {
    // Acquire: pairs with the Release in register().
    let mut at = REGIONS.load(Ordering::Acquire).cast_const();
    while !at.is_null() {
        // SAFETY: regions are neither freed nor changed once they are in the list.
        let region = unsafe { &*at };
        if addr.wrapping_sub(region.start) < region.bytes {
            return Some(region);
        }
        at = region.next;
    }
    None
}

impl StackRegion {
    pub(super) fn stack_bytes(&self) -> usize {
        self.stride - self.guard_bytes
    }

    /// Returns the address of the control block of the stack whose guard contains `addr`. Returns
    /// `None` if `addr` is in no guard. `addr` must be in this slab.
    pub(super) fn control_address_above(&self, addr: usize) -> Option<usize> {
        let offset = addr - self.start;
        let index = offset / self.stride;
        let top = self.start + (index + 1) * self.stride - (index % self.colours) * 64;
        (offset % self.stride < self.guard_bytes).then_some(top - self.head_bytes)
    }
}
