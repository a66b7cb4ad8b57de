//! One thread: its connections, and its event loop.

use super::peer::{Buffers, Peer};
use super::{Event, Live, Report, Shared};
use crate::engine::{Client, Order};
use crate::error::Fault;
use crate::plan::{Plan, Work};
use crate::schedule::Schedule;
use crate::socket;
use crate::wire::{HEADER_BYTES, Lengths, Letters};
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

/// Number of bytes from which on no more messages are added to one send.
const SEND_BYTES: usize = 1 << 16;
/// Maximum number of events taken from epoll at a time.
const READY_MAX: usize = 256;
/// Interval at which a thread checks for a stop and for silent connections, in ns.
const LOOK_NS: u64 = 50_000_000;

pub(super) struct Worker {
    thread: u32,
    plan: Plan,
    shared: Arc<Shared>,
    live: Arc<Live>,
    letters: Letters,
    report: Report,
}

/// Begin and end of the measured time, in ns since the start.
#[derive(Debug, Clone, Copy)]
struct Window {
    from_ns: u64,
    until_ns: u64,
}

impl Worker {
    pub(super) fn new(thread: u32, plan: &Plan, shared: Arc<Shared>, live: Arc<Live>) -> Self {
        let step_ns = plan.linear_step.map(|step| step.as_nanos() as u64);
        Self {
            thread,
            letters: Letters::new(plan.letters_max),
            report: Report::new(step_ns),
            plan: plan.clone(),
            shared,
            live,
        }
    }

    pub(super) fn run(mut self) -> Report {
        // A sandbox may refuse this: then sleeps end up to 50 us late, as by default.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        match self.plan.work {
            Work::Counted { count, iterations, reconns, pause } => {
                let order = Order::Bursts { count, iterations };
                for reconn in 0..reconns {
                    let served = self.connections(reconn, order);
                    self.live.open(0);
                    if !served || self.is_stopped() {
                        break;
                    }
                    if !pause.is_zero() {
                        self.tell(Event::Pausing(pause));
                        self.pause(pause);
                    }
                }
            }
            Work::Timed { .. } => {
                self.connections(0, Order::Endless);
                self.live.open(0);
            }
        }
        self.report.elapsed_ns = match self.plan.work {
            Work::Timed { .. } => self.report.elapsed_ns,
            Work::Counted { .. } => self.now_ns(),
        };
        self.report.stopped = self.is_stopped();
        self.tell(Event::Ended);
        self.report
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.shared.origin_ns)
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn tell(&self, event: Event) {
        // The receiver may be gone.
        let _ = self.shared.events.send(event);
    }

    fn pause(&self, pause: Duration) {
        let until_ns = self.now_ns() + pause.as_nanos() as u64;
        while !self.is_stopped() {
            let left_ns = until_ns.saturating_sub(self.now_ns());
            if left_ns == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(LOOK_NS)));
        }
    }

    /// Makes the connections and serves them to their end; returns `true` if reconnecting makes
    /// sense.
    fn connections(&mut self, reconn: u64, order: Order) -> bool {
        let epoll = match epoll::create(epoll::CreateFlags::CLOEXEC) {
            Ok(epoll) => epoll,
            Err(errno) => {
                let fault = Fault::Refused { call: "epoll_create", errno };
                self.tell(Event::Failed(fault.clone()));
                self.report.fault(fault);
                return false;
            }
        };
        // Holds at least one message and the kept beginning of another.
        let message_bytes = HEADER_BYTES + self.plan.letters_max as usize;
        let mut room = Room {
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
            whole: None,
            arrived: 0,
        };
        for client in 0..self.plan.clients_count {
            match self.connect(&room.epoll, client, reconn, order) {
                Ok(peer) => {
                    room.peers.push(Some(peer));
                    room.unfinished += 1;
                    room.unconnected += 1;
                }
                Err(fault) => {
                    self.failed(&mut room, fault, None);
                    room.peers.push(None);
                }
            }
        }
        self.live.open(room.unfinished);
        let began = usage::thread();
        let began_ns = self.now_ns();
        self.serve_all(&mut room);
        let took_ns = self.now_ns().saturating_sub(began_ns).max(1);
        let busy = (usage::thread() - began).cpu_ns() as f64 / took_ns as f64;
        self.report.busy_share = self.report.busy_share.max(busy);
        // The remaining connections were cut short.
        for peer in room.peers.drain(..).flatten() {
            self.count(&peer.client);
        }
        room.faults < u64::from(self.plan.clients_count)
    }

    fn connect(
        &self,
        epoll: &OwnedFd,
        client: u32,
        reconn: u64,
        order: Order,
    ) -> Result<Peer, Fault> {
        let address = self.plan.address;
        let fd = socket::connect(address, None).map_err(|(call, errno)| match call {
            "connect" => Fault::Unconnected { address, errno },
            _ => Fault::Refused { call, errno },
        })?;
        let data = epoll::EventData::new_u64(client.into());
        epoll::add(epoll, &fd, data, socket::WATCHED)
            .map_err(|errno| Fault::Refused { call: "epoll_ctl", errno })?;
        let number = u64::from(self.thread) << 32 | u64::from(client);
        let id = u128::from(self.plan.salt) << 96
            | u128::from(reconn & u64::from(u32::MAX)) << 64
            | u128::from(number);
        let seed = number ^ reconn << 48 ^ u64::from(self.plan.salt) << 56;
        let lengths = Lengths::new(seed, self.plan.letters_min, self.plan.letters_max);
        let client = Client::new(id, lengths, order, self.plan.depth);
        let secure = self.shared.secures.as_ref().map(|it| it.begin()).transpose()?;
        Ok(Peer::new(fd, client, secure, self.now_ns()))
    }

    /// Serves until every connection is done or has failed, or a stop is requested.
    fn serve_all(&mut self, room: &mut Room) {
        let mut look_ns = self.now_ns() + LOOK_NS;
        while room.unfinished > 0 {
            // Connections that become ready meanwhile wait for the next turn.
            for _ in 0..room.ready.len() {
                let Some(index) = room.ready.pop_front() else { break };
                if let Err(fault) = self.serve(room, index) {
                    let peer = room.remove(index);
                    self.failed(room, fault, peer.as_ref());
                }
                let is_done = |peer: &Peer| peer.is_connected && peer.client.is_done();
                if room.peer(index).is_some_and(is_done) {
                    let peer = room.farewell(index);
                    peer.iter().for_each(|peer| self.count(&peer.client));
                }
            }
            if room.unconnected == 0 && !room.has_begun {
                room.has_begun = true;
                self.begin(room);
            }
            let now_ns = self.now_ns();
            self.arrive(room, now_ns);
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_NS;
                if self.is_stopped() {
                    return self.cut_short(room, now_ns);
                }
                self.look_for_silence(room, now_ns);
                self.live.open(room.unfinished);
            }
            self.end_in_time(room, now_ns);
            let timeout_ns = match room.ready.is_empty() {
                true => room.next_ns().min(look_ns).saturating_sub(now_ns),
                false => 0,
            };
            if room.unfinished > 0
                && let Err(errno) = room.wait(timeout_ns)
            {
                self.failed(room, Fault::Refused { call: "epoll_wait", errno }, None);
                return;
            }
        }
    }

    /// Starts the timing, as all connections are made.
    fn begin(&mut self, room: &mut Room) {
        self.report.connected_count += room.unfinished;
        self.tell(Event::Connected { count: room.unfinished });
        let Work::Timed { warm_up, duration, rate } = self.plan.work else {
            return room.list_all();
        };
        let now_ns = self.now_ns();
        let mut first_ns = now_ns;
        if let Some(rate) = rate {
            // Threads take turns, and so do the connections of a thread.
            let threads_count = u64::from(self.plan.threads_count);
            let whole = Schedule::new(now_ns, 1e9 / rate);
            let ours = whole.share(self.thread.into(), threads_count);
            first_ns = ours.at_ns(0);
            let clients_count = room.peers.len() as u64;
            for (index, peer) in (0..).zip(&mut room.peers) {
                if let Some(peer) = peer {
                    peer.schedule = Some(ours.share(index, clients_count));
                }
            }
            room.whole = Some(ours);
        }
        let from_ns = first_ns + warm_up.as_nanos() as u64;
        let until_ns = from_ns + duration.as_nanos() as u64;
        room.window = Some(Window { from_ns, until_ns });
        self.report.elapsed_ns = 0;
        room.list_all();
    }

    /// Queues the connections whose messages have become due.
    fn arrive(&self, room: &mut Room, now_ns: u64) {
        let Some(whole) = room.whole else { return };
        let due = whole.due_count(now_ns);
        let clients_count = room.peers.len() as u64;
        // Each connection is queued once, however many of its messages are due.
        let from = room.arrived.max(due.saturating_sub(clients_count));
        for arrival in from..due {
            room.list((arrival % clients_count) as usize);
        }
        room.arrived = due;
    }

    /// Stops sending when the measured time is over.
    fn end_in_time(&mut self, room: &mut Room, now_ns: u64) {
        let Some(window) = room.window else { return };
        if now_ns < window.until_ns {
            return;
        }
        self.report.elapsed_ns = window.until_ns - window.from_ns;
        room.window = Some(Window { until_ns: u64::MAX, ..window });
        room.whole = None;
        for index in 0..room.peers.len() {
            let Some(peer) = &mut room.peers[index] else { continue };
            if let Some(schedule) = peer.schedule {
                let due = schedule.due_count(window.until_ns - 1);
                for unsent in peer.client.sent_count()..due {
                    // A lower bound: the message would have come back later than now.
                    let least_ns = now_ns.saturating_sub(schedule.at_ns(unsent));
                    self.report.tally.corrected.saturating_record(least_ns);
                    self.report.unsent_count += 1;
                }
            } else {
                // All connections began together, warm-up included.
                self.report.shares.record(peer.client.received_count());
            }
            peer.client.finish();
            if peer.client.is_done() {
                let peer = room.farewell(index);
                peer.iter().for_each(|peer| self.count(&peer.client));
            }
        }
    }

    /// Ends the measured time at a stop, without waiting for outstanding messages.
    fn cut_short(&mut self, room: &Room, now_ns: u64) {
        if let Some(window) = room.window
            && window.until_ns < u64::MAX
        {
            self.report.elapsed_ns = now_ns.saturating_sub(window.from_ns);
        }
    }

    fn look_for_silence(&mut self, room: &mut Room, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for index in 0..room.peers.len() {
            let is_silent = |peer: &Peer| peer.waits() && now_ns > peer.active_ns + timeout_ns;
            if !room.peer(index).is_some_and(is_silent) {
                continue;
            }
            let peer = room.remove(index);
            let is_connected = peer.as_ref().is_some_and(|peer| peer.is_connected);
            let address = self.plan.address;
            let fault = match is_connected {
                true => Fault::Silent(self.plan.timeout),
                false => Fault::Unconnected { address, errno: Errno::TIMEDOUT },
            };
            self.failed(room, fault, peer.as_ref());
        }
    }

    fn failed(&mut self, room: &mut Room, fault: Fault, peer: Option<&Peer>) {
        room.faults += 1;
        self.tell(Event::Failed(fault.clone()));
        self.report.fault(fault);
        if let Some(peer) = peer {
            self.count(&peer.client);
        }
    }

    /// Adds a connection's counts to the report.
    fn count(&mut self, client: &Client) {
        self.report.sent_count += client.sent_count();
        self.report.received_count += client.received_count();
        self.report.lost_count += client.sent_count() - client.received_count();
    }

    /// Serves one turn of a connection: one read and one send.
    fn serve(&mut self, room: &mut Room, index: usize) -> Result<(), Fault> {
        let Room { peers, buffers, window, ready, unconnected, .. } = room;
        let Some(Some(peer)) = peers.get_mut(index) else { return Ok(()) };
        peer.is_listed = false;
        if !peer.is_made {
            let address = self.plan.address;
            socket::connected(&peer.fd).map_err(|errno| Fault::Unconnected { address, errno })?;
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
        let is_timed = matches!(self.plan.work, Work::Timed { .. });
        let may_send = peer.is_connected && !(is_timed && window.is_none());
        if !peer.is_clogged && peer.flush()? && may_send {
            self.send(peer, buffers, *window)?;
        }
        let may_again = may_send && !peer.is_clogged && due(peer, self.now_ns()) > 0;
        let again = peer.is_readable || may_again;
        if again && !peer.is_listed {
            peer.is_listed = true;
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
        let bytes = buffers.came(peer);
        let from_ns = window.map_or(0, |window| window.from_ns);
        let until_ns = window.map_or(u64::MAX, |window| window.until_ns);
        peer.active_ns = now_ns;
        let tally = &mut self.report.tally;
        let (mut at, mut count, mut latency_ns) = (0, 0, 0_u64);
        // Messages with the same time stamp were sent together, and are recorded together.
        let (mut run_sent_ns, mut run_count) = (0, 0);
        let mut outcome = Ok(());
        loop {
            let index = peer.client.received_count();
            let (used, sent_ns) = match peer.client.receive(&self.letters, &bytes[at..]) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(wrong) => {
                    outcome = Err(wrong.into());
                    break;
                }
            };
            at += used;
            count += 1;
            if sent_ns != run_sent_ns {
                if run_count > 0 {
                    tally.record(now_ns.saturating_sub(run_sent_ns), run_count);
                }
                (run_sent_ns, run_count) = (sent_ns, 0);
            }
            let took_ns = now_ns.saturating_sub(sent_ns);
            latency_ns = latency_ns.wrapping_add(took_ns);
            let due_ns = peer.schedule.map_or(sent_ns, |schedule| schedule.at_ns(index));
            if due_ns < from_ns || due_ns >= until_ns {
                continue;
            }
            run_count += 1;
            if peer.schedule.is_some() {
                tally.corrected.saturating_record(now_ns.saturating_sub(due_ns));
            }
        }
        if run_count > 0 {
            tally.record(now_ns.saturating_sub(run_sent_ns), run_count);
        }
        self.live.came(count, latency_ns);
        peer.keep(&bytes[at..]);
        outcome
    }

    /// Sends due messages, as many as fit one send.
    fn send(
        &mut self,
        peer: &mut Peer,
        buffers: &mut Buffers,
        window: Option<Window>,
    ) -> Result<(), Fault> {
        let now_ns = self.now_ns();
        let may = peer.client.may_send();
        let count = due(peer, now_ns);
        let is_free =
            !std::mem::replace(&mut peer.is_held, peer.schedule.is_some() && may <= count);
        if count == 0 {
            return Ok(());
        }
        if !peer.waits() {
            // Silence counts from now: no echo was outstanding before.
            peer.active_ns = now_ns;
        }
        buffers.chunk.clear();
        let first = peer.client.sent_count();
        let chunk = &mut buffers.chunk;
        let sent = peer.client.send(&self.letters, now_ns, count, SEND_BYTES, chunk);
        if let (Some(schedule), true) = (peer.schedule, is_free) {
            for index in first..first + sent {
                let due_ns = schedule.at_ns(index);
                if window.is_some_and(|window| due_ns >= window.from_ns) {
                    self.report.tally.late.saturating_record(now_ns.saturating_sub(due_ns));
                }
            }
        }
        self.live.went(sent);
        peer.send(buffers)?;
        peer.is_held |= peer.is_clogged;
        Ok(())
    }
}

/// Returns the number of messages that a connection must send now.
fn due(peer: &Peer, now_ns: u64) -> u64 {
    let may = peer.client.may_send();
    match peer.schedule {
        None => may,
        Some(schedule) => {
            may.min(schedule.due_count(now_ns).saturating_sub(peer.client.sent_count()))
        }
    }
}

/// The connections of a thread.
struct Room {
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
    whole: Option<Schedule>,
    /// Number of messages that have become due.
    arrived: u64,
}

impl Room {
    fn peer(&self, index: usize) -> Option<&Peer> {
        self.peers.get(index)?.as_ref()
    }

    /// Closes a connection that is done, with a close notification.
    fn farewell(&mut self, index: usize) -> Option<Peer> {
        let mut peer = self.remove(index)?;
        peer.part(&mut self.buffers);
        Some(peer)
    }

    /// Removes a connection.
    fn remove(&mut self, index: usize) -> Option<Peer> {
        let peer = self.peers.get_mut(index)?.take()?;
        self.unfinished -= 1;
        self.unconnected -= u64::from(!peer.is_connected);
        Some(peer)
    }

    fn list(&mut self, index: usize) {
        if let Some(Some(peer)) = self.peers.get_mut(index)
            && !peer.is_listed
        {
            peer.is_listed = true;
            self.ready.push_back(index);
        }
    }

    fn list_all(&mut self) {
        for index in 0..self.peers.len() {
            self.list(index);
        }
    }

    /// Returns the next time at which there is work without an event.
    fn next_ns(&self) -> u64 {
        let until_ns = self.window.map_or(u64::MAX, |window| window.until_ns);
        self.whole.map_or(until_ns, |whole| whole.at_ns(self.arrived).min(until_ns))
    }

    /// Waits for events, and queues the ready connections.
    fn wait(&mut self, timeout_ns: u64) -> Result<(), Errno> {
        let timeout = |ns: u64| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            // Less than 10^9.
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        let mut timeout_ns = timeout_ns;
        if timeout_ns > 0 && self.whole.is_some() {
            // epoll_wait counts in ms, ppoll in ns.
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout(timeout_ns))) {
                Ok(_) | Err(Errno::INTR) => timeout_ns = 0,
                Err(errno) => return Err(errno),
            }
        }
        let mut events = [const { MaybeUninit::uninit() }; READY_MAX];
        let (events, _) =
            match epoll::wait(&self.epoll, &mut events[..], Some(&timeout(timeout_ns))) {
                Ok(found) => found,
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
                peer.is_clogged = false;
            }
            if !peer.is_listed {
                peer.is_listed = true;
                self.ready.push_back(index);
            }
        }
        Ok(())
    }
}
