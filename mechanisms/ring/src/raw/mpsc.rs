//! Many producers, one consumer; the algorithm is told at [`crate::mpsc`].

use super::rows::{self, Rows};
use crate::drain::{self, Take};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// In the tail: no position is given out any more.
const CLOSED: u64 = 1 << 63;

/// In a sequence: the slot of this position was left vacant, by an iterator that gave less than it
/// had claimed while others pushed behind.
const SKIPPED: u64 = 1 << 63;

struct Shared<T> {
    /// The producers' lines.
    tail: CachePadded<Tail>,
    /// The consumer's position: what lies below has been popped. The consumer's lines.
    head: CachePadded<AtomicU64>,
    /// Written seldom, so that everybody has a copy of the line.
    ends: CachePadded<Ends>,
    rows: Rows<T, true>,
    /// The rows are a power of two.
    mask: u64,
    slots_count: u64,
}

struct Tail {
    /// The next position to be given out, and [`CLOSED`].
    next: AtomicU64,
    /// Positions below are vacant, by the head that some producer saw last. Beside `next`, so that
    /// one look at the consumer's line serves all producers.
    limit: AtomicU64,
}

struct Ends {
    /// [`CLOSED`] stands in the tail: told here, where the consumer can look without touching the
    /// producers' line.
    closed: AtomicBool,
    producers_count: AtomicUsize,
}

impl<T> Shared<T> {
    #[inline(always)]
    fn row(&self, position: u64) -> usize {
        (position & self.mask) as usize
    }

    #[inline(always)]
    fn sequence(&self, position: u64) -> &AtomicU64 {
        // SAFETY: masked, so below the count of rows.
        unsafe { self.rows.word(self.row(position)) }
    }

    /// Fills the slot of a position that was given to the caller, and publishes it.
    ///
    /// # Safety
    /// The position was given to the caller by `reserve`, and is filled once.
    #[inline(always)]
    unsafe fn fill(&self, position: u64, value: T) {
        let sequence = self.sequence(position);
        // SAFETY: masked, so below the count of rows.
        let slot = unsafe { self.rows.slot(self.row(position)) };
        // SAFETY: the position is the caller's alone. It is below the limit, so the consumer has
        // taken what last lay in this slot, which reserve() has acquired; it does not look at the
        // slot again before the sequence says so.
        unsafe { rows::fill(slot, value) };
        // Release: publishes the slot to the Acquire in Consumer::state().
        sequence.store(position + 1, Ordering::Release);
        stage::published(position + 1, self);
    }

    /// Gives out up to `wanted` positions; the first of them, and how many.
    #[inline(always)]
    fn reserve(&self, wanted: u64) -> Result<(u64, u64), PushError<()>> {
        // Relaxed: only a guess at what the exchange will find.
        let mut next = self.tail.next.load(Ordering::Relaxed);
        loop {
            if next & CLOSED != 0 {
                return Err(PushError::Closed(()));
            }
            // Acquire: pairs with the Release in find_room(), of whoever looked last: what lay in
            // the slots below the limit was taken before it is overwritten.
            let mut limit = self.tail.limit.load(Ordering::Acquire);
            if next >= limit {
                limit = self.find_room();
                if next >= limit {
                    stage::refused(next, self);
                    return Err(PushError::Full(()));
                }
            }
            // Not `next + wanted`: an iterator may claim any length.
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

    /// Takes back the positions from `position` to `end`, which were given to the caller and are not
    /// filled: as if never given out if no later one has been, else marked to be skipped.
    #[cold]
    #[inline(never)]
    fn give_back(&self, position: u64, end: u64) {
        // Relaxed both ways: as in reserve(). Nothing was written to the slots or their sequences.
        let taken_back =
            self.tail.next.compare_exchange(end, position, Ordering::Relaxed, Ordering::Relaxed);
        if taken_back.is_ok() {
            return;
        }
        for position in position..end {
            // Release: lets the consumer pass; pairs with the Acquire in Consumer::state().
            self.sequence(position).store((position + 1) | SKIPPED, Ordering::Release);
        }
    }

    /// Looks at how far the consumer has come; the new limit.
    #[cold]
    #[inline(never)]
    fn find_room(&self) -> u64 {
        // Acquire: pairs with the Release in Consumer::leave().
        let limit = self.head.load(Ordering::Acquire) + self.slots_count;
        // Release: hands on what was acquired to the Acquire in reserve(). A producer that was
        // quicker may be set back by this, to a limit that is too careful: somebody looks again.
        self.tail.limit.store(limit, Ordering::Release);
        limit
    }

    fn close(&self) {
        // Relaxed: totally ordered with the exchanges that give positions out, which is all that
        // matters: no position follows.
        self.tail.next.fetch_or(CLOSED, Ordering::Relaxed);
        // Release: whoever sees this sees CLOSED in the tail; pairs with the Acquire in
        // Consumer::is_finished().
        self.ends.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.ends.closed.load(Ordering::Relaxed)
    }

    /// Positions given out so far.
    fn given_out(&self) -> u64 {
        // Relaxed: a figure.
        self.tail.next.load(Ordering::Relaxed) & !CLOSED
    }

    fn len(&self, head: u64) -> usize {
        // The head may be older or newer than the tail; more than all slots is never told.
        self.given_out().saturating_sub(head).min(self.slots_count) as usize
    }
}

impl<T> Drop for Shared<T> {
    /// Drops what nobody popped.
    fn drop(&mut self) {
        // Relaxed: all handles are gone, and the Arc has ordered what they did before this.
        let mut position = self.head.load(Ordering::Relaxed);
        let end = self.given_out();
        rows::drop_all(|| {
            if position == end {
                return false;
            }
            // Relaxed: as above.
            let sequence = self.sequence(position).load(Ordering::Relaxed);
            let row = self.row(position);
            position += 1;
            if sequence == position {
                // SAFETY: masked, so below the count of rows.
                let slot = unsafe { self.rows.slot(row) };
                // SAFETY: the sequence says that it was filled, nobody took it, as it is not below
                // the head, and nobody else is left; the position has moved on.
                drop(unsafe { rows::take(slot) });
            }
            true
        });
    }
}

/// A ring of exactly so many slots, its first producer and its consumer.
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
/// [`CapacityError`]: no slot or too many, or no memory for them.
///
/// # Cost
/// The memory of the next power of two of slots, each of its size and 8 bytes, rounded up to 16, 32 or
/// whole cache lines.
pub fn ring<T>(slots_count: u32) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    validate(slots_count)?;
    let rows_count = slots_count.next_power_of_two();
    let rows =
        Rows::new(rows_count as usize).ok_or_else(|| rows::out_of_memory::<T>(slots_count))?;
    let shared = Arc::new(Shared {
        tail: CachePadded(Tail {
            next: AtomicU64::new(0),
            limit: AtomicU64::new(u64::from(slots_count)),
        }),
        head: CachePadded(AtomicU64::new(0)),
        ends: CachePadded(Ends {
            closed: AtomicBool::new(false),
            producers_count: AtomicUsize::new(1),
        }),
        rows,
        mask: u64::from(rows_count - 1),
        slots_count: u64::from(slots_count),
    });
    Ok((Producer { shared: Arc::clone(&shared) }, Consumer { shared, head: 0 }))
}

/// An end that pushes; clone it for more. Dropping the last one closes the ring; what was pushed can
/// still be popped.
///
/// Values that one thread pushes are popped in the order in which it pushed them.
///
/// The consumer's values are typed by its own `T`, so a producer never stands for one of values that
/// live shorter (it is invariant in `T`):
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
    shared: Arc<Shared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value.
    ///
    /// # Errors
    /// [`PushError::Full`] when every slot was taken at some moment during the call,
    /// [`PushError::Closed`] for good once the ring was closed. The value comes back.
    ///
    /// # Blocking
    /// Never. A try that another producer was quicker than is repeated: as many go through, one at
    /// least does (lock-free).
    ///
    /// # Cost
    /// One compare-and-swap on the producers' line, another for each producer that was quicker; two
    /// stores to the line that the value lies in. A refusal makes no read-modify-write.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), PushError<T>> {
        match self.shared.reserve(1) {
            Ok((position, _)) => {
                // SAFETY: reserved just now, and filled here only.
                unsafe { self.shared.fill(position, value) };
                Ok(())
            }
            Err(PushError::Full(())) => Err(PushError::Full(value)),
            Err(PushError::Closed(())) => Err(PushError::Closed(value)),
        }
    }

    /// Pushes values from the iterator while there are slots; how many. What is not pushed is not
    /// taken from the iterator. What others push may come to lie between them, in few places.
    ///
    /// Less than all does not tell why; ask [`is_closed`](Self::is_closed).
    ///
    /// Slots are reserved for as many values as the iterator claims to have. Until it has given them,
    /// values that others push behind cannot be popped: so if the consumer sleeps, wake it after this
    /// call *whatever it returned*, and also when the iterator panicked.
    ///
    /// # Panics
    /// If the iterator does; what it gave before has been pushed.
    ///
    /// # Blocking
    /// As the iterator does. One that waits for the consumer may wait for ever.
    ///
    /// # Cost
    /// One compare-and-swap for all, as long as there are slots in one piece; two stores for each
    /// value. An iterator that gives less than it claims costs another one, which gives the remaining
    /// slots back, or, if others have pushed behind, one store a slot, which stays unused until the
    /// consumer has passed them.
    pub fn push_batch(&self, values: &mut impl ExactSizeIterator<Item = T>) -> usize {
        let mut pushed = 0;
        while let claimed @ 1.. = values.len() as u64 {
            let Ok((position, count)) = self.shared.reserve(claimed) else { break };
            let mut batch = Batch { shared: &self.shared, position, end: position + count };
            while batch.position < batch.end {
                let Some(value) = values.next() else {
                    return pushed;
                };
                let position = batch.position;
                batch.position += 1;
                // SAFETY: reserved just now, and the batch has moved on.
                unsafe { self.shared.fill(position, value) };
                pushed += 1;
            }
        }
        pushed
    }

    /// How many values are in the ring, those that are just being pushed included.
    ///
    /// Others push and pop meanwhile: a figure for people and for statistics.
    ///
    /// # Cost
    /// Reads the producers' line and the consumer's.
    pub fn len(&self) -> usize {
        // Relaxed: a figure.
        self.shared.len(self.shared.head.load(Ordering::Relaxed))
    }

    /// Whether the ring was empty a moment ago; see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Refuses every further push, by any producer. What was pushed can still be popped.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        // Relaxed: as Arc's own count; a handle is made from a handle.
        self.shared.ends.producers_count.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // AcqRel: pairs with itself in the other producers: all that they did comes before the
        // last one closes.
        if self.shared.ends.producers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, slots_count) = (self.len(), self.slots_count());
        write!(f, "mpsc::Producer({len} of {slots_count}, closed: {})", self.is_closed())
    }
}

/// Positions given out and not filled yet; those that are left when it is dropped are given back.
struct Batch<'a, T> {
    shared: &'a Shared<T>,
    position: u64,
    end: u64,
}

impl<T> Drop for Batch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.position < self.end {
            self.shared.give_back(self.position, self.end);
        }
    }
}

/// The end that pops. Dropping it closes the ring, and drops what was in it.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// The position of the next pop.
    head: u64,
}

/// What the sequence of the next slot says.
enum State {
    Filled,
    Skipped,
    /// Vacant, or being filled.
    NotYet,
}

impl<T> Consumer<T> {
    /// Pops the oldest value, if it is there.
    ///
    /// `None` may be stale at once; whether more can come says
    /// [`is_finished`](Self::is_finished). A producer that has begun a push before others and has not
    /// ended it holds up theirs: `None` until it has.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line that the value lies in, and a store to a line that producers read seldom;
    /// no read-modify-write, and no look at the producers' line.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.take()?;
        stage::popped(self.head, &*self.shared);
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
        let mut count = 0;
        for value in self.drain().take(values_max) {
            count += 1;
            each(value);
        }
        count
    }

    /// What is ready, one by one: the iterator ends when nothing more is there. What it is not asked
    /// for stays in the ring.
    ///
    /// # Cost
    /// The slots are given back to the producers after every 32, and when the iterator is dropped:
    /// less than a store for each value.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain::of(self)
    }

    /// How many values are in the ring, those that are just being pushed included, so that there may
    /// be fewer to pop than it says. Fewer are never pushed than it says: only this handle takes out.
    ///
    /// # Cost
    /// Reads the producers' line, which slows them: for people and for statistics. To know whether
    /// there is something to pop, ask [`is_empty`](Self::is_empty).
    pub fn len(&self) -> usize {
        self.shared.len(self.head)
    }

    /// Whether nothing is ready. False stays so until this handle pops; true may be stale.
    ///
    /// # Cost
    /// A load of the line that the next value will lie in.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let mut position = self.head;
        loop {
            match self.state(position) {
                State::Filled => return false,
                State::NotYet => return true,
                State::Skipped => position += 1,
            }
        }
    }

    /// How many slots the ring has.
    pub fn slots_count(&self) -> usize {
        self.shared.slots_count as usize
    }

    /// Whether the ring is closed: nothing more is pushed, but there may be something to pop. Once
    /// true, true for ever.
    ///
    /// # Cost
    /// A load of a line that nobody writes.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Whether nothing is there and nothing will ever come. Once true, true for ever. While a push
    /// that began before the ring was closed is under way, it is false.
    ///
    /// # Cost
    /// A load of a line that nobody writes, until the ring is closed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in close(): the tail below has CLOSED in it, and with that
        // its last value.
        if !self.shared.ends.closed.load(Ordering::Acquire) {
            return false;
        }
        let end = self.shared.given_out();
        let mut position = self.head;
        while position < end && matches!(self.state(position), State::Skipped) {
            position += 1;
        }
        position == end
    }

    /// Refuses every push that begins from now on. What was pushed, and what is being pushed, can
    /// still be popped.
    pub fn close(&mut self) {
        self.shared.close();
    }

    #[inline(always)]
    fn state(&self, position: u64) -> State {
        // Acquire: pairs with the Release in Shared::fill() and Shared::give_back().
        let sequence = self.shared.sequence(position).load(Ordering::Acquire);
        if sequence == position + 1 {
            State::Filled
        } else if sequence != (position + 1) | SKIPPED {
            State::NotYet
        } else {
            State::Skipped
        }
    }

    /// Takes the value at the head and goes on to the next position, without telling the producers.
    #[inline(always)]
    fn take(&mut self) -> Option<T> {
        let row = self.shared.row(self.head);
        // SAFETY: masked, so below the count of rows.
        let slot = unsafe { self.shared.rows.slot(row) };
        // Acquire: pairs with the Release in Shared::fill() and Shared::give_back().
        let sequence = self.shared.sequence(self.head).load(Ordering::Acquire);
        if sequence == self.head + 1 {
            // SAFETY: the sequence says that it was filled, as was acquired; the head
            // moves on, so that it is taken once; producers leave it alone until leave().
            let value = unsafe { rows::take(slot) };
            self.head += 1;
            return Some(value);
        }
        if sequence == (self.head + 1) | SKIPPED {
            return self.take_behind();
        }
        None
    }

    /// The same, when the next slot was left vacant. It passes no more of these than the ring has
    /// slots: producers are given room for others by `leave` alone.
    #[cold]
    fn take_behind(&mut self) -> Option<T> {
        let state = loop {
            match self.state(self.head) {
                State::Skipped => self.head += 1,
                state => break state,
            }
        };
        self.leave();
        if matches!(state, State::Filled) { self.take() } else { None }
    }

    /// Gives the slots below the head back to the producers.
    #[inline(always)]
    fn leave(&self) {
        // Release: what lay there has been taken; pairs with the Acquire in find_room().
        self.shared.head.store(self.head, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close();
        // What is still being pushed is dropped with the ring.
        rows::drop_all(|| self.pop().is_some());
        self.leave();
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, slots_count) = (self.len(), self.slots_count());
        write!(f, "mpsc::Consumer({len} of {slots_count}, closed: {})", self.is_closed())
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
