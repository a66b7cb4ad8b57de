//! Memory of stacks: large slabs with a guard below each stack, never unmapped, and reused.
//!
//! ```text
//!  slab ┌───────┬──────────────┬─────────┬───────┬──────────────┬─────────┬─
//!       │ guard │ ◀── a stack  │  head   │ guard │ ◀── a stack  │  head   │ ...
//!       └───────┴──────────────┴─────────┴───────┴──────────────┴─────────┴─
//!               ▲ limit        ▲ top
//! ```
//!
//! The head is for the owner of the stack: a fiber's control block. The pool of each size belongs
//! to the process and is never unmapped, so that a handle to a fiber that has ended may outlive the
//! runtime, on any thread.

use super::regions::{self, StackRegion};
use crate::error::StackError;
use rustix::param::page_size;
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Minimum size of a page: 4 KiB. Kernels for aarch64 have pages of 4, 16 or 64 KiB.
const PAGE_BYTES_MIN: usize = 4096;
/// Size of a stack's head, which contains the fiber's control block. The head is aligned to 64
/// bytes.
pub(super) const STACK_HEAD_BYTES: usize = if IS_SANITIZED { 256 } else { 128 };
/// `true` in sanitizer builds, whose control block is larger.
pub(super) const IS_SANITIZED: bool =
    cfg!(any(handover_sanitizer = "address", handover_sanitizer = "thread"));
/// Minimum size of a stack guard: 16 KiB. A C function with a large frame then does not skip the
/// guard. (Rust functions touch each page of their frames.)
const GUARD_BYTES_MIN: usize = 4 * PAGE_BYTES_MIN;
/// Number of stacks in the first slab of each stack size.
const SLAB_STACKS_MIN: usize = 64;
/// Maximum number of stacks in a slab. Each slab has twice as many as the slab before, up to this
/// number.
const SLAB_STACKS_MAX: usize = 4096;
/// Number of different offsets, 64 bytes apart, at which stacks start in their uppermost page. With
/// a single offset, all stacks would use the same few lines of the first-level cache.
const COLOURS: usize = 32;
const _: () = assert!((COLOURS - 1) * 64 + STACK_HEAD_BYTES <= PAGE_BYTES_MIN);
/// Advice of `madvise(2)`, since Linux 6.13, that makes accesses to pages fault without splitting
/// the mapping.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Kind of the guards that detect overflows of a pool's stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardKind {
    /// Guards are flags in the page table; the kernel does not limit their number.
    PageMark,
    /// Guards are memory mappings, two for each stack; the kernel limits the number of mappings.
    Mapping,
}

/// Stack that was removed from its pool.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Address of the head, at the upper end of the stack.
    pub(super) head: NonNull<u8>,
    /// Lowest usable address of the stack.
    pub(super) limit: usize,
    pub(super) pool: &'static StackPool,
}

// SAFETY: a stack is owned memory that is not tied to a thread.
unsafe impl Send for Stack {}

impl Stack {
    #[inline]
    pub(crate) fn belongs_to(&self, pool: &'static StackPool) -> bool {
        std::ptr::eq(self.pool, pool)
    }

    /// Returns the stack to its pool.
    pub(crate) fn release(self) {
        self.pool.release([self]);
    }
}

/// Process-wide pool of stacks of one size: the free stacks, and the slabs of all stacks.
#[derive(Debug)]
pub(crate) struct StackPool {
    stack_bytes: usize,
    /// Size of the guard below each stack, a multiple of the page size.
    guard_bytes: usize,
    /// Kind of the guards, once the first stack was allocated.
    guards: OnceLock<GuardKind>,
    state: Mutex<PoolState>,
}

/// Free stacks and slabs of a [`StackPool`].
#[derive(Debug, Default)]
struct PoolState {
    free: Vec<Stack>,
    slabs: Vec<Slab>,
}

/// Memory of several stacks, mapped together.
#[derive(Debug)]
struct Slab {
    start: usize,
    stacks_count: usize,
    /// Number of stacks of this slab that were handed out at least once.
    used_count: usize,
}

/// Statistics of a [`StackPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StackPoolStats {
    /// Number of stacks allocated so far, free or in use.
    pub(crate) stacks_count: usize,
    /// Largest number of bytes used on any stack of the pool, a multiple of the page size.
    pub(crate) high_water_bytes: usize,
    /// Resident memory of all stacks of the pool, in bytes.
    pub(crate) resident_bytes: usize,
}

impl StackPool {
    /// Returns the process's pool of stacks of `stack_bytes` bytes, a multiple of the page size.
    pub(crate) fn for_size(stack_bytes: usize) -> &'static Self {
        static POOLS: Mutex<BTreeMap<usize, &'static StackPool>> = Mutex::new(BTreeMap::new());
        POOLS.lock().unwrap_or_else(PoisonError::into_inner).entry(stack_bytes).or_insert_with(
            || {
                Box::leak(Box::new(Self {
                    stack_bytes,
                    guard_bytes: GUARD_BYTES_MIN.next_multiple_of(page_size()),
                    guards: OnceLock::new(),
                    state: Mutex::default(),
                }))
            },
        )
    }

    pub(crate) fn stack_bytes(&self) -> usize {
        self.stack_bytes
    }

    /// Returns the kind of guards; `None` before the first stack was allocated.
    pub(crate) fn guard_kind(&self) -> Option<GuardKind> {
        self.guards.get().copied()
    }

    /// Returns the lowest usable address of the stack whose head is at `head`.
    #[inline]
    pub(super) fn lowest_address(&self, head: NonNull<u8>) -> usize {
        // The head lies at most PAGE_BYTES_MIN below the top, which is a multiple of the page size.
        let top = (head.addr().get() + STACK_HEAD_BYTES).next_multiple_of(PAGE_BYTES_MIN);
        top - self.stack_bytes
    }

    /// Returns the distance in bytes between two stacks, including the guard.
    fn stride(&self) -> usize {
        self.stack_bytes + self.guard_bytes
    }

    /// Removes and returns a free stack of the pool, or a new stack if none is free.
    pub(crate) fn take_stack(&'static self) -> Result<Stack, StackError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.free.pop() {
            Some(stack) => Ok(stack),
            None => self.allocate_stack(&mut state),
        }
    }

    /// Removes and returns a free stack, or a new stack if none is free. Moves up to `count - 1`
    /// more free stacks to `into`.
    pub(crate) fn take_stacks(
        &'static self,
        count: usize,
        into: &mut Vec<Stack>,
    ) -> Result<Stack, StackError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let from = state.free.len().saturating_sub(count);
        into.extend(state.free.drain(from..));
        match into.pop() {
            Some(stack) => Ok(stack),
            None => self.allocate_stack(&mut state),
        }
    }

    /// Adds stacks that are not used any more to the free ones.
    pub(crate) fn release(&self, stacks: impl IntoIterator<Item = Stack>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free.extend(stacks);
    }

    /// Allocates a new stack, in a new slab if necessary.
    fn allocate_stack(&'static self, state: &mut PoolState) -> Result<Stack, StackError> {
        let is_full = state.slabs.last().is_none_or(|slab| slab.used_count == slab.stacks_count);
        if is_full {
            let slab = self.map_slab(state.slabs.last().map_or(0, |slab| slab.stacks_count))?;
            state.slabs.push(slab);
        }
        let Some(slab) = state.slabs.last_mut() else {
            return Err(StackError::OutOfMemory { stacks_count: 0, errno: libc::ENOMEM });
        };
        let start = slab.start + slab.used_count * self.stride();
        self.install_guard(start)?;
        let limit = start + self.guard_bytes;
        let top = limit + self.stack_bytes - (slab.used_count % COLOURS) * 64;
        slab.used_count += 1;
        let head = ptr::with_exposed_provenance_mut::<u8>(top - STACK_HEAD_BYTES);
        let Some(head) = NonNull::new(head) else {
            return Err(StackError::OutOfMemory { stacks_count: 0, errno: libc::ENOMEM });
        };
        Ok(Stack { head, limit, pool: self })
    }

    /// Maps a slab of twice as many stacks as the previous slab, which has `before_count`. The
    /// number is limited, and smaller if the kernel refuses.
    fn map_slab(&self, before_count: usize) -> Result<Slab, StackError> {
        let mut stacks_count = (2 * before_count).clamp(SLAB_STACKS_MIN, SLAB_STACKS_MAX);
        loop {
            let bytes = stacks_count * self.stride();
            // SAFETY: a new anonymous mapping at an address that the kernel chooses.
            let start = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if start != libc::MAP_FAILED {
                // SAFETY: the range was just mapped. An error does not matter: without huge pages
                // in the kernel, none can be wasted on the single page that a parked fiber needs.
                unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
                let start = start.expose_provenance();
                regions::register_region(StackRegion {
                    start,
                    bytes,
                    stride: self.stride(),
                    guard_bytes: self.guard_bytes,
                    colours: COLOURS,
                    head_bytes: STACK_HEAD_BYTES,
                    next: ptr::null(),
                });
                return Ok(Slab { start, stacks_count, used_count: 0 });
            }
            if stacks_count == 1 {
                return Err(StackError::OutOfMemory { stacks_count: 1, errno: errno() });
            }
            stacks_count = (stacks_count / 4).max(1);
        }
    }

    /// Makes the pages of the guard at `start` inaccessible.
    fn install_guard(&self, start: usize) -> Result<(), StackError> {
        let at = ptr::with_exposed_provenance_mut::<libc::c_void>(start);
        let marked = self.guards.get() != Some(&GuardKind::Mapping)
            // SAFETY: the range is the guard of the stack that is being made, and holds no data.
            && unsafe { libc::madvise(at, self.guard_bytes, MADV_GUARD_INSTALL) } == 0;
        if marked {
            let _ = self.guards.set(GuardKind::PageMark);
            return Ok(());
        }
        if self.guards.get() == Some(&GuardKind::PageMark) {
            return Err(StackError::OutOfMemory { stacks_count: 1, errno: errno() });
        }
        let _ = self.guards.set(GuardKind::Mapping);
        // SAFETY: the range is the guard of the stack that is being made, and holds no data.
        if unsafe { libc::mprotect(at, self.guard_bytes, libc::PROT_NONE) } == 0 {
            return Ok(());
        }
        match errno() {
            libc::ENOMEM => Err(StackError::TooManyMappings { maps_max: maps_max() }),
            errno => Err(StackError::OutOfMemory { stacks_count: 1, errno }),
        }
    }

    /// Returns statistics of the pool; inspects every page of its stacks.
    pub(crate) fn stats(&self) -> StackPoolStats {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = StackPoolStats::default();
        let page_bytes = page_size();
        let mut pages = vec![0u8; self.stack_bytes / page_bytes];
        for slab in &state.slabs {
            stats.stacks_count += slab.used_count;
            for index in 0..slab.used_count {
                let limit = slab.start + index * self.stride() + self.guard_bytes;
                let at = ptr::with_exposed_provenance_mut::<libc::c_void>(limit);
                // SAFETY: the range is mapped, and `pages` has space for the byte that the kernel
                // writes for each page.
                let answer = unsafe { libc::mincore(at, self.stack_bytes, pages.as_mut_ptr()) };
                if answer != 0 {
                    continue;
                }
                let resident = pages.iter().filter(|page| **page & 1 != 0).count();
                let lowest = pages.iter().position(|page| page & 1 != 0).unwrap_or(pages.len());
                stats.resident_bytes += resident * page_bytes;
                stats.high_water_bytes =
                    stats.high_water_bytes.max((pages.len() - lowest) * page_bytes);
            }
        }
        stats
    }

    /// Gives the memory of free stacks back to the kernel; returns the number of free stacks.
    pub(crate) fn trim(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for stack in &state.free {
            let at = ptr::with_exposed_provenance_mut::<libc::c_void>(stack.limit);
            // SAFETY: the stack is free, so its contents are not needed.
            unsafe { libc::madvise(at, self.stack_bytes, libc::MADV_DONTNEED) };
        }
        state.free.len()
    }
}

/// Returns the error number of the last system call.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns the kernel's limit on the number of memory mappings of a process.
fn maps_max() -> u64 {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_530)
}
