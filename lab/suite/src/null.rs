//! The null benchmarks: two contenders with the same code. Their difference is the smallest that
//! this machine can resolve; every table ends with it.

use crate::common::ensure;
use crate::floor::CacheLine;
use handover_harness::{
    Bench, Fault, Handover, Participant, Role, Samples, Setup, Workload, benches,
};
use handover_lock::TryLock;
use handover_record::Spec;
use std::hint::black_box;

/// Workload with one participant: a lock in newly allocated memory is locked and unlocked.
struct OneCpu(Box<TryLock<u64>>);

impl Workload for OneCpu {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "null/one-cpu",
        "lock and unlock of the same lock on both sides: differences come from noise alone",
    )
    .floor("floor/empty")
    .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(OneCpu(Box::new(TryLock::new(0))))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        ensure(self.0.try_lock().is_some(), || "try_lock failed on a free lock")
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for i in 0..n {
                if let Some(mut held) = self.0.try_lock() {
                    *held = black_box(i);
                }
            }
        });
    }
}

/// Workload with two participants: a cache line to the other CPU and back.
struct TwoCpus(CacheLine);

impl Handover for TwoCpus {
    type Args = <CacheLine as Handover>::Args;
    const PROCESSES: bool = true;
    const SPEC: Spec = Spec::new(
        "null/two-cpus",
        "round trip of the same cache line on both sides: differences come from noise alone",
    )
    .floor("floor/cache-line")
    .ladder()
    .hands_over()
    .batched();

    fn roles(args: &Self::Args) -> Vec<Role> {
        CacheLine::roles(args)
    }
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault> {
        CacheLine::setup(args, setup).map(TwoCpus)
    }
    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        self.0.play(participant, out)
    }
    fn check_round(&self) -> Result<(), Fault> {
        self.0.check_round()
    }
}

/// All null benchmarks, each of which measures the same code twice.
pub const BENCHES: &[Bench] = benches! {
    one null "one": OneCpu;
    one null "other": OneCpu;
    many null "one" Spin: TwoCpus;
    many null "other" Spin: TwoCpus;
};
