//! The benchmark of the README: `cargo run --release -p handover-suite --example benchmark`

use handover_harness::{Bench, Fault, Samples, Setup, Spec, Workload, args, benches};
use std::{collections::VecDeque, hint::black_box};

args! {
    /// Capacity of the queue.
    pub struct Slots {
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

struct PushPop(VecDeque<u64>);

impl Workload for PushPop {
    type Args = Slots;
    const SPEC: Spec =
        Spec::new("deque/push-pop", "push and pop of an item by one thread").floor("floor/empty");

    fn setup(args: &Slots, _: &mut Setup) -> Result<Self, Fault> {
        Ok(PushPop(VecDeque::with_capacity(args.slots_count as usize)))
    }
    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for item in 0..n {
                self.0.push_back(black_box(item));
                black_box(self.0.pop_front());
            }
        });
    }
}

const ALL: &[Bench] = benches! { one ours "VecDeque": PushPop; };

fn main() -> std::process::ExitCode {
    handover_harness::bench_main(&[ALL])
}
