//! Traits of the rings, for generic code (tests, benchmarks).

use crate::{CapacityError, PushError, mpsc, spsc};

/// A bounded queue with two ends.
pub trait Queue {
    /// Name in tables and messages.
    const NAME: &'static str;
    /// Type of the pushing end.
    type Producer<T: Send>: Push<T> + Send;
    /// Type of the popping end.
    type Consumer<T: Send>: Pop<T> + Send;

    /// Makes a queue of exactly `slots_count` slots.
    ///
    /// # Errors
    /// [`CapacityError`]: zero slots, too many, or no memory for them.
    #[allow(clippy::type_complexity)]
    fn ring<T: Send>(
        slots_count: u32,
    ) -> Result<(Self::Producer<T>, Self::Consumer<T>), CapacityError>;
}

/// A pushing end.
pub trait Push<T> {
    /// Pushes a value.
    ///
    /// # Errors
    /// If the queue is full or closed; the error returns the value.
    fn push(&mut self, value: T) -> Result<(), PushError<T>>;
    /// Pushes values while there are slots; returns how many.
    fn push_batch(&mut self, values: &mut impl ExactSizeIterator<Item = T>) -> usize;
    /// Number of values in the queue.
    fn len(&self) -> usize;
    /// Returns `true` if the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns `true` if the queue is closed.
    fn is_closed(&self) -> bool;
    /// Closes the queue: every further push is refused.
    fn close(&mut self);
}

/// A popping end.
pub trait Pop<T> {
    /// Pops the oldest value.
    fn pop(&mut self) -> Option<T>;
    /// Pops up to `values_max` values; returns how many.
    fn pop_batch(&mut self, values_max: usize, each: impl FnMut(T)) -> usize;
    /// Iterates over the values that are ready.
    fn drain(&mut self) -> impl Iterator<Item = T>;
    /// Number of values to pop, or nearly.
    fn len(&self) -> usize;
    /// Returns `true` if no value is ready.
    fn is_empty(&self) -> bool;
    /// Returns `true` if the queue is closed.
    fn is_closed(&self) -> bool;
    /// Returns `true` if the queue is empty and no value will ever come.
    fn is_finished(&self) -> bool;
    /// Closes the queue: every further push is refused.
    fn close(&mut self);
}

/// [`spsc`] as a [`Queue`].
#[derive(Debug)]
pub enum Spsc {}

/// [`mpsc`] as a [`Queue`].
#[derive(Debug)]
pub enum Mpsc {}

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
