//! The memory of those who wait.

use super::contenders::fault;
use handover_fiber::{Config, Eventual, Runtime, spawn_detached, yield_now};
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Spec, Unit, args};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

args! {
    /// How many wait.
    pub struct Waiting {
        /// Fibers that wait at a time.
        fibers_count: u32 = 4096 (smoke 64, range 16..=1_000_000)
    }
}

/// By whom so many wait, and what of their memory is resident.
trait Parks: 'static {
    /// Resident bytes, page tables included, by which the process has grown when `count` wait.
    fn parked_bytes(count: u32) -> Result<u64, Fault>;
}

/// Resident memory and page tables of this process.
fn held_bytes() -> Result<u64, Fault> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(fault)?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    match (kib("VmRSS:"), kib("VmPTE:")) {
        (Some(resident), Some(tables)) => Ok((resident + tables) * 1024),
        _ => Err(Fault::new("/proc/self/status has no VmRSS or VmPTE")),
    }
}

struct Ours;

impl Parks for Ours {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        // Stacks of a size that nobody else uses, none of which has memory.
        let config = Config { stack_bytes: 48 << 10, ..Config::default() };
        Runtime::new(config.clone()).map_err(fault)?.trim();
        let runtime = Runtime::new(config).map_err(fault)?;
        let go = Arc::new(Eventual::<()>::new());
        let before = held_bytes()?;
        let waits = Arc::clone(&go);
        let spawns = runtime.spawn(move || {
            for _ in 0..count {
                let waits = Arc::clone(&waits);
                spawn_detached(move || waits.wait().to_owned())?;
            }
            yield_now(); // each runs until it waits
            Ok::<(), handover_fiber::SpawnError>(())
        });
        let spawned = spawns.map_err(fault)?.join().map_err(fault)?;
        let after = held_bytes();
        let _ = go.set(());
        runtime.shutdown();
        spawned.map_err(fault)?;
        Ok(after?.saturating_sub(before))
    }
}

struct Threads;

impl Parks for Threads {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        // They are dear: a part of them tells the same.
        let part = count.min(256);
        // The C library keeps the stacks of those that have ended, with their memory: larger ones are fresh.
        static ROUNDS_COUNT: AtomicUsize = AtomicUsize::new(0);
        let stack_bytes = (48 << 10) + (ROUNDS_COUNT.fetch_add(1, Relaxed) << 12);
        let before = held_bytes()?;
        let (told, tells) = mpsc::channel::<()>();
        let mut threads = Vec::new();
        for _ in 0..part {
            let told = told.clone();
            let waits = move || {
                let _ = told.send(());
                thread::park();
            };
            threads
                .push(thread::Builder::new().stack_size(stack_bytes).spawn(waits).map_err(fault)?);
        }
        tells.iter().take(part as usize).for_each(drop);
        let after = held_bytes();
        for thread in threads {
            thread.thread().unpark();
            thread.join().map_err(|_| Fault::new("a thread was lost"))?;
        }
        Ok(after?.saturating_sub(before) * u64::from(count) / u64::from(part))
    }
}

#[cfg(feature = "peers")]
struct Tasks;

#[cfg(feature = "peers")]
impl Parks for Tasks {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(fault)?;
        crate::raw::heap::trim(); // of what the last round's have left
        let before = held_bytes()?;
        let go = Arc::new(tokio::sync::Notify::new());
        let after = runtime.block_on(async {
            for _ in 0..count {
                let waits = Arc::clone(&go);
                drop(tokio::spawn(async move { waits.notified().await }));
            }
            tokio::task::yield_now().await; // each runs until it waits
            held_bytes()
        });
        go.notify_waiters();
        Ok(after?.saturating_sub(before))
    }
}

/// Many who wait.
struct Parked<P> {
    fibers_count: u32,
    parks: PhantomData<P>,
}

impl<P: Parks> Workload for Parked<P> {
    type Args = Waiting;
    const SPEC: Spec = Spec {
        id: "fiber/parked-bytes",
        what: "memory of one of many that wait, resident and in page tables",
        unit: Unit::Bytes,
        floor: Some("floor/word"),
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Waiting, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Parked { fibers_count: args.fibers_count, parks: PhantomData })
    }

    fn check(&mut self) -> Result<(), Fault> {
        P::parked_bytes(16).map(drop)
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.running() {
            // What could not be had is no sample; check() has told why.
            let Ok(bytes) = P::parked_bytes(self.fibers_count) else { break };
            out.tell(0, bytes as f64 / f64::from(self.fibers_count));
        }
    }
}

/// Memory.
pub(super) const OURS: Bench = Bench::one::<Parked<Ours>>(Contender::ours("handover"));
pub(super) const THREADS: Bench = Bench::one::<Parked<Threads>>(Contender::peer("threads"));
#[cfg(feature = "peers")]
pub(super) const TASKS: Bench = Bench::one::<Parked<Tasks>>(Contender::peer("tokio"));
