//! Endpoint driven by a thread of its own, through which other threads and fibers call.

use super::calling::{decode_result, encode_arguments};
use super::endpoint::{Endpoint, Stopper};
use super::event_loop::sealed::Driver;
use super::event_loop::{CallbackContext, CallbackInbox};
use super::inbox::{PostedCall, PostedRequest};
use super::promises::{Answer, new_promise};
use crate::clock::after;
use crate::engine::PeerKey;
use crate::mailbox::lock_ignoring_poison;
use crate::{CallError, EndpointError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Endpoint that runs in its own thread ([`Endpoint::start_progress`]). Dropping it stops that
/// thread, and waits until a running handler has returned.
#[derive(Debug)]
pub struct Progress {
    thread: Option<JoinHandle<Endpoint>>,
    /// Process in which the thread runs.
    process: u32,
    stopper: Stopper,
    caller: Caller,
}

impl Endpoint {
    /// Starts a thread that serves this endpoint until it is stopped. Other threads call through a
    /// [`Caller`].
    ///
    /// ```
    /// use handover_rpc::{Calling, Config, Endpoint, Method};
    /// let mut server = Endpoint::new(Config::default())?;
    /// server.register("double", 0, |_, number: u64| Ok(2 * number))?;
    /// let address = server.listen(&"sm://".parse()?)?;
    /// let server = server.start_progress()?;
    ///
    /// let mut client = Endpoint::new(Config::default())?;
    /// let peer = client.connect(&address)?;
    /// let client = client.start_progress()?;
    /// let threads = (0..3u64).map(|number| {
    ///     let caller = client.caller();
    ///     std::thread::spawn(move || caller.call::<_, u64>(peer, Method::new("double"), &number))
    /// }); for (number, thread) in (0..).zip(threads.collect::<Vec<_>>()) {
    ///     assert_eq!(thread.join().unwrap()?, 2 * number);
    /// }
    /// let mut client = client.stop(); // From here on driven by this thread again.
    /// assert_eq!(client.call::<_, u64>(peer, Method::new("double"), &21u64)?, 42);
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::Thread`] if the thread cannot be started.
    ///
    /// # Cost
    /// A call from another thread is passed between threads twice more than one of the endpoint's
    /// own thread: two wake-ups, unless both threads spin, and some allocations.
    /// [`spin_max`](crate::Config#structfield.spin_max) applies to the endpoint's thread.
    pub fn start_progress(mut self) -> Result<Progress, EndpointError> {
        let (stopper, inbox) = (self.stopper(), Arc::clone(&self.event_loop().inbox));
        inbox.mailbox.open();
        let caller = Caller { inbox: Arc::clone(&inbox) };
        // Dropped however the thread ends, and if it cannot be started, so that every waiting
        // caller gets an answer.
        let closer = InboxCloser(inbox);
        let thread = thread::Builder::new().name("rpc-progress".into());
        let thread = thread.spawn(move || {
            let _closer = closer;
            self.serve();
            self.event_loop().fail_awaited_calls();
            self
        });
        let thread = Some(thread.map_err(EndpointError::Thread)?);
        Ok(Progress { thread, process: process::id(), stopper, caller })
    }
}

/// Guard that closes the inbox when the endpoint's thread exits.
struct InboxCloser(Arc<CallbackInbox>);

impl Drop for InboxCloser {
    fn drop(&mut self) {
        drop(self.0.mailbox.close());
    }
}

impl Progress {
    /// Returns a handle through which other threads can call peers.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Returns a handle with which any thread can stop the endpoint's thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns `true` if the thread has exited. A [`Stopper`], a handler, or a peer that may stop
    /// it has stopped it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and returns the endpoint. Calls that are under way through [`Caller`]s end
    /// with [`CallError::EndpointStopped`].
    ///
    /// # Panics
    /// Panics if something in the thread has panicked, other than a handler.
    ///
    /// # Blocking
    /// Blocks until a running handler has returned, and for at most one second more if peers do not
    /// read their results.
    #[must_use]
    pub fn stop(mut self) -> Endpoint {
        self.stopper.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(mut endpoint)) => {
                // If the thread had ended before, the stop request is still there.
                endpoint.event_loop().inbox.mailbox.take_stop_request();
                endpoint
            }
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the thread handle was already taken"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if process::id() != self.process {
            mem::forget(thread); // a forked child does not have the thread
        } else {
            self.stopper.stop();
            // The panic message of the thread has been printed.
            let _ = thread.join();
        }
    }
}

/// Handle for calls from any thread or fiber through an endpoint. The endpoint runs in a thread of
/// its own. While a fiber of `handover_fiber` waits, its worker runs other fibers. A handler in the
/// endpoint's own thread must use its [`Context`](crate::Context) instead, as it would wait for
/// itself.
#[derive(Clone)]
pub struct Caller {
    inbox: Arc<CallbackInbox>,
}

handover_base::debug_struct!(Caller);

impl Caller {
    /// Calls a procedure, and waits for the result.
    ///
    /// # Errors
    /// The errors of [`Calling::call`](crate::Calling::call), and [`CallError::EndpointStopped`].
    ///
    /// # Blocking
    /// Blocks until the result arrives, the connection ends, or the endpoint's thread ends.
    pub fn call<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<R, CallError> {
        self.start(peer, method, arguments)?.wait()
    }

    /// Calls a procedure, and waits for the result for `timeout` at most.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call), and [`CallError::Deadline`].
    ///
    /// # Blocking
    /// Blocks for `timeout` at most, and as long as a handler occupies the endpoint's thread.
    pub fn call_within<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        timeout: Duration,
    ) -> Result<R, CallError> {
        self.start_within(peer, method, arguments, timeout)?.wait()
    }

    /// Starts a call without waiting for the result.
    ///
    /// # Errors
    /// [`CallError::BadArguments`], [`CallError::EndpointStopped`], and [`CallError::Full`] if
    /// `calls_max` posts of other threads wait for the endpoint's thread. Every other error is
    /// returned in place of the result.
    pub fn start<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<PendingCall<R>, CallError> {
        self.post(peer, method, arguments, u64::MAX)
    }

    /// Starts a call that ends with [`CallError::Deadline`] after `timeout`; see
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_within<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        timeout: Duration,
    ) -> Result<PendingCall<R>, CallError> {
        self.post(peer, method, arguments, after(timeout))
    }

    /// Encodes the arguments, and queues the call for the endpoint's thread.
    fn post<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        deadline_ns: u64,
    ) -> Result<PendingCall<R>, CallError> {
        let arguments = encode_arguments(Vec::new(), arguments)?;
        let (promise, answer) = new_promise();
        let call = PostedCall { peer, method, arguments, deadline_ns, promise };
        self.inbox.post(PostedRequest::Call(call))?;
        Ok(PendingCall { answer, inbox: Arc::clone(&self.inbox), result: PhantomData })
    }

    /// Runs a closure in the endpoint's thread, between handlers, and returns its value. The
    /// closure can connect ([`CallbackContext::connect`]), transfer memory ([`Bulk`](crate::Bulk)),
    /// or start timers ([`Timing`](crate::Timing)). Peers' requests wait meanwhile.
    ///
    /// # Errors
    /// [`CallError::EndpointStopped`], and [`CallError::Full`] as for [`start`](Self::start).
    ///
    /// # Blocking
    /// Blocks until the closure has returned.
    pub fn run<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut CallbackContext<'_>) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (promise, answer) = new_promise();
        self.inbox.post(PostedRequest::Closure(Box::new(move |moment| {
            promise.set_result(Ok(Mutex::new(Some(errand(moment)))));
        })))?;
        match answer.wait_for_result() {
            // Only this call takes the value.
            Ok(value) => lock_ignoring_poison(value).take().ok_or(CallError::EndpointStopped),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Handle of a call that was started by a [`Caller`]. Dropping it drops the result; unlike
/// [`cancel`](Self::cancel), it does not notify the peer.
///
/// It is also a future of the result, for any executor:
///
/// ```
/// use handover_fiber::block_on; // or any other, such as an async runtime's
/// use handover_rpc::{CallError, Caller, Config, Endpoint, Method, Peer};
///
/// async fn twice(caller: &Caller, peer: Peer, number: u64) -> Result<u64, CallError> {
///     let double = Method::new("double");
///     let one = caller.start(peer, double, &number)?;
///     let other = caller.start(peer, double, &number)?;
///     let (one, other): (u64, u64) = (one.await?, other.await?);
///     Ok(one + other) // Both calls were under way at the same time.
/// }
///
/// let mut server = Endpoint::new(Config::default())?;
/// server.register("double", 0, |_, number: u64| Ok(2 * number))?;
/// let address = server.listen(&"sm://".parse()?)?;
/// let server = server.start_progress()?;
/// let mut client = Endpoint::new(Config::default())?;
/// let peer = client.connect(&address)?;
/// let client = client.start_progress()?;
/// assert_eq!(block_on(twice(&client.caller(), peer, 21))?, 84);
/// # drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PendingCall<R> {
    answer: Arc<Answer>,
    inbox: Arc<CallbackInbox>,
    result: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall")
            .field("is_done", &self.answer.try_get_result().is_some())
            .finish()
    }
}

impl<R: DeserializeOwned> PendingCall<R> {
    /// Waits for the result of the call.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    ///
    /// # Blocking
    /// Blocks as [`Caller::call`] does; a fiber's worker runs other fibers meanwhile.
    pub fn wait(self) -> Result<R, CallError> {
        decode_answer(self.answer.wait_for_result())
    }

    /// Returns the result of the call; `None` if it has not arrived.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn test(&self) -> Option<Result<R, CallError>> {
        self.answer.try_get_result().map(decode_answer)
    }
}

impl<R> PendingCall<R> {
    /// Cancels the call. If the result has not arrived, the peer is notified, and drops the request
    /// if its handler has not started.
    pub fn cancel(self) {
        if self.answer.try_get_result().is_some() {
            return;
        }
        // If the endpoint's thread has ended, all calls are over already. Posts run in their order,
        // so the call was started or refused before.
        let _ = self.inbox.post(PostedRequest::Cancel(Arc::clone(&self.answer)));
    }
}

/// Waits for the result of the call, like [`PendingCall::wait`].
///
/// # Errors
/// The errors of [`Caller::call`].
///
/// # Cancel safety
/// Dropping the future drops the result. The peer still executes the call; [`PendingCall::cancel`]
/// notifies it.
///
/// # Cost
/// A lock and a clone of the waker for each poll.
impl<R: DeserializeOwned> Future for PendingCall<R> {
    type Output = Result<R, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer
            .poll_result(context.waker())
            .map_or(Poll::Pending, |result| Poll::Ready(decode_answer(result)))
    }
}

fn decode_answer<R: DeserializeOwned>(answer: &Result<Vec<u8>, CallError>) -> Result<R, CallError> {
    match answer {
        Ok(result) => decode_result(result),
        Err(error) => Err(error.clone()),
    }
}
