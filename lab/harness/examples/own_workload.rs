//! A workload in your own program: `cargo run --release -p handover-harness --example own_workload`

use handover_harness::{Bench, Fault, Lab, Plan, Samples, Setup, Spec, Workload, benches};
use std::{hint::black_box, sync::atomic::AtomicBool};

struct Sort<const STABLE: bool>(Vec<u64>);

impl<const STABLE: bool> Workload for Sort<STABLE> {
    type Args = ();
    const SPEC: Spec = Spec::new("sort/reversed", "sorting 1000 numbers");
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Sort((0..1000).rev().collect()))
    }
    fn sample(&mut self, out: &mut Samples) {
        let sort = if STABLE { <[u64]>::sort } else { <[u64]>::sort_unstable };
        out.time_batches(|n| (0..n).for_each(|_| sort(black_box(&mut self.0.clone()))));
    }
}

const ALL: &[Bench] = benches! {
    one ours "unstable": Sort<false>;
    one peer "stable": Sort<true>;
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lab = Lab::new(&[ALL], &["sort".to_string()], Plan::default())?;
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    outcome.records.iter().for_each(|record| println!("{record}"));
    Ok(())
}
