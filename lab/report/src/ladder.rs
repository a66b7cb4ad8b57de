//! Ladder chart: every figure as a rung (a row) on a logarithmic time axis.

use crate::format;
use crate::model::{self, Model, NamedRun};
use crate::svg::{Axis, AxisName, Chart, Mark, Point, Quantity, Series, SeriesRole};
use handover_record::{ContenderKind, Document, Record, Unit};

/// Draws the ladder chart of a document, `width_px` wide. It has one row for each figure that is a
/// time. A row has the figure's floor, its median with the interval, its 99 % quantile, and the
/// best peer.
pub fn ladder_chart(document: &Document, width_px: f64) -> Chart {
    ladder_chart_with_other_runs(document, &[], width_px)
}

/// Palette indices of the colours in which other runs are drawn. The colours of our figures, the
/// best peer and the floor are left out.
const OTHER_RUNS_COLOURS: [u8; 5] = [2, 3, 4, 5, 6];

/// Draws the ladder chart of a document, with the medians of other runs in its rows.
pub(crate) fn ladder_chart_with_other_runs(
    document: &Document,
    others: &[NamedRun],
    width_px: f64,
) -> Chart {
    let mut beside: Vec<Vec<Point>> = vec![Vec::new(); others.len()];
    let model = Model::new(document, false);
    let mut names = Vec::new();
    let mut rungs = Rungs::default();
    for group in &model.groups {
        let mut opens_group = true;
        for figure in &group.figures {
            for record in figure.rows.iter().filter(|record| record.unit == Unit::Ns) {
                rungs.add(names.len() as f64, record);
                for (other, points) in others.iter().zip(&mut beside) {
                    if let Some(same) = model::matching_record(&other.document, record) {
                        let median = same.summary.median;
                        let figure = format::figure(same.unit, median);
                        let text = format!(
                            "{id}: {figure} in run {run}",
                            id = record.id,
                            run = other.name
                        );
                        points.push(Point::new(median, names.len() as f64).with_tooltip(text));
                    }
                }
                let label = match figure.rows.len() {
                    1 => record.id.clone(),
                    _ => format!("{} [{}]", record.id, record.contender),
                };
                names.push(AxisName { label, note: note(record), opens_group });
                opens_group = false;
            }
        }
    }
    let count = names.len();
    let time = Axis::log("time of one operation", Quantity::Nanos);
    let Rungs { stretch, tail, p99, floor, peer, ours, facts } = rungs;
    let chart = Chart::new("The ladder: cost of each hand-over", time, Axis::with_names(names))
        .with_description(format!(
            "{count} figures on a logarithmic axis of time; each with its median and interval, \
             its floor, its 99 % quantile and its best peer. The table has the same figures as text."
        ))
        .with_size_px(width_px, 0.0)
        .with_series(Series::new("", SeriesRole::Faint, Mark::Span, stretch))
        .with_series(Series::new("", SeriesRole::Faint, Mark::Span, tail))
        .with_series(Series::new("floor", SeriesRole::Floor, Mark::Tick, floor))
        .with_series(Series::new("99 %", SeriesRole::Faint, Mark::Ring, p99))
        .with_series(Series::new("best peer", SeriesRole::Peer, Mark::Diamond, peer))
        .with_series(Series::new("median with interval", SeriesRole::Ours, Mark::Dot, ours))
        .with_series(Series::new("property of the machine", SeriesRole::Floor, Mark::Dot, facts));
    let others = others.iter().zip(beside).zip(0_u8..);
    others.fold(chart, |chart, ((other, points), nth)| {
        chart.with_series(Series::new(
            &other.name,
            SeriesRole::Nth(OTHER_RUNS_COLOURS[usize::from(nth) % OTHER_RUNS_COLOURS.len()]),
            Mark::Ring,
            points,
        ))
    })
}

/// Points of each series of the ladder chart.
#[derive(Default)]
struct Rungs {
    /// Lines from the floor to the median of each figure.
    stretch: Vec<Point>,
    /// Lines from the median to the 99 % quantile of each figure.
    tail: Vec<Point>,
    p99: Vec<Point>,
    floor: Vec<Point>,
    peer: Vec<Point>,
    ours: Vec<Point>,
    /// Medians of figures that only measure the machine, because no contender is ours.
    facts: Vec<Point>,
}

impl Rungs {
    /// Adds the points of a figure in row `row` to the series.
    fn add(&mut self, row: f64, record: &Record) {
        let summary = &record.summary;
        let say = |what: &str, value: f64| {
            format!(
                "{id}: {what} {figure}",
                id = record.id,
                figure = format::figure(record.unit, value)
            )
        };
        let nearest = record.modes.first().map_or(summary.median, |mode| mode.median);
        let farthest = record.modes.last().map_or(summary.median, |mode| mode.median);
        if let Some(floor) = &record.floor {
            let text =
                format!("{} ({})", say("floor", floor.other), format::floor_name(record, floor));
            self.floor.push(Point::new(floor.other, row).with_tooltip(text));
            self.stretch.push(Point::new(floor.other, row).with_span(floor.other, nearest));
        }
        if let Some(peer) = record.best_peer() {
            let text = say(&format!("best peer {name}", name = peer.contender), peer.other);
            self.peer.push(Point::new(peer.other, row).with_tooltip(text));
        }
        if let Some(p99) = summary.quantiles().map(|it| it.p99) {
            self.p99.push(Point::new(p99, row).with_tooltip(say("99 % quantile", p99)));
            self.tail.push(Point::new(p99, row).with_span(farthest, p99));
        }
        let medians = match record.kind {
            ContenderKind::Ours => &mut self.ours,
            _ => &mut self.facts,
        };
        if record.modes.len() > 1 {
            for mode in &record.modes {
                let text = say(
                    &format!(
                        "mode with {percent:.0} % of the values:",
                        percent = mode.share * 100.0
                    ),
                    mode.median,
                );
                medians.push(Point::new(mode.median, row).with_tooltip(text));
            }
        } else {
            let figure = say(format::statistic(record), summary.median);
            let text = format!("{figure} {}", format::interval(record));
            let (low, high) = summary.interval_bounds().unwrap_or((summary.median, summary.median));
            let point = Point::new(summary.median, row).with_span(low, high);
            medians.push(point.with_tooltip(text));
        }
    }
}

/// Returns the text at the end of a row: the figure, or its two modes.
fn note(record: &Record) -> String {
    match record.modes.as_slice() {
        [fast, slow] => {
            let shown = |it: &handover_record::FigureMode| format::figure(record.unit, it.median);
            format!("{fast} + {slow}", fast = shown(fast), slow = shown(slow))
        }
        _ => format::figure(record.unit, record.summary.median),
    }
}
