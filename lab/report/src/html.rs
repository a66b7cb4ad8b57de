//! Report page: one file with the table, the ladder chart, the warnings and the machine.

use crate::anatomy::{self, anatomy_chart};
use crate::detail::Details;
use crate::format;
use crate::ladder::ladder_chart_with_other_runs;
use crate::model::{self, Model, NamedRun};
use crate::svg;
use handover_base::units;
use handover_record::{AnatomyStage, Document, Host, Quantiles, Record, Unit, WarningCode};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde::Serialize;
use std::borrow::Cow;
use std::cmp::Ordering;

const TEMPLATE: &str = include_str!("../templates/report.html");
const STYLE: &str = include_str!("../templates/report.css");
const SCRIPT: &str = include_str!("../templates/report.js");
const WIDE_PX: f64 = 1080.0;
const NARROW_PX: f64 = 380.0;

/// Renders a document as one self-contained HTML file: it loads nothing from the network, is light
/// or dark as the reader prefers, and fits paper and phones. A click on a figure shows its
/// distribution; everything else works without scripts. All text of the document is escaped.
pub fn render_html(document: &Document) -> String {
    render(document, "", &[])
}

/// Renders a run like [`render_html`], with the figures of other runs, or of other machines, in the chart and in a table.
pub fn render_html_with_other_runs(run: &NamedRun, others: &[NamedRun]) -> String {
    render(&run.document, &run.name, others)
}

fn render(document: &Document, name: &str, others: &[NamedRun]) -> String {
    let model = Model::new(document, false);
    let details = Details::new(document);
    let page = Page {
        version: &document.run.version,
        run_id: &document.run.id,
        host_line: model::host_line(document),
        run_line: model::run_line(document),
        when: model::format_utc(document.run.started_unix_ns),
        complete: document.run.complete,
        smoke: is_smoke(document),
        clock_steps: format::clock_steps(document),
        null_line: format::null_line(document.run.null_one, document.run.null_several),
        has_chart: model.rows().any(|record| record.unit == Unit::Ns),
        chart_wide: ladder_chart_with_other_runs(document, others, WIDE_PX).to_svg(),
        chart_narrow: ladder_chart_with_other_runs(document, others, NARROW_PX).to_svg(),
        beside: beside(&model, name, others),
        sweeps: sweep_parts(document),
        chart_style: svg::CHART_STYLE_SHEET,
        page_style: STYLE,
        groups: groups(&model, &details),
        off_ladder_count: model.off_ladder_count,
        anatomies: anatomies(document),
        warnings: warnings(&model),
        contenders_count: document.records.len(),
        contenders: contenders(document),
        facts: facts(document),
        data: details.to_json(),
        script: SCRIPT,
    };
    let mut environment = Environment::new();
    // An undefined name is an error in the template, not an empty text.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_formatter(write_escaped);
    // The extension .html enables escaping.
    let rendered = environment.render_named_str("report.html", TEMPLATE, Serde(&page));
    // The template is embedded; the tests render pages of every kind with it.
    rendered.unwrap_or_else(|refused| {
        panic!("cannot render the embedded template of the report: {refused:#}")
    })
}

/// Writes a value as escaped text; only values that the template marks as safe (charts and styles
/// generated here) are written unchanged.
fn write_escaped(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let text = value.to_string();
    let text = if value.is_safe() { text } else { svg::escape(&text) };
    out.write_str(&text).map_err(Error::from)
}

/// Values of the page's template.
#[derive(Serialize)]
struct Page<'a> {
    version: &'a str,
    run_id: &'a str,
    host_line: String,
    run_line: String,
    when: String,
    complete: bool,
    smoke: bool,
    /// Clock resolution that limits the quantiles, as text.
    clock_steps: String,
    null_line: String,
    has_chart: bool,
    chart_wide: String,
    chart_narrow: String,
    chart_style: &'static str,
    page_style: &'static str,
    groups: Vec<GroupView<'a>>,
    off_ladder_count: usize,
    /// Figures of other runs; `None` if there are none.
    beside: Option<OtherRuns<'a>>,
    sweeps: Vec<SweepPart>,
    anatomies: Vec<AnatomyPart<'a>>,
    warnings: Vec<WarningView<'a>>,
    contenders_count: usize,
    contenders: Vec<Contenders<'a>>,
    facts: Vec<HostFact>,
    /// Data for the script, as JSON.
    data: String,
    script: &'static str,
}

/// Figures of one mechanism.
#[derive(Serialize)]
struct GroupView<'a> {
    name: &'a str,
    rows: Vec<RowView<'a>>,
}

/// Row of the table of figures.
#[derive(Serialize)]
struct RowView<'a> {
    id: &'a str,
    contender: String,
    /// `true` to show the contender's name, because the figure has more than one row.
    has_contender: bool,
    what: &'a str,
    median: String,
    statistic: &'static str,
    interval: String,
    modes: Vec<ModeCell>,
    p99: String,
    rate: String,
    floor: Option<RatioCell<'a>>,
    peer: Option<RatioCell<'a>>,
    cpus: String,
    warnings: Vec<WarningLegend>,
    /// Indices of the row's figure and contender in the script's data.
    place: Option<(usize, usize)>,
}

/// One of two modes of a figure.
#[derive(Serialize)]
struct ModeCell {
    value: String,
    share: String,
}

/// Ratio to a floor or a peer.
#[derive(Serialize)]
struct RatioCell<'a> {
    ratio: String,
    name: Cow<'a, str>,
    tone: &'static str,
}

/// Abbreviation by which the table marks a warning, with its explanation.
#[derive(Serialize)]
struct WarningLegend {
    letter: &'static str,
    words: &'static str,
}

/// Table with the figures of this run and of other runs side by side.
#[derive(Serialize)]
struct OtherRuns<'a> {
    labels: Vec<&'a str>,
    rows: Vec<OtherRow<'a>>,
}

/// Figure of this run, with the medians of other runs beside it: a row of the table.
#[derive(Serialize)]
struct OtherRow<'a> {
    id: &'a str,
    contender: &'a str,
    median: String,
    /// Median in each other run, and its ratio to this run's; `None` if the run has no such figure.
    others: Vec<Option<(String, String)>>,
}

/// Charts of a figure as a function of one argument.
#[derive(Serialize)]
struct SweepPart {
    id: String,
    argument: String,
    figures: String,
    rates: String,
}

/// Breakdown of a hand-off's time into stages.
#[derive(Serialize)]
struct AnatomyPart<'a> {
    id: &'a str,
    contender: &'a str,
    handoff: &'a str,
    line: &'a str,
    chart_wide: String,
    chart_narrow: String,
    stages: Vec<StageRow<'a>>,
    facts: Vec<String>,
    slow: Vec<String>,
}

/// Stage of a hand-off.
#[derive(Serialize)]
struct StageRow<'a> {
    name: &'a str,
    what: &'a str,
    p50: String,
    p99: String,
    share: String,
    passed: String,
}

/// Warnings of one kind.
#[derive(Serialize)]
struct WarningView<'a> {
    letter: &'static str,
    words: &'static str,
    texts: Vec<WarningText<'a>>,
}

/// Text of a warning, and the figures that it applies to.
#[derive(Serialize)]
struct WarningText<'a> {
    text: &'a str,
    names: String,
}

/// Contenders of a figure, for the table of all contenders.
#[derive(Serialize)]
struct Contenders<'a> {
    id: &'a str,
    args: String,
    rows: Vec<ContenderRow>,
}

/// Row of the table of all contenders.
#[derive(Serialize)]
struct ContenderRow {
    contender: String,
    kind: String,
    min: String,
    p50: String,
    p90: String,
    p99: String,
    p999: String,
    max: String,
    samples: String,
}

/// Fact about the machine or the run.
#[derive(Serialize)]
struct HostFact {
    name: &'static str,
    value: String,
}

fn is_smoke(document: &Document) -> bool {
    let smoke = |record: &Record| record.warnings.iter().any(|it| it.code == WarningCode::Smoke);
    !document.records.is_empty() && document.records.iter().all(smoke)
}

fn groups<'a>(model: &Model<'a>, details: &Details<'_>) -> Vec<GroupView<'a>> {
    let rows = |figure: &model::FigureRows<'a>| -> Vec<RowView<'a>> {
        let has_contender = figure.rows.len() > 1;
        let mut rows: Vec<_> = figure
            .rows
            .iter()
            .map(|it| row(model, it, has_contender, details.indices_of(it)))
            .collect();
        // A description stands at the first of a figure's rows.
        let mut described = "";
        for row in &mut rows {
            if row.what == described {
                row.what = "";
            } else {
                described = row.what;
            }
        }
        rows
    };
    let group = |group: &model::MechanismGroup<'a>| GroupView {
        name: group.name,
        rows: group.figures.iter().flat_map(rows).collect(),
    };
    model.groups.iter().map(group).collect()
}

fn row<'a>(
    model: &Model<'a>,
    record: &'a Record,
    has_contender: bool,
    place: Option<(usize, usize)>,
) -> RowView<'a> {
    let shown = |value| format::figure(record.unit, value);
    let modes = match record.modes.as_slice() {
        [] | [_] => &[],
        several => several,
    };
    let mut warnings: Vec<WarningLegend> = Vec::new();
    for warning in &record.warnings {
        let letter = warning.code.table_letters();
        if !warnings.iter().any(|it| it.letter == letter) {
            warnings.push(WarningLegend { letter, words: format::warning_text(warning.code) });
        }
    }
    RowView {
        id: &record.id,
        contender: model.contender_label(record),
        has_contender,
        what: &record.what,
        median: shown(record.summary.median),
        statistic: format::statistic(record),
        interval: format::interval(record),
        modes: modes
            .iter()
            .map(|it| ModeCell {
                value: shown(it.median),
                share: format!("{:.0} %", it.share * 100.0),
            })
            .collect(),
        p99: format::p99(record),
        rate: format::rate(record),
        floor: record.floor.as_ref().map(|it| RatioCell {
            ratio: format::ratio(it.ratio),
            name: format::floor(record, it).into(),
            tone: "",
        }),
        peer: record
            .best_peer()
            .map(|it| RatioCell {
                ratio: format::ratio(it.ratio),
                name: it.contender.as_str().into(),
                tone: match model.compare_with_one(record, it) {
                    Ordering::Less => "good",
                    Ordering::Equal => "",
                    Ordering::Greater => "bad",
                },
            })
            .or_else(|| {
                let beside = record.best_peer_without_ratio()?;
                let ratio = beside.waits.table_verb().to_string();
                Some(RatioCell { ratio, name: beside.contender.as_str().into(), tone: "" })
            }),
        cpus: format::cpus(record),
        warnings,
        place,
    }
}

fn warnings<'a>(model: &Model<'a>) -> Vec<WarningView<'a>> {
    let text =
        |(text, names): (&'a str, Vec<String>)| WarningText { text, names: names.join(", ") };
    let group = |group: model::WarningGroup<'a>| WarningView {
        letter: group.code.table_letters(),
        words: format::warning_text(group.code),
        texts: group.texts.into_iter().map(text).collect(),
    };
    model.warnings().into_iter().map(group).collect()
}

/// Returns the rows of this run that another run has too, with the figures of each other run.
fn beside<'a>(model: &Model<'a>, name: &'a str, others: &'a [NamedRun]) -> Option<OtherRuns<'a>> {
    if others.is_empty() {
        return None;
    }
    let row = |record: &'a Record| {
        let median = record.summary.median;
        let other_run = |other: &NamedRun| {
            let same = model::matching_record(&other.document, record)?;
            let ratio = format::ratio(same.summary.median / median);
            Some((format::figure(same.unit, same.summary.median), ratio))
        };
        let others: Vec<_> = others.iter().map(other_run).collect();
        let row = OtherRow {
            id: &record.id,
            contender: &record.contender,
            median: format::figure(record.unit, median),
            others,
        };
        row.others.iter().any(Option::is_some).then_some(row)
    };
    Some(OtherRuns {
        labels: [name].into_iter().chain(others.iter().map(|it| &*it.name)).collect(),
        rows: model.rows().filter_map(row).collect(),
    })
}

fn sweep_parts(document: &Document) -> Vec<SweepPart> {
    let part = |sweep: crate::sweep::Sweep<'_>| SweepPart {
        id: sweep.id.to_owned(),
        argument: sweep.argument.to_owned(),
        figures: sweep.figures_chart().to_svg(),
        rates: sweep.rates_chart().to_svg(),
    };
    crate::sweep::find_sweeps(document).into_iter().map(part).collect()
}

fn anatomies(document: &Document) -> Vec<AnatomyPart<'_>> {
    let draw = |record: &Record, width_px: f64| {
        anatomy_chart(record, width_px).map_or_else(String::new, |chart| chart.to_svg())
    };
    let parts = anatomy::records_with_anatomy(document).map(|(record, anatomy)| AnatomyPart {
        id: &record.spec,
        contender: &record.contender,
        handoff: &anatomy.total.what,
        line: &anatomy.line,
        chart_wide: draw(record, WIDE_PX),
        chart_narrow: draw(record, NARROW_PX),
        stages: anatomy.stages.iter().chain([&anatomy.total]).map(stage_row).collect(),
        facts: anatomy::anatomy_notes(anatomy),
        slow: anatomy.outliers.iter().map(anatomy::describe_outlier).collect(),
    });
    parts.collect()
}

fn stage_row(stage: &AnatomyStage) -> StageRow<'_> {
    let shown = |ns| match stage.passed > 0.0 {
        true => format::figure(Unit::Ns, ns),
        false => String::new(),
    };
    StageRow {
        name: &stage.name,
        what: &stage.what,
        p50: shown(stage.p50_ns),
        p99: shown(stage.p99_ns),
        share: format::share(stage.share),
        passed: format::share(stage.passed),
    }
}

fn contenders(document: &Document) -> Vec<Contenders<'_>> {
    let model = Model::new(document, true);
    let mut all = Vec::new();
    for figure in model.groups.iter().flat_map(|group| &group.figures) {
        let shared = |record: &Record| {
            format::arguments(record, |name, value| !model.varies(record, name, value))
        };
        let args = figure.rows.first().map(|record| shared(record)).unwrap_or_default();
        let rows = figure.rows.iter().map(|record| {
            let summary = record.summary;
            let quantiles = summary.quantiles();
            let shown = |of: fn(&Quantiles) -> f64| {
                quantiles.map_or_else(String::new, |it| format::figure(record.unit, of(&it)))
            };
            ContenderRow {
                contender: model.contender_label(record),
                kind: record.kind.to_string(),
                min: shown(|it| it.min),
                p50: shown(|it| it.p50),
                p90: shown(|it| it.p90),
                p99: shown(|it| it.p99),
                p999: shown(|it| it.p999),
                max: shown(|it| it.max),
                samples: units::format_count(summary.samples as f64),
            }
        });
        all.push(Contenders { id: figure.id, args, rows: rows.collect() });
    }
    all
}

fn facts(document: &Document) -> Vec<HostFact> {
    let run = &document.run;
    let mut facts = Vec::new();
    let mut add = |name, value: String| {
        if !value.is_empty() {
            facts.push(HostFact { name, value });
        }
    };
    add("run", run.id.clone());
    add("began", model::format_utc(run.started_unix_ns));
    add("command", run.command.clone());
    add("profile", run.profile.clone());
    add(
        "version",
        match run.commit.as_str() {
            "" => run.version.clone(),
            commit => format!("{}, commit {commit}", run.version),
        },
    );
    host_facts(&document.host, &mut add);
    facts
}

fn host_facts(host: &Host, add: &mut impl FnMut(&'static str, String)) {
    let optional = |value: &Option<String>| value.clone().unwrap_or_default();
    let count = |count: u32, what: &str| match count {
        0 => String::new(),
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    };
    let list = |parts: &[String]| {
        parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
    };
    add("host", host.name.clone());
    add("CPU", host.cpu_model.clone());
    add(
        "topology",
        list(&[
            count(host.packages, "package"),
            count(host.cores, "core"),
            count(host.threads_per_core, "thread")
                + if host.threads_per_core > 0 { " a core" } else { "" },
            count(host.numa_nodes, "NUMA node"),
        ]),
    );
    let allowed: Vec<String> = host.cpus_allowed.iter().map(u32::to_string).collect();
    add(
        "CPUs",
        list(&[
            if host.cpus_online > 0 {
                format!("{} online", host.cpus_online)
            } else {
                String::new()
            },
            if allowed.is_empty() {
                String::new()
            } else {
                format!("allowed: {}", allowed.join(" "))
            },
            host.cgroup_cpus.map_or(String::new(), |cpus| format!("cgroup limit {cpus:.2}")),
        ]),
    );
    let caches = host.caches.iter().map(|cache| {
        let size = format::figure(Unit::Bytes, cache.size_bytes as f64);
        format!("L{} {} {size}", cache.level, cache.kind.to_lowercase())
    });
    add("caches", caches.collect::<Vec<_>>().join(", "));
    let bytes = |bytes: u64| format::figure(Unit::Bytes, bytes as f64);
    add(
        "memory",
        list(&[
            if host.memory_bytes > 0 { bytes(host.memory_bytes) } else { String::new() },
            host.cgroup_memory_bytes
                .map_or(String::new(), |limit| format!("cgroup limit {}", bytes(limit))),
        ]),
    );
    add("kernel", host.kernel.clone());
    add("microcode", optional(&host.microcode));
    add("hypervisor", optional(&host.hypervisor));
    add("compiler", host.compiler.clone());
    add("build", host.build_profile.clone());
    add("features", host.features.join(" "));
    add("peers", host.peers.join(", "));
    add("C library", optional(&host.libc));
    add("clock", host.clock.clone());
    add("one clock reading", units::format_ns(host.clock_cost_ns));
    add("kernel's clock", host.clock_source.clone());
    add("governor", optional(&host.governor));
    add("turbo", host.turbo.map_or(String::new(), |on| if on { "on" } else { "off" }.to_string()));
    add("isolation", host.isolation.join(" "));
    add("huge pages", optional(&host.huge_pages));
    add("hardware counters", if host.counters { "readable" } else { "not readable" }.to_string());
    add("load at start", format!("{:.2}", host.load_1min));
    add("mitigations", host.mitigations.join("; "));
}
