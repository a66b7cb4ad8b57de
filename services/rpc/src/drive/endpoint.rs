//! Endpoint: listens, connects, calls and serves in one thread.

use super::call_monitor::CallRole::Server;
use super::calling::{self, STOP_METHOD_NAME};
use super::dump::{Dump, Stats};
use super::event_loop::{CallbackContext, CallbackInbox, EventLoop, RequestSink, sealed};
#[cfg(feature = "monitoring")]
use super::monitor::{CallReport, Monitor, ObservedCall};
use super::pool::{Pool, PoolJob, PooledHandler, catch_panic};
#[cfg(feature = "signal-dump")]
use super::signal::SignalDump;
use super::timing::ShutdownCallbacks;
use crate::clock::after;
use crate::engine::{FrameHeader, FrameKind, Methods, ONE_WAY_CALL_NUMBER, PeerKey, Refusal};
use crate::stage;
use crate::{Address, Config, EndpointError, Failure, RegisterError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

pub use crate::engine::PeerKey as Peer;

/// Handler that runs in the endpoint's thread, and appends its result to the vector.
type InlineHandler = dyn FnMut(&mut Context<'_>, &[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send;

/// Handler of a procedure, for the endpoint's thread or for the pool.
enum Handler {
    Inline(Box<InlineHandler>),
    Pooled(Arc<PooledHandler>),
}

/// Handlers of an endpoint's procedures.
struct Handlers {
    registered: Methods<Handler>,
    /// Buffer for the encoded result of a handler, reused for every request.
    answer: Vec<u8>,
}

impl RequestSink for Handlers {
    const CAN_HANDLE_DEFERRED: bool = true;

    #[inline]
    fn handle_request(
        &mut self,
        event_loop: &mut EventLoop,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    ) {
        let is_one_way = header.kind == FrameKind::OneWay;
        let Self { registered, answer } = self;
        answer.clear();
        let handler = registered.get_mut(header.method);
        if handler.is_some() {
            let call = if is_one_way { ONE_WAY_CALL_NUMBER } else { header.call };
            event_loop.call_monitor.record_start(Server, peer, call, header.method, body.len());
        }
        let outcome = match handler {
            None => Err(Refusal::Unknown),
            Some(Handler::Inline(handler)) => {
                stage::record_dispatched(header.call);
                let mut context = Context { event_loop, peer };
                catch_panic(|| handler(&mut context, body, answer))
            }
            Some(Handler::Pooled(work)) if event_loop.config.pool.threads == 0 => {
                stage::record_dispatched(header.call);
                catch_panic(|| work(body, answer))
            }
            Some(Handler::Pooled(work)) => {
                stage::record_dispatched(header.call);
                let (work, call) = (Arc::clone(work), header.call);
                let job = PoolJob { work, arguments: body.to_vec(), peer, call, is_one_way };
                match event_loop.pool.as_ref().map(|pool| pool.push_job(job)) {
                    Some(Ok(())) if is_one_way => Ok(()),
                    Some(Ok(())) => return,
                    Some(Err(_)) | None => Err(Refusal::Full),
                }
            }
        };
        if is_one_way {
            event_loop.record_one_way_end(peer, outcome);
        } else {
            event_loop.send_response(peer, header.call, outcome, answer);
        }
    }
}

/// Access to the endpoint for a running handler. The handler may call peers, including its caller.
/// See [`Calling`](crate::Calling).
///
/// While a handler waits, answers are received, and requests are deferred until it has returned.
/// The deferred requests of a peer that disconnects meanwhile are dropped.
#[derive(Debug)]
pub struct Context<'a> {
    event_loop: &'a mut EventLoop,
    peer: PeerKey,
}

impl Context<'_> {
    /// Returns the peer that made the call.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Stops [`Endpoint::serve`] once this handler's result was sent. A peer can thus shut the
    /// endpoint down. A result that the peer does not read within a second may be lost.
    pub fn stop(&mut self) {
        self.event_loop.inbox.request_stop();
    }
}

impl sealed::Driver for Context<'_> {
    fn event_loop(&mut self) -> &mut EventLoop {
        self.event_loop
    }
}

/// Endpoint that listens, connects, calls ([`Calling`](crate::Calling)) and serves. One thread at a
/// time uses it.
///
/// It has no locks in the path of a call. It does nothing while none of its methods runs: messages
/// wait. Two endpoints of one process are peers like any others.
///
/// ```
/// use handover_rpc::{Address, Calling, Config, Endpoint, Method};
///
/// let mut server = Endpoint::new(Config::default())?;
/// let address = server.listen(&"sm://".parse()?)?;
/// server.register("double", 0, |_, number: u64| Ok(2 * number))?;
/// let stopper = server.stopper();
/// let thread = std::thread::spawn(move || server.serve());
///
/// let mut client = Endpoint::new(Config::default())?;
/// let peer = client.connect(&address)?;
/// let doubled: u64 = client.call(peer, Method::new("double"), &21u64)?;
/// assert_eq!(doubled, 42);
/// stopper.stop();
/// thread.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    event_loop: EventLoop,
    handlers: Handlers,
    /// Callbacks that run when the endpoint is dropped. Must be the last field, so that it is
    /// dropped last.
    on_drop: ShutdownCallbacks,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.event_loop.is_in_forked_child() {
            self.on_drop.before.clear();
            self.on_drop.after.clear();
        }
        while let Some(end) = self.on_drop.before.pop() {
            end(&mut CallbackContext { event_loop: &mut self.event_loop });
        }
    }
}

handover_base::debug_struct!(Endpoint as it { stats: it.stats() });

impl Endpoint {
    /// Creates an endpoint without peers, which listens at the configured addresses.
    ///
    /// # Errors
    /// [`EndpointError::Config`], [`EndpointError::Security`] for a secret or certificate that
    /// cannot be read, and [`EndpointError::SystemCall`] if descriptors run out, or an address to
    /// listen at is in use.
    pub fn new(mut config: Config) -> Result<Self, EndpointError> {
        let handlers = Handlers { registered: Methods::default(), answer: Vec::new() };
        let (listen, remote_stop) = (std::mem::take(&mut config.listen), config.access.remote_stop);
        let mut new = Self {
            event_loop: EventLoop::new(config)?,
            handlers,
            on_drop: ShutdownCallbacks::default(),
        };
        if remote_stop {
            let stops = |context: &mut Context<'_>, _: &[u8], _: &mut Vec<u8>| {
                context.stop();
                Ok(())
            };
            // Nothing is registered yet, so the name is free.
            let _ = new.insert(STOP_METHOD_NAME, 0, Handler::Inline(Box::new(stops)));
        }
        for address in &listen {
            new.listen(address)?;
        }
        Ok(new)
    }

    /// Listens at an additional address. Returns the actual address, to which peers can connect.
    ///
    /// # Errors
    /// [`EndpointError`] if the address is in use, or not available.
    pub fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
        self.event_loop.listen(address)
    }

    /// Sets the secret that both ends of a `tcp://` or `ucx://` connection must prove to know.
    /// [`secret_file`](crate::AccessConfig#structfield.secret_file) does the same from a file. The
    /// secret applies to later handshakes; a listener of this endpoint accepts no connection before
    /// one of the endpoint's methods runs.
    ///
    /// # Errors
    /// [`EndpointError::Security`] for fewer than
    /// [`SECRET_BYTES_MIN`](crate::engine::SECRET_BYTES_MIN) bytes.
    pub fn set_secret(&mut self, secret: &[u8]) -> Result<(), EndpointError> {
        self.event_loop
            .security
            .set_secret(secret)
            .map_err(|why| EndpointError::new_security("the shared secret", why))
    }

    /// Sets the rustls configuration for accepting connections at `tls://` addresses. It has this
    /// endpoint's certificates, and the requirements for those of peers. Must be called before
    /// listening there. [`tls`](crate::AccessConfig#structfield.tls) does the same from files, and
    /// requires client certificates; **a configuration without a client verifier lets everybody
    /// call.**
    #[cfg(feature = "tls")]
    pub fn set_tls_server(&mut self, config: Arc<rustls::ServerConfig>) {
        self.event_loop.security.tls.server = Some(config);
    }

    /// Sets the rustls configuration for connecting to `tls://` addresses.
    #[cfg(feature = "tls")]
    pub fn set_tls_client(&mut self, config: Arc<rustls::ClientConfig>) {
        self.event_loop.security.tls.client = Some(config);
    }

    /// Returns the addresses at which this endpoint listens.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.event_loop.addresses()
    }

    /// Connects to a peer. This endpoint serves its own peers meanwhile, except during the lookup
    /// of the host's name. If the name has several addresses, they are tried one after another; one
    /// that does not answer gets an equal part of the time that is left.
    ///
    /// # Errors
    /// [`EndpointError`] if no process listens there, or the handshake fails.
    ///
    /// # Blocking
    /// Blocks for `handshake_timeout` at most. The handshake needs the peer's endpoint to be in
    /// one of its methods.
    ///
    /// A host's name is looked up before that, by the system's resolver, and nothing else happens
    /// in this endpoint meanwhile: some microseconds for a name in `/etc/hosts`, a round trip to
    /// the name server otherwise, and usually 5 to 30 s if no name server answers. Use a numeric
    /// address, or resolve the name in another thread, where that matters.
    pub fn connect(&mut self, address: &Address) -> Result<Peer, EndpointError> {
        calling::connect_and_wait(self, address)
    }

    /// Returns the connected peers.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.event_loop.peers.keys()
    }

    /// Returns the endpoint's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.event_loop.stats()
    }

    /// Returns the configuration, with the actual addresses in `listen`.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.event_loop.config
    }

    /// Registers a procedure that runs in the endpoint's own thread. If the handler panics, only
    /// its caller gets an error.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are registered.
    pub fn register<A: DeserializeOwned, R: Serialize>(
        &mut self,
        name: &str,
        provider: u16,
        mut handler: impl FnMut(&mut Context<'_>, A) -> Result<R, Failure> + Send + 'static,
    ) -> Result<(), RegisterError> {
        let handler = move |context: &mut Context<'_>, arguments: &[u8], into: &mut Vec<u8>| {
            let arguments = decode_arguments(arguments)?;
            write_result(handler(context, arguments), into)
        };
        self.insert(name, provider, Handler::Inline(Box::new(handler)))
    }

    fn insert(&mut self, name: &str, provider: u16, handler: Handler) -> Result<(), RegisterError> {
        self.handlers.registered.insert(name, provider, handler)?;
        #[cfg(feature = "monitoring")]
        self.name_method(name, provider);
        Ok(())
    }

    /// Registers a procedure of plain bytes. Its handler reads the arguments in place, and appends
    /// the result to a vector.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are registered.
    pub fn register_bytes(
        &mut self,
        name: &str,
        provider: u16,
        mut handler: impl FnMut(&mut Context<'_>, &[u8], &mut Vec<u8>) -> Result<(), Failure>
        + Send
        + 'static,
    ) -> Result<(), RegisterError> {
        let handler = move |context: &mut Context<'_>, arguments: &[u8], into: &mut Vec<u8>| {
            handler(context, arguments, into).or_else(|failure| encode_failure(&failure, into))
        };
        self.insert(name, provider, Handler::Inline(Box::new(handler)))
    }

    /// Registers a procedure that runs on the pool's threads, several requests at a time. If
    /// `pool.threads` is 0, it runs in the endpoint's own thread. With the feature `fibers` and
    /// `pool.fibers` in the configuration, each request is a fiber on those threads, and other
    /// fibers run while it waits with `handover_fiber`, for example for a
    /// [`Caller`](crate::Caller)'s result.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are registered.
    pub fn register_pooled<A: DeserializeOwned, R: Serialize>(
        &mut self,
        name: &str,
        provider: u16,
        handler: impl Fn(A) -> Result<R, Failure> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        let work = move |arguments: &[u8], into: &mut Vec<u8>| {
            let arguments = decode_arguments(arguments)?;
            write_result(handler(arguments), into)
        };
        self.insert(name, provider, Handler::Pooled(Arc::new(work)))
    }

    /// Removes a procedure; returns `false` if it was not registered.
    pub fn unregister(&mut self, name: &str, provider: u16) -> bool {
        self.handlers.registered.remove(name, provider).is_some()
    }

    /// Runs the event loop until some work was done; returns `false` if `timeout` passes first.
    ///
    /// # Blocking
    /// Blocks for `timeout` at most, and as long as handlers run.
    pub fn progress(&mut self, timeout: Duration) -> bool {
        // A caller that passes no time would see events of epoll in few of its calls.
        let did_before = self.event_loop.poll_if_due_before_iteration();
        let done = |_: &mut EventLoop, did| did || did_before;
        self.event_loop.run_until(&mut self.handlers, after(timeout), done)
    }

    /// Serves peers until a stop is requested by a [`Stopper`] or by [`Context::stop`]. Results
    /// that are queued then are still sent.
    ///
    /// # Blocking
    /// Blocks until then, and for at most one second more if peers do not read their results.
    pub fn serve(&mut self) {
        self.event_loop.run_until(&mut self.handlers, u64::MAX, |event_loop, _| {
            event_loop.take_stop_request()
        });
        self.event_loop.flush_before_stop();
    }

    /// Serves peers until a stop is requested, or until `peer` is disconnected. Returns `true` for
    /// a requested stop.
    ///
    /// # Blocking
    /// As [`serve`](Self::serve).
    pub fn serve_while_connected(&mut self, peer: Peer) -> bool {
        let (mut is_stopped, mut closed_count) = (false, None);
        self.event_loop.run_until(&mut self.handlers, u64::MAX, |event_loop, _| {
            is_stopped = event_loop.take_stop_request();
            // Checked only after some connection has ended.
            let before = closed_count.replace(event_loop.closed_peers_count());
            let has_ended = before != closed_count && !event_loop.peers.is_connected(peer);
            // A handler may have requested the stop in the same iteration in which its caller was
            // disconnected.
            is_stopped |= has_ended && event_loop.inbox.mailbox.take_stop_request();
            is_stopped || has_ended
        });
        if is_stopped {
            self.event_loop.flush_before_stop();
        }
        is_stopped
    }

    /// Returns a handle that stops [`serve`](Self::serve), from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { inbox: Arc::clone(&self.event_loop.inbox) }
    }

    /// Starts the pool's threads, for handlers registered by
    /// [`register_pooled`](Self::register_pooled). Before this, their callers are refused with
    /// [`PeerFull`](crate::CallError::PeerFull), unless `pool.threads` is 0.
    ///
    /// # Errors
    /// [`EndpointError::Thread`] if a thread cannot be started.
    pub fn start_pool(&mut self) -> Result<(), EndpointError> {
        if self.event_loop.pool.is_none() {
            let inbox = Arc::clone(&self.event_loop.inbox);
            let config = &self.event_loop.config;
            let unsent_bytes_max = config.connections.queued_bytes_max as usize;
            let deliver = move |answer| inbox.push_answer(answer);
            let pool = Pool::start(&config.pool, unsent_bytes_max, deliver);
            self.event_loop.pool = Some(pool.map_err(EndpointError::Thread)?);
        }
        Ok(())
    }

    // Observation.

    /// Sets an observer, which is called for each completed call. Statistics of the calls by
    /// procedure are recorded from then on, too. The observer runs in this endpoint's thread, and
    /// delays its calls.
    ///
    /// # Cost
    /// About 100 ns for each call. Without an observer and without `monitoring` in the
    /// configuration: a check of a pointer.
    #[cfg(feature = "monitoring")]
    pub fn observe(&mut self, observer: impl FnMut(&ObservedCall<'_>) + Send + 'static) {
        self.get_or_create_monitor().set_observer(Box::new(observer));
    }

    /// Returns the monitor, which the first call creates.
    #[cfg(feature = "monitoring")]
    fn get_or_create_monitor(&mut self) -> &mut Monitor {
        let names = &self.handlers.registered;
        self.event_loop.call_monitor.monitor.get_or_insert_with(|| {
            let mut monitor = Box::<Monitor>::default();
            names.names().for_each(|(name, provider)| monitor.name_method(name, provider));
            monitor
        })
    }

    /// Sets the name of a peer's procedure for reports and observers. A call contains only the hash
    /// of the name. Has no effect without an observer or `monitoring`.
    #[cfg(feature = "monitoring")]
    pub fn name_method(&mut self, name: &str, provider: u16) {
        if let Some(monitor) = &mut self.event_loop.call_monitor.monitor {
            monitor.name_method(name, provider);
        }
    }

    /// Returns the statistics of calls by procedure. They start when an observer is set or, with
    /// `monitoring` in the configuration, with the endpoint.
    #[cfg(feature = "monitoring")]
    #[must_use]
    pub fn calls_report(&self) -> Vec<CallReport> {
        self.event_loop
            .call_monitor
            .monitor
            .as_ref()
            .map_or_else(Vec::new, |it| it.reports_by_method())
    }

    /// Returns a snapshot of the endpoint's state.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.event_loop.dump()
    }

    /// Calls `callback` with a [`dump`](Self::dump) whenever this process receives `signal`, for
    /// example `SIGUSR1`. The callback runs when this endpoint is next in one of its methods and in
    /// no handler. Only one signal at a time: a later call replaces an earlier one.
    ///
    /// # Errors
    /// [`EndpointError::SystemCall`] if the kernel does not let the process handle the signal.
    #[cfg(feature = "signal-dump")]
    pub fn dump_on(
        &mut self,
        signal: i32,
        callback: impl FnMut(&Dump) + Send + 'static,
    ) -> Result<(), EndpointError> {
        self.event_loop.set_signal_dump(SignalDump::new(signal, Box::new(callback))?)
    }

    // End of the endpoint.

    /// Registers a callback that runs when the endpoint is dropped, while its peers are still
    /// connected. The last one registered runs first. A forked child that drops the endpoint does
    /// not run it.
    pub fn before_disconnect(
        &mut self,
        end: impl FnOnce(&mut CallbackContext<'_>) + Send + 'static,
    ) {
        self.on_drop.before.push(Box::new(end));
    }

    /// Registers a callback that runs after the dropped endpoint has closed its connections. The
    /// endpoint's threads have exited by then. The last callback registered runs first. A forked
    /// child that drops the endpoint does not run it.
    pub fn after_disconnect(&mut self, end: impl FnOnce() + Send + 'static) {
        self.on_drop.after.push(Box::new(end));
    }
}

impl sealed::Driver for Endpoint {
    #[inline]
    fn event_loop(&mut self) -> &mut EventLoop {
        &mut self.event_loop
    }

    #[inline]
    fn run_until(
        &mut self,
        deadline_ns: u64,
        done: impl FnMut(&mut EventLoop, bool) -> bool,
    ) -> bool {
        self.event_loop.run_until(&mut self.handlers, deadline_ns, done)
    }
}

/// Handle that stops [`Endpoint::serve`], from any thread. Several requests before the endpoint has
/// seen the first count as one.
#[derive(Debug, Clone)]
pub struct Stopper {
    inbox: Arc<CallbackInbox>,
}

impl Stopper {
    /// Requests the endpoint to stop serving. If it is not serving, its next [`Endpoint::serve`]
    /// returns at once.
    pub fn stop(&self) {
        self.inbox.request_stop();
    }
}

#[inline]
fn decode_arguments<A: DeserializeOwned>(arguments: &[u8]) -> Result<A, Refusal> {
    postcard::from_bytes(arguments).map_err(|_| Refusal::BadArguments)
}

/// Appends the encoded result of a handler to `into`.
#[inline]
fn write_result<R: Serialize>(
    result: Result<R, Failure>,
    into: &mut Vec<u8>,
) -> Result<(), Refusal> {
    match result {
        Ok(result) => {
            // Encoding fails only if a `Serialize` implementation fails.
            let written = postcard::to_extend(&result, Append(into));
            written.map(drop).map_err(|_| Refusal::Panicked)
        }
        Err(failure) => encode_failure(&failure, into),
    }
}

/// Adapter with which postcard appends to a vector in place.
struct Append<'a>(&'a mut Vec<u8>);

impl Extend<u8> for Append<'_> {
    #[inline]
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

/// Replaces the contents of `into` by the encoded failure. Always returns [`Refusal::Failed`].
#[cold]
fn encode_failure(failure: &Failure, into: &mut Vec<u8>) -> Result<(), Refusal> {
    into.clear();
    // A number and a string always serialize.
    let _ = postcard::to_extend(failure, Append(into));
    Err(Refusal::Failed)
}
