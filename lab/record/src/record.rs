//! Results of a run.

use crate::anatomy::Anatomy;
use crate::finding::Finding;
use crate::host::Host;
use crate::proof::Proof;
use crate::spec::{ContenderKind, Unit, Wait};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Version of the JSON form of all types in this module.
pub const SCHEMA: u32 = 1;

/// One run: a process that measured some benchmarks on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique across machines: start time and process id in hexadecimal.
    pub id: String,
    /// Start time, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// The version of handover.
    pub version: String,
    /// The commit it was built from, with `+dirty` if the tree was; empty if unknown.
    pub commit: String,
    /// The profile: smoke, quick or full.
    pub profile: String,
    /// The command line.
    pub command: String,
    /// Seed of all random orders and placements of the run, below 2^53; 0 if it has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// Findings about what disturbed measurement when the run began, worst first; empty in runs
    /// without an examination.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// `true` if the run reached its end (an interrupted or killed run did not).
    pub complete: bool,
    /// Difference of this run's null rows from 1 with one participant: the smallest relative
    /// difference that this run can detect. `None` until measured.
    pub null_one: Option<f64>,
    /// The same difference with hand-overs between CPUs.
    pub null_several: Option<f64>,
    /// Known costs that this run planted and read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
}

/// One figure of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The figure's id: the spec's, or `spec/part`.
    pub id: String,
    /// The spec's id.
    pub spec: String,
    /// The contender's name.
    pub contender: String,
    /// The contender's kind.
    pub kind: ContenderKind,
    /// Way of waiting for the other participants.
    #[serde(default, skip_serializing_if = "Wait::is_none")]
    pub waits: Wait,
    /// `true` if each operation allocates memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocates: bool,
    /// Description of the timed operation.
    pub what: String,
    /// Unit of every figure below that does not name its own.
    pub unit: Unit,
    /// `true` if the default run shows it.
    pub ladder: bool,
    /// The arguments.
    pub args: BTreeMap<String, u64>,
    /// The participants and their placement.
    pub parties: Parties,
    /// Time of the measurement, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// The figure and its quantiles.
    pub summary: Summary,
    /// Operations per second, of all measured participants together.
    pub rate_per_s: f64,
    /// Bytes moved per second, if the operation moves bytes.
    pub bytes_per_s: Option<f64>,
    /// Number of CPUs used in user space by the whole process, or by all participants' processes,
    /// during the measurement: 2.0 is two busy CPUs.
    pub cpus_user: f64,
    /// Number of CPUs used in the kernel on their behalf.
    pub cpus_system: f64,
    /// Voluntary context switches per operation.
    pub switches_voluntary_per_op: f64,
    /// Involuntary context switches per second.
    pub switches_involuntary_per_s: f64,
    /// Page faults per operation that needed no I/O: memory touched for the first time, or copied on write.
    #[serde(default)]
    pub faults_minor_per_op: f64,
    /// Page faults per second that waited for a disk.
    #[serde(default)]
    pub faults_major_per_s: f64,
    /// The same resources by role, and those of threads that have none; empty if there is only one role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleUsage>,
    /// Cost of the empty operation timed in the same way, in the record's unit; printed for
    /// comparison, never subtracted.
    pub empty: Option<f64>,
    /// Ratio to the floor.
    pub floor: Option<Ratio>,
    /// Ratios to the other contenders that are peers and wait alike.
    pub peers: Vec<Ratio>,
    /// Peers that wait in another way: printed for comparison, without a ratio.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// The two modes with their shares, if operations, rounds or passes have two modes; otherwise
    /// empty.
    pub modes: Vec<Mode>,
    /// Further counts that the workload records, by name (`slept_share`).
    pub counters: BTreeMap<String, f64>,
    /// Hardware counters per operation, if the machine has them.
    pub hardware: Option<Hardware>,
    /// The rounds, in order, for later tests between runs.
    pub rounds: Vec<Round>,
    /// Histogram of all samples: HdrHistogram V2, compressed, base64, in thousandths of the unit.
    pub histogram: String,
    /// Warnings about this figure.
    pub warnings: Vec<Warning>,
    /// Breakdown of one hand-off's time, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anatomy: Option<Box<Anatomy>>,
}

impl Record {
    /// Returns `true` if a warning says that the figure itself is noisy.
    pub fn is_noisy(&self) -> bool {
        self.warnings.iter().any(|warning| warning.code.is_noise())
    }

    /// Returns the best peer: the one with the smallest figure, and hence the greatest ratio of
    /// ours to it.
    pub fn best_peer(&self) -> Option<&Ratio> {
        self.peers.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Returns the peer with the smallest figure among those that wait in another way.
    pub fn best_beside(&self) -> Option<&Beside> {
        self.beside.iter().min_by(|a, b| a.other.total_cmp(&b.other))
    }
}

/// Participants of a benchmark, and their placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    /// The role of each participant, in order.
    pub roles: Vec<String>,
    /// The CPU of each participant.
    pub cpus: Vec<u32>,
    /// `near`, `far`, `smt` or `same`; empty with one participant.
    pub placement: String,
    /// `true` if the participants were processes rather than threads.
    pub processes: bool,
    /// The pause before each hand-over, in nanoseconds.
    pub idle_gap_ns: u64,
    /// The CPU of the busy neighbour, if there was one.
    pub neighbour_cpu: Option<u32>,
}

impl Parties {
    /// Returns `true` if the participants use several CPUs.
    pub fn use_several_cpus(&self) -> bool {
        self.cpus.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// Resources that the participants of one role used during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleUsage {
    /// The role's name; [`RoleUsage::OTHERS`] for threads of the process that are no participants.
    pub role: String,
    /// Number of CPUs used, in user space and in the kernel.
    pub cpus: f64,
    /// Number of participants that, on average, waited for a CPU although they could have run; `None` if the kernel
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
    /// Name of the entry for threads that are no participants: a runtime's workers, say.
    pub const OTHERS: &str = "other threads";

    /// Returns every number by its field's name, so that code that rounds or checks numbers misses none.
    pub fn numbers_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut f64)> {
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
    /// Operations measured.
    pub ops: u64,
    /// Number of samples; a sample is a batch of operations, or one operation if that is long
    /// enough.
    pub samples: u64,
    /// Median number of operations in a sample.
    pub batch: u64,
    /// **The figure**: the median of the passes' figures, each the median of its rounds' figures. A
    /// round's figure is the median of operations timed alone, and a mean of batches (see
    /// [`Round::median`]).
    pub median: f64,
    /// Lower end of its 95 % interval, which is built from the passes; `None` if there are too few.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of the interval.
    #[serde(default)]
    pub high: Option<f64>,
    /// The figure without disturbed rounds and samples, if there were any and enough undisturbed
    /// ones.
    #[serde(default)]
    pub undisturbed: Option<f64>,
    /// Number of operations drawn at random and timed alone, in batch timing. The quantiles cover
    /// these operations.
    #[serde(default)]
    pub alone: u64,
    /// Resolution of the clock for an operation timed alone, in ns.
    #[serde(default)]
    pub resolution_ns: f64,
    /// Shortest operation that was timed alone.
    #[serde(default)]
    pub min: Option<f64>,
    /// Median over all operations that were timed alone. (In records of earlier versions the
    /// quantiles are of batches: see [`Summary::quantiles`].)
    #[serde(default)]
    pub p50: Option<f64>,
    /// 90 % quantile.
    #[serde(default)]
    pub p90: Option<f64>,
    /// 99 % quantile.
    #[serde(default)]
    pub p99: Option<f64>,
    /// 99.9 % quantile.
    #[serde(default)]
    pub p999: Option<f64>,
    /// Longest operation that was timed alone.
    #[serde(default)]
    pub max: Option<f64>,
    /// Mean over all operations.
    pub mean: f64,
}

/// Way in which the operations of a figure are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimingKind {
    /// Each operation alone: the figure is a median of operations.
    Single,
    /// Many operations between two readings of the clock: the figure is a mean per operation.
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

/// Quantiles of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// Shortest operation.
    pub min: f64,
    /// 50 % quantile.
    pub p50: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// 99.9 % quantile.
    pub p999: f64,
    /// Longest operation.
    pub max: f64,
}

impl Summary {
    /// Returns the way in which the operations were timed.
    pub fn timing(&self) -> TimingKind {
        if self.batch <= 1 { TimingKind::Single } else { TimingKind::Batch }
    }

    /// Returns the ends of the 95 % interval, if there were enough passes.
    pub fn ends(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }

    /// Returns half the interval's width relative to the figure, if there is an interval.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.ends()?;
        Some(if self.median > 0.0 { (high - low) / 2.0 / self.median } else { 0.0 })
    }

    /// Returns the quantiles of operations; `None` if no operation was timed alone: a quantile of
    /// means of batches says nothing about operations.
    pub fn quantiles(&self) -> Option<Quantiles> {
        if self.timing() == TimingKind::Batch && self.alone == 0 {
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

    /// Returns every number except the counts, if present, by its field's name, so that code that
    /// rounds or checks numbers misses none.
    pub fn numbers_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut f64)> {
        let Summary {
            ops: _,
            samples: _,
            batch: _,
            median,
            low,
            high,
            undisturbed,
            alone: _,
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
    /// The index of its pass: a process of its own.
    #[serde(default)]
    pub pass: u32,
    /// The index of its block; rounds of one block are compared with each other.
    pub block: u32,
    /// Its figure. For operations timed alone, their median; if the clock's step is too coarse for
    /// a median (above 5 % of it), the mean of all but the greatest 1 %. For batches, the median of
    /// ten means, each over the batches of a tenth of the round: a cost that recurs every few
    /// operations is in each mean, and a burst of foreign work is in one or two.
    pub median: f64,
    /// 99 % quantile of its samples: of operations in single timing, of means of batches otherwise.
    pub p99: f64,
    /// Total time divided by total operations: a spinner on the partner's CPU moves this, but not
    /// the median.
    pub mean: f64,
    /// Steal during the round, as a share of the machine's CPU time.
    pub steal: f64,
    /// Share of the samples taken while a participant's core ran below its pace (a busy sibling
    /// thread, a lower frequency).
    #[serde(default)]
    pub slowed: f64,
    /// Involuntary context switches of all participants.
    pub switches_involuntary: u64,
    /// `true` if foreign work disturbed the round.
    pub marked: bool,
}

/// Ratio of this record's figure to another figure: the median over passes of the medians of the
/// ratios within blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other figure's id.
    pub id: String,
    /// The other figure's contender.
    pub contender: String,
    /// The other figure, measured in this spec's blocks.
    pub other: f64,
    /// This figure divided by the other.
    pub ratio: f64,
    /// Lower end of the ratio's 95 % interval, which is built from the passes; `None` if there are
    /// too few.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of the interval.
    #[serde(default)]
    pub high: Option<f64>,
}

impl Ratio {
    /// Returns the ends of the 95 % interval, if there were enough passes.
    pub fn ends(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }
}

/// A peer that waits in another way, so that a ratio to it has no meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The peer's name.
    pub contender: String,
    /// Its way of waiting.
    pub waits: Wait,
    /// Its figure, measured in this spec's blocks.
    pub other: f64,
}

/// One of two modes of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Share of the operations, rounds or passes.
    pub share: f64,
    /// Median of the mode.
    pub median: f64,
}

/// Hardware counters per operation, in user space.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// Instructions retired.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
    /// Last-level cache misses.
    pub cache_misses: f64,
}

/// A warning about a figure, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Kind of the warning.
    pub code: WarningCode,
    /// Text of the warning.
    pub text: String,
}

/// Kinds of warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// The hypervisor gave the CPUs to others.
    Steal,
    /// Other threads ran on our CPUs.
    Switches,
    /// The cores ran below their pace: other work ran on sibling threads.
    Slowed,
    /// The samples have two modes.
    Bimodal,
    /// The interval is still wide at the end of the run.
    Wide,
    /// The rounds drifted from the first to the last.
    Drift,
    /// Below the resolution of this clock and loop.
    Resolution,
    /// Too few passes for an interval.
    Few,
    /// The rate does not agree with the figure.
    Rate,
    /// The participants could not be placed as requested.
    Placement,
    /// The interval of the ratio to the floor lies below 1: the floor does more work than necessary.
    FloorBeaten,
    /// Earlier runs on this machine had medians outside the interval.
    Seen,
    /// Run with smoke values: correct, but no measurement.
    Smoke,
}

impl WarningCode {
    /// Returns `true` if the warning means that the figure would differ in another run.
    pub fn is_noise(self) -> bool {
        use WarningCode::*;
        matches!(self, Steal | Switches | Slowed | Wide | Drift | Bimodal | Few | Seen)
    }

    /// Returns one or two letters for a table.
    pub fn letter(self) -> &'static str {
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
            WarningCode::Seen => "sn",
            WarningCode::Smoke => "sm",
        }
    }
}

/// A run with its records: the output of `show --json` and of exports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Version of this form.
    pub schema: u32,
    /// The run; its host is repeated in `host`, for readers that need only the host.
    pub run: Run,
    /// The machine.
    pub host: Host,
    /// The records, in the order of measurement.
    pub records: Vec<Record>,
}

impl Document {
    /// Creates a document of the current version.
    pub fn new(run: Run, records: Vec<Record>) -> Document {
        Document { schema: SCHEMA, host: run.host.clone(), run, records }
    }
}

impl std::fmt::Display for Record {
    /// Formats one line: id, contender, figure with interval, and the ratios.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |value: f64| match self.unit {
            Unit::Ns => handover_base::units::format_ns(value),
            Unit::Bytes => format!("{value:.0} bytes"),
            Unit::Count => format!("{value:.1}"),
        };
        let it = &self.summary;
        write!(f, "{} [{}] {} ", self.id, self.contender, show(it.median))?;
        let ends = it.ends().map(|(low, high)| format!("{}..{}", show(low), show(high)));
        let p99 = it.quantiles().map(|it| format!("p99 {}", show(it.p99)));
        let beside: Vec<String> = ends.into_iter().chain(p99).collect();
        write!(f, "({})", beside.join(", "))?;
        for ratio in self.floor.iter().chain(&self.peers) {
            write!(f, ", {:.2} x {}", ratio.ratio, ratio.contender)?;
        }
        for warning in &self.warnings {
            write!(f, "; {}", warning.text)?;
        }
        Ok(())
    }
}
