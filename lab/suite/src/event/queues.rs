//! Peers of the event machine behind one trait: bounded queues whose receiver waits.
//!
//! Sending and receiving are asynchronous, since one of the peers is. With the other peers the
//! futures are ready at once, after the thread has waited, and compile to plain calls.

use handover_harness::Fault;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A bounded queue with many senders and one receiver.
pub(super) trait Queue: 'static {
    /// The sending end.
    type Sender<T: Send + 'static>: Clone + Send + Sync + 'static;
    /// The receiving end.
    type Receiver<T: Send + 'static>: Send + 'static;
    /// State that a thread needs to send and to receive.
    type Runtime: Send + 'static;

    fn runtime() -> Result<Self::Runtime, Fault>;
    fn pair<T: Send + 'static>(slots_count: u32) -> (Self::Sender<T>, Self::Receiver<T>);
    /// Waits for room; returns `false` if the receiver is disconnected.
    fn send<T: Send + 'static>(
        sender: &Self::Sender<T>,
        item: T,
    ) -> impl Future<Output = bool> + Send;
    /// Waits for an item; returns `None` if the senders are disconnected.
    fn receive<T: Send + 'static>(
        receiver: &mut Self::Receiver<T>,
    ) -> impl Future<Output = Option<T>> + Send;
    /// Returns an item if there is one, without waiting.
    fn try_receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T>;
    /// Runs the future to its end on this thread.
    fn run<R>(runtime: &Self::Runtime, work: impl Future<Output = R>) -> R;
}

/// Runs a future that is never pending, as it blocks the thread instead.
#[inline(always)]
fn run_at_once<R>(work: impl Future<Output = R>) -> R {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("the thread waits, not the future"),
    }
}

/// A queue whose calls block the thread.
macro_rules! blocking {
    ($(#[$doc:meta])* $name:ident, $sender:path, $receiver:path, $make:path, $flat:expr) => {
        $(#[$doc])*
        pub(in crate::event) enum $name {}

        impl Queue for $name {
            type Sender<T: Send + 'static> = $sender;
            type Receiver<T: Send + 'static> = $receiver;
            type Runtime = ();

            fn runtime() -> Result<(), Fault> {
                Ok(())
            }
            fn pair<T: Send + 'static>(slots_count: u32) -> (Self::Sender<T>, Self::Receiver<T>) {
                $make(slots_count as usize)
            }
            #[inline(always)]
            async fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T) -> bool {
                sender.send(item).is_ok()
            }
            #[inline(always)]
            async fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                receiver.recv().ok()
            }
            #[inline(always)]
            fn try_receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                receiver.try_recv().ok().and_then($flat)
            }
            #[inline(always)]
            fn run<R>((): &(), work: impl Future<Output = R>) -> R {
                run_at_once(work)
            }
        }
    };
}

blocking! {
    /// `std::sync::mpsc`.
    Std, std::sync::mpsc::SyncSender<T>, std::sync::mpsc::Receiver<T>,
    std::sync::mpsc::sync_channel, Some
}

#[cfg(feature = "peers")]
mod peers {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError, Weak};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc;

    blocking! {
        /// `crossbeam-channel`.
        Crossbeam, crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>,
        crossbeam_channel::bounded, Some
    }

    blocking! {
        /// `kanal`.
        Kanal, kanal::Sender<T>, kanal::Receiver<T>, kanal::bounded, |found| found
    }

    blocking! {
        /// `flume`.
        Flume, flume::Sender<T>, flume::Receiver<T>, flume::bounded, Some
    }

    /// A `tokio::sync::mpsc` queue awaited by a thread in a tokio runtime.
    macro_rules! tokio_in {
        ($(#[$doc:meta])* $name:ident, $runtime:ty, $made:expr) => {
            $(#[$doc])*
            pub(in crate::event) enum $name {}

            impl Queue for $name {
                type Sender<T: Send + 'static> = mpsc::Sender<T>;
                type Receiver<T: Send + 'static> = mpsc::Receiver<T>;
                type Runtime = $runtime;

                fn runtime() -> Result<$runtime, Fault> {
                    $made.map_err(|error: io::Error| Fault::new(format!("no runtime: {error}")))
                }
                fn pair<T: Send + 'static>(slots_count: u32) -> (Self::Sender<T>, Self::Receiver<T>) {
                    mpsc::channel(slots_count as usize)
                }
                #[inline(always)]
                async fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T) -> bool {
                    sender.send(item).await.is_ok()
                }
                #[inline(always)]
                async fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                    receiver.recv().await
                }
                #[inline(always)]
                fn try_receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                    receiver.try_recv().ok()
                }
                #[inline(always)]
                fn run<R>(runtime: &$runtime, work: impl Future<Output = R>) -> R {
                    runtime.block_on(work)
                }
            }
        };
    }

    tokio_in! {
        /// Each thread in its own runtime.
        Tokio, Runtime, Builder::new_current_thread().build()
    }

    tokio_in! {
        /// All threads in one multi-threaded runtime, whose workers have nothing to do.
        TokioMulti, Arc<Runtime>, shared_runtime()
    }

    /// Returns the runtime that all current users share.
    fn shared_runtime() -> io::Result<Arc<Runtime>> {
        static SHARED: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = shared.upgrade() {
            return Ok(runtime);
        }
        let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).build()?);
        *shared = Arc::downgrade(&runtime);
        Ok(runtime)
    }
}

#[cfg(feature = "peers")]
pub(super) use peers::{Crossbeam, Flume, Kanal, Tokio, TokioMulti};
