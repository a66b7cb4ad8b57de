//! Table of the connected peers: their links, and their deferred requests.
//!
//! Each peer has its own queue of requests that wait until a running handler has returned, or until
//! the peer reads its answers. A peer that does not read its answers delays only its own requests.

use super::dump::PeerDump;
use super::handshake::Handshake;
use super::link::AnyLink;
use super::poll::{EventSource, GENERATION_MASK, Poll};
use super::security::Security;
use super::sm::SharedMemoryLink;
use super::ucx::UcxDriver;
use crate::engine::{Backlog, FrameHeader, FrameKind, PeerKey};
use crate::raw::{peer_credentials, peer_pidfd};
use crate::{CallError, CloseReason, Config};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Maximum number of streams that a spinning endpoint reads without asking epoll which of them are
/// ready.
pub(crate) const EAGER_STREAMS_MAX: usize = 4;
/// Minimum number of streams for which a spinning endpoint asks epoll which of them are ready.
const EPOLL_STREAMS_MIN: usize = EAGER_STREAMS_MAX + 1;
/// Maximum number of consecutive sweeps that may find the same frame incomplete. Then the
/// connection is closed.
pub(crate) const STALLED_SWEEPS_MAX: u32 = 8;
/// Number of bytes that a deferred request takes in addition to its body.
const REQUEST_OVERHEAD_BYTES: usize = 128;
const _: () = assert!(size_of::<DeferredRequest>() <= REQUEST_OVERHEAD_BYTES / 2);

/// Request from a peer, to be handled later.
#[derive(Debug)]
pub(crate) struct DeferredRequest {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
}

/// Entry of the peer table: a connected peer, or a free slot.
#[derive(Debug, Default)]
pub(crate) struct PeerSlot {
    /// Number of earlier uses of the slot.
    pub(crate) generation: u32,
    /// Connection of the peer; `None` in a free slot.
    pub(crate) link: Option<AnyLink>,
    /// Agreed maximum length of a message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// `true` if messages go through shared memory.
    is_in_shared_memory: bool,
    /// `true` if frames are polled for, and epoll does not report them.
    is_polled: bool,
    /// `true` if the connection's socket is in the epoll set.
    pub(crate) is_in_epoll: bool,
    /// Requests from the peer, to be handled later.
    pub(crate) deferred: Backlog<DeferredRequest>,
    /// `true` if the peer is in [`Peers::scheduled`].
    is_scheduled: bool,
    /// Process descriptor that reports the exit of a peer on a Unix socket. The end of the stream
    /// may not report it, because a child that the peer has forked may hold the socket open.
    process: Option<OwnedFd>,
}

/// Connection that was removed from the table. Its calls and transfers must still be failed.
#[derive(Debug)]
pub(crate) struct ClosedPeer {
    pub(crate) peer: PeerKey,
    pub(crate) why: CloseReason,
    /// Duplicate of the socket, which shows when the peer has closed its end too.
    pub(crate) socket: Option<OwnedFd>,
    /// Descriptor of the peer's process, which is still in the epoll set.
    pub(crate) process: Option<OwnedFd>,
}

/// Table of the connected peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) slots: Vec<PeerSlot>,
    free_slots: Vec<u32>,
    /// Slots of the connected peers.
    pub(crate) active: Vec<u32>,
    /// Bitmap, by slot, of the peers that may have sent data. A bit is set for a peer that is
    /// polled as long as it is connected, and for a stream from a notification until everything was
    /// read. So an iteration does not visit the others, of which there may be thousands.
    receivable: Vec<u64>,
    /// Number of connected peers whose frames are not polled for: those on streams.
    pub(crate) streams_count: usize,
    /// `true` if a connection may have queued frames.
    pub(crate) has_queued_frames: bool,
    /// `true` if queued frames must be sent at the end of this iteration.
    is_flush_requested: bool,
    /// Queue, without duplicates, of the peers whose deferred requests may be handled now.
    scheduled: VecDeque<PeerKey>,
    /// Closed connections that [`pop_closed`](Self::pop_closed) has not returned yet.
    closed: Vec<ClosedPeer>,
    /// Maximum number of bytes queued for sending to one peer.
    queued_bytes_max: usize,
    /// UCX worker of the endpoint. It is dropped after the links, which use it.
    pub(crate) ucx: UcxDriver,
}

impl Peers {
    pub(crate) fn new(queued_bytes_max: usize) -> Self {
        Self { queued_bytes_max, ..Self::default() }
    }

    /// Returns the entry of a peer; `None` if the peer is disconnected.
    #[inline]
    pub(crate) fn get(&self, peer: PeerKey) -> Option<&PeerSlot> {
        let at = self.slots.get(peer.slot as usize)?;
        (at.generation == peer.generation && at.link.is_some()).then_some(at)
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, peer: PeerKey) -> Option<&mut AnyLink> {
        let at = self.slots.get_mut(peer.slot as usize)?;
        if at.generation == peer.generation { at.link.as_mut() } else { None }
    }

    #[inline]
    pub(crate) fn slot_key(&self, slot: u32) -> PeerKey {
        PeerKey { slot, generation: self.slots[slot as usize].generation }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = PeerKey> + '_ {
        self.active.iter().map(|&slot| self.slot_key(slot))
    }

    pub(crate) fn is_connected(&self, peer: PeerKey) -> bool {
        self.get(peer).is_some()
    }

    pub(crate) fn for_each_shared_memory_link(
        &mut self,
        mut handle: impl FnMut(&mut SharedMemoryLink),
    ) {
        if self.streams_count == self.active.len() {
            return; // There may be thousands of streams.
        }
        for &slot in &self.active {
            if let Some(AnyLink::Sm(link)) = &mut self.slots[slot as usize].link {
                handle(link);
            }
        }
    }

    /// Returns `true` if messages to `peer` go through shared memory. Files can then be passed to
    /// it.
    pub(crate) fn has_shared_memory(&self, peer: PeerKey) -> bool {
        self.get(peer).is_some_and(|it| it.is_in_shared_memory)
    }

    /// Returns `true` if frames of that peer are polled for. Its bulk data then arrives together
    /// with the headers.
    pub(crate) fn is_polled(&self, peer: PeerKey) -> bool {
        self.get(peer).is_some_and(|it| it.is_polled)
    }

    /// Returns the process id of that peer in this pid namespace, for copies by the kernel. Returns
    /// `None` if memory is not shared with the peer, or if its process is not visible in this pid
    /// namespace.
    pub(crate) fn process_id(&self, peer: PeerKey) -> Option<i32> {
        self.get(peer)?.link.as_ref()?.process_id()
    }

    /// Returns the maximum length of a message to that peer, in bytes; 0 if it is disconnected.
    pub(crate) fn message_bytes_max(&self, peer: PeerKey) -> usize {
        self.get(peer).map_or(0, |it| it.message_bytes_max)
    }

    pub(crate) fn queued_bytes(&mut self, peer: PeerKey) -> usize {
        self.link_mut(peer).map_or(0, |link| link.queued_bytes())
    }

    pub(crate) fn dump_peers(&self) -> Vec<PeerDump> {
        let dump = |&slot: &u32| {
            let at = &self.slots[slot as usize];
            let link = at.link.as_ref()?;
            Some(PeerDump {
                slot,
                is_in_memory: at.is_in_shared_memory,
                pid: link.process_id(),
                queued_bytes: link.queued_bytes(),
                receive_buffer_bytes: link.receive_buffer_bytes(),
                message_bytes_max: at.message_bytes_max,
            })
        };
        self.active.iter().filter_map(dump).collect()
    }

    // Beginning and end of connections.

    /// Adds the peer of a complete handshake; fails if `peers_max` peers are connected. Another
    /// peer may be closed meanwhile.
    pub(crate) fn add_peer(
        &mut self,
        handshake: Handshake,
        poll: &Poll,
        config: &Config,
        security: &Security,
    ) -> Result<PeerKey, CloseReason> {
        if self.active.len() >= config.connections.peers_max as usize {
            return Err(CloseReason::ClosedLocally);
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(PeerSlot::default());
            // Fewer than peers_max, which is a u32.
            (self.slots.len() - 1) as u32
        });
        let key = self.slot_key(slot);
        let agreed = match poll.set_source(handshake.fd(), EventSource::Peer(key)) {
            Ok(()) => handshake.complete(config, security, &self.ucx),
            Err(error) => Err(CloseReason::from_system_call("epoll_ctl")(error)),
        };
        let mut agreed = agreed.inspect_err(|_| self.free_slots.push(slot))?;
        let at = &mut self.slots[slot as usize];
        at.is_in_shared_memory = agreed.link.is_in_shared_memory();
        at.is_polled = agreed.link.is_polled();
        at.message_bytes_max = agreed.message_bytes_max as usize;
        at.is_in_epoll = true;
        at.process = watch_process(poll, &agreed.link, key);
        if at.process.is_some() {
            // If this fails, this connection is never waited for in a read.
            agreed.link.limit_wait_in_read();
        }
        let is_stream = !at.is_polled;
        self.streams_count += usize::from(is_stream);
        self.has_queued_frames |= agreed.link.queued_bytes() > 0;
        at.link = Some(agreed.link);
        // The first frame may have arrived during the handshake.
        self.set_receivable(slot);
        self.active.push(slot);
        if config.spin_forever && is_stream {
            self.choose_notification(slot, poll);
        }
        Ok(key)
    }

    /// Chooses between epoll and plain reads for an endpoint that never sleeps. While it has few
    /// streams, it reads them without a pause and removes them from the epoll set, as notifications
    /// would cost their senders time. If there are more, epoll reports all of them.
    fn choose_notification(&mut self, newest: u32, poll: &Poll) {
        // A round trip over Unix sockets took 1.12 x the bare one with notifications and a read in
        // vain, and 0.95 x without both. 2026-11.
        let reads = self.streams_count <= EAGER_STREAMS_MAX;
        let concerned = match self.streams_count {
            ..=EAGER_STREAMS_MAX => std::slice::from_ref(&newest),
            EPOLL_STREAMS_MIN => &self.active[..],
            // Epoll reports all of them already.
            _ => return,
        };
        let mut lost = Vec::new();
        for &slot in concerned {
            let key = self.slot_key(slot);
            let at = &mut self.slots[slot as usize];
            let Some(link) = at.link.as_ref().filter(|_| at.is_in_epoll == reads) else { continue };
            let changed = match reads {
                true => poll.remove(link.socket()),
                false => poll.add(link.socket(), EventSource::Peer(key)),
            };
            match changed {
                Ok(()) => at.is_in_epoll = !reads,
                Err(error) => lost.push((key, error)),
            }
        }
        for (peer, error) in lost {
            self.close(peer, CloseReason::from_system_call("epoll_ctl")(error));
        }
    }

    /// Closes the process descriptor of any one peer, to free a descriptor. Returns `false` if no
    /// peer has one.
    #[cold]
    pub(crate) fn close_one_pidfd(&mut self, poll: &Poll) -> bool {
        let process = self.slots.iter_mut().find_map(|at| at.process.take());
        // Without this, a child of this process that inherited the descriptor would keep it in the
        // epoll set.
        process.map(|it| poll.remove(it)).is_some()
    }

    /// Closes a connection, removes the peer, and drops its deferred requests; see
    /// [`pop_closed`](Self::pop_closed).
    pub(crate) fn close(&mut self, peer: PeerKey, why: CloseReason) {
        #[cfg(test)]
        crate::simulation::record_close_reason(&why);
        let Some(link) = self.link_mut(peer) else { return };
        link.close();
        let socket = link.duplicate_socket();
        let at = &mut self.slots[peer.slot as usize];
        at.link = None;
        at.deferred = Backlog::default();
        at.is_scheduled = false;
        at.generation = at.generation.wrapping_add(1) & GENERATION_MASK;
        self.closed.push(ClosedPeer { peer, why, socket, process: at.process.take() });
        self.streams_count -= usize::from(!at.is_polled);
        self.clear_receivable(peer.slot);
        self.active.retain(|&it| it != peer.slot);
        self.free_slots.push(peer.slot);
    }

    /// Returns `true` if [`pop_closed`](Self::pop_closed) has a connection to return.
    #[inline]
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Removes and returns a closed connection. The caller must fail its calls and transfers.
    /// Returns `None` if there is none.
    pub(crate) fn pop_closed(&mut self) -> Option<ClosedPeer> {
        self.closed.pop()
    }

    /// Frees unused receive buffers, and closes stalled connections if `has_limit` is `true`. A
    /// connection is stalled if its peer does not finish a frame. The limit counts sweeps, not
    /// time: while this endpoint is not driven, peers are not blamed for bytes that were not read.
    /// Returns `true` if another sweep is needed.
    #[cold]
    pub(crate) fn sweep(&mut self, has_limit: bool) -> bool {
        let mut wanted = false;
        for key in self.keys().collect::<Vec<_>>() {
            let Some(link) = self.link_mut(key) else { continue };
            let sweeps_count = link.sweep();
            wanted |= link.needs_sweep();
            if has_limit && sweeps_count > STALLED_SWEEPS_MAX {
                self.close(key, CloseReason::MessageTimeout);
            }
        }
        wanted
    }

    // Receiving.

    /// Handles a notification of that peer's socket; returns its link. With `reads_until_empty`, a
    /// stream is read until a read finds nothing; see
    /// [`Link::on_ready`](super::link::Link::on_ready).
    pub(crate) fn on_ready(
        &mut self,
        peer: PeerKey,
        reads_until_empty: bool,
    ) -> Option<&mut AnyLink> {
        self.link_mut(peer)?.on_ready(reads_until_empty);
        self.set_receivable(peer.slot);
        self.link_mut(peer)
    }

    /// Records that the peer in `slot` may have sent data.
    pub(crate) fn set_receivable(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.receivable.len() {
            self.receivable.resize(word + 1, 0);
        }
        self.receivable[word] |= 1 << (slot % 64);
    }

    /// Records that all data of a stream was read. Has no effect for a peer that is polled.
    #[inline]
    pub(crate) fn set_drained(&mut self, slot: u32) {
        if !self.slots[slot as usize].is_polled {
            self.clear_receivable(slot);
        }
    }

    fn clear_receivable(&mut self, slot: u32) {
        if let Some(bits) = self.receivable.get_mut(slot as usize / 64) {
            *bits &= !(1 << (slot % 64));
        }
    }

    /// Returns the next slot, from `from` on, whose peer may have sent data.
    #[inline]
    pub(crate) fn next_receivable(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.receivable.get(word)? & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.receivable.get(word)?;
        }
        // Below 64 times the length of a vector that has a bit for each slot, a u32.
        Some((word * 64) as u32 + bits.trailing_zeros())
    }

    // Sending.

    /// Sends a frame, or queues it; closes the connection if this fails.
    #[inline]
    pub(crate) fn send(
        &mut self,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    ) -> Result<(), CallError> {
        let Some(link) = self.link_mut(peer) else { return Err(CallError::Stale) };
        match link.send(header, body) {
            Ok(()) => {
                if link.queued_bytes() > 0 {
                    self.has_queued_frames = true;
                }
                Ok(())
            }
            Err(gone) => {
                self.close(peer, gone.clone());
                Err(gone.into())
            }
        }
    }

    /// Returns `true` if sending to `peer` has failed because it closed the connection.
    pub(crate) fn has_hung_up(&self, peer: PeerKey) -> bool {
        self.get(peer).and_then(|at| at.link.as_ref()).is_some_and(|link| link.has_hung_up())
    }

    /// Checks that a message of that length may be sent to that peer now.
    #[inline]
    pub(crate) fn check_send(&self, peer: PeerKey, bytes: usize) -> Result<(), CallError> {
        let Some(at) = self.get(peer) else { return Err(CallError::Stale) };
        let bytes_max = at.message_bytes_max;
        if bytes > bytes_max {
            return Err(CallError::TooLong { bytes, bytes_max });
        }
        let quarter_bytes = self.queued_bytes_max / 4;
        if self.has_queued_frames
            && at.link.as_ref().is_some_and(|link| link.queued_bytes() > quarter_bytes)
        {
            return Err(CallError::Full);
        }
        Ok(())
    }

    /// Requests that queued frames are sent in this iteration. Frames for which there is no space
    /// are sent in the next ones.
    pub(crate) fn request_flush(&mut self) {
        self.is_flush_requested = true;
        self.has_queued_frames = true;
    }

    /// Returns `true` if a flush was requested since the last call.
    #[inline]
    pub(crate) fn take_flush_request(&mut self) -> bool {
        std::mem::take(&mut self.is_flush_requested)
    }

    /// Sends queued frames of that peer; returns `true` if any bytes were sent.
    pub(crate) fn flush(&mut self, peer: PeerKey) -> bool {
        let Some(at) = self.slots.get_mut(peer.slot as usize) else { return false };
        let Some(link) = at.link.as_mut().filter(|it| it.queued_bytes() > 0) else { return false };
        if !at.is_in_epoll {
            link.on_ready(false);
        }
        match link.flush() {
            Ok(went) => {
                self.has_queued_frames |= link.queued_bytes() > 0;
                if link.has_hung_up() {
                    self.set_receivable(peer.slot);
                }
                went
            }
            Err(gone) => {
                self.close(peer, gone);
                false
            }
        }
    }

    // Deferred requests.

    /// Returns `true` if requests from `peer` must wait, because too many bytes are queued for
    /// sending to it. Answers of the peer are still read, because otherwise two endpoints with full
    /// send queues could block each other for ever.
    pub(crate) fn should_defer_requests(&mut self, peer: PeerKey) -> bool {
        self.queued_bytes(peer) > self.queued_bytes_max / 2
    }

    /// Returns `true` if requests from `peer` are deferred. A new one must then be queued behind
    /// them.
    #[inline]
    pub(crate) fn has_deferred(&self, peer: PeerKey) -> bool {
        !self.slots[peer.slot as usize].deferred.is_empty()
    }

    /// Defers a request. Returns `false`, and drops the request, if too many bytes of the peer's
    /// requests are deferred. A single request may be longer than that limit.
    pub(crate) fn defer(&mut self, peer: PeerKey, header: FrameHeader, body: &[u8]) -> bool {
        let deferred = &mut self.slots[peer.slot as usize].deferred;
        let bytes = body.len() + REQUEST_OVERHEAD_BYTES;
        if !deferred.is_empty() && deferred.queued_bytes() + bytes > self.queued_bytes_max {
            return false;
        }
        // One-way requests have no number.
        let call = (header.kind == FrameKind::Request).then_some(header.call);
        deferred.push(call, bytes, DeferredRequest { header, body: body.to_vec() });
        self.schedule(peer);
        true
    }

    /// Schedules `peer` if it has deferred requests, unless too many bytes are queued for sending
    /// to it.
    pub(crate) fn schedule(&mut self, peer: PeerKey) {
        if self.should_defer_requests(peer) {
            return; // This function is called again when queued bytes were sent.
        }
        let at = &mut self.slots[peer.slot as usize];
        if at.generation == peer.generation && !at.deferred.is_empty() && !at.is_scheduled {
            at.is_scheduled = true;
            self.scheduled.push_back(peer);
        }
    }

    /// Returns the number of peers whose deferred requests may be handled now.
    #[inline]
    pub(crate) fn scheduled_count(&self) -> usize {
        self.scheduled.len()
    }

    /// Removes and returns the next peer whose deferred requests may be handled.
    pub(crate) fn pop_scheduled(&mut self) -> Option<PeerKey> {
        let peer = self.scheduled.pop_front()?;
        let at = &mut self.slots[peer.slot as usize];
        if at.generation == peer.generation {
            at.is_scheduled = false;
        }
        Some(peer)
    }

    /// Removes and returns the oldest deferred request of `peer`. Returns `None` if there is none,
    /// or if too many bytes are queued for the peer.
    pub(crate) fn pop_deferred(&mut self, peer: PeerKey) -> Option<DeferredRequest> {
        if !self.is_connected(peer) || self.should_defer_requests(peer) {
            return None;
        }
        self.slots[peer.slot as usize].deferred.pop()
    }

    /// Returns the number of deferred requests of all peers.
    pub(crate) fn deferred_count(&self) -> usize {
        self.slots.iter().map(|at| at.deferred.len()).sum()
    }
}

/// Starts to watch the process of a peer on a Unix socket, and returns its descriptor. Returns
/// `None` for a peer in this process, and if no descriptor is available: then only the end of the
/// stream shows the exit of the peer.
fn watch_process(poll: &Poll, link: &AnyLink, peer: PeerKey) -> Option<OwnedFd> {
    let (pid, _) = peer_credentials(link.socket()).ok()?;
    if pid == i32::try_from(std::process::id()).ok() {
        return None;
    }
    let process = peer_pidfd(link.socket(), pid)?;
    poll.add(&process, EventSource::Process(peer)).is_ok().then_some(process)
}
