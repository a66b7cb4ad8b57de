//! Cost of an algorithm per packet: creating, enqueueing and dequeueing it; for comparison, in
//! rounds of their own, the same packets through a ring instead of the scheduler. Nothing is
//! subtracted.

use super::by_hand::{Deques, Heap};
use super::flowset::FlowSet;
use super::tester::{EmptyScheduler, QueueThreshold, Tester, TesterOptions};
use crate::common::{ensure, time_ticks};
use handover_harness::{Bench, Fault, Samples, Setup, Workload};
use handover_record::{Contender, Spec, args};
use handover_sched::engine::{
    DeficitRoundRobin, Fifo, FlowScheduler, Pacing, Priority, Qfq, QfqPlus, RoundRobin, Wf2qPlus,
};
use handover_sched::{Config, ConfigError, Scheduler};
use std::fmt::Debug;
use std::hint::black_box;
use std::marker::PhantomData;

args! {
    /// Arguments of the benchmarks of scheduling algorithms.
    pub struct EngineArgs {
        /// Flows, each with two or three packets queued.
        flows_count: u32 = 16 (smoke 4, range 1..=1_000_000),
        /// 1 for weights from 1 to 1000 and packets of 64 to 1500 bytes, 0 for equal weights and
        /// lengths.
        mixed: u32 = 0 (smoke 1, range 0..=1),
    }
}

/// Number of packets that are enqueued in a row, and then dequeued.
const SWING_PACKETS: u64 = 64;
/// Number of times in one sample that [`SWING_PACKETS`] packets are enqueued and dequeued.
const SWINGS: u64 = 16;
/// Number of steps in one sample, each of which enqueues or dequeues a packet.
const STEPS: u64 = 2 * SWING_PACKETS * SWINGS;
/// Number of packets that pass through the scheduler in one sample.
const PACKETS: u64 = STEPS / 2;

/// A scheduling algorithm to measure.
pub(super) trait Engine: 'static {
    /// Id of the benchmark of the algorithm alone.
    const ID: &'static str;
    const DESCRIPTION: &'static str;
    type Scheduler<T: PacketToken>: Scheduler<T> + Send + 'static;
    fn new<T: PacketToken>(config: &Config) -> Result<Self::Scheduler<T>, ConfigError>;
    /// Weight of each flow if all are equal.
    const WEIGHT: u32 = 1;
    /// Least and greatest weight of mixed flows.
    const MIXED_WEIGHTS: [u32; 2] = [1, 1000];
}

/// Value that a packet carries.
pub(super) trait PacketToken: Copy + Debug + Send + 'static {}

impl<T: Copy + Debug + Send + 'static> PacketToken for T {}

macro_rules! engines {
    ($($name:ident: $scheduler:ty, $id:literal, $what:literal
        $(, $weight:literal $mixed:expr)?;)*) => {$(
        pub(super) struct $name;

        impl Engine for $name {
            const ID: &'static str = $id;
            const DESCRIPTION: &'static str = $what;
            type Scheduler<T: PacketToken> = $scheduler;
            fn new<T: PacketToken>(config: &Config) -> Result<$scheduler, ConfigError> {
                <$scheduler>::new(config)
            }
            $(
                const WEIGHT: u32 = $weight;
                const MIXED_WEIGHTS: [u32; 2] = $mixed;
            )?
        }
    )*};
}

engines! {
    FirstIn: Fifo<T>, "sched/fifo", "enqueue and dequeue of a packet, first in first out";
    Rr: FlowScheduler<T, DeficitRoundRobin>, "sched/rr",
        "enqueue and dequeue of a packet, by weighted deficit round robin";
    Rr1: FlowScheduler<T, RoundRobin>, "sched/rr1", "enqueue and dequeue of a packet, by round robin, one packet of each flow in turn";
    Prio: FlowScheduler<T, Priority>, "sched/prio",
        "enqueue and dequeue of a packet, by strict priority";
    Wf2q: FlowScheduler<T, Wf2qPlus>, "sched/wf2qp", "enqueue and dequeue of a packet, by WF2Q+";
    QuickFair: FlowScheduler<T, Qfq>, "sched/qfq", "enqueue and dequeue of a packet, by QFQ";
    QuickFairPlus: FlowScheduler<T, QfqPlus>, "sched/qfqp", "enqueue and dequeue of a packet, by QFQ+";
    Paced: FlowScheduler<T, Pacing>, "sched/pacing",
        "enqueue and dequeue of a packet, paced at its flow's rate", 1_000_000 [1000, 1_000_000];
}

/// Workload: packets that pass through a scheduling algorithm, without threads.
pub(super) struct EnqueueDequeue<E: Engine> {
    scheduler: E::Scheduler<u64>,
    tester: Tester,
}

fn tester_options<E: Engine>(args: &EngineArgs) -> TesterOptions {
    let flows = match args.mixed {
        0 => FlowSet::equal(E::WEIGHT, 1500, args.flows_count),
        _ => FlowSet::mixed(E::MIXED_WEIGHTS, args.flows_count),
    };
    let qmin = 2 * args.flows_count;
    TesterOptions {
        flows,
        qmin: QueueThreshold::Packets(qmin),
        qmax: QueueThreshold::Packets(qmin + SWING_PACKETS as u32),
        ..TesterOptions::default()
    }
}

const fn spec<E: Engine>() -> Spec {
    Spec::new(E::ID, E::DESCRIPTION).batched()
}

/// Creates a tester, and runs it until the packets of its flows are in random order in memory.
fn filled_tester<S: Scheduler<u64>>(
    options: &TesterOptions,
    scheduler: &mut S,
) -> Result<Tester, Fault> {
    let mut tester = Tester::new(options, scheduler).map_err(Fault::from_error)?.without_fairness();
    let fill = 2 * u64::from(options.flows.flows_count()) + SWING_PACKETS;
    for _ in 0..2 {
        tester.run(scheduler, fill);
    }
    Ok(tester)
}

impl<E: Engine> Workload for EnqueueDequeue<E> {
    type Args = EngineArgs;
    const SPEC: Spec = spec::<E>();

    fn setup(args: &EngineArgs, _: &mut Setup) -> Result<Self, Fault> {
        let options = tester_options::<E>(args);
        let mut scheduler = E::new::<u64>(&options.config()).map_err(Fault::from_error)?;
        let tester = filled_tester(&options, &mut scheduler)?;
        Ok(EnqueueDequeue { scheduler, tester })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.tester.run(&mut self.scheduler, STEPS);
        let totals = self.scheduler.totals();
        let queued = self.scheduler.len() as u64;
        ensure(totals.refused == 0 && totals.enqueued == totals.dequeued + queued, || {
            format!("the scheduler's totals {totals:?} do not match its {queued} queued packets")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let ticks = time_ticks(|| {
                self.tester.run(&mut self.scheduler, STEPS);
            });
            out.record_batch(0, ticks, PACKETS);
        }
    }
}

/// Floor: the same packets through a ring instead of a scheduler.
pub(super) struct PacketsOnly<E> {
    empty_scheduler: EmptyScheduler<u64>,
    tester: Tester,
    engine: PhantomData<E>,
}

impl<E: Engine> Workload for PacketsOnly<E> {
    type Args = EngineArgs;
    const SPEC: Spec = spec::<E>();

    fn setup(args: &EngineArgs, _: &mut Setup) -> Result<Self, Fault> {
        let options = tester_options::<E>(args);
        let mut empty_scheduler = EmptyScheduler::new(options.packets_max());
        let tester = filled_tester(&options, &mut empty_scheduler)?;
        Ok(PacketsOnly { empty_scheduler, tester, engine: PhantomData })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        // It is used like the algorithms: the number of queued packets stays the same.
        let before = self.empty_scheduler.len();
        self.tester.run(&mut self.empty_scheduler, STEPS);
        let after = self.empty_scheduler.len();
        ensure(after.abs_diff(before) as u64 <= SWING_PACKETS, || {
            format!("{before} packets were queued before the run, {after} after it")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let ticks = time_ticks(|| {
                self.tester.run(&mut self.empty_scheduler, STEPS);
            });
            out.record_batch(0, ticks, PACKETS);
        }
    }
}

/// Floor: one memory access of a random walk. The walk covers as much memory as the flows and their
/// packets use.
pub(super) struct WalkFloor<E>(MemoryWalk, PhantomData<E>);

impl<E: Engine> Workload for WalkFloor<E> {
    type Args = EngineArgs;
    const SPEC: Spec = spec::<E>();

    fn setup(args: &EngineArgs, _: &mut Setup) -> Result<Self, Fault> {
        let options = tester_options::<E>(args);
        let bytes = options.flows.flows_count() as usize * (64 + 2 * 16);
        Ok(WalkFloor(MemoryWalk::new(bytes), PhantomData))
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            out.record_batch(0, time_ticks(|| self.0.run(PACKETS)), PACKETS);
        }
    }
}

/// Cache lines linked in a cycle in random order.
struct MemoryWalk {
    lines: Vec<Line>,
    /// Index of the current line.
    at: u32,
}

/// Cache line with the index of the next one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u32);

impl MemoryWalk {
    fn new(bytes: usize) -> Self {
        let count = bytes.div_ceil(64).max(2);
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for i in (1..count).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            order.swap(i, (random % (i as u64 + 1)) as usize);
        }
        let mut lines = vec![Line(0); count];
        for (i, &at) in order.iter().enumerate() {
            lines[at as usize] = Line(order[(i + 1) % count]);
        }
        Self { lines, at: 0 }
    }

    /// Follows `steps` links.
    fn run(&mut self, steps: u64) {
        let mut at = self.at;
        for _ in 0..steps {
            at = self.lines[at as usize].0;
        }
        self.at = black_box(at);
    }
}

/// Declares the contender, the compared implementation and the two floors of each algorithm.
macro_rules! rows {
    ($($engine:ty $(, peer $peer:literal $by_hand:ty)?;)*) => {
        &[$(
            Bench::one::<EnqueueDequeue<$engine>>(Contender::ours("handover")),
            $(Bench::one::<EnqueueDequeue<$by_hand>>(Contender::peer($peer)),)?
            Bench::one::<PacketsOnly<$engine>>(Contender::floor("making")),
            Bench::one::<WalkFloor<$engine>>(Contender::floor("walk")),
        )*]
    };
}

pub(crate) const BENCHES: &[Bench] = rows! {
    FirstIn;
    Rr, peer "deques" Deques;
    Rr1;
    Prio;
    Wf2q;
    QuickFair;
    QuickFairPlus, peer "heap" Heap;
    Paced;
};
