//! Workers as a whole: begun, asked, ended.

use super::post::Shared;
use super::spawn::{JoinHandle, Plan, spawn_in};
use super::worker::Worker;
use crate::raw::{self, Guards, Place};
use crate::{Config, SpawnError, StartError};
use handover_base::affinity;
use handover_base::sync::shared::Ordering;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;

/// Threads that run fibers.
///
/// Dropped, it waits until all its fibers have ended, as [`shutdown`](Self::shutdown) does; but not while
/// unwinding: then it is [abandoned](Self::abandon).
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
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// A runtime, to spawn in from anywhere; whoever has one does not keep the runtime from ending.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// A pool of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    pub(super) index: usize,
}

/// What a runtime has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Fibers spawned so far.
    pub spawned_count: u64,
    /// Of which so many are not over yet.
    pub alive_count: u64,
    /// So many ended by panicking.
    pub panicked_count: u64,
    /// How often a worker switched to a fiber.
    pub switches_count: u64,
    /// How often a worker went to sleep.
    pub parks_count: u64,
    /// How many fibers were taken by another worker.
    pub stolen_count: u64,
    /// Stacks of this size that the process has made; all its runtimes share them.
    pub stacks_count: usize,
    /// The most that any of them used, in whole pages.
    pub stack_high_water_bytes: usize,
    /// The memory that they take up.
    pub stacks_resident_bytes: usize,
    /// Whether the stacks' guards take a mapping each, so that `vm.max_map_count` bounds how many there can be.
    pub guards_are_mappings: bool,
}

impl Runtime {
    /// Starts the workers.
    ///
    /// # Errors
    /// [`StartError`]: the configuration is not valid, or the kernel gave no thread, or not the CPU.
    ///
    /// # Cost
    /// A thread for each worker, and the first time in a process that of calibrating the clock.
    pub fn new(config: Config) -> Result<Self, StartError> {
        Self::start_all(config, false)
    }

    pub(crate) fn start_all(config: Config, steals_suspended: bool) -> Result<Self, StartError> {
        config.validate()?;
        config.spin.validate()?;
        let workers_count = config.workers_count;
        let cpus = config.cpus.clone();
        let mut runtime =
            Self { shared: Shared::new(config, steals_suspended), threads: Vec::new() };
        for worker in 0..workers_count {
            let cpu = cpus.get(worker as usize).copied();
            if let Err(error) = runtime.start(worker, cpu) {
                runtime.stop();
                return Err(error);
            }
        }
        Ok(runtime)
    }

    fn start(&mut self, worker: u32, cpu: Option<u32>) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let (tell, told) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("fiber-{worker}"))
            .spawn(move || {
                let pinned = cpu.map_or(Ok(()), affinity::pin);
                let is_fine = pinned.is_ok();
                let _ = tell.send(pinned);
                if is_fine {
                    work(shared, worker);
                }
            })
            .map_err(|source| StartError::Thread { worker, source })?;
        self.threads.push(thread);
        match told.recv() {
            Ok(pinned) => pinned.map_err(|source| StartError::Pin { worker, source }),
            Err(mpsc::RecvError) => Ok(()), // it panicked, which join() will tell
        }
    }

    /// To spawn from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Spawns a fiber in the first pool, on the worker whose turn it is.
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

    /// The same, of a fiber for whose result nobody will ask.
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

    /// The pool of that name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<Pool> {
        self.shared.pools.iter().position(|pool| pool.name == name).map(|index| Pool { index })
    }

    /// What was done so far, and what is held now.
    ///
    /// # Cost
    /// A system call for each stack: it looks which pages are there.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let alive_count = shared.alive_count();
        // Relaxed: each for itself.
        let outside = shared.spawned_outside.load(Ordering::Relaxed);
        let mut stats = Stats { alive_count, spawned_count: outside, ..Stats::default() };
        for post in &shared.posts {
            let counters = &post.counters;
            // Relaxed: as above.
            stats.spawned_count += counters.tally.spawned_count();
            stats.panicked_count += counters.panicked.load(Ordering::Relaxed);
            stats.switches_count += counters.switches.load(Ordering::Relaxed);
            stats.parks_count += counters.parks.load(Ordering::Relaxed);
            stats.stolen_count += counters.stolen.load(Ordering::Relaxed);
        }
        let holding = shared.stacks.holding();
        stats.stacks_count = holding.stacks_count;
        stats.stack_high_water_bytes = holding.high_water_bytes;
        stats.stacks_resident_bytes = holding.resident_bytes;
        stats.guards_are_mappings = shared.stacks.guards() == Some(Guards::Mapped);
        stats
    }

    /// Gives the memory of stacks that no worker holds back to the kernel; how many stacks that were. Those of a
    /// runtime that has ended are held by none.
    pub fn trim(&self) -> usize {
        self.shared.stacks.trim()
    }

    /// Waits until all fibers have ended, and ends the workers. New ones can be spawned by fibers alone.
    ///
    /// # Blocking
    /// The thread that calls, which must not be a fiber of this runtime; for ever if a fiber waits for what
    /// never comes.
    ///
    /// # Panics
    /// If a fiber of this runtime calls, or a worker panicked, which would be a fault of this crate.
    pub fn shutdown(mut self) {
        self.end();
    }

    /// Ends the workers as soon as their fibers suspend themselves, and waits for nobody. Fibers that are not
    /// over never go on: what they own is never dropped, and their stacks stay as they are.
    pub fn abandon(mut self) {
        self.let_go();
    }

    fn let_go(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.threads.clear();
        self.close();
        // Whoever wakes one of the fibers that are left will find its post.
        std::mem::forget(Arc::clone(&self.shared));
        // Relaxed: the ring publishes it.
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.ring_all();
    }

    fn close(&self) {
        // SeqCst: against who spawns from outside, which counts and then looks at this.
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.ring_all();
    }

    fn stop(&mut self) {
        // Relaxed: the ring publishes it.
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.end();
    }

    fn end(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let is_own =
            raw::current().is_some_and(|worker| Arc::ptr_eq(worker.shared(), &self.shared));
        assert!(!is_own, "a fiber must not wait for the end of its own runtime");
        self.close();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// A worker's thread.
fn work(shared: Arc<Shared>, index: u32) {
    raw::arm();
    raw::slack_to_1_ns();
    let Some(place) = Place::take(shared, index as usize) else { return };
    let Some(worker) = Worker::new(place, index) else { return };
    raw::enter(&worker, || worker.run());
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if thread::panicking() { self.let_go() } else { self.end() }
    }
}

impl Handle {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// As [`Runtime::spawn`].
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        super::Builder::new().spawn_on(self, f)
    }

    /// As [`Runtime::spawn_detached`].
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn_detached<F, T>(&self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_in(&self.shared, &Plan::default(), f, false).map(drop)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("workers", &self.shared.posts.len()).finish_non_exhaustive()
    }
}
