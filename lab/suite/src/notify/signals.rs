//! Alternatives if both participants are threads: a flag, and a library's primitive to sleep on.

use super::NotifyLink;
use handover_base::sync::shared::{AtomicBool, Ordering};
use handover_harness::{Fault, Setup};
use handover_notify::{Config, Notify, Wait};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Flag that one thread sets and another waits for and clears. Setting a set flag has no effect.
pub(super) trait Signal: Default + Send + Sync + 'static {
    /// State that the waiting thread needs, such as an async runtime.
    type WaiterState: WaiterState;
    /// Sets the flag, and wakes the waiting thread.
    fn set(&self);
    /// Waits until the flag is set, and clears it.
    fn take(&self, state: &mut Self::WaiterState);
}

/// Constructor of the state that a waiting thread needs.
pub(super) trait WaiterState: Sized + Send + 'static {
    fn new() -> Result<Self, Fault>;
}

impl WaiterState for () {
    fn new() -> Result<(), Fault> {
        Ok(())
    }
}

/// Sender that sets the flag of a [`Signal`].
pub(super) struct Sender<S>(Arc<S>);
/// Receiver that waits for the flag of a [`Signal`], with the state of its thread.
pub(super) struct Receiver<S: Signal>(Arc<S>, S::WaiterState);

impl<S: Signal> Notify for Sender<S> {
    #[inline]
    fn notify(&self) {
        self.0.set();
    }
}

impl<S: Signal> Wait for Receiver<S> {
    #[inline]
    fn wait(&mut self) -> u64 {
        self.0.take(&mut self.1);
        1
    }

    fn wait_timeout(&mut self, _: Duration) -> Option<u64> {
        Some(self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        Some(self.wait())
    }
}

/// Contender: notifications by a [`Signal`], within one process.
pub(super) struct SignalMechanism<S>(std::marker::PhantomData<S>);

impl<S: Signal> NotifyLink for SignalMechanism<S> {
    const PROCESSES: bool = false;
    type Sender = Sender<S>;
    type Receiver = Receiver<S>;

    fn setup(_: &mut Setup, _: Config) -> Result<(Sender<S>, Receiver<S>), Fault> {
        let signal = Arc::<S>::default();
        Ok((Sender(Arc::clone(&signal)), Receiver(signal, S::WaiterState::new()?)))
    }
}

/// Compared implementation: a flag in a mutex, and `std::sync::Condvar`.
#[derive(Default)]
pub(super) struct StdCondvar(Mutex<bool>, Condvar);

impl Signal for StdCondvar {
    type WaiterState = ();

    #[inline]
    fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_one();
    }

    #[inline]
    fn take(&self, (): &mut ()) {
        let mut is_set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_set {
            is_set = self.1.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        *is_set = false;
    }
}

/// Compared implementation: a flag, and `std::thread::park`.
#[derive(Default)]
pub(super) struct StdPark {
    is_set: AtomicBool,
    waiting: OnceLock<Thread>,
}

impl Signal for StdPark {
    type WaiterState = ();

    #[inline]
    fn set(&self) {
        // SeqCst: before the thread is read; pairs with the swap in take(), which comes after the
        // thread is stored.
        self.is_set.store(true, Ordering::SeqCst);
        if let Some(waiting) = self.waiting.get() {
            waiting.unpark();
        }
    }

    #[inline]
    fn take(&self, (): &mut ()) {
        self.waiting.get_or_init(thread::current);
        // SeqCst: pairs with the store in set().
        while !self.is_set.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

#[cfg(feature = "peers")]
mod peers {
    use super::*;
    use event_listener::{Event, Listener, listener};

    /// Compared implementation: a flag in a mutex, and a condition variable, of the crate
    /// `parking_lot`.
    #[derive(Default)]
    pub(in crate::notify) struct ParkingLot(parking_lot::Mutex<bool>, parking_lot::Condvar);

    impl Signal for ParkingLot {
        type WaiterState = ();

        #[inline]
        fn set(&self) {
            *self.0.lock() = true;
            self.1.notify_one();
        }

        #[inline]
        fn take(&self, (): &mut ()) {
            let mut is_set = self.0.lock();
            while !*is_set {
                self.1.wait(&mut is_set);
            }
            *is_set = false;
        }
    }

    /// Compared implementation: a flag, and an event of the crate `event-listener`.
    #[derive(Default)]
    pub(in crate::notify) struct EventListener {
        is_set: AtomicBool,
        event: Event,
    }

    impl Signal for EventListener {
        type WaiterState = ();

        #[inline]
        fn set(&self) {
            // SeqCst, here and below: the event orders the listening before the second read of the
            // flag.
            self.is_set.store(true, Ordering::SeqCst);
            self.event.notify(1);
        }

        #[inline]
        fn take(&self, (): &mut ()) {
            // SeqCst: pairs with set().
            while !self.is_set.swap(false, Ordering::SeqCst) {
                listener!(self.event => listener);
                // SeqCst: pairs with set(), whose store is either seen here or followed by a
                // notification of this listener.
                if self.is_set.swap(false, Ordering::SeqCst) {
                    return;
                }
                listener.wait();
            }
        }
    }

    /// Compared implementation: `tokio::sync::Notify`.
    #[derive(Default)]
    pub(in crate::notify) struct Tokio(tokio::sync::Notify);

    impl WaiterState for tokio::runtime::Runtime {
        fn new() -> Result<Self, Fault> {
            Ok(tokio::runtime::Builder::new_current_thread().build()?)
        }
    }

    impl Signal for Tokio {
        type WaiterState = tokio::runtime::Runtime;

        #[inline]
        fn set(&self) {
            self.0.notify_one();
        }

        #[inline]
        fn take(&self, runtime: &mut Self::WaiterState) {
            runtime.block_on(self.0.notified());
        }
    }
}

#[cfg(feature = "peers")]
pub(super) use peers::{EventListener, ParkingLot, Tokio};
