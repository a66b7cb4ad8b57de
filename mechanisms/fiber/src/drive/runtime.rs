//! Runtimes: starting and stopping workers, statistics.

use super::handle::{Handle, Pool};
use super::spawn::{JoinHandle, drop_unclaimed_result};
use super::state::RuntimeState;
use super::worker::Worker;
use crate::raw::{
    GuardKind, WorkerOwner, install_fault_handler, set_timer_slack_1_ns, this_worker,
    with_this_worker,
};
use crate::{Config, SpawnError, StartError};
use handover_base::affinity;
use handover_base::sync::shared::{Ordering, fence};
use handover_base::unwind::drop_payload;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, SendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Set of worker threads that run fibers.
///
/// Dropping a runtime waits until all its fibers have finished, as [`shutdown`](Self::shutdown)
/// does; during unwinding it [abandons](Self::abandon) the runtime instead.
///
/// ```
/// use handover_fiber::{Config, Runtime, spawn};
/// let runtime = Runtime::new(Config::workers(2))?;
/// let sum = runtime.spawn(|| {
///     let parts: Vec<_> = (0..10u64).map(|i| spawn(move || i * i).unwrap()).collect();
///     parts.into_iter().map(|part| part.join().unwrap()).sum::<u64>()
/// })?;
/// assert_eq!(sum.join()?, 285);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime {
    shared: Arc<RuntimeState>,
    threads: Vec<WorkerThread>,
}

/// Thread of a worker.
struct WorkerThread {
    thread: thread::JoinHandle<()>,
    /// Result of a worker that has stopped, and whose thread does not end because fibers remain.
    /// Disconnected if the thread ends. The mutex makes it `Sync`, and is never locked.
    stopped: Mutex<mpsc::Receiver<thread::Result<()>>>,
}

/// Statistics of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Number of fibers spawned since the start of the runtime.
    pub spawned_count: u64,
    /// Number of fibers that have not finished.
    pub alive_count: u64,
    /// Number of fibers that panicked. A panic in the waker of a task that awaits a fiber also
    /// counts.
    pub panicked_count: u64,
    /// Number of switches to fibers. A yield counts even if no other fiber was ready.
    pub switches_count: u64,
    /// Number of times that idle workers went to sleep, including sleeps cancelled at the last
    /// moment.
    pub parks_count: u64,
    /// Number of fibers that workers have stolen from each other. A fiber that was stolen twice
    /// counts twice.
    pub stolen_count: u64,
    /// Number of stacks of this runtime's stack size in the process. All runtimes of the process
    /// share them.
    pub stacks_count: usize,
    /// Largest number of bytes used on any stack of this runtime's stack size. It is a multiple of
    /// the page size.
    pub stack_high_water_bytes: usize,
    /// Resident memory, in bytes, of all stacks of this runtime's stack size in the process.
    pub stacks_resident_bytes: usize,
    /// `true` if each stack guard is a memory mapping of its own. `vm.max_map_count` then limits
    /// the number of stacks.
    pub has_mapped_guards: bool,
}

impl Runtime {
    /// Creates a runtime and starts its workers.
    ///
    /// # Errors
    /// [`StartError`]: the configuration is not valid, a thread could not be started, or a worker
    /// could not be pinned.
    ///
    /// # Cost
    /// Starts a thread for each worker, and calibrates the clock at the first call in a process.
    pub fn new(config: Config) -> Result<Self, StartError> {
        Self::start_workers(config, false)
    }

    /// Creates a runtime, and starts its workers; they also steal suspended fibers if
    /// `can_steal_suspended`.
    pub(crate) fn start_workers(
        config: Config,
        can_steal_suspended: bool,
    ) -> Result<Self, StartError> {
        config.validate()?;
        config.spin.validate()?;
        let workers_count = config.workers_count;
        let cpus = config.cpus.clone();
        let mut runtime =
            Self { shared: RuntimeState::new(config, can_steal_suspended), threads: Vec::new() };
        for worker in 0..workers_count {
            let cpu = cpus.get(worker as usize).copied();
            if let Err(error) = runtime.start_worker(worker, cpu) {
                runtime.stop_and_join();
                return Err(error);
            }
        }
        Ok(runtime)
    }

    /// Starts the thread of one worker, pinned to `cpu` if it is given.
    fn start_worker(&mut self, worker: u32, cpu: Option<u32>) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = mpsc::sync_channel(1);
        let (stopped_sender, stopped) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("fiber-{worker}"))
            .spawn(move || {
                let pinned = cpu.map_or(Ok(()), affinity::pin);
                let is_ok = pinned.is_ok();
                let _ = sender.send(pinned);
                if is_ok {
                    worker_main(shared, worker, &stopped_sender);
                }
            })
            .map_err(|error| StartError::Thread { worker, error })?;
        self.threads.push(WorkerThread { thread, stopped: Mutex::new(stopped) });
        match receiver.recv() {
            Ok(pinned) => pinned.map_err(|error| StartError::Pin { worker, error }),
            Err(mpsc::RecvError) => Ok(()), // the worker panicked, which join() will report
        }
    }

    /// Returns a handle for spawning fibers from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Spawns a fiber in the first pool and returns a handle of it. Successive spawns rotate
    /// through the workers.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.handle().spawn(f)
    }

    /// Spawns a fiber as [`spawn`](Self::spawn) does, without a handle for its result.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn_detached<F, T>(&self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.handle().spawn_detached(f)
    }

    /// Returns the pool called `name`; `None` if there is none.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<Pool> {
        self.shared.pools.iter().position(|pool| pool.name == name).map(|index| Pool { index })
    }

    /// Returns statistics of the runtime and its stacks.
    ///
    /// # Cost
    /// A system call for each stack, to find its resident pages.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let alive_count = shared.alive_count();
        // Relaxed: independent counters.
        let outside = shared.spawned_outside.load(Ordering::Relaxed);
        let mut stats = Stats { alive_count, spawned_count: outside, ..Stats::default() };
        for worker in &shared.workers {
            let counters = &worker.counters;
            // Relaxed: independent counters.
            stats.spawned_count += counters.counts.spawned_count();
            stats.panicked_count += counters.panicked.load(Ordering::Relaxed);
            stats.switches_count += counters.switches.load(Ordering::Relaxed);
            stats.parks_count += counters.parks.load(Ordering::Relaxed);
            stats.stolen_count += counters.stolen.load(Ordering::Relaxed);
        }
        let pool_stats = shared.stacks.stats();
        stats.stacks_count = pool_stats.stacks_count;
        stats.stack_high_water_bytes = pool_stats.high_water_bytes;
        stats.stacks_resident_bytes = pool_stats.resident_bytes;
        stats.has_mapped_guards = shared.stacks.guard_kind() == Some(GuardKind::Mapping);
        stats
    }

    /// Gives the memory of free stacks back to the kernel; returns the number of free stacks.
    /// Stacks that running workers cache for reuse are not included.
    pub fn trim(&self) -> usize {
        self.shared.stacks.trim()
    }

    /// Waits until all fibers have finished, and stops the workers. From the call on, only fibers
    /// can spawn fibers.
    ///
    /// # Blocking
    /// Blocks the calling thread, which must not be a fiber of this runtime; for ever if a fiber
    /// never ends.
    ///
    /// # Panics
    /// Panics if a fiber of this runtime calls, or if a worker panicked. A worker panics if it
    /// cannot wait for descriptors, because the program has closed the worker's own, or because of
    /// a bug in this crate. The runtime is [abandoned](Self::abandon) at that moment.
    pub fn shutdown(mut self) {
        self.join_workers();
    }

    /// Stops the workers as soon as their current fibers suspend themselves, without waiting for
    /// other fibers. Fibers that have not finished never run again: their values are never dropped,
    /// and their stacks are not reused. A worker that stops while any fiber of the runtime has not
    /// finished keeps its thread. The thread then sleeps for ever instead of ending, as
    /// thread-local variables that such fibers borrow must not be dropped.
    pub fn abandon(mut self) {
        self.abandon_workers();
    }

    /// Stops the workers once their current fibers suspend themselves, without waiting for the
    /// workers.
    fn abandon_workers(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.threads.clear();
        stop_and_leak(&self.shared);
    }

    /// Stops the workers once their current fibers suspend themselves, and waits for the workers.
    fn stop_and_join(&mut self) {
        // Relaxed: the wake-up that follows publishes it.
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.join_workers();
    }

    /// Waits until all fibers have finished and the workers have stopped.
    fn join_workers(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let is_own =
            this_worker().is_some_and(|worker| Arc::ptr_eq(worker.runtime_state(), &self.shared));
        assert!(
            !is_own,
            "deadlock: a fiber called shutdown() on the runtime that runs it, or dropped that runtime"
        );
        begin_closing(&self.shared);
        for worker in std::mem::take(&mut self.threads) {
            if let Err(panic) = worker.wait_until_stopped()
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

impl WorkerThread {
    /// Waits until the worker has stopped, and returns the payload of its panic as the error.
    fn wait_until_stopped(self) -> thread::Result<()> {
        match self.stopped.into_inner().unwrap_or_else(PoisonError::into_inner).recv() {
            Ok(outcome) => outcome,
            Err(mpsc::RecvError) => self.thread.join(),
        }
    }
}

/// Rejects further spawns by threads other than the workers; the workers stop when all fibers have
/// finished.
fn begin_closing(shared: &RuntimeState) {
    // SeqCst: pairs with the SeqCst accesses in spawn_in(), which counts a fiber and then reads
    // this flag.
    shared.is_closing.store(true, Ordering::SeqCst);
    shared.wake_workers();
}

/// Stops the workers once their current fibers suspend themselves, and leaks the shared state,
/// because fibers that have not finished remain.
fn stop_and_leak(shared: &Arc<RuntimeState>) {
    begin_closing(shared);
    // Leaked on purpose: a thread that wakes one of the remaining fibers accesses its worker's
    // state.
    std::mem::forget(Arc::clone(shared));
    // Relaxed: the Release below publishes it.
    shared.is_abandoned.store(true, Ordering::Relaxed);
    // Release: pairs with the fence in worker_main().
    shared.is_stopped.store(true, Ordering::Release);
    shared.wake_workers();
}

/// Main function of a worker's thread. Does not return if the runtime was abandoned and fibers
/// remain; it then passes the result of the worker to `stopped`.
fn worker_main(
    shared: Arc<RuntimeState>,
    index: u32,
    stopped: &mpsc::SyncSender<thread::Result<()>>,
) {
    install_fault_handler();
    set_timer_slack_1_ns();
    let outcome = run_worker(&shared, index);
    // Acquire: pairs with the Release in stop_and_leak(), if the worker has read its store.
    fence(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    if shared.is_abandoned.load(Ordering::Relaxed) && shared.alive_count() != 0 {
        if let Err(SendError(Err(panic))) = stopped.send(outcome) {
            drop_payload(panic); // nobody waits
        }
        // The frames of suspended fibers may borrow this thread's thread-local variables.
        loop {
            thread::park();
        }
    }
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Runs a worker until it stops; returns the payload of its panic as the error.
fn run_worker(shared: &Arc<RuntimeState>, index: u32) -> thread::Result<()> {
    let Some(owner) = WorkerOwner::claim(Arc::clone(shared), index as usize) else { return Ok(()) };
    let Some(worker) = Worker::new(owner, index) else { return Ok(()) };
    let run = || with_this_worker(&worker, || worker.run(drop_unclaimed_result));
    // Fibers of this worker may remain, for which the other workers would wait.
    catch_unwind(AssertUnwindSafe(run)).inspect_err(|_| stop_and_leak(shared))
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if thread::panicking() { self.abandon_workers() } else { self.join_workers() }
    }
}

handover_base::debug_struct!(Runtime as it { workers: it.threads.len() });
