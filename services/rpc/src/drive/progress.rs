//! Endpoint driven by its own thread, through which other threads and fibers call.

use super::calling::{after, decoded, encoded};
use super::endpoint::{Endpoint, Stopper};
use super::pool::{Inbox, Post, locked};
use super::state::State;
use super::timing::{Callback, Moment, Timer};
use crate::engine::{CallId, Outcome, PeerKey};
use crate::{CallError, EndpointError, Method};
use handover_fiber::Eventual;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Placeholder for a call that was not started: a number that no call with an answer has.
const NO_CALL: u64 = super::state::ONE_WAY;

/// Endpoint that runs in its own thread ([`Endpoint::start_progress`]). Dropping it stops that
/// thread, and waits until a running handler has returned.
#[derive(Debug)]
pub struct Progress {
    thread: Option<JoinHandle<Endpoint>>,
    stopper: Stopper,
    caller: Caller,
}

impl Endpoint {
    /// Starts a thread that serves this endpoint until told to stop. Other threads call through a
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
    ///     std::thread::spawn(move || caller.call::<_, u64>(peer, Method::named("double"), &number))
    /// });
    /// for (number, thread) in (0..).zip(threads.collect::<Vec<_>>()) {
    ///     assert_eq!(thread.join().unwrap()?, 2 * number);
    /// }
    /// let mut client = client.stop(); // From here on driven by this thread again.
    /// assert_eq!(client.call::<_, u64>(peer, Method::named("double"), &21u64)?, 42);
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
    /// [`Config::spin_ns_max`](crate::Config::spin_ns_max) applies to the endpoint's thread.
    pub fn start_progress(mut self) -> Result<Progress, EndpointError> {
        let (stopper, inbox) = (self.stopper(), Arc::clone(self.inbox()));
        inbox.open();
        let caller = Caller { inbox: Arc::clone(&inbox) };
        let thread = thread::Builder::new().name("rpc-progress".into());
        let thread = thread.spawn(move || {
            // Dropped however the thread ends, so that every waiting caller gets an answer.
            let _closes = Closes(inbox);
            self.serve();
            self.break_promises();
            self
        });
        let thread = Some(thread.map_err(EndpointError::Thread)?);
        Ok(Progress { thread, stopper, caller })
    }
}

struct Closes(Arc<Inbox>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Progress {
    /// Returns a handle through which other threads call.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Returns a handle that stops the thread, from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns `true` if the thread has ended: by a [`Stopper`], by a handler, or by a peer that
    /// may stop it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and gives the endpoint back. Calls that are under way through [`Caller`]s end with
    /// [`CallError::Ended`].
    ///
    /// # Panics
    /// Panics if something in the thread has panicked, other than a handler.
    ///
    /// # Blocking
    /// Blocks until a running handler has returned.
    #[must_use]
    pub fn stop(mut self) -> Endpoint {
        self.stopper.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(endpoint)) => {
                // If the thread had ended before, the stop request is still there.
                endpoint.inbox().take_stop();
                endpoint
            }
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("only this and dropping take it"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.stop();
            // The panic message of the thread has been printed.
            let _ = thread.join();
        }
    }
}

/// Handle for calls through an endpoint that runs in its own thread: from any thread, and from any
/// fiber of `handover_fiber`, whose worker runs other fibers meanwhile. A handler in the endpoint's
/// own thread must use its [`Context`](crate::Context) instead, as it would wait for itself.
#[derive(Clone)]
pub struct Caller {
    inbox: Arc<Inbox>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    /// Calls a procedure, and waits for the result.
    ///
    /// # Errors
    /// The errors of [`Calling::call`](crate::Calling::call), and [`CallError::Ended`].
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
    /// [`CallError::BadArguments`], [`CallError::Ended`], and [`CallError::Full`] if `calls_max`
    /// posts of other threads wait for the endpoint's thread. Every other error is returned in
    /// place of the result.
    pub fn start<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<Pending<R>, CallError> {
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
    ) -> Result<Pending<R>, CallError> {
        self.post(peer, method, arguments, after(timeout))
    }

    fn post<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        deadline_ns: u64,
    ) -> Result<Pending<R>, CallError> {
        let arguments = encoded(Vec::new(), arguments)?;
        let (promise, answer) = promise();
        self.inbox.post(Post::Call(Box::new(move |state| {
            state.start_for(peer, method, &arguments, deadline_ns, promise);
        })))?;
        Ok(Pending { answer, inbox: Arc::clone(&self.inbox), result: PhantomData })
    }

    /// Runs a closure in the endpoint's thread, between handlers: to connect ([`Moment::connect`]),
    /// to transfer memory ([`Bulk`](crate::Bulk)), or to start timers ([`Timing`](crate::Timing)).
    /// Peers' requests wait meanwhile.
    ///
    /// # Errors
    /// [`CallError::Ended`], and [`CallError::Full`] as for [`start`](Self::start).
    ///
    /// # Blocking
    /// Blocks until the closure has returned.
    pub fn run<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Moment<'_>) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (promise, answer) = promise();
        self.inbox.post(Post::Errand(Box::new(move |moment| {
            promise.keep(Ok(Mutex::new(Some(errand(moment)))));
        })))?;
        match answer.came.wait() {
            // Only this call takes the value.
            Ok(came) => locked(came).take().ok_or(CallError::Ended),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Call that was started by a [`Caller`]. Dropping it drops the result; unlike
/// [`cancel`](Self::cancel), it does not tell the peer.
///
/// It is also a future, for any executor:
///
/// ```
/// # use handover_rpc::{CallError, Caller, Method, Peer};
/// async fn twice(caller: &Caller, peer: Peer, number: u64) -> Result<u64, CallError> {
///     let double = Method::named("double");
///     let one = caller.start(peer, double, &number)?;
///     let other = caller.start(peer, double, &number)?;
///     let (one, other): (u64, u64) = (one.await?, other.await?);
///     Ok(one + other) // Both were under way at the same time.
/// }
/// ```
pub struct Pending<R> {
    answer: Arc<Answer>,
    inbox: Arc<Inbox>,
    result: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_done", &self.answer.came.test().is_some()).finish()
    }
}

impl<R: DeserializeOwned> Pending<R> {
    /// Waits for the result.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    ///
    /// # Blocking
    /// Blocks as [`Caller::call`] does; a fiber's worker runs other fibers meanwhile.
    pub fn wait(self) -> Result<R, CallError> {
        read(self.answer.came.wait())
    }

    /// Returns the result if it has arrived.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn test(&self) -> Option<Result<R, CallError>> {
        self.answer.came.test().map(read)
    }
}

impl<R> Pending<R> {
    /// Cancels the call. If the result has not arrived, the peer is told, and drops the request if
    /// its handler has not begun.
    pub fn cancel(self) {
        if self.answer.came.test().is_some() {
            return;
        }
        let answer = Arc::clone(&self.answer);
        // If the endpoint's thread has ended, all calls are over already.
        let _ = self.inbox.post_end(Post::Call(Box::new(move |state| {
            // Posts run in their order, so the call was started or refused before.
            state.cancel_for(answer.call.load(Ordering::Relaxed));
        })));
    }
}

impl<R: DeserializeOwned> Future for Pending<R> {
    type Output = Result<R, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waker = locked(&self.answer.waker);
        if let Some(came) = self.answer.came.test() {
            return Poll::Ready(read(came));
        }
        // Written under the lock: the thread that sets the value takes the waker after this.
        match &mut *waker {
            Some(known) => known.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

fn read<R: DeserializeOwned>(answer: &Result<Vec<u8>, CallError>) -> Result<R, CallError> {
    match answer {
        Ok(result) => decoded(result),
        Err(error) => Err(error.clone()),
    }
}

/// Slot for an answer.
pub(crate) struct Answer<T = Vec<u8>> {
    came: Eventual<Result<T, CallError>>,
    /// Waker of a future that waits for the answer.
    waker: Mutex<Option<Waker>>,
    /// Number of the call once it is under way; only the endpoint's thread reads and writes it.
    call: AtomicU64,
}

impl<T> Answer<T> {
    fn set(&self, answer: Result<T, CallError>) {
        // The value is set once: by keep(), or when the promise is dropped.
        let _ = self.came.set(answer);
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Obligation to set an [`Answer`]. Dropping it sets [`CallError::Ended`].
pub(crate) struct Promise<T = Vec<u8>>(Option<Arc<Answer<T>>>);

fn promise<T>() -> (Promise<T>, Arc<Answer<T>>) {
    let (waker, call) = (Mutex::new(None), AtomicU64::new(NO_CALL));
    let answer = Arc::new(Answer { came: Eventual::new(), waker, call });
    (Promise(Some(Arc::clone(&answer))), answer)
}

impl<T> Promise<T> {
    fn is_of(&self, call: u64) {
        if let Some(to) = &self.0 {
            // Relaxed: see Answer::call.
            to.call.store(call, Ordering::Relaxed);
        }
    }

    fn keep(mut self, answer: Result<T, CallError>) {
        if let Some(to) = self.0.take() {
            to.set(answer);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.set(Err(CallError::Ended));
        }
    }
}

/// Work of other threads for an endpoint.
#[derive(Default)]
pub(crate) struct Others {
    /// Posts that were taken from the inbox and not handled yet.
    pub(crate) posts: Vec<Post>,
    /// Closures to run between handlers.
    pub(crate) errands: VecDeque<Callback>,
    /// Calls under way for other threads, by their number.
    calls: HashMap<u64, Awaited>,
}

/// Call that another thread waits for, and the timer of its deadline.
type Awaited = (CallId, Promise, Option<Timer>);

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Others {
    /// Returns `true` if no other thread waits for a call.
    #[inline]
    pub(crate) fn await_none(&self) -> bool {
        self.calls.is_empty()
    }
}

impl State {
    /// Starts posted calls, and queues posted errands. Returns `true` if there were any.
    pub(super) fn do_posts(&mut self) -> bool {
        let mut posts = std::mem::take(&mut self.others.posts);
        let any = !posts.is_empty();
        for post in posts.drain(..) {
            match post {
                Post::Call(start) => start(self),
                Post::Errand(errand) => self.others.errands.push_back(errand),
            }
        }
        self.others.posts = posts;
        self.note_chores(!self.others.errands.is_empty());
        any
    }

    fn start_for(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &[u8],
        deadline_ns: u64,
        promise: Promise,
    ) {
        let id = match self.start(peer, method.word(), arguments, deadline_ns) {
            Ok(id) => id,
            Err(error) => return promise.keep(Err(error)),
        };
        promise.is_of(id.word());
        let late = move |moment: &mut Moment<'_>| {
            if let Some((id, promise, _)) = moment.state.others.calls.remove(&id.word()) {
                moment.state.give_up(id);
                promise.keep(Err(CallError::Deadline));
            }
        };
        let timers_max = self.config.timers_max;
        let timer = match deadline_ns {
            u64::MAX => Ok(None),
            at_ns => self.timers.start(at_ns, Box::new(late), timers_max).map(Some),
        };
        match timer {
            Ok(timer) => {
                self.others.calls.insert(id.word(), (id, promise, timer));
            }
            Err(_) => {
                self.give_up(id);
                promise.keep(Err(CallError::Full));
            }
        }
    }

    /// Passes the outcome of a call to the thread that waits for it, if there is one.
    #[cold]
    pub(super) fn keep_promise(&mut self, call: u64) {
        let Some(&(id, ..)) = self.others.calls.get(&call) else { return };
        let told = |outcome: Outcome, body: &[u8]| {
            super::calling::told(outcome, body, |result| Ok(result.to_vec()))
        };
        if let Some(answer) = self.calls.take(id, told)
            && let Some((_, promise, timer)) = self.others.calls.remove(&call)
        {
            if let Some(timer) = timer {
                self.timers.cancel(timer);
            }
            promise.keep(answer);
        }
    }

    /// Passes on the outcomes of all calls that have ended, after a peer was disconnected.
    #[cold]
    pub(super) fn keep_promises(&mut self) {
        let done = |it: &&Awaited| self.calls.is_done(it.0) == Some(true);
        let calls: Vec<_> = self.others.calls.values().filter(done).map(|it| it.0).collect();
        for id in calls {
            self.keep_promise(id.word());
        }
    }

    /// Cancels a call that another thread no longer waits for.
    fn cancel_for(&mut self, call: u64) {
        if let Some(awaited) = self.others.calls.remove(&call) {
            self.abandon(awaited);
        }
    }

    /// Ends all work of other threads with [`CallError::Ended`], as this thread stops driving the
    /// endpoint.
    pub(super) fn break_promises(&mut self) {
        self.others.errands.clear();
        for awaited in std::mem::take(&mut self.others.calls).into_values() {
            self.abandon(awaited);
        }
    }

    /// Gives the call up. Dropping the promise at the end of this function sets its answer.
    fn abandon(&mut self, (id, _promise, timer): Awaited) {
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        self.give_up(id);
    }
}
