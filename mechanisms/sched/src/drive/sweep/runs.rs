//! Taking and marking in runs, for arbiters that need not look at each packet by itself.
//!
//! What goes through the scheduler stands in functions of its own, which are not inlined: there the
//! compiler knows that nothing else reaches the scheduler, and keeps what it is made of in registers from
//! packet to packet.

use super::super::arbiter::Token;
use super::super::lane::{Collect, Lane};
use super::super::word::Offer;
use super::{Sweeper, Wait, Waits, back};
use crate::{Accepted, Packet, Refused, Scheduler};
use handover_base::clock;
use handover_probe::probe;

/// Packets of one client that are taken out of its mailbox, or packets that are marked, in one go.
const RUN_MAX: usize = 32;

/// Marks that are worth being sent while there is something else to do: a line of them. Fewer would
/// travel as often as they are looked for while the line is being filled.
const MARKS_MIN: usize = 8;

/// Room for what is on its way through the arbiter.
pub(super) struct Runs<const IN: usize, const OUT: usize> {
    /// As they lie in a mailbox.
    taken: [[u64; IN]; RUN_MAX],
    /// As they lie in the lane back.
    marks: [[u64; OUT]; RUN_MAX],
    /// Whose they are.
    clients: [u32; RUN_MAX],
    /// So many of them have not been sent yet.
    drawn_count: usize,
}

impl<const IN: usize, const OUT: usize> Default for Runs<IN, OUT> {
    fn default() -> Self {
        let (taken, marks) = ([[0; IN]; RUN_MAX], [[0; OUT]; RUN_MAX]);
        Self { taken, marks, clients: [0; RUN_MAX], drawn_count: 0 }
    }
}

impl<S: Scheduler<Token>, L: Lane, const IN: usize, const OUT: usize> Sweeper<S, L, IN, OUT> {
    /// [`take`](Self::take) and [`mark`](Self::mark) by runs. When nothing is found, and when one waits
    /// after each sweep, nothing is kept.
    #[inline(always)]
    pub(super) fn sweep_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let taken = self.take_runs(runs);
        let marked = self.mark_runs(runs);
        if runs.drawn_count >= MARKS_MIN || taken == 0 || self.interval_ns > 0 {
            self.deliver(runs);
        }
        taken + marked
    }

    #[inline(always)]
    fn take_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let mut taken_all = 0;
        for &client in &self.present {
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if !port.is_clear() {
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
                let (waits, dropped) = (&mut self.waits, &mut self.replaced);
                let run = &runs.taken[..count];
                feed(&mut self.scheduler, self.now_ns, client, run, waits, ticks, dropped);
                probe!("sched.scheduled", port.ledger.client, count);
                taken += count;
                if count < wanted {
                    break;
                }
            }
            port.inbox.release();
            port.ledger.taken += taken as u64;
            self.gave_all |= taken == self.batch_max;
            taken_all += taken;
        }
        if !self.replaced.is_empty() {
            self.deliver_all(runs);
            self.give_back();
        }
        taken_all
    }

    #[inline(always)]
    fn mark_runs(&mut self, runs: &mut Runs<IN, OUT>) -> usize {
        let marks_max = self.batch_max * self.present.len().max(1);
        let mut marked = 0;
        self.holds_back = false;
        while marked < marks_max {
            if runs.drawn_count == RUN_MAX {
                self.deliver_all(runs);
            }
            let wanted = (RUN_MAX - runs.drawn_count).min(marks_max - marked);
            let free = runs.drawn_count..runs.drawn_count + wanted;
            let (marks, clients) = (&mut runs.marks[free.clone()], &mut runs.clients[free]);
            let stamps = Self::STAMPED && !self.scheduler.is_empty();
            let ticks = if stamps { clock::ticks() } else { 0 };
            let (waits, now_ns) = (&mut self.waits, self.now_ns);
            let count = draw(&mut self.scheduler, now_ns, marks, clients, waits, ticks);
            runs.drawn_count += count;
            marked += count;
            if count < wanted {
                self.holds_back = !self.scheduler.is_empty();
                break;
            }
        }
        self.gave_all |= marked == marks_max;
        marked
    }

    /// [`deliver`](Self::deliver) where that is not what most sweeps do.
    #[inline(never)]
    pub(super) fn deliver_all(&mut self, runs: &mut Runs<IN, OUT>) {
        self.deliver(runs);
    }

    /// Sends each client its marks.
    #[inline(always)]
    fn deliver(&mut self, runs: &mut Runs<IN, OUT>) {
        let count = std::mem::take(&mut runs.drawn_count);
        let mut from = 0;
        while from < count {
            let client = runs.clients[from];
            let run = runs.clients[from..count].iter().take_while(|&&other| other == client);
            let marks = &runs.marks[from..][..run.count()];
            let bytes: u64 =
                marks.iter().map(|mark| u64::from(Offer::length_bytes_of(mark[0]))).sum();
            from += marks.len();
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if port.ledger.gone {
                port.ledger.discarded += marks.len() as u64;
                self.retire_if_empty(client);
                continue;
            }
            port.ledger.marked += marks.len() as u64;
            port.ledger.marked_bytes += bytes;
            port.mark_all(marks);
            probe!("sched.marked", port.ledger.client, marks.len());
        }
        self.publish_all(count);
    }
}

/// Gives a client's packets to the scheduler; `dropped` are those that it refused, or
/// dropped for these.
#[inline(never)]
fn feed<S: Scheduler<Token>, const IN: usize>(
    scheduler: &mut S,
    now_ns: u64,
    client: u32,
    run: &[[u64; IN]],
    waits: &mut Waits,
    sch_enq_ticks: u64,
    dropped: &mut Vec<Packet<Token>>,
) {
    for words in run {
        let (Offer { flow, length_bytes, mut tag }, _) = Offer::unpack(words[0]);
        if IN > 1 {
            tag = waits.put(Wait { cli_enq_ticks: words[IN - 1], sch_enq_ticks, tag });
        }
        let packet = Packet { flow, length_bytes, token: Token::new(client, tag) };
        match scheduler.enqueue(now_ns, packet) {
            Ok(Accepted::Queued) => {}
            Ok(Accepted::InsteadOf(packet)) | Err(Refused { packet, .. }) => keep(dropped, packet),
        }
    }
}

#[cold]
#[inline(never)]
fn keep(dropped: &mut Vec<Packet<Token>>, packet: Packet<Token>) {
    dropped.push(packet);
}

/// Takes packets out of the scheduler, as marks; how many there were.
#[inline(never)]
fn draw<S: Scheduler<Token>, const OUT: usize>(
    scheduler: &mut S,
    now_ns: u64,
    marks: &mut [[u64; OUT]],
    clients: &mut [u32],
    waits: &mut Waits,
    sch_deq_ticks: u64,
) -> usize {
    let mut drawn = 0;
    for (mark, client) in marks.iter_mut().zip(clients) {
        let Some(packet) = scheduler.dequeue(now_ns) else { break };
        *client = packet.token.client();
        *mark = back(waits, packet, false, sch_deq_ticks);
        drawn += 1;
    }
    drawn
}
