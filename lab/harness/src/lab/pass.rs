//! One pass over the benchmarks of a run, in this process or in a separate one.

use super::contender::ContenderFacts;
use super::measure::{BlockRunner, VisitLimits};
use super::progress::{BenchmarkProgress, VisitResults};
use super::{BenchmarkGroup, Lab, Plan, PlanError};
use crate::bench::Bench;
use crate::fault::Fault;
use crate::select::select;
use handover_base::random::SplitMix64;
use handover_base::topology::{self, Topology};
use handover_base::usage;
use handover_record::ArgValues;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Request to the process of a pass: the benchmarks to measure, and their limits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassRequest {
    /// Index of the pass.
    pub pass: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Benchmarks to visit, in order.
    pub sequence: Vec<PlannedVisit>,
    /// Time limit of the pass; `None` for no limit.
    pub budget: Option<Duration>,
    /// Minimum number of blocks of each benchmark.
    pub blocks_min: u32,
    /// Maximum number of blocks of each benchmark.
    pub blocks_max: u32,
    /// Time limit of one benchmark's warm-up.
    pub warm_up: Duration,
}

/// A benchmark that a pass must measure.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlannedVisit {
    /// Index of the benchmark in [`Lab::groups`].
    pub group: usize,
    /// Share of the pass's time, relative to the weights of the other benchmarks. With 0, only the
    /// minimum number of blocks is measured.
    pub weight: usize,
    /// Facts found by earlier passes; empty if there are none.
    pub facts: Vec<ContenderFacts>,
}

/// Progress report of a pass. A benchmark begins, a block is done, a benchmark is done, or the pass
/// ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PassReport {
    /// Measurement of the benchmark at index `group` of [`Lab::groups`] starts.
    Begin { group: usize },
    /// `done` blocks of the current benchmark are measured, of at most `most`.
    Block { done: u32, most: u32 },
    /// Measurement of the benchmark at index `group` of [`Lab::groups`] is complete.
    Visited { group: usize, visited: Box<VisitResults> },
    /// The pass is complete. `steal` is the share of the machine's CPU time that the hypervisor
    /// took.
    End { steal: f64 },
}

/// Measures the requested benchmarks; stops as soon as `report` returns `false`.
pub(super) fn run_pass(
    lab: &Lab,
    request: &PassRequest,
    interrupted: &AtomicBool,
    report: &mut dyn FnMut(PassReport) -> bool,
) {
    let began = Instant::now();
    // CPUs that no participant can run on would dilute the share.
    let steal = usage::read_steal_time(&lab.allowed);
    let mut left: usize = request.sequence.iter().map(|wanted| wanted.weight).sum();
    for wanted in &request.sequence {
        let group = wanted.group;
        if !report(PassReport::Begin { group }) {
            return;
        }
        let share = request.budget.map(|budget| {
            let part = wanted.weight as f64 / left.max(1) as f64;
            budget.saturating_sub(began.elapsed()).mul_f64(part.min(1.0))
        });
        left = left.saturating_sub(wanted.weight);
        let visit = VisitLimits {
            blocks_min: request.blocks_min,
            blocks_max: if wanted.weight == 0 { request.blocks_min } else { request.blocks_max },
            until: share.and_then(|share| Instant::now().checked_add(share)),
            warm_up: request.warm_up,
        };
        let visited = match visit_one(lab, request, wanted, visit, interrupted, report) {
            Ok(visited) => visited,
            Err(fault) => VisitResults::from_fault(fault),
        };
        // Relaxed: the flag publishes no other data.
        if !report(PassReport::Visited { group, visited: Box::new(visited) })
            || interrupted.load(Ordering::Relaxed)
        {
            return;
        }
    }
    let steal = steal.zip(usage::read_steal_time(&lab.allowed));
    let steal = steal.map_or(0.0, |(before, after)| (after - before).stolen_share());
    report(PassReport::End { steal });
}

/// Measures one benchmark of a pass, after a warm-up. In the first pass, a check precedes the
/// warm-up.
fn visit_one(
    lab: &Lab,
    request: &PassRequest,
    wanted: &PlannedVisit,
    visit: VisitLimits,
    interrupted: &AtomicBool,
    report: &mut dyn FnMut(PassReport) -> bool,
) -> Result<VisitResults, Fault> {
    let group = &lab.groups[wanted.group];
    let mut progress = BenchmarkProgress::new(lab, group)?;
    let place = ((request.pass as u64) << 32) | wanted.group as u64;
    let random = SplitMix64::new(SplitMix64::new(request.seed ^ place).next_u64());
    let mut measuring = BlockRunner::new(lab, group, interrupted, request.pass, random);
    let contenders = &mut progress.contenders;
    let mut faults = Vec::new();
    let mut go = || {
        match &*wanted.facts {
            [] => faults = measuring.check_and_warm_up(contenders, visit.warm_up)?,
            facts => measuring.warm_up_again(contenders, facts)?,
        }
        measuring.measure_visit(contenders, visit, &mut |done, most| match report(
            PassReport::Block { done, most },
        ) {
            true => Ok(()),
            false => Err(Fault::Interrupted),
        })
    };
    let ended = go().err();
    Ok(progress.into_visit_results(faults, ended))
}

/// Data from which the process of a pass recreates the lab.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LabMessage {
    plan: Plan,
    groups: Vec<GroupMessage>,
}

/// Data from which the process of a pass recreates one benchmark of the lab.
#[derive(Debug, Serialize, Deserialize)]
struct GroupMessage {
    /// Id of the benchmark.
    spec: String,
    /// Names of the contenders.
    contenders: Vec<String>,
    /// Values of the arguments, by name.
    values: BTreeMap<String, u64>,
}

impl LabMessage {
    pub fn from_lab(lab: &Lab) -> LabMessage {
        let group = |group: &BenchmarkGroup| GroupMessage {
            spec: group.selection.spec.id.to_string(),
            contenders: group
                .selection
                .contenders
                .iter()
                .map(|it| it.contender().name.to_string())
                .collect(),
            values: group.values.by_name().clone(),
        };
        LabMessage { plan: lab.plan.clone(), groups: lab.groups.iter().map(group).collect() }
    }

    /// Recreates the lab with this program's benchmarks.
    pub fn into_lab(self, all: &[&'static [Bench]]) -> Result<Lab, Fault> {
        let LabMessage { plan, groups } = self;
        let groups = groups.iter().map(|group| group.to_group(all)).collect::<Result<_, _>>()?;
        let topology = Topology::read()
            .map_err(|error| Fault::from_error(PlanError::Topology(error.to_string())))?;
        Ok(Lab { plan, groups, topology, allowed: topology::allowed_cpus(), seed: 0 })
    }
}

impl GroupMessage {
    /// Recreates the benchmark from this program's suites.
    fn to_group(&self, all: &[&'static [Bench]]) -> Result<BenchmarkGroup, Fault> {
        let chosen = select(all, std::slice::from_ref(&self.spec)).map_err(Fault::from_error)?;
        let mut selection =
            chosen.into_iter().find(|it| it.spec.id == self.spec).ok_or_else(|| {
                Fault::new(format!("this program has no benchmark {id}", id = self.spec))
            })?;
        selection
            .contenders
            .retain(|it| self.contenders.iter().any(|name| name == it.contender().name));
        let params = selection.contenders.first().map_or(&[][..], |bench| bench.params());
        let mut values = ArgValues::defaults(params);
        for (name, value) in &self.values {
            values.set_value(name, *value).map_err(Fault::from_error)?;
        }
        Ok(BenchmarkGroup { selection, values })
    }
}
