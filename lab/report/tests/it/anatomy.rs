//! Anatomy of a hand-off: chart, lines, and its repetition in the table and the page.

use crate::support::{record, run};
use handover_record::{
    Anatomy, AnatomyBand, AnatomyFloor, AnatomyOutlier, AnatomyStage, ContenderKind, Document,
    OffCpuVerdict, Record, UnmatchedCounts,
};
use handover_report::{Style, anatomy_chart, render_anatomy, render_html, render_table};

const LINE: &str = "handle 20 + floor 30 + notice 35 + wake 0 = 85 ns";

fn stage(name: &str, mean_ns: f64, has_floor: bool) -> AnatomyStage {
    AnatomyStage {
        name: name.into(),
        what: format!("from before <{name}> to after it"),
        passed: if mean_ns > 0.0 { 1.0 } else { 0.0 },
        p50_ns: mean_ns,
        p99_ns: mean_ns * 3.0,
        mean_ns,
        share: mean_ns / 85.0,
        crosses_threads: has_floor,
        has_floor,
    }
}

fn with_anatomy() -> Record {
    let band = |name: &str, times: f64| AnatomyBand {
        name: name.into(),
        handoffs_count: 1000,
        stages_ns: vec![20.0 * times, 65.0 * times, 0.0],
    };
    let outlier = AnatomyOutlier {
        total_ns: 9_000.0,
        stages_ns: vec![20.0, 8_980.0, 0.0],
        slow_stage: "notice".into(),
        excess_ns: 8_915.0,
        off_cpu: OffCpuVerdict::Likely,
        off_cpu_ns: None,
        run_delay_ns: 8_000,
        switches_involuntary: 1,
        file: "slow/event-round-trip-1.trace".into(),
        begin_ns: 5,
        from_tid: 11,
        to_tid: 12,
    };
    let mut record = record("event/round-trip", "handover", ContenderKind::Ours, 170.0);
    record.anatomy = Some(Box::new(Anatomy {
        line: LINE.into(),
        stages: vec![
            stage("handle", 20.0, false),
            stage("notice", 65.0, true),
            stage("wake", 0.0, false),
        ],
        total: stage("in all", 85.0, true),
        bands: vec![band("middle half", 1.0), band("90 to 99 %", 2.0), band("slowest 1 %", 50.0)],
        floor: Some(AnatomyFloor { id: "floor/cache-line".into(), figure_ns: 60.0, handoffs: 2.0 }),
        handoffs_count: 4000,
        rounds_count: 7,
        unmatched: UnmatchedCounts {
            mismatched: 3,
            received_early: 2,
            ..UnmatchedCounts::default()
        },
        site_ns: [7.0, 8.0, 9.0],
        is_site_cost_subtracted: false,
        clock_step_ns: 10.0,
        off_ns: Some(85.0),
        on_ns: Some(99.0),
        outliers: vec![outlier],
    }));
    record
}

#[test]
fn lines_contain_each_stage_the_sum_and_the_slowest_hand_offs() {
    for width in [40, 80, 200] {
        let text =
            render_anatomy(&with_anatomy(), width, Style { unicode: true, ..Style::default() });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "handle",
            "notice",
            "wake",
            "in all",
            LINE,
            "3 with contradictory events",
            "2 received before",
            "off the CPU",
            "slow/event-round-trip-1.trace",
        ] {
            assert!(joined.contains(words), "{words:?} at {width}: {text}");
        }
    }
    let mut running = with_anatomy();
    let anatomy = running.anatomy.as_mut().expect("an anatomy");
    anatomy.unmatched.lost = 4000;
    let outlier = &mut anatomy.outliers[0];
    (outlier.off_cpu, outlier.off_cpu_ns) = (OffCpuVerdict::No, Some(46_800));
    let text = render_anatomy(&running, 400, Style { unicode: true, ..Style::default() });
    assert!(text.contains("on the CPU but for 46.8 µs of the hand-off"), "{text}");
    assert!(text.contains("Uncertain: so many hand-offs were left out"), "{text}");
    let bare = record("event/round-trip", "handover", ContenderKind::Ours, 170.0);
    assert_eq!(render_anatomy(&bare, 80, Style::default()), "");
    assert!(anatomy_chart(&bare, 400.0).is_none());
}

#[test]
fn stages_are_stacked_and_a_much_longer_band_is_only_in_the_table() {
    let drawn = anatomy_chart(&with_anatomy(), 960.0).expect("a chart").to_standalone_svg();
    let chart = roxmltree::Document::parse(&drawn).expect("well-formed");
    let texts: Vec<&str> = chart.descendants().filter_map(|node| node.text()).collect();
    for words in ["handle", "floor", "notice", "middle half", "90 to 99 %"] {
        assert!(texts.contains(&words), "{words:?} in {texts:?}");
    }
    assert!(!texts.contains(&"slowest 1 %"), "fifty times as long as the rest");
    assert!(!texts.contains(&"wake"), "nobody slept");
}

#[test]
fn table_and_page_contain_the_line() {
    let document = Document::new(run(), vec![with_anatomy()]);
    let text = render_table(&document, 120, Style::default());
    assert!(text.contains(LINE), "{text}");
    let page = render_html(&document);
    assert!(page.contains(LINE) && page.contains("from before &lt;handle&gt;"), "{page}");
}

#[test]
fn anatomy_is_serialised_and_omitted_if_missing() {
    let record = with_anatomy();
    let text = serde_json::to_string(&record).expect("JSON");
    assert_eq!(serde_json::from_str::<Record>(&text).expect("a record"), record);
    let bare = Record { anatomy: None, ..record };
    let text = serde_json::to_string(&bare).expect("JSON");
    assert!(!text.contains("anatomy"), "the field is omitted");
    assert_eq!(serde_json::from_str::<Record>(&text).expect("a record"), bare);
}
