//! The state of a worker that other threads access, and the state that all workers share.

use crate::engine::Ready;
use crate::engine::tally::{self, Tally};
use crate::raw::{Biased, Inbox, Runnable, Stacks};
use crate::{Config, Stealing};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use handover_notify::Bell;
use std::sync::{Arc, Weak};

/// Public side of a worker: receives fibers from other threads, and lends its run queue to thieves.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) inbox: CachePadded<Inbox<Runnable>>,
    pub(crate) bell: Bell,
    pub(crate) queue: CachePadded<Biased<Ready>>,
    /// Number, modulo 2^32, of fibers made ready here that may be stolen. Written by this worker
    /// only.
    pub(crate) offers: AtomicU32,
    /// `true` while the worker is idle.
    pub(crate) is_idle: AtomicBool,
    pub(crate) counters: CachePadded<Counters>,
    is_occupied: AtomicBool,
    runtime: Weak<Shared>,
}

/// Statistics of a worker; written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) tally: Tally,
    pub(crate) panicked: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) parks: AtomicU64,
    pub(crate) stolen: AtomicU64,
}

/// Adds to a counter that only the caller writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: a statistic.
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl Post {
    pub(crate) fn new(runtime: Weak<Shared>) -> Self {
        Self {
            inbox: CachePadded::default(),
            bell: Bell::new(),
            queue: CachePadded::new(Biased::new(Ready::new())),
            offers: AtomicU32::new(0),
            is_idle: AtomicBool::new(false),
            counters: CachePadded::default(),
            is_occupied: AtomicBool::new(false),
            runtime,
        }
    }

    /// Claims the post for a worker; returns `true` to the first caller.
    pub(crate) fn occupy(&self) -> bool {
        // Relaxed: later callers are only turned away.
        !self.is_occupied.swap(true, Ordering::Relaxed)
    }

    /// Returns a reference that keeps the runtime, and so this post, alive.
    pub(crate) fn keep(&self) -> Option<Arc<Shared>> {
        self.runtime.upgrade()
    }

    /// Returns `true` if the post belongs to that runtime.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        std::ptr::eq(self.runtime.as_ptr(), Arc::as_ptr(shared))
    }
}

/// State of a runtime, shared by its workers and handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) posts: Box<[Post]>,
    pub(crate) pools: Box<[PoolOf]>,
    pub(crate) config: Config,
    /// `true` if idle workers also take suspended fibers from each other.
    pub(crate) steals_suspended: bool,
    pub(crate) stacks: &'static Stacks,
    /// `true` if threads outside may not spawn any more; the workers end when all fibers have
    /// ended.
    pub(crate) is_closing: AtomicBool,
    /// `true` if the workers end as soon as their current fiber suspends itself.
    pub(crate) is_stopped: AtomicBool,
    /// Number of fibers spawned by threads other than the workers.
    pub(crate) spawned_outside: AtomicU64,
    /// Number of idle workers.
    pub(crate) idle_count: AtomicU32,
}

/// Pool, as configured and resolved.
#[derive(Debug)]
pub(crate) struct PoolOf {
    pub(crate) name: String,
    pub(crate) level: u8,
    /// Index among the pools: below 2^16, as Config::validate() has checked.
    pub(crate) index: u16,
    /// Indices of the workers that serve the pool; never empty.
    workers: Box<[u32]>,
    /// For each worker: `true` if it is in `workers`.
    serves: Box<[bool]>,
    next: AtomicU32,
}

impl Shared {
    pub(crate) fn new(config: Config, steals_suspended: bool) -> Arc<Self> {
        let all: Vec<u32> = (0..config.workers_count).collect();
        let pools = config.pools.iter().zip(0..).map(|(pool, index)| {
            let workers = if pool.workers.is_empty() { &all } else { &pool.workers };
            PoolOf {
                name: pool.name.clone(),
                level: pool.priority,
                index,
                workers: workers[..].into(),
                serves: all.iter().map(|worker| workers.contains(worker)).collect(),
                next: AtomicU32::new(0),
            }
        });
        let (pools, stacks) = (pools.collect(), Stacks::of(config.stack_bytes_rounded()));
        Arc::new_cyclic(|weak| Self {
            posts: (0..config.workers_count).map(|_| Post::new(weak.clone())).collect(),
            pools,
            stacks,
            config,
            steals_suspended,
            is_closing: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            spawned_outside: AtomicU64::new(0),
            idle_count: AtomicU32::new(0),
        })
    }

    /// Returns the number of fibers that have not ended. Exact while no fiber is being spawned from
    /// outside.
    pub(crate) fn alive_count(&self) -> u64 {
        tally::alive_count(self.tallies(), || self.spawned_outside_count())
    }

    /// Returns `true` if all fibers have ended; called by an idle worker.
    pub(crate) fn have_all_ended(&self) -> bool {
        tally::have_all_ended(self.tallies(), || self.spawned_outside_count())
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> + Clone {
        self.posts.iter().map(|post| &post.counters.tally)
    }

    fn spawned_outside_count(&self) -> u64 {
        // Acquire: pairs with the Release of the subtraction for a refused spawn in spawn_in().
        self.spawned_outside.load(Ordering::Acquire)
    }

    pub(crate) fn steals(&self) -> bool {
        self.steals_suspended || self.config.stealing != Stealing::Off
    }

    pub(crate) fn ring_all(&self) {
        for post in &self.posts {
            post.bell.ring();
        }
    }
}

impl PoolOf {
    /// Returns `true` if the worker runs fibers of this pool.
    #[inline]
    pub(crate) fn is_served_by(&self, worker: u32) -> bool {
        self.serves[worker as usize]
    }

    /// Returns the next worker, in turn.
    pub(crate) fn next_worker(&self) -> usize {
        // Relaxed: any worker of the pool will do.
        let turn = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        self.workers[turn % self.workers.len()] as usize
    }
}
