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

pub use eventuals::{EventualsError, EventualsReport, Load, eventuals};

use contenders::{Bare, CoroutinePair, Kernel, Ours, Threads, Words};
use handover_base::usage;
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::{Spec, args};
use std::marker::PhantomData;
use std::time::Instant;

/// Operations of fibers or their alternatives. Each runs a number of times and returns the clock ticks used.
pub(crate) trait Fibers: Sized + 'static {
    /// Sets the contender up, on the CPU of the measured participant unless two workers are needed.
    fn begin(workers_count: u32) -> Result<Self, Fault>;

    fn yields(&mut self, count: u64) -> Result<u64, Fault>;

    fn yields_alone(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    fn spawns(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Spawns a detached fiber that runs, `count` times.
    fn detaches(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Wakes a fiber by a value from another, `count` times: half of them by either of two.
    fn hands(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    fn locks(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    fn sleeps(&mut self, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }

    /// Runs `fibers` loops: each iteration spawns a fiber that sleeps for 1 ms and then sets the value that the loop
    /// waits for. Returns the time in which one of them makes `count` iterations.
    fn loops(&mut self, _fibers: u32, _count: u64) -> Result<u64, Fault> {
        unsupported()
    }
}

/// Returns the fault of an operation that a contender does not support, so that it is not listed for that operation.
fn unsupported<T>() -> Result<T, Fault> {
    Err(Fault::new("the contender does not support the operation"))
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $workers:literal, $method:ident, $batch:literal, $id:literal, $what:literal,
        $floor:expr, ladder: $ladder:literal;)*) => {$(
        $(#[$doc])*
        struct $name<F>(F, PhantomData<F>);

        impl<F: Fibers> Workload for $name<F> {
            type Args = ();
            const SPEC: Spec = Spec { floor: $floor, ladder: $ladder, ..Spec::new($id, $what).batched() };

            fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
                let mut fibers = F::begin($workers)?;
                fibers.$method(2)?; // allocates everything that is reused
                Ok($name(fibers, PhantomData))
            }

            fn check(&mut self) -> Result<(), Fault> {
                match self.0.$method($batch)? {
                    0 => Err(Fault::new("the operation took 0 clock ticks")),
                    _ => Ok(()),
                }
            }

            fn sample(&mut self, out: &mut Samples) {
                while out.running() {
                    // A failed operation yields no sample; check() has reported the fault.
                    let Ok(ticks) = self.0.$method($batch) else { break };
                    out.note_batch(0, ticks, $batch);
                }
            }
        }
    )*};
}

operations! {
    /// Workload: a fiber yields to another.
    Yields: 1, yields, 4096, "fiber/yield",
        "of two fibers on one worker, one lets the other run", None, ladder: false;
    /// Workload: a fiber yields, and no other can run.
    YieldsAlone: 1, yields_alone, 1024, "fiber/yield-alone",
        "a fiber would let others run, and there are none", Some("floor/empty"), ladder: false;
    /// Workload: a fiber is spawned and joined.
    Spawns: 1, spawns, 512, "fiber/spawn-join",
        "a fiber is spawned, runs, and is joined", None, ladder: true;
    /// Workload: a fiber is spawned and detached.
    Detaches: 1, detaches, 512, "fiber/spawn-detached",
        "a fiber is spawned and runs, and nobody asks", None, ladder: false;
    /// Workload: a fiber is woken on the same worker.
    Hands: 1, hands, 1024, "fiber/eventual",
        "on one worker, a fiber sets an eventual for which another has waited", None, ladder: true;
    /// Workload: a fiber is woken from another worker.
    HandsAcross: 2, hands, 1024, "fiber/eventual-across",
        "a fiber sets an eventual for which one on another worker has waited", None, ladder: false;
    /// Workload: a mutex is passed from one fiber to another.
    Locks: 1, locks, 1024, "fiber/mutex",
        "of two fibers that want a mutex, one gets it from the other", None, ladder: false;
    /// Workload: a fiber sleeps.
    Sleeps: 1, sleeps, 4, "fiber/sleep", "a sleep that is to last for 1 ms", None, ladder: false;
}

args! {
    /// Number of fibers.
    pub struct FibersCount {
        /// Fibers, each of which has another one asleep (the classic: -n).
        fibers_count: u32 = 100 (smoke 4, range 1..=20_000)
    }
}

const LOOPS: u64 = 8;

/// Workload: many fibers, each of which repeatedly waits 1 ms for another.
struct Loops<F> {
    fibers: F,
    fibers_count: u32,
}

impl<F: Fibers> Workload for Loops<F> {
    type Args = FibersCount;
    const SPEC: Spec = Spec::new(
        "fiber/loops",
        "one of many fibers spawns another that sleeps 1 ms and sets its eventual, and waits",
    )
    .classic("abt-eventual-bench")
    .batched();

    fn setup(args: &FibersCount, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Loops { fibers: F::begin(1)?, fibers_count: args.fibers_count })
    }

    fn check(&mut self) -> Result<(), Fault> {
        let ticks = self.fibers.loops(self.fibers_count, LOOPS)?;
        let ns = handover_base::clock::ns(ticks);
        if ns < LOOPS * 999_000 {
            return Err(Fault::new(format!("{LOOPS} sleeps of 1 ms took only {ns} ns")));
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        out.concurrent_operations(self.fibers_count.into());
        while out.running() {
            let (before, began) = (usage::process(), Instant::now());
            let Ok(ticks) = self.fibers.loops(self.fibers_count, LOOPS) else { break };
            // The workers' threads are not in the usage of the participant's thread.
            let cpus =
                (usage::process() - before).cpu_ns() as f64 / began.elapsed().as_nanos() as f64;
            out.tally("cpus", cpus * LOOPS as f64);
            out.note_batch(0, ticks, LOOPS);
        }
    }
}

/// The benchmarks of fibers. A fiber that waits for another on its own thread waits for no other
/// participant.
pub const ALL: &[Bench] = benches! {
    one ours "handover": Yields<Ours>;
    one floor "corosensei": Yields<CoroutinePair<Bare>>;
    one peer "threads": Yields<Threads>;
    one peer "generator": Yields<CoroutinePair<peers::Generated>>, if feature = "peers";
    one peer "tokio": Yields<peers::Tasks>, if feature = "peers";
    one peer "may": Yields<may::Coroutines>, if feature = "peers-may";
    one ours "handover": YieldsAlone<Ours>;
    one peer "threads": YieldsAlone<Threads>;
    one peer "generator": YieldsAlone<CoroutinePair<peers::Generated>>, if feature = "peers";
    one peer "tokio": YieldsAlone<peers::Tasks>, if feature = "peers";
    one peer "may": YieldsAlone<may::Coroutines>, if feature = "peers-may";
    one ours "handover": Spawns<Ours>;
    one floor "corosensei": Spawns<CoroutinePair<Bare>>;
    one peer "threads" Sleep.allocates(): Spawns<Threads>;
    one peer "generator".allocates(): Spawns<CoroutinePair<peers::Generated>>, if feature = "peers";
    one peer "tokio".allocates(): Spawns<peers::Tasks>, if feature = "peers";
    one peer "may".allocates(): Spawns<may::Coroutines>, if feature = "peers-may";
    one ours "handover": Detaches<Ours>;
    one floor "corosensei": Detaches<CoroutinePair<Bare>>;
    one peer "threads" Spin.allocates(): Detaches<Threads>;
    one peer "tokio".allocates(): Detaches<peers::Tasks>, if feature = "peers";
    one peer "may".allocates(): Detaches<may::Coroutines>, if feature = "peers-may";
    one ours "handover": Hands<Ours>;
    one floor "corosensei": Hands<CoroutinePair<Bare>>;
    one peer "tokio": Hands<peers::Tasks>, if feature = "peers";
    one peer "may": Hands<may::Coroutines>, if feature = "peers-may";
    one ours "handover" SpinThenSleep: HandsAcross<Ours>;
    one floor "cache-line" SpinThenSleep: HandsAcross<Words>;
    one peer "threads" SpinThenSleep: HandsAcross<Threads>;
    one ours "handover": Locks<Ours>;
    one floor "corosensei": Locks<CoroutinePair<Bare>>;
    one peer "tokio": Locks<peers::Tasks>, if feature = "peers";
    one peer "may": Locks<may::Coroutines>, if feature = "peers-may";
    one ours "handover" Sleep: Sleeps<Ours>;
    one floor "kernel" Sleep: Sleeps<Kernel>;
    one peer "threads" Sleep: Sleeps<Threads>;
    one peer "tokio" Sleep: Sleeps<peers::Tasks>, if feature = "peers";
    one peer "may" Sleep: Sleeps<may::Coroutines>, if feature = "peers-may";
    one ours "handover" Sleep.allocates(): Loops<Ours>;
    one floor "kernel" Sleep: Loops<Kernel>;
    one peer "tokio" Sleep.allocates(): Loops<peers::Tasks>, if feature = "peers";
    one peer "may" Sleep.allocates(): Loops<may::Coroutines>, if feature = "peers-may";
    one ours "handover": parked::Parked<parked::Ours>;
    one peer "threads": parked::Parked<parked::Threads>;
    one peer "tokio": parked::Parked<parked::Tasks>, if feature = "peers";
};
