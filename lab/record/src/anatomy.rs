//! Breakdown of one hand-off's time into stages.

use serde::{Deserialize, Serialize};

/// One hand-off broken down by the probes inside the mechanism. All times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anatomy {
    /// The sum, in one line: `handle 20 + floor 30 + notice 35 + wake 0 = 85 ns`. It adds up the
    /// means of the middle half of all hand-offs by their time, since only means add up; a stage
    /// that contains the floor is split into floor and rest.
    pub line: String,
    /// The stages, in the order in which a hand-off passes them.
    pub stages: Vec<AnatomyStage>,
    /// The whole hand-off, from begin to end.
    pub total: AnatomyStage,
    /// Mean stages of typical and of slow hand-offs.
    pub bands: Vec<AnatomyBand>,
    /// The physical floor of one hand-off, measured in the same run.
    pub floor: Option<AnatomyFloor>,
    /// Number of hand-offs evaluated.
    pub handoffs_count: u64,
    /// Number of rounds evaluated.
    pub rounds_count: u64,
    /// Events that do not fit; no figure includes them.
    pub unmatched: Unmatched,
    /// Cost of an enabled site without a value, with one, and with two; a stage that begins and
    /// ends on one thread contains this cost once.
    pub site_ns: [f64; 3],
    /// `true` if that cost was subtracted from the stages.
    pub net: bool,
    /// Step of the clock that times the stages.
    pub clock_step_ns: f64,
    /// Time of one hand-off with the sites off, from the benchmark's own figure in the same run, if
    /// that figure is a time of hand-offs.
    pub off_ns: Option<f64>,
    /// The same figure with the sites on.
    pub on_ns: Option<f64>,
    /// The slowest hand-offs, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<AnatomyOutlier>,
}

/// One stage of a hand-off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnatomyStage {
    /// Name: one word.
    pub name: String,
    /// Description: begin and end of the stage.
    pub what: String,
    /// Share of the hand-offs that pass the stage.
    pub passed: f64,
    /// Median over the hand-offs that pass it.
    pub p50_ns: f64,
    /// 99 % quantile over the hand-offs that pass it.
    pub p99_ns: f64,
    /// Mean over the middle half of all hand-offs by their time; a hand-off that does not pass the
    /// stage counts as zero.
    pub mean_ns: f64,
    /// Share of the whole: `mean_ns` divided by the mean of the whole hand-off.
    pub share: f64,
    /// `true` if the stage begins on one thread and ends on another.
    pub crosses: bool,
    /// `true` if the stage contains the floor.
    pub has_floor: bool,
}

/// A group of hand-offs of similar duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyBand {
    /// Name: `middle half`, `slowest 1 %`.
    pub name: String,
    /// Number of hand-offs.
    pub handoffs_count: u64,
    /// Mean of each stage.
    pub stages_ns: Vec<f64>,
}

/// Lower bound of a hand-off's time, set by hardware or kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyFloor {
    /// The id of the benchmark that measured it.
    pub id: String,
    /// The benchmark's figure.
    pub figure_ns: f64,
    /// Number of hand-offs in that figure: two for a round trip.
    pub handoffs: f64,
}

/// Counts of events and hand-offs that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmatched {
    /// Events out of order, or of another object than the event before; the hand-offs on both sides
    /// are left out.
    pub mismatched: u64,
    /// Takings by the thread that gave (a lock that its holder took again): nothing was handed
    /// over.
    pub kept: u64,
    /// Hand-offs without a known begin (the first of a batch); left out.
    pub begun_anew: u64,
    /// Hand-offs whose arrival was recorded before the sender's event. They are included, and the
    /// stage counts as over at the arrival.
    pub overtaken: u64,
    /// Events that the recording lost.
    pub lost: u64,
}

/// One of the slowest hand-offs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyOutlier {
    /// Duration.
    pub total_ns: f64,
    /// Duration of each stage.
    pub stages_ns: Vec<f64>,
    /// Name of the stage that made it slow: the one farthest above its median.
    pub slow_stage: String,
    /// Time of that stage above its median.
    pub excess_ns: f64,
    /// Verdict on time off the CPU during the hand-off.
    pub off_cpu: OffCpu,
    /// Time that its threads were runnable and off the CPU during the hand-off; `None` if the
    /// kernel does not report each switch.
    #[serde(default)]
    pub off_cpu_ns: Option<u64>,
    /// Time that the participants of its round waited for a CPU while runnable, in total.
    pub run_delay_ns: u64,
    /// Number of involuntary context switches in its round.
    pub switches_involuntary: u64,
    /// File name of the trace that contains it.
    pub file: String,
    /// Begin, in ns on that trace's time line (CLOCK_MONOTONIC).
    pub begin_ns: i64,
    /// Id of the thread that it began on.
    pub from_tid: u64,
    /// Id of the thread that it ended on.
    pub to_tid: u64,
}

/// Verdict on whether a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffCpu {
    /// No: its threads, or all participants in its round, waited for a CPU for less than a quarter
    /// of the excess.
    No,
    /// Yes: its threads waited for a CPU during the hand-off for at least a quarter of the excess.
    Yes,
    /// It slept: the slow stage is a sleeper's waking.
    Asleep,
    /// Likely: the participants waited for a CPU in its round for at least a quarter of the excess.
    Likely,
    /// Unknown: the kernel does not report it.
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
