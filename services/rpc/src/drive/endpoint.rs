//! Endpoint: listens, connects, calls and serves in one thread.

use super::calling::{self, STOP, after, sealed};
use super::dump::{self, Dump, OnSignal};
use super::monitor::{CallReport, Monitor, Observed, Side};
use super::pool::{Inbox, Job, Pool, Work, caught};
use super::security::refused;
use super::state::{ONE_WAY, PutOff, Sink, State};
use super::timing::{Ends, Moment};
use crate::engine::{Header, Kind, Methods, PeerKey, Refusal};
use crate::stage;
use crate::{Address, Config, EndpointError, Failure, RegisterError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use super::state::Stats;
pub use crate::engine::PeerKey as Peer;

type Inline = dyn FnMut(&mut Context<'_>, &[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send;

enum Handler {
    Inline(Box<Inline>),
    Pooled(Arc<Work>),
}

struct Handlers {
    known: Methods<Handler>,
    /// Buffer for answers, reused.
    answer: Vec<u8>,
}

impl Sink for Handlers {
    #[inline]
    fn request(&mut self, state: &mut State, peer: PeerKey, header: Header, body: &[u8]) {
        let one_way = header.kind == Kind::OneWay;
        let Self { known, answer } = self;
        answer.clear();
        let handler = known.get_mut(header.method);
        if handler.is_some()
            && let Some(monitor) = &mut state.monitor
        {
            let call = if one_way { ONE_WAY } else { header.call };
            monitor.begin(Side::Server, peer, call, header.method, body.len());
        }
        let outcome = match handler {
            None => Err(Refusal::Unknown),
            Some(Handler::Inline(handler)) => {
                stage::dispatched(header.call);
                let mut context = Context { state, peer };
                caught(|| handler(&mut context, body, answer))
            }
            Some(Handler::Pooled(work)) if state.config.pool_threads == 0 => {
                stage::dispatched(header.call);
                caught(|| work(body, answer))
            }
            Some(Handler::Pooled(work)) => {
                stage::dispatched(header.call);
                let (work, call) = (Arc::clone(work), header.call);
                let job = Job { work, arguments: body.to_vec(), peer, call, one_way };
                match state.pool.as_ref().map(|pool| pool.push(job)) {
                    Some(Ok(())) => {
                        if one_way {
                            state.handled_one_way(peer, Ok(()));
                        }
                        return;
                    }
                    Some(Err(_)) | None => Err(Refusal::Full),
                }
            }
        };
        if one_way {
            state.handled_one_way(peer, outcome);
        } else {
            state.respond(peer, header.call, outcome, answer);
        }
    }

    fn catches_up(&self) -> bool {
        true
    }
}

/// Endpoint as seen by a running handler, which may call peers, its caller included. See
/// [`Calling`](crate::Calling).
///
/// While a handler waits, answers are received, and requests are put off until it has returned.
#[derive(Debug)]
pub struct Context<'a> {
    state: &'a mut State,
    peer: PeerKey,
}

impl Context<'_> {
    /// Returns the caller.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Ends [`Endpoint::serve`] after this answer was sent, so that a peer can shut the endpoint
    /// down.
    pub fn stop(&mut self) {
        self.state.inbox.stop();
    }
}

impl sealed::Turning for Context<'_> {
    fn state(&mut self) -> &mut State {
        self.state
    }

    fn turn_until(&mut self, deadline_ns: u64, done: impl FnMut(&mut State, bool) -> bool) -> bool {
        self.state.turn_until(&mut PutOff, deadline_ns, done)
    }
}

/// Endpoint: listens, connects, calls ([`Calling`](crate::Calling)) and serves, in one thread at a
/// time.
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
/// let doubled: u64 = client.call(peer, Method::named("double"), &21u64)?;
/// assert_eq!(doubled, 42);
/// stopper.stop();
/// thread.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    state: State,
    handlers: Handlers,
    /// Must be the last field, so that it is dropped last.
    ends: Ends,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        while let Some(end) = self.ends.before.pop() {
            end(&mut Moment { state: &mut self.state });
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint without peers, which listens at the configured addresses.
    ///
    /// # Errors
    /// [`EndpointError::Config`], [`EndpointError::Security`] for a secret or certificate that
    /// cannot be read, and [`EndpointError::Refused`] if descriptors run out, or an address to
    /// listen at is taken.
    pub fn new(mut config: Config) -> Result<Self, EndpointError> {
        let handlers = Handlers { known: Methods::default(), answer: Vec::new() };
        let (listen, remote_stop) = (std::mem::take(&mut config.listen), config.remote_stop);
        let mut new = Self { state: State::new(config)?, handlers, ends: Ends::default() };
        if remote_stop {
            let stops = |context: &mut Context<'_>, _: &[u8], _: &mut Vec<u8>| {
                context.stop();
                Ok(())
            };
            // Nothing is registered yet, so the name is free.
            let _ = new.insert(STOP, 0, Handler::Inline(Box::new(stops)));
        }
        for address in &listen {
            new.listen(address)?;
        }
        Ok(new)
    }

    /// Creates an endpoint from a JSON configuration ([`Config::from_json`]); see
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn from_json(json: &str) -> Result<Self, EndpointError> {
        Self::new(Config::from_json(json)?)
    }

    /// Listens at an additional address. Returns the resolved address, to which peers connect.
    ///
    /// # Errors
    /// [`EndpointError`] if the address is in use, or not available.
    pub fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
        self.state.listen(address)
    }

    /// Sets the secret that both sides of every `tcp://` connection must prove to know, as
    /// [`Config::secret_file`] does. It applies to handshakes from now on; a listener of this
    /// endpoint accepts no connection before one of the endpoint's methods runs.
    ///
    /// # Errors
    /// [`EndpointError::Security`] for fewer than
    /// [`SECRET_BYTES_MIN`](crate::engine::SECRET_BYTES_MIN) bytes.
    pub fn set_secret(&mut self, secret: &[u8]) -> Result<(), EndpointError> {
        self.state.security.set_secret(secret).map_err(|why| refused("the shared secret", why))
    }

    /// Sets the rustls configuration for accepting connections at `tls://` addresses: this
    /// endpoint's certificates, and the requirements for those of peers. Must be called before
    /// listening there. [`Config::tls`] does the same from files, and requires client certificates;
    /// **a configuration without a client verifier lets everybody call.**
    #[cfg(feature = "tls")]
    pub fn set_tls_server(&mut self, config: Arc<rustls::ServerConfig>) {
        self.state.security.tls.server = Some(config);
    }

    /// Sets the rustls configuration for connecting to `tls://` addresses.
    #[cfg(feature = "tls")]
    pub fn set_tls_client(&mut self, config: Arc<rustls::ClientConfig>) {
        self.state.security.tls.client = Some(config);
    }

    /// Returns the addresses at which this endpoint listens.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.state.addresses()
    }

    /// Connects to a peer. This endpoint serves its own peers during the handshake, but not while
    /// the socket connects.
    ///
    /// # Errors
    /// [`EndpointError`] if nobody listens there, or the handshake fails.
    ///
    /// # Blocking
    /// Blocks for `handshake_timeout_ms` at most, and for the lookup of the host's name. The
    /// handshake needs the peer's endpoint to be in one of its methods.
    pub fn connect(&mut self, address: &Address) -> Result<Peer, EndpointError> {
        calling::connect(self, address)
    }

    /// Returns the connected peers.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.state.peers()
    }

    /// Returns the endpoint's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// Returns the resolved configuration: `listen` has the actual addresses.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// Registers a procedure that runs in the endpoint's own thread. A panic of the handler is an
    /// error of its caller alone.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are taken.
    pub fn register<A: DeserializeOwned, R: Serialize>(
        &mut self,
        name: &str,
        provider: u16,
        mut handler: impl FnMut(&mut Context<'_>, A) -> Result<R, Failure> + Send + 'static,
    ) -> Result<(), RegisterError> {
        let handler = move |context: &mut Context<'_>, arguments: &[u8], into: &mut Vec<u8>| {
            let arguments = read(arguments)?;
            write(handler(context, arguments), into)
        };
        self.insert(name, provider, Handler::Inline(Box::new(handler)))
    }

    fn insert(&mut self, name: &str, provider: u16, handler: Handler) -> Result<(), RegisterError> {
        self.handlers.known.insert(name, provider, handler)?;
        if let Some(monitor) = &mut self.state.monitor {
            monitor.name(name, provider);
        }
        Ok(())
    }

    /// Registers a procedure of bytes, which reads its arguments in place and appends its result to
    /// the vector.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are taken.
    pub fn register_bytes(
        &mut self,
        name: &str,
        provider: u16,
        mut handler: impl FnMut(&mut Context<'_>, &[u8], &mut Vec<u8>) -> Result<(), Failure>
        + Send
        + 'static,
    ) -> Result<(), RegisterError> {
        let handler = move |context: &mut Context<'_>, arguments: &[u8], into: &mut Vec<u8>| {
            handler(context, arguments, into).or_else(|failure| fail(&failure, into))
        };
        self.insert(name, provider, Handler::Inline(Box::new(handler)))
    }

    /// Registers a procedure that runs on the pool's threads, several at a time; if `pool_threads`
    /// is 0, in the endpoint's own thread. With `pool_fibers`, each request is a fiber on those
    /// threads, and other fibers run while it waits by means of `handover_fiber`, for example for a
    /// [`Caller`](crate::Caller)'s result.
    ///
    /// # Errors
    /// [`RegisterError`] if that name and provider are taken.
    pub fn register_pooled<A: DeserializeOwned, R: Serialize>(
        &mut self,
        name: &str,
        provider: u16,
        handler: impl Fn(A) -> Result<R, Failure> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        let work = move |arguments: &[u8], into: &mut Vec<u8>| {
            let arguments = read(arguments)?;
            write(handler(arguments), into)
        };
        self.insert(name, provider, Handler::Pooled(Arc::new(work)))
    }

    /// Removes a procedure. Returns `false` if there was none.
    pub fn unregister(&mut self, name: &str, provider: u16) -> bool {
        self.handlers.known.remove(name, provider).is_some()
    }

    /// Runs the event loop until some work was done; returns `false` if `timeout` passes first.
    ///
    /// # Blocking
    /// Blocks for `timeout` at most, and as long as handlers run.
    pub fn progress(&mut self, timeout: Duration) -> bool {
        self.state.turn_until(&mut self.handlers, after(timeout), |_, did| did)
    }

    /// Serves peers until told to stop by a [`Stopper`] or by [`Context::stop`].
    ///
    /// # Blocking
    /// Blocks until then.
    pub fn serve(&mut self) {
        self.state.turn_until(&mut self.handlers, u64::MAX, |state, _| state.take_stop());
    }

    /// Serves peers until told to stop, or until that peer is disconnected. Returns `false` in the
    /// second case.
    ///
    /// # Blocking
    /// Blocks until then.
    pub fn serve_while_connected(&mut self, peer: Peer) -> bool {
        let (mut told, mut gone_count) = (false, None);
        self.state.turn_until(&mut self.handlers, u64::MAX, |state, _| {
            told = state.take_stop();
            // Checked only after some connection has ended.
            let was = gone_count.replace(state.gone_count());
            let is_gone = was != gone_count && !state.is_connected(peer);
            // A handler may have requested the stop in the same turn in which its caller was
            // disconnected.
            told |= is_gone && state.inbox.take_stop();
            told || is_gone
        });
        told
    }

    /// Returns a handle that ends [`serve`](Self::serve), from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { inbox: Arc::clone(&self.state.inbox) }
    }

    /// Starts the pool's threads, for handlers registered by
    /// [`register_pooled`](Self::register_pooled). Before this, their callers are refused with
    /// [`PeerFull`](crate::CallError::PeerFull), unless `pool_threads` is 0.
    ///
    /// # Errors
    /// [`EndpointError::Thread`] if a thread cannot be started.
    pub fn start_pool(&mut self) -> Result<(), EndpointError> {
        if self.state.pool.is_none() {
            let pool = Pool::start(&self.state.config, Arc::clone(&self.state.inbox));
            self.state.pool = Some(pool.map_err(EndpointError::Thread)?);
        }
        Ok(())
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.state.inbox
    }

    /// Ends the calls that other threads wait for with an error.
    pub(super) fn break_promises(&mut self) {
        self.state.break_promises();
    }

    // Observation.

    /// Starts to record each call of either side by procedure, and calls `observer` when one has
    /// ended. The observer runs in this endpoint's thread, and delays its calls.
    ///
    /// # Cost
    /// Some 100 ns for each call. Without an observer and without `monitoring` in the
    /// configuration: a check of a pointer.
    pub fn observe(&mut self, observer: impl FnMut(&Observed<'_>) + Send + 'static) {
        self.monitor().observe(Box::new(observer));
    }

    fn monitor(&mut self) -> &mut Monitor {
        let names = &self.handlers.known;
        self.state.monitor.get_or_insert_with(|| {
            let mut monitor = Box::<Monitor>::default();
            names.names().for_each(|(name, provider)| monitor.name(name, provider));
            monitor
        })
    }

    /// Sets the name of a peer's procedure for reports and observers, as a call carries only its
    /// hash. Has no effect without an observer or `monitoring`.
    pub fn name_method(&mut self, name: &str, provider: u16) {
        if let Some(monitor) = &mut self.state.monitor {
            monitor.name(name, provider);
        }
    }

    /// Returns the statistics of calls by procedure, recorded since an observer was set, or always
    /// with `monitoring` in the configuration.
    #[must_use]
    pub fn calls_report(&self) -> Vec<CallReport> {
        self.state.monitor.as_ref().map_or_else(Vec::new, |it| it.report())
    }

    /// Returns a snapshot of the endpoint's state.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.state.dump()
    }

    /// Writes a [`dump`](Self::dump) of this endpoint to that file, as JSON, whenever this process
    /// gets that signal, for example `SIGUSR1`. The file is replaced when this endpoint is next in
    /// one of its methods and in no handler. Only one signal at a time: a later call replaces an
    /// earlier one.
    ///
    /// # Errors
    /// [`EndpointError::Refused`] if the kernel does not let the process handle the signal.
    pub fn dump_on(&mut self, signal: i32, file: &Path) -> Result<(), EndpointError> {
        let on_signal = OnSignal::new(signal, file).map_err(dump::refused)?;
        let added = self.state.dump_on(on_signal);
        added.map_err(|errno| dump::refused(("epoll_ctl", errno.into())))
    }

    // End of the endpoint.

    /// Registers a callback for the endpoint's drop, while its peers are still connected. The last
    /// one registered runs first.
    pub fn before_end(&mut self, end: impl FnOnce(&mut Moment<'_>) + Send + 'static) {
        self.ends.before.push(Box::new(end));
    }

    /// Registers a callback for the endpoint's drop, after its connections and threads have ended.
    /// The last one registered runs first.
    pub fn after_end(&mut self, end: impl FnOnce() + Send + 'static) {
        self.ends.after.push(Box::new(end));
    }
}

impl sealed::Turning for Endpoint {
    #[inline]
    fn state(&mut self) -> &mut State {
        &mut self.state
    }

    #[inline]
    fn turn_until(&mut self, deadline_ns: u64, done: impl FnMut(&mut State, bool) -> bool) -> bool {
        self.state.turn_until(&mut self.handlers, deadline_ns, done)
    }
}

/// Handle that ends [`Endpoint::serve`], from any thread. Several requests before the endpoint has
/// seen the first count as one.
#[derive(Debug, Clone)]
pub struct Stopper {
    inbox: Arc<Inbox>,
}

impl Stopper {
    /// Tells the endpoint to stop serving. If it is not serving, its next [`Endpoint::serve`]
    /// returns at once.
    pub fn stop(&self) {
        self.inbox.stop();
    }
}

#[inline]
fn read<A: DeserializeOwned>(arguments: &[u8]) -> Result<A, Refusal> {
    postcard::from_bytes(arguments).map_err(|_| Refusal::BadArguments)
}

#[inline]
fn write<R: Serialize>(result: Result<R, Failure>, into: &mut Vec<u8>) -> Result<(), Refusal> {
    match result {
        Ok(result) => {
            // Encoding fails only if a `Serialize` implementation fails.
            let written = postcard::to_extend(&result, Behind(into));
            written.map(drop).map_err(|_| Refusal::Panicked)
        }
        Err(failure) => fail(&failure, into),
    }
}

/// Adapter that appends to a vector in place.
struct Behind<'a>(&'a mut Vec<u8>);

impl Extend<u8> for Behind<'_> {
    #[inline]
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

#[cold]
fn fail(failure: &Failure, into: &mut Vec<u8>) -> Result<(), Refusal> {
    into.clear();
    // A number and a string always serialize.
    let _ = postcard::to_extend(failure, Behind(into));
    Err(Refusal::Failed)
}
