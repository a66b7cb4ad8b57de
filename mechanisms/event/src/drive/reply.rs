//! Requests and replies: a message that carries the means of replying to it.

use super::address::Address;
use crate::engine::reply_slot::ReplySlot;
use crate::{NoReplyError, ReplyError, SendError};
use core::fmt;
use core::hint;
use core::task::Poll;
use handover_base::wakers::block_until;
use std::sync::Arc;
use std::time::{Duration, Instant};
#[cfg(feature = "async")]
use {
    core::pin::Pin,
    core::task::{Context, ready},
};

/// Number of polls, with a pause after each, before a thread sleeps. They take 1 to 4 µs, about as
/// long as a sleep costs.
const SPINS_COUNT: u32 = 100;

/// Handle for replying to one request, carried by the request's message. Dropping it without a
/// reply tells the requester that no reply will come.
///
/// The requester is a thread or a task that waits for a [`PendingReply`], as made by
/// [`Address::request`] and [`pair`](Self::pair), or a machine, which gets the reply as a message:
/// [`to_machine`](Self::to_machine).
///
/// ```
/// use handover_event::{Config, Context, Machine, Reply, handler};
///
/// enum Message {
///     Square(u32, Reply<u32>),
///     Quit,
/// }
///
/// let machine = Machine::new(
///     handler(|message: Message, cx: &mut Context<'_, Message>| match message {
///         // Returns the reply if the requester does not wait any more.
///         Message::Square(number, reply) => reply.send(number * number).unwrap_or_default(),
///         Message::Quit => cx.stop(),
///     }),
///     Config::default(),
/// )?;
/// let address = machine.address().clone();
/// let running = machine.spawn(std::thread::Builder::new())?;
/// let pending = address.request(|reply| Message::Square(7, reply))?;
/// assert_eq!(pending.wait()?, 49);
/// address.send(Message::Quit)?;
/// running.join().1?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it tells the requester that no reply will come"]
pub struct Reply<R> {
    to: ReplyTo<R>,
}

/// Requester that a [`Reply`] goes to.
enum ReplyTo<R> {
    /// Owner of the slot's [`PendingReply`].
    Pending(Arc<ReplySlot<R>>),
    /// Closure whose first call sends the reply to a machine as a message. Further calls have no
    /// effect.
    Machine(Box<SendReplyFn<R>>),
}

/// Function that sends either a reply or, if none will come, an error.
type SendReplyFn<R> = dyn FnMut(Result<R, NoReplyError>) -> Result<(), ReplyError<R>> + Send;

impl<R: Send> Reply<R> {
    /// Creates a reply and the pending reply that waits for it. For messages that are not sent by
    /// [`Address::request`].
    ///
    /// # Cost
    /// One allocation.
    pub fn pair() -> (Self, PendingReply<R>) {
        let slot = Arc::new(ReplySlot::new());
        (Self { to: ReplyTo::Pending(Arc::clone(&slot)) }, PendingReply { slot })
    }

    /// Creates a reply that arrives at a machine as a message. `wrap` makes the message from
    /// the reply or, if none will come, from an error. The name of an enum variant is such a
    /// function.
    ///
    /// The message is sent as by [`Address::send`]; the error is sent without blocking, and is lost
    /// if the machine's inbox is full.
    ///
    /// ```
    /// use handover_event::{Config, Machine, NoReplyError, Reply, handler};
    /// enum Event { Squared(Result<u32, NoReplyError>) }
    /// let mut server = Machine::new(
    ///     handler(|(number, reply): (u32, Reply<u32>), _cx| reply.send(number * number).unwrap()),
    ///     Config::default(),
    /// )?;
    /// let mut client = Machine::new(
    ///     handler(|Event::Squared(squared), _cx| assert_eq!(squared, Ok(49))),
    ///     Config::default(),
    /// )?;
    /// server.address().send((7, Reply::to_machine(client.address(), Event::Squared)))?;
    /// server.poll()?;
    /// assert_eq!(client.poll()?.handled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// One allocation.
    pub fn to_machine<M, F>(machine: &Address<M>, wrap: F) -> Self
    where
        M: Send + 'static,
        F: FnOnce(Result<R, NoReplyError>) -> M + Send + 'static,
    {
        let machine = machine.clone();
        let mut wrap = Some(wrap);
        let send = move |reply: Result<R, NoReplyError>| {
            let Some(wrap) = wrap.take() else { return Ok(()) };
            let sent = match reply {
                Ok(reply) => machine.send(wrap(Ok(reply))),
                // In a destructor, which must not block.
                Err(error) => machine.send_unblocked(wrap(Err(error))),
            };
            sent.map_err(|_refused| ReplyError::<R>::Refused)
        };
        Self { to: ReplyTo::Machine(Box::new(send)) }
    }
}

impl<R> Reply<R> {
    /// Sends the reply, and wakes the requester if it sleeps.
    ///
    /// # Errors
    /// [`ReplyError::Closed`] returns the reply if the requester has dropped its [`PendingReply`].
    /// [`ReplyError::Refused`] if the inbox of the requesting machine is full or closed; the reply
    /// is dropped.
    ///
    /// # Blocking
    /// To a machine, like [`Address::send`]. To a pending reply, never, except for a lock that is
    /// held for some instructions.
    ///
    /// # Cost
    /// To a machine, like [`Address::send`]. To a pending reply, a lock and the transfer of a cache
    /// line; if the requester sleeps, also the cost of its wake-up.
    pub fn send(mut self, reply: R) -> Result<(), ReplyError<R>> {
        self.deliver(Ok(reply))
    }

    /// Passes a reply, or the error that none will come, to the requester. Further calls have no
    /// effect on it.
    fn deliver(&mut self, reply: Result<R, NoReplyError>) -> Result<(), ReplyError<R>> {
        match &mut self.to {
            ReplyTo::Pending(slot) => match slot.end(reply.ok()) {
                Err(Some(reply)) => Err(ReplyError::Closed(reply)),
                Ok(()) | Err(None) => Ok(()),
            },
            ReplyTo::Machine(send) => send(reply),
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        // Has no effect after a reply. If the requester cannot be told, it has ended, or its inbox
        // is full.
        let _ = self.deliver(Err(NoReplyError));
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.to {
            ReplyTo::Pending(_) => "Reply(to a pending reply)",
            ReplyTo::Machine(_) => "Reply(to a machine)",
        })
    }
}

/// Receiver of one reply. A thread waits for the reply or, with the feature `async`, a task awaits
/// it. Dropping it gives up the reply.
///
/// A reply can be received once; a further attempt returns [`NoReplyError`].
#[must_use = "dropping it gives up the reply"]
pub struct PendingReply<R> {
    slot: Arc<ReplySlot<R>>,
}

impl<R> PendingReply<R> {
    /// Waits for the reply.
    ///
    /// # Errors
    /// [`NoReplyError`] if the [`Reply`] was dropped without a reply: by the handler, or with a
    /// machine that was dropped before it had handled the request.
    ///
    /// # Blocking
    /// Spins for 1 to 4 µs, then sleeps, until the reply has come or none can come. A handler that
    /// waits blocks its machine, and waits for ever if the reply is to come from a machine on the
    /// same thread.
    ///
    /// # Cost
    /// A lock. A sleep costs an allocation, another lock and a wake-up by the kernel.
    pub fn wait(self) -> Result<R, NoReplyError> {
        let reply = self.wait_until(None)?;
        Ok(reply.expect("a wait without a deadline ended without a result"))
    }

    /// Waits for the reply like [`wait`](Self::wait), for at most `timeout`. Returns `None` if it
    /// has not come by then.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Blocking
    /// Up to `timeout`, at least for a spin of 1 to 4 µs, and the kernel's timer slack (50 µs
    /// unless set otherwise).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<R>, NoReplyError> {
        // Without a deadline if it exceeds the clock's range.
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Returns the reply if it has come, otherwise `None`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Blocking
    /// Never, except for a lock that is held for some instructions.
    pub fn try_wait(&mut self) -> Result<Option<R>, NoReplyError> {
        // Checked first, as take() releases the waker of a task.
        if self.slot.has_ended() { self.take() } else { Ok(None) }
    }

    /// Waits for the reply until `deadline`; returns `Ok(None)` if none has come by then.
    fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<R>, NoReplyError> {
        let has_ended = (0..SPINS_COUNT).any(|_| {
            hint::spin_loop();
            self.slot.has_ended()
        });
        if !has_ended {
            block_until(deadline, |context| self.slot.poll_ended(context.waker()));
        }
        self.take()
    }

    /// Takes the reply; `None` while it may still come.
    fn take(&self) -> Result<Option<R>, NoReplyError> {
        match self.slot.take() {
            Poll::Ready(reply) => reply.map(Some).ok_or(NoReplyError),
            Poll::Pending => Ok(None),
        }
    }
}

/// # Cancel safety
/// A reply that has come stays in the [`PendingReply`] until the future completes.
#[cfg(feature = "async")]
impl<R> Future for PendingReply<R> {
    type Output = Result<R, NoReplyError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.slot.poll_ended(context.waker()));
        self.slot.take().map(|reply| reply.ok_or(NoReplyError))
    }
}

impl<R> Drop for PendingReply<R> {
    fn drop(&mut self) {
        self.slot.abandon();
    }
}

impl<R> fmt::Debug for PendingReply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingReply(ended: {})", self.slot.has_ended())
    }
}

impl<M> Address<M> {
    /// Sends a request: a message made by `message`, which carries the [`Reply`]. Returns the
    /// pending reply.
    ///
    /// With the feature `async`, `address.request(..)?.await` waits for the reply. A task that also
    /// waits for space in a full inbox sends one part of [`Reply::pair`] by `send_async`, and
    /// awaits the other.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Blocking
    /// As [`send`](Self::send).
    ///
    /// # Cost
    /// Like [`send`](Self::send), and one allocation.
    pub fn request<R: Send>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
    ) -> Result<PendingReply<R>, SendError<M>> {
        let (reply, pending) = Reply::pair();
        self.send(message(reply))?;
        Ok(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Context, Machine, WhenFull, handler};

    enum Message {
        Request(Reply<u32>),
        Ended(Result<u32, NoReplyError>),
    }

    #[test]
    fn error_for_a_dropped_request_drops_no_other_request_of_a_full_inbox() {
        // One destructor within another for each would exceed the stack. Miri takes 10 ms for each.
        let messages_max = if cfg!(miri) { 100 } else { 100_000 };
        let config =
            Config::default().inbox_messages_max(messages_max).when_full(WhenFull::DropOldest);
        let ignore = handler(|message: Message, _cx: &mut Context<'_, Message>| match message {
            Message::Request(reply) => drop(reply),
            Message::Ended(ended) => assert_eq!(ended, Err(NoReplyError)),
        });
        let machine = Machine::new(ignore, config).expect("create a machine");
        let address = machine.address();
        for _ in 0..=messages_max {
            let reply = Reply::to_machine(address, Message::Ended);
            assert!(address.send(Message::Request(reply)).is_ok());
        }
        let stats = machine.stats();
        assert_eq!((stats.waiting, stats.dropped), (u64::from(messages_max), 1));
    }
}
