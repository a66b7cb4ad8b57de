//! Many fibers that go round: each time one begins another, which sleeps and then sets what it waits for.

use handover_base::{clock, usage};
use handover_fiber::{
    Barrier, Config, Eventual, Runtime, SpawnError, StartError, sleep, spawn_detached,
};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Of so many fibers each turn is timed; with all, the clock would cost more than what is measured.
const TIMED_MAX: u32 = 16;
/// Later than an hour is as late as an hour.
const LATE_NS_MAX: u64 = 3_600_000_000_000;
/// How often it is asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);
/// Who sleeps longer than that is not waited for at the end.
const WAITED_FOR_MAX: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many go round.
    pub fibers_count: u32,
    /// How long each sleep is.
    pub interval: Duration,
    /// How long they go round.
    pub duration: Duration,
    /// How many threads run them.
    pub workers_count: u32,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Turns {
    /// Turns that were over in time.
    pub turns_count: u64,
    /// How long they went round, in seconds.
    pub wall_s: f64,
    /// What the process used meanwhile.
    pub used: usage::Usage,
    /// By how much a turn took longer than its sleep was to, in ns: of some fibers, each turn.
    pub late_ns: Histogram<u64>,
    /// How often a worker switched to a fiber.
    pub switches_count: u64,
    /// How often a worker went to sleep.
    pub parks_count: u64,
    /// Whether it was told to end before its time.
    pub interrupted: bool,
}

/// Why it did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventualsError {
    /// No runtime.
    #[error(transparent)]
    Start(#[from] StartError),
    /// One of them could not be begun.
    #[error("a fiber could not be begun: {0}")]
    Spawn(#[from] SpawnError),
}

/// One turn: an eventual is made, a fiber is begun that sleeps and sets it, and it is waited for.
///
/// # Errors
/// There is no stack for the fiber.
#[inline]
pub(super) fn turn(interval: Duration) -> Result<(), SpawnError> {
    let eventual = Arc::new(Eventual::<()>::new());
    let sets = Arc::clone(&eventual);
    spawn_detached(move || {
        sleep(interval);
        // It is set once, here.
        let _ = sets.set(());
    })?;
    eventual.wait();
    Ok(())
}

/// What a fiber tells.
#[derive(Debug)]
struct Slot {
    turns: AtomicU64,
    late_ns: Option<Mutex<Histogram<u64>>>,
}

/// What all of them see.
#[derive(Debug)]
struct Course {
    start: Barrier,
    is_over: AtomicBool,
    slots: Box<[Slot]>,
    refused: Mutex<Option<SpawnError>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn histogram() -> Histogram<u64> {
    // Two digits are enough for how late something is, and fit a cache.
    Histogram::new_with_max(LATE_NS_MAX, 2).unwrap_or_else(|_| unreachable!("bounds that are fine"))
}

impl Course {
    fn new(load: &Load) -> Arc<Course> {
        let slot = |index| Slot {
            turns: AtomicU64::new(0),
            late_ns: (index < TIMED_MAX).then(|| Mutex::new(histogram())),
        };
        Arc::new(Course {
            start: Barrier::new(load.fibers_count as usize + 1),
            is_over: AtomicBool::new(false),
            slots: (0..load.fibers_count).map(slot).collect(),
            refused: Mutex::new(None),
        })
    }

    /// What one of them does.
    fn go_round(&self, slot: &Slot, interval: Duration) {
        self.start.wait();
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut turns = 0;
        // Relaxed: a flag alone; what is counted below, each for itself, is read after it was raised.
        while !self.is_over.load(Relaxed) {
            let began = slot.late_ns.as_ref().map(|_| clock::ticks());
            if let Err(refused) = turn(interval) {
                *held(&self.refused) = Some(refused);
                return;
            }
            if let (Some(late_ns), Some(began)) = (&slot.late_ns, began) {
                let took_ns = clock::ns(clock::ticks().saturating_sub(began));
                held(late_ns).saturating_record(took_ns.saturating_sub(interval_ns));
            }
            turns += 1;
            // Relaxed: see above.
            slot.turns.store(turns, Relaxed);
        }
    }
}

/// Has fibers go round, and tells how often they did. `go_on` is asked ten times a second whether to.
///
/// # Errors
/// [`EventualsError`]: a worker or a fiber could not be begun. Those that were begun never go on, then.
///
/// # Blocking
/// For as long as the load says, and until those who sleep have woken, if that is soon.
pub fn eventuals(load: &Load, mut go_on: impl FnMut() -> bool) -> Result<Turns, EventualsError> {
    let runtime = Runtime::new(Config::workers(load.workers_count))?;
    let course = Course::new(load);
    for index in 0..load.fibers_count as usize {
        let (course, interval) = (Arc::clone(&course), load.interval);
        let goes = move || course.go_round(&course.slots[index], interval);
        if let Err(refused) = runtime.spawn_detached(goes) {
            // The others wait at the start, for ever.
            runtime.abandon();
            return Err(refused.into());
        }
    }
    let before = usage::process();
    course.start.wait();
    let began = Instant::now();
    let mut interrupted = false;
    while let Some(left) = load.duration.checked_sub(began.elapsed()) {
        interrupted = !go_on() || held(&course.refused).is_some();
        if interrupted {
            break;
        }
        thread::sleep(left.min(SLICE));
    }
    // Relaxed: see go_round().
    course.is_over.store(true, Relaxed);
    let used = usage::process() - before;
    let wall_s = began.elapsed().as_secs_f64();
    // Relaxed: see go_round().
    let turns_count = course.slots.iter().map(|slot| slot.turns.load(Relaxed)).sum();
    let stats = runtime.stats();
    if load.interval > WAITED_FOR_MAX {
        runtime.abandon();
    } else {
        runtime.shutdown();
    }
    if let Some(refused) = held(&course.refused).take() {
        return Err(refused.into());
    }
    let mut late_ns = histogram();
    for timed in course.slots.iter().filter_map(|slot| slot.late_ns.as_ref()) {
        // They have the same bounds.
        let _ = late_ns.add(&*held(timed));
    }
    Ok(Turns {
        turns_count,
        wall_s,
        used,
        late_ns,
        switches_count: stats.switches_count,
        parks_count: stats.parks_count,
        interrupted,
    })
}
