//! Traits of the rings, for generic code (tests, benchmarks).

use crate::{CapacityError, PushError, mpmc, mpsc, spsc};

/// Bounded queue with a producer and a consumer, as a type for generic code.
pub trait Queue {
    /// Name of the queue in tables and messages: lower case, no spaces.
    const NAME: &'static str;
    /// Type of the producer, which pushes values.
    type Producer<T: Send>: Push<T> + Send;
    /// Type of the consumer, which pops values.
    type Consumer<T: Send>: Pop<T> + Send;

    /// Creates a queue of exactly `slots_count` slots, and returns its producer and consumer.
    ///
    /// # Errors
    /// [`CapacityError`]: zero slots, too many, or no memory for them.
    #[allow(clippy::type_complexity)]
    fn ring<T: Send>(
        slots_count: u32,
    ) -> Result<(Self::Producer<T>, Self::Consumer<T>), CapacityError>;
}

/// Producer of a [`Queue`], which pushes values.
pub trait Push<T> {
    /// Pushes a value; the error contains it if the queue is full or closed.
    ///
    /// # Errors
    /// If the queue is full or closed; the error returns the value.
    fn push(&mut self, value: T) -> Result<(), PushError<T>>;
    /// Pushes values until the queue is full or closed; returns the number of values pushed.
    fn push_batch(&mut self, values: &mut impl ExactSizeIterator<Item = T>) -> usize;
    /// Returns the number of values in the queue when read. The other end may have changed it
    /// since.
    fn len(&self) -> usize;
    /// Returns `true` if the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns `true` if every slot holds a value, counted as in [`len`](Self::len).
    fn is_full(&self) -> bool;
    /// Returns `true` if the queue is closed, so that every push fails.
    fn is_closed(&self) -> bool;
    /// Closes the queue, so that every further push is refused.
    fn close(&mut self);
}

/// Consumer of a [`Queue`], which pops values.
pub trait Pop<T> {
    /// Pops the oldest value; `None` if no value is ready.
    fn pop(&mut self) -> Option<T>;
    /// Pops up to `values_max` values and passes them to `each`; returns the number popped.
    fn pop_batch(&mut self, values_max: usize, each: impl FnMut(T)) -> usize;
    /// Returns an iterator that pops the values that are ready.
    fn drain(&mut self) -> impl Iterator<Item = T>;
    /// Returns the number of values in the queue, of which some may not be ready yet.
    fn len(&self) -> usize;
    /// Returns `true` if no value is ready to be popped.
    fn is_empty(&self) -> bool;
    /// Returns `true` if the queue is closed. Every push then fails, but there may be values to
    /// pop.
    fn is_closed(&self) -> bool;
    /// Returns `true` if the queue is empty and no value can be pushed any more.
    fn is_finished(&self) -> bool;
    /// Closes the queue, so that every further push is refused.
    fn close(&mut self);
}

/// Type that stands for the [`spsc`] ring as a [`Queue`] in generic code.
#[derive(Debug)]
pub enum Spsc {}

/// Type that stands for the [`mpsc`] ring as a [`Queue`] in generic code.
#[derive(Debug)]
pub enum Mpsc {}

/// Type that stands for the [`mpmc`] ring as a [`Queue`] in generic code.
#[derive(Debug)]
pub enum Mpmc {}

macro_rules! queue {
    ($queue:ident, $module:ident, $name:literal) => {
        impl Queue for $queue {
            const NAME: &'static str = $name;
            type Producer<T: Send> = $module::Producer<T>;
            type Consumer<T: Send> = $module::Consumer<T>;

            fn ring<T: Send>(
                slots_count: u32,
            ) -> Result<(Self::Producer<T>, Self::Consumer<T>), CapacityError> {
                $module::ring(slots_count)
            }
        }

        impl<T> Push<T> for $module::Producer<T> {
            #[inline]
            fn push(&mut self, value: T) -> Result<(), PushError<T>> {
                $module::Producer::push(self, value)
            }
            #[inline]
            fn push_batch(&mut self, values: &mut impl ExactSizeIterator<Item = T>) -> usize {
                $module::Producer::push_batch(self, values)
            }
            fn len(&self) -> usize {
                $module::Producer::len(self)
            }
            fn is_full(&self) -> bool {
                $module::Producer::len(self) == $module::Producer::slots_count(self)
            }
            fn is_closed(&self) -> bool {
                $module::Producer::is_closed(self)
            }
            fn close(&mut self) {
                $module::Producer::close(self);
            }
        }

        impl<T> Pop<T> for $module::Consumer<T> {
            #[inline]
            fn pop(&mut self) -> Option<T> {
                $module::Consumer::pop(self)
            }
            #[inline]
            fn pop_batch(&mut self, values_max: usize, each: impl FnMut(T)) -> usize {
                $module::Consumer::pop_batch(self, values_max, each)
            }
            #[inline]
            fn drain(&mut self) -> impl Iterator<Item = T> {
                $module::Consumer::drain(self)
            }
            fn len(&self) -> usize {
                $module::Consumer::len(self)
            }
            #[inline]
            fn is_empty(&self) -> bool {
                $module::Consumer::is_empty(self)
            }
            fn is_closed(&self) -> bool {
                $module::Consumer::is_closed(self)
            }
            fn is_finished(&self) -> bool {
                $module::Consumer::is_finished(self)
            }
            fn close(&mut self) {
                $module::Consumer::close(self);
            }
        }
    };
}

queue!(Spsc, spsc, "spsc");
queue!(Mpsc, mpsc, "mpsc");
queue!(Mpmc, mpmc, "mpmc");
