//! Rings whose ends wait for each other: they block, for a limited time if asked to, or, with the
//! feature `async`, are futures for any executor.
//!
//! ```
//! use handover_ring::channel;
//!
//! let (mut sender, mut receiver) = channel::spsc(2)?;
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         for value in 0..100 {
//!             sender.send_blocking(value).unwrap(); // waits while the ring is full
//!         }
//!     }); // the sender is dropped, which closes the channel
//!     for expected in 0..100 {
//!         assert_eq!(receiver.receive_blocking(), Some(expected));
//!     }
//!     assert_eq!(receiver.receive_blocking(), None);
//! });
//! # Ok::<(), handover_ring::CapacityError>(())
//! ```
//!
//! # Cost
//! Each value costs as much as in the ring below, and each side a fence and a load more, by which
//! it learns that the other side does not wait. The rings themselves are unchanged: use
//! [`spsc`](crate::spsc), [`mpsc`](crate::mpsc) and [`mpmc`](crate::mpmc) where both sides poll.

use crate::queue::{Mpmc, Mpsc, Pop, Push, Queue, Spsc};
use crate::{CapacityError, ClosedError, PushError};
use core::fmt;
use core::task::{Context, Poll};
use handover_base::sync::Arc;
use handover_base::wakers::{Registration, WakerQueue};

#[cfg(not(handover_loom))]
mod blocking;
#[cfg(feature = "async")]
mod futures;

#[cfg(feature = "async")]
pub use futures::{Receiving, Sending};

/// Tasks and threads that wait for a value or for a vacant slot.
#[derive(Debug, Default)]
struct Waiting {
    /// Receivers, which wait for a value.
    receivers: WakerQueue,
    /// Senders, which wait for a vacant slot.
    senders: WakerQueue,
}

impl Waiting {
    /// Wakes all waiting tasks and threads; called after the ring was closed.
    fn wake_all(&self) {
        self.receivers.wake_all();
        self.senders.wake_all();
    }
}

/// Calls `attempt` on an end of a channel, and registers the task's waker if the result is pending.
/// `wait` returns the queue of the tasks that wait like this end, and the task's registration. If
/// the task was woken, succeeds and the end `has_more`, wakes the next task.
///
/// The last step is for the ring with several producers and consumers, which fill and vacate slots
/// in any order: a task that is woken for the second slot finds the first one not ready, and
/// registers again. The task that is woken for the first slot then finds both.
fn poll_or_register<E, R>(
    end: &mut E,
    context: &mut Context<'_>,
    wait: impl Fn(&mut E) -> (&WakerQueue, &mut Registration),
    mut attempt: impl FnMut(&mut E) -> Poll<R>,
    has_more: impl Fn(&E) -> bool,
) -> Poll<R> {
    // Not registered while it takes a slot or a value: the thread that provides the next one then
    // wakes another task.
    let (waiting, registration) = wait(end);
    let was_woken = !waiting.unregister(registration);
    let mut result = attempt(end);
    if result.is_pending() {
        let (waiting, registration) = wait(end);
        waiting.register(registration, context.waker());
        // After the registration: a thread that provides a slot or a value from now on wakes this
        // task.
        result = attempt(end);
        if result.is_ready() {
            stop_waiting(wait(end));
        }
    } else if was_woken && has_more(end) {
        wait(end).0.wake_one();
    }
    result
}

/// Ends a task's wait; wakes the next task if this one was woken already. The task needs no slot or
/// value any more.
fn stop_waiting((waiting, registration): (&WakerQueue, &mut Registration)) {
    if !waiting.unregister(registration) {
        waiting.wake_one();
    }
}

/// Creates a channel of exactly `slots_count` slots with one sender and one receiver.
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
#[allow(clippy::type_complexity)]
pub fn spsc<T: Send>(
    slots_count: u32,
) -> Result<(Sender<T, Spsc>, Receiver<T, Spsc>), CapacityError> {
    connect(slots_count)
}

/// Creates a channel of exactly `slots_count` slots with cloneable senders and one receiver.
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
#[allow(clippy::type_complexity)]
pub fn mpsc<T: Send>(
    slots_count: u32,
) -> Result<(Sender<T, Mpsc>, Receiver<T, Mpsc>), CapacityError> {
    connect(slots_count)
}

/// Creates a channel of exactly `slots_count` slots with cloneable senders and receivers. Each
/// value goes to one of the receivers.
///
/// ```
/// let (mut sender, mut receiver) = handover_ring::channel::mpmc(4)?;
/// let sum: u64 = std::thread::scope(|scope| {
///     let mut other = receiver.clone();
///     let worker = scope.spawn(move || std::iter::from_fn(|| other.receive_blocking()).sum::<u64>());
///     scope.spawn(move || (1..=100).for_each(|job| sender.send_blocking(job).unwrap()));
///     let sum: u64 = std::iter::from_fn(|| receiver.receive_blocking()).sum();
///     sum + worker.join().unwrap()
/// });
/// assert_eq!(sum, 5050);
/// # Ok::<(), handover_ring::CapacityError>(())
/// ```
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
#[allow(clippy::type_complexity)]
pub fn mpmc<T: Send>(
    slots_count: u32,
) -> Result<(Sender<T, Mpmc>, Receiver<T, Mpmc>), CapacityError> {
    connect(slots_count)
}

/// Creates a channel over a ring of kind `Q`.
#[allow(clippy::type_complexity)]
fn connect<T: Send, Q: Queue>(
    slots_count: u32,
) -> Result<(Sender<T, Q>, Receiver<T, Q>), CapacityError> {
    let (producer, consumer) = Q::ring(slots_count)?;
    let waiting = Arc::new(Waiting::default());
    let sender = Sender { producer, side: SenderSide(Arc::clone(&waiting)) };
    Ok((sender, Receiver { consumer, side: ReceiverSide::new(waiting) }))
}

/// Sending end of a channel. Dropping it, or the last of its clones, closes the channel; values
/// that were sent can still be received.
pub struct Sender<T: Send, Q: Queue> {
    producer: Q::Producer<T>,
    /// Wakes the receivers when dropped; declared after `producer`, and so dropped after it.
    side: SenderSide,
}

/// Part of a sender that wakes the receivers when dropped, after the producer has closed the ring.
struct SenderSide(Arc<Waiting>);

impl Drop for SenderSide {
    fn drop(&mut self) {
        self.0.receivers.wake_all();
    }
}

impl<T: Send, Q: Queue> Sender<T, Q> {
    /// Sends a value without waiting; the error contains it if the ring is full or closed.
    ///
    /// # Errors
    /// [`PushError::Full`] if every slot was taken at some moment during the call,
    /// [`PushError::Closed`] for ever once the channel is closed. Both return the value.
    ///
    /// # Blocking
    /// Never, unless a receiver waits: then for the lock of its waker, which is held for some
    /// instructions.
    ///
    /// # Cost
    /// A push, a fence, and a load of a line that is written when a receiver begins or ends a wait.
    #[inline]
    pub fn try_send(&mut self, value: T) -> Result<(), PushError<T>> {
        let pushed = self.producer.push(value);
        // Also after a push that was refused for good: a receiver that has closed the ring waits
        // for it.
        if !matches!(pushed, Err(PushError::Full(_)))
            && self.side.0.receivers.wake_one()
            && self.is_closed()
        {
            // Closed during the push, which may be the last: receivers wait for its end, and get no
            // value.
            self.side.0.receivers.wake_all();
        }
        pushed
    }

    /// Tries to send `value`, and registers the task's waker if the ring is full. Takes `value`
    /// once the result is ready.
    fn poll_send(
        &mut self,
        value: &mut Option<T>,
        registration: &mut Registration,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ClosedError<T>>> {
        poll_or_register(
            &mut (self, value, registration),
            context,
            |(sender, _, registration)| (&sender.side.0.senders, &mut **registration),
            |(sender, value, _)| sender.try_send_from(value),
            |(sender, ..)| !sender.producer.is_full(),
        )
    }

    /// Sends the value that the option holds, if the ring has a vacant slot. Otherwise leaves it in
    /// the option, and returns `Pending`.
    fn try_send_from(&mut self, value: &mut Option<T>) -> Poll<Result<(), ClosedError<T>>> {
        let taken = value.take().expect("the future was polled after it had completed");
        match self.try_send(taken) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(PushError::Closed(refused)) => Poll::Ready(Err(ClosedError(refused))),
            Err(PushError::Full(refused)) => {
                *value = Some(refused);
                Poll::Pending
            }
        }
    }

    /// Returns the number of values in the channel when read. The other side may have changed it
    /// since.
    pub fn len(&self) -> usize {
        self.producer.len()
    }

    /// Returns `true` if the channel was empty when read.
    pub fn is_empty(&self) -> bool {
        self.producer.is_empty()
    }

    /// Returns `true` if the channel is closed. Once true, it stays true.
    pub fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }

    /// Closes the channel, so that every further value, of any sender, is refused. Values that were
    /// sent can still be received.
    pub fn close(&mut self) {
        self.producer.close();
        self.side.0.wake_all();
    }
}

impl<T: Send, Q: Queue> Clone for Sender<T, Q>
where
    Q::Producer<T>: Clone,
{
    fn clone(&self) -> Self {
        Self { producer: self.producer.clone(), side: SenderSide(Arc::clone(&self.side.0)) }
    }
}

impl<T: Send, Q: Queue> fmt::Debug for Sender<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values_count, is_closed) = (self.len(), self.is_closed());
        write!(f, "channel::Sender({values_count} values, is_closed: {is_closed})")
    }
}

/// Receiving end of a channel. Dropping it, or the last of its clones, closes the channel, and
/// drops the values in it. In `mpsc` and `mpmc`, values that are being sent at that moment, and
/// those behind them, are dropped with the last sender.
pub struct Receiver<T: Send, Q: Queue> {
    consumer: Q::Consumer<T>,
    /// Wakes the senders when dropped; declared after `consumer`, and so dropped after it.
    side: ReceiverSide,
}

/// Part of a receiver that wakes the senders when dropped, after the consumer has closed the ring.
struct ReceiverSide {
    waiting: Arc<Waiting>,
    registration: Registration,
}

impl ReceiverSide {
    fn new(waiting: Arc<Waiting>) -> Self {
        Self { waiting, registration: Registration::default() }
    }

    /// Ends the receiver's wait; wakes the next receiver if this one was woken already.
    fn stop_waiting(&mut self) {
        stop_waiting((&self.waiting.receivers, &mut self.registration));
    }
}

impl Drop for ReceiverSide {
    fn drop(&mut self) {
        self.stop_waiting();
        self.waiting.senders.wake_all();
    }
}

impl<T: Send, Q: Queue> Receiver<T, Q> {
    /// Receives the oldest value without waiting; `None` if no value is ready.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come.
    ///
    /// # Blocking
    /// Never, unless a sender waits: then for the lock of the wakers, which is held for some
    /// instructions.
    ///
    /// # Cost
    /// A pop; if it returned a value, a fence, and a load of a line that is written when a sender
    /// begins or ends a wait.
    #[inline]
    pub fn try_receive(&mut self) -> Option<T> {
        let value = self.consumer.pop()?;
        self.side.waiting.senders.wake_one();
        Some(value)
    }

    /// Polls for a value; returns `None` if the channel is closed and empty. For hand-written
    /// futures and streams. The task of the last call that returned `Pending` is woken.
    ///
    /// The wait lasts until a call returns `Ready`, a blocking call returns, or the receiver is
    /// dropped. In a channel with several receivers, a task that stops polling before that must
    /// drop the receiver: a value may wake this task, and then wakes no other. The future `receive`
    /// (feature `async`) ends its wait when it is dropped.
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        poll_or_register(
            self,
            context,
            |Self { side, .. }| (&side.waiting.receivers, &mut side.registration),
            Self::receive_or_finish,
            |receiver| !receiver.is_empty(),
        )
    }

    /// Receives a value if one is ready. Returns `Ready(None)` if the channel is finished, and
    /// `Pending` if a value may still come.
    fn receive_or_finish(&mut self) -> Poll<Option<T>> {
        match self.try_receive() {
            None if !self.consumer.is_finished() => Poll::Pending,
            received => Poll::Ready(received),
        }
    }

    /// Returns the number of values in the channel, of which some may not be ready yet.
    pub fn len(&self) -> usize {
        self.consumer.len()
    }

    /// Returns `true` if no value was ready when read; one may be ready by now.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Returns `true` if the channel is closed; there may be values to receive. Once true, it stays
    /// true.
    pub fn is_closed(&self) -> bool {
        self.consumer.is_closed()
    }

    /// Returns `true` if the channel is empty and no value can be sent any more. Once true, it
    /// stays true.
    pub fn is_finished(&self) -> bool {
        self.consumer.is_finished()
    }

    /// Closes the channel, so that every later value is refused. Values that were sent, or are
    /// being sent, can still be received; with [`spsc`], `None` is received once the sender has had
    /// a value refused or is dropped.
    pub fn close(&mut self) {
        self.consumer.close();
        self.side.waiting.wake_all();
    }
}

impl<T: Send, Q: Queue> Clone for Receiver<T, Q>
where
    Q::Consumer<T>: Clone,
{
    fn clone(&self) -> Self {
        let side = ReceiverSide::new(Arc::clone(&self.side.waiting));
        Self { consumer: self.consumer.clone(), side }
    }
}

impl<T: Send, Q: Queue> fmt::Debug for Receiver<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values_count, is_closed) = (self.len(), self.is_closed());
        write!(f, "channel::Receiver({values_count} values, is_closed: {is_closed})")
    }
}
