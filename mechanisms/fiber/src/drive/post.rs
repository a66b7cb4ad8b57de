//! What others see of a worker, and what all workers share.

use crate::engine::Ready;
use crate::engine::tally::{self, Tally};
use crate::raw::{Biased, Inbox, Runnable, Stacks};
use crate::{Config, Stealing};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use handover_notify::Bell;
use std::sync::{Arc, Weak};

/// Where a worker's fibers are put by others.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) inbox: CachePadded<Inbox<Runnable>>,
    pub(crate) bell: Bell,
    pub(crate) queue: CachePadded<Biased<Ready>>,
    /// Counts, modulo 2^32, the fibers that became ready there and may be stolen. Written by its worker.
    pub(crate) offers: AtomicU32,
    /// It has nothing to do.
    pub(crate) is_idle: AtomicBool,
    pub(crate) counters: CachePadded<Counters>,
    is_occupied: AtomicBool,
    runtime: Weak<Shared>,
}

/// What a worker has done; written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) tally: Tally,
    pub(crate) panicked: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) parks: AtomicU64,
    pub(crate) stolen: AtomicU64,
}

/// Adds to a counter of which the caller is the only writer.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: a figure.
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

    /// Whether the caller is the first to come.
    pub(crate) fn occupy(&self) -> bool {
        // Relaxed: whoever comes second is turned away.
        !self.is_occupied.swap(true, Ordering::Relaxed)
    }

    /// Keeps the post from going away.
    pub(crate) fn keep(&self) -> Option<Arc<Shared>> {
        self.runtime.upgrade()
    }

    /// Whether it is one of that runtime's.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        std::ptr::eq(self.runtime.as_ptr(), Arc::as_ptr(shared))
    }
}

/// A runtime, as its workers and handles know it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) posts: Box<[Post]>,
    pub(crate) pools: Box<[PoolOf]>,
    pub(crate) config: Config,
    /// Workers take suspended fibers from each other, too.
    pub(crate) steals_suspended: bool,
    pub(crate) stacks: &'static Stacks,
    /// No more spawns from outside; the workers end when all fibers have.
    pub(crate) is_closing: AtomicBool,
    /// The workers end now.
    pub(crate) is_stopped: AtomicBool,
    /// Fibers spawned by no worker.
    pub(crate) spawned_outside: AtomicU64,
    /// How many workers have nothing to do.
    pub(crate) idle_count: AtomicU32,
}

/// A pool, resolved.
#[derive(Debug)]
pub(crate) struct PoolOf {
    pub(crate) name: String,
    pub(crate) level: u8,
    /// Its place among the pools: below 2^16, as the configuration was checked.
    pub(crate) index: u16,
    /// Never empty.
    workers: Box<[u32]>,
    /// For each worker, whether it is among them.
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

    /// How many fibers are not over. Exact if no fiber is being spawned from outside.
    pub(crate) fn alive_count(&self) -> u64 {
        tally::alive_count(self.tallies(), || self.spawned_outside_count())
    }

    /// Returns `true` if all fibers are over; for a worker that has nothing to do.
    pub(crate) fn have_all_ended(&self) -> bool {
        tally::have_all_ended(self.tallies(), || self.spawned_outside_count())
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> + Clone {
        self.posts.iter().map(|post| &post.counters.tally)
    }

    fn spawned_outside_count(&self) -> u64 {
        // Acquire: pairs with the Release with which a refused spawn is taken back.
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

    /// The worker whose turn it is.
    pub(crate) fn next_worker(&self) -> usize {
        // Relaxed: any of them will do.
        let turn = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        self.workers[turn % self.workers.len()] as usize
    }
}
