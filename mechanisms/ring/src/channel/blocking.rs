//! Sending and receiving by threads that sleep while they wait.

use super::{Receiver, Sender};
use crate::queue::Queue;
use crate::{ClosedError, TimeoutError};
use core::hint;
use core::task::Poll;
use handover_base::wakers::{Registration, block_until};
use std::time::{Duration, Instant};

/// Number of polls, with a pause after each, before a thread sleeps. They take 1 to 4 µs, about as
/// long as a sleep costs.
const SPINS_COUNT: u32 = 100;

impl<T: Send, Q: Queue> Sender<T, Q> {
    /// Sends a value; waits while the ring is full.
    ///
    /// # Errors
    /// [`ClosedError`] with the value if the channel is closed.
    ///
    /// # Blocking
    /// Blocks until a receiver has vacated a slot, or the channel is closed: spins for 1 to 4 µs,
    /// then sleeps.
    ///
    /// # Cost
    /// If a slot is vacant, like [`try_send`](Self::try_send). A sleep costs an allocation, two
    /// locks and a wake-up by the kernel.
    pub fn send_blocking(&mut self, value: T) -> Result<(), ClosedError<T>> {
        let mut value = Some(value);
        for _ in 0..SPINS_COUNT {
            if let Poll::Ready(result) = self.try_send_from(&mut value) {
                return result;
            }
            hint::spin_loop();
        }
        let mut registration = Registration::default();
        let sent =
            block_until(None, |context| self.poll_send(&mut value, &mut registration, context));
        sent.expect("a wait without a deadline ended without a result")
    }
}

impl<T: Send, Q: Queue> Receiver<T, Q> {
    /// Receives the oldest value; waits while there is none. `None` if the channel is closed and
    /// empty.
    ///
    /// # Blocking
    /// Spins for 1 to 4 µs, then sleeps, until a value arrives or the channel is closed.
    ///
    /// # Cost
    /// If a value is ready, like [`try_receive`](Self::try_receive). A sleep costs an allocation,
    /// two locks and a wake-up by the kernel.
    pub fn receive_blocking(&mut self) -> Option<T> {
        self.receive_until(None).expect("a wait without a deadline ended without a result")
    }

    /// Receives the oldest value like [`receive_blocking`](Self::receive_blocking), but waits for
    /// at most `timeout`.
    ///
    /// # Errors
    /// [`TimeoutError`] if no value arrived and the channel was not closed. A value that arrives as
    /// the time runs out is either returned now or stays in the channel.
    ///
    /// # Blocking
    /// Up to `timeout`, at least for a spin of 1 to 4 µs, and the kernel's timer slack (50 µs
    /// unless set otherwise).
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<T>, TimeoutError> {
        // Without a deadline if it exceeds the clock's range.
        self.receive_until(Instant::now().checked_add(timeout)).ok_or(TimeoutError)
    }

    /// Receives the oldest value, `Some(None)` if the channel is finished; returns `None` at
    /// `deadline`.
    fn receive_until(&mut self, deadline: Option<Instant>) -> Option<Option<T>> {
        for _ in 0..SPINS_COUNT {
            if let Poll::Ready(received) = self.receive_or_finish() {
                self.side.stop_waiting(); // of an earlier poll_receive()
                return Some(received);
            }
            hint::spin_loop();
        }
        let received = block_until(deadline, |context| self.poll_receive(context));
        self.side.stop_waiting();
        received
    }
}
