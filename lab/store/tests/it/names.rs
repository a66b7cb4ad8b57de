//! Names of runs: adding, lookup, export and import; and deletion of runs.

use crate::support::{record, run};
use handover_store::{Store, StoreError};
use std::fs;
use tempfile::tempdir;

fn three_runs() -> Store {
    let mut store = Store::open_in_memory().expect("a store");
    for (id, started) in [("1a", 1), ("2b", 2), ("3c", 3)] {
        store.begin_run(&run(id, started)).expect("begin");
        store
            .insert_records(id, &[record("lock/free", "handover", 7.0 + started as f64)])
            .expect("insert");
    }
    store
}

#[test]
fn name_selects_all_its_runs_or_the_latest_one() {
    let mut store = three_runs();
    assert_eq!(store.add_tag("1a", "before").expect("a name"), "1a");
    store.add_tag("-2", "before").expect("a name for a second run");
    store.add_tag("2b", "before").expect("given twice, had once");
    store.add_tag("2b", "also").expect("a second name");
    assert_eq!(store.matching_ids("before").expect("a side"), ["1a", "2b"]);
    assert_eq!(store.matching_ids("3").expect("a run by a prefix"), ["3c"]);
    assert_eq!(store.resolve_run_id("before").expect("a run"), "2b");
    let rows = store.runs().expect("rows");
    assert_eq!(rows[1].tags, ["also", "before"]);
    assert!(rows[2].tags.is_empty());
    assert!(store.remove_tag("1a", "before").expect("taken"));
    assert!(!store.remove_tag("1a", "before").expect("not there"));
    assert_eq!(store.matching_ids("before").expect("a side"), ["2b"]);
}

#[test]
fn invalid_name_is_refused() {
    let mut store = three_runs();
    for name in ["", "last", "-1", "9lives", "a b", "</script>", "x\u{1b}[31m", &"n".repeat(65)] {
        let refused = store.add_tag("1a", name).expect_err(name);
        assert!(matches!(refused, StoreError::BadTag { .. }), "{refused}");
        assert!(!refused.to_string().chars().any(char::is_control), "{refused}");
    }
    store.begin_run(&run("feed-1", 9)).expect("begin");
    let refused = store.add_tag("1a", "feed").expect_err("a run's id begins so");
    assert!(matches!(refused, StoreError::TagIsId { .. }), "{refused}");
    let refused = store.matching_ids("befor").expect_err("nothing of that name");
    assert!(matches!(refused, StoreError::UnknownRun { .. }), "{refused}");
    store.add_tag("1a", "before").expect("a name");
    let refused = store.matching_ids("befor").expect_err("nothing of that name");
    assert!(refused.to_string().contains("the nearest are before"), "{refused}");
}

#[test]
fn names_are_exported_and_merged_on_import() {
    let mut store = three_runs();
    store.add_tag("1a", "before").expect("a name");
    let mut exported = Vec::new();
    store.export(&["1a".to_string()], &mut exported).expect("an export");
    let mut other = Store::open_in_memory().expect("a store");
    other.import(&mut &exported[..]).expect("an import");
    assert_eq!(other.matching_ids("before").expect("a side"), ["1a"]);
    other.add_tag("1a", "mine").expect("a name");
    let imported = other.import(&mut &exported[..]).expect("the same again");
    assert_eq!((imported.runs, imported.skipped), (0, 1));
    assert_eq!(other.runs().expect("rows")[0].tags, ["before", "mine"]);
    let exported = String::from_utf8(exported).expect("text");
    let hostile = exported.replace("before", "</script>");
    let refused = other.import(&mut hostile.as_bytes()).expect_err("a bad name");
    assert!(refused.to_string().starts_with("line 1: invalid run name"), "{refused}");
    // The name is the beginning of the id of a run in the other store.
    other.begin_run(&run("beforehand", 9)).expect("begin");
    let refused = other.import(&mut exported.as_bytes()).expect_err("an id begins so");
    assert!(refused.to_string().starts_with("line 1: name before: a run has this id"), "{refused}");
}

#[test]
fn deleted_run_leaves_no_rows_and_vacuum_frees_its_space() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("results.db");
    let mut store = Store::open(&path).expect("a store");
    for (id, started) in [("1a", 1), ("2b", 2)] {
        store.begin_run(&run(id, started)).expect("begin");
        let records: Vec<_> =
            (0..200).map(|place| record(&format!("a/{place}"), "handover", 1.0)).collect();
        store.insert_records(id, &records).expect("insert");
        store.add_tag(id, "both").expect("a name");
    }
    assert_eq!(store.delete_run("1").expect("deleted"), "1a");
    assert!(matches!(store.load_run("1a"), Err(StoreError::UnknownRun { .. })));
    assert_eq!(store.matching_ids("both").expect("a side"), ["2b"]);
    assert_eq!(store.load_run("2b").expect("the other").records.len(), 200);
    let (before, after) = store.vacuum().expect("vacuumed");
    assert!(after < before * 3 / 4, "{before} to {after} bytes");
    assert_eq!(fs::metadata(&path).expect("a file").len(), after);
    store.check_integrity().expect("sound");
    assert!(matches!(store.delete_run("1a"), Err(StoreError::UnknownRun { .. })));
}

#[test]
fn figure_is_loaded_from_every_run_that_has_it() {
    let store = three_runs();
    let figures = store.figures("lock/free", "handover").expect("figures");
    let rows_found: Vec<_> =
        figures.iter().map(|it| (it.run.as_str(), it.record.summary.median)).collect();
    assert_eq!(rows_found, [("1a", 8.0), ("2b", 9.0), ("3c", 10.0)]);
    assert!(store.figures("lock/fre", "handover").expect("none").is_empty());
    assert_eq!(store.resolve_contender("lock/free", None).expect("ours"), "handover");
    for (id, contender, rows_found) in [
        (
            "lock/fre",
            None,
            "lock/fre: no run in the store has this figure; the nearest is lock/free",
        ),
        (
            "lock/free",
            Some("handove"),
            "lock/free [handove]: no run in the store has this figure; the nearest is handover",
        ),
    ] {
        let refused = store.resolve_contender(id, contender).expect_err("misspelt");
        assert_eq!(refused.to_string(), rows_found);
    }
}
