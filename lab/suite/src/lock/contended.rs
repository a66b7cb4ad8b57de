//! Locks with waiting: several threads repeatedly take one, count, and free it, without a pause.

use crate::raw::locks::{PthreadMutex, PthreadSpin};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Handover, Party, Rig, Role, Samples};
use handover_lock::TryLock;
use handover_record::{Contender, Spec, Wait};
use std::hint::spin_loop;
use std::sync::PoisonError;

use super::Contention;

/// Number of tries before a thread that shares its CPU with the holder yields.
const TRIES_MAX: u32 = 1000;

/// A counter behind a lock whose callers wait.
trait Counted: Send + Sync + Sized + 'static {
    fn new() -> Self;
    /// Adds one with the lock held; `place` is the caller's index.
    fn add(&self, place: usize);
    /// Returns the count; called when no thread adds any more.
    fn count(&self) -> u64;
}

impl Counted for CachePadded<std::sync::Mutex<u64>> {
    fn new() -> Self {
        Self::default()
    }
    #[inline]
    fn add(&self, _: usize) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
    fn count(&self) -> u64 {
        *self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "peers")]
impl Counted for CachePadded<parking_lot::Mutex<u64>> {
    fn new() -> Self {
        Self::default()
    }
    #[inline]
    fn add(&self, _: usize) {
        *self.lock() += 1;
    }
    fn count(&self) -> u64 {
        *self.lock()
    }
}

/// Our lock, tried in a loop.
struct Tried(CachePadded<TryLock<u64>>);

impl Counted for Tried {
    fn new() -> Self {
        Tried(CachePadded::new(TryLock::new(0)))
    }
    #[inline]
    fn add(&self, _: usize) {
        let mut tries = 0u32;
        loop {
            if let Some(mut count) = self.0.try_lock() {
                *count += 1;
                return;
            }
            tries += 1;
            if tries.is_multiple_of(TRIES_MAX) {
                std::thread::yield_now();
            }
            spin_loop();
        }
    }
    fn count(&self) -> u64 {
        self.0.try_lock().map_or(0, |count| *count)
    }
}

impl Counted for PthreadMutex {
    fn new() -> Self {
        PthreadMutex::new()
    }
    #[inline]
    fn add(&self, _: usize) {
        self.with(|count| *count += 1);
    }
    fn count(&self) -> u64 {
        self.with(|count| *count)
    }
}

impl Counted for PthreadSpin {
    fn new() -> Self {
        PthreadSpin::new()
    }
    #[inline]
    fn add(&self, _: usize) {
        self.with(|count| *count += 1);
    }
    fn count(&self) -> u64 {
        self.with(|count| *count)
    }
}

/// Floor: a counter for each thread, without a lock: the cost of adding without contention.
struct Unshared(Vec<CachePadded<AtomicU64>>);

/// Maximum number of threads.
const THREADS_MAX: usize = 1024;

impl Counted for Unshared {
    fn new() -> Self {
        Unshared((0..THREADS_MAX).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }
    #[inline]
    fn add(&self, place: usize) {
        // Relaxed: read after the threads have ended.
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }
    fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Workload: all threads take the same lock.
struct Contended<C> {
    counted: C,
    added: AtomicU64,
}

impl<C: Counted> Handover for Contended<C> {
    type Args = Contention;
    const SPEC: Spec = Spec {
        id: "lock/contended",
        what: "one of several threads takes a lock that all of them want, adds one, and frees it",
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(args: &Contention) -> Vec<Role> {
        vec![Role::measured("contender"); args.threads_count as usize]
    }

    fn rig(_: &Contention, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Contended { counted: C::new(), added: AtomicU64::new(0) })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        let mut added = 0;
        out.batches(|n| {
            for _ in 0..n {
                self.counted.add(party.index);
            }
            added += n;
        });
        // Relaxed: read after the threads have ended.
        self.added.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: all threads have ended.
        let (count, added) = (self.counted.count(), self.added.load(Ordering::Relaxed));
        match count == added && added > 0 {
            true => Ok(()),
            false => Err(Fault::new(format!("{added} were added, {count} counted"))),
        }
    }
}

/// The benchmarks of locks that are waited for.
pub(super) const ALL: &[Bench] = &[
    Bench::many::<Contended<Tried>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Contended<Unshared>>(Contender::floor("unshared")),
    Bench::many::<Contended<PthreadSpin>>(Contender::peer("pthread_spin").waits(Wait::Spin)),
    Bench::many::<Contended<PthreadMutex>>(Contender::peer("pthread_mutex").waits(Wait::Sleep)),
    Bench::many::<Contended<CachePadded<std::sync::Mutex<u64>>>>(
        Contender::peer("std_mutex").waits(Wait::SpinThenSleep),
    ),
    #[cfg(feature = "peers")]
    Bench::many::<Contended<CachePadded<parking_lot::Mutex<u64>>>>(
        Contender::peer("parking_lot").waits(Wait::SpinThenSleep),
    ),
];
