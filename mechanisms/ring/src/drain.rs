//! Draining of several values at once, for each ring.

/// Operations of a ring's consumer that [`Drain`] needs.
pub trait DrainSource {
    /// Type of the ring's values.
    type Value;

    /// Reads the oldest value without releasing its slot; `None` if no value is ready.
    fn take(&mut self) -> Option<Self::Value>;

    /// Releases the slots of all values read so far.
    fn release_slots(&self);

    /// Returns the position of the next value to read.
    fn head(&self) -> u64;
}

/// Number of values that a drain reads before it releases their slots to the producers.
const VALUES_PER_RELEASE: u64 = 32;

/// Iterator that pops the values that are ready in a ring. It ends when there are no more. Values
/// that it has not returned stay in the ring. It releases slots to producers after every 32 values,
/// and when it is dropped.
#[derive(Debug)]
pub struct Drain<'a, C: DrainSource>(&'a mut C);

impl<'a, C: DrainSource> Drain<'a, C> {
    #[inline(always)]
    pub(crate) fn new(consumer: &'a mut C) -> Self {
        Self(consumer)
    }
}

impl<C: DrainSource> Iterator for Drain<'_, C> {
    type Item = C::Value;

    #[inline]
    fn next(&mut self) -> Option<C::Value> {
        let value = self.0.take()?;
        if self.0.head().is_multiple_of(VALUES_PER_RELEASE) {
            self.0.release_slots();
        }
        Some(value)
    }
}

impl<C: DrainSource> Drop for Drain<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.0.release_slots();
    }
}
