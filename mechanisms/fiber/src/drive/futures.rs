//! Futures: an eventual and a fiber that any executor awaits, and a future that a fiber waits for.

use super::eventual::Eventual;
use super::spawn::JoinHandle;
use crate::FiberPanic;
use crate::raw::{TaskWait, Waiter};
use handover_base::sync::atomic::{Ordering, fence};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Future of [`Eventual::wait_async`].
#[must_use = "futures do nothing unless awaited or polled"]
pub struct EventualFuture<'a, T> {
    eventual: &'a Eventual<T>,
    wait: TaskWait<Waiter>,
}

impl<T> Eventual<T> {
    /// Returns a future that waits for the value and completes with a reference to it. The future
    /// runs under any executor. Tasks, fibers and threads may wait for the same eventual.
    ///
    /// ```
    /// use handover_fiber::{Eventual, block_on};
    /// static ANSWER: Eventual<u32> = Eventual::new();
    ///
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| ANSWER.set(42));
    ///     // On a thread or a fiber; under an executor: ANSWER.wait_async().await
    ///     assert_eq!(*block_on(ANSWER.wait_async()), 42);
    /// });
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future leaves the eventual and its other waiters as they are. If the value is
    /// being set, the drop yields the CPU until the setter has woken the waiters before this one.
    ///
    /// # Panics
    /// The future does not. If a waker panics, so does [`set`](Self::set): then the value is set,
    /// and fibers and threads are awake, but tasks that waited for longer may be woken alone.
    ///
    /// # Cost
    /// If the value is set: a load. Otherwise two allocations and an atomic exchange; a poll in
    /// vain costs a lock that only the setter takes as well. Dropping a future that waits walks the
    /// list of all waiters.
    pub fn wait_async(&self) -> EventualFuture<'_, T> {
        EventualFuture { eventual: self, wait: TaskWait::new() }
    }
}

impl<'a, T> Future for EventualFuture<'a, T> {
    type Output = &'a T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<&'a T> {
        let eventual = self.eventual;
        match eventual.cell().poll_wait(&mut self.wait, context.waker()) {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for EventualFuture<'_, T> {
    fn drop(&mut self) {
        self.eventual.cell().cancel_wait(&mut self.wait);
    }
}

impl<T: fmt::Debug> fmt::Debug for EventualFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventualFuture").field(self.eventual).finish()
    }
}

/// The result is moved out of the handle, which is therefore not pinned.
impl<T> Unpin for JoinHandle<T> {}

/// Waits until the fiber has finished, and returns the result of its closure, like
/// [`JoinHandle::join`].
///
/// ```
/// use handover_fiber::{Config, Runtime, block_on};
///
/// let runtime = Runtime::new(Config::default())?;
/// let answers = runtime.spawn(|| 42)?;
/// // On a thread or a fiber; under an executor: answers.await
/// assert_eq!(block_on(answers)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`FiberPanic`] holds the payload if the fiber panicked.
///
/// # Panics
/// If the future is polled after it has completed. If a waker panics, the panic hook reports it,
/// and [`Stats`](crate::Stats) counts it as a fiber's.
///
/// # Cancel safety
/// Dropping the future detaches the fiber; `&mut handle` is a future that leaves it attached.
///
/// # Cost
/// That of [`Eventual::wait_async`].
impl<T> Future for JoinHandle<T> {
    type Output = Result<T, FiberPanic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { handle, wait } = &mut *self;
        let gate =
            handle.as_ref().expect("the fiber's result was already returned").finished_gate();
        if !gate.is_set() && !wait.poll(gate, context.waker()) {
            return Poll::Pending;
        }
        self.cancel_wait();
        self.take_result().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Runs a future to its end on the calling fiber or thread, and returns its output.
///
/// ```
/// use handover_fiber::{Config, Eventual, Runtime, block_on};
/// static ANSWER: Eventual<u32> = Eventual::new();
///
/// let runtime = Runtime::new(Config::default())?; // one worker
/// let asks = runtime.spawn(|| block_on(async { *ANSWER.wait_async().await }))?;
/// runtime.spawn_detached(|| ANSWER.set(42).expect("it is set once"))?;
/// assert_eq!(asks.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// While the future is pending, blocks the fiber, and its worker runs others; on an ordinary
/// thread, blocks the thread. A future that needs a runtime of its own (sockets or timers of tokio)
/// needs that runtime's reactor on another thread.
///
/// # Panics
/// If the future does.
///
/// # Cost
/// An allocation. Each wake-up costs the set and the wait of an [`Eventual`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // Before the poll: a wake-up during the poll is kept for the wait.
        woken.0.rearm();
        // Partner: the fence in wake_by_ref(). The poll sees what a waker wrote before it found the
        // eventual still set.
        fence(Ordering::SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        woken.0.wait();
    }
}

/// Waker that sets an eventual, to wake the fiber or thread that runs a future.
#[derive(Default)]
struct Woken(Eventual);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Partner: the fence in block_on(). An eventual that is already set is only read, which
        // orders nothing: either this finds it rearmed, or the poll after the rearming sees what
        // the caller has written.
        fence(Ordering::SeqCst);
        // An error says that it is awake already.
        let _ = self.0.set(());
    }
}
