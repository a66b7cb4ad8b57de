//! Comparisons of simulated runs: the noise was recorded, from processes of one build on a shared
//! machine (`recorded/processes.csv`: 18 figures of each of 11 processes, measured one after the
//! other); the differences are known.

use crate::support::{assert_golden, record, run};
use handover_base::random::SplitMix64;
use handover_record::{ContenderKind, Document, Record, Round, Warning, WarningCode};
use handover_report::Style;
use handover_report::compare::{
    Comparison, PROCESSES_MIN, Rules, Statistic, Verdict, compare, render_comparison,
};
use std::sync::LazyLock;

const PLAIN: Style = Style { color: false, unicode: true, all: false };

/// Figure as measured by one process.
#[derive(Clone)]
struct MeasuredFigure {
    id: String,
    contender: String,
    kind: ContenderKind,
    several: bool,
    median: f64,
    best_tenth: f64,
}

/// Recorded processes, each with all its figures.
static RECORDED: LazyLock<Vec<Vec<MeasuredFigure>>> = LazyLock::new(recorded);

fn recorded() -> Vec<Vec<MeasuredFigure>> {
    let text = include_str!("recorded/processes.csv");
    let mut processes: Vec<Vec<MeasuredFigure>> = Vec::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |place: usize| cells[place].parse::<f64>().expect("a number");
        let process = number(4) as usize;
        processes.resize(processes.len().max(process + 1), Vec::new());
        processes[process].push(MeasuredFigure {
            id: cells[0].into(),
            contender: cells[1].into(),
            kind: match cells[2] {
                "floor" => ContenderKind::Floor,
                "null" => ContenderKind::Null,
                _ => ContenderKind::Ours,
            },
            several: cells[3] != "1",
            median: number(5),
            best_tenth: number(6),
        });
    }
    assert!(processes.len() >= 10 && processes.iter().all(|it| it.len() == processes[0].len()));
    processes
}

/// Returns a record whose rounds have this median and this best tenth.
fn record_of(text: &MeasuredFigure) -> Record {
    let mut it = record(&text.id, &text.contender, text.kind, text.median);
    it.warnings.clear();
    it.participants.cpus = if text.several { vec![0, 1] } else { vec![0] };
    let round = |place: u32| Round {
        block: place,
        median: if place < 3 { text.best_tenth } else { text.median },
        ..Round::default()
    };
    it.rounds = (0..20).map(round).collect();
    it
}

/// Returns a run with the figures of one process.
fn document(id: String, started_unix_ns: i64, text: &[MeasuredFigure]) -> Document {
    let run = handover_record::Run { id, started_unix_ns, ..run() };
    Document::new(run, text.iter().map(record_of).collect())
}

/// Returns two sides of `count` processes each, drawn at random from the recorded ones; `slower`
/// gives the factor of B's figures.
fn two_sides(
    random: &mut SplitMix64,
    count: usize,
    slower: impl Fn(&str) -> f64,
) -> (Vec<Document>, Vec<Document>) {
    let processes = &*RECORDED;
    let mut draw = |side: &str, place: usize| {
        let mut text = processes[random.next_below(processes.len())].clone();
        for it in &mut text {
            let factor = if side == "b" { slower(&it.id) } else { 1.0 };
            // A small random factor, so that no two processes agree to the last digit.
            let own = 1.0 + 1e-5 * random.next_below(1000) as f64 / 1000.0;
            it.median *= factor * own;
            it.best_tenth *= factor * own;
        }
        document(format!("{side}{place}"), place as i64 * 2, &text)
    };
    (0..count).map(|place| (draw("a", place), draw("b", place))).unzip()
}

fn compared((a, b): &(Vec<Document>, Vec<Document>), threshold: f64) -> Comparison {
    compare(("before", a), ("after", b), Rules { threshold, ..Rules::default() })
}

fn verdict(comparison: &Comparison, id: &str, contender: &str) -> Verdict {
    let is_it = |row: &&handover_report::compare::Row| row.id == id && row.contender == contender;
    comparison.rows.iter().find(is_it).expect("a row").verdict
}

fn is_long() -> bool {
    std::env::var_os("HANDOVER_LONG").is_some()
}

/// Returns the numbers of processes per side to test: the minimum and, with `HANDOVER_LONG=1`,
/// larger ones.
fn counts() -> impl Iterator<Item = usize> {
    let more = [6, 7, 10].into_iter().filter(|_| is_long());
    [PROCESSES_MIN].into_iter().chain(more)
}

/// Returns `count` runs with one figure, which has the same value in each and is timed in batches
/// of `batch`.
fn runs_of_one_value(name: &str, count: usize, value: f64, batch: u64) -> Vec<Document> {
    let run_of = |place: usize| {
        let mut it = record("sched/fair-index", "handover", ContenderKind::Ours, value);
        it.summary.batch = batch;
        let id = format!("{name}{place}");
        Document::new(handover_record::Run { id, ..run() }, vec![it])
    };
    (0..count).map(run_of).collect()
}

#[test]
fn figures_that_never_vary_are_compared() {
    let sides = (runs_of_one_value("a", 5, 100.0, 1000), runs_of_one_value("b", 5, 100.0, 1000));
    let comparison = compared(&sides, 0.02);
    assert_eq!(verdict(&comparison, "sched/fair-index", "handover"), Verdict::Same);
    let sides = (runs_of_one_value("a", 5, 100.0, 1000), runs_of_one_value("b", 5, 110.0, 1000));
    let comparison = compared(&sides, 0.02);
    assert_eq!(verdict(&comparison, "sched/fair-index", "handover"), Verdict::Worse);
}

#[test]
fn operations_timed_alone_are_not_compared_with_batches() {
    let sides = (runs_of_one_value("a", 5, 180.0, 90), runs_of_one_value("b", 5, 200.0, 1));
    let comparison = compared(&sides, 0.02);
    assert_eq!(comparison.rows[0].verdict, Verdict::CannotSay);
    assert!(comparison.rows[0].why.contains("in batches in others"), "{}", comparison.rows[0].why);
    // Enough processes timed it in the same way, and only these count.
    let side = |name: &str, value: f64| {
        let others = runs_of_one_value(&format!("{name}-others"), 2, 10.0 * value, 1);
        [runs_of_one_value(name, 5, value, 90), others].concat()
    };
    let comparison = compared(&(side("a", 100.0), side("b", 110.0)), 0.02);
    assert_eq!((comparison.rows[0].a, comparison.rows[0].b), (100.0, 110.0));
    assert_eq!(comparison.rows[0].verdict, Verdict::Worse);
}

#[test]
fn kind_of_timing_that_most_processes_have_is_compared_and_their_number_is_reported() {
    let side = |name: &str, value: f64| {
        let singles = runs_of_one_value(&format!("{name}-singles"), 5, 1.2 * value, 1);
        [runs_of_one_value(name, 9, value, 90), singles].concat()
    };
    let comparison = compared(&(side("a", 100.0), side("b", 110.0)), 0.02);
    let row = &comparison.rows[0];
    assert_eq!((row.a, row.b, row.verdict), (100.0, 110.0, Verdict::Worse));
    let json = serde_json::to_value(row).expect("a row");
    assert_eq!((&json["a_processes_count"], &json["b_processes_count"]), (&9.into(), &9.into()));
    let drawn = render_comparison(&comparison, 160, PLAIN);
    let line = "Not by all processes: sched/fair-index (9 of A, 9 of B).";
    assert!(drawn.contains(line), "{drawn}");
}

#[test]
fn figure_of_fewer_processes_is_named_with_its_setting_and_the_reasons() {
    let side = |name: &str, value: f64| {
        let mut runs = runs_of_one_value(name, 6, 100.0, 90);
        for run in &mut runs {
            run.records.push(run.records[0].clone());
            for (record, n) in run.records.iter_mut().zip(1..) {
                record.args.insert("n".to_string(), n);
                record.rounds.iter_mut().for_each(|round| round.median = value);
            }
        }
        runs
    };
    let mut sides = (side("a", 100.0), side("b", 110.0));
    sides.0[0].records[1].rounds.truncate(9);
    let drawn = render_comparison(&compared(&sides, 0.02), 160, PLAIN);
    let line = "Not by all processes: sched/fair-index n=2 (5 of A, 6 of B). The others lack the figure, have too few rounds";
    assert!(drawn.contains(line), "{drawn}");
}

#[test]
fn figures_without_a_possible_verdict_do_not_hide_a_regression() {
    let mixed = [("mixed/one", [0, 1, 2, 5, 6]), ("mixed/two", [1, 3, 4, 8, 9])];
    let run_of = |place: usize| {
        let slower = if place < 5 { 1.0 } else { 1.1 };
        let value = (100.0 + (place % 5) as f64) * slower;
        let mut records = vec![record("lock/free", "handover", ContenderKind::Ours, value)];
        for (id, singles) in &mixed {
            let (value, batch) = if singles.contains(&place) { (1000.0, 1) } else { (100.0, 90) };
            let mut it = record(id, "handover", ContenderKind::Ours, value + place as f64 / 1e6);
            it.summary.batch = batch;
            records.push(it);
        }
        Document::new(handover_record::Run { id: format!("run{place}"), ..run() }, records)
    };
    let comparison = compared(&((0..5).map(run_of).collect(), (5..10).map(run_of).collect()), 0.02);
    assert!(comparison.count(Verdict::CannotSay) >= 2, "{:?}", comparison.rows);
    assert_eq!(verdict(&comparison, "lock/free", "handover"), Verdict::Worse);
}

#[test]
fn runs_of_one_build_do_not_regress_in_99_of_100_trials() {
    // Consecutive seeds, not selected by their results.
    let (seeds, trials) = (1..=if is_long() { 100 } else { 1 }, 100);
    for count in counts() {
        let mut worse = Vec::new();
        for seed in seeds.clone() {
            let mut random = SplitMix64::new(seed);
            let trial = |_: &i32| {
                let sides = two_sides(&mut random, count, |_| 1.0);
                compared(&sides, Rules::default().threshold).is_worse()
            };
            worse.push((0..trials).filter(trial).count());
        }
        let (all, called) = (trials as usize * worse.len(), worse.iter().sum::<usize>());
        println!("{count} a side: {called} of {all}");
        // One in a hundred; for few trials, plus three standard deviations.
        let promised = all as f64 / 100.0;
        let allowed = if is_long() { promised } else { promised + 3.0 * promised.sqrt() };
        assert!(called as f64 <= allowed, "{count} a side: {worse:?} of {trials} each");
    }
}

#[test]
fn slowdown_of_5_percent_is_found_in_95_of_100_trials_of_quiet_data() {
    // The best tenth of figures of one participant repeats within some tenths of a percent.
    let slow = ["lock/free", "lock/busy-alone"];
    for count in counts() {
        let mut random = SplitMix64::new(2);
        let trials = 100;
        let (mut found, mut wrong) = ([0; 2], 0);
        for _ in 0..trials {
            let sides =
                two_sides(&mut random, count, |id| if slow.contains(&id) { 1.05 } else { 1.0 });
            let comparison = compared(&sides, Rules::default().threshold);
            let found_now =
                slow.map(|id| usize::from(verdict(&comparison, id, "handover") == Verdict::Worse));
            wrong += usize::from(comparison.count(Verdict::Worse) > found_now.iter().sum());
            for (found, found_now) in found.iter_mut().zip(found_now) {
                *found += found_now;
            }
        }
        println!("{count} a side: {found:?} of {trials}, others called worse in {wrong}");
        assert!(found.iter().all(|it| *it >= 95), "{count} a side: {found:?} of {trials}");
        assert!(100 * wrong <= trials, "{count} a side: in {wrong} of {trials} others, too");
    }
}

/// Returns the figure's smallest increase that a comparison says it finds: the median of nine
/// comparisons of one build.
fn smallest_increase_found(count: usize, id: &str) -> f64 {
    let mut random = SplitMix64::new(20);
    let found = |_| {
        let comparison = compared(&two_sides(&mut random, count, |_| 1.0), 0.02);
        let row =
            comparison.rows.into_iter().find(|row| row.id == id && row.contender == "handover");
        row.and_then(|row| row.found).unwrap_or(f64::MAX)
    };
    let mut found: Vec<f64> = (0..9).map(found).collect();
    found.sort_unstable_by(f64::total_cmp);
    found[found.len() / 2]
}

#[test]
fn slowdown_of_the_stated_size_is_found_and_a_quarter_of_it_is_not() {
    let mut wrong = Vec::new();
    for count in counts() {
        for id in ["lock/free", "ring/round-trip"] {
            let text = smallest_increase_found(count, id);
            let found = |by: f64| {
                let mut random = SplitMix64::new(21);
                let trial = |_: &i32| {
                    let sides =
                        two_sides(&mut random, count, |it| if it == id { 1.0 + by } else { 1.0 });
                    verdict(&compared(&sides, 0.02), id, "handover") == Verdict::Worse
                };
                (0..20).filter(trial).count()
            };
            let (all, part) = (found(text), found(text / 4.0));
            let line = format!(
                "{count} a side, {id}: {:.1} % found in {all} of 20, a quarter of it in {part}",
                text * 100.0
            );
            println!("{line}");
            // More than half of the comparisons; a figure with two modes is found least often.
            if all < 12 || part > 10 {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn faster_figure_is_better_and_equal_figure_is_same() {
    let mut random = SplitMix64::new(3);
    let mut sides = two_sides(&mut random, 7, |id| if id == "lock/free" { 0.9 } else { 1.0 });
    let comparison = compared(&sides, 0.05);
    assert_eq!(verdict(&comparison, "lock/free", "handover"), Verdict::Better);
    // The best tenths agree, but the medians vary too much to be called the same.
    assert_eq!(verdict(&comparison, "lock/busy-alone", "handover"), Verdict::TooNoisy);
    for document in sides.0.iter_mut().chain(&mut sides.1) {
        let is_it = |record: &&mut Record| record.id == "lock/busy-alone";
        for record in document.records.iter_mut().filter(is_it) {
            record.summary.median = record.rounds[0].median;
        }
    }
    let steady = compared(&sides, 0.05);
    assert_eq!(verdict(&steady, "lock/busy-alone", "handover"), Verdict::Same);
    assert_eq!(verdict(&comparison, "ring/round-trip", "handover"), Verdict::TooNoisy);
    let row = comparison.rows.iter().find(|row| row.id == "lock/free").expect("a row");
    assert_eq!((row.by, row.delta), (Statistic::BestTenth, -1.0));
    let ratio = row.ratio.expect("a ratio");
    assert!((ratio - 0.9).abs() < 0.01 && row.p < 0.001 && row.p_corrected < 0.001, "{row:?}");
}

#[test]
fn difference_below_the_threshold_is_no_regression() {
    let sides =
        two_sides(&mut SplitMix64::new(4), 7, |id| if id == "lock/free" { 1.05 } else { 1.0 });
    assert!(compared(&sides, 0.02).is_worse());
    assert!(!compared(&sides, 0.10).is_worse());
}

#[test]
fn worse_median_is_found_if_the_best_tenth_is_unchanged() {
    let (a, mut b) = two_sides(&mut SplitMix64::new(5), 7, |_| 1.0);
    for record in b.iter_mut().flat_map(|document| &mut document.records) {
        if record.id == "lock/free" {
            record.summary.median *= 2.0;
        }
    }
    let comparison = compare(("before", &a), ("after", &b), Rules::default());
    let row = comparison.rows.iter().find(|row| row.id == "lock/free").expect("a row");
    assert_eq!((row.by, row.verdict), (Statistic::Median, Verdict::Worse));
}

#[test]
fn null_comparison_bounds_the_resolution() {
    // The machine itself became slower by a tenth: the nulls show that, and no verdict is given.
    let sides = two_sides(&mut SplitMix64::new(6), 7, |_| 1.1);
    let comparison = compared(&sides, 0.02);
    assert!(!comparison.is_worse());
    let (one, several) =
        (comparison.visible_one.expect("one"), comparison.visible_several.expect("several"));
    assert!(one > 0.09 && several > 0.09, "{one} {several}");
    let quiet = compared(&two_sides(&mut SplitMix64::new(7), 7, |_| 1.0), 0.02);
    assert!(quiet.visible_one.expect("one") < 0.01, "{:?}", quiet.visible_one);
    // What can be found is never less than what can be seen.
    let (one, several) = (quiet.found_one.expect("one"), quiet.found_several.expect("several"));
    assert!(one > 0.02 && several > quiet.visible_several.expect("several"), "{one} {several}");
    let drawn = render_comparison(&quiet, 120, PLAIN);
    assert!(drawn.contains("Most such comparisons find a figure"), "{drawn}");
}

#[test]
fn fewer_than_five_processes_a_side_give_no_verdict() {
    let sides = two_sides(&mut SplitMix64::new(8), 4, |_| 2.0);
    let comparison = compared(&sides, 0.02);
    assert!(comparison.rows.iter().all(|row| row.verdict == Verdict::CannotSay));
    let drawn = render_comparison(&comparison, 120, PLAIN);
    assert!(drawn.contains("4 processes against 4 processes, and at least 5 a side"), "{drawn}");
    assert!(!comparison.is_worse());
    assert_eq!((comparison.found_one, comparison.found_several), (None, None));
    assert!(!drawn.contains("Most such comparisons"), "{drawn}");
}

#[test]
fn smoke_runs_are_not_compared() {
    let (mut a, b) = two_sides(&mut SplitMix64::new(9), 5, |_| 1.5);
    for record in a.iter_mut().flat_map(|document| &mut document.records) {
        record.warnings.push(Warning { code: WarningCode::Smoke, text: "smoke".into() });
    }
    let comparison = compare(("a", &a), ("b", &b), Rules::default());
    assert!(!comparison.is_worse() && comparison.rows[0].why.contains("smoke"));
}

#[test]
fn unmatched_figures_and_doubtful_runs_are_listed() {
    let (a, mut b) = two_sides(&mut SplitMix64::new(10), 5, |_| 1.0);
    for document in &mut b {
        document.host.name = "elsewhere".into();
        document.run.started_unix_ns += 1_000_000;
        document.records.retain(|record| record.id != "lock/free");
        document.records[0].args.insert("bytes".into(), 7);
    }
    b[0].run.complete = false;
    let comparison = compare(("a", &a), ("b", &b), Rules::default());
    assert!(comparison.only_a.contains(&"lock/free [handover]".to_string()));
    assert_eq!(comparison.only_b.len(), 1, "other arguments are another figure");
    let notes = comparison.notes.join(" ");
    for text in ["different machines", "1 run was not completed.", "after the other"] {
        assert!(notes.contains(text), "{notes}");
    }
    let drawn = render_comparison(&comparison, 200, PLAIN);
    let (caveat, rows) = (drawn.find("after the other"), drawn.find("verdict"));
    assert!(caveat.is_some() && caveat < rows, "the caveat comes before the verdicts: {drawn}");
    let twice = compare(("a", &a), ("a", &a), Rules::default());
    assert!(twice.notes[0].contains("on both sides of the comparison"), "{:?}", twice.notes);
    assert_eq!(twice.count(Verdict::Worse) + twice.count(Verdict::Better), 0);
}

#[test]
fn empty_sides_give_an_empty_comparison() {
    let nothing = compare(("a", &[]), ("b", &[]), Rules::default());
    assert!(nothing.rows.is_empty() && !nothing.is_worse());
    assert!(
        render_comparison(&nothing, 80, PLAIN).contains("The two sides have no figure in common.")
    );
}

#[test]
fn figures_not_above_0_have_no_ratio() {
    let (mut a, mut b) = two_sides(&mut SplitMix64::new(11), 5, |_| 1.0);
    for (place, document) in a.iter_mut().chain(&mut b).enumerate() {
        document.records[0].summary.median = 0.0;
        document.records[0].rounds.clear();
        document.records[1].summary.median = place as f64;
        document.records[1].rounds.clear();
    }
    let comparison = compare(("a", &a), ("b", &b), Rules::default());
    assert_eq!((comparison.rows[0].verdict, comparison.rows[0].ratio), (Verdict::Same, None));
    assert_eq!(comparison.rows[1].verdict, Verdict::CannotSay);
    serde_json::to_string(&comparison).expect("a document");
}

#[test]
fn comparison_table_equals_the_golden_file_and_fits_the_width() {
    let sides = two_sides(&mut SplitMix64::new(12), 7, |id| match id {
        "lock/free" => 1.05,
        "event/call" => 0.8,
        _ => 1.0,
    });
    let comparison = compared(&sides, 0.02);
    assert_golden("compare-120.txt", &render_comparison(&comparison, 120, PLAIN));
    assert_golden("compare-60.txt", &render_comparison(&comparison, 60, PLAIN));
    for width in 1..=160 {
        let drawn = render_comparison(&comparison, width, PLAIN);
        let widest = drawn.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= width, "{width} columns:\n{drawn}");
        let text =
            drawn.lines().any(|line| line.starts_with("lock/free") && line.ends_with("worse"));
        assert!(width < 32 || text, "{width} columns:\n{drawn}");
    }
}

/// Has every process time `id` singly; `p99` is given its place among all processes.
fn with_tails(sides: &mut (Vec<Document>, Vec<Document>), id: &str, p99: fn(usize) -> f64) {
    let documents = sides.0.iter_mut().chain(&mut sides.1).enumerate();
    for (place, document) in documents {
        for record in document.records.iter_mut().filter(|it| it.id == id) {
            let it = &mut record.summary;
            it.batch = 1;
            let tail = p99(place);
            (it.min, it.p50, it.p90) = (Some(it.median), Some(it.median), Some(it.median));
            (it.p99, it.p999, it.max) = (Some(tail), Some(tail), Some(tail));
        }
    }
}

#[test]
fn longer_tail_is_worse_if_the_median_is_the_same() {
    let mut sides = two_sides(&mut SplitMix64::new(13), 7, |_| 1.0);
    with_tails(&mut sides, "floor/syscall", |place| {
        (if place < 7 { 300.0 } else { 600.0 }) + place as f64
    });
    let comparison = compared(&sides, 0.02);
    let rows: Vec<_> = comparison.rows.iter().filter(|it| it.id == "floor/syscall").collect();
    let [figure, tail] = rows[..] else { panic!("{rows:?}") };
    assert!(figure.by != Statistic::P99 && figure.verdict != Verdict::Worse, "{figure:?}");
    assert_eq!((tail.by, tail.verdict), (Statistic::P99, Verdict::Worse), "{tail:?}");
    assert!(comparison.is_worse());
    let drawn = render_comparison(&comparison, 160, PLAIN);
    let is_tail = |line: &str| line.starts_with("floor/syscall") && line.contains("  p99  ");
    assert!(drawn.lines().any(is_tail), "{drawn}");
    let figures_count = comparison.rows.len() - 1;
    let foot = format!("Of {figures_count} figures, and 1 of their 99th percentiles: 1 worse");
    assert!(drawn.contains(&foot), "{drawn}");
}

#[test]
fn equal_tail_has_no_row_of_its_own_in_the_table() {
    let mut sides = two_sides(&mut SplitMix64::new(14), 7, |_| 1.0);
    with_tails(&mut sides, "floor/syscall", |place| 300.0 + (place % 7) as f64);
    let comparison = compared(&sides, 0.02);
    assert_eq!(comparison.rows.iter().filter(|it| it.by == Statistic::P99).count(), 1);
    let drawn = render_comparison(&comparison, 160, PLAIN);
    assert!(!drawn.contains("  p99  "), "{drawn}");
    let all = render_comparison(&comparison, 160, Style { all: true, ..PLAIN });
    assert!(all.contains("  p99  "), "{all}");
}

#[test]
fn tails_of_batches_are_not_compared() {
    let sides = two_sides(&mut SplitMix64::new(15), 7, |_| 1.0);
    assert!(compared(&sides, 0.02).rows.iter().all(|it| it.by != Statistic::P99));
}
