//! What all mechanisms have in common: somebody notifies, one receiver waits.

use crate::PairError;
use std::time::Duration;

/// The side that wakes. Share it, or clone it, among as many threads as you like.
pub trait Notify: Send + Sync {
    /// Makes a notification pending, and wakes the receiver if it sleeps.
    ///
    /// Once this has returned, a wait that is under way or begins later returns: a notification is
    /// never lost. It may be merged with others that the receiver has not consumed yet. What this
    /// thread wrote before is visible to the receiver once that wait has returned.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Panics
    /// If the kernel refuses a system call that it granted before (a seccomp filter came up).
    fn notify(&self);
}

/// The side that waits. There is one: its methods take `&mut self`.
///
/// A receiver whose senders are all gone waits as before: it is not told.
///
/// Each method that succeeds consumes *everything* pending and says how many notifications that
/// were; a mechanism that does not count them ([`Mechanism::COUNTS`]) says 1.
///
/// # Panics
/// All three, if the kernel refuses a system call that it granted before.
pub trait Wait: Send {
    /// Waits until a notification is pending and consumes what is there.
    ///
    /// # Blocking
    /// Until somebody notifies; for ever if nobody does.
    fn wait(&mut self) -> u64;

    /// As [`wait`](Self::wait), for `timeout` at most; `None` if nothing came.
    ///
    /// A notification that arrives as the time runs out is either returned now or pending for the
    /// next wait. A zero timeout is [`try_wait`](Self::try_wait).
    ///
    /// # Blocking
    /// Up to `timeout`, and the kernel's timer slack (50 µs unless set otherwise).
    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64>;

    /// Consumes what is pending, if anything is.
    ///
    /// # Blocking
    /// Never.
    fn try_wait(&mut self) -> Option<u64>;
}

/// A way to wake a thread, as a type: for code (tests, benchmarks) that runs with each of them.
///
/// ```
/// use handover_notify::{Adaptive, EventFd, Mechanism, Notify, Wait};
///
/// fn hand_over<M: Mechanism>() {
///     let (sender, mut receiver) = M::pair().expect(M::NAME);
///     let other = std::thread::spawn(move || sender.notify());
///     assert_eq!(receiver.wait(), 1);
///     assert_eq!(receiver.try_wait(), None, "consumed");
///     other.join().unwrap();
/// }
/// hand_over::<Adaptive>();
/// hand_over::<EventFd>();
/// ```
pub trait Mechanism: 'static {
    /// Its name in tables: lower case, no spaces.
    const NAME: &'static str;
    /// What it is, in a few words.
    const WHAT: &'static str;
    /// Whether a wait says how many notifications it consumed; if not, it says 1.
    const COUNTS: bool;
    /// Its sending side.
    type Sender: Notify + Clone + 'static;
    /// Its receiving side.
    type Receiver: Wait + 'static;

    /// Two connected sides within this process, nothing pending.
    ///
    /// # Errors
    /// [`PairError`] when the kernel has no descriptor to give. The mechanisms that are made of
    /// memory alone do not fail.
    fn pair() -> Result<(Self::Sender, Self::Receiver), PairError>;
}
