//! Fibers: switched, spawned, woken, put to sleep; beside threads, tasks and bare coroutines.

mod contenders;
mod eventuals;
pub mod local;
mod parked;
#[cfg(feature = "peers")]
mod peers;

pub use eventuals::{EventualsError, Load, Turns, eventuals};

use contenders::{Bare, Ours, Threads};
use handover_base::usage;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Spec, args};
use std::marker::PhantomData;
use std::time::Instant;

/// What is done, by whoever can. Each takes how often, and gives the clock ticks that it took.
pub(crate) trait Fibers: Sized + 'static {
    /// Begun on the CPU of the party that measures, unless two are needed.
    fn begin(workers_count: u32) -> Result<Self, Fault>;

    /// `count` times, one of two lets the other run.
    fn yields(&mut self, count: u64) -> Result<u64, Fault>;

    /// `count` times, one would let others run, and there are none.
    fn yields_alone(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `count` times, one is begun and its result waited for.
    fn spawns(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `count` times, one is begun that nobody waits for, and runs.
    fn detaches(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `count` times, one is woken by a value from another: half by either of two.
    fn hands(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `count` times, one of two that want a mutex gets it from the other.
    fn locks(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `count` times, one sleeps for 1 ms.
    fn sleeps(&mut self, _count: u64) -> Result<u64, Fault> {
        none()
    }

    /// `fibers` go round and round, each time beginning another that sleeps for 1 ms and then sets what it waits
    /// for; the time in which one of them went round `count` times.
    fn loops(&mut self, _fibers: u32, _count: u64) -> Result<u64, Fault> {
        none()
    }
}

/// What does not apply to a contender, which then is in no row of it.
fn none<T>() -> Result<T, Fault> {
    Err(Fault::new("it has nothing of the kind"))
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $workers:literal, $method:ident, $batch:literal, $id:literal, $what:literal,
        $floor:literal, ladder: $ladder:literal;)*) => {$(
        $(#[$doc])*
        struct $name<F>(F, PhantomData<F>);

        impl<F: Fibers> Workload for $name<F> {
            type Args = ();
            const SPEC: Spec = Spec {
                id: $id,
                what: $what,
                floor: Some($floor),
                ladder: $ladder,
                batched: true,
                file: file!(),
                line: line!(),
                ..Spec::DEFAULT
            };

            fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
                let mut fibers = F::begin($workers)?;
                fibers.$method(2)?; // whatever there is to make is made
                Ok($name(fibers, PhantomData))
            }

            fn check(&mut self) -> Result<(), Fault> {
                match self.0.$method($batch)? {
                    0 => Err(Fault::new("it took no time at all")),
                    _ => Ok(()),
                }
            }

            fn sample(&mut self, out: &mut Samples) {
                while out.running() {
                    // What could not be done is no sample; check() has told why.
                    let Ok(ticks) = self.0.$method($batch) else { break };
                    out.note_batch(0, ticks, $batch);
                }
            }
        }
    )*};
}

operations! {
    /// One lets the other run.
    Yields: 1, yields, 4096, "fiber/yield",
        "of two fibers on one worker, one lets the other run", "floor/empty", ladder: false;
    /// Nobody else can run.
    YieldsAlone: 1, yields_alone, 4096, "fiber/yield-alone",
        "a fiber would let others run, and there are none", "floor/empty", ladder: false;
    /// Begun and waited for.
    Spawns: 1, spawns, 512, "fiber/spawn-join",
        "a fiber is spawned, runs, and is joined", "floor/empty", ladder: true;
    /// Begun and left alone.
    Detaches: 1, detaches, 512, "fiber/spawn-detached",
        "a fiber is spawned and runs, and nobody asks", "floor/empty", ladder: false;
    /// Woken on the same worker.
    Hands: 1, hands, 1024, "fiber/eventual",
        "on one worker, a fiber sets an eventual for which another has waited", "floor/empty", ladder: true;
    /// Woken from another worker.
    HandsAcross: 2, hands, 1024, "fiber/eventual-across",
        "a fiber sets an eventual for which one on another worker has waited", "floor/cache-line", ladder: false;
    /// A mutex given away.
    Locks: 1, locks, 1024, "fiber/mutex",
        "of two fibers that want a mutex, one gets it from the other", "floor/empty", ladder: false;
    /// Asleep.
    Sleeps: 1, sleeps, 4, "fiber/sleep", "a sleep that is to last for 1 ms", "floor/empty", ladder: false;
}

args! {
    /// How many go round.
    pub struct Crowd {
        /// Fibers, each of which has another one asleep (the classic: -n).
        fibers_count: u32 = 100 (smoke 4, range 1..=20_000)
    }
}

const LOOPS: u64 = 8;

/// Many of them, for 1 ms each time.
struct Loops<F> {
    fibers: F,
    fibers_count: u32,
}

impl<F: Fibers> Workload for Loops<F> {
    type Args = Crowd;
    const SPEC: Spec = Spec {
        id: "fiber/loops",
        what: "one of many fibers spawns another that sleeps 1 ms and sets its eventual, and waits",
        floor: Some("floor/empty"),
        classic: Some("abt-eventual-bench"),
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Crowd, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Loops { fibers: F::begin(1)?, fibers_count: args.fibers_count })
    }

    fn check(&mut self) -> Result<(), Fault> {
        let ticks = self.fibers.loops(self.fibers_count, LOOPS)?;
        let ns = handover_base::clock::ns(ticks);
        if ns < LOOPS * 999_000 {
            return Err(Fault::new(format!("{LOOPS} sleeps of 1 ms in {ns} ns")));
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        out.abreast(self.fibers_count.into());
        while out.running() {
            let (before, began) = (usage::process(), Instant::now());
            let Ok(ticks) = self.fibers.loops(self.fibers_count, LOOPS) else { break };
            // The workers' threads are none of the party's own.
            let cpus =
                (usage::process() - before).cpu_ns() as f64 / began.elapsed().as_nanos() as f64;
            out.tally("cpus", cpus * LOOPS as f64);
            out.note_batch(0, ticks, LOOPS);
        }
    }
}

/// The benchmarks of fibers.
pub const ALL: &[Bench] = &[
    Bench::one::<Yields<Ours>>(Contender::ours("handover")),
    Bench::one::<Yields<Bare>>(Contender::floor("corosensei")),
    Bench::one::<Yields<Threads>>(Contender::peer("threads")),
    #[cfg(feature = "peers")]
    Bench::one::<Yields<peers::Generators>>(Contender::peer("generator")),
    #[cfg(feature = "peers")]
    Bench::one::<Yields<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<YieldsAlone<Ours>>(Contender::ours("handover")),
    Bench::one::<YieldsAlone<Bare>>(Contender::floor("corosensei")),
    Bench::one::<YieldsAlone<Threads>>(Contender::peer("threads")),
    #[cfg(feature = "peers")]
    Bench::one::<YieldsAlone<peers::Generators>>(Contender::peer("generator")),
    #[cfg(feature = "peers")]
    Bench::one::<YieldsAlone<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<Spawns<Ours>>(Contender::ours("handover")),
    Bench::one::<Spawns<Bare>>(Contender::floor("corosensei")),
    Bench::one::<Spawns<Threads>>(Contender::peer("threads")),
    #[cfg(feature = "peers")]
    Bench::one::<Spawns<peers::Generators>>(Contender::peer("generator")),
    #[cfg(feature = "peers")]
    Bench::one::<Spawns<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<Detaches<Ours>>(Contender::ours("handover")),
    Bench::one::<Detaches<Threads>>(Contender::peer("threads")),
    #[cfg(feature = "peers")]
    Bench::one::<Detaches<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<Hands<Ours>>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Hands<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<HandsAcross<Ours>>(Contender::ours("handover")),
    Bench::one::<HandsAcross<Threads>>(Contender::peer("threads")),
    Bench::one::<Locks<Ours>>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Locks<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<Sleeps<Ours>>(Contender::ours("handover")),
    Bench::one::<Sleeps<Threads>>(Contender::peer("threads")),
    #[cfg(feature = "peers")]
    Bench::one::<Sleeps<peers::Tasks>>(Contender::peer("tokio")),
    Bench::one::<Loops<Ours>>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Loops<peers::Tasks>>(Contender::peer("tokio")),
    parked::OURS,
    parked::THREADS,
    #[cfg(feature = "peers")]
    parked::TASKS,
];
