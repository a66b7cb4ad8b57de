//! The scheduler in use: packets from a client to the arbiter and back, also in the simplest
//! hand-written form, and its mailbox in comparison with other queues.

use super::engine::{Engine, FirstIn, QuickFair, Rr, Wf2q};
#[cfg(feature = "peers")]
use crate::channels::{ArrayQueue, Rtrb};
use crate::channels::{BatchChannel, Channel, Spsc};
use crate::common::{TakeCell, Tally};
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_harness::{Bench, Fault, Handover, Participant, Role, Samples, Setup, benches};
use handover_record::{Spec, args};
use handover_sched::drive::lane::{LaneReceiver, LaneSender, lane};
use handover_sched::drive::{
    Arbiter, ArbiterConfig, Client, ClientFlows, Hub, IdlePolicy, NullSink, Offer, Stamping,
    StopMode, Token,
};
use handover_sched::{Config, FlowSpec, Packet, Scheduler};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

args! {
    /// Arguments of the benchmarks of clients and an arbiter.
    pub struct DriveArgs {
        /// Clients that send without a pause.
        clients_count: u32 = 1 (smoke 2, range 1..=64),
        /// Packets that a client sends at once.
        burst_packets: u32 = 32 (smoke 4, range 1..=1000),
        /// Maximum number of packets of a client that the scheduler receives, or releases, at once.
        batch_max: u32 = 32 (smoke 8, range 1..=1024),
        /// Slots in the queue between a client and the arbiter.
        slots_count: u32 = 1000 (smoke 20, range 1..=65536),
        /// Flows, of equal weight.
        flows_count: u32 = 16 (smoke 5, range 1..=65536),
        /// Interval between two polls of the arbiter, in µs; 0 for polling without a pause.
        interval_us: u32 = 0 (smoke 0, range 0..=10_000)
    }
}

pub(super) const PACKET_LENGTH_BYTES: u32 = 1500;

/// Maximum number of packets that a client sends between two polls for returned packets.
const PACKETS_PER_POLL_MAX: usize = 128;

/// Creates a scheduler with flows that can queue all packets that are in flight at a time.
pub(super) fn new_scheduler<E: Engine>(args: &DriveArgs) -> Result<E::Scheduler<Token>, Fault> {
    let packets_max = 4096 + 4 * args.clients_count * args.slots_count.max(args.batch_max);
    let config = Config::default().packets_max(packets_max).flows_max(args.flows_count);
    let mut scheduler = E::new::<Token>(&config).map_err(Fault::from_error)?;
    let flow = FlowSpec::default()
        .weight(1)
        .length_max_bytes(PACKET_LENGTH_BYTES)
        .packets_max(packets_max);
    for _ in 0..args.flows_count {
        scheduler.add_flow(flow).map_err(Fault::from_error)?;
    }
    Ok(scheduler)
}

/// Returns `IdlePolicy::Spin` if each participant has a CPU, `Share` otherwise.
pub(super) fn idle_policy(setup: &Setup) -> IdlePolicy {
    if setup.is_crowded() { IdlePolicy::Share } else { IdlePolicy::Spin }
}

/// Yields the CPU if the policy is [`IdlePolicy::Share`].
pub(super) fn yield_if_shared(idle_policy: IdlePolicy) {
    if idle_policy == IdlePolicy::Share {
        std::thread::yield_now();
    }
}

/// Iterator over the next packets that a client offers.
struct Offers<'a> {
    flows: &'a mut ClientFlows,
    /// Number of packets that are still to be offered.
    left: u64,
}

impl Iterator for Offers<'_> {
    type Item = Offer;

    #[inline(always)]
    fn next(&mut self) -> Option<Offer> {
        self.left = self.left.checked_sub(1)?;
        let flow = self.flows.next()?;
        Some(Offer { flow, length_bytes: PACKET_LENGTH_BYTES, tag: 0 })
    }
}

/// Variant of the benchmark of clients and an arbiter: its declaration, and the packets that get
/// time stamps.
trait Variant: Send + Sync + 'static {
    /// Declaration of the benchmark.
    const SPEC: Spec;
    /// Time stamps of the packets: none, one for each packet, or one for each batch.
    const STAMPING: Stamping = Stamping::None;
}

/// Workload: clients that send packets to an arbiter, which returns them.
struct Driver<E: Engine, M: Variant> {
    arbiter: TakeCell<Arbiter<E::Scheduler<Token>>>,
    hub: Hub,
    args: DriveArgs,
    idle_policy: IdlePolicy,
    /// Number of clients that are still sending.
    clients_left: AtomicU32,
    /// Counts of packets sent, transmitted and dropped.
    tally: Tally,
    /// Counts of packets sent, and of those that the arbiter has released.
    released_tally: Tally,
    variant: PhantomData<M>,
}

impl<E: Engine, M: Variant> Handover for Driver<E, M> {
    type Args = DriveArgs;
    const SPEC: Spec = M::SPEC;

    fn roles(args: &DriveArgs) -> Vec<Role> {
        let mut roles = vec![Role::measured("client"), Role::serving("arbiter")];
        roles.resize(1 + args.clients_count as usize, Role::measured("client"));
        roles
    }

    fn setup(args: &DriveArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let idle_policy = idle_policy(setup);
        let config = ArbiterConfig::default()
            .mailbox_slots_count(args.slots_count)
            .batch_max(args.batch_max)
            .interval(Duration::from_micros(args.interval_us.into()))
            .stamping(M::STAMPING)
            .idle_policy(idle_policy);
        let arbiter = Arbiter::new(new_scheduler::<E>(args)?, config).map_err(Fault::from_error)?;
        Ok(Driver {
            hub: arbiter.hub(),
            arbiter: TakeCell::new(arbiter),
            args: *args,
            idle_policy,
            clients_left: AtomicU32::new(args.clients_count),
            tally: Tally::default(),
            released_tally: Tally::default(),
            variant: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 1 {
            self.released_tally.add_received(self.arbiter.take()?.run().total_ledger().released);
            return Ok(());
        }
        let index = (participant.index as u32).saturating_sub(1);
        let mut client = self.hub.join().map_err(Fault::from_error)?;
        let mut flows = ClientFlows::new(
            index % self.args.flows_count,
            self.args.clients_count.min(self.args.flows_count),
            self.args.flows_count,
        );
        let mut fault = None;
        out.time_batches(|n| {
            if let Err(refused) = self.send(&mut client, &mut flows, n) {
                fault.get_or_insert(refused);
            }
        });
        while client.in_flight_count() > 0 && !client.is_arbiter_finished() {
            client.poll(usize::MAX, &mut NullSink, &mut ()).map_err(Fault::from_error)?;
            yield_if_shared(self.idle_policy);
        }
        let counts = client.counts();
        self.released_tally.add_sent(counts.sent);
        self.tally.add_sent(counts.sent);
        self.tally.add_received(counts.transmitted);
        self.tally.add_wrong(counts.dropped);
        // Relaxed: the last client stops the arbiter, through the hub.
        if self.clients_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.hub.stop(StopMode::Drain);
        }
        fault.map_or(Ok(()), Err)
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify().and(self.released_tally.verify())
    }
}

impl<E: Engine, M: Variant> Driver<E, M> {
    /// Sends `n` packets, and transmits those that the arbiter has returned.
    #[inline(always)]
    fn send(&self, client: &mut Client, flows: &mut ClientFlows, n: u64) -> Result<(), Fault> {
        let (mut left, mut unseen) = (n, 0);
        while left > 0 {
            let burst = left.min(u64::from(self.args.burst_packets));
            let sent = client.send_batch(&mut Offers { flows, left: burst }).sent;
            left -= sent as u64;
            unseen += sent;
            if sent == 0 || unseen >= PACKETS_PER_POLL_MAX {
                unseen = 0;
                let back =
                    client.poll(usize::MAX, &mut NullSink, &mut ()).map_err(Fault::from_error)?;
                if sent == 0 && back == 0 {
                    if client.is_arbiter_finished() {
                        return Err(Fault::new(
                            "the arbiter has stopped before all packets were sent",
                        ));
                    }
                    yield_if_shared(self.idle_policy);
                }
            }
        }
        Ok(())
    }
}

/// Variant that compares the scheduling algorithms, without time stamps.
enum AlgorithmVariant {}

impl Variant for AlgorithmVariant {
    const SPEC: Spec = Spec::new(
        "sched/client-arbiter-client",
        "packet from a client through the scheduler and its notification back, with 16 flows (the floor: one way)",
    )
    .floor("ring/line-stream")
    .classic("sched")
    .ladder()
    .hands_over()
    .batched()
    .pipelined();
}

/// Variant with a time stamp for each packet if `PACKETS`, otherwise for each batch of packets.
enum StampsOf<const PACKETS: bool> {}

impl<const PACKETS: bool> Variant for StampsOf<PACKETS> {
    const STAMPING: Stamping = if PACKETS { Stamping::Packet } else { Stamping::Batch };
    const SPEC: Spec = WithoutStamps::SPEC;
}

/// Variant without time stamps, with which [`StampsOf`] is compared.
enum WithoutStamps {}

impl Variant for WithoutStamps {
    const SPEC: Spec = Spec::new(
        "sched/stamping",
        "packet from a client through round robin and its notification back, with a time stamp at each stage (the floor: \
         one way, without time stamps)",
    )
    .floor("ring/line-stream")
    .hands_over()
    .batched()
    .pipelined();
}

/// Value sent instead of a packet, to end the round.
const END: u64 = 1 << 62;

/// The lane between a client and the arbiter, as a [`Channel`].
enum LaneChannel {}

impl Channel for LaneChannel {
    type Sender = LaneSender<1>;
    type Receiver = LaneReceiver<1>;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        lane(slots_count).map_err(Fault::from_error)
    }
    #[inline(always)]
    fn push(sender: &mut Self::Sender, item: u64) -> bool {
        sender.push([item])
    }
    #[inline(always)]
    fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.pop().map(|[item]| item)
    }
}

impl BatchChannel for LaneChannel {}

args! {
    /// Arguments of the benchmark of a client's queue alone.
    pub struct MailboxArgs {
        /// Numbers that the client sends at once.
        burst_packets: u32 = 32 (smoke 4, range 1..=1000),
        /// Maximum number of numbers that are received at once.
        batch_max: u32 = 32 (smoke 8, range 1..=1024),
        /// Slots in the queue.
        slots_count: u32 = 1000 (smoke 20, range 1..=65536)
    }
}

/// Workload: a stream of numbers through a queue like that of a client, without a scheduler.
struct ClientQueueStream<C: Channel> {
    sender: TakeCell<C::Sender>,
    receiver: TakeCell<C::Receiver>,
    args: MailboxArgs,
    idle_policy: IdlePolicy,
    tally: Tally,
}

impl<C: BatchChannel> Handover for ClientQueueStream<C> {
    type Args = MailboxArgs;
    const SPEC: Spec = Spec::new(
        "sched/mailbox",
        "eight bytes through a mailbox without a scheduler, sent and received in batches: in one operation where the \
         queue has such operations, otherwise one by one",
    )
    .floor("ring/line-stream")
    .hands_over()
    .batched()
    .pipelined();

    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("taker")];

    fn setup(args: &MailboxArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(ClientQueueStream {
            sender: TakeCell::new(sender),
            receiver: TakeCell::new(receiver),
            args: *args,
            idle_policy: idle_policy(setup),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            let mut sender = self.sender.take()?;
            let mut number = 0;
            let mut send = |mut words: std::ops::Range<u64>| {
                while !words.is_empty() {
                    let until = words.end.min(words.start + u64::from(self.args.burst_packets));
                    let mut burst = words.start..until;
                    C::push_some(&mut sender, &mut burst);
                    words.start = burst.start;
                    if !burst.is_empty() {
                        yield_if_shared(self.idle_policy);
                    }
                }
            };
            out.time_batches(|n| {
                send(number..number + n);
                number += n;
            });
            send(END..END + 1);
            self.tally.add_sent(number);
            return Ok(());
        }
        let mut receiver = self.receiver.take()?;
        let (mut next, mut wrong, mut is_over) = (0, None, false);
        while !is_over {
            let taken = C::pop_some(&mut receiver, self.args.batch_max as usize, |word| {
                if word == next {
                    next += 1;
                } else if word == END {
                    is_over = true;
                } else {
                    wrong = wrong.or(Some((word, next)));
                }
            });
            if taken == 0 {
                yield_if_shared(self.idle_policy);
            }
        }
        if let Some((word, next)) = wrong {
            return Err(Fault::new(format!("received number {word}, expected {next}")));
        }
        self.tally.add_received(next);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Compared implementation: a scheduler in a mutex. Clients lock it to enqueue packets, and another
/// participant to dequeue them. They lock it for each packet if `PER_PACKET`, otherwise for each
/// burst and each batch of packets.
struct MutexScheduler<E: Engine, const PER_PACKET: bool> {
    shared: Mutex<E::Scheduler<Token>>,
    args: DriveArgs,
    idle_policy: IdlePolicy,
    clients_left: AtomicU32,
    tally: Tally,
}

impl<E: Engine, const PER_PACKET: bool> Handover for MutexScheduler<E, PER_PACKET> {
    type Args = DriveArgs;
    const SPEC: Spec = AlgorithmVariant::SPEC;

    fn roles(args: &DriveArgs) -> Vec<Role> {
        Driver::<E, AlgorithmVariant>::roles(args)
    }

    fn setup(args: &DriveArgs, setup: &mut Setup) -> Result<Self, Fault> {
        Ok(MutexScheduler {
            shared: Mutex::new(new_scheduler::<E>(args)?),
            args: *args,
            idle_policy: idle_policy(setup),
            clients_left: AtomicU32::new(args.clients_count),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let lock = || self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let together = |packets_count| if PER_PACKET { 1 } else { packets_count };
        if participant.index == 1 {
            let batch_max = together(self.args.batch_max);
            let mut taken = 0;
            loop {
                // Acquire: pairs with the AcqRel below; the clients' packets are visible.
                let over = self.clients_left.load(Ordering::Acquire) == 0;
                let mut scheduler = lock();
                let mut batch = 0;
                while batch < batch_max && scheduler.dequeue(0).is_some() {
                    batch += 1;
                }
                drop(scheduler);
                taken += u64::from(batch);
                if batch == 0 {
                    if over {
                        self.tally.add_received(taken);
                        return Ok(());
                    }
                    yield_if_shared(self.idle_policy);
                }
            }
        }
        let client = (participant.index as u32).saturating_sub(1);
        let mut flows = ClientFlows::new(0, 1, self.args.flows_count);
        let burst_max = u64::from(together(self.args.burst_packets));
        let room = (self.args.clients_count * self.args.slots_count) as usize;
        let mut sent = 0;
        out.time_batches(|n| {
            let mut left = n;
            while left > 0 {
                let mut scheduler = lock();
                let vacant = room.saturating_sub(scheduler.len()) as u64;
                let burst = left.min(burst_max).min(vacant);
                for Offer { flow, length_bytes, tag } in (Offers { flows: &mut flows, left: burst })
                {
                    let token = Token::new(client, tag);
                    let packet = Packet { flow, length_bytes, token };
                    sent += u64::from(scheduler.enqueue(0, packet).is_ok());
                }
                drop(scheduler);
                left -= burst;
                if burst == 0 {
                    yield_if_shared(self.idle_policy);
                }
            }
        });
        self.tally.add_sent(sent);
        // AcqRel: pairs with the Acquire above.
        self.clients_left.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

pub(crate) const BENCHES: &[Bench] = benches! {
    many ours "lane" Spin: ClientQueueStream<LaneChannel>;
    many ours "ring-spsc" Spin: ClientQueueStream<Spsc>;
    many peer "rtrb" Spin: ClientQueueStream<Rtrb>, if feature = "peers";
    many peer "array-queue" Spin: ClientQueueStream<ArrayQueue>, if feature = "peers";
    many ours "fifo" Spin: Driver<FirstIn, AlgorithmVariant>;
    many ours "drr" Spin: Driver<Rr, AlgorithmVariant>;
    many ours "qfq" Spin: Driver<QuickFair, AlgorithmVariant>;
    many ours "wf2q+" Spin: Driver<Wf2q, AlgorithmVariant>;
    many peer "mutex-fifo" SpinThenSleep.compared_only_with("fifo"): MutexScheduler<FirstIn, false>;
    many peer "mutex-drr" SpinThenSleep.compared_only_with("drr"): MutexScheduler<Rr, false>;
    many peer "mutex-qfq" SpinThenSleep.compared_only_with("qfq"): MutexScheduler<QuickFair, false>;
    many peer "mutex-wf2q+" SpinThenSleep.compared_only_with("wf2q+"): MutexScheduler<Wf2q, false>;
    many peer "mutex-each-fifo" SpinThenSleep.compared_only_with("fifo"): MutexScheduler<FirstIn, true>;
    many peer "mutex-each-drr" SpinThenSleep.compared_only_with("drr"): MutexScheduler<Rr, true>;
    many peer "mutex-each-qfq" SpinThenSleep.compared_only_with("qfq"): MutexScheduler<QuickFair, true>;
    many peer "mutex-each-wf2q+" SpinThenSleep.compared_only_with("wf2q+"): MutexScheduler<Wf2q, true>;
    many ours "none" Spin: Driver<Rr, WithoutStamps>;
    many ours "batch" Spin: Driver<Rr, StampsOf<false>>;
    many ours "packet" Spin: Driver<Rr, StampsOf<true>>;
};
