//! What an endpoint is made of, but for its handlers: so that a handler can be given the rest.

mod alone;
mod chores;
mod peers;
mod put_off;

use super::bulk::Tables;
use super::dump::OnSignal;
use super::greet::Greeting;
use super::link::AnyLink;
use super::listen::Listener;
use super::monitor::{Ending, Monitor, Side};
use super::poll::{Poll, Whose};
use super::pool::{Done, Inbox, Pool};
use super::progress::Others;
use super::security::Security;
use super::timing::Timers;
use crate::clock;
use crate::engine::{Backlog, CallId, Calls, Header, Kind, Outcome, PeerKey, Refusal};
use crate::{CallError, Config, EndpointError, FrameError, Gone, stage};
use handover_base::sync::shared::{Ordering, fence};
use put_off::PutOffRequest;
use serde::Serialize;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames of one peer at a time, before others have their turn.
const FRAMES_MAX: u32 = 64;
/// So many streams are read without asking the kernel which of them has something, while spinning.
const STREAMS_TRIED_MAX: usize = 4;
/// How often the clock is looked at while spinning.
const TURNS_PER_LOOK: u32 = 64;
/// A piece of a bulk transfer takes so long that the clock is looked at behind each.
const PIECE_TURNS: u32 = TURNS_PER_LOOK;
/// How often it is looked at while there is always something to do: each turn may copy for a while.
const BUSY_TURNS_PER_LOOK: u32 = 8;
/// How often the kernel is asked while there is always something to do, or while spinning: for deaths,
/// strangers and streams.
const KERNEL_LOOK_NS: u64 = 1_000_000;
/// In so many sweeps a frame may be found begun and not ended.
const SWEEPS_MAX: u32 = 8;
/// How often is swept where frames may take as long as they like, in ms.
const SWEEP_MS: u32 = 4_000;
/// In place of a call's number: a request that wants no answer.
pub(super) const ONE_WAY: u64 = u64::MAX;

/// What an endpoint has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Peers that are connected.
    pub peers_count: u32,
    /// Calls begun by this side.
    pub calls_count: u64,
    /// Requests of peers that were handled or refused.
    pub requests_count: u64,
    /// Answers that came when nobody waited for them any more.
    pub late_count: u64,
    /// Connections that ended.
    pub gone_count: u64,
    /// Connections that were refused, or not agreed upon.
    pub turned_away_count: u64,
    /// How often the thread went to sleep.
    pub sleeps_count: u64,
}

/// What log lines are of.
const LOG: &str = "handover_rpc";

/// What becomes of requests.
pub(crate) trait Sink {
    fn request(&mut self, state: &mut State, peer: PeerKey, header: Header, body: &[u8]);
    /// Whether what was put off may be done now.
    fn catches_up(&self) -> bool;
}

/// Within a handler others' requests are put off.
pub(crate) struct PutOff;

impl Sink for PutOff {
    fn request(&mut self, state: &mut State, peer: PeerKey, header: Header, body: &[u8]) {
        state.put_off(peer, header, body);
    }

    fn catches_up(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Place {
    generation: u32,
    link: Option<AnyLink>,
    message_bytes_max: usize,
    in_memory: bool,
    /// The kernel tells of it.
    is_told_of: bool,
    put_off: Backlog<PutOffRequest>,
    /// It has a turn in `State::caught_up_with`.
    is_caught_up_with: bool,
    /// The process of a Unix socket's peer, watched as long as the connection lasts: a child that it has forked may
    /// hold the socket open for longer than it lives.
    process: Option<OwnedFd>,
}

/// See the module.
#[derive(Debug)]
pub struct State {
    pub(crate) config: Config,
    pub(crate) security: Security,
    poll: Poll,
    places: Vec<Place>,
    free: Vec<u32>,
    /// The places of those who are connected.
    active: Vec<u32>,
    streams_count: usize,
    listeners: Vec<Listener>,
    accept_again_ns: Option<u64>,
    /// When to look for frames that do not end; `u64::MAX` while there is none.
    sweep_at_ns: u64,
    greetings: Vec<Option<Greeting>>,
    /// Connections of this side that were settled, one way or the other.
    settled: Vec<(u32, Result<PeerKey, Gone>)>,
    pub(crate) calls: Calls,
    /// Peers of which requests were put off that may be done now, each once.
    caught_up_with: VecDeque<PeerKey>,
    catch_up: bool,
    any_queued: bool,
    /// Peers of whom the kernel says that they are gone; what they had sent comes first.
    ended: Vec<PeerKey>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pool: Option<Pool>,
    done: Vec<Done>,
    pub(super) others: Others,
    stopped: bool,
    ready: Vec<(Whose, bool)>,
    /// What came last.
    pub(crate) body: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) bulk: Tables,
    pub(crate) monitor: Option<Box<Monitor>>,
    pub(crate) timers: Timers,
    on_signal: Option<OnSignal>,
    /// There are timers that are due, or somebody wants a dump; `catch_up` is set with it.
    chores: bool,
    dump: bool,
    /// Since the clock was looked at; what takes longer than a turn counts as several.
    turns: u32,
    looked_ticks: u64,
    look_ticks: u64,
    spin_ticks: u64,
    stats: Stats,
}

impl State {
    pub(crate) fn new(config: Config) -> Result<Self, EndpointError> {
        config.validate()?;
        let security = Security::new(&config)?;
        let refused =
            |call| move |errno| EndpointError::Refused { call, place: "an endpoint".into(), errno };
        let poll = Poll::new().map_err(refused("epoll_create1"))?;
        let inbox = Arc::new(Inbox::new(config.calls_max as usize).map_err(refused("eventfd"))?);
        poll.add(inbox.bell(), Whose::Inbox).map_err(refused("epoll_ctl"))?;
        Ok(Self {
            security,
            poll,
            places: Vec::new(),
            free: Vec::new(),
            active: Vec::new(),
            streams_count: 0,
            listeners: Vec::new(),
            accept_again_ns: None,
            sweep_at_ns: u64::MAX,
            greetings: Vec::new(),
            settled: Vec::new(),
            calls: Calls::new(config.calls_max),
            caught_up_with: VecDeque::new(),
            catch_up: false,
            any_queued: false,
            ended: Vec::new(),
            inbox,
            pool: None,
            done: Vec::new(),
            others: Others::default(),
            stopped: false,
            ready: Vec::new(),
            body: Vec::new(),
            scratch: Vec::new(),
            bulk: Tables::new(),
            monitor: config.monitoring.then(Box::default),
            timers: Timers::default(),
            on_signal: None,
            chores: false,
            dump: false,
            turns: 0,
            looked_ticks: clock::ticks(),
            look_ticks: clock::ticks_from_ns(KERNEL_LOOK_NS),
            spin_ticks: clock::ticks_from_ns(config.spin_ns_max.into()),
            stats: Stats::default(),
            config,
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let peers_count = u32::try_from(self.active.len()).unwrap_or(u32::MAX);
        Stats { peers_count, late_count: self.calls.late_count(), ..self.stats }
    }

    #[inline]
    pub(crate) fn gone_count(&self) -> u64 {
        self.stats.gone_count
    }

    #[inline]
    fn place(&self, peer: PeerKey) -> Option<&Place> {
        let place = self.places.get(peer.place as usize)?;
        (place.generation == peer.generation && place.link.is_some()).then_some(place)
    }

    #[inline]
    pub(super) fn link(&mut self, peer: PeerKey) -> Option<&mut AnyLink> {
        let place = self.places.get_mut(peer.place as usize)?;
        if place.generation == peer.generation { place.link.as_mut() } else { None }
    }

    pub(crate) fn is_connected(&self, peer: PeerKey) -> bool {
        self.place(peer).is_some()
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerKey> + '_ {
        self.active.iter().map(|&place| self.key(place))
    }

    #[inline]
    fn key(&self, place: u32) -> PeerKey {
        PeerKey { place, generation: self.places[place as usize].generation }
    }

    /// Whether it was told to stop since last asked.
    #[inline]
    pub(crate) fn take_stop(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }

    // One turn.

    /// Takes what there is, of everybody, without waiting. Whether there was anything.
    #[inline]
    pub(crate) fn turn(&mut self, sink: &mut impl Sink, eager: bool) -> bool {
        let mut did = false;
        if self.inbox.has_any() {
            did |= self.take_inbox();
        }
        if self.any_queued {
            did |= self.flush();
        }
        if self.bulk.is_busy() && self.bulk_turn() {
            self.turns += PIECE_TURNS;
            did = true;
        }
        let eager_streams = eager && self.streams_count <= STREAMS_TRIED_MAX;
        let mut at = 0;
        while at < self.active.len() {
            let place = self.active[at];
            did |= self.drain(place, sink, eager_streams);
            // Where it was given up, another stands at its place in the list.
            at += usize::from(self.active.get(at) == Some(&place));
        }
        if !self.ended.is_empty() {
            self.bury(sink);
            did = true;
        }
        if self.catch_up && sink.catches_up() {
            did |= self.catch_up(sink);
        }
        self.turns += 1;
        if self.turns >= TURNS_PER_LOOK {
            self.turns = 0;
            // What it tells of is for the next turn: nobody may sleep before that.
            did |= self.look_if_due(eager && !eager_streams);
        }
        did
    }

    #[inline]
    fn drain(&mut self, place: u32, sink: &mut impl Sink, eager: bool) -> bool {
        let key = self.key(place);
        for count in 0..FRAMES_MAX {
            let Some(at) = self.places.get_mut(place as usize) else { return true };
            let Some(link) = at.link.as_mut().filter(|_| at.generation == key.generation) else {
                return true;
            };
            // Behind a frame, only what it has left is looked at: whoever waited for it need not wait for the
            // kernel to say that there is no other.
            match link.receive(&mut self.body, eager && count == 0) {
                Ok(Some(header)) => {
                    // Whoever waits within a handler needs a place of its own for what comes.
                    let body = std::mem::take(&mut self.body);
                    self.frame(key, header, &body, sink);
                    self.body = body;
                }
                Ok(None) => {
                    if self.sweep_at_ns == u64::MAX && link.wants_sweep() {
                        self.sweep_later();
                    }
                    self.turns += count;
                    return count > 0;
                }
                Err(gone) => {
                    self.close(key, &gone);
                    return true;
                }
            }
        }
        self.turns += FRAMES_MAX;
        true
    }

    #[inline]
    fn frame(&mut self, peer: PeerKey, header: Header, body: &[u8], sink: &mut impl Sink) {
        match header.kind {
            Kind::Request | Kind::OneWay => {
                stage::received(header.call);
                let behind = !self.places[peer.place as usize].put_off.is_empty();
                if behind || self.any_queued && self.is_choked(peer) {
                    self.put_off(peer, header, body);
                } else {
                    self.stats.requests_count += 1;
                    sink.request(self, peer, header, body);
                }
            }
            Kind::Response => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.answered(peer, header.call, &Outcome::Result, body.len());
                }
                self.complete(header.call, peer, Outcome::Result, body);
            }
            Kind::Refusal => {
                let refused = Outcome::Refused(Refusal::of(header.method));
                if let Some(monitor) = &mut self.monitor {
                    monitor.answered(peer, header.call, &refused, body.len());
                }
                self.complete(header.call, peer, refused, body);
            }
            Kind::Cancel => {
                if let Some(pool) = &self.pool {
                    pool.cancel(peer, header.call);
                }
                if let Some(monitor) = &mut self.monitor {
                    monitor.end(Side::Server, peer, header.call, 0, Ending::GivenUp);
                }
                self.places[peer.place as usize].put_off.cancel(header.call);
            }
            Kind::Bye => self.close(peer, &Gone::HungUp),
            Kind::Bulk | Kind::Data => self.bulk_frame(peer, header, body),
        }
    }

    #[inline]
    fn complete(&mut self, call: u64, peer: PeerKey, outcome: Outcome, body: &[u8]) {
        self.calls.complete(call, peer, outcome, body);
        stage::completed(call);
        if !self.others.await_none() {
            self.keep_promise(call);
        }
    }

    #[cold]
    fn bulk_frame(&mut self, peer: PeerKey, header: Header, body: &[u8]) {
        let queued_before = self.queued_bytes(peer);
        let understood = match header.kind {
            Kind::Data => self.bulk_data(peer, header, body),
            _ => self.bulk_message(peer, body),
        };
        let queued_bytes = self.queued_bytes(peer);
        if let Err(error) = understood {
            self.close(peer, &error.into());
        } else if queued_bytes > queued_before.max(self.config.queued_bytes_max as usize) {
            // What bulk messages are answered with is not put off, as requests are.
            self.close(peer, &Gone::Flooded);
        }
    }

    #[cold]
    fn take_inbox(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.inbox.take(&mut done, &mut self.others.posts);
        self.stopped |= self.inbox.take_stop();
        let did = !done.is_empty() || self.stopped;
        for Done { peer, call, answer, body } in done.drain(..) {
            self.respond(peer, call, answer, &body);
            self.tell_pool(peer, body.len());
        }
        self.done = done;
        did | self.do_posts()
    }

    /// Tells the pool that answers of so many bytes were taken for that peer, and how much it has not read.
    fn tell_pool(&mut self, peer: PeerKey, taken_bytes: usize) {
        let queued_bytes = self.queued_bytes(peer);
        let Some(pool) = &self.pool else { return };
        for job in pool.told(peer, taken_bytes, queued_bytes) {
            match job.one_way {
                true => self.handled_one_way(peer, Err(Refusal::Full)),
                false => self.respond(peer, job.call, Err(Refusal::Full), &[]),
            }
        }
    }

    #[cold]
    fn flush(&mut self) -> bool {
        let (mut did, mut queued) = (false, false);
        for at in (0..self.active.len()).rev() {
            let key = self.key(self.active[at]);
            let at = &mut self.places[key.place as usize];
            let Some(link) = at.link.as_mut().filter(|it| it.queued_bytes() > 0) else { continue };
            if !at.is_told_of {
                link.told();
            }
            match link.flush() {
                Ok(went) => {
                    let queued_bytes = link.queued_bytes();
                    queued |= queued_bytes > 0;
                    if went {
                        did = true;
                        self.catch_up_with(key);
                        self.tell_pool(key, 0);
                    }
                }
                Err(gone) => self.close(key, &gone),
            }
        }
        self.any_queued = queued;
        did
    }

    // The kernel.

    /// Whether the kernel was not asked for a while; then it is asked, and who has gone is known at the next
    /// turn.
    #[inline]
    pub(super) fn is_look_due(&mut self) -> bool {
        self.is_time_to_look(false) && (self.look(Some(0)) | self.has_untold())
    }

    /// Whether messages to that peer go through shared memory, so that files can be passed to it.
    pub(super) fn shares_memory(&self, peer: PeerKey) -> bool {
        self.place(peer).is_some_and(|it| it.in_memory)
    }

    /// The process id of that peer in this pid namespace, where the kernel can copy from and to its memory. `None`
    /// for a process of another pid namespace that is not visible from here, although memory is shared with it.
    pub(super) fn process_of(&self, peer: PeerKey) -> Option<i32> {
        self.place(peer)?.link.as_ref()?.process()
    }

    /// How long a message to that peer may be; 0 when it is gone.
    pub(super) fn message_bytes_max(&self, peer: PeerKey) -> usize {
        self.place(peer).map_or(0, |it| it.message_bytes_max)
    }

    pub(super) fn note_queued(&mut self, queued: bool) {
        self.any_queued |= queued;
    }

    fn look_if_due(&mut self, streams: bool) -> bool {
        self.is_time_to_look(streams) && self.look(Some(0))
    }

    fn is_time_to_look(&mut self, streams: bool) -> bool {
        let now_ticks = clock::ticks();
        let is_due = streams || now_ticks.wrapping_sub(self.looked_ticks) >= self.look_ticks;
        if is_due {
            self.looked_ticks = now_ticks;
        }
        is_due
    }

    /// Asks the kernel what there is, and waits for it so long; `None` for ever. Whether there was anything.
    pub(crate) fn look(&mut self, timeout_ns: Option<u64>) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        // Refused only for what cannot be: the descriptor is ours, and so is the room.
        let _ = self.poll.wait(timeout_ns, &mut ready);
        let any = !ready.is_empty();
        for (whose, is_end) in ready.drain(..) {
            match whose {
                Whose::Inbox => {}
                Whose::Signal => {
                    self.dump |= self.on_signal.as_ref().is_some_and(OnSignal::was_rung);
                    self.note_chores(self.dump);
                }
                Whose::Listener(_) => self.accept_some(),
                Whose::Greeting(number) => self.advance(number),
                Whose::Peer { place, generation } => {
                    let peer = PeerKey { place, generation };
                    if let Some(link) = self.link(peer) {
                        link.told();
                        if is_end && link.in_memory() {
                            self.ended.push(peer);
                        }
                    }
                }
                Whose::Process { place, generation } => {
                    let peer = PeerKey { place, generation };
                    if let Some(link) = self.link(peer) {
                        link.told();
                        self.ended.push(peer);
                    }
                }
            }
        }
        self.ready = ready;
        any | self.let_time_pass()
    }

    /// Timers that are due, greetings that took too long, and listeners that were given a rest. Whether there
    /// was any that was not known before: nobody may sleep then.
    fn let_time_pass(&mut self) -> bool {
        if self.bulk.lingers() {
            self.bulk_let_go();
        }
        let (timer_ns, had_chores) = (self.timers.next_ns(), self.chores);
        self.note_chores(timer_ns.is_some_and(|at_ns| at_ns <= clock::now_ns()));
        let mut passed = self.chores && !had_chores;
        if self.sweep_at_ns != u64::MAX && self.sweep_at_ns <= clock::now_ns() {
            self.sweep();
            passed = true;
        }
        if self.accept_again_ns.is_none() && self.greetings.iter().all(Option::is_none) {
            return passed;
        }
        let now_ns = clock::now_ns();
        if self.accept_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.accept_some();
            passed = true;
        }
        for at in (0..self.greetings.len()).rev() {
            let it = self.greetings.get_mut(at);
            let late = it.and_then(|it| it.take_if(|it| it.deadline_ns <= now_ns));
            if let Some(mut late) = late {
                self.settle(at as u32, late.is_ours(), Err(late.why_late()));
                passed = true;
            }
        }
        passed
    }

    #[cold]
    fn sweep_later(&mut self) {
        let every_ms = match self.config.message_timeout_ms {
            0 => SWEEP_MS,
            timeout_ms => (timeout_ms / SWEEPS_MAX).max(1),
        };
        self.sweep_at_ns = clock::now_ns() + u64::from(every_ms) * 1_000_000;
    }

    /// Disconnects peers that do not end a frame, and gives memory back that was not needed lately. Sweeps are counted,
    /// not time: while this endpoint is not driven, its peers cannot be blamed for what was not read.
    #[cold]
    fn sweep(&mut self) {
        self.sweep_at_ns = u64::MAX;
        let has_limit = self.config.message_timeout_ms > 0;
        let mut wanted = false;
        for at in (0..self.active.len()).rev() {
            let key = self.key(self.active[at]);
            let Some(link) = self.link(key) else { continue };
            let sweeps_count = link.sweep();
            wanted |= link.wants_sweep();
            if has_limit && sweeps_count > SWEEPS_MAX {
                self.close(key, &Gone::Stalled);
            }
        }
        if wanted {
            self.sweep_later();
        }
    }

    /// Until when this thread may sleep for all that is not the caller's.
    fn own_deadline_ns(&mut self) -> u64 {
        // Of timers that are due it is known: in a handler they wait until it has returned.
        let timer_ns = self.timers.next_ns().filter(|_| !self.chores);
        let greetings = self.greetings.iter().flatten().map(|it| it.deadline_ns);
        greetings
            .chain(self.accept_again_ns)
            .chain(timer_ns)
            .min()
            .map_or(self.sweep_at_ns, |it| it.min(self.sweep_at_ns))
    }

    /// Sleeps until there is something to do, or that time has come; after one more look.
    pub(crate) fn sleep(&mut self, sink: &mut impl Sink, deadline_ns: u64) {
        for &place in &self.active {
            if let Some(link) = &mut self.places[place as usize].link {
                link.declare_sleep();
            }
        }
        self.inbox.set_asleep(true);
        // SeqCst: whoever hands something over from now on sees that this side sleeps, or this last look
        // sees what it was. Pairs with the fences in Sm::ring_if_asleep and Inbox::tell.
        fence(Ordering::SeqCst);
        if !self.turn(sink, false) {
            let deadline_ns = deadline_ns.min(self.own_deadline_ns());
            let timeout_ns = match deadline_ns {
                u64::MAX => None,
                at_ns => Some(at_ns.saturating_sub(clock::now_ns())),
            };
            self.stats.sleeps_count += 1;
            if timeout_ns.is_some() || !self.sleep_in_read() {
                self.look(timeout_ns);
            }
        }
        self.inbox.set_asleep(false);
        for &place in &self.active {
            if let Some(link) = &mut self.places[place as usize].link {
                link.withdraw();
            }
        }
    }

    /// Whether it looks for a while before it sleeps.
    #[inline]
    fn spins(&self) -> bool {
        self.config.spin_forever || self.spin_ticks > 0
    }

    /// Turns until `done`, or that time has come: false. Spins first, then sleeps, as configured.
    #[inline]
    pub(crate) fn turn_until<S: Sink>(
        &mut self,
        sink: &mut S,
        deadline_ns: u64,
        mut done: impl FnMut(&mut Self, bool) -> bool,
    ) -> bool {
        let spins = self.spins();
        let (mut idle_turns, mut idle_ticks, mut busy_turns) = (0u32, 0, 0u32);
        loop {
            let did = self.turn(sink, spins);
            if done(self, did) {
                return true;
            }
            if did {
                idle_turns = 0;
                busy_turns = busy_turns.wrapping_add(1);
                if deadline_ns != u64::MAX
                    && busy_turns.is_multiple_of(BUSY_TURNS_PER_LOOK)
                    && clock::now_ns() >= deadline_ns
                {
                    return false;
                }
                continue;
            }
            idle_turns = idle_turns.wrapping_add(1);
            if spins {
                self.watch();
                if !idle_turns.is_multiple_of(TURNS_PER_LOOK) {
                    continue;
                }
            }
            let now_ticks = clock::ticks();
            if idle_turns == TURNS_PER_LOOK {
                idle_ticks = now_ticks;
            }
            if deadline_ns != u64::MAX && clock::now_ns() >= deadline_ns {
                return false;
            }
            let spent = now_ticks.wrapping_sub(idle_ticks) >= self.spin_ticks;
            if !self.config.spin_forever && spent {
                self.sleep(sink, deadline_ns);
                idle_turns = 0;
            }
        }
    }

    // Sending.

    #[inline]
    pub(super) fn send(
        &mut self,
        peer: PeerKey,
        header: Header,
        body: &[u8],
    ) -> Result<(), CallError> {
        let Some(link) = self.link(peer) else { return Err(CallError::Stale) };
        match link.send(header, body) {
            Ok(()) => {
                if link.queued_bytes() > 0 {
                    self.any_queued = true;
                }
                Ok(())
            }
            Err(gone) => {
                self.close(peer, &gone);
                Err(gone.into())
            }
        }
    }

    /// Refused where it cannot be sent; nothing is under way then.
    #[inline]
    pub(crate) fn start(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
        deadline_ns: u64,
    ) -> Result<CallId, CallError> {
        self.may_send(peer, body)?;
        let Some(id) = self.calls.start(peer, deadline_ns) else { return Err(CallError::Full) };
        self.stats.calls_count += 1;
        stage::forward(id.word());
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        let header = Header { body_bytes, kind: Kind::Request, method, call: id.word() };
        if let Some(monitor) = &mut self.monitor {
            monitor.begin(Side::Caller, peer, id.word(), method, body.len());
        }
        match self.send(peer, header, body) {
            Ok(()) => {
                stage::sent(id.word());
                Ok(id)
            }
            Err(error) => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.end(Side::Caller, peer, id.word(), 0, Ending::Gone);
                }
                self.calls.forget(id);
                Err(error)
            }
        }
    }

    #[inline]
    fn may_send(&self, peer: PeerKey, body: &[u8]) -> Result<(), CallError> {
        let Some(place) = self.place(peer) else { return Err(CallError::Stale) };
        if body.len() > place.message_bytes_max {
            let (bytes, bytes_max) = (body.len(), place.message_bytes_max);
            return Err(CallError::TooLong { bytes, bytes_max });
        }
        let quarter_bytes = self.config.queued_bytes_max as usize / 4;
        if self.any_queued
            && place.link.as_ref().is_some_and(|link| link.queued_bytes() > quarter_bytes)
        {
            return Err(CallError::Full);
        }
        Ok(())
    }

    pub(crate) fn send_one_way(
        &mut self,
        peer: PeerKey,
        method: u64,
        body: &[u8],
    ) -> Result<(), CallError> {
        self.may_send(peer, body)?;
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        if let Some(monitor) = &mut self.monitor {
            monitor.begin(Side::Caller, peer, ONE_WAY, method, body.len());
        }
        let sent =
            self.send(peer, Header { body_bytes, kind: Kind::OneWay, method, call: 0 }, body);
        if let Some(monitor) = &mut self.monitor {
            monitor.end(Side::Caller, peer, ONE_WAY, 0, Ending::Result);
        }
        sent
    }

    /// A request that wants no answer was handled, or was not.
    pub(crate) fn handled_one_way(&mut self, peer: PeerKey, outcome: Result<(), Refusal>) {
        if let Some(monitor) = &mut self.monitor {
            monitor.responded(peer, ONE_WAY, outcome, 0);
        }
    }

    #[inline]
    pub(crate) fn respond(
        &mut self,
        peer: PeerKey,
        call: u64,
        answer: Result<(), Refusal>,
        body: &[u8],
    ) {
        if let Some(monitor) = &mut self.monitor {
            monitor.responded(peer, call, answer, body.len());
        }
        let Some(place) = self.place(peer) else { return };
        let fits = body.len() <= place.message_bytes_max;
        // The words of a refusal may not fit, either.
        let answer = if fits { answer } else { Err(Refusal::TooLong) };
        let (kind, method) = match answer {
            Ok(()) => (Kind::Response, 0),
            Err(refusal) => (Kind::Refusal, refusal as u64),
        };
        let told = matches!(answer, Ok(()) | Err(Refusal::Failed)) && fits;
        let body = if told { body } else { &[] };
        let body_bytes = body.len() as u32; // message_bytes_max is a u32.
        // Who is gone needs no answer.
        let _ = self.send(peer, Header { body_bytes, kind, method, call }, body);
        stage::responded(call);
    }

    /// Ends a call of this side: what comes for it later is dropped.
    pub(crate) fn give_up(&mut self, id: CallId) {
        let Some(peer) = self.calls.peer(id) else { return };
        let pending = self.calls.is_done(id) == Some(false);
        self.calls.forget(id);
        if pending {
            if let Some(monitor) = &mut self.monitor {
                monitor.end(Side::Caller, peer, id.word(), 0, Ending::GivenUp);
            }
            let header = Header { body_bytes: 0, kind: Kind::Cancel, method: 0, call: id.word() };
            // Who is gone need not be told.
            let _ = self.send(peer, header, &[]);
        }
    }

    pub(crate) fn disconnect(&mut self, peer: PeerKey) -> bool {
        let known = self.is_connected(peer);
        let header = Header { body_bytes: 0, kind: Kind::Bye, method: 0, call: 0 };
        let _ = self.send(peer, header, &[]);
        self.close(peer, &Gone::Closed);
        known
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Before the pool's end is waited for: a handler may wait for one of these.
        self.break_promises();
        self.bulk_part();
    }
}

impl From<FrameError> for CallError {
    fn from(error: FrameError) -> Self {
        CallError::Gone(error.into())
    }
}
