//! One thread: its connections, and its event loop.

use super::peer::{Buffers, Peer};
use super::{Event, LiveCounters, Report, SharedState};
use crate::load::engine::{Client, MessageQuota};
use crate::load::error::Fault;
use crate::load::plan::{LoadAmount, Plan};
use crate::load::schedule::Schedule;
use crate::load::socket;
use crate::load::wire::{HEADER_BYTES, Lengths, Letters};
use handover_base::sync::shared::Ordering;
use handover_base::{clock, usage};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Size in bytes at which a send is full: no more messages are added to it.
const SEND_BYTES: usize = 1 << 16;
/// Maximum number of events taken from epoll at a time.
const READY_MAX: usize = 256;
/// Interval at which a thread checks for a stop and for silent connections, in ns.
const CHECK_INTERVAL_NS: u64 = 50_000_000;

pub(super) struct Worker {
    thread: u32,
    plan: Plan,
    shared: Arc<SharedState>,
    live: Arc<LiveCounters>,
    letters: Letters,
    report: Report,
}

/// Start and end of the measured time, in ns since the start of the load.
#[derive(Debug, Clone, Copy)]
struct Window {
    from_ns: u64,
    until_ns: u64,
}

impl Worker {
    pub(super) fn new(
        thread: u32,
        plan: &Plan,
        shared: Arc<SharedState>,
        live: Arc<LiveCounters>,
    ) -> Self {
        let bucket_ns = plan.linear_bucket.map(|step| step.as_nanos() as u64);
        Self {
            thread,
            letters: Letters::new(plan.letters_max),
            report: Report::new(bucket_ns),
            plan: plan.clone(),
            shared,
            live,
        }
    }

    pub(super) fn run(mut self) -> Report {
        // A sandbox may refuse this: then sleeps end up to 50 us late, as by default.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        match self.plan.work {
            LoadAmount::Counted { count, iterations, reconns, pause } => {
                let order = MessageQuota::Bursts { count, iterations };
                for reconn in 0..reconns {
                    let served = self.run_connections(reconn, order);
                    self.live.open(0);
                    if !served || self.is_stopped() {
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
                self.live.open(0);
            }
        }
        self.report.elapsed_ns = match self.plan.work {
            LoadAmount::Timed { .. } => self.report.elapsed_ns,
            LoadAmount::Counted { .. } => self.now_ns(),
        };
        self.report.is_stopped = self.is_stopped();
        self.send_event(Event::Finished);
        self.report
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.shared.origin_ns)
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn send_event(&self, event: Event) {
        // The receiver may have been dropped.
        let _ = self.shared.events.send(event);
    }

    fn pause(&self, pause: Duration) {
        let until_ns = self.now_ns() + pause.as_nanos() as u64;
        while !self.is_stopped() {
            let left_ns = until_ns.saturating_sub(self.now_ns());
            if left_ns == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(CHECK_INTERVAL_NS)));
        }
    }

    /// Makes the connections, and serves them until they are done. Returns `true` if the thread may connect again.
    fn run_connections(&mut self, reconn: u64, order: MessageQuota) -> bool {
        let epoll = match epoll::create(epoll::CreateFlags::CLOEXEC) {
            Ok(epoll) => epoll,
            Err(errno) => {
                let fault = Fault::Refused { call: "epoll_create", errno };
                self.report.fault(&fault);
                self.send_event(Event::Failed(fault));
                return false;
            }
        };
        // Holds at least one message and the kept beginning of another.
        let message_bytes = HEADER_BYTES + self.plan.letters_max as usize;
        let mut connections = Connections {
            epoll,
            peers: Vec::new(),
            ready: VecDeque::new(),
            unfinished: 0,
            unconnected: 0,
            faults: 0,
            has_begun: false,
            buffers: Buffers::new(
                (self.plan.read_bytes as usize).max(2 * message_bytes),
                SEND_BYTES + message_bytes,
            ),
            window: None,
            schedule_of_thread: None,
            arrivals_count: 0,
        };
        for client in 0..self.plan.clients_count {
            match self.connect(&connections.epoll, client, reconn, order) {
                Ok(peer) => {
                    connections.peers.push(Some(peer));
                    connections.unfinished += 1;
                    connections.unconnected += 1;
                }
                Err(fault) => {
                    self.record_fault(&mut connections, fault, None);
                    connections.peers.push(None);
                }
            }
        }
        self.live.open(connections.unfinished);
        let began = usage::thread_usage();
        let began_ns = self.now_ns();
        self.serve_all(&mut connections);
        let took_ns = self.now_ns().saturating_sub(began_ns).max(1);
        let busy = (usage::thread_usage() - began).cpu_ns() as f64 / took_ns as f64;
        self.report.busy_share = self.report.busy_share.max(busy);
        // The remaining connections were cut short.
        for peer in connections.peers.drain(..).flatten() {
            self.count(&peer.client);
        }
        connections.faults < u64::from(self.plan.clients_count)
    }

    fn connect(
        &self,
        epoll: &OwnedFd,
        client: u32,
        reconn: u64,
        order: MessageQuota,
    ) -> Result<Peer, Fault> {
        let address = self.plan.address;
        let fd = socket::connect(address, None).map_err(|(call, errno)| match call {
            "connect" => Fault::Unconnected { address, errno },
            _ => Fault::Refused { call, errno },
        })?;
        let data = epoll::EventData::new_u64(client.into());
        epoll::add(epoll, &fd, data, socket::WATCHED_EVENTS)
            .map_err(|errno| Fault::Refused { call: "epoll_ctl", errno })?;
        let number = u64::from(self.thread) << 32 | u64::from(client);
        let id = u128::from(self.plan.salt) << 96
            | u128::from(reconn & u64::from(u32::MAX)) << 64
            | u128::from(number);
        let seed = number ^ reconn << 48 ^ u64::from(self.plan.salt) << 56;
        let lengths = Lengths::new(seed, self.plan.letters_min, self.plan.letters_max);
        let client = Client::new(id, lengths, order, self.plan.depth);
        let secure = self.shared.encryption.as_ref().map(|it| it.begin()).transpose()?;
        Ok(Peer::new(fd, client, secure, self.now_ns()))
    }

    /// Serves until every connection is done or has failed, or a stop is requested.
    fn serve_all(&mut self, connections: &mut Connections) {
        let mut next_check_ns = self.now_ns() + CHECK_INTERVAL_NS;
        while connections.unfinished > 0 {
            // Connections that become ready meanwhile wait for the next iteration.
            for _ in 0..connections.ready.len() {
                let Some(index) = connections.ready.pop_front() else { break };
                if let Err(fault) = self.serve(connections, index) {
                    let peer = connections.remove(index);
                    self.record_fault(connections, fault, peer.as_ref());
                }
                let is_done = |peer: &Peer| peer.is_connected && peer.client.is_done();
                if connections.peer(index).is_some_and(is_done) {
                    let peer = connections.close(index);
                    peer.iter().for_each(|peer| self.count(&peer.client));
                }
            }
            if connections.unconnected == 0 && !connections.has_begun {
                connections.has_begun = true;
                self.begin(connections);
            }
            let now_ns = self.now_ns();
            self.queue_due_connections(connections, now_ns);
            if now_ns >= next_check_ns {
                next_check_ns = now_ns + CHECK_INTERVAL_NS;
                if self.is_stopped() {
                    return self.record_elapsed_at_stop(connections, now_ns);
                }
                self.fail_silent_connections(connections, now_ns);
                self.live.open(connections.unfinished);
            }
            self.end_measurement(connections, now_ns);
            let timeout_ns = match connections.ready.is_empty() {
                true => connections.next_ns().min(next_check_ns).saturating_sub(now_ns),
                false => 0,
            };
            if connections.unfinished > 0
                && let Err(errno) = connections.wait(timeout_ns)
            {
                self.record_fault(connections, Fault::Refused { call: "epoll_wait", errno }, None);
                return;
            }
        }
    }

    /// Starts the measurement, once all connections are established.
    fn begin(&mut self, connections: &mut Connections) {
        self.report.connected_count += connections.unfinished;
        self.send_event(Event::Connected { count: connections.unfinished });
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
        let first_ns = schedule_of_thread.map_or(now_ns, |schedule| schedule.due_ns(0));
        let from_ns = first_ns + warm_up.as_nanos() as u64;
        let until_ns = from_ns + duration.as_nanos() as u64;
        // A thread that loses its CPU at the end must not send what becomes due afterwards.
        connections.schedule_of_thread =
            schedule_of_thread.map(|schedule| schedule.with_end_ns(until_ns));
        if let Some(schedule) = connections.schedule_of_thread {
            let clients_count = connections.peers.len() as u64;
            for (index, peer) in (0..).zip(&mut connections.peers) {
                if let Some(peer) = peer {
                    peer.schedule = Some(schedule.schedule_of_every_nth(index, clients_count));
                }
            }
        }
        connections.window = Some(Window { from_ns, until_ns });
        self.report.elapsed_ns = 0;
        connections.queue_all();
    }

    /// Queues the connections whose messages have become due.
    fn queue_due_connections(&self, connections: &mut Connections, now_ns: u64) {
        let Some(schedule_of_thread) = connections.schedule_of_thread else { return };
        let due = schedule_of_thread.due_count(now_ns);
        let clients_count = connections.peers.len() as u64;
        // Each connection is queued once, however many of its messages are due.
        let from = connections.arrivals_count.max(due.saturating_sub(clients_count));
        for arrival in from..due {
            connections.queue((arrival % clients_count) as usize);
        }
        connections.arrivals_count = due;
    }

    /// Stops sending when the measured time is over.
    fn end_measurement(&mut self, connections: &mut Connections, now_ns: u64) {
        let Some(window) = connections.window else { return };
        if now_ns < window.until_ns {
            return;
        }
        self.report.elapsed_ns = window.until_ns - window.from_ns;
        connections.window = Some(Window { until_ns: u64::MAX, ..window });
        connections.schedule_of_thread = None;
        for index in 0..connections.peers.len() {
            let Some(peer) = &mut connections.peers[index] else { continue };
            if let Some(schedule) = peer.schedule {
                let due = schedule.due_count(now_ns);
                for unsent in peer.client.sent_count()..due {
                    // A lower bound: the message would have been echoed later than now.
                    let latency_ns_min = now_ns.saturating_sub(schedule.due_ns(unsent));
                    self.report.latencies.corrected.saturating_record(latency_ns_min);
                    self.report.unsent_count += 1;
                }
            } else {
                // All connections started together, warm-up included.
                self.report.shares.record(peer.client.received_count());
            }
            peer.client.finish();
            if peer.client.is_done() {
                let peer = connections.close(index);
                peer.iter().for_each(|peer| self.count(&peer.client));
            }
        }
    }

    /// Sets the measured time when the load is stopped, without waiting for outstanding messages.
    fn record_elapsed_at_stop(&mut self, connections: &Connections, now_ns: u64) {
        if let Some(window) = connections.window
            && window.until_ns < u64::MAX
        {
            self.report.elapsed_ns = now_ns.saturating_sub(window.from_ns);
        }
    }

    fn fail_silent_connections(&mut self, connections: &mut Connections, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for index in 0..connections.peers.len() {
            let is_silent = |peer: &Peer| peer.is_waiting() && now_ns > peer.active_ns + timeout_ns;
            if !connections.peer(index).is_some_and(is_silent) {
                continue;
            }
            let peer = connections.remove(index);
            let is_connected = peer.as_ref().is_some_and(|peer| peer.is_connected);
            let address = self.plan.address;
            let fault = match is_connected {
                true => Fault::Silent(self.plan.timeout),
                false => Fault::Unconnected { address, errno: Errno::TIMEDOUT },
            };
            self.record_fault(connections, fault, peer.as_ref());
        }
    }

    fn record_fault(&mut self, connections: &mut Connections, fault: Fault, peer: Option<&Peer>) {
        connections.faults += 1;
        self.report.fault(&fault);
        self.send_event(Event::Failed(fault));
        if let Some(peer) = peer {
            self.count(&peer.client);
        }
    }

    /// Adds the counts of a connection's client to the report.
    fn count(&mut self, client: &Client) {
        self.report.sent_count += client.sent_count();
        self.report.received_count += client.received_count();
        self.report.lost_count += client.sent_count() - client.received_count();
    }

    /// Serves a ready connection: one read and one send.
    fn serve(&mut self, connections: &mut Connections, index: usize) -> Result<(), Fault> {
        let Connections { peers, buffers, window, ready, unconnected, .. } = connections;
        let Some(Some(peer)) = peers.get_mut(index) else { return Ok(()) };
        peer.is_queued = false;
        if !peer.is_tcp_connected {
            let address = self.plan.address;
            socket::connect_result(&peer.fd)
                .map_err(|errno| Fault::Unconnected { address, errno })?;
            peer.active_ns = self.now_ns();
            peer.begin(buffers)?;
            *unconnected -= u64::from(peer.is_connected);
            // Sending begins when all connections are made.
            return Ok(());
        }
        let was_connected = peer.is_connected;
        if peer.is_readable && peer.read(buffers)? {
            *unconnected -= u64::from(!was_connected && peer.is_connected);
            self.receive(peer, buffers, *window)?;
        }
        let is_timed = matches!(self.plan.work, LoadAmount::Timed { .. });
        let sendable_count = peer.is_connected && !(is_timed && window.is_none());
        if !peer.is_blocked && peer.flush()? && sendable_count {
            self.send(peer, buffers, *window)?;
        }
        let can_send_more = sendable_count && !peer.is_blocked && due(peer, self.now_ns()) > 0;
        let is_ready_again = peer.is_readable || can_send_more;
        if is_ready_again && !peer.is_queued {
            peer.is_queued = true;
            ready.push_back(index);
        }
        Ok(())
    }

    /// Checks the received messages and records their latencies.
    fn receive(
        &mut self,
        peer: &mut Peer,
        buffers: &Buffers,
        window: Option<Window>,
    ) -> Result<(), Fault> {
        let now_ns = self.now_ns();
        let bytes = buffers.received(peer);
        let from_ns = window.map_or(0, |window| window.from_ns);
        let until_ns = window.map_or(u64::MAX, |window| window.until_ns);
        peer.active_ns = now_ns;
        let latencies = &mut self.report.latencies;
        let (mut at, mut count, mut latency_ns) = (0, 0, 0_u64);
        // Messages with the same time stamp were sent together, and are recorded together.
        let (mut group_sent_ns, mut group_count) = (0, 0);
        let mut outcome = Ok(());
        loop {
            let index = peer.client.received_count();
            let (used, sent_ns) = match peer.client.receive(&self.letters, &bytes[at..]) {
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
            let due_ns = peer.schedule.map_or(sent_ns, |schedule| schedule.due_ns(index));
            if due_ns < from_ns || due_ns >= until_ns {
                continue;
            }
            group_count += 1;
            if peer.schedule.is_some() {
                latencies.corrected.saturating_record(now_ns.saturating_sub(due_ns));
            }
        }
        if group_count > 0 {
            latencies.record(now_ns.saturating_sub(group_sent_ns), group_count);
        }
        self.live.add_received(count, latency_ns);
        peer.keep_incomplete(&bytes[at..]);
        outcome
    }

    /// Sends the due messages of a connection, as many as fit one send.
    fn send(
        &mut self,
        peer: &mut Peer,
        buffers: &mut Buffers,
        window: Option<Window>,
    ) -> Result<(), Fault> {
        let now_ns = self.now_ns();
        let sendable = peer.client.sendable_count();
        let count = due(peer, now_ns);
        let is_free =
            !std::mem::replace(&mut peer.is_delayed, peer.schedule.is_some() && sendable <= count);
        if count == 0 {
            return Ok(());
        }
        if !peer.is_waiting() {
            // Silence counts from now: no echo was outstanding before.
            peer.active_ns = now_ns;
        }
        buffers.chunk.clear();
        let first = peer.client.sent_count();
        let chunk = &mut buffers.chunk;
        let sent = peer.client.send(&self.letters, now_ns, count, SEND_BYTES, chunk);
        if let (Some(schedule), true) = (peer.schedule, is_free) {
            for index in first..first + sent {
                let due_ns = schedule.due_ns(index);
                if window.is_some_and(|window| due_ns >= window.from_ns) {
                    self.report.latencies.late.saturating_record(now_ns.saturating_sub(due_ns));
                }
            }
        }
        self.live.add_sent(sent);
        peer.send(buffers)?;
        peer.is_delayed |= peer.is_blocked;
        Ok(())
    }
}

/// Returns the number of messages that a connection must send now.
fn due(peer: &Peer, now_ns: u64) -> u64 {
    let sendable = peer.client.sendable_count();
    match peer.schedule {
        None => sendable,
        Some(schedule) => {
            sendable.min(schedule.due_count(now_ns).saturating_sub(peer.client.sent_count()))
        }
    }
}

/// Connections of a load thread.
struct Connections {
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
    ready: VecDeque<usize>,
    unfinished: u64,
    unconnected: u64,
    /// Number of connections that failed.
    faults: u64,
    /// `true` once all connections are made or have failed.
    has_begun: bool,
    buffers: Buffers,
    window: Option<Window>,
    /// Due times of this thread's messages, over all its connections.
    schedule_of_thread: Option<Schedule>,
    /// Number of messages whose due time has passed.
    arrivals_count: u64,
}

impl Connections {
    fn peer(&self, index: usize) -> Option<&Peer> {
        self.peers.get(index)?.as_ref()
    }

    /// Closes a connection that is done, with a close notification.
    fn close(&mut self, index: usize) -> Option<Peer> {
        let mut peer = self.remove(index)?;
        peer.send_close_notify(&mut self.buffers);
        Some(peer)
    }

    fn remove(&mut self, index: usize) -> Option<Peer> {
        let peer = self.peers.get_mut(index)?.take()?;
        self.unfinished -= 1;
        self.unconnected -= u64::from(!peer.is_connected);
        Some(peer)
    }

    fn queue(&mut self, index: usize) {
        if let Some(Some(peer)) = self.peers.get_mut(index)
            && !peer.is_queued
        {
            peer.is_queued = true;
            self.ready.push_back(index);
        }
    }

    fn queue_all(&mut self) {
        for index in 0..self.peers.len() {
            self.queue(index);
        }
    }

    /// Returns the time of the next work that is not announced by an epoll event.
    fn next_ns(&self) -> u64 {
        let until_ns = self.window.map_or(u64::MAX, |window| window.until_ns);
        self.schedule_of_thread.map_or(until_ns, |schedule_of_thread| {
            schedule_of_thread.due_ns(self.arrivals_count).min(until_ns)
        })
    }

    /// Waits for events, and queues the ready connections.
    fn wait(&mut self, timeout_ns: u64) -> Result<(), Errno> {
        let timeout = |ns: u64| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            // Less than 10^9.
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        let mut timeout_ns = timeout_ns;
        if timeout_ns > 0 && self.schedule_of_thread.is_some() {
            // epoll_wait counts in ms, ppoll in ns.
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout(timeout_ns))) {
                Ok(_) | Err(Errno::INTR) => timeout_ns = 0,
                Err(errno) => return Err(errno),
            }
        }
        let mut events = [const { MaybeUninit::uninit() }; READY_MAX];
        let (events, _) =
            match epoll::wait(&self.epoll, &mut events[..], Some(&timeout(timeout_ns))) {
                Ok(message) => message,
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            };
        use epoll::EventFlags as Flags;
        for &epoll::Event { flags, data } in events.iter() {
            // The value was stored from a u32.
            let index = data.u64() as usize;
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            let hung_up = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
            peer.is_hung_up |= hung_up;
            peer.is_readable |= hung_up || flags.contains(Flags::IN);
            if flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR) {
                peer.is_blocked = false;
            }
            if !peer.is_queued {
                peer.is_queued = true;
                self.ready.push_back(index);
            }
        }
        Ok(())
    }
}
