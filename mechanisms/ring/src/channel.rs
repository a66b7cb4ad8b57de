//! Rings whose ends wait for each other: they block, for a limited time if asked to, or, with the feature `async`, are
//! futures for any executor.
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
//! Each value costs as much as in the ring below, and each side a fence and a load more, by which it learns that the
//! other side does not wait. The rings themselves are unchanged: use [`spsc`](crate::spsc) and [`mpsc`](crate::mpsc)
//! where both sides poll.

use crate::queue::{Mpsc, Pop, Push, Queue, Spsc};
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
    /// The receiver, which waits for a value.
    receiver: WakerQueue,
    /// Senders, which wait for a vacant slot.
    senders: WakerQueue,
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

/// Creates a channel of exactly `slots_count` slots with one receiver and a sender that can be cloned.
///
/// # Errors
/// [`CapacityError`]: zero slots, too many, or no memory for them.
#[allow(clippy::type_complexity)]
pub fn mpsc<T: Send>(
    slots_count: u32,
) -> Result<(Sender<T, Mpsc>, Receiver<T, Mpsc>), CapacityError> {
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
    let side = ReceiverSide(waiting);
    Ok((sender, Receiver { consumer, registration: Registration::default(), side }))
}

/// Sending end of a channel. Dropping it, or the last of its clones, closes the channel; values that were sent can
/// still be received.
pub struct Sender<T: Send, Q: Queue> {
    producer: Q::Producer<T>,
    /// Wakes the receiver when dropped; declared after `producer`, and so dropped after it.
    side: SenderSide,
}

/// Part of a sender whose destructor wakes the receiver, after the producer's destructor has closed the ring.
struct SenderSide(Arc<Waiting>);

impl Drop for SenderSide {
    fn drop(&mut self) {
        self.0.receiver.wake_all();
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
    /// Never, unless the receiver waits: then for the lock of its waker, which is held for some instructions.
    ///
    /// # Cost
    /// A push, a fence, and a load of a line that is written when the receiver begins or ends a wait.
    #[inline]
    pub fn try_send(&mut self, value: T) -> Result<(), PushError<T>> {
        let pushed = self.producer.push(value);
        // Also after a push that was refused for good: a receiver that has closed the ring waits for it.
        if !matches!(pushed, Err(PushError::Full(_))) {
            self.side.0.receiver.wake_one();
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
        // Not registered while it takes a slot: a receiver that vacates the next one then wakes another sender.
        self.side.0.senders.unregister(registration);
        let mut result = self.try_send_from(value);
        if result.is_pending() {
            self.side.0.senders.register(registration, context.waker());
            // After the registration: a receiver that vacates a slot from now on wakes this sender.
            result = self.try_send_from(value);
            if result.is_ready() {
                self.stop_waiting(registration);
            }
        }
        result
    }

    /// Ends the wait of a sender that needs no slot any more. If the sender was woken, wakes the
    /// next one instead.
    fn stop_waiting(&self, registration: &mut Registration) {
        let senders = &self.side.0.senders;
        if !senders.unregister(registration) {
            senders.wake_one();
        }
    }

    /// Tries to send the value in `value`. Puts it back, and returns `Pending`, if the ring is
    /// full.
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

    /// Closes the channel, so that every further value, of any sender, is refused. Values that were sent can still be
    /// received.
    pub fn close(&mut self) {
        self.producer.close();
        self.side.0.receiver.wake_all();
        self.side.0.senders.wake_all();
    }
}

impl<T: Send> Clone for Sender<T, Mpsc> {
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

/// Receiving end of a channel. Dropping it closes the channel, and drops the values in it.
pub struct Receiver<T: Send, Q: Queue> {
    consumer: Q::Consumer<T>,
    registration: Registration,
    /// Wakes the senders when dropped; declared after `consumer`, and so dropped after it.
    side: ReceiverSide,
}

/// Part of a receiver whose destructor wakes the senders, after the consumer's destructor has closed the ring.
struct ReceiverSide(Arc<Waiting>);

impl Drop for ReceiverSide {
    fn drop(&mut self) {
        self.0.senders.wake_all();
    }
}

impl<T: Send, Q: Queue> Receiver<T, Q> {
    /// Receives the oldest value without waiting; `None` if no value is ready.
    ///
    /// `None` may be stale at once; [`is_finished`](Self::is_finished) shows whether more can come.
    ///
    /// # Blocking
    /// Never, unless a sender waits: then for the lock of the wakers, which is held for some instructions.
    ///
    /// # Cost
    /// A pop; if it returned a value, a fence, and a load of a line that is written when a sender begins or ends a
    /// wait.
    #[inline]
    pub fn try_receive(&mut self) -> Option<T> {
        let value = self.consumer.pop()?;
        self.side.0.senders.wake_one();
        Some(value)
    }

    /// Polls for a value; returns `None` if the channel is closed and empty. For hand-written
    /// futures and streams. The task of the last call that returned `Pending` is woken.
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut result = self.receive_or_finish();
        if result.is_pending() {
            self.side.0.receiver.register(&mut self.registration, context.waker());
            // After the registration: a sender that pushes or closes from now on wakes this task.
            result = self.receive_or_finish();
        }
        if result.is_ready() {
            self.stop_waiting();
        }
        result
    }

    /// Receives a value. Returns `Ready(None)` if the channel is finished, and `Pending` if a value
    /// may still come.
    fn receive_or_finish(&mut self) -> Poll<Option<T>> {
        match self.try_receive() {
            None if !self.consumer.is_finished() => Poll::Pending,
            received => Poll::Ready(received),
        }
    }

    /// Releases the waker of a wait that has ended.
    fn stop_waiting(&mut self) {
        self.side.0.receiver.unregister(&mut self.registration);
    }

    /// Returns the number of values in the channel, of which some may not be ready yet.
    pub fn len(&self) -> usize {
        self.consumer.len()
    }

    /// Returns `true` if no value was ready when read; one may be ready by now.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Returns `true` if the channel is closed; there may be values to receive. Once true, it stays true.
    pub fn is_closed(&self) -> bool {
        self.consumer.is_closed()
    }

    /// Returns `true` if the channel is empty and no value can be sent any more. Once true, it stays true.
    pub fn is_finished(&self) -> bool {
        self.consumer.is_finished()
    }

    /// Closes the channel, so that every later value is refused. Values that were sent, or are being sent, can still be
    /// received; with one sender, `None` is received once it has had a value refused or is dropped.
    pub fn close(&mut self) {
        self.consumer.close();
        self.side.0.senders.wake_all();
    }
}

impl<T: Send, Q: Queue> fmt::Debug for Receiver<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values_count, is_closed) = (self.len(), self.is_closed());
        write!(f, "channel::Receiver({values_count} values, is_closed: {is_closed})")
    }
}
