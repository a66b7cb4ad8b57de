//! Popping several values at once, the same for each ring.

/// The popping end of a ring, as a drain needs it.
pub trait Take {
    /// What is popped.
    type Value;

    /// Takes the oldest value, if one is there, without giving its slot back.
    fn take(&mut self) -> Option<Self::Value>;

    /// Gives back the slots of all that was taken.
    fn leave(&self);

    /// How many values have been taken since the beginning.
    fn head(&self) -> u64;
}

/// A drain gives slots back after so many, at the latest.
const LEAVE_EVERY: u64 = 32;

/// An iterator over what is ready in a ring: it ends when nothing more is there. What it is not asked for
/// stays in the ring. Slots are given back to producers after every 32, and when it is dropped.
#[derive(Debug)]
pub struct Drain<'a, C: Take>(&'a mut C);

impl<'a, C: Take> Drain<'a, C> {
    #[inline(always)]
    pub(crate) fn of(consumer: &'a mut C) -> Self {
        Self(consumer)
    }
}

impl<C: Take> Iterator for Drain<'_, C> {
    type Item = C::Value;

    #[inline]
    fn next(&mut self) -> Option<C::Value> {
        let value = self.0.take()?;
        if self.0.head().is_multiple_of(LEAVE_EVERY) {
            self.0.leave();
        }
        Some(value)
    }
}

impl<C: Take> Drop for Drain<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}
