//! One thread's end of everything: it listens, connects, calls and serves.

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
    /// For answers; kept between them.
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

/// What a handler may do besides answering: call others, this caller among them. See
/// [`Calling`](crate::Calling).
///
/// While a handler waits, answers are taken, and requests are left for when it has returned.
#[derive(Debug)]
pub struct Context<'a> {
    state: &'a mut State,
    peer: PeerKey,
}

impl Context<'_> {
    /// Who has called.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Ends [`Endpoint::serve`], once this answer is on its way: how a peer shuts an endpoint down.
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

/// One thread's end of everything: it listens, connects, calls ([`Calling`](crate::Calling)) and serves.
///
/// It belongs to one thread at a time and has no locks on its way. Nothing happens while none of its
/// methods runs: messages wait. Peers of one process are peers like all others.
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
    /// The last to go.
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
    /// An endpoint that knows nobody, and listens where its configuration says.
    ///
    /// # Errors
    /// [`EndpointError::Config`], and [`EndpointError::Refused`] when descriptors are short, or a place where
    /// it is to listen is taken.
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

    /// As [`new`](Self::new), of a configuration as JSON ([`Config::from_json`]).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_json(json: &str) -> Result<Self, EndpointError> {
        Self::new(Config::from_json(json)?)
    }

    /// Listens there, besides all other places; the address by which others find it.
    ///
    /// # Errors
    /// [`EndpointError`] when the address is in use, or not to be had.
    pub fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
        self.state.listen(address)
    }

    /// Sets the secret that both sides of every `tcp://` connection must prove to know, as
    /// [`Config::secret_file`] does. For connections that are agreed upon from now on; a listener of this
    /// endpoint accepts none before one of its methods runs.
    ///
    /// # Errors
    /// [`EndpointError::Security`] for fewer than [`SECRET_BYTES_MIN`](crate::engine::SECRET_BYTES_MIN) bytes.
    pub fn set_secret(&mut self, secret: &[u8]) -> Result<(), EndpointError> {
        self.state.security.set_secret(secret).map_err(|why| refused("the shared secret", why))
    }

    /// Sets the certificates with which this endpoint accepts connections at `tls://` addresses, and its demands
    /// on those of peers, before it listens there. [`Config::tls`] does the same by files, and demands
    /// certificates; **a configuration without a verifier of clients lets everybody call.**
    #[cfg(feature = "tls")]
    pub fn set_tls_server(&mut self, config: Arc<rustls::ServerConfig>) {
        self.state.security.tls.server = Some(config);
    }

    /// As [`set_tls_server`](Self::set_tls_server), for connections to `tls://` addresses.
    #[cfg(feature = "tls")]
    pub fn set_tls_client(&mut self, config: Arc<rustls::ClientConfig>) {
        self.state.security.tls.client = Some(config);
    }

    /// Where it listens.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.state.addresses()
    }

    /// Connects, and agrees with the peer. While they agree this endpoint serves its own peers.
    ///
    /// # Errors
    /// [`EndpointError`] when nobody listens there, or whoever does is no peer.
    ///
    /// # Blocking
    /// For `handshake_timeout_ms` at most, and as long as a host's name is looked up: the peer's endpoint
    /// must be in one of its methods.
    pub fn connect(&mut self, address: &Address) -> Result<Peer, EndpointError> {
        calling::connect(self, address)
    }

    /// Who is connected.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.state.peers()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// The configuration that it was made with, resolved: `listen` is where it listens.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// Registers a procedure that runs in the endpoint's own thread. What it panics with is its caller's
    /// error and nobody else's.
    ///
    /// # Errors
    /// [`RegisterError`] when that name and provider are taken.
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

    /// Registers a procedure of bytes, which takes them where they stand and appends its result.
    ///
    /// # Errors
    /// [`RegisterError`] when that name and provider are taken.
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

    /// Registers a procedure that runs on the pool's threads, several at a time; with `pool_threads` of 0 in
    /// the endpoint's own. With `pool_fibers` each is a fiber on those threads, and whatever it waits for by
    /// `handover_fiber`, a [`Caller`](crate::Caller)'s result among that, lets others run.
    ///
    /// # Errors
    /// [`RegisterError`] when that name and provider are taken.
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

    /// Takes a procedure back. False when there was none.
    pub fn unregister(&mut self, name: &str, provider: u16) -> bool {
        self.handlers.known.remove(name, provider).is_some()
    }

    /// Does what there is to do, and returns once something was done, or `timeout` has passed: false.
    ///
    /// # Blocking
    /// For `timeout` at most, and as long as handlers run.
    pub fn progress(&mut self, timeout: Duration) -> bool {
        self.state.turn_until(&mut self.handlers, after(timeout), |_, did| did)
    }

    /// Serves its peers until told to stop by a [`Stopper`] or by [`Context::stop`].
    ///
    /// # Blocking
    /// Until then.
    pub fn serve(&mut self) {
        self.state.turn_until(&mut self.handlers, u64::MAX, |state, _| state.take_stop());
    }

    /// Serves as [`serve`](Self::serve) does, and ends when that peer is gone, too: false then.
    ///
    /// # Blocking
    /// Until then.
    pub fn serve_while_connected(&mut self, peer: Peer) -> bool {
        let (mut told, mut gone_count) = (false, None);
        self.state.turn_until(&mut self.handlers, u64::MAX, |state, _| {
            told = state.take_stop();
            // Looked for only when somebody has gone.
            let was = gone_count.replace(state.gone_count());
            let is_gone = was != gone_count && !state.is_connected(peer);
            // A handler may have asked for the end in the very turn in which its caller went.
            told |= is_gone && state.inbox.take_stop();
            told || is_gone
        });
        told
    }

    /// What ends [`serve`](Self::serve), from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { inbox: Arc::clone(&self.state.inbox) }
    }

    /// Starts the pool's threads, for handlers that are registered with
    /// [`register_pooled`](Self::register_pooled). Without it, their callers are told that it is full.
    ///
    /// # Errors
    /// [`EndpointError::Thread`] when a thread cannot be started.
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

    /// Whoever waits elsewhere for calls of this endpoint is told that it has ended.
    pub(super) fn break_promises(&mut self) {
        self.state.break_promises();
    }

    // Being watched.

    /// Has each call counted from now on, by procedure, and told of when it has ended, on either side of it.
    /// The observer runs in this endpoint's thread, and whatever it does the calls wait for.
    ///
    /// # Cost
    /// Some 100 ns a call. Without it, and without `monitoring` in the configuration: a look at a pointer.
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

    /// Says what a procedure of others is called, for reports and observers: a call carries a number alone.
    /// Nothing happens while nobody watches.
    pub fn name_method(&mut self, name: &str, provider: u16) {
        if let Some(monitor) = &mut self.state.monitor {
            monitor.name(name, provider);
        }
    }

    /// The calls so far by procedure, since somebody watches: with `monitoring` in the configuration, or an
    /// observer.
    #[must_use]
    pub fn calls_report(&self) -> Vec<CallReport> {
        self.state.monitor.as_ref().map_or_else(Vec::new, |it| it.report())
    }

    /// What it is doing.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.state.dump()
    }

    /// From now on, each time this process gets that signal, `SIGUSR1` for example, a [`dump`](Self::dump) of
    /// this endpoint takes the place of that file, as JSON, when this endpoint next is in one of its methods
    /// and in no handler. Of one signal at a time: the last counts.
    ///
    /// # Errors
    /// [`EndpointError::Refused`] when the kernel does not let the process handle it.
    pub fn dump_on(&mut self, signal: i32, file: &Path) -> Result<(), EndpointError> {
        let on_signal = OnSignal::new(signal, file).map_err(dump::refused)?;
        let added = self.state.dump_on(on_signal);
        added.map_err(|errno| dump::refused(("epoll_ctl", errno.into())))
    }

    // Its end.

    /// Calls that when this endpoint is dropped, the last first, while its peers are still connected.
    pub fn before_end(&mut self, end: impl FnOnce(&mut Moment<'_>) + Send + 'static) {
        self.ends.before.push(Box::new(end));
    }

    /// Calls that when this endpoint is dropped, the last first, when its connections and its threads have
    /// ended.
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

/// Ends [`Endpoint::serve`], from any thread. Told twice before that has seen it, it ends once.
#[derive(Debug, Clone)]
pub struct Stopper {
    inbox: Arc<Inbox>,
}

impl Stopper {
    /// Tells the endpoint to stop serving. One that does not serve yet will not begin.
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
            // Only what refuses to be written fails.
            let written = postcard::to_extend(&result, Behind(into));
            written.map(drop).map_err(|_| Refusal::Panicked)
        }
        Err(failure) => fail(&failure, into),
    }
}

/// Whatever is written goes behind what is in the vector, which stays where it is.
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
    // A number and words can always be written.
    let _ = postcard::to_extend(failure, Behind(into));
    Err(Refusal::Failed)
}
