//! Memory for stacks: big slabs, with a guard below each stack, kept for ever and lent out again.
//!
//! ```text
//!  slab ┌───────┬──────────────┬─────────┬───────┬──────────────┬─────────┬─
//!       │ guard │ ◀── a stack  │ control │ guard │ ◀── a stack  │ control │ ...
//!       └───────┴──────────────┴─────────┴───────┴──────────────┴─────────┴─
//!               ▲ limit        ▲ top
//! ```
//!
//! The pool of a size is the process's own and is never unmapped, so that whoever holds on to a fiber that
//! has ended, in whatever thread, may outlive its runtime.

use super::control::{CONTROL_BYTES, Control};
use super::overflow;
use crate::error::StackError;
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

const PAGE_BYTES: usize = 4096;
/// Four pages, so that a C function with a large frame does not step over them; Rust's own frames touch each
/// page on their way.
pub(crate) const GUARD_BYTES: usize = 4 * PAGE_BYTES;
/// The first slab of a size holds so many stacks, ...
const SLAB_STACKS_MIN: usize = 64;
/// ... each further one twice as many as the one before, up to so many.
const SLAB_STACKS_MAX: usize = 4096;
/// Stacks begin at so many different places of their uppermost page, 64 bytes apart: were they all at one, all
/// would contend for the same few lines of the first-level cache.
const COLOURS: usize = 32;
const _: () = assert!((COLOURS - 1) * 64 + CONTROL_BYTES <= PAGE_BYTES);
/// `madvise(2)`: makes a range of pages fault, without splitting the mapping. Linux 6.13.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// How the stacks of a pool are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guards {
    /// In the page table: any number of them.
    Marked,
    /// By mappings of their own: two for each stack, of which the kernel bounds the number.
    Mapped,
}

/// A stack that is nobody else's.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Where its control block is to be: the upper end.
    pub(super) control: NonNull<Control>,
    /// The lowest address that may be used.
    pub(super) limit: usize,
    pub(super) pool: &'static Stacks,
}

// SAFETY: memory that is owned; it is not tied to a thread.
unsafe impl Send for Stack {}

impl Stack {
    /// Whether it is one of that pool.
    #[inline]
    pub(crate) fn is_of(&self, pool: &'static Stacks) -> bool {
        std::ptr::eq(self.pool, pool)
    }

    /// Gives it back to its pool.
    pub(crate) fn give_back(self) {
        self.pool.give_back([self]);
    }
}

/// The stacks of one size.
#[derive(Debug)]
pub(crate) struct Stacks {
    stack_bytes: usize,
    guards: OnceLock<Guards>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    free: Vec<Stack>,
    slabs: Vec<Slab>,
}

#[derive(Debug)]
struct Slab {
    start: usize,
    stacks_count: usize,
    /// So many of them were ever handed out.
    used_count: usize,
}

/// What a pool of stacks holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Holding {
    pub(crate) stacks_count: usize,
    pub(crate) high_water_bytes: usize,
    pub(crate) resident_bytes: usize,
}

impl Stacks {
    /// The pool of stacks with `stack_bytes` each, a multiple of the page's size.
    pub(crate) fn of(stack_bytes: usize) -> &'static Self {
        static POOLS: Mutex<BTreeMap<usize, &'static Stacks>> = Mutex::new(BTreeMap::new());
        POOLS.lock().unwrap_or_else(PoisonError::into_inner).entry(stack_bytes).or_insert_with(
            || {
                Box::leak(Box::new(Self {
                    stack_bytes,
                    guards: OnceLock::new(),
                    inner: Mutex::default(),
                }))
            },
        )
    }

    /// The bytes of one.
    pub(crate) fn stack_bytes(&self) -> usize {
        self.stack_bytes
    }

    /// How they are guarded, as far as is known.
    pub(crate) fn guards(&self) -> Option<Guards> {
        self.guards.get().copied()
    }

    /// The lowest address of the stack with that control block: which ends in its uppermost page.
    #[inline]
    pub(super) fn limit_of(&self, control: NonNull<Control>) -> usize {
        let top = (control.addr().get() + CONTROL_BYTES).next_multiple_of(PAGE_BYTES);
        top - self.stack_bytes
    }

    fn stride(&self) -> usize {
        self.stack_bytes + GUARD_BYTES
    }

    /// One stack, used before if there is such.
    pub(crate) fn take(&'static self) -> Result<Stack, StackError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.free.pop() {
            Some(stack) => Ok(stack),
            None => self.make(&mut inner),
        }
    }

    /// Up to `count` stacks that were used before, into `into`; and one in any case.
    pub(crate) fn take_some(
        &'static self,
        count: usize,
        into: &mut Vec<Stack>,
    ) -> Result<Stack, StackError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let from = inner.free.len().saturating_sub(count);
        into.extend(inner.free.drain(from..));
        match into.pop() {
            Some(stack) => Ok(stack),
            None => self.make(&mut inner),
        }
    }

    /// Takes stacks back.
    pub(crate) fn give_back(&self, stacks: impl IntoIterator<Item = Stack>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).free.extend(stacks);
    }

    /// A stack that was never used.
    fn make(&'static self, inner: &mut Inner) -> Result<Stack, StackError> {
        let is_full = inner.slabs.last().is_none_or(|slab| slab.used_count == slab.stacks_count);
        if is_full {
            let slab = self.map_slab(inner.slabs.last().map_or(0, |slab| slab.stacks_count))?;
            inner.slabs.push(slab);
        }
        let Some(slab) = inner.slabs.last_mut() else {
            return Err(StackError::OutOfMemory { stacks_count: 0, errno: libc::ENOMEM });
        };
        let start = slab.start + slab.used_count * self.stride();
        self.guard(start)?;
        let limit = start + GUARD_BYTES;
        let top = limit + self.stack_bytes - (slab.used_count % COLOURS) * 64;
        slab.used_count += 1;
        let control = ptr::with_exposed_provenance_mut::<Control>(top - CONTROL_BYTES);
        let Some(control) = NonNull::new(control) else {
            return Err(StackError::OutOfMemory { stacks_count: 0, errno: libc::ENOMEM });
        };
        Ok(Stack { control, limit, pool: self })
    }

    fn map_slab(&self, before_count: usize) -> Result<Slab, StackError> {
        let mut stacks_count = (2 * before_count).clamp(SLAB_STACKS_MIN, SLAB_STACKS_MAX);
        loop {
            let bytes = stacks_count * self.stride();
            // SAFETY: a new mapping of our own, where the kernel likes.
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
                // SAFETY: the range is ours. Refusal is fine: a kernel without huge pages has none to
                // spend on the one page that a parked fiber needs.
                unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
                let start = start.expose_provenance();
                overflow::register(start, bytes, self.stride(), GUARD_BYTES, COLOURS);
                return Ok(Slab { start, stacks_count, used_count: 0 });
            }
            if stacks_count == 1 {
                return Err(StackError::OutOfMemory { stacks_count: 1, errno: errno() });
            }
            stacks_count = (stacks_count / 4).max(1);
        }
    }

    fn guard(&self, start: usize) -> Result<(), StackError> {
        let at = ptr::with_exposed_provenance_mut::<libc::c_void>(start);
        let marked = self.guards.get() != Some(&Guards::Mapped)
            // SAFETY: the range belongs to the stack that is being made, and nothing lies there.
            && unsafe { libc::madvise(at, GUARD_BYTES, MADV_GUARD_INSTALL) } == 0;
        if marked {
            let _ = self.guards.set(Guards::Marked);
            return Ok(());
        }
        if self.guards.get() == Some(&Guards::Marked) {
            return Err(StackError::OutOfMemory { stacks_count: 1, errno: errno() });
        }
        let _ = self.guards.set(Guards::Mapped);
        // SAFETY: as above.
        if unsafe { libc::mprotect(at, GUARD_BYTES, libc::PROT_NONE) } == 0 {
            return Ok(());
        }
        match errno() {
            libc::ENOMEM => Err(StackError::TooManyMappings { maps_max: maps_max() }),
            errno => Err(StackError::OutOfMemory { stacks_count: 1, errno }),
        }
    }

    /// What there is, page by page.
    pub(crate) fn holding(&self) -> Holding {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut holding = Holding::default();
        let mut pages = vec![0u8; self.stack_bytes / PAGE_BYTES];
        for slab in &inner.slabs {
            holding.stacks_count += slab.used_count;
            for index in 0..slab.used_count {
                let limit = slab.start + index * self.stride() + GUARD_BYTES;
                let at = ptr::with_exposed_provenance_mut::<libc::c_void>(limit);
                // SAFETY: the range is mapped, and the kernel writes a byte for each of its pages.
                let answer = unsafe { libc::mincore(at, self.stack_bytes, pages.as_mut_ptr()) };
                if answer != 0 {
                    continue;
                }
                let resident = pages.iter().filter(|page| **page & 1 != 0).count();
                let lowest = pages.iter().position(|page| page & 1 != 0).unwrap_or(pages.len());
                holding.resident_bytes += resident * PAGE_BYTES;
                holding.high_water_bytes =
                    holding.high_water_bytes.max((pages.len() - lowest) * PAGE_BYTES);
            }
        }
        holding
    }

    /// Gives the memory of the stacks that nobody uses back to the kernel; how many there are.
    pub(crate) fn trim(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for stack in &inner.free {
            let at = ptr::with_exposed_provenance_mut::<libc::c_void>(stack.limit);
            // SAFETY: the stack is free: what is on it is of no use to anybody.
            unsafe { libc::madvise(at, self.stack_bytes, libc::MADV_DONTNEED) };
        }
        inner.free.len()
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn maps_max() -> u64 {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_530)
}
