//! Exported formats: they contain the recorded events, and calls are paired for any trace.

use crate::perfetto::{DecodedEvent, Kind, assert_nests, chunks_count, tracks};
use crate::samples::{Raw, long, random, raw, sample, unpaired, word};
use handover_probe::read::EventKind;
use handover_trace::{ExportFormat, SiteNames, Traces, TreeGrouping, WalkCounts, export};
use serde_json::Value;
use std::collections::HashMap;

fn exported(traces: &Traces, format: ExportFormat) -> (Vec<u8>, WalkCounts) {
    let mut bytes = Vec::new();
    let names = SiteNames::with_all_selected(traces);
    let found = export(traces, &names, format, TreeGrouping::Processes, &mut bytes).unwrap();
    (bytes, found)
}

fn text(traces: &Traces, format: ExportFormat) -> (String, WalkCounts) {
    let (bytes, found) = exported(traces, format);
    (String::from_utf8(bytes).unwrap(), found)
}

/// Returns recorded events as they are decoded from Perfetto's format.
fn decoded(raw: Vec<Raw>) -> Vec<DecodedEvent> {
    raw.into_iter()
        .map(|(ns, kind, name, values)| DecodedEvent {
            ns: ns as u64,
            kind: match kind {
                EventKind::Enter => Kind::Begin,
                EventKind::Leave => Kind::End,
                _ => Kind::Instant,
            },
            name: (kind != EventKind::Leave).then_some(name),
            values: values.into_iter().map(|value| value as i64).collect(),
            end_is_missing: false,
        })
        .collect()
}

#[test]
fn perfetto_has_every_event_on_its_thread_track() {
    let traces = sample();
    let (bytes, found) = exported(traces, ExportFormat::Perfetto);
    let tracks = tracks(&bytes);
    let trace = &traces.as_slice()[0];
    assert_eq!(tracks.len(), trace.threads().len());
    let mut count = 0;
    for ((track, thread), raw) in tracks.iter().zip(trace.threads()).zip(raw(traces)) {
        assert_eq!((track.pid as u32, track.tid as u64), (trace.pid(), thread.tid));
        assert_eq!(track.thread, thread.name);
        assert_eq!(Some(track.process.as_str()), trace.program().rsplit('/').next());
        assert_eq!(track.events, decoded(raw));
        assert_nests(track);
        count += track.events.len() as u64;
    }
    assert_eq!(found.events, count);
    assert_eq!((found.unmatched_enters, found.unmatched_leaves, found.open), (0, 0, 0));
    let names: Vec<&str> = tracks.iter().map(|track| track.thread.as_str()).collect();
    assert!(names.contains(&"two"), "{names:?}");
    let negative = |event: &DecodedEvent| event.values == [-49, 49 << 40];
    assert!(tracks[0].events.iter().any(negative));
    assert_eq!(word(-49i64) as i64, -49);
}

#[test]
fn perfetto_events_are_complete_across_compressed_chunks() {
    let (_folder, traces) = long(20_000);
    let (bytes, found) = exported(&traces, ExportFormat::Perfetto);
    assert!(chunks_count(&bytes) > 1, "the trace is too short for this test");
    let tracks = tracks(&bytes);
    assert_eq!((tracks.len(), found.events), (1, 2 * 20_000));
    assert_eq!(tracks[0].events, decoded(raw(&traces).remove(0)));
    assert!(bytes.len() < 40_000 * 10, "{} bytes: not compressed", bytes.len());
}

#[test]
fn unpaired_events_are_repaired_and_counted() {
    let (bytes, found) = exported(unpaired(), ExportFormat::Perfetto);
    let tracks = tracks(&bytes);
    assert_nests(&tracks[0]);
    let story: Vec<(Kind, Option<&str>, bool)> = tracks[0]
        .events
        .iter()
        .map(|event| (event.kind, event.name.as_deref(), event.end_is_missing))
        .collect();
    let begin = |name| (Kind::Begin, Some(name), false);
    let end = (Kind::End, None, false);
    let cut = (Kind::End, None, true);
    let expected = [
        begin("odd.around"),
        begin("odd.lost"),
        begin("odd.fine"),
        end,
        cut,
        end,
        begin("odd.open"),
        begin("odd.fine"),
        end,
        cut,
    ];
    assert_eq!(story, expected);
    assert_eq!((found.unmatched_leaves, found.unmatched_enters, found.open), (1, 1, 1));
}

#[test]
fn random_calls_nest_in_every_format() {
    let (bytes, found) = exported(random(), ExportFormat::Perfetto);
    let tracks = tracks(&bytes);
    tracks.iter().for_each(assert_nests);
    let raw: Vec<_> = raw(random()).into_iter().flatten().collect();
    let count = |kind| raw.iter().filter(|event| event.1 == kind).count() as u64;
    assert_eq!(found.events, raw.len() as u64);
    assert_eq!(found.calls, count(EventKind::Enter));
    assert_eq!(found.marks, count(EventKind::Mark));
    let left = found.calls - found.unmatched_enters - found.open;
    assert_eq!(left + found.unmatched_leaves, count(EventKind::Leave));
    for number in [found.unmatched_leaves, found.unmatched_enters, found.open] {
        assert!(number > 10, "too few unpaired events to test: {found:?}");
    }
    let decoded: usize = tracks.iter().map(|track| track.events.len()).sum();
    assert_eq!(decoded as u64, 2 * found.calls + found.marks);
    assert_eq!(chrome(random()).1, found);
}

/// Checks the nesting of Chrome's JSON; returns its events and the counters of the export.
fn chrome(traces: &Traces) -> (Vec<Value>, WalkCounts) {
    let (text, found) = text(traces, ExportFormat::Chrome);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events").clone();
    // A thread number is reused only after its thread, and so each of its calls, has ended.
    let mut stacks: HashMap<(u64, u64), (f64, Vec<String>)> = HashMap::new();
    for event in events.iter().filter(|event| event["ph"] != "M") {
        let place = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let (last, stack) = stacks.entry(place).or_default();
        let name = event["name"].as_str().unwrap().to_owned();
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= *last, "time decreases");
        *last = ts;
        match event["ph"].as_str().unwrap() {
            "B" => stack.push(name),
            "E" => assert_eq!(stack.pop(), Some(name)),
            "i" => assert_eq!(event["s"], "t"),
            other => panic!("{other}"),
        }
    }
    assert!(stacks.values().all(|(_, stack)| stack.is_empty()));
    (events, found)
}

#[test]
fn chrome_json_has_the_recorded_calls() {
    let (events, _) = chrome(sample());
    let (metadata, events): (Vec<_>, Vec<_>) = events.iter().partition(|it| it["ph"] == "M");
    let threads: Vec<&str> = metadata
        .iter()
        .filter(|it| it["name"] == "thread_name")
        .map(|it| it["args"]["name"].as_str().unwrap())
        .collect();
    let trace = &sample().as_slice()[0];
    assert_eq!(threads, trace.threads().iter().map(|it| it.name.as_str()).collect::<Vec<_>>());
    let raw: Vec<_> = raw(sample()).into_iter().flatten().collect();
    assert_eq!(events.len(), raw.len());
    for (event, (ns, kind, name, values)) in events.iter().zip(raw) {
        let phase = match kind {
            EventKind::Enter => "B",
            EventKind::Leave => "E",
            _ => "i",
        };
        assert_eq!((event["ph"].as_str(), event["name"].as_str()), (Some(phase), Some(&*name)));
        assert_eq!((event["ts"].as_f64().unwrap() * 1e3).round() as i64, ns);
        let args = |key: &str| event["args"][key].as_i64();
        let decoded: Vec<i64> = ["value", "value 2"].into_iter().filter_map(args).collect();
        assert_eq!(decoded, values.iter().map(|value| *value as i64).collect::<Vec<_>>());
    }
}

#[test]
fn folded_stacks_sum_to_the_time_in_outermost_calls() {
    for traces in [sample(), unpaired(), random()] {
        let (text, _) = text(traces, ExportFormat::Folded);
        let mut sum = 0;
        for line in text.lines() {
            let (stack, ns) = line.rsplit_once(' ').unwrap();
            assert!(stack.contains(';'), "{line}");
            sum += ns.parse::<u64>().unwrap();
        }
        let tracks = tracks(&exported(traces, ExportFormat::Perfetto).0);
        let mut outermost = 0;
        for track in tracks {
            let (mut depth, mut begin) = (0, 0);
            for event in track.events {
                match event.kind {
                    Kind::Begin => {
                        if depth == 0 {
                            begin = event.ns;
                        }
                        depth += 1;
                    }
                    Kind::End => {
                        depth -= 1;
                        if depth == 0 {
                            outermost += event.ns - begin;
                        }
                    }
                    Kind::Instant => {}
                }
            }
        }
        assert_eq!(sum, outermost);
    }
    let (text, _) = text(sample(), ExportFormat::Folded);
    assert!(text.contains(";whole.outer;whole.f(int, \"x:y\");whole.short "), "{text}");
    assert!(text.contains(";whole.fall;whole.fall;whole.fall;whole.fall;whole.fall "), "{text}");
}

#[test]
fn flame_graph_has_a_bar_within_its_callers_for_each_stack() {
    for traces in [sample(), unpaired(), random()] {
        let (page, _) = text(traces, ExportFormat::Flamegraph);
        let bars: Vec<[f64; 3]> = page
            .lines()
            .filter(|line| line.starts_with("<svg data-x="))
            .map(|line| ["x=\"", "width=\"", "y=\""].map(|name| attribute(line, name)))
            .collect();
        assert!(bars.len() > 3, "{page}");
        let root_width: f64 = bars.iter().filter(|bar| bar[2] == 0.0).map(|bar| bar[1]).sum();
        assert!((root_width - 100.0).abs() < 0.01, "the roots fill {root_width} %");
        for &[x, width, y] in bars.iter().filter(|bar| bar[2] > 0.0) {
            let is_caller = |bar: &&[f64; 3]| {
                bar[2] == y - 18.0 && bar[0] <= x + 0.001 && x + width <= bar[0] + bar[1] + 0.001
            };
            assert!(
                bars.iter().any(|bar| is_caller(&bar)),
                "no caller holds the bar {x} {width} {y}"
            );
        }
    }
    let (page, _) = text(sample(), ExportFormat::Flamegraph);
    assert!(page.contains("<text x=\"3\" y=\"13\">whole.f(int, \"x;y\")</text>"), "{page}");
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
}

/// Returns the number in the last attribute of a bar whose name ends like that.
fn attribute(line: &str, name: &str) -> f64 {
    let bar = line.split("><title>").next().unwrap();
    let at =
        bar.rfind(&format!(" {name}")).unwrap_or_else(|| panic!("{name}: {line}")) + name.len() + 1;
    bar[at..].split(['%', '"']).next().unwrap().parse().unwrap()
}

#[test]
fn csv_has_one_line_per_event() {
    let (text, found) = text(sample(), ExportFormat::Csv);
    // Only these fields contain a comma, a quote or a line end.
    let plain = text.replace("\"whole.f(int, \"\"x;y\"\")\"", "F");
    let plain = plain.replace("\"one \"\"quoted\"\", thread\"", "ONE");
    let plain = plain.replace("\"whole.\u{b5}s \\ \n\"", "MU");
    let mut lines = plain.lines();
    assert_eq!(lines.next(), Some("time_ns,pid,tid,thread,event,name,value,value_2"));
    let mut last_ns = i64::MIN;
    let mut count = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), 8, "{line}");
        let ns: i64 = fields[0].parse().unwrap();
        assert!(ns >= last_ns);
        last_ns = ns;
        count += 1;
    }
    assert_eq!(count, raw(sample()).iter().map(Vec::len).sum::<usize>());
    assert_eq!(found.events, count as u64);
    assert!(plain.contains(&format!(",ONE,mark,MU,{},7\n", u64::MAX)), "{plain}");
    assert!(
        exported(unpaired(), ExportFormat::Csv)
            .0
            .windows(15)
            .any(|part| part == b"leave,odd.late,")
    );
}

#[test]
fn only_selected_names_are_exported() {
    let names = SiteNames::with_matching_selected(sample(), "whole.*,-whole.f(*");
    let mut bytes = Vec::new();
    export(sample(), &names, ExportFormat::Perfetto, TreeGrouping::Processes, &mut bytes).unwrap();
    let tracks = tracks(&bytes);
    tracks.iter().for_each(assert_nests);
    let names: Vec<String> =
        tracks.iter().flat_map(|track| &track.events).filter_map(|it| it.name.clone()).collect();
    assert!(names.iter().any(|name| name == "whole.short"));
    assert!(names.iter().all(|name| !name.starts_with("whole.f(")));
}

#[test]
fn full_disk_is_an_export_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for format in ExportFormat::ALL {
        let names = SiteNames::with_all_selected(sample());
        let written = export(sample(), &names, *format, TreeGrouping::Threads, Full(100));
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::StorageFull, "{format}");
    }
}
