//! Page and charts: golden files, and parsing as XML.

use crate::support::{assert_golden, ladder as a_run, record, run};
use handover_record::{ContenderKind, Document, FigureMode, Record, Unit, Warning, WarningCode};
use handover_report::{
    NamedRun, Style, ladder_chart, render_html, render_html_with_other_runs, render_row,
    render_table,
};
use proptest::prelude::*;

/// Parses the page as a tree. It is XML except for constructs that only HTML allows.
fn parse(page: &str) -> roxmltree::Document<'_> {
    roxmltree::Document::parse(page).expect("well-formed XML")
}

/// Returns the page with its void elements closed, for a strict parser.
fn as_xml(page: &str) -> String {
    let page = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    // The program's own script is not XML; the data beside it must be, whatever they contain.
    let (page, script) = match page.split_once("\n<script>\n") {
        Some((before, after)) => (before, after.split_once("</script>").expect("its end")),
        None => (page, ("", "")),
    };
    assert!(!script.0.contains("<script") && !script.0.contains("<!--"));
    format!("{page}{}", script.1)
        .replace("<br>", "<br/>")
        .replace("<meta charset=\"utf-8\">", "")
        .lines()
        .map(|line| {
            if line.starts_with("<meta ") {
                format!("{}/>\n", &line[..line.len() - 1])
            } else {
                format!("{line}\n")
            }
        })
        .collect()
}

/// Returns the part of the page that depends on the run; style and script are copies of files in
/// templates/.
fn without_own_style_and_script(page: &str) -> String {
    let without = |page: &str, open: &str, close: &str| {
        let (before, rest) = page.split_once(open).expect("its begin");
        let (_, after) = rest.split_once(close).expect("its end");
        format!("{before}{open}{close}{after}")
    };
    let page = without(page, "<style>\n", "</style>");
    without(&page, "<script>\n", "</script>")
}

#[test]
fn page_equals_the_golden_file() {
    assert_golden("report.html", &without_own_style_and_script(&render_html(&a_run())));
    assert_golden("ladder.svg", &ladder_chart(&a_run(), 1080.0).to_standalone_svg());
    assert_golden("ladder-narrow.svg", &ladder_chart(&a_run(), 380.0).to_standalone_svg());
}

#[test]
fn page_loads_no_other_resources() {
    let page = render_html(&a_run());
    let xml = as_xml(&page);
    let tree = parse(&xml);
    for node in tree.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        assert!(
            !["link", "img", "iframe", "object", "embed", "form", "base"].contains(&name),
            "<{name}>"
        );
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(
                !name.starts_with("on") && !["href", "src", "srcset"].contains(&name),
                "{name}"
            );
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    assert!(page.contains("default-src 'none'"), "and a browser is told so");
    for network in ["fetch(", "XMLHttpRequest", "import(", "WebSocket", "sendBeacon", "innerHTML"] {
        assert!(!page.contains(network), "{network}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
}

#[test]
fn text_is_escaped_in_the_page() {
    let evil = "</script></style></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{%x%}&#x3c;\0\u{202e}";
    let calm = render_html(&a_run());
    let mut document = a_run();
    let spread = |text: &mut String| *text = format!("{text}{evil}");
    spread(&mut document.run.id);
    spread(&mut document.run.version);
    spread(&mut document.run.commit);
    spread(&mut document.run.command);
    spread(&mut document.run.profile);
    for text in [
        &mut document.host.name,
        &mut document.host.cpu_model,
        &mut document.host.kernel,
        &mut document.host.clock,
        &mut document.host.clock_source,
    ] {
        spread(text);
    }
    document.host.hypervisor = Some(evil.into());
    document.host.governor = Some(evil.into());
    document.host.mitigations = vec![evil.into()];
    document.host.isolation = vec![evil.into()];
    for record in &mut document.records {
        for text in [&mut record.id, &mut record.contender, &mut record.what] {
            spread(text);
        }
        record.participants.roles = vec![evil.into(), evil.into()];
        record.participants.cpus = vec![0, 1];
        record.args = [(evil.to_string(), 1)].into();
        record.warnings.iter_mut().for_each(|warning| spread(&mut warning.text));
        record.floor.iter_mut().for_each(|floor| spread(&mut floor.id));
        record.peers.iter_mut().for_each(|peer| spread(&mut peer.contender));
    }
    let page = render_html(&document);
    assert_eq!(page.matches("<script").count(), calm.matches("<script").count());
    assert!(!page.contains("<img") && !page.contains(['\0', '\u{202e}']));
    assert!(page.contains("{{7*7}}{%x%}"), "a template's marks in data are text");
    let elements = |page: &str| {
        let xml = as_xml(page);
        let tree = parse(&xml);
        let names = tree.descendants().filter(|node| node.is_element());
        names.map(|node| node.tag_name().name().to_string()).collect::<Vec<_>>()
    };
    let allowed: std::collections::BTreeSet<String> = elements(&calm).into_iter().collect();
    assert!(elements(&page).iter().all(|name| allowed.contains(name)));
    parse(&ladder_chart(&document, 400.0).to_standalone_svg());
}

/// Maximum number of rungs of a ladder.
const RUNGS_MAX: usize = 30;

#[test]
fn page_of_a_full_run_is_smaller_than_450_kb() {
    let base = a_run();
    let mut records = Vec::new();
    // As many distinct values as a benchmark's run has.
    let mut samples = hdrhistogram::Histogram::<u64>::new(3).expect("digits");
    (1..20_000_u64).for_each(|at| samples.record(50_000 + at * at % 700_001).expect("room"));
    for copy in 0..10 {
        for record in &base.records {
            let mut record = record.clone();
            record.id = format!("{}-{copy}", record.id);
            record.ladder = records.len() < RUNGS_MAX;
            record.histogram = packed(&samples);
            records.push(record);
        }
    }
    let document = Document::new(run(), records);
    let page = render_html(&document);
    assert!(page.len() < 450_000, "{} bytes for {}", page.len(), document.records.len());
}

/// Returns the data for the page's script.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    serde_json::from_str(rest.split_once("</script>").expect("their end").0).expect("JSON")
}

#[test]
fn row_refers_to_its_contenders_and_all_their_samples() {
    let mut document = a_run();
    let mut samples = hdrhistogram::Histogram::<u64>::new(3).expect("digits");
    samples.record_n(121_000, 700).expect("room");
    samples.record_n(4_610_000, 300).expect("room");
    for record in &mut document.records {
        record.histogram = packed(&samples);
    }
    let page = render_html(&document);
    let data = data(&page);
    let rows: Vec<_> = page.split("data-figure=\"").skip(1).collect();
    let on_ladder = document.records.iter().filter(|it| it.ladder);
    assert!(rows.len() > 5 && rows.len() <= on_ladder.count());
    for row in rows {
        let mut numbers = row.split('"').step_by(2).map(|it| it.parse::<usize>());
        let (Some(Ok(figure)), Some(Ok(contender))) = (numbers.next(), numbers.next()) else {
            panic!("no place: {}", &row[..40]);
        };
        let figure = &data["figures"][figure];
        let id = figure["id"].as_str().expect("an id");
        assert!(row.contains(&format!("<code>{id}</code>")));
        let contender = &figure["rows"][contender];
        assert!(contender["name"].is_string(), "{id}");
        let quantiles = contender["quantiles"].as_array().expect("numbers");
        assert_eq!(quantiles.len(), data["quantiles"].as_array().expect("numbers").len());
        for (at, expected) in [(0, 121.0), (18, 4610.0)] {
            let text = quantiles[at].as_f64().expect("a number");
            assert!((text / expected - 1.0).abs() < 0.001, "{id}: {text}");
        }
        let bars = contender["bars"].as_array().expect("numbers");
        let bars: Vec<_> = bars.iter().filter_map(|it| it.as_u64()).filter(|&it| it > 0).collect();
        assert_eq!((&bars[..], &contender["peak"]), (&[1000, 429][..], &0.7.into()), "{id}");
    }
}

#[test]
fn row_lists_the_number_of_operations_timed_alone_beside_their_quantiles() {
    let mut it = record("lock/free", "handover", ContenderKind::Ours, 20.0);
    (it.summary.samples, it.summary.single_ops) = (3480, 868);
    let page = render_html(&Document::new(run(), vec![it]));
    assert!(page.contains(">868<") && !page.contains("3.48 k"));
}

#[test]
fn figures_of_different_placement_are_not_compared() {
    let placed = |placement: &str, median: f64| {
        let mut it = record("ring/round-trip", "handover", ContenderKind::Ours, median);
        it.participants.placement = placement.into();
        NamedRun { name: format!("run-{placement}"), document: Document::new(run(), vec![it]) }
    };
    let ratio = "5.18×";
    let page = render_html_with_other_runs(&placed("near", 818.0), &[placed("near", 4237.0)]);
    assert!(page.contains(ratio));
    let page = render_html_with_other_runs(&placed("near", 818.0), &[placed("same", 4237.0)]);
    assert!(!page.contains(ratio) && !page.contains("4.24 µs"));
    let mut singly = placed("near", 4237.0);
    singly.document.records[0].summary.batch = 1;
    let page = render_html_with_other_runs(&placed("near", 818.0), &[singly]);
    assert!(!page.contains(ratio), "operations timed singly are compared with batches");
}

#[test]
fn figure_with_two_modes_has_no_average_in_the_panel_or_beside_other_runs() {
    let mut it = record("lock/busy", "handover", ContenderKind::Ours, 777.0);
    let mode = |share, median| FigureMode { share, median };
    it.modes = vec![mode(0.7, 121.0), mode(0.3, 4612.0)];
    let document = Document::new(run(), vec![it]);
    let named = NamedRun { name: "other".to_string(), document };
    let page = render_html_with_other_runs(&named, std::slice::from_ref(&named));
    let modes = "121 ns in 70 %, 4.61 µs in 30 %";
    assert_eq!(data(&page)["figures"][0]["rows"][0]["modes"], modes);
    let (_, beside) = page.split_once("id=\"beside\"").expect("other runs");
    let (beside, _) = beside.split_once("</section>").expect("its end");
    assert_eq!(beside.matches(modes).count(), 2, "{beside}");
    assert!(!beside.contains("777") && !beside.contains("1.00×"), "{beside}");
}

#[test]
fn idle_gap_of_batches_is_before_each_batch() {
    let mut it = record("event/serve", "handover", ContenderKind::Ours, 20.0);
    it.participants.idle_gap_ns = 1_000_000;
    let page_of = |it: &Record| render_html(&Document::new(run(), vec![it.clone()]));
    assert!(page_of(&it).contains("idle gap 1.00 ms before each batch"));
    it.summary.batch = 1;
    assert!(!page_of(&it).contains("before each batch"));
}

#[test]
fn unreadable_samples_do_not_change_the_page() {
    let mut document = a_run();
    for (record, rubbish) in
        document.records.iter_mut().zip(["", "####", "AAAA", "HISTFAAA"].iter().cycle())
    {
        record.histogram = (*rubbish).to_owned();
    }
    let data = data(&render_html(&document));
    assert_eq!(data["figures"][0]["rows"][0]["bars"], serde_json::json!([]));
}

fn packed(samples: &hdrhistogram::Histogram<u64>) -> String {
    use base64::Engine;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(samples, &mut bytes).expect("memory");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn page_has_every_figure_of_the_table() {
    let page = render_html(&a_run());
    for row in a_run().records.iter().filter(|it| it.ladder) {
        assert!(page.contains(&format!("<code>{}</code>", row.id)), "{}", row.id);
    }
    for text in ["121 ns", "in 70 %", "4.61 µs", "in 30 %", "0.6 % (one CPU), 3.4 % (across CPUs)"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn missing_parts_of_a_run_are_reported_or_omitted() {
    let mut empty = Document::new(run(), vec![]);
    empty.run.complete = false;
    let page = render_html(&empty);
    assert!(page.contains("No figure was recorded.") && page.contains("This run was interrupted."));
    let mut smoke = a_run();
    for record in &mut smoke.records {
        record.warnings = vec![Warning { code: WarningCode::Smoke, text: "smoke".into() }];
    }
    assert!(render_html(&smoke).contains("Nothing on this page is a measurement"));
    let mut bytes = a_run();
    bytes.records.iter_mut().for_each(|record| record.unit = Unit::Bytes);
    assert!(!render_html(&bytes).contains("<svg"), "a ladder is of times");
}

fn any_figure() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(1e12),
        Just(f64::MIN_POSITIVE),
        Just(f64::NAN),
        Just(f64::INFINITY),
        any::<f64>(),
        0.1..1e6_f64,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_record_is_rendered(
        id in "\\PC{0,12}(/\\PC{0,12})?",
        contender in any::<String>(),
        kind in 0..4_u8,
        unit in 0..3_u8,
        figures in prop::collection::vec(any_figure(), 16),
        modes_count in 0..4_usize,
        with_floor in any::<bool>(),
        started in any::<i64>(),
        width in 0..160_usize,
    ) {
        let kinds =
            [ContenderKind::Ours, ContenderKind::Peer, ContenderKind::Floor, ContenderKind::Null];
        let mut one = record(&id, &contender, kinds[usize::from(kind)], figures[0]);
        one.unit = [Unit::Ns, Unit::Bytes, Unit::Count][usize::from(unit)];
        let summary = &mut one.summary;
        (summary.low, summary.high, summary.p99, summary.max) =
            (Some(figures[1]), Some(figures[2]), Some(figures[3]), Some(figures[4]));
        one.rate_per_s = figures[5];
        one.cpus_user = figures[6];
        one.bytes_per_s = with_floor.then_some(figures[7]);
        one.modes = vec![FigureMode { share: figures[8], median: figures[9] }; modes_count];
        let ratio = handover_record::Ratio {
            id: id.clone(),
            contender: contender.clone(),
            other: figures[10],
            ratio: figures[11],
            low: Some(figures[12]),
            high: Some(figures[13]),
        };
        one.floor = with_floor.then(|| ratio.clone());
        one.peers = vec![ratio; usize::from(!with_floor)];
        let mut run = run();
        run.started_unix_ns = started;
        run.null_one = Some(figures[14]);
        let document = Document::new(run, vec![one.clone(), one.clone()]);
        let style = Style { unicode: true, ..Style::default() };
        for line in render_table(&document, width, style).lines() {
            prop_assert!(unicode_width::UnicodeWidthStr::width(line) <= width, "{line:?}");
        }
        prop_assert_eq!(render_row(&one, width, style).lines().count(), 1);
        let page = as_xml(&render_html(&document));
        prop_assert!(roxmltree::Document::parse(&page).is_ok());
        let chart = ladder_chart(&document, width as f64).to_standalone_svg();
        let chart = roxmltree::Document::parse(&chart).expect("well-formed XML");
        for attribute in chart.descendants().flat_map(|node| node.attributes()) {
            let number = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"];
            if number.contains(&attribute.name()) {
                let value: f64 = attribute.value().parse().expect("a number");
                prop_assert!(value.is_finite(), "{} is {value}", attribute.name());
            }
        }
    }
}
