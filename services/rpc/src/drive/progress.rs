//! An endpoint that a thread of its own drives: other threads, and fibers, call through it.

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

/// In place of a call's number: there is none. No call's number is that of a request that wants no answer.
const NO_CALL: u64 = super::state::ONE_WAY;

/// An endpoint in a thread of its own ([`Endpoint::start_progress`]). Dropping it stops that thread, and waits for
/// the handler that it is in.
#[derive(Debug)]
pub struct Progress {
    thread: Option<JoinHandle<Endpoint>>,
    stopper: Stopper,
    caller: Caller,
}

impl Endpoint {
    /// Has a thread of its own serve this endpoint until it is told to stop, and others call through it
    /// ([`Caller`]).
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
    /// [`EndpointError::Thread`] when there is no thread to be had.
    ///
    /// # Cost
    /// A call from another thread is handed over twice more than one of the endpoint's own: two wake-ups, where
    /// nobody spins, and some allocations. [`Config::spin_ns_max`](crate::Config::spin_ns_max) is the thread's.
    pub fn start_progress(mut self) -> Result<Progress, EndpointError> {
        let (stopper, inbox) = (self.stopper(), Arc::clone(self.inbox()));
        inbox.open();
        let caller = Caller { inbox: Arc::clone(&inbox) };
        let thread = thread::Builder::new().name("rpc-progress".into());
        let thread = thread.spawn(move || {
            // However it ends: whoever has called is told.
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
    /// What other threads call through.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// What ends it, from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Whether its thread has ended: by a [`Stopper`], a handler, or a peer that may.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and gives the endpoint back. Calls that are under way through [`Caller`]s end with
    /// [`CallError::Ended`].
    ///
    /// # Panics
    /// When something that ran in the thread has panicked, other than a handler.
    ///
    /// # Blocking
    /// Until the handler that it is in has returned.
    #[must_use]
    pub fn stop(mut self) -> Endpoint {
        self.stopper.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(endpoint)) => {
                // Where the thread had ended already, nobody has seen it.
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
            // A panic of what ran in it has been printed.
            let _ = thread.join();
        }
    }
}

/// Calls through an endpoint that a thread of its own drives: from any thread, and from any fiber of
/// `handover_fiber`, whose worker runs others meanwhile. A handler that runs in the endpoint's own thread would wait
/// for itself: it has its [`Context`](crate::Context).
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
    /// Calls, and waits for the result.
    ///
    /// # Errors
    /// As [`Calling::call`](crate::Calling::call), and [`CallError::Ended`].
    ///
    /// # Blocking
    /// Until the result is there, the connection is gone, or the endpoint's thread has ended.
    pub fn call<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<R, CallError> {
        self.start(peer, method, arguments)?.wait()
    }

    /// As [`call`](Self::call), for so long at most.
    ///
    /// # Errors
    /// As [`call`](Self::call), and [`CallError::Deadline`].
    ///
    /// # Blocking
    /// For `timeout` at most, and as long as a handler keeps the endpoint's thread.
    pub fn call_within<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        timeout: Duration,
    ) -> Result<R, CallError> {
        self.start_within(peer, method, arguments, timeout)?.wait()
    }

    /// Calls, and does not wait.
    ///
    /// # Errors
    /// [`CallError::BadArguments`], [`CallError::Ended`], and [`CallError::Full`] where `calls_max` others wait for the
    /// endpoint's thread; whatever else may be wrong comes in place of the result.
    pub fn start<A: Serialize + ?Sized, R>(
        &self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<Pending<R>, CallError> {
        self.post(peer, method, arguments, u64::MAX)
    }

    /// As [`start`](Self::start); it has ended with [`CallError::Deadline`] when so much time has passed.
    ///
    /// # Errors
    /// As [`start`](Self::start).
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

    /// Has that done in the endpoint's thread, between handlers: to connect ([`Moment::connect`]), to move memory
    /// ([`Bulk`](crate::Bulk)), to start timers ([`Timing`](crate::Timing)). Requests wait meanwhile.
    ///
    /// # Errors
    /// [`CallError::Ended`], and [`CallError::Full`] as [`start`](Self::start).
    ///
    /// # Blocking
    /// Until it is done.
    pub fn run<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Moment<'_>) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (promise, answer) = promise();
        self.inbox.post(Post::Errand(Box::new(move |moment| {
            promise.keep(Ok(Mutex::new(Some(errand(moment)))));
        })))?;
        match answer.came.wait() {
            // Nobody else takes it.
            Ok(came) => locked(came).take().ok_or(CallError::Ended),
            Err(error) => Err(error.clone()),
        }
    }
}

/// A call that was started by a [`Caller`]. Dropping it drops the result; the peer is not told, as by
/// [`cancel`](Self::cancel).
///
/// It is a future, too, for any executor:
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
    /// As [`Caller::call`].
    ///
    /// # Blocking
    /// As [`Caller::call`]; a fiber's worker goes on with others.
    pub fn wait(self) -> Result<R, CallError> {
        read(self.answer.came.wait())
    }

    /// The result, if it is there.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn test(&self) -> Option<Result<R, CallError>> {
        self.answer.came.test().map(read)
    }
}

impl<R> Pending<R> {
    /// Gives it up: where no result has come, the peer is told that nobody waits for it, and a request that has not
    /// begun does not begin.
    pub fn cancel(self) {
        if self.answer.came.test().is_some() {
            return;
        }
        let answer = Arc::clone(&self.answer);
        // Where nobody drives the endpoint any more, all is given up already.
        let _ = self.inbox.post_end(Post::Call(Box::new(move |state| {
            // Posts come in their order: it was started by now, or refused.
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
        // Behind this lock: whoever sets the value next wakes it.
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

/// Where an answer will be.
pub(crate) struct Answer<T = Vec<u8>> {
    came: Eventual<Result<T, CallError>>,
    /// Who is to be told, where a future waits.
    waker: Mutex<Option<Waker>>,
    /// The call's number once it is under way; the endpoint's thread writes it and reads it.
    call: AtomicU64,
}

impl<T> Answer<T> {
    fn set(&self, answer: Result<T, CallError>) {
        // It is set once: when the promise is kept, or dropped.
        let _ = self.came.set(answer);
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Somebody waits for that. It is kept, or broken when it is dropped.
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

/// What other threads want of an endpoint.
#[derive(Default)]
pub(crate) struct Others {
    /// Not looked at yet.
    pub(crate) posts: Vec<Post>,
    /// To be done between handlers.
    pub(crate) errands: VecDeque<Callback>,
    /// Under way for them, by their numbers.
    calls: HashMap<u64, Awaited>,
}

/// A call for which somebody waits elsewhere, and the timer of its deadline.
type Awaited = (CallId, Promise, Option<Timer>);

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Others {
    /// Whether none of them waits for a call.
    #[inline]
    pub(crate) fn await_none(&self) -> bool {
        self.calls.is_empty()
    }
}

impl State {
    /// Does what can be done at once. Whether there was anything.
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

    /// The answer to a call has come, for whom another thread may wait.
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

    /// Calls of a peer that is gone are over.
    #[cold]
    pub(super) fn keep_promises(&mut self) {
        let done = |it: &&Awaited| self.calls.is_done(it.0) == Some(true);
        let calls: Vec<_> = self.others.calls.values().filter(done).map(|it| it.0).collect();
        for id in calls {
            self.keep_promise(id.word());
        }
    }

    /// Whoever waited for that call does not any more.
    fn cancel_for(&mut self, call: u64) {
        if let Some(awaited) = self.others.calls.remove(&call) {
            self.abandon(awaited);
        }
    }

    /// Nobody drives this endpoint any more for those who wait elsewhere.
    pub(super) fn break_promises(&mut self) {
        self.others.errands.clear();
        for awaited in std::mem::take(&mut self.others.calls).into_values() {
            self.abandon(awaited);
        }
    }

    /// Gives it up. Its promise is broken by its end, behind that.
    fn abandon(&mut self, (id, _promise, timer): Awaited) {
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        self.give_up(id);
    }
}
