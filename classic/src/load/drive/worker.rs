//! One thread: its connections, and its event loop.

use super::connection::{Buffers, LoadConnection};
use super::{Event, LiveCounters, LoadReport, SharedState};
use crate::load::engine::{Client, MessageQuota};
use crate::load::error::Fault;
use crate::load::plan::{LoadAmount, LoadPlan};
use crate::load::schedule::Schedule;
use crate::load::socket;
use crate::load::wire::{HEADER_BYTES, Lengths, MessageText};
use handover_base::epoll::{Epoll, Flags};
use handover_base::sync::shared::Ordering;
use handover_base::{clock, usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// Size of a send, in bytes, at which no further message is added.
const SEND_BYTES: usize = 1 << 16;
/// Maximum number of events taken from epoll at a time.
const EVENTS_MAX: usize = 256;
/// Interval at which a thread checks for an order to stop and for silent connections, in ns.
const CHECK_INTERVAL_NS: u64 = 50_000_000;

/// One thread of a load, with its measurements.
pub(super) struct Worker {
    /// Index of the thread.
    thread: u32,
    plan: LoadPlan,
    shared: Arc<SharedState>,
    /// Counters that [`Load::progress`](super::Load::progress) reads.
    live: Arc<LiveCounters>,
    letters: MessageText,
    /// Measurements so far.
    report: LoadReport,
}

/// Start and end of the measured time, in ns since the start of the load.
#[derive(Debug, Clone, Copy)]
struct MeasuredTime {
    from_ns: u64,
    until_ns: u64,
}

impl Worker {
    pub(super) fn new(
        thread: u32,
        plan: &LoadPlan,
        shared: Arc<SharedState>,
        live: Arc<LiveCounters>,
    ) -> Self {
        let bucket_ns = plan.linear_bucket.map(|step| step.as_nanos() as u64);
        Self {
            thread,
            letters: MessageText::new(plan.letters_max),
            report: LoadReport::new(bucket_ns),
            plan: plan.clone(),
            shared,
            live,
        }
    }

    /// Generates the load of the thread, and returns its measurements.
    pub(super) fn run(mut self) -> LoadReport {
        // A sandbox may refuse this: then sleeps end up to 50 us late, as by default.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        match self.plan.work {
            LoadAmount::Counted { count, iterations, reconns, pause } => {
                let order = MessageQuota::Bursts { count, iterations };
                for reconn in 0..reconns {
                    let served = self.run_connections(reconn, order);
                    self.live.set_open_count(0);
                    if !served || self.should_stop() {
                        break;
                    }
                    if !pause.is_zero() {
                        self.send_event(Event::Pausing(pause));
                        self.pause(pause);
                    }
                }
            }
            LoadAmount::Timed { .. } => {
                self.run_connections(0, MessageQuota::Endless);
                self.live.set_open_count(0);
            }
        }
        self.report.elapsed_ns = match self.plan.work {
            LoadAmount::Timed { .. } => self.report.elapsed_ns,
            LoadAmount::Counted { .. } => self.now_ns(),
        };
        self.report.is_stopped = self.should_stop();
        self.send_event(Event::Finished);
        self.report
    }

    /// Returns the time since the start of the load.
    fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.shared.origin_ns)
    }

    /// Returns `true` if the load is to stop early.
    fn should_stop(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.shared.should_stop.load(Ordering::Relaxed)
    }

    fn send_event(&self, event: Event) {
        // The receiver may have been dropped.
        let _ = self.shared.events.send(event);
    }

    /// Sleeps for `pause`, or until the load is to stop.
    fn pause(&self, pause: Duration) {
        let until_ns = self.now_ns() + pause.as_nanos() as u64;
        while !self.should_stop() {
            let left_ns = until_ns.saturating_sub(self.now_ns());
            if left_ns == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(CHECK_INTERVAL_NS)));
        }
    }

    /// Opens the connections, and serves them until they are done. Returns `false` if all of them
    /// have failed.
    fn run_connections(&mut self, reconn: u64, order: MessageQuota) -> bool {
        let epoll = match Epoll::new(EVENTS_MAX) {
            Ok(epoll) => epoll,
            Err(error) => {
                let errno = socket::errno(&error);
                let fault = Fault::Refused { call: "epoll_create", errno };
                self.report.record_fault(&fault);
                self.send_event(Event::Failed(fault));
                return false;
            }
        };
        // Holds at least one message and the kept beginning of another.
        let message_bytes = HEADER_BYTES + self.plan.letters_max as usize;
        let mut connections = Connections {
            epoll,
            by_client: Vec::new(),
            ready: VecDeque::new(),
            unfinished_count: 0,
            unconnected_count: 0,
            faults_count: 0,
            has_begun: false,
            buffers: Buffers::new(
                (self.plan.read_bytes as usize).max(2 * message_bytes),
                SEND_BYTES + message_bytes,
            ),
            window: None,
            schedule_of_thread: None,
            due_so_far_count: 0,
        };
        for client in 0..self.plan.clients_count {
            match self.connect(&connections.epoll, client, reconn, order) {
                Ok(connection) => {
                    connections.by_client.push(Some(connection));
                    connections.unfinished_count += 1;
                    connections.unconnected_count += 1;
                }
                Err(fault) => {
                    self.record_fault(&mut connections, fault, None);
                    connections.by_client.push(None);
                }
            }
        }
        self.live.set_open_count(connections.unfinished_count);
        let began = usage::thread_usage();
        let began_ns = self.now_ns();
        self.serve_all(&mut connections);
        self.record_elapsed_if_cut_short(&connections);
        let took_ns = self.now_ns().saturating_sub(began_ns).max(1);
        let busy = (usage::thread_usage() - began).cpu_ns() as f64 / took_ns as f64;
        self.report.busy_share = self.report.busy_share.max(busy);
        // The remaining connections were cut short.
        for connection in connections.by_client.drain(..).flatten() {
            self.add_counts(&connection.client);
        }
        connections.faults_count < u64::from(self.plan.clients_count)
    }

    /// Starts to connect the client with index `client`.
    fn connect(
        &self,
        epoll: &Epoll,
        client: u32,
        reconn: u64,
        order: MessageQuota,
    ) -> Result<LoadConnection, Fault> {
        let address = self.plan.address;
        let fd = socket::connect(address, None).map_err(|(call, errno)| match call {
            "connect" => Fault::Unconnected { address, errno },
            _ => Fault::Refused { call, errno },
        })?;
        epoll
            .add(&fd, client.into(), socket::WATCHED_EVENTS)
            .map_err(|error| Fault::Refused { call: "epoll_ctl", errno: socket::errno(&error) })?;
        let number = u64::from(self.thread) << 32 | u64::from(client);
        let id = u128::from(self.plan.salt) << 96
            | u128::from(reconn & u64::from(u32::MAX)) << 64
            | u128::from(number);
        let seed = number ^ reconn << 48 ^ u64::from(self.plan.salt) << 56;
        let lengths = Lengths::new(seed, self.plan.letters_min, self.plan.letters_max);
        let client = Client::new(id, lengths, order, self.plan.depth);
        let secure = self.shared.encryption.as_ref().map(|it| it.begin()).transpose();
        let secure = secure.map_err(Fault::TlsSetup)?;
        Ok(LoadConnection::new(fd, client, secure, self.now_ns()))
    }

    /// Serves the connections until each is done or has failed, or the load is to stop.
    fn serve_all(&mut self, connections: &mut Connections) {
        let mut next_check_ns = self.now_ns() + CHECK_INTERVAL_NS;
        while connections.unfinished_count > 0 {
            // Connections that become ready meanwhile wait for the next iteration.
            for _ in 0..connections.ready.len() {
                let Some(index) = connections.ready.pop_front() else { break };
                if let Err(fault) = self.serve(connections, index) {
                    let connection = connections.remove(index);
                    self.record_fault(connections, fault, connection.as_ref());
                }
                let is_done = |connection: &LoadConnection| {
                    connection.is_connected && connection.client.is_done()
                };
                if connections.connection(index).is_some_and(is_done) {
                    let connection = connections.close(index);
                    connection.iter().for_each(|connection| self.add_counts(&connection.client));
                }
            }
            if connections.unconnected_count == 0 && !connections.has_begun {
                connections.has_begun = true;
                self.begin_measurement(connections);
            }
            let now_ns = self.now_ns();
            self.queue_due_connections(connections, now_ns);
            if now_ns >= next_check_ns {
                next_check_ns = now_ns + CHECK_INTERVAL_NS;
                if self.should_stop() {
                    return;
                }
                self.fail_silent_connections(connections, now_ns);
                self.live.set_open_count(connections.unfinished_count);
            }
            self.end_measurement_if_over(connections, now_ns);
            let timeout_ns = match connections.ready.is_empty() {
                true => connections.next_ns().min(next_check_ns).saturating_sub(now_ns),
                false => 0,
            };
            if connections.unfinished_count > 0
                && let Err(error) = connections.wait(timeout_ns)
            {
                let errno = socket::errno(&error);
                self.record_fault(connections, Fault::Refused { call: "epoll_wait", errno }, None);
                return;
            }
        }
    }

    /// Starts the measurement. Called when all connections are established or have failed.
    fn begin_measurement(&mut self, connections: &mut Connections) {
        self.report.connected_count += connections.unfinished_count;
        self.send_event(Event::Connected { count: connections.unfinished_count });
        let LoadAmount::Timed { warm_up, duration, rate } = self.plan.work else {
            return connections.queue_all();
        };
        let now_ns = self.now_ns();
        // Threads take turns, and so do the connections of a thread.
        let schedule_of_thread = rate.map(|rate| {
            let threads_count = u64::from(self.plan.threads_count);
            Schedule::new(now_ns, 1e9 / rate)
                .schedule_of_every_nth(self.thread.into(), threads_count)
        });
        let from_ns = now_ns + warm_up.as_nanos() as u64;
        let until_ns = from_ns + duration.as_nanos() as u64;
        // A thread that loses its CPU at the end must not send what becomes due afterwards.
        connections.schedule_of_thread =
            schedule_of_thread.map(|schedule| schedule.with_end_ns(until_ns));
        if let Some(schedule) = connections.schedule_of_thread {
            let clients_count = connections.by_client.len() as u64;
            for (index, connection) in (0..).zip(&mut connections.by_client) {
                if let Some(connection) = connection {
                    connection.schedule =
                        Some(schedule.schedule_of_every_nth(index, clients_count));
                }
            }
        }
        connections.window = Some(MeasuredTime { from_ns, until_ns });
        connections.queue_all();
    }

    /// Queues the connections whose messages have become due.
    fn queue_due_connections(&self, connections: &mut Connections, now_ns: u64) {
        let Some(schedule_of_thread) = connections.schedule_of_thread else { return };
        let due = schedule_of_thread.due_count(now_ns);
        let clients_count = connections.by_client.len() as u64;
        // Each connection is queued once, however many of its messages are due.
        let from = connections.due_so_far_count.max(due.saturating_sub(clients_count));
        for arrival in from..due {
            connections.queue((arrival % clients_count) as usize);
        }
        connections.due_so_far_count = due;
    }

    /// Stops sending if the measured time is over.
    fn end_measurement_if_over(&mut self, connections: &mut Connections, now_ns: u64) {
        let Some(window) = connections.window else { return };
        if now_ns < window.until_ns {
            return;
        }
        self.report.elapsed_ns = window.until_ns - window.from_ns;
        connections.window = Some(MeasuredTime { until_ns: u64::MAX, ..window });
        connections.schedule_of_thread = None;
        for index in 0..connections.by_client.len() {
            let Some(connection) = &mut connections.by_client[index] else { continue };
            if let Some(schedule) = connection.schedule {
                let unsent = connection.client.sent_count()..schedule.due_count(now_ns);
                self.report.unsent_count += unsent.end.saturating_sub(unsent.start);
                self.report.latencies.record_unsent(&schedule, unsent, now_ns);
            } else {
                // All connections started together, warm-up included.
                self.report.shares.record(connection.client.received_count());
            }
            connection.client.finish();
            if connection.client.is_done() {
                let connection = connections.close(index);
                connection.iter().for_each(|connection| self.add_counts(&connection.client));
            }
        }
    }

    /// Records the measured time of a load that was stopped, or lost its last connection, before
    /// the end of the measured time.
    fn record_elapsed_if_cut_short(&mut self, connections: &Connections) {
        if let Some(window) = connections.window
            && window.until_ns < u64::MAX
        {
            self.report.elapsed_ns = self.now_ns().saturating_sub(window.from_ns);
        }
    }

    /// Removes the connections that have timed out while connecting or waiting for an echo.
    fn fail_silent_connections(&mut self, connections: &mut Connections, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for index in 0..connections.by_client.len() {
            let is_silent = |connection: &LoadConnection| {
                connection.is_waiting() && now_ns > connection.wait_start_ns + timeout_ns
            };
            if !connections.connection(index).is_some_and(is_silent) {
                continue;
            }
            let connection = connections.remove(index);
            let is_connected =
                connection.as_ref().is_some_and(|connection| connection.is_connected);
            let address = self.plan.address;
            let fault = match is_connected {
                true => Fault::Silent(self.plan.timeout),
                false => Fault::Unconnected { address, errno: Errno::TIMEDOUT },
            };
            self.record_fault(connections, fault, connection.as_ref());
        }
    }

    /// Records the fault of a connection, and its numbers of sent and received messages.
    fn record_fault(
        &mut self,
        connections: &mut Connections,
        fault: Fault,
        connection: Option<&LoadConnection>,
    ) {
        connections.faults_count += 1;
        self.report.record_fault(&fault);
        self.send_event(Event::Failed(fault));
        if let Some(connection) = connection {
            self.add_counts(&connection.client);
        }
    }

    /// Adds the numbers of a connection's messages to the report.
    fn add_counts(&mut self, client: &Client) {
        self.report.sent_count += client.sent_count();
        self.report.received_count += client.received_count();
        self.report.lost_count += client.sent_count() - client.received_count();
    }

    /// Serves a ready connection: handles its establishment, or reads once and sends once.
    fn serve(&mut self, connections: &mut Connections, index: usize) -> Result<(), Fault> {
        let Connections {
            by_client, buffers, window, ready, unconnected_count: unconnected, ..
        } = connections;
        let Some(Some(connection)) = by_client.get_mut(index) else { return Ok(()) };
        connection.is_queued = false;
        if !connection.is_tcp_connected {
            let address = self.plan.address;
            socket::connect_result(&connection.fd)
                .map_err(|errno| Fault::Unconnected { address, errno })?;
            connection.wait_start_ns = self.now_ns();
            connection.handle_tcp_connected(buffers)?;
            *unconnected -= u64::from(connection.is_connected);
            // Sending begins when all connections are made.
            return Ok(());
        }
        let was_connected = connection.is_connected;
        if connection.is_readable && connection.read(buffers)? {
            *unconnected -= u64::from(!was_connected && connection.is_connected);
            self.receive(connection, buffers, *window)?;
        }
        let is_timed = matches!(self.plan.work, LoadAmount::Timed { .. });
        let can_send = connection.is_connected && !(is_timed && window.is_none());
        if !connection.is_blocked && connection.flush()? && can_send {
            self.send(connection, buffers, *window)?;
        }
        let can_send_more =
            can_send && !connection.is_blocked && due_count(connection, self.now_ns()) > 0;
        let is_ready_again = connection.is_readable || can_send_more;
        if is_ready_again && !connection.is_queued {
            connection.is_queued = true;
            ready.push_back(index);
        }
        Ok(())
    }

    /// Checks the received messages and records their latencies.
    fn receive(
        &mut self,
        connection: &mut LoadConnection,
        buffers: &Buffers,
        window: Option<MeasuredTime>,
    ) -> Result<(), Fault> {
        let now_ns = self.now_ns();
        let bytes = buffers.received(connection);
        let from_ns = window.map_or(0, |window| window.from_ns);
        let until_ns = window.map_or(u64::MAX, |window| window.until_ns);
        connection.wait_start_ns = now_ns;
        let latencies = &mut self.report.latencies;
        let (mut at, mut count, mut latency_ns) = (0, 0, 0_u64);
        // Messages with the same time stamp were sent together, and are recorded together.
        let (mut group_sent_ns, mut group_count) = (0, 0);
        let mut outcome = Ok(());
        loop {
            let index = connection.client.received_count();
            let (used, sent_ns) = match connection.client.receive(&self.letters, &bytes[at..]) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            };
            at += used;
            count += 1;
            if sent_ns != group_sent_ns {
                if group_count > 0 {
                    latencies.record(now_ns.saturating_sub(group_sent_ns), group_count);
                }
                (group_sent_ns, group_count) = (sent_ns, 0);
            }
            let took_ns = now_ns.saturating_sub(sent_ns);
            latency_ns = latency_ns.wrapping_add(took_ns);
            let due_ns = connection.schedule.map_or(sent_ns, |schedule| schedule.due_ns(index));
            if due_ns < from_ns || due_ns >= until_ns {
                continue;
            }
            group_count += 1;
            if connection.schedule.is_some() {
                latencies.corrected.saturating_record(now_ns.saturating_sub(due_ns));
            }
        }
        if group_count > 0 {
            latencies.record(now_ns.saturating_sub(group_sent_ns), group_count);
        }
        self.live.add_received(count, latency_ns);
        connection.keep_incomplete(&bytes[at..]);
        outcome
    }

    /// Sends due messages of a connection, as many as fit in one send.
    fn send(
        &mut self,
        connection: &mut LoadConnection,
        buffers: &mut Buffers,
        window: Option<MeasuredTime>,
    ) -> Result<(), Fault> {
        let now_ns = self.now_ns();
        let sendable = connection.client.sendable_count();
        let count = due_count(connection, now_ns);
        let is_free = !std::mem::replace(
            &mut connection.is_delayed,
            connection.schedule.is_some() && sendable <= count,
        );
        if count == 0 {
            return Ok(());
        }
        if !connection.is_waiting() {
            // Silence counts from now: no echo was outstanding before.
            connection.wait_start_ns = now_ns;
        }
        buffers.chunk.clear();
        let first = connection.client.sent_count();
        let chunk = &mut buffers.chunk;
        let sent = connection.client.send(&self.letters, now_ns, count, SEND_BYTES, chunk);
        if let (Some(schedule), true) = (connection.schedule, is_free) {
            for index in first..first + sent {
                let due_ns = schedule.due_ns(index);
                if window.is_some_and(|window| due_ns >= window.from_ns) {
                    self.report.latencies.late.saturating_record(now_ns.saturating_sub(due_ns));
                }
            }
        }
        connection.send(buffers)?;
        connection.is_delayed |= connection.is_blocked;
        Ok(())
    }
}

/// Returns the number of messages that a connection should send now.
fn due_count(connection: &LoadConnection, now_ns: u64) -> u64 {
    let sendable = connection.client.sendable_count();
    match connection.schedule {
        None => sendable,
        Some(schedule) => {
            sendable.min(schedule.due_count(now_ns).saturating_sub(connection.client.sent_count()))
        }
    }
}

/// Connections of a thread, and the state of its event loop.
struct Connections {
    epoll: Epoll,
    /// Connection of each client; `None` once it is done or has failed.
    by_client: Vec<Option<LoadConnection>>,
    /// Indices of the connections to serve next.
    ready: VecDeque<usize>,
    /// Number of connections that are neither done nor failed.
    unfinished_count: u64,
    /// Number of connections that are not established yet.
    unconnected_count: u64,
    faults_count: u64,
    /// `true` once the measurement has begun: all connections are established or have failed.
    has_begun: bool,
    buffers: Buffers,
    /// Measured time; `None` before the measurement, and in a load limited by messages.
    window: Option<MeasuredTime>,
    /// Due times of the messages of all connections together.
    schedule_of_thread: Option<Schedule>,
    /// Number of messages that have become due.
    due_so_far_count: u64,
}

impl Connections {
    /// Returns a connection; `None` if it is done or has failed.
    fn connection(&self, index: usize) -> Option<&LoadConnection> {
        self.by_client.get(index)?.as_ref()
    }

    /// Removes a connection that is done, after a TLS close notification.
    fn close(&mut self, index: usize) -> Option<LoadConnection> {
        let mut connection = self.remove(index)?;
        connection.send_close_notify(&mut self.buffers);
        Some(connection)
    }

    /// Removes a connection that is done or has failed.
    fn remove(&mut self, index: usize) -> Option<LoadConnection> {
        let connection = self.by_client.get_mut(index)?.take()?;
        self.unfinished_count -= 1;
        self.unconnected_count -= u64::from(!connection.is_connected);
        Some(connection)
    }

    /// Appends a connection to the queue `ready`, unless it is there already.
    fn queue(&mut self, index: usize) {
        if let Some(Some(connection)) = self.by_client.get_mut(index)
            && !connection.is_queued
        {
            connection.is_queued = true;
            self.ready.push_back(index);
        }
    }

    /// Appends all connections to the queue `ready`.
    fn queue_all(&mut self) {
        for index in 0..self.by_client.len() {
            self.queue(index);
        }
    }

    /// Returns the time of the next due message or of the measurement's end, whichever is sooner.
    fn next_ns(&self) -> u64 {
        let until_ns = self.window.map_or(u64::MAX, |window| window.until_ns);
        self.schedule_of_thread.map_or(until_ns, |schedule_of_thread| {
            schedule_of_thread.due_ns(self.due_so_far_count).min(until_ns)
        })
    }

    /// Waits for events, and queues the ready connections.
    fn wait(&mut self, timeout_ns: u64) -> io::Result<()> {
        let mut timeout_ns = timeout_ns;
        if timeout_ns > 0 && self.schedule_of_thread.is_some() {
            // epoll_wait counts in ms, ppoll in ns.
            let timeout = Timespec::try_from(Duration::from_nanos(timeout_ns)).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => timeout_ns = 0,
                Err(errno) => return Err(errno.into()),
            }
        }
        let Self { epoll, by_client, ready, .. } = self;
        epoll.wait(Some(timeout_ns), |index, flags| {
            // The value was stored from a u32.
            let index = index as usize;
            let Some(Some(connection)) = by_client.get_mut(index) else { return };
            let hung_up = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
            connection.is_hung_up |= hung_up;
            connection.is_readable |= hung_up || flags.contains(Flags::IN);
            if flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR) {
                connection.is_blocked = false;
            }
            if !connection.is_queued {
                connection.is_queued = true;
                ready.push_back(index);
            }
        })?;
        Ok(())
    }
}
