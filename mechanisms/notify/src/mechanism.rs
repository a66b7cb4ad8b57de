//! Traits of all mechanisms: senders notify, one receiver waits.

use crate::PairError;
use std::time::Duration;

/// Sending end of a mechanism, which any number of threads may share or clone.
pub trait Notify: Send + Sync {
    /// Makes a notification pending, and wakes the receiver if it sleeps.
    ///
    /// Once this has returned, a wait that is under way or begins later returns: a notification is
    /// never lost. It may be merged with others that the receiver has not consumed yet. All earlier
    /// writes of this thread are visible to the receiver once that wait has returned.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Panics
    /// If the kernel refuses a system call that it allowed before (because of a new seccomp
    /// filter).
    fn notify(&self);
}

/// Receiving end of a mechanism, for one thread, as its methods take `&mut self`.
///
/// A receiver is not notified when all its senders are dropped: it waits as before.
///
/// Each method that succeeds consumes *everything* pending and returns the number of notifications;
/// a mechanism that does not count them (see [`Mechanism::COUNTS_NOTIFICATIONS`]) returns 1.
///
/// # Panics
/// All three methods, if the kernel refuses a system call that it allowed before.
pub trait Wait: Send {
    /// Waits until a notification is pending; consumes all pending ones and returns their number.
    ///
    /// # Blocking
    /// Blocks until a sender notifies.
    fn wait(&mut self) -> u64;

    /// Waits like [`wait`](Self::wait), for at most `timeout`; `None` if no notification arrived.
    ///
    /// A notification that arrives as the time runs out is either returned now or pending for the
    /// next wait. A zero timeout is [`try_wait`](Self::try_wait).
    ///
    /// # Blocking
    /// Up to `timeout`, and the kernel's timer slack (50 µs unless set otherwise).
    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64>;

    /// Consumes all pending notifications without waiting, and returns their number; `None` if
    /// there are none.
    ///
    /// # Blocking
    /// Never.
    fn try_wait(&mut self) -> Option<u64>;
}

/// Mechanism by which threads wake another thread, as a type for generic code (tests, benchmarks).
///
/// ```
/// use handover_notify::{Adaptive, AdaptiveFd, Mechanism, Notify, Wait};
///
/// fn hand_over<M: Mechanism>() {
///     let (sender, mut receiver) = M::pair().expect(M::NAME);
///     let other = std::thread::spawn(move || sender.notify());
///     assert_eq!(receiver.wait(), 1);
///     assert_eq!(receiver.try_wait(), None, "consumed");
///     other.join().unwrap();
/// }
/// hand_over::<Adaptive>();
/// hand_over::<AdaptiveFd>();
/// ```
pub trait Mechanism: 'static {
    /// Name of the mechanism in tables: lower case, no spaces.
    const NAME: &'static str;
    /// One-line description of the mechanism for tables.
    const DESCRIPTION: &'static str;
    /// `true` if a wait returns the number of notifications that it consumed; `false` if it
    /// returns 1.
    const COUNTS_NOTIFICATIONS: bool;
    /// Type of the sending end.
    type Sender: Notify + Clone + 'static;
    /// Type of the receiving end.
    type Receiver: Wait + 'static;

    /// Creates a sender and a receiver that are connected within this process, with nothing
    /// pending.
    ///
    /// # Errors
    /// [`PairError`] if the kernel gives no descriptor. Mechanisms that only need memory do not
    /// fail.
    fn pair() -> Result<(Self::Sender, Self::Receiver), PairError>;
}
