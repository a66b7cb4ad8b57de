//! The stages of a hand-over, by name: where probe sites will stand. Today each is nothing.

/// A message stands in a queue of the machine.
#[inline(always)]
pub(crate) fn enqueued() {}

/// A sleeping thread was told of it.
#[inline(always)]
pub(crate) fn notified() {}

/// The thread runs again.
#[inline(always)]
pub(crate) fn woken() {}

/// The handler is about to be called with it.
#[inline(always)]
pub(crate) fn dispatched() {}

/// The handler has returned; what it had to answer, it has sent.
#[inline(always)]
pub(crate) fn replied() {}
