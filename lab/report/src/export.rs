//! Export of runs to formats of other tools.

use crate::format;
use crate::histogram::decode_histogram;
use crate::model::{self, Model};
use crate::text::is_control;
use handover_record::{Document, FigureMode, Record, Unit};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::str::FromStr;

/// Export format for another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV table (RFC 4180) for spreadsheets and data frames: a header, then one line per figure.
    Csv,
    /// OpenMetrics 1.0, for Prometheus and similar tools. Times are summaries in seconds.
    OpenMetrics,
    /// HdrHistogram log, version 1.3, with one line per figure's histogram. Lines are tagged
    /// `id[contender]`; histograms of times are in picoseconds.
    HdrLog,
    /// JSON of github-action-benchmark's `customSmallerIsBetter`.
    GithubAction,
}

/// Error for an unknown format name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be jsonl, csv, openmetrics, hdr or github-action")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "csv" => Ok(Format::Csv),
            "openmetrics" => Ok(Format::OpenMetrics),
            "hdr" => Ok(Format::HdrLog),
            "github-action" => Ok(Format::GithubAction),
            _ => Err(UnknownFormat),
        }
    }
}

/// Renders the runs in an export format. The result is deterministic.
pub fn export(documents: &[Document], format: Format) -> String {
    match format {
        Format::Csv => csv(documents),
        Format::OpenMetrics => open_metrics(documents),
        Format::HdrLog => hdr_log(documents),
        Format::GithubAction => github_action(documents),
    }
}

/// Iterates over the records of all runs, each with its run.
fn figures(documents: &[Document]) -> impl Iterator<Item = (&Document, &Record)> {
    documents.iter().flat_map(|document| document.records.iter().map(move |it| (document, it)))
}

/// Function that returns a figure's value in one CSV column; null is an empty field.
type CsvValue = fn(&Document, &Record) -> Value;

/// Columns of the CSV table: the name of each, and the function that returns its values.
const CSV_COLUMNS: [(&str, CsvValue); 36] = [
    ("run", |document, _| json!(document.run.id)),
    ("started_unix_ns", |_, it| json!(it.started_unix_ns)),
    ("host", |document, _| json!(document.host.name)),
    ("version", |document, _| json!(document.run.version)),
    ("commit", |document, _| json!(document.run.commit)),
    ("id", |_, it| json!(it.id)),
    ("contender", |_, it| json!(it.contender)),
    ("kind", |_, it| json!(it.kind.to_string())),
    ("args", |_, it| {
        json!(joined(it.args.iter().map(|(name, value)| format!("{name}={value}")), " "))
    }),
    ("unit", |_, it| json!(it.unit.to_string())),
    ("timing", |_, it| json!(it.summary.timing_kind().to_string())),
    ("median", |_, it| json!(it.summary.median)),
    ("low", |_, it| json!(it.summary.low)),
    ("high", |_, it| json!(it.summary.high)),
    ("min", |_, it| json!(it.summary.quantiles().map(|it| it.min))),
    ("p50", |_, it| json!(it.summary.quantiles().map(|it| it.p50))),
    ("p90", |_, it| json!(it.summary.quantiles().map(|it| it.p90))),
    ("p99", |_, it| json!(it.summary.quantiles().map(|it| it.p99))),
    ("p999", |_, it| json!(it.summary.quantiles().map(|it| it.p999))),
    ("max", |_, it| json!(it.summary.quantiles().map(|it| it.max))),
    ("mean", |_, it| json!(it.summary.mean)),
    ("operations", |_, it| json!(it.summary.ops)),
    ("rate_per_s", |_, it| json!(it.rate_per_s)),
    ("bytes_per_s", |_, it| json!(it.bytes_per_s)),
    ("cpus_user", |_, it| json!(it.cpus_user)),
    ("cpus_system", |_, it| json!(it.cpus_system)),
    ("cpus_by_role", |_, it| {
        json!(joined(it.roles.iter().map(|it| format!("{} {:.3}", it.role, it.cpus)), "; "))
    }),
    ("switches_voluntary_per_op", |_, it| json!(it.switches_voluntary_per_op)),
    ("switches_involuntary_per_s", |_, it| json!(it.switches_involuntary_per_s)),
    ("faults_minor_per_op", |_, it| json!(it.faults_minor_per_op)),
    ("faults_major_per_s", |_, it| json!(it.faults_major_per_s)),
    ("floor_id", |_, it| json!(it.floor.as_ref().map(|floor| &floor.id))),
    ("floor_ratio", |_, it| json!(it.floor.as_ref().map(|floor| floor.ratio))),
    ("peer", |_, it| json!(it.best_peer().map(|peer| &peer.contender))),
    ("peer_ratio", |_, it| json!(it.best_peer().map(|peer| peer.ratio))),
    ("warnings", |_, it| {
        json!(joined(it.warnings.iter().map(|it| format::warning_text(it.code).into()), "; "))
    }),
];

fn joined(words: impl Iterator<Item = String>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}

/// Renders the runs as a CSV table, with a line for each figure.
fn csv(documents: &[Document]) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    // Writing to memory, with the same number of fields on every line, cannot fail. The header is
    // written even without figures.
    let mut written = writer.write_record(CSV_COLUMNS.map(|it| it.0));
    for (document, it) in figures(documents) {
        written = written.and_then(|()| {
            writer.serialize(CSV_COLUMNS.map(|(_, value)| value(document, it)).as_slice())
        });
    }
    debug_assert!(written.is_ok(), "{written:?}");
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// OpenMetrics metric family: its name, its header, and the lines of its samples.
struct Family {
    name: &'static str,
    head: String,
    lines: String,
}

impl Family {
    fn new(name: &'static str, kind: &str, help: &str) -> Self {
        let unit = match name.ends_with("_seconds") {
            true => format!("# UNIT {name} seconds\n"),
            false => String::new(),
        };
        let head = format!("# TYPE {name} {kind}\n{unit}# HELP {name} {help}\n");
        Family { name, head, lines: String::new() }
    }

    fn add(&mut self, suffix: &str, labels: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{}{suffix}{{{labels}}} {value}", self.name);
    }
}

/// Renders the runs as an OpenMetrics text.
fn open_metrics(documents: &[Document]) -> String {
    let new = Family::new;
    let mut times = new("handover_operation_seconds", "summary", "What one operation takes.");
    let mut medians = new(
        "handover_figure_seconds",
        "gauge",
        "The figure: a median of operations, or a mean of batches, as the label timing says.",
    );
    let mut others = new(
        "handover_figure",
        "gauge",
        "Figures that are no times, in the unit that the label names.",
    );
    let mut rates =
        new("handover_operations_per_second", "gauge", "Operations of all measured participants.");
    let mut cpus = new(
        "handover_cpus",
        "gauge",
        "CPUs in use: of the whole process, or of the role that the label names.",
    );
    let mut faults = new(
        "handover_page_faults_per_operation",
        "gauge",
        "Page faults of the whole process that needed no I/O.",
    );
    for (document, it) in figures(documents) {
        let labels = &labels(document, it);
        let s = &it.summary;
        rates.add("", labels, it.rate_per_s);
        cpus.add("", &format!("{labels},role=\"\""), it.cpus_user + it.cpus_system);
        for role in &it.roles {
            cpus.add("", &format!("{labels},role=\"{}\"", escaped(&role.role)), role.cpus);
        }
        faults.add("", labels, it.faults_minor_per_op);
        if it.unit != Unit::Ns {
            others.add("", &format!("{labels},unit=\"{}\"", it.unit), s.median);
            continue;
        }
        let seconds = |ns: f64| ns / 1e9;
        medians.add("", &format!("{labels},timing=\"{}\"", s.timing_kind()), seconds(s.median));
        if let Some(it) = s.quantiles() {
            for (quantile, ns) in
                [("0.5", it.p50), ("0.9", it.p90), ("0.99", it.p99), ("0.999", it.p999)]
            {
                times.add("", &format!("{labels},quantile=\"{quantile}\""), seconds(ns));
            }
        }
        times.add("_count", labels, s.ops);
        times.add("_sum", labels, seconds(s.mean) * s.ops as f64);
    }
    let families = [times, medians, others, rates, cpus, faults];
    let mut text: String = families
        .iter()
        .filter(|family| !family.lines.is_empty())
        .flat_map(|family| [family.head.as_str(), &family.lines])
        .collect();
    text.push_str("# EOF\n");
    text
}

/// Returns the labels of a figure: its run, host, id, contender and arguments.
fn labels(document: &Document, it: &Record) -> String {
    let mut labels = Vec::new();
    let run = [("run", &document.run.id), ("host", &document.host.name)];
    let figure = [("id", &it.id), ("contender", &it.contender)];
    for (name, value) in run.into_iter().chain(figure) {
        labels.push(format!("{name}=\"{}\"", escaped(value)));
    }
    // The name of an imported argument may have characters that a label's name may not.
    let is_other = |letter: char| !letter.is_ascii_alphanumeric();
    let mut names = BTreeSet::new();
    for (place, (name, value)) in it.args.iter().enumerate() {
        let mut name = name.replace(is_other, "_");
        // A label may occur once only.
        while names.contains(&name) {
            let _ = write!(name, "_{place}");
        }
        labels.push(format!("arg_{name}=\"{value}\""));
        names.insert(name);
    }
    labels.join(",")
}

/// Escapes backslashes, quotation marks and newlines in the value of an OpenMetrics label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Renders the runs as an HdrHistogram log.
fn hdr_log(documents: &[Document]) -> String {
    let mut text = "#[Histogram log format version 1.3]\n".to_string();
    for document in documents {
        let began = document.run.started_unix_ns as f64 / 1e9;
        let _ = writeln!(text, "#[StartTime: {began:.3} (seconds since epoch)]");
        text.push_str(
            "#[Histograms of times are in picoseconds, others in thousandths of their unit]\n",
        );
        text.push_str("\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n");
        let has_valid_histogram = |it: &&Record| decode_histogram(&it.histogram).is_some();
        for it in document.records.iter().filter(has_valid_histogram) {
            let start = it.started_unix_ns as f64 / 1e9 - began;
            let length = match it.unit {
                Unit::Ns => it.summary.mean * it.summary.ops as f64 / 1e9,
                _ => 0.0,
            };
            let tag = format!("{}[{}]", it.id, it.contender).replace([',', ' ', '\n', '\r'], "_");
            let most = it.summary.max.unwrap_or(it.summary.median);
            let _ = writeln!(text, "Tag={tag},{start:.3},{length:.3},{most:.3},{}", it.histogram);
        }
    }
    text
}

/// Entry of github-action-benchmark's input.
#[derive(Serialize)]
struct Benchmark<'a> {
    name: String,
    unit: String,
    value: f64,
    /// Half the width of the 95 % interval, relative to the value.
    range: String,
    /// Description of the timed operation.
    extra: &'a str,
}

/// Renders the runs as input of github-action-benchmark.
fn github_action(documents: &[Document]) -> String {
    let models = documents.iter().map(|document| (document, Model::new(document, true)));
    let labelled = models.flat_map(|(document, model)| {
        document
            .records
            .iter()
            .map(move |it| (it, format!("{} [{}]", it.id, model.contender_label(it))))
    });
    let all: Vec<Benchmark<'_>> = labelled
        .map(|(it, name)| Benchmark {
            name,
            unit: it.unit.to_string(),
            value: it.summary.median,
            range: match it.summary.relative_half_width() {
                Some(half_width) if half_width.is_finite() => {
                    format!("± {percent:.1} %", percent = half_width * 100.0)
                }
                _ => String::new(),
            },
            extra: &it.what,
        })
        .collect();
    // Serializing plain data with finite numbers cannot fail.
    let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
    text.push('\n');
    text
}

/// Renders a run as a Markdown table for GitHub. It has our figures with floor and best peer or,
/// with `all`, those of every contender.
pub fn render_markdown(document: &Document, all: bool) -> String {
    let model = Model::new(document, all);
    let mut text = format!(
        "{}  \n{}\n\n",
        escape_markdown(&model::run_line(document)),
        escape_markdown(&model::host_line(document))
    );
    text.push_str(
        "| id | contender | figure | ± 95 % | is the | p99 | × floor | × best peer | warning |\n\
         |---|---|--:|--:|---|--:|--:|--:|---|\n",
    );
    for it in model.rows() {
        let floor = it.floor.as_ref().map(|floor| format::ratio(floor.ratio)).unwrap_or_default();
        let peer =
            it.best_peer().map(|peer| format!("{} {}", format::ratio(peer.ratio), peer.contender));
        let beside = || {
            it.best_peer_without_ratio()
                .map(|it| format!("{} {}", it.contender, it.waits.table_verb()))
        };
        let (figure, interval) = match it.modes.len() {
            0 | 1 => (format::figure(it.unit, it.summary.median), format::interval(it)),
            _ => (modes(it), String::new()),
        };
        let cells = [
            it.id.clone(),
            model.contender_label(it),
            figure,
            interval,
            format::statistic(it).to_string(),
            format::p99(it),
            floor,
            peer.or_else(beside).unwrap_or_default(),
            format::letters(it),
        ];
        let cells: Vec<String> = cells.iter().map(|text| escape_markdown(text)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let run = &document.run;
    let _ = writeln!(text, "\n{}", format::null_line(run.null_one, run.null_several));
    for warning in model.warnings() {
        let _ = writeln!(
            text,
            "- {}: {}",
            warning.code.table_letters(),
            escape_markdown(format::warning_text(warning.code))
        );
    }
    text
}

/// Formats the modes of a figure, each with its share: `30.0 ns in 70 % of the values, 200 ns in 30
/// % of the values`.
fn modes(record: &Record) -> String {
    let shown = |mode: &FigureMode| {
        let (median, share) = (format::figure(record.unit, mode.median), format::share(mode.share));
        format!("{median} in {share} of the values")
    };
    record.modes.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Escapes the characters of a table's cell that have a meaning in Markdown or HTML.
fn escape_markdown(text: &str) -> String {
    let mut cell = String::new();
    for it in text.chars() {
        match it {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => cell.extend(['\\', it]),
            '<' => cell.push_str("&lt;"),
            '&' => cell.push_str("&amp;"),
            it if is_control(it) => cell.push(' '),
            it => cell.push(it),
        }
    }
    cell
}
