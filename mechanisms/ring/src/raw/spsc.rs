//! One producer, one consumer; the algorithm is told at [`crate::spsc`].

use super::rows::{self, Cursor, Rows};
use crate::{CapacityError, PushError, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// The producer may still push.
const OPEN: u64 = u64::MAX;

/// A long drain tells the producer after so many rows.
const DRAIN_ROWS_MAX: usize = 16;

struct Shared<T> {
    /// Written at the end of the ring's life only, so that everybody has a copy of the line.
    ends: CachePadded<Ends>,
    /// The consumer's position: what lies below has been popped. The consumer's line.
    head: CachePadded<AtomicU64>,
    rows: Rows<T, true>,
    rows_count: usize,
    slots_count: u64,
}

struct Ends {
    /// Somebody closed the ring.
    closed: AtomicBool,
    /// Where the producer ended, once it has seen that, or [`OPEN`].
    sealed: AtomicU64,
}

impl<T> Shared<T> {
    const SLOTS: usize = Rows::<T, true>::SLOTS;

    fn is_closed(&self) -> bool {
        // Relaxed: closing publishes nothing; what was pushed is published by the words.
        self.ends.closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        // Relaxed: as in is_closed().
        self.ends.closed.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Shared<T> {
    /// Drops what nobody popped.
    fn drop(&mut self) {
        // Relaxed: both handles are gone, and the Arc has ordered what they did before this.
        let mut position = self.head.load(Ordering::Relaxed);
        // Relaxed: as above. The producer seals when it is dropped.
        let end = self.ends.sealed.load(Ordering::Relaxed);
        rows::drop_all(|| {
            if position == end {
                return false;
            }
            let index = (position % (self.rows_count * Self::SLOTS) as u64) as usize;
            position += 1;
            // SAFETY: an index below rows_count * SLOTS, taken apart.
            let slot = unsafe { self.rows.slot(index / Self::SLOTS, index % Self::SLOTS) };
            // SAFETY: positions from the head to the end are filled, nobody else is left, and
            // position has moved on, so that none is taken twice.
            drop(unsafe { rows::take(slot) });
            true
        });
    }
}

/// A ring of exactly so many slots, and its two ends.
///
/// ```
/// let (mut producer, mut consumer) = handover_ring::spsc::ring(2)?;
/// producer.push("a").unwrap();
/// producer.push("b").unwrap();
/// assert_eq!(producer.push("c").unwrap_err().into_inner(), "c", "full: it comes back");
/// assert_eq!(consumer.pop(), Some("a"));
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
///
/// # Errors
/// [`CapacityError`]: no slot or too many, or no memory for them.
///
/// # Cost
/// The memory of the slots, in whole cache lines; a line holds 56 bytes of slots (seven of 8 bytes).
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows_count = (slots_count as usize).div_ceil(Shared::<T>::SLOTS);
    let rows = Rows::new(rows_count).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(Shared {
        ends: CachePadded(Ends { closed: AtomicBool::new(false), sealed: AtomicU64::new(OPEN) }),
        head: CachePadded(AtomicU64::new(0)),
        rows,
        rows_count,
        slots_count: u64::from(slots_count),
    });
    let cursor = shared.rows.cursor();
    let producer = Producer {
        tail: 0,
        limit: u64::from(slots_count),
        cursor: cursor.clone(),
        later: Vec::with_capacity(Shared::<T>::SLOTS),
        sealed: false,
        shared: Arc::clone(&shared),
    };
    let consumer = Consumer { head: 0, ready: 0, cursor, shared };
    Ok((producer, consumer))
}

/// The end that pushes. Dropping it closes the ring; what was pushed can still be popped.
pub struct Producer<T> {
    /// The position of the next push that is published.
    tail: u64,
    /// Positions below are vacant, by the head last seen.
    limit: u64,
    /// Where the tail lies.
    cursor: Cursor<T>,
    /// What was pushed for later: less than is left of the row, and no more than is vacant. It is
    /// kept here and not in its slots, for the consumer looks at their line all the time, and each
    /// look would have to be made up for by the next write.
    later: Vec<T>,
    /// Where we end has been told; nothing is pushed from then on.
    sealed: bool,
    shared: Arc<Shared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value and publishes it, along with what was left by
    /// [`push_later`](Self::push_later).
    ///
    /// # Errors
    /// [`PushError::Full`] when every slot was taken at some moment during the call,
    /// [`PushError::Closed`] for good once the ring was closed. The value comes back.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Two stores to one line, a load of a line that nobody writes; no read-modify-write. A load of the
    /// consumer's line once in a turn of the ring, and on each push while the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        if !self.later.is_empty() {
            self.flush();
        }
        if self.refuses(0) {
            return Err(self.refusal(value));
        }
        // SAFETY: `shared` keeps the rows.
        let slot = unsafe { self.cursor.slot() };
        // SAFETY: the slot is the tail's, and tail < limit, so the head has passed what last lay in
        // this slot (or nothing ever did), and the consumer looks at it again only once it is
        // published.
        unsafe { rows::fill(slot, value) };
        let row = self.cursor.clone();
        self.tail += 1;
        if self.cursor.advance() {
            self.cursor.claim_ahead();
        }
        self.publish(&row);
        Ok(())
    }

    /// Pushes a value and leaves publishing it for later: to when there is a cache line full of them,
    /// to the next [`push`](Self::push), [`push_batch`](Self::push_batch), [`flush`](Self::flush) or
    /// refusal, or to the end of this handle.
    ///
    /// Values that are pushed one soon after the other then cross over a line at a time instead of
    /// one by one. The consumer is not told of the last of them, so **flush before you stop
    /// pushing**: a consumer that waits for a value which nobody publishes waits for ever. At most
    /// [`LATER_MAX`](Self::LATER_MAX) values lie so.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Cost
    /// A store, and for every line another for each value, all at once.
    #[inline]
    pub fn push_later(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.refuses(self.later.len()) {
            return Err(self.refusal(value));
        }
        self.later.push(value);
        if self.later.len() == self.cursor.slots_left() {
            self.flush();
        }
        Ok(())
    }

    /// How many values [`push_later`](Self::push_later) leaves unpublished at most.
    pub const LATER_MAX: usize = Shared::<T>::SLOTS - 1;

    /// Publishes what was left by [`push_later`](Self::push_later).
    #[inline]
    pub fn flush(&mut self) {
        let count = self.later.len();
        if count == 0 {
            return;
        }
        for (ahead, value) in self.later.drain(..).enumerate() {
            // SAFETY: `shared` keeps the rows, and so many slots are left in this one.
            let slot = unsafe { self.cursor.slot_at(ahead) };
            // SAFETY: as in push(): the slot is that of tail + ahead, which is below the limit.
            unsafe { rows::fill(slot, value) };
        }
        self.tell(count);
    }

    /// Pushes values from the iterator while there are slots; how many. What is not pushed is not
    /// taken from the iterator.
    ///
    /// Less than all does not tell why; ask [`is_closed`](Self::is_closed).
    ///
    /// # Panics
    /// If the iterator does; what it gave before has been pushed.
    ///
    /// # Cost
    /// A store for each value, and one for each line, which is published as soon as it is full.
    #[inline]
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        self.flush();
        let first = self.tail;
        loop {
            if self.refuses(0) {
                self.refusal_of_batch();
                break;
            }
            let vacant = ((self.limit - self.tail) as usize).min(self.cursor.slots_left());
            let mut batch = Batch { filled: 0, producer: self };
            // A whole row is a loop of known length, which the compiler unrolls.
            let all = if vacant == Shared::<T>::SLOTS {
                batch.fill(Shared::<T>::SLOTS, values)
            } else {
                batch.fill(vacant, values)
            };
            drop(batch);
            if !all {
                break;
            }
        }
        (self.tail - first) as usize
    }

    /// How many values are in the ring, those that are not published yet included.
    ///
    /// The consumer may pop at any time: fewer is possible at once, more only by this handle.
    pub fn len(&self) -> usize {
        // Relaxed: a figure. What may be overwritten is decided in find_room().
        let head = self.shared.head.load(Ordering::Relaxed);
        (self.tail - head) as usize + self.later.len()
    }

    /// Whether the ring is empty. Once true, it stays so until this handle pushes; false may be
    /// stale.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a push would now be refused for want of a slot. "Not full" stays true until this
    /// handle pushes; "full" may be stale.
    pub fn is_full(&mut self) -> bool {
        let later = self.later.len();
        self.tail + later as u64 == self.limit && !self.find_room(later)
    }

    /// How many slots the ring has.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Whether the ring is closed. Once true, true for ever.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Publishes what was pushed and refuses every further push. What was pushed can still be popped.
    pub fn close(&mut self) {
        self.shared.close();
        self.seal();
    }

    /// Whether one more than `later` would be refused.
    #[inline(always)]
    fn refuses(&mut self, later: usize) -> bool {
        let full = self.tail + later as u64 == self.limit;
        self.shared.is_closed() || (full && !self.find_room(later))
    }

    /// What to refuse with; what is due to be done then is done.
    #[cold]
    fn refusal(&mut self, value: T) -> PushError<T> {
        self.flush();
        if self.shared.is_closed() {
            self.seal();
            return PushError::Closed(value);
        }
        PushError::Full(value)
    }

    /// A batch ends for want of slots or for good; the latter is told.
    #[cold]
    fn refusal_of_batch(&mut self) {
        if self.shared.is_closed() {
            self.seal();
        }
    }

    /// Looks at how far the consumer has come; whether there is a vacant slot beside `later`.
    #[cold]
    #[inline(never)]
    fn find_room(&mut self, later: usize) -> bool {
        // Acquire: pairs with the Release in Consumer::leave(), so that what lay in the slots was
        // taken before it is overwritten.
        let head = self.shared.head.load(Ordering::Acquire);
        self.limit = head + self.shared.slots_count;
        self.tail + (later as u64) < self.limit
    }

    /// So many slots from the cursor on, in its row, have been filled: goes on and publishes them.
    #[inline(always)]
    fn tell(&mut self, filled: usize) {
        let row = self.cursor.clone();
        self.tail += filled as u64;
        if self.cursor.skip(filled) {
            self.cursor.claim_ahead();
        }
        self.publish(&row);
    }

    /// Lets the consumer see what lies in the row of `cursor`, up to the tail.
    #[inline(always)]
    fn publish(&self, cursor: &Cursor<T>) {
        // SAFETY: a cursor of this ring, whose rows `shared` keeps.
        let word = unsafe { cursor.word() };
        // Release: publishes the slots below the tail to the Acquire in published().
        word.store(self.tail, Ordering::Release);
    }

    /// Tells where we end. After this nothing may be pushed.
    #[cold]
    fn seal(&mut self) {
        if self.sealed {
            return;
        }
        self.flush();
        self.sealed = true;
        // Release: what was pushed was published before, to the Acquire in is_finished().
        self.shared.ends.sealed.store(self.tail, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, slots_count) = (self.len(), self.slots_count());
        write!(f, "spsc::Producer({len} of {slots_count}, closed: {})", self.is_closed())
    }
}

/// Several pushes into one row; published when dropped, also when the iterator panics.
struct Batch<'a, T> {
    /// Slots filled from the producer's cursor on that it does not know of yet.
    filled: usize,
    producer: &'a mut Producer<T>,
}

impl<T> Batch<'_, T> {
    /// Fills so many slots of the row; false: there are no more values.
    #[inline(always)]
    fn fill(&mut self, vacant: usize, values: &mut impl Iterator<Item = T>) -> bool {
        let cursor = self.producer.cursor.clone();
        for ahead in 0..vacant {
            let Some(value) = values.next() else {
                return false;
            };
            // SAFETY: the producer's `shared` keeps the rows, and `vacant` slots are left in this one.
            let slot = unsafe { cursor.slot_at(ahead) };
            // SAFETY: as in push(): the slot is that of tail + ahead, which is below the limit.
            unsafe { rows::fill(slot, value) };
            self.filled = ahead + 1;
        }
        true
    }
}

impl<T> Drop for Batch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.filled > 0 {
            self.producer.tell(self.filled);
        }
    }
}

/// The end that pops. Dropping it closes the ring, and drops what was in it.
pub struct Consumer<T> {
    /// The position of the next pop.
    head: u64,
    /// Positions below are filled, by the word last seen; not beyond the row.
    ready: u64,
    /// Where the head lies.
    cursor: Cursor<T>,
    shared: Arc<Shared<T>>,
}

impl<T> Consumer<T> {
    /// Pops the oldest value, if one is there.
    ///
    /// `None` may be stale at once; whether more can come says
    /// [`is_finished`](Self::is_finished).
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line that the value lies in, and a store to a line that the producer reads
    /// seldom; no read-modify-write.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.take()?;
        self.leave();
        Some(value)
    }

    /// Pops up to `values_max` values and hands them to `each`; how many.
    ///
    /// # Panics
    /// If `each` does; what it was given before, and then, has been popped.
    ///
    /// # Cost
    /// As [`drain`](Self::drain).
    #[inline]
    pub fn pop_batch(&mut self, values_max: usize, mut each: impl FnMut(T)) -> usize {
        let before = self.head;
        let mut left = values_max;
        let mut visit = Visit { taken: 0, consumer: self };
        while left > 0 && visit.consumer.sees() {
            let ready = (visit.consumer.ready - visit.consumer.head) as usize;
            // A whole row is a loop of known length, which the compiler unrolls.
            if ready == Shared::<T>::SLOTS && left >= ready {
                visit.take_row(Shared::<T>::SLOTS, &mut each);
                left -= ready;
            } else {
                visit.take_row(ready.min(left), &mut each);
                left -= ready.min(left);
            }
        }
        drop(visit);
        (self.head - before) as usize
    }

    /// What is ready, one by one: the iterator ends when nothing more is there. What it is not asked
    /// for stays in the ring.
    ///
    /// # Cost
    /// The slots are given back to the producer with every row, and when the iterator is dropped:
    /// less than a store for each value.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain { consumer: self, rows_count: 0 }
    }

    /// How many values are ready. The producer may publish at any time: more is possible at once,
    /// fewer only by this handle.
    ///
    /// # Cost
    /// A load for every line that they lie in.
    pub fn len(&self) -> usize {
        let mut position = self.head;
        let mut cursor = self.cursor.clone();
        let mut end = row_end(position, &cursor);
        loop {
            // SAFETY: `shared` keeps the rows.
            let word = unsafe { cursor.word() };
            // Relaxed: a figure; look() acquires what is taken.
            let published = word.load(Ordering::Relaxed);
            position = position.max(published.min(end));
            if published < end {
                return (position - self.head) as usize;
            }
            cursor = cursor.next_row();
            end += Shared::<T>::SLOTS as u64;
        }
    }

    /// Whether nothing is ready. False stays so until this handle pops; true may be stale.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.ready && published(&self.cursor) <= self.head
    }

    /// How many slots the ring has.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Whether the ring is closed: nothing more is pushed, but there may be something to pop. Once
    /// true, true for ever.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Whether nothing is there and nothing will ever come. Once true, true for ever.
    ///
    /// After [`close`](Self::close) from this end it becomes true when the producer has met a
    /// refusal or is gone; until then a push that had begun before may still come.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in Producer::seal().
        self.shared.ends.sealed.load(Ordering::Acquire) == self.head
    }

    /// Refuses every push that begins from now on. What was pushed, and what is being pushed, can
    /// still be popped.
    pub fn close(&mut self) {
        self.shared.close();
    }

    /// Takes the value at the head and goes on to the next position, without telling the producer.
    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        if !self.sees() {
            return None;
        }
        // SAFETY: `shared` keeps the rows.
        let slot = unsafe { self.cursor.slot() };
        // SAFETY: head < ready, so it was filled and published, which look() has acquired; the
        // head moves on, so that it is taken once; the producer leaves it alone until leave().
        let value = unsafe { rows::take(slot) };
        self.head += 1;
        self.cursor.advance();
        Some(value)
    }

    /// Whether anything is there.
    #[inline(always)]
    fn sees(&mut self) -> bool {
        self.head < self.ready || self.look()
    }

    /// Looks how far the producer has published in this row; whether anything is there.
    #[inline(always)]
    fn look(&mut self) -> bool {
        let published = published(&self.cursor);
        if published <= self.head {
            return false;
        }
        // Beyond this row: the producer has come around, and into it again.
        self.ready = published.min(row_end(self.head, &self.cursor));
        true
    }

    /// Gives the slots below the head back to the producer.
    #[inline(always)]
    fn leave(&self) {
        // Release: what lay there has been taken; pairs with the Acquire in Producer::find_room().
        self.shared.head.store(self.head, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close();
        // What comes after this is dropped with the ring.
        rows::drop_all(|| self.pop().is_some());
        self.leave();
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, slots_count) = (self.len(), self.slots_count());
        write!(f, "spsc::Consumer({len} of {slots_count}, closed: {})", self.is_closed())
    }
}

/// What the word of this row says.
#[inline(always)]
fn published<T>(cursor: &Cursor<T>) -> u64 {
    // SAFETY: only called with a consumer's cursor, whose `shared` keeps the rows.
    let word = unsafe { cursor.word() };
    // Acquire: pairs with the Release in Producer::publish().
    word.load(Ordering::Acquire)
}

/// The position behind the last of this row, when `position` lies at the cursor.
#[inline(always)]
fn row_end<T>(position: u64, cursor: &Cursor<T>) -> u64 {
    position + cursor.slots_left() as u64
}

/// Several pops in a row; told to consumer and producer when dropped, also when who is handed the
/// values panics.
struct Visit<'a, T> {
    /// Slots taken from the consumer's cursor on, in its row, that it does not know of yet.
    taken: usize,
    consumer: &'a mut Consumer<T>,
}

impl<T> Visit<'_, T> {
    /// Hands on so many values, which are ready in this row.
    #[inline(always)]
    fn take_row(&mut self, count: usize, each: &mut impl FnMut(T)) {
        let cursor = self.consumer.cursor.clone();
        for ahead in 0..count {
            // SAFETY: the consumer's `shared` keeps the rows; what is ready lies in this one.
            let slot = unsafe { cursor.slot_at(ahead) };
            // SAFETY: as in Consumer::take(): head + ahead < ready, and `taken` moves on.
            let value = unsafe { rows::take(slot) };
            self.taken = ahead + 1;
            each(value);
        }
        self.tell();
    }

    #[inline(always)]
    fn tell(&mut self) {
        let taken = core::mem::take(&mut self.taken);
        self.consumer.head += taken as u64;
        self.consumer.cursor.skip(taken);
    }
}

impl<T> Drop for Visit<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Something is left here only when who was handed a value panicked.
        self.tell();
        self.consumer.leave();
    }
}

/// What [`Consumer::drain`] gives.
#[derive(Debug)]
pub struct Drain<'a, T> {
    consumer: &'a mut Consumer<T>,
    /// Rows left behind that the producer has not been told of.
    rows_count: usize,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let value = self.consumer.take()?;
        if self.consumer.cursor.is_first() {
            self.rows_count += 1;
            if self.rows_count == DRAIN_ROWS_MAX {
                self.rows_count = 0;
                self.consumer.leave();
            }
        }
        Some(value)
    }
}

impl<T> Drop for Drain<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.leave();
    }
}
