//! A futex that is woken each time: a counter in memory, and a system call whether anybody sleeps
//! or not. The simplest thing that works, and the floor for what parks.

use super::waiting::{Deadline, deadline, time_left};
use crate::{Mechanism, Notify, PairError, Wait};
use core::ops::Deref;
use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The word that the two sides share: how many notifications there were, modulo 2^32.
///
/// All zeroes are a fresh one, fit for memory that several processes have mapped.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Core {
    notified_count: AtomicU32,
}

impl Core {
    /// A fresh one: nothing pending.
    #[must_use]
    pub const fn new() -> Self {
        Self { notified_count: AtomicU32::new(0) }
    }
}

/// The mechanism as a type, for code that runs with each of them.
#[derive(Debug, Clone, Copy)]
pub enum Futex {}

impl Mechanism for Futex {
    const NAME: &'static str = "futex";
    const WHAT: &'static str = "a counter and a futex, woken at each notification";
    const COUNTS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let core = Arc::new(Core::new());
        let sender = Sender::over(Arc::clone(&core), Scope::Private);
        Ok((sender, Receiver::over(core, Scope::Private)))
    }
}

/// The side that wakes.
#[derive(Debug, Clone)]
pub struct Sender<C = Arc<Core>> {
    core: C,
    scope: Scope,
}

impl<C: Deref<Target = Core>> Sender<C> {
    /// A sender on a core of your own. `scope` must be the receiver's.
    pub fn over(core: C, scope: Scope) -> Self {
        Self { core, scope }
    }
}

impl<C: Deref<Target = Core> + Send + Sync> Notify for Sender<C> {
    #[inline]
    fn notify(&self) {
        let count = &self.core.notified_count;
        // Release: publishes what this sender wrote to the Acquire in Receiver::consume(); further
        // increments continue its release sequence.
        count.fetch_add(1, Ordering::Release);
        futex::wake(count, 1, self.scope);
    }
}

/// The side that waits.
#[derive(Debug)]
pub struct Receiver<C = Arc<Core>> {
    core: C,
    scope: Scope,
    consumed_count: u32,
}

impl<C: Deref<Target = Core>> Receiver<C> {
    /// A receiver on a core of your own, which counts from the core's beginning. There must be one
    /// receiver to a core at a time.
    pub fn over(core: C, scope: Scope) -> Self {
        Self { core, scope, consumed_count: 0 }
    }

    #[inline]
    fn consume(&mut self) -> Option<u64> {
        // Acquire: pairs with the Release of every increment that this value contains.
        let count = self.core.notified_count.load(Ordering::Acquire);
        let new = count.wrapping_sub(self.consumed_count);
        self.consumed_count = count;
        (new != 0).then_some(new.into())
    }

    fn wait_until(&mut self, deadline: Deadline) -> Option<u64> {
        loop {
            if let Some(new) = self.consume() {
                return Some(new);
            }
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return None;
            }
            // Refused by the kernel if an increment has come between: nothing can be missed.
            futex::wait(&self.core.notified_count, self.consumed_count, left, self.scope);
        }
    }
}

impl<C: Deref<Target = Core> + Send> Wait for Receiver<C> {
    #[inline]
    fn wait(&mut self) -> u64 {
        loop {
            if let Some(new) = self.wait_until(None) {
                return new;
            }
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        self.wait_until(deadline(timeout))
    }

    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        self.consume()
    }
}
