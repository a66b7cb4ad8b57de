//! API by example: storing runs and finding them by id, prefix or position.

use crate::support::{contents, record, run};
use handover_store::{Store, StoreError};
use tempfile::tempdir;

#[test]
fn stored_run_is_loaded_unchanged() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("deep/er/results.db");
    let mut this_run = run("aa11", 10);
    let first = [record("lock/busy", "handover", 1.25), record("lock/busy", "std", 2.5)];
    let second = [record("lock/free", "handover", 0.1 + 0.2)];
    {
        let mut store = Store::open(&path).expect("a new store in new folders");
        store.begin_run(&this_run).expect("begin");
        store.insert_records("aa11", &first).expect("insert");
        store.insert_records("aa11", &second).expect("insert");
        this_run.complete = true;
        this_run.null_several = Some(0.015);
        store.finish_run(&this_run).expect("finish");
    }
    let store = Store::open_existing(&path).expect("the store is there");
    let found = store.load_latest_run().expect("the run is there");
    assert_eq!(found.run, this_run);
    assert_eq!(found.records, [first[0].clone(), first[1].clone(), second[0].clone()]);
    store.check_integrity().expect("the file is sound");
    let beside: Vec<_> = contents(path.parent().expect("a parent")).into_keys().collect();
    assert_eq!(beside, [path], "an unused store has further files");
}

#[test]
fn runs_are_listed_by_start_with_their_records_count() {
    let mut store = Store::open_in_memory().expect("a store");
    store.begin_run(&run("late", 20)).expect("begin");
    store.begin_run(&run("early", 10)).expect("begin");
    store
        .insert_records("early", &[record("a/b", "x", 1.0), record("a/b", "y", 1.0)])
        .expect("insert");
    let rows = store.runs().expect("rows");
    let rows_found: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.records_count)).collect();
    assert_eq!(rows_found, [("early", 2), ("late", 0)]);
    assert!(!rows[0].complete && rows[0].host == "a host" && rows[0].profile == "quick");
}

#[test]
fn run_is_resolved_by_id_prefix_last_or_position_from_the_end() {
    let mut store = Store::open_in_memory().expect("a store");
    for (id, started) in [("18aa01-1", 3), ("18ab02-2", 2), ("18ab02-22", 1)] {
        store.begin_run(&run(id, started)).expect("begin");
    }
    let resolve = |selector: &str| store.resolve_run_id(selector).expect("a run of that name");
    assert_eq!(resolve("18aa"), "18aa01-1", "a prefix of one");
    assert_eq!(resolve("18ab02-2"), "18ab02-2", "an exact id, though also a prefix of another");
    assert_eq!(resolve("last"), "18aa01-1");
    assert_eq!(resolve("-1"), "18aa01-1");
    assert_eq!(resolve("-3"), "18ab02-22");
    assert!(matches!(
        store.resolve_run_id("18ab"),
        Err(StoreError::Ambiguous { count: 2, candidates, .. }) if candidates.len() == 2
    ));
}

#[test]
fn unknown_run_error_lists_the_nearest_ids() {
    let mut store = Store::open_in_memory().expect("a store");
    let empty = store.load_run("last").expect_err("nothing to load").to_string();
    assert!(empty.contains("contains no run yet"), "{empty}");
    for (id, started) in [("18aa01-1", 3), ("77ff02-2", 2)] {
        store.begin_run(&run(id, started)).expect("begin");
    }
    for selector in ["18ab01-1", "-3", "-0", "", "--", "lost"] {
        let named = if selector.is_empty() { "''" } else { selector };
        let refused = store.load_run(selector).expect_err("no such run");
        assert!(
            matches!(&refused, StoreError::UnknownRun { nearest_names, .. } if nearest_names.len() == 2)
        );
        assert!(refused.to_string().starts_with(&format!("run {named}: no such run")));
    }
    let refused = store.load_run("18ab01-1").expect_err("no such run").to_string();
    assert!(refused.ends_with("the nearest are 18aa01-1, 77ff02-2"), "{refused}");
}

#[test]
fn duplicate_run_and_record_without_run_are_refused() {
    let mut store = Store::open_in_memory().expect("a store");
    store.begin_run(&run("aa", 1)).expect("begin");
    assert!(
        matches!(store.begin_run(&run("aa", 2)), Err(StoreError::Duplicate { id }) if id == "aa")
    );
    let stray = [record("a/b", "x", 1.0)];
    assert!(matches!(store.insert_records("bb", &stray), Err(StoreError::UnknownRun { .. })));
    assert!(matches!(store.finish_run(&run("bb", 2)), Err(StoreError::UnknownRun { .. })));
    assert_eq!(store.runs().expect("rows").len(), 1);
}

#[test]
fn put_replaces_records_of_the_same_figure() {
    let mut store = Store::open_in_memory().expect("a store");
    store.begin_run(&run("a", 1)).expect("a run");
    let both = [record("ring/push", "ours", 5.0), record("ring/pop", "ours", 6.0)];
    store.insert_or_replace_records("a", &both).expect("kept");
    store.insert_or_replace_records("a", &[record("ring/push", "rtrb", 7.0)]).expect("kept");
    // A better value for the first record, and a record that the run does not have yet.
    let better = [record("ring/push", "ours", 4.0), record("ring/peek", "ours", 1.0)];
    store.insert_or_replace_records("a", &better).expect("kept");
    let kept = store.load_run("a").expect("the run");
    let kept: Vec<_> = kept
        .records
        .iter()
        .map(|it| (it.id.as_str(), it.contender.as_str(), it.summary.median))
        .collect();
    let expected = [
        ("ring/push", "ours", 4.0),
        ("ring/pop", "ours", 6.0),
        ("ring/push", "rtrb", 7.0),
        ("ring/peek", "ours", 1.0),
    ];
    assert_eq!(kept, expected, "a record was moved or duplicated");
    assert!(matches!(
        store.insert_or_replace_records("b", &better),
        Err(StoreError::UnknownRun { .. })
    ));
}

#[test]
fn invalid_run_id_is_refused() {
    let mut store = Store::open_in_memory().expect("a store");
    let long = "a".repeat(65);
    for id in ["", "last", "-1", "a b", "a\n", "é", long.as_str()] {
        assert!(matches!(store.begin_run(&run(id, 1)), Err(StoreError::BadRunId { .. })), "{id:?}");
    }
}

#[test]
fn non_finite_number_is_refused_with_its_field() {
    let mut store = Store::open_in_memory().expect("a store");
    let mut bad_run = run("aa", 1);
    bad_run.host.cgroup_cpus = Some(f64::INFINITY);
    let refused = store.begin_run(&bad_run).expect_err("not finite").to_string();
    assert_eq!(refused, "run aa: host.cgroup_cpus is inf, but only finite numbers can be stored");
    store.begin_run(&run("aa", 1)).expect("begin");
    let good = record("a/b", "x", 1.0);
    let mut bad = good.clone();
    bad.rounds[2].p99 = f64::NAN;
    let refused = store.insert_records("aa", &[good, bad]).expect_err("not finite").to_string();
    assert_eq!(refused, "a/b of x: rounds[2].p99 is NaN, but only finite numbers can be stored");
    assert_eq!(
        store.load_latest_run().expect("the run").records,
        [],
        "a record of the failed insert was stored"
    );
}

#[test]
fn record_longer_than_a_line_is_refused() {
    let mut store = Store::open_in_memory().expect("a store");
    store.begin_run(&run("aa", 1)).expect("begin");
    let mut long = record("a/b", "x", 1.0);
    long.what = "w".repeat(handover_store::LINE_BYTES_MAX);
    assert!(matches!(store.insert_records("aa", &[long]), Err(StoreError::TooLong { .. })));
}

#[test]
fn two_concurrent_runs_are_both_complete() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("results.db");
    std::thread::scope(|threads| {
        for id in ["aa", "bb", "cc"] {
            let path = &path;
            threads.spawn(move || {
                let mut store = Store::open(path).expect("open, though others do");
                store.begin_run(&run(id, 1)).expect("begin");
                for place in 0..20_u32 {
                    let one = record("a/b", "x", f64::from(place + 1));
                    store.insert_records(id, &[one]).expect("insert, though others do");
                }
            });
        }
    });
    let store = Store::open_existing(&path).expect("open");
    store.check_integrity().expect("sound");
    for id in ["aa", "bb", "cc"] {
        let medians: Vec<_> =
            store.load_run(id).expect("load").records.iter().map(|it| it.summary.median).collect();
        let expected: Vec<_> = (1..=20_u32).map(f64::from).collect();
        assert_eq!(medians, expected, "run {id}");
    }
}
