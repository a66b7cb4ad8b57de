//! Clients: sending packets to the arbiter, and transmitting the packets that it releases.

use super::lane::{LaneReceiver, LaneSender};
use super::ledger::Counts;
use super::port::return_slots_count;
use super::presence::ClientState;
use super::sink::{Sink, SinkError};
use super::stamps::{Record, Stamping, Trace};
use super::state::{ArbiterState, DRAINING, FINISHED};
use super::word::{FLOWS_MAX, LENGTH_MAX_BYTES, Offer, TAGS_MAX};
use handover_base::clock;
use handover_base::sync::{Arc, CachePadded};
use handover_probe::probe;
use std::fmt;
use std::mem;
use std::ops::Range;

/// Error of [`Client::send`]; contains the packet that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The mailbox was full, because the arbiter has not read earlier packets yet.
    #[error("the mailbox is full: call poll(), then send again")]
    Full(Offer),
    /// The arbiter was stopped. Every later send fails, too.
    #[error("the arbiter was stopped and accepts no packets")]
    Closed(Offer),
    /// The packet's flow number, length or tag is out of range.
    #[error(
        "packet with flow={}, length_bytes={}, tag={}: flow must be below {FLOWS_MAX}, length_bytes in \
         1..={LENGTH_MAX_BYTES}, tag below {TAGS_MAX}", .0.flow, .0.length_bytes, .0.tag
    )]
    OutOfRange(Offer),
}

impl SendError {
    /// Returns the packet that was not sent.
    pub fn into_inner(self) -> Offer {
        match self {
            SendError::Full(offer) | SendError::Closed(offer) | SendError::OutOfRange(offer) => {
                offer
            }
        }
    }
}

/// Result of [`Client::send_batch`]: number of packets sent, and the invalid packet that ended the
/// batch, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "some packets may not have been sent"]
pub struct BatchResult {
    /// Number of packets sent.
    pub sent: usize,
    /// Invalid packet ([`SendError::OutOfRange`]) at which the batch stopped; `None` if all were
    /// valid.
    pub out_of_range: Option<Offer>,
}

/// The client's ends of its two mailboxes. Packets have no time stamps, or one stamp to the arbiter
/// and three back.
pub(super) enum ClientLanes {
    /// Mailboxes whose slots have no time stamps.
    Unstamped(Box<LanePair<1, 1>>),
    /// Mailboxes whose slots have time stamps.
    Stamped(Box<LanePair<2, 4>>),
}

/// A client's mailboxes to and from the arbiter, each with a buffer of slots.
///
/// The buffers are kept: zeroing them for each packet would take sixteen stores, which queue up
/// behind the store into the mailbox that the arbiter is reading.
pub(super) struct LanePair<const IN_WORDS: usize, const OUT_WORDS: usize> {
    to_arbiter: LaneSender<IN_WORDS>,
    from_arbiter: LaneReceiver<OUT_WORDS>,
    /// Buffer of slots to be pushed to the arbiter.
    run_to_arbiter: [[u64; IN_WORDS]; RUN_MAX],
    /// Buffer of slots received from the arbiter.
    run_from_arbiter: [[u64; OUT_WORDS]; RUN_MAX],
    /// Slots of `run_from_arbiter` that were popped but not processed, because a sink panicked.
    unprocessed: Range<usize>,
}

impl<const IN_WORDS: usize, const OUT_WORDS: usize> LanePair<IN_WORDS, OUT_WORDS> {
    pub(super) fn new(
        to_arbiter: LaneSender<IN_WORDS>,
        from_arbiter: LaneReceiver<OUT_WORDS>,
    ) -> Box<Self> {
        let (run_to_arbiter, run_from_arbiter) =
            ([[0; IN_WORDS]; RUN_MAX], [[0; OUT_WORDS]; RUN_MAX]);
        Box::new(Self {
            to_arbiter,
            from_arbiter,
            run_to_arbiter,
            run_from_arbiter,
            unprocessed: 0..0,
        })
    }
}

/// Client of an arbiter: sends packets to it, and transmits the packets that it releases.
///
/// A client belongs to one thread at a time. Dropping it disconnects it: its packets in flight
/// count as abandoned and are never released; the other clients continue.
pub struct Client {
    /// The client's ends of its mailboxes.
    lanes: ClientLanes,
    counts: Counts,
    number: usize,
    /// `true` if each packet has its own time stamps. Otherwise a batch shares them, or there are
    /// none.
    stamps_packets: bool,
    /// State that the client publishes to the arbiter.
    client_state: Arc<CachePadded<ClientState>>,
    shared: Arc<ArbiterState>,
}

impl Client {
    pub(super) fn new(
        number: usize,
        lanes: ClientLanes,
        client_state: Arc<CachePadded<ClientState>>,
        shared: Arc<ArbiterState>,
    ) -> Self {
        let stamps_packets = shared.stamping == Stamping::Packet;
        Self { lanes, counts: Counts::default(), number, stamps_packets, client_state, shared }
    }

    /// Returns the client's number: clients are numbered from 0 in the order of joining. It is the
    /// same as [`Ledger::client`](super::Ledger::client).
    pub fn number(&self) -> usize {
        self.number
    }

    /// Sends a packet to the arbiter.
    ///
    /// # Errors
    /// [`SendError`] returns the packet.
    ///
    /// # Blocking
    /// Never.
    #[inline]
    pub fn send(&mut self, offer: Offer) -> Result<(), SendError> {
        if !offer.fits() {
            return Err(SendError::OutOfRange(offer));
        }
        if self.is_closed() {
            return Err(SendError::Closed(offer));
        }
        let word = offer.pack();
        let is_pushed = match &mut self.lanes {
            ClientLanes::Unstamped(lanes) => lanes.to_arbiter.push([word]),
            ClientLanes::Stamped(lanes) => lanes.to_arbiter.push([word, clock::ticks()]),
        };
        if !is_pushed {
            return Err(SendError::Full(offer));
        }
        probe!("sched.enqueued", self.number, 1);
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(offer.length_bytes);
        Ok(())
    }

    /// Sends packets from `offers` until the mailbox is full or a packet is invalid. Returns the
    /// number of packets sent and the invalid packet. The iterator is advanced only when a slot is
    /// free, so packets that were not sent stay in `offers`.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Less than one by one: up to eight packets share a cache line.
    #[inline(always)]
    pub fn send_batch(&mut self, offers: &mut impl Iterator<Item = Offer>) -> BatchResult {
        if self.is_closed() {
            return BatchResult::default();
        }
        let counts = &mut self.counts;
        let batch = match &mut self.lanes {
            ClientLanes::Unstamped(lanes) => lanes.push_all(offers, counts, |word| [word]),
            ClientLanes::Stamped(lanes) => {
                lanes.push_all_stamped(offers, counts, self.stamps_packets)
            }
        };
        probe!("sched.enqueued", self.number, batch.sent);
        batch
    }

    /// Transmits up to `packets_max` packets that the arbiter has released, in the order of
    /// release. Also counts packets that the arbiter has dropped. Returns the number of packets
    /// transmitted or dropped. Ends with a [`Sink::flush`] if there were any.
    ///
    /// # Errors
    /// An error of the sink. The counters are right all the same.
    ///
    /// # Panics
    /// Panics if the sink or the trace does. The packet being transmitted then counts as
    /// transmitted; the next call handles the packets behind it.
    ///
    /// # Blocking
    /// As the sink does.
    #[inline]
    pub fn poll<K: Sink, T: Trace>(
        &mut self,
        packets_max: usize,
        sink: &mut K,
        trace: &mut T,
    ) -> Result<usize, SinkError> {
        self.poll_each(packets_max, sink, trace, |_| {})
    }

    /// Transmits released packets as [`poll`](Self::poll) does, and calls `on_returned` for each.
    /// The argument is the flow of the packet, which was transmitted or dropped.
    #[inline]
    pub(super) fn poll_each<K: Sink, T: Trace>(
        &mut self,
        packets_max: usize,
        sink: &mut K,
        trace: &mut T,
        mut on_returned: impl FnMut(u32),
    ) -> Result<usize, SinkError> {
        let mut call_counts = CallCounts { counts: Counts::default(), total: &mut self.counts };
        let returned_count = match &mut self.lanes {
            ClientLanes::Unstamped(lanes) => lanes.pop_all(packets_max, |[word]| {
                let (packet, _) = call_counts.complete(word, sink);
                on_returned(packet.flow);
            }),
            ClientLanes::Stamped(lanes) => {
                let mut cli_deq_ticks = 0;
                lanes.pop_all(packets_max, |[word, cli_enq_ticks, sch_enq_ticks, sch_deq_ticks]| {
                    let (packet, dropped) = call_counts.complete(word, sink);
                    on_returned(packet.flow);
                    if !T::IS_ENABLED {
                        return;
                    }
                    if cli_deq_ticks == 0 || self.stamps_packets {
                        cli_deq_ticks = clock::ticks();
                    }
                    let (flow, length_bytes) = (packet.flow, packet.length_bytes);
                    trace.record(&Record {
                        cli_enq_ticks,
                        sch_enq_ticks,
                        sch_deq_ticks,
                        cli_deq_ticks,
                        flow,
                        length_bytes,
                        is_dropped: dropped,
                    });
                })
            }
        };
        drop(call_counts);
        if returned_count > 0 {
            self.client_state.store_counts(&self.counts);
            sink.flush()?;
            probe!("sched.transmitted", self.number, returned_count);
        }
        Ok(returned_count)
    }

    /// Returns the number of packets that were sent and are neither transmitted nor dropped yet.
    #[inline]
    pub fn in_flight_count(&self) -> u64 {
        self.counts.queued_count()
    }

    /// Returns `true` if the arbiter was stopped; [`send`](Self::send) fails from then on. Once
    /// `true`, the result stays `true`.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.state() >= DRAINING
    }

    /// Returns `true` if the arbiter has finished; packets that the next [`poll`](Self::poll) does
    /// not transmit are lost. Once `true`, the result stays `true`.
    #[inline]
    pub fn is_arbiter_finished(&self) -> bool {
        self.shared.state() == FINISHED
    }

    /// Returns the numbers of packets and bytes that this client has sent, transmitted and lost to
    /// drops.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the capacity, in packets, of the mailbox from the arbiter to this client. While more
    /// released packets wait for [`poll`](Self::poll), the arbiter reads no packets from this
    /// client.
    pub fn return_slots_count(&self) -> u32 {
        return_slots_count(self.shared.mailbox_slots_count)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.client_state.store_counts(&self.counts);
        self.client_state.mark_left();
        self.shared.notify_arbiter();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {:?})", self.number, self.counts)
    }
}

/// Maximum number of slots pushed or popped together. It equals the default batch size of an
/// arbiter.
const RUN_MAX: usize = 32;

impl<const IN_WORDS: usize, const OUT_WORDS: usize> LanePair<IN_WORDS, OUT_WORDS> {
    /// Pushes packets from `offers` until the lane is full or a packet is invalid. `words` converts
    /// a packed packet into a slot.
    ///
    /// A single packet does not pass through the buffer, and takes few stores: stores take effect
    /// in order, so while the arbiter has the lane's cache line, those of later packets wait, and a
    /// processor lets about 64 of them wait.
    #[inline(always)]
    fn push_all(
        &mut self,
        offers: &mut impl Iterator<Item = Offer>,
        counts: &mut Counts,
        mut words: impl FnMut(u64) -> [u64; IN_WORDS],
    ) -> BatchResult {
        if self.to_arbiter.free_count(2) < 2 {
            return self.push_runs(0, offers, counts, words);
        }
        let Some(first) = offers.next() else { return BatchResult::default() };
        if !first.fits() {
            return BatchResult { sent: 0, out_of_range: Some(first) };
        }
        let pending_slot = PendingSlot {
            to_arbiter: &mut self.to_arbiter,
            words: words(first.pack()),
            counts: &mut *counts,
        };
        let second = match offers.next() {
            Some(second) if second.fits() => words(second.pack()),
            out_of_range => return BatchResult { sent: 1, out_of_range },
        };
        let first = pending_slot.words;
        mem::forget(pending_slot);
        self.run_to_arbiter[0] = first;
        self.run_to_arbiter[1] = second;
        self.push_runs(2, offers, counts, words)
    }

    /// Pushes the first `pending` slots of the buffer, and further packets from `offers` as
    /// [`push_all`](Self::push_all) does. The lane has at least `pending` free slots.
    #[inline(never)]
    fn push_runs(
        &mut self,
        pending: usize,
        offers: &mut impl Iterator<Item = Offer>,
        counts: &mut Counts,
        mut words: impl FnMut(u64) -> [u64; IN_WORDS],
    ) -> BatchResult {
        let Self { to_arbiter, run_to_arbiter: run, .. } = self;
        let (mut batch, sent_before) = (BatchResult::default(), counts.sent);
        let mut pending_run = PendingRun { to_arbiter, run, pending, counts };
        loop {
            let free_count = pending_run.to_arbiter.free_count(RUN_MAX).min(RUN_MAX);
            let mut more = free_count > 0;
            for at in pending_run.pending..free_count {
                let Some(offer) = offers.next() else {
                    more = false;
                    break;
                };
                if !offer.fits() {
                    batch.out_of_range = Some(offer);
                    more = false;
                    break;
                }
                pending_run.run[at] = words(offer.pack());
                pending_run.pending = at + 1;
            }
            pending_run.push_run();
            if !more {
                break;
            }
        }
        batch.sent = (pending_run.counts.sent - sent_before) as usize;
        batch
    }

    /// Pops up to `packets_max` slots, and calls `each` with each slot. Returns the number of
    /// calls, which is less if the lane becomes empty.
    #[inline(always)]
    fn pop_all(&mut self, packets_max: usize, mut each: impl FnMut([u64; OUT_WORDS])) -> usize {
        let kept = mem::take(&mut self.unprocessed);
        let mut popped = PoppedRun { lanes: self, rest: kept };
        let mut returned_count = 0;
        if !popped.rest.is_empty() {
            returned_count = packets_max.min(popped.rest.len());
            popped.process(returned_count, &mut each);
        }
        while returned_count < packets_max {
            let wanted = RUN_MAX.min(packets_max - returned_count);
            let count =
                popped.lanes.from_arbiter.pop_all(&mut popped.lanes.run_from_arbiter[..wanted]);
            popped.rest = 0..count;
            popped.process(count, &mut each);
            returned_count += count;
            if count < wanted {
                break;
            }
        }
        returned_count
    }
}

impl LanePair<2, 4> {
    /// Pushes packets with time stamps as [`push_all`](Self::push_all) does. Each packet has its
    /// own stamp if `stamps_packets`; otherwise they share one.
    #[inline(never)]
    fn push_all_stamped(
        &mut self,
        offers: &mut impl Iterator<Item = Offer>,
        counts: &mut Counts,
        stamps_packets: bool,
    ) -> BatchResult {
        let mut ticks = clock::ticks();
        self.push_all(offers, counts, |word| {
            let words = [word, ticks];
            if stamps_packets {
                ticks = clock::ticks();
            }
            words
        })
    }
}

/// Filled slot that is not pushed into the lane yet, which has a free slot. The destructor pushes
/// and counts it, even if the iterator of offers panics.
///
/// It is dropped in its place, as a [`PendingRun`] is. A value that has just been written is moved
/// in larger words than it was written in, and such a read waits until all stores before have
/// reached the cache, also that into the lane.
struct PendingSlot<'a, const W: usize> {
    to_arbiter: &'a mut LaneSender<W>,
    words: [u64; W],
    counts: &'a mut Counts,
}

impl<const W: usize> Drop for PendingSlot<'_, W> {
    #[inline(always)]
    fn drop(&mut self) {
        self.to_arbiter.push(self.words);
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(Offer::length_bytes_of(self.words[0]));
    }
}

/// Filled slots that are not pushed into the lane yet. The destructor pushes and counts them, even
/// if the iterator of offers panics.
struct PendingRun<'a, const W: usize> {
    to_arbiter: &'a mut LaneSender<W>,
    /// Slots, of which the first `pending` are filled.
    run: &'a mut [[u64; W]; RUN_MAX],
    /// Number of filled slots; the lane has at least as many free slots.
    pending: usize,
    counts: &'a mut Counts,
}

impl<const W: usize> PendingRun<'_, W> {
    /// Pushes the filled slots into the lane, and counts their packets.
    #[inline(always)]
    fn push_run(&mut self) {
        let run = &self.run[..mem::take(&mut self.pending)];
        if let [words] = run {
            self.to_arbiter.push(*words);
        } else {
            self.to_arbiter.push_all(run);
        }
        let length_bytes = |words: &[u64; W]| u64::from(Offer::length_bytes_of(words[0]));
        self.counts.sent += run.len() as u64;
        self.counts.sent_bytes += run.iter().map(length_bytes).sum::<u64>();
    }
}

impl<const W: usize> Drop for PendingRun<'_, W> {
    #[inline(always)]
    fn drop(&mut self) {
        self.push_run();
    }
}

/// Slots popped from a lane, of which those in `rest` are not processed yet. The destructor saves
/// `rest` for the next call, in case the processing panicked.
struct PoppedRun<'a, const IN_WORDS: usize, const OUT_WORDS: usize> {
    lanes: &'a mut LanePair<IN_WORDS, OUT_WORDS>,
    /// Indices of the slots that are not processed yet.
    rest: Range<usize>,
}

impl<const IN_WORDS: usize, const OUT_WORDS: usize> PoppedRun<'_, IN_WORDS, OUT_WORDS> {
    /// Passes the next `count` unprocessed slots to `each`.
    #[inline(always)]
    fn process(&mut self, count: usize, each: &mut impl FnMut([u64; OUT_WORDS])) {
        let from = self.rest.start;
        for at in from..from + count {
            self.rest.start = at + 1;
            each(self.lanes.run_from_arbiter[at]);
        }
    }
}

impl<const IN_WORDS: usize, const OUT_WORDS: usize> Drop for PoppedRun<'_, IN_WORDS, OUT_WORDS> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lanes.unprocessed = self.rest.clone();
    }
}

/// Packet counters of one call of [`Client::poll`]. The destructor adds them to the client's
/// counters, even if a sink panicked.
struct CallCounts<'a> {
    counts: Counts,
    /// Counters of the client, to which the destructor adds.
    total: &'a mut Counts,
}

impl CallCounts<'_> {
    /// Transmits a packet returned by the arbiter, unless it was dropped, and counts it. Returns
    /// the packet, with `true` if it was dropped.
    #[inline(always)]
    fn complete(&mut self, word: u64, sink: &mut impl Sink) -> (Offer, bool) {
        let counts = &mut self.counts;
        let (packet, dropped) = Offer::unpack(word);
        if dropped {
            counts.dropped += 1;
            counts.dropped_bytes += u64::from(packet.length_bytes);
        } else {
            counts.transmitted += 1;
            counts.transmitted_bytes += u64::from(packet.length_bytes);
            sink.transmit(packet);
        }
        (packet, dropped)
    }
}

impl Drop for CallCounts<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.total.add(&self.counts);
    }
}
