//! Values from some to others, in order, with a bound.

use super::here::{deadline_ns, is_past};
use super::waiter::{self, Waiter};
use super::waitlist::take_out;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A channel that holds at most `capacity` values; with 0, one. Any number of senders and receivers, fibers or
/// ordinary threads; each value goes to one of them.
///
/// ```
/// use handover_fiber::{Config, Runtime, channel};
/// let runtime = Runtime::new(Config::default())?;
/// let (sender, receiver) = channel(4);
/// runtime.spawn_detached(move || (0..100).for_each(|i| sender.send(i).expect("it is received")))?;
/// let sum = runtime.spawn(move || std::iter::from_fn(|| receiver.recv().ok()).sum::<u32>())?;
/// assert_eq!(sum.join()?, 4950);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1);
    let shared = Arc::new(Shared {
        inner: Mutex::new(Inner {
            queue: VecDeque::with_capacity(capacity.min(1024)),
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
            senders_count: 1,
            receivers_count: 1,
        }),
        capacity,
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

#[derive(Debug)]
struct Shared<T> {
    inner: Mutex<Inner<T>>,
    capacity: usize,
}

#[derive(Debug)]
struct Inner<T> {
    queue: VecDeque<T>,
    /// Those who wait for a value, ...
    receivers: VecDeque<Waiter>,
    /// ... and those who wait for room.
    senders: VecDeque<Waiter>,
    senders_count: usize,
    receivers_count: usize,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // Nothing in here panics with the lock held, but for memory that there is not.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the first of those that `waiters` names whose time has not come.
    fn wake_one(&self, waiters: impl Fn(&mut Inner<T>) -> &mut VecDeque<Waiter>) {
        let mut inner = self.lock();
        while let Some(next) = waiters(&mut inner).pop_front() {
            drop(inner);
            if next.offer() {
                return;
            }
            inner = self.lock();
        }
    }
}

/// Who puts values in; cloned for each further one.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Who takes values out; cloned for each further one.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// All receivers are gone. Here is the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all receivers are gone")]
pub struct SendError<T>(pub T);

/// Why a value was not sent. Here it is.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// As many are on their way as the channel holds.
    #[error("the channel is full")]
    Full(T),
    /// All receivers are gone.
    #[error("all receivers are gone")]
    Disconnected(T),
}

/// Why a value was not sent in time. Here it is.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendTimeoutError<T> {
    /// As many are on their way as the channel holds, still.
    #[error("the channel is still full")]
    TimedOut(T),
    /// All receivers are gone.
    #[error("all receivers are gone")]
    Disconnected(T),
}

/// Nothing is on its way, and all senders are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all senders are gone")]
pub struct RecvError;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// Nothing is on its way now.
    #[error("the channel is empty")]
    Empty,
    /// And nothing ever will be: all senders are gone.
    #[error("all senders are gone")]
    Disconnected,
}

/// Why nothing was received in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvTimeoutError {
    /// Nothing is on its way, still.
    #[error("the channel is still empty")]
    TimedOut,
    /// And nothing ever will be: all senders are gone.
    #[error("all senders are gone")]
    Disconnected,
}

impl<T> Sender<T> {
    /// Puts a value in, if need be after waiting for room.
    ///
    /// # Errors
    /// [`SendError`] gives the value back when all receivers are gone.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = value;
        loop {
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(back)) => return Err(SendError(back)),
                Err(TrySendError::Full(back)) => value = back,
            }
            waiter::wait(|waiter| self.enlist(waiter));
        }
    }

    /// Puts a value in if there is room.
    ///
    /// # Errors
    /// [`TrySendError`] gives the value back.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut inner = self.shared.lock();
        if inner.receivers_count == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if inner.queue.len() >= self.shared.capacity {
            return Err(TrySendError::Full(value));
        }
        inner.queue.push_back(value);
        let next = inner.receivers.pop_front();
        drop(inner);
        if next.is_some_and(|next| !next.offer()) {
            self.shared.wake_one(|inner| &mut inner.receivers);
        }
        Ok(())
    }

    /// Puts a value in, if need be after waiting for room, for so long at most.
    ///
    /// # Errors
    /// [`SendTimeoutError`] gives the value back.
    ///
    /// # Blocking
    /// As [`send`](Self::send), but no longer.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until_ns(value, deadline_ns(timeout))
    }

    /// The same until it is `deadline_ns` on CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`SendTimeoutError`] gives the value back.
    ///
    /// # Blocking
    /// As [`send`](Self::send), but no longer.
    pub fn send_until_ns(&self, value: T, deadline_ns: u64) -> Result<(), SendTimeoutError<T>> {
        let mut value = value;
        loop {
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(back)) => {
                    return Err(SendTimeoutError::Disconnected(back));
                }
                Err(TrySendError::Full(back)) => value = back,
            }
            if is_past(deadline_ns) {
                return Err(SendTimeoutError::TimedOut(value));
            }
            let withdraw = |waiter: &Waiter| take_out(&mut self.shared.lock().senders, waiter);
            waiter::wait_until(deadline_ns, |waiter| self.enlist(waiter), withdraw);
        }
    }

    /// Waits for room; the waiter back if there is some.
    fn enlist(&self, waiter: Waiter) -> Option<Waiter> {
        let mut inner = self.shared.lock();
        if inner.queue.len() < self.shared.capacity || inner.receivers_count == 0 {
            return Some(waiter);
        }
        inner.senders.push_back(waiter);
        None
    }
}

impl<T> Receiver<T> {
    /// Takes the value that has been there longest, if need be after waiting for one.
    ///
    /// # Errors
    /// [`RecvError`] when there is none and all senders are gone.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn recv(&self) -> Result<T, RecvError> {
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => {}
            }
            waiter::wait(|waiter| self.enlist(waiter));
        }
    }

    /// Takes the value that has been there longest, if there is one.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut inner = self.shared.lock();
        let Some(value) = inner.queue.pop_front() else {
            return Err(match inner.senders_count {
                0 => TryRecvError::Disconnected,
                _ => TryRecvError::Empty,
            });
        };
        let next = inner.senders.pop_front();
        drop(inner);
        if next.is_some_and(|next| !next.offer()) {
            self.shared.wake_one(|inner| &mut inner.senders);
        }
        Ok(value)
    }

    /// Takes the value that has been there longest, if need be after waiting for one, for so long at most.
    ///
    /// # Errors
    /// [`RecvTimeoutError`]: the time is over, or all senders are gone.
    ///
    /// # Blocking
    /// As [`recv`](Self::recv), but no longer.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until_ns(deadline_ns(timeout))
    }

    /// The same until it is `deadline_ns` on CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`RecvTimeoutError`]: the time is over, or all senders are gone.
    ///
    /// # Blocking
    /// As [`recv`](Self::recv), but no longer.
    pub fn recv_until_ns(&self, deadline_ns: u64) -> Result<T, RecvTimeoutError> {
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            if is_past(deadline_ns) {
                return Err(RecvTimeoutError::TimedOut);
            }
            let withdraw = |waiter: &Waiter| take_out(&mut self.shared.lock().receivers, waiter);
            waiter::wait_until(deadline_ns, |waiter| self.enlist(waiter), withdraw);
        }
    }

    /// Waits for a value; the waiter back if there is one.
    fn enlist(&self, waiter: Waiter) -> Option<Waiter> {
        let mut inner = self.shared.lock();
        if !inner.queue.is_empty() || inner.senders_count == 0 {
            return Some(waiter);
        }
        inner.receivers.push_back(waiter);
        None
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.lock().senders_count += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.lock().receivers_count += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.senders_count -= 1;
        if inner.senders_count == 0 {
            let waiting = std::mem::take(&mut inner.receivers);
            drop(inner);
            waiting.into_iter().for_each(Waiter::wake);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.receivers_count -= 1;
        if inner.receivers_count == 0 {
            let waiting = std::mem::take(&mut inner.senders);
            let unread = std::mem::take(&mut inner.queue);
            drop(inner);
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
