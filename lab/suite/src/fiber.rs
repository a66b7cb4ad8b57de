//! Fibers: switched, spawned, woken, put to sleep; beside threads, tasks and bare coroutines.

mod contenders;
mod eventuals;
pub mod local;
mod parked;
#[cfg(feature = "peers")]
mod peers;

pub use eventuals::{EventualsError, Load, Turns, eventuals};

use contenders::{Bare, Kernel, Ours, Threads, Words};
use handover_base::usage;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Spec, Wait, args};
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
        $floor:expr, ladder: $ladder:literal;)*) => {$(
        $(#[$doc])*
        struct $name<F>(F, PhantomData<F>);

        impl<F: Fibers> Workload for $name<F> {
            type Args = ();
            const SPEC: Spec = Spec {
                id: $id,
                what: $what,
                floor: $floor,
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
        "of two fibers on one worker, one lets the other run", None, ladder: false;
    /// Nobody else can run.
    YieldsAlone: 1, yields_alone, 1024, "fiber/yield-alone",
        "a fiber would let others run, and there are none", Some("floor/empty"), ladder: false;
    /// Begun and waited for.
    Spawns: 1, spawns, 512, "fiber/spawn-join",
        "a fiber is spawned, runs, and is joined", None, ladder: true;
    /// Begun and left alone.
    Detaches: 1, detaches, 512, "fiber/spawn-detached",
        "a fiber is spawned and runs, and nobody asks", None, ladder: false;
    /// Woken on the same worker.
    Hands: 1, hands, 1024, "fiber/eventual",
        "on one worker, a fiber sets an eventual for which another has waited", None, ladder: true;
    /// Woken from another worker.
    HandsAcross: 2, hands, 1024, "fiber/eventual-across",
        "a fiber sets an eventual for which one on another worker has waited", None, ladder: false;
    /// A mutex given away.
    Locks: 1, locks, 1024, "fiber/mutex",
        "of two fibers that want a mutex, one gets it from the other", None, ladder: false;
    /// Asleep.
    Sleeps: 1, sleeps, 4, "fiber/sleep", "a sleep that is to last for 1 ms", None, ladder: false;
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

const OURS: Contender = Contender::ours("handover");
/// The switch between two stacks, and nothing that decides which is next.
const BARE: Contender = Contender::floor("corosensei");
const THREADS: Contender = Contender::peer("threads");
#[cfg(feature = "peers")]
const TOKIO: Contender = Contender::peer("tokio");
#[cfg(feature = "peers")]
const GENERATOR: Contender = Contender::peer("generator");
/// A sleep of the kernel's own.
const KERNEL: Contender = Contender::floor("kernel").waits(Wait::Sleep);
/// Two CPUs and a cache line.
const LINE: Contender = Contender::floor("cache-line").waits(Wait::SpinThenSleep);

/// The benchmarks of fibers. What waits on its own thread for another on it waits for no other participant.
pub const ALL: &[Bench] = &[
    Bench::one::<Yields<Ours>>(OURS),
    Bench::one::<Yields<Bare>>(BARE),
    Bench::one::<Yields<Threads>>(THREADS),
    #[cfg(feature = "peers")]
    Bench::one::<Yields<peers::Generators>>(GENERATOR),
    #[cfg(feature = "peers")]
    Bench::one::<Yields<peers::Tasks>>(TOKIO),
    Bench::one::<YieldsAlone<Ours>>(OURS),
    Bench::one::<YieldsAlone<Threads>>(THREADS),
    #[cfg(feature = "peers")]
    Bench::one::<YieldsAlone<peers::Generators>>(GENERATOR),
    #[cfg(feature = "peers")]
    Bench::one::<YieldsAlone<peers::Tasks>>(TOKIO),
    Bench::one::<Spawns<Ours>>(OURS),
    Bench::one::<Spawns<Bare>>(BARE),
    Bench::one::<Spawns<Threads>>(THREADS.waits(Wait::Sleep).allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Spawns<peers::Generators>>(GENERATOR.allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Spawns<peers::Tasks>>(TOKIO.allocates()),
    Bench::one::<Detaches<Ours>>(OURS),
    Bench::one::<Detaches<Bare>>(BARE),
    Bench::one::<Detaches<Threads>>(THREADS.waits(Wait::Spin).allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Detaches<peers::Tasks>>(TOKIO.allocates()),
    Bench::one::<Hands<Ours>>(OURS),
    Bench::one::<Hands<Bare>>(BARE),
    #[cfg(feature = "peers")]
    Bench::one::<Hands<peers::Tasks>>(TOKIO),
    Bench::one::<HandsAcross<Ours>>(OURS.waits(Wait::SpinThenSleep)),
    Bench::one::<HandsAcross<Words>>(LINE),
    Bench::one::<HandsAcross<Threads>>(THREADS.waits(Wait::SpinThenSleep)),
    Bench::one::<Locks<Ours>>(OURS),
    Bench::one::<Locks<Bare>>(BARE),
    #[cfg(feature = "peers")]
    Bench::one::<Locks<peers::Tasks>>(TOKIO),
    Bench::one::<Sleeps<Ours>>(OURS.waits(Wait::Sleep)),
    Bench::one::<Sleeps<Kernel>>(KERNEL),
    Bench::one::<Sleeps<Threads>>(THREADS.waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::one::<Sleeps<peers::Tasks>>(TOKIO.waits(Wait::Sleep)),
    Bench::one::<Loops<Ours>>(OURS.waits(Wait::Sleep).allocates()),
    Bench::one::<Loops<Kernel>>(KERNEL),
    #[cfg(feature = "peers")]
    Bench::one::<Loops<peers::Tasks>>(TOKIO.waits(Wait::Sleep).allocates()),
    parked::OURS,
    parked::THREADS,
    #[cfg(feature = "peers")]
    parked::TASKS,
];
