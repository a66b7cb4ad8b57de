//! A pool of reusable slots, and the handles that free them.
//!
//! ```text
//!   word      0          2           3, 4 ...      1
//!           FREE ──put──▶ one ──clone──▶ more ──▶ DYING: the value is being dropped
//!             ▲            │          ◀─release─    │
//!             └────────────┴────────────────────────┘   the last release, when it is dropped
//! ```
//!
//! The last holder frees a slot by writing its word; the pool finds free slots by reading the words
//! in turn. So there is no free list, and no contention between threads. A value with a single
//! holder costs one read-modify-write in its life.
//!
//! A pool that is dropped while values are in use marks their slots with ORPHAN_BIT; the last of
//! these slots to be freed frees its chunk.

use crate::PoolFull;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// State of a slot without a value.
const FREE: u32 = 0;
/// State of a slot whose value is being dropped.
const DYING: u32 = 1;
/// State of a slot with one handle; each further handle adds 1.
const ONE_HANDLE: u32 = 2;
/// Bit that is set in a slot's word once the pool was dropped.
const ORPHAN_BIT: u32 = 1 << 31;
/// Mask of the bits of a slot's word that hold the state.
const STATE_MASK: u32 = ORPHAN_BIT - 1;
/// Number of handles of one value above which a clone aborts the process. A process with so many
/// probably leaks handles in a loop.
const HOLDERS_LIMIT: u32 = 1 << 30;
/// Number of slots that put() checks, one after the other, before it tries to grow the pool.
const SLOTS_CHECKED: usize = 8;
/// Number of slots in a pool's first chunk.
const CHUNK_SLOTS_MIN: usize = 16;

/// Slot of a pool, alone on its cache lines, because several threads write its word.
#[repr(align(64))]
struct Slot<T> {
    /// State: [`FREE`], [`DYING`], or [`ONE_HANDLE`] plus the number of further handles; and the
    /// [`ORPHAN_BIT`].
    word: AtomicU32,
    /// Chunk that contains the slot.
    chunk: NonNull<Chunk<T>>,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Chunk of slots that were allocated together.
struct Chunk<T> {
    /// Number of slots still in use after the pool was dropped. During the pool's drop it is one
    /// more.
    orphans: AtomicUsize,
    slots: Vec<Slot<T>>,
}

/// Pool of reusable slots for values that are sent to other threads. It allocates nothing once it
/// has grown.
///
/// One thread puts values in; the handles may move to any thread. The value is dropped, and its
/// slot freed, when its last handle is dropped. Handles may outlive their pool.
///
/// ```
/// use handover_event::Pool;
/// let mut pool = Pool::new(100);
/// let mut message = pool.put(vec![1, 2])?; // one holder: it may write ...
/// message.push(3);
/// let message = message.share(); // ... until it shares
/// let copy = message.clone();
/// assert_eq!(*copy, [1, 2, 3]);
/// assert_eq!(pool.in_use_count(), 1);
/// drop((message, copy));
/// assert_eq!(pool.in_use_count(), 0);
/// # Ok::<(), handover_event::PoolFull<Vec<i32>>>(())
/// ```
///
/// # Cost
/// Putting a value in costs a load and a store if the next slot in turn is free, as is usual where
/// messages have similar lifetimes. The pool doubles until it has `slots_max` slots, and then
/// searches all of them before it refuses.
pub struct Pool<T> {
    slots: Vec<NonNull<Slot<T>>>,
    chunks: Vec<NonNull<Chunk<T>>>,
    /// Index of the slot to check first at the next put.
    next_index: usize,
    slots_max: usize,
}

// SAFETY: only the pool accesses its free slots, and it accesses slots in use through their atomic
// words only; the values that it moves to other threads are `T: Send`.
unsafe impl<T: Send> Send for Pool<T> {}

// SAFETY: methods on `&self` read atomic words only.
unsafe impl<T: Send> Sync for Pool<T> {}

impl<T> Pool<T> {
    /// Creates a pool without slots, which grows up to `slots_max` slots (at least one).
    #[must_use]
    pub fn new(slots_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            chunks: Vec::new(),
            next_index: 0,
            slots_max: slots_max.max(1) as usize,
        }
    }

    /// Moves a value into a free slot, and returns its handle.
    ///
    /// # Errors
    /// [`PoolFull`] returns the value when `slots_max` values are in use.
    #[inline]
    pub fn put(&mut self, value: T) -> Result<PoolBox<T>, PoolFull<T>> {
        match self.find_free_slot().or_else(|| self.find_or_grow()) {
            Some(slot) => {
                Self::fill(slot, value, ONE_HANDLE);
                Ok(PoolBox { slot })
            }
            None => Err(PoolFull(value)),
        }
    }

    /// Moves a value into a free slot, and returns an iterator over `holders_count` shared handles
    /// of it. This is cheaper than as many clones, because their number is written once.
    ///
    /// ```
    /// use handover_event::Pool;
    /// let mut pool = Pool::new(1);
    /// let holders: Vec<_> = pool.put_shared("news", 3)?.collect();
    /// assert_eq!(holders[0].holders_count(), 3);
    /// assert!(holders.iter().all(|news| **news == "news"));
    /// # Ok::<(), handover_event::PoolFull<&str>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_shared(&mut self, value: T, holders_count: u32) -> Result<PoolArcs<T>, PoolFull<T>> {
        let Some(slot) = self.find_free_slot().or_else(|| self.find_or_grow()) else {
            return Err(PoolFull(value));
        };
        if holders_count >= HOLDERS_LIMIT {
            std::process::abort(); // as a clone would
        }
        Self::fill(slot, value, ONE_HANDLE + holders_count.saturating_sub(1));
        if holders_count == 0 {
            drop(PoolBox { slot });
        }
        Ok(PoolArcs { slot, left: holders_count })
    }

    /// Returns the number of slots in use; it may have changed since.
    #[must_use]
    pub fn in_use_count(&self) -> usize {
        self.slots.iter().filter(|slot| !Self::is_free(**slot)).count()
    }

    /// Returns the current number of slots.
    #[must_use]
    pub fn slots_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the first free slot among the next [`SLOTS_CHECKED`]; `None` if all are in use.
    #[inline]
    fn find_free_slot(&mut self) -> Option<NonNull<Slot<T>>> {
        for _ in 0..SLOTS_CHECKED {
            let slot = *self.slots.get(self.next_index)?;
            self.next_index += 1;
            if self.next_index == self.slots.len() {
                self.next_index = 0;
            }
            if Self::is_free(slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Returns `true` if the slot has no value.
    #[inline]
    fn is_free(slot: NonNull<Slot<T>>) -> bool {
        // SAFETY: only a pool's drop gives up its chunks, so the chunk of this slot is alive.
        let slot = unsafe { slot.as_ref() };
        // Acquire: pairs with the Release in FreeOnDrop's drop: the last holder's accesses come
        // before the reuse.
        slot.word.load(Ordering::Acquire) == FREE
    }

    /// Writes `value` into a free slot, and sets its state to `word`.
    #[inline]
    fn fill(slot: NonNull<Slot<T>>, value: T, word: u32) {
        // SAFETY: `slot` belongs to this pool, whose drop alone gives up its chunks.
        let place = unsafe { slot.as_ref() };
        place.value.with_mut(|at| {
            // SAFETY: the slot is free, and only its pool, which is borrowed mutably, fills a free
            // slot.
            unsafe { at.cast::<T>().write(value) };
        });
        // Relaxed: handing a holder to another thread synchronises.
        place.word.store(word, Ordering::Relaxed);
    }

    /// Returns a free slot, after growing the pool or searching all slots. Returns `None` if all
    /// are in use. Called when the next [`SLOTS_CHECKED`] slots are in use.
    #[cold]
    fn find_or_grow(&mut self) -> Option<NonNull<Slot<T>>> {
        if self.slots.len() < self.slots_max {
            return self.grow();
        }
        let at = self.slots.iter().position(|slot| Self::is_free(*slot))?;
        self.next_index = (at + 1) % self.slots.len();
        Some(self.slots[at])
    }

    /// Adds a chunk of slots; returns one of them.
    fn grow(&mut self) -> Option<NonNull<Slot<T>>> {
        let count = self.slots.len().max(CHUNK_SLOTS_MIN).min(self.slots_max - self.slots.len());
        let chunk = Box::new(Chunk { orphans: AtomicUsize::new(0), slots: Vec::new() });
        let mut chunk = NonNull::from(Box::leak(chunk));
        let slots: Vec<Slot<T>> = (0..count)
            .map(|_| Slot {
                word: AtomicU32::new(FREE),
                chunk,
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        // SAFETY: the chunk was just allocated, and no other pointer to it is in use.
        unsafe { chunk.as_mut() }.slots = slots;
        self.chunks.push(chunk);
        let first = self.slots.len();
        // SAFETY: the chunk was allocated above, and from here on only shared references to it are
        // made.
        let slots = unsafe { chunk.as_ref() }.slots.iter();
        self.slots.extend(slots.map(NonNull::from));
        self.next_index = (first + 1) % self.slots.len();
        Some(self.slots[first])
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        for &chunk in &self.chunks {
            // SAFETY: this pool's own count, stored below, keeps the chunk alive until
            // release_one().
            let seen = unsafe { chunk.as_ref() };
            // Relaxed: no other thread reads the count before it sees ORPHAN_BIT on a slot, which
            // publishes it.
            seen.orphans.store(1, Ordering::Relaxed);
            for slot in &seen.slots {
                // Relaxed: published by the mark below. Counted before the mark: a thread that sees
                // the mark decrements the count.
                seen.orphans.fetch_add(1, Ordering::Relaxed);
                // AcqRel: pairs with the exchange in FreeOnDrop's drop: either that exchange sees
                // the mark, or this one sees that the slot is free, and no thread accesses the slot
                // any more.
                if slot.word.fetch_or(ORPHAN_BIT, Ordering::AcqRel) == FREE {
                    seen.orphans.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Chunk::release_one(chunk);
        }
    }
}

impl<T> Chunk<T> {
    /// Releases one reference to the chunk, held by an orphaned slot or by the pool. The last one
    /// frees the chunk.
    #[cold]
    fn release_one(chunk: NonNull<Self>) {
        // SAFETY: the caller's own count keeps the chunk alive until it is subtracted below.
        let seen = unsafe { chunk.as_ref() };
        // AcqRel: pairs with itself: accesses to the slots by other threads come before the
        // deallocation.
        if seen.orphans.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: allocated by Box::new() in grow(); with the count at zero no handle to it is
            // left.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// Guard that frees a slot when dropped, even if dropping the value panics.
struct FreeOnDrop<T>(NonNull<Slot<T>>);

impl<T> Drop for FreeOnDrop<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slot belongs to this thread until its word says FREE, and keeps its chunk
        // alive until then.
        let slot = unsafe { self.0.as_ref() };
        let chunk = slot.chunk;
        // Relaxed: this thread is the only one that changes the state, and the pool's drop only
        // sets the other bit.
        let state = slot.word.load(Ordering::Relaxed) & STATE_MASK;
        // AcqRel: publishes the end of the value to the Acquire in is_free(), and pairs with the
        // mark in Pool's drop. A subtraction, since x86 has no single instruction that clears bits
        // and returns the former ones.
        if slot.word.fetch_sub(state, Ordering::AcqRel) & ORPHAN_BIT != 0 {
            Chunk::release_one(chunk);
        }
    }
}

/// Unique handle of a value in a [`Pool`], for reading and changing it. Dropping it drops the value
/// and frees the slot.
pub struct PoolBox<T> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: a `PoolBox` is the only holder of its value, so sending it sends a `T`, which is Send.
unsafe impl<T: Send> Send for PoolBox<T> {}

// SAFETY: `&PoolBox<T>` gives access to `&T` only, and `T: Sync`.
unsafe impl<T: Sync> Sync for PoolBox<T> {}

impl<T> PoolBox<T> {
    /// Converts the unique handle into a shared one, which can be cloned and only read.
    #[inline]
    #[must_use]
    pub fn share(self) -> PoolArc<T> {
        let slot = self.slot;
        core::mem::forget(self);
        PoolArc { slot }
    }

    /// Returns the value, and frees its slot.
    #[inline]
    #[must_use]
    pub fn into_inner(self) -> T {
        let slot = self.slot;
        core::mem::forget(self);
        let free = FreeOnDrop(slot);
        // SAFETY: `self` was the slot's only holder, and `free` keeps the slot in use until it is
        // dropped.
        let value = unsafe { value_cell(&free.0) }.with(|at| {
            // SAFETY: a slot in use holds a value; it is not read or dropped again, as `free` only
            // frees the slot.
            unsafe { at.cast::<T>().read() }
        });
        drop(free);
        value
    }
}

/// Returns the memory of a slot's value.
///
/// # Safety
/// The slot is in use, and the caller is one of its holders for as long as the reference is used.
#[inline]
unsafe fn value_cell<T>(slot: &NonNull<Slot<T>>) -> &UnsafeCell<MaybeUninit<T>> {
    // SAFETY: by the contract the slot is in use, and its chunk is alive: the pool or the orphan
    // count holds it.
    &unsafe { slot.as_ref() }.value
}

impl<T> Deref for PoolBox<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this handle is the slot's holder, and is borrowed for as long as the reference.
        unsafe { value_cell(&self.slot) }.with(|at| {
            // SAFETY: a slot in use holds a value; only this holder writes it, and it is borrowed
            // shared.
            unsafe { &*at.cast::<T>() }
        })
    }
}

impl<T> DerefMut for PoolBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this handle is the slot's holder, and is borrowed for as long as the reference.
        unsafe { value_cell(&self.slot) }.with_mut(|at| {
            // SAFETY: a slot in use holds a value; this is its only holder, and it is borrowed
            // mutably.
            unsafe { &mut *at.cast::<T>() }
        })
    }
}

impl<T> Drop for PoolBox<T> {
    #[inline]
    fn drop(&mut self) {
        let _free = FreeOnDrop(self.slot);
        // SAFETY: this handle is the slot's holder until `_free` is dropped at the end.
        unsafe { value_cell(&self.slot) }.with_mut(|at| {
            // SAFETY: a slot in use holds a value, and its only holder is being dropped.
            unsafe { at.cast::<T>().drop_in_place() }
        });
    }
}

impl<T: fmt::Debug> fmt::Debug for PoolBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Shared handle of a value in a [`Pool`]. Clones refer to the same value, and can only read it;
/// the last one drops the value. For a shared value that changes, use atomics or a mutex in it.
pub struct PoolArc<T> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: holders on several threads read the value through `&T` (`T: Sync`), and any of them may
// drop it (`T: Send`).
unsafe impl<T: Send + Sync> Send for PoolArc<T> {}

// SAFETY: `&PoolArc<T>` can be cloned into a holder on another thread, so the same bounds apply.
unsafe impl<T: Send + Sync> Sync for PoolArc<T> {}

impl<T> PoolArc<T> {
    /// Returns the word that holds the state of the slot.
    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: this holder keeps the slot in use, and so its chunk alive.
        &unsafe { self.slot.as_ref() }.word
    }

    /// Returns the number of handles of the value; unless it is 1, it may have changed since.
    #[must_use]
    pub fn holders_count(&self) -> u32 {
        // Relaxed: a figure.
        (self.word().load(Ordering::Relaxed) & STATE_MASK) + 1 - ONE_HANDLE
    }

    /// Returns `true` if both handles refer to the same value in the same slot.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<T> Clone for PoolArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: a new holder is made from an existing one, which keeps the value alive.
        if self.word().fetch_add(1, Ordering::Relaxed) & STATE_MASK >= HOLDERS_LIMIT {
            // As with Arc: more than a thousand million holders cannot be handled.
            std::process::abort();
        }
        Self { slot: self.slot }
    }
}

impl<T> Deref for PoolArc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is a holder, and it is borrowed for as long as the reference.
        unsafe { value_cell(&self.slot) }.with(|at| {
            // SAFETY: a slot in use holds a value, and a shared value is not written.
            unsafe { &*at.cast::<T>() }
        })
    }
}

impl<T> Drop for PoolArc<T> {
    #[inline]
    fn drop(&mut self) {
        // Acquire: pairs with the Release below, of former holders: their accesses to the value
        // come before it is dropped.
        if self.word().load(Ordering::Acquire) & STATE_MASK != ONE_HANDLE {
            // Release: this holder's accesses come before the drop of the value; pairs with the
            // Acquire above and below, in the last holder.
            if self.word().fetch_sub(1, Ordering::Release) & STATE_MASK != ONE_HANDLE {
                return;
            }
            debug_assert_eq!(self.word().load(Ordering::Relaxed) & STATE_MASK, DYING);
            // Acquire: pairs with the Release of former holders, as above.
            fence(Ordering::Acquire);
        }
        drop(PoolBox { slot: self.slot });
    }
}

/// Iterator over handles of one value that were created together. Dropping it drops those that it
/// has not returned.
pub struct PoolArcs<T> {
    slot: NonNull<Slot<T>>,
    /// Number of handles that are counted in the slot's state and not returned yet.
    left: u32,
}

impl<T> Iterator for PoolArcs<T> {
    type Item = PoolArc<T>;

    #[inline]
    fn next(&mut self) -> Option<PoolArc<T>> {
        self.left = self.left.checked_sub(1)?;
        Some(PoolArc { slot: self.slot })
    }
}

impl<T> Drop for PoolArcs<T> {
    #[inline]
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> fmt::Debug for PoolArcs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolArcs({} left)", self.left)
    }
}

impl<T: fmt::Debug> fmt::Debug for PoolArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slots_count, slots_max) = (self.slots.len(), self.slots_max);
        write!(f, "Pool({slots_count} slots, at most {slots_max})")
    }
}
