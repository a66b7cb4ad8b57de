//! What came out of a run.

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

/// The version of the JSON form of everything here.
pub const SCHEMA: u32 = 1;

/// One run: a process that measured some benchmarks on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique over machines: start time and process id in hexadecimal.
    pub id: String,
    /// When it began, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// The version of handover.
    pub version: String,
    /// The commit it was built from, with `+dirty` if the tree was; empty if unknown.
    pub commit: String,
    /// The profile: smoke, quick or full.
    pub profile: String,
    /// The command line.
    pub command: String,
    /// What all random orders and placements of the run were drawn from, below 2^53; 0 where none was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// What on it disturbed measurement when the run began, worst first; empty in runs that did not look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Whether it came to its end (an interrupted or killed run did not).
    pub complete: bool,
    /// By how much the null rows of this run differ from 1: the least relative difference that this
    /// run can see, of one party and of several. `None` until measured.
    pub null_one: Option<f64>,
    /// The same, for hand-overs between CPUs.
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
    /// What the contender stands for.
    pub kind: ContenderKind,
    /// How it waited for the other participants.
    #[serde(default, skip_serializing_if = "Wait::is_none")]
    pub waits: Wait,
    /// Whether each operation allocates memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocates: bool,
    /// What exactly is timed.
    pub what: String,
    /// The unit of every figure below that does not name its own.
    pub unit: Unit,
    /// Whether the default run shows it.
    pub ladder: bool,
    /// The arguments.
    pub args: BTreeMap<String, u64>,
    /// Who took part, and where.
    pub parties: Parties,
    /// When it was measured, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// The figure and its quantiles.
    pub summary: Summary,
    /// Operations a second, of all measured parties together.
    pub rate_per_s: f64,
    /// Bytes moved a second, where the operation moves bytes.
    pub bytes_per_s: Option<f64>,
    /// CPUs burnt in user space by the whole process, or by all parties' processes, while it was measured:
    /// 2.0 is two CPUs busy.
    pub cpus_user: f64,
    /// CPUs burnt in the kernel on their behalf.
    pub cpus_system: f64,
    /// Context switches an operation, voluntary.
    pub switches_voluntary_per_op: f64,
    /// Context switches a second, involuntary.
    pub switches_involuntary_per_s: f64,
    /// What the empty operation costs when timed the same way, in the record's unit; shown beside,
    /// never subtracted.
    pub empty: Option<f64>,
    /// Ratio to the floor.
    pub floor: Option<Ratio>,
    /// Ratios to the other contenders that stand for peers and wait alike.
    pub peers: Vec<Ratio>,
    /// Peers that wait in another way: shown beside, never divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Two modes with their shares, where operations, rounds or passes fall apart in two; otherwise empty.
    pub modes: Vec<Mode>,
    /// Further counts that the workload tells, by name (`slept_share`).
    pub counters: BTreeMap<String, f64>,
    /// Hardware counters an operation, where the machine has them.
    pub hardware: Option<Hardware>,
    /// The rounds, in order, for later tests between runs.
    pub rounds: Vec<Round>,
    /// All samples: HdrHistogram V2, compressed, base64, in thousandths of the unit.
    pub histogram: String,
    /// What makes this figure doubtful.
    pub warnings: Vec<Warning>,
    /// Where the time of one hand-off goes, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anatomy: Option<Box<Anatomy>>,
}

impl Record {
    /// Whether a warning says that the figure itself is noisy.
    pub fn is_noisy(&self) -> bool {
        self.warnings.iter().any(|warning| warning.code.is_noise())
    }

    /// The best peer: the one whose figure is least, so the greatest ratio of ours to it.
    pub fn best_peer(&self) -> Option<&Ratio> {
        self.peers.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// The peer with the least figure among those that wait in another way.
    pub fn best_beside(&self) -> Option<&Beside> {
        self.beside.iter().min_by(|a, b| a.other.total_cmp(&b.other))
    }
}

/// Who took part in a benchmark, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    /// One name a party, in order.
    pub roles: Vec<String>,
    /// The CPU of each.
    pub cpus: Vec<u32>,
    /// `near`, `far`, `smt` or `same`; empty with one party.
    pub placement: String,
    /// Whether the parties were processes rather than threads.
    pub processes: bool,
    /// The pause before each hand-over, in nanoseconds.
    pub idle_gap_ns: u64,
    /// The CPU of the busy neighbour, if there was one.
    pub neighbour_cpu: Option<u32>,
}

/// The figure and its quantiles, in the record's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations measured.
    pub ops: u64,
    /// Samples taken; a sample is a batch of operations, or one where that is long enough.
    pub samples: u64,
    /// Operations in a sample, at the median.
    pub batch: u64,
    /// **The figure**: the median of the passes' figures, each the median of its rounds' figures. Of
    /// operations timed one by one a round's figure is the median; of batches it is a mean (see
    /// [`Round::median`]).
    pub median: f64,
    /// Lower end of its 95 % interval, which is built from the passes; none where they are too few.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of it.
    #[serde(default)]
    pub high: Option<f64>,
    /// The figure without rounds and samples that something foreign disturbed, where some were and enough
    /// were not.
    #[serde(default)]
    pub undisturbed: Option<f64>,
    /// Operations drawn at random and timed alone, in batch timing. The quantiles are theirs.
    #[serde(default)]
    pub alone: u64,
    /// What the clock can tell of an operation timed alone, in ns.
    #[serde(default)]
    pub resolution_ns: f64,
    /// Least operation that was timed by itself.
    #[serde(default)]
    pub min: Option<f64>,
    /// Quantiles over all operations that were timed by themselves. (Of batches in records of earlier
    /// versions: see [`Summary::quantiles`].)
    #[serde(default)]
    pub p50: Option<f64>,
    /// 90 %.
    #[serde(default)]
    pub p90: Option<f64>,
    /// 99 %.
    #[serde(default)]
    pub p99: Option<f64>,
    /// 99.9 %.
    #[serde(default)]
    pub p999: Option<f64>,
    /// Greatest operation that was timed by itself.
    #[serde(default)]
    pub max: Option<f64>,
    /// Mean over all operations.
    pub mean: f64,
}

/// How the operations of a figure are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimingKind {
    /// Each operation by itself: the figure is a median of operations.
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
    /// Least.
    pub min: f64,
    /// 50 %.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Greatest.
    pub max: f64,
}

impl Summary {
    /// How its operations were timed.
    pub fn timing(&self) -> TimingKind {
        if self.batch <= 1 { TimingKind::Single } else { TimingKind::Batch }
    }

    /// The ends of the 95 % interval, if there were passes enough for one.
    pub fn ends(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }

    /// Half the interval's width relative to the figure, if there is an interval.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.ends()?;
        Some(if self.median > 0.0 { (high - low) / 2.0 / self.median } else { 0.0 })
    }

    /// Quantiles of operations. None where no operation was timed by itself: a quantile of means of batches
    /// says nothing of operations.
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

    /// Every number of it that is there, but the counts, by its field's name: who rounds them or looks for what
    /// is not finite misses none.
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

/// One round: about 10 ms of one contender, rigged anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The pass it belongs to: a process of its own.
    #[serde(default)]
    pub pass: u32,
    /// The block it belongs to; rounds of one block are compared with each other.
    pub block: u32,
    /// Its figure. Of operations timed one by one their median; where the clock's step is too coarse for one
    /// (above 5 % of it), the mean of all but the greatest 1 %. Of batches the median of ten means, each over
    /// the batches of a tenth of the round: what happens every so many operations is in each of them, and a
    /// burst of foreign work is in one or two.
    pub median: f64,
    /// The 99 % quantile of its samples: of operations in single timing, of means of batches otherwise.
    pub p99: f64,
    /// Total time by total operations: a spinner on the partner's CPU leaves the median and moves this.
    pub mean: f64,
    /// Steal while it ran, as a share of the machine's CPU time.
    pub steal: f64,
    /// The share of the samples that were taken while a party's core ran below its pace (a busy sibling
    /// thread, a lower frequency).
    #[serde(default)]
    pub slowed: f64,
    /// Involuntary context switches of all parties.
    pub switches_involuntary: u64,
    /// Whether something foreign disturbed it.
    pub marked: bool,
}

/// The ratio of this record's figure to another's: the median over passes of the medians of the ratios
/// within blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other figure's id.
    pub id: String,
    /// The other's contender.
    pub contender: String,
    /// The other's own figure in this spec's blocks.
    pub other: f64,
    /// This by the other.
    pub ratio: f64,
    /// Lower end of its 95 % interval, which is built from the passes; none where they are too few.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of it.
    #[serde(default)]
    pub high: Option<f64>,
}

impl Ratio {
    /// The ends of the 95 % interval, if there were passes enough for one.
    pub fn ends(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }
}

/// A peer that waits in another way, so that no ratio to it means anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The other's contender.
    pub contender: String,
    /// How it waited.
    pub waits: Wait,
    /// Its own figure in this spec's blocks.
    pub other: f64,
}

/// One of two modes of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Its share of the operations, rounds or passes.
    pub share: f64,
    /// Its median.
    pub median: f64,
}

/// Hardware counters for one operation, in user space.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// Instructions retired.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
    /// Last-level cache misses.
    pub cache_misses: f64,
}

/// Why a figure is doubtful, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What kind of doubt.
    pub code: WarningCode,
    /// The line.
    pub text: String,
}

/// The kinds of doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// The hypervisor gave the CPUs to others.
    Steal,
    /// Others ran on our CPUs.
    Switches,
    /// The cores ran below their pace: others ran beside us.
    Slowed,
    /// The samples fall in two modes.
    Bimodal,
    /// The interval is still wide when the budget is spent.
    Wide,
    /// The rounds drifted from the first to the last.
    Drift,
    /// Below what this clock and loop can tell.
    Resolution,
    /// Fewer passes than an interval needs.
    Few,
    /// The rate is far from what the figure says.
    Rate,
    /// The parties could not be placed as asked.
    Placement,
    /// The interval of the ratio to the floor lies below 1: the floor does more than it has to.
    FloorBeaten,
    /// Run with smoke values: correct, but no measurement.
    Smoke,
}

impl WarningCode {
    /// Whether it says that the figure would differ in another run.
    pub fn is_noise(self) -> bool {
        use WarningCode::*;
        matches!(self, Steal | Switches | Slowed | Wide | Drift | Bimodal | Few)
    }

    /// One or two letters for a table.
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
            WarningCode::Smoke => "sm",
        }
    }
}

/// A run with its records: what `show --json` prints and what is exported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The version of this form.
    pub schema: u32,
    /// The run; its host is also given beside it, for readers who want that alone.
    pub run: Run,
    /// The machine.
    pub host: Host,
    /// Its records, in the order in which they were measured.
    pub records: Vec<Record>,
}

impl Document {
    /// A document of this version.
    pub fn new(run: Run, records: Vec<Record>) -> Document {
        Document { schema: SCHEMA, host: run.host.clone(), run, records }
    }
}

impl std::fmt::Display for Record {
    /// One line: id, contender, figure with interval, and the ratios.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |value: f64| match self.unit {
            Unit::Ns => handover_base::units::show_ns(value),
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
