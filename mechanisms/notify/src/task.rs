//! Notification whose receiver learns that all senders were dropped. The state word is the same,
//! but the receiver is a thread that sleeps without spinning, or a task of any executor (this crate
//! depends on none): with the feature `async`, `receiver.notified()` is a future.
//!
//! ```
//! use handover_notify::{Notify, task};
//!
//! let (sender, mut receiver) = task::pair();
//! std::thread::spawn(move || sender.notify());
//! receiver.notified_blocking()?; // notified, by however many calls
//! assert_eq!(receiver.notified_blocking(), Err(task::ClosedError)); // the sender was dropped
//! # Ok::<(), task::ClosedError>(())
//! ```

use crate::{Notify, StateWord};
use core::fmt;
#[cfg(feature = "async")]
use core::pin::Pin;
use core::task::{Context, Poll};
use handover_base::sync::Arc;
use handover_base::sync::atomic::{AtomicUsize, Ordering};
use handover_base::wakers::{Registration, WakerQueue};
#[cfg(not(handover_loom))]
use {
    handover_base::wakers::block_until,
    std::time::{Duration, Instant},
};

/// Error of waiting for a notification that cannot come: all senders were dropped, and nothing is
/// pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no notification can come: all senders were dropped")]
pub struct ClosedError;

/// State shared by the senders and the receiver.
#[derive(Debug)]
struct TaskCore {
    word: StateWord,
    /// Waker of the receiver's task, registered before `word` says that the receiver sleeps.
    waker: WakerQueue,
    senders_count: AtomicUsize,
}

/// Creates a sender and a receiver that are connected within this process.
///
/// # Cost
/// One allocation.
#[must_use]
pub fn pair() -> (Sender, Receiver) {
    let core = Arc::new(TaskCore {
        word: StateWord::new(),
        waker: WakerQueue::new(),
        senders_count: AtomicUsize::new(1),
    });
    let receiver = Receiver { core: Arc::clone(&core), registration: Registration::default() };
    (Sender { core }, receiver)
}

/// Sending end of a notification; clone it for more senders. Dropping the last sender closes the
/// receiver.
///
/// # Cost of a notification
/// One exchange, and the transfer of a cache line if the receiver has accessed it since. If the
/// receiver sleeps, also a lock and the waker's own cost.
pub struct Sender {
    core: Arc<TaskCore>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        // The CPU is of use to a receiver that spins, which this one does not.
        if self.core.word.notify(None) {
            self.core.waker.wake_one();
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        // Relaxed: as in Arc's count, a handle is made from a live handle.
        self.core.senders_count.fetch_add(1, Ordering::Relaxed);
        Self { core: Arc::clone(&self.core) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // AcqRel: pairs with itself in the other senders, and with the Acquire in
        // Receiver::is_closed(): all notifications come before the count is zero.
        if self.core.senders_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.core.waker.wake_one();
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("task::Sender")
    }
}

/// Receiving end of a notification, for one thread or task at a time, as its methods take
/// `&mut self`.
pub struct Receiver {
    core: Arc<TaskCore>,
    registration: Registration,
}

impl Receiver {
    /// Waits like [`notified_blocking`](Self::notified_blocking), as a future.
    ///
    /// ```
    /// use handover_notify::{Notify, task};
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// # fn block_on<F: Future>(future: F) -> F::Output { // the senders have finished when this is called
    /// #     let mut context = Context::from_waker(Waker::noop());
    /// #     let Poll::Ready(output) = pin!(future).poll(&mut context) else { panic!("not ready") };
    /// #     output
    /// # }
    ///
    /// let (sender, mut receiver) = task::pair();
    /// std::thread::spawn(move || sender.notify()).join().unwrap();
    /// block_on(async {
    ///     receiver.notified().await?;
    ///     assert_eq!(receiver.notified().await, Err(task::ClosedError)); // the sender was dropped
    ///     Ok::<(), task::ClosedError>(())
    /// })?;
    /// # Ok::<(), task::ClosedError>(())
    /// ```
    ///
    /// # Errors
    /// [`ClosedError`] if all senders were dropped and nothing is pending.
    ///
    /// # Cancel safety
    /// Dropping the future loses no notification: it consumes one only when it completes.
    ///
    /// # Cost
    /// If a notification is pending: an exchange and the transfer of a cache line. Otherwise an
    /// exchange more, and a lock or two to store the waker.
    #[cfg(feature = "async")]
    pub fn notified(&mut self) -> Notified<'_> {
        Notified { receiver: self }
    }

    /// Polls for a notification, and consumes all that are pending: for futures and streams written
    /// by hand. The task of the last call that returned `Pending` is woken.
    ///
    /// # Errors
    /// [`ClosedError`] if all senders were dropped and nothing is pending.
    pub fn poll_notified(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ClosedError>> {
        let mut ended = self.take_result();
        if ended.is_none() {
            self.core.waker.register(&mut self.registration, context.waker());
            // After the registration: a sender that finds the receiver asleep wakes its task. If a
            // notification is pending instead, or the last sender was dropped meanwhile, the task
            // need not wait.
            let _sleeps = self.core.word.declare_sleep();
            ended = self.take_result();
        }
        let Some(result) = ended else { return Poll::Pending };
        self.core.waker.unregister(&mut self.registration);
        Poll::Ready(result)
    }

    /// Waits until a notification is pending, and consumes all that are pending.
    ///
    /// Once [`Sender::notify`](Notify::notify) has returned, a wait that is under way or begins
    /// later completes, and sees the earlier writes of that sender.
    ///
    /// # Errors
    /// [`ClosedError`] if all senders were dropped and nothing is pending.
    ///
    /// # Blocking
    /// Sleeps without spinning until a sender notifies or the last one is dropped.
    ///
    /// # Cost
    /// If a notification is pending: an exchange and the transfer of a cache line. Otherwise also
    /// an exchange, a lock or two to store the waker, an allocation, and a wake-up by the kernel.
    /// [`adaptive`](crate::adaptive) costs less, and does not learn that its senders were dropped.
    #[cfg(not(handover_loom))]
    pub fn notified_blocking(&mut self) -> Result<(), ClosedError> {
        self.notified_until(None).expect("a wait without a deadline ended without a result")
    }

    /// Waits like [`notified_blocking`](Self::notified_blocking), for at most `timeout`; returns
    /// `false` if no notification came.
    ///
    /// # Errors
    /// As [`notified_blocking`](Self::notified_blocking).
    ///
    /// # Blocking
    /// Up to `timeout`, and the kernel's timer slack (50 µs unless set otherwise).
    #[cfg(not(handover_loom))]
    pub fn notified_timeout(&mut self, timeout: Duration) -> Result<bool, ClosedError> {
        // Without a deadline if it exceeds the clock's range.
        let ended = self.notified_until(Instant::now().checked_add(timeout));
        ended.map_or(Ok(false), |result| result.map(|()| true))
    }

    #[cfg(not(handover_loom))]
    fn notified_until(&mut self, deadline: Option<Instant>) -> Option<Result<(), ClosedError>> {
        if let Some(result) = self.take_result() {
            return Some(result);
        }
        let result = block_until(deadline, |context| self.poll_notified(context));
        self.core.waker.unregister(&mut self.registration);
        result
    }

    /// Returns the result of a wait that is over; consumes a pending notification. Returns `None`
    /// if the wait must go on.
    fn take_result(&self) -> Option<Result<(), ClosedError>> {
        // Before the word, as the last notification may come before the drop.
        let is_closed = self.is_closed();
        let is_pending = self.core.word.try_consume().is_some();
        is_pending.then_some(Ok(())).or(is_closed.then_some(Err(ClosedError)))
    }

    /// Consumes all pending notifications without waiting; returns `true` if there were any.
    ///
    /// # Blocking
    /// Never.
    #[inline]
    pub fn try_wait(&mut self) -> bool {
        self.core.word.try_consume().is_some()
    }

    /// Returns `true` if all senders were dropped; a notification may be pending. Once true, it
    /// stays true.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the AcqRel in Sender::drop(): all notifications are visible.
        self.core.senders_count.load(Ordering::Acquire) == 0
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task::Receiver(closed: {})", self.is_closed())
    }
}

/// Future returned by [`Receiver::notified`], which completes once a notification is pending.
#[cfg(feature = "async")]
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited or polled"]
pub struct Notified<'a> {
    receiver: &'a mut Receiver,
}

#[cfg(feature = "async")]
impl Future for Notified<'_> {
    type Output = Result<(), ClosedError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.receiver.poll_notified(context)
    }
}

#[cfg(feature = "async")]
impl Drop for Notified<'_> {
    /// Releases the task's waker, which a cancelled wait does not need any more.
    fn drop(&mut self) {
        self.receiver.core.waker.unregister(&mut self.receiver.registration);
    }
}
