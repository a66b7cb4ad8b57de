//! Slots that are used again, and the handles that say when.
//!
//! ```text
//!   word      0          2           3, 4 ...      1
//!           FREE ──put──▶ one ──clone──▶ more ──▶ DYING: the value is being dropped
//!             ▲            │          ◀─release─    │
//!             └────────────┴────────────────────────┘   the last release, when it is dropped
//! ```
//!
//! The last holder frees a slot by writing its word; the pool finds it by looking at the words in
//! turn. So there is no list of free slots, and nothing that two threads would have to agree on. A
//! value with a single holder costs one read-modify-write in its life.
//!
//! A pool that goes while values are in use marks their slots ORPHAN; the last of those to be freed
//! frees the memory.

use crate::PoolFull;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

const FREE: u32 = 0;
const DYING: u32 = 1;
/// One holder; each further one adds one.
const ONE: u32 = 2;
/// The pool is gone.
const ORPHAN: u32 = 1 << 31;
const COUNT: u32 = ORPHAN - 1;
/// So many holders are a programme that forgets them in a loop.
const HOLDERS_LIMIT: u32 = 1 << 30;
/// So many slots are looked at before the pool rather grows.
const PROBES: usize = 8;
/// The slots of a pool's first chunk.
const CHUNK_SLOTS_MIN: usize = 16;

/// On lines of its own: it is written by whoever holds it.
#[repr(align(64))]
struct Slot<T> {
    word: AtomicU32,
    chunk: NonNull<Chunk<T>>,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Slots that were allocated together.
struct Chunk<T> {
    /// Slots that are in use and whose pool is gone, and one for the pool while it goes.
    orphans: AtomicUsize,
    slots: Vec<Slot<T>>,
}

/// Memory for messages, used again and again: in the steady state nothing is allocated.
///
/// One thread puts values in; the handles go wherever they like, and the value is dropped and its
/// slot free again when the last of them is dropped. Handles may outlive their pool.
///
/// ```
/// use handover_event::Pool;
/// let mut pool = Pool::new(100);
/// let mut letter = pool.put(vec![1, 2])?; // one holder: it may write ...
/// letter.push(3);
/// let letter = letter.share(); // ... until it shares
/// let copy = letter.clone();
/// assert_eq!(*copy, [1, 2, 3]);
/// assert_eq!(pool.in_use_count(), 1);
/// drop((letter, copy));
/// assert_eq!(pool.in_use_count(), 0);
/// # Ok::<(), handover_event::PoolFull<Vec<i32>>>(())
/// ```
///
/// # Cost
/// Putting a value in: a load and a store, when the slot whose turn it is is free, as it is where
/// messages live about equally long. The pool doubles until it has `slots_max` slots, and then looks
/// for a free one before it refuses.
pub struct Pool<T> {
    slots: Vec<NonNull<Slot<T>>>,
    chunks: Vec<NonNull<Chunk<T>>>,
    /// The slot to look at next.
    turn: usize,
    slots_max: usize,
}

// SAFETY: a pool owns its free slots alone, and reaches those in use by their atomic words only; the
// values that it puts in travel to other threads as T: Send allows.
unsafe impl<T: Send> Send for Pool<T> {}

// SAFETY: by `&self` nothing but atomic words is read.
unsafe impl<T: Send> Sync for Pool<T> {}

impl<T> Pool<T> {
    /// A pool without slots, that may come to have `slots_max` of them (one at least).
    #[must_use]
    pub fn new(slots_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            chunks: Vec::new(),
            turn: 0,
            slots_max: slots_max.max(1) as usize,
        }
    }

    /// Puts a value into a free slot.
    ///
    /// # Errors
    /// [`PoolFull`] gives the value back when `slots_max` values are in use.
    #[inline]
    pub fn put(&mut self, value: T) -> Result<Parcel<T>, PoolFull<T>> {
        match self.free_slot().or_else(|| self.find_or_grow()) {
            Some(slot) => Ok(Self::fill(slot, value)),
            None => Err(PoolFull(value)),
        }
    }

    /// How many slots are in use; stale as soon as it is said.
    #[must_use]
    pub fn in_use_count(&self) -> usize {
        self.slots.iter().filter(|slot| !Self::is_free(**slot)).count()
    }

    /// How many slots there are by now.
    #[must_use]
    pub fn slots_count(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn free_slot(&mut self) -> Option<NonNull<Slot<T>>> {
        for _ in 0..PROBES {
            let slot = *self.slots.get(self.turn)?;
            self.turn += 1;
            if self.turn == self.slots.len() {
                self.turn = 0;
            }
            if Self::is_free(slot) {
                return Some(slot);
            }
        }
        None
    }

    #[inline]
    fn is_free(slot: NonNull<Slot<T>>) -> bool {
        // SAFETY: the chunk of a pool's slot lives as long as the pool.
        let slot = unsafe { slot.as_ref() };
        // Acquire: pairs with the Release in free(): what the last holder did comes before reuse.
        slot.word.load(Ordering::Acquire) == FREE
    }

    #[inline]
    fn fill(slot: NonNull<Slot<T>>, value: T) -> Parcel<T> {
        // SAFETY: as in is_free().
        let place = unsafe { slot.as_ref() };
        place.value.with_mut(|at| {
            // SAFETY: the slot is free, and only its pool, which is borrowed mutably, fills one.
            unsafe { at.cast::<T>().write(value) };
        });
        // Relaxed: the word has one holder, who hands it to others in an orderly way.
        place.word.store(ONE, Ordering::Relaxed);
        Parcel { slot }
    }

    /// Once the next slots are not free: any other, or new ones.
    #[cold]
    fn find_or_grow(&mut self) -> Option<NonNull<Slot<T>>> {
        if self.slots.len() < self.slots_max {
            return self.grow();
        }
        let at = self.slots.iter().position(|slot| Self::is_free(*slot))?;
        self.turn = (at + 1) % self.slots.len();
        Some(self.slots[at])
    }

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
        // SAFETY: just allocated, and nobody else knows it yet.
        unsafe { chunk.as_mut() }.slots = slots;
        self.chunks.push(chunk);
        let first = self.slots.len();
        // SAFETY: allocated above; from here on it is only read.
        let slots = unsafe { chunk.as_ref() }.slots.iter();
        self.slots.extend(slots.map(NonNull::from));
        self.turn = (first + 1) % self.slots.len();
        Some(self.slots[first])
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        for &chunk in &self.chunks {
            // SAFETY: a chunk lives until its pool and all its orphans are done with it.
            let seen = unsafe { chunk.as_ref() };
            // Relaxed: nobody looks at it before a slot says ORPHAN, which publishes it.
            seen.orphans.store(1, Ordering::Relaxed);
            for slot in &seen.slots {
                // Relaxed: as above. Before the mark: whoever sees the mark takes one away.
                seen.orphans.fetch_add(1, Ordering::Relaxed);
                // AcqRel: pairs with the exchange in free(): either it sees the mark, or we see
                // that the slot is free and nobody will touch it any more.
                if slot.word.fetch_or(ORPHAN, Ordering::AcqRel) == FREE {
                    seen.orphans.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Chunk::one_less(chunk);
        }
    }
}

impl<T> Chunk<T> {
    /// One orphan, or the pool itself, is done with the chunk; the last one frees it.
    fn one_less(chunk: NonNull<Self>) {
        // SAFETY: the caller's own count keeps it alive until it is taken away.
        let seen = unsafe { chunk.as_ref() };
        // AcqRel: pairs with itself: what the others did to their slots comes before the end.
        if seen.orphans.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: made by Box::new() in grow(), and with the count at zero nobody has a handle.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// Frees the slot even if dropping the value panics.
struct Free<T>(NonNull<Slot<T>>);

impl<T> Drop for Free<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slot is the dropper's until its word says FREE, and the chunk lives till then.
        let slot = unsafe { self.0.as_ref() };
        let chunk = slot.chunk;
        // AcqRel: publishes the end of the value to the Acquire in is_free(), and pairs with the
        // mark in Pool's drop.
        if slot.word.fetch_and(ORPHAN, Ordering::AcqRel) & ORPHAN != 0 {
            Chunk::one_less(chunk);
        }
    }
}

/// A value in a slot of a [`Pool`], with one holder, who may write to it.
pub struct Parcel<T> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: the one holder of a value; it goes along as T: Send allows.
unsafe impl<T: Send> Send for Parcel<T> {}

// SAFETY: by reference it gives out `&T` only.
unsafe impl<T: Sync> Sync for Parcel<T> {}

impl<T> Parcel<T> {
    /// From now on it may have several holders, who read.
    #[inline]
    #[must_use]
    pub fn share(self) -> Shared<T> {
        let slot = self.slot;
        core::mem::forget(self);
        Shared { slot }
    }

    /// Takes the value out.
    #[inline]
    #[must_use]
    pub fn into_inner(self) -> T {
        let slot = self.slot;
        core::mem::forget(self);
        let free = Free(slot);
        // SAFETY: in use, so it holds a value, and this was its one holder; Free drops no value.
        let value = unsafe { place(&free.0) }.with(|at| {
            // SAFETY: as above; it is not read again, as the slot is freed at the end.
            unsafe { at.cast::<T>().read() }
        });
        drop(free);
        value
    }
}

/// The value's place in a slot.
///
/// # Safety
/// The slot is in use, and the caller is one of its holders for as long as the reference is used.
#[inline]
unsafe fn place<T>(slot: &NonNull<Slot<T>>) -> &UnsafeCell<MaybeUninit<T>> {
    // SAFETY: a slot in use is kept alive, by its pool or as an orphan.
    &unsafe { slot.as_ref() }.value
}

impl<T> Deref for Parcel<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the holder.
        unsafe { place(&self.slot) }.with(|at| {
            // SAFETY: a slot in use holds a value, and while `self` is borrowed nobody writes it.
            unsafe { &*at.cast::<T>() }
        })
    }
}

impl<T> DerefMut for Parcel<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the holder.
        unsafe { place(&self.slot) }.with_mut(|at| {
            // SAFETY: a slot in use holds a value, this is its one holder, borrowed mutably.
            unsafe { &mut *at.cast::<T>() }
        })
    }
}

impl<T> Drop for Parcel<T> {
    #[inline]
    fn drop(&mut self) {
        let _free = Free(self.slot);
        // SAFETY: this is the holder.
        unsafe { place(&self.slot) }.with_mut(|at| {
            // SAFETY: a slot in use holds a value, and its one holder goes.
            unsafe { at.cast::<T>().drop_in_place() }
        });
    }
}

impl<T: fmt::Debug> fmt::Debug for Parcel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value in a slot of a [`Pool`] with any number of holders, who read it; the last one to go drops
/// it. To change what is shared, share something that can be: atomics, a mutex.
pub struct Shared<T> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: holders on several threads read the value by `&T` (Sync), and any of them may be the one
// that drops it (Send).
unsafe impl<T: Send + Sync> Send for Shared<T> {}

// SAFETY: as above: a reference can be cloned into a holder.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: in use, since this is a holder.
        &unsafe { self.slot.as_ref() }.word
    }

    /// Alone again, it may be written to; else it comes back.
    ///
    /// # Errors
    /// `self`, when there are other holders.
    #[inline]
    pub fn try_unshare(self) -> Result<Parcel<T>, Self> {
        // Acquire: pairs with the Release in drop(): what other holders read, they have read.
        if self.word().load(Ordering::Acquire) & COUNT != ONE {
            return Err(self);
        }
        let slot = self.slot;
        core::mem::forget(self);
        Ok(Parcel { slot })
    }

    /// How many holders there are; stale as soon as it is said, unless it is one.
    #[must_use]
    pub fn holders_count(&self) -> u32 {
        // Relaxed: a figure.
        (self.word().load(Ordering::Relaxed) & COUNT) + 1 - ONE
    }

    /// Whether both are the same value in the same slot.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: a holder is made from a holder, who keeps the value.
        let was = self.word().fetch_add(1, Ordering::Relaxed);
        if was & COUNT >= HOLDERS_LIMIT {
            // As with Arc: two thousand million forgotten holders are not to be survived.
            std::process::abort();
        }
        Self { slot: self.slot }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is a holder.
        unsafe { place(&self.slot) }.with(|at| {
            // SAFETY: a slot in use holds a value, and what is shared nobody writes.
            unsafe { &*at.cast::<T>() }
        })
    }
}

impl<T> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // Acquire: pairs with the Release below, of those who went before: all that they did with
        // the value comes before its end.
        if self.word().load(Ordering::Acquire) & COUNT != ONE {
            // Release: what this holder did comes before the end; pairs with the Acquire above and
            // below, of whoever is the last.
            if self.word().fetch_sub(1, Ordering::Release) & COUNT != ONE {
                return;
            }
            debug_assert_eq!(self.word().load(Ordering::Relaxed) & COUNT, DYING);
            // Acquire: pairs with the Release of those who went before, as above.
            fence(Ordering::Acquire);
        }
        drop(Parcel { slot: self.slot });
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} slots of {})", self.slots.len(), self.slots_max)
    }
}
