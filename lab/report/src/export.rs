//! Export of runs to formats of other tools.

use crate::format;
use crate::model::{self, Model};
use crate::text::is_control;
use handover_record::{Document, FigureMode, Record, Unit};
use serde::Serialize;
use std::fmt::Write as _;
use std::str::FromStr;

/// Export format for another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Table for spreadsheets and data frames, RFC 4180: a header, then one line per figure.
    Csv,
    /// OpenMetrics 1.0, for Prometheus and similar tools: figures that are times are summaries, in
    /// seconds.
    OpenMetrics,
    /// HdrHistogram log, version 1.3: one line per figure's histogram, in picoseconds if the figure
    /// is a time, tagged `id[contender]`.
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

/// Renders the runs in a format. The result is deterministic.
pub fn export(documents: &[Document], format: Format) -> String {
    match format {
        Format::Csv => csv(documents),
        Format::OpenMetrics => open_metrics(documents),
        Format::HdrLog => hdr_log(documents),
        Format::GithubAction => github_action(documents),
    }
}

fn figures(documents: &[Document]) -> impl Iterator<Item = (&Document, &Record)> {
    documents.iter().flat_map(|document| document.records.iter().map(move |it| (document, it)))
}

/// Line of the CSV table. A missing value is an empty field.
#[derive(Serialize)]
struct CsvLine<'a> {
    run: &'a str,
    started_unix_ns: i64,
    host: &'a str,
    version: &'a str,
    commit: &'a str,
    id: &'a str,
    contender: &'a str,
    kind: String,
    args: String,
    unit: String,
    timing: String,
    median: f64,
    low: Option<f64>,
    high: Option<f64>,
    min: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
    mean: f64,
    operations: u64,
    rate_per_s: f64,
    bytes_per_s: Option<f64>,
    cpus_user: f64,
    cpus_system: f64,
    cpus_by_role: String,
    switches_voluntary_per_op: f64,
    switches_involuntary_per_s: f64,
    faults_minor_per_op: f64,
    faults_major_per_s: f64,
    floor_id: Option<&'a str>,
    floor_ratio: Option<f64>,
    peer: Option<&'a str>,
    peer_ratio: Option<f64>,
    warnings: String,
}

/// Column names of the CSV table.
const CSV_HEAD: [&str; 36] = [
    "run",
    "started_unix_ns",
    "host",
    "version",
    "commit",
    "id",
    "contender",
    "kind",
    "args",
    "unit",
    "timing",
    "median",
    "low",
    "high",
    "min",
    "p50",
    "p90",
    "p99",
    "p999",
    "max",
    "mean",
    "operations",
    "rate_per_s",
    "bytes_per_s",
    "cpus_user",
    "cpus_system",
    "cpus_by_role",
    "switches_voluntary_per_op",
    "switches_involuntary_per_s",
    "faults_minor_per_op",
    "faults_major_per_s",
    "floor_id",
    "floor_ratio",
    "peer",
    "peer_ratio",
    "warnings",
];

fn csv(documents: &[Document]) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    // Writing to memory cannot fail. The header is written even without figures.
    let written = writer.write_record(CSV_HEAD);
    debug_assert!(written.is_ok(), "{written:?}");
    for (document, it) in figures(documents) {
        let args: Vec<String> =
            it.args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let warnings: Vec<&str> =
            it.warnings.iter().map(|it| format::warning_text(it.code)).collect();
        let by_role: Vec<String> =
            it.roles.iter().map(|it| format!("{} {:.3}", it.role, it.cpus)).collect();
        let (s, peer) = (&it.summary, it.best_peer());
        let operations = s.quantiles();
        let line = CsvLine {
            run: &document.run.id,
            started_unix_ns: it.started_unix_ns,
            host: &document.host.name,
            version: &document.run.version,
            commit: &document.run.commit,
            id: &it.id,
            contender: &it.contender,
            kind: it.kind.to_string(),
            args: args.join(" "),
            unit: it.unit.to_string(),
            timing: s.timing_kind().to_string(),
            median: s.median,
            low: s.low,
            high: s.high,
            min: operations.map(|it| it.min),
            p50: operations.map(|it| it.p50),
            p90: operations.map(|it| it.p90),
            p99: operations.map(|it| it.p99),
            p999: operations.map(|it| it.p999),
            max: operations.map(|it| it.max),
            mean: s.mean,
            operations: s.ops,
            rate_per_s: it.rate_per_s,
            bytes_per_s: it.bytes_per_s,
            cpus_user: it.cpus_user,
            cpus_system: it.cpus_system,
            cpus_by_role: by_role.join("; "),
            switches_voluntary_per_op: it.switches_voluntary_per_op,
            switches_involuntary_per_s: it.switches_involuntary_per_s,
            faults_minor_per_op: it.faults_minor_per_op,
            faults_major_per_s: it.faults_major_per_s,
            floor_id: it.floor.as_ref().map(|floor| &*floor.id),
            floor_ratio: it.floor.as_ref().map(|floor| floor.ratio),
            peer: peer.map(|peer| &*peer.contender),
            peer_ratio: peer.map(|peer| peer.ratio),
            warnings: warnings.join("; "),
        };
        // Writing to memory, with the same number of fields on every line, cannot fail.
        let written = writer.serialize(line);
        debug_assert!(written.is_ok(), "{written:?}");
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Metric family: its header (name, type and help) and the lines of its samples.
struct Family {
    head: &'static str,
    lines: String,
}

/// Renders the runs as OpenMetrics.
fn open_metrics(documents: &[Document]) -> String {
    let family = |head| Family { head, lines: String::new() };
    let mut times = family(
        "# TYPE handover_operation_seconds summary\n\
         # UNIT handover_operation_seconds seconds\n\
         # HELP handover_operation_seconds What one operation takes.\n",
    );
    let mut medians = family(
        "# TYPE handover_figure_seconds gauge\n\
         # UNIT handover_figure_seconds seconds\n\
         # HELP handover_figure_seconds The figure: a median of operations, or a mean of batches, as the label timing says.\n",
    );
    let mut others = family(
        "# TYPE handover_figure gauge\n\
         # HELP handover_figure Figures that are no times, in the unit that the label names.\n",
    );
    let mut rates = family(
        "# TYPE handover_operations_per_second gauge\n\
         # HELP handover_operations_per_second Operations of all measured participants.\n",
    );
    let mut cpus = family(
        "# TYPE handover_cpus gauge\n\
         # HELP handover_cpus CPUs in use: of the whole process, or of the role that the label names.\n",
    );
    let mut faults = family(
        "# TYPE handover_page_faults_per_operation gauge\n\
         # HELP handover_page_faults_per_operation Page faults of the whole process that needed no I/O.\n",
    );
    for (document, it) in figures(documents) {
        let labels = labels(document, it);
        let s = &it.summary;
        // Writing to a string cannot fail.
        let _ =
            writeln!(rates.lines, "handover_operations_per_second{{{labels}}} {}", it.rate_per_s);
        let all = it.cpus_user + it.cpus_system;
        let _ = writeln!(cpus.lines, "handover_cpus{{{labels},role=\"\"}} {all}");
        for role in &it.roles {
            let name = escaped(&role.role);
            let _ = writeln!(cpus.lines, "handover_cpus{{{labels},role=\"{name}\"}} {}", role.cpus);
        }
        let (name, minor) = ("handover_page_faults_per_operation", it.faults_minor_per_op);
        let _ = writeln!(faults.lines, "{name}{{{labels}}} {minor}");
        if it.unit != Unit::Ns {
            let unit = it.unit;
            let _ =
                writeln!(others.lines, "handover_figure{{{labels},unit=\"{unit}\"}} {}", s.median);
            continue;
        }
        let (seconds, timing) = (|ns: f64| ns / 1e9, s.timing_kind());
        let _ = writeln!(
            medians.lines,
            "handover_figure_seconds{{{labels},timing=\"{timing}\"}} {}",
            seconds(s.median)
        );
        let name = "handover_operation_seconds";
        let quantiles = s.quantiles().map_or_else(Vec::new, |it| {
            vec![("0.5", it.p50), ("0.9", it.p90), ("0.99", it.p99), ("0.999", it.p999)]
        });
        for (quantile, ns) in quantiles {
            let ns = seconds(ns);
            let _ = writeln!(times.lines, "{name}{{{labels},quantile=\"{quantile}\"}} {ns}");
        }
        let sum = seconds(s.mean) * s.ops as f64;
        let _ = writeln!(
            times.lines,
            "{name}_count{{{labels}}} {}\n{name}_sum{{{labels}}} {sum}",
            s.ops
        );
    }
    let families = [times, medians, others, rates, cpus, faults];
    let mut text: String = families
        .iter()
        .filter(|family| !family.lines.is_empty())
        .flat_map(|family| [family.head, &family.lines])
        .collect();
    text.push_str("# EOF\n");
    text
}

/// Formats the labels of a figure.
fn labels(document: &Document, it: &Record) -> String {
    let mut labels = Vec::new();
    let run = [("run", &document.run.id), ("host", &document.host.name)];
    let figure = [("id", &it.id), ("contender", &it.contender)];
    for (name, value) in run.into_iter().chain(figure) {
        labels.push(format!("{name}=\"{}\"", escaped(value)));
    }
    // An argument's name consists of letters, digits and underscores.
    labels.extend(it.args.iter().map(|(name, value)| format!("arg_{name}=\"{value}\"")));
    labels.join(",")
}

/// Escapes a label's value as OpenMetrics requires, which escapes three characters only.
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
        for it in document.records.iter().filter(|it| !it.histogram.is_empty()) {
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
    range: String,
    extra: &'a str,
}

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
                Some(half_width) => format!("± {:.1} %", half_width * 100.0),
                None => String::new(),
            },
            extra: &it.what,
        })
        .collect();
    // Serializing plain data with finite numbers cannot fail.
    let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
    text.push('\n');
    text
}

/// Renders a run as a Markdown table for GitHub: ours with its floor and best peer, as in the table
/// for terminals.
pub fn render_markdown(document: &Document, all: bool) -> String {
    let model = Model::new(document, all);
    let mut text = format!(
        "{}  \n{}\n\n",
        cell(&model::run_line(document)),
        cell(&model::host_line(document))
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
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let run = &document.run;
    let _ = writeln!(text, "\n{}", format::null_line(run.null_one, run.null_several));
    for warning in model.warnings() {
        let _ = writeln!(
            text,
            "- {}: {}",
            warning.code.table_letters(),
            cell(format::warning_text(warning.code))
        );
    }
    text
}

/// Formats two modes with their shares, never their average: `30.0 ns in 70 %, 200 ns in 30 %`.
fn modes(record: &Record) -> String {
    let shown = |mode: &FigureMode| {
        format!("{} in {}", format::figure(record.unit, mode.median), format::share(mode.share))
    };
    record.modes.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Escapes characters that would end a cell or have a meaning in Markdown or HTML.
fn cell(text: &str) -> String {
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
