//! Comparison of two sets of runs: figures that became better or worse, and figures without a
//! verdict.
//!
//! The sample is a process, that is, a run. Rounds of one process share the placement of its
//! memory, its time and its neighbours, and operations of one round even more; treated as
//! independent they make two runs of one build differ. So at least five processes per side are
//! needed, and each gives one value per figure: the median of its rounds, or their best tenth,
//! whichever varies less among the processes of a side. On a shared machine the best tenth is what
//! ran undisturbed: it repeats within some tenths of a percent where medians are 5 % apart; for a
//! figure with two modes the median is better. The 99th percentile of operations that were timed
//! singly is a figure of its own. All are tests of one family, so that testing more than once does
//! not weaken the error bound below.

mod family;
mod ranks;
mod table;

pub use table::render_comparison;

use crate::figure_key::{FigureKey, compared_figures};
use crate::format;
use crate::seen::is_smoke;
use handover_record::{ContenderKind, Document, Record, TimingKind, Unit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Version of a comparison's JSON format.
pub const COMPARISON_SCHEMA: u32 = 1;

/// Minimum number of processes per side for a verdict.
pub const PROCESSES_MIN: usize = 5;

/// Maximum corrected p-value of a verdict; the documentation says one in a hundred. Two of the 252
/// ways to divide five processes per side reach it.
pub(crate) const P_CORRECTED_MAX: f64 = 0.008;
/// Maximum p-value of a figure's own Mann-Whitney test for a verdict `better` or `worse`. It is
/// required in addition to [`P_CORRECTED_MAX`], so that one outlying process cannot cause a
/// verdict.
pub(crate) const P_UNCORRECTED_MAX: f64 = 0.05;

/// Statistic that represents the rounds of a process as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The figure itself: the median over the passes.
    Median,
    /// The 10 % quantile of the rounds' medians; one tenth of the rounds are better.
    BestTenth,
    /// The 99 % quantile of the operations' times; absent unless each operation was timed singly.
    P99,
}

impl Statistic {
    const ALL: [Statistic; 3] = [Statistic::Median, Statistic::BestTenth, Statistic::P99];
    /// Statistics for the row of a figure, which shows one of them. The 99 % quantile has a
    /// separate row.
    const FIGURE: [Statistic; 2] = [Statistic::Median, Statistic::BestTenth];

    /// Returns the name of the statistic as tables print it.
    pub fn label(self) -> &'static str {
        match self {
            Statistic::Median => "median",
            Statistic::BestTenth => "best 1/10",
            Statistic::P99 => "p99",
        }
    }

    /// Returns this statistic of a record; NaN if the record does not have it.
    fn value(self, record: &Record) -> f64 {
        match self {
            Statistic::Median => return record.summary.median,
            Statistic::P99 if record.summary.timing_kind() == TimingKind::Batch => return f64::NAN,
            Statistic::P99 => return record.summary.quantiles().map_or(f64::NAN, |it| it.p99),
            Statistic::BestTenth => {}
        }
        let mut rounds: Vec<f64> = record.rounds.iter().map(|round| round.median).collect();
        if rounds.len() < ROUNDS_OF_TENTH_MIN {
            return f64::NAN;
        }
        let place = rounds.len() / 10;
        *rounds.select_nth_unstable_by(place, f64::total_cmp).1
    }
}

/// Maximum number of further processes per side that is reported.
pub const FURTHER_PROCESSES_MAX: u32 = 200;
/// Minimum size of a difference that counts as significant, in half-widths of its interval. Only
/// the estimate of further processes uses it.
const SIGNIFICANT_HALF_WIDTHS: f64 = 1.5;

/// Minimum number of rounds for a [`Statistic::BestTenth`].
const ROUNDS_OF_TENTH_MIN: usize = 10;

/// Options of a comparison of runs or nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Smallest relative difference that counts as a change: 0.02 is 2 %.
    pub threshold: f64,
    /// `true` to list every contender, instead of ours only.
    pub all: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { threshold: 0.02, all: false }
    }
}

/// Verdict on one figure: how side B compares with side A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B needs less time or memory than A.
    Better,
    /// B needs more time or memory than A.
    Worse,
    /// Any difference between A and B is smaller than the threshold.
    Same,
    /// The data allow both: no difference, and a difference above the threshold.
    TooNoisy,
    /// The runs do not allow a comparison, for example because there are too few.
    CannotSay,
}

impl Verdict {
    /// Returns the verdict as tables print it.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::TooNoisy => "too noisy to say",
            Verdict::CannotSay => "cannot say",
        }
    }
}

/// One of the two compared sets of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Name by which the user selected the runs.
    pub name: String,
    /// Ids of the runs, each a process.
    pub runs: Vec<String>,
    /// Versions and commits of the builds that were measured.
    pub builds: BTreeSet<String>,
    /// Host names of the measured machines.
    pub hosts: BTreeSet<String>,
}

/// Comparison of one figure between the two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Id of the figure.
    pub id: String,
    /// Name of the contender.
    pub contender: String,
    /// Arguments and placement that differ from the defaults.
    pub setting: String,
    /// Unit of `a` and `b`.
    pub unit: Unit,
    /// Statistic that represents the rounds of a process.
    pub by: Statistic,
    /// Median over the processes of side A.
    pub a: f64,
    /// Median over the processes of side B.
    pub b: f64,
    /// Number of processes of side A by which the row is. Processes that lack the figure, have too
    /// few rounds for the statistic, or timed the operations in another way, do not count. If too
    /// few timed them in one way, as `why` says, those of both ways count.
    pub a_processes_count: usize,
    /// Number of processes of side B by which the row is.
    pub b_processes_count: usize,
    /// Ratio of B to A (Hodges-Lehmann estimate), above 1 if B needs more time or memory. `None`
    /// unless both are above 0.
    pub ratio: Option<f64>,
    /// Lower bound of the ratio's 95 % interval; `None` without a ratio or with too few processes.
    pub low: Option<f64>,
    /// Upper bound of the ratio's 95 % interval; `None` without a ratio or with too few processes.
    pub high: Option<f64>,
    /// p-value of the Mann-Whitney test of this figure alone.
    pub p: f64,
    /// p-value of the difference in its direction, corrected for the number of compared figures. It
    /// is the probability that chance alone changes any of them as much, by the method of Westfall
    /// and Young.
    pub p_corrected: f64,
    /// Cliff's delta of B against A. It is 1 if each value of B is above each of A, and -1 if each
    /// is below.
    pub delta: f64,
    /// Smallest relative difference that gives a verdict: the threshold or, if greater, the
    /// resolution.
    pub least: f64,
    /// Smallest relative increase of the figure that a comparison of this size and noise usually
    /// detects. It is by the more sensitive of median and best tenth. `None` if there is none, or
    /// without an interval.
    pub found: Option<f64>,
    /// Estimated number of further processes per side that would give a verdict. `None` with a
    /// verdict or without an estimate. Estimates above [`FURTHER_PROCESSES_MAX`] are not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub further_processes: Option<u32>,
    /// Verdict on the figure.
    pub verdict: Verdict,
    /// Reason why no verdict is possible; empty if there is a verdict.
    pub why: String,
}

/// Comparison of two sets of runs, figure by figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of the JSON format.
    pub schema: u32,
    /// Baseline side, A.
    pub a: Side,
    /// Side B, which may be better or worse than A.
    pub b: Side,
    /// Smallest relative difference that counts as a change: 0.02 is 2 %.
    pub threshold: f64,
    /// Resolution (smallest detectable relative difference) of figures on one CPU, by the more
    /// precise statistic. It is the difference measured between two equal contenders in the same
    /// processes.
    pub visible_one: Option<f64>,
    /// Resolution of figures on several CPUs, by the more precise statistic.
    pub visible_several: Option<f64>,
    /// Resolution of figures on one CPU, by the less precise statistic.
    pub visible_one_most: Option<f64>,
    /// Resolution of figures on several CPUs, by the less precise statistic.
    pub visible_several_most: Option<f64>,
    /// Median of [`Row::found`] over the figures on one CPU.
    pub found_one: Option<f64>,
    /// Median of [`Row::found`] over the figures on several CPUs.
    pub found_several: Option<f64>,
    /// Figures that both sides have, in the order of side A.
    pub rows: Vec<Row>,
    /// Figures that only side A has.
    pub only_a: Vec<String>,
    /// Figures that only side B has.
    pub only_b: Vec<String>,
    /// Reasons not to trust the comparison as a whole, one sentence each.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Returns the number of figures with the given verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Returns `true` if at least one figure became worse.
    pub fn is_worse(&self) -> bool {
        self.count(Verdict::Worse) > 0
    }
}

/// Compares two named sets of runs. The result is deterministic.
///
/// A figure is *worse* if all of these hold, and *better* if they hold in the other direction:
///
/// - each side has it in at least five processes that timed its operations alike, that is, singly
///   or in batches;
/// - the estimated ratio differs from 1 by more than the threshold, and by more than two equal
///   contenders differ in the same processes;
/// - the Mann-Whitney test finds a difference at the 5 % level;
/// - of all permutations of the processes over the sides, less than one in a hundred makes *any*
///   figure as much worse.
///
/// It is the *same* if the ratio's interval lies within the threshold or, with a threshold of 0,
/// within the resolution.
///
/// # Cost
/// 0.1 s for 200 figures of 8 processes per side. Above 13,000 permutations, 5,000 random ones.
pub fn compare(a: (&str, &[Document]), b: (&str, &[Document]), rules: Rules) -> Comparison {
    let (a_measured, b_measured) = (without_smoke_runs(a.1), without_smoke_runs(b.1));
    let smoke_count = a.1.len() + b.1.len() - a_measured.len() - b_measured.len();
    let (a, b) = ((a.0, &*a_measured), (b.0, &*b_measured));
    let table = Table::new(a.1, b.1);
    let visible = table.resolutions();
    // One row per statistic of the figure, and one for its p99 if operations were timed singly.
    let mut figures: Vec<Vec<Row>> = Vec::new();
    let mut tests: Vec<family::TestValues> = Vec::new();
    let mut are_several: Vec<bool> = Vec::new();
    let [mut only_a, mut only_b] = [Vec::new(), Vec::new()];
    for (key, cell) in table.cells(rules.all) {
        match (cell.count(0, table.a_count), cell.count(table.a_count, table.count)) {
            (_, 0) => only_a.push(key.label()),
            (0, _) => only_b.push(key.label()),
            _ => {
                let has_values =
                    |by: &Statistic| *by != Statistic::P99 || cell.has_tail(table.a_count);
                let by: Vec<Statistic> = Statistic::ALL.into_iter().filter(has_values).collect();
                let rows = by.into_iter().map(|by| {
                    let visible = visible[usize::from(cell.uses_several_cpus)];
                    // The nulls are timed in batches and have no p99: its resolution is at least as
                    // coarse.
                    let seen = match by {
                        Statistic::P99 => visible.into_iter().flatten().fold(0.0, f64::max),
                        _ => visible[by as usize].unwrap_or(0.0),
                    };
                    row(key, cell, by, table.a_count, rules.threshold.max(seen))
                });
                let rows: Vec<Row> = rows.collect();
                // A row without a possible verdict must not raise the p-values of the others.
                tests.extend(rows.iter().map(|row| match row.why.as_str() {
                    "" => cell.logs(row.by),
                    _ => vec![f64::NAN; table.count],
                }));
                figures.push(rows);
                are_several.push(cell.uses_several_cpus);
            }
        }
    }
    let p = family::corrected_p_values(&tests, table.a_count);
    for (row, p) in figures.iter_mut().flatten().zip(p) {
        if row.why.is_empty() {
            row.p_corrected = if row.ratio.is_some_and(|it| it < 1.0) { p.below } else { p.above };
            row.verdict = verdict(row, rules.threshold);
        }
        if row.verdict == Verdict::TooNoisy {
            row.further_processes = further_processes(row, rules.threshold);
        }
    }
    set_detectable_increases(&mut figures, &tests, table.a_count);
    let found = |several: bool| {
        let of = figures.iter().zip(&are_several).filter(|it| *it.1 == several);
        let mut all: Vec<f64> = of
            .filter_map(|(rows, _)| rows.iter().filter_map(|row| row.found).reduce(f64::min))
            .collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let (found_one, found_several) = (found(false), found(true));
    let shown = |rows: Vec<Row>| {
        let mut rows = rows.into_iter();
        let figure =
            rows.next().zip(rows.next()).map(|(median, tenth)| choose_row([median, tenth]));
        figure.into_iter().chain(rows)
    };
    let rows = figures.into_iter().flat_map(shown).collect();
    let by = |pick: fn(f64, f64) -> f64| {
        visible.map(|ways| {
            Statistic::FIGURE.into_iter().filter_map(|by| ways[by as usize]).reduce(pick)
        })
    };
    let [visible_one, visible_several] = by(f64::min);
    let [visible_one_most, visible_several_most] = by(f64::max);
    Comparison {
        schema: COMPARISON_SCHEMA,
        a: describe_side(a),
        b: describe_side(b),
        threshold: rules.threshold,
        visible_one,
        visible_several,
        visible_one_most,
        visible_several_most,
        found_one,
        found_several,
        rows,
        only_a,
        only_b,
        notes: notes(a, b, smoke_count),
    }
}

/// Sets [`Row::found`] of all rows. It is the smallest increase that would have the verdict
/// `worse`, plus half the interval's width.
fn set_detectable_increases(
    figures: &mut [Vec<Row>],
    tests: &[family::TestValues],
    a_count: usize,
) {
    let alike = |(row, values): (&Row, &family::TestValues)| {
        let shift = row.ratio.map_or(0.0, f64::ln);
        let (a, b) = values.split_at(a_count);
        a.iter().copied().chain(b.iter().map(|it| it - shift)).collect()
    };
    let rows = figures.iter().flatten();
    let alike: Vec<family::TestValues> = rows.zip(tests).map(alike).collect();
    let shifts = family::least_shifts(&alike, a_count, P_CORRECTED_MAX);
    for (row, shift) in figures.iter_mut().flatten().zip(shifts) {
        if let (Some(ratio), Some(low), Some(high), Some(shift)) =
            (row.ratio, row.low, row.high, shift)
        {
            // The interval's lower bound exceeds 1 where the rank test finds a difference.
            let needed = shift.max((ratio / low).ln()).max(row.least.ln_1p());
            row.found = Some((needed + (high / low).ln() / 2.0).exp_m1());
        }
    }
    for rows in figures {
        let (of_figure, _) = rows.split_at_mut(Statistic::FIGURE.len());
        let least = of_figure.iter().filter_map(|row| row.found).reduce(f64::min);
        of_figure.iter_mut().for_each(|row| row.found = least);
    }
}

/// Returns the runs of a side without smoke runs. Returns all runs if there are only smoke runs.
fn without_smoke_runs(side: &[Document]) -> Vec<&Document> {
    let is_measured = |document: &&Document| document.run.profile != "smoke";
    match side.iter().any(|it| is_measured(&it)) {
        true => side.iter().filter(is_measured).collect(),
        false => side.iter().collect(),
    }
}

/// Chooses the row that is shown for a figure: that of its median, or that of its best tenth. It is
/// the row that differs, or else the row with the narrower interval. A figure that is better by one
/// statistic and worse by the other has the verdict "too noisy", and it is the same only if it is
/// by both: the best tenth alone does not show a median that may have moved.
fn choose_row([median, tenth]: [Row; 2]) -> Row {
    let differs = |row: &Row| matches!(row.verdict, Verdict::Better | Verdict::Worse);
    let is_bounded = |row: &Row| width(row) < f64::INFINITY;
    match (differs(&median), differs(&tenth)) {
        (true, true) if median.verdict != tenth.verdict => {
            Row { verdict: Verdict::TooNoisy, ..median }
        }
        (true, false) => median,
        (false, true) => tenth,
        // The row that prevents the verdict `same` is shown.
        (false, false) if !is_bounded(&tenth) || median.verdict == Verdict::TooNoisy => median,
        (false, false) if !is_bounded(&median) || tenth.verdict == Verdict::TooNoisy => tenth,
        _ if width(&tenth) < width(&median) => tenth,
        _ => median,
    }
}

/// Returns the width of the interval of a row's ratio, as a logarithm. It is infinite without an
/// interval or a verdict.
fn width(row: &Row) -> f64 {
    match (row.low, row.high) {
        (Some(low), Some(high)) if row.why.is_empty() => (high / low).ln(),
        _ => f64::INFINITY,
    }
}

/// Returns the description of a side from its name and its runs.
fn describe_side((name, documents): (&str, &[&Document])) -> Side {
    Side {
        name: name.to_string(),
        runs: documents.iter().map(|document| document.run.id.clone()).collect(),
        builds: documents.iter().map(|document| format::build(&document.run)).collect(),
        hosts: documents.iter().map(|document| document.host.name.clone()).collect(),
    }
}

/// Values of a figure in all processes of both sides.
struct FigureValues {
    unit: Unit,
    kind: ContenderKind,
    /// `true` if the participants use several CPUs.
    uses_several_cpus: bool,
    /// `true` if one of the runs was a smoke run.
    is_smoke: bool,
    /// Kind of timing by process; `None` for a process without the figure.
    timing: Vec<Option<TimingKind>>,
    /// `true` if too few processes timed the operations in the same way.
    has_mixed_timing: bool,
    /// Values of all processes by [`Statistic`], side A's first; NaN for a process without the
    /// figure.
    values: [Vec<f64>; 3],
}

impl FigureValues {
    /// Keeps only the values of processes that timed the operations in one way, if enough did so.
    /// Otherwise sets `has_mixed_timing`. Only operations that are timed alone contain a reading of
    /// the clock. Of two ways in which enough did so, it keeps the one that leaves more processes
    /// on the smaller side.
    fn keep_one_timing(&mut self, a_count: usize) {
        let (a, b) = self.timing.split_at(a_count);
        let count =
            |side: &[Option<TimingKind>], kind| side.iter().filter(|it| **it == Some(kind)).count();
        let fewer = |kind| count(a, kind).min(count(b, kind));
        let kinds = [TimingKind::Single, TimingKind::Batch];
        if !kinds.iter().all(|kind| self.timing.contains(&Some(*kind))) {
            return;
        }
        let kept = if fewer(kinds[0]) > fewer(kinds[1]) { kinds[0] } else { kinds[1] };
        if fewer(kept) < PROCESSES_MIN {
            self.has_mixed_timing = true;
            return;
        }
        for (place, timing) in self.timing.iter().enumerate() {
            if *timing != Some(kept) {
                self.values.iter_mut().for_each(|values| values[place] = f64::NAN);
            }
        }
    }

    /// Returns the number of processes with indices in `from..to` that have the figure.
    fn count(&self, from: usize, to: usize) -> usize {
        finite(&self.values[0][from..to]).len()
    }

    /// Returns `true` if both sides have the 99 % quantile of the operations' times.
    fn has_tail(&self, a_count: usize) -> bool {
        let (a, b) = self.values[Statistic::P99 as usize].split_at(a_count);
        !finite(a).is_empty() && !finite(b).is_empty()
    }

    /// Returns the logarithms of the values, by which ratios are compared.
    fn logs(&self, by: Statistic) -> Vec<f64> {
        self.values[by as usize].iter().map(|it| it.ln()).collect()
    }
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|it| it.is_finite()).collect()
}

/// All figures of both sides, in order of first appearance.
struct Table {
    /// Number of processes of side A.
    a_count: usize,
    /// Number of processes of both sides.
    count: usize,
    /// Keys of all figures, in order of first appearance.
    keys: Vec<FigureKey>,
    /// Values of each figure.
    cells: BTreeMap<FigureKey, FigureValues>,
}

impl Table {
    fn new(a: &[&Document], b: &[&Document]) -> Table {
        let count = a.len() + b.len();
        let mut table = Table { a_count: a.len(), count, keys: Vec::new(), cells: BTreeMap::new() };
        for (place, document) in a.iter().chain(b).enumerate() {
            for record in &document.records {
                let key = FigureKey::from_record(record);
                if !table.cells.contains_key(&key) {
                    table.keys.push(key.clone());
                }
                let cell = table.cells.entry(key).or_insert_with(|| FigureValues {
                    unit: record.unit,
                    kind: record.kind,
                    uses_several_cpus: record.participants.has_several_cpus(),
                    is_smoke: false,
                    timing: vec![None; count],
                    has_mixed_timing: false,
                    values: Statistic::ALL.map(|_| vec![f64::NAN; count]),
                });
                cell.is_smoke |= is_smoke(record);
                cell.timing[place] = Some(record.summary.timing_kind());
                for by in Statistic::ALL {
                    cell.values[by as usize][place] = by.value(record);
                }
            }
        }
        table.cells.values_mut().for_each(|cell| cell.keep_one_timing(a.len()));
        table
    }

    /// Iterates over the figures that [`compared_figures`] selects.
    fn cells(&self, all: bool) -> impl Iterator<Item = (&FigureKey, &FigureValues)> {
        let keys = compared_figures(&self.keys, |key| self.cells[key].kind, all);
        keys.into_iter().map(|key| (key, &self.cells[key]))
    }

    /// Returns the resolutions of figures on one CPU and on several, by [`Statistic`]. A resolution
    /// is the largest difference between equal contenders, within the processes and between the
    /// sides.
    fn resolutions(&self) -> [[Option<f64>; 3]; 2] {
        let mut visible = [[None; 3]; 2];
        let is_null = |cell: &FigureValues| cell.kind == ContenderKind::Null;
        let nulls = || self.cells.iter().filter(|(_, cell)| is_null(cell));
        let figures: BTreeSet<(&str, &str)> =
            nulls().map(|(key, _)| (key.id.as_str(), key.setting.as_str())).collect();
        for (figure, by) in figures.into_iter().flat_map(|it| Statistic::ALL.map(|by| (it, by))) {
            let of_it = |key: &FigureKey| (key.id.as_str(), key.setting.as_str()) == figure;
            let twins: Vec<&FigureValues> =
                nulls().filter(|(key, _)| of_it(key)).map(|(_, cell)| cell).collect();
            let logs: Vec<Vec<f64>> = twins.iter().map(|cell| cell.logs(by)).collect();
            // Within a process: the ratio between the two nulls.
            let within = logs.windows(2).filter_map(|two| {
                let apart: Vec<f64> =
                    two[0].iter().zip(&two[1]).map(|(one, other)| other - one).collect();
                ranks::median_interval(&finite(&apart))
            });
            // Between the sides: the mean of both nulls.
            let means: Vec<f64> = (0..self.count)
                .map(|place| logs.iter().map(|it| it[place]).sum::<f64>() / logs.len() as f64)
                .collect();
            let (a, b) = means.split_at(self.a_count);
            let between = ranks::median_shift(&finite(a), &finite(b));
            let several = twins.iter().any(|cell| cell.uses_several_cpus);
            let slot: &mut Option<f64> = &mut visible[usize::from(several)][by as usize];
            for (_, low, high) in within.chain(between) {
                let width = low.abs().max(high.abs()).exp_m1();
                *slot = Some(slot.unwrap_or(0.0).max(width));
            }
        }
        visible
    }
}

/// Creates the row of a figure, without the fields that depend on all figures.
fn row(key: &FigureKey, cell: &FigureValues, by: Statistic, a_count: usize, least: f64) -> Row {
    let (a, b) = cell.values[by as usize].split_at(a_count);
    let (a, b) = (finite(a), finite(b));
    let middle = |values: &[f64]| ranks::median_interval(values).map_or(0.0, |it| it.0);
    let above_0 = a.iter().chain(&b).all(|it| *it > 0.0);
    let ln = |values: &[f64]| -> Vec<f64> { values.iter().map(|it| it.ln()).collect() };
    let shift = if above_0 { ranks::median_shift(&ln(&a), &ln(&b)) } else { None };
    let few = a.len().min(b.len()) < PROCESSES_MIN;
    let interval = shift.filter(|_| !few);
    let equal = a.iter().chain(&b).all(|it| Some(it) == a.first());
    let why = if cell.is_smoke {
        "run with smoke values, not measured".to_string()
    } else if cell.has_mixed_timing {
        "its operations were timed one by one in some processes and in batches in others"
            .to_string()
    } else if few {
        format!(
            "{} against {}, and at least {PROCESSES_MIN} a side are needed",
            format::counted(a.len(), "process"),
            format::counted(b.len(), "process")
        )
    } else if !above_0 && !equal {
        "a figure that is not above 0 has no ratio".to_string()
    } else {
        String::new()
    };
    Row {
        id: key.id.clone(),
        contender: key.contender.clone(),
        setting: key.setting.clone(),
        unit: cell.unit,
        by,
        a: middle(&a),
        b: middle(&b),
        a_processes_count: a.len(),
        b_processes_count: b.len(),
        ratio: shift.map(|it| it.0.exp()),
        low: interval.map(|it| it.1.exp()),
        high: interval.map(|it| it.2.exp()),
        p: ranks::mann_whitney(&a, &b),
        p_corrected: 1.0,
        delta: ranks::cliffs_delta(&a, &b),
        least,
        found: None,
        further_processes: (few && !cell.is_smoke)
            .then(|| (PROCESSES_MIN - a.len().min(b.len())) as u32),
        verdict: if why.is_empty() { Verdict::Same } else { Verdict::CannotSay },
        why,
    }
}

/// Estimates the number of further processes per side that would give a noisy figure a verdict.
/// Returns `None` if it is too large. The estimate assumes that the ratio and the spread stay as
/// they are: intervals, and with them the resolution, narrow with the square root of the number of
/// processes.
fn further_processes(row: &Row, threshold: f64) -> Option<u32> {
    let (Some(ratio), Some(low), Some(high)) = (row.ratio, row.low, row.high) else { return None };
    let count = row.a_processes_count.min(row.b_processes_count);
    let (shift, half_width) = (ratio.ln().abs(), (high / low).ln() / 2.0);
    (1..=FURTHER_PROCESSES_MAX).find(|further| {
        let narrowed = (count as f64 / (count as f64 + f64::from(*further))).sqrt();
        let half_width = half_width * narrowed;
        let least = threshold.max(row.least * narrowed).ln_1p();
        let same = if threshold > 0.0 { threshold.ln_1p() } else { least };
        let differs = shift > least && shift >= SIGNIFICANT_HALF_WIDTHS * half_width;
        differs || shift + half_width <= same
    })
}

/// Returns the verdict on a row, from its ratio, interval and p-values.
fn verdict(row: &Row, threshold: f64) -> Verdict {
    let (Some(ratio), Some(low), Some(high)) = (row.ratio, row.low, row.high) else {
        // Only equal values reach this point if they are not above 0.
        return Verdict::Same;
    };
    let least = 1.0 + row.least;
    let same = 1.0 + if threshold > 0.0 { threshold } else { row.least };
    let differs = row.p <= P_UNCORRECTED_MAX && row.p_corrected <= P_CORRECTED_MAX;
    match () {
        () if differs && ratio > least => Verdict::Worse,
        () if differs && ratio < 1.0 / least => Verdict::Better,
        () if low >= 1.0 / same && high <= same => Verdict::Same,
        () => Verdict::TooNoisy,
    }
}

/// Returns reasons not to trust the comparison as a whole, one sentence each.
fn notes(a: (&str, &[&Document]), b: (&str, &[&Document]), smoke_count: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if smoke_count > 0 {
        notes.push(format!(
            "{} left out: smoke runs are not measurements.",
            counted(smoke_count, "smoke run", "is", "are")
        ));
    }
    let all = || a.1.iter().chain(b.1);
    let machines: BTreeSet<(&str, &str)> =
        all().map(|it| (it.host.name.as_str(), it.host.cpu_model.as_str())).collect();
    if machines.len() > 1 {
        let names: Vec<String> =
            machines.iter().map(|(name, model)| format!("{name} ({model})")).collect();
        notes.push(format!(
            "The runs are from different machines, which may cause the differences: {}.",
            names.join(", ")
        ));
    }
    let shared =
        a.1.iter().filter(|one| b.1.iter().any(|other| other.run.id == one.run.id)).count();
    if shared > 0 {
        let runs_are = counted(shared, "run", "is", "are");
        notes.push(format!("{runs_are} on both sides of the comparison."));
    }
    let unended = all().filter(|it| !it.run.complete).count();
    if unended > 0 {
        notes.push(format!(
            "{}.",
            counted(unended, "run", "was not completed", "were not completed")
        ));
    }
    let begun = |side: &[&Document]| -> Option<(i64, i64)> {
        let begun = side.iter().map(|it| it.run.started_unix_ns);
        Some((begun.clone().min()?, begun.max()?))
    };
    if let (Some(a), Some(b)) = (begun(a.1), begun(b.1))
        && (a.1 < b.0 || b.1 < a.0)
        && shared == 0
    {
        notes.push(
            "One side was measured after the other: changes of the machine in between are part of the \
             differences. `handover compare --ab OLD NEW` measures them in turn."
                .to_string(),
        );
    }
    notes
}

/// Formats a count with its noun and verb: `1 run is`, `2 runs are`.
fn counted(count: usize, noun: &str, singular_verb: &str, plural_verb: &str) -> String {
    let verb = if count == 1 { singular_verb } else { plural_verb };
    format!("{} {verb}", format::counted(count, noun))
}

/// Returns the sentence about the increases that comparisons of this size and noise detect. `None`
/// if no figure has enough processes.
pub(crate) fn detectable_line(comparison: &Comparison) -> Option<String> {
    let part =
        |found: Option<f64>, place: &str| Some(format!("{} ({place})", format::share(found?)));
    let one = part(comparison.found_one, "one CPU");
    let several = part(comparison.found_several, "across CPUs");
    let parts: Vec<String> = one.into_iter().chain(several).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "Most such comparisons find a figure that takes {} longer (the median over the figures; the column `finds` has \
             the value of each).",
            parts.join(", or ")
        )
    })
}

/// Returns the sentence about the smallest difference that these runs can detect.
pub(crate) fn resolution_line(comparison: &Comparison) -> String {
    let shown = |width: f64| format::share(width.max(0.001));
    let part = |least: Option<f64>, most: Option<f64>, placement: &str| {
        let (least, most) = (shown(least?), shown(most?));
        Some(match least == most {
            true => format!("{least} ({placement})"),
            false => format!("{least} to {most} ({placement})"),
        })
    };
    let one = part(comparison.visible_one, comparison.visible_one_most, "one CPU");
    let several = part(comparison.visible_several, comparison.visible_several_most, "across CPUs");
    let parts: Vec<String> = one.into_iter().chain(several).collect();
    match parts.is_empty() {
        true => "The smallest visible difference was not measured in these runs.".to_string(),
        false => format!(
            "These runs cannot see differences under {}: ours against ours, in the same processes, by the \
             statistic of the row (best tenths or medians).",
            parts.join(", ")
        ),
    }
}
