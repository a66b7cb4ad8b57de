//! Many producers, many consumers; [`crate::mpmc`] describes the algorithm.

use super::rows::{self, Rows};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use core::iter;
use core::ops::Range;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Flag in `MpmcShared::tail`: the ring is closed, so that no more positions can be reserved.
const CLOSED: u64 = 1 << 63;

/// Maximum number of slots that a batch reserves at once.
const RESERVED_MAX: usize = 32;

/// Amount by which a row's turn grows in each lap around the ring. The turns of a lap are vacant,
/// [`FILLED`], [`SKIPPED`] and an unused one, so that a lap's first turn is computed by a shift.
const TURNS_PER_LAP: u64 = 4;

/// Amount added to a lap's first turn when the row's slot is filled. At the first turn the slot is
/// vacant.
const FILLED: u64 = 1;

/// Amount added to a lap's first turn when consumers are to skip the row. Its slot stays empty in
/// this lap: an iterator has returned fewer values than it had claimed, and others have pushed
/// after it.
const SKIPPED: u64 = 2;

/// State shared by the producers and the consumers.
///
/// A position is the index of a row in its low bits and the number of the lap around the ring above
/// them. The word beside a slot says whose turn it is: [`TURNS_PER_LAP`] times the lap while the
/// slot is vacant, and more by [`FILLED`] or [`SKIPPED`] afterwards.
struct MpmcShared<T> {
    /// Position of the next push, with the flag [`CLOSED`], on a cache line of its own.
    tail: CachePadded<AtomicU64>,
    /// Position of the next pop, on a cache line of its own.
    head: CachePadded<AtomicU64>,
    /// Numbers of handles and closed flag, rarely written, so that every CPU keeps a copy of the
    /// line.
    handles: CachePadded<Handles>,
    rows: Rows<T, true>,
    slots_count: u64,
    /// Number of low bits of a position that are the index of its row: a slot and its state word.
    index_bits: u32,
}

/// Number of handles at each end, and whether the ring is closed.
struct Handles {
    /// `true` once `tail` has the flag [`CLOSED`]; a copy that is read without accessing the
    /// producers' line.
    closed: AtomicBool,
    producers_count: AtomicUsize,
    consumers_count: AtomicUsize,
}

impl<T> MpmcShared<T> {
    #[inline(always)]
    fn index_mask(&self) -> u64 {
        (1 << self.index_bits) - 1
    }

    /// Returns the index of the row for `position`.
    #[inline(always)]
    fn row(&self, position: u64) -> usize {
        (position & self.index_mask()) as usize
    }

    /// Returns the turn that the row for `position` has while its slot is vacant.
    #[inline(always)]
    fn vacant_turn(&self, position: u64) -> u64 {
        (position >> self.index_bits) * TURNS_PER_LAP
    }

    /// Returns the word of the row for `position`, which contains the row's turn.
    #[inline(always)]
    fn turn(&self, position: u64) -> &AtomicU64 {
        // SAFETY: positions begin with row 0, and next() returns to it after row `slots_count - 1`,
        // the last one.
        unsafe { self.rows.word(self.row(position)) }
    }

    /// Returns the slot of the row for `position`.
    #[inline(always)]
    fn slot(&self, position: u64) -> &rows::Slot<T> {
        // SAFETY: positions begin with row 0, and next() returns to it after row `slots_count - 1`,
        // the last one.
        unsafe { self.rows.slot(self.row(position)) }
    }

    /// Returns the position after `position`.
    #[inline(always)]
    fn next(&self, position: u64) -> u64 {
        let is_last = self.row(position) as u64 + 1 == self.slots_count;
        if is_last { (position | self.index_mask()) + 1 } else { position + 1 }
    }

    /// Returns the number of positions before `position`.
    #[inline(always)]
    fn count_before(&self, position: u64) -> u64 {
        (position >> self.index_bits) * self.slots_count + self.row(position) as u64
    }

    /// Reserves up to `wanted` positions of one lap: filled ones at the head if `IS_POP`, otherwise
    /// vacant ones at the tail. Returns [`PushError::Full`] if the next slot is not ready.
    #[inline(always)]
    fn reserve<const IS_POP: bool>(&self, wanted: usize) -> Result<Range<u64>, PushError<()>> {
        let next = if IS_POP { &self.head } else { &self.tail };
        // Relaxed: only a guess at what the exchange will find.
        let mut position = next.load(Ordering::Relaxed);
        loop {
            if !IS_POP && position & CLOSED != 0 {
                return Err(PushError::Closed(()));
            }
            let ready = self.vacant_turn(position) + if IS_POP { FILLED } else { 0 };
            // Acquire: pairs with the Release in set_turn(): the value is complete, or the last one
            // was taken.
            let turn = self.turn(position).load(Ordering::Acquire);
            if turn < ready {
                if !IS_POP {
                    stage::record_refused(self.count_before(position), self);
                }
                return Err(PushError::Full(()));
            }
            if turn > ready {
                // Another thread has reserved the slot since, or there is none to pop in it.
                if IS_POP && turn == self.vacant_turn(position) + SKIPPED {
                    self.skip(position);
                }
                // Relaxed: as above.
                position = next.load(Ordering::Relaxed);
                continue;
            }
            let mut end = position + 1;
            // Slots after it, in the same lap. Acquire: as above.
            while end - position < wanted as u64
                && self.row(position) as u64 + (end - position) < self.slots_count
                && self.turn(end).load(Ordering::Acquire) == ready
            {
                end += 1;
            }
            // A slot that is ready stays so until its position is reserved, which changes `next`;
            // if others have given the positions back since, the slots are as they were. Relaxed:
            // it gives out positions and publishes nothing; turns do.
            let reserved = next.compare_exchange_weak(
                position,
                self.next(end - 1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match reserved {
                Ok(_) => return Ok(position..end),
                Err(now) => position = now,
            }
        }
    }

    /// Sets the turn of the row for `position` to its vacant turn plus `after`.
    #[inline(always)]
    fn set_turn(&self, position: u64, after: u64) {
        // Release: publishes the access to the slot to the Acquire in reserve().
        self.turn(position).store(self.vacant_turn(position) + after, Ordering::Release);
    }

    /// Writes `value` to the slot of a reserved position and publishes it.
    ///
    /// # Safety
    /// `reserve::<false>` gave the position to the caller, and it is filled once.
    #[inline(always)]
    unsafe fn fill(&self, position: u64, value: T) {
        // SAFETY: only the caller has the position, and consumers wait for its turn. The turn, read
        // with Acquire, said that the slot is vacant in this lap; no other thread changes it before
        // it is filled.
        unsafe { rows::write_slot(self.slot(position), value) };
        self.set_turn(position, FILLED);
        stage::record_published(self.count_before(position) + 1, self);
    }

    /// Takes the value of a reserved position, and makes its slot vacant for the next lap.
    ///
    /// # Safety
    /// `reserve::<true>` gave the position to the caller, and its value is taken once.
    #[inline(always)]
    unsafe fn take(&self, position: u64) -> T {
        // SAFETY: only the caller has the position, and producers wait for its turn. The turn, read
        // with Acquire, said that the slot is filled in this lap; no other thread changes it before
        // it is vacant.
        let value = unsafe { rows::take_from_slot(self.slot(position)) };
        self.set_turn(position, TURNS_PER_LAP);
        stage::record_popped(self.count_before(position) + 1, self);
        value
    }

    #[inline(always)]
    fn pop(&self) -> Option<T> {
        let reserved = self.reserve::<true>(1).ok()?;
        // SAFETY: reserved just now, and taken only here.
        Some(unsafe { self.take(reserved.start) })
    }

    /// Skips the slot at `position`, and makes it vacant for the next lap. Does nothing if another
    /// consumer has skipped it.
    #[cold]
    fn skip(&self, position: u64) {
        // Relaxed both ways: as in reserve().
        let next = self.next(position);
        if self.head.compare_exchange(position, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.set_turn(position, TURNS_PER_LAP);
        }
    }

    /// Returns reserved positions that were not filled. Moves the tail back if no later position
    /// was reserved, otherwise marks their slots to be skipped.
    #[cold]
    #[inline(never)]
    fn return_positions(&self, positions: Range<u64>) {
        // Relaxed both ways: as in reserve(). Nothing was written to the slots or their turns.
        let returned = self.tail.compare_exchange(
            self.next(positions.end - 1),
            positions.start,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if returned.is_err() {
            positions.for_each(|position| self.set_turn(position, SKIPPED));
        }
    }

    /// Sets the flag [`CLOSED`], so that no more positions can be reserved.
    fn close(&self) {
        // Relaxed: totally ordered with the exchanges that give out positions, so that no position
        // follows; nothing else depends on it.
        self.tail.fetch_or(CLOSED, Ordering::Relaxed);
        // Release: a thread that reads true sees CLOSED in the tail; pairs with the Acquire in
        // is_finished().
        self.handles.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.handles.closed.load(Ordering::Relaxed)
    }

    fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in close(): the tail read below contains CLOSED, and so
        // its last position.
        if !self.handles.closed.load(Ordering::Acquire) {
            return false;
        }
        // Relaxed both: the tail changes no more, and a head that is too old only says `false`.
        let end = self.tail.load(Ordering::Relaxed) & !CLOSED;
        self.head.load(Ordering::Relaxed) == end
    }

    fn len(&self) -> usize {
        // Relaxed both: only a count. Either may be older than the other: bounded by the number of
        // slots.
        let pushed = self.count_before(self.tail.load(Ordering::Relaxed) & !CLOSED);
        let popped = self.count_before(self.head.load(Ordering::Relaxed));
        pushed.saturating_sub(popped).min(self.slots_count) as usize
    }
}

impl<T> Drop for MpmcShared<T> {
    /// Drops the values that were not popped. These are from pushes that were under way when the
    /// last consumer was dropped.
    fn drop(&mut self) {
        rows::drop_all_values(|| self.pop().is_some());
    }
}

/// Creates a ring of exactly `slots_count` slots. Returns its first producer and its first
/// consumer, which can be cloned.
///
/// ```
/// let (producer, consumer) = handover_ring::mpmc::ring(64)?;
/// let squares: u64 = std::thread::scope(|scope| {
///     let workers = [(); 2].map(|()| {
///         let jobs = consumer.clone();
///         scope.spawn(move || {
///             let mut sum = 0;
///             while !jobs.is_finished() {
///                 sum += jobs.pop().map_or(0, |number: u64| number * number);
///             }
///             sum
///         })
///     });
///     for number in 1..=10 {
///         producer.push(number).unwrap();
///     }
///     drop(producer); // closes; pushed values remain
///     workers.map(|worker| worker.join().unwrap()).iter().sum()
/// });
/// assert_eq!(squares, 385);
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
///
/// # Cost
/// Memory for each slot of the value's size and 8 bytes, rounded up to 16, 32 or whole cache lines.
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows =
        Rows::new(slots_count as usize).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(MpmcShared {
        tail: CachePadded(AtomicU64::new(0)),
        head: CachePadded(AtomicU64::new(0)),
        handles: CachePadded(Handles {
            closed: AtomicBool::new(false),
            producers_count: AtomicUsize::new(1),
            consumers_count: AtomicUsize::new(1),
        }),
        rows,
        slots_count: u64::from(slots_count),
        index_bits: slots_count.next_power_of_two().trailing_zeros(),
    });
    Ok((Producer { shared: Arc::clone(&shared) }, Consumer { shared }))
}

/// Producer's end of a ring; clone it for more producers. Dropping the last one closes the ring;
/// values that were pushed can still be popped.
///
/// Values that one thread pushes are popped in the order in which it pushed them, by whichever
/// consumers.
///
/// A producer is invariant in `T`: it cannot stand for a producer of values with a shorter
/// lifetime, which a consumer would pop as its own `T`:
///
/// ```compile_fail,E0597
/// let (producer, consumer) = handover_ring::mpmc::ring::<&'static str>(1)?;
/// {
///     let short = String::from("freed at the end of this block");
///     let producer: handover_ring::mpmc::Producer<&str> = producer;
///     producer.push(&short).unwrap();
/// }
/// let freed: &'static str = consumer.pop().unwrap();
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
pub struct Producer<T> {
    shared: Arc<MpmcShared<T>>,
}

/// Consumer's end of a ring; clone it for more consumers. Dropping the last one closes the ring,
/// and drops the values in it.
pub struct Consumer<T> {
    shared: Arc<MpmcShared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value; the error contains it if the ring is full or closed.
    ///
    /// # Errors
    /// [`PushError::Full`] if the next slot was taken when read, also by a value that a consumer
    /// has not finished popping; [`PushError::Closed`] for ever once the ring is closed. Both
    /// return the value.
    ///
    /// # Blocking
    /// Never. A try that another producer overtakes is repeated; of the producers that try at the
    /// same time, at least one succeeds (lock-free).
    ///
    /// # Cost
    /// One compare-and-swap on the producers' line, and another each time that a producer
    /// overtakes; two stores to the line of the value. A refusal makes no read-modify-write.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), PushError<T>> {
        match self.shared.reserve::<false>(1) {
            Ok(reserved) => {
                // SAFETY: reserved just now, and filled only here.
                unsafe { self.shared.fill(reserved.start, value) };
                Ok(())
            }
            Err(PushError::Full(())) => Err(PushError::Full(value)),
            Err(PushError::Closed(())) => Err(PushError::Closed(value)),
        }
    }

    /// Returns `true` if the ring was empty when read; values count as in [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pushes values from the iterator until the ring is full or closed. Returns the number pushed,
    /// and leaves the other values in the iterator. Values of other producers may lie in between.
    ///
    /// ```
    /// let (producer, consumer) = handover_ring::mpmc::ring(3)?;
    /// let mut values = 0..5;
    /// assert_eq!(producer.push_batch(&mut values), 3);
    /// assert_eq!(consumer.pop_batch(2, |value| assert!(value < 2)), 2);
    /// assert_eq!(producer.push_batch(&mut values), 2);
    /// assert!(consumer.drain().eq(2..5));
    /// # Ok::<(), handover_ring::CapacityError>(())
    /// ```
    ///
    /// If fewer than all values were pushed, the ring is full or closed; call
    /// [`is_closed`](Self::is_closed) to find out.
    ///
    /// Slots are reserved for as many values as the iterator claims to have, at most 32 at a time.
    /// Until it has returned them, values that others push later cannot be popped: so if consumers
    /// sleep, wake one for each value after this call *whatever it returned*, and also if the
    /// iterator panicked.
    ///
    /// # Panics
    /// If the iterator does; the values that it returned before have been pushed.
    ///
    /// # Blocking
    /// If the iterator blocks. An iterator that waits for a consumer may wait for ever.
    ///
    /// # Cost
    /// One compare-and-swap for up to 32 values whose slots are vacant in one piece; a load and two
    /// stores for each value. If the iterator returns fewer values than it claims, another
    /// compare-and-swap returns the remaining slots, or, if others have pushed after them, one
    /// store a slot, which stays unused in this lap.
    pub fn push_batch(&self, values: &mut impl ExactSizeIterator<Item = T>) -> usize {
        let mut pushed = 0;
        while let claimed @ 1.. = values.len() {
            let Ok(positions) = self.shared.reserve::<false>(claimed.min(RESERVED_MAX)) else {
                break;
            };
            let mut vacant = VacantPositions { shared: &self.shared, positions };
            for position in vacant.positions.clone() {
                let Some(value) = values.next() else {
                    return pushed;
                };
                vacant.positions.start = position + 1;
                // SAFETY: reserved just now, and the first vacant position has moved on.
                unsafe { self.shared.fill(position, value) };
                pushed += 1;
            }
        }
        pushed
    }
}

/// Guard of reserved positions that are not filled yet; its destructor returns them to the ring.
struct VacantPositions<'a, T> {
    shared: &'a MpmcShared<T>,
    positions: Range<u64>,
}

impl<T> Drop for VacantPositions<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.positions.is_empty() {
            self.shared.return_positions(self.positions.clone());
        }
    }
}

impl<T> Consumer<T> {
    /// Pops the oldest value; `None` if the oldest slot is vacant or still being filled.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come.
    /// While a producer that has reserved a slot has not filled it, later values of others are not
    /// popped: `None`.
    ///
    /// # Blocking
    /// Never. A try that another consumer overtakes is repeated; of the consumers that try at the
    /// same time, at least one succeeds (lock-free).
    ///
    /// # Cost
    /// One compare-and-swap on the consumers' line, and another each time that a consumer
    /// overtakes; a store to the line of the value. `None` makes no read-modify-write, and no
    /// access to the producers' line.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.shared.pop()
    }

    /// Pops up to `values_max` values and passes them to `each`; returns the number popped.
    ///
    /// Values are reserved for this call in groups of at most 32: other consumers pop later ones
    /// meanwhile.
    ///
    /// # Panics
    /// If `each` does; the value that it panicked with, and all before, have been popped, and the
    /// values of its group after it are dropped.
    ///
    /// # Blocking
    /// If `each` blocks; pushes that come around to the slots of its group are then refused.
    ///
    /// # Cost
    /// One compare-and-swap for up to 32 values that are ready in one piece; a load and a store for
    /// each value.
    #[inline]
    pub fn pop_batch(&self, values_max: usize, mut each: impl FnMut(T)) -> usize {
        let mut popped = 0;
        while popped < values_max {
            let wanted = (values_max - popped).min(RESERVED_MAX);
            let Ok(positions) = self.shared.reserve::<true>(wanted) else {
                break;
            };
            for value in &mut (ReservedValues { shared: &self.shared, positions }) {
                popped += 1;
                each(value);
            }
        }
        popped
    }

    /// Returns an iterator that pops values until none is ready. Each is popped like
    /// [`pop`](Self::pop).
    #[inline]
    pub fn drain(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.pop())
    }

    /// Returns `true` if no value was ready when read; one may be ready by now. `false` does not
    /// last either: another consumer may pop the value, or the slot may be one that a batch left
    /// unused.
    ///
    /// # Cost
    /// A load of the consumers' line and of the next value's.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: a head that is too old only says `false`.
        let position = self.shared.head.load(Ordering::Relaxed);
        // Relaxed: a pop() that follows reads it with Acquire.
        let turn = self.shared.turn(position).load(Ordering::Relaxed);
        turn < self.shared.vacant_turn(position) + FILLED
    }

    /// Returns `true` if the ring is empty and no value can be pushed any more. Once true, it stays
    /// true. It is `false` while a push that began before the ring was closed is in progress, and
    /// until [`pop`](Self::pop) has passed the slots that a batch left unused.
    ///
    /// # Cost
    /// A load of a line that no thread writes, until the ring is closed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.shared.is_finished()
    }
}

/// Iterator over the values at reserved positions; its destructor drops those not returned.
struct ReservedValues<'a, T> {
    shared: &'a MpmcShared<T>,
    positions: Range<u64>,
}

impl<T> Iterator for ReservedValues<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let position = self.positions.next()?;
        // SAFETY: the position was reserved, and the first one has moved on.
        Some(unsafe { self.shared.take(position) })
    }
}

impl<T> Drop for ReservedValues<'_, T> {
    #[inline]
    fn drop(&mut self) {
        rows::drop_all_values(|| self.next().is_some());
    }
}

/// Defines the operations that both ends have, with the name for `Debug` and the end's count.
macro_rules! both_ends {
    ($end:ident, $name:literal, $count:ident) => {
        impl<T> $end<T> {
            /// Returns the number of values in the ring, including those being pushed and slots
            /// reserved by a batch.
            ///
            /// Other threads push and pop meanwhile: use it for display and statistics only.
            ///
            /// # Cost
            /// A load of the producers' line and of the consumers'.
            pub fn len(&self) -> usize {
                self.shared.len()
            }

            /// Returns the number of slots of the ring.
            pub fn slots_count(&self) -> usize {
                self.shared.slots_count as usize
            }

            /// Returns `true` if the ring is closed, so that pushes fail; there may be values to
            /// pop. Once true, it stays true.
            #[inline]
            pub fn is_closed(&self) -> bool {
                self.shared.is_closed()
            }

            /// Closes the ring, so that every further push, by any producer, fails. Values that
            /// were pushed, or are being pushed, can still be popped.
            pub fn close(&self) {
                self.shared.close();
            }
        }

        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                // Relaxed: as in Arc's count, a handle is made from a live handle.
                self.shared.handles.$count.fetch_add(1, Ordering::Relaxed);
                Self { shared: Arc::clone(&self.shared) }
            }
        }

        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = concat!("mpmc::", $name);
                rows::fmt_end(f, name, self.len(), self.slots_count(), self.is_closed())
            }
        }
    };
}

both_ends!(Producer, "Producer", producers_count);
both_ends!(Consumer, "Consumer", consumers_count);

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // AcqRel: pairs with itself in the other producers: all of their pushes come before the
        // last producer closes the ring.
        if self.shared.handles.producers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // AcqRel: pairs with itself in the other consumers: what they have popped is vacant for the
        // last one.
        if self.shared.handles.consumers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
            // Values that are still being pushed, and those behind them, are dropped with the ring.
            rows::drop_all_values(|| self.pop().is_some());
        }
    }
}
