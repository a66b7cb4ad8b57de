//! `handover anatomy`: stages that add up, their storage and display, and the traces of the
//! slowest.

use crate::common::{Home, document, wait_until};
use handover_probe::read::Trace;
use handover_record::{Anatomy, Document};
use std::fs;

fn taken(document: &Document) -> &Anatomy {
    document.records.iter().find_map(|record| record.anatomy.as_deref()).expect("an anatomy")
}

/// Returns the parts of a line, and the sum that it states.
fn parts(line: &str) -> (Vec<(&str, u64)>, u64) {
    let (parts, total) = line.split_once(" = ").expect("a sum");
    let parts = parts.split(" + ").map(|part| {
        let (name, ns) = part.rsplit_once(' ').expect("a name and a number");
        (name, ns.parse().expect("whole nanoseconds"))
    });
    let total = total.strip_suffix(" ns").expect("nanoseconds").parse().expect("a number");
    (parts.collect(), total)
}

#[test]
fn stages_sum_to_the_hand_off_and_are_stored_shown_and_drawn() {
    let home = Home::new();
    let out = home.ok("anatomy ring/mailbox --seconds 0.3 --json --svg stages.svg");
    let told = document(&out);
    let anatomy = taken(&told);
    let names: Vec<&str> = anatomy.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["handle", "travel"]);
    let sum: f64 = anatomy.stages.iter().map(|stage| stage.mean_ns).sum();
    assert!((sum / anatomy.total.mean_ns - 1.0).abs() < 1e-6, "{anatomy:?}");
    let shares: f64 = anatomy.stages.iter().map(|stage| stage.share).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{anatomy:?}");
    let (parts, total) = parts(&anatomy.line);
    assert_eq!(parts.iter().map(|(_, ns)| ns).sum::<u64>(), total, "{}", anatomy.line);
    assert_eq!(
        parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["handle", "floor", "travel"]
    );
    assert_eq!(total as f64, anatomy.total.mean_ns.round());
    assert!(anatomy.handoffs_count >= 16, "{}", anatomy.handoffs_count);
    assert!(anatomy.site_ns.iter().all(|ns| *ns > 0.0), "{:?}", anatomy.site_ns);
    assert!(anatomy.off_ns.is_some() && anatomy.on_ns.is_some() && anatomy.floor.is_some());

    let svg = fs::read_to_string(home.cwd().join("stages.svg")).expect("a picture");
    let drawn = roxmltree::Document::parse(&svg).expect("well-formed");
    assert!(drawn.descendants().any(|node| node.text() == Some("travel")), "its legend");

    assert_eq!(home.last().records, told.records, "stored as printed");
    assert!(home.ok("show").contains(&anatomy.line), "the table repeats the line");
}

#[test]
fn round_trips_and_single_thread_hand_offs_have_anatomies() {
    let home = Home::new();
    for (spec, names) in [
        ("sched/round-trip", &["send", "there", "enqueue", "dequeue", "back"][..]),
        ("fiber/eventual", &["set", "wait", "switch"]),
        ("net/load", &["receive", "handle", "send"]),
        ("rpc/noop", &["call", "send", "there", "dispatch", "respond", "back"]),
    ] {
        let told = document(&home.ok(&format!("anatomy {spec} --seconds 0.2 --json")));
        let anatomy = taken(&told);
        let found: Vec<&str> = anatomy.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(found, names);
        assert!(anatomy.stages.iter().all(|stage| stage.passed > 0.9), "{:?}", anatomy.stages);
        let left_out = anatomy.unmatched.mismatched + anatomy.unmatched.reacquired;
        assert!(
            left_out * 20 <= anatomy.handoffs_count,
            "{spec}: {} hand-offs, {:?}",
            anatomy.handoffs_count,
            anatomy.unmatched
        );
    }
}

#[test]
fn wake_up_is_a_stage_and_slowest_hand_offs_are_kept() {
    let home = Home::new();
    let out = home.ok("anatomy event/parked --seconds 0.5 --outliers=slow --json");
    let told = document(&out);
    let anatomy = taken(&told);
    let stage = |name: &str| {
        anatomy.stages.iter().find(|stage| stage.name == name).expect("a stage of that name")
    };
    assert!(stage("wake").passed > 0.0, "{:?}", anatomy.stages);
    assert!(stage("handle").passed == 1.0, "{:?}", anatomy.stages);
    assert!((1..=10).contains(&anatomy.outliers.len()));
    let totals: Vec<f64> = anatomy.outliers.iter().map(|outlier| outlier.total_ns).collect();
    assert!(totals.is_sorted_by(|a, b| a >= b), "{totals:?}");
    for outlier in &anatomy.outliers {
        stage(&outlier.slow_stage);
        let sum: f64 = outlier.stages_ns.iter().sum();
        assert!((sum - outlier.total_ns).abs() < 1e-6, "{outlier:?}");
        let trace = Trace::open(home.cwd().join(&outlier.file)).expect("a trace");
        let end_ns = outlier.begin_ns + outlier.total_ns as i64;
        let within = trace.merged_events().filter(|event| {
            (outlier.begin_ns - 1..=end_ns + 1).contains(&trace.ns_from_ticks(event.ticks))
        });
        assert!(within.count() >= 3, "its events: {outlier:?}");
        let tids: Vec<u64> = trace.threads().iter().map(|thread| thread.tid).collect();
        assert!(tids.contains(&outlier.from_tid) && tids.contains(&outlier.to_tid));
    }
    let kept = fs::read_dir(home.cwd().join("slow")).expect("a folder").count();
    assert!((1..=10).contains(&kept), "{kept} files");
}

#[test]
fn result_is_stored_and_printed_even_if_its_files_cannot_be_written() {
    let home = Home::new();
    let line = "anatomy ring/mailbox --seconds 3 --outliers=slow --svg chart/stages.svg";
    let (slow, chart) = (home.cwd().join("slow"), home.cwd().join("chart"));
    fs::create_dir(&chart).expect("a folder");
    let running = home.start(home.handover(line.split(' ')));
    // The store is opened once both folders have been checked.
    wait_until("the store", || home.db().exists());
    wait_until("the empty folder", || fs::remove_dir(&slow).is_ok());
    fs::write(&slow, "a file").expect("a file");
    wait_until("the empty folder", || fs::remove_dir(&chart).is_ok());
    let said = running.finish().code(1).tells(&["slow"]);
    assert!(said.out.contains("in all"), "{said}");
    let last = home.last();
    assert!(last.run.complete && taken(&last).outliers.is_empty(), "{said}");
}

#[test]
fn hand_offs_between_processes_share_one_time_line() {
    let home = Home::new();
    for spec in ["notify/round-trip", "rpc/noop"] {
        let told = document(&home.ok(&format!("anatomy {spec} --processes --seconds 0.3 --json")));
        let anatomy = taken(&told);
        assert!(told.records.iter().any(|record| record.participants.processes));
        assert!(anatomy.handoffs_count >= 16, "{spec}: {}", anatomy.handoffs_count);
    }
}

#[test]
fn output_has_the_stages_and_the_cost_of_the_probes() {
    let home = Home::new();
    let out = home.ok("anatomy event/round-trip --seconds 0.2");
    for words in
        ["event/round-trip", "handle", "notice", "wake", "in all", " ns", "sites off", "run "]
    {
        assert!(out.contains(words), "{words:?} in {out}");
    }
}

#[test]
fn hot_probe_sites_need_their_feature() {
    let home = Home::new();
    if cfg!(feature = "probes-hot") {
        let told = document(&home.ok("anatomy event/call --seconds 0.2 --json"));
        let names: Vec<&str> = taken(&told).stages.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["handle", "return", "dispatch"]);
    } else {
        home.run("anatomy event/call").code(2).tells(&["event/call", "probes-hot"]);
    }
}
