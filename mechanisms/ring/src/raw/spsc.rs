//! One producer, one consumer; the algorithm is told at [`crate::spsc`].

use super::look;
use super::rows::{self, Rows, Slot};
use crate::drain::{self, Take};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// How many lines ahead each side asks for.
///
/// A stream of 8-byte values takes half as long for it: 1.1 ns against 2.3, in batches 1.2 against
/// 1.9 (suite ring/stream and ring/stream-batched, AMD Zen 4, 2026-11). Two lines are too few on that
/// machine, six change nothing.
const LINES_AHEAD: u64 = 3;

/// A batch is published after so many values, at the latest.
const PUBLISH_EVERY: u64 = 64;

struct Shared<T> {
    /// Written at the end of the ring's life only, so that everybody has a copy of the line.
    ends: CachePadded<Ends>,
    /// The consumer's position: what lies below has been popped. The consumer's line.
    head: CachePadded<AtomicU64>,
    /// The producer's position: what lies below is published. The producer's line.
    tail: CachePadded<AtomicU64>,
    /// As many as the next power of two.
    rows: Rows<T, false>,
    mask: u64,
    slots_count: u64,
}

struct Ends {
    /// Somebody closed the ring.
    closed: AtomicBool,
    /// The producer has seen that, and the tail is its last.
    sealed: AtomicBool,
}

impl<T> Shared<T> {
    /// Slots on a line.
    const LINE: u64 = Rows::<T, false>::IN_LINE;
    /// How many slots ahead each side asks for a line.
    const AHEAD: u64 = LINES_AHEAD * Self::LINE;

    #[inline(always)]
    fn row(&self, position: u64) -> usize {
        (position & self.mask) as usize
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot<T> {
        // SAFETY: masked, so below the count of rows.
        unsafe { self.rows.slot(self.row(position)) }
    }

    /// Whether a line begins at `position`, with another one far enough ahead and wholly below `end`.
    #[inline(always)]
    fn asks_ahead(position: u64, end: u64) -> bool {
        position.is_multiple_of(Self::LINE) && end - position >= Self::AHEAD + Self::LINE
    }

    #[inline(always)]
    fn is_closed(&self) -> bool {
        // Relaxed: closing publishes nothing; what was pushed is published by the tail.
        self.ends.closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        // Relaxed: as in is_closed().
        self.ends.closed.store(true, Ordering::Relaxed);
    }

    /// Lets the consumer see what lies below the producer's `tail`.
    #[inline(always)]
    fn publish(&self, tail: u64) {
        // Release: publishes the slots below to the Acquire in Consumer::sees().
        self.tail.store(tail, Ordering::Release);
        stage::published_by_one(tail, self);
    }

    /// The same, but leaves the line alone when the consumer can see it already.
    #[inline(always)]
    fn publish_rest(&self, tail: u64) {
        // Relaxed: only the producer writes it, which is who asks.
        if self.tail.load(Ordering::Relaxed) != tail {
            self.publish(tail);
        }
    }

    /// Tells that `tail` is the producer's last. After this nothing may be pushed.
    fn seal(&self, tail: u64) {
        self.publish_rest(tail);
        // Release: the tail comes before; pairs with the Acquire in Consumer::is_finished().
        self.ends.sealed.store(true, Ordering::Release);
    }

    /// What is due when the producer is refused; whether that is for good.
    #[cold]
    #[inline(never)]
    fn refuse(&self, tail: u64) -> bool {
        stage::refused(tail, self);
        self.publish_rest(tail);
        let closed = self.is_closed();
        if closed {
            self.seal(tail);
        }
        closed
    }

    /// Looks at how far the consumer has come; below which position slots are vacant.
    #[cold]
    #[inline(never)]
    fn find_room(&self) -> u64 {
        // Acquire: pairs with the Release in Consumer::leave(), so that what lay in the slots was
        // taken before it is overwritten.
        self.head.load(Ordering::Acquire) + self.slots_count
    }
}

impl<T> Drop for Shared<T> {
    /// Drops what nobody popped.
    fn drop(&mut self) {
        // Relaxed: both handles are gone, and the Arc has ordered what they did before this.
        let mut position = self.head.load(Ordering::Relaxed);
        // Relaxed: as above. The producer publishes all when it is dropped.
        let end = self.tail.load(Ordering::Relaxed);
        rows::drop_all(|| {
            if position == end {
                return false;
            }
            let slot = self.slot(position);
            position += 1;
            // SAFETY: positions from the head to the tail are filled, nobody else is left, and
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
/// The memory of the next power of two of slots.
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows_count = slots_count.next_power_of_two();
    let rows =
        Rows::new(rows_count as usize).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(Shared {
        ends: CachePadded(Ends { closed: AtomicBool::new(false), sealed: AtomicBool::new(false) }),
        head: CachePadded(AtomicU64::new(0)),
        tail: CachePadded(AtomicU64::new(0)),
        rows,
        mask: u64::from(rows_count - 1),
        slots_count: u64::from(slots_count),
    });
    let producer = Producer { tail: 0, limit: u64::from(slots_count), shared: Arc::clone(&shared) };
    Ok((producer, Consumer { head: 0, ready: 0, shared }))
}

/// The end that pushes. Dropping it closes the ring; what was pushed can still be popped.
///
/// The consumer's values are typed by its own `T`, so a producer never stands for one of values that
/// live shorter (it is invariant in `T`):
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
    /// The position of the next push.
    tail: u64,
    /// Positions below are vacant, by the head last seen.
    limit: u64,
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
    /// A store to the slot and one to the producer's line, a load of a line that nobody writes; no
    /// read-modify-write. A load of the consumer's line when by what is remembered the ring is full: once
    /// in a turn of the ring if the consumer keeps up, on each push while it is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        self.put(value)?;
        self.shared.publish(self.tail);
        if Shared::<T>::asks_ahead(self.tail, self.limit) {
            self.shared.rows.claim(self.shared.row(self.tail + Shared::<T>::AHEAD));
        }
        Ok(())
    }

    /// Pushes a value and leaves publishing it for later: to when there is a cache line full of them,
    /// to the next [`push`](Self::push), [`push_batch`](Self::push_batch), [`flush`](Self::flush) or
    /// refusal, or to the end of this handle.
    ///
    /// A consumer that keeps up then takes the producer's line from it once for several values. The
    /// consumer is not told of the last of them, so **flush before you stop pushing**: a consumer that
    /// waits for a value which nobody publishes waits for ever. At most [`LATER_MAX`](Self::LATER_MAX)
    /// values lie so.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Cost
    /// A store to the slot, and for every line full of them one to the producer's line.
    #[inline]
    pub fn push_later(&mut self, value: T) -> Result<(), PushError<T>> {
        self.put(value)?;
        if self.tail.is_multiple_of(Shared::<T>::LINE) {
            self.shared.publish(self.tail);
        }
        Ok(())
    }

    /// How many values [`push_later`](Self::push_later) leaves unpublished at most.
    pub const LATER_MAX: usize = Shared::<T>::LINE as usize - 1;

    /// Publishes what was left by [`push_later`](Self::push_later).
    #[inline]
    pub fn flush(&mut self) {
        self.shared.publish_rest(self.tail);
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
    /// A store for each value; they are published after every 64, and at the end.
    #[inline]
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        let first = self.tail;
        // Who has no more is not to look for room that it does not need.
        while values.size_hint().1 != Some(0) {
            if !self.has_room() {
                self.shared.refuse(self.tail);
                break;
            }
            let vacant = (self.limit - self.tail).min(PUBLISH_EVERY);
            if !Batch(self).fill(vacant, values) {
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
        (self.tail - self.shared.head.load(Ordering::Relaxed)) as usize
    }

    /// Whether the ring is empty. Once true, it stays so until this handle pushes; false may be
    /// stale.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a push would now be refused for want of a slot. "Not full" stays true until this
    /// handle pushes; "full" may be stale.
    pub fn is_full(&mut self) -> bool {
        !self.finds_slot()
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
        self.shared.seal(self.tail);
    }

    /// Whether a slot is vacant.
    #[inline(always)]
    fn finds_slot(&mut self) -> bool {
        if self.tail == self.limit {
            self.limit = self.shared.find_room();
        }
        self.tail != self.limit
    }

    /// Whether a push is not refused.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        !self.shared.is_closed() && self.finds_slot()
    }

    /// Pushes a value without publishing it.
    #[inline(always)]
    fn put(&mut self, value: T) -> Result<(), PushError<T>> {
        if !self.has_room() {
            return Err(match self.shared.refuse(self.tail) {
                true => PushError::Closed(value),
                false => PushError::Full(value),
            });
        }
        // SAFETY: there is room, so tail < limit.
        unsafe { self.fill(value) };
        Ok(())
    }

    /// Fills the slot of the tail and goes on to the next.
    ///
    /// # Safety
    /// The tail is below the limit.
    #[inline(always)]
    unsafe fn fill(&mut self, value: T) {
        // SAFETY: the tail is below the limit, so the head has passed what last lay in this slot (or
        // nothing ever did), which find_room() has acquired, and the consumer looks at it again only
        // once it is published.
        unsafe { rows::fill(self.shared.slot(self.tail), value) };
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
        let (len, slots_count) = (self.len(), self.slots_count());
        write!(f, "spsc::Producer({len} of {slots_count}, closed: {})", self.is_closed())
    }
}

/// Several pushes; published when dropped, also when the iterator panics.
struct Batch<'a, T>(&'a mut Producer<T>);

impl<T> Batch<'_, T> {
    /// Fills so many slots, which are vacant; false: there are no more values.
    ///
    /// It does not ask for lines ahead: a batch fills them faster than they come, and the consumer is
    /// then still at work on what lies there (2.0 ns instead of 1.2, as at [`LINES_AHEAD`]).
    #[inline(always)]
    fn fill(self, vacant: u64, values: &mut impl Iterator<Item = T>) -> bool {
        for _ in 0..vacant {
            let Some(value) = values.next() else {
                return false;
            };
            // SAFETY: so many slots lie between the tail and the limit.
            unsafe { self.0.fill(value) };
        }
        true
    }
}

impl<T> Drop for Batch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The end that pops. Dropping it closes the ring, and drops what was in it.
pub struct Consumer<T> {
    /// The position of the next pop.
    head: u64,
    /// Positions below are filled, by the tail last seen.
    ready: u64,
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
    /// seldom; no read-modify-write. A load of the producer's line when what it had published by the last
    /// one is used up.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.take()?;
        stage::popped_of_one(self.head, &*self.shared);
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
        let first = self.head;
        let end = first.saturating_add(values_max as u64);
        let mut visit = Visit(self);
        while visit.0.head < end && (visit.0.head != visit.0.ready || visit.0.sees()) {
            visit.take_until(visit.0.ready.min(end), &mut each);
        }
        drop(visit);
        (self.head - first) as usize
    }

    /// What is ready, one by one: the iterator ends when nothing more is there. What it is not asked
    /// for stays in the ring.
    ///
    /// # Cost
    /// The slots are given back to the producer after every 32, and when the iterator is dropped:
    /// less than a store for each value.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain::of(self)
    }

    /// How many values are ready. The producer may publish at any time: more is possible at once,
    /// fewer only by this handle.
    ///
    /// # Cost
    /// A load of the producer's line.
    pub fn len(&self) -> usize {
        // Relaxed: a figure; sees() acquires what is taken.
        (self.shared.tail.load(Ordering::Relaxed) - self.head) as usize
    }

    /// Whether nothing is ready. False stays so until this handle pops; true may be stale.
    ///
    /// # Cost
    /// A load of the producer's line, unless more is known to be ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.ready && self.len() == 0
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
        // Acquire: pairs with the Release in Shared::seal(): the tail below is the last.
        self.shared.ends.sealed.load(Ordering::Acquire) && self.is_empty()
    }

    /// Refuses every push that begins from now on. What was pushed, and what is being pushed, can
    /// still be popped.
    pub fn close(&mut self) {
        self.shared.close();
    }

    /// Takes the value at the head and goes on to the next position, without telling the producer.
    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        if self.head == self.ready && !self.sees() {
            look::found_nothing();
            return None;
        }
        // SAFETY: head < ready.
        Some(unsafe { self.take_ready() })
    }

    /// The same, where it is known to be there.
    ///
    /// # Safety
    /// The head is below `ready`.
    #[inline(always)]
    unsafe fn take_ready(&mut self) -> T {
        // SAFETY: head < ready, so it was filled and published, which sees() has acquired; the head
        // moves on, so that it is taken once; the producer leaves it alone until leave().
        let value = unsafe { rows::take(self.shared.slot(self.head)) };
        self.head += 1;
        if Shared::<T>::asks_ahead(self.head, self.ready) {
            self.shared.rows.fetch(self.shared.row(self.head + Shared::<T>::AHEAD));
        }
        value
    }

    /// Looks how far the producer has published; whether anything is there.
    #[inline(always)]
    fn sees(&mut self) -> bool {
        // Acquire: pairs with the Release in Shared::publish().
        self.ready = self.shared.tail.load(Ordering::Acquire);
        self.head != self.ready
    }

    /// Gives the slots below the head back to the producer.
    #[inline(always)]
    fn leave(&self) {
        // Release: what lay there has been taken; pairs with the Acquire in Shared::find_room().
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

/// Several pops; told to the producer when dropped, also when who is handed the values panics.
struct Visit<'a, T>(&'a mut Consumer<T>);

impl<T> Visit<'_, T> {
    /// Hands on the values up to position `end`, which are ready.
    #[inline(always)]
    fn take_until(&mut self, end: u64, each: &mut impl FnMut(T)) {
        while self.0.head < end {
            // SAFETY: the head is below `end`, and `end` not above `ready`.
            each(unsafe { self.0.take_ready() });
        }
    }
}

impl<T> Drop for Visit<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        stage::popped_of_one(self.0.head, &*self.0.shared);
        self.0.leave();
    }
}

/// What [`Consumer::drain`] gives.
pub type Drain<'a, T> = drain::Drain<'a, Consumer<T>>;

impl<T> Take for Consumer<T> {
    type Value = T;

    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        Consumer::take(self)
    }

    #[inline(always)]
    fn leave(&self) {
        Consumer::leave(self);
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }
}
