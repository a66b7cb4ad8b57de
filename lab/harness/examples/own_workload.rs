//! A workload of your own: declare it, name its contenders, run it.
//!
//! `cargo run --release -p handover-harness --example own_workload`

use handover_harness::{Bench, Fault, Lab, Plan, Rig, Samples, Workload};
use handover_record::{Contender, Spec, args};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;

args! {
/// How much to add.
pub struct Sum {
    /// Numbers to add up.
    numbers_count: u32 = 1000 (smoke 2, range 1..=1000000)
} }

struct Adding<const FROM_BACK: bool>(Vec<u64>);

impl<const FROM_BACK: bool> Workload for Adding<FROM_BACK> {
    type Args = Sum;
    const SPEC: Spec = Spec {
        id: "sum/vector",
        what: "adding up a vector of numbers",
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    fn rig(args: &Sum, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Adding((1..=u64::from(args.numbers_count)).collect()))
    }
    fn check(&mut self) -> Result<(), Fault> {
        let n = self.0.len() as u64;
        if self.add() == n * (n + 1) / 2 { Ok(()) } else { Err(Fault::new("wrong sum")) }
    }
    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for _ in 0..n {
                black_box(self.add());
            }
        });
    }
}

impl<const FROM_BACK: bool> Adding<FROM_BACK> {
    fn add(&self) -> u64 {
        let numbers = black_box(&self.0);
        if FROM_BACK { numbers.iter().rev().sum() } else { numbers.iter().sum() }
    }
}

const ALL: &[Bench] = &[
    Bench::one::<Adding<false>>(Contender::ours("forwards")),
    Bench::one::<Adding<true>>(Contender::peer("backwards")),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lab = Lab::new(&[ALL], &["sum/*".to_string()], Plan::default())?;
    for record in lab.run(&mut (), &AtomicBool::new(false)).records {
        println!("{record}");
    }
    Ok(())
}
