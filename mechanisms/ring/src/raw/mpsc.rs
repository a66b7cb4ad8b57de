//! Many producers, one consumer; [`crate::mpsc`] describes the algorithm.

use super::rows::{self, Rows};
use crate::drain::{self, DrainSource};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Flag in `Tail::next`: the ring is closed, so that no more positions can be reserved.
const CLOSED: u64 = 1 << 63;

/// Flag in a slot's sequence: the slot stays empty at this position, and the consumer skips it. An
/// iterator has returned fewer values than it had claimed, and others have pushed after it.
const SKIPPED: u64 = 1 << 63;

/// State shared by the producers and the consumer.
struct MpscShared<T> {
    /// Positions at which producers push, on cache lines of their own.
    tail: CachePadded<Tail>,
    /// Position up to which the consumer has popped values, on a cache line of its own.
    head: CachePadded<AtomicU64>,
    /// State of the producers' end, rarely written, so that every CPU keeps a copy of its line.
    producer_state: CachePadded<ProducerState>,
    rows: Rows<T, true>,
    /// Mask for the low bits of a position that are the index of its row. It is the number of rows,
    /// a power of two, minus one.
    mask: u64,
    slots_count: u64,
}

/// Positions at which producers push.
struct Tail {
    /// Next position that a producer will reserve, with the flag [`CLOSED`].
    next: AtomicU64,
    /// Position below which slots are vacant, as of the last read of the head. It lies in the same
    /// cache line as `next`, so that one read of the consumer's line serves all producers.
    limit: AtomicU64,
}

/// State of the producers' end.
struct ProducerState {
    /// `true` once `Tail::next` has the flag [`CLOSED`]. The consumer reads this copy without
    /// accessing the producers' line.
    closed: AtomicBool,
    /// Number of producers that were not dropped.
    producers_count: AtomicUsize,
}

impl<T> MpscShared<T> {
    /// Returns the index of the row for `position`.
    #[inline(always)]
    fn row(&self, position: u64) -> usize {
        (position & self.mask) as usize
    }

    /// Returns the sequence word of the slot for `position`.
    #[inline(always)]
    fn sequence(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the masked row is below the number of rows.
        unsafe { self.rows.word(self.row(position)) }
    }

    /// Writes `value` to the slot of a reserved position and publishes it.
    ///
    /// # Safety
    /// `reserve` gave the position to the caller, and it is filled once.
    #[inline(always)]
    unsafe fn fill(&self, position: u64, value: T) {
        let sequence = self.sequence(position);
        // SAFETY: the masked row is below the number of rows.
        let slot = unsafe { self.rows.slot(self.row(position)) };
        // SAFETY: only the caller has this position. It is below the limit, so that the consumer
        // has taken the slot's last value, which reserve() has acquired; the consumer does not
        // access the slot again before the sequence is written.
        unsafe { rows::write_slot(slot, value) };
        // Release: publishes the slot to the Acquire in Consumer::slot_state().
        sequence.store(position + 1, Ordering::Release);
        stage::record_published(position + 1, self);
    }

    /// Reserves up to `wanted` positions for the caller; returns the first position and the number
    /// of positions.
    #[inline(always)]
    fn reserve(&self, wanted: u64) -> Result<(u64, u64), PushError<()>> {
        // Relaxed: only a guess at what the exchange will find.
        let mut next = self.tail.next.load(Ordering::Relaxed);
        loop {
            if next & CLOSED != 0 {
                return Err(PushError::Closed(()));
            }
            // Acquire: pairs with the Release in refresh_limit(), of the producer that called it
            // last: the values in slots below the limit were taken before they are overwritten.
            let mut limit = self.tail.limit.load(Ordering::Acquire);
            if next >= limit {
                limit = self.refresh_limit();
                if next >= limit {
                    stage::record_refused(next, self);
                    return Err(PushError::Full(()));
                }
            }
            // Not `next + wanted`, which may overflow: an iterator may claim any length.
            let end = next + wanted.min(limit - next);
            // Relaxed: it gives out positions and publishes nothing; sequences do.
            match self.tail.next.compare_exchange_weak(
                next,
                end,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok((next, end - next)),
                Err(now) => next = now,
            }
        }
    }

    /// Returns the reserved positions `position..end`, which were not filled. Moves the tail back
    /// if no later position was reserved, otherwise marks their slots to be skipped.
    #[cold]
    #[inline(never)]
    fn return_positions(&self, position: u64, end: u64) {
        // Relaxed both ways: as in reserve(). Nothing was written to the slots or their sequences.
        let returned =
            self.tail.next.compare_exchange(end, position, Ordering::Relaxed, Ordering::Relaxed);
        if returned.is_ok() {
            return;
        }
        for position in position..end {
            // Release: lets the consumer pass; pairs with the Acquire in Consumer::slot_state().
            self.sequence(position).store((position + 1) | SKIPPED, Ordering::Release);
        }
    }

    /// Reads the consumer's position; updates and returns `Tail::limit`.
    #[cold]
    #[inline(never)]
    fn refresh_limit(&self) -> u64 {
        // Acquire: pairs with the Release in Consumer::release_slots().
        let limit = self.head.load(Ordering::Acquire) + self.slots_count;
        // Release: passes on what was acquired to the Acquire in reserve(). This may overwrite a
        // greater limit that another producer stored; a limit that is too low is read anew when it
        // is reached.
        self.tail.limit.store(limit, Ordering::Release);
        limit
    }

    /// Sets the flag [`CLOSED`], so that no more positions can be reserved.
    fn close(&self) {
        // Relaxed: totally ordered with the exchanges that give out positions, so that no position
        // follows; nothing else depends on it.
        self.tail.next.fetch_or(CLOSED, Ordering::Relaxed);
        // Release: a thread that reads true sees CLOSED in the tail; pairs with the Acquire in
        // Consumer::is_finished().
        self.producer_state.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.producer_state.closed.load(Ordering::Relaxed)
    }

    /// Returns the number of positions reserved since the ring was created.
    fn positions_reserved(&self) -> u64 {
        // Relaxed: only a count.
        self.tail.next.load(Ordering::Relaxed) & !CLOSED
    }

    /// Returns the number of reserved positions from `head` on.
    fn len(&self, head: u64) -> usize {
        // The head may be older or newer than the tail: bounded by the number of slots.
        self.positions_reserved().saturating_sub(head).min(self.slots_count) as usize
    }
}

impl<T> Drop for MpscShared<T> {
    /// Drops the values that were not popped.
    fn drop(&mut self) {
        // Relaxed: all handles are dropped, and the Arc has ordered their accesses before this.
        let mut position = self.head.load(Ordering::Relaxed);
        let end = self.positions_reserved();
        rows::drop_all_values(|| {
            if position == end {
                return false;
            }
            // Relaxed: as for the head.
            let sequence = self.sequence(position).load(Ordering::Relaxed);
            let row = self.row(position);
            position += 1;
            if sequence == position {
                // SAFETY: the masked row is below the number of rows.
                let slot = unsafe { self.rows.slot(row) };
                // SAFETY: the sequence shows that the slot was filled; its value was not taken, as
                // its position is not below the head; no other handle is left, and `position` has
                // moved on.
                drop(unsafe { rows::take_from_slot(slot) });
            }
            true
        });
    }
}

/// Creates a ring of exactly `slots_count` slots. Returns its first producer, which can be cloned,
/// and its consumer.
///
/// ```
/// let (producer, mut consumer) = handover_ring::mpsc::ring(64)?;
/// std::thread::scope(|scope| {
///     for name in ["a", "b"] {
///         let producer = producer.clone();
///         scope.spawn(move || producer.push(name).unwrap());
///     }
/// });
/// let mut names: Vec<_> = consumer.drain().collect();
/// names.sort();
/// assert_eq!(names, ["a", "b"]);
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
///
/// # Cost
/// Memory for the next power of two of slots, each of the value's size and 8 bytes, rounded up to
/// 16, 32 or whole cache lines.
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows_count = slots_count.next_power_of_two();
    let rows =
        Rows::new(rows_count as usize).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(MpscShared {
        tail: CachePadded(Tail {
            next: AtomicU64::new(0),
            limit: AtomicU64::new(u64::from(slots_count)),
        }),
        head: CachePadded(AtomicU64::new(0)),
        producer_state: CachePadded(ProducerState {
            closed: AtomicBool::new(false),
            producers_count: AtomicUsize::new(1),
        }),
        rows,
        mask: u64::from(rows_count - 1),
        slots_count: u64::from(slots_count),
    });
    Ok((Producer { shared: Arc::clone(&shared) }, Consumer { shared, head: 0 }))
}

/// Producer's end of a ring; clone it for more producers. Dropping the last one closes the ring;
/// values that were pushed can still be popped.
///
/// Values that one thread pushes are popped in the order in which it pushed them.
///
/// A producer is invariant in `T`: it cannot stand for a producer of values with a shorter
/// lifetime, which the consumer would pop as its own `T`:
///
/// ```compile_fail,E0597
/// let (producer, mut consumer) = handover_ring::mpsc::ring::<&'static str>(1)?;
/// {
///     let short = String::from("freed at the end of this block");
///     let producer: handover_ring::mpsc::Producer<&str> = producer;
///     producer.push(&short).unwrap();
/// }
/// let freed: &'static str = consumer.pop().unwrap();
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
pub struct Producer<T> {
    shared: Arc<MpscShared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value; the error contains it if the ring is full or closed.
    ///
    /// # Errors
    /// [`PushError::Full`] if every slot was taken at some moment during the call,
    /// [`PushError::Closed`] for ever once the ring is closed. Both return the value.
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
        match self.shared.reserve(1) {
            Ok((position, _)) => {
                // SAFETY: reserved just now, and filled only here.
                unsafe { self.shared.fill(position, value) };
                Ok(())
            }
            Err(PushError::Full(())) => Err(PushError::Full(value)),
            Err(PushError::Closed(())) => Err(PushError::Closed(value)),
        }
    }

    /// Pushes values from the iterator until the ring is full or closed. Returns the number pushed,
    /// and leaves the other values in the iterator. Values of other producers may lie in between.
    ///
    /// If fewer than all values were pushed, the ring is full or closed; call
    /// [`is_closed`](Self::is_closed) to find out.
    ///
    /// Slots are reserved for as many values as the iterator claims to have. Until it has returned
    /// them, values that others push later cannot be popped: so if the consumer sleeps, wake it
    /// after this call *whatever it returned*, and also if the iterator panicked.
    ///
    /// # Panics
    /// If the iterator does; the values that it returned before have been pushed.
    ///
    /// # Blocking
    /// If the iterator blocks. An iterator that waits for the consumer may wait for ever.
    ///
    /// # Cost
    /// One compare-and-swap for all, as long as there are slots in one piece; two stores for each
    /// value. If the iterator returns fewer values than it claims, another compare-and-swap returns
    /// the remaining slots, or, if others have pushed after them, one store a slot, which stays
    /// unused until the consumer has passed it.
    pub fn push_batch(&self, values: &mut impl ExactSizeIterator<Item = T>) -> usize {
        let mut pushed = 0;
        while let claimed @ 1.. = values.len() as u64 {
            let Ok((position, count)) = self.shared.reserve(claimed) else { break };
            let mut batch =
                ReservedPositions { shared: &self.shared, position, end: position + count };
            while batch.position < batch.end {
                let Some(value) = values.next() else {
                    return pushed;
                };
                let position = batch.position;
                batch.position += 1;
                // SAFETY: reserved just now, and the batch's position has moved on.
                unsafe { self.shared.fill(position, value) };
                pushed += 1;
            }
        }
        pushed
    }

    /// Returns the number of values in the ring. It includes values being pushed and slots reserved
    /// by a batch.
    ///
    /// Other threads push and pop meanwhile: use it for display and statistics only.
    ///
    /// # Cost
    /// A load of the producers' line and of the consumer's.
    pub fn len(&self) -> usize {
        // Relaxed: only a count.
        self.shared.len(self.shared.head.load(Ordering::Relaxed))
    }

    /// Returns `true` if the ring was empty when read; slots count as in [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of slots of the ring.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Returns `true` if the ring is closed. Once true, it stays true.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Closes the ring, so that every further push, by any producer, fails. Values already pushed
    /// can still be popped.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        // Relaxed: as in Arc's count, a handle is made from a live handle.
        self.shared.producer_state.producers_count.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // AcqRel: pairs with itself in the other producers: all of their pushes come before the
        // last producer closes the ring.
        if self.shared.producer_state.producers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rows::fmt_end(f, "mpsc::Producer", self.len(), self.slots_count(), self.is_closed())
    }
}

/// Guard of reserved positions that are not filled yet; its destructor returns them to the ring.
struct ReservedPositions<'a, T> {
    shared: &'a MpscShared<T>,
    /// First reserved position that is not filled.
    position: u64,
    /// Position after the last reserved one.
    end: u64,
}

impl<T> Drop for ReservedPositions<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.position < self.end {
            self.shared.return_positions(self.position, self.end);
        }
    }
}

/// Consumer's end of a ring. Dropping it closes the ring, and drops the values in it. Values that
/// are being pushed, and those behind them, are dropped with the last producer; a consumer that is
/// to drop them itself calls [`close`](Self::close), and pops until
/// [`is_finished`](Self::is_finished).
pub struct Consumer<T> {
    shared: Arc<MpscShared<T>>,
    /// Position of the next value to pop.
    head: u64,
}

/// State of a slot at the consumer's position, as read from the slot's sequence.
enum SlotState {
    Filled,
    /// The slot stays empty, and the consumer skips it.
    Skipped,
    /// The slot is vacant, or a producer is filling it.
    NotReady,
}

impl<T> Consumer<T> {
    /// Pops the oldest value; `None` if the oldest slot is vacant or still being filled.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come.
    /// While a producer that has reserved a slot has not filled it, later values of others are not
    /// popped: `None`.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the value's line, and a store to a line that producers read seldom; no
    /// read-modify-write, and no access to the producers' line.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.take()?;
        stage::record_popped(self.head, &*self.shared);
        self.release_slots();
        Some(value)
    }

    /// Pops up to `values_max` values and passes them to `each`; returns the number popped.
    ///
    /// # Panics
    /// If `each` does; the value that it panicked with, and all before, have been popped.
    ///
    /// # Cost
    /// Like [`drain`](Self::drain).
    #[inline]
    pub fn pop_batch(&mut self, values_max: usize, mut each: impl FnMut(T)) -> usize {
        let mut count = 0;
        for value in self.drain().take(values_max) {
            count += 1;
            each(value);
        }
        count
    }

    /// Returns an iterator that pops values until none is ready. Values that it has not returned
    /// stay in the ring.
    ///
    /// # Cost
    /// Slots are released to the producers after every 32 values, and when the iterator is dropped:
    /// less than one store for each value.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain::new(self)
    }

    /// Returns the oldest value without popping it. Returns `None` if the oldest slot is vacant or
    /// still being filled.
    ///
    /// `None` may be stale at once; `Some` stays valid until this handle pops.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Like [`pop`](Self::pop), without its store.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        let state = loop {
            match self.slot_state(self.head) {
                SlotState::Skipped => {
                    self.head += 1;
                    self.release_slots();
                }
                state => break state,
            }
        };
        if !matches!(state, SlotState::Filled) {
            return None;
        }
        // SAFETY: the masked row is below the number of rows.
        let slot = unsafe { self.shared.rows.slot(self.shared.row(self.head)) };
        // SAFETY: the state, read with Acquire, says that the slot was filled; it is taken and
        // released by methods with `&mut self` only, which the reference excludes.
        Some(unsafe { rows::value_in_slot(slot) })
    }

    /// Returns the number of values in the ring. It includes values being pushed and slots reserved
    /// by a batch, so that fewer values may be ready.
    ///
    /// # Cost
    /// A load of the producers' line, which slows them: for display and statistics. To find out
    /// whether a value is ready, call [`is_empty`](Self::is_empty).
    pub fn len(&self) -> usize {
        self.shared.len(self.head)
    }

    /// Returns `true` if no value was ready when read; one may be ready by now. `false` stays valid
    /// until this handle pops.
    ///
    /// # Cost
    /// A load of the next value's line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let mut position = self.head;
        loop {
            match self.slot_state(position) {
                SlotState::Filled => return false,
                SlotState::NotReady => return true,
                SlotState::Skipped => position += 1,
            }
        }
    }

    /// Returns the number of slots of the ring.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Returns `true` if the ring is closed, so that pushes fail; there may be values to pop. Once
    /// true, it stays true.
    ///
    /// # Cost
    /// A load of a line that no thread writes until the ring is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns `true` if the ring is empty and no value can be pushed any more. Once true, it stays
    /// true. It is `false` while a push that began before the ring was closed is in progress.
    ///
    /// # Cost
    /// A load of a line that no thread writes, until the ring is closed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in close(): the tail read below contains CLOSED, and so
        // its last position.
        if !self.shared.producer_state.closed.load(Ordering::Acquire) {
            return false;
        }
        let end = self.shared.positions_reserved();
        let mut position = self.head;
        while position < end && matches!(self.slot_state(position), SlotState::Skipped) {
            position += 1;
        }
        position == end
    }

    /// Closes the ring, so that every later push fails. Values that were pushed, or are being
    /// pushed, can still be popped.
    pub fn close(&mut self) {
        self.shared.close();
    }

    /// Reads the state of the slot at `position`.
    #[inline(always)]
    fn slot_state(&self, position: u64) -> SlotState {
        // Acquire: pairs with the Release in MpscShared::fill() and return_positions().
        let sequence = self.shared.sequence(position).load(Ordering::Acquire);
        if sequence == position + 1 {
            SlotState::Filled
        } else if sequence != (position + 1) | SKIPPED {
            SlotState::NotReady
        } else {
            SlotState::Skipped
        }
    }

    /// Pops the value at the head without publishing that its slot is vacant. Returns `None` if the
    /// slot is vacant or being filled.
    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        let row = self.shared.row(self.head);
        // SAFETY: the masked row is below the number of rows.
        let slot = unsafe { self.shared.rows.slot(row) };
        // Acquire: pairs with the Release in MpscShared::fill() and return_positions().
        let sequence = self.shared.sequence(self.head).load(Ordering::Acquire);
        if sequence == self.head + 1 {
            // SAFETY: the sequence, read with Acquire, says that the slot was filled; the head
            // moves on, so that the value is taken once; producers do not access the slot before
            // release_slots().
            let value = unsafe { rows::take_from_slot(slot) };
            self.head += 1;
            return Some(value);
        }
        if sequence == (self.head + 1) | SKIPPED {
            return self.skip_and_take();
        }
        None
    }

    /// Reads the next value after slots to be skipped; `None` if it is not ready. Skips at most as
    /// many slots as the ring has, as `release_slots` has to vacate further ones for producers.
    #[cold]
    fn skip_and_take(&mut self) -> Option<T> {
        let state = loop {
            match self.slot_state(self.head) {
                SlotState::Skipped => self.head += 1,
                state => break state,
            }
        };
        self.release_slots();
        if matches!(state, SlotState::Filled) { self.take() } else { None }
    }

    /// Releases the slots of all values read so far to the producers.
    #[inline(always)]
    fn release_slots(&self) {
        // Release: their values have been taken; pairs with the Acquire in refresh_limit().
        self.shared.head.store(self.head, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close();
        // Values that are still being pushed, and those behind them, are dropped with the ring.
        rows::drop_all_values(|| self.pop().is_some());
        self.release_slots();
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rows::fmt_end(f, "mpsc::Consumer", self.len(), self.slots_count(), self.is_closed())
    }
}

/// Iterator returned by [`Consumer::drain`].
pub type Drain<'a, T> = drain::Drain<'a, Consumer<T>>;

impl<T> DrainSource for Consumer<T> {
    type Value = T;

    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        Consumer::take(self)
    }

    #[inline(always)]
    fn release_slots(&self) {
        Consumer::release_slots(self);
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }
}
