//! Fairness of an algorithm: the worst-case fair index, in bytes, by which a flow can fall behind
//! its share.

use super::engine::{Engine, QuickFair, QuickFairPlus, Rr, Wf2q};
use super::tester::{Tester, TesterOptions};
use crate::common::ensure;
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::{Part, Spec, Unit, args};
use handover_sched::Scheduler;
use std::marker::PhantomData;

args! {
    /// Arguments of the benchmark of fairness.
    pub struct FairnessArgs {
        /// Flow set: 0 1:1500:16; 1 1:1500:1000; 2 100:1500:1,1:1500:16; 3 1-100-10:1500:10; 4
        /// 1-1000-50:64-1500-4:50; 5 1-100-10:64-1500-10:100.
        flow_set: u32 = 2 (smoke 0, range 0..=5),
        /// Packets in each of the three measurements.
        packets_count: u32 = 100_000 (smoke 2000, range 1000..=100_000_000),
    }
}

/// Flow sets by the value of the argument `flow_set`; the last one has ten thousand flows.
const SETS: [&str; 6] = [
    "1:1500:16",
    "1:1500:1000",
    "100:1500:1,1:1500:16",
    "1-100-10:1500:10",
    "1-1000-50:64-1500-4:50",
    "1-100-10:64-1500-10:100",
];

/// Number of packets that each backlogged flow has in the queue.
const DEPTH: u32 = 2;
/// Seed of the packet lengths, the same in every round. Figures thus differ only if the algorithm
/// does.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Workload: the worst-case fairness index of an algorithm, in bytes.
struct Fairness<E> {
    options: TesterOptions,
    packets_count: u64,
    engine: PhantomData<E>,
}

impl<E: Engine> Fairness<E> {
    fn engine_and_tester(&self) -> Result<(E::Scheduler<u64>, Tester), Fault> {
        let mut scheduler = E::new::<u64>(&self.options.config()).map_err(Fault::from_error)?;
        let tester = Tester::new(&self.options, &mut scheduler).map_err(Fault::from_error)?;
        Ok((scheduler, tester))
    }

    /// Returns the fairness index in bytes, computed whenever a flow has no packet left.
    fn index_when_empty(&self) -> Result<f64, Fault> {
        let (mut scheduler, mut tester) = self.engine_and_tester()?;
        let report = tester.run(&mut scheduler, 2 * self.packets_count);
        let dropped = report.dropped;
        ensure(dropped == 0, || format!("{dropped} packets were dropped, expected none"))?;
        Ok(report.wfi_bytes)
    }

    /// Returns the fairness index in bytes while every flow has packets. They have maximum length,
    /// or random length if `seed` is not 0.
    fn index_while_backlogged(&self, seed: u64) -> Result<f64, Fault> {
        let (mut scheduler, mut tester) = self.engine_and_tester()?;
        let report = tester.run_backlogged(&mut scheduler, DEPTH, self.packets_count, seed);
        let expected = u64::from(DEPTH) * u64::from(scheduler.flows_count());
        let queued = scheduler.len() as u64;
        ensure(report.dropped == 0 && queued == expected, || {
            format!("{queued} packets are queued, expected {expected}")
        })?;
        Ok(report.wfi_bytes)
    }

    /// Returns the fairness index of each part, in bytes, in the order of the parts.
    fn fairness_indices(&self) -> Result<[f64; 3], Fault> {
        Ok([
            self.index_when_empty()?,
            self.index_while_backlogged(0)?,
            self.index_while_backlogged(SEED)?,
        ])
    }
}

impl<E: Engine> Workload for Fairness<E> {
    type Args = FairnessArgs;
    const SPEC: Spec = Spec::new(
        "sched/fair-index",
        "bytes that a flow falls behind its fair share, in the worst case",
    )
    .unit(Unit::Bytes)
    .classic("sched")
    .parts(&[
        Part::new("when-empty", "worst lag of a flow at the time when its queue becomes empty"),
        Part::new("backlogged", "worst lag of a flow while all flows have packets"),
        Part::new("any-length", "the same, with packet lengths up to the flow's maximum"),
    ]);

    fn setup(args: &FairnessArgs, _: &mut Setup) -> Result<Self, Fault> {
        let options = TesterOptions::parse(&["-flowsets", SETS[args.flow_set as usize]])
            .map_err(Fault::from_error)?;
        Ok(Fairness { options, packets_count: args.packets_count.into(), engine: PhantomData })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.fairness_indices().map(drop)
    }

    fn sample(&mut self, out: &mut Samples) {
        // One of each per round, as they are exact. A fault would have been found by `self_test`.
        if out.is_running()
            && let Ok(figures) = self.fairness_indices()
        {
            for (part, bytes) in figures.into_iter().enumerate() {
                out.record_value(part, bytes);
            }
        }
    }
}

pub(crate) const BENCHES: &[Bench] = benches! {
    one ours "rr": Fairness<Rr>;
    one ours "wf2q+": Fairness<Wf2q>;
    one ours "qfq": Fairness<QuickFair>;
    one ours "qfq+": Fairness<QuickFairPlus>;
};
