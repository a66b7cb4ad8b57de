//! Timers: the cost of starting, cancelling and expiring one while many others are outstanding.

mod kernel;
#[cfg(feature = "peers")]
mod peers;
mod walk;

use crate::common::{ensure, time_ticks};
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::{Args, Part, Spec, args};
use handover_timer::{Config, TimerId, Wheel};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hint::black_box;
use std::marker::PhantomData;

const MS_NS: u64 = 1_000_000;
/// Maximum time from now to a deadline, in ns.
const HORIZON_NS: u64 = 10_000 * MS_NS;
/// Maximum number of operations that are timed together.
const BATCH: usize = 1000;

args! {
    /// Arguments of the benchmark of many outstanding timers.
    pub struct ManyTimersArgs {
        /// Outstanding timers.
        timers_count: u32 = 100_000 (smoke 200, range 100..=4_000_000)
    }
}

args! {
    /// Arguments of the benchmark of so few timers that each can have a file descriptor.
    pub struct FewTimersArgs {
        /// Outstanding timers.
        timers_count: u32 = 500 (smoke 200, range 100..=10_000)
    }
}

/// Arguments of a timer benchmark, with its declaration.
trait TimersArgs: Args {
    const SPEC: Spec;
    fn timers_count(&self) -> u32;
}

impl TimersArgs for ManyTimersArgs {
    const SPEC: Spec = Spec::new(
        "timer/outstanding",
        "operations on one of many outstanding timers with random deadlines within 10 s",
    )
    .ladder()
    .parts(PARTS)
    .batched();

    fn timers_count(&self) -> u32 {
        self.timers_count
    }
}

impl TimersArgs for FewTimersArgs {
    const SPEC: Spec = Spec::new(
        "timer/few",
        "operations on one of few outstanding timers with random deadlines within 10 s",
    )
    .parts(PARTS)
    .batched();

    fn timers_count(&self) -> u32 {
        self.timers_count
    }
}

/// Set of timers, each with a deadline and a key. The key is returned when the timer expires. Time
/// starts at 0.
trait Timers: Sized {
    type Id: Copy;
    fn new(timers_max: u32) -> Result<Self, Fault>;
    fn start(&mut self, deadline_ns: u64, key: u32) -> Self::Id;
    /// Cancels a timer; returns `true` if the timer was running. Never called for expired timers.
    fn cancel(&mut self, id: Self::Id) -> bool;
    /// Prepares the call of [`expire`](Timers::expire) at `now_ns`; not timed. It is for contenders
    /// that do not take the time as an argument.
    fn prepare(&mut self, _now_ns: u64) -> Result<(), Fault> {
        Ok(())
    }
    /// Advances the time to `now_ns`, and appends the keys of the timers that are due.
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>);
    /// Fails unless every timer expires when it is due, and no cancelled timer expires.
    fn check_expiry() -> Result<(), Fault> {
        check_expiry::<Self>(1000)
    }
    /// Calls `f` in the context that these timers need, such as an async runtime. Returns the
    /// result of `f`.
    fn within<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        f(self)
    }
}

impl Timers for Wheel<u32> {
    type Id = TimerId;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let count = timers_max + 1; // one more, for the pair
        let config = Config::default().timers_max(count).timers_reserved(count);
        Wheel::new(config, 0).map_err(Fault::from_error)
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> TimerId {
        Wheel::start(self, deadline_ns, key).expect("more than timers_max timers were started")
    }

    #[inline(always)]
    fn cancel(&mut self, id: TimerId) -> bool {
        Wheel::cancel(self, id).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        Wheel::expire(self, now_ns, usize::MAX, |expired| keys.push(expired.payload));
    }
}

/// Compared implementation: a `BTreeMap` sorted by deadline, from which any timer can be removed.
struct TreeTimers {
    /// Key of each timer, by its deadline in ns and its number.
    timers: BTreeMap<(u64, u64), u32>,
    started_count: u64,
}

impl Timers for TreeTimers {
    type Id = (u64, u64);

    fn new(_: u32) -> Result<Self, Fault> {
        Ok(Self { timers: BTreeMap::new(), started_count: 0 })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> (u64, u64) {
        self.started_count += 1;
        let id = (deadline_ns, self.started_count);
        self.timers.insert(id, key);
        id
    }

    #[inline(always)]
    fn cancel(&mut self, id: (u64, u64)) -> bool {
        self.timers.remove(&id).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now_ns) {
            keys.push(first.remove());
        }
    }
}

/// Compared implementation: a `BinaryHeap` of all deadlines, and a `HashMap` of the timers that
/// were not cancelled.
struct HeapTimers {
    /// Deadlines in ns and numbers of all timers, including cancelled ones.
    order: BinaryHeap<Reverse<(u64, u64)>>,
    /// Key of each timer that was not cancelled, by its number.
    keys: HashMap<u64, u32>,
    started_count: u64,
}

impl Timers for HeapTimers {
    type Id = u64;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let places = timers_max as usize;
        Ok(Self {
            order: BinaryHeap::with_capacity(places),
            keys: HashMap::with_capacity(places),
            started_count: 0,
        })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> u64 {
        self.started_count += 1;
        self.order.push(Reverse((deadline_ns, self.started_count)));
        self.keys.insert(self.started_count, key);
        self.started_count
    }

    #[inline(always)]
    fn cancel(&mut self, id: u64) -> bool {
        self.keys.remove(&id).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        while let Some(&Reverse((deadline_ns, id))) = self.order.peek() {
            if deadline_ns > now_ns {
                break;
            }
            self.order.pop();
            keys.extend(self.keys.remove(&id));
        }
    }
}

/// Compared implementation: a heap with four children per node. Any timer can be removed by its
/// index.
struct IndexedHeapTimers {
    /// The heap: deadlines in ns, each with the index of its timer in `timers`.
    order: Vec<(u64, u32)>,
    /// Key of each timer, and its index in `order`, or [`NOWHERE`].
    timers: Vec<(u32, u32)>,
    /// Indices of free entries in `timers`.
    vacant: Vec<u32>,
}

/// Number of children of a heap node.
const CHILDREN: usize = 4;
/// Value instead of the index in `order`, for a timer that is not in the heap.
const NOWHERE: u32 = u32::MAX;

impl IndexedHeapTimers {
    /// Stores an entry of the heap at index `at`, and this index in the entry's timer.
    fn put(&mut self, at: usize, entry: (u64, u32)) {
        self.order[at] = entry;
        self.timers[entry.1 as usize].1 = at as u32;
    }

    /// Stores an entry at the free heap index `at`, or nearer to the root if the order requires it.
    /// Returns the index.
    fn rise(&mut self, mut at: usize, entry: (u64, u32)) -> usize {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.order[parent].0 <= entry.0 {
                break;
            }
            self.put(at, self.order[parent]);
            at = parent;
        }
        self.put(at, entry);
        at
    }

    /// Stores an entry at the free heap index `at`, or farther from the root if the order requires
    /// it.
    fn sink(&mut self, mut at: usize, entry: (u64, u32)) {
        loop {
            let first = at * CHILDREN + 1;
            let children = first..self.order.len().min(first + CHILDREN);
            let Some(least) = children.min_by_key(|&child| self.order[child].0) else { break };
            if entry.0 <= self.order[least].0 {
                break;
            }
            self.put(at, self.order[least]);
            at = least;
        }
        self.put(at, entry);
    }

    /// Removes the heap entry at index `at`, and returns the key of its timer. Returns `None` if
    /// there is no such entry.
    fn take(&mut self, at: usize) -> Option<u32> {
        let (_, timer) = *self.order.get(at)?;
        let last = self.order.pop()?;
        if at < self.order.len() {
            let risen = self.rise(at, last);
            self.sink(risen, last);
        }
        self.vacant.push(timer);
        let (key, place) = &mut self.timers[timer as usize];
        *place = NOWHERE;
        Some(*key)
    }
}

impl Timers for IndexedHeapTimers {
    type Id = u32;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let places = timers_max as usize + 1;
        Ok(Self {
            order: Vec::with_capacity(places),
            timers: vec![(0, NOWHERE); places],
            vacant: (0..=timers_max).rev().collect(),
        })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> u32 {
        let timer = self.vacant.pop().expect("more than timers_max timers were started");
        self.timers[timer as usize].0 = key;
        self.order.push((deadline_ns, timer));
        self.rise(self.order.len() - 1, (deadline_ns, timer));
        timer
    }

    #[inline(always)]
    fn cancel(&mut self, timer: u32) -> bool {
        self.take(self.timers[timer as usize].1 as usize).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        while self.order.first().is_some_and(|first| first.0 <= now_ns) {
            keys.extend(self.take(0));
        }
    }
}

/// Parts of the benchmarks of timers.
const PARTS: &[Part] = &[
    Part::new("start", "start of a timer"),
    Part::new("cancel", "cancellation of a random timer"),
    Part::new("expire", "removal of the next expired timer"),
    Part::new("pair", "start of one more timer and its immediate cancellation"),
];
/// Index of the part with the cost of a start.
const START_PART: usize = 0;
/// Index of the part with the cost of a cancellation.
const CANCEL_PART: usize = 1;
/// Index of the part with the cost of an expiry.
const EXPIRE_PART: usize = 2;
/// Index of the part with the cost of a start and an immediate cancellation.
const PAIR_PART: usize = 3;

/// Workload: timers are started, cancelled and expired; the number of outstanding timers is
/// constant.
struct StartCancelExpire<T: Timers, A = ManyTimersArgs> {
    timers: T,
    /// Id of each timer, by its key; keys are assigned in random order.
    ids: Vec<T::Id>,
    /// Number of operations of each kind in a batch.
    batch: usize,
    /// Key of the next timer to cancel.
    next_key: usize,
    now_ns: u64,
    /// Deadlines in ns of the timers that one step starts.
    deadlines_ns: Vec<u64>,
    /// Keys of the expired timers.
    due: Vec<u32>,
    /// State of the pseudo-random number generator.
    random: u64,
    args_type: PhantomData<fn() -> A>,
}

impl<T: Timers, A: TimersArgs + 'static> Workload for StartCancelExpire<T, A> {
    type Args = A;
    const SPEC: Spec = A::SPEC;

    fn setup(args: &A, _: &mut Setup) -> Result<Self, Fault> {
        let count = args.timers_count() as usize;
        let batch = BATCH.min(count / 4);
        let mut prepared = StartCancelExpire {
            timers: T::new(args.timers_count())?,
            ids: Vec::with_capacity(count),
            batch,
            next_key: 0,
            now_ns: 0,
            deadlines_ns: vec![0; 4 * batch],
            due: Vec::with_capacity(4 * batch),
            random: 0x2545_F491_4F6C_DD1D,
            args_type: PhantomData,
        };
        prepared.fill(count)?;
        Ok(prepared)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        T::check_expiry()
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            // A failed step yields no sample; self_test() reports the fault.
            let Ok(ticks) = self.step() else { break };
            for (part, ticks) in ticks.into_iter().enumerate() {
                out.record_batch(part, ticks, self.batch as u64);
            }
        }
    }
}

impl<T: Timers, A> StartCancelExpire<T, A> {
    /// Starts `count` timers, and then replaces about `count` of them by [`step`](Self::step).
    /// Timers are thus scattered in memory, and work that cancellations have deferred becomes due.
    fn fill(&mut self, count: usize) -> Result<(), Fault> {
        let mut keys: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            let other = (self.random() % (i as u64 + 1)) as usize;
            keys.swap(i, other);
        }
        for key in keys {
            let deadline_ns = self.random_deadline_ns();
            let id = self.timers.within(|timers| timers.start(deadline_ns, key));
            if self.ids.is_empty() {
                self.ids.resize(count, id); // each is replaced by its own id
            }
            self.ids[key as usize] = id;
        }
        for _ in 0..count.div_ceil(self.batch) {
            self.step()?;
        }
        Ok(())
    }

    /// Performs a batch of each operation; returns the duration of each batch in clock ticks.
    fn step(&mut self) -> Result<[u64; 4], Fault> {
        let mut ticks = [0; 4];
        if self.next_key + self.batch > self.ids.len() {
            self.next_key = 0;
        }
        for at in 0..self.deadlines_ns.len() {
            self.deadlines_ns[at] = self.random_deadline_ns();
        }
        let keys = self.next_key..self.next_key + self.batch;
        self.next_key = keys.end;
        self.now_ns += HORIZON_NS / self.ids.len() as u64 * self.batch as u64;
        self.due.clear();
        let Self { timers, ids, deadlines_ns, due, now_ns, .. } = self;
        timers.within(|timers| {
            ticks[CANCEL_PART] = time_ticks(|| {
                for &id in &ids[keys.clone()] {
                    black_box(timers.cancel(id));
                }
            });
            ticks[START_PART] = time_ticks(|| {
                for (key, &deadline_ns) in keys.clone().zip(&*deadlines_ns) {
                    ids[key] = timers.start(deadline_ns, key as u32);
                }
            });
            ticks[PAIR_PART] = time_ticks(|| {
                for &deadline_ns in &deadlines_ns[..keys.len()] {
                    let id = timers.start(deadline_ns, 0);
                    black_box(timers.cancel(id));
                }
            });
        });
        timers.prepare(*now_ns)?;
        timers.within(|timers| ticks[EXPIRE_PART] = time_ticks(|| timers.expire(*now_ns, due)));
        // Scaled to a batch, as about a batch is due and every sample must have the same length.
        let due_count = self.due.len().max(1) as u64;
        ticks[EXPIRE_PART] = ticks[EXPIRE_PART] * self.batch as u64 / due_count;
        for at in 0..self.due.len() {
            let (key, deadline_ns) = (self.due[at], self.random_deadline_ns());
            self.ids[key as usize] = self.timers.within(|timers| timers.start(deadline_ns, key));
        }
        Ok(ticks)
    }

    /// Returns a random deadline in ns. It is at least two milliseconds after this step, as some
    /// timers have a resolution of one millisecond.
    fn random_deadline_ns(&mut self) -> u64 {
        self.now_ns + 2 * MS_NS + self.random() % HORIZON_NS
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Fails unless `count` timers expire when they are due, except the cancelled ones.
fn check_expiry<T: Timers>(count: u32) -> Result<(), Fault> {
    let mut timers = T::new(count)?;
    // Each in its own millisecond, in scrambled order.
    let deadline_ns = |key: u32| u64::from(key * 7919 % count + 1) * MS_NS;
    let ids: Vec<T::Id> =
        (0..count).map(|key| timers.within(|timers| timers.start(deadline_ns(key), key))).collect();
    for (key, &id) in ids.iter().enumerate().filter(|(key, _)| key % 3 == 0) {
        let is_cancelled = timers.within(|timers| timers.cancel(id));
        ensure(is_cancelled, || format!("timer {key} was running and could not be cancelled"))?;
    }
    let mut seen = Vec::new();
    for now_ns in (0..=u64::from(count)).step_by(10).map(|ms| ms * MS_NS) {
        let mut keys = Vec::new();
        timers.prepare(now_ns)?;
        timers.within(|timers| timers.expire(now_ns, &mut keys));
        if let Some(key) = keys.iter().find(|&&key| deadline_ns(key) > now_ns) {
            return Err(Fault::new(format!("timer {key} expired before its deadline")));
        }
        seen.extend(keys);
        let due_count =
            (0..count).filter(|&key| key % 3 != 0 && deadline_ns(key) <= now_ns).count();
        let (now_ms, seen_count) = (now_ns / MS_NS, seen.len());
        ensure(seen_count == due_count, || {
            format!("{due_count} timers were due by {now_ms} ms, but {seen_count} expired")
        })?;
    }
    seen.sort_unstable();
    seen.dedup();
    let expected_count = (count - count.div_ceil(3)) as usize;
    ensure(
        seen.iter().all(|key| key % 3 != 0) && seen.len() == expected_count,
        || "a cancelled timer expired, or a timer expired twice",
    )
}

/// All benchmarks of timers.
pub const BENCHES: &[Bench] = benches! {
    one ours "handover": StartCancelExpire<Wheel<u32>>;
    one peer "hashed-wheel".allocates(): StartCancelExpire<peers::HashedWheel>, if feature = "peers";
    one peer "tokio-util": StartCancelExpire<peers::DelayQueueTimers>, if feature = "peers";
    one peer "BinaryHeap": StartCancelExpire<HeapTimers>;
    one peer "indexed-heap": StartCancelExpire<IndexedHeapTimers>;
    one peer "BTreeMap".allocates(): StartCancelExpire<TreeTimers>;
    one floor "random-walk": StartCancelExpire<walk::SlotWalk>;
    one ours "handover": StartCancelExpire<Wheel<u32>, FewTimersArgs>;
    one peer "timerfd": StartCancelExpire<kernel::TimerFds, FewTimersArgs>;
    one peer "indexed-heap": StartCancelExpire<IndexedHeapTimers, FewTimersArgs>;
    one floor "random-walk": StartCancelExpire<walk::SlotWalk, FewTimersArgs>;
};
