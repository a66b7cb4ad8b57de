use super::*;
use handover_record::{Participants, Ratio, Summary, Wait, Warning, WarningCode};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

const SPECS: [&str; 3] = ["clock/now", "lock/busy", "ring/slots"];
const TIME: Duration = Duration::from_secs(80);

fn ladder(has_unicode: bool) -> LadderView {
    let mut ladder = LadderView::with_specs(&SPECS, "quick", 2, Some(TIME), None, has_unicode);
    ladder.has_keys = true;
    ladder
}

fn record(spec: &str, median: f64) -> Record {
    Record {
        id: spec.into(),
        spec: spec.into(),
        contender: "handover".into(),
        kind: ContenderKind::Ours,
        waits: Wait::None,
        allocates: false,
        what: String::new(),
        unit: Unit::Ns,
        ladder: true,
        args: BTreeMap::new(),
        participants: Participants::default(),
        started_unix_ns: 0,
        summary: Summary {
            median,
            low: Some(median * 0.99),
            high: Some(median * 1.01),
            min: Some(median),
            p50: Some(median),
            p90: Some(median),
            p99: Some(median * 10.0),
            p999: Some(median * 10.0),
            max: Some(median * 10.0),
            ..Summary::default()
        },
        rate_per_s: 1e9 / median,
        bytes_per_s: None,
        cpus_user: 1.0,
        cpus_system: 0.0,
        switches_voluntary_per_op: 0.0,
        switches_involuntary_per_s: 0.0,
        faults_minor_per_op: 0.0,
        faults_major_per_s: 0.0,
        roles: Vec::new(),
        empty: None,
        floor: None,
        peers: Vec::new(),
        peers_without_ratio: Vec::new(),
        modes: Vec::new(),
        counters: BTreeMap::new(),
        hardware: None,
        rounds: Vec::new(),
        histogram: String::new(),
        warnings: Vec::new(),
        anatomy: None,
    }
}

/// Returns the lines of a terminal of this size, without trailing spaces.
fn shown(ladder: &LadderView, width: u16, height: u16, since_s: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("create a terminal");
    let draw = terminal.draw(|frame| {
        let area = frame.area();
        ladder.draw(Duration::from_secs(since_s), area, frame.buffer_mut());
    });
    draw.expect("drawn");
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_string()
    };
    cells.chunks(usize::from(width)).map(line).collect()
}

#[test]
fn figures_appear_on_their_rungs_as_they_are_measured() {
    let mut ladder = ladder(true);
    ladder.set_visit((0, 6), 0);
    ladder.set_figure(&[record("clock/now", 10.0)]);
    ladder.set_visit((1, 6), 1);
    let mut busy = record("lock/busy", 1000.0);
    let floor = Ratio {
        id: "floor/line".into(),
        contender: "hardware".into(),
        other: 100.0,
        ratio: 10.0,
        low: Some(9.9),
        high: Some(10.1),
    };
    busy.floor = Some(floor);
    busy.warnings = vec![Warning { code: WarningCode::Wide, text: "wide".into() }];
    ladder.set_figure(&[busy]);
    ladder.set_blocks(3, 12);
    assert_eq!(
        shown(&ladder, 100, 12, 20),
        [
            " handover, quick profile: 3 benchmarks in 2 passes",
            " ████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  21 %  0:20 elapsed, about 1:00 left",
            " pass 1 of 2: lock/busy, block 3 of at most 12",
            "",
            "              ┬1 ns           ┬1 µs            ┬1 ms        1 s┬     figure  ± 95 % × floor warning",
            "   clock/now       ●╴╴╴╴╴╴                                          10.0 ns  ±1.0 %",
            " ▸ lock/busy             │────●╴╴╴╴╴╴                               1.00 µs  ±1.0 %   10.0×       w",
            "   ring/slots",
            "",
            "",
            " w wide",
            " q ends the run and keeps the completed measurements",
        ]
    );
}

#[test]
fn remaining_time_follows_the_pace_after_the_first_pass() {
    let mut ladder = ladder(true);
    ladder.set_visit((1, 6), 1);
    assert_eq!(ladder.remaining_time(Duration::from_secs(30)), Some(Duration::from_secs(50)));
    ladder.set_visit((3, 6), 0);
    assert_eq!(ladder.remaining_time(Duration::from_secs(20)), Some(Duration::from_secs(20)));
    assert_eq!(
        ladder.remaining_time(Duration::from_secs(75)),
        Some(Duration::from_secs(5)),
        "no longer"
    );
    assert_eq!(
        ladder.remaining_time(Duration::from_secs(90)),
        Some(Duration::from_secs(90)),
        "limit exceeded"
    );
    ladder.set_visit((1, 6), 1);
    assert_eq!(
        ladder.remaining_time(Duration::from_secs(50)),
        Some(Duration::from_secs(250)),
        "limit exceeded"
    );
    ladder.set_visit((3, 6), 0);
    ladder.time_max = None;
    ladder.set_blocks(1, 2);
    assert_eq!(ladder.remaining_time(Duration::from_secs(35)), Some(Duration::from_secs(25)));
}

#[test]
fn sweep_has_a_rung_for_each_value() {
    let specs = ["ring/slots", "ring/slots"];
    let mut ladder = LadderView::with_specs(&specs, "quick", 2, None, Some("slots_count"), true);
    let of = |slots_count: u64, median| {
        let args = BTreeMap::from([("slots_count".to_string(), slots_count)]);
        Record { args, ..record("ring/slots", median) }
    };
    ladder.set_visit((0, 4), 0);
    ladder.set_figure(&[of(64, 10.0)]);
    ladder.set_visit((1, 4), 1);
    ladder.set_figure(&[of(128, 20.0)]);
    // The last visit was to the other value.
    ladder.set_figure(&[of(64, 30.0)]);
    let labels: Vec<&str> = ladder.rungs.iter().map(|it| &*it.label).collect();
    assert_eq!(labels, ["ring/slots slots_count=64", "ring/slots slots_count=128"]);
    let medians = ladder.rungs.iter().filter_map(|it| it.figure.as_ref()).map(|it| it.median);
    assert_eq!(medians.collect::<Vec<_>>(), [30.0, 20.0]);
}

#[test]
fn visited_rung_is_shown_at_every_terminal_size() {
    let mut ladder = ladder(false);
    for (visit, spec) in SPECS.iter().enumerate() {
        ladder.set_visit((visit, 6), visit % SPECS.len());
        ladder.set_figure(&[record(spec, 123_456.0)]);
    }
    ladder.add_message("lock/busy: a thread died".to_string());
    for width in 1..140 {
        for height in 1..14 {
            let shown = shown(&ladder, width, height, 5000);
            assert!(shown.iter().all(|line| line.is_ascii()), "{shown:?}");
            if (width, height) >= (SIZE_MIN.width, SIZE_MIN.height) && height >= SIZE_MIN.height {
                assert!(shown.iter().any(|it| it.contains("> ring/slots")), "{shown:?}");
                assert!(shown.iter().any(|it| it.contains("a thread died")), "{shown:?}");
                assert!(shown.iter().any(|it| it.contains("1:23:20 elapsed")), "{shown:?}");
            }
        }
    }
}

#[test]
fn last_line_shows_that_the_run_ends() {
    let mut ladder = ladder(true);
    ladder.is_ending = true;
    let last = |ladder: &LadderView| shown(ladder, 80, 10, 0).pop().unwrap_or_default();
    assert_eq!(last(&ladder), " ending; the completed measurements are kept");
    (ladder.is_ending, ladder.has_keys) = (false, false);
    assert_eq!(last(&ladder), " Ctrl-C ends the run and keeps the completed measurements");
}
