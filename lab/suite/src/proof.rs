//! `proof/our-lock`: our lock beside itself with a known delay, for `handover prove`.

use handover_base::clock;
use handover_harness::prove::SpinTimer;
use handover_harness::{Bench, Fault, Samples, Setup, Workload};
use handover_lock::TryLock;
use handover_record::{Contender, Spec};
use std::hint::black_box;

/// Delay that is added to our lock, in ns.
pub const DELAY_NS: u64 = 50;

/// Benchmark of our lock without and with the delay, as two contenders. It is not part of
/// [`SUITES`](crate::SUITES).
pub static BENCHES: &[Bench] = &[
    Bench::one::<DelayedLock<0>>(Contender::ours("planted")),
    Bench::one::<DelayedLock<DELAY_NS>>(Contender::peer("delayed")),
];

/// Benchmark of locking and unlocking our lock, with a delay of `NS` added to each operation.
struct DelayedLock<const NS: u64> {
    lock: TryLock<u64>,
    timer: SpinTimer,
}

impl<const NS: u64> Workload for DelayedLock<NS> {
    type Args = ();
    const SPEC: Spec =
        Spec::new("proof/our-lock", "our lock taken and freed, beside the same with a known delay")
            .ladder();

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(DelayedLock { lock: TryLock::new(0), timer: SpinTimer::new() })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for i in 0..n {
                if let Some(mut held) = self.lock.try_lock() {
                    *held = black_box(i);
                }
            }
            if NS > 0 {
                self.timer.wait(clock::ticks(), n * NS * 1000);
            }
        });
    }
}
