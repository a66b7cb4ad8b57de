//! One producer, one consumer; [`crate::spsc`] describes the algorithm.

#[cfg(not(handover_loom))]
mod chunk;

#[cfg(not(handover_loom))]
pub use chunk::{ReadChunk, WriteChunk};

use super::poll;
use super::rows::{self, Rows, Slot};
use crate::drain::{self, DrainSource};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Number of cache lines by which the producer and the consumer prefetch ahead.
///
/// It halves the time of a stream of 8-byte values: 1.1 ns against 2.3, in batches 1.2 against 1.9
/// (suite ring/stream and ring/stream-batched, AMD Zen 4, 2026-11). Two lines are too few on that
/// machine, six change nothing.
const LINES_AHEAD: u64 = 3;

/// Number of values that the producer writes in a batch before it publishes them.
const VALUES_PER_PUBLICATION: u64 = 64;

/// State shared by the producer and the consumer.
struct SpscShared<T> {
    /// Flags that are written only when an end closes the ring. Both CPUs can therefore keep a copy
    /// of their cache line.
    close_state: CachePadded<CloseState>,
    /// Position up to which the consumer has popped values, on a cache line of its own.
    head: CachePadded<AtomicU64>,
    /// Position up to which the producer has published values, on a cache line of its own.
    tail: CachePadded<AtomicU64>,
    /// Slots of the ring; their number is `slots_count` rounded up to a power of two.
    rows: Rows<T, false>,
    /// Mask for the low bits of a position that are the index of its row.
    mask: u64,
    slots_count: u64,
}

/// Flags that are set when an end closes the ring.
struct CloseState {
    /// `true` once the producer or the consumer has closed the ring.
    closed: AtomicBool,
    /// `true` once the producer has seen `closed` and published its last value, so that `tail` is
    /// final.
    sealed: AtomicBool,
}

impl<T> SpscShared<T> {
    /// Number of slots in a cache line.
    const SLOTS_PER_LINE: u64 = Rows::<T, false>::ROWS_PER_LINE;
    /// Number of slots by which the producer and the consumer prefetch ahead.
    const SLOTS_AHEAD: u64 = LINES_AHEAD * Self::SLOTS_PER_LINE;

    /// Returns the index of the row for `position`.
    #[inline(always)]
    fn row(&self, position: u64) -> usize {
        (position & self.mask) as usize
    }

    /// Returns the slot for `position`.
    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot<T> {
        // SAFETY: the masked row is below the number of rows.
        unsafe { self.rows.slot(self.row(position)) }
    }

    /// Iterates over the slots for `count` successive positions from `position` on, but ends at the
    /// last row of the ring: the slots for later positions are in the first rows.
    #[inline(always)]
    fn slots_from(&self, position: u64, count: u64) -> impl Iterator<Item = &Slot<T>> {
        let row = self.row(position);
        let end = row + count.min(self.mask + 1 - row as u64) as usize;
        // SAFETY: `end` is not above the number of rows.
        (row..end).map(|row| unsafe { self.rows.slot(row) })
    }

    /// Returns `true` if the access to `position` should prefetch a later cache line. A cache line
    /// then begins at `position`, and the line [`SLOTS_AHEAD`](Self::SLOTS_AHEAD) slots after it
    /// ends below `end`.
    #[inline(always)]
    fn should_prefetch(position: u64, end: u64) -> bool {
        position.is_multiple_of(Self::SLOTS_PER_LINE)
            && end - position >= Self::SLOTS_AHEAD + Self::SLOTS_PER_LINE
    }

    /// Prefetches a later cache line for the consumer, if the access to `position` should.
    #[inline(always)]
    fn prefetch_read(&self, position: u64, ready: u64) {
        if Self::should_prefetch(position, ready) {
            self.rows.prefetch_for_read(self.row(position + Self::SLOTS_AHEAD));
        }
    }

    #[inline(always)]
    fn is_closed(&self) -> bool {
        // Relaxed: closing publishes nothing; the tail publishes the values.
        self.close_state.closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        // Relaxed: as in is_closed().
        self.close_state.closed.store(true, Ordering::Relaxed);
    }

    /// Publishes the values below position `tail` to the consumer.
    #[inline(always)]
    fn publish(&self, tail: u64) {
        // Release: publishes the slots below to the Acquire in Consumer::read_tail().
        self.tail.store(tail, Ordering::Release);
        stage::record_published_by_one(tail, self);
    }

    /// Publishes the values below position `tail`, unless all are published already.
    #[inline(always)]
    fn publish_rest(&self, tail: u64) {
        // Relaxed: only the producer, which calls this, writes the tail.
        if self.tail.load(Ordering::Relaxed) != tail {
            self.publish(tail);
        }
    }

    /// Publishes `tail` as the producer's final position; no value may be pushed after this.
    fn seal(&self, tail: u64) {
        self.publish_rest(tail);
        // Release: orders the final tail first; pairs with the Acquire in Consumer::is_finished().
        self.close_state.sealed.store(true, Ordering::Release);
    }

    /// Publishes all values after a push failed; returns `true` if the ring is closed.
    #[cold]
    #[inline(never)]
    fn publish_and_check_closed(&self, tail: u64) -> bool {
        stage::record_refused(tail, self);
        self.publish_rest(tail);
        let closed = self.is_closed();
        if closed {
            self.seal(tail);
        }
        closed
    }

    /// Reads the consumer's position; returns the position below which slots are vacant.
    #[cold]
    #[inline(never)]
    fn refresh_limit(&self) -> u64 {
        // Acquire: pairs with the Release in Consumer::release_slots(): values in the slots were
        // taken before they are overwritten.
        self.head.load(Ordering::Acquire) + self.slots_count
    }
}

impl<T> Drop for SpscShared<T> {
    /// Drops the values that were not popped.
    fn drop(&mut self) {
        // Relaxed: both handles are dropped, and the Arc has ordered their accesses before this.
        let mut position = self.head.load(Ordering::Relaxed);
        // Relaxed: as for the head. The producer publishes all values when it is dropped.
        let end = self.tail.load(Ordering::Relaxed);
        rows::drop_all_values(|| {
            if position == end {
                return false;
            }
            let slot = self.slot(position);
            position += 1;
            // SAFETY: positions from the head to the tail are filled, no other handle is left, and
            // `position` has moved on, so that no value is taken twice.
            drop(unsafe { rows::take_from_slot(slot) });
            true
        });
    }
}

/// Creates a ring of exactly `slots_count` slots; returns its producer and its consumer.
///
/// ```
/// let (mut producer, mut consumer) = handover_ring::spsc::ring(2)?;
/// producer.push("a").unwrap();
/// producer.push("b").unwrap();
/// assert_eq!(producer.push("c").unwrap_err().into_inner(), "c", "the full ring returned another value");
/// assert_eq!(consumer.pop(), Some("a"));
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
///
/// # Cost
/// Memory for the next power of two of slots.
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows_count = slots_count.next_power_of_two();
    let rows =
        Rows::new(rows_count as usize).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(SpscShared {
        close_state: CachePadded(CloseState {
            closed: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
        }),
        head: CachePadded(AtomicU64::new(0)),
        tail: CachePadded(AtomicU64::new(0)),
        rows,
        mask: u64::from(rows_count - 1),
        slots_count: u64::from(slots_count),
    });
    let producer = Producer { tail: 0, limit: u64::from(slots_count), shared: Arc::clone(&shared) };
    Ok((producer, Consumer { head: 0, ready: 0, shared }))
}

/// Producer's end of a ring. Dropping it closes the ring; values that were pushed can still be
/// popped.
///
/// A producer is invariant in `T`: it cannot stand for a producer of values with a shorter
/// lifetime, which the consumer would pop as its own `T`:
///
/// ```compile_fail,E0597
/// let (producer, mut consumer) = handover_ring::spsc::ring::<&'static str>(1)?;
/// {
///     let short = String::from("freed at the end of this block");
///     let mut producer: handover_ring::spsc::Producer<&str> = producer;
///     producer.push(&short).unwrap();
/// }
/// let freed: &'static str = consumer.pop().unwrap();
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
pub struct Producer<T> {
    /// Position of the next value to push.
    tail: u64,
    /// Position below which slots are vacant, as of the last read of the head.
    limit: u64,
    shared: Arc<SpscShared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value and publishes it. The values that
    /// [`push_unpublished`](Self::push_unpublished) left unpublished are published too.
    ///
    /// # Errors
    /// [`PushError::Full`] if every slot was taken at some moment during the call,
    /// [`PushError::Closed`] for ever once the ring is closed. Both return the value.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A store to the slot and one to the producer's line, and a load of a line that no thread
    /// writes until the ring is closed; no read-modify-write. A load of the consumer's line if the
    /// ring is full by the position last read: once per lap of the ring if the consumer keeps up,
    /// at each push while it is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        self.put(value)?;
        self.publish_and_prefetch();
        Ok(())
    }

    /// Pushes a value unless this requires reading the consumer's position. The error then contains
    /// the value, which the caller must pass to [`push`](Self::push).
    ///
    /// For functions that are not inlined: this one calls no other, so that such a function needs
    /// to save registers only for the rare call of `push`.
    ///
    /// # Errors
    /// The value, if no slot is vacant by the consumer's position last read, or if the ring is
    /// closed.
    ///
    /// # Blocking
    /// Never.
    #[inline(always)]
    pub fn push_without_refresh(&mut self, value: T) -> Result<(), T> {
        if self.shared.is_closed() || self.tail == self.limit {
            return Err(value);
        }
        // SAFETY: the tail is not the limit, and never above it, so that tail < limit.
        unsafe { self.fill(value) };
        self.publish_and_prefetch();
        Ok(())
    }

    /// Pushes a value without publishing it at once. The value is published when a cache line is
    /// full of values, at the next [`push`](Self::push), [`push_batch`](Self::push_batch),
    /// [`flush`](Self::flush) or failed push, or when this handle is dropped.
    ///
    /// A consumer that keeps up then takes the producer's line once for several values. It does not
    /// see the last values, so **flush before you stop pushing**: a consumer that waits for an
    /// unpublished value waits for ever. At most [`UNPUBLISHED_MAX`](Self::UNPUBLISHED_MAX) values
    /// are unpublished.
    ///
    /// # Errors
    /// Like [`push`](Self::push).
    ///
    /// # Cost
    /// A store to the slot, and for each full line of values one to the producer's line.
    #[inline]
    pub fn push_unpublished(&mut self, value: T) -> Result<(), PushError<T>> {
        self.put(value)?;
        if self.tail.is_multiple_of(SpscShared::<T>::SLOTS_PER_LINE) {
            self.shared.publish(self.tail);
        }
        Ok(())
    }

    /// Maximum number of values that [`push_unpublished`](Self::push_unpublished) leaves
    /// unpublished.
    pub const UNPUBLISHED_MAX: usize = SpscShared::<T>::SLOTS_PER_LINE as usize - 1;

    /// Publishes the values that [`push_unpublished`](Self::push_unpublished) left unpublished.
    #[inline]
    pub fn flush(&mut self) {
        self.shared.publish_rest(self.tail);
    }

    /// Pushes values from the iterator until the ring is full or closed. Returns the number pushed,
    /// and leaves the other values in the iterator.
    ///
    /// If fewer than all values were pushed, the ring is full or closed; call
    /// [`is_closed`](Self::is_closed) to find out.
    ///
    /// # Panics
    /// If the iterator does; the values that it returned before have been pushed.
    ///
    /// # Cost
    /// A store for each value; values are published after every 64 or fewer, and at the end.
    #[inline]
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        let first = self.tail;
        // An iterator without further values must not look for room: it needs none.
        while values.size_hint().1 != Some(0) {
            if !self.can_push() {
                self.shared.publish_and_check_closed(self.tail);
                break;
            }
            if !(PushBatch { producer: self, filled_count: 0 }).fill(values) {
                break;
            }
        }
        (self.tail - first) as usize
    }

    /// Returns the number of values in the ring, including unpublished ones.
    ///
    /// The consumer may pop at any time, so that there may be fewer; only this handle makes them
    /// more.
    pub fn len(&self) -> usize {
        // Relaxed: only a count. refresh_limit() decides which slots may be overwritten.
        (self.tail - self.shared.head.load(Ordering::Relaxed)) as usize
    }

    /// Returns `true` if the ring is empty, which stays true until this handle pushes. After
    /// `false`, the consumer may have popped all values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the ring was full when read. A push would have failed, but the consumer
    /// may have popped since. `false` stays valid until this handle pushes.
    pub fn is_full(&mut self) -> bool {
        !self.find_vacant_slot()
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

    /// Publishes all values and closes the ring, so that every further push fails. Values already
    /// pushed can still be popped.
    pub fn close(&mut self) {
        self.shared.close();
        self.shared.seal(self.tail);
    }

    /// Returns `true` if a slot is vacant; reads the consumer's position if no vacant slot is
    /// known.
    #[inline(always)]
    fn find_vacant_slot(&mut self) -> bool {
        if self.tail == self.limit {
            self.limit = self.shared.refresh_limit();
        }
        self.tail != self.limit
    }

    /// Returns `true` if a push would succeed, because a slot is vacant and the ring is open.
    #[inline(always)]
    fn can_push(&mut self) -> bool {
        !self.shared.is_closed() && self.find_vacant_slot()
    }

    /// Pushes a value without publishing it.
    #[inline(always)]
    fn put(&mut self, value: T) -> Result<(), PushError<T>> {
        if !self.can_push() {
            return Err(match self.shared.publish_and_check_closed(self.tail) {
                true => PushError::Closed(value),
                false => PushError::Full(value),
            });
        }
        // SAFETY: can_push() returned true, so that tail < limit.
        unsafe { self.fill(value) };
        Ok(())
    }

    /// Publishes all values, and prefetches a line of slots for later pushes.
    #[inline(always)]
    fn publish_and_prefetch(&self) {
        self.shared.publish(self.tail);
        if SpscShared::<T>::should_prefetch(self.tail, self.limit) {
            self.shared
                .rows
                .prefetch_for_write(self.shared.row(self.tail + SpscShared::<T>::SLOTS_AHEAD));
        }
    }

    /// Fills the slot at the tail and advances the tail.
    ///
    /// # Safety
    /// The tail is below the limit.
    #[inline(always)]
    unsafe fn fill(&mut self, value: T) {
        // SAFETY: the tail is below the limit, so that the head has passed the slot's last value
        // (or there was none), which refresh_limit() has acquired; the consumer accesses the slot
        // again only once it is published.
        unsafe { rows::write_slot(self.shared.slot(self.tail), value) };
        self.tail += 1;
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rows::fmt_end(f, "spsc::Producer", self.len(), self.slots_count(), self.is_closed())
    }
}

/// Batch of pushes in progress. The destructor advances the tail and publishes the values, even if
/// the iterator panics.
struct PushBatch<'a, T> {
    producer: &'a mut Producer<T>,
    /// Number of slots filled from the tail on. The tail itself would be stored for each value, as
    /// a compiler must assume that the slots overlap it: twice as many stores, which takes twice as
    /// long.
    filled_count: u64,
}

impl<T> PushBatch<'_, T> {
    /// Fills slots that are known to be vacant, at most [`VALUES_PER_PUBLICATION`] and none beyond
    /// the last row. Returns `false` if the iterator has no more values.
    ///
    /// It does not prefetch: a batch fills lines faster than they arrive, while the consumer still
    /// works on them (2.0 ns instead of 1.2, measured as for [`LINES_AHEAD`]).
    #[inline(always)]
    fn fill(mut self, values: &mut impl Iterator<Item = T>) -> bool {
        let shared = &*self.producer.shared;
        let vacant = (self.producer.limit - self.producer.tail).min(VALUES_PER_PUBLICATION);
        for slot in shared.slots_from(self.producer.tail, vacant) {
            let Some(value) = values.next() else {
                return false;
            };
            // SAFETY: the slot's position is from the tail on and below `tail + vacant`, which is
            // not above the limit: the head has passed the slot's last value (or there was none),
            // which refresh_limit() has acquired. The consumer accesses it again only once it is
            // published.
            unsafe { rows::write_slot(slot, value) };
            self.filled_count += 1;
        }
        true
    }
}

impl<T> Drop for PushBatch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.producer.tail += self.filled_count;
        self.producer.flush();
    }
}

/// Consumer's end of a ring. Dropping it closes the ring, and drops the values in it.
pub struct Consumer<T> {
    /// Position of the next value to pop.
    head: u64,
    /// Position below which slots are filled, as of the last read of the tail.
    ready: u64,
    shared: Arc<SpscShared<T>>,
}

impl<T> Consumer<T> {
    /// Pops the oldest value; `None` if no value is ready.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the value's line, and a store to a line that the producer reads seldom; no
    /// read-modify-write. A load of the producer's line when the values that it had published by
    /// the last such load are used up.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.take()?;
        stage::record_popped_by_one(self.head, &*self.shared);
        self.release_slots();
        Some(value)
    }

    /// Pops up to `values_max` values and passes them to `each`; returns the number popped.
    ///
    /// # Panics
    /// If `each` does; the value that it panicked with, and all before, have been popped.
    ///
    /// # Cost
    /// A load for each value. Slots are released to the producer by one store, after the last
    /// value.
    #[inline]
    pub fn pop_batch(&mut self, values_max: usize, mut each: impl FnMut(T)) -> usize {
        let first = self.head;
        let end = first.saturating_add(values_max as u64);
        let mut batch = PopBatch { head: first, consumer: self };
        while batch.head < end && batch.find_ready_value() {
            batch.take_line(end, &mut each);
        }
        drop(batch);
        (self.head - first) as usize
    }

    /// Returns an iterator that pops values until none is ready. Values that it has not returned
    /// stay in the ring.
    ///
    /// # Cost
    /// Slots are released to the producer after every 32 values, and when the iterator is dropped:
    /// less than one store for each value.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain::new(self)
    }

    /// Returns the oldest value without popping it; `None` if no value is ready.
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
        if self.head == self.ready && !self.find_ready_value() {
            return None;
        }
        // SAFETY: head != ready, so that the slot was filled and published, which read_tail() has
        // acquired; it is taken and released by methods with `&mut self` only, which the reference
        // excludes.
        Some(unsafe { rows::value_in_slot(self.shared.slot(self.head)) })
    }

    /// Returns the number of values that were ready when read. The producer may have published more
    /// since; only this handle makes them fewer.
    ///
    /// # Cost
    /// A load of the producer's line.
    pub fn len(&self) -> usize {
        // Relaxed: only a count; read_tail() acquires the values that are taken.
        (self.shared.tail.load(Ordering::Relaxed) - self.head) as usize
    }

    /// Returns `true` if no value was ready when read; the producer may have published one since.
    /// `false` stays valid until this handle pops.
    ///
    /// # Cost
    /// A load of the producer's line, unless more values are known to be ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.ready && self.len() == 0
    }

    /// Returns the number of slots of the ring.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Returns `true` if the ring is closed, so that pushes fail; there may be values to pop. Once
    /// true, it stays true.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns `true` if the ring is empty and no value can be pushed any more. Once true, it stays
    /// true.
    ///
    /// After [`close`](Self::close) from this end it becomes true once the producer has had a push
    /// refused or is dropped; until then a push that had begun before may still come.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.is_sealed() && self.is_empty()
    }

    /// Returns `true` if the producer has published its last value.
    #[inline(always)]
    fn is_sealed(&self) -> bool {
        // Acquire: pairs with the Release in Shared::seal(): the tail read afterwards is the last.
        self.shared.close_state.sealed.load(Ordering::Acquire)
    }

    /// Closes the ring, so that every later push fails. Values that were pushed, or are being
    /// pushed, can still be popped.
    pub fn close(&mut self) {
        self.shared.close();
    }

    /// Reads the value at the head without releasing its slot; `None` if no value is ready.
    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        if self.head == self.ready && !self.find_ready_value() {
            poll::delay_next_poll();
            return None;
        }
        // SAFETY: head != ready, and ready is never below the head, so that head < ready.
        Some(unsafe { self.take_ready() })
    }

    /// Reads the value at the head. The caller must have checked that it is ready.
    ///
    /// # Safety
    /// The head is below `ready`.
    #[inline(always)]
    unsafe fn take_ready(&mut self) -> T {
        // SAFETY: head < ready, so that the slot was filled and published, which read_tail()
        // has acquired; the head moves on, so that the value is taken once; the producer does not
        // access the slot before release_slots().
        let value = unsafe { rows::take_from_slot(self.shared.slot(self.head)) };
        self.head += 1;
        self.shared.prefetch_read(self.head, self.ready);
        value
    }

    /// Returns `true` if a value is ready; reads the producer's position if no ready value is
    /// known.
    #[inline(always)]
    fn find_ready_value(&mut self) -> bool {
        self.read_tail();
        self.head != self.ready
    }

    /// Reads the position up to which the producer has published values.
    #[inline(always)]
    fn read_tail(&mut self) {
        // Acquire: pairs with the Release in SpscShared::publish().
        self.ready = self.shared.tail.load(Ordering::Acquire);
    }

    /// Releases the slots of all values read so far to the producer.
    #[inline(always)]
    fn release_slots(&self) {
        // Release: their values have been taken; pairs with the Acquire in
        // SpscShared::refresh_limit().
        self.shared.head.store(self.head, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close();
        // Values that are published later are dropped with the ring.
        rows::drop_all_values(|| self.pop().is_some());
        self.release_slots();
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rows::fmt_end(f, "spsc::Consumer", self.len(), self.slots_count(), self.is_closed())
    }
}

/// Batch of pops in progress. The destructor advances the head and releases the slots, even if the
/// receiving closure panics.
struct PopBatch<'a, T> {
    consumer: &'a mut Consumer<T>,
    /// Position of the next value to pop; that of the consumer is not up to date.
    head: u64,
}

impl<T> PopBatch<'_, T> {
    /// Returns `true` if a value is ready; reads the producer's position if no ready value is
    /// known.
    #[inline(always)]
    fn find_ready_value(&mut self) -> bool {
        if self.head == self.consumer.ready {
            self.consumer.read_tail();
        }
        self.head != self.consumer.ready
    }

    /// Passes to `each` the values below position `end` in one cache line, which are known to be
    /// ready. One must be.
    #[inline(always)]
    fn take_line(&mut self, end: u64, each: &mut impl FnMut(T)) {
        let (shared, ready) = (&*self.consumer.shared, self.consumer.ready);
        shared.prefetch_read(self.head, ready);
        let left_in_line =
            SpscShared::<T>::SLOTS_PER_LINE - self.head % SpscShared::<T>::SLOTS_PER_LINE;
        let count = (ready.min(end) - self.head).min(left_in_line);
        for slot in shared.slots_from(self.head, count) {
            self.head += 1;
            // SAFETY: the slot's position is from the head on and below `ready`, so that the slot
            // was filled and published, which read_tail() has acquired. The head has moved on, so
            // that the value is taken once; the producer does not access the slot before it is
            // released, when this batch is dropped.
            each(unsafe { rows::take_from_slot(slot) });
        }
    }
}

impl<T> Drop for PopBatch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.consumer.head = self.head;
        stage::record_popped_by_one(self.head, &*self.consumer.shared);
        self.consumer.release_slots();
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
