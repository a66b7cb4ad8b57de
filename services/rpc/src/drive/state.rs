//! State of an endpoint except for its handlers, so that a running handler can borrow the rest.

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

/// Maximum number of frames of one peer before others have their turn.
const FRAMES_MAX: u32 = 64;
/// Maximum number of streams that a spinning endpoint reads without asking epoll which of them are
/// ready.
const STREAMS_TRIED_MAX: usize = 4;
/// Turns between two reads of the clock while spinning.
const TURNS_PER_LOOK: u32 = 64;
/// Time between two calls of epoll while spinning or while there is always work: for closed
/// connections, new connections and streams.
const KERNEL_LOOK_NS: u64 = 1_000_000;
/// Call number of a request without an answer.
pub(super) const ONE_WAY: u64 = u64::MAX;

/// Counters of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Connected peers.
    pub peers_count: u32,
    /// Calls started by this side.
    pub calls_count: u64,
    /// Requests of peers that were handled or refused.
    pub requests_count: u64,
    /// Answers that no call waited for any more.
    pub late_count: u64,
    /// Connections that ended.
    pub gone_count: u64,
    /// Connections that were refused or failed in the handshake.
    pub turned_away_count: u64,
    /// Number of times that the thread went to sleep.
    pub sleeps_count: u64,
}

/// Target of log lines.
const LOG: &str = "handover_rpc";

/// Receiver of peers' requests.
pub(crate) trait Sink {
    fn request(&mut self, state: &mut State, peer: PeerKey, header: Header, body: &[u8]);
    /// Returns `true` if requests that were put off may be handled now.
    fn catches_up(&self) -> bool;
}

/// Sink in use while a handler runs: it puts off peers' requests.
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
    /// `true` if the socket is in the epoll set.
    is_told_of: bool,
    put_off: Backlog<PutOffRequest>,
    /// `true` if the peer is in `State::caught_up_with`.
    is_caught_up_with: bool,
    /// Process descriptor of a Unix socket's peer, watched as long as the connection lasts: a child
    /// that the peer has forked may hold the socket open after the peer has ended.
    process: Option<OwnedFd>,
}

/// State of an endpoint except for its handlers.
#[derive(Debug)]
pub struct State {
    pub(crate) config: Config,
    pub(crate) security: Security,
    poll: Poll,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Places of the connected peers.
    active: Vec<u32>,
    streams_count: usize,
    listeners: Vec<Listener>,
    accept_again_ns: Option<u64>,
    /// Time of the next sweep for incomplete frames; `u64::MAX` while there are none.
    sweep_at_ns: u64,
    greetings: Vec<Option<Greeting>>,
    /// Results of handshakes that this side began, by their number.
    settled: Vec<(u32, Result<PeerKey, Gone>)>,
    pub(crate) calls: Calls,
    /// Peers that have requests which were put off and may be handled now, each once.
    caught_up_with: VecDeque<PeerKey>,
    catch_up: bool,
    any_queued: bool,
    /// `true` if frames are queued that are to be sent in this turn.
    is_flush_due: bool,
    /// Peers that the kernel reports as closed; messages that they had sent are handled first.
    ended: Vec<PeerKey>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pool: Option<Pool>,
    done: Vec<Done>,
    pub(super) others: Others,
    stopped: bool,
    ready: Vec<(Whose, bool)>,
    /// Body of the last received message.
    pub(crate) body: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) bulk: Tables,
    pub(crate) monitor: Option<Box<Monitor>>,
    pub(crate) timers: Timers,
    on_signal: Option<OnSignal>,
    /// `true` if timers are due, a dump was requested, or errands wait; `catch_up` is set as well.
    chores: bool,
    dump: bool,
    /// Turns since the clock was last read; longer work counts as several turns.
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
            is_flush_due: false,
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

    /// Returns `true` if the endpoint was told to stop since the last call.
    #[inline]
    pub(crate) fn take_stop(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }

    /// Returns `true` if messages to that peer go through shared memory, so that files can be
    /// passed to it.
    pub(super) fn shares_memory(&self, peer: PeerKey) -> bool {
        self.place(peer).is_some_and(|it| it.in_memory)
    }

    /// Returns the process id of that peer in this pid namespace, for copies by the kernel. Returns
    /// `None` if memory is not shared with the peer, or if its process is not visible in this pid
    /// namespace.
    pub(super) fn process_of(&self, peer: PeerKey) -> Option<i32> {
        self.place(peer)?.link.as_ref()?.process()
    }

    /// Returns the maximum length of a message to that peer, in bytes; 0 if it is disconnected.
    pub(super) fn message_bytes_max(&self, peer: PeerKey) -> usize {
        self.place(peer).map_or(0, |it| it.message_bytes_max)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Done before the pool is joined: a handler there may wait for one of these.
        self.break_promises();
        self.bulk_part();
    }
}

impl From<FrameError> for CallError {
    fn from(error: FrameError) -> Self {
        CallError::Gone(error.into())
    }
}
