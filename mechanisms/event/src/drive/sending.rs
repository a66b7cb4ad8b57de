//! Sending from asynchronous tasks, which wait for space in a full inbox.

use super::address::{Address, SharedMachineState};
use crate::{SendError, stage};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use handover_base::wakers::Registration;
use handover_ring::PushError;

impl<M> Address<M> {
    /// Sends a message, and wakes the machine if it sleeps. While the inbox is full, waits for
    /// space, under `Refuse` and `Block` of [`WhenFull`](crate::WhenFull); under `DropOldest` it
    /// drops the oldest message, as [`send`](Self::send) does. For tasks of any executor.
    ///
    /// Tasks that wait are woken in the order in which they began to wait, one once half of the
    /// inbox is free. While other senders keep it fuller, one is woken after each 1024 messages
    /// (`inbox_messages_max`, if that is less), if there is space. One that has sent its message
    /// wakes the next. A sender that does not wait may take the space first. No time limit applies.
    ///
    /// ```
    /// use handover_event::{Config, Machine, handler};
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// let config = Config::default().inbox_messages_max(1);
    /// let mut machine = Machine::new(handler(|_: u32, _cx| ()), config)?;
    /// let address = machine.address().clone();
    /// let task = async move {
    ///     address.send_async(1).await?;
    ///     address.send_async(2).await // waits until the machine has taken the first message
    /// };
    /// # let mut task = pin!(task);
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # assert!(task.as_mut().poll(&mut context).is_pending());
    /// # machine.poll()?;
    /// # assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Closed`] returns the message when the machine is closed or dropped; never
    /// [`SendError::Full`].
    ///
    /// # Panics
    /// If the future is polled after it has completed.
    ///
    /// # Cancel safety
    /// If the future is dropped before it has completed, the message was not sent and is dropped;
    /// if the task was woken already, the next one is woken instead. To keep the message, use
    /// [`send`](Self::send).
    ///
    /// # Blocking
    /// Never, unless other tasks wait: then for the lock of their wakers, which is held for some
    /// instructions.
    ///
    /// # Cost
    /// If there is space, like [`send`](Self::send); otherwise also some locks, and a wake-up of
    /// the machine if it sleeps. Once a task has waited, the machines of that thread check for
    /// waiting tasks: a fence for each batch of messages, and when they become idle.
    pub fn send_async(&self, message: M) -> Sending<'_, M> {
        Sending {
            shared: self.shared(),
            message: Some(message),
            registration: Registration::default(),
        }
    }
}

/// Future of [`Address::send_async`].
#[must_use = "futures do nothing unless awaited or polled"]
pub struct Sending<'a, M> {
    shared: &'a SharedMachineState<M>,
    /// Message to send; `None` once the future has completed.
    message: Option<M>,
    registration: Registration,
}

/// The message is moved out of the future, so that it is not pinned.
impl<M> Unpin for Sending<'_, M> {}

impl<M> Future for Sending<'_, M> {
    type Output = Result<(), SendError<M>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, message, registration } = &mut *self;
        let taken = message.take().expect("the future was polled after it had completed");
        let push = |message| shared.inbox_sender.push(message);
        match shared.waiting_senders.push_or_register(taken, registration, context.waker(), push) {
            Ok(()) => {
                stage::record_enqueued(*shared);
                shared.notify();
                Poll::Ready(Ok(()))
            }
            Err(PushError::Full(refused)) => {
                *message = Some(refused);
                shared.shared_thread.set_async_senders();
                // The machine may sleep with a full inbox, if all messages were sent without waking
                // it.
                shared.notify();
                Poll::Pending
            }
            Err(closed) => Poll::Ready(Err(shared.refuse(closed))),
        }
    }
}

impl<M> Drop for Sending<'_, M> {
    /// Releases the task's waker; wakes the next task if this one was woken and then cancelled.
    fn drop(&mut self) {
        self.shared.waiting_senders.leave(&mut self.registration);
    }
}

impl<M> fmt::Debug for Sending<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sending(completed: {})", self.message.is_none())
    }
}
