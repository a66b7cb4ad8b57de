//! A counter in memory and a futex that is woken at each notification, even if no thread sleeps. It
//! is the simplest mechanism, and the floor for mechanisms that park.

use super::waiting::{Deadline, deadline, time_left};
use crate::{Mechanism, Notify, PairError, Wait};
use core::ops::Deref;
use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The word shared by the two sides: the number of notifications, modulo 2^32.
///
/// All zeroes are a fresh core, so that it can lie in memory that several processes map.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Core {
    notified_count: AtomicU32,
}

impl Core {
    /// Makes a core with nothing pending.
    #[must_use]
    pub const fn new() -> Self {
        Self { notified_count: AtomicU32::new(0) }
    }
}

/// The mechanism as a type, for generic code.
#[derive(Debug, Clone, Copy)]
pub enum Futex {}

impl Mechanism for Futex {
    const NAME: &'static str = "futex";
    const DESCRIPTION: &'static str = "a counter and a futex, woken at each notification";
    const COUNTS_NOTIFICATIONS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let core = Arc::new(Core::new());
        let sender = Sender::over(Arc::clone(&core), Scope::Private);
        Ok((sender, Receiver::over(core, Scope::Private)))
    }
}

/// The sending side.
#[derive(Debug, Clone)]
pub struct Sender<C = Arc<Core>> {
    core: C,
    scope: Scope,
}

impl<C: Deref<Target = Core>> Sender<C> {
    /// Makes a sender on a core of the caller. `scope` must be the receiver's.
    pub fn over(core: C, scope: Scope) -> Self {
        Self { core, scope }
    }
}

impl<C: Deref<Target = Core> + Send + Sync> Notify for Sender<C> {
    #[inline]
    fn notify(&self) {
        let count = &self.core.notified_count;
        // Release: publishes this sender's writes to the Acquire in Receiver::consume(); later
        // increments continue its release sequence.
        count.fetch_add(1, Ordering::Release);
        futex::wake(count, 1, self.scope);
    }
}

/// The receiving side.
#[derive(Debug)]
pub struct Receiver<C = Arc<Core>> {
    core: C,
    scope: Scope,
    consumed_count: u32,
}

impl<C: Deref<Target = Core>> Receiver<C> {
    /// Makes a receiver on a core of the caller. It counts all notifications since the core was
    /// made. A core must have at most one receiver at a time.
    pub fn over(core: C, scope: Scope) -> Self {
        Self { core, scope, consumed_count: 0 }
    }

    #[inline]
    fn consume(&mut self) -> Option<u64> {
        // Acquire: pairs with the Release of every increment that this value includes.
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
            // The kernel refuses to sleep if an increment came in between, so that no notification
            // is missed.
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
