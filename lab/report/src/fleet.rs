//! Comparison of the nodes of a fleet, figure by figure: nodes that stand apart from the others.
//!
//! A figure's centre is the median of the nodes' values, and its scale their median absolute
//! deviation, both of logarithms; neither moves much while less than half of the nodes are slow. A
//! node's distance from the centre is divided by that scale or, where it is greater, by the
//! standard error that the interval of the node's own measurement shows. The p-value is that of
//! Student's t, with the degrees of freedom that the scale of so many nodes is worth. Holm's
//! correction over all nodes and figures bounds the probability that chance names any node.

pub(crate) mod robust;
mod table;

use crate::compare::Rules;
use crate::figure_key::{FigureKey, compared_figures, usual_timing};
use crate::format;
use crate::seen::is_smoke;
use crate::svg::{Axis, AxisName, Chart, Mark, Point, Quantity, Series, SeriesRole};
use handover_record::{ContenderKind, Document, Finding, FindingLevel, Record, TimingKind, Unit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Version of a fleet's JSON format.
pub const FLEET_SCHEMA: u32 = 1;
/// Minimum number of nodes for a comparison.
pub const NODES_MIN: usize = 3;
/// Maximum corrected p-value of a node that stands apart.
pub const P_CORRECTED_MAX: f64 = 0.05;

/// Smallest spread that is assumed for the logarithms of the nodes' values. Without it, distances
/// would be infinite if most values are equal.
const SCALE_MIN: f64 = 0.001;
/// Half the width of a 95 % interval, in standard errors.
const INTERVAL_HALF_WIDTH: f64 = 1.96;

/// Node of a fleet: a run on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Name of the node: its host name, with the rank if several nodes have the same.
    pub name: String,
    /// Id of the run.
    pub run: String,
    /// Start of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Version and commit of the measured build.
    pub build: String,
    /// `true` if the run was completed.
    pub complete: bool,
}

/// Figure of one node, compared with those of the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeFigure {
    /// Index of the node in [`Fleet::nodes`].
    pub node: usize,
    /// Value of the figure.
    pub median: f64,
    /// Lower bound of the value's 95 % interval; `None` without an interval.
    pub low: Option<f64>,
    /// Upper bound of the value's 95 % interval; `None` without an interval.
    pub high: Option<f64>,
    /// Ratio to the median of the nodes; `None` in a row that is not tested.
    pub ratio: Option<f64>,
    /// Distance from the median of the nodes, in units of their spread; `None` in a row that is not
    /// tested.
    pub z: Option<f64>,
    /// p-value of the distance from the median, for this node and figure alone.
    pub p: Option<f64>,
    /// p-value of the distance from the median, corrected for the number of nodes and figures.
    pub p_corrected: Option<f64>,
    /// `true` if the node stands apart in this figure.
    pub apart: bool,
}

/// One figure over all nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Id of the figure.
    pub id: String,
    /// Name of the contender.
    pub contender: String,
    /// Arguments and placement that differ from the defaults.
    pub setting: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Median of the nodes' values.
    pub median: f64,
    /// Spread of the nodes' values, relative to the median. It is the scaled median absolute
    /// deviation; `None` in a row that is not tested.
    pub spread: Option<f64>,
    /// Smallest value of a node.
    pub least: f64,
    /// Greatest value of a node.
    pub greatest: f64,
    /// Number of nodes that stand apart because their value is greater than the median.
    pub slower_count: usize,
    /// Number of nodes that stand apart because their value is less than the median.
    pub faster_count: usize,
    /// Reason why the nodes are not compared; empty if they are.
    pub why: String,
    /// Values of the nodes that have the figure, and timed its operations as most nodes did: singly
    /// or in batches.
    #[serde(rename = "nodes")]
    pub figures: Vec<NodeFigure>,
}

/// Figure in which a node stands apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApartFigure {
    /// Index of the figure in [`Fleet::rows`].
    pub row: usize,
    /// Ratio of the node's value to the median of the nodes.
    pub ratio: f64,
    /// p-value of the node's distance from the median, corrected for the number of nodes and
    /// figures.
    pub p_corrected: f64,
}

/// Finding of the doctor about a node, with the number of nodes that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeFinding {
    /// Name of the checked fact.
    pub code: String,
    /// Severity of the finding.
    pub level: FindingLevel,
    /// State of the checked fact.
    pub found: String,
    /// Number of nodes of the fleet with a finding of this severity about this fact.
    pub nodes_count: usize,
}

/// Node that stands apart in at least one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApartNode {
    /// Index of the node in [`Fleet::nodes`].
    pub node: usize,
    /// Figures in which the node stands apart, the farthest from the median first.
    pub figures: Vec<ApartFigure>,
    /// Findings of the doctor about the node; the rarest among the nodes come first.
    pub findings: Vec<NodeFinding>,
}

/// Nodes of a fleet, compared figure by figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// Version of the JSON format.
    pub schema: u32,
    /// Name that the runs of all nodes have.
    pub name: String,
    /// Measurement profile of the first node.
    pub profile: String,
    /// Smallest relative difference with which a node can stand apart: 0.02 is 2 %.
    pub threshold: f64,
    /// Nodes, in the order of their runs.
    pub nodes: Vec<Node>,
    /// Figures, in the order of the first node that has them.
    pub rows: Vec<Row>,
    /// Nodes that stand apart, the farthest from the median first.
    pub apart: Vec<ApartNode>,
    /// Reasons not to trust the comparison as a whole, one sentence each.
    pub notes: Vec<String>,
}

impl Fleet {
    /// Compares the nodes of a fleet, each of which is one run. A run is dropped before the next is
    /// taken, so that memory is needed for the figures only. The result is deterministic.
    ///
    /// # Errors
    /// The first error of `runs`.
    ///
    /// # Cost
    /// A microsecond for each node and figure, in addition to taking the runs.
    pub fn new<E>(
        name: &str,
        runs: impl IntoIterator<Item = Result<Document, E>>,
        rules: Rules,
    ) -> Result<Fleet, E> {
        let mut table = NodeTable::default();
        for run in runs {
            table.add(&run?);
        }
        Ok(table.into_fleet(name, rules))
    }

    /// Draws a row for each figure, with a dot for each node at its distance from the median.
    pub fn chart(&self) -> Chart {
        let names = self.rows.iter().map(|row| AxisName {
            label: self.row_name(row),
            note: format::figure(row.unit, row.median),
            opens_group: false,
        });
        let points = |is_apart: bool| -> Vec<Point> {
            let rows = self.rows.iter().enumerate();
            let figures = rows.flat_map(|(place, row)| {
                row.figures
                    .iter()
                    .filter(move |it| it.apart == is_apart)
                    .map(move |it| (place, row, it))
            });
            let point = |(place, row, figure): (usize, &Row, &NodeFigure)| {
                // Multiples of the golden ratio spread the dots evenly over the row's height.
                let height = (figure.node as f64 * 0.618_034).fract() - 0.5;
                let text = format!(
                    "{}: {} {}, {}",
                    self.nodes[figure.node].name,
                    row.id,
                    format::figure(row.unit, figure.median),
                    signed_share(figure.ratio.unwrap_or(1.0)),
                );
                Some(Point::new(figure.ratio? - 1.0, place as f64 + height).with_tooltip(text))
            };
            figures.filter_map(point).collect()
        };
        Chart::new(
            format!("{}: {}", self.name, format::counted(self.nodes.len(), "node")),
            Axis::linear("distance from the median of the nodes", Quantity::Share)
                .with_included_value(0.0),
            Axis::with_names(names.collect()),
        )
        .with_description(self.apart_line())
        .with_heading()
        .with_series(Series::new("node", SeriesRole::Faint, Mark::Dot, points(false)))
        .with_series(Series::new(
            "node that stands apart",
            SeriesRole::Ours,
            Mark::Dot,
            points(true),
        ))
    }

    /// Returns the name of a row: its id and, if other rows have the same id, contender and
    /// setting.
    fn row_name(&self, row: &Row) -> String {
        let is_twin = |it: &&Row| it.id == row.id;
        match self.rows.iter().filter(is_twin).count() {
            0 | 1 => row.id.clone(),
            _ => format!("{} [{}] {}", row.id, row.contender, row.setting).trim_end().to_string(),
        }
    }

    /// Returns the sentence about the number of nodes that stand apart.
    fn apart_line(&self) -> String {
        if self.rows.iter().all(|row| !row.why.is_empty()) {
            return "The nodes are not compared.".to_string();
        }
        match self.apart.len() {
            0 => "No node stands apart.".to_string(),
            1 => "1 node stands apart.".to_string(),
            count => format!("{count} nodes stand apart."),
        }
    }
}

/// Formats a ratio as a difference: `+10.2 %`.
fn signed_share(ratio: f64) -> String {
    // The sum turns a negative zero into zero.
    match ((ratio - 1.0) * 1000.0).round() / 10.0 + 0.0 {
        percent if percent.abs() < 999.5 => format!("{percent:+.1} %"),
        _ => format::ratio(ratio),
    }
}

/// Figures of all nodes, before they are compared.
#[derive(Default)]
struct NodeTable {
    nodes: Vec<Node>,
    /// Measurement profile of the first node.
    profile: String,
    /// Findings of each node, of the levels `Disturbs` and `Note` only.
    findings: Vec<Vec<Finding>>,
    /// Names of the nodes that may use only one of their CPUs.
    confined: Vec<String>,
    /// Keys of the figures, in order of first appearance.
    keys: Vec<FigureKey>,
    cells: BTreeMap<FigureKey, NodeCell>,
}

/// Values of one figure.
struct NodeCell {
    unit: Unit,
    kind: ContenderKind,
    /// `true` if the figure of a node comes from a smoke run.
    is_smoke: bool,
    /// Figure of each node that has it, with the kind of timing.
    figures: Vec<(TimingKind, NodeFigure)>,
}

impl NodeTable {
    /// Adds the run of a node.
    fn add(&mut self, document: &Document) {
        let (run, host) = (&document.run, &document.host);
        if self.nodes.is_empty() {
            self.profile.clone_from(&run.profile);
        }
        for record in &document.records {
            self.add_record(record);
        }
        if host.cpus_allowed.len() == 1 && host.cpus_online > 1 {
            self.confined.push(host.name.clone());
        }
        let is_bad =
            |it: &&Finding| matches!(it.level, FindingLevel::Disturbs | FindingLevel::Note);
        self.findings.push(run.findings.iter().filter(is_bad).cloned().collect());
        self.nodes.push(Node {
            name: host.name.clone(),
            run: run.id.clone(),
            started_unix_ns: run.started_unix_ns,
            build: format::build(run),
            complete: run.complete,
        });
    }

    /// Adds a figure of the node that is being added.
    fn add_record(&mut self, record: &Record) {
        let key = FigureKey::from_record(record);
        if !self.cells.contains_key(&key) {
            self.keys.push(key.clone());
        }
        let (unit, kind) = (record.unit, record.kind);
        let cell = self.cells.entry(key).or_insert_with(|| NodeCell {
            unit,
            kind,
            is_smoke: false,
            figures: Vec::new(),
        });
        let node = self.nodes.len();
        // Twins of a null benchmark have one key.
        if cell.figures.last().is_some_and(|(_, last)| last.node == node) {
            return;
        }
        cell.is_smoke |= is_smoke(record);
        let summary = &record.summary;
        let figure = NodeFigure {
            node,
            median: summary.median,
            low: summary.low,
            high: summary.high,
            ratio: None,
            z: None,
            p: None,
            p_corrected: None,
            apart: false,
        };
        cell.figures.push((summary.timing_kind(), figure));
    }

    /// Compares the nodes in the figures that [`compared_figures`] selects.
    fn into_fleet(mut self, name: &str, rules: Rules) -> Fleet {
        let shown = compared_figures(&self.keys, |key| self.cells[key].kind, rules.all);
        let shown: Vec<FigureKey> = shown.into_iter().cloned().collect();
        let mut left_out = Vec::new();
        let mut rows: Vec<Row> = shown
            .into_iter()
            .filter_map(|key| {
                self.cells.remove(&key).map(|cell| tested_row(key, cell, &mut left_out))
            })
            .collect();
        correct_p_values(&mut rows, rules.threshold);
        let apart = self.apart_nodes(&rows);
        let notes = self.notes(&left_out);
        Fleet {
            schema: FLEET_SCHEMA,
            name: name.to_string(),
            profile: self.profile,
            threshold: rules.threshold,
            nodes: self.nodes,
            rows,
            apart,
            notes,
        }
    }

    /// Returns the nodes that stand apart, the farthest from the median first.
    fn apart_nodes(&self, rows: &[Row]) -> Vec<ApartNode> {
        let mut by_node: BTreeMap<usize, Vec<ApartFigure>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            for figure in row.figures.iter().filter(|it| it.apart) {
                if let (Some(ratio), Some(p_corrected)) = (figure.ratio, figure.p_corrected) {
                    let figure_of_it = ApartFigure { row: place, ratio, p_corrected };
                    by_node.entry(figure.node).or_default().push(figure_of_it);
                }
            }
        }
        let mut counts: BTreeMap<(&str, FindingLevel), usize> = BTreeMap::new();
        for finding in self.findings.iter().flatten() {
            *counts.entry((&finding.code, finding.level)).or_default() += 1;
        }
        let finding = |it: &Finding| NodeFinding {
            code: it.code.clone(),
            level: it.level,
            found: it.found.clone(),
            nodes_count: counts.get(&(it.code.as_str(), it.level)).copied().unwrap_or(0),
        };
        let far = |it: &ApartFigure| it.ratio.ln().abs();
        let mut apart: Vec<ApartNode> = by_node
            .into_iter()
            .map(|(node, mut figures)| {
                figures.sort_by(|x, y| far(y).total_cmp(&far(x)));
                let mut findings: Vec<NodeFinding> =
                    self.findings[node].iter().map(finding).collect();
                findings.sort_by_key(|it| (it.nodes_count, it.level));
                ApartNode { node, figures, findings }
            })
            .collect();
        let most = |it: &ApartNode| it.figures.first().map_or(0.0, far);
        apart.sort_by(|x, y| most(y).total_cmp(&most(x)));
        apart
    }

    /// Returns reasons not to trust the comparison as a whole, one sentence each. `left_out` has
    /// the node of each figure that was timed in another way than on the other nodes.
    fn notes(&self, left_out: &[usize]) -> Vec<String> {
        let mut notes = Vec::new();
        if !left_out.is_empty() {
            let nodes: BTreeSet<usize> = left_out.iter().copied().collect();
            let names: Vec<&str> = nodes.iter().map(|it| &*self.nodes[*it].name).collect();
            notes.push(format!(
                "{} left out, of {}: their operations were timed in another way (singly or in batches) than on the \
                 other nodes. Slower nodes time singly: a node that was left out may stand apart.",
                format::counted(left_out.len(), "figure"),
                format::listed(&names)
            ));
        }
        let unended: Vec<String> =
            self.nodes.iter().filter(|it| !it.complete).map(|it| it.name.clone()).collect();
        if !unended.is_empty() {
            let were = if unended.len() == 1 { "was" } else { "were" };
            let (runs, nodes) = (format::counted(unended.len(), "run"), format::listed(&unended));
            notes.push(format!("{runs} {were} not completed: of {nodes}."));
        }
        let builds: BTreeSet<&str> = self.nodes.iter().map(|it| it.build.as_str()).collect();
        if builds.len() > 1 {
            let builds = format::listed(&builds.into_iter().collect::<Vec<_>>());
            notes.push(format!("The nodes were measured by different builds: {builds}."));
        }
        if !self.confined.is_empty() {
            notes.push(format!(
                "{} may use only one CPU each: {}. Launchers bind ranks to CPUs unless told otherwise, as by `--bind-to none`.",
                format::counted(self.confined.len(), "node"),
                format::listed(&self.confined)
            ));
        }
        notes
    }
}

/// Creates the row of a figure, with the uncorrected p-value of each node. Nodes whose operations
/// were timed in another way than on most are added to `left_out` instead.
fn tested_row(key: FigureKey, cell: NodeCell, left_out: &mut Vec<usize>) -> Row {
    let NodeCell { unit, is_smoke, figures, .. } = cell;
    let usual = usual_timing(figures.iter().map(|(timing, _)| *timing));
    let (figures, others): (Vec<_>, Vec<_>) =
        figures.into_iter().partition(|(timing, _)| *timing == usual);
    left_out.extend(others.iter().map(|(_, figure)| figure.node));
    let mut figures: Vec<NodeFigure> = figures.into_iter().map(|(_, figure)| figure).collect();
    let mut values: Vec<f64> = figures.iter().map(|it| it.median).collect();
    let above_0 = values.iter().all(|value| *value > 0.0 && value.is_finite());
    let why = if is_smoke {
        "run with smoke values, not measured".to_string()
    } else if figures.len() < NODES_MIN {
        format!(
            "{nodes}, and at least {NODES_MIN} are needed",
            nodes = format::counted(figures.len(), "node")
        )
    } else if !above_0 {
        "a figure that is not above 0 has no ratio".to_string()
    } else {
        String::new()
    };
    let mut spread = None;
    if why.is_empty() {
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let (center, scale) = robust::median_and_scale(&logs);
        spread = Some(scale.exp_m1());
        for (figure, log) in figures.iter_mut().zip(logs) {
            let own_error = match (figure.low, figure.high) {
                (Some(low), Some(high)) if low > 0.0 => {
                    (high / low).ln() / 2.0 / INTERVAL_HALF_WIDTH
                }
                _ => 0.0,
            };
            let z = (log - center) / scale.max(own_error).max(SCALE_MIN);
            figure.ratio = Some((log - center).exp());
            figure.z = Some(z);
            figure.p = Some(robust::p_of_distance(z, values.len()));
        }
    }
    let ends =
        values.iter().fold((f64::MAX, f64::MIN), |it, value| (it.0.min(*value), it.1.max(*value)));
    Row {
        id: key.id,
        contender: key.contender,
        setting: key.setting,
        unit,
        median: robust::median(&mut values),
        spread,
        least: ends.0,
        greatest: ends.1,
        slower_count: 0,
        faster_count: 0,
        why,
        figures,
    }
}

/// Corrects the p-values of all rows for the number of tests, and marks the nodes that stand apart.
fn correct_p_values(rows: &mut [Row], threshold: f64) {
    let tested = |it: &NodeFigure| it.p;
    let mut p_values: Vec<f64> =
        rows.iter().flat_map(|row| &row.figures).filter_map(tested).collect();
    robust::correct_by_holm(&mut p_values);
    let mut p_values = p_values.into_iter();
    for row in rows {
        for figure in row.figures.iter_mut().filter(|it| it.p.is_some()) {
            figure.p_corrected = p_values.next();
            let is_rare = figure.p_corrected.is_some_and(|p| p <= P_CORRECTED_MAX);
            let ratio = figure.ratio.unwrap_or(1.0);
            let is_slower = is_rare && ratio > 1.0 + threshold;
            let is_faster = is_rare && ratio < 1.0 / (1.0 + threshold);
            figure.apart = is_slower || is_faster;
            row.slower_count += usize::from(is_slower);
            row.faster_count += usize::from(is_faster);
        }
    }
}
