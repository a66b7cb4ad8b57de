//! Many producers, many consumers; [`crate::mpmc`] describes the algorithm.

use super::rows::{self, Rows};
use crate::{CapacityError, PushError, stage, validate};
use core::fmt;
use handover_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Flag in `MpmcShared::tail` which says that the ring is closed and no more positions can be reserved.
const CLOSED: u64 = 1 << 63;

/// State shared by the producers and the consumers.
///
/// A position is the index of a row in its low bits and the number of the lap around the ring above them. The row's
/// turn is twice the lap while it is vacant and one more while it is filled: the word beside the slot says whose turn
/// it is.
struct MpmcShared<T> {
    /// Position of the next push, with the flag [`CLOSED`], on a cache line of its own.
    tail: CachePadded<AtomicU64>,
    /// Position of the next pop, on a cache line of its own.
    head: CachePadded<AtomicU64>,
    /// State that is rarely written, so that every CPU keeps a copy of its cache line.
    handles: CachePadded<Handles>,
    rows: Rows<T, true>,
    slots_count: u64,
    /// Number of bits of a position that are the index of its row.
    index_bits: u32,
}

/// Number of handles at each end, and whether the ring is closed.
struct Handles {
    /// `true` once `tail` has the flag [`CLOSED`]; a copy that is read without accessing the producers' line.
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

    /// Returns the turn that the row for `position` has while it is vacant. While it is filled, its
    /// turn is one more.
    #[inline(always)]
    fn vacant_turn(&self, position: u64) -> u64 {
        (position >> self.index_bits) * 2
    }

    /// Returns the word of the row for `position`, which contains the row's turn.
    #[inline(always)]
    fn turn(&self, position: u64) -> &AtomicU64 {
        // SAFETY: positions begin with row 0, and next() returns to it after row `slots_count - 1`, the last one.
        unsafe { self.rows.word(self.row(position)) }
    }

    /// Returns the slot of the row for `position`.
    #[inline(always)]
    fn slot(&self, position: u64) -> &rows::Slot<T> {
        // SAFETY: positions begin with row 0, and next() returns to it after row `slots_count - 1`, the last one.
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

    fn push(&self, value: T) -> Result<(), PushError<T>> {
        // Relaxed: only a guess at what the exchange will find.
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            if position & CLOSED != 0 {
                return Err(PushError::Closed(value));
            }
            let vacant = self.vacant_turn(position);
            // Acquire: pairs with the Release in pop(): the slot's last value was taken.
            let turn = self.turn(position).load(Ordering::Acquire);
            if turn < vacant {
                stage::record_refused(self.count_before(position), self);
                return Err(PushError::Full(value));
            }
            if turn > vacant {
                // Another producer has filled the slot since. Relaxed: as above.
                position = self.tail.load(Ordering::Relaxed);
                continue;
            }
            // Relaxed: it gives out positions and publishes nothing; turns do.
            let reserved = self.tail.compare_exchange_weak(
                position,
                self.next(position),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match reserved {
                Ok(_) => break,
                Err(now) => position = now,
            }
        }
        // SAFETY: only this thread has the position, and consumers wait for its turn. The turn, read with Acquire,
        // said that the slot is vacant in this lap; no other thread changes it before it is filled.
        unsafe { rows::write_slot(self.slot(position), value) };
        // Release: publishes the slot to the Acquire in pop().
        self.turn(position).store(self.vacant_turn(position) + 1, Ordering::Release);
        stage::record_published(self.count_before(position) + 1, self);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        // Relaxed: only a guess at what the exchange will find.
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let filled = self.vacant_turn(position) + 1;
            // Acquire: pairs with the Release in push(): the value is complete.
            let turn = self.turn(position).load(Ordering::Acquire);
            if turn < filled {
                return None;
            }
            if turn > filled {
                // Another consumer has taken the value since. Relaxed: as above.
                position = self.head.load(Ordering::Relaxed);
                continue;
            }
            // Relaxed: it gives out positions and publishes nothing; turns do.
            let reserved = self.head.compare_exchange_weak(
                position,
                self.next(position),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match reserved {
                Ok(_) => break,
                Err(now) => position = now,
            }
        }
        // SAFETY: only this thread has the position, and producers wait for its turn. The turn, read with Acquire,
        // said that the slot is filled in this lap; no other thread changes it before it is vacant.
        let value = unsafe { rows::take_from_slot(self.slot(position)) };
        // Release: passes the slot on to the Acquire in push(), of the next lap.
        self.turn(position).store(self.vacant_turn(position) + 2, Ordering::Release);
        stage::record_popped(self.count_before(position) + 1, self);
        Some(value)
    }

    /// Sets the flag [`CLOSED`], so that no more positions can be reserved.
    fn close(&self) {
        // Relaxed: totally ordered with the exchanges that give out positions, so that no position
        // follows; nothing else depends on it.
        self.tail.fetch_or(CLOSED, Ordering::Relaxed);
        // Release: a thread that reads true sees CLOSED in the tail; pairs with the Acquire in is_finished().
        self.handles.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.handles.closed.load(Ordering::Relaxed)
    }

    fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in close(): the tail read below contains CLOSED, and so its last position.
        if !self.handles.closed.load(Ordering::Acquire) {
            return false;
        }
        // Relaxed both: the tail changes no more, and a head that is too old only says `false`.
        let end = self.tail.load(Ordering::Relaxed) & !CLOSED;
        self.head.load(Ordering::Relaxed) == end
    }

    fn len(&self) -> usize {
        // Relaxed both: only a count. Either may be older than the other: bounded by the number of slots.
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

/// Producer's end of a ring; clone it for more producers. Dropping the last one closes the ring; values that were
/// pushed can still be popped.
///
/// Values that one thread pushes are popped in the order in which it pushed them, by whichever consumers.
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

/// Consumer's end of a ring; clone it for more consumers. Dropping the last one closes the ring, and drops the values
/// in it.
pub struct Consumer<T> {
    shared: Arc<MpmcShared<T>>,
}

impl<T> Producer<T> {
    /// Pushes a value; the error contains it if the ring is full or closed.
    ///
    /// # Errors
    /// [`PushError::Full`] if the next slot was taken when read, also by a value that a consumer has not finished
    /// popping; [`PushError::Closed`] for ever once the ring is closed. Both return the value.
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
        self.shared.push(value)
    }
}

impl<T> Consumer<T> {
    /// Pops the oldest value; `None` if the oldest slot is vacant or still being filled.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come. While a producer
    /// that has reserved a slot has not filled it, later values of others are not popped: `None`.
    ///
    /// # Blocking
    /// Never. A try that another consumer overtakes is repeated; of the consumers that try at the
    /// same time, at least one succeeds (lock-free).
    ///
    /// # Cost
    /// One compare-and-swap on the consumers' line, and another each time that a consumer overtakes; a store to the
    /// line of the value. `None` makes no read-modify-write, and no access to the producers' line.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.shared.pop()
    }

    /// Returns `true` if the ring is empty and no value can be pushed any more. Once true, it stays
    /// true. It is `false` while a push that began before the ring was closed is in progress.
    ///
    /// # Cost
    /// A load of a line that no thread writes, until the ring is closed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.shared.is_finished()
    }
}

/// Defines the operations that both ends have, with the name for `Debug` and the end's count.
macro_rules! both_ends {
    ($end:ident, $name:literal, $count:ident) => {
        impl<T> $end<T> {
            /// Returns the number of values in the ring, including those being pushed.
            ///
            /// Other threads push and pop meanwhile: use it for display and statistics only.
            ///
            /// # Cost
            /// A load of the producers' line and of the consumers'.
            pub fn len(&self) -> usize {
                self.shared.len()
            }

            /// Returns `true` if the ring was empty when read; values count as in [`len`](Self::len).
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the number of slots of the ring.
            pub fn slots_count(&self) -> usize {
                self.shared.slots_count as usize
            }

            /// Returns `true` if the ring is closed, so that pushes fail; there may be values to pop. Once true, it
            /// stays true.
            #[inline]
            pub fn is_closed(&self) -> bool {
                self.shared.is_closed()
            }

            /// Closes the ring, so that every further push, by any producer, fails. Values that were pushed, or are
            /// being pushed, can still be popped.
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
        // AcqRel: pairs with itself in the other consumers: what they have popped is vacant for the last one.
        if self.shared.handles.consumers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
            // Values that are still being pushed are dropped with the ring.
            rows::drop_all_values(|| self.pop().is_some());
        }
    }
}
