//! Stopwatch of a workload, and its samples.

use crate::counters::HardwareCounters;
use crate::off_cpu::OffCpuSpan;
use crate::pace;
use crate::raw::{AllocationCounts, Control, is_counting, without_counting};
use crate::spent::ResourceUsage;
use crate::trace;
use handover_base::clock;
use handover_base::random::SplitMix64;
use handover_base::sync::shared::Ordering;
use handover_base::usage::{self, Usage};
use handover_record::{ALLOCATED_BYTES_COUNTER, ALLOCATIONS_COUNTER};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum number of samples of one part in one round. When full, one of each two is dropped, and
/// from then on half as many are added, so that 64 KiB represent the whole round. They are chosen
/// at random, as a cost may recur every few operations.
const SAMPLES_MAX: usize = 8192;

/// Minimum duration of a batch. Reading the clock then takes less than 1 % of it.
const BATCH_MIN_NS: u64 = 10_000;

/// Approximate interval between two calibration loops while batches are timed.
const BATCHES_PACE_CHECK_NS: u64 = 10_000;
/// Approximate interval between two calibration loops while the workload itself times its
/// operations.
const SINGLES_PACE_CHECK_NS: u64 = 50_000;

/// Maximum time that a participant waits for its core's full speed before a round.
const PACE_WAIT_MAX_NS: u64 = 3_000_000;

/// Flag of a sample that was measured while the core was slowed. No time has this bit set.
const SLOWED: u64 = 1 << 63;

/// Average number of batches between two operations that are timed alone.
const BATCHES_PER_ALONE: usize = 4;

/// Time limit of a workload's own loop in a smoke run. The loop does at least `batches_max`
/// iterations.
const SMOKE_NS: u64 = 20_000_000;

/// Timing parameters of one round of a contender.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// Time for which a measured participant runs its operations.
    pub round_ns: u64,
    /// Number of operations in a batch; 0 if the round must determine it.
    pub batch: u64,
    /// Maximum number of batches; 0 if only the time limits them. Set by smoke runs.
    pub batches_max: u32,
    /// Pause before each hand-over.
    pub idle_gap_ns: u64,
    /// `true` to monitor the speed of the participants' cores. `false` in a smoke run, with
    /// `--neighbour`, and if participants share a core.
    pub watch_pace: bool,
    /// Duration of the fastest calibration loop of earlier rounds, in ticks; 0 if unknown.
    pub pace_ticks: u64,
    /// Seed for the choice of operations that are timed alone.
    pub seed: u64,
    /// `true` if the operations of a batch overlap, so that none is timed alone. See
    /// [`Spec::pipelined`](handover_record::Spec::pipelined).
    pub pipelined: bool,
}

/// Measurements of one participant in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ParticipantResult {
    /// Samples of each part of the benchmark.
    pub parts: Vec<PartSamples>,
    /// Sums of the workload's counters, by name.
    pub counters: BTreeMap<String, f64>,
    pub bytes_per_op: u64,
    /// Number of operations that the participant has in progress at a time. Each sample times one
    /// of them; 0 stands for 1.
    #[serde(default)]
    pub concurrent_operations: u64,
    /// Number of operations, if the workload has set it.
    #[serde(default)]
    pub operations_count: Option<u64>,
    /// Wall-clock time from the participant's start to its end.
    pub wall_ns: u64,
    /// Resources used by the process in the round, including worker threads and exited children.
    pub used: ResourceUsage,
    /// Resources used by the participant's own thread.
    pub own: ResourceUsage,
    /// `true` if a serving participant's core was slow at the start or end of the round. Always
    /// `false` for a measured participant.
    pub slowed: bool,
    /// Duration of this round's fastest calibration loop, in ticks. All participants run meanwhile;
    /// 0 if the speed was not monitored.
    pub pace_ticks: u64,
    /// Instructions, cycles and cache misses; `None` without hardware counters.
    pub hardware: Option<[u64; 3]>,
    /// Spans in which the thread was runnable without a CPU. `None` unless the round is recorded
    /// and the kernel reports them.
    #[serde(default)]
    pub off_cpu: Option<Vec<OffCpuSpan>>,
}

/// Records an event at the probe site `lab.batch`, which marks the time between two batches.
#[inline(always)]
fn between_batches() {
    handover_probe::probe!("lab.batch");
}

/// Samples of one part of a benchmark. They are clock ticks of `batch` operations each, or values
/// recorded by the workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartSamples {
    /// Number of operations in a sample.
    pub batch: u64,
    /// Samples; those measured while the core was slowed have the flag [`SLOWED`].
    samples: Vec<u64>,
    /// Sum of all samples, including those that are not stored.
    pub samples_total: u64,
    /// `true` if the samples are values that the workload recorded, instead of times. Such values
    /// are in thousandths of the spec's unit.
    pub has_values: bool,
    /// Number of operations in all samples.
    pub ops_total: u64,
    /// Number of operations in no sample: those of the warm-up, timed alone, or untimed.
    pub ops_beside: u64,
    /// Ticks of operations drawn at random and timed alone, less the cost of the clock readings.
    /// `None` if no operations are drawn.
    pub alone: Option<Vec<u64>>,
    /// `true` if the workload timed single operations between other work. The rate then follows
    /// from the wall-clock time.
    pub singles: bool,
    /// Mean interval, in samples, at which one is stored; doubled whenever the list is full.
    stride: u32,
    /// Number of samples up to the next one that is stored, including it.
    gap: u32,
    #[serde(skip)]
    random: SplitMix64,
    /// Number of samples, from the first, that are already classified as slowed or not.
    #[serde(skip)]
    classified_count: usize,
}

/// Returns an empty list whose memory has been written to. Adding samples then causes no page
/// fault.
fn new_touched_list() -> Vec<u64> {
    let mut samples = vec![u64::MAX; SAMPLES_MAX];
    samples.clear();
    samples
}

impl PartSamples {
    /// Creates an empty list; `seed` determines which samples are stored.
    fn new(seed: u64) -> PartSamples {
        PartSamples {
            batch: 1,
            samples: new_touched_list(),
            stride: 1,
            gap: 1,
            random: SplitMix64::new(seed),
            ..PartSamples::default()
        }
    }

    /// Sets the flag [`SLOWED`] of the samples added since the last call, if `slowed` is `true`.
    fn classify_new_samples(&mut self, slowed: bool) {
        if slowed && !self.has_values {
            self.samples[self.classified_count..].iter_mut().for_each(|sample| *sample |= SLOWED);
        }
        self.classified_count = self.samples.len();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Iterates over the samples, each as a figure per operation, in order of time. The flag is
    /// `true` if the core was slowed.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (f64, bool)> {
        self.samples
            .iter()
            .map(|sample| (self.figure_per_op(sample & !SLOWED, self.batch), sample & SLOWED != 0))
    }

    /// Converts a sum over `ops` operations to the figure of one operation. It is in ns, or in the
    /// spec's unit for recorded values.
    pub(crate) fn figure_per_op(&self, sum: u64, ops: u64) -> f64 {
        let thousandths = if self.has_values { sum } else { clock::ps_from_ticks(sum) };
        thousandths as f64 / 1000.0 / ops.max(1) as f64
    }

    /// Adds a sample of `ops` operations to the totals. Stores one of `stride` samples on average.
    #[inline]
    fn add_ticks(&mut self, ticks: u64, ops: u64) {
        self.samples_total += ticks;
        self.ops_total += ops;
        self.gap -= 1;
        if self.gap > 0 {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.thin();
        }
        self.gap = 1 + self.random.next_below(2 * self.stride as usize - 1) as u32;
        self.samples.push(ticks);
    }

    /// Removes one of each two samples, and doubles the stride.
    #[cold]
    fn thin(&mut self) {
        let classified_pairs = self.classified_count / 2;
        let has_mixed_pair = !self.classified_count.is_multiple_of(2);
        for pair in 0..self.samples.len() / 2 {
            // Of a pair of which one is classified, the other stays.
            let is_mixed = has_mixed_pair && pair == classified_pairs;
            let kept = if is_mixed { 1 } else { self.random.next_below(2) };
            self.samples[pair] = self.samples[2 * pair + kept];
        }
        self.samples.truncate(self.samples.len() / 2);
        self.classified_count = classified_pairs;
        self.stride = (2 * self.stride).min(1 << 30);
    }
}

/// Stopwatch with which a workload times one participant's operations in one round.
#[derive(Debug)]
pub struct Samples {
    timing: Timing,
    control: Option<Control>,
    /// `true` if the participant is measured; `false` if it only serves the measured ones.
    measured: bool,
    parts: Vec<PartSamples>,
    counters: BTreeMap<String, f64>,
    bytes_per_op: u64,
    concurrent_operations: u64,
    operations_count: Option<u64>,
    began_ticks: u64,
    deadline_ticks: u64,
    /// Number of iterations left in a smoke run; `u32::MAX` in other runs.
    iterations_left: u32,
    /// Number of iterations done in a smoke run.
    iterations_count: u32,
    /// Resource usage of the thread and of the process at the start.
    usage_began: [Usage; 2],
    /// Total time for which the thread had waited for a CPU at the start. `None` if the kernel does
    /// not report it.
    delayed_began_ns: Option<u64>,
    /// Hardware counters of the thread; `None` if they are not counted.
    hardware: Option<HardwareCounters>,
    /// Allocations of the thread at the start; `None` if they are not counted.
    allocated_began: Option<AllocationCounts>,
    /// Time of the next calibration loop, in ticks.
    next_pace_check_ticks: u64,
    /// `true` if the core was slowed during the last calibration loop.
    slowed: bool,
    /// Duration of the fastest calibration loop of this round, in ticks; 0 if unknown.
    fastest_ticks: u64,
    random: SplitMix64,
}

impl Samples {
    pub(crate) fn new(
        timing: Timing,
        parts_count: usize,
        measured: bool,
        control: Option<Control>,
    ) -> Samples {
        Samples {
            timing,
            control,
            measured,
            parts: (0..parts_count.max(1) as u64)
                .map(|part| PartSamples::new(timing.seed.wrapping_add(part)))
                .collect(),
            counters: BTreeMap::new(),
            bytes_per_op: 0,
            concurrent_operations: 1,
            operations_count: None,
            began_ticks: 0,
            deadline_ticks: 0,
            iterations_left: 0,
            iterations_count: 0,
            usage_began: Default::default(),
            delayed_began_ns: None,
            hardware: None,
            allocated_began: None,
            next_pace_check_ticks: u64::MAX,
            slowed: false,
            fastest_ticks: 0,
            random: SplitMix64::new(timing.seed),
        }
    }

    /// Sets the hardware counters of the participant's thread; `None` to count nothing.
    pub(crate) fn set_hardware_counters(&mut self, counters: Option<HardwareCounters>) {
        self.hardware = counters;
    }

    /// Waits, at most 3 ms, until this participant's core runs at full speed. A round of several
    /// participants that starts with undisturbed cores is more often undisturbed to the end.
    pub(crate) fn wait_for_full_speed(&self) {
        if !self.timing.watch_pace {
            return;
        }
        let until = clock::ticks() + clock::ticks_from_ns(PACE_WAIT_MAX_NS);
        while pace::is_slower(pace::time_loop_ticks(), self.timing.pace_ticks)
            && clock::ticks() < until
        {}
    }

    /// Starts the participant's round: its resource usage, counters and deadline.
    pub(crate) fn start(&mut self) {
        self.iterations_left = if self.timing.batches_max == 0 {
            u32::MAX
        } else {
            // A smoke run still includes the steady state of a hand-over: a few hundred iterations.
            self.timing.batches_max.saturating_mul(100)
        };
        self.iterations_count = 0;
        if self.timing.watch_pace {
            self.slowed = self.run_calibration_loop();
            self.next_pace_check_ticks = if self.measured { 0 } else { u64::MAX };
        }
        self.restart_round();
    }

    /// Restarts the time of the round. Called after preparations of
    /// [`Handover::play`](crate::Handover::play) that may take longer than a round: handshakes, the
    /// start of many participants. The round's resource usage still includes them.
    pub fn restart_round_time(&mut self) {
        self.deadline_ticks = clock::ticks() + clock::ticks_from_ns(self.timing.round_ns);
    }

    /// Restarts the round after operations that are not measured: its time, its resource usage, its
    /// hardware counters and its count of allocations. Called on the participant's own thread.
    pub fn restart_round(&mut self) {
        self.delayed_began_ns = without_counting(trace::run_delay_ns);
        self.usage_began =
            [usage::thread_usage(), usage::process_usage() + usage::children_usage()];
        // Counters that cannot be started count nothing, and are then not reported.
        let _ = self.hardware.as_mut().map(HardwareCounters::restart);
        self.allocated_began = is_counting().then(AllocationCounts::of_this_thread);
        self.began_ticks = clock::ticks();
        self.restart_round_time();
    }

    /// Ends the participant's round and returns its measurements.
    pub(crate) fn finish(mut self) -> ParticipantResult {
        let wall_ns = clock::ns_from_ticks(clock::ticks().saturating_sub(self.began_ticks)).max(1);
        // Taken first: reading the hardware counters allocates and takes system time.
        let allocated = self.allocated_began.map(AllocationCounts::since);
        let [thread_began, process_began] = self.usage_began;
        let own = usage::thread_usage() - thread_began;
        let used = usage::process_usage() + usage::children_usage() - process_began;
        let hardware = self.hardware.take().and_then(HardwareCounters::read);
        if let Some(allocated) = allocated {
            self.add_to_counter(ALLOCATIONS_COUNTER, allocated.allocations as f64);
            self.add_to_counter(ALLOCATED_BYTES_COUNTER, allocated.bytes as f64);
        }
        let delayed_ns = self
            .delayed_began_ns
            .and_then(|before| Some(trace::run_delay_ns()?.saturating_sub(before)));
        if self.timing.watch_pace {
            let before = self.slowed;
            self.check_pace(0);
            self.slowed |= before;
        }
        ParticipantResult {
            parts: self.parts,
            counters: self.counters,
            bytes_per_op: self.bytes_per_op,
            concurrent_operations: self.concurrent_operations,
            operations_count: self.operations_count,
            wall_ns,
            used: used.into(),
            own: ResourceUsage { delayed_ns, ..own.into() },
            slowed: self.slowed && !self.measured,
            pace_ticks: self.fastest_ticks,
            hardware,
            off_cpu: None,
        }
    }

    /// Times batches of operations until the round's time is over. `operations(n)` must do the
    /// operation `n` times. The harness chooses `n`: large enough that reading the clock takes less
    /// than 1 % of a batch, or 1 if every contender's operation takes more than twenty clock
    /// readings.
    #[inline]
    pub fn time_batches(&mut self, mut operations: impl FnMut(u64)) {
        self.time_batches_dyn(0, &mut operations);
    }

    /// Times batches of the part at index `part` of the spec, like
    /// [`time_batches`](Samples::time_batches).
    ///
    /// # Panics
    /// Panics if the spec has no such part.
    #[inline]
    pub fn time_batches_of_part(&mut self, part: usize, mut operations: impl FnMut(u64)) {
        self.time_batches_dyn(part, &mut operations);
    }

    /// Times operations as samples of a part. Compiled once for all workloads, at the cost of an
    /// indirect call a batch.
    fn time_batches_dyn(&mut self, part: usize, operations: &mut dyn FnMut(u64)) {
        let batch = if self.timing.idle_gap_ns > 0 {
            1
        } else if self.timing.batches_max > 0 {
            self.timing.batch.max(2)
        } else if self.timing.batch > 0 {
            // The first batch after a setup runs with cold caches; it is done and not recorded.
            operations(self.timing.batch);
            self.parts[part].ops_beside += self.timing.batch;
            self.timing.batch
        } else {
            Self::find_batch_size(operations)
        };
        self.parts[part].batch = batch;
        let mut left = self.timing.batches_max;
        let is_drawn = batch > 1 && self.timing.batch > 1 && left == 0 && !self.timing.pipelined;
        if is_drawn {
            self.parts[part].alone.get_or_insert_default();
        }
        loop {
            self.pause_before_handover();
            between_batches();
            let began = clock::ticks();
            operations(batch);
            let ended = clock::ticks();
            self.parts[part].add_ticks(ended.saturating_sub(began), batch);
            if is_drawn && self.random.next_below(BATCHES_PER_ALONE) == 0 {
                self.time_alone(part, batch, operations);
            }
            if self.timing.batches_max > 0 {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            if ended >= self.deadline_ticks {
                break;
            }
            if ended >= self.next_pace_check_ticks {
                self.check_pace(BATCHES_PACE_CHECK_NS);
                if self.control.is_some() {
                    // Untimed: another participant that spins for a limited time may have gone to
                    // sleep during the calibration loop, and a batch is of operations in a row.
                    operations(1);
                    self.parts[part].ops_beside += 1;
                }
            }
        }
        between_batches();
    }

    /// Times one operation alone, at a random position in a batch. A cost that recurs every few
    /// operations is thus sampled at its true frequency.
    fn time_alone(&mut self, part: usize, batch: u64, operations: &mut dyn FnMut(u64)) {
        let before = self.random.next_below(batch as usize) as u64;
        // Workloads count down from their number of operations, and would not end at 0.
        if before > 0 {
            operations(before);
        }
        let began = clock::ticks_fenced();
        operations(1);
        let ended = clock::ticks_fenced();
        let samples = &mut self.parts[part];
        samples.ops_beside += before + 1;
        without_counting(|| {
            let ticks = ended.saturating_sub(began).saturating_sub(clock_readings_ticks());
            samples.alone.get_or_insert_default().push(ticks);
        });
    }

    /// Finds a batch size that takes at least [`BATCH_MIN_NS`], by timing larger and larger
    /// batches.
    fn find_batch_size(operations: &mut dyn FnMut(u64)) -> u64 {
        let enough_ticks = clock::ticks_from_ns(BATCH_MIN_NS);
        let mut timed = |batch| {
            let began = clock::ticks();
            operations(batch);
            clock::ticks().saturating_sub(began)
        };
        let mut batch = 1;
        loop {
            let mut took = timed(batch);
            if took > enough_ticks / 50 {
                // Measured again: the batch may have been interrupted, and a batch that is too
                // short is mostly clock.
                took = took.min(timed(batch));
            }
            if took >= enough_ticks || batch >= 1 << 30 {
                return batch;
            }
            // Scales to the goal once the measured time is long enough for an estimate; doubles
            // until then.
            let scaled = if took > enough_ticks / 50 { batch * enough_ticks / took + 1 } else { 0 };
            batch = scaled.max(batch * 2);
        }
    }

    /// Returns `true` while the participant must continue. It is for workloads that time single
    /// operations themselves, and for serving participants. A measured participant ends when its
    /// time is over, a serving one when every measured one has finished.
    ///
    /// Cost: one reading of the clock for a measured participant, one load of a shared word for a
    /// serving one.
    #[inline]
    pub fn is_running(&mut self) -> bool {
        if !self.measured {
            return !self.has_stopped();
        }
        self.pause_before_handover();
        let now = clock::ticks();
        if self.timing.batches_max > 0 {
            let is_long = || clock::ns_from_ticks(now.saturating_sub(self.began_ticks)) > SMOKE_NS;
            if self.iterations_left == 0
                || self.iterations_count >= self.timing.batches_max && is_long()
            {
                return false;
            }
            self.iterations_left -= 1;
            self.iterations_count += 1;
        }
        if now >= self.next_pace_check_ticks {
            self.check_pace(SINGLES_PACE_CHECK_NS);
        }
        now < self.deadline_ticks
    }

    /// Runs a calibration loop, and classifies the samples since the previous one. If either loop
    /// was slow, the samples get the flag [`SLOWED`].
    #[cold]
    fn check_pace(&mut self, next_ns: u64) {
        let now = self.run_calibration_loop();
        let before = std::mem::replace(&mut self.slowed, now);
        for part in &mut self.parts {
            part.classify_new_samples(before || self.slowed);
        }
        self.next_pace_check_ticks = clock::ticks() + clock::ticks_from_ns(next_ns);
    }

    /// Runs a calibration loop; returns `true` if the core was slowed.
    fn run_calibration_loop(&mut self) -> bool {
        let ticks = pace::time_loop_ticks();
        self.fastest_ticks = pace::min_known_ticks(self.fastest_ticks, ticks);
        pace::is_slower(ticks, pace::min_known_ticks(self.timing.pace_ticks, self.fastest_ticks))
    }

    /// Returns `true` if every measured participant has finished. Cost: one load of a shared word.
    #[inline]
    pub fn has_stopped(&self) -> bool {
        // Acquire: pairs with the Release in Control::finish; the writes of the measured
        // participants before their end are visible.
        self.control.as_ref().is_some_and(|it| it.words().stopped.load(Ordering::Acquire) != 0)
    }

    /// Records the clock ticks of one operation that the workload timed itself. The operation
    /// counts for the part at index `part`.
    ///
    /// # Panics
    /// Panics if the spec has no such part.
    #[inline]
    pub fn record_ticks(&mut self, part: usize, ticks: u64) {
        let samples = &mut self.parts[part];
        samples.singles = true;
        samples.add_ticks(ticks, 1);
    }

    /// Records the clock ticks of a batch of `ops` operations that the workload timed itself. The
    /// batch counts for the part at index `part`. Every batch of a part must have the same length.
    /// Marks the end of a batch for probes, as [`time_batches`](Samples::time_batches) does between
    /// two batches.
    ///
    /// # Panics
    /// Panics if the spec has no such part.
    pub fn record_batch(&mut self, part: usize, ticks: u64, ops: u64) {
        between_batches();
        let samples = &mut self.parts[part];
        samples.batch = ops.max(1);
        samples.add_ticks(ticks, ops);
        // The iteration itself was counted when it started.
        let more = u32::try_from(ops.saturating_sub(1)).unwrap_or(u32::MAX);
        self.iterations_left = self.iterations_left.saturating_sub(more);
    }

    /// Records a value other than a time, such as bytes or a count, in the spec's unit. It counts
    /// for the part at index `part`. It is exact to a thousandth, and independent of slowed cores
    /// and other work on them.
    ///
    /// # Panics
    /// Panics if the spec has no such part.
    pub fn record_value(&mut self, part: usize, figure: f64) {
        let samples = &mut self.parts[part];
        (samples.singles, samples.has_values) = (true, true);
        samples.add_ticks((figure.max(0.0) * 1000.0).round() as u64, 1); // `as` saturates
    }

    /// Adds `count` to the counter `name`. The record contains the counter's sum per operation.
    pub fn add_to_counter(&mut self, name: &str, count: f64) {
        without_counting(|| *self.counters.entry(name.to_string()).or_default() += count);
    }

    /// Sets the number of bytes that one operation moves. The rate in bytes follows from it.
    pub fn set_bytes_per_op(&mut self, bytes: u64) {
        self.bytes_per_op = bytes;
    }

    /// Sets the number of operations that this participant has in progress at a time. Each sample
    /// times one of them, and the rate covers all.
    pub fn set_concurrent_operations(&mut self, count: u64) {
        self.concurrent_operations = count.max(1);
    }

    /// Sets the number of operations by which resource usage and counters are divided. The default
    /// is the number of operations of the part that has the most.
    pub fn set_operations_count(&mut self, count: u64) {
        self.operations_count = Some(count);
    }

    /// Pauses before a hand-over, for the time that the plan requests.
    #[inline]
    fn pause_before_handover(&self) {
        if self.timing.idle_gap_ns > 0 {
            std::thread::sleep(Duration::from_nanos(self.timing.idle_gap_ns));
        }
    }
}

/// Returns the cost of two fenced clock readings: the median of many pairs.
fn clock_readings_ticks() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let pair = |_| {
            let began = clock::ticks_fenced();
            clock::ticks_fenced().saturating_sub(began)
        };
        let mut pairs: Vec<u64> = (0..1001).map(pair).collect();
        *pairs.select_nth_unstable(500).1
    })
}

/// Returns the measured time of an empty operation in ns, timed alone and in a batch.
pub(crate) fn empty_operation_ns() -> (f64, f64) {
    let timing = Timing { round_ns: 300_000, ..Timing::default() };
    let mut single = Samples::new(timing, 1, true, None);
    single.start();
    for _ in 0..2000 {
        let began = clock::ticks();
        single.record_ticks(0, clock::ticks().saturating_sub(began));
    }
    let mut batched = Samples::new(timing, 1, true, None);
    batched.start();
    batched.time_batches(|n| {
        for i in 0..n {
            black_box(i);
        }
    });
    let median = |samples: Samples| {
        let part = &samples.finish().parts[0];
        let mut ticks = part.samples.clone();
        ticks.sort_unstable();
        let middle = ticks.get(ticks.len() / 2).copied().unwrap_or(0);
        part.figure_per_op(middle, part.batch)
    };
    (median(single), median(batched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_whole_round_represented() {
        let mut part = PartSamples::new(7);
        for tick in 0..100_000u64 {
            part.add_ticks(tick, 1);
        }
        assert!(part.samples.len() <= SAMPLES_MAX);
        assert_eq!(part.ops_total, 100_000);
        assert!(part.samples[0] < 100 && *part.samples.last().unwrap() > 99_000);
        let middle = part.samples[part.samples.len() / 2] as f64;
        assert!((40_000.0..60_000.0).contains(&middle), "{middle}");
    }

    #[test]
    fn cost_that_recurs_every_32_operations_keeps_its_share() {
        let mut part = PartSamples::new(7);
        for op in 0..64 * SAMPLES_MAX {
            part.add_ticks(if op.is_multiple_of(32) { 200 } else { 100 }, 1);
        }
        let recurring = part.samples.iter().filter(|&&ticks| ticks == 200).count() as f64;
        let share = recurring / part.samples.len() as f64;
        assert!((0.02..0.045).contains(&share), "{share} instead of 1/32");
    }

    #[test]
    fn samples_of_a_slowed_core_are_included_and_flagged() {
        let mut part = PartSamples::new(7);
        for (count, ticks, slowed) in [(30, 100, false), (70, 200, true)] {
            (0..count).for_each(|_| part.add_ticks(ticks, 1));
            part.classify_new_samples(slowed);
        }
        let slow: Vec<f64> = part.figures().filter(|it| it.1).map(|it| it.0).collect();
        assert_eq!((slow.len(), part.figures().count(), part.ops_total), (70, 100, 100));
        assert!(
            slow.iter().all(|ns| *ns == part.figure_per_op(200, 1)),
            "the slowed flag changed the time"
        );
    }

    #[test]
    fn recorded_values_count_at_any_speed_of_the_core() {
        let timing = Timing { watch_pace: true, ..Timing::default() };
        let mut samples = Samples::new(timing, 2, true, None);
        samples.record_value(1, 1500.25);
        samples.parts[1].classify_new_samples(true);
        samples.record_value(1, -1.0);
        samples.parts[1].classify_new_samples(true);
        let part = &samples.parts[1];
        assert!(part.has_values && part.figures().all(|it| !it.1));
        assert_eq!(part.figures().map(|it| it.0).sum::<f64>(), 1500.25);
        assert_eq!(part.figure_per_op(part.samples_total, part.ops_total), 750.125);
    }

    #[test]
    fn thinning_preserves_the_flags_of_slow_samples() {
        let mut part = PartSamples::new(7);
        for stretch in 0..1000u64 {
            let slowed = stretch % 3 == 0;
            (0..37).for_each(|_| part.add_ticks(if slowed { 200 } else { 100 }, 1));
            part.classify_new_samples(slowed);
        }
        assert!(part.stride > 1, "thinned");
        let slow_ns = part.figure_per_op(200, 1);
        assert!(part.figures().all(|(ns, slowed)| slowed == (ns == slow_ns)));
    }

    #[test]
    fn operations_timed_alone_cover_every_position_of_a_pattern() {
        let mut alone = [0u32; 8];
        // Repeated with new seeds, as a round may be interrupted for its whole time.
        for seed in 0.. {
            let timing = Timing { round_ns: 5_000_000, batch: 64, seed, ..Timing::default() };
            let mut samples = Samples::new(timing, 1, true, None);
            samples.start();
            let mut done = 0u64;
            samples.time_batches(|n| {
                assert!(n > 0, "the workload was called with 0 operations");
                if n == 1 {
                    alone[done as usize % 8] += 1;
                }
                done += black_box(n);
            });
            let part = &samples.finish().parts[0];
            assert_eq!(
                part.ops_total + part.ops_beside,
                done,
                "an operation was counted twice or not at all"
            );
            if alone.iter().sum::<u32>() > 800 {
                break;
            }
        }
        assert!(alone.iter().all(|count| *count > 40), "{alone:?}");
    }

    #[test]
    fn a_batch_grows_until_the_clock_is_negligible() {
        let timing = Timing { round_ns: 2_000_000, ..Timing::default() };
        let mut batches = Vec::new();
        // Both rounds may be interrupted, but hardly every time.
        for _ in 0..20 {
            let mut samples = Samples::new(timing, 1, true, None);
            samples.start();
            let mut done = 0u64;
            samples.time_batches(|n| {
                let mut i = 0;
                // Short enough that more batches than the bound below fit, even without
                // optimisation.
                while i < n {
                    i += 1;
                }
                black_box(i);
                done += n;
            });
            let samples = samples.finish();
            assert!(samples.parts[0].ops_total <= done);
            batches.push(samples.parts[0].batch);
        }
        batches.sort_unstable();
        assert!(batches[10] > 1000, "{batches:?}");
    }

    #[test]
    fn a_smoke_run_ends_after_its_batches() {
        let timing = Timing { round_ns: u64::MAX / 4, batches_max: 3, ..Timing::default() };
        let mut samples = Samples::new(timing, 1, true, None);
        samples.start();
        let mut calls = 0;
        samples.time_batches(|_| calls += 1);
        assert_eq!(calls, 3);
        let mut turns = 0;
        while samples.is_running() {
            turns += 1;
        }
        assert_eq!(turns, 300);
    }

    #[test]
    fn preparations_before_a_restart_take_no_time_of_the_round() {
        let timing = Timing { round_ns: 1_000_000_000, ..Timing::default() };
        let mut samples = Samples::new(timing, 1, true, None);
        samples.start();
        // As if the preparations had taken the whole time.
        samples.deadline_ticks = clock::ticks();
        assert!(!samples.is_running());
        samples.restart_round_time();
        assert!(samples.is_running());
    }

    #[test]
    fn batch_of_a_smoke_run_counts_all_its_operations() {
        let timing = Timing { round_ns: u64::MAX / 4, batches_max: 3, ..Timing::default() };
        for (ops, expected) in [(1, 300), (100, 3), (4096, 1)] {
            let mut samples = Samples::new(timing, 1, true, None);
            samples.start();
            let mut turns = 0;
            while samples.is_running() {
                samples.record_batch(0, 1, ops);
                turns += 1;
            }
            assert_eq!(turns, expected, "in batches of {ops}");
        }
    }
}
