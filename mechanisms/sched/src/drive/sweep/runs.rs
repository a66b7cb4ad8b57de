//! Taking and marking in runs, for arbiters that need not process each packet separately.
//!
//! The loops over the scheduler are in functions of their own, which are not inlined: there the
//! compiler knows that no other reference reaches the scheduler, and keeps its fields in registers
//! from packet to packet.

use super::super::word::{Offer, Token};
use super::{PendingPacket, PendingPackets, Sweeper, returned_words};
use crate::{Accepted, Packet, Refused, Scheduler};
use handover_base::clock;
use handover_probe::probe;

/// Maximum length of a run: packets read from one client's mailbox, or marked as eligible, at once.
const RUN_MAX: usize = 32;

/// Minimum number of marked packets to return while there is other work: a cache line of them. With
/// fewer, the line would travel each time that the client polls while it is being filled.
const MARKS_MIN: usize = 8;

/// Buffers for the packets that pass through the arbiter.
pub(super) struct Runs<const IN: usize, const OUT: usize> {
    /// Slots popped from a mailbox.
    taken: [[u64; IN]; RUN_MAX],
    /// Slots to be pushed into the mailboxes to the clients.
    marks: [[u64; OUT]; RUN_MAX],
    /// Client index of each element of `marks`.
    clients: [u32; RUN_MAX],
    /// Number of elements of `marks` that are not pushed yet.
    pending_count: usize,
}

impl<const IN: usize, const OUT: usize> Default for Runs<IN, OUT> {
    fn default() -> Self {
        let (taken, marks) = ([[0; IN]; RUN_MAX], [[0; OUT]; RUN_MAX]);
        Self { taken, marks, clients: [0; RUN_MAX], pending_count: 0 }
    }
}

impl<S: Scheduler<Token>, const IN: usize, const OUT: usize> Sweeper<S, IN, OUT> {
    /// Does [`take`](Self::take) and [`mark`](Self::mark) in runs; returns the number of packets.
    /// Delays no marked packets if no packet was read, or the arbiter waits after each sweep.
    #[inline(always)]
    pub(super) fn sweep_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let taken = self.take_runs(runs);
        let marked = self.mark_runs(runs);
        if runs.pending_count >= MARKS_MIN || taken == 0 || self.interval_ns > 0 {
            self.deliver(runs);
        }
        taken + marked
    }

    #[inline(always)]
    fn take_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let mut taken_all = 0;
        for &client in &self.present {
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if !port.flush_spill() {
                continue;
            }
            let (mut taken, mut ticks) = (0, 0);
            while taken < self.batch_max {
                let wanted = RUN_MAX.min(self.batch_max - taken);
                let count = port.inbox.pop_all(&mut runs.taken[..wanted]);
                if count == 0 {
                    break;
                }
                probe!("sched.taken", port.ledger.client, count);
                if Self::STAMPED && taken == 0 {
                    ticks = clock::ticks();
                }
                let (pending_packets, dropped) = (&mut self.pending_packets, &mut self.replaced);
                let run = &runs.taken[..count];
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
                taken += count;
                if count < wanted {
                    break;
                }
            }
            port.ledger.taken += taken as u64;
            self.may_have_more |= taken == self.batch_max;
            taken_all += taken;
        }
        if !self.replaced.is_empty() {
            self.deliver_all(runs);
            self.return_replaced();
        }
        taken_all
    }

    #[inline(always)]
    fn mark_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let marks_max = self.batch_max * self.present.len().max(1);
        let mut marked = 0;
        self.is_holding_back = false;
        while marked < marks_max {
            if runs.pending_count == RUN_MAX {
                self.deliver_all(runs);
            }
            let wanted = (RUN_MAX - runs.pending_count).min(marks_max - marked);
            let free = runs.pending_count..runs.pending_count + wanted;
            let (marks, clients) = (&mut runs.marks[free.clone()], &mut runs.clients[free]);
            let stamps = Self::STAMPED && !self.scheduler.is_empty();
            let ticks = if stamps { clock::ticks() } else { 0 };
            let (pending_packets, now_ns) = (&mut self.pending_packets, self.now_ns);
            let count =
                dequeue_run(&mut self.scheduler, now_ns, marks, clients, pending_packets, ticks);
            runs.pending_count += count;
            marked += count;
            if count < wanted {
                self.is_holding_back = !self.scheduler.is_empty();
                break;
            }
        }
        self.may_have_more |= marked == marks_max;
        marked
    }

    /// Calls [`deliver`](Self::deliver), not inlined, for callers that are rarely executed.
    #[inline(never)]
    pub(super) fn deliver_all(&mut self, runs: &mut Runs<IN, OUT>) {
        self.deliver(runs);
    }

    /// Returns the marked packets to their clients.
    #[inline(always)]
    fn deliver(&mut self, runs: &mut Runs<IN, OUT>) {
        let count = std::mem::take(&mut runs.pending_count);
        let mut from = 0;
        while from < count {
            let client = runs.clients[from];
            let run = runs.clients[from..count].iter().take_while(|&&other| other == client);
            let marks = &runs.marks[from..][..run.count()];
            let bytes: u64 =
                marks.iter().map(|mark| u64::from(Offer::length_bytes_of(mark[0]))).sum();
            from += marks.len();
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if port.ledger.has_left {
                port.ledger.discarded += marks.len() as u64;
                self.retire_if_empty(client);
                continue;
            }
            port.ledger.marked += marks.len() as u64;
            port.ledger.marked_bytes += bytes;
            port.mark_all(marks);
            probe!("sched.marked", port.ledger.client, marks.len());
        }
    }
}

/// Passes a client's packets to the scheduler; appends to `dropped` the packets that it refused,
/// and those dropped to queue newer ones.
#[inline(never)]
fn enqueue_run<S: Scheduler<Token>, const IN: usize>(
    scheduler: &mut S,
    now_ns: u64,
    client: u32,
    run: &[[u64; IN]],
    pending_packets: &mut PendingPackets,
    sch_enq_ticks: u64,
    dropped: &mut Vec<Packet<Token>>,
) {
    for words in run {
        let (Offer { flow, length_bytes, mut tag }, _) = Offer::unpack(words[0]);
        if IN > 1 {
            tag = pending_packets.insert(PendingPacket {
                cli_enq_ticks: words[IN - 1],
                sch_enq_ticks,
                tag,
            });
        }
        let packet = Packet { flow, length_bytes, token: Token::new(client, tag) };
        match scheduler.enqueue(now_ns, packet) {
            Ok(Accepted::Queued) => {}
            Ok(Accepted::InsteadOf(packet)) | Err(Refused { packet, .. }) => {
                push_dropped(dropped, packet)
            }
        }
    }
}

#[cold]
#[inline(never)]
fn push_dropped(dropped: &mut Vec<Packet<Token>>, packet: Packet<Token>) {
    dropped.push(packet);
}

/// Dequeues packets into `marks`, and their clients into `clients`; returns their number.
#[inline(never)]
fn dequeue_run<S: Scheduler<Token>, const OUT: usize>(
    scheduler: &mut S,
    now_ns: u64,
    marks: &mut [[u64; OUT]],
    clients: &mut [u32],
    pending_packets: &mut PendingPackets,
    sch_deq_ticks: u64,
) -> usize {
    let mut dequeued = 0;
    for (mark, client) in marks.iter_mut().zip(clients) {
        let Some(packet) = scheduler.dequeue(now_ns) else { break };
        *client = packet.token.client();
        *mark = returned_words(pending_packets, packet, false, sch_deq_ticks);
        dequeued += 1;
    }
    dequeued
}
