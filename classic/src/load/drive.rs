//! Threads that generate the load.

mod connection;
mod worker;

use crate::load::error::{Fault, LoadError};
use crate::load::latencies::{ConnectionShares, LatencyHistograms};
use crate::load::plan::LoadPlan;
use crate::load::secure::ClientTls;
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// Maximum number of faults that a report describes. Further faults are only counted.
const FAULTS_NAMED_MAX: usize = 8;

/// Event of a load thread, sent as soon as it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A thread has made all its connections.
    Connected {
        /// Number of connections of the thread.
        count: u64,
    },
    /// A thread pauses before it reconnects.
    Pausing(Duration),
    /// A connection has failed.
    Failed(Fault),
    /// A thread has finished.
    Finished,
}

/// Totals of a load so far: echoes, their latencies, and open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Number of correct echoes that were received.
    pub received_count: u64,
    /// Sum of the latencies of the received echoes.
    pub latency_ns: u64,
    /// Number of open connections.
    pub open_count: u64,
}

impl Progress {
    /// Returns the sum of two threads' or processes' totals.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            received_count: self.received_count + other.received_count,
            latency_ns: self.latency_ns.wrapping_add(other.latency_ns),
            open_count: self.open_count + other.open_count,
        }
    }
}

/// Counters of a running thread. All accesses are Relaxed: each number is correct by itself, and
/// none orders another.
#[derive(Debug, Default)]
pub(crate) struct LiveCounters {
    received_count: AtomicU64,
    /// Sum of the latencies of the received echoes.
    latency_sum_ns: AtomicU64,
    open_count: AtomicU64,
}

impl LiveCounters {
    /// Adds received echoes and the sum of their latencies. Only the counters' thread calls this.
    fn add_received(&self, count: u64, latency_ns: u64) {
        let received = self.received_count.load(Ordering::Relaxed) + count;
        self.received_count.store(received, Ordering::Relaxed);
        let sum = self.latency_sum_ns.load(Ordering::Relaxed).wrapping_add(latency_ns);
        self.latency_sum_ns.store(sum, Ordering::Relaxed);
    }

    fn set_open_count(&self, count: u64) {
        self.open_count.store(count, Ordering::Relaxed);
    }
}

/// State that the threads of a load share.
pub(crate) struct SharedState {
    /// `true` once the load is to stop early.
    should_stop: AtomicBool,
    /// Channel for the events of all threads.
    events: Sender<Event>,
    /// Start time of the load. All other times count from it.
    origin_ns: u64,
    /// TLS setup of the connections; `None` without TLS.
    encryption: Option<Arc<ClientTls>>,
}

/// Measurements of a load: of one thread, or of several threads and processes together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Latency histograms of the measured messages.
    pub latencies: LatencyHistograms,
    /// Number of messages sent.
    pub sent_count: u64,
    /// Number of correct echoes received, measured or not.
    pub received_count: u64,
    /// Number of messages whose echo is missing. In a load limited by messages, it includes
    /// messages that were never sent.
    pub lost_count: u64,
    /// Number of messages that were due, but were not sent before the end of the measured time.
    pub unsent_count: u64,
    /// Distribution of messages over connections, in a closed loop stopped by its time limit.
    pub shares: ConnectionShares,
    /// Number of connections made.
    pub connected_count: u64,
    /// Number of connections that failed.
    pub faults_count: u64,
    /// Descriptions of the first faults.
    pub faults: Vec<String>,
    /// Duration of the measurement; of the whole load if it ends after a number of messages. The
    /// warm-up does not count.
    pub elapsed_ns: u64,
    /// CPU time of the busiest thread as a share of the elapsed time.
    pub busy_share: f64,
    /// `true` if the load was stopped before it was complete.
    pub is_stopped: bool,
}

impl LoadReport {
    pub(crate) fn new(linear_bucket_ns: Option<u64>) -> Self {
        Self {
            latencies: LatencyHistograms::new(linear_bucket_ns),
            sent_count: 0,
            received_count: 0,
            lost_count: 0,
            unsent_count: 0,
            shares: ConnectionShares::default(),
            connected_count: 0,
            faults_count: 0,
            faults: Vec::new(),
            elapsed_ns: 0,
            busy_share: 0.0,
            is_stopped: false,
        }
    }

    /// Adds the measurements of another thread, or of another process.
    pub fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
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
        self.is_stopped |= other.is_stopped;
    }

    fn record_fault(&mut self, fault: &Fault) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_NAMED_MAX {
            self.faults.push(fault.to_string());
        }
    }

    /// Returns the number of measured echoes per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.latencies.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Running threads that generate the load of a plan.
pub struct Load {
    threads: Vec<JoinHandle<LoadReport>>,
    /// Counters of each thread.
    live: Vec<Arc<LiveCounters>>,
    shared: Arc<SharedState>,
    events: Receiver<Event>,
    plan: LoadPlan,
}

impl Load {
    /// Starts the threads of a load. They connect with TLS if `encryption` is `Some`.
    ///
    /// # Errors
    /// Fails with a [`LoadError`] if the plan is not valid or a thread cannot be started; threads
    /// already started are stopped.
    pub fn start(plan: &LoadPlan, encryption: Option<Arc<ClientTls>>) -> Result<Self, LoadError> {
        plan.validate()?;
        clock::calibration();
        let (sender, events) = channel();
        let origin_ns = clock::now_ns();
        let should_stop = AtomicBool::new(false);
        let shared = Arc::new(SharedState { should_stop, events: sender, origin_ns, encryption });
        let plan = plan.clone();
        let mut load = Self { threads: Vec::new(), live: Vec::new(), shared, events, plan };
        for thread in 0..load.plan.threads_count {
            let live = Arc::new(LiveCounters::default());
            let worker =
                Worker::new(thread, &load.plan, Arc::clone(&load.shared), Arc::clone(&live));
            let builder = std::thread::Builder::new().name(format!("load-{thread}"));
            match builder.spawn(move || worker.run()) {
                Ok(started) => load.threads.push(started),
                // Dropping `load` stops the threads already started.
                Err(error) => return Err(LoadError::Thread(error)),
            }
            load.live.push(live);
        }
        Ok(load)
    }

    /// Returns the totals of all threads so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let of_thread = |live: &Arc<LiveCounters>| Progress {
            received_count: live.received_count.load(Ordering::Relaxed),
            latency_ns: live.latency_sum_ns.load(Ordering::Relaxed),
            open_count: live.open_count.load(Ordering::Relaxed),
        };
        self.live.iter().map(of_thread).fold(Progress::default(), Progress::plus)
    }

    /// Waits up to `within` for the next event; returns `None` if none occurs.
    pub fn wait_for_event(&self, within: Duration) -> Option<Event> {
        self.events.recv_timeout(within).ok()
    }

    /// Returns `true` if every thread has finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Orders the threads to stop early. The measurements so far remain available.
    pub fn stop(&self) {
        // Relaxed: the flag publishes no other data; the threads are joined before their results
        // are read.
        self.shared.should_stop.store(true, Ordering::Relaxed);
    }

    /// Waits until all threads have finished, and returns the measurements.
    ///
    /// # Errors
    /// Fails with [`LoadError::Panicked`] if a thread panicked.
    ///
    /// # Blocking
    /// Blocks until the plan is done, or for a moment longer than the plan's time-out after
    /// [`stop`](Self::stop).
    pub fn finish(mut self) -> Result<LoadReport, LoadError> {
        let bucket_ns = self.plan.linear_bucket.map(|step| step.as_nanos() as u64);
        let mut sum = LoadReport::new(bucket_ns);
        for thread in std::mem::take(&mut self.threads) {
            sum.add(&thread.join().map_err(|_| LoadError::Panicked)?);
        }
        if let Some(total) = self.plan.total_count() {
            sum.lost_count = total - sum.received_count.min(total);
        }
        Ok(sum)
    }
}

/// Stops and joins the threads.
impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
        for thread in std::mem::take(&mut self.threads) {
            // The result, a panic included, is discarded.
            drop(thread.join());
        }
    }
}

handover_base::debug_struct!(Load as it { plan: it.plan });
