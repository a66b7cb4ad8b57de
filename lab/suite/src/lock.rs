//! Locks: always busy, always free, and passed between threads.

pub mod contend;
pub(crate) mod contended;

use crate::common::{Tally, ensure};
use contend::{
    HandoverTryLock, Lock, ParkingLotMutex, PosixSem, PthreadMutex, PthreadSpin, RawCas, StdMutex,
};
use handover_base::clock;
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_harness::{Bench, Fault, Handover, Participant, Role, Samples, Setup, Workload};
use handover_record::{Contender, Part, Spec, args};
use std::hint::black_box;
use std::marker::PhantomData;
use std::pin::Pin;

/// Calls `try_lock` `n` times on a held lock; returns the number of calls that failed.
#[inline]
pub fn try_held_lock<L: Lock>(lock: &L, n: u64) -> u64 {
    let mut busy = 0;
    for _ in 0..n {
        busy += u64::from(lock.try_lock().is_none());
    }
    busy
}

/// Measured cost of one `try_lock`, in clock ticks. If the call succeeded, the unlock is measured
/// too.
#[derive(Clone, Copy, Debug)]
pub enum AttemptCost {
    /// The lock was held by another thread, so that `try_lock` failed.
    Busy {
        /// Cost of `try_lock` in clock ticks.
        try_ticks: u64,
    },
    /// The lock was free, so that `try_lock` succeeded and the lock was unlocked again.
    Free {
        /// Cost of `try_lock` in clock ticks.
        try_ticks: u64,
        /// Cost of the unlock in clock ticks.
        unlock_ticks: u64,
    },
}

/// Times one `try_lock` and, if it succeeds, the unlock. Calls `inside` while the lock is held.
/// `try_lock` and unlock are each timed by fenced readings of the clock; otherwise the rest of
/// `try_lock` (the wait for its cache line, if it exchanges) would be counted in the unlock.
#[inline]
pub fn time_attempt<L: Lock>(lock: &L, inside: impl FnOnce()) -> AttemptCost {
    let began = clock::ticks_fenced();
    let held = lock.try_lock();
    let try_ticks = clock::ticks_fenced().wrapping_sub(began);
    let Some(held) = held else {
        return AttemptCost::Busy { try_ticks };
    };
    inside();
    let began = clock::ticks_fenced();
    drop(held);
    AttemptCost::Free { try_ticks, unlock_ticks: clock::ticks_fenced().wrapping_sub(began) }
}

args! {
    /// Arguments of the benchmarks of contended locks.
    pub struct ContentionArgs {
        /// Threads that try to acquire the lock.
        threads_count: u32 = 2 (smoke 2, range 1..=1024)
    }
}

/// Workload: all participants try a lock while the first participant holds it.
struct Busy<L, A> {
    lock: Pin<Box<L>>,
    participants_count: u32,
    /// 1 once the first participant holds the lock, 0 before.
    is_held: AtomicU32,
    /// Number of participants that have finished their attempts.
    ended_count: AtomicU32,
    tally: Tally,
    args: PhantomData<fn() -> A>,
}

/// Arguments and declaration of a benchmark of a held lock. One thread or several try the lock.
trait BusyArgs: handover_record::Args + 'static {
    const SPEC: Spec;
    fn threads_count(&self) -> u32;
}

impl BusyArgs for ContentionArgs {
    const SPEC: Spec = Spec::new(
        "lock/busy",
        "failed try_lock of a held lock by one of several threads that try at the same time",
    )
    .floor("floor/empty")
    .classic("trylock");
    fn threads_count(&self) -> u32 {
        self.threads_count
    }
}

/// Benchmark of a held lock with one thread.
impl BusyArgs for () {
    const SPEC: Spec = Spec::new("lock/busy-alone", "failed try_lock of a held lock by one thread")
        .floor("floor/empty")
        .classic("trylock")
        .ladder();
    fn threads_count(&self) -> u32 {
        1
    }
}

impl<L: Lock, A: BusyArgs> Handover for Busy<L, A> {
    type Args = A;
    const SPEC: Spec = A::SPEC;

    fn roles(args: &A) -> Vec<Role> {
        vec![Role::measured("contender"); args.threads_count() as usize]
    }

    fn setup(args: &A, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Busy {
            lock: L::new_unlocked(),
            participants_count: args.threads_count(),
            is_held: AtomicU32::new(0),
            ended_count: AtomicU32::new(0),
            tally: Tally::default(),
            args: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let held = if participant.index == 0 { self.lock.try_lock() } else { None };
        if participant.index == 0 {
            // Release: pairs with the Acquire below; a thread that sees it finds the lock held.
            self.is_held.store(1, Ordering::Release);
        }
        // Acquire: pairs with the Release above.
        while self.is_held.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let mut wrong = 0;
        out.time_batches(|n| wrong += n - try_held_lock(&*self.lock, n));
        self.tally.add_wrong(wrong);
        // Release: pairs with the Acquire below; the lock is freed after every thread's last try.
        self.ended_count.fetch_add(1, Ordering::Release);
        if participant.index == 0 {
            // Acquire: pairs with the Release above.
            while self.ended_count.load(Ordering::Acquire) < self.participants_count {
                std::thread::yield_now();
            }
        }
        drop(held);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify_order()
    }
}

/// Workload: one thread locks and unlocks a free lock.
struct Free<L>(Pin<Box<L>>);

impl<L: Lock> Workload for Free<L> {
    type Args = ();
    const SPEC: Spec = Spec::new("lock/free", "lock and unlock of an uncontended lock")
        .floor("floor/empty")
        .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Free(L::new_unlocked()))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let held = self.0.try_lock();
        let again = self.0.try_lock().is_some();
        ensure(held.is_some(), || "try_lock failed on a free lock")?;
        ensure(!again, || "try_lock succeeded on a lock that was held")
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for _ in 0..n {
                black_box(self.0.try_lock());
            }
        });
    }
}

/// Workload: all participants repeatedly lock and unlock the same lock.
struct Passed<L> {
    lock: Pin<Box<L>>,
    /// Number of participants that hold the lock. Each participant counts itself only in its first
    /// [`ATTEMPTS_CHECKED`] attempts.
    holders_count: AtomicU32,
    /// Number of times that two threads held the lock at once, counted as wrong items.
    tally: Tally,
}

/// Index of the part with the cost of a failed attempt.
const BUSY_PART: usize = 0;
/// Index of the part with the cost of a successful attempt.
const FREE_PART: usize = 1;
/// Index of the part with the cost of an unlock.
const UNLOCK_PART: usize = 2;
/// Number of attempts between two calls of [`Samples::is_running`].
const ATTEMPTS_PER_CHECK: u32 = 32;
/// Number of attempts at the start of a round in which each participant checks mutual exclusion.
const ATTEMPTS_CHECKED: u32 = 64;

impl<L: Lock> Handover for Passed<L> {
    type Args = ContentionArgs;
    const SPEC: Spec = Spec::new(
        "lock/passed",
        "lock that several threads acquire by try_lock and release in a loop",
    )
    .floor("floor/clock-pair-fenced")
    .classic("trylock -F")
    .ladder()
    .parts(&[
        Part::new("busy", "try_lock that fails, including one fenced clock reading")
            // Threads that take turns on a CPU may never find it busy.
            .optional(),
        Part::new("free", "try_lock that succeeds, including one fenced clock reading"),
        Part::new("post", "unlock, including one fenced clock reading"),
    ])
    .hands_over();

    fn roles(args: &ContentionArgs) -> Vec<Role> {
        vec![Role::measured("contender"); args.threads_count as usize]
    }

    fn setup(_: &ContentionArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Passed {
            lock: L::new_unlocked(),
            holders_count: AtomicU32::new(0),
            tally: Tally::default(),
        })
    }

    fn play(&self, _: Participant, out: &mut Samples) -> Result<(), Fault> {
        let (mut watched, mut attempts_count) = (0, 0);
        while out.is_running() {
            attempts_count += u64::from(ATTEMPTS_PER_CHECK);
            for _ in 0..ATTEMPTS_PER_CHECK {
                let watch = watched < ATTEMPTS_CHECKED;
                watched += u32::from(watch);
                let inside = || {
                    if watch {
                        self.count_second_holder();
                    }
                };
                match time_attempt(&*self.lock, inside) {
                    AttemptCost::Busy { try_ticks } => out.record_ticks(BUSY_PART, try_ticks),
                    AttemptCost::Free { try_ticks, unlock_ticks } => {
                        out.record_ticks(FREE_PART, try_ticks);
                        out.record_ticks(UNLOCK_PART, unlock_ticks);
                    }
                }
            }
        }
        // An attempt has one part if the lock is busy, and two others if it is free.
        out.set_operations_count(attempts_count);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify_order()
    }
}

impl<L> Passed<L> {
    /// Counts an error if another participant holds the lock too. All accesses are
    /// relaxed because the lock itself orders its holders; a lock that does not is the error to
    /// find.
    fn count_second_holder(&self) {
        let others = self.holders_count.fetch_add(1, Ordering::Relaxed);
        self.tally.add_wrong(u64::from(others != 0));
        self.holders_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Declares a benchmark of each lock for each workload.
macro_rules! rows {
    ($($make:ident $workload:ident $(, $args:ty)?;)*) => {
        &[$(
            Bench::$make::<$workload<HandoverTryLock $(, $args)?>>(Contender::ours("handover")),
            Bench::$make::<$workload<PosixSem $(, $args)?>>(Contender::peer("sem")),
            Bench::$make::<$workload<PthreadMutex $(, $args)?>>(Contender::peer("pthread_mutex")),
            Bench::$make::<$workload<PthreadSpin $(, $args)?>>(Contender::peer("pthread_spin")),
            Bench::$make::<$workload<RawCas $(, $args)?>>(Contender::peer("cas")),
            Bench::$make::<$workload<StdMutex $(, $args)?>>(Contender::peer("std_mutex")),
            Bench::$make::<$workload<ParkingLotMutex $(, $args)?>>(Contender::peer("parking_lot")),
        )*]
    };
}

/// All benchmarks of `try_lock`.
pub const BENCHES: &[Bench] = rows! {
    many Busy, ();
    many Busy, ContentionArgs;
    one Free;
    many Passed;
};
