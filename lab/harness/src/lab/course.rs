//! One benchmark in the course of a run: what its passes yielded so far.

use super::lane::{Known, Lane, Measured};
use super::measure;
use super::summarise;
use super::{Group, Lab};
use crate::bench::Bench;
use crate::date::{DATE_REFUSED, unix_ns};
use crate::fault::Fault;
use crate::noise;
use crate::samples::empty_ns;
use crate::stats;
use handover_record::{Contender, ContenderKind, Record};
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// The rounds tell a figure well enough when its interval over them reaches at most this far.
const NARROW: f64 = 0.02;

/// One benchmark in the course of a run, or of one pass of it.
pub(super) struct Course {
    started_unix_ns: i64,
    empty: (f64, f64),
    pub lanes: Vec<Lane>,
    rounds_told: usize,
    /// A pass has begun with it.
    pub is_begun: bool,
    /// Every figure was good at the end of the last visit.
    pub is_settled: bool,
    /// It failed, or a lane of it died in mid-run: no pass comes back to it.
    pub is_closed: bool,
}

/// What a lane yielded in one pass.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaneVisited {
    known: Known,
    measured: Measured,
}

/// What a benchmark yielded in one pass.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Visited {
    started_unix_ns: i64,
    empty: (f64, f64),
    lanes: Vec<LaneVisited>,
    /// Contenders that are out of the race, and why.
    pub faults: Vec<(String, Fault)>,
    /// Why it ended before its time.
    pub ended: Option<Fault>,
}

impl Visited {
    /// Of a benchmark that could not even begin.
    pub fn of_fault(fault: Fault) -> Visited {
        let (started_unix_ns, empty) = (0, (0.0, 0.0));
        Visited { started_unix_ns, empty, lanes: vec![], faults: vec![], ended: Some(fault) }
    }
}

impl Course {
    /// Of a benchmark that begins now.
    pub fn begin(lab: &Lab, group: &Group) -> Result<Course, Fault> {
        let started_unix_ns = unix_ns(SystemTime::now()).ok_or_else(|| Fault::new(DATE_REFUSED))?;
        Ok(Course {
            started_unix_ns,
            empty: empty_ns(),
            lanes: measure::lanes(lab, group),
            rounds_told: 0,
            is_begun: false,
            is_settled: false,
            is_closed: false,
        })
    }

    /// What a pass needs to know of it; nothing before the first one.
    pub fn known(&self) -> Vec<Known> {
        let lanes = self.lanes.iter().filter(|_| self.is_begun);
        lanes.map(|lane| lane.known).collect()
    }

    /// What it has yielded, for the run.
    pub fn into_visited(self, faults: Vec<(String, Fault)>, ended: Option<Fault>) -> Visited {
        let of = |lane: Lane| LaneVisited { known: lane.known, measured: lane.measured };
        Visited {
            started_unix_ns: self.started_unix_ns,
            empty: self.empty,
            lanes: self.lanes.into_iter().map(of).collect(),
            faults,
            ended,
        }
    }

    /// Adds what a pass has yielded.
    pub fn absorb(&mut self, visited: Visited) {
        if !self.is_begun && !visited.lanes.is_empty() {
            (self.started_unix_ns, self.empty) = (visited.started_unix_ns, visited.empty);
        }
        self.is_begun = true;
        for (lane, visited) in self.lanes.iter_mut().zip(visited.lanes) {
            lane.absorb(visited.known, visited.measured);
        }
        self.is_closed |= visited.ended.is_some();
        self.is_settled = self.has_good_figures();
    }

    /// How much of a pass it wants: by its contenders and floors, if its figures are not good yet.
    pub fn weight(&self) -> usize {
        if self.is_settled { 0 } else { self.lanes.len() }
    }

    /// Whether the benchmark has yielded more than it has told.
    pub fn is_news(&self) -> bool {
        self.rounds_count() > self.rounds_told
    }

    /// What the benchmark has yielded so far.
    pub fn records(&mut self, lab: &Lab, group: &Group) -> Vec<Record> {
        self.rounds_told = self.rounds_count();
        self.lanes.iter_mut().for_each(Lane::judge_again);
        let context = summarise::Context {
            spec: group.selection.spec,
            plan: &lab.plan,
            args: group.values.all().clone(),
            floors: &group.selection.floors,
            started_unix_ns: self.started_unix_ns,
            empty: self.empty,
        };
        summarise::records(&context, &self.lanes)
    }

    /// The figure so far, of a part of the first contender; `None` where there is none.
    pub fn figure_ns(&self, part: usize) -> Option<f64> {
        Some(self.lanes[0].intervals().get(part).copied().flatten()?.median)
    }

    /// The same, of a part of a floor.
    pub fn floor_ns(&self, bench: &'static Bench, part: usize) -> Option<f64> {
        let is_its = |lane: &&Lane| lane.is_floor && lane.bench.spec().id == bench.spec().id;
        let floor = self.lanes.iter().find(is_its)?;
        Some(floor.intervals().get(part).copied().flatten()?.median)
    }

    /// Rounds of all its lanes.
    fn rounds_count(&self) -> usize {
        self.lanes.iter().map(Lane::rounds_count).sum()
    }

    /// Whether every figure has enough rounds, which agree well. A peer that is clearly not the best one need
    /// not be known as well.
    fn has_good_figures(&self) -> bool {
        let racing = || self.lanes.iter().filter(|lane| !lane.is_floor && !lane.known.is_out);
        let figures: Vec<_> =
            racing().map(|lane| (lane.bench.contender(), lane.intervals())).collect();
        // Of the peers of one contender, where they are no rivals of all.
        let best = |of: &Contender, part: usize| {
            let peers = figures
                .iter()
                .filter(|(it, _)| it.kind == ContenderKind::Peer && it.rival_of == of.rival_of);
            peers.filter_map(|(_, parts)| parts[part]).map(|it| it.high).fold(f64::MAX, f64::min)
        };
        let is_good = |it: &Contender, part: usize, figure: stats::Interval| {
            let is_peer = it.kind == ContenderKind::Peer;
            figure.half_width() <= NARROW || (is_peer && figure.low > best(it, part))
        };
        racing().all(|lane| lane.rounds_least() >= noise::ROUNDS_MIN)
            && figures.iter().all(|(contender, parts)| {
                let known = parts.iter().enumerate().filter_map(|(part, it)| Some((part, (*it)?)));
                known.into_iter().all(|(part, figure)| is_good(contender, part, figure))
            })
    }
}
