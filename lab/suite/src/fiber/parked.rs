//! Memory of waiting fibers, threads and tasks.

use handover_fiber::{Config, Eventual, Runtime, spawn_detached, yield_now};
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::{Spec, Unit, args};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

args! {
    /// Arguments of the benchmark of waiting fibers' memory.
    pub struct WaitingFibersArgs {
        /// Waiting fibers.
        fibers_count: u32 = 4096 (smoke 64, range 16..=1_000_000)
    }
}

/// Contender that can create many waiting fibers, tasks or threads.
pub(super) trait ParkingContender: 'static {
    /// Creates `count` waiting fibers or threads; returns the memory that they use, in bytes. This
    /// is the growth of the process's resident memory, page tables included.
    fn parked_bytes(count: u32) -> Result<u64, Fault>;
}

/// Returns the size of this process's resident memory and page tables, in bytes.
fn resident_bytes() -> Result<u64, Fault> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    match (kib("VmRSS:"), kib("VmPTE:")) {
        (Some(resident), Some(tables)) => Ok((resident + tables) * 1024),
        _ => Err(Fault::new("/proc/self/status has no VmRSS or VmPTE")),
    }
}

/// Contender: fibers of this project's runtime, each of which waits for an eventual.
pub(super) struct ParkedFibers;

impl ParkingContender for ParkedFibers {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        // A stack size that nothing else uses, so that no cached stack has memory.
        let config = Config::default().stack_bytes(48 << 10);
        Runtime::new(config.clone()).map_err(Fault::from_error)?.trim();
        let runtime = Runtime::new(config).map_err(Fault::from_error)?;
        let go = Arc::new(Eventual::<()>::new());
        let before = resident_bytes()?;
        let waits = Arc::clone(&go);
        let spawns = runtime.spawn(move || {
            for _ in 0..count {
                let waits = Arc::clone(&waits);
                spawn_detached(move || waits.wait().to_owned())?;
            }
            yield_now(); // each runs until it waits
            Ok::<(), handover_fiber::SpawnError>(())
        });
        let spawned = spawns.map_err(Fault::from_error)?.join().map_err(Fault::from_error)?;
        let after = resident_bytes();
        let _ = go.set(());
        runtime.shutdown();
        spawned.map_err(Fault::from_error)?;
        Ok(after?.saturating_sub(before))
    }
}

/// Compared implementation: threads of the operating system, each of which waits to be unparked.
pub(super) struct ParkedThreads;

impl ParkingContender for ParkedThreads {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        // Threads are expensive: a part of them gives the same figure.
        let part = count.min(256);
        // The C library keeps the stacks of ended threads, with their memory; a larger size makes
        // new stacks.
        static ROUNDS_COUNT: AtomicUsize = AtomicUsize::new(0);
        let stack_bytes = (48 << 10) + (ROUNDS_COUNT.fetch_add(1, Relaxed) << 12);
        let before = resident_bytes()?;
        let (started, starts) = mpsc::channel::<()>();
        let (mut threads, mut refused) = (Vec::new(), None);
        while threads.len() < part as usize && refused.is_none() {
            let started = started.clone();
            let waits = move || {
                let _ = started.send(());
                thread::park();
            };
            match thread::Builder::new().stack_size(stack_bytes).spawn(waits) {
                Ok(thread) => threads.push(thread),
                Err(error) => refused = Some(error),
            }
        }
        starts.iter().take(threads.len()).for_each(drop);
        let after = resident_bytes();
        for thread in threads {
            thread.thread().unpark();
            thread.join().map_err(|_| Fault::new("a parked thread panicked"))?;
        }
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        Ok(after?.saturating_sub(before) * u64::from(count) / u64::from(part))
    }
}

/// Compared implementation: tasks of tokio, each of which waits for a notification.
#[cfg(feature = "peers")]
pub(super) struct ParkedTasks;

#[cfg(feature = "peers")]
impl ParkingContender for ParkedTasks {
    fn parked_bytes(count: u32) -> Result<u64, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        crate::raw::library::trim_heap(); // frees memory left by the last round
        let before = resident_bytes()?;
        let go = Arc::new(tokio::sync::Notify::new());
        let after = runtime.block_on(async {
            for _ in 0..count {
                let waits = Arc::clone(&go);
                drop(tokio::spawn(async move { waits.notified().await }));
            }
            tokio::task::yield_now().await; // each runs until it waits
            resident_bytes()
        });
        go.notify_waiters();
        Ok(after?.saturating_sub(before))
    }
}

/// Workload: the memory of waiting fibers, tasks or threads.
pub(super) struct ParkedMemory<P> {
    fibers_count: u32,
    contender: PhantomData<P>,
}

impl<P: ParkingContender> Workload for ParkedMemory<P> {
    type Args = WaitingFibersArgs;
    const SPEC: Spec = Spec::new(
        "fiber/parked-bytes",
        "memory of one of many waiting fibers, resident and in page tables",
    )
    .unit(Unit::Bytes)
    .floor("floor/word");

    fn setup(args: &WaitingFibersArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(ParkedMemory { fibers_count: args.fibers_count, contender: PhantomData })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        P::parked_bytes(16).map(drop)
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            // A failed operation yields no sample; self_test() has reported the fault.
            let Ok(bytes) = P::parked_bytes(self.fibers_count) else { break };
            out.record_value(0, bytes as f64 / f64::from(self.fibers_count));
        }
    }
}
