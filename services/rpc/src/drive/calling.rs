//! Calls to peers, from an endpoint and from a handler that runs in its thread.

use super::event_loop::{EventLoop, sealed};
use crate::clock::{self, after};
use crate::engine::{CallId, PeerKey};
use crate::{Address, CallError, CloseReason, EndpointError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Name of the procedure that stops [`serve`](crate::Endpoint::serve), if `remote_stop` allows it.
pub(crate) const STOP_METHOD_NAME: &str = "handover/stop";

/// Handle of a call that is under way, with a result of type `R`.
///
/// It is only a number: dropping it does not end the call. A call that is neither waited for nor
/// cancelled still counts towards `calls_max`.
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
/// requests in this thread; a handler's [`Context`](crate::Context) defers them.
///
/// # Cost
/// A call does not allocate if it has been made before, unless its arguments or its result do.
pub trait Calling: sealed::Driver {
    /// Calls a procedure, and waits for the result without a time limit. If the peer dies, the call
    /// fails.
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

    /// Calls a procedure of plain bytes, and passes the result to `read` without a copy. Waits for
    /// the result. Nothing is encoded or decoded. The peer has registered the procedure with
    /// [`register_bytes`](crate::Endpoint::register_bytes).
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
        let id = self.event_loop().start_call(peer, method.word(), arguments, u64::MAX)?;
        wait_for(self, id, |result| Ok(read(result)))
    }

    /// Calls a procedure of plain bytes, and waits for `timeout` at most; see
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
        let id = self.event_loop().start_call(peer, method.word(), arguments, after(timeout))?;
        wait_for(self, id, |result| Ok(read(result)))
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

    /// Waits for the result of a call that was started, and returns it.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call); [`CallError::Stale`] if the call was waited for before.
    ///
    /// # Blocking
    /// Blocks until the result arrives, the connection ends, or the call's deadline passes.
    #[inline]
    fn wait<R: DeserializeOwned>(&mut self, call: Call<R>) -> Result<R, CallError> {
        wait_for(self, call.id, decode_result)
    }

    /// Runs one iteration of the event loop, and returns the call's result. Returns `None` if the
    /// result has not arrived and the call's deadline has not passed.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    fn test<R: DeserializeOwned>(&mut self, call: Call<R>) -> Option<Result<R, CallError>> {
        let id = call.id;
        self.event_loop().poll_if_due_before_iteration();
        self.run_until(0, |_, _| true);
        match self.event_loop().calls.is_done(id) {
            None | Some(true) => Some(take_result(self, call.id, decode_result)),
            Some(false) => {
                let deadline_ns = self.event_loop().calls.deadline_ns(id).unwrap_or(u64::MAX);
                if deadline_ns == u64::MAX || clock::now_ns() < deadline_ns {
                    return None;
                }
                self.event_loop().cancel_call(id);
                Some(Err(CallError::Deadline))
            }
        }
    }

    /// Waits until one of the calls has a result. Removes the call from the list, and returns its
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
        let deadline_ns = |event_loop: &mut EventLoop, call: &Call<R>| {
            event_loop.calls.deadline_ns(call.id).unwrap_or(0)
        };
        let event_loop = self.event_loop();
        let first_ns = calls.iter().map(|call| deadline_ns(event_loop, call)).min().unwrap_or(0);
        let mut found = None;
        self.run_until(first_ns, |event_loop, _| {
            found = calls.iter().position(|call| event_loop.calls.is_done(call.id) != Some(false));
            found.is_some()
        });
        let event_loop = self.event_loop();
        let at = found
            .or_else(|| calls.iter().position(|it| deadline_ns(event_loop, it) == first_ns))?;
        let call = calls.remove(at);
        let result = match self.event_loop().calls.is_done(call.id) {
            Some(false) => {
                self.event_loop().cancel_call(call.id);
                Err(CallError::Deadline)
            }
            None | Some(true) => take_result(self, call.id, decode_result),
        };
        Some((at, result))
    }

    /// Cancels a call. The peer is notified, and drops the request if its handler has not started.
    fn cancel<R>(&mut self, call: Call<R>) {
        self.event_loop().cancel_call(call.id);
    }

    /// Sends a one-way call, which has no answer. Its arrival and its outcome are not reported.
    ///
    /// When this endpoint disconnects, the peer drops the calls that still wait there, for a
    /// running handler or in the pool. Requests are handled in the order in which they were sent,
    /// except in the pool: the result of a later [`call`](Self::call) shows that the one-way calls
    /// before it were handled.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be sent.
    fn send<A: Serialize + ?Sized>(
        &mut self,
        peer: PeerKey,
        method: Method,
        arguments: &A,
    ) -> Result<(), CallError> {
        let event_loop = self.event_loop();
        let bytes = encode_arguments(std::mem::take(&mut event_loop.arguments_buffer), arguments)?;
        let sent = event_loop.send_one_way(peer, method.word(), &bytes);
        event_loop.arguments_buffer = bytes;
        sent
    }

    /// Returns `true` if that peer is connected, as far as this endpoint knows.
    fn is_connected(&mut self, peer: PeerKey) -> bool {
        self.event_loop().peers.is_connected(peer)
    }

    /// Closes the connection to that peer; returns `false` if the peer was not connected. The peer
    /// still reads what was already sent to the kernel or shared memory; what is still queued at
    /// this endpoint is lost. If further bytes of the peer arrive later over TCP, the peer's kernel
    /// may discard what the peer has not read by then. Calls under way fail at both ends.
    fn disconnect(&mut self, peer: PeerKey) -> bool {
        self.event_loop().disconnect(peer)
    }

    /// Requests the peer to stop serving, and waits for its reply. The peer must allow this with
    /// `remote_stop` in its [`Config`](crate::Config).
    ///
    /// # Errors
    /// The errors of [`call`](Self::call); [`CallError::Unknown`] if the peer does not allow this.
    ///
    /// # Blocking
    /// Blocks as [`call`](Self::call) does.
    fn stop_peer(&mut self, peer: PeerKey) -> Result<(), CallError> {
        self.call_bytes(peer, Method::new(STOP_METHOD_NAME), &[], |_| ())
    }
}

impl<T: sealed::Driver + ?Sized> Calling for T {}

#[inline]
pub(super) fn encode_arguments<A: Serialize + ?Sized>(
    mut into: Vec<u8>,
    value: &A,
) -> Result<Vec<u8>, CallError> {
    into.clear();
    // Encoding fails only if a `Serialize` implementation fails, or does not know its length.
    postcard::to_extend(value, into).map_err(|_| CallError::BadArguments)
}

/// Encodes the arguments, and starts a call.
#[inline]
fn start<R>(
    driver: &mut (impl sealed::Driver + ?Sized),
    peer: PeerKey,
    method: Method,
    arguments: &(impl Serialize + ?Sized),
    deadline_ns: u64,
) -> Result<Call<R>, CallError> {
    let event_loop = driver.event_loop();
    let bytes = encode_arguments(std::mem::take(&mut event_loop.arguments_buffer), arguments)?;
    let id = event_loop.start_call(peer, method.word(), &bytes, deadline_ns);
    event_loop.arguments_buffer = bytes;
    Ok(Call { id: id?, result: PhantomData })
}

/// Waits for the result of a call, and decodes it with `read`.
#[inline]
fn wait_for<T>(
    driver: &mut (impl sealed::Driver + ?Sized),
    id: CallId,
    read: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let deadline_ns = driver.event_loop().calls.deadline_ns(id).ok_or(CallError::Stale)?;
    if driver.event_loop().receive_answer_from_shared_memory(id) {
        return read(&driver.event_loop().body);
    }
    if !driver.run_until(deadline_ns, |event_loop, _| event_loop.calls.is_done(id) != Some(false)) {
        driver.event_loop().cancel_call(id);
        return Err(CallError::Deadline);
    }
    take_result(driver, id, read)
}

#[inline]
pub(super) fn decode_result<R: DeserializeOwned>(result: &[u8]) -> Result<R, CallError> {
    postcard::from_bytes(result).map_err(|_| CallError::BadResult)
}

/// Removes a completed call, and decodes its result with `read`. Fails with [`CallError::Stale`] if
/// the call is not in the table.
#[inline]
fn take_result<T>(
    driver: &mut (impl sealed::Driver + ?Sized),
    id: CallId,
    read: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let calls = &mut driver.event_loop().calls;
    let taken = calls.take_completed(id, |outcome, body| outcome.into_result(body, read));
    taken.unwrap_or(Err(CallError::Stale))
}

/// Connects, and runs the event loop until the connection is established or has failed.
pub(super) fn connect_and_wait(
    driver: &mut (impl sealed::Driver + ?Sized),
    address: &Address,
) -> Result<PeerKey, EndpointError> {
    let number = driver.event_loop().start_connecting(address)?;
    let mut result = None;
    driver.run_until(u64::MAX, |event_loop, _| {
        // A spinning endpoint polls epoll only now and then.
        event_loop.poll(Some(0));
        result = event_loop.handshakes.take_result(number);
        result.is_some()
    });
    let result = result.unwrap_or_else(|| unreachable!("the event loop returned without a result"));
    let peer = result?;
    if driver.event_loop().is_open(peer) {
        return Ok(peer);
    }
    wait_until_open(driver, peer, address)?;
    Ok(peer)
}

/// Waits until a new peer can receive frames. Over UCX, the ends first exchange addresses.
#[cold]
fn wait_until_open(
    driver: &mut (impl sealed::Driver + ?Sized),
    peer: PeerKey,
    address: &Address,
) -> Result<(), EndpointError> {
    let event_loop = driver.event_loop();
    let deadline_ns = event_loop.handshake_deadline_ns();
    let timeout = event_loop.config.connections.handshake_timeout;
    // A handler that runs meanwhile may connect too.
    let outer = event_loop.opening_peer.replace((peer, None));
    let is_in_time = driver.run_until(deadline_ns, |event_loop, _| {
        event_loop.poll(Some(0));
        event_loop.is_open(peer) || !event_loop.peers.is_connected(peer)
    });
    let event_loop = driver.event_loop();
    let closed = std::mem::replace(&mut event_loop.opening_peer, outer);
    let address = address.to_string();
    match closed.and_then(|it| it.1) {
        Some(why) => Err(EndpointError::Handshake { address, why }),
        None if event_loop.is_open(peer) => Ok(()),
        // Closed while a callback connected to another peer, so that the reason was not recorded.
        None if is_in_time => {
            Err(EndpointError::Handshake { address, why: CloseReason::ClosedByPeer })
        }
        None => {
            event_loop.disconnect(peer);
            Err(EndpointError::HandshakeTimeout { address, timeout })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Endpoint};

    #[test]
    fn peer_that_was_closed_while_another_one_opened_is_an_error() {
        let mut endpoint = Endpoint::new(Config::default()).expect("create an endpoint");
        let address = "ucx://127.0.0.1:1".parse().expect("parse the address");
        let closed = PeerKey { slot: 0, generation: 0 };
        let waited = wait_until_open(&mut endpoint, closed, &address);
        let Err(EndpointError::Handshake { why, .. }) = waited else {
            panic!("connected to a closed peer: {waited:?}")
        };
        assert_eq!(why, CloseReason::ClosedByPeer);
    }
}
