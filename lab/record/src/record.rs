//! Results of a run.

use crate::anatomy::Anatomy;
use crate::finding::Finding;
use crate::host::Host;
use crate::proof::Proof;
use crate::spec::{ContenderKind, Unit, Wait};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Returns `true` for 0, which the JSON form omits.
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Name of the counter with the number of allocations and reallocations, if they were counted.
pub const ALLOCATIONS_COUNTER: &str = "allocations";
/// Name of the counter with the number of allocated bytes, if they were counted.
pub const ALLOCATED_BYTES_COUNTER: &str = "allocated_bytes";

/// Version of the JSON form of runs and records.
pub const JSON_SCHEMA_VERSION: u32 = 1;

/// One run: all passes of one command on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Id, unique across machines: start time and process id in hexadecimal.
    pub id: String,
    /// Start time of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Version of handover that measured the run.
    pub version: String,
    /// Commit of the measured build, with `+dirty` if the tree was modified; empty if unknown.
    pub commit: String,
    /// Measurement profile: smoke, quick or full.
    pub profile: String,
    /// Command line of the run. One of `--repeat` contains `--nth=N`, the number of its process.
    pub command: String,
    /// Seed of all random orders and placements of the run; 0 if it has none. It is below 2^53.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// Machine of the run.
    pub host: Host,
    /// Findings about disturbances at the start of the run, worst first. Empty if the machine was
    /// not examined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// `true` if the run finished. An interrupted or killed run did not.
    pub complete: bool,
    /// Smallest relative difference that this run can detect in a benchmark on one CPU. It is the
    /// difference between two measurements of the same code. `None` until measured.
    pub null_one: Option<f64>,
    /// Smallest relative difference that this run can detect in a benchmark on several CPUs.
    pub null_several: Option<f64>,
    /// Costs of known size that this run added on purpose. Each has the value that the run measured
    /// for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
}

/// Returns a run's [`command`](Run::command) as the user wrote it: without `--nth=N`, which
/// `--repeat` adds.
pub fn command_without_nth(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').filter(|word| !word.starts_with("--nth=")).collect();
    words.join(" ")
}

/// One figure of one contender, with its conditions and the data behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Id of the figure: the spec's id, or `spec/part`.
    pub id: String,
    /// Id of the benchmark's spec.
    pub spec: String,
    /// Name of the contender.
    pub contender: String,
    /// Kind of the contender: ours, peer, floor or null.
    pub kind: ContenderKind,
    /// Strategy by which the contender waits for the other participants.
    #[serde(default, skip_serializing_if = "Wait::is_none")]
    pub waits: Wait,
    /// `true` if each operation allocates memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocates: bool,
    /// Description of the timed operation.
    pub what: String,
    /// Unit of the figure, and of all values that are derived from it.
    pub unit: Unit,
    /// `true` if the default run shows the figure.
    pub ladder: bool,
    /// Values of the benchmark's arguments, by name.
    pub args: BTreeMap<String, u64>,
    /// The participants and their placement.
    #[serde(rename = "parties")]
    pub participants: Participants,
    /// Start of the benchmark's measurement, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// The figure with its interval and quantiles.
    pub summary: Summary,
    /// Operations per second, of all measured participants together.
    pub rate_per_s: f64,
    /// Bytes moved per second; `None` if the operation moves no bytes.
    pub bytes_per_s: Option<f64>,
    /// Number of CPUs used in user space during the measurement: 2.0 is two busy CPUs. It counts
    /// the process, or all participants' processes.
    pub cpus_user: f64,
    /// Number of CPUs used in kernel space by the same processes.
    pub cpus_system: f64,
    /// Voluntary context switches per operation.
    pub switches_voluntary_per_op: f64,
    /// Involuntary context switches per second.
    pub switches_involuntary_per_s: f64,
    /// Page faults per operation that needed no I/O. The memory was touched for the first time, or
    /// copied on write.
    #[serde(default)]
    pub faults_minor_per_op: f64,
    /// Page faults per second that waited for a disk.
    #[serde(default)]
    pub faults_major_per_s: f64,
    /// Resource usage of each role, and of threads without a role. Empty if there is only one role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleUsage>,
    /// Figure of an empty operation that was timed in the same way, in the record's unit. It is
    /// shown for comparison, never subtracted.
    pub empty: Option<f64>,
    /// Ratio of the figure to its floor; `None` without a floor.
    pub floor: Option<Ratio>,
    /// Ratios to the peers that wait in the same way.
    pub peers: Vec<Ratio>,
    /// Peers that wait in another way. They are shown for comparison, without a ratio of the
    /// figures.
    #[serde(rename = "beside", default, skip_serializing_if = "Vec::is_empty")]
    pub peers_without_ratio: Vec<PeerWithoutRatio>,
    /// The two modes of a bimodal figure; otherwise empty. The operations, rounds or passes are
    /// bimodal.
    pub modes: Vec<FigureMode>,
    /// Further quantities recorded by the workload, by name (`slept_share`).
    pub counters: BTreeMap<String, f64>,
    /// Hardware counters per operation; `None` if the machine has none.
    pub hardware: Option<HardwareCounts>,
    /// Rounds in order of measurement, for later comparison of runs.
    pub rounds: Vec<Round>,
    /// Histogram of all samples, in thousandths of the unit. It is in HdrHistogram's format V2,
    /// compressed, as base64.
    pub histogram: String,
    /// Warnings about this figure.
    pub warnings: Vec<Warning>,
    /// Breakdown of one hand-off's time; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anatomy: Option<Box<Anatomy>>,
}

impl Record {
    /// Returns the ratio to the peer with the smallest figure; `None` without peers.
    pub fn best_peer(&self) -> Option<&Ratio> {
        self.peers.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Returns the peer with the smallest figure among those that wait in another way. Returns
    /// `None` without such peers.
    pub fn best_peer_without_ratio(&self) -> Option<&PeerWithoutRatio> {
        self.peers_without_ratio.iter().min_by(|a, b| a.other.total_cmp(&b.other))
    }
}

/// Participants of a benchmark, and their placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participants {
    /// Name of each participant's role, in the order of the participants.
    pub roles: Vec<String>,
    /// CPU of each participant.
    pub cpus: Vec<u32>,
    /// Placement of the participants: `near`, `far`, `smt` or `same`; empty with one participant.
    pub placement: String,
    /// `true` if the participants were processes rather than threads.
    pub processes: bool,
    /// Pause before each hand-over, in nanoseconds.
    pub idle_gap_ns: u64,
    /// CPU of the busy thread that `--neighbour` added; `None` if there was none.
    pub neighbour_cpu: Option<u32>,
}

impl Participants {
    /// Returns `true` if the participants use several CPUs.
    pub fn has_several_cpus(&self) -> bool {
        self.cpus.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// Resources that the participants of one role used during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleUsage {
    /// Name of the role; [`RoleUsage::OTHER_THREADS_ROLE`] for threads that are not participants.
    pub role: String,
    /// Number of CPUs used in user and kernel space.
    pub cpus: f64,
    /// Average number of participants that were runnable and waited for a CPU. `None` if the kernel
    /// does not report it.
    pub delayed: Option<f64>,
    /// Voluntary context switches per operation.
    pub switches_voluntary_per_op: f64,
    /// Involuntary context switches per second.
    pub switches_involuntary_per_s: f64,
    /// Page faults per operation that needed no I/O.
    pub faults_minor_per_op: f64,
    /// Page faults per second that waited for a disk.
    pub faults_major_per_s: f64,
}

impl RoleUsage {
    /// Role name for threads that are not participants, such as a runtime's workers.
    pub const OTHER_THREADS_ROLE: &str = "other threads";

    /// Returns a mutable reference to each numeric field, with the field's name. Rounding and
    /// checks thus cover all of them.
    pub fn numeric_fields_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut f64)> {
        let RoleUsage {
            role: _,
            cpus,
            delayed,
            switches_voluntary_per_op,
            switches_involuntary_per_s,
            faults_minor_per_op,
            faults_major_per_s,
        } = self;
        let always = [
            ("cpus", cpus),
            ("switches_voluntary_per_op", switches_voluntary_per_op),
            ("switches_involuntary_per_s", switches_involuntary_per_s),
            ("faults_minor_per_op", faults_minor_per_op),
            ("faults_major_per_s", faults_major_per_s),
        ];
        always.into_iter().chain(delayed.as_mut().map(|it| ("delayed", it)))
    }
}

/// The figure and its quantiles, in the record's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of operations measured.
    pub ops: u64,
    /// Number of samples. A sample is a batch of operations, or one operation if that is long
    /// enough.
    pub samples: u64,
    /// Median number of operations in a sample; 1 if each operation was timed singly.
    pub batch: u64,
    /// **The figure**: the median of the passes' figures. A pass's figure is the median of its
    /// rounds' figures. A round's figure is the median of operations timed alone, and a mean of
    /// batches (see [`Round::median`]).
    pub median: f64,
    /// Lower bound of the figure's 95 % interval; `None` with too few passes. The interval is built
    /// from the passes.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper bound of the figure's 95 % interval; `None` with too few passes.
    #[serde(default)]
    pub high: Option<f64>,
    /// Figure without disturbed rounds and samples. `None` if none was disturbed or too few remain.
    #[serde(default)]
    pub undisturbed: Option<f64>,
    /// Number of operations that were timed alone for the quantiles. They were chosen at random
    /// from the batches.
    #[serde(rename = "alone", default)]
    pub single_ops: u64,
    /// Resolution of the clock for an operation timed alone, in ns.
    #[serde(default)]
    pub resolution_ns: f64,
    /// Duration of the shortest operation timed alone.
    #[serde(default)]
    pub min: Option<f64>,
    /// Median duration of the operations timed alone. (In records of earlier versions the quantiles
    /// are of batches: see [`Summary::quantiles`].)
    #[serde(default)]
    pub p50: Option<f64>,
    /// 90 % quantile of the durations of operations timed alone.
    #[serde(default)]
    pub p90: Option<f64>,
    /// 99 % quantile of the durations of operations timed alone.
    #[serde(default)]
    pub p99: Option<f64>,
    /// 99.9 % quantile of the durations of operations timed alone.
    #[serde(default)]
    pub p999: Option<f64>,
    /// Duration of the longest operation timed alone.
    #[serde(default)]
    pub max: Option<f64>,
    /// Mean duration of all operations.
    pub mean: f64,
}

/// Method by which the operations of a figure were timed: one by one, or in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimingKind {
    /// Each operation is timed alone. The figure is the median duration of an operation.
    Single,
    /// Many operations are timed together. The figure is a mean per operation.
    Batch,
}

impl std::fmt::Display for TimingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TimingKind::Single => "single",
            TimingKind::Batch => "batch",
        })
    }
}

/// Quantiles of the durations of operations timed alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// Duration of the shortest operation.
    pub min: f64,
    /// Median duration.
    pub p50: f64,
    /// 90 % quantile of the durations.
    pub p90: f64,
    /// 99 % quantile of the durations.
    pub p99: f64,
    /// 99.9 % quantile of the durations.
    pub p999: f64,
    /// Duration of the longest operation.
    pub max: f64,
}

impl Summary {
    /// Returns the method by which the operations were timed.
    pub fn timing_kind(&self) -> TimingKind {
        if self.batch <= 1 { TimingKind::Single } else { TimingKind::Batch }
    }

    /// Returns the number of operations that were timed alone, from which the quantiles are.
    pub fn timed_alone_count(&self) -> u64 {
        match self.timing_kind() {
            TimingKind::Single => self.samples,
            TimingKind::Batch => self.single_ops,
        }
    }

    /// Maximum resolution of the clock, relative to the median of a round's operations timed alone,
    /// at which that median is the round's figure. Above it, the figure is their mean without the
    /// greatest 1 %.
    pub const STEP_SHARE_MAX: f64 = 0.05;

    /// Returns `true` if the figure of a round is the median of its operations, `false` if it is a
    /// mean.
    pub fn is_median(&self) -> bool {
        self.timing_kind() == TimingKind::Single
            && self.resolution_ns <= Self::STEP_SHARE_MAX * self.median
    }

    /// Returns the bounds of the figure's 95 % interval; `None` if there were too few passes.
    pub fn interval_bounds(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }

    /// Returns half the interval's width, divided by the figure; infinity if only the figure is 0,
    /// and `None` without an interval.
    pub fn relative_half_width(&self) -> Option<f64> {
        let (low, high) = self.interval_bounds()?;
        Some(if low == high { 0.0 } else { (high - low).abs() / 2.0 / self.median.abs() })
    }

    /// Returns the quantiles of the operations' durations; `None` if no operation was timed alone.
    /// Quantiles of the means of batches say nothing about operations.
    pub fn quantiles(&self) -> Option<Quantiles> {
        if self.timing_kind() == TimingKind::Batch && self.single_ops == 0 {
            return None;
        }
        Some(Quantiles {
            min: self.min?,
            p50: self.p50?,
            p90: self.p90?,
            p99: self.p99?,
            p999: self.p999?,
            max: self.max?,
        })
    }

    /// Returns a mutable reference to each numeric field, with the field's name. Counts and absent
    /// values are left out. Rounding and checks thus cover all of them.
    pub fn numeric_fields_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut f64)> {
        let Summary {
            ops: _,
            samples: _,
            batch: _,
            median,
            low,
            high,
            undisturbed,
            single_ops: _,
            resolution_ns,
            min,
            p50,
            p90,
            p99,
            p999,
            max,
            mean,
        } = self;
        let always = [("median", median), ("mean", mean), ("resolution_ns", resolution_ns)];
        let sometimes = [
            ("low", low),
            ("high", high),
            ("undisturbed", undisturbed),
            ("min", min),
            ("p50", p50),
            ("p90", p90),
            ("p99", p99),
            ("p999", p999),
            ("max", max),
        ];
        let present = |(name, value): (_, Option<_>)| Some((name, value?));
        let sometimes = sometimes.map(|(name, value)| (name, value.as_mut()));
        always.into_iter().chain(sometimes.into_iter().filter_map(present))
    }
}

/// One round: about 10 ms of one contender after a new setup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Index of the pass that contains the round. A pass is a separate process.
    #[serde(default)]
    pub pass: u32,
    /// Index of the block that contains the round. Rounds of one block are compared with each
    /// other.
    pub block: u32,
    /// Figure of the round. It is the median of operations timed alone, or the median of ten means
    /// of batches. If the clock's resolution is too coarse for a median (above 5 % of it), it is
    /// the mean of all operations but the greatest 1 %. Each of the ten means is over the batches
    /// of all participants in a tenth of the round: a cost that recurs every few operations is in
    /// each mean, and a burst of foreign work is in one or two.
    pub median: f64,
    /// 99 % quantile of the round's samples. Samples are operations timed alone, or means of
    /// batches.
    pub p99: f64,
    /// Mean time of an operation in the round. Unlike the median, the mean moves if another thread
    /// spins on the partner's CPU.
    pub mean: f64,
    /// Steal time during the round, as a share of the machine's CPU time.
    pub steal: f64,
    /// Share of the samples that were measured while a participant's core was slowed. A busy
    /// sibling thread or a lower frequency slows a core.
    #[serde(default)]
    pub slowed: f64,
    /// Number of involuntary context switches of all participants.
    pub switches_involuntary: u64,
    /// `true` if work of other programs disturbed the round.
    #[serde(rename = "marked")]
    pub is_disturbed: bool,
}

/// Ratio of this record's figure to another figure. It is the median of the passes' ratios, each
/// the median over blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Id of the other figure.
    pub id: String,
    /// Name of the contender with the other figure.
    pub contender: String,
    /// Value of the other figure, measured in the same blocks as this record's figure.
    pub other: f64,
    /// This figure divided by the other figure.
    pub ratio: f64,
    /// Lower bound of the ratio's 95 % interval; `None` with too few passes. The interval is built
    /// from the passes.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper bound of the ratio's 95 % interval; `None` with too few passes.
    #[serde(default)]
    pub high: Option<f64>,
}

impl Ratio {
    /// Returns the bounds of the ratio's 95 % interval; `None` if there were too few passes.
    pub fn interval_bounds(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }
}

/// Peer that waits in another way than the contender. A ratio of their figures has no meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerWithoutRatio {
    /// Name of the peer.
    pub contender: String,
    /// Waiting strategy of the peer.
    pub waits: Wait,
    /// Figure of the peer, measured in the same blocks as this record's figure.
    pub other: f64,
}

/// One of the two modes of a bimodal figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureMode {
    /// Share of the operations, rounds or passes in this mode.
    pub share: f64,
    /// Median of the values in this mode.
    pub median: f64,
}

/// Counts of the CPU's performance counters per operation, in user space only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardwareCounts {
    /// Instructions retired.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
    /// Last-level cache misses.
    pub cache_misses: f64,
}

/// A reason not to trust a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Kind of the warning.
    pub code: WarningCode,
    /// Text of the warning, one line.
    pub text: String,
}

/// Cause of a warning about a figure, such as disturbance, drift or too few passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// The hypervisor ran other guests on the measured CPUs.
    Steal,
    /// Other threads ran on the measured CPUs.
    Switches,
    /// The cores were slowed, by work on sibling threads or by a lower frequency.
    Slowed,
    /// The operations, rounds or passes have two modes.
    Bimodal,
    /// The interval is still wide at the end of the run.
    Wide,
    /// The rounds' figures changed from the first to the last third of the rounds.
    Drift,
    /// The figure lies below the resolution of the clock and the measuring loop.
    Resolution,
    /// The run has too few passes for an interval.
    Few,
    /// The operation rate does not agree with the figure.
    Rate,
    /// The participants could not be placed as requested.
    Placement,
    /// The interval of the figure's ratio to the floor lies below 1. The floor thus does more work
    /// than necessary.
    FloorBeaten,
    /// Some of the combined runs timed the operations in another way than most, and do not count.
    Timing,
    /// Medians of earlier runs on this machine lie outside the interval.
    Seen,
    /// The figure was measured with smoke values. They only test that the benchmark works.
    Smoke,
}

impl WarningCode {
    /// Returns the one or two letters that stand for the warning in a table.
    pub fn table_letters(self) -> &'static str {
        match self {
            WarningCode::Steal => "st",
            WarningCode::Switches => "sw",
            WarningCode::Slowed => "sl",
            WarningCode::Bimodal => "2m",
            WarningCode::Wide => "w",
            WarningCode::Drift => "d",
            WarningCode::Resolution => "r",
            WarningCode::Few => "f",
            WarningCode::Rate => "x",
            WarningCode::Placement => "p",
            WarningCode::FloorBeaten => "fb",
            WarningCode::Timing => "t",
            WarningCode::Seen => "sn",
            WarningCode::Smoke => "sm",
        }
    }
}

/// A run with its records, as written by `show --json` and by exports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Version of the JSON form.
    pub schema: u32,
    /// The run. Its host is repeated in `host`, for readers that need only the host.
    pub run: Run,
    /// Machine on which the run was measured.
    pub host: Host,
    /// The records, in the order of measurement.
    pub records: Vec<Record>,
}

impl Document {
    /// Creates a document of the current schema version.
    pub fn new(run: Run, records: Vec<Record>) -> Document {
        Document { schema: JSON_SCHEMA_VERSION, host: run.host.clone(), run, records }
    }
}

/// Defines `from_json`. It is not inlined: the parser of these types, 200 KB of code, is compiled
/// in this crate alone.
macro_rules! from_json {
    ($($name:ident)*) => { $(
        impl $name {
            /// Parses the JSON form, like `serde_json::from_slice`.
            ///
            /// # Errors
            /// If `json` is no JSON, or a field is missing or has another type.
            #[inline(never)]
            pub fn from_json(json: &[u8]) -> serde_json::Result<$name> {
                serde_json::from_slice(json)
            }
        }
    )* }
}
from_json!(Document Record Run);

impl std::fmt::Display for Record {
    /// Formats one line: id, contender, figure with interval, and the ratios.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |value: f64| match self.unit {
            Unit::Ns => handover_base::units::format_ns(value),
            Unit::Bytes => format!("{value:.0} bytes"),
            Unit::Count => format!("{value:.1}"),
        };
        let it = &self.summary;
        let (id, contender, figure) = (&self.id, &self.contender, show(it.median));
        write!(f, "{id} [{contender}] {figure} ")?;
        let ends = it.interval_bounds().map(|(low, high)| format!("{}..{}", show(low), show(high)));
        let p99 = it.quantiles().map(|it| format!("p99 {}", show(it.p99)));
        let beside: Vec<String> = ends.into_iter().chain(p99).collect();
        write!(f, "({})", beside.join(", "))?;
        for ratio in self.floor.iter().chain(&self.peers) {
            let Ratio { ratio, contender, .. } = ratio;
            write!(f, ", {ratio:.2} x {contender}")?;
        }
        for warning in &self.warnings {
            write!(f, "; {}", warning.text)?;
        }
        Ok(())
    }
}
