//! Calling others: the same for an endpoint and for a handler that runs in it.

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

    /// Whoever can turn the wheel.
    pub trait Turning {
        /// All but the handlers.
        fn state(&mut self) -> &mut State;
        /// Turns until `done`, or that time has come: false.
        fn turn_until(
            &mut self,
            deadline_ns: u64,
            done: impl FnMut(&mut State, bool) -> bool,
        ) -> bool;
    }
}

/// The procedure that ends serving, where that is allowed.
pub(crate) const STOP: &str = "handover/stop";

/// A call under way, whose result will be an `R`.
///
/// It is a number: dropping it ends nothing. A call that is neither waited for nor given up keeps its place
/// among `calls_max`.
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

/// Calling peers. While it waits, an [`Endpoint`](crate::Endpoint) serves its own peers, in this thread; a
/// handler's [`Context`](crate::Context) leaves them for later.
///
/// # Cost
/// A call that has been made before allocates nothing, if its arguments and its result do not.
pub trait Calling: sealed::Turning {
    /// Calls, and waits for the result, however long it takes; a peer that dies ends it.
    ///
    /// # Errors
    /// [`CallError`] tells what the peer refused from what went wrong on the way.
    ///
    /// # Blocking
    /// Until the result is there or the connection is gone.
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

    /// Calls, and waits for the result, for so long at most; afterwards the peer is told that it is not
    /// wanted any more.
    ///
    /// # Errors
    /// As [`call`](Self::call), and [`CallError::Deadline`].
    ///
    /// # Blocking
    /// For `timeout` at most.
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

    /// Calls a procedure of bytes ([`register_bytes`](crate::Endpoint::register_bytes)), waits, and reads the
    /// result where it stands: nothing is encoded, and no result is copied for it.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Blocking
    /// Until the result is there or the connection is gone.
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

    /// As [`call_bytes`](Self::call_bytes), for so long at most.
    ///
    /// # Errors
    /// As [`call_within`](Self::call_within).
    ///
    /// # Blocking
    /// For `timeout` at most.
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

    /// Calls, and does not wait.
    ///
    /// # Errors
    /// [`CallError`] when it cannot be sent; nothing is under way then.
    #[inline]
    fn start<A: Serialize + ?Sized, R>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<Call<R>, CallError> {
        start(self, peer, method, arguments, u64::MAX)
    }

    /// Calls, and does not wait; the deadline counts from now.
    ///
    /// # Errors
    /// As [`start`](Self::start).
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
    /// As [`call`](Self::call); [`CallError::Stale`] for one that was waited for before.
    ///
    /// # Blocking
    /// Until the result is there, the connection is gone, or the call's deadline has passed.
    #[inline]
    fn wait<R: DeserializeOwned>(&mut self, call: Call<R>) -> Result<R, CallError> {
        waited(self, call.id, decoded)
    }

    /// The call's result if it is there, after one look. A deadline that has passed is a result.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
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

    /// Waits until one of these has a result, takes it out of the list, and says what stood where. `None`
    /// for an empty list.
    ///
    /// # Blocking
    /// Until one has a result or has passed its deadline.
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

    /// Gives a call up. The peer is told, and drops it if it has not begun.
    fn cancel<R>(&mut self, call: Call<R>) {
        self.state().give_up(call.id);
    }

    /// Calls without an answer. Whether it arrived, and what became of it, is not known.
    ///
    /// # Errors
    /// [`CallError`] when it cannot be sent.
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

    /// Whether that peer is connected, as far as is known.
    fn is_connected(&mut self, peer: PeerKey) -> bool {
        self.state().is_connected(peer)
    }

    /// Ends that connection. What the kernel or shared memory had room for before is read by the peer; what still
    /// waits here, as the peer is slow to read, is lost. Its calls fail on both sides. False when it was gone.
    fn disconnect(&mut self, peer: PeerKey) -> bool {
        self.state().disconnect(peer)
    }

    /// Tells the peer to stop serving, and waits until it has heard. It must allow that (`remote_stop` in its
    /// [`Config`](crate::Config)).
    ///
    /// # Errors
    /// As [`call`](Self::call): [`CallError::Unknown`] where it does not allow it.
    ///
    /// # Blocking
    /// As [`call`](Self::call).
    fn stop_peer(&mut self, peer: PeerKey) -> Result<(), CallError> {
        self.call_bytes(peer, Method::named(STOP), &[], |_| ())
    }
}

impl<T: sealed::Turning + ?Sized> Calling for T {}

/// The moment that lies so far ahead.
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
    // Only what refuses to be written, or does not know its length, fails.
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

/// What a call came to.
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

/// Connects, and turns until it is settled.
pub(super) fn connect(
    turning: &mut (impl sealed::Turning + ?Sized),
    address: &Address,
) -> Result<PeerKey, EndpointError> {
    let greeting = turning.state().knock(address)?;
    let timeout_ms = turning.state().config.handshake_timeout_ms;
    let mut settled = None;
    turning.turn_until(u64::MAX, |state, _| {
        // An endpoint that spins looks at the kernel now and then only.
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
