//! A counter in memory and a futex that is woken at each notification, even if no thread sleeps. It
//! is the simplest mechanism, and the floor for mechanisms that park.

use handover_base::futex::{self, Scope};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_notify::{Mechanism, Notify, PairError, Wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counter of notifications, modulo 2^32.
type Core = CachePadded<AtomicU32>;

/// Notification by a futex, as a type for generic code.
#[derive(Debug, Clone, Copy)]
pub enum Futex {}

impl Mechanism for Futex {
    const NAME: &'static str = "futex";
    const DESCRIPTION: &'static str = "a counter and a futex, woken at each notification";
    const COUNTS_NOTIFICATIONS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let core = Arc::new(Core::default());
        Ok((Sender { core: Arc::clone(&core) }, Receiver { core, consumed_count: 0 }))
    }
}

/// Sender of notifications through a futex.
#[derive(Debug, Clone)]
pub struct Sender {
    core: Arc<Core>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        // Release: publishes this sender's writes to the Acquire in Receiver::consume(); later
        // increments continue its release sequence.
        self.core.fetch_add(1, Ordering::Release);
        futex::wake(&self.core, 1, Scope::Private);
    }
}

/// Receiver of notifications through a futex.
#[derive(Debug)]
pub struct Receiver {
    core: Arc<Core>,
    /// Number of notifications that earlier waits have returned, modulo 2^32.
    consumed_count: u32,
}

impl Receiver {
    /// Returns the number of new notifications; `None` if there are none.
    #[inline]
    fn consume(&mut self) -> Option<u64> {
        // Acquire: pairs with the Release of every increment that this value includes.
        let count = self.core.load(Ordering::Acquire);
        let new = count.wrapping_sub(self.consumed_count);
        self.consumed_count = count;
        (new != 0).then_some(new.into())
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Option<u64> {
        loop {
            if let Some(new) = self.consume() {
                return Some(new);
            }
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            // The kernel refuses to sleep if an increment came in between, so that no notification
            // is missed.
            futex::wait(&self.core, self.consumed_count, left, Scope::Private);
        }
    }
}

impl Wait for Receiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        loop {
            if let Some(new) = self.wait_until(None) {
                return new;
            }
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    #[inline]
    fn try_wait(&mut self) -> Option<u64> {
        self.consume()
    }
}
