//! Event loop of an endpoint: it owns the tables, and performs their system calls. The handlers are
//! not part of it, so that a running handler can borrow the rest.
//!
//! Its methods are in one file for each layer, and call only those of the layers below: `wait`,
//! `iteration`, `events`, `posts`, `send`, and this one.

mod events;
mod iteration;
mod posts;
mod send;
mod wait;

use super::bulk::{BulkExchange, BulkTables};
use super::call_monitor::CallMonitor;
use super::dump::{Dump, Stats};
use super::handshakes::Handshakes;
use super::inbox::{self, PostedRequest};
use super::listen::{self, Listener};
use super::peers::{ClosedPeer, Peers};
use super::poll::{EventSource, Poll, PollEvent};
use super::pool::{Pool, PoolAnswer};
use super::promises::AwaitedCall;
use super::security::Security;
#[cfg(feature = "signal-dump")]
use super::signal::SignalDump;
use super::timers::Timers;
use crate::clock;
use crate::engine::{Calls, FrameHeader, PeerKey};
use crate::{Address, CloseReason, Config, EndpointError, LogLevel, Transport};
use handover_notify::Yielder;
use std::collections::{HashMap, VecDeque};
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of iterations between two reads of the clock while spinning.
const ITERATIONS_PER_CLOCK_READ: u32 = 64;
/// Interval, in ns, between two calls of epoll while the endpoint does not sleep. Epoll reports
/// closed connections, new connections and readable streams.
const EPOLL_INTERVAL_NS: u64 = 1_000_000;
/// Maximum time for which a dropped endpoint waits until peers have released its memory.
const MEMORY_RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// Target of this crate's log messages, for the filters of `tracing`.
const LOG_TARGET: &str = "handover_rpc";

/// Inbox in which other threads queue calls and closures for the endpoint's thread.
pub(crate) type CallbackInbox = inbox::Inbox<Callback>;

/// Callback that runs between handlers. It is that of a timer or of the endpoint's drop, or another
/// thread's closure.
pub(crate) type Callback = Box<dyn FnOnce(&mut CallbackContext<'_>) + Send>;

/// Access to the endpoint for a callback. The callback is that of a timer, of the endpoint's drop,
/// or of [`Caller::run`](crate::Caller::run). Callbacks run while no handler does. They may call
/// peers ([`Calling`](crate::Calling)), transfer memory ([`Bulk`](crate::Bulk)), and start timers
/// ([`Timing`](crate::Timing)).
#[derive(Debug)]
pub struct CallbackContext<'a> {
    pub(crate) event_loop: &'a mut EventLoop,
}

pub(crate) mod sealed {
    use super::{DeferringSink, EventLoop};

    /// Owner of an event loop: an endpoint, or the context of a handler or a callback.
    pub trait Driver {
        /// Returns the event loop, without the handlers.
        fn event_loop(&mut self) -> &mut EventLoop;
        /// Runs the event loop until `done` returns `true`; returns `false` if the deadline passes
        /// first. Peers' requests are deferred, unless the owner has the handlers.
        fn run_until(
            &mut self,
            deadline_ns: u64,
            done: impl FnMut(&mut EventLoop, bool) -> bool,
        ) -> bool {
            self.event_loop().run_until(&mut DeferringSink, deadline_ns, done)
        }
    }
}

/// Receiver of peers' requests, called by the event loop.
pub(crate) trait RequestSink {
    /// `true` if the event loop may also pass deferred requests to this sink. `false` for the sink
    /// used while a handler runs.
    const CAN_HANDLE_DEFERRED: bool;

    fn handle_request(
        &mut self,
        event_loop: &mut EventLoop,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    );
}

/// Request sink used while a handler runs. It appends peers' requests to the event loop's list of
/// deferred ones.
pub(crate) struct DeferringSink;

impl RequestSink for DeferringSink {
    const CAN_HANDLE_DEFERRED: bool = false;

    fn handle_request(
        &mut self,
        event_loop: &mut EventLoop,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    ) {
        event_loop.defer_request(peer, header, body);
    }
}

/// Event loop of an endpoint, with the endpoint's state except for the handlers.
pub struct EventLoop {
    pub(crate) config: Config,
    pub(crate) security: Security,
    poll: Poll,
    pub(crate) peers: Peers,
    pub(crate) handshakes: Handshakes,
    listeners: Vec<Listener>,
    /// Time at which paused listeners accept connections again, in ns; `None` if no listener is
    /// paused.
    accept_again_ns: Option<u64>,
    pub(crate) calls: Calls,
    /// Calls under way whose results other threads await, by call number.
    awaited_calls: HashMap<u64, AwaitedCall>,
    pub(crate) bulk: BulkTables,
    pub(crate) timers: Timers<Callback>,
    pub(crate) call_monitor: CallMonitor,
    pub(crate) inbox: Arc<CallbackInbox>,
    /// Requests of other threads that were taken from the inbox, but not handled yet.
    posts: Vec<PostedRequest<Callback>>,
    /// Closures of other threads, to be run between handlers.
    closures: VecDeque<Callback>,
    pub(crate) pool: Option<Pool>,
    /// Buffer for the pool's answers that are taken from the inbox.
    answers: Vec<PoolAnswer>,
    #[cfg(feature = "signal-dump")]
    signal_dump: Option<SignalDump>,
    /// Time, in ns, of the next sweep for incomplete frames and unused memory. It is `u64::MAX` if
    /// none is needed.
    sweep_at_ns: u64,
    /// `true` if deferred requests or callbacks are to be run between handlers.
    has_deferred_work: bool,
    /// `true` if timers, a requested dump or closures of other threads are due.
    has_callbacks: bool,
    /// New peer that cannot receive frames yet, and the reason if its connection was closed.
    pub(in crate::drive) opening_peer: Option<(PeerKey, Option<CloseReason>)>,
    /// Peers whose connections the kernel has reported as closed. Messages that they had sent are
    /// received first; requests among them that must be deferred are dropped with the connection.
    reported_closed: Vec<PeerKey>,
    is_stop_requested: bool,
    /// Buffer for the events of an epoll call.
    epoll_events: Vec<PollEvent>,
    /// Body of the last received message.
    pub(crate) body: Vec<u8>,
    /// Buffer for the encoded arguments of a call.
    pub(crate) arguments_buffer: Vec<u8>,
    /// Number of iterations since the last clock read; received frames and bulk copies count too.
    iterations_since_clock_read: u32,
    /// Time of the last call of epoll, in clock ticks.
    last_poll_ticks: u64,
    /// [`EPOLL_INTERVAL_NS`] in clock ticks.
    poll_interval_ticks: u64,
    /// Maximum time of spinning before a sleep, in clock ticks.
    spin_ticks_max: u64,
    yielder: Yielder,
    /// `true` if a peer in shared memory, or another peer of such a peer, was last seen on this
    /// thread's CPU.
    is_cpu_shared: bool,
    /// Buffer for the CPUs of this thread and of the peers in shared memory, plus one.
    cpus_buffer: Vec<u32>,
    /// Time of the last comparison of the peers' CPUs, in clock ticks.
    last_cpu_check_ticks: u64,
    /// Minimum time between two such comparisons, in clock ticks.
    cpu_check_interval_ticks: u64,
    /// Number of waits since one last spun, while yields pay.
    waits_unspun: u32,
    stats: Stats,
    /// Process that has created the endpoint.
    process: u32,
}

handover_base::debug_struct!(EventLoop as it { stats: it.stats() });

impl EventLoop {
    pub(crate) fn new(config: Config) -> Result<Self, EndpointError> {
        config.validate()?;
        let security = Security::new(&config.access)?;
        let refused = |call| {
            move |error| EndpointError::SystemCall { call, subject: "an endpoint".into(), error }
        };
        let poll = Poll::new().map_err(refused("epoll_create1"))?;
        let inbox =
            Arc::new(CallbackInbox::new(config.calls_max as usize).map_err(refused("eventfd"))?);
        poll.add(&inbox.eventfd, EventSource::Inbox).map_err(refused("epoll_ctl"))?;
        #[cfg(feature = "monitoring")]
        let call_monitor = CallMonitor { monitor: config.monitoring.then(Box::default) };
        #[cfg(not(feature = "monitoring"))]
        let call_monitor = CallMonitor::default();
        Ok(Self {
            security,
            poll,
            peers: Peers::new(config.connections.queued_bytes_max as usize),
            handshakes: Handshakes::default(),
            listeners: Vec::new(),
            accept_again_ns: None,
            calls: Calls::new(config.calls_max),
            awaited_calls: HashMap::new(),
            bulk: BulkTables::default(),
            timers: Timers::new(config.timers_max),
            call_monitor,
            inbox,
            posts: Vec::new(),
            closures: VecDeque::new(),
            pool: None,
            answers: Vec::new(),
            #[cfg(feature = "signal-dump")]
            signal_dump: None,
            sweep_at_ns: u64::MAX,
            has_deferred_work: false,
            has_callbacks: false,
            opening_peer: None,
            reported_closed: Vec::new(),
            is_stop_requested: false,
            epoll_events: Vec::new(),
            body: Vec::new(),
            arguments_buffer: Vec::new(),
            iterations_since_clock_read: 0,
            last_poll_ticks: clock::ticks(),
            poll_interval_ticks: clock::ticks_from_ns(EPOLL_INTERVAL_NS),
            spin_ticks_max: clock::ticks_from_ns(clock::ns_from_duration(config.spin_max)),
            yielder: Yielder::among_processes(handover_notify::Config::default()),
            is_cpu_shared: false,
            cpus_buffer: Vec::new(),
            last_cpu_check_ticks: 0,
            cpu_check_interval_ticks: 0,
            waits_unspun: 0,
            stats: Stats::default(),
            process: process::id(),
            config,
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let peers_count = u32::try_from(self.peers.active.len()).unwrap_or(u32::MAX);
        Stats { peers_count, late_count: self.calls.late_answers_count(), ..self.stats }
    }

    #[inline]
    pub(crate) fn closed_peers_count(&self) -> u64 {
        self.stats.closed_count
    }

    pub(crate) fn dump(&self) -> Dump {
        Dump {
            pid: process::id(),
            config: self.config.clone(),
            stats: self.stats(),
            bulk: self.bulk.stats,
            calls_under_way_count: self.calls.calls_count(),
            requests_waiting_count: self.peers.deferred_count(),
            timers_count: self.timers.count(),
            peers: self.peers.dump_peers(),
            #[cfg(feature = "monitoring")]
            calls: self
                .call_monitor
                .monitor
                .as_ref()
                .map_or_else(Vec::new, |it| it.reports_by_method()),
        }
    }

    /// Sets the signal at which a dump is passed to a callback; replaces an earlier one.
    #[cfg(feature = "signal-dump")]
    pub(crate) fn set_signal_dump(&mut self, signal: SignalDump) -> Result<(), EndpointError> {
        let added = self.poll.add(signal.socket(), EventSource::Signal);
        added.map_err(|error| super::signal::system_call_error("epoll_ctl", error))?;
        self.signal_dump = Some(signal);
        Ok(())
    }

    pub(crate) fn listen(&mut self, address: &Address) -> Result<Address, EndpointError> {
        self.security.check_listen_address(address)?;
        if address.transport() == Transport::Ucx {
            self.peers.ucx.start(address, &self.poll)?;
        }
        let listener = listen::listen(address)?;
        let added = self.poll.add(&listener.fd, EventSource::Listener);
        added.map_err(listen::system_call_error("epoll_ctl", &listener.address))?;
        let resolved = listener.address.clone();
        self.config.listen.push(resolved.clone());
        self.listeners.push(listener);
        Ok(resolved)
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.address)
    }

    /// Returns `true` if frames can be sent to that peer.
    pub(crate) fn is_open(&self, peer: PeerKey) -> bool {
        let link = self.peers.get(peer).and_then(|it| it.link.as_ref());
        link.is_some_and(|link| link.is_open())
    }

    /// Returns `true` if a stop was requested since the last call.
    #[inline]
    pub(crate) fn take_stop_request(&mut self) -> bool {
        std::mem::take(&mut self.is_stop_requested)
    }

    fn is_logged(&self, level: LogLevel) -> bool {
        self.config.log_level >= level
    }

    /// Records that callbacks are due between handlers, if `are_due` is `true`.
    fn record_due_callbacks(&mut self, are_due: bool) {
        self.has_callbacks |= are_due;
        self.has_deferred_work |= are_due;
    }

    /// Calls `exchange` with the parts of this event loop that bulk transfers use, and returns its
    /// result.
    #[inline]
    pub(crate) fn with_bulk_exchange<R>(
        &mut self,
        exchange: impl FnOnce(&mut BulkExchange<'_>) -> R,
    ) -> R {
        let Self { bulk: tables, peers, config, .. } = self;
        let result = exchange(&mut BulkExchange { tables, peers, config });
        self.fail_calls_of_closed();
        result
    }

    fn close(&mut self, peer: PeerKey, why: CloseReason) {
        self.peers.close(peer, why);
        self.fail_calls_of_closed();
    }

    /// Fails the calls and transfers of peers whose connections were closed. Called after each use
    /// of the peer table that may close one.
    #[inline]
    fn fail_calls_of_closed(&mut self) {
        if self.peers.has_closed() {
            self.drain_closed_peers();
        }
    }

    /// Empties the list of closed peers, and fails their calls and transfers.
    #[cold]
    fn drain_closed_peers(&mut self) {
        while let Some(ClosedPeer { peer, why, socket, process }) = self.peers.pop_closed() {
            // Without this, a child of this process that inherited the descriptor would keep it in
            // the epoll set.
            let _ = process.map(|it| self.poll.remove(it));
            if let Some(pool) = &self.pool {
                pool.remove_peer_jobs(peer);
            }
            self.calls.fail_calls_to(peer, &why);
            let awaited = self.awaited_calls.values();
            let ended = awaited.filter(|it| self.calls.is_done(it.0) == Some(true));
            for call in ended.map(|it| it.0.word()).collect::<Vec<_>>() {
                self.answer_awaited_call(call);
            }
            let Self { bulk: tables, peers, config, .. } = self;
            BulkExchange { tables, peers, config }.abort_peer_transfers(peer, &why, socket);
            self.call_monitor.remove_peer(peer);
            if let Some((_, closed)) = self.opening_peer.as_mut().filter(|it| it.0 == peer) {
                *closed = Some(why.clone());
            }
            self.stats.closed_count += 1;
            if self.is_logged(LogLevel::Info) {
                tracing::info!(target: LOG_TARGET, slot = peer.slot, %why, "a connection was closed");
            }
        }
    }

    /// Passes the outcome of a completed call to the thread that waits for it, if any.
    #[cold]
    fn answer_awaited_call(&mut self, call: u64) {
        let Some(&(id, ..)) = self.awaited_calls.get(&call) else { return };
        let answer = self.calls.take_completed(id, |outcome, body| {
            outcome.into_result(body, |result| Ok(result.to_vec()))
        });
        if let Some(answer) = answer
            && let Some((_, promise, timer)) = self.awaited_calls.remove(&call)
        {
            timer.map(|it| self.timers.cancel(it));
            promise.set_result(answer);
        }
    }

    /// Returns `true` in a forked child. The connections and the pool belong to its parent.
    pub(crate) fn is_in_forked_child(&self) -> bool {
        process::id() != self.process
    }

    /// Disconnects all peers, and waits shortly until they have released this endpoint's memory.
    /// Has no effect if peers cannot write the memory. Leaks memory that they have not released by
    /// then.
    fn release_memories(&mut self) {
        if !self.bulk.has_memory_writable_by_peers() {
            return;
        }
        for peer in self.peers.keys().collect::<Vec<_>>() {
            self.disconnect(peer);
        }
        let began = Instant::now();
        while self.bulk.has_lingering_memory() && began.elapsed() < MEMORY_RELEASE_TIMEOUT {
            self.bulk.free_lingering_memory();
            std::thread::sleep(MEMORY_RELEASE_TIMEOUT / 100);
        }
        self.bulk.leak_lingering_memory();
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        if self.is_in_forked_child() {
            return;
        }
        // Done before the pool is joined: a handler there may wait for one of these.
        self.fail_awaited_calls();
        self.release_memories();
        // So that peers can read the results that they have not read yet.
        for peer in self.peers.keys().collect::<Vec<_>>() {
            self.peers.link_mut(peer).into_iter().for_each(|link| link.close());
        }
    }
}
