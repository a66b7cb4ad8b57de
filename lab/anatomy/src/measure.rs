//! Measurement with the probe sites alternately on and off.

use crate::benchmark::InstrumentedBenchmark;
use crate::cost;
use crate::error::AnatomyError;
use crate::follow::{Handoff, HandoffTracker};
use crate::outliers::Outliers;
use crate::reader::{MarkedEventReader, open_trace};
use crate::scratch::{self, remove_scratch_folder};
use crate::statistics::{self, HandoffSample};
use handover_base::clock;
use handover_harness::{Bench, Lab, TraceRequest, TracedRound, TracedSession};
use handover_probe::read::merge;
use handover_record::{Anatomy, AnatomyFloor, Record, UnmatchedCounts};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Parameters of [`measure`].
#[derive(Clone, Debug)]
pub struct MeasurementOptions {
    /// Benchmark with its probe sites.
    pub benchmark: &'static InstrumentedBenchmark,
    /// Name of the contender, one of [`InstrumentedBenchmark::contenders()`].
    pub contender: String,
    /// Duration of the measurement; at least one round with and one without probes is run.
    pub time: Duration,
    /// `true` to subtract the cost of the probes.
    pub net: bool,
    /// Folder to which the traces of the slowest hand-offs are copied. It is created if it does not
    /// exist.
    pub outliers: Option<PathBuf>,
}

/// Size of each thread's ring, in bytes. It is enough for the newest events, those of some ten
/// thousand hand-offs. The copied traces stay small; of a longer round, only the end is evaluated.
const RING_BYTES: u64 = 1 << 20;
/// Number of recorded rounds at the start that are not evaluated, because their code is cold.
const ROUNDS_COLD: u32 = 1;
/// Maximum additional time if too few hand-offs were recorded, as a multiple of the requested time.
const DURATION_FACTOR_MAX: u32 = 20;
/// Divisor of the requested time, which gives the time limit of the warm-up.
const WARM_UP_DIVISOR: u32 = 10;

/// Runs the benchmark with the probe sites alternately off and on. Breaks the time of a hand-off
/// down into stages. Returns the records of the rounds with the sites off; the record of
/// `options.contender` has the anatomy. The second value is the error of copying the traces of the
/// outliers, which the anatomy then lacks.
///
/// `lab` must have selected this benchmark from `all`.
///
/// # Errors
/// If the benchmark cannot be run or recorded here, or too few hand-offs were recorded.
pub fn measure(
    lab: &Lab,
    all: &[&'static [Bench]],
    options: &MeasurementOptions,
    interrupted: &AtomicBool,
) -> Result<(Vec<Record>, Result<(), AnatomyError>), AnatomyError> {
    let folder = scratch::create_scratch_folder()?;
    let site_ns = cost::measure_event_costs_ns(folder.path())?;
    let benchmark = options.benchmark;
    let floor = benchmark.floor.map(|(id, _, _)| id);
    let selection = (benchmark.spec, options.contender.as_str());
    let mut session =
        lab.start_session(all, selection, floor, options.time / WARM_UP_DIVISOR, interrupted)?;
    let mut analysis = Analysis {
        options,
        folder: folder.path(),
        sample: HandoffSample::new(),
        unmatched: UnmatchedCounts::default(),
        outliers: Outliers::default(),
        on_ns: Vec::new(),
        rounds: 0,
    };
    let deadline = Instant::now() + options.time;
    let last_deadline = deadline + options.time * DURATION_FACTOR_MAX;
    loop {
        session.measure_block(interrupted)?;
        analysis.run_round(&mut session, interrupted)?;
        // Relaxed: the flag publishes no other data.
        let is_interrupted = interrupted.load(Ordering::Relaxed);
        let now = Instant::now();
        let has_enough = analysis.sample.count >= statistics::HANDOFFS_COUNT_MIN;
        if (now >= deadline && has_enough) || now >= last_deadline || is_interrupted {
            break;
        }
    }
    let (anatomy, copied) = analysis.into_anatomy(site_ns, &mut session)?;
    let mut records = session.records();
    let is_measured =
        |record: &Record| record.contender == options.contender && record.spec == benchmark.spec;
    let index = records.iter().position(is_measured);
    let index = index.ok_or(AnatomyError::NoFigure { spec: benchmark.spec })?;
    records[index].anatomy = Some(Box::new(anatomy));
    Ok((records, copied))
}

/// Hand-offs, unmatched events and outliers of the recorded rounds so far.
struct Analysis<'a> {
    options: &'a MeasurementOptions,
    folder: &'a Path,
    sample: HandoffSample,
    unmatched: UnmatchedCounts,
    outliers: Outliers,
    /// Median time of a hand-off with the probe sites on, for each evaluated round.
    on_ns: Vec<f64>,
    /// Number of recorded rounds so far.
    rounds: u32,
}

impl Analysis<'_> {
    /// Runs and records a round, and evaluates it unless its code is cold.
    fn run_round(
        &mut self,
        session: &mut TracedSession<'_>,
        interrupted: &AtomicBool,
    ) -> Result<(), AnatomyError> {
        let folder = self.folder.join(format!("round-{}", self.rounds));
        std::fs::create_dir(&folder).map_err(AnatomyError::from_io_error_at(&folder))?;
        let to = TraceRequest {
            folder: folder.clone(),
            sites: self.options.benchmark.site_pattern(),
            ring_bytes: RING_BYTES,
        };
        let round = session.record_round(&to, interrupted)?;
        self.rounds += 1;
        if self.rounds > ROUNDS_COLD {
            self.analyze(&folder, &round)?;
        }
        if !self.outliers.has_round(&folder) {
            remove_scratch_folder(&folder);
        }
        Ok(())
    }

    /// Adds the hand-offs in a round's traces to the sample and to the outliers.
    fn analyze(&mut self, folder: &Path, round: &TracedRound) -> Result<(), AnatomyError> {
        let benchmark = self.options.benchmark;
        if let Some((part, handoffs)) = benchmark.figure
            && let Some(ns) = round.parts_ns.get(part).copied().flatten()
        {
            self.on_ns.push(ns / handoffs);
        }
        let traces =
            round.traces.iter().map(|path| open_trace(path)).collect::<Result<Vec<_>, _>>()?;
        let mut reader = MarkedEventReader::new(benchmark, &traces);
        let mut follower = HandoffTracker::new(benchmark, round.batch == 1);
        follower.unmatched = self.unmatched;
        let mut found: Vec<Handoff> = Vec::new();
        let merged = merge(&traces).map_err(|_| AnatomyError::NoTimeLine)?;
        for (trace, event) in merged {
            let Some(event) = reader.marked_event(trace, &event) else { continue };
            follower.handle_event(event, &mut found);
        }
        for handoff in &found {
            self.sample.add(*handoff);
            if self.options.outliers.is_some() {
                self.outliers.insert_if_slow(handoff, folder);
            }
        }
        if self.outliers.has_round(folder) {
            self.outliers.add_round_details(folder, round, &traces, &reader.threads);
        }
        self.unmatched = follower.unmatched;
        self.unmatched.lost +=
            traces.iter().map(|trace| trace.missing_events().total_count()).sum::<u64>();
        Ok(())
    }

    /// Computes the anatomy from the collected hand-offs. Subtracts the cost of the probes if `net`
    /// is set in the options. The second value is the error of copying the traces of the outliers.
    fn into_anatomy(
        self,
        site_ns: [f64; 3],
        session: &mut TracedSession<'_>,
    ) -> Result<(Anatomy, Result<(), AnatomyError>), AnatomyError> {
        let (options, handoffs_count) = (self.options, self.sample.count);
        let benchmark = options.benchmark;
        let net_ns = if options.net { site_ns[benchmark.values_count] } else { 0.0 };
        let statistics = self.sample.statistics(benchmark, net_ns);
        let statistics = statistics.ok_or(AnatomyError::TooFew {
            spec: benchmark.spec,
            handoffs_count,
            mismatched: self.unmatched.mismatched,
        })?;
        let floor = benchmark.floor.and_then(|(id, handoffs, _)| {
            let figure_ns = session.floor_ns(id)?;
            Some(AnatomyFloor { id: id.to_string(), figure_ns, handoffs })
        });
        let outliers = match &options.outliers {
            Some(to) => {
                self.outliers.into_anatomy_outliers(to, benchmark, &statistics.stages, net_ns)
            }
            None => Ok(Vec::new()),
        };
        let (outliers, copied) = match outliers {
            Ok(outliers) => (outliers, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let anatomy = Anatomy {
            line: statistics::format_stage_sum(&statistics.stages, floor.as_ref()),
            stages: statistics.stages,
            total: statistics.total,
            bands: statistics.bands,
            floor,
            handoffs_count,
            rounds_count: u64::from(self.rounds.saturating_sub(ROUNDS_COLD)),
            unmatched: self.unmatched,
            site_ns,
            is_site_cost_subtracted: options.net,
            clock_step_ns: clock::calibration().resolution_ns,
            off_ns: benchmark
                .figure
                .and_then(|(part, handoffs)| Some(session.figure_ns(part)? / handoffs)),
            on_ns: median(self.on_ns),
            outliers,
        };
        Ok((anatomy, copied))
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
