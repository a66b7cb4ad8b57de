//! Several threads of connections.

use super::endpoint::{Dial, Listen};
use super::handler::Handler;
use super::inbox::{Command, Inbox};
use super::reactor::Reactor;
use crate::{Config, NetError, Stats};
use handover_base::sync::shared::{AtomicUsize, Ordering};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How connections come to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// Each thread listens, and the kernel spreads connections by their addresses: nothing is shared.
    #[default]
    ReusePort,
    /// The first thread accepts and hands them out in turn: as many for each.
    HandOut,
}

/// Threads that serve together, each with a handler of its own.
///
/// ```
/// use handover_net::{Config, Conn, Handler, Net, Spread, engine::LengthPrefixed};
///
/// struct Echo;
/// impl Handler for Echo {
///     type Codec = LengthPrefixed;
///     type Data = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixed, ()>, message: &[u8]) {
///         let _ = conn.send(message);
///     }
/// }
///
/// let here = ["127.0.0.1:0".parse()?];
/// let codec = LengthPrefixed::new(1 << 20);
/// let net = Net::start(2, &here, Spread::ReusePort, Config::default(), codec, |_thread| Echo)?;
/// println!("serving at {}", net.addresses()[0]);
/// let (stats, _handlers) = net.stop(std::time::Duration::from_secs(1))?;
/// assert_eq!(stats.accepted_count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Net<H: Handler> {
    inboxes: Vec<Arc<Inbox<H::Data>>>,
    threads: Vec<JoinHandle<Result<Reactor<H>, NetError>>>,
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
}

impl<H: Handler> Net<H> {
    /// Starts so many threads, at least one, which listen at these addresses.
    ///
    /// # Errors
    /// [`NetError`]: the configuration is not valid, an address is in use, a thread cannot be started.
    pub fn start(
        threads_count: u32,
        addresses: &[SocketAddr],
        spread: Spread,
        config: Config,
        codec: H::Codec,
        handler: impl FnMut(u32) -> H,
    ) -> Result<Self, NetError> {
        let listens: Vec<_> = addresses.iter().copied().map(Listen::at).collect();
        Self::start_at(threads_count, &listens, spread, config, codec, handler)
    }

    /// As [`start`](Self::start), where some, or all, listen by TLS.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(
        threads_count: u32,
        listens: &[Listen],
        spread: Spread,
        config: Config,
        codec: H::Codec,
        mut handler: impl FnMut(u32) -> H,
    ) -> Result<Self, NetError> {
        let mut reactors = Vec::new();
        for thread in 0..threads_count.max(1) {
            reactors.push(Reactor::new(config, codec.clone(), handler(thread))?);
        }
        let inboxes: Vec<_> = reactors.iter().map(|it| Arc::clone(it.inbox())).collect();
        let mut bound = Vec::new();
        for listen in listens {
            match spread {
                Spread::HandOut => {
                    bound.push(reactors[0].listen_with(listen, false, inboxes.clone())?);
                }
                Spread::ReusePort => {
                    let mut at = listen.clone();
                    for reactor in &mut reactors {
                        at.address = reactor.listen_shared_at(&at)?;
                    }
                    bound.push(at.address);
                }
            }
        }
        let mut net =
            Self { inboxes, threads: Vec::new(), addresses: bound, next: AtomicUsize::new(0) };
        for (index, mut reactor) in reactors.into_iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("net-{index}"));
            let thread = builder.spawn(move || reactor.run().map(|_| reactor));
            // Those that run already are stopped when `net` is dropped.
            net.threads.push(thread.map_err(NetError::Thread)?);
        }
        Ok(net)
    }

    /// Where it listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connects, on each thread in turn; [`Handler::on_connect`] or [`Handler::on_close`] tells how it went,
    /// with this data.
    ///
    /// # Errors
    /// [`NetError::Unreached`] when that thread has no time.
    pub fn connect(&self, address: SocketAddr, data: H::Data) -> Result<(), NetError> {
        self.connect_from(address, None, data)
    }

    /// As [`connect`](Self::connect), from that address of ours: one of them has some 28,000 ports.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_from(
        &self,
        address: SocketAddr,
        source: Option<SocketAddr>,
        data: H::Data,
    ) -> Result<(), NetError> {
        self.dial(Dial { source, ..Dial::to(address) }, data)
    }

    /// As [`connect`](Self::connect), from an address of ours or by TLS.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn dial(&self, dial: Dial, data: H::Data) -> Result<(), NetError> {
        // Relaxed: whose turn it is, roughly.
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let inbox = &self.inboxes[turn % self.inboxes.len()];
        inbox.push(Command::Connect(dial, data)).map_err(|_refused| NetError::Unreached)
    }

    /// What all threads have done so far, as of a moment ago.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inboxes.iter().fold(Stats::default(), |sum, it| sum.and(it.published.read()))
    }

    /// Accepts nothing more, answers every message that has come, waits for peers to read their answers,
    /// for `grace` at most, and ends. Who goes on sending without a pause is heard for half of that, or a
    /// second. The handlers come back.
    ///
    /// # Errors
    /// That of a thread that ended by itself.
    ///
    /// # Blocking
    /// For `grace` and a little more at most, if handlers return.
    pub fn stop(mut self, grace: Duration) -> Result<(Stats, Vec<H>), NetError> {
        self.ask(grace);
        let mut stats = Stats::default();
        let mut handlers = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            let reactor = thread.join().map_err(|_panic| NetError::Unreached)??;
            stats = stats.and(reactor.stats());
            handlers.push(reactor.into_handler());
        }
        Ok((stats, handlers))
    }

    fn ask(&self, grace: Duration) {
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.inboxes.iter().for_each(|it| it.stop(grace_ns));
    }
}

/// Ends the threads at once; [`Net::stop`] gives connections their time.
impl<H: Handler> Drop for Net<H> {
    fn drop(&mut self) {
        self.ask(Duration::ZERO);
        for thread in std::mem::take(&mut self.threads) {
            // Whatever it ended of, it has ended.
            drop(thread.join());
        }
    }
}

impl<H: Handler> fmt::Debug for Net<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
