//! Calls to peers, from an endpoint and from a handler that runs in it.

use crate::clock;
use crate::engine::{CallId, Outcome, PeerKey, Refusal};
use crate::{Address, CallError, EndpointError, Failure, Gone, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

pub(crate) mod sealed {
    use crate::drive::state::State;

    /// Owner of an event loop.
    pub trait Turning {
        /// Returns the state without the handlers.
        fn state(&mut self) -> &mut State;
        /// Runs the event loop until `done` returns `true`; returns `false` if the deadline passes
        /// first.
        fn turn_until(
            &mut self,
            deadline_ns: u64,
            done: impl FnMut(&mut State, bool) -> bool,
        ) -> bool;
    }
}

/// Name of the procedure that ends [`serve`](crate::Endpoint::serve), if `remote_stop` allows it.
pub(crate) const STOP: &str = "handover/stop";

/// Call under way, with a result of type `R`.
///
/// It is only a number: dropping it does not end the call. A call that is neither waited for nor
/// cancelled keeps its place among `calls_max`.
pub struct Call<R> {
    pub(crate) id: CallId,
    result: PhantomData<fn() -> R>,
}

impl<R> Clone for Call<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Call<R> {}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.id).finish()
    }
}

impl<R> PartialEq for Call<R> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<R> Eq for Call<R> {}

/// Calls to peers. While a method waits, an [`Endpoint`](crate::Endpoint) handles its own peers'
/// requests in this thread; a handler's [`Context`](crate::Context) puts them off.
///
/// # Cost
/// A call does not allocate if it has been made before, unless its arguments or its result do.
pub trait Calling: sealed::Turning {
    /// Calls a procedure, and waits for the result without a limit. If the peer dies, the call ends
    /// with an error.
    ///
    /// # Errors
    /// [`CallError`] distinguishes refusals of the peer from failures of the connection.
    ///
    /// # Blocking
    /// Blocks until the result arrives or the connection ends.
    #[inline]
    fn call<A: Serialize + ?Sized, R: DeserializeOwned>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<R, CallError> {
        let call = self.start(peer, method, arguments)?;
        self.wait(call)
    }

    /// Calls a procedure, and waits for the result for `timeout` at most. At the deadline, the call
    /// is cancelled at the peer.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call), and [`CallError::Deadline`].
    ///
    /// # Blocking
    /// Blocks for `timeout` at most, and as long as a handler runs.
    fn call_within<A: Serialize + ?Sized, R: DeserializeOwned>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        timeout: Duration,
    ) -> Result<R, CallError> {
        let call = self.start_within(peer, method, arguments, timeout)?;
        self.wait(call)
    }

    /// Calls a procedure of bytes ([`register_bytes`](crate::Endpoint::register_bytes)), waits, and
    /// passes the result to `read` without copying it: nothing is encoded or decoded.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call).
    ///
    /// # Blocking
    /// Blocks until the result arrives or the connection ends.
    #[inline]
    fn call_bytes<T>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, CallError> {
        let id = self.state().start(peer, method.word(), arguments, u64::MAX)?;
        waited(self, id, |result| Ok(read(result)))
    }

    /// Calls a procedure of bytes, and waits for `timeout` at most; see
    /// [`call_bytes`](Self::call_bytes).
    ///
    /// # Errors
    /// The errors of [`call_within`](Self::call_within).
    ///
    /// # Blocking
    /// Blocks as [`call_within`](Self::call_within) does.
    fn call_bytes_within<T>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &[u8],
        timeout: Duration,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, CallError> {
        let id = self.state().start(peer, method.word(), arguments, after(timeout))?;
        waited(self, id, |result| Ok(read(result)))
    }

    /// Starts a call without waiting for the result.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be sent; then no call is under way.
    #[inline]
    fn start<A: Serialize + ?Sized, R>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<Call<R>, CallError> {
        start(self, peer, method, arguments, u64::MAX)
    }

    /// Starts a call with a deadline, `timeout` from now, without waiting for the result.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    fn start_within<A: Serialize + ?Sized, R>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
        timeout: Duration,
    ) -> Result<Call<R>, CallError> {
        start(self, peer, method, arguments, after(timeout))
    }

    /// Waits for a call's result.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call); [`CallError::Stale`] if the call was waited for before.
    ///
    /// # Blocking
    /// Blocks until the result arrives, the connection ends, or the call's deadline passes.
    #[inline]
    fn wait<R: DeserializeOwned>(&mut self, call: Call<R>) -> Result<R, CallError> {
        waited(self, call.id, decoded)
    }

    /// Runs one turn of the event loop, and returns the call's result if it has arrived. A passed
    /// deadline is a result.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    fn test<R: DeserializeOwned>(&mut self, call: Call<R>) -> Option<Result<R, CallError>> {
        let id = call.id;
        self.turn_until(0, |_, _| true);
        match self.state().calls.is_done(id) {
            None => Some(Err(CallError::Stale)),
            Some(true) => Some(finish(self, call.id, decoded)),
            Some(false) => {
                let deadline_ns = self.state().calls.deadline_ns(id).unwrap_or(u64::MAX);
                if deadline_ns == u64::MAX || clock::now_ns() < deadline_ns {
                    return None;
                }
                self.state().give_up(id);
                Some(Err(CallError::Deadline))
            }
        }
    }

    /// Waits until one of the calls has a result, removes that call from the list, and returns its
    /// index and its result. Returns `None` for an empty list.
    ///
    /// # Blocking
    /// Blocks until one call has a result or has passed its deadline.
    fn wait_any<R: DeserializeOwned>(
        &mut self,
        calls: &mut Vec<Call<R>>,
    ) -> Option<(usize, Result<R, CallError>)> {
        if calls.is_empty() {
            return None;
        }
        let deadline_ns = |state: &mut crate::drive::state::State, call: &Call<R>| {
            state.calls.deadline_ns(call.id).unwrap_or(0)
        };
        let state = self.state();
        let first_ns = calls.iter().map(|call| deadline_ns(state, call)).min().unwrap_or(0);
        let mut found = None;
        self.turn_until(first_ns, |state, _| {
            found = calls.iter().position(|call| state.calls.is_done(call.id) != Some(false));
            found.is_some()
        });
        let state = self.state();
        let at =
            found.or_else(|| calls.iter().position(|it| deadline_ns(state, it) == first_ns))?;
        let call = calls.remove(at);
        let result = match self.state().calls.is_done(call.id) {
            Some(false) => {
                self.state().give_up(call.id);
                Err(CallError::Deadline)
            }
            Some(true) => finish(self, call.id, decoded),
            None => Err(CallError::Stale),
        };
        Some((at, result))
    }

    /// Cancels a call. The peer is told, and drops the request if its handler has not begun.
    fn cancel<R>(&mut self, call: Call<R>) {
        self.state().give_up(call.id);
    }

    /// Sends a one-way call, which has no answer. Its arrival and its outcome are not reported.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be sent.
    fn send<A: Serialize + ?Sized>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<(), CallError> {
        let state = self.state();
        let bytes = encoded(std::mem::take(&mut state.scratch), arguments)?;
        let sent = state.send_one_way(peer, method.word(), &bytes);
        state.scratch = bytes;
        sent
    }

    /// Returns `true` if that peer is connected, as far as this side knows.
    fn is_connected(&mut self, peer: PeerKey) -> bool {
        self.state().is_connected(peer)
    }

    /// Ends the connection to that peer. The peer still reads what the kernel or shared memory had
    /// room for; what is still queued on this side is lost. Calls under way fail on both sides.
    /// Returns `false` if the peer was not connected.
    fn disconnect(&mut self, peer: PeerKey) -> bool {
        self.state().disconnect(peer)
    }

    /// Tells the peer to stop serving, and waits for its answer. The peer must allow this with
    /// `remote_stop` in its [`Config`](crate::Config).
    ///
    /// # Errors
    /// The errors of [`call`](Self::call); [`CallError::Unknown`] if the peer does not allow this.
    ///
    /// # Blocking
    /// Blocks as [`call`](Self::call) does.
    fn stop_peer(&mut self, peer: PeerKey) -> Result<(), CallError> {
        self.call_bytes(peer, Method::named(STOP), &[], |_| ())
    }
}

impl<T: sealed::Turning + ?Sized> Calling for T {}

/// Returns the time that lies `timeout` ahead, in ns.
pub(crate) fn after(timeout: Duration) -> u64 {
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    clock::now_ns().saturating_add(timeout_ns)
}

#[inline]
pub(super) fn encoded<A: Serialize + ?Sized>(
    mut into: Vec<u8>,
    value: &A,
) -> Result<Vec<u8>, CallError> {
    into.clear();
    // Encoding fails only if a `Serialize` implementation fails, or does not know its length.
    postcard::to_extend(value, into).map_err(|_| CallError::BadArguments)
}

#[inline]
fn start<R>(
    turning: &mut (impl sealed::Turning + ?Sized),
    peer: PeerKey,
    method: Method,
    arguments: &(impl Serialize + ?Sized),
    deadline_ns: u64,
) -> Result<Call<R>, CallError> {
    let state = turning.state();
    let bytes = encoded(std::mem::take(&mut state.scratch), arguments)?;
    let id = state.start(peer, method.word(), &bytes, deadline_ns);
    state.scratch = bytes;
    Ok(Call { id: id?, result: PhantomData })
}

#[inline]
fn waited<T>(
    turning: &mut (impl sealed::Turning + ?Sized),
    id: CallId,
    read: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let deadline_ns = turning.state().calls.deadline_ns(id).ok_or(CallError::Stale)?;
    if turning.state().answered_in_memory(id) {
        return read(&turning.state().body);
    }
    if !turning.turn_until(deadline_ns, |state, _| state.calls.is_done(id) != Some(false)) {
        turning.state().give_up(id);
        return Err(CallError::Deadline);
    }
    finish(turning, id, read)
}

#[inline]
pub(super) fn decoded<R: DeserializeOwned>(result: &[u8]) -> Result<R, CallError> {
    postcard::from_bytes(result).map_err(|_| CallError::BadResult)
}

#[inline]
fn finish<T>(
    turning: &mut (impl sealed::Turning + ?Sized),
    id: CallId,
    read: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let taken = turning.state().calls.take(id, |outcome, body| told(outcome, body, read));
    taken.unwrap_or(Err(CallError::Stale))
}

/// Converts the outcome of a call to its result.
#[inline]
pub(super) fn told<T>(
    outcome: Outcome,
    body: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    match outcome {
        Outcome::Result => read(body),
        Outcome::Refused(refusal) => Err(refused(refusal, body)),
        Outcome::Gone(gone) => Err(gone.into()),
    }
}

/// Connects, and runs the event loop until the handshake is settled.
pub(super) fn connect(
    turning: &mut (impl sealed::Turning + ?Sized),
    address: &Address,
) -> Result<PeerKey, EndpointError> {
    let greeting = turning.state().knock(address)?;
    let timeout_ms = turning.state().config.handshake_timeout_ms;
    let mut settled = None;
    turning.turn_until(u64::MAX, |state, _| {
        // A spinning endpoint polls epoll only now and then.
        state.look(Some(0));
        settled = state.settled(greeting);
        settled.is_some()
    });
    let place = address.to_string();
    match settled {
        Some(Ok(peer)) => Ok(peer),
        Some(Err(Gone::Silent)) | None => Err(EndpointError::Silent { place, timeout_ms }),
        Some(Err(why)) => Err(EndpointError::Handshake { place, why }),
    }
}

#[cold]
fn refused(refusal: Refusal, body: &[u8]) -> CallError {
    match refusal {
        Refusal::Unknown => CallError::Unknown,
        Refusal::BadArguments => CallError::BadArguments,
        Refusal::Panicked => CallError::Panicked,
        Refusal::TooLong => CallError::ResultTooLong,
        Refusal::Full => CallError::PeerFull,
        Refusal::Unsent => CallError::ResultUnsent,
        Refusal::Failed => {
            postcard::from_bytes::<Failure>(body).map_or(CallError::BadResult, CallError::Failed)
        }
    }
}
