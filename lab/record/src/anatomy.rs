//! Where the time of one hand-off goes.

use serde::{Deserialize, Serialize};

/// One hand-off taken apart, from the probes inside the mechanism. All times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anatomy {
    /// The sum, in one line: `handle 20 + floor 30 + notice 35 + wake 0 = 85 ns`. It adds up the means of
    /// the middle half of all hand-offs by their time, since only means add up; a stage that has the floor
    /// in it is told as the floor and the rest.
    pub line: String,
    /// The stages, in the order in which a hand-off passes them.
    pub stages: Vec<AnatomyStage>,
    /// All of them together, from the begin of a hand-off to its end.
    pub total: AnatomyStage,
    /// Typical hand-offs and slow ones: what the stages took of each.
    pub bands: Vec<AnatomyBand>,
    /// The physical floor of one hand-off, measured in the same run.
    pub floor: Option<AnatomyFloor>,
    /// Hand-offs that were looked at.
    pub handoffs_count: u64,
    /// Rounds in which they were.
    pub rounds_count: u64,
    /// What was not as it should be, and so is in none of the figures.
    pub unmatched: Unmatched,
    /// What a site takes while it is on, without a value, with one, and with two: so much of a stage that
    /// begins and ends on one thread is the probes' own.
    pub site_ns: [f64; 3],
    /// Whether that was subtracted from the stages.
    pub net: bool,
    /// The steps of the clock that the stages are told by.
    pub clock_step_ns: f64,
    /// One hand-off with the sites off, by the benchmark's own figure of the same run, where that is one of
    /// hand-offs.
    pub off_ns: Option<f64>,
    /// The same with the sites on.
    pub on_ns: Option<f64>,
    /// The slowest, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<AnatomyOutlier>,
}

/// One stage of a hand-off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnatomyStage {
    /// One word.
    pub name: String,
    /// From where to where.
    pub what: String,
    /// The share of the hand-offs that pass it.
    pub passed: f64,
    /// The median, of those that pass it.
    pub p50_ns: f64,
    /// One in a hundred of those takes longer.
    pub p99_ns: f64,
    /// The mean of the middle half of all hand-offs by their time; zero where it is not passed.
    pub mean_ns: f64,
    /// That mean, as a share of the whole.
    pub share: f64,
    /// Whether it begins on one thread and ends on another.
    pub crosses: bool,
    /// Whether the floor is a part of it.
    pub has_floor: bool,
}

/// Hand-offs that took about as long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyBand {
    /// Which: `middle half`, `slowest 1 %`.
    pub name: String,
    /// How many.
    pub handoffs_count: u64,
    /// The mean of each stage.
    pub stages_ns: Vec<f64>,
}

/// What physics or the kernel takes of a hand-off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyFloor {
    /// The benchmark that measured it.
    pub id: String,
    /// Its figure.
    pub figure_ns: f64,
    /// How many hand-offs that is: two where it is there and back.
    pub handoffs: f64,
}

/// What was not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmatched {
    /// Events out of their order, or of another object than the one before them: the hand-offs on both
    /// sides were left out.
    pub mismatched: u64,
    /// Taken back by the thread that gave it (a lock that its holder took again): nothing was handed over.
    pub kept: u64,
    /// Hand-offs that did not follow from the one before (the first of a batch), and were left out.
    pub begun_anew: u64,
    /// Hand-offs that were seen to arrive before the sender had told that they were under way: its stamp
    /// came later than what it stamps. They are counted in, the stage taken as over at the arrival.
    pub overtaken: u64,
    /// Events that the recording lost.
    pub lost: u64,
}

/// One of the slowest hand-offs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyOutlier {
    /// How long it took.
    pub total_ns: f64,
    /// Each stage of it.
    pub stages_ns: Vec<f64>,
    /// The name of the stage that made it slow: the one that is farthest above its median.
    pub slow_stage: String,
    /// By so much.
    pub excess_ns: f64,
    /// Whether the thread was off the CPU meanwhile, as far as can be told.
    pub off_cpu: OffCpu,
    /// For how long its threads were off the CPU during it, while they could have run; `None` where the kernel
    /// does not tell of each switch.
    #[serde(default)]
    pub off_cpu_ns: Option<u64>,
    /// How long the parties of its round waited for a CPU, all together, while they could have run.
    pub run_delay_ns: u64,
    /// How often they were made to.
    pub switches_involuntary: u64,
    /// The trace that it is in.
    pub file: String,
    /// When it began, in ns on that trace's time line (CLOCK_MONOTONIC).
    pub begin_ns: i64,
    /// The thread that it began on.
    pub from_tid: u64,
    /// The thread that it ended on.
    pub to_tid: u64,
}

/// Whether a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffCpu {
    /// No: its threads did not wait for a CPU for a quarter of the excess, or nobody did in the whole round.
    No,
    /// Yes: during this very hand-off its threads waited for a CPU for at least a quarter of the excess.
    Yes,
    /// It slept, as the stage says.
    Asleep,
    /// In its round the parties waited for a CPU for at least a quarter of the excess: likely, then.
    Likely,
    /// The kernel does not tell.
    Unknown,
}

impl std::fmt::Display for OffCpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            OffCpu::No => "on the CPU",
            OffCpu::Yes => "off the CPU",
            OffCpu::Asleep => "asleep",
            OffCpu::Likely => "likely off the CPU",
            OffCpu::Unknown => "not known",
        })
    }
}
