//! Fibers: switched, spawned, woken, put to sleep; compared with threads, tasks and bare
//! coroutines.

mod contenders;
mod eventuals;
pub mod local;
#[cfg(feature = "peers-may")]
mod may;
mod parked;
#[cfg(feature = "peers")]
mod peers;

pub use eventuals::{EventualsError, EventualsLoad, EventualsMeasurement, run_eventuals};

use crate::common::{TakeCell, ensure};
use contenders::{
    ChannelThreads, CorosenseiCoroutine, CoroutinePair, HandoverFibers, KernelSleep, OsThreads,
    WordThreads,
};
use handover_base::usage;
use handover_harness::{
    Bench, Fault, Handover, Participant, Role, Samples, Setup, Workload, benches,
};
use handover_record::{Spec, args};
use std::time::Instant;

/// Operations of fibers, or of threads, tasks or coroutines in their place.
/// Each method performs its operation `count` times and returns the duration of all in clock ticks.
pub(crate) trait FiberContender: Sized + 'static {
    /// Maximum number of operations in a batch.
    const BATCH_MAX: u64 = u64::MAX;

    /// Starts the contender with one worker, on the measured participant's CPU.
    fn begin() -> Result<Self, Fault>;

    /// Yields to another fiber of the same worker, `count` times; returns the duration in clock
    /// ticks.
    fn time_yields(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Yields while no other fiber can run, `count` times; returns the duration in clock ticks.
    fn time_yields_alone(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Spawns and joins a fiber, `count` times; returns the duration in clock ticks.
    fn time_spawns(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Spawns a detached fiber and lets it run, `count` times; returns the duration in clock ticks.
    fn time_detached_spawns(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Makes two fibers wake each other alternately, `count` times in all. Returns the duration in
    /// clock ticks.
    fn time_wakes(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Passes a mutex from one fiber to another, `count` times; returns the duration in clock
    /// ticks.
    fn time_mutex_passes(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Sleeps for 1 ms, `count` times; returns the duration in clock ticks.
    fn time_sleeps(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Returns the number of loops that [`time_loops`](Self::time_loops) runs if asked for
    /// `fibers`.
    fn loops_count(fibers: u32) -> u32 {
        fibers
    }

    /// Runs `fibers` loops, and returns the duration of `count` iterations of one loop, in clock
    /// ticks. An iteration spawns a fiber that sleeps for 1 ms and then sets the value that the
    /// loop waits for.
    fn time_loops(&mut self, _fibers: u32, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }
}

/// Returns the error of an operation that the contender does not have. No benchmark calls such an
/// operation.
fn unsupported<T>() -> Result<T, Fault> {
    Err(Fault::new("the contender does not support the operation"))
}

/// Declares a workload for each operation of a [`FiberContender`].
macro_rules! operations {
    ($($name:ident: $method:ident, $batch:literal, $id:literal, $what:literal,
        $floor:expr, ladder: $ladder:literal;)*) => {$(
        struct $name<F>(F);

        impl<F: FiberContender> $name<F> {
            /// Number of operations in a batch.
            const BATCH: u64 = if $batch < F::BATCH_MAX { $batch } else { F::BATCH_MAX };
        }

        impl<F: FiberContender> Workload for $name<F> {
            type Args = ();
            const SPEC: Spec = Spec { floor: $floor, ladder: $ladder, ..Spec::new($id, $what).batched() };

            fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
                let mut fibers = F::begin()?;
                fibers.$method(2)?; // allocates everything that is reused
                Ok($name(fibers))
            }

            fn self_test(&mut self) -> Result<(), Fault> {
                let ticks = self.0.$method(Self::BATCH)?;
                ensure(ticks > 0, || "the clock did not advance during the operation")
            }

            fn sample(&mut self, out: &mut Samples) {
                while out.is_running() {
                    // A failed operation yields no sample; self_test() has reported the fault.
                    let Ok(ticks) = self.0.$method(Self::BATCH) else { break };
                    out.record_batch(0, ticks, Self::BATCH);
                }
            }
        }
    )*};
}

operations! {
    Yields: time_yields, 4096, "fiber/yield",
        "switch between two fibers of one worker by yielding", None, ladder: false;
    YieldsAlone: time_yields_alone, 1024, "fiber/yield-alone",
        "yield of a fiber when no other fiber is ready", Some("floor/empty"), ladder: false;
    Spawns: time_spawns, 512, "fiber/spawn-join",
        "spawn, run and join of a fiber", None, ladder: true;
    Detaches: time_detached_spawns, 512, "fiber/spawn-detached",
        "spawn and run of a detached fiber", None, ladder: false;
    Hands: time_wakes, 1024, "fiber/eventual",
        "eventual set by one fiber and waited for by another fiber of the same worker", None, ladder: true;
    Locks: time_mutex_passes, 1024, "fiber/mutex",
        "mutex passed between two fibers that contend for it", None, ladder: false;
    Sleeps: time_sleeps, 4, "fiber/sleep", "sleep of 1 ms", None, ladder: false;
}

/// Pair of fibers or threads that wake each other, each on a CPU of its own.
pub(crate) trait AcrossContender: Sized + Send + 'static {
    /// Starts the contender; the first of the CPUs is that of the measured participant.
    fn begin_across(cpus: [u32; 2]) -> Result<Self, Fault>;

    /// Makes the pair wake each other alternately, `count` times in all. Returns the duration in
    /// clock ticks.
    fn time_wakes_across(&mut self, count: u64) -> Result<u64, Fault>;
}

/// Number of wake-ups in a batch of [`HandsAcross`].
const WAKES_ACROSS_COUNT: u64 = 1024;

/// Workload: a pair of fibers or threads on two CPUs that wake each other.
struct HandsAcross<F>(TakeCell<F>);

impl<F: AcrossContender> Handover for HandsAcross<F> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "fiber/eventual-across",
        "eventual set by one fiber and waited for by a fiber of another worker",
    )
    .hands_over()
    .batched();

    /// The contender itself starts what runs on the second participant's CPU.
    const ROLES: &'static [Role] = &[Role::measured("setter"), Role::serving("waiter")];

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let &[first, second] = setup.cpus() else {
            return Err(Fault::new("this benchmark has two participants"));
        };
        let mut fibers = F::begin_across([first, second])?;
        fibers.time_wakes_across(2)?; // allocates everything that is reused
        Ok(HandsAcross(TakeCell::new(fibers)))
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            return Ok(());
        }
        let mut fibers = self.0.take()?;
        while out.is_running() {
            let ticks = fibers.time_wakes_across(WAKES_ACROSS_COUNT)?;
            out.record_batch(0, ticks, WAKES_ACROSS_COUNT);
        }
        Ok(())
    }
}

args! {
    /// Arguments of the benchmark of many looping fibers.
    pub struct LoopingFibersArgs {
        /// Looping fibers, each of which spawns a sleeping fiber and waits for it (-n in the
        /// classic program).
        fibers_count: u32 = 100 (smoke 4, range 1..=20_000)
    }
}

/// Number of iterations of each loop in one sample.
const ITERATIONS_PER_SAMPLE: u64 = 8;

/// Workload: many fibers, each of which repeatedly spawns a fiber and waits for it. The spawned
/// fiber sleeps for 1 ms.
struct Loops<F> {
    fibers: F,
    fibers_count: u32,
}

impl<F: FiberContender> Workload for Loops<F> {
    type Args = LoopingFibersArgs;
    const SPEC: Spec = Spec::new(
        "fiber/loops",
        "loop of one of many fibers: spawn a fiber that sleeps 1 ms and sets an eventual, and wait for it",
    )
    .classic("abt-eventual-bench")
    .batched();

    fn setup(args: &LoopingFibersArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Loops { fibers: F::begin()?, fibers_count: args.fibers_count })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let ticks = self.fibers.time_loops(self.fibers_count, ITERATIONS_PER_SAMPLE)?;
        let ns = handover_base::clock::ns_from_ticks(ticks);
        ensure(ns >= ITERATIONS_PER_SAMPLE * 999_000, || {
            format!("{ITERATIONS_PER_SAMPLE} sleeps of 1 ms took only {ns} ns")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.set_concurrent_operations(F::loops_count(self.fibers_count).into());
        while out.is_running() {
            let (before, began) = (usage::process_usage(), Instant::now());
            let Ok(ticks) = self.fibers.time_loops(self.fibers_count, ITERATIONS_PER_SAMPLE) else {
                break;
            };
            // The workers' threads are not in the usage of the participant's thread.
            let cpus = (usage::process_usage() - before).cpu_ns() as f64
                / began.elapsed().as_nanos() as f64;
            out.add_to_counter("cpus", cpus * ITERATIONS_PER_SAMPLE as f64);
            out.record_batch(0, ticks, ITERATIONS_PER_SAMPLE);
        }
    }
}

/// All benchmarks of fibers. A fiber that waits for another fiber of the same thread waits for no
/// other participant.
pub const BENCHES: &[Bench] = benches! {
    one ours "handover": Yields<HandoverFibers>;
    one floor "corosensei": Yields<CoroutinePair<CorosenseiCoroutine>>;
    one peer "threads": Yields<OsThreads>;
    one peer "generator": Yields<CoroutinePair<peers::GeneratorCoroutine>>, if feature = "peers";
    one peer "tokio": Yields<peers::TokioTasks>, if feature = "peers";
    one peer "may": Yields<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover": YieldsAlone<HandoverFibers>;
    one peer "threads": YieldsAlone<OsThreads>;
    one peer "generator": YieldsAlone<CoroutinePair<peers::GeneratorCoroutine>>, if feature = "peers";
    one peer "tokio": YieldsAlone<peers::TokioTasks>, if feature = "peers";
    one peer "may": YieldsAlone<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover": Spawns<HandoverFibers>;
    one floor "corosensei": Spawns<CoroutinePair<CorosenseiCoroutine>>;
    one peer "threads" Sleep.allocates(): Spawns<OsThreads>;
    one peer "generator".allocates(): Spawns<CoroutinePair<peers::GeneratorCoroutine>>, if feature = "peers";
    one peer "tokio".allocates(): Spawns<peers::TokioTasks>, if feature = "peers";
    one peer "may".allocates(): Spawns<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover": Detaches<HandoverFibers>;
    one floor "corosensei": Detaches<CoroutinePair<CorosenseiCoroutine>>;
    one peer "threads" Spin.allocates(): Detaches<OsThreads>;
    one peer "tokio".allocates(): Detaches<peers::TokioTasks>, if feature = "peers";
    one peer "may".allocates(): Detaches<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover": Hands<HandoverFibers>;
    one floor "corosensei": Hands<CoroutinePair<CorosenseiCoroutine>>;
    one peer "tokio": Hands<peers::TokioTasks>, if feature = "peers";
    one peer "may": Hands<may::MayCoroutines>, if feature = "peers-may";
    many ours "handover" SpinThenSleep: HandsAcross<HandoverFibers>;
    many floor "cache-line" SpinThenSleep: HandsAcross<WordThreads>;
    many peer "threads" SpinThenSleep: HandsAcross<ChannelThreads>;
    one ours "handover": Locks<HandoverFibers>;
    one floor "corosensei": Locks<CoroutinePair<CorosenseiCoroutine>>;
    one peer "tokio": Locks<peers::TokioTasks>, if feature = "peers";
    one peer "may": Locks<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover" Sleep: Sleeps<HandoverFibers>;
    one floor "kernel" Sleep: Sleeps<KernelSleep>;
    one peer "threads" Sleep: Sleeps<OsThreads>;
    one peer "tokio" Sleep: Sleeps<peers::TokioTasks>, if feature = "peers";
    one peer "may" Sleep: Sleeps<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover" Sleep.allocates(): Loops<HandoverFibers>;
    one floor "kernel" Sleep: Loops<KernelSleep>;
    one peer "tokio" Sleep.allocates(): Loops<peers::TokioTasks>, if feature = "peers";
    one peer "may" Sleep.allocates(): Loops<may::MayCoroutines>, if feature = "peers-may";
    one ours "handover": parked::ParkedMemory<parked::ParkedFibers>;
    one peer "threads": parked::ParkedMemory<parked::ParkedThreads>;
    one peer "tokio": parked::ParkedMemory<parked::ParkedTasks>, if feature = "peers";
};
