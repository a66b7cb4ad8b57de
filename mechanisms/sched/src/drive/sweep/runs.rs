//! Reading and releasing of packets in runs, for arbiters that need not process each packet
//! separately.
//!
//! The loops over the scheduler are in functions of their own, which are not inlined: there the
//! compiler knows that no other reference reaches the scheduler, and keeps its fields in registers
//! from packet to packet.

use super::super::word::{Offer, Token};
use super::{PendingPacket, PendingPackets, Sweeper, returned_words};
use crate::{EnqueueError, EnqueueOutcome, Packet, Scheduler};
use handover_base::clock;
use handover_probe::probe;

/// Maximum number of packets of a run: packets that are read from one mailbox, or released,
/// together.
const RUN_MAX: usize = 32;

/// Minimum number of released packets to return to their clients while there is other work. It is a
/// cache line of slots. With fewer, a client that polls would fetch the line while the arbiter is
/// filling it. For the same reason, smaller batches of a single client are read and returned
/// together, up to this number of packets.
pub(super) const RETURNS_MIN: usize = 8;

/// Buffers for packets that the arbiter reads or releases together. A slot has `IN_WORDS` words on
/// the way to the arbiter, and `OUT_WORDS` on the way back.
pub(super) struct RunBuffers<const IN_WORDS: usize, const OUT_WORDS: usize> {
    /// Slots popped from a mailbox.
    read: [[u64; IN_WORDS]; RUN_MAX],
    /// Slots to be pushed into the mailboxes to the clients.
    returned: [[u64; OUT_WORDS]; RUN_MAX],
    /// Client index of each element of `returned`.
    clients: [u32; RUN_MAX],
    /// Number of elements of `returned` that are not pushed yet.
    pending_count: usize,
}

impl<const IN_WORDS: usize, const OUT_WORDS: usize> Default for RunBuffers<IN_WORDS, OUT_WORDS> {
    fn default() -> Self {
        let (read, returned) = ([[0; IN_WORDS]; RUN_MAX], [[0; OUT_WORDS]; RUN_MAX]);
        Self { read, returned, clients: [0; RUN_MAX], pending_count: 0 }
    }
}

impl<S: Scheduler<Token>, const IN_WORDS: usize, const OUT_WORDS: usize>
    Sweeper<S, IN_WORDS, OUT_WORDS>
{
    /// Reads packets from the mailboxes and releases packets, in runs. Returns the number of
    /// packets read and released. Delays no released packets if no packet was read, or the arbiter
    /// waits after each sweep.
    #[inline(always)]
    pub(super) fn sweep_runs(&mut self, runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>) -> usize {
        let read = self.read_runs(runs);
        let released = self.release_runs(runs);
        if runs.pending_count >= RETURNS_MIN || read == 0 || self.interval_ns > 0 {
            self.deliver(runs);
        }
        read + released
    }

    /// Moves packets from the mailboxes to the scheduler, in runs; returns the number of packets
    /// moved.
    #[inline(always)]
    fn read_runs(&mut self, runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>) -> usize {
        let mut read_all = 0;
        for &client in &self.present {
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if !port.flush_spill() {
                continue;
            }
            let (mut read, mut ticks) = (0, 0);
            while read < self.batch_max {
                let wanted = RUN_MAX.min(self.batch_max - read);
                let count = port.inbox.pop_all(&mut runs.read[..wanted]);
                if count == 0 {
                    break;
                }
                probe!("sched.taken", port.ledger.client, count);
                if Self::HAS_STAMPS && read == 0 {
                    ticks = clock::ticks();
                }
                let (pending_packets, dropped) = (&mut self.pending_packets, &mut self.replaced);
                let run = &runs.read[..count];
                enqueue_run(
                    &mut self.scheduler,
                    self.now_ns,
                    client,
                    run,
                    pending_packets,
                    ticks,
                    dropped,
                );
                probe!("sched.scheduled", port.ledger.client, count);
                read += count;
                if count < wanted {
                    break;
                }
            }
            port.ledger.read += read as u64;
            self.may_have_more |= read == self.batch_max;
            read_all += read;
        }
        if !self.replaced.is_empty() {
            self.deliver_out_of_line(runs);
            self.return_replaced();
        }
        read_all
    }

    /// Moves packets that may be transmitted now from the scheduler to `runs`. Returns the number
    /// of packets moved.
    #[inline(always)]
    fn release_runs(&mut self, runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>) -> usize {
        let release_max = self.batch_max * self.present.len().max(1);
        let mut released = 0;
        self.is_holding_back = false;
        while released < release_max {
            if runs.pending_count == RUN_MAX {
                self.deliver_out_of_line(runs);
            }
            let wanted = (RUN_MAX - runs.pending_count).min(release_max - released);
            let free = runs.pending_count..runs.pending_count + wanted;
            let (returned, clients) = (&mut runs.returned[free.clone()], &mut runs.clients[free]);
            let stamps = Self::HAS_STAMPS && !self.scheduler.is_empty();
            let ticks = if stamps { clock::ticks() } else { 0 };
            let (pending_packets, now_ns) = (&mut self.pending_packets, self.now_ns);
            let count =
                dequeue_run(&mut self.scheduler, now_ns, returned, clients, pending_packets, ticks);
            runs.pending_count += count;
            released += count;
            if count < wanted {
                self.is_holding_back = !self.scheduler.is_empty();
                break;
            }
        }
        self.may_have_more |= released == release_max;
        released
    }

    /// Does the work of several sweeps in a row while there is one client, with one access to its
    /// mailboxes: reads up to `single_client_read_max` packets, passes them to the scheduler in
    /// batches, releases up to a batch after each, and returns all that were released. Returns the
    /// number of packets read and released.
    ///
    /// The order of packets is that of the single sweeps, which read the same cache line again and
    /// again while the client writes into it.
    #[inline(never)]
    pub(super) fn sweep_single_client(
        &mut self,
        runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>,
    ) -> usize {
        let client = self.present[0];
        let Some(port) = &mut self.ports[client as usize] else { return 0 };
        let number = port.ledger.client;
        let mut read = 0;
        if port.flush_spill() {
            while read < self.single_client_read_max {
                let count = port.inbox.pop_all(&mut runs.read[read..self.single_client_read_max]);
                read += count;
                // Before an interval, the mailbox is read until it is found empty, since only then
                // the client learns that all slots are free.
                if count == 0 || self.interval_ns == 0 {
                    break;
                }
            }
            port.ledger.read += read as u64;
        }
        if read > 0 {
            probe!("sched.taken", number, read);
        }
        let (scheduler, now_ns, batch_max) = (&mut self.scheduler, self.now_ns, self.batch_max);
        let (pending_packets, dropped) = (&mut self.pending_packets, &mut self.replaced);
        let (mut passed, mut released, mut release_max) = (0, 0, 0);
        loop {
            let batch = passed..read.min(passed + batch_max);
            passed = batch.end;
            for words in &runs.read[batch] {
                enqueue_packet(scheduler, now_ns, client, words, pending_packets, 0, dropped);
            }
            release_max += batch_max;
            while released < release_max {
                let (slot, client) = (&mut runs.returned[released], &mut runs.clients[released]);
                if !dequeue_packet(scheduler, now_ns, slot, client, pending_packets, 0) {
                    break;
                }
                released += 1;
            }
            if passed == read {
                break;
            }
        }
        if read > 0 {
            probe!("sched.scheduled", number, read);
        }
        self.is_holding_back = released < release_max && !self.scheduler.is_empty();
        self.may_have_more |= read == self.single_client_read_max || released == release_max;
        runs.pending_count = released;
        self.deliver_out_of_line(runs);
        if !self.replaced.is_empty() {
            self.return_replaced();
        }
        read + released
    }

    /// Calls [`deliver`](Self::deliver) without inlining it; used where calls are rare.
    #[inline(never)]
    pub(super) fn deliver_out_of_line(&mut self, runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>) {
        self.deliver(runs);
    }

    /// Returns the released packets to their clients.
    #[inline(always)]
    fn deliver(&mut self, runs: &mut RunBuffers<IN_WORDS, OUT_WORDS>) {
        let count = std::mem::take(&mut runs.pending_count);
        let mut from = 0;
        while from < count {
            let client = runs.clients[from];
            let run = runs.clients[from..count].iter().take_while(|&&other| other == client);
            let returned = &runs.returned[from..][..run.count()];
            let bytes: u64 =
                returned.iter().map(|slot| u64::from(Offer::length_bytes_of(slot[0]))).sum();
            from += returned.len();
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if port.ledger.has_left {
                port.ledger.discarded += returned.len() as u64;
                self.retire_if_empty(client);
                continue;
            }
            port.ledger.released += returned.len() as u64;
            port.ledger.released_bytes += bytes;
            port.return_packets(returned);
            probe!("sched.marked", port.ledger.client, returned.len());
        }
    }
}

/// Passes a client's packets to the scheduler. Appends to `dropped` the packets that it refused,
/// and those dropped to queue newer ones.
#[inline(never)]
fn enqueue_run<S: Scheduler<Token>, const IN_WORDS: usize>(
    scheduler: &mut S,
    now_ns: u64,
    client: u32,
    run: &[[u64; IN_WORDS]],
    pending_packets: &mut PendingPackets,
    sch_enq_ticks: u64,
    dropped: &mut Vec<Packet<Token>>,
) {
    for words in run {
        enqueue_packet(scheduler, now_ns, client, words, pending_packets, sch_enq_ticks, dropped);
    }
}

/// Passes a client's packet to the scheduler, as [`enqueue_run`] does.
#[inline(always)]
fn enqueue_packet<S: Scheduler<Token>, const IN_WORDS: usize>(
    scheduler: &mut S,
    now_ns: u64,
    client: u32,
    words: &[u64; IN_WORDS],
    pending_packets: &mut PendingPackets,
    sch_enq_ticks: u64,
    dropped: &mut Vec<Packet<Token>>,
) {
    let (Offer { flow, length_bytes, mut tag }, _) = Offer::unpack(words[0]);
    if IN_WORDS > 1 {
        tag = pending_packets.insert(PendingPacket {
            cli_enq_ticks: words[IN_WORDS - 1],
            sch_enq_ticks,
            tag,
        });
    }
    let packet = Packet { flow, length_bytes, token: Token::new(client, tag) };
    match scheduler.enqueue(now_ns, packet) {
        Ok(EnqueueOutcome::Queued) => {}
        Ok(EnqueueOutcome::Replaced(packet)) | Err(EnqueueError { packet, .. }) => {
            push_dropped(dropped, packet)
        }
    }
}

/// Appends a packet to `dropped`. Not inlined, because drops are rare.
#[cold]
#[inline(never)]
fn push_dropped(dropped: &mut Vec<Packet<Token>>, packet: Packet<Token>) {
    dropped.push(packet);
}

/// Dequeues packets into `returned`, and their clients into `clients`; returns the number of
/// packets.
#[inline(never)]
fn dequeue_run<S: Scheduler<Token>, const OUT_WORDS: usize>(
    scheduler: &mut S,
    now_ns: u64,
    returned: &mut [[u64; OUT_WORDS]],
    clients: &mut [u32],
    pending_packets: &mut PendingPackets,
    sch_deq_ticks: u64,
) -> usize {
    let mut dequeued = 0;
    for (slot, client) in returned.iter_mut().zip(clients) {
        if !dequeue_packet(scheduler, now_ns, slot, client, pending_packets, sch_deq_ticks) {
            break;
        }
        dequeued += 1;
    }
    dequeued
}

/// Dequeues a packet into `slot`, and its client into `client`. Returns `false` if the scheduler
/// releases no packet now.
#[inline(always)]
fn dequeue_packet<S: Scheduler<Token>, const OUT_WORDS: usize>(
    scheduler: &mut S,
    now_ns: u64,
    slot: &mut [u64; OUT_WORDS],
    client: &mut u32,
    pending_packets: &mut PendingPackets,
    sch_deq_ticks: u64,
) -> bool {
    let Some(packet) = scheduler.dequeue(now_ns) else { return false };
    *client = packet.token.client();
    *slot = returned_words(pending_packets, packet, false, sch_deq_ticks);
    true
}
