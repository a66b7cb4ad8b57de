//! State of one benchmark during a run: the results of its passes so far.

use super::contender::{ContenderFacts, MeasuredContender, Measurements};
use super::measure;
use super::summarise;
use super::{BenchmarkGroup, Lab};
use crate::bench::Bench;
use crate::date::{DATE_OUT_OF_RANGE, unix_ns};
use crate::fault::Fault;
use crate::noise;
use crate::samples::empty_operation_ns;
use crate::stats::MedianEstimate;
use handover_record::{Contender, ContenderKind, Record};
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Maximum half-width of the interval of a figure that needs no more rounds. It is relative to the
/// figure; the interval is over rounds.
const NARROW_HALF_WIDTH_MAX: f64 = 0.02;

/// State of one benchmark during a run, or during one pass of a run.
pub(super) struct BenchmarkProgress {
    started_unix_ns: i64,
    /// Measured time of an empty operation in ns, timed alone and in a batch.
    empty_operation_ns: (f64, f64),
    pub contenders: Vec<MeasuredContender>,
    /// Number of rounds in the records that were returned last.
    rounds_reported: usize,
    /// `true` if a pass has started to measure the benchmark.
    pub is_begun: bool,
    /// `true` if every figure had a narrow interval at the end of the last visit.
    pub is_settled: bool,
    /// `true` if a fault ended a visit. The benchmark is not visited again.
    pub is_closed: bool,
}

/// Results of one visit, which measures one benchmark in one pass.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct VisitResults {
    started_unix_ns: i64,
    /// Measured time of an empty operation in ns, timed alone and in a batch.
    empty_operation_ns: (f64, f64),
    /// Facts and measurements of each contender and floor.
    contenders: Vec<(ContenderFacts, Measurements)>,
    /// Contenders that failed and are not measured any more, each with its fault.
    pub faults: Vec<(String, Fault)>,
    /// Fault that aborted the measurement; `None` if it was completed.
    pub ended: Option<Fault>,
}

impl VisitResults {
    /// Creates the result of a benchmark that could not be started.
    pub fn from_fault(fault: Fault) -> VisitResults {
        VisitResults { ended: Some(fault), ..VisitResults::default() }
    }
}

impl BenchmarkProgress {
    /// Creates the state of a benchmark that is about to be measured.
    pub fn new(lab: &Lab, group: &BenchmarkGroup) -> Result<BenchmarkProgress, Fault> {
        let started_unix_ns =
            unix_ns(SystemTime::now()).ok_or_else(|| Fault::new(DATE_OUT_OF_RANGE))?;
        Ok(BenchmarkProgress {
            started_unix_ns,
            empty_operation_ns: empty_operation_ns(),
            contenders: measure::create_contenders(lab, group),
            rounds_reported: 0,
            is_begun: false,
            is_settled: false,
            is_closed: false,
        })
    }

    /// Returns the facts about the contenders that the next pass needs; empty before the first
    /// pass.
    pub fn contender_facts(&self) -> Vec<ContenderFacts> {
        let contenders = self.contenders.iter().filter(|_| self.is_begun);
        contenders.map(|it| it.facts).collect()
    }

    /// Converts the state into the results of a pass.
    pub fn into_visit_results(
        self,
        faults: Vec<(String, Fault)>,
        ended: Option<Fault>,
    ) -> VisitResults {
        VisitResults {
            started_unix_ns: self.started_unix_ns,
            empty_operation_ns: self.empty_operation_ns,
            contenders: self.contenders.into_iter().map(|it| (it.facts, it.measured)).collect(),
            faults,
            ended,
        }
    }

    /// Adds the results of a visit to this benchmark.
    pub fn add_visit(&mut self, visited: VisitResults) {
        if !self.is_begun && !visited.contenders.is_empty() {
            (self.started_unix_ns, self.empty_operation_ns) =
                (visited.started_unix_ns, visited.empty_operation_ns);
        }
        self.is_begun = true;
        for (contender, (facts, measured)) in self.contenders.iter_mut().zip(visited.contenders) {
            contender.absorb(facts, measured);
        }
        self.is_closed |= visited.ended.is_some();
        self.is_settled = self.has_good_figures();
    }

    /// Returns the benchmark's share of a pass's time. It is the number of its contenders, or 0 if
    /// its figures need no more rounds.
    pub fn weight(&self) -> usize {
        if self.is_settled { 0 } else { self.contenders.len() }
    }

    /// Returns `true` if rounds were added since the last call of [`records`](Self::records).
    pub fn has_new_rounds(&self) -> bool {
        self.rounds_count() > self.rounds_reported
    }

    /// Returns the records of all rounds measured so far.
    pub fn records(&mut self, lab: &Lab, group: &BenchmarkGroup) -> Vec<Record> {
        self.rounds_reported = self.rounds_count();
        self.contenders.iter_mut().for_each(MeasuredContender::reclassify_rounds);
        let context = summarise::RecordContext {
            spec: group.selection.spec,
            plan: &lab.plan,
            args: group.values.by_name().clone(),
            floors: &group.selection.floors,
            started_unix_ns: self.started_unix_ns,
            empty_operation_ns: self.empty_operation_ns,
        };
        summarise::summarise_records(&context, &self.contenders)
    }

    /// Returns the current median of the first contender in ns, for the part at index `part`.
    /// Returns `None` before its first round.
    pub fn figure_ns(&self, part: usize) -> Option<f64> {
        Some((*self.contenders[0].intervals().get(part)?)?.median)
    }

    /// Returns the current median of a floor in ns, for its part at index `part`. Returns `None`
    /// before its first round.
    pub fn floor_ns(&self, bench: &'static Bench, part: usize) -> Option<f64> {
        let is_its = |it: &&MeasuredContender| it.is_floor && it.bench.spec().id == bench.spec().id;
        let floor = self.contenders.iter().find(is_its)?;
        Some((*floor.intervals().get(part)?)?.median)
    }

    /// Returns the number of rounds of all contenders and floors.
    fn rounds_count(&self) -> usize {
        self.contenders.iter().map(MeasuredContender::rounds_count).sum()
    }

    /// Returns `true` if every figure has enough rounds and a narrow interval. The interval of a
    /// peer that is clearly slower than the fastest peer may be wide.
    fn has_good_figures(&self) -> bool {
        let racing = || self.contenders.iter().filter(|it| !it.is_floor && !it.facts.is_out);
        let figures: Vec<_> = racing().map(|it| (it, it.intervals())).collect();
        // The lowest upper bound among the peers with the same rival.
        let best = |of: &Contender, part: usize| {
            let peers = figures.iter().filter(|(it, _)| {
                let it = it.contender_in(part);
                it.kind == ContenderKind::Peer && it.rival_of == of.rival_of
            });
            let ends = peers.filter_map(|(_, parts)| parts[part]?.interval);
            ends.map(|(_, high)| high).fold(f64::MAX, f64::min)
        };
        let is_good = |it: &MeasuredContender, part: usize, figure: MedianEstimate| {
            let it = it.contender_in(part);
            let is_peer = it.kind == ContenderKind::Peer;
            let is_slower = || figure.interval.is_some_and(|(low, _)| low > best(&it, part));
            figure.half_width().is_some_and(|it| it <= NARROW_HALF_WIDTH_MAX)
                || is_peer && is_slower()
        };
        racing().all(|it| it.rounds_of_rarest_part() >= noise::ROUNDS_MIN)
            && figures.iter().all(|(contender, parts)| {
                let measured_parts =
                    parts.iter().enumerate().filter_map(|(part, it)| Some((part, (*it)?)));
                measured_parts.into_iter().all(|(part, figure)| is_good(contender, part, figure))
            })
    }
}
