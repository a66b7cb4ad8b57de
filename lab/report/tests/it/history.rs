//! History of a figure, compared with golden files.

use crate::support::assert_golden;
use handover_record::Unit;
use handover_report::Style;
use handover_report::history::{History, RunFigure};

const PLAIN: Style = Style { color: false, unicode: true, all: false };

/// Returns runs one hour apart: 20 at 50 ns, 15 at 55 ns, 10 at 49 ns, each with a small deviation.
fn dots() -> Vec<RunFigure> {
    let level = |place: usize| match place {
        0..20 => 50.0,
        20..35 => 55.0,
        _ => 49.0,
    };
    let dot = |place: usize| {
        let median = level(place) * (1.0 + ((place * 7919) % 13) as f64 / 1300.0);
        RunFigure {
            run: format!("run-{place}"),
            started_unix_ns: 1_795_296_600_000_000_000 + place as i64 * 3_600_000_000_000,
            build: format!("0.1.0 ({place:07x})"),
            names: if place == 20 { vec!["release/1.2".into()] } else { Vec::new() },
            median,
            low: Some(median * 0.99),
            high: Some(median * 1.01),
        }
    };
    (0..45).map(dot).collect()
}

#[test]
fn history_lists_levels_with_their_first_runs() {
    let history = History::new("lock/free", "handover", Unit::Ns, dots(), 2);
    let starts: Vec<usize> = history.segments.iter().map(|segment| segment.from).collect();
    assert_eq!(starts, [0, 20, 35]);
    let ratio = history.segments[1].ratio.expect("a ratio");
    assert!((ratio - 1.1).abs() < 0.01, "{ratio}");
    assert_golden("history-100.txt", &history.render_text(100, PLAIN));
    assert!(history.render_text(100, Style { unicode: false, ..PLAIN }).is_ascii());
    for width in 1..=120 {
        let drawn = history.render_text(width, PLAIN);
        assert!(drawn.lines().all(|line| line.chars().count() <= width), "{width}:\n{drawn}");
    }
}

#[test]
fn history_chart_is_valid_xml_with_escaped_text() {
    let mut dots = dots();
    dots[3].build = "</script><b>".into();
    let drawn = History::new("lock/free", "</svg>", Unit::Ns, dots, 0).chart().to_standalone_svg();
    let tree = roxmltree::Document::parse(&drawn).expect("sound XML");
    assert_eq!(tree.root_element().tag_name().name(), "svg");
    assert!(!drawn.contains("</script>") && drawn.contains("2 changes."));
    let labels: Vec<&str> = tree.descendants().filter_map(|node| node.text()).collect();
    for label in ["2026-11-21", "2026-11-22 release/1.2", "2026-11-23"] {
        assert!(labels.contains(&label), "{label}: {labels:?}");
    }
}

#[test]
fn history_of_one_run_or_none_is_valid() {
    for count in [0, 1, 4] {
        let history = History::new("a/b", "x", Unit::Count, dots()[..count].to_vec(), 0);
        assert!(history.segments.len() <= 1);
        let drawn = history.render_text(80, PLAIN);
        assert!(drawn.contains("A change can be found with at least 10 runs"), "{drawn}");
        roxmltree::Document::parse(&history.chart().to_standalone_svg()).expect("sound XML");
    }
}
