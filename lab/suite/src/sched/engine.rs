//! What an algorithm costs for each packet: putting it in and taking it out, less what making up the
//! packets takes.

use handover_base::clock;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Part, Spec, args};
use handover_sched::engine::{
    DeficitRoundRobin, Fifo, Pacing, Priority, Qfq, QfqPlus, Queued, RoundRobin, Wf2qPlus,
};
use handover_sched::tester::{Nothing, Options, Tester};
use handover_sched::{Config, ConfigError, Scheduler};
use std::hint::black_box;

args! {
    /// Among how many flows.
    pub struct Flows {
        /// Flows, each with two packets queued or three.
        flows_count: u32 = 16 (smoke 4, range 1..=1_000_000),
        /// 1 for weights from 1 to 1000 and packets from 64 to 1500 bytes, 0 for equal ones.
        mixed: u32 = 0 (smoke 1, range 0..=1),
    }
}

/// So many packets go in, and then as many out.
const SWING_PACKETS: u64 = 64;
/// Swings that are timed at once.
const SWINGS: u64 = 16;
const STEPS: u64 = 2 * SWING_PACKETS * SWINGS;
const PACKETS: u64 = STEPS / 2;
/// One after the other, each goes on for about so many packets of every flow: what the others have left
/// in the caches is a small part of it then.
const STRETCH_PACKETS: u64 = 16;
/// But not for longer than this: nothing of so many flows stays in the nearer caches anyway.
const STRETCH_BATCHES_MAX: u64 = 160;

const NET: usize = 0;
const MAKING: usize = 1;
const WALK: usize = 2;

/// An algorithm that is measured. The packets carry 8 bytes of their owner's.
pub(super) trait Engine: 'static {
    const ID: &'static str;
    const WHAT: &'static str;
    type Scheduler: Scheduler<u64>;
    fn new(config: &Config) -> Result<Self::Scheduler, ConfigError>;
    /// The flow set's weights.
    fn weights(mixed: bool) -> &'static str {
        if mixed { "1-1000-50" } else { "1" }
    }
}

macro_rules! engines {
    ($($name:ident: $scheduler:ty, $id:literal, $what:literal
        $(, $weights:literal $mixed:literal)?;)*) => {$(
        pub(super) struct $name;

        impl Engine for $name {
            const ID: &'static str = $id;
            const WHAT: &'static str = $what;
            type Scheduler = $scheduler;
            fn new(config: &Config) -> Result<$scheduler, ConfigError> {
                <$scheduler>::new(config)
            }
            $(fn weights(mixed: bool) -> &'static str {
                if mixed { $mixed } else { $weights }
            })?
        }
    )*};
}

engines! {
    FirstIn: Fifo<u64>, "sched/fifo", "a packet in and out of a scheduler, in order of arrival";
    Rr: Queued<u64, DeficitRoundRobin>, "sched/rr",
        "a packet in and out of a scheduler, by weighted deficit round robin";
    Rr1: Queued<u64, RoundRobin>, "sched/rr1", "a packet in and out of a scheduler, one each turn";
    Prio: Queued<u64, Priority>, "sched/prio",
        "a packet in and out of a scheduler, by strict priority", "1" "1-1000-50";
    Wf2q: Queued<u64, Wf2qPlus>, "sched/wf2qp", "a packet in and out of a scheduler, by WF2Q+";
    QuickFair: Queued<u64, Qfq>, "sched/qfq", "a packet in and out of a scheduler, by QFQ";
    QuickFairPlus: Queued<u64, QfqPlus>, "sched/qfqp", "a packet in and out of a scheduler, by QFQ+";
    Paced: Queued<u64, Pacing>, "sched/pacing",
        "a packet in and out of a scheduler, at its flow's rate", "1M" "1K-1M-50";
}

/// An algorithm, and beside it in step the same packets without one.
pub(super) struct Turnover<E: Engine> {
    scheduler: E::Scheduler,
    tester: Tester,
    nothing: Nothing<u64>,
    making: Tester,
    walk: Walk,
    /// What the batches of a stretch took to make up, in ticks.
    making_ticks: Vec<u64>,
}

pub(super) fn fault(error: impl ToString) -> Fault {
    Fault::new(error.to_string())
}

fn options<E: Engine>(flows_count: u32, mixed: bool) -> Result<Options, Fault> {
    let weights = E::weights(mixed);
    let set = match (mixed, flows_count / 200) {
        (false, _) => format!("{weights}:1500:{flows_count}"),
        (true, 0) => format!("{weights}:1500:1").replace("-50:", &format!("-{flows_count}:")),
        (true, each) => format!("{weights}:64-1500-4:{each}"),
    };
    let set = if flows_count == 1 { format!("{}:1500:1", E::weights(false)) } else { set };
    let flows_count: u64 = flows_count.into();
    let (qmin, qmax) = (2 * flows_count, 2 * flows_count + SWING_PACKETS);
    let (qmin, qmax) = (qmin.to_string(), qmax.to_string());
    Options::parse(&["-flowsets", &set, "-qmin", &qmin, "-qmax", &qmax]).map_err(fault)
}

impl<E: Engine> Workload for Turnover<E> {
    type Args = Flows;
    const SPEC: Spec = Spec {
        id: E::ID,
        what: E::WHAT,
        floor: Some("floor/empty"),
        batched: true,
        parts: &[
            Part::new("net", "less what making up the packets takes"),
            Part::new("making", "making up the packets, and a ring in a scheduler's place"),
            Part::new("walk", "one step of a random walk over as much memory"),
        ],
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Flows, _: &mut Rig) -> Result<Self, Fault> {
        let options = options::<E>(args.flows_count, args.mixed != 0)?;
        let mut scheduler = E::new(&options.config()).map_err(fault)?;
        let mut nothing = Nothing::new(options.packets_max());
        let tester = Tester::new(&options, &mut scheduler).map_err(fault)?.unwatched();
        let making = Tester::new(&options, &mut nothing).map_err(fault)?.unwatched();
        // What the flows and their packets take.
        let walk = Walk::new(options.flows.flows_count() as usize * (64 + 2 * 16));
        let batches = u64::from(args.flows_count) * STRETCH_PACKETS / PACKETS;
        let making_ticks = vec![0; batches.clamp(1, STRETCH_BATCHES_MAX) as usize];
        let mut rigged = Turnover { scheduler, tester, nothing, making, walk, making_ticks };
        let fill = 2 * u64::from(options.flows.flows_count()) + SWING_PACKETS;
        for _ in 0..2 {
            // As many packets again come and go, so that memory is in no order.
            rigged.tester.run(&mut rigged.scheduler, fill);
            rigged.making.run(&mut rigged.nothing, fill);
        }
        Ok(rigged)
    }

    fn check(&mut self) -> Result<(), Fault> {
        self.tester.run(&mut self.scheduler, STEPS);
        self.making.run(&mut self.nothing, STEPS);
        let totals = self.scheduler.totals();
        let queued = self.scheduler.len() as u64;
        if totals.refused > 0 || totals.enqueued != totals.dequeued + queued {
            return Err(Fault::new(format!("{totals:?}, and {queued} queued")));
        }
        if queued != self.nothing.len() as u64 {
            return Err(Fault::new("what is subtracted went another way"));
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.running() {
            for making in &mut self.making_ticks {
                *making = timed(|| {
                    self.making.run(&mut self.nothing, STEPS);
                });
            }
            for making in &self.making_ticks {
                let gross = timed(|| {
                    self.tester.run(&mut self.scheduler, STEPS);
                });
                out.note_batch(NET, gross.saturating_sub(*making), PACKETS);
                out.note_batch(MAKING, *making, PACKETS);
            }
            for _ in &self.making_ticks {
                out.note_batch(WALK, timed(|| self.walk.run(PACKETS)), PACKETS);
            }
        }
    }
}

#[inline]
fn timed(operations: impl FnOnce()) -> u64 {
    let began = clock::ticks();
    operations();
    clock::ticks().saturating_sub(began)
}

/// Cache lines in one random circle, each of which names the next.
struct Walk {
    lines: Vec<Line>,
    at: u32,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u32);

impl Walk {
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

    fn run(&mut self, steps: u64) {
        let mut at = self.at;
        for _ in 0..steps {
            at = self.lines[at as usize].0;
        }
        self.at = black_box(at);
    }
}

/// The benchmarks of this file.
pub(super) const ALL: &[Bench] = &[
    Bench::one::<Turnover<FirstIn>>(Contender::ours("handover")),
    Bench::one::<Turnover<Rr>>(Contender::ours("handover")),
    Bench::one::<Turnover<Rr1>>(Contender::ours("handover")),
    Bench::one::<Turnover<Prio>>(Contender::ours("handover")),
    Bench::one::<Turnover<Wf2q>>(Contender::ours("handover")),
    Bench::one::<Turnover<QuickFair>>(Contender::ours("handover")),
    Bench::one::<Turnover<QuickFairPlus>>(Contender::ours("handover")),
    Bench::one::<Turnover<Paced>>(Contender::ours("handover")),
];
