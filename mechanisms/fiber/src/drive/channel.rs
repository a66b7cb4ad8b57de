//! Values from some to others, in order, with a bound.

use super::waiter::{self, Waiter};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
            waiter::wait(|waiter| {
                let mut inner = self.shared.lock();
                if inner.queue.len() < self.shared.capacity || inner.receivers_count == 0 {
                    return Some(waiter);
                }
                inner.senders.push_back(waiter);
                None
            });
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
        if let Some(next) = next {
            next.wake();
        }
        Ok(())
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
            waiter::wait(|waiter| {
                let mut inner = self.shared.lock();
                if !inner.queue.is_empty() || inner.senders_count == 0 {
                    return Some(waiter);
                }
                inner.receivers.push_back(waiter);
                None
            });
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
        if let Some(next) = next {
            next.wake();
        }
        Ok(value)
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
