//! Locks with waiting: several threads repeatedly take one, count, and free it, without a pause.

use crate::common::ensure;
use crate::raw::locks::{PthreadMutex, PthreadSpin};
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Handover, Participant, Role, Samples, Setup, benches};
use handover_lock::TryLock;
use handover_record::Spec;
use std::hint::spin_loop;
use std::sync::PoisonError;

use super::ContentionArgs;

/// Number of failed `try_lock` calls after which a thread yields its CPU. The holder may need this
/// CPU.
const TRIES_MAX: u32 = 1000;

/// A counter behind a lock whose callers wait.
trait LockedCounter: Send + Sync + Sized + 'static {
    fn new() -> Result<Self, Fault>;
    /// Adds one with the lock held; `thread_index` is the index of the calling thread.
    fn add(&self, thread_index: usize);
    /// Returns the value of the counter; called after all threads have finished.
    fn count(&self) -> u64;
}

impl LockedCounter for CachePadded<std::sync::Mutex<u64>> {
    fn new() -> Result<Self, Fault> {
        Ok(Self::default())
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
impl LockedCounter for CachePadded<parking_lot::Mutex<u64>> {
    fn new() -> Result<Self, Fault> {
        Ok(Self::default())
    }
    #[inline]
    fn add(&self, _: usize) {
        *self.lock() += 1;
    }
    fn count(&self) -> u64 {
        *self.lock()
    }
}

/// Counter behind this project's lock, which is acquired by repeated `try_lock`.
struct TryLoop(CachePadded<TryLock<u64>>);

impl LockedCounter for TryLoop {
    fn new() -> Result<Self, Fault> {
        Ok(TryLoop(CachePadded::new(TryLock::new(0))))
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

macro_rules! pthread {
    ($($lock:ty)*) => {$(
        impl LockedCounter for $lock {
            fn new() -> Result<Self, Fault> {
                Ok(<$lock>::new()?)
            }
            #[inline]
            fn add(&self, _: usize) {
                self.with_lock(|count| *count += 1);
            }
            fn count(&self) -> u64 {
                self.with_lock(|count| *count)
            }
        }
    )*};
}
pthread!(PthreadMutex PthreadSpin);

/// Floor: a counter for each thread, so that no lock is needed.
struct CounterPerThread(Vec<CachePadded<AtomicU64>>);

const THREADS_MAX: usize = 1024;

impl LockedCounter for CounterPerThread {
    fn new() -> Result<Self, Fault> {
        Ok(CounterPerThread(
            (0..THREADS_MAX).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        ))
    }
    #[inline]
    fn add(&self, thread_index: usize) {
        // Relaxed: read after the threads have ended. A store, as only this thread writes it.
        let count = &self.0[thread_index];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Workload: all threads increment the counter behind the same lock.
struct Contended<C> {
    counter: C,
    /// Number of increments by all threads, stored when they have finished.
    added_count: AtomicU64,
}

impl<C: LockedCounter> Handover for Contended<C> {
    type Args = ContentionArgs;
    const SPEC: Spec = Spec::new(
        "lock/contended",
        "lock, increment of a counter and unlock by one of several threads that contend",
    )
    .hands_over()
    .batched();

    fn roles(args: &ContentionArgs) -> Vec<Role> {
        vec![Role::measured("contender"); args.threads_count as usize]
    }

    fn setup(_: &ContentionArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Contended { counter: C::new()?, added_count: AtomicU64::new(0) })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let mut added_count = 0;
        out.time_batches(|n| {
            for _ in 0..n {
                self.counter.add(participant.index);
            }
            added_count += n;
        });
        // Relaxed: read after the threads have ended.
        self.added_count.fetch_add(added_count, Ordering::Relaxed);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        // Relaxed: all threads have ended.
        let (count, added_count) = (self.counter.count(), self.added_count.load(Ordering::Relaxed));
        ensure(count == added_count && added_count > 0, || {
            format!("the threads have added {added_count}, but the counter is {count}")
        })
    }
}

pub(crate) const BENCHES: &[Bench] = benches! {
    many ours "handover" Spin: Contended<TryLoop>;
    many floor "unshared": Contended<CounterPerThread>;
    many peer "pthread_spin" Spin: Contended<PthreadSpin>;
    many peer "pthread_mutex" Sleep: Contended<PthreadMutex>;
    many peer "std_mutex" SpinThenSleep: Contended<CachePadded<std::sync::Mutex<u64>>>;
    many peer "parking_lot" SpinThenSleep: Contended<CachePadded<parking_lot::Mutex<u64>>>,
        if feature = "peers";
};
