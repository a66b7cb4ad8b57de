//! What the rings have in common, for code (tests, benchmarks) that runs with each.

use crate::{CapacityError, PushError, mpsc, spsc};

/// A bounded queue, by its two ends.
pub trait Queue {
    /// Its name in tables and messages.
    const NAME: &'static str;
    /// The end that pushes.
    type Producer<T: Send>: Push<T> + Send;
    /// The end that pops.
    type Consumer<T: Send>: Pop<T> + Send;

    /// A queue of exactly so many slots.
    ///
    /// # Errors
    /// [`CapacityError`]: no slot or too many, or no memory for them.
    #[allow(clippy::type_complexity)]
    fn ring<T: Send>(
        slots_count: u32,
    ) -> Result<(Self::Producer<T>, Self::Consumer<T>), CapacityError>;
}

/// What every producing end can do.
pub trait Push<T> {
    /// Pushes a value, or gives it back.
    ///
    /// # Errors
    /// Full, or closed.
    fn push(&mut self, value: T) -> Result<(), PushError<T>>;
    /// Pushes values while there are slots; how many.
    fn push_batch(&mut self, values: &mut impl ExactSizeIterator<Item = T>) -> usize;
    /// How many values are in the queue.
    fn len(&self) -> usize;
    /// Whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether the queue is closed.
    fn is_closed(&self) -> bool;
    /// Refuses every further push.
    fn close(&mut self);
}

/// What every popping end can do.
pub trait Pop<T> {
    /// Pops the oldest value.
    fn pop(&mut self) -> Option<T>;
    /// Pops up to `values_max` values; how many.
    fn pop_batch(&mut self, values_max: usize, each: impl FnMut(T)) -> usize;
    /// What is ready, one by one.
    fn drain(&mut self) -> impl Iterator<Item = T>;
    /// How many values there are to pop, or nearly.
    fn len(&self) -> usize;
    /// Whether nothing is ready.
    fn is_empty(&self) -> bool;
    /// Whether the queue is closed.
    fn is_closed(&self) -> bool;
    /// Whether nothing is there and nothing will ever come.
    fn is_finished(&self) -> bool;
    /// Refuses every further push.
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
