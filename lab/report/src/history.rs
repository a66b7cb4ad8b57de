//! History of a figure over runs: its trend and its changes.

mod divisive;

pub use divisive::{P_VALUE_MAX, SEGMENT_VALUES_MIN};

use crate::fleet::robust;
use crate::format;
use crate::model::format_utc;
use crate::svg::{Axis, Chart, Mark, Point, Quantity, Series, SeriesRole};
use crate::table::render;
use crate::text::{Line, Style, Tone, WIDTH_MIN, wrap};
use handover_record::Unit;
use serde::Serialize;

/// Approximate maximum number of labelled runs on a chart's axis.
const LABELS_MAX: usize = 6;
/// Maximum length of a run's label, in characters.
const LABEL_CHARS_MAX: usize = 22;
/// Length of a date such as 2026-11-21.
const DATE_CHARS: usize = 10;

/// Version of a history's JSON format.
pub const HISTORY_SCHEMA: u32 = 1;

/// Value of a figure in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunFigure {
    /// Id of the run.
    pub run: String,
    /// Start of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Version and commit of the measured build.
    pub build: String,
    /// Names of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Value of the figure.
    pub median: f64,
    /// Lower bound of the figure's 95 % interval; `None` without an interval.
    pub low: Option<f64>,
    /// Upper bound of the figure's 95 % interval; `None` without an interval.
    pub high: Option<f64>,
}

/// Consecutive runs between two changes of the figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// Index of the segment's first run.
    pub from: usize,
    /// Index after the segment's last run.
    pub to: usize,
    /// Median of the runs' figures.
    pub median: f64,
    /// Ratio to the median of the previous segment; `None` for the first segment.
    pub ratio: Option<f64>,
    /// p-value of the change at the segment's start; `None` for the first segment.
    pub p: Option<f64>,
}

/// Values of a figure over runs, and its changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// Version of the JSON format.
    pub schema: u32,
    /// Id of the figure.
    pub id: String,
    /// Name of the contender.
    pub contender: String,
    /// Unit of the figure.
    pub unit: Unit,
    /// Runs with the figure, the earliest first.
    pub runs: Vec<RunFigure>,
    /// Segments in order of time; a single one if nothing changed.
    #[serde(rename = "levels")]
    pub segments: Vec<Segment>,
    /// Number of runs that have the figure but are excluded. Their machine or arguments differ from
    /// the last run's.
    pub left_out: usize,
}

impl History {
    /// Computes the history of a figure from its values in runs, in order of time. Changes are
    /// detected in the logarithms of the values, or in the values if one of them is not above 0.
    ///
    /// # Cost
    /// Some tenths of a second for 1,000 runs.
    pub fn new(
        id: &str,
        contender: &str,
        unit: Unit,
        runs: Vec<RunFigure>,
        left_out: usize,
    ) -> History {
        let all_above_0 = runs.iter().all(|dot| dot.median > 0.0);
        let scaled = |dot: &RunFigure| if all_above_0 { dot.median.ln() } else { dot.median };
        let changes = divisive::find_changes(&runs.iter().map(scaled).collect::<Vec<f64>>());
        let mut segments: Vec<Segment> = Vec::new();
        let mut starts = vec![(0, None)];
        starts.extend(changes.iter().map(|change| (change.place, Some(change.p))));
        for (place, (from, p)) in starts.iter().enumerate() {
            let to = starts.get(place + 1).map_or(runs.len(), |next| next.0);
            if *from == to {
                continue;
            }
            let median = median(&runs[*from..to]);
            let before =
                segments.last().map(|segment| segment.median).filter(|before| *before > 0.0);
            let ratio = before.map(|before| median / before);
            segments.push(Segment { from: *from, to, median, ratio, p: *p });
        }
        let (id, contender) = (id.to_string(), contender.to_string());
        History { schema: HISTORY_SCHEMA, id, contender, unit, runs, segments, left_out }
    }

    /// Renders the history for a terminal: a sparkline, then the segments, the latest last.
    pub fn render_text(&self, width: usize, style: Style) -> String {
        let laid_out = width.max(WIDTH_MIN);
        let mut head = Line::new(&self.id, Tone::Strong);
        head.push(
            format!("  {}  {}", self.contender, format::counted(self.runs.len(), "run")),
            Tone::Plain,
        );
        let mut lines = vec![head];
        if self.runs.len() > 1 {
            lines.extend(self.sparkline(laid_out, style));
        }
        lines.push(Line::default());
        for segment in &self.segments {
            let first = &self.runs[segment.from];
            let mut line = Line::plain(format_utc(first.started_unix_ns));
            line.push("  ", Tone::Plain);
            line.push_right(
                &Line::new(format::figure(self.unit, segment.median), Tone::Strong),
                32,
            );
            if let (Some(ratio), Some(p)) = (segment.ratio, segment.p) {
                let tone = if ratio > 1.0 { Tone::Bad } else { Tone::Good };
                line.push_right(&Line::new(format!("{:+.1} %", (ratio - 1.0) * 100.0), tone), 41);
                line.push(format!("  p {p:.3}"), Tone::Faint);
            }
            line.pad_to(52);
            line.push(
                format!(
                    "{runs}, from {first_run}",
                    runs = format::counted(segment.to - segment.from, "run"),
                    first_run = first.run
                ),
                Tone::Plain,
            );
            for said in [&first.build].into_iter().chain(&first.names).filter(|it| !it.is_empty()) {
                line.push(format!(", {said}"), Tone::Faint);
            }
            lines.push(line);
        }
        lines.push(Line::default());
        let text = match self.runs.len() < 2 * SEGMENT_VALUES_MIN {
            true => format!(
                "A change can be found with at least {} runs, {SEGMENT_VALUES_MIN} on each side of it.",
                2 * SEGMENT_VALUES_MIN
            ),
            false => self.changes_line(),
        };
        lines.extend(wrap(&text, Tone::Plain, 2, laid_out));
        if self.left_out > 0 {
            let text = format!(
                "{} left out: their arguments, machine or kind of timing differ from the last run's.",
                format::counted(self.left_out, "run")
            );
            lines.extend(wrap(&text, Tone::Warning, 2, laid_out));
        }
        let guide = "Changes by E-divisive (Matteson and James), each that chance makes at most once in a \
                     hundred times.";
        lines.extend(wrap(guide, Tone::Faint, 2, laid_out));
        render(lines, width, style)
    }

    /// Returns the sentence about the number of changes.
    fn changes_line(&self) -> String {
        match self.segments.len().saturating_sub(1) {
            0 => "No change.".to_string(),
            count => format!("{}.", format::counted(count, "change")),
        }
    }

    /// Renders the runs as a sparkline. With more runs than columns, a bar is the median of several
    /// runs.
    fn sparkline(&self, width: usize, style: Style) -> Vec<Line> {
        const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];
        let steps = if style.unicode { UNICODE } else { ASCII };
        let ends = self.runs.iter().map(|dot| dot.median);
        let (low, high) =
            ends.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
        let columns = width.min(self.runs.len());
        let chunk = |column: usize| {
            let from = column * self.runs.len() / columns;
            &self.runs[from..(column + 1) * self.runs.len() / columns]
        };
        let height = |value: f64| match high > low {
            true => (((value - low) / (high - low)) * 7.0).round().clamp(0.0, 7.0) as usize,
            false => 3,
        };
        let drawn: String =
            (0..columns).map(|column| steps[height(median(chunk(column)))]).collect();
        let (low, high) = (format::figure(self.unit, low), format::figure(self.unit, high));
        let ends = format!("{low} to {high}");
        vec![Line::plain(drawn), Line::new(ends, Tone::Faint)]
    }

    /// Returns the positions and labels of some runs. They are the first, the last, those with a
    /// name, and others between them. They are far enough apart to be read. A label is the date
    /// and, if the run has one, a name.
    fn tick_labels(&self) -> Vec<(f64, String)> {
        let count = self.runs.len();
        let distance_min = (count / LABELS_MAX).max(1);
        let named = (0..count).rev().filter(|place| !self.runs[*place].names.is_empty());
        let ends = [0, count.saturating_sub(1)].into_iter().filter(|_| count > 0);
        let evenly = (0..count).step_by(distance_min);
        let mut labelled: Vec<usize> = Vec::new();
        for place in ends.chain(named).chain(evenly) {
            if labelled.iter().all(|it| it.abs_diff(place) >= distance_min) {
                labelled.push(place);
            }
        }
        labelled.sort_unstable();
        let label = |place: usize| {
            let run = &self.runs[place];
            let date = format_utc(run.started_unix_ns)[..DATE_CHARS].to_string();
            let name = run.names.last().map_or_else(String::new, |name| format!(" {name}"));
            let label: String = date.chars().chain(name.chars()).take(LABEL_CHARS_MAX).collect();
            (place as f64 + 1.0, label)
        };
        labelled.into_iter().map(label).collect()
    }

    /// Draws the history as a chart: each run with its interval, the segments and their changes.
    pub fn chart(&self) -> Chart {
        let dot = |(place, dot): (usize, &RunFigure)| {
            let text = format!(
                "{}: {} ({}..{}), {}, {}",
                [std::slice::from_ref(&dot.run), &*dot.names].concat().join(" "),
                format::figure(self.unit, dot.median),
                format::figure(self.unit, dot.low.unwrap_or(dot.median)),
                format::figure(self.unit, dot.high.unwrap_or(dot.median)),
                format_utc(dot.started_unix_ns),
                dot.build,
            );
            Point::new(place as f64 + 1.0, dot.median)
                .with_span(dot.low.unwrap_or(dot.median), dot.high.unwrap_or(dot.median))
                .with_tooltip(text)
        };
        let title = format!(
            "{} [{}] over {runs}",
            self.id,
            self.contender,
            runs = format::counted(self.runs.len(), "run")
        );
        let mut chart = Chart::new(
            title,
            Axis::linear("run, with its date and name", Quantity::Count)
                .with_tick_labels(self.tick_labels()),
            Axis::linear("median", self.unit.into()),
        )
        .with_description(self.changes_line())
        .with_heading()
        .with_series(Series::new(
            "run",
            SeriesRole::Faint,
            Mark::Dot,
            self.runs.iter().enumerate().map(dot).collect(),
        ));
        for (place, segment) in self.segments.iter().enumerate() {
            let name = if place == 0 { "level" } else { "" };
            let text = match segment.ratio {
                Some(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
                None => String::new(),
            };
            let points = [segment.from as f64 + 0.6, segment.to as f64 + 0.4]
                .map(|x| Point::new(x, segment.median).with_tooltip(text.clone()));
            chart = chart.with_series(Series::new(
                name,
                SeriesRole::Ours,
                Mark::Curve,
                points.to_vec(),
            ));
        }
        chart
    }
}

/// Returns the median of the figures of some runs; 0 for none.
fn median(dots: &[RunFigure]) -> f64 {
    robust::median(&mut dots.iter().map(|dot| dot.median).collect::<Vec<_>>())
}
