//! Many fibers in a loop: each iteration spawns another fiber, which sleeps and then sets the
//! eventual that the first waits for.

use handover_base::{clock, usage};
use handover_fiber::{
    Barrier, Config, Eventual, Runtime, SpawnError, StartError, sleep, spawn_detached,
};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of fibers whose iterations are timed. To time all would cost more than the work.
const TIMED_FIBERS_MAX: u32 = 16;
/// Maximum recorded lateness of a wake-up, in ns: an hour.
const LATE_NS_MAX: u64 = 3_600_000_000_000;
/// Interval at which a measurement calls `should_continue`.
const CONTINUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest sleep interval for which the sleeping fibers are awaited at the end of a measurement.
/// Fibers with a longer interval are abandoned.
const AWAITED_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Load of [`run_eventuals`]: fibers, their sleep interval, the duration, and the worker threads.
#[derive(Debug, Clone, Copy)]
pub struct EventualsLoad {
    /// Number of looping fibers.
    pub fibers_count: u32,
    /// Duration of each sleep.
    pub interval: Duration,
    /// Duration of the measurement.
    pub duration: Duration,
    /// Number of worker threads.
    pub workers_count: u32,
}

/// Measurement by [`run_eventuals`]: eventuals set, duration, resource usage, and lateness of the fibers.
#[derive(Debug, Clone)]
pub struct EventualsMeasurement {
    /// Number of eventuals set before the end of the measurement.
    pub eventuals_count: u64,
    /// Duration of the measurement, in seconds.
    pub wall_s: f64,
    /// The process's resource usage during the measurement.
    pub used: usage::Usage,
    /// Lateness of loop iterations, in ns: the duration of an iteration minus the sleep interval.
    /// It is recorded for every iteration of some fibers.
    pub late_ns: Histogram<u64>,
    /// Number of switches to fibers. A yield counts even if no other fiber was ready.
    pub switches_count: u64,
    /// Number of times that a worker went to sleep.
    pub parks_count: u64,
    /// `true` if the measurement was stopped early.
    pub is_interrupted: bool,
}

/// Error of [`run_eventuals`]: the runtime or a fiber could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventualsError {
    /// The runtime could not be created.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A fiber could not be spawned.
    #[error("cannot spawn a fiber: {0}")]
    Spawn(SpawnError),
}

/// Runs one loop iteration. Creates an eventual, spawns a fiber that sleeps and then sets the
/// eventual, and waits.
///
/// # Errors
/// Fails if no stack can be allocated for the fiber.
#[inline]
pub(super) fn run_iteration(interval: Duration) -> Result<(), SpawnError> {
    let eventual = Arc::new(Eventual::<()>::new());
    let sets = Arc::clone(&eventual);
    spawn_detached(move || {
        sleep(interval);
        // Set once, here.
        let _ = sets.set(());
    })?;
    eventual.wait();
    Ok(())
}

/// Counters of one looping fiber.
#[derive(Debug)]
struct LoopCounters {
    iterations: AtomicU64,
    /// Lateness of each iteration, in ns; `None` if the fiber is not timed.
    late_ns: Option<Mutex<Histogram<u64>>>,
}

/// State that the looping fibers share with the measuring thread.
#[derive(Debug)]
struct LoopState {
    start: Barrier,
    is_over: AtomicBool,
    counters: Box<[LoopCounters]>,
    /// First error of spawning a fiber.
    spawn_error: Mutex<Option<SpawnError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn new_histogram() -> Histogram<u64> {
    // Two digits are precise enough for lateness, and the histogram fits into a cache.
    Histogram::new_with_max(LATE_NS_MAX, 2)
        .unwrap_or_else(|_| unreachable!("the constant bounds of a histogram were refused"))
}

impl LoopState {
    fn new(load: &EventualsLoad) -> Arc<LoopState> {
        let slot = |index| LoopCounters {
            iterations: AtomicU64::new(0),
            late_ns: (index < TIMED_FIBERS_MAX).then(|| Mutex::new(new_histogram())),
        };
        Arc::new(LoopState {
            start: Barrier::new(load.fibers_count as usize + 1),
            is_over: AtomicBool::new(false),
            counters: (0..load.fibers_count).map(slot).collect(),
            spawn_error: Mutex::new(None),
        })
    }

    /// Runs the loop of one fiber until the measurement is over.
    fn run_loop(&self, slot: &LoopCounters, interval: Duration) {
        self.start.wait();
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut iterations = 0;
        // Relaxed: the flag publishes no other data; each counter below is read for itself, after
        // the flag is set.
        while !self.is_over.load(Relaxed) {
            let began = slot.late_ns.as_ref().map(|_| clock::ticks());
            if let Err(spawn_error) = run_iteration(interval) {
                *lock(&self.spawn_error) = Some(spawn_error);
                return;
            }
            if let (Some(late_ns), Some(began)) = (&slot.late_ns, began) {
                let took_ns = clock::ns_from_ticks(clock::ticks().saturating_sub(began));
                lock(late_ns).saturating_record(took_ns.saturating_sub(interval_ns));
            }
            iterations += 1;
            // Relaxed: the counter publishes no other data.
            slot.iterations.store(iterations, Relaxed);
        }
    }
}

/// Runs a load of looping fibers, and returns the measurement. Calls
/// `should_continue` ten times a second, and stops as soon as it returns `false`.
///
/// # Errors
/// Fails with an [`EventualsError`] if a worker or a fiber could not be started; fibers already
/// spawned never continue.
///
/// # Blocking
/// Blocks for the duration of the load, and until the sleeping fibers have woken if that takes less
/// than a second.
pub fn run_eventuals(
    load: &EventualsLoad,
    mut should_continue: impl FnMut() -> bool,
) -> Result<EventualsMeasurement, EventualsError> {
    let runtime = Runtime::new(Config::workers(load.workers_count))?;
    let state = LoopState::new(load);
    for index in 0..load.fibers_count as usize {
        let (state, interval) = (Arc::clone(&state), load.interval);
        let goes = move || state.run_loop(&state.counters[index], interval);
        if let Err(spawn_error) = runtime.spawn_detached(goes) {
            // The other fibers wait at the start for ever.
            runtime.abandon();
            return Err(EventualsError::Spawn(spawn_error));
        }
    }
    let before = usage::process_usage();
    state.start.wait();
    let began = Instant::now();
    let mut is_interrupted = false;
    while let Some(left) = load.duration.checked_sub(began.elapsed()) {
        is_interrupted = !should_continue() || lock(&state.spawn_error).is_some();
        if is_interrupted {
            break;
        }
        thread::sleep(left.min(CONTINUE_CHECK_INTERVAL));
    }
    // Relaxed: the flag publishes no other data; see run_loop().
    state.is_over.store(true, Relaxed);
    let used = usage::process_usage() - before;
    let wall_s = began.elapsed().as_secs_f64();
    // Relaxed: each counter is read for itself; see run_loop().
    let eventuals_count = state.counters.iter().map(|slot| slot.iterations.load(Relaxed)).sum();
    let stats = runtime.stats();
    if load.interval > AWAITED_INTERVAL_MAX {
        runtime.abandon();
    } else {
        runtime.shutdown();
    }
    if let Some(spawn_error) = lock(&state.spawn_error).take() {
        return Err(EventualsError::Spawn(spawn_error));
    }
    let mut late_ns = new_histogram();
    for timed in state.counters.iter().filter_map(|slot| slot.late_ns.as_ref()) {
        // Cannot fail: both have the same bounds.
        let _ = late_ns.add(&*lock(timed));
    }
    Ok(EventualsMeasurement {
        eventuals_count,
        wall_s,
        used,
        late_ns,
        switches_count: stats.switches_count,
        parks_count: stats.parks_count,
        is_interrupted,
    })
}
