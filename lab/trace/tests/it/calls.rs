//! Statistics, trees and estimates compared with the recorded events.

use crate::samples::{deep, random, raw, recorded, sample, unpaired};
use handover_probe::format::header;
use handover_probe::read::{EventKind, Trace};
use handover_probe::trace_file::with_suffix;
use handover_probe::{probe, span};
use handover_trace::{
    CallEnding, CallStatistics, CallTree, CompletedCall, EventPosition, ExclusionLimits,
    FunctionStatistics, STACK_DEPTH_MAX, SiteNames, SortOrder, TraceVisitor, Traces, TreeGrouping,
    TreeLine, estimate, estimate_table, function_table, missing_event_lines, trace_headlines,
    tree_table, walk,
};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

fn functions(traces: &Traces, order: SortOrder) -> (Vec<FunctionStatistics>, u64) {
    let names = SiteNames::with_all_selected(traces);
    let mut statistics = CallStatistics::new();
    walk(traces, &names, &mut statistics).unwrap();
    (statistics.functions(&names, order), statistics.outermost_calls_time_ns())
}

fn tree(traces: &Traces, grouping: TreeGrouping, levels_max: usize) -> (Vec<TreeLine>, u64) {
    let names = SiteNames::with_all_selected(traces);
    let mut tree = CallTree::new(grouping);
    walk(traces, &names, &mut tree).unwrap();
    (tree.lines(&names, levels_max), tree.outermost_calls_time_ns())
}

fn named<'a>(functions: &'a [FunctionStatistics], name: &str) -> &'a FunctionStatistics {
    functions.iter().find(|function| function.name == name).expect(name)
}

#[test]
fn calls_are_counted_and_timed() {
    let (all, time_ns) = functions(sample(), SortOrder::Name);
    let names: Vec<&str> = all.iter().map(|function| function.name.as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    let outer = named(&all, "whole.outer");
    assert_eq!((outer.calls, outer.threads, outer.marks, outer.cut), (2, 2, 0, 0));
    assert_eq!(named(&all, "whole.short").calls, 50);
    assert_eq!(named(&all, "whole.short").threads, 1);
    assert_eq!((named(&all, "whole.mark").calls, named(&all, "whole.mark").marks), (0, 50));

    // The total of a recursion is its outermost call; its self time is the same time, in five
    // parts.
    let recurse = named(&all, "whole.fall");
    let enters: Vec<i64> = raw(sample())[1]
        .iter()
        .filter(|event| event.2 == "whole.fall")
        .map(|event| event.0)
        .collect();
    let whole_ns = (enters[9] - enters[0]) as u64;
    assert_eq!((recurse.calls, recurse.total_ns, recurse.self_ns), (5, whole_ns, whole_ns));
    let durations = recurse.durations.unwrap();
    assert_eq!((durations.min_ns, durations.max_ns), ((enters[5] - enters[4]) as u64, whole_ns));
    assert!(durations.min_ns <= durations.p50_ns && durations.p50_ns <= durations.p99_ns);
    assert!(durations.p99_ns <= durations.max_ns);

    let selves: u64 = all.iter().map(|function| function.self_ns).sum();
    assert_eq!(selves, time_ns);
}

#[test]
fn functions_are_sorted_by_the_requested_order() {
    type Key = fn(&FunctionStatistics) -> u64;
    let keys: [(&str, Key); 6] = [
        ("self", |it| it.self_ns),
        ("total", |it| it.total_ns),
        ("calls", |it| it.calls),
        ("p50", |it| it.durations.map_or(0, |it| it.p50_ns)),
        ("p99", |it| it.durations.map_or(0, |it| it.p99_ns)),
        ("max", |it| it.durations.map_or(0, |it| it.max_ns)),
    ];
    for (order, key) in keys {
        let (all, _) = functions(sample(), order.parse().unwrap());
        assert!(all.is_sorted_by(|one, other| key(one) >= key(other)), "{order}");
    }
    assert!("fastest".parse::<SortOrder>().unwrap_err().to_string().contains("p99"));
}

#[test]
fn call_without_end_counts_in_sums_but_not_in_quantiles() {
    let (all, _) = functions(unpaired(), SortOrder::Total);
    for name in ["odd.lost", "odd.open"] {
        let cut = named(&all, name);
        assert_eq!((cut.calls, cut.cut, cut.durations), (1, 1, None), "{name}");
        assert!(cut.total_ns > 0);
    }
    assert!(all.iter().all(|function| function.name != "odd.late"));
    assert_eq!(named(&all, "odd.fine").calls, 2);
}

#[test]
fn lost_end_of_a_too_deep_call_does_not_shift_outer_ends() {
    struct Endings(Vec<CallEnding>);
    impl TraceVisitor for Endings {
        fn leave_call(&mut self, _: &EventPosition, call: &CompletedCall) -> std::io::Result<()> {
            self.0.push(call.ending);
            Ok(())
        }
    }
    // With `deep.outer`, the calls that are not too deep.
    let (_folder, traces) = deep(STACK_DEPTH_MAX - 1);
    let mut endings = Endings(Vec::new());
    let found = walk(&traces, &SiteNames::with_all_selected(&traces), &mut endings).unwrap();
    assert_eq!((found.too_deep, found.calls), (1, STACK_DEPTH_MAX as u64 + 1));
    assert_eq!((found.unmatched_enters, found.unmatched_leaves, found.open), (0, 0, 0));
    assert!(endings.0.iter().all(|ending| *ending == CallEnding::Returned));
}

#[test]
fn self_times_of_threads_with_losses_are_marked() {
    use handover_probe::format::{SEGMENT_BYTES, SEGMENT_THREAD, SegmentHeader, thread};
    let mut bytes = std::fs::read(&sample().paths()[0]).unwrap();
    let mut at = 4096;
    while let Some(mut segment) = SegmentHeader::decode(&bytes[at..]) {
        let is_two = bytes[at + SEGMENT_BYTES as usize..].starts_with(b"two");
        if segment.kind == SEGMENT_THREAD && is_two {
            segment.words[thread::LOST_FIELD] = 7;
            bytes[at..][..SEGMENT_BYTES as usize].copy_from_slice(&segment.encode());
        }
        at += segment.bytes as usize;
    }
    let traces = Traces::from_trace(Trace::from_bytes(bytes).unwrap());
    let names = SiteNames::with_all_selected(&traces);
    let mut statistics = CallStatistics::new();
    let found = walk(&traces, &names, &mut statistics).unwrap();
    let all = statistics.functions(&names, SortOrder::Name);
    for (name, is_marked) in [("whole.fall", true), ("whole.outer", true), ("whole.short", false)] {
        assert_eq!(named(&all, name).has_losses, is_marked, "{name}");
    }
    let table = function_table(&all, statistics.outermost_calls_time_ns());
    let line = |name: &str| table.lines().find(|line| line.ends_with(name)).unwrap().trim_start();
    assert!(
        line("whole.fall").starts_with('~') && !line("whole.short").starts_with('~'),
        "{table}"
    );
    assert_eq!(found.threads_with_losses, 1);
    let lines = missing_event_lines(&traces, &found);
    assert!(
        lines.iter().any(|line| line.contains("may include calls that were lost")),
        "{lines:?}"
    );
    assert!(functions(sample(), SortOrder::Name).0.iter().all(|function| !function.has_losses));
}

#[test]
fn tree_nests_callees_below_their_callers() {
    let (lines, time_ns) = tree(sample(), TreeGrouping::Processes, 100);
    let summary: Vec<(usize, &str, u64)> =
        lines.iter().map(|line| (line.level, line.name.as_str(), line.calls)).collect();
    assert_eq!(summary[0].2, 3, "outermost calls");
    assert!(summary.contains(&(1, "whole.outer", 2)));
    assert!(summary.contains(&(2, "whole.f(int, \"x;y\")", 50)));
    assert!(summary.contains(&(3, "whole.short", 50)));
    assert!(summary.contains(&(5, "whole.fall", 1)));
    assert_eq!(lines[0].total_ns, time_ns);
    let selves: u64 = lines.iter().map(|line| line.self_ns).sum();
    assert_eq!(selves, time_ns, "self times sum to the total");
    for (at, line) in lines.iter().enumerate() {
        let below = lines[at + 1..].iter().take_while(|other| other.level > line.level);
        let children: u64 =
            below.filter(|other| other.level == line.level + 1).map(|it| it.total_ns).sum();
        assert_eq!(line.total_ns, line.self_ns + children, "{}", line.name);
    }
    assert!(tree(sample(), TreeGrouping::Processes, 1).0.iter().all(|line| line.level <= 1));
    let (threads, _) = tree(sample(), TreeGrouping::Threads, 0);
    assert_eq!(threads.len(), 2);
    assert!(threads[1].name.contains(" two ["), "{}", threads[1].name);
}

#[test]
fn tree_and_statistics_agree_on_random_traces() {
    for traces in [sample(), unpaired(), random()] {
        let (all, time_ns) = functions(traces, SortOrder::default());
        let (lines, tree_ns) = tree(traces, TreeGrouping::Threads, usize::MAX);
        assert_eq!(time_ns, tree_ns);
        for function in &all {
            let of = lines.iter().filter(|line| line.level > 0 && line.name == function.name);
            let (calls, self_ns) =
                of.fold((0, 0), |sum, line| (sum.0 + line.calls, sum.1 + line.self_ns));
            assert_eq!((calls, self_ns), (function.calls, function.self_ns), "{}", function.name);
        }
    }
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        black_box(());
    }
}

#[test]
fn estimate_leaves_out_frequent_short_functions() {
    let (_folder, traces) = recorded("estimate", "estimate.*", || {
        for number in 0..20u64 {
            let _long = span!("estimate.long");
            spin(Duration::from_millis(1));
            for _ in 0..100 {
                let _short = span!("estimate.short(a, b)", number);
            }
            probe!("estimate.mark");
        }
    });
    let names = SiteNames::with_all_selected(&traces);
    let limits = ExclusionLimits { mean_ns_max: 500_000, ..ExclusionLimits::default() };
    let all = estimate(&traces, &names, &limits).unwrap();
    assert_eq!(all.events, 20 * (2 + 200 + 1));
    let [short, long, mark] = &all.shares[..] else { panic!("{all:?}") };
    assert_eq!((short.events, short.calls, short.is_left_out), (4_000, 2_000, true));
    assert_eq!((long.events, long.is_left_out), (40, false));
    assert_eq!((mark.events, mark.mean_ns, mark.is_left_out), (20, None, false));
    assert!(long.mean_ns.unwrap() >= 1_000_000);
    assert_eq!(all.filter.as_deref(), Some("-estimate.short(a? b)"));
    assert_eq!(all.events_left, 60);
    // At least two bytes per event, and less than the whole file, which also has headers.
    let bytes = std::fs::metadata(&traces.paths()[0]).unwrap().len();
    assert!((2 * all.events..bytes).contains(&all.stream_bytes), "{} of {bytes}", all.stream_bytes);
    assert_eq!(all.ring_bytes, 8 * all.events + 8 * 2_000);
    assert!(estimate_table(&all).contains("-estimate.short(a? b)"));

    // With the filter, a walk visits exactly the remaining events.
    let left = SiteNames::with_matching_selected(&traces, all.filter.as_deref().unwrap());
    assert_eq!(walk(&traces, &left, &mut CallStatistics::new()).unwrap().events, all.events_left);
    let short = ExclusionLimits { mean_ns_max: 0, ..ExclusionLimits::default() };
    assert_eq!(estimate(&traces, &names, &short).unwrap().filter, None);
}

#[test]
fn processes_share_one_time_line() {
    let (folder, one) = recorded("one", "line.*", || {
        let _span = span!("line.one");
    });
    let (other_folder, _) = recorded("two", "line.*", || {
        let _span = span!("line.two");
    });
    let paths = [other_folder.path().join("two"), folder.path().join("one")];
    let traces = Traces::open(&paths).unwrap();
    let lines: Vec<&str> = traces
        .merged_events()
        .map(|(process, event)| traces.site_name(process, event.site).unwrap())
        .collect();
    assert_eq!(lines, ["line.one", "line.one", "line.two", "line.two"]);
    let twice = Traces::open([&paths[0], &paths[0]]).unwrap();
    assert_eq!(twice.as_slice().len(), 1, "a file is read once");

    // The file has a child's name but is not a child's: its parent PID is not among the traces.
    std::fs::copy(&paths[0], folder.path().join("one.77")).unwrap();
    std::fs::write(folder.path().join("one.78"), "rubbish").unwrap();
    let alone = Traces::open([&paths[1]]).unwrap();
    assert_eq!((alone.as_slice().len(), alone.skipped_children().len()), (1, 1));
    assert!(alone.skipped_children()[0].to_string().contains("one.78"));
    assert!(Traces::open_without_children([&paths[1]]).unwrap().skipped_children().is_empty());
    assert_eq!(one.as_slice().len(), 1);
}

#[test]
fn traces_beside_the_first_are_read_if_their_processes_are_related() {
    let (first_folder, _) = recorded("a", "sibling.*", || drop(span!("sibling.first")));
    let (second_folder, _) = recorded("a", "sibling.*", || drop(span!("sibling.second")));
    let [first, second] = [first_folder, second_folder].map(|folder| {
        let path = folder.path().join("a");
        (folder, path)
    });
    let with_word = |path: &Path, word: usize, bytes: &[u8]| {
        let mut copy = std::fs::read(path).unwrap();
        copy[word * 8..][..bytes.len()].copy_from_slice(bytes);
        handover_probe::read::repair_checksums(copy)
    };
    // Another process of the same parent, in a script that is not recorded itself.
    let pid = std::process::id() + 1;
    let sibling_of = |path: &Path| with_word(path, header::PIDS_FIELD, &pid.to_le_bytes());
    for (file, sibling, count) in [(&first.1, &second.1, 2), (&second.1, &first.1, 1)] {
        let bytes = sibling_of(sibling);
        let path = with_suffix(file, &pid.to_string());
        std::fs::write(&path, &bytes).unwrap();
        // The user has given this copy its name.
        let copy = with_suffix(file, "1");
        std::fs::write(&copy, &bytes).unwrap();
        let traces = Traces::open([file]).unwrap();
        assert_eq!((traces.as_slice().len(), traces.skipped_children().len()), (count, 2 - count));
        let named = Traces::open([file, &path]).unwrap();
        assert_eq!((named.as_slice().len(), named.skipped_children().len()), (2, 0));
        // The file without threads began after the first had ended.
        let (folder, _) = recorded("a", "sibling.none", || ());
        let file = folder.path().join("a");
        std::fs::write(with_suffix(&file, &pid.to_string()), &bytes).unwrap();
        assert_eq!(Traces::open([&file]).unwrap().as_slice().len(), 1);
        // A sibling with another clock.
        let is_tsc = u64::from(bytes[header::IS_TSC_FIELD * 8] == 0);
        let other_clock = with_word(&path, header::IS_TSC_FIELD, &is_tsc.to_le_bytes());
        std::fs::write(&path, other_clock).unwrap();
        let traces = Traces::open([path.with_extension("")]).unwrap();
        assert_eq!((traces.as_slice().len(), traces.skipped_children().len()), (1, 1));
        [path, copy].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    // The parent of the file's process.
    let parent_pid = Trace::open(&second.1).unwrap().parent_pid();
    let bytes = with_word(&first.1, header::PIDS_FIELD, &parent_pid.to_le_bytes());
    std::fs::write(with_suffix(&second.1, &parent_pid.to_string()), bytes).unwrap();
    assert_eq!(Traces::open([&second.1]).unwrap().as_slice().len(), 2);
}

#[test]
fn sibling_of_a_file_without_a_folder_is_read() {
    const IN_FOLDER: &str = "HANDOVER_TRACE_TEST_IN_FOLDER";
    if std::env::var_os(IN_FOLDER).is_some() {
        assert_eq!(Traces::open(["a"]).unwrap().as_slice().len(), 2);
        return;
    }
    let (folder, _) = recorded("a", "folder.*", || drop(span!("folder.span")));
    let path = folder.path().join("a");
    let pid = std::process::id() + 1;
    let mut sibling = std::fs::read(&path).unwrap();
    sibling[header::PIDS_FIELD * 8..][..4].copy_from_slice(&pid.to_le_bytes());
    let sibling = handover_probe::read::repair_checksums(sibling);
    std::fs::write(with_suffix(&path, &pid.to_string()), sibling).unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "calls::sibling_of_a_file_without_a_folder_is_read"]);
    assert!(command.current_dir(&folder).env(IN_FOLDER, "1").status().unwrap().success());
}

#[test]
fn texts_escape_control_characters_in_names() {
    let (all, time_ns) = functions(sample(), SortOrder::default());
    let table = function_table(&all, time_ns);
    assert!(table.contains("whole.outer") && table.contains("p99"), "{table}");
    assert!(table.contains("whole.\u{b5}s \\ \\n"), "{table}");
    assert!(trace_headlines(sample()).contains("2 threads"), "{}", trace_headlines(sample()));
    assert!(tree_table(&tree(sample(), TreeGrouping::Processes, 9).0).contains("\n"));
    let found =
        walk(unpaired(), &SiteNames::with_all_selected(unpaired()), &mut CallStatistics::new())
            .unwrap();
    let missing = missing_event_lines(unpaired(), &found).join("\n");
    for words in ["1 ends without", "1 beginnings without", "1 calls had not ended"] {
        assert!(missing.contains(words), "{missing}");
    }
    let raw = raw(unpaired());
    assert!(raw[0].iter().any(|event| event.1 == EventKind::Leave && event.2 == "odd.late"));
    assert!(
        unpaired().as_slice().iter().all(|trace: &Trace| trace.missing_events().total_count() == 0)
    );
}
