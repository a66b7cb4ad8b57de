//! Block-by-block measurement of one contender, with recorded rounds in between.

use super::measure::BlockRunner;
use super::progress::BenchmarkProgress;
use super::{BenchmarkGroup, Lab};
use crate::bench::Bench;
use crate::fault::Fault;
use crate::off_cpu::OffCpuSpan;
use crate::samples::ParticipantResult;
use crate::select;
use crate::stats;
use crate::trace::{ActiveRecording, TraceRequest};
use handover_base::clock;
use handover_base::random::SplitMix64;
use handover_record::Record;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Measurement of one contender, with additional rounds whose probe events are recorded.
///
/// [`records`](TracedSession::records) covers only the rounds without a recording.
pub struct TracedSession<'a> {
    lab: &'a Lab,
    group: BenchmarkGroup,
    progress: BenchmarkProgress,
    /// Number of blocks measured so far.
    blocks: u32,
    random: SplitMix64,
}

impl std::fmt::Debug for TracedSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TracedSession({})", self.group.selection.spec.id)
    }
}

/// Results of a recorded round.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TracedRound {
    /// Trace files, one per process.
    pub traces: Vec<PathBuf>,
    /// Median time of one operation in ns, for each part of the spec. `None` for a part without
    /// samples.
    pub parts_ns: Vec<Option<f64>>,
    /// Total time that the participants were runnable and waited for a CPU. `None` if the kernel
    /// does not report it.
    pub run_delay_ns: Option<u64>,
    /// Number of involuntary context switches of the participants.
    pub switches_involuntary: u64,
    /// Number of operations in a batch of the first part. The harness runs between two batches.
    pub batch: u64,
    /// Time spans in which a participant was runnable but not running. `None` if the kernel does
    /// not report them.
    pub off_cpu: Option<Vec<OffCpuSpan>>,
}

/// Minimum number of operations in a batch of a recorded round. It applies even if operations are
/// long enough to be timed alone, because a hand-off from one batch to the next includes work of
/// the harness.
const BATCH_WATCHED_MIN: u64 = 16;

impl Lab {
    /// Starts a session with one contender of a chosen benchmark: checks and warms it up. The floor
    /// with the id `floor` of `all` is measured too, in addition to the spec's floors.
    ///
    /// # Errors
    /// Fails if the contender cannot be run here, or if the benchmark has no contender of this
    /// name.
    pub fn start_session(
        &self,
        all: &[&'static [Bench]],
        (id, contender): (&str, &str),
        floor: Option<&str>,
        warm_up: Duration,
        interrupted: &AtomicBool,
    ) -> Result<TracedSession<'_>, Fault> {
        clock::calibration();
        let missing = |name: &str| Fault::new(format!("this run has no benchmark {name}"));
        let chosen = self.groups.iter().find(|group| group.selection.spec.id == id);
        let mut group = chosen.ok_or_else(|| missing(id))?.clone();
        group.selection.contenders.retain(|bench| bench.contender().name == contender);
        if group.selection.contenders.is_empty() {
            return Err(missing(&format!("{id} [{contender}]")));
        }
        let benches: Vec<&'static Bench> = all.iter().flat_map(|some| some.iter()).collect();
        if let Some(floor) = floor {
            let floor = select::find_floor(floor, &benches).ok_or_else(|| missing(floor))?;
            if !group.selection.floors.iter().any(|it| it.0 == floor.0) {
                group.selection.floors.push(floor);
            }
        }
        let mut progress = BenchmarkProgress::new(self, &group)?;
        let random = SplitMix64::new(self.seed);
        let mut measuring = BlockRunner::new(self, &group, interrupted, 0, random.clone());
        let faults = measuring.check_and_warm_up(&mut progress.contenders, warm_up)?;
        if let Some((_, fault)) = faults.into_iter().next() {
            return Err(fault);
        }
        Ok(TracedSession { lab: self, group, progress, blocks: 0, random })
    }
}

impl TracedSession<'_> {
    /// Measures one block, without a recording: a round of the contender, and one of each floor.
    ///
    /// # Errors
    /// Fails with the fault of a round, or with [`Fault::Interrupted`].
    pub fn measure_block(&mut self, interrupted: &AtomicBool) -> Result<(), Fault> {
        let random = SplitMix64::new(self.random.next_u64());
        let (lab, group) = (self.lab, &self.group);
        let mut measuring = BlockRunner::new(lab, group, interrupted, 0, random);
        measuring.measure_block(&mut self.progress.contenders, self.blocks)?;
        self.blocks += 1;
        Ok(())
    }

    /// Measures one round of the contender and records its probe events. No figure includes it.
    ///
    /// # Errors
    /// Fails with the fault of the round, or with [`Fault::Interrupted`].
    pub fn record_round(
        &mut self,
        trace: &TraceRequest,
        interrupted: &AtomicBool,
    ) -> Result<TracedRound, Fault> {
        let contender = &self.progress.contenders[0];
        let (bench, mut round_params) = (contender.bench, contender.round_params.clone());
        round_params.trace = Some(trace.clone());
        round_params.timing.batch = round_params.timing.batch.max(BATCH_WATCHED_MIN);
        let tracing =
            if round_params.processes { None } else { Some(ActiveRecording::start(trace)?) };
        let results = bench.run_round(&round_params, interrupted);
        drop(tracing);
        let results = results?;
        let mut traces = Vec::new();
        for entry in std::fs::read_dir(&trace.folder)? {
            traces.push(entry?.path());
        }
        traces.sort();
        Ok(traced_round(&results, traces))
    }

    /// Returns the contender's current median in ns, for the part at index `part`. Returns `None`
    /// before its first round. The index is 0 if the spec has no parts.
    pub fn figure_ns(&self, part: usize) -> Option<f64> {
        self.progress.figure_ns(part)
    }

    /// Returns the current median of the floor `id` in ns; `None` before its first round.
    pub fn floor_ns(&self, id: &str) -> Option<f64> {
        let (_, bench, part) = self.group.selection.floors.iter().find(|floor| floor.0 == id)?;
        self.progress.floor_ns(bench, *part)
    }

    /// Returns the records of all rounds so far, except the recorded ones.
    pub fn records(&mut self) -> Vec<Record> {
        self.progress.records(self.lab, &self.group)
    }
}

/// Combines the results of the participants into those of a recorded round.
fn traced_round(results: &[ParticipantResult], traces: Vec<PathBuf>) -> TracedRound {
    let parts_count = results.iter().map(|it| it.parts.len()).max().unwrap_or(0);
    let parts_ns = (0..parts_count).map(|part| {
        let parts = results.iter().filter_map(|it| it.parts.get(part));
        let figures: Vec<f64> = parts.flat_map(|part| part.figures().map(|it| it.0)).collect();
        (!figures.is_empty()).then(|| stats::median(&figures))
    });
    let delays: Option<Vec<u64>> = results.iter().map(|it| it.own.delayed_ns).collect();
    let off_cpu: Option<Vec<_>> = results.iter().map(|it| it.off_cpu.clone()).collect();
    let batch = results.iter().filter_map(|it| it.parts.first()).map(|part| part.batch);
    TracedRound {
        traces,
        batch: batch.max().unwrap_or(1),
        parts_ns: parts_ns.collect(),
        run_delay_ns: delays.map(|delays| delays.iter().sum()),
        switches_involuntary: results.iter().map(|it| it.own.switches_involuntary).sum(),
        off_cpu: off_cpu.map(|all| all.concat()),
    }
}
