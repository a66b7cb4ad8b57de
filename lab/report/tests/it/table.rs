//! Terminal table, compared with golden files.

use crate::support::{assert_golden, ladder, record, run};
use handover_record::{
    ContenderKind, Document, FigureMode, HardwareCounts, PeerWithoutRatio, Ratio, Record,
    RoleUsage, Wait, Warning, WarningCode,
};
use handover_report::{Style, render_html, render_markdown, render_row, render_table};
use unicode_width::UnicodeWidthStr;

const PLAIN: Style = Style { color: false, unicode: true, all: false };
const COLOR: Style = Style { color: true, ..PLAIN };
const ASCII: Style = Style { unicode: false, ..PLAIN };
const ALL: Style = Style { all: true, ..PLAIN };

/// Returns the width of the widest line, without escape sequences.
fn widest(text: &str) -> usize {
    text.lines().map(|line| without_color(line).width()).max().unwrap_or(0)
}

fn without_color(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').expect("a whole sequence").1;
    }
    plain + rest
}

#[test]
fn table_of_a_sweep_shows_modes_and_warnings() {
    let point = |threads_count: u32| {
        let mut it = record("lock/contended", "handover", ContenderKind::Ours, 100.0);
        it.args.insert("threads_count".into(), threads_count.into());
        it
    };
    let mut records: Vec<Record> = [1, 2, 4, 8].map(point).into();
    records[1].modes =
        [(0.7, 30.0), (0.3, 200.0)].map(|(share, median)| FigureMode { share, median }).into();
    records[1].warnings =
        vec![Warning { code: WarningCode::Bimodal, text: "two modes of the rounds".into() }];
    let document = Document::new(run(), records);
    let drawn = handover_report::find_sweeps(&document)[0].render_text(140, PLAIN);
    let rows: Vec<&str> = drawn.lines().filter(|it| it.starts_with("handover ")).collect();
    assert!(rows[1].contains("70 % 30.0 ns + 30 % 200 ns"), "{drawn}");
    assert!(rows[1].ends_with(WarningCode::Bimodal.table_letters()), "{drawn}");
    assert!(rows[0].ends_with("0.99"), "{drawn}");
    assert!(drawn.contains("figures with warnings: 1 of 4"), "{drawn}");
}

#[test]
fn ladder_table_equals_the_golden_files() {
    for width in [40, 80, 140, 200] {
        assert_golden(&format!("ladder-{width}.txt"), &render_table(&ladder(), width, PLAIN));
    }
    assert_golden("ladder-80-color.txt", &render_table(&ladder(), 80, COLOR));
    assert_golden("ladder-80-ascii.txt", &render_table(&ladder(), 80, ASCII));
    assert_golden("ladder-100-all.txt", &render_table(&ladder(), 100, ALL));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in 1..=220 {
        for style in [PLAIN, COLOR, ASCII, ALL] {
            let drawn = render_table(&ladder(), width, style);
            assert!(widest(&drawn) <= width, "{width} columns, {style:?}:\n{drawn}");
        }
    }
}

#[test]
fn frequent_page_faults_have_a_column() {
    let with = |minor: f64, major: f64| {
        let mut it = record("bulk/pull", "handover", ContenderKind::Ours, 5e3);
        (it.faults_minor_per_op, it.faults_major_per_s) = (minor, major);
        Document::new(run(), vec![it])
    };
    assert!(!render_table(&with(0.001, 0.001), 200, PLAIN).contains("faults"));
    assert!(render_table(&with(0.25, 0.0), 200, PLAIN).contains("  0.25/op"));
    let drawn = render_table(&with(16.4, 3.0), 200, PLAIN);
    assert!(drawn.contains("faults") && drawn.contains("16/op 3.0/s disk"), "{drawn}");
}

#[test]
fn counts_of_an_operation_have_a_table() {
    let mut counted = record("map/build", "handover", ContenderKind::Ours, 5e3);
    counted.hardware =
        Some(HardwareCounts { instructions: 12_345.6, cycles: 0.25, cache_misses: 0.0 });
    counted.counters.insert("allocations".to_string(), 3.0);
    counted.counters.insert("allocated_bytes".to_string(), 1600.4);
    let other = record("map/find", "handover", ContenderKind::Ours, 5e3);
    let counts_table = |records: &[&Record], width: usize| -> Vec<String> {
        let document = Document::new(run(), records.iter().map(|it| (*it).clone()).collect());
        let drawn = render_table(&document, width, PLAIN);
        let table = drawn.lines().skip_while(|line| !line.starts_with("per operation"));
        let table = table.take_while(|line| !line.is_empty());
        table.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let wide = counts_table(&[&counted, &other], 120);
    assert_eq!(wide.len(), 3, "{wide:?}");
    let columns = "instructions cycles cache misses allocations bytes allocated";
    assert_eq!(wide[0], format!("per operation contender {columns}"));
    assert_eq!(wide[2], "map/build handover 12.3 k 0.25 0 3 1.60 k");
    let narrow = counts_table(&[&counted, &other], 60);
    assert_eq!(narrow[2], "map/build handover 12.3 k 3", "{narrow:?}");
    counted.hardware = None;
    let allocations = counts_table(&[&counted], 120);
    assert_eq!(allocations[2], "map/build handover 3 1.60 k", "{allocations:?}");
    assert!(counts_table(&[&other], 120).is_empty(), "a table without counts");
}

#[test]
fn page_lists_resources_by_role() {
    let mut it = record("rpc/noop", "handover", ContenderKind::Ours, 5e3);
    (it.switches_voluntary_per_op, it.faults_minor_per_op) = (2.0, 0.5);
    let page = |it: &Record| render_html(&Document::new(run(), vec![it.clone()]));
    let text = "0.99 CPUs, 2.0 switches/op, 1.5 involuntary switches/s, 0.50 page faults/op";
    assert!(page(&it).contains(text), "of the process");
    let client = RoleUsage { role: "client".into(), cpus: 0.5, ..RoleUsage::default() };
    let role = RoleUsage::OTHER_THREADS_ROLE.to_string();
    it.roles = vec![client.clone(), RoleUsage { role, delayed: Some(0.3), ..client }];
    let text =
        "client: 0.50 CPUs; other threads: 0.50 CPUs, 0.30 threads waiting for a CPU on average";
    assert!(page(&it).contains(text), "by role");
}

#[test]
fn colour_does_not_change_the_text() {
    for width in [40, 80, 140] {
        let plain = render_table(&ladder(), width, PLAIN);
        assert_eq!(without_color(&render_table(&ladder(), width, COLOR)), plain);
        assert!(!plain.contains('\x1b'));
    }
}

#[test]
fn ascii_table_has_only_ascii() {
    for width in [40, 80, 140] {
        assert!(render_table(&ladder(), width, ASCII).is_ascii());
        assert!(render_row(&ladder().records[0], width, ASCII).is_ascii());
    }
}

#[test]
fn both_modes_are_shown_instead_of_their_average() {
    for width in [40, 80, 140] {
        let drawn = render_table(&ladder(), width, PLAIN);
        let (fast, slow) = match width {
            40 => ("70 % 121 ns", "+ 30 % 4.61 µs"),
            _ => ("121 ns in 70 %", "4.61 µs in 30 %"),
        };
        assert!(drawn.contains(fast) && drawn.contains(slow), "{drawn}");
        assert!(!drawn.contains("5.12 µs"), "{drawn}");
    }
}

#[test]
fn best_peer_is_the_fastest() {
    let drawn = render_table(&ladder(), 140, PLAIN);
    let busy = drawn.lines().find(|line| line.starts_with("lock/busy")).expect("a row");
    assert!(busy.contains("0.76× parking_lot"), "{busy}");
    assert!(!drawn.contains("semaphore"), "peers have no rows of their own");
    assert!(render_table(&ladder(), 140, ALL).contains("semaphore"), "unless asked for");
}

#[test]
fn peer_with_another_waiting_strategy_has_no_ratio() {
    let mut document = ladder();
    let ours = document.records.iter_mut().find(|it| it.id == "lock/busy").expect("a figure");
    ours.waits = Wait::Spin;
    ours.peers.clear();
    ours.peers_without_ratio =
        vec![PeerWithoutRatio { contender: "eventfd".into(), waits: Wait::Sleep, other: 4200.0 }];
    let drawn = render_table(&document, 140, PLAIN);
    let row = drawn.lines().find(|line| line.starts_with("lock/busy")).expect("a row");
    assert!(row.contains("sleeps eventfd 4.20 µs"), "{row}");
    let all = render_table(&document, 160, ALL);
    assert!(all.lines().any(|line| line.contains("waits")) && all.contains("spins"), "{all}");
    let page = render_html(&document);
    assert!(page.contains("<b class=\"\">sleeps</b> <i class=\"under\">eventfd</i>"), "the page");
}

#[test]
fn floor_among_the_contenders_has_its_contender_name() {
    let mut document = ladder();
    let ours = document.records.iter_mut().find(|it| it.id == "lock/busy").expect("a figure");
    let (id, contender) = (ours.id.clone(), "random-walk".to_string());
    ours.floor =
        Some(Ratio { id, contender, other: 1.0, ratio: 1.5, low: Some(1.4), high: Some(1.6) });
    let drawn = render_table(&document, 220, PLAIN);
    let row = drawn.lines().find(|line| line.starts_with("lock/busy")).expect("a row");
    assert!(row.contains("1.50× random-walk"), "{row}");
}

#[test]
fn every_warning_letter_is_in_the_legend() {
    let mut document = ladder();
    for (record, code) in document.records.iter_mut().zip([
        WarningCode::Steal,
        WarningCode::Switches,
        WarningCode::Slowed,
        WarningCode::Bimodal,
        WarningCode::Wide,
        WarningCode::Drift,
        WarningCode::Resolution,
        WarningCode::FloorBeaten,
        WarningCode::Timing,
    ]) {
        let text = format!("because of {code:?}");
        record.warnings = vec![handover_record::Warning { code, text }];
    }
    for width in [40, 80, 140] {
        let drawn = render_table(&document, width, ALL);
        let words = drawn.split_whitespace().collect::<Vec<_>>().join(" ");
        for record in &document.records {
            for warning in &record.warnings {
                let legend = format!("{:<4}", warning.code.table_letters());
                assert!(drawn.lines().any(|line| line.starts_with(&legend)), "{legend}:\n{drawn}");
                assert!(words.contains(&warning.text), "{}:\n{drawn}", warning.text);
            }
        }
    }
}

#[test]
fn figures_off_the_ladder_are_counted_and_shown_with_all() {
    let drawn = render_table(&ladder(), 80, PLAIN);
    assert!(!drawn.contains("notify/busy/spun"));
    assert!(drawn.contains("Figures kept off the ladder: 1"));
    assert!(render_table(&ladder(), 140, ALL).contains("notify/busy/spun"));
    // A run that requested a figure off the ladder shows it.
    let mut asked = ladder();
    asked.records.retain(|it| it.id == "notify/busy/spun");
    assert!(render_table(&asked, 80, PLAIN).contains("notify/busy/spun"));
}

#[test]
fn unfinished_or_empty_run_is_marked() {
    let mut empty = Document::new(run(), vec![]);
    empty.run.complete = false;
    let drawn = render_table(&empty, 80, PLAIN);
    assert!(drawn.contains("not finished") && drawn.contains("No figure was recorded."), "{drawn}");
}

#[test]
fn row_is_one_line_within_the_width() {
    let document = ladder();
    let busy = document.records.iter().find(|it| it.id == "lock/busy").expect("a record");
    assert_eq!(
        render_row(busy, 120, PLAIN),
        "lock/busy  handover  0.71 ns ±0.4 %  p99 0.86 ns  rate 1.41 G/s  0.017× floor/cache-line  \
         0.76× parking_lot  CPUs 0.99\n"
    );
    for width in 1..150 {
        let drawn = render_row(busy, width, COLOR);
        assert!(drawn.lines().count() == 1 && widest(&drawn) <= width);
    }
}

#[test]
fn control_characters_are_escaped_in_the_table() {
    let mut document = ladder();
    document.host.name = "a\x1b]0;gotcha\x07\x1b[2J".into();
    document.records[0].what = "what\r\n\x1b[31m".into();
    document.records[0].id = "floor/\u{202e}evil\n".into();
    document.records[0].contender = "\x08\x08".into();
    for style in [PLAIN, ALL] {
        let drawn = render_table(&document, 200, style);
        assert!(!drawn.chars().any(|char| char.is_control() && char != '\n'), "{drawn:?}");
        assert!(!drawn.contains('\u{202e}'));
    }
}

#[test]
fn figures_without_floor_or_peer_or_finite_value_are_shown() {
    let mut odd = Vec::new();
    for (place, median) in [0.0, 1e12, 1e300, f64::NAN, f64::INFINITY, -1.0].into_iter().enumerate()
    {
        let mut one = record(&format!("odd/{place}"), "x", ContenderKind::Ours, median);
        one.modes = vec![FigureMode { share: 0.5, median }, FigureMode { share: 0.5, median }];
        odd.push(one.clone());
        one.modes.clear();
        odd.push(one);
    }
    for width in [1, 40, 80, 140] {
        let drawn = render_table(&Document::new(run(), odd.clone()), width, PLAIN);
        assert!(widest(&drawn) <= width);
    }
}

#[test]
fn rows_of_one_figure_are_distinct_at_any_width() {
    let records = ["handover", "handover-later", "handover-mpsc"]
        .map(|contender| record("ring/stream", contender, ContenderKind::Ours, 4.5));
    let document = Document::new(run(), records.to_vec());
    for width in [40, 60, 80, 100, 140] {
        let drawn = render_table(&document, width, PLAIN);
        for contender in ["handover-later", "handover-mpsc"] {
            assert!(drawn.contains(contender), "{width} columns:\n{drawn}");
        }
    }
}

#[test]
fn rows_of_a_sweep_show_their_value_at_any_width() {
    let with = |slots: u64| {
        let mut record = record("ring/stream", "handover", ContenderKind::Ours, slots as f64);
        record.args.extend([("slots".to_string(), slots), ("bytes".to_string(), 64)]);
        record.warnings.push(Warning { code: WarningCode::Drift, text: "it drifts".into() });
        record
    };
    let document = Document::new(run(), [16, 256].map(with).to_vec());
    for width in [30, 40, 60, 80, 100, 140] {
        let drawn = render_table(&document, width, PLAIN);
        assert!(drawn.contains("slots=16") && drawn.contains("slots=256"), "{width}:\n{drawn}");
        assert!(!drawn.contains("bytes=64"), "all have that:\n{drawn}");
    }
    assert!(
        render_table(&document, 140, PLAIN)
            .contains("ring/stream [handover, slots=256]: it drifts")
    );
    assert!(render_markdown(&document, true).contains("| handover, slots=256 |"));
    let page = render_html(&document);
    assert!(page.contains("handover, slots=256") && page.contains(">bytes=64"), "{page}");
    // Arguments that do not vary are not shown.
    assert!(!render_table(&Document::new(run(), vec![with(16)]), 140, PLAIN).contains("slots"));
}

#[test]
fn ratio_within_the_resolution_has_no_colour() {
    let colours = |low: f64, high: f64, null_one| {
        let mut document = ladder();
        document.run.null_one = null_one;
        let record = &mut document.records[0];
        record.participants.cpus = vec![0];
        record.peers = vec![Ratio {
            id: record.id.clone(),
            contender: "rival".into(),
            other: 1.0,
            ratio: 1.04,
            low: Some(low),
            high: Some(high),
        }];
        let drawn = render_table(&document, 140, COLOR);
        let at = drawn.find("1.04×").expect("the ratio");
        let before = &drawn[..at];
        before[before.rfind("\x1b[").expect("a colour") + 2..].to_owned()
    };
    let plain = colours(0.9, 1.1, None);
    assert_ne!(colours(1.01, 1.07, None), plain);
    assert_ne!(colours(1.01, 1.07, Some(0.008)), plain);
    assert_eq!(colours(1.01, 1.07, Some(0.012)), plain);
}
