//! Value that is set later, and waited for.

use super::this_fiber::{deadline_ns_after, deadline_ns_at, has_passed};
use super::wait::wake_all;
use super::worker::Worker;
use crate::SetError;
use crate::raw::{GateCell, this_worker};
use handover_probe::probe;
use std::fmt;
use std::time::{Duration, Instant};

/// Value that one participant sets once and others wait for. Setting the value wakes all waiters;
/// later waits return at once.
///
/// Setters and waiters may be fibers of any runtime, or ordinary threads. An eventual allocates
/// nothing: it may be a local variable, a `static`, or in an `Arc`.
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
/// Setting and waiting: an atomic exchange each, two for setting a value with a size. Waiting for
/// an eventual that is set: a load.
pub struct Eventual<T = ()> {
    cell: GateCell<T>,
}

impl<T> Eventual<T> {
    /// Creates an eventual without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self { cell: GateCell::new() }
    }

    /// Sets the value, and wakes all waiters.
    ///
    /// # Errors
    /// [`SetError`] returns the value if the eventual is already set.
    #[inline]
    pub fn set(&self, value: T) -> Result<(), SetError<T>> {
        probe!("fiber.set", std::ptr::from_ref(self).addr());
        // Once the eventual is set, a thread that sees it may drop it: from here on only the
        // waiters are accessed.
        if let Some(waiters) = self.cell.set(value).map_err(SetError)? {
            wake_all(waiters);
        }
        Ok(())
    }

    /// Waits until the value is set, and returns a reference to it.
    ///
    /// # Blocking
    /// Blocks the fiber; its worker runs others, or if there are none, spins for a while if
    /// spinning has paid recently. On an ordinary thread, blocks the thread.
    #[inline(always)] // see park_running()
    pub fn wait(&self) -> &T {
        if let Some(value) = self.cell.get() {
            return value;
        }
        if let Some(value) = self.spin_for_value(None) {
            return value;
        }
        self.cell.wait()
    }

    /// Waits until the value is set, for at most `timeout`; returns the value. Returns `None` on a
    /// time-out.
    ///
    /// ```
    /// use handover_fiber::Eventual;
    /// use std::time::Duration;
    /// let answer = Eventual::new();
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(1)), None);
    /// answer.set(42)?;
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(1)), Some(&42));
    /// # Ok::<(), handover_fiber::SetError<u32>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`wait`](Self::wait), until the time-out. Waiter and setter agree on which of them was
    /// first: a value that is set is never lost.
    ///
    /// # Cost
    /// The cost of `wait`, plus a timer started and cancelled. A time-out walks the list of all
    /// waiters.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.test().or_else(|| self.wait_until_ns(deadline_ns_after(timeout)))
    }

    /// Waits until the value is set or `deadline` passes; returns the value. Returns `None` if the
    /// deadline passes first.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until(&self, deadline: Instant) -> Option<&T> {
        self.test().or_else(|| self.wait_until_ns(deadline_ns_at(deadline)))
    }

    /// Waits until the value is set or `deadline_ns` on CLOCK_MONOTONIC passes; returns the value.
    /// Returns `None` if the deadline passes first.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until_ns(&self, deadline_ns: u64) -> Option<&T> {
        loop {
            if let Some(value) = self.cell.get() {
                return Some(value);
            }
            if has_passed(deadline_ns) {
                return None;
            }
            let value = self
                .spin_for_value(Some(deadline_ns))
                .or_else(|| self.cell.wait_until(deadline_ns));
            if value.is_some() {
                return value;
            }
        }
    }

    /// Spins for a while until the value is set or `deadline_ns` passes; returns the value if it is
    /// set. Does not spin if another fiber is ready, or recent spins failed.
    #[inline]
    fn spin_for_value(&self, deadline_ns: Option<u64>) -> Option<&T> {
        probe!("fiber.wait", std::ptr::from_ref(self).addr());
        if !this_worker().is_some_and(Worker::has_no_ready_fiber) {
            return None;
        }
        let mut value = None;
        spin_while_no_fiber_is_ready(deadline_ns, || {
            value = self.cell.get();
            value.is_some()
        });
        value
    }

    /// Returns the value without waiting; `None` if it is not set.
    #[inline]
    pub fn test(&self) -> Option<&T> {
        self.cell.get()
    }

    #[cfg(feature = "async")]
    pub(super) fn cell(&self) -> &GateCell<T> {
        &self.cell
    }

    /// Removes and returns the value; the eventual is then unset. `None` if no value was set.
    pub fn reset(&mut self) -> Option<T> {
        self.cell.reset()
    }

    /// Consumes the eventual and returns the value; `None` if it was not set.
    pub fn into_inner(mut self) -> Option<T> {
        self.reset()
    }
}

/// Calls `poll` until it returns `true`, another fiber is ready, `deadline_ns` passes, or the spin
/// limit is reached.
#[cold]
#[inline(never)]
fn spin_while_no_fiber_is_ready(deadline_ns: Option<u64>, poll: impl FnMut() -> bool) {
    if let Some(worker) = this_worker() {
        worker.spin(deadline_ns, poll);
    }
}

impl Eventual<()> {
    /// Makes the eventual unset again; returns `true` if it was set. As there is no value to which
    /// a participant may hold a reference, `&self` is enough. Participants that were waiting when
    /// it was set still continue.
    ///
    /// A `set` that fails because the eventual is set orders nothing: what its caller wrote before
    /// may be invisible after a `rearm` that follows. Where that matters, use a fence (`SeqCst`)
    /// before `set`, and another one after `rearm`.
    ///
    /// # Blocking
    /// Yields the CPU while another waiter, whose time is up, takes itself out of the list.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Runtime};

    #[test]
    fn spin_ends_at_the_deadline_of_the_wait() {
        let runtime = Runtime::new(Config::default()).expect("the defaults are valid");
        let spins = || spin_while_no_fiber_is_ready(Some(0), || panic!("polled"));
        runtime.spawn(spins).expect("stacks are free").join().expect("the fiber polled");
    }
}
