//! The null benchmarks: two contenders with the same code. Their difference is the smallest that
//! this machine can resolve; every table ends with it.

use crate::floor::CacheLine;
use handover_harness::{Bench, Fault, Handover, Party, Rig, Role, Samples, Workload};
use handover_lock::TryLock;
use handover_record::{Contender, Spec, Wait};
use std::hint::black_box;

/// One participant: a lock in fresh memory, taken and freed.
struct OneCpu(Box<TryLock<u64>>);

impl Workload for OneCpu {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "null/one-cpu",
        what: "the same lock taken and freed, against itself",
        floor: Some("floor/empty"),
        ladder: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(_: &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(OneCpu(Box::new(TryLock::new(0))))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let free = self.0.try_lock().is_some();
        if free { Ok(()) } else { Err(Fault::new("a free lock was found busy")) }
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for i in 0..n {
                if let Some(mut held) = self.0.try_lock() {
                    *held = black_box(i);
                }
            }
        });
    }
}

/// Two participants: a cache line there and back.
struct TwoCpus(CacheLine);

impl Handover for TwoCpus {
    type Args = <CacheLine as Handover>::Args;
    const PROCESSES: bool = true;
    const SPEC: Spec = Spec {
        id: "null/two-cpus",
        what: "the same cache line there and back, against itself",
        floor: Some("floor/cache-line"),
        ladder: true,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(args: &Self::Args) -> Vec<Role> {
        CacheLine::roles(args)
    }
    fn rig(args: &Self::Args, rig: &mut Rig) -> Result<Self, Fault> {
        CacheLine::rig(args, rig).map(TwoCpus)
    }
    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        self.0.play(party, out)
    }
    fn verify(&self) -> Result<(), Fault> {
        self.0.verify()
    }
}

/// The null benchmarks.
pub const ALL: &[Bench] = &[
    Bench::one::<OneCpu>(Contender::null("one")),
    Bench::one::<OneCpu>(Contender::null("other")),
    Bench::many::<TwoCpus>(Contender::null("one").waits(Wait::Spin)),
    Bench::many::<TwoCpus>(Contender::null("other").waits(Wait::Spin)),
];
