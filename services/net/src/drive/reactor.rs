//! Event loop of one thread.

mod accept;
mod serve;

use super::conn::{Conn, Connections, ReceivedBytes};
use super::core::{HandlerCallState, ReactorState, TimerPurpose, enqueue_listener_once};
use super::endpoint::ConnectOptions;
use super::handler::Handler;
use super::inbox::{Command, Inbox, Stopper};
use super::poll::{EventSource, Poll};
use super::slab::{ConnFlags, ConnKey};
use super::socket;
use crate::config::to_ns;
use crate::engine::{PerIpLimiter, Permit, ProtocolState, SpinPolicy, TlsState};
use crate::error::FailedSystemCall;
use crate::tls::TlsServerConfig;
use crate::{CloseReason, Config, NetError, Stats};
use crate::{raw, stage};
use accept::Listener;
use handover_base::slab::Slab;
use handover_base::{clock, unwind};
use handover_notify::adaptive_fd;
use handover_ring::mpsc;
use handover_timer::{TimerId, Wheel};
use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Maximum number of connection slots that one search for idle connections looks at.
const SWEEP_SLOTS_MAX: u32 = 4096;
/// Maximum time, in ns, for which a stopping thread still reads from peers that keep sending.
const STOP_READ_NS_MAX: u64 = 1_000_000_000;
/// Interval in ns at which a busy thread publishes its counters.
const PUBLISH_NS: u64 = 1_000_000;

/// Event loop of one thread, with its connections; [`run`](Self::run) executes it.
///
/// ```
/// use handover_net::{Config, Conn, Handler, Reactor, engine::LinesCodec};
/// use std::io::{BufRead, BufReader, Write};
///
/// struct Shout;
/// impl Handler for Shout {
///     type Codec = LinesCodec;
///     type Data = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, LinesCodec, ()>, line: &[u8]) {
///         let _ = conn.send(&line.to_ascii_uppercase());
///     }
/// }
///
/// let mut reactor = Reactor::new(Config::default(), LinesCodec::new(1024), Shout)?;
/// let address = reactor.listen("127.0.0.1:0".parse::<std::net::SocketAddr>()?)?;
/// let stopper = reactor.stopper();
/// let thread = std::thread::spawn(move || reactor.run());
///
/// let mut peer = std::net::TcpStream::connect(address)?;
/// peer.write_all(b"hello\n")?;
/// let mut line = String::new();
/// BufReader::new(&peer).read_line(&mut line)?;
/// assert_eq!(line, "HELLO\n");
/// stopper.stop(std::time::Duration::from_secs(1));
/// drop(peer);
/// assert_eq!(thread.join().unwrap()?.messages_count, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reactor<H: Handler> {
    core: ReactorState<H::Data>,
    handler: H,
    codec: H::Codec,
    /// Read buffer that all connections of the thread share.
    buffer: Vec<u8>,
    listeners: Vec<Listener<H::Data>>,
    /// Descriptor held in reserve. When no other is available, it is closed so that a connection
    /// can be accepted and rejected.
    reserve_fd: Option<OwnedFd>,
    commands: mpsc::Consumer<Command<H::Data>>,
    /// Receiver that other threads wake after pushing a command.
    wake: adaptive_fd::Receiver,
    spin: SpinPolicy,
    /// Maximum time without a byte from a peer, in ns; 0 is no limit.
    idle_timeout_ns: u64,
    /// Interval of calls of [`Handler::housekeep`], in ns; 0 disables them.
    housekeep_ns: u64,
    /// Index of the slot that the latest search for idle connections looked at last.
    swept_index: u32,
    is_accept_retry_scheduled: bool,
    /// Time in ns, after a stop request, from which at most one more message of each connection is
    /// delivered.
    last_messages_ns: u64,
    /// Time in ns at which the grace period of a stop request ends.
    grace_end_ns: u64,
    /// Timers of these two times.
    stop_timers: [Option<TimerId>; 2],
    /// Time in ns at which the counters were published last.
    published_ns: u64,
}

impl<H: Handler> Reactor<H> {
    /// Creates an event loop without connections and listeners.
    ///
    /// # Errors
    /// [`NetError`]: the configuration is not valid, or the kernel gave no descriptors.
    pub fn new(config: Config, codec: H::Codec, handler: H) -> Result<Self, NetError> {
        config.validate()?;
        let (producer, commands) = mpsc::ring(config.commands_max).map_err(NetError::Commands)?;
        // Spinning, if configured, is done on the sockets.
        let (sender, wake) =
            adaptive_fd::pair(handover_notify::Config::never_spin()).map_err(NetError::Wake)?;
        let poll = Poll::new(config.ready_max)?;
        poll.add(wake.as_fd(), EventSource::Wake)?;
        let now_ns = clock::now_ns();
        // One timer for each connection, and the thread's own.
        let timers =
            handover_timer::Config::default().timers_max(config.connections_max.saturating_add(8));
        let Ok(wheel) = Wheel::new(timers, now_ns) else {
            return Err(NetError::Full { connections_max: config.connections_max });
        };
        let inbox = Inbox::new(producer, sender, &config);
        let mut reactor = Self {
            core: ReactorState {
                slab: Slab::new(config.connections_max),
                poll,
                wheel,
                ready: VecDeque::new(),
                pending_closes: Vec::new(),
                pending_crossings: Vec::new(),
                inbox: Arc::new(inbox),
                config,
                limits: config.connection_limits(),
                connect_timeout_ns: to_ns(config.connect_timeout),
                linger_ns: to_ns(config.linger),
                limiter: PerIpLimiter::new(config.connections_per_address_max),
                stats: Stats::default(),
                now_ns,
                is_stopping: false,
                call: HandlerCallState::default(),
                plain: Vec::new(),
                sealed: Vec::new(),
            },
            handler,
            codec,
            buffer: vec![0; config.read_bytes as usize],
            listeners: Vec::new(),
            reserve_fd: None,
            commands,
            wake,
            spin: SpinPolicy::new(to_ns(config.spin_max)),
            idle_timeout_ns: to_ns(config.idle_timeout),
            housekeep_ns: to_ns(config.housekeep_interval),
            swept_index: 0,
            is_accept_retry_scheduled: false,
            last_messages_ns: u64::MAX,
            grace_end_ns: u64::MAX,
            stop_timers: [None; 2],
            published_ns: now_ns,
        };
        reactor.open_reserve_fd();
        reactor.start_timer(reactor.sweep_ns(), TimerPurpose::Sweep);
        reactor.start_timer(reactor.housekeep_ns, TimerPurpose::Housekeep);
        Ok(reactor)
    }

    /// Takes over a connected stream as if this thread had accepted it; returns the connection's
    /// key.
    ///
    /// # Errors
    /// [`NetError`] if the limit of connections is reached, or the socket cannot be watched.
    pub fn adopt(&mut self, stream: impl Into<OwnedFd>) -> Result<ConnKey, NetError> {
        self.adopt_with(stream.into(), None)
    }

    /// Takes over a stream like [`adopt`](Self::adopt), and performs the TLS handshake as server
    /// first.
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    pub fn adopt_tls(
        &mut self,
        stream: impl Into<OwnedFd>,
        server: &TlsServerConfig,
    ) -> Result<ConnKey, NetError> {
        self.adopt_with(stream.into(), Some(server))
    }

    /// Takes over a connected stream, with a TLS handshake as server if `tls` is `Some`.
    fn adopt_with(
        &mut self,
        fd: OwnedFd,
        tls: Option<&TlsServerConfig>,
    ) -> Result<ConnKey, NetError> {
        rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| ("ioctl", errno))?;
        let peer = socket::peer_address(fd.as_fd()).ok();
        self.add_accepted(fd, peer, tls)
    }

    /// Starts to connect to an address, or as [`ConnectOptions`] say, and returns the connection's
    /// key; [`Handler::on_connect`] or [`Handler::on_close`] reports the result.
    ///
    /// # Errors
    /// [`NetError`] if the attempt could not be started.
    pub fn connect(
        &mut self,
        to: impl Into<ConnectOptions>,
        data: H::Data,
    ) -> Result<ConnKey, NetError> {
        self.core.connect(&to.into(), data).map_err(|(error, _)| error)
    }

    /// Returns a handle with which other threads stop this event loop and read its counters.
    #[must_use]
    pub fn stopper(&self) -> Stopper<H::Data> {
        Stopper { inbox: Arc::clone(&self.core.inbox) }
    }

    /// Returns the handler, mutably, for access before and after [`run`](Self::run).
    pub fn handler_mut(&mut self) -> &mut H {
        &mut self.handler
    }

    /// Returns the thread's counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats
    }

    pub(crate) fn into_handler(self) -> H {
        self.handler
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox<H::Data>> {
        &self.core.inbox
    }

    /// Serves connections until the thread is stopped; returns the final counters. A stopped thread
    /// first handles all received messages.
    ///
    /// # Errors
    /// [`NetError::SystemCall`] if the kernel refuses to wait; no connection can cause that.
    ///
    /// # Blocking
    /// Blocks until the thread is stopped.
    pub fn run(&mut self) -> Result<Stats, NetError> {
        loop {
            self.core.now_ns = clock::now_ns();
            self.core.stats.rounds_count += 1;
            // Read before the commands: the last commands of a listener that has ended are in the
            // queue.
            let is_last =
                self.core.is_stopping && !self.core.inbox.reservations.has_remote_listeners();
            self.handle_expired_timers();
            self.execute_commands();
            self.serve_ready();
            self.handle_pending();
            if let Some(grace_ns) = self.core.inbox.stop_grace_ns() {
                match self.core.is_stopping {
                    false => self.begin_stop(grace_ns),
                    true => self.shorten_stop(grace_ns),
                }
            }
            let is_empty = self.core.is_stopping && self.core.slab.is_empty();
            if is_empty && is_last {
                self.publish();
                return Ok(self.core.stats);
            }
            // If the last listener has ended meanwhile, the loop runs once more without waiting.
            if !is_empty || self.core.inbox.reservations.has_remote_listeners() {
                self.wait()?;
            }
        }
    }

    /// Serves each source in the queue of ready sources once. Sources that are queued meanwhile
    /// wait.
    fn serve_ready(&mut self) {
        for _ in 0..self.core.ready.len() {
            match self.core.ready.pop_front() {
                Some(EventSource::Connection(key)) => self.serve_connection(key),
                Some(EventSource::Listener(index)) => self.accept_from_listener(index),
                Some(EventSource::Wake) | None => {}
            }
        }
    }

    /// Closes the connections in `pending_closes` and reports the crossings of water marks in
    /// `pending_crossings`.
    fn handle_pending(&mut self) {
        while let Some((key, why)) = self.core.pending_closes.pop() {
            self.close(key, &why);
        }
        while let Some((key, crossing)) = self.core.pending_crossings.pop() {
            self.call(key, |handler, conn| handler.on_crossing(conn, crossing));
        }
    }

    /// Waits for events, commands or the next timer; spins first if recent spins have found work.
    fn wait(&mut self) -> Result<(), NetError> {
        let core = &self.core;
        let is_busy = !core.ready.is_empty()
            || !core.pending_closes.is_empty()
            || !core.pending_crossings.is_empty();
        if is_busy || !self.commands.is_empty() {
            if self.core.now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS {
                self.publish();
            }
            poll_events(&mut self.core, Some(0))?;
            return Ok(());
        }
        self.publish();
        let core = &mut self.core;
        let spin_ns = self.spin.next_spin_ns();
        if spin_ns > 0 {
            let until_ns = core.now_ns + spin_ns;
            let paid = loop {
                if poll_events(core, Some(0))? > 0 || !self.commands.is_empty() {
                    break true;
                }
                if clock::now_ns() >= until_ns {
                    break false;
                }
            };
            self.spin.record_spin(paid);
            core.stats.spun_count += u64::from(paid);
            if paid {
                return Ok(());
            }
        }
        let timeout_ns = core.wheel.next_deadline_ns().map(|deadline_ns| {
            // The kernel rounds a timeout up, so that no timer expires early.
            deadline_ns.saturating_sub(clock::now_ns())
        });
        let timeout_ns = match self.wake.prepare_park() {
            true => timeout_ns,
            false => Some(0),
        };
        let polled = poll_events(core, timeout_ns);
        // Commands are checked in the next round in any case.
        let _ = self.wake.cancel_park();
        polled?;
        Ok(())
    }

    /// Publishes the counters for other threads to read.
    fn publish(&mut self) {
        self.published_ns = self.core.now_ns;
        self.core.inbox.published_stats.publish(&self.core.stats);
    }

    /// Executes the commands that are queued at the time of the call, and no later ones.
    fn execute_commands(&mut self) {
        for _ in 0..self.commands.len() {
            let Some(command) = self.commands.pop() else { return };
            let mut connections = Connections { core: &mut self.core, codec: &self.codec };
            match command {
                Command::Write(key, bytes) => {
                    connections.core.inbox.reservations.release_bytes(bytes.len());
                    // A failure closes the connection, which on_close reports.
                    let _ = connections.core.queue_write_with(key, |out| {
                        *out = bytes;
                        Ok(())
                    });
                }
                Command::Close(key) => connections.close(key),
                Command::Suspend(key) => connections.suspend(key),
                Command::Resume(key) => connections.resume(key),
                Command::Trigger(key) => {
                    if let Some(slot) = connections.core.slab.get_mut(key) {
                        slot.flags.insert(ConnFlags::TRIGGERED);
                        connections.core.enqueue_connection(key);
                    }
                }
                Command::Adopt(fd, peer, tls) => {
                    let _ = self.add_accepted(fd, peer, tls.as_ref());
                    self.core.inbox.release_reserved_slot();
                }
                Command::ResumeAccepting => self.resume_accepting(),
                Command::Connect(options, data) => {
                    if let Err((error, data)) = self.core.connect(&options, data) {
                        self.report_failed_connect(error, data);
                    }
                }
            }
        }
    }

    /// Reports to the handler that a connection requested by another thread could not be started.
    fn report_failed_connect(&mut self, error: NetError, data: H::Data) {
        let why = match error {
            NetError::SystemCall { error, .. } => CloseReason::ConnectFailed(error),
            NetError::Stopping => CloseReason::Stopped,
            _ => CloseReason::ConnectFailed(rustix::io::Errno::MFILE.into()),
        };
        let key = ConnKey { index: u32::MAX, generation: 0 };
        self.call_without_connection(|handler, connections| {
            handler.on_close(connections, key, data, &why);
        });
    }

    fn handle_expired_timers(&mut self) {
        let now_ns = self.core.now_ns;
        // Limited, so that many timers that expire together do not delay ready connections.
        for _ in 0..self.core.config.ready_max {
            let Some(expired) = self.core.wheel.pop_due(now_ns) else { return };
            match expired.payload {
                TimerPurpose::Connection(key) => self.handle_connection_timer(key),
                TimerPurpose::Sweep => {
                    self.sweep_idle_connections();
                    self.start_timer(self.sweep_ns(), TimerPurpose::Sweep);
                }
                TimerPurpose::Housekeep => {
                    self.call_without_connection(|handler, connections| {
                        handler.housekeep(connections)
                    });
                    self.start_timer(self.housekeep_ns, TimerPurpose::Housekeep);
                }
                TimerPurpose::RetryAccept => {
                    self.is_accept_retry_scheduled = false;
                    self.resume_accepting();
                }
                TimerPurpose::LastMessages => self.limit_to_one_message(),
                TimerPurpose::GraceEnd => {
                    for index in 0..self.core.slab.slots_count() {
                        if let Some(key) = self.core.slab.key_at(index) {
                            self.close(key.into(), &CloseReason::Stopped);
                        }
                    }
                }
            }
        }
    }

    /// Handles the expired timer of a connection. The deadline may have moved or vanished
    /// meanwhile.
    fn handle_connection_timer(&mut self, key: ConnKey) {
        let core = &mut self.core;
        let Some(slot) = core.slab.get_mut(key) else { return };
        slot.timer = None;
        if slot.flags.intersects(ConnFlags::LINGERING) {
            return self.handle_linger_timer(key);
        }
        // Bytes that arrived in time may take many reads. Bytes that arrive later do not count.
        let received_bytes = socket::received_bytes(slot.fd.as_fd());
        for _ in 0..received_bytes.div_ceil(self.buffer.len() as u64).max(1) {
            if self.exceeded_timeout(key).is_none() {
                break;
            }
            self.serve_unreported(key);
        }
        match self.exceeded_timeout(key) {
            Some(why) => {
                self.core.stats.timed_out_count += 1;
                self.close(key, &why);
            }
            None => self.core.arm_timer(key),
        }
    }

    /// Returns the reason to close a connection if it has exceeded the time limit of its
    /// connecting, handshake, message or sending.
    fn exceeded_timeout(&self, key: ConnKey) -> Option<CloseReason> {
        let core = &self.core;
        let slot = core.slab.get(key)?;
        if slot.flags.intersects(ConnFlags::CONNECTING) {
            let is_over = core.deadline_ns(slot)? <= core.now_ns;
            return is_over.then(|| CloseReason::ConnectFailed(rustix::io::Errno::TIMEDOUT.into()));
        }
        let limits = core.limits_with_flags(slot.flags);
        slot.protocol.exceeded_timeout(&limits, core.now_ns).map(CloseReason::from)
    }

    /// Closes a lingering connection if its time is over.
    fn handle_linger_timer(&mut self, key: ConnKey) {
        let core = &mut self.core;
        let (now_ms, now_ns) = (core.now_ms(), core.now_ns);
        let Some(slot) = core.slab.get(key) else { return };
        let is_over = core.deadline_ns(slot).is_some_and(|until_ns| until_ns <= now_ns);
        let Some(slot) = core.slab.get_mut(key) else { return };
        // A close now would discard the sent bytes that the peer's kernel had no space for yet.
        if is_over
            && slot.protocol.should_await_acknowledgements(
                raw::unacknowledged_bytes(slot.fd.as_fd()).unwrap_or(0),
            )
        {
            slot.active_ms = now_ms;
        } else if is_over {
            return self.close(key, &self.local_close_reason());
        }
        core.arm_timer(key);
    }

    /// Starts a timer of the event loop that expires after `delay_ns` ns; 0 starts none.
    fn start_timer(&mut self, delay_ns: u64, purpose: TimerPurpose) {
        if delay_ns > 0 {
            // The wheel holds a few timers more than there can be connections.
            let _ = self.core.wheel.start(self.core.now_ns.saturating_add(delay_ns), purpose);
        }
    }

    /// Returns the interval, in ns, between searches for idle connections; 0 without an idle
    /// timeout. All slots are searched within an eighth of the timeout.
    fn sweep_ns(&self) -> u64 {
        let sweeps_count = u64::from(self.core.slab.slots_count() / SWEEP_SLOTS_MAX + 1);
        match self.idle_timeout_ns {
            0 => 0,
            idle_ns => (idle_ns / 8 / sweeps_count).max(1_000_000),
        }
    }

    /// Closes connections that were idle for too long, among the next [`SWEEP_SLOTS_MAX`] slots.
    fn sweep_idle_connections(&mut self) {
        let slots_count = self.core.slab.slots_count();
        for _ in 0..slots_count.min(SWEEP_SLOTS_MAX) {
            self.swept_index =
                if self.swept_index + 1 < slots_count { self.swept_index + 1 } else { 0 };
            let Some(key) = self.core.slab.key_at(self.swept_index) else { continue };
            let key = key.into();
            if self.has_been_idle(key) {
                self.serve_unreported(key);
            }
            if self.has_been_idle(key) {
                self.core.stats.timed_out_count += 1;
                self.close(key, &CloseReason::Idle);
            }
        }
    }

    /// Returns `true` if the connection exists and was idle for `idle_timeout_ns`. A connection
    /// that is not read is silent for that reason, and is not idle.
    fn has_been_idle(&self, key: ConnKey) -> bool {
        self.core.slab.get(key).is_some_and(|slot| {
            !slot.flags.is_read_blocked()
                && !slot.flags.intersects(ConnFlags::LINGERING)
                && self.core.since_ns(slot.active_ms) >= self.idle_timeout_ns
        })
    }

    /// Begins to stop: accepts no more connections, and reads the bytes that have arrived.
    fn begin_stop(&mut self, grace_ns: u64) {
        // Connections that the kernel has accepted still count.
        self.drain_and_close_listeners();
        self.core.is_stopping = true;
        for index in 0..self.core.slab.slots_count() {
            let Some(key) = self.core.slab.key_at(index).map(ConnKey::from) else { continue };
            let Some(slot) = self.core.slab.get_mut(key) else { continue };
            if slot.flags.intersects(ConnFlags::CONNECTING) {
                self.close(key, &CloseReason::Stopped);
            } else {
                // The latest edge may not have been reported yet.
                slot.flags.insert(ConnFlags::READABLE);
                self.core.resume_connection(key);
            }
        }
        self.start_stop_timers(grace_ns);
    }

    /// Applies a later stop request if its grace period ends before that of the earlier one.
    fn shorten_stop(&mut self, grace_ns: u64) {
        if self.core.now_ns.saturating_add(grace_ns.max(1)) < self.grace_end_ns {
            self.start_stop_timers(grace_ns);
        }
    }

    /// Starts the timers that end a stop, instead of those of an earlier request.
    fn start_stop_timers(&mut self, grace_ns: u64) {
        let core = &mut self.core;
        let last_messages_ns = core.now_ns + (grace_ns / 2).clamp(1, STOP_READ_NS_MAX);
        self.last_messages_ns = self.last_messages_ns.min(last_messages_ns);
        self.grace_end_ns = core.now_ns.saturating_add(grace_ns.max(1));
        let timers = [
            (self.last_messages_ns, TimerPurpose::LastMessages),
            (self.grace_end_ns, TimerPurpose::GraceEnd),
        ];
        for (timer, (at_ns, purpose)) in self.stop_timers.iter_mut().zip(timers) {
            // A timer that has expired cannot be cancelled.
            timer.take().map(|it| core.wheel.cancel(it));
            // The wheel holds a few timers more than there can be connections.
            *timer = core.wheel.start(at_ns, purpose).ok();
        }
    }

    /// Limits each connection to one more message. A peer that sends without a pause would
    /// otherwise be read for ever.
    fn limit_to_one_message(&mut self) {
        for index in 0..self.core.slab.slots_count() {
            let Some(key) = self.core.slab.key_at(index).map(ConnKey::from) else { continue };
            let Some(slot) = self.core.slab.get_mut(key) else { continue };
            slot.flags.insert(ConnFlags::LAST_MESSAGE);
            self.core.enqueue_connection(key);
        }
    }

    /// Calls a method of the handler for the connection `key`, and sends the replies.
    fn call(&mut self, key: ConnKey, f: impl FnOnce(&mut H, &mut Conn<'_, H::Codec, H::Data>)) {
        let Some(slot) = self.core.slab.get(key) else { return };
        let queued_bytes = slot.protocol.queued_bytes();
        self.core.start_handler_call(key, queued_bytes);
        let Self { core, codec, handler, .. } = self;
        let received = ReceivedBytes::default();
        let conn = &mut Conn { core, codec, key, received };
        let result = catch_unwind(AssertUnwindSafe(|| f(handler, conn)));
        match result {
            Ok(()) => self.send_replies(key, &[]),
            Err(payload) => {
                self.close_panicked(key, payload.as_ref());
                unwind::drop_payload(payload);
            }
        }
    }

    /// Calls a method of the handler that belongs to no particular connection. The method gets
    /// access to all connections.
    fn call_without_connection(
        &mut self,
        f: impl FnOnce(&mut H, &mut Connections<'_, H::Codec, H::Data>),
    ) {
        let Self { core, codec, handler, .. } = self;
        let result =
            catch_unwind(AssertUnwindSafe(|| f(handler, &mut Connections { core, codec })));
        if let Err(payload) = result {
            self.report_panic(payload.as_ref());
            unwind::drop_payload(payload);
        }
    }

    /// Closes a connection whose handler call panicked.
    fn close_panicked(&mut self, key: ConnKey, panic: &(dyn Any + Send)) {
        self.core.call.key = None;
        self.core.call.clear_replies();
        self.core.call.overflow = None;
        self.report_panic(panic);
        self.close(key, &CloseReason::Panicked);
    }

    fn report_panic(&mut self, panic: &(dyn Any + Send)) {
        self.core.stats.panics_count += 1;
        let message = unwind::panic_message(panic).unwrap_or("a panic without a message");
        // A second panic is ignored.
        let reported = catch_unwind(AssertUnwindSafe(|| self.handler.on_panic(message)));
        reported.unwrap_or_else(unwind::drop_payload);
    }

    /// Returns the reason for a close by this program, which may be the thread's stop.
    fn local_close_reason(&self) -> CloseReason {
        if self.core.is_stopping { CloseReason::Stopped } else { CloseReason::Local }
    }

    fn close(&mut self, key: ConnKey, why: &CloseReason) {
        let Some(slot) = self.core.slab.remove(key) else { return };
        if let Some(timer) = slot.timer {
            let _ = self.core.wheel.cancel(timer);
        }
        self.core.limiter.release(slot.permit);
        self.core.stats.closed_count += 1;
        self.core.adjust_open_count(-1);
        self.core.stats.slow_readers_count += u64::from(matches!(why, CloseReason::SlowReader(_)));
        self.core.stats.tls_failed_count += u64::from(matches!(why, CloseReason::Tls(_)));
        drop(slot.fd);
        let data = slot.data;
        self.call_without_connection(|handler, connections| {
            handler.on_close(connections, key, data, why)
        });
        self.resume_accepting();
    }

    /// Adds a connected socket and returns the connection's key. Calls [`Handler::on_accept`],
    /// unless a TLS handshake must be done first.
    fn add_accepted(
        &mut self,
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        tls: Option<&TlsServerConfig>,
    ) -> Result<ConnKey, NetError> {
        let (protocol, flags) = match tls {
            None => (ProtocolState::default(), ConnFlags::default()),
            Some(server) => (
                ProtocolState::with_tls(TlsState::new_server(server, self.core.now_ns)?),
                ConnFlags::HANDSHAKING,
            ),
        };
        let mut flags = flags;
        if peer.is_none() {
            // Only a Unix socket has a peer without an address.
            flags.insert(ConnFlags::STOPS_SHORT);
        }
        let permit = match peer.map(|peer| peer.ip()) {
            None => Permit::NONE,
            Some(address) => {
                let Some(permit) = self.core.limiter.acquire(address) else {
                    self.core.stats.turned_away_count += 1;
                    let connections_per_address_max = self.core.config.connections_per_address_max;
                    return Err(NetError::AddressFull { address, connections_per_address_max });
                };
                permit
            }
        };
        socket::set_socket_options(fd.as_fd(), &self.core.config);
        let opened = self.core.add_connection(fd, permit, flags, protocol, H::Data::default());
        self.core.stats.turned_away_count += u64::from(opened.is_err());
        let key = opened.map_err(|(error, _data)| error)?;
        self.core.stats.accepted_count += 1;
        if tls.is_none() {
            self.call(key, |handler, conn| handler.on_accept(conn));
            self.core.restart_idle_time(key);
        }
        if self.core.is_stopping
            && let Some(slot) = self.core.slab.get_mut(key)
        {
            // While stopping, messages that arrived before a late hand-over are answered too.
            slot.flags.insert(ConnFlags::READABLE);
            // The timers that limit this have expired if their times have passed.
            if self.core.now_ns >= self.last_messages_ns {
                slot.flags.insert(ConnFlags::LAST_MESSAGE);
            }
            if self.core.now_ns >= self.grace_end_ns {
                self.close(key, &CloseReason::Stopped);
            }
        }
        self.finish_service(key);
        Ok(key)
    }
}

handover_base::debug_struct!(Reactor<H: Handler> as it { connections: it.core.slab.len() });

/// Waits for events and appends the ready connections and listeners to the queue. Returns the
/// number of events.
fn poll_events<D>(
    core: &mut ReactorState<D>,
    timeout_ns: Option<u64>,
) -> Result<usize, FailedSystemCall> {
    let ReactorState { poll, slab, ready, .. } = core;
    poll.wait(timeout_ns, |source, readiness| {
        let key = match source {
            EventSource::Connection(key) => key,
            EventSource::Listener(_) => return enqueue_listener_once(ready, source),
            EventSource::Wake => return,
        };
        // The connection is closed; its slot may have another one.
        let Some(slot) = slab.get_mut(key) else { return };
        let is_writable = readiness.is_writable
            && slot.flags.intersects(ConnFlags::SEND_BLOCKED.union(ConnFlags::CONNECTING));
        if readiness.is_readable {
            stage::record_readable(key.index);
            slot.flags.insert(ConnFlags::READABLE);
        }
        if readiness.is_hung_up {
            slot.flags.insert(ConnFlags::HUNG_UP);
        }
        if readiness.is_urgent {
            slot.flags.insert(ConnFlags::STOPS_SHORT);
        }
        if is_writable {
            slot.flags.insert(ConnFlags::WRITABLE);
        }
        if (readiness.is_readable || is_writable) && !slot.flags.intersects(ConnFlags::QUEUED) {
            slot.flags.insert(ConnFlags::QUEUED);
            ready.push_back(source);
        }
    })
}
