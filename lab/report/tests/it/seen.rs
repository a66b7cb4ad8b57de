//! Warnings about figures that earlier runs put elsewhere.

use crate::support::{record, run};
use handover_record::{ContenderKind, Document, Record, Run, WarningCode};
use handover_report::{remove_smoke_ratios, warn_of_differing_runs};

/// A run with one figure, whose interval is 5 % wide on either side.
fn measured(id: &str, median: f64) -> Document {
    let mut record = record("floor/cache-line", "hardware", ContenderKind::Floor, median);
    (record.summary.low, record.summary.high) = (Some(median * 0.95), Some(median * 1.05));
    record.warnings.clear();
    Document::new(Run { id: id.into(), ..run() }, vec![record])
}

/// Returns the warnings about a figure of 100 ns beside earlier runs.
fn texts(earlier: &[Document]) -> Vec<String> {
    let mut document = measured("this", 100.0);
    warn_of_differing_runs(&mut document, earlier);
    let warnings = document.records.remove(0).warnings;
    assert!(warnings.iter().all(|it| it.code == WarningCode::Seen));
    warnings.into_iter().map(|it| it.text).collect()
}

#[test]
fn figure_outside_earlier_runs_has_a_warning_with_their_range() {
    let earlier = [measured("a", 84.0), measured("b", 448.0), measured("c", 101.0)];
    assert_eq!(texts(&earlier), ["medians from 84.0 ns to 448 ns in 4 runs on this machine"]);
}

#[test]
fn figure_that_agrees_with_earlier_runs_has_no_warning() {
    assert_eq!(texts(&[measured("a", 97.0), measured("b", 104.0)]), [""; 0]);
}

#[test]
fn two_runs_are_too_few_for_a_warning() {
    assert_eq!(texts(&[measured("a", 448.0)]), [""; 0]);
    assert_eq!(texts(&[measured("a", 448.0), measured("this", 448.0)]), [""; 0], "itself");
}

#[test]
fn runs_with_other_machines_arguments_or_placements_are_ignored() {
    let changes: [fn(&mut Document); 5] = [
        |it| it.host.name = "other".into(),
        |it| it.host.cpu_model = "other".into(),
        |it| {
            it.records[0].args.insert("size_bytes".into(), 8);
        },
        |it| it.records[0].participants.placement = "far".into(),
        |it| {
            let smoke = handover_record::Warning { code: WarningCode::Smoke, text: String::new() };
            it.records[0].warnings.push(smoke);
        },
    ];
    for change in changes {
        let mut earlier = [measured("a", 84.0), measured("b", 448.0)];
        earlier.iter_mut().for_each(change);
        assert_eq!(texts(&earlier), [""; 0]);
    }
}

#[test]
fn figure_without_an_interval_has_no_warning() {
    let mut document = measured("this", 100.0);
    let bare = |it: &mut Record| (it.summary.low, it.summary.high) = (None, None);
    document.records.iter_mut().for_each(bare);
    warn_of_differing_runs(&mut document, &[measured("a", 84.0), measured("b", 448.0)]);
    assert!(document.records[0].warnings.is_empty());
}

#[test]
fn smoke_figure_has_no_ratios() {
    let mut document = crate::support::ladder();
    let smoke = handover_record::Warning { code: WarningCode::Smoke, text: "smoke".into() };
    document.records[0].warnings.push(smoke);
    let before = document.clone();
    assert!(before.records.iter().any(|it| it.floor.is_some() || !it.peers.is_empty()));
    remove_smoke_ratios(&mut document);
    assert_eq!(document.records[1..], before.records[1..], "measured figures keep theirs");
    let it = &document.records[0];
    assert!(it.floor.is_none() && it.peers.is_empty() && it.peers_without_ratio.is_empty());
}
