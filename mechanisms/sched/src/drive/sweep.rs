//! The arbiter's loop.

mod runs;

use super::clock::PacketClock;
use super::config::{ArbiterConfig, DRAIN_MAX};
use super::final_state::{ClientLedgers, FinalState, LEDGERS_MAX};
use super::ledger::Ledger;
use super::port::Port;
use super::stamps::Stamping;
use super::state::{ArbiterState, DRAINING, RUNNING, STOPPING, SelectNewClients};
use super::wait::{IdleState, saturating_ns};
use super::word::{Offer, Token};
use crate::{EnqueueError, EnqueueOutcome, Packet, Scheduler};
use handover_base::clock;
use handover_base::sync::Arc;
use handover_base::sync::shared::Ordering;
use handover_probe::probe;
use runs::{RETURNS_MIN, RunBuffers};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of packets released between two reads of the mailboxes, with a rate limit.
const RELEASE_MAX: usize = 4096;

/// Number of sweeps with work between two clock reads. Every sweep reads the clock if a link rate,
/// an interval, or a packet that the scheduler holds back requires the time.
const SWEEPS_PER_CLOCK_READ: u64 = 16;

/// Minimum [`ArbiterConfig::batch_max`] at which several packets are read or released together, in
/// runs. For smaller batches, runs of single packets are a tenth slower than no runs (drr,
/// 2026-11). While there is one client, its smaller batches share a run.
const RUNS_BATCH_MIN: usize = 8;

/// Time stamps and tag of a packet while it is in the scheduler.
#[derive(Clone, Copy)]
struct PendingPacket {
    /// Time when the client sent the packet.
    cli_enq_ticks: u64,
    /// Time when the arbiter passed the packet to the scheduler.
    sch_enq_ticks: u64,
    tag: u32,
}

/// Table of the stamped packets in the scheduler; the most recently vacated index is reused first.
#[derive(Default)]
struct PendingPackets {
    packets: Vec<PendingPacket>,
    vacant_indices: Vec<u32>,
}

impl PendingPackets {
    /// Stores a packet, and returns its index.
    #[inline(always)]
    fn insert(&mut self, packet: PendingPacket) -> u32 {
        if let Some(at) = self.vacant_indices.pop() {
            self.packets[at as usize] = packet;
            return at;
        }
        self.packets.push(packet);
        (self.packets.len() - 1) as u32
    }

    /// Removes and returns the packet at index `at`.
    #[inline(always)]
    fn take(&mut self, at: u32) -> PendingPacket {
        self.vacant_indices.push(at);
        self.packets[at as usize]
    }
}

/// The arbiter's loop and its state. `IN_WORDS` and `OUT_WORDS` are the words per slot to and from
/// the arbiter: 1 and 1, or with stamps 2 and 4.
pub(super) struct Sweeper<S, const IN_WORDS: usize, const OUT_WORDS: usize> {
    scheduler: S,
    /// Port of each client, by the client index that tokens contain. An index is vacant once its
    /// client has left and the last of its packets has left the scheduler.
    ports: Vec<Option<Port<IN_WORDS, OUT_WORDS>>>,
    /// Indices of the ports whose clients have not left.
    present: Vec<u32>,
    /// Vacant indices of `ports`.
    vacant_indices: Vec<u32>,
    pending_packets: PendingPackets,
    /// Clock of the link; `None` without a rate limit.
    link: Option<PacketClock>,
    batch_max: usize,
    /// Maximum number of packets without stamps that are read together while there is one client: a
    /// multiple of `batch_max`, up to [`RETURNS_MIN`]. 0 with a rate limit or larger batches.
    single_client_read_max: usize,
    interval_ns: u64,
    /// Progress of draining: number of waiting packets, and time in ns of its last change. The
    /// packets wait for a free slot in the mailbox to their client.
    drain_progress: (usize, u64),
    /// `true` if each packet has its own time stamps. Otherwise a batch shares them, or there are
    /// none.
    stamps_packets: bool,
    idle: IdleState,
    shared: Arc<ArbiterState>,
    select_new_clients: SelectNewClients<IN_WORDS, OUT_WORDS>,
    /// Time of the last clock read.
    now_ns: u64,
    /// `true` if the scheduler holds packets back until a later time.
    is_holding_back: bool,
    /// `true` if more packets may be in a mailbox or in the scheduler. In this sweep, one of these
    /// then returned the maximum number of packets.
    may_have_more: bool,
    /// Packets that the scheduler dropped in this sweep to queue newer ones. If packets are handled
    /// in runs, it also contains those that were refused.
    replaced: Vec<Packet<Token>>,
    /// Counters of the clients that left last, at most [`LEDGERS_MAX`].
    departed_ledgers: VecDeque<Ledger>,
    /// Sum of the counters of the clients that left before those in `departed_ledgers`.
    earlier: Ledger,
    /// Number of sweeps: passes over all mailboxes.
    sweeps: u64,
    /// Number of sweeps without work.
    sweeps_empty: u64,
}

impl<S: Scheduler<Token>, const IN_WORDS: usize, const OUT_WORDS: usize>
    Sweeper<S, IN_WORDS, OUT_WORDS>
{
    /// `true` if the slots of the mailboxes have time stamps.
    const HAS_STAMPS: bool = IN_WORDS == 2;

    pub(super) fn new(
        scheduler: S,
        config: &ArbiterConfig,
        shared: Arc<ArbiterState>,
        select_new_clients: SelectNewClients<IN_WORDS, OUT_WORDS>,
    ) -> Self {
        let batch_max = config.batch_max as usize;
        Self {
            scheduler,
            ports: Vec::new(),
            present: Vec::new(),
            vacant_indices: Vec::new(),
            pending_packets: PendingPackets::default(),
            // ArbiterConfig::validate() has refused rates that the clock cannot represent.
            link: config.bandwidth_bps.and_then(|rate| PacketClock::new(rate).ok()),
            batch_max,
            single_client_read_max: if config.bandwidth_bps.is_some() {
                0
            } else {
                RETURNS_MIN / batch_max * batch_max
            },
            interval_ns: saturating_ns(config.interval),
            drain_progress: (0, 0),
            stamps_packets: config.stamping == Stamping::Packet,
            idle: IdleState::new(config.idle_policy),
            shared,
            select_new_clients,
            now_ns: 0,
            is_holding_back: false,
            may_have_more: false,
            replaced: Vec::new(),
            departed_ledgers: VecDeque::new(),
            earlier: Ledger::default(),
            sweeps: 0,
            sweeps_empty: 0,
        }
    }

    /// Runs the arbiter until it is stopped. It handles several packets at a time, or one at a time
    /// if the link, the stamps or small batches of several clients require it.
    pub(super) fn run(self) -> FinalState<S> {
        let each = self.link.is_some() || self.stamps_packets || self.batch_max < RUNS_BATCH_MIN;
        match each {
            true => self.run_loop::<false>(),
            false => self.run_loop::<true>(),
        }
    }

    /// Sweeps over the mailboxes until the arbiter is stopped. Handles several packets at a time if
    /// `RUNS` is `true`.
    fn run_loop<const RUNS: bool>(mut self) -> FinalState<S> {
        let began_ns = clock::now_ns();
        self.now_ns = began_ns;
        if let Some(link) = &mut self.link {
            link.idle_until(began_ns);
        }
        let (mut events_seen, mut sweep_ns) = (u64::MAX, began_ns);
        let mut state = RUNNING;
        let mut runs = RunBuffers::default();
        loop {
            let events = self.events_count();
            if events != events_seen {
                events_seen = events;
                // Read before the new clients and their mailboxes: this sweep then finds every
                // client that joined before a stop, and every packet that was sent before.
                state = self.shared.state();
                self.deliver_out_of_line(&mut runs);
                self.update_clients();
                if state >= STOPPING {
                    break;
                }
            }
            self.may_have_more = false;
            let shares_reads =
                !Self::HAS_STAMPS && self.single_client_read_max > 0 && self.present.len() == 1;
            let found = match RUNS {
                true => self.sweep_runs(&mut runs),
                false if shares_reads => self.sweep_single_client(&mut runs),
                false => self.read_packets() + self.release_packets(),
            };
            self.sweeps += 1;
            if found > 0 {
                self.idle.reset();
            } else {
                self.sweeps_empty += 1;
                // The state before the sweep: a stop during the sweep may follow a packet sent into
                // a mailbox already read.
                if state == DRAINING && self.is_drained() {
                    break;
                }
            }
            if self.interval_ns > 0 && !self.may_have_more {
                // A sweep that is late is not made up for by a second one.
                sweep_ns = (sweep_ns + self.interval_ns).max(self.now_ns);
                let due_ns = self.due_ns().max(sweep_ns);
                let shared = &self.shared;
                self.now_ns = self.idle.wait_until(sweep_ns, due_ns, || {
                    // Acquire: as in events_count().
                    shared.control.events.load(Ordering::Acquire) != events_seen
                });
            } else if found == 0 {
                self.idle.wait();
                self.now_ns = clock::now_ns();
            } else if self.link.is_some()
                || self.interval_ns > 0
                || self.is_holding_back
                || self.sweeps.is_multiple_of(SWEEPS_PER_CLOCK_READ)
            {
                self.now_ns = clock::now_ns();
            }
        }
        self.into_final_state(began_ns)
    }

    /// Returns the earliest time at which a queued packet may be released for transmission.
    fn due_ns(&self) -> u64 {
        let ready_ns = self.scheduler.ready_ns().unwrap_or(u64::MAX);
        ready_ns.max(self.link.as_ref().map_or(0, PacketClock::next_ns))
    }

    /// Returns the number of events since the start: joins and leaves of clients, and stops.
    #[inline(always)]
    fn events_count(&self) -> u64 {
        // Acquire: pairs with the Release in ArbiterState::notify_arbiter().
        self.shared.control.events.load(Ordering::Acquire)
    }

    /// Moves packets from the mailboxes to the scheduler; returns the number of packets moved.
    #[inline(always)]
    fn read_packets(&mut self) -> usize {
        let mut read_all = 0;
        for &client in &self.present {
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if !port.flush_spill() {
                continue;
            }
            let (mut read, mut ticks) = (0, 0);
            while read < self.batch_max {
                let Some(words) = port.inbox.pop() else { break };
                read += 1;
                probe!("sched.taken", port.ledger.client, 1);
                let (offer, _) = Offer::unpack(words[0]);
                let tag = if Self::HAS_STAMPS {
                    if read == 1 || self.stamps_packets {
                        ticks = clock::ticks();
                    }
                    let cli_enq_ticks = words[IN_WORDS - 1];
                    self.pending_packets.insert(PendingPacket {
                        cli_enq_ticks,
                        sch_enq_ticks: ticks,
                        tag: offer.tag,
                    })
                } else {
                    offer.tag
                };
                let (flow, length_bytes) = (offer.flow, offer.length_bytes);
                let packet = Packet { flow, length_bytes, token: Token::new(client, tag) };
                let accepted = self.scheduler.enqueue(self.now_ns, packet);
                probe!("sched.scheduled", port.ledger.client, 1);
                match accepted {
                    Ok(EnqueueOutcome::Queued) => {}
                    Ok(EnqueueOutcome::Replaced(oldest)) => self.replaced.push(oldest),
                    Err(EnqueueError { packet, .. }) => {
                        port.ledger.dropped += 1;
                        port.return_packet(returned_words(
                            &mut self.pending_packets,
                            packet,
                            true,
                            ticks,
                        ));
                    }
                }
            }
            port.ledger.read += read as u64;
            self.may_have_more |= read == self.batch_max;
            read_all += read;
        }
        if !self.replaced.is_empty() {
            self.return_replaced();
        }
        read_all
    }

    /// Returns the packets in `replaced` to their clients, as dropped.
    #[cold]
    #[inline(never)]
    fn return_replaced(&mut self) {
        let ticks = if Self::HAS_STAMPS { clock::ticks() } else { 0 };
        for packet in std::mem::take(&mut self.replaced) {
            let client = packet.token.client();
            let words = returned_words(&mut self.pending_packets, packet, true, ticks);
            let Some(port) = &mut self.ports[client as usize] else { continue };
            port.ledger.dropped += 1;
            if port.ledger.has_left {
                self.retire_if_empty(client);
            } else {
                port.return_packet(words);
            }
        }
    }

    /// Releases the packets that may be transmitted now; returns the number of packets released.
    #[inline(always)]
    fn release_packets(&mut self) -> usize {
        let release_max = match self.link {
            Some(_) => RELEASE_MAX,
            None => self.batch_max * self.present.len().max(1),
        };
        let (mut released, mut ticks) = (0, 0);
        self.is_holding_back = false;
        while released < release_max {
            if self.link.as_ref().is_some_and(|link| link.next_ns() > self.now_ns) {
                break;
            }
            let Some(packet) = self.scheduler.dequeue(self.now_ns) else {
                if let Some(link) = &mut self.link {
                    // Packets that the next sweep finds came after this one: they are sent from now
                    // on.
                    link.idle_until(self.now_ns);
                }
                self.is_holding_back = !self.scheduler.is_empty();
                break;
            };
            if Self::HAS_STAMPS && (released == 0 || self.stamps_packets) {
                ticks = clock::ticks();
            }
            released += 1;
            let client = packet.token.client();
            let words = returned_words(&mut self.pending_packets, packet, false, ticks);
            let Some(port) = &mut self.ports[client as usize] else { continue };
            if port.ledger.has_left {
                port.ledger.discarded += 1;
                self.retire_if_empty(client);
                continue;
            }
            port.return_packet(words);
            probe!("sched.marked", port.ledger.client, 1);
            port.ledger.released += 1;
            port.ledger.released_bytes += u64::from(packet.length_bytes);
            if let Some(link) = &mut self.link {
                link.charge(u64::from(packet.length_bytes));
            }
        }
        self.may_have_more |= released == release_max;
        released
    }

    /// Records the progress of draining; returns `true` if draining is complete. All remaining
    /// packets are then in the mailboxes to the clients, or no client has fetched any for
    /// [`DRAIN_MAX`](super::DRAIN_MAX).
    ///
    /// Called after a sweep without work; then the only mailboxes not read are those of clients for
    /// which released packets wait.
    #[cold]
    #[inline(never)]
    fn is_drained(&mut self) -> bool {
        let spilled_count = self.ports.iter().flatten().map(Port::spilled_count).sum();
        if spilled_count != self.drain_progress.0 || !self.scheduler.is_empty() {
            self.drain_progress = (spilled_count, self.now_ns);
        }
        let waited_ns = self.now_ns - self.drain_progress.1;
        self.scheduler.is_empty() && (spilled_count == 0 || waited_ns >= saturating_ns(DRAIN_MAX))
    }

    /// Adds clients that have joined, and closes the ports of clients that have left.
    #[cold]
    #[inline(never)]
    fn update_clients(&mut self) {
        let new_ports = std::mem::take((self.select_new_clients)(&mut self.shared.new_clients()));
        for port in new_ports {
            let client = self.vacant_indices.pop().unwrap_or_else(|| {
                self.ports.push(None);
                (self.ports.len() - 1) as u32
            });
            self.ports[client as usize] = Some(port);
            self.present.push(client);
        }
        let mut at = 0;
        while let Some(&client) = self.present.get(at) {
            match &mut self.ports[client as usize] {
                Some(port) if port.client_state.has_left() => {
                    port.close();
                    self.present.swap_remove(at);
                    self.retire_if_empty(client);
                }
                _ => at += 1,
            }
        }
    }

    /// Removes the port of a client that has left, unless the scheduler still has the client's
    /// packets.
    fn retire_if_empty(&mut self, client: u32) {
        let place = &mut self.ports[client as usize];
        if let Some(port) = place.take_if(|port| port.ledger.scheduled_count() == 0) {
            self.vacant_indices.push(client);
            if self.departed_ledgers.len() == LEDGERS_MAX
                && let Some(oldest) = self.departed_ledgers.pop_front()
            {
                self.earlier.add(&oldest);
            }
            self.departed_ledgers.push_back(port.ledger);
            self.shared.new_clients().clients_count -= 1;
        }
    }

    fn into_final_state(mut self, began_ns: u64) -> FinalState<S> {
        // From here on no client can join; those that joined before and were not seen are handled.
        self.shared.raise_state(STOPPING);
        self.update_clients();
        let mut clients = ClientLedgers::from_departed(self.departed_ledgers);
        for mut port in self.ports.into_iter().flatten() {
            port.ledger.unfetched = port.spilled_count() as u64;
            clients.push(port.ledger, port.client_state);
        }
        clients.sort();
        FinalState {
            scheduler: self.scheduler,
            sweeps: self.sweeps,
            sweeps_empty: self.sweeps_empty,
            elapsed: Duration::from_nanos(clock::now_ns() - began_ns),
            earlier: self.earlier,
            clients,
        }
    }
}

/// Encodes a dequeued or dropped packet as a slot of the mailbox to its client.
#[inline(always)]
fn returned_words<const OUT_WORDS: usize>(
    pending_packets: &mut PendingPackets,
    packet: Packet<Token>,
    dropped: bool,
    sch_deq_ticks: u64,
) -> [u64; OUT_WORDS] {
    let Packet { flow, length_bytes, token } = packet;
    let (tag, stamps) = if OUT_WORDS > 1 {
        let pending = pending_packets.take(token.tag());
        (pending.tag, [pending.cli_enq_ticks, pending.sch_enq_ticks, sch_deq_ticks])
    } else {
        (token.tag(), [0; 3])
    };
    let offer = Offer { flow, length_bytes, tag };
    let word = if dropped { offer.pack_dropped() } else { offer.pack() };
    std::array::from_fn(|at| if at == 0 { word } else { stamps[at - 1] })
}
