//! The state of a worker that other threads access, and the state that all workers share.

use crate::engine::ReadyQueue;
use crate::engine::counts::{self, FiberCounts};
use crate::engine::offers::{IdleCount, Offers};
use crate::raw::{BiasedLock, Inbox, Runnable, StackPool};
use crate::{Config, Stealing};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use handover_notify::Unparker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};

/// State of a worker that other threads access. It includes the inbox, and the run queue from which
/// they steal fibers.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) inbox: CachePadded<Inbox<Runnable>>,
    /// Object through which other threads wake the worker.
    pub(crate) unparker: Unparker,
    /// Eventfd that wakes the worker while it waits for descriptors.
    interrupt: OnceLock<OwnedFd>,
    pub(crate) queue: CachePadded<BiasedLock<ReadyQueue>>,
    /// Announcements to the other workers: fibers that they may steal, and that this worker is
    /// idle.
    pub(crate) offers: Offers,
    pub(crate) counters: CachePadded<WorkerCounters>,
    /// `true` once a worker thread has claimed this state.
    is_claimed: AtomicBool,
    runtime: Weak<RuntimeState>,
}

/// Statistics of a worker, written by that worker only.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    /// Numbers of fibers spawned and finished.
    pub(crate) counts: FiberCounts,
    /// Number of fibers that panicked on the worker. A panic in the waker of a task that awaits a
    /// fiber also counts.
    pub(crate) panicked: AtomicU64,
    /// Number of switches to fibers, including yields while no other fiber was ready.
    pub(crate) switches: AtomicU64,
    /// Number of times that the worker went to sleep, including sleeps cancelled at the last
    /// moment.
    pub(crate) parks: AtomicU64,
    /// Number of fibers that the worker has stolen from other workers.
    pub(crate) stolen: AtomicU64,
}

/// Adds `count` to a counter that no other thread writes.
#[inline]
pub(crate) fn add_to_counter(counter: &AtomicU64, count: u64) {
    // Relaxed: a statistic.
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl WorkerState {
    pub(crate) fn new(runtime: Weak<RuntimeState>) -> Self {
        Self {
            inbox: CachePadded::default(),
            unparker: Unparker::new(),
            interrupt: OnceLock::new(),
            queue: CachePadded::new(BiasedLock::new(ReadyQueue::new())),
            offers: Offers::default(),
            counters: CachePadded::default(),
            is_claimed: AtomicBool::new(false),
            runtime,
        }
    }

    /// Claims this state for a worker thread; returns `true` to the first caller only.
    pub(crate) fn claim_ownership(&self) -> bool {
        // Relaxed: later callers are only turned away.
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }

    /// Wakes the worker if it sleeps; called after work for it was published.
    #[inline]
    pub(crate) fn unpark(&self) {
        self.unparker.unpark_with(|| self.interrupt_wait());
    }

    /// Ends the worker's wait for descriptors.
    #[cold]
    fn interrupt_wait(&self) {
        // Acquire: pairs with the fence in interrupt_descriptor(), by the unparker's word: it says
        // that the worker sleeps there, which it does only after that fence.
        fence(Ordering::Acquire);
        let interrupt =
            self.interrupt.get().expect("no eventfd, though the worker waits for descriptors");
        // It fails only if the count is at its maximum, which makes the descriptor readable as
        // well.
        let _ = retry_on_intr(|| rustix::io::write(interrupt, &1u64.to_ne_bytes()));
    }

    /// Returns the eventfd by which [`unpark`](Self::unpark) ends a wait for descriptors; creates
    /// it at the first call. Called by the worker, seldom.
    pub(crate) fn interrupt_descriptor(&self) -> io::Result<&OwnedFd> {
        // Closed at once if the worker has created one before.
        let created = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let interrupt = self.interrupt.get_or_init(|| created);
        // Release: pairs with the fence in interrupt_wait().
        fence(Ordering::Release);
        Ok(interrupt)
    }

    /// Returns a reference that keeps the runtime alive; `None` if the runtime was dropped.
    pub(crate) fn upgrade_runtime(&self) -> Option<Arc<RuntimeState>> {
        self.runtime.upgrade()
    }

    /// Returns `true` if the worker is one of this runtime.
    #[inline]
    pub(crate) fn belongs_to(&self, shared: &Arc<RuntimeState>) -> bool {
        std::ptr::eq(self.runtime.as_ptr(), Arc::as_ptr(shared))
    }
}

/// State of a runtime, shared by its workers and handles.
#[derive(Debug)]
pub(crate) struct RuntimeState {
    pub(crate) workers: Box<[WorkerState]>,
    pub(crate) pools: Box<[ResolvedPool]>,
    pub(crate) config: Config,
    /// `true` if idle workers may also steal suspended fibers.
    pub(crate) can_steal_suspended: bool,
    pub(crate) stacks: &'static StackPool,
    /// `true` if only workers can still spawn fibers. The workers stop when all fibers have
    /// finished.
    pub(crate) is_closing: AtomicBool,
    /// `true` if the workers stop as soon as their current fiber suspends itself.
    pub(crate) is_stopped: AtomicBool,
    /// `true` if the workers stop although fibers may remain; set before `is_stopped`.
    pub(crate) is_abandoned: AtomicBool,
    /// Number of fibers spawned by threads other than the workers.
    pub(crate) spawned_outside: AtomicU64,
    pub(crate) idle_count: IdleCount,
}

/// Validated configuration of a pool, with its workers as a list and as a table.
#[derive(Debug)]
pub(crate) struct ResolvedPool {
    pub(crate) name: String,
    /// Priority level; level 0 is the most urgent.
    pub(crate) level: u8,
    /// Index of the pool, below 2^16, as Config::validate() has checked.
    pub(crate) index: u16,
    /// Indices of the workers that serve the pool; never empty.
    workers: Box<[u32]>,
    /// For each worker: `true` if it serves the pool.
    serves: Box<[bool]>,
    /// Number of calls of [`next_worker_index`](Self::next_worker_index) so far.
    turns_count: AtomicU32,
}

impl RuntimeState {
    pub(crate) fn new(config: Config, can_steal_suspended: bool) -> Arc<Self> {
        let all: Vec<u32> = (0..config.workers_count).collect();
        let pools = config.pools.iter().zip(0..=u16::MAX).map(|(pool, index)| {
            let workers = if pool.workers.is_empty() { &all } else { &pool.workers };
            ResolvedPool {
                name: pool.name.clone(),
                level: pool.priority,
                index,
                workers: workers[..].into(),
                serves: all.iter().map(|worker| workers.contains(worker)).collect(),
                turns_count: AtomicU32::new(0),
            }
        });
        let (pools, stacks) = (pools.collect(), StackPool::for_size(config.stack_bytes_rounded()));
        Arc::new_cyclic(|weak| Self {
            workers: (0..config.workers_count).map(|_| WorkerState::new(weak.clone())).collect(),
            pools,
            stacks,
            config,
            can_steal_suspended,
            is_closing: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            spawned_outside: AtomicU64::new(0),
            idle_count: IdleCount::default(),
        })
    }

    /// Returns the number of fibers that have not finished. The number is exact while no other
    /// threads than the workers spawn fibers.
    pub(crate) fn alive_count(&self) -> u64 {
        counts::alive_count(self.all_counts(), || self.spawned_outside_count())
    }

    /// Returns `true` if all fibers have finished; called by an idle worker.
    pub(crate) fn have_all_finished(&self) -> bool {
        counts::have_all_finished(self.all_counts(), || self.spawned_outside_count())
    }

    /// Iterates over the numbers of spawned and finished fibers of each worker.
    fn all_counts(&self) -> impl Iterator<Item = &FiberCounts> + Clone {
        self.workers.iter().map(|worker| &worker.counters.counts)
    }

    /// Returns the number of fibers spawned by threads other than the workers.
    fn spawned_outside_count(&self) -> u64 {
        // Acquire: pairs with the Release of the subtraction for a refused spawn in spawn_in().
        self.spawned_outside.load(Ordering::Acquire)
    }

    /// Returns `true` if idle workers may steal fibers of other workers.
    pub(crate) fn has_stealing(&self) -> bool {
        self.can_steal_suspended || self.config.stealing != Stealing::Off
    }

    /// Wakes all workers that sleep.
    pub(crate) fn wake_workers(&self) {
        for worker in &self.workers {
            worker.unpark();
        }
    }
}

impl ResolvedPool {
    #[inline]
    pub(crate) fn is_served_by(&self, worker: u32) -> bool {
        self.serves[worker as usize]
    }

    /// Returns the index of a worker of the pool, round robin. For a fiber whose spawning thread
    /// does not serve the pool.
    pub(crate) fn next_worker_index(&self) -> usize {
        // Relaxed: any worker of the pool will do.
        let turn = self.turns_count.fetch_add(1, Ordering::Relaxed) as usize;
        self.workers[turn % self.workers.len()] as usize
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use crate::PoolConfig;
    use crate::config::POOLS_MAX;

    #[test]
    fn largest_number_of_pools_gives_each_pool_its_index() {
        let pools = vec![PoolConfig::new("", 0); POOLS_MAX];
        let state = RuntimeState::new(Config { pools, ..Config::default() }, false);
        assert_eq!(state.pools.len(), POOLS_MAX);
        assert!(
            state.pools.iter().enumerate().all(|(index, pool)| usize::from(pool.index) == index)
        );
    }
}
