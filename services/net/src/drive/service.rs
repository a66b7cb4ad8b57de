//! Groups of event-loop threads that listen at the same addresses.

use super::endpoint::{ConnectOptions, ListenOptions};
use super::handler::Handler;
use super::inbox::{Command, Inbox};
use super::reactor::Reactor;
use crate::{Config, NetError, Stats};
use handover_base::sync::shared::{AtomicUsize, Ordering};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Policy that assigns accepted connections to the threads of a [`Net`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptPolicy {
    /// Each thread listens at the same address (`SO_REUSEPORT`). The kernel assigns a connection by
    /// a hash of its addresses. The threads share no state.
    #[default]
    ReusePort,
    /// The first thread accepts all connections, and assigns them to all threads, including itself,
    /// round robin.
    RoundRobin,
}

/// Builder of a [`Net`]: its threads, addresses and limits.
///
/// By default, one thread with the default [`Config`], which listens nowhere: for outgoing
/// connections.
///
/// ```
/// use handover_net::{Config, Conn, Handler, NetBuilder, engine::LengthPrefixCodec};
///
/// struct Echo;
/// impl Handler for Echo {
///     type Codec = LengthPrefixCodec;
///     type Data = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
///         let _ = conn.send(message);
///     }
/// }
///
/// let net = NetBuilder::new()
///     .threads(2)
///     .listen("127.0.0.1:0".parse::<std::net::SocketAddr>()?)
///     .config(Config::default().connections_max(1000))
///     .start(LengthPrefixCodec::new(1 << 20), |_thread| Echo)?;
/// println!("serving at {}", net.addresses()[0]);
/// let (stats, _handlers) = net.stop(std::time::Duration::from_secs(1))?;
/// assert_eq!(stats.accepted_count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct NetBuilder {
    /// Number of threads; 0 stands for one.
    threads_count: u32,
    listen_options: Vec<ListenOptions>,
    accept_policy: AcceptPolicy,
    config: Config,
}

impl NetBuilder {
    /// Creates a builder of a group of one thread.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of threads, at least one.
    #[must_use]
    pub fn threads(self, threads_count: u32) -> Self {
        Self { threads_count, ..self }
    }

    /// Adds an address to listen at: a `SocketAddr` for plain text, or [`ListenOptions`] for TLS.
    #[must_use]
    pub fn listen(mut self, at: impl Into<ListenOptions>) -> Self {
        self.listen_options.push(at.into());
        self
    }

    /// Sets the assignment of accepted connections to the threads. Default:
    /// [`AcceptPolicy::ReusePort`].
    #[must_use]
    pub fn accept_policy(self, accept_policy: AcceptPolicy) -> Self {
        Self { accept_policy, ..self }
    }

    /// Sets the limits of each thread and its connections.
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Starts the threads, each with a handler that `handler` makes from the thread's index.
    ///
    /// # Errors
    /// [`NetError`]: the configuration is not valid, an address is in use, a thread cannot be
    /// started.
    pub fn start<H: Handler>(
        self,
        codec: H::Codec,
        mut handler: impl FnMut(u32) -> H,
    ) -> Result<Net<H>, NetError> {
        let mut reactors = Vec::new();
        for thread in 0..self.threads_count.max(1) {
            reactors.push(Reactor::new(self.config, codec.clone(), handler(thread))?);
        }
        let inboxes: Vec<_> = reactors.iter().map(|it| Arc::clone(it.inbox())).collect();
        let mut bound = Vec::new();
        for listen in &self.listen_options {
            match self.accept_policy {
                AcceptPolicy::RoundRobin => {
                    bound.push(reactors[0].add_listener(listen, false, inboxes.clone())?);
                }
                AcceptPolicy::ReusePort => {
                    let mut at = listen.clone();
                    for reactor in &mut reactors {
                        at.address = reactor.listen_shared_with(&at)?;
                    }
                    bound.push(at.address);
                }
            }
        }
        let mut net = Net {
            inboxes,
            threads: Vec::new(),
            addresses: bound,
            next_thread_index: AtomicUsize::new(0),
        };
        for (index, mut reactor) in reactors.into_iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("net-{index}"));
            let thread = builder.spawn(move || reactor.run().map(|_| reactor));
            // If this fails, `net` is dropped, which stops the threads started so far.
            net.threads.push(thread.map_err(NetError::Thread)?);
        }
        Ok(net)
    }
}

/// Group of event-loop threads that listen at the same addresses; each thread has a handler of its
/// own. A [`NetBuilder`] starts it. A forked child does not have the threads, and must not drop its
/// copy: the drop waits for them.
pub struct Net<H: Handler> {
    inboxes: Vec<Arc<Inbox<H::Data>>>,
    threads: Vec<JoinHandle<Result<Reactor<H>, NetError>>>,
    addresses: Vec<SocketAddr>,
    /// Index, modulo the number of threads, of the thread that connects next.
    next_thread_index: AtomicUsize,
}

impl<H: Handler> Net<H> {
    /// Returns the addresses at which the group listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connects to an address, or as [`ConnectOptions`] say, from one of the threads, chosen round
    /// robin. [`Handler::on_connect`] or [`Handler::on_close`] reports the result, with access to
    /// `data`.
    ///
    /// # Errors
    /// [`NetError::ThreadUnavailable`] if that thread has ended or its queue of commands is full.
    pub fn connect(&self, to: impl Into<ConnectOptions>, data: H::Data) -> Result<(), NetError> {
        // Relaxed: two callers may get the same number, which costs only balance.
        let count = self.next_thread_index.fetch_add(1, Ordering::Relaxed);
        let inbox = &self.inboxes[count % self.inboxes.len()];
        inbox
            .push_command(Command::Connect(to.into(), data))
            .map_err(|_refused| NetError::ThreadUnavailable)
    }

    /// Returns the sums of the counters that each thread published last. A thread does so when it
    /// runs out of work, and every millisecond while it is busy.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inboxes.iter().fold(Stats::default(), |sum, it| sum.plus(it.published_stats.load()))
    }

    /// Stops all threads and returns their counters and handlers. The threads accept nothing more,
    /// handle every message that has arrived, and wait up to `grace` for peers to read the replies,
    /// but not for later answers through a [`ConnHandle`](crate::ConnHandle). Peers that send
    /// without a pause are read for half of `grace`, one second at most.
    ///
    /// # Errors
    /// The error of a thread that ended by itself, or [`NetError::ThreadUnavailable`] if a thread
    /// panicked.
    ///
    /// # Blocking
    /// For little more than `grace`, provided that handlers return.
    pub fn stop(mut self, grace: Duration) -> Result<(Stats, Vec<H>), NetError> {
        self.request_stop(grace);
        // All threads have ended before an error is returned.
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        let mut stats = Stats::default();
        let mut handlers = Vec::new();
        for joined in ended {
            let reactor = joined.map_err(|_panic| NetError::ThreadUnavailable)??;
            stats = stats.plus(reactor.stats());
            handlers.push(reactor.into_handler());
        }
        Ok((stats, handlers))
    }

    fn request_stop(&self, grace: Duration) {
        self.inboxes.iter().for_each(|it| it.request_stop(grace));
    }
}

/// Stops the threads at once; [`Net::stop`] gives connections time to finish.
impl<H: Handler> Drop for Net<H> {
    fn drop(&mut self) {
        self.request_stop(Duration::ZERO);
        for thread in std::mem::take(&mut self.threads) {
            // The result is dropped: the thread has ended, by whichever cause.
            drop(thread.join());
        }
    }
}

handover_base::debug_struct!(Net<H: Handler> as it { addresses: it.addresses });
