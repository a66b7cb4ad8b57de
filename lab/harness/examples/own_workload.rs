//! A workload in your own program: `cargo run --release -p handover-harness --example own_workload`

use handover_harness::{Bench, Contender, Fault, Lab, Plan, Rig, Samples, Spec, Workload};
use std::{hint::black_box, sync::atomic::AtomicBool};

struct Sort<const STABLE: bool>(Vec<u64>);

impl<const STABLE: bool> Workload for Sort<STABLE> {
    type Args = ();
    const SPEC: Spec = Spec { id: "sort/reversed", what: "sorting 1000 numbers", ..Spec::DEFAULT };
    fn rig(_: &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Sort((0..1000).rev().collect()))
    }
    fn sample(&mut self, out: &mut Samples) {
        let sort = if STABLE { <[u64]>::sort } else { <[u64]>::sort_unstable };
        out.batches(|n| (0..n).for_each(|_| sort(black_box(&mut self.0.clone()))));
    }
}

const ALL: &[Bench] = &[
    Bench::one::<Sort<false>>(Contender::ours("unstable")),
    Bench::one::<Sort<true>>(Contender::peer("stable")),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lab = Lab::new(&[ALL], &["sort".to_string()], Plan::default())?;
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    outcome.records.iter().for_each(|record| println!("{record}"));
    Ok(())
}
