//! What an endpoint is made of, but for its handlers: so that a handler can be given the rest.

mod alone;
mod chores;
mod peers;
mod put_off;
mod send;
mod sweep;
mod turn;
mod wait;

use super::bulk::Tables;
use super::dump::OnSignal;
use super::greet::Greeting;
use super::link::AnyLink;
use super::listen::Listener;
use super::monitor::Monitor;
use super::poll::{Poll, Whose};
use super::pool::{Done, Inbox, Pool};
use super::progress::Others;
use super::security::Security;
use super::timing::Timers;
use crate::clock;
use crate::engine::{Backlog, Calls, Header, PeerKey};
use crate::{CallError, Config, EndpointError, FrameError, Gone};
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
/// How often the kernel is asked while there is always something to do, or while spinning: for deaths,
/// strangers and streams.
const KERNEL_LOOK_NS: u64 = 1_000_000;
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
