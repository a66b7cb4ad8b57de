//! Chart writer: golden files, well-formedness and determinism.

use crate::support::assert_golden;
use handover_report::svg::{
    Axis, AxisName, CHART_STYLE_SHEET, Chart, Mark, Point, Quantity, Series, SeriesRole,
};

fn names(labels: &[&str]) -> Vec<AxisName> {
    let name = |(place, label): (usize, &&str)| AxisName {
        label: (*label).into(),
        note: format!("{place}"),
        opens_group: place == 2,
    };
    labels.iter().enumerate().map(name).collect()
}

/// Rate by load: lines with intervals on two logarithmic axes.
fn sweep() -> Chart {
    let line = |scale: f64| -> Vec<Point> {
        (0..7)
            .map(|step| {
                let (load, cost) = (10_f64.powi(step), scale * (1.0 + f64::from(step).powi(3)));
                Point::new(load, cost)
                    .with_span(cost * 0.9, cost * 1.15)
                    .with_tooltip(format!("{cost:.0} ns"))
            })
            .collect()
    };
    let (x, y) = (Axis::log("offered", Quantity::PerSecond), Axis::log("latency", Quantity::Nanos));
    Chart::new("Latency by load", x, y)
        .with_description("Both rise with the load; ours less.")
        .with_size_px(640.0, 320.0)
        .with_series(Series::new("handover", SeriesRole::Nth(0), Mark::Line, line(80.0)))
        .with_series(Series::new("eventfd", SeriesRole::Nth(1), Mark::Line, line(410.0)))
}

/// Stages of hand-offs as horizontal stacked bars.
fn stages() -> Chart {
    let stage = |name: &str, place: u8, sizes: [f64; 3]| {
        let bars = sizes.iter().zip([0.0, 1.0, 2.0]).map(|(size, row)| Point::new(*size, row));
        Series::new(name, SeriesRole::Nth(place), Mark::Stacked, bars.collect())
    };
    let time = Axis::linear("time", Quantity::Nanos);
    Chart::new(
        "Anatomy",
        time,
        Axis::with_names(names(&["busy", "asleep, on the other package", "one CPU"])),
    )
    .with_size_px(640.0, 0.0)
    .with_series(stage("floor", 0, [120.0, 2300.0, 900.0]))
    .with_series(stage("wake", 1, [0.0, 1800.0, 2100.0]))
    .with_series(stage("dispatch", 2, [40.0, 60.0, 45.0]))
}

/// Histogram: vertical bars on an axis of names.
fn histogram() -> Chart {
    let counts = [3.0, 120.0, 940.0, 310.0, 22.0];
    let bars = counts.iter().zip(0..).map(|(count, place)| Point::new(f64::from(place), *count));
    let x = Axis::with_names(names(&[
        "1 ns",
        "2 ns",
        "4 ns",
        "8 ns",
        "a longer name than there is room for",
    ]));
    Chart::new("Distribution", x, Axis::linear("samples", Quantity::Count))
        .with_size_px(420.0, 240.0)
        .with_series(Series::new("", SeriesRole::Ours, Mark::Bar, bars.collect()))
}

#[test]
fn charts_equal_the_golden_files() {
    assert_golden("chart-lines.svg", &sweep().to_standalone_svg());
    assert_golden("chart-stacked.svg", &stages().to_standalone_svg());
    assert_golden("chart-bars.svg", &histogram().to_standalone_svg());
}

#[test]
fn chart_has_a_description_for_screen_readers() {
    let text = sweep().to_svg();
    let tree = roxmltree::Document::parse(&text).expect("well-formed XML");
    let root = tree.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    assert_eq!(root.attribute("aria-label"), Some("Latency by load"));
    let child = |name: &str| {
        root.children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name)))
    };
    assert_eq!(child("title").and_then(|node| node.text()), Some("Latency by load"));
    assert_eq!(
        child("desc").and_then(|node| node.text()),
        Some("Both rise with the load; ours less.")
    );
}

#[test]
fn chart_has_no_colours_outside_the_style_sheet() {
    for chart in [sweep(), stages(), histogram()] {
        let drawn = chart.to_svg();
        assert!(!drawn.contains('#') && !drawn.contains("style="), "{drawn}");
        assert!(chart.to_standalone_svg().contains(CHART_STYLE_SHEET));
    }
    assert!(CHART_STYLE_SHEET.contains("prefers-color-scheme: dark"));
}

#[test]
fn stacked_bars_are_adjacent() {
    let drawn = stages().to_svg();
    let tree = roxmltree::Document::parse(&drawn).expect("well-formed XML");
    let number = |node: roxmltree::Node<'_, '_>, name: &str| -> f64 {
        node.attribute(name).and_then(|text| text.parse().ok()).expect("a number")
    };
    let legend_px = 10.0;
    let bars: Vec<_> = tree
        .descendants()
        .filter(|node| node.attribute("class") == Some("bar"))
        .filter(|node| number(*node, "height") > legend_px)
        .map(|node| (number(node, "y"), number(node, "x"), number(node, "width")))
        .collect();
    assert_eq!(bars.len(), 9);
    for row in 0..3 {
        let (floor, wake, dispatch) = (bars[row], bars[3 + row], bars[6 + row]);
        assert!((floor.1 + floor.2 - wake.1).abs() < 0.2, "{floor:?} {wake:?}");
        assert!((wake.1 + wake.2 - dispatch.1).abs() < 0.2, "{wake:?} {dispatch:?}");
    }
}

#[test]
fn text_is_escaped() {
    let evil = "]]></svg><script>\"'&\u{1}";
    let name = AxisName { label: evil.into(), note: evil.into(), opens_group: true };
    let axis = Axis::linear(evil, Quantity::Share);
    let points = vec![Point::new(0.5, 0.0).with_tooltip(evil)];
    let chart = Chart::new(evil, axis, Axis::with_names(vec![name]))
        .with_description(evil)
        .with_series(Series::new(evil, SeriesRole::Floor, Mark::Diamond, points));
    let drawn = chart.to_standalone_svg();
    let tree = roxmltree::Document::parse(&drawn).expect("well-formed XML");
    assert!(!tree.descendants().any(|node| node.tag_name().name() == "script"));
}

#[test]
fn empty_chart_has_no_marks() {
    for axis in [
        Axis::linear("", Quantity::Bytes),
        Axis::log("", Quantity::Bytes),
        Axis::with_names(vec![]),
    ] {
        for other in [
            Axis::linear("", Quantity::Count),
            Axis::log("", Quantity::Count),
            Axis::with_names(vec![]),
        ] {
            for mark in [Mark::Dot, Mark::Line, Mark::Bar, Mark::Stacked, Mark::Span] {
                for points in [vec![], vec![Point::new(f64::NAN, 1.0)], vec![Point::new(5.0, -5.0)]]
                {
                    let series = Series::new("x", SeriesRole::Peer, mark, points);
                    let drawn =
                        Chart::new("", axis.clone(), other.clone()).with_series(series).to_svg();
                    roxmltree::Document::parse(&drawn).expect("well-formed XML");
                }
            }
        }
    }
}
