//! Report page: one file with the table, the ladder chart, the warnings and the machine.

use crate::anatomy::{self, anatomy_chart};
use crate::detail::Details;
use crate::format;
use crate::ladder::ladder_chart_with_other_runs;
use crate::model::{self, Model, NamedRun};
use crate::seen::is_smoke;
use crate::svg;
use crate::sweep::Sweep;
use handover_base::units;
use handover_record::{
    Anatomy, AnatomyStage, Document, Host, Quantiles, Ratio, Record, Unit, WarningCode,
    command_without_nth,
};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde_json::{Value as Json, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;

const TEMPLATE: &str = include_str!("../templates/report.html");
const STYLE: &str = include_str!("../templates/report.css");
const SCRIPT: &str = include_str!("../templates/report.js");
/// Width of the charts for wide windows.
const WIDE_PX: f64 = 1080.0;
/// Width of the charts for phones.
const NARROW_PX: f64 = 380.0;

/// Renders a document as a self-contained HTML page. It loads nothing from the network, is light or
/// dark as the reader prefers, and fits paper and phones. A click on a figure shows its
/// distribution; everything else works without scripts. All text of the document is escaped.
pub fn render_html(document: &Document) -> String {
    render(document, "", &[])
}

/// Renders a run like [`render_html`], with the figures of other runs or machines. They are in the
/// chart and in a table.
pub fn render_html_with_other_runs(run: &NamedRun, others: &[NamedRun]) -> String {
    render(&run.document, &run.name, others)
}

/// Renders the page of a run. `name` is its name in the comparison with `others`, if there are any.
fn render(document: &Document, name: &str, others: &[NamedRun]) -> String {
    let model = Model::new(document, false);
    let details = Details::new(document);
    let page = json!({
        "version": document.run.version,
        "run_id": document.run.id,
        "host_line": model::host_line(document),
        "run_line": model::run_line(document),
        "when": model::format_utc(document.run.started_unix_ns),
        "complete": document.run.complete,
        "smoke": !document.records.is_empty() && document.records.iter().all(is_smoke),
        // Clock resolution that limits the quantiles, as text.
        "clock_steps": format::clock_steps(document),
        "null_line": format::null_line(document.run.null_one, document.run.null_several),
        "has_chart": model.rows().any(|record| record.unit == Unit::Ns),
        "chart_wide": ladder_chart_with_other_runs(document, others, WIDE_PX).to_svg(),
        "chart_narrow": ladder_chart_with_other_runs(document, others, NARROW_PX).to_svg(),
        "beside": rows_of_other_runs(&model, name, others),
        "sweeps": crate::sweep::find_sweeps(document).iter().map(sweep).collect::<Vec<_>>(),
        "chart_style": svg::CHART_STYLE_SHEET,
        "page_style": STYLE,
        "groups": groups(&model, &details),
        "off_ladder_count": model.off_ladder_count,
        "anatomies": anatomies(document),
        "warnings": warnings(&model),
        "contenders_count": document.records.len(),
        "contenders": contenders(document),
        "facts": facts(document),
        "data": details.to_json(),
        "script": SCRIPT,
    });
    let mut environment = Environment::new();
    // An undefined name is an error in the template, not an empty text.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_formatter(write_escaped);
    // The extension .html enables escaping.
    let rendered = environment.render_named_str("report.html", TEMPLATE, Serde(&page));
    // The template is embedded; the tests render pages of every kind with it.
    rendered.unwrap_or_else(|error| {
        panic!("cannot render the embedded template of the report: {error:#}")
    })
}

/// Writes a value as escaped text. Only values that the template marks as safe (charts and styles
/// generated here) are written unchanged.
fn write_escaped(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let text = value.to_string();
    let text = if value.is_safe() { text } else { svg::escape(&text) };
    out.write_str(&text).map_err(Error::from)
}

/// Returns the rows of the table of figures, grouped by mechanism, for the template.
fn groups<'a>(model: &Model<'a>, details: &Details<'_>) -> Vec<Json> {
    let rows = |figure: &model::FigureRows<'a>| {
        // A description stands at the first of a figure's rows.
        let mut described = "";
        let has_contender = figure.rows.len() > 1;
        let row = |it: &&'a Record| {
            let is_repeated = std::mem::replace(&mut described, &it.what) == it.what;
            let what = if is_repeated { "" } else { &it.what };
            row(model, it, what, has_contender, details.indices_of(it))
        };
        figure.rows.iter().map(row).collect::<Vec<_>>()
    };
    let group = |group: &model::MechanismGroup<'a>| {
        json!({
            "name": group.name,
            "rows": group.figures.iter().flat_map(rows).collect::<Vec<_>>(),
        })
    };
    model.groups.iter().map(group).collect()
}

/// Returns a row of the table of figures. `place` are the indices of its figure and contender in
/// the script's data.
fn row(
    model: &Model<'_>,
    record: &Record,
    what: &str,
    has_contender: bool,
    place: Option<(usize, usize)>,
) -> Json {
    let shown = |value| format::figure(record.unit, value);
    let modes = match record.modes.as_slice() {
        [] | [_] => &[],
        several => several,
    };
    let mut codes: Vec<_> = record.warnings.iter().map(|it| it.code).collect();
    // Several codes may have the same letters.
    let mut seen = BTreeSet::new();
    codes.retain(|it| seen.insert(it.table_letters()));
    let legend = |code: &WarningCode| json!({ "letter": code.table_letters(), "words": format::warning_text(*code) });
    let ratio = |it: &Ratio, name: &str, tone: &str| json!({ "ratio": format::ratio(it.ratio), "name": name, "tone": tone });
    let peer = record.best_peer().map(|it| {
        let tone = match model.compare_with_one(record, it) {
            Ordering::Less => "good",
            Ordering::Equal => "",
            Ordering::Greater => "bad",
        };
        ratio(it, &it.contender, tone)
    });
    let beside = || {
        let it = record.best_peer_without_ratio()?;
        Some(json!({ "ratio": it.waits.table_verb(), "name": it.contender, "tone": "" }))
    };
    json!({
        "id": record.id,
        "contender": model.contender_label(record),
        "has_contender": has_contender,
        "what": what,
        "median": shown(record.summary.median),
        "statistic": format::statistic(record),
        "interval": format::interval(record),
        "modes": modes.iter().map(|it| {
            json!({ "value": shown(it.median), "share": format!("{:.0} %", it.share * 100.0) })
        }).collect::<Vec<_>>(),
        "p99": format::p99(record),
        "rate": format::rate(record),
        "floor": record.floor.as_ref().map(|it| ratio(it, &format::floor(record, it), "")),
        "peer": peer.or_else(beside),
        "cpus": format::cpus(record),
        "warnings": codes.iter().map(legend).collect::<Vec<_>>(),
        "place": place,
    })
}

/// Returns the legend of the warnings, with their texts and figures, for the template.
fn warnings(model: &Model<'_>) -> Vec<Json> {
    let text =
        |(text, names): &(&str, Vec<String>)| json!({ "text": text, "names": names.join(", ") });
    let group = |group: model::WarningGroup<'_>| {
        json!({
            "letter": group.code.table_letters(),
            "words": format::warning_text(group.code),
            "texts": group.texts.iter().map(text).collect::<Vec<_>>(),
        })
    };
    model.warnings().into_iter().map(group).collect()
}

/// Returns the figures that this run has in common with others. They have the medians of the other
/// runs, and their ratios to this run's; those with two modes have the modes, and no ratio. Returns
/// `None` without other runs.
fn rows_of_other_runs(model: &Model<'_>, name: &str, others: &[NamedRun]) -> Option<Json> {
    if others.is_empty() {
        return None;
    }
    let row = |record: &Record| {
        let shown = |it: &Record| match format::modes_line(it) {
            modes if modes.is_empty() => format::figure(it.unit, it.summary.median),
            modes => modes,
        };
        let other_run = |other: &NamedRun| {
            let same = model::matching_record(&other.document, record)?;
            let ratio = match record.modes.len().max(same.modes.len()) {
                0 | 1 => format::ratio(same.summary.median / record.summary.median),
                _ => String::new(),
            };
            Some((shown(same), ratio))
        };
        let others: Vec<_> = others.iter().map(other_run).collect();
        others.iter().any(Option::is_some).then(|| {
            json!({
                "id": record.id,
                "contender": record.contender,
                "figure": shown(record),
                "others": others,
            })
        })
    };
    let labels: Vec<_> = [name].into_iter().chain(others.iter().map(|it| &*it.name)).collect();
    Some(json!({ "labels": labels, "rows": model.rows().filter_map(row).collect::<Vec<_>>() }))
}

/// Returns the id, the argument and the charts of a sweep, for the template.
fn sweep(sweep: &Sweep<'_>) -> Json {
    json!({
        "id": sweep.id,
        "argument": sweep.argument,
        "figures": sweep.figures_chart().to_svg(),
        "rates": sweep.rates_chart().to_svg(),
    })
}

/// Returns the tables and charts of the hand-offs' stages, for the template.
fn anatomies(document: &Document) -> Vec<Json> {
    let draw = |record: &Record, width_px: f64| {
        anatomy_chart(record, width_px).map_or_else(String::new, |chart| chart.to_svg())
    };
    let part = |(record, anatomy): (&Record, &Anatomy)| {
        let stages = anatomy.stages.iter().chain([&anatomy.total]);
        json!({
            "id": record.spec,
            "contender": record.contender,
            "handoff": anatomy.total.what,
            "line": anatomy.line,
            "chart_wide": draw(record, WIDE_PX),
            "chart_narrow": draw(record, NARROW_PX),
            "stages": stages.map(stage).collect::<Vec<_>>(),
            "facts": anatomy::anatomy_notes(anatomy),
            "slow": anatomy.outliers.iter().map(anatomy::describe_outlier).collect::<Vec<_>>(),
        })
    };
    anatomy::records_with_anatomy(document).map(part).collect()
}

/// Returns the row of a stage in the table of a hand-off's stages.
fn stage(stage: &AnatomyStage) -> Json {
    let shown = |ns| match stage.passed > 0.0 {
        true => format::figure(Unit::Ns, ns),
        false => String::new(),
    };
    json!({
        "name": stage.name,
        "what": stage.what,
        "p50": shown(stage.p50_ns),
        "p99": shown(stage.p99_ns),
        "share": format::share(stage.share),
        "passed": format::share(stage.passed),
    })
}

/// Returns the table of every contender's quantiles, by figure, for the template.
fn contenders(document: &Document) -> Vec<Json> {
    let model = Model::new(document, true);
    let row = |record: &&Record| {
        let quantiles = record.summary.quantiles();
        let shown = |of: fn(&Quantiles) -> f64| {
            quantiles.map_or_else(String::new, |it| format::figure(record.unit, of(&it)))
        };
        json!({
            "contender": model.contender_label(record),
            "kind": record.kind.to_string(),
            "min": shown(|it| it.min),
            "p50": shown(|it| it.p50),
            "p90": shown(|it| it.p90),
            "p99": shown(|it| it.p99),
            "p999": shown(|it| it.p999),
            "max": shown(|it| it.max),
            "samples": units::format_count(record.summary.timed_alone_count() as f64),
        })
    };
    let figure = |figure: &model::FigureRows<'_>| {
        let shared = |record: &&Record| {
            format::arguments(record, |name, value| !model.varies(record, name, value))
        };
        json!({
            "id": figure.id,
            "args": figure.rows.first().map(shared).unwrap_or_default(),
            "rows": figure.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    model.groups.iter().flat_map(|group| &group.figures).map(figure).collect()
}

/// Returns names and values of the facts about the run and the machine, for the template.
fn facts(document: &Document) -> Vec<Json> {
    let run = &document.run;
    let mut facts = Vec::new();
    let mut add = |name, value: String| {
        if !value.is_empty() {
            facts.push(json!({ "name": name, "value": value }));
        }
    };
    add("run", run.id.clone());
    add("began", model::format_utc(run.started_unix_ns));
    add("command", command_without_nth(&run.command));
    add("profile", run.profile.clone());
    add(
        "version",
        match run.commit.as_str() {
            "" => run.version.clone(),
            commit => format!("{version}, commit {commit}", version = run.version),
        },
    );
    host_facts(&document.host, &mut add);
    facts
}

/// Calls `add` with the name and value of each fact about the machine.
fn host_facts(host: &Host, add: &mut impl FnMut(&'static str, String)) {
    let optional = |value: &Option<String>| value.clone().unwrap_or_default();
    let count = |count: u32, what: &str| match count {
        0 => String::new(),
        many => format::counted(many as usize, what),
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
            host.cgroup_cpus.map_or(String::new(), |cpus| format!("cgroup limit {cpus:.2} CPUs")),
        ]),
    );
    let caches = host.caches.iter().map(|cache| {
        let size = format::figure(Unit::Bytes, cache.size_bytes as f64);
        let (level, kind) = (cache.level, cache.kind.to_lowercase());
        format!("L{level} {kind} {size}")
    });
    add("caches", caches.collect::<Vec<_>>().join(", "));
    let bytes = |bytes: u64| format::figure(Unit::Bytes, bytes as f64);
    add(
        "memory",
        list(&[
            if host.memory_bytes > 0 { bytes(host.memory_bytes) } else { String::new() },
            host.cgroup_memory_bytes
                .map_or(String::new(), |limit| format!("cgroup limit {size}", size = bytes(limit))),
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
