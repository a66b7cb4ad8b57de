//! A value that is not there yet.

use super::here::{deadline_ns, is_past};
use super::waiter::Waiter;
use super::worker::Worker;
use crate::AlreadySet;
use crate::raw::{self, GateCell};
use handover_probe::probe;
use std::fmt;
use std::time::Duration;

/// A value that somebody will set, and others wait for. Set once; then all who wait go on, and so does at
/// once whoever comes later.
///
/// Both sides may be fibers of any runtime, or ordinary threads. It needs no allocation: it may be a local
/// variable, a `static`, or in an `Arc`.
///
/// ```
/// use handover_fiber::{Config, Eventual, Runtime};
/// static ANSWER: Eventual<u32> = Eventual::new();
///
/// let runtime = Runtime::new(Config::default())?;
/// let asks = runtime.spawn(|| *ANSWER.wait())?;
/// ANSWER.set(42)?; // from an ordinary thread
/// assert_eq!(asks.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// To set and to wait: an atomic exchange each, two to set a value that has bytes. To wait for what is set: a
/// load.
pub struct Eventual<T = ()> {
    cell: GateCell<T>,
}

impl<T> Eventual<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self { cell: GateCell::new() }
    }

    /// Gives it its value, and wakes those who wait.
    ///
    /// # Errors
    /// [`AlreadySet`] gives the value back if it has one already.
    #[inline]
    pub fn set(&self, value: T) -> Result<(), AlreadySet<T>> {
        probe!("fiber.set", std::ptr::from_ref(self).addr());
        // From here on, whoever sees it set may end it: only the waiters are touched.
        if let Some(waiters) = self.cell.set(value).map_err(AlreadySet)? {
            waiters.for_each(Waiter::wake);
        }
        Ok(())
    }

    /// Waits until it has a value.
    ///
    /// # Blocking
    /// The fiber; its worker goes on with others, or if there are none, spins for a while if that has paid
    /// lately. On an ordinary thread, the thread.
    #[inline(always)] // see raw::park
    pub fn wait(&self) -> &T {
        match self.cell.get().or_else(|| self.looks_again()) {
            Some(value) => value,
            None => self.cell.wait(),
        }
    }

    /// Waits until it has a value, for so long at most; `None` if it has none then.
    ///
    /// ```
    /// use handover_fiber::Eventual;
    /// use std::time::Duration;
    /// let answer = Eventual::new();
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(1)), None);
    /// answer.set(42)?;
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(1)), Some(&42));
    /// # Ok::<(), handover_fiber::AlreadySet<u32>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`wait`](Self::wait), but no longer. Who waits in vain and who sets it agree on which of them was first: a
    /// value that is set is never lost.
    ///
    /// # Cost
    /// That of `wait`, and a timer started and cancelled. A time that runs out takes a look at all who wait.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.test().or_else(|| self.wait_until_ns(deadline_ns(timeout)))
    }

    /// Waits until it has a value, or it is `deadline_ns` on CLOCK_MONOTONIC.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until_ns(&self, deadline_ns: u64) -> Option<&T> {
        loop {
            if let Some(value) = self.cell.get() {
                return Some(value);
            }
            if is_past(deadline_ns) {
                return None;
            }
            let value = self.looks_again().or_else(|| self.cell.wait_until(deadline_ns));
            if value.is_some() {
                return value;
            }
        }
    }

    /// Looks for a while whether it has a value, if nobody else can run and that has paid lately.
    #[inline]
    fn looks_again(&self) -> Option<&T> {
        probe!("fiber.wait", std::ptr::from_ref(self).addr());
        if !raw::current().is_some_and(Worker::is_alone) {
            return None;
        }
        let mut value = None;
        spin_alone(|| {
            value = self.cell.get();
            value.is_some()
        });
        value
    }

    /// Its value, if it has one already.
    #[inline]
    pub fn test(&self) -> Option<&T> {
        self.cell.get()
    }

    /// Takes its value, and is as new.
    pub fn reset(&mut self) -> Option<T> {
        self.cell.reset()
    }

    /// Its value, if it has one.
    pub fn into_inner(mut self) -> Option<T> {
        self.reset()
    }
}

/// Looks again and again while nobody else can run.
#[cold]
#[inline(never)]
fn spin_alone(look: impl FnMut() -> bool) {
    if let Some(worker) = raw::current() {
        worker.spin(look);
    }
}

impl Eventual<()> {
    /// As new again if it is set; whether it was. There is no value that somebody might still be looking at,
    /// so it may be shared. Whoever waited when it was set goes on all the same.
    pub fn rearm(&self) -> bool {
        self.cell.close()
    }
}

impl<T> Default for Eventual<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Eventual<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Eventual").field(&self.test()).finish()
    }
}
