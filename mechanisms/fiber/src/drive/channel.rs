//! Bounded channel between fibers and threads, first in, first out.

use super::this_fiber::{deadline_ns_after, deadline_ns_at, has_passed};
use super::wait;
use super::waitlist::remove_waiter;
use crate::raw::Waiter;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Creates a channel that holds at most `capacity` values (0 counts as 1). It may have any number
/// of senders and receivers, fibers or ordinary threads; each value goes to one receiver.
///
/// ```
/// use handover_fiber::{Config, Runtime, channel};
/// let runtime = Runtime::new(Config::default())?;
/// let (sender, receiver) = channel(4);
/// runtime.spawn_detached(move || (0..100).for_each(|i| sender.send(i).expect("send a value")))?;
/// let sum = runtime.spawn(move || std::iter::from_fn(|| receiver.recv().ok()).sum::<u32>())?;
/// assert_eq!(sum.join()?, 4950);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1);
    let channel = Arc::new(Channel {
        state: Mutex::new(ChannelState {
            queue: VecDeque::with_capacity(capacity.min(1024)),
            waiting_receivers: VecDeque::new(),
            waiting_senders: VecDeque::new(),
            senders_count: 1,
            receivers_count: 1,
        }),
        capacity,
    });
    (Sender { channel: Arc::clone(&channel) }, Receiver { channel })
}

/// State shared by the senders and receivers of a channel.
#[derive(Debug)]
struct Channel<T> {
    state: Mutex<ChannelState<T>>,
    capacity: usize,
}

/// Queued values, waiting participants, and numbers of senders and receivers.
#[derive(Debug)]
struct ChannelState<T> {
    queue: VecDeque<T>,
    waiting_receivers: VecDeque<Waiter>,
    waiting_senders: VecDeque<Waiter>,
    /// Number of senders that were not dropped.
    senders_count: usize,
    /// Number of receivers that were not dropped.
    receivers_count: usize,
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, ChannelState<T>> {
        // No code panics while it holds the lock, except on a failed allocation.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the first waiter whose deadline has not passed, in the queue that `waiters` returns.
    fn wake_one(&self, waiters: impl Fn(&mut ChannelState<T>) -> &mut VecDeque<Waiter>) {
        let mut state = self.lock();
        while let Some(next) = waiters(&mut state).pop_front() {
            drop(state);
            if next.try_wake() {
                return;
            }
            state = self.lock();
        }
    }
}

/// Sending end of a channel; clone it for further senders.
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

/// Receiving end of a channel; clone it for further receivers.
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
}

/// Error of [`Sender::send`]: all receivers were dropped. Contains the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot send: all receivers of the channel were dropped")]
pub struct SendError<T>(pub T);

/// Error of [`Sender::try_send`]; contains the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// The channel holds as many values as its capacity allows.
    #[error("the channel is full: receive a value first, or use send()")]
    Full(T),
    /// All receivers were dropped.
    #[error("cannot send: all receivers of the channel were dropped")]
    Disconnected(T),
}

/// Error of [`Sender::send_timeout`]; contains the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendTimeoutError<T> {
    /// The channel stayed full until the time-out.
    #[error("the channel stayed full until the time-out")]
    TimedOut(T),
    /// All receivers were dropped.
    #[error("cannot send: all receivers of the channel were dropped")]
    Disconnected(T),
}

/// Error of [`Receiver::recv`]: the channel is empty, and all senders were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot receive: the channel is empty and all its senders were dropped")]
pub struct RecvError;

/// Error of [`Receiver::try_recv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// The channel is empty, but not all senders were dropped.
    #[error("the channel is empty: send a value first, or use recv()")]
    Empty,
    /// The channel is empty, and all senders were dropped.
    #[error("cannot receive: the channel is empty and all its senders were dropped")]
    Disconnected,
}

/// Error of [`Receiver::recv_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvTimeoutError {
    /// The channel stayed empty until the time-out.
    #[error("the channel stayed empty until the time-out")]
    TimedOut,
    /// The channel is empty, and all senders were dropped.
    #[error("cannot receive: the channel is empty and all its senders were dropped")]
    Disconnected,
}

impl<T> Sender<T> {
    /// Sends a value, and waits for space while the channel is full.
    ///
    /// # Errors
    /// [`SendError`] returns the value when all receivers were dropped.
    ///
    /// # Blocking
    /// Blocks the fiber; on an ordinary thread, the thread.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = value;
        loop {
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(refused)) => return Err(SendError(refused)),
                Err(TrySendError::Full(refused)) => value = refused,
            }
            wait::suspend_caller(|waiter| self.enqueue(waiter));
        }
    }

    /// Sends a value if the channel is not full.
    ///
    /// # Errors
    /// [`TrySendError`] returns the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.channel.lock();
        if state.receivers_count == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.queue.len() >= self.channel.capacity {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        let next = state.waiting_receivers.pop_front();
        drop(state);
        if next.is_some_and(|next| !next.try_wake()) {
            self.channel.wake_one(|state| &mut state.waiting_receivers);
        }
        Ok(())
    }

    /// Sends a value, and waits for space for at most `timeout` while the channel is full.
    ///
    /// # Errors
    /// [`SendTimeoutError`] returns the value.
    ///
    /// # Blocking
    /// As [`send`](Self::send), until the time-out.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until_ns(value, deadline_ns_after(timeout))
    }

    /// Sends a value, and waits for space until `deadline` while the channel is full.
    ///
    /// # Errors
    /// [`SendTimeoutError`] returns the value.
    ///
    /// # Blocking
    /// As [`send`](Self::send), until the deadline.
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_until_ns(value, deadline_ns_at(deadline))
    }

    /// Sends a value, and waits for space until `deadline_ns` on CLOCK_MONOTONIC while the channel
    /// is full.
    ///
    /// # Errors
    /// [`SendTimeoutError`] returns the value.
    ///
    /// # Blocking
    /// As [`send`](Self::send), until the deadline.
    pub fn send_until_ns(&self, value: T, deadline_ns: u64) -> Result<(), SendTimeoutError<T>> {
        let mut value = value;
        loop {
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(refused)) => {
                    return Err(SendTimeoutError::Disconnected(refused));
                }
                Err(TrySendError::Full(refused)) => value = refused,
            }
            if has_passed(deadline_ns) {
                return Err(SendTimeoutError::TimedOut(value));
            }
            let withdraw =
                |waiter: &Waiter| remove_waiter(&mut self.channel.lock().waiting_senders, waiter);
            wait::suspend_caller_until(deadline_ns, |waiter| self.enqueue(waiter), withdraw);
        }
    }

    /// Adds `waiter` to the queue of waiting senders. Returns `waiter` instead if the channel has
    /// space, or all receivers were dropped.
    fn enqueue(&self, waiter: Waiter) -> Option<Waiter> {
        let mut state = self.channel.lock();
        if state.queue.len() < self.channel.capacity || state.receivers_count == 0 {
            return Some(waiter);
        }
        state.waiting_senders.push_back(waiter);
        None
    }
}

impl<T> Receiver<T> {
    /// Receives the oldest value, and waits for a value while the channel is empty.
    ///
    /// # Errors
    /// [`RecvError`] when the channel is empty and all senders were dropped.
    ///
    /// # Blocking
    /// Blocks the fiber; on an ordinary thread, the thread.
    pub fn recv(&self) -> Result<T, RecvError> {
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => {}
            }
            wait::suspend_caller(|waiter| self.enqueue(waiter));
        }
    }

    /// Receives the oldest value if the channel is not empty.
    ///
    /// # Errors
    /// [`TryRecvError`] when the channel is empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.channel.lock();
        let Some(value) = state.queue.pop_front() else {
            return Err(match state.senders_count {
                0 => TryRecvError::Disconnected,
                _ => TryRecvError::Empty,
            });
        };
        let next = state.waiting_senders.pop_front();
        drop(state);
        if next.is_some_and(|next| !next.try_wake()) {
            self.channel.wake_one(|state| &mut state.waiting_senders);
        }
        Ok(value)
    }

    /// Receives the oldest value, and waits for at most `timeout` while the channel is empty.
    ///
    /// # Errors
    /// [`RecvTimeoutError`] on a time-out, or when the channel is empty and all senders were
    /// dropped.
    ///
    /// # Blocking
    /// As [`recv`](Self::recv), until the time-out.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until_ns(deadline_ns_after(timeout))
    }

    /// Receives the oldest value, and waits until `deadline` while the channel is empty.
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    ///
    /// # Blocking
    /// As [`recv`](Self::recv), until the deadline.
    pub fn recv_until(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_until_ns(deadline_ns_at(deadline))
    }

    /// Receives the oldest value, and waits until `deadline_ns` on CLOCK_MONOTONIC while the
    /// channel is empty.
    ///
    /// # Errors
    /// [`RecvTimeoutError`] on a time-out, or when the channel is empty and all senders were
    /// dropped.
    ///
    /// # Blocking
    /// As [`recv`](Self::recv), until the deadline.
    pub fn recv_until_ns(&self, deadline_ns: u64) -> Result<T, RecvTimeoutError> {
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            if has_passed(deadline_ns) {
                return Err(RecvTimeoutError::TimedOut);
            }
            let withdraw =
                |waiter: &Waiter| remove_waiter(&mut self.channel.lock().waiting_receivers, waiter);
            wait::suspend_caller_until(deadline_ns, |waiter| self.enqueue(waiter), withdraw);
        }
    }

    /// Adds `waiter` to the queue of waiting receivers. Returns `waiter` instead if the channel has
    /// a value, or all senders were dropped.
    fn enqueue(&self, waiter: Waiter) -> Option<Waiter> {
        let mut state = self.channel.lock();
        if !state.queue.is_empty() || state.senders_count == 0 {
            return Some(waiter);
        }
        state.waiting_receivers.push_back(waiter);
        None
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.channel.lock().senders_count += 1;
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.channel.lock().receivers_count += 1;
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.senders_count -= 1;
        if state.senders_count == 0 {
            let waiting = std::mem::take(&mut state.waiting_receivers);
            drop(state);
            waiting.into_iter().for_each(Waiter::wake);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.receivers_count -= 1;
        if state.receivers_count == 0 {
            let waiting = std::mem::take(&mut state.waiting_senders);
            let unread = std::mem::take(&mut state.queue);
            drop(state);
            waiting.into_iter().for_each(Waiter::wake);
            drop(unread);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender(..)")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver(..)")
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut(_) => "TimedOut(..)",
            Self::Disconnected(_) => "Disconnected(..)",
        })
    }
}
