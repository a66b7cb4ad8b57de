//! Sweep of a benchmark over one of its arguments: curves with intervals per contender, and a
//! fitted law.

use crate::format;
use crate::model::find_or_push;
use crate::svg::{Axis, Chart, Mark, Point, Quantity, Series, SeriesRole};
use crate::text::{Line, Style, Tone, wrap};
use crate::usl::Usl;
use handover_base::units;
use handover_record::{ContenderKind, Document, Record, Unit, Warning, WarningCode};
use std::collections::BTreeSet;

/// Ratio of the largest to the smallest value above which an axis is logarithmic.
const LOG_FROM: f64 = 30.0;
/// Number of points of the drawn curve of a fitted law.
const CURVE_POINTS: u32 = 120;
/// Maximum position of a predicted peak that is drawn, as a multiple of the last measured value.
const PEAK_SHOWN: f64 = 2.0;
/// Factor by which a curve extends beyond a peak that is drawn.
const PEAK_MARGIN: f64 = 1.1;
/// Number of colours of contenders: the palette without the grey of floors.
const CURVE_COLOURS: usize = 7;
const WIDTH_PX: f64 = 960.0;
const HEIGHT_PX: f64 = 520.0;

/// Measurements of a figure as a function of one argument.
#[derive(Debug)]
pub struct Sweep<'a> {
    /// Id of the figure.
    pub id: &'a str,
    /// Name of the argument that varies.
    pub argument: &'a str,
    curves: Vec<Curve<'a>>,
    unit: Unit,
}

/// Measurements of one contender in a sweep.
#[derive(Debug)]
struct Curve<'a> {
    contender: &'a str,
    role: SeriesRole,
    /// Argument values with their records, in ascending order.
    points: Vec<(f64, &'a Record)>,
    /// Scaling law fitted to the rates, or the reason why there is none.
    law: Result<Usl, NoLaw>,
}

/// Names of the arguments that count workers which share a load. The scaling law applies only to
/// these.
const SHARERS: [&str; 10] = [
    "clients_count",
    "concurrency_count",
    "connections_count",
    "fibers_count",
    "parties_count",
    "processes_count",
    "producers_count",
    "providers_count",
    "ranks_count",
    "threads_count",
];

/// Names of the arguments that are a message size. Multiplied with the rate, they give the
/// bandwidth in one direction.
const MESSAGE_SIZES: [&str; 2] = ["message_bytes", "size_bytes"];

/// Maximum relative error (root mean square) of a law that is shown.
const ERROR_MAX: f64 = 0.2;

/// Reason why no scaling law was fitted to a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NoLaw {
    /// The argument does not count workers that share the load.
    NotSharers,
    /// There are fewer than four argument values, or some are below 1.
    TooFew,
    /// The best fit has a relative error above the limit.
    PoorFit(f64),
}

/// Fits the Universal Scalability Law to a curve. The error is the reason why the law does not
/// apply.
fn fit(argument: &str, points: &[(f64, f64)]) -> Result<Usl, NoLaw> {
    if !SHARERS.contains(&argument) {
        return Err(NoLaw::NotSharers);
    }
    let law = Usl::fit(points).ok_or(NoLaw::TooFew)?;
    let error = law.rms_error(points);
    if error <= ERROR_MAX { Ok(law) } else { Err(NoLaw::PoorFit(error)) }
}

/// Returns the sweeps of a document. A figure has one if it was measured with several values of
/// exactly one argument.
pub fn find_sweeps(document: &Document) -> Vec<Sweep<'_>> {
    let mut ids: Vec<&str> = Vec::new();
    for record in &document.records {
        if !ids.contains(&record.id.as_str()) {
            ids.push(&record.id);
        }
    }
    ids.into_iter().filter_map(|id| sweep(document, id)).collect()
}

/// Returns the sweep of the figure `id`; `None` unless exactly one argument varies.
fn sweep<'a>(document: &'a Document, id: &'a str) -> Option<Sweep<'a>> {
    let records: Vec<&Record> = document.records.iter().filter(|it| it.id == id).collect();
    let first = *records.first()?;
    let varies = |name: &&String| {
        let values: BTreeSet<_> = records.iter().map(|it| it.args.get(*name)).collect();
        values.len() > 1
    };
    let mut varying = first.args.keys().filter(varies);
    let argument = varying.next()?;
    if varying.next().is_some() {
        return None; // several arguments vary: a curve could not tell their effects apart
    }
    let only_floors = records.iter().all(|it| it.kind == ContenderKind::Floor);
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for record in records {
        let value = *record.args.get(argument)? as f64;
        let role = match record.kind {
            ContenderKind::Floor if !only_floors => SeriesRole::Floor,
            _ => SeriesRole::Nth(u8::try_from(curves.len() % CURVE_COLOURS).unwrap_or(0)),
        };
        let contender = record.contender.as_str();
        let curve = find_or_push(
            &mut curves,
            |it| it.contender == contender,
            || Curve { contender, role, points: Vec::new(), law: Err(NoLaw::TooFew) },
        );
        curve.points.push((value, record));
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve.law = fit(argument, &curve.rates());
    }
    Some(Sweep { id, argument, curves, unit: first.unit })
}

impl Curve<'_> {
    /// Returns pairs of an argument value and the operations per second measured with it.
    fn rates(&self) -> Vec<(f64, f64)> {
        self.points.iter().map(|(value, record)| (*value, record.rate_per_s)).collect()
    }
}

impl Sweep<'_> {
    /// Draws a chart of the figure, with its intervals, by argument value.
    pub fn figures_chart(&self) -> Chart {
        let values = self.curves.iter().flat_map(|it| &it.points).map(|it| it.1.summary.median);
        let mut chart = Chart::new(
            format!("{figure}, by {argument}", figure = self.id, argument = self.argument),
            self.axis(),
            axis("the median, with its 95 % interval", self.unit.into(), values),
        )
        .with_description(self.what())
        .with_size_px(WIDTH_PX, HEIGHT_PX)
        .with_heading();
        for curve in &self.curves {
            let point = |(value, record): &(f64, &Record)| {
                let it = &record.summary;
                let shown = format::figure(self.unit, it.median);
                Point::new(*value, it.median)
                    .with_span(it.low.unwrap_or(it.median), it.high.unwrap_or(it.median))
                    .with_tooltip(format!(
                        "{contender} at {value}: {shown}",
                        contender = curve.contender
                    ))
            };
            let points = curve.points.iter().map(point).collect();
            chart = chart.with_series(Series::new(curve.contender, curve.role, Mark::Line, points));
        }
        chart
    }

    /// Draws a chart of operations per second by argument value, with the fitted laws as dashed
    /// curves. A curve extends to its law's peak if that is not far beyond the last value.
    pub fn rates_chart(&self) -> Chart {
        let rates = self.curves.iter().flat_map(Curve::rates).map(|it| it.1);
        let mut chart = Chart::new(
            format!("{figure}: rate, by {argument}", figure = self.id, argument = self.argument),
            self.axis(),
            axis(self.rate_title(), Quantity::PerSecond, rates),
        )
        .with_description(self.what())
        .with_size_px(WIDTH_PX, HEIGHT_PX)
        .with_heading();
        for curve in &self.curves {
            if let Ok(law) = curve.law {
                chart = chart.with_series(Series::new(
                    "",
                    curve.role,
                    Mark::Dashed,
                    law_points(curve, law),
                ));
            }
        }
        for curve in &self.curves {
            let point = |(value, record): &(f64, &Record)| {
                let (rate, it) = (record.rate_per_s, &record.summary);
                let (contender, argument) = (curve.contender, self.argument);
                let title = format!(
                    "{contender} at {argument}={value}: {rate}",
                    rate = units::format_rate(rate)
                );
                // The figure's own interval, inverted.
                let (low, high) = it.interval_bounds().unwrap_or((it.median, it.median));
                let (low, high) = (rate * it.median / high, rate * it.median / low);
                Point::new(*value, rate).with_span(low, high).with_tooltip(title)
            };
            let points = curve.points.iter().map(point).collect();
            let name = match curve.law {
                Ok(law) => format!("{}: {}", curve.contender, coefficients(law)),
                Err(_) => curve.contender.to_string(),
            };
            chart = chart.with_series(Series::new(name, curve.role, Mark::Line, points));
        }
        chart
    }

    fn rate_title(&self) -> &'static str {
        match self.curves.iter().any(|it| it.law.is_ok()) {
            true => "rate; dashed: the fitted Universal Scalability Law",
            false => "rate",
        }
    }

    /// Returns the axis of the argument's values.
    fn axis(&self) -> Axis {
        let values = self.curves.iter().flat_map(|it| &it.points).map(|it| it.0);
        let quantity = match self.argument.ends_with("_bytes") {
            true => Quantity::Bytes,
            false => Quantity::Count,
        };
        axis(self.argument, quantity, values)
    }

    /// Returns the description of the timed operation.
    fn what(&self) -> String {
        let first = self.curves.first().and_then(|it| it.points.first());
        first.map(|it| it.1.what.clone()).unwrap_or_default()
    }

    /// Renders the measured values and the laws as lines for a terminal.
    pub fn render_text(&self, width: usize, style: Style) -> String {
        let is_size = MESSAGE_SIZES.contains(&self.argument);
        let bandwidth = if is_size { "bandwidth" } else { "" };
        let records = || self.curves.iter().flat_map(|it| &it.points).map(|it| it.1);
        let warning = if records().any(|it| !it.warnings.is_empty()) { "warning" } else { "" };
        let heads =
            ["contender", self.argument, "median", "", "p99", "rate", bandwidth, "CPUs", warning];
        let mut rows = vec![heads.map(str::to_string)];
        for curve in &self.curves {
            for (value, record) in &curve.points {
                let (median, interval) = match record.modes.len() {
                    0 | 1 => {
                        (format::figure(self.unit, record.summary.median), format::interval(record))
                    }
                    _ => (format::modes(record).concat().join(" "), String::new()),
                };
                rows.push([
                    curve.contender.to_string(),
                    value.to_string(),
                    median,
                    interval,
                    format::p99(record),
                    units::format_rate(record.rate_per_s),
                    match is_size {
                        true => units::format_bytes_rate(
                            record.bytes_per_s.unwrap_or(value * record.rate_per_s),
                        ),
                        false => String::new(),
                    },
                    cpus(record),
                    format::letters(record),
                ]);
            }
        }
        let mut widths = [0; 9];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let (figure, argument, operation) = (self.id, self.argument, self.what());
        let head = format!("{figure} by {argument}: {operation}");
        let mut lines = wrap(&head, Tone::Strong, 2, width);
        lines.push(Line::default());
        for (place, row) in rows.iter().enumerate() {
            let tone = if place == 0 { Tone::Faint } else { Tone::Plain };
            let mut text = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row[1..].iter().zip(&widths[1..]).filter(|(_, width)| **width > 0)
            {
                text.push_str(&format!("  {cell:>width$}"));
            }
            lines.push(Line::new(text.trim_end(), tone));
        }
        lines.push(Line::default());
        if SHARERS.contains(&self.argument) {
            for curve in &self.curves {
                let warned = curve.points.iter().filter(|it| !it.1.warnings.is_empty()).count();
                let text = match curve.law {
                    Ok(law) if warned > 0 => format!(
                        "{}; figures with warnings: {warned} of {}",
                        law_in_words(law, &curve.rates()),
                        curve.points.len()
                    ),
                    Ok(law) => law_in_words(law, &curve.rates()),
                    Err(NoLaw::PoorFit(error)) => format!("no law: {}", poor_fit_in_words(error)),
                    Err(_) => {
                        "no law: a fit needs four values of the argument, from 1 on".to_string()
                    }
                };
                lines.extend(wrap(&format!("{}: {text}", curve.contender), Tone::Plain, 2, width));
            }
        }
        if self.curves.iter().any(|it| it.law.is_ok()) {
            let law = format!(
                "The law, of N = {}: X(N) = γN / (1 + σ(N - 1) + κN(N - 1)), where γ is the rate at N = 1.",
                self.argument
            );
            lines.extend(wrap(&law, Tone::Faint, 2, width));
        }
        let mut codes: Vec<WarningCode> = Vec::new();
        for Warning { code, .. } in records().flat_map(|it| &it.warnings) {
            find_or_push(&mut codes, |it| it == code, || *code);
        }
        for code in codes {
            let legend = format!("{}  {}", code.table_letters(), format::warning_text(code));
            lines.extend(wrap(&legend, Tone::Faint, 4, width));
        }
        crate::table::render(lines, width, style)
    }

    /// Returns `true` if a scaling law may apply: if the argument counts workers that share a load.
    pub fn can_predict(argument: &str) -> bool {
        SHARERS.contains(&argument)
    }

    /// Renders the rates that laws predict for `workers_count` workers, a paragraph for each
    /// contender. Laws are fitted to the values up to `measured_max`.
    pub fn render_predictions(
        &self,
        workers_count: u64,
        measured_max: u64,
        width: usize,
        style: Style,
    ) -> String {
        let mut lines = Vec::new();
        for curve in &self.curves {
            let mut rates = curve.rates();
            rates.retain(|(value, _)| *value <= measured_max as f64);
            let text = prediction_in_words(self.argument, &rates, workers_count);
            lines.extend(wrap(&format!("{}: {text}", curve.contender), Tone::Plain, 2, width));
        }
        crate::table::render(lines, width, style)
    }
}

/// Describes a fit whose relative error exceeds [`ERROR_MAX`].
fn poor_fit_in_words(error: f64) -> String {
    let (error, limit) = (format::share(error), format::share(ERROR_MAX));
    format!("the best fit has an error of {error}, more than {limit}")
}

/// Describes the rate predicted for `workers_count` workers, or the reason why there is no
/// prediction.
fn prediction_in_words(argument: &str, rates: &[(f64, f64)], workers_count: u64) -> String {
    if let Err(NoLaw::PoorFit(error)) = fit(argument, rates) {
        return format!("no prediction: {}", poor_fit_in_words(error));
    }
    let Some(predicted) = Usl::predict(rates, workers_count as f64) else {
        return "no prediction: it needs rates with five values of the argument, from 1 on"
            .to_string();
    };
    let held_out = predicted.held_out;
    let (from, error) = (format_number(held_out.from), format::share(held_out.error));
    if held_out.error > ERROR_MAX {
        return format!(
            "no prediction: a law fitted to the values below {from} has an error of {error} from there on"
        );
    }
    format!(
        "{rate} expected at N = {workers_count}, within {low} to {high} in 95 % of measurements; a law fitted to the \
         values below {from} has an error of {error} from there on",
        rate = units::format_rate(predicted.throughput),
        low = units::format_rate(predicted.low),
        high = units::format_rate(predicted.high),
    )
}

/// Formats the number of CPUs used by the whole process; empty if unknown.
fn cpus(record: &Record) -> String {
    record.counters.get("cpus").map_or_else(|| format::cpus(record), |cpus| format!("{cpus:.2}"))
}

/// Returns a linear axis from zero, or a logarithmic one. It is logarithmic if the values span more
/// than a factor of [`LOG_FROM`].
fn axis(title: &str, quantity: Quantity, values: impl Iterator<Item = f64>) -> Axis {
    let (least, most) = values
        .filter(|value| value.is_finite())
        .fold((f64::MAX, 0.0f64), |(least, most), it| (least.min(it), most.max(it)));
    if least > 0.0 && most / least > LOG_FROM {
        Axis::log(title, quantity)
    } else {
        Axis::linear(title, quantity).with_included_value(0.0)
    }
}

/// Returns the points of a fitted law's curve. It ends at the last measured value, or a little
/// beyond a near peak.
fn law_points(curve: &Curve<'_>, law: Usl) -> Vec<Point> {
    let ends = curve.points.first().zip(curve.points.last());
    let Some((from, to)) = ends.map(|(first, last)| (first.0.max(1.0), last.0)) else {
        return Vec::new();
    };
    let to = match law.peak() {
        Some((n, _)) if n > to && n < PEAK_SHOWN * to => n * PEAK_MARGIN,
        _ => to,
    };
    let at = |step: u32| from * (to / from).powf(f64::from(step) / f64::from(CURVE_POINTS));
    (0..=CURVE_POINTS).map(at).map(|n| Point::new(n, law.throughput(n))).collect()
}

/// Formats the coefficients of a law, and its peak or limit, for a legend.
fn coefficients(law: Usl) -> String {
    let peak = match (law.peak(), law.throughput_limit()) {
        (Some((n, rate)), _) => {
            format!("peak {rate} at N = {n}", rate = units::format_rate(rate), n = format_number(n))
        }
        (None, Some(limit)) => format!("at most {rate}", rate = units::format_rate(limit)),
        (None, None) => "no peak".to_string(),
    };
    let (sigma, kappa) = (format_coefficient(law.sigma), format_coefficient(law.kappa));
    format!("σ {sigma}, κ {kappa}, {peak}")
}

/// Describes a law in a sentence: its coefficients, its error, and its peak or limit.
fn law_in_words(law: Usl, points: &[(f64, f64)]) -> String {
    let prediction = match (law.peak(), law.throughput_limit()) {
        (Some((n, rate)), _) => {
            let most = points.iter().map(|it| it.0).fold(0.0, f64::max);
            let seen = if n > most { ", beyond the measured values" } else { "" };
            format!(
                "the maximum is {} at N = {}{seen}, and the rate falls beyond",
                units::format_rate(rate),
                format_number(n)
            )
        }
        (None, Some(limit)) => {
            let limit = units::format_rate(limit);
            match law.sigma {
                ..0.995 => format!("the rate rises with N, but stays below {limit}"),
                _ => "the rate is the same for every N".to_string(),
            }
        }
        (None, None) => "the rate rises in proportion to N".to_string(),
    };
    format!(
        "γ {}, contention σ {}, coherency κ {} (error {}): {prediction}",
        units::format_rate(law.gamma),
        format_coefficient(law.sigma),
        format_coefficient(law.kappa),
        format::share(law.rms_error(points))
    )
}

fn format_number(n: f64) -> String {
    if n < 1e6 { format!("{n:.0}") } else { format!("{n:.1e}") }
}

fn format_coefficient(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        v if v < 0.001 => format!("{v:.1e}"),
        v => format!("{v:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_needs_an_argument_that_counts_workers_and_a_good_fit() {
        let law = Usl { gamma: 1000.0, sigma: 0.05, kappa: 0.001 };
        let on_it: Vec<_> = [1.0, 2.0, 4.0, 8.0].map(|n| (n, law.throughput(n))).into();
        assert!(fit("threads_count", &on_it).is_ok());
        assert_eq!(fit("size_bytes", &on_it), Err(NoLaw::NotSharers));
        assert_eq!(fit("threads_count", &on_it[..3]), Err(NoLaw::TooFew));
        let text = prediction_in_words("threads_count", &on_it, 64);
        assert_eq!(
            text,
            "no prediction: it needs rates with five values of the argument, from 1 on"
        );
        let more: Vec<_> = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| (n, law.throughput(n))).into();
        let text = prediction_in_words("threads_count", &more, 64);
        assert!(
            text.starts_with("7.82 k/s expected at N = 64, within 7.82 k/s to 7.82 k/s"),
            "{text}"
        );
        let stopped = [&more[..], &[(32.0, 100.0), (64.0, 100.0)]].concat();
        let text = prediction_in_words("threads_count", &stopped[..6], 64);
        assert!(text.starts_with("no prediction: "), "{text}");
        let off = [(1.0, 1000.0), (2.0, 100.0), (4.0, 3000.0), (8.0, 50.0), (16.0, 9000.0)];
        let refused = fit("threads_count", &off);
        assert!(matches!(refused, Err(NoLaw::PoorFit(error)) if error > ERROR_MAX), "{refused:?}");
    }

    #[test]
    fn law_without_a_peak_is_described_by_its_contention() {
        let words = |sigma: f64| law_in_words(Usl { gamma: 1e6, sigma, kappa: 0.0 }, &[(1.0, 1e6)]);
        for (sigma, said) in [
            (0.0, "the rate rises in proportion to N"),
            (0.5, "the rate rises with N, but stays below 2.00 M/s"),
            (1.0, "the rate is the same for every N"),
        ] {
            assert!(words(sigma).ends_with(said), "{}", words(sigma));
        }
    }
}
