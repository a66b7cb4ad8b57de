//! Export to other tools' formats, read back by independent readers if available.

use crate::support;
use base64::Engine as _;
use handover_record::{ContenderKind, Document, FigureMode, Record, RoleUsage, Unit};
use handover_report::{Format, export, render_markdown};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Name with characters that need escaping in some format.
const ODD: &str = "odd \"name\", with | <b> and\nline";

fn documents() -> Vec<Document> {
    let mut histogram = Histogram::<u64>::new(3).expect("sound");
    histogram.record_n(53_000, 99).expect("recorded");
    histogram.record(210_000).expect("recorded");
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).expect("serialised");
    let mut lock = support::record("lock/passed", "trylock", ContenderKind::Ours, 53.0);
    lock.histogram = base64::engine::general_purpose::STANDARD.encode(bytes);
    let role =
        |role: &str, cpus| RoleUsage { role: role.to_string(), cpus, ..RoleUsage::default() };
    lock.roles = vec![role("locker", 0.9), role(RoleUsage::OTHER_THREADS_ROLE, 0.09)];
    lock.faults_minor_per_op = 0.25;
    lock.args = BTreeMap::from([("lockers_count".to_string(), 2)]);
    let mut odd = support::record("sched/fair-index", ODD, ContenderKind::Peer, 1500.0);
    odd.unit = Unit::Bytes;
    vec![Document::new(support::run(), vec![lock, odd])]
}

#[test]
fn csv_has_a_line_per_figure_and_preserves_names() {
    let text = export(&documents(), Format::Csv);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().expect("a head").clone();
    let lines: Vec<BTreeMap<String, String>> = reader
        .records()
        .map(|line| {
            let line = line.expect("as many fields as the head has");
            head.iter().map(str::to_string).zip(line.iter().map(str::to_string)).collect()
        })
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&*lines[0]["id"], &*lines[0]["median"]), ("lock/passed", "53.0"));
    assert_eq!((&*lines[0]["args"], &*lines[0]["unit"]), ("lockers_count=2", "ns"));
    assert_eq!(lines[0]["cpus_by_role"], "locker 0.900; other threads 0.090");
    assert_eq!(lines[0]["faults_minor_per_op"], "0.25");
    assert_eq!((&*lines[1]["contender"], &*lines[1]["floor_id"]), (ODD, ""));
}

#[test]
fn labels_of_odd_argument_names_are_valid_and_distinct() {
    let mut documents = documents();
    let names = ["a b\"\n", "a-b", "a_b", "a_b_2"];
    let args = names.iter().zip(1..).map(|(name, value)| (name.to_string(), value));
    documents[0].records[0].args = args.collect();
    let text = export(&documents, Format::OpenMetrics);
    let labels = "arg_a_b__=\"1\",arg_a_b=\"2\",arg_a_b_2=\"3\",arg_a_b_2_3=\"4\"";
    assert!(text.contains(&format!("contender=\"trylock\",{labels}")), "{text}");
}

#[test]
fn open_metrics_have_families_in_base_units_and_an_end_marker() {
    let text = export(&documents(), Format::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let named = "{run=\"18c0ffee1234-2a1f\",host=\"workbench\",id=\"lock/passed\",\
                 contender=\"trylock\",arg_lockers_count=\"2\"";
    assert!(
        text.contains(&format!(
            "handover_operation_seconds{named},quantile=\"0.5\"}} 0.000000053\n"
        ))
    );
    assert!(text.contains(&format!("handover_operation_seconds_count{named}}} 1000000\n")));
    assert!(
        text.contains(
            "contender=\"odd \\\"name\\\", with | <b> and\\nline\",unit=\"bytes\"} 1500\n"
        )
    );
    assert!(text.contains(&format!("handover_cpus{named},role=\"locker\"}} 0.9\n")), "{text}");
    assert!(text.contains(&format!("handover_page_faults_per_operation{named}}} 0.25\n")));
    assert!(text.contains(&format!("handover_figure_seconds{named},timing=\"batch\"}} ")));
    // Each family is one block: its header once, then only its own samples.
    let mut family = "";
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(head) => family = head.split(' ').next().unwrap_or_default(),
            None => assert!(line.starts_with('#') || line.starts_with(family), "{family}: {line}"),
        }
    }
    assert_eq!(text.matches("# TYPE handover_operation_seconds ").count(), 1);
}

#[test]
fn hdr_log_is_read_back_by_the_library() {
    let text = export(&documents(), Format::HdrLog);
    let entries: Vec<_> = IntervalLogIterator::new(text.as_bytes())
        .map(|entry| entry.unwrap_or_else(|refused| panic!("{refused:?} in {text}")))
        .collect();
    let histograms: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            LogEntry::Interval(it) => Some(it),
            _ => None,
        })
        .collect();
    assert_eq!(histograms.len(), 1, "a figure without a histogram has no line");
    let it = histograms[0];
    assert_eq!(it.tag().map(|tag| tag.as_str()), Some("lock/passed[trylock]"));
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(it.encoded_histogram()).expect("base64");
    let histogram: Histogram<u64> =
        Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
    assert_eq!(histogram.len(), 100);
    assert!(histogram.equivalent(histogram.value_at_quantile(0.5), 53_000));
}

#[test]
fn histogram_that_cannot_be_decoded_is_not_in_the_log() {
    let mut documents = documents();
    for record in &mut documents[0].records {
        record.histogram = "AAAA\nTag=other,1,1,1,AAAA".to_string();
    }
    assert!(!export(&documents, Format::HdrLog).contains("AAAA"));
}

/// Scripts that print the number of samples a Prometheus client reads, and of values in an
/// HdrHistogram log.
const READERS: [(Format, &str, &str, &str); 2] = [
    (
        Format::OpenMetrics,
        "prometheus_client",
        "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as f\n\
         print(sum(len(it.samples) for it in f(sys.stdin.read())))",
        // For the time: four quantiles, sum, count, figure, CPUs of two roles; for the other record
        // its figure; of both rates, CPUs and faults.
        "16",
    ),
    (
        Format::HdrLog,
        "hdrh",
        "from hdrh.histogram import HdrHistogram; from hdrh.log import HistogramLogReader\n\
         log = HistogramLogReader('/dev/stdin', HdrHistogram(1, 10**12, 3))\n\
         print(log.get_next_interval_histogram().get_total_count())",
        "100",
    ),
];

/// Skipped unless Python has both (`pip install prometheus_client hdrhistogram`; `HANDOVER_PYTHON`
/// names the interpreter).
#[test]
fn python_readers_read_the_same_values() {
    let python = std::env::var_os("HANDOVER_PYTHON").unwrap_or_else(|| "python3".into());
    let run = |script: &str, input: &str| -> Option<Output> {
        let mut child = Command::new(&python)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(input.as_bytes()).ok()?;
        child.wait_with_output().ok()
    };
    for (format, module, script, expected) in READERS {
        if run(&format!("import {module}"), "").is_none_or(|it| !it.status.success()) {
            println!("skipped: {format:?} by another reader: Python has no {module}");
            continue;
        }
        let read = run(script, &export(&documents(), format)).expect("Python");
        let text = String::from_utf8_lossy(&read.stderr);
        assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), expected, "{module}: {text}");
    }
}

#[test]
fn github_action_json_has_names_units_and_values() {
    let text = export(&documents(), Format::GithubAction);
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(all[0]["name"], "lock/passed [trylock]");
    assert_eq!((&all[0]["unit"], &all[0]["value"]), (&"ns".into(), &53.0.into()));
    assert_eq!(all[0]["range"], "± 0.4 %");
    assert_eq!(all.as_array().map(Vec::len), Some(2));
}

#[test]
fn figures_of_a_sweep_have_distinct_names() {
    let mut document = documents().remove(0);
    let mut other = document.records[0].clone();
    other.args.insert("lockers_count".to_string(), 4);
    document.records.push(other);
    let all: serde_json::Value =
        serde_json::from_str(&export(&[document], Format::GithubAction)).expect("JSON");
    assert_eq!(all[0]["name"], "lock/passed [trylock, lockers_count=2]");
    assert_eq!(all[2]["name"], "lock/passed [trylock, lockers_count=4]");
}

#[test]
fn markdown_has_both_modes_the_machine_and_its_resolution() {
    let mut document = documents().remove(0);
    let mode = |share, median| FigureMode { share, median };
    document.records[0].modes = vec![mode(0.7, 30.0), mode(0.3, 200.0)];
    let text = render_markdown(&document, true);
    assert!(text.contains("30.0 ns in 70 % of the values, 200 ns in 30 % of the values"), "{text}");
    assert!(text.contains("| is the |") && text.contains(" | mean | "), "{text}");
    assert!(text.contains("workbench") && text.contains("cannot see"), "{text}");
}

#[test]
fn names_are_escaped_in_markdown_cells() {
    let text = render_markdown(&documents()[0], true);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 4, "{text}");
    let bars = |row: &str| row.replace("\\|", "").matches('|').count();
    assert!(rows.iter().all(|row| bars(row) == 10), "{text}");
    assert!(!text.contains("<b>") && text.contains("&lt;b>"), "{text}");
}

#[test]
fn export_of_no_runs_is_valid_and_empty() {
    assert_eq!(export(&[], Format::OpenMetrics), "# EOF\n");
    assert_eq!(export(&[], Format::GithubAction), "[]\n");
    let none: Vec<Record> = Vec::new();
    let empty = [Document::new(support::run(), none)];
    let head = export(&empty, Format::Csv);
    assert!(head.starts_with("run,started_unix_ns,host,") && head.lines().count() == 1, "{head}");
}
