//! Tests of the loops of `probe/*` and of their recordings.

use handover_probe::read::Trace;
use handover_suite::probe::rows::{FunctionBody, Retention, count_calls, record_calls};

#[test]
fn every_loop_counts_its_calls_and_only_enabled_sites_are_recorded() {
    let insides = [
        FunctionBody::Nothing,
        FunctionBody::TwoCalls,
        FunctionBody::TwoStamps,
        FunctionBody::OneProbe,
        FunctionBody::TwoProbes,
    ];
    for inside in insides {
        assert_eq!(count_calls(inside, 100), 100, "{inside:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [path, rings] = ["trace", "rings"].map(|name| folder.path().join(name));
    for (kept, wanted, events_count) in [
        (Retention::Newest, true, 200),
        (Retention::Streamed, true, 200),
        (Retention::AtEnd { events_count: 200 }, true, 200),
        (Retention::Newest, false, 0),
    ] {
        let recorded = record_calls(kept, wanted, [&path, &rings], || {
            count_calls(FunctionBody::TwoProbes, 100)
        });
        let (counted, recorded) = recorded.unwrap();
        assert_eq!((counted, recorded.events_count, recorded.lost_count), (100, events_count, 0));
        // What is written at the end has gaps, which are not counted.
        let length = path.metadata().unwrap().len();
        assert!(recorded.bytes == length || matches!(kept, Retention::AtEnd { .. }), "{kept:?}");
        let trace = Trace::open(&path).unwrap();
        let events: u64 = trace.threads().iter().map(|thread| thread.events_count).sum();
        assert_eq!((events, trace.missing_events().total_count()), (events_count, 0), "{kept:?}");
    }
}
