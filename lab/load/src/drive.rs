//! Threads that make the load.

mod peer;
mod worker;

use crate::error::{Fault, LoadError};
use crate::plan::{Plan, Work};
use crate::secure::Secures;
use crate::tally::{Shares, Tally};
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// Faults that a report names; others are counted.
const FAULTS_NAMED_MAX: usize = 8;

/// What a thread tells as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It has made its connections.
    Connected {
        /// How many of them.
        count: u64,
    },
    /// It pauses before it makes its connections anew.
    Pausing(Duration),
    /// A connection has failed.
    Failed(Fault),
    /// A thread has ended.
    Ended,
}

/// What has come back so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Messages that were sent.
    pub sent_count: u64,
    /// Messages that came back and were right.
    pub received_count: u64,
    /// How long they took, in all.
    pub latency_ns: u64,
    /// Connections that are open.
    pub open_count: u64,
}

/// What a thread shows to others while it runs. Relaxed, all of it: each number is right by itself, and none
/// orders another.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sent: AtomicU64,
    received: AtomicU64,
    latency_ns: AtomicU64,
    open: AtomicU64,
}

impl Live {
    /// Its thread alone writes it.
    fn came(&self, count: u64, latency_ns: u64) {
        self.received.store(self.received.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        let sum = self.latency_ns.load(Ordering::Relaxed).wrapping_add(latency_ns);
        self.latency_ns.store(sum, Ordering::Relaxed);
    }

    fn went(&self, count: u64) {
        self.sent.store(self.sent.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn open(&self, count: u64) {
        self.open.store(count, Ordering::Relaxed);
    }
}

/// What all threads have to know of each other.
pub(crate) struct Shared {
    stop: AtomicBool,
    events: Sender<Event>,
    origin_ns: u64,
    secures: Option<Arc<dyn Secures>>,
}

/// What one thread has measured, or all of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// How long messages took.
    pub tally: Tally,
    /// Messages that were sent.
    pub sent_count: u64,
    /// Messages that came back and were right, measured or not.
    pub received_count: u64,
    /// Messages that should have come back and did not.
    pub lost_count: u64,
    /// Messages that were due and could not be sent before the time was over.
    pub unsent_count: u64,
    /// How evenly connections were served, in a closed loop that ended in its time.
    pub shares: Shares,
    /// Connections that were made.
    pub connected_count: u64,
    /// Connections that failed.
    pub faults_count: u64,
    /// The first of their faults.
    pub faults: Vec<Fault>,
    /// From the start until the last message came back, or in a timed plan the time that was measured.
    pub elapsed_ns: u64,
    /// The share of the time for which the busiest thread had a CPU.
    pub busy_share: f64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
}

impl Report {
    fn new(linear_step_ns: Option<u64>) -> Self {
        Self {
            tally: Tally::new(linear_step_ns),
            sent_count: 0,
            received_count: 0,
            lost_count: 0,
            unsent_count: 0,
            shares: Shares::default(),
            connected_count: 0,
            faults_count: 0,
            faults: Vec::new(),
            elapsed_ns: 0,
            busy_share: 0.0,
            stopped: false,
        }
    }

    /// Adds what another thread, or another process beside it, has measured.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.sent_count += other.sent_count;
        self.received_count += other.received_count;
        self.lost_count = self.lost_count.saturating_add(other.lost_count);
        self.unsent_count += other.unsent_count;
        self.shares.add(other.shares);
        self.connected_count += other.connected_count;
        self.faults_count += other.faults_count;
        let room = FAULTS_NAMED_MAX.saturating_sub(self.faults.len());
        self.faults.extend(other.faults.iter().take(room).cloned());
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.busy_share = self.busy_share.max(other.busy_share);
        self.stopped |= other.stopped;
    }

    fn fault(&mut self, fault: Fault) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_NAMED_MAX {
            self.faults.push(fault);
        }
    }

    /// Messages that came back by second, of those that were measured.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.tally.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Threads that make the load of a plan, until its end.
pub struct Load {
    threads: Vec<JoinHandle<Report>>,
    live: Vec<Arc<Live>>,
    shared: Arc<Shared>,
    events: Receiver<Event>,
    plan: Plan,
}

impl Load {
    /// Starts the plan's threads.
    ///
    /// # Errors
    /// [`LoadError`]: the plan is not valid, or a thread could not be started; those that were are stopped.
    pub fn start(plan: &Plan) -> Result<Self, LoadError> {
        Self::start_with(plan, None)
    }

    /// The same, over secured connections.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_secured(plan: &Plan, secures: Arc<dyn Secures>) -> Result<Self, LoadError> {
        Self::start_with(plan, Some(secures))
    }

    fn start_with(plan: &Plan, secures: Option<Arc<dyn Secures>>) -> Result<Self, LoadError> {
        plan.validate()?;
        clock::calibration();
        let (sender, events) = channel();
        let origin_ns = clock::now_ns();
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { stop, events: sender, origin_ns, secures });
        let plan = plan.clone();
        let mut load = Self { threads: Vec::new(), live: Vec::new(), shared, events, plan };
        for thread in 0..load.plan.threads_count {
            let live = Arc::new(Live::default());
            let worker =
                Worker::new(thread, &load.plan, Arc::clone(&load.shared), Arc::clone(&live));
            let builder = std::thread::Builder::new().name(format!("load-{thread}"));
            match builder.spawn(move || worker.run()) {
                Ok(started) => load.threads.push(started),
                // Those that run already are stopped when `load` is dropped.
                Err(error) => return Err(LoadError::Thread(error)),
            }
            load.live.push(live);
        }
        Ok(load)
    }

    /// What has come back so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.live.iter().fold(Progress::default(), |sum, live| Progress {
            sent_count: sum.sent_count + live.sent.load(Ordering::Relaxed),
            received_count: sum.received_count + live.received.load(Ordering::Relaxed),
            latency_ns: sum.latency_ns.wrapping_add(live.latency_ns.load(Ordering::Relaxed)),
            open_count: sum.open_count + live.open.load(Ordering::Relaxed),
        })
    }

    /// How long it has been running.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(clock::now_ns().saturating_sub(self.shared.origin_ns))
    }

    /// The next thing that a thread tells; None when nothing does for so long.
    pub fn event(&self, within: Duration) -> Option<Event> {
        self.events.recv_timeout(within).ok()
    }

    /// Whether every thread has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Sends nothing more and waits for nothing more; what was measured is kept.
    pub fn stop(&self) {
        // Relaxed: a flag alone; the threads are joined before anything else is read.
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end and gives what was measured.
    ///
    /// # Errors
    /// [`LoadError::Panicked`].
    ///
    /// # Blocking
    /// Until the plan is done, or a moment longer than the plan's time-out after [`stop`](Self::stop).
    pub fn finish(mut self) -> Result<Report, LoadError> {
        let step_ns = self.plan.linear_step.map(|step| step.as_nanos() as u64);
        let mut sum = Report::new(step_ns);
        for thread in std::mem::take(&mut self.threads) {
            sum.add(&thread.join().map_err(|_| LoadError::Panicked)?);
        }
        if let Some(total) = self.plan.total_count() {
            sum.lost_count = total - sum.received_count.min(total);
        }
        if let Work::Timed { duration, .. } = self.plan.work
            && !sum.stopped
        {
            sum.elapsed_ns = duration.as_nanos() as u64;
        }
        Ok(sum)
    }
}

/// Stops the threads and waits for them.
impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
        for thread in std::mem::take(&mut self.threads) {
            // Whatever it ended of, it has ended.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("plan", &self.plan).finish_non_exhaustive()
    }
}
