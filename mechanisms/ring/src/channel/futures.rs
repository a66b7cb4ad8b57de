//! Sending and receiving as futures.

use super::{Receiver, Sender, stop_waiting};
use crate::ClosedError;
use crate::queue::Queue;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use handover_base::wakers::Registration;

impl<T: Send, Q: Queue> Sender<T, Q> {
    /// Sends a value; waits while the ring is full.
    ///
    /// Senders that wait are woken in the order in which they began to wait, one for each value
    /// received. A sender that does not wait may take the slot first.
    ///
    /// # Errors
    /// [`ClosedError`] with the value if the channel is closed.
    ///
    /// # Panics
    /// If the future is polled after it has completed.
    ///
    /// # Cancel safety
    /// If the future is dropped before it has completed, the value was not sent and is dropped; a
    /// slot for which it was woken goes to the next sender. To keep the value, use
    /// [`try_send`](Self::try_send).
    ///
    /// # Cost
    /// If a slot is vacant, like [`try_send`](Self::try_send). Otherwise a lock or two to store the
    /// waker, and another to release it.
    pub fn send(&mut self, value: T) -> Sending<'_, T, Q> {
        Sending { sender: self, value: Some(value), registration: Registration::default() }
    }
}

/// Future of [`Sender::send`].
#[must_use = "futures do nothing unless awaited or polled"]
pub struct Sending<'a, T: Send, Q: Queue> {
    sender: &'a mut Sender<T, Q>,
    /// Value to send; `None` once the future has completed.
    value: Option<T>,
    registration: Registration,
}

/// The value is moved out of the future, so that it is not pinned.
impl<T: Send, Q: Queue> Unpin for Sending<'_, T, Q> {}

impl<T: Send, Q: Queue> Future for Sending<'_, T, Q> {
    type Output = Result<(), ClosedError<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { sender, value, registration } = &mut *self;
        sender.poll_send(value, registration, context)
    }
}

impl<T: Send, Q: Queue> Drop for Sending<'_, T, Q> {
    /// Releases the task's waker; wakes the next sender if this one was woken and then cancelled.
    fn drop(&mut self) {
        let Self { sender, registration, .. } = self;
        stop_waiting((&sender.side.0.senders, registration));
    }
}

impl<T: Send, Q: Queue> fmt::Debug for Sending<'_, T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel::Sending(completed: {})", self.value.is_none())
    }
}

impl<T: Send, Q: Queue> Receiver<T, Q> {
    /// Receives the oldest value; waits while there is none. `None` if the channel is closed and
    /// empty.
    ///
    /// # Cancel safety
    /// Dropping the future loses no value: it pops one only when it completes. A value for which it
    /// was woken goes to the next receiver.
    ///
    /// # Cost
    /// If a value is ready, like [`try_receive`](Self::try_receive). Otherwise a lock or two to
    /// store the waker, and another to release it.
    pub fn receive(&mut self) -> Receiving<'_, T, Q> {
        Receiving { receiver: self }
    }
}

/// Future of [`Receiver::receive`].
#[must_use = "futures do nothing unless awaited or polled"]
pub struct Receiving<'a, T: Send, Q: Queue> {
    receiver: &'a mut Receiver<T, Q>,
}

impl<T: Send, Q: Queue> Future for Receiving<'_, T, Q> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.receiver.poll_receive(context)
    }
}

impl<T: Send, Q: Queue> Drop for Receiving<'_, T, Q> {
    /// Releases the task's waker; wakes the next receiver if this one was woken and then cancelled.
    fn drop(&mut self) {
        self.receiver.side.stop_waiting();
    }
}

impl<T: Send, Q: Queue> fmt::Debug for Receiving<'_, T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("channel::Receiving")
    }
}
