//! Breakdown of one hand-off's time into stages.

use serde::{Deserialize, Serialize};

/// Breakdown of a hand-off's time into stages, measured by probes inside the mechanism. Times are
/// in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anatomy {
    /// Sum of the stages in one line, as text. An example is
    /// `handle 20 + floor 30 + notice 35 + wake 0 = 85 ns`. The terms are means over the hand-offs
    /// whose durations lie between the quartiles, since only means add up; a stage that contains
    /// the floor is split into floor and rest.
    pub line: String,
    /// The stages, in the order in which a hand-off passes them.
    pub stages: Vec<AnatomyStage>,
    /// Time of a hand-off from its start to its end.
    pub total: AnatomyStage,
    /// Mean time of each stage in the middle half of the hand-offs, and in the slowest ones.
    pub bands: Vec<AnatomyBand>,
    /// Floor of one hand-off, measured in the same run; `None` without a floor.
    pub floor: Option<AnatomyFloor>,
    /// Number of hand-offs evaluated.
    pub handoffs_count: u64,
    /// Number of rounds evaluated.
    pub rounds_count: u64,
    /// Counts of events that could not be assigned to a hand-off. They appear in no figure.
    pub unmatched: UnmatchedCounts,
    /// Cost in ns of an enabled probe site that records no value, one value, or two values. A stage
    /// that starts and ends on one thread contains this cost once.
    pub site_ns: [f64; 3],
    /// `true` if the cost of the probe sites was subtracted from the stages.
    #[serde(rename = "net")]
    pub is_site_cost_subtracted: bool,
    /// Resolution of the clock that times the stages, in nanoseconds.
    pub clock_step_ns: f64,
    /// Time of one hand-off with the probe sites off. It is the benchmark's figure in the same run,
    /// per hand-off; `None` if that figure is not the time of hand-offs.
    pub off_ns: Option<f64>,
    /// Time of one hand-off with the probe sites on. Except for the sites, it is measured like
    /// `off_ns`.
    pub on_ns: Option<f64>,
    /// The slowest hand-offs; empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<AnatomyOutlier>,
}

/// One stage of a hand-off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnatomyStage {
    /// Name of the stage: one word.
    pub name: String,
    /// Description of the stage's start and end.
    pub what: String,
    /// Share of the hand-offs that include the stage, from 0 to 1.
    pub passed: f64,
    /// Median time in the stage, over the hand-offs that include it.
    pub p50_ns: f64,
    /// 99 % quantile of the time in the stage, over the hand-offs that include it.
    pub p99_ns: f64,
    /// Mean time in the stage, over the hand-offs whose durations lie between the quartiles. A
    /// hand-off without the stage counts as 0.
    pub mean_ns: f64,
    /// Share of the hand-off's time, from 0 to 1: `mean_ns` divided by the mean of the total.
    pub share: f64,
    /// `true` if the stage starts on one thread and ends on another.
    #[serde(rename = "crosses")]
    pub crosses_threads: bool,
    /// `true` if the stage includes the step that the floor measures.
    pub has_floor: bool,
}

/// A group of hand-offs of similar duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyBand {
    /// Name of the group: `middle half`, `slowest 1 %`.
    pub name: String,
    /// Number of hand-offs in the group.
    pub handoffs_count: u64,
    /// Mean time of each stage in the group.
    pub stages_ns: Vec<f64>,
}

/// Lower bound of a hand-off's time, set by hardware or kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyFloor {
    /// Id of the benchmark that measured the floor.
    pub id: String,
    /// Figure of the floor's benchmark.
    pub figure_ns: f64,
    /// Number of hand-offs that the figure covers: two for a round trip.
    pub handoffs: f64,
}

/// Counts of events and hand-offs that could not be matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedCounts {
    /// Number of events that are out of order, or of another object than the event before. Both
    /// adjacent hand-offs are excluded.
    pub mismatched: u64,
    /// Number of acquisitions of a lock by the thread that had released it. They are no hand-offs
    /// and are excluded.
    #[serde(rename = "kept")]
    pub reacquired: u64,
    /// Number of excluded hand-offs whose start is not in the trace. An example is the first
    /// hand-off in a batch.
    #[serde(rename = "begun_anew")]
    pub without_start: u64,
    /// Number of hand-offs that were received before their send or reply was recorded. They are
    /// included; the stage ends at the receive.
    #[serde(rename = "overtaken")]
    pub received_early: u64,
    /// Number of events lost by the recording.
    pub lost: u64,
}

/// One of the slowest hand-offs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnatomyOutlier {
    /// Duration of the hand-off.
    pub total_ns: f64,
    /// Duration of each stage.
    pub stages_ns: Vec<f64>,
    /// Name of the stage whose duration exceeds its median the most.
    pub slow_stage: String,
    /// Time by which the slow stage exceeds its median.
    pub excess_ns: f64,
    /// Verdict on whether the hand-off was slow because its threads waited for a CPU.
    pub off_cpu: OffCpuVerdict,
    /// Time for which the hand-off's threads were runnable but not running. `None` if the kernel
    /// does not report each switch.
    #[serde(default)]
    pub off_cpu_ns: Option<u64>,
    /// Total time for which the round's participants were runnable and waited for a CPU.
    pub run_delay_ns: u64,
    /// Number of involuntary context switches in the hand-off's round.
    pub switches_involuntary: u64,
    /// Name of the trace file that contains the hand-off.
    pub file: String,
    /// Start of the hand-off, in ns on the trace's time line (CLOCK_MONOTONIC).
    pub begin_ns: i64,
    /// Id of the thread on which the hand-off started.
    pub from_tid: u64,
    /// Id of the thread that completed the hand-off.
    pub to_tid: u64,
}

/// Verdict on whether a hand-off was slow because its threads waited for a CPU. Such threads were
/// runnable, but not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffCpuVerdict {
    /// No: the threads waited for a CPU for less than a quarter of the excess. The threads are
    /// those of the hand-off, or all participants of the round.
    No,
    /// Yes: the hand-off's threads waited for a CPU for at least a quarter of the excess.
    Yes,
    /// Not off the CPU but asleep: the slow stage is the wake-up of a sleeping thread.
    Asleep,
    /// Probably: the round's participants waited for a CPU for at least a quarter of the excess.
    Likely,
    /// Unknown, because the kernel does not report waiting times.
    Unknown,
}

impl std::fmt::Display for OffCpuVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            OffCpuVerdict::No => "on the CPU",
            OffCpuVerdict::Yes => "off the CPU",
            OffCpuVerdict::Asleep => "asleep",
            OffCpuVerdict::Likely => "likely off the CPU",
            OffCpuVerdict::Unknown => "not known",
        })
    }
}
