//! Many fibers in a loop: each iteration spawns another fiber, which sleeps and then sets the
//! eventual that the first waits for.

use handover_base::{clock, usage};
use handover_fiber::{
    Barrier, Config, Eventual, Runtime, SpawnError, StartError, sleep, spawn_detached,
};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of fibers whose iterations are timed. To time all would cost more than the work.
const TIMED_FIBERS_MAX: u32 = 16;
/// Maximum recorded lateness of a wake-up, in ns: an hour.
const LATE_NS_MAX: u64 = 3_600_000_000_000;
/// Interval at which the measuring thread checks whether all fibers run.
const START_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which a measurement calls `should_continue`.
const CONTINUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest sleep interval for which the fibers warm up with a sleep, and for which the sleeping
/// fibers are awaited at the end of a measurement. Fibers with a longer interval are abandoned.
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

/// Measurement by [`run_eventuals`]: eventuals set, duration, resource usage, and lateness of the
/// fibers.
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
    /// Barrier of the fibers: none loops while others are still to be spawned.
    start: Barrier,
    /// Number of fibers that have passed `start` and warmed up, which takes long with many fibers.
    running_count: AtomicU32,
    /// `true` once all fibers run: from then on iterations count.
    is_measured: AtomicBool,
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
            start: Barrier::new(load.fibers_count as usize),
            running_count: AtomicU32::new(0),
            is_measured: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            counters: (0..load.fibers_count).map(slot).collect(),
            spawn_error: Mutex::new(None),
        })
    }

    /// Runs the loop of one fiber until the measurement is over.
    ///
    /// # Errors
    /// Fails if no stack can be allocated for another fiber.
    fn run_loop(&self, slot: &LoopCounters, interval: Duration) -> Result<(), SpawnError> {
        self.start.wait();
        if interval <= AWAITED_INTERVAL_MAX {
            // A warm-up, which allocates the stacks.
            run_iteration(interval)?;
        }
        // Relaxed, as all accesses of this function: no value publishes other data. The counters
        // are read each for itself, after `is_over` is set.
        self.running_count.fetch_add(1, Relaxed);
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut iterations = 0;
        while !self.is_over.load(Relaxed) {
            let began = slot.late_ns.as_ref().map(|_| clock::ticks());
            run_iteration(interval)?;
            if !self.is_measured.load(Relaxed) {
                continue;
            }
            if let (Some(late_ns), Some(began)) = (&slot.late_ns, began) {
                let took_ns = clock::ns_from_ticks(clock::ticks().saturating_sub(began));
                lock(late_ns).saturating_record(took_ns.saturating_sub(interval_ns));
            }
            iterations += 1;
            slot.iterations.store(iterations, Relaxed);
        }
        Ok(())
    }

    /// Waits until all fibers run. Returns `false` as soon as `should_continue` does.
    fn wait_until_all_run(&self, mut should_continue: impl FnMut() -> bool) -> bool {
        // Relaxed: the counter publishes no other data.
        while (self.running_count.load(Relaxed) as usize) < self.counters.len() {
            if !should_continue() {
                return false;
            }
            thread::sleep(START_CHECK_INTERVAL);
        }
        true
    }
}

/// Runs a load of looping fibers, and returns the measurement, which begins when all fibers run.
/// Calls `should_continue` at least ten times a second, and stops as soon as it returns `false`.
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
        let goes = move || {
            if let Err(spawn_error) = state.run_loop(&state.counters[index], interval) {
                *lock(&state.spawn_error) = Some(spawn_error);
            }
        };
        if let Err(spawn_error) = runtime.spawn_detached(goes) {
            // The other fibers wait at the start for ever.
            runtime.abandon();
            return Err(EventualsError::Spawn(spawn_error));
        }
    }
    let mut should_continue = || should_continue() && lock(&state.spawn_error).is_none();
    let mut is_interrupted = !state.wait_until_all_run(&mut should_continue);
    let (before, stats_before) = (usage::process_usage(), runtime.stats());
    let began = Instant::now();
    state.is_measured.store(true, Relaxed);
    while !is_interrupted && let Some(left) = load.duration.checked_sub(began.elapsed()) {
        thread::sleep(left.min(CONTINUE_CHECK_INTERVAL));
        is_interrupted = !should_continue();
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
        switches_count: stats.switches_count - stats_before.switches_count,
        parks_count: stats.parks_count - stats_before.parks_count,
        is_interrupted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: EventualsLoad = EventualsLoad {
        fibers_count: 3,
        interval: Duration::from_micros(1),
        duration: Duration::from_millis(10),
        workers_count: 1,
    };

    #[test]
    fn measured_time_starts_when_all_fibers_run() {
        let state = LoopState::new(&LOAD);
        state.running_count.store(1, Relaxed);
        let mut polls_count = 0;
        let all_run = state.wait_until_all_run(|| {
            polls_count += 1;
            state.running_count.fetch_add(1, Relaxed);
            true
        });
        assert_eq!((all_run, polls_count), (true, 2));
        assert!(!LoopState::new(&LOAD).wait_until_all_run(|| false));
    }

    #[test]
    fn load_is_stopped_before_and_during_the_measured_time() {
        let stopped = run_eventuals(&LOAD, || false).expect("run the fibers");
        assert!(stopped.is_interrupted);
        let whole = run_eventuals(&LOAD, || true).expect("run the fibers");
        assert!(!whole.is_interrupted && whole.eventuals_count > 0);
    }
}
