//! Names of runs: adding, lookup, export and import; and deletion of runs.

use crate::support::{record, run};
use handover_store::{Store, StoreError};
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

fn three_runs() -> Store {
    let mut store = Store::in_memory().expect("a store");
    for (id, started) in [("1a", 1), ("2b", 2), ("3c", 3)] {
        store.begin(&run(id, started)).expect("begin");
        store.insert(id, &[record("lock/free", "handover", 7.0 + started as f64)]).expect("insert");
    }
    store
}

#[test]
fn a_name_stands_for_all_its_runs_and_for_the_latest_where_one_is_asked_for() {
    let mut store = three_runs();
    assert_eq!(store.tag("1a", "before").expect("a name"), "1a");
    store.tag("-2", "before").expect("a name for a second run");
    store.tag("2b", "before").expect("given twice, had once");
    store.tag("2b", "also").expect("a second name");
    assert_eq!(store.side("before").expect("a side"), ["1a", "2b"]);
    assert_eq!(store.side("3").expect("a run by a prefix"), ["3c"]);
    assert_eq!(store.resolve("before").expect("a run"), "2b");
    let rows = store.runs().expect("rows");
    assert_eq!(rows[1].tags, ["also", "before"]);
    assert!(rows[2].tags.is_empty());
    assert!(store.untag("1a", "before").expect("taken"));
    assert!(!store.untag("1a", "before").expect("not there"));
    assert_eq!(store.side("before").expect("a side"), ["2b"]);
}

#[test]
fn a_name_that_could_not_be_asked_for_or_would_leave_a_page_is_refused() {
    let mut store = three_runs();
    for name in ["", "last", "-1", "9lives", "a b", "</script>", "x\u{1b}[31m", &"n".repeat(65)] {
        let refused = store.tag("1a", name).expect_err(name);
        assert!(matches!(refused, StoreError::BadTag { .. }), "{refused}");
        assert!(!refused.to_string().chars().any(char::is_control), "{refused}");
    }
    store.begin(&run("feed-1", 9)).expect("begin");
    let refused = store.tag("1a", "feed").expect_err("a run's id begins so");
    assert!(matches!(refused, StoreError::TagIsId { .. }), "{refused}");
    let refused = store.side("befor").expect_err("nothing of that name");
    assert!(matches!(refused, StoreError::UnknownRun { .. }), "{refused}");
    store.tag("1a", "before").expect("a name");
    let refused = store.side("befor").expect_err("nothing of that name");
    assert!(refused.to_string().contains("the nearest are before"), "{refused}");
}

#[test]
fn names_go_with_an_export_and_join_those_that_are_there() {
    let mut store = three_runs();
    store.tag("1a", "before").expect("a name");
    let mut exported = Vec::new();
    store.export(&["1a".to_string()], &mut exported).expect("an export");
    let mut other = Store::in_memory().expect("a store");
    other.import(&mut &exported[..]).expect("an import");
    assert_eq!(other.side("before").expect("a side"), ["1a"]);
    other.tag("1a", "mine").expect("a name");
    let imported = other.import(&mut &exported[..]).expect("the same again");
    assert_eq!((imported.runs, imported.skipped), (0, 1));
    assert_eq!(other.runs().expect("rows")[0].tags, ["before", "mine"]);
    let exported = String::from_utf8(exported).expect("text");
    let hostile = exported.replace("before", "</script>");
    let refused = other.import(&mut hostile.as_bytes()).expect_err("a bad name");
    assert!(refused.to_string().starts_with("line 1: name"), "{refused}");
    // The name is the beginning of the id of a run in the other store.
    other.begin(&run("beforehand", 9)).expect("begin");
    let refused = other.import(&mut exported.as_bytes()).expect_err("an id begins so");
    assert!(refused.to_string().starts_with("line 1: name before: a run has this id"), "{refused}");
}

#[test]
fn a_run_that_is_deleted_is_gone_with_all_that_it_had_and_leaves_no_space_behind() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("results.db");
    let mut store = Store::open(&path).expect("a store");
    for (id, started) in [("1a", 1), ("2b", 2)] {
        store.begin(&run(id, started)).expect("begin");
        let records: Vec<_> =
            (0..200).map(|place| record(&format!("a/{place}"), "handover", 1.0)).collect();
        store.insert(id, &records).expect("insert");
        store.tag(id, "both").expect("a name");
    }
    assert_eq!(store.delete("1").expect("deleted"), "1a");
    assert!(matches!(store.load("1a"), Err(StoreError::UnknownRun { .. })));
    assert_eq!(store.side("both").expect("a side"), ["2b"]);
    assert_eq!(store.load("2b").expect("the other").records.len(), 200);
    let (before, after) = store.vacuum().expect("vacuumed");
    assert!(after < before * 3 / 4, "{before} to {after} bytes");
    assert_eq!(fs::metadata(&path).expect("a file").len(), after);
    store.check().expect("sound");
    assert!(matches!(store.delete("1a"), Err(StoreError::UnknownRun { .. })));
}

#[test]
fn a_figure_is_followed_over_runs_without_the_rest_of_them() {
    let store = three_runs();
    let figures = store.figures("lock/free", "handover").expect("figures");
    let told: Vec<_> =
        figures.iter().map(|it| (it.run.as_str(), it.record.summary.median)).collect();
    assert_eq!(told, [("1a", 8.0), ("2b", 9.0), ("3c", 10.0)]);
    assert!(store.figures("lock/fre", "handover").expect("none").is_empty());
    assert_eq!(store.contender("lock/free", None).expect("ours"), "handover");
    for (id, contender, told) in [
        ("lock/fre", None, "lock/fre: no run of the store has it; the nearest is lock/free"),
        (
            "lock/free",
            Some("handove"),
            "lock/free [handove]: no run of the store has it; the nearest is handover",
        ),
    ] {
        let refused = store.contender(id, contender).expect_err("misspelt");
        assert_eq!(refused.to_string(), told);
    }
}

/// Returns `true` if the lines of JSON contain everything that the earlier ones do; they may have
/// more.
fn says_the_same(now: &str, then: &str) -> bool {
    fn has(now: &Value, then: &Value) -> bool {
        match (now, then) {
            (Value::Object(now), Value::Object(then)) => {
                then.iter().all(|(name, value)| now.get(name).is_some_and(|it| has(it, value)))
            }
            (Value::Array(now), Value::Array(then)) => {
                now.len() == then.len() && now.iter().zip(then).all(|(now, then)| has(now, then))
            }
            (now, then) => now == then,
        }
    }
    let read = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    has(&Value::Array(read(now)), &Value::Array(read(then)))
}

#[test]
fn what_older_versions_have_stored_is_packed_anew_and_says_the_same() {
    let folder = tempdir().expect("a folder");
    let stored = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored");
    let exported = |store: &Store| {
        let mut lines = Vec::new();
        store.export(&[], &mut lines).expect("an export");
        String::from_utf8(lines).expect("text")
    };
    for schema in 1..handover_store::SCHEMA {
        let path = folder.path().join(format!("{schema}.db"));
        fs::copy(stored.join(format!("schema-{schema}.sqlite")), &path)
            .expect("a store of its time");
        let said = fs::read_to_string(stored.join(format!("schema-{schema}.jsonl")));
        let said = said.expect("what it said then");
        let mut store = Store::open(&path).expect("brought up to date");
        assert!(says_the_same(&exported(&store), &said), "schema {schema}, as it was");
        let (before, after) = store.vacuum().expect("packed anew");
        // Schemas from 3 on have the current form.
        let is_smaller = schema > 2 || 3 * after < 2 * before;
        assert!(is_smaller, "schema {schema}: {after} bytes of {before}");
        assert!(says_the_same(&exported(&store), &said), "schema {schema}, packed anew");
        assert_eq!(store.vacuum().expect("again"), (after, after), "nothing is left to pack");
        store.check().expect("sound");
        assert_eq!(fs::metadata(&path).expect("a file").len(), after);
    }
}

#[test]
fn a_run_without_its_histograms_is_otherwise_the_same() {
    let store = three_runs();
    let mut whole = store.load("1a").expect("a run");
    assert!(whole.records.iter().all(|record| !record.histogram.is_empty()));
    whole.records.iter_mut().for_each(|record| record.histogram.clear());
    assert_eq!(store.load_bare("1a").expect("the run"), whole);
}
