//! A workload of your own: `cargo run --release -p handover-harness --example own_workload`

use handover_harness::{Bench, Fault, Lab, Plan, Rig, Samples, Workload};
use handover_record::{Contender, Spec};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;

struct Sort<const STABLE: bool>(Vec<u64>);

impl<const STABLE: bool> Workload for Sort<STABLE> {
    type Args = ();
    const SPEC: Spec = Spec { id: "sort/reversed", what: "sorting 1000 numbers", ..Spec::DEFAULT };
    fn rig(_: &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Sort((0..1000).rev().collect()))
    }
    fn check(&mut self) -> Result<(), Fault> {
        if self.sorted().is_sorted() { Ok(()) } else { Err(Fault::new("not sorted")) }
    }
    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| (0..n).for_each(|_| drop(black_box(self.sorted()))));
    }
}

impl<const STABLE: bool> Sort<STABLE> {
    fn sorted(&self) -> Vec<u64> {
        let mut it = black_box(&self.0).clone();
        if STABLE {
            it.sort()
        } else {
            it.sort_unstable()
        }
        it
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const ALL: &[Bench] = &[
        Bench::one::<Sort<false>>(Contender::ours("unstable")),
        Bench::one::<Sort<true>>(Contender::peer("stable")),
    ];
    let lab = Lab::new(&[ALL], &["sort".to_string()], Plan::default())?;
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    outcome.records.iter().for_each(|record| println!("{record}"));
    Ok(())
}
