//! Lossless export and import, and refusals of an import.

use crate::support::{record, run};
use handover_record::{
    ContenderKind, CpuCache, Document, FigureMode, Finding, FindingLevel, HardwareCounts, Host,
    Participants, PeerWithoutRatio, Proof, Ratio, Record, RoleUsage, Round, Run, Summary, Unit,
    Wait, Warning, WarningCode,
};
use handover_store::{ExportError, ImportError, LINE_BYTES_MAX, Store, import_and_reexport};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rusqlite::Connection;

fn store_of(documents: &[Document]) -> Store {
    let mut store = Store::open_in_memory().expect("a store");
    for Document { run, records, .. } in documents {
        store.begin_run(run).expect("begin");
        store.insert_records(&run.id, records).expect("insert");
    }
    store
}

fn exported(store: &Store, selector: &[&str]) -> String {
    let selector: Vec<String> = selector.iter().map(|id| (*id).to_string()).collect();
    let mut out = Vec::new();
    store.export(&selector, &mut out).expect("an export");
    String::from_utf8(out).expect("text")
}

fn two_runs() -> Store {
    let first = [record("lock/busy", "handover", 0.1 + 0.2), record("lock/busy", "std", 1e-300)];
    store_of(&[
        Document::new(run("aa", 1), first.to_vec()),
        Document::new(run("bb", 2), vec![record("lock/free", "handover", -0.0)]),
    ])
}

/// Asserts that importing is refused and changes nothing; returns the error's text.
fn assert_refused(store: &mut Store, lines: &str) -> String {
    let before = exported(store, &[]);
    let error = store.import(&mut lines.as_bytes()).expect_err("refused").to_string();
    assert_eq!(exported(store, &[]), before, "part of the input was imported: {error}");
    assert!(error.contains("nothing was imported"), "{error}");
    error
}

#[test]
fn imported_records_have_every_column_of_stored_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let [stored, imported] = ["stored.db", "imported.db"].map(|name| folder.path().join(name));
    let text = exported(&two_runs(), &[]);
    let mut store = Store::open(&stored).expect("a store");
    store.begin_run(&run("aa", 1)).expect("begin");
    store.insert_records("aa", &[record("lock/busy", "handover", 1.5)]).expect("insert");
    Store::import_into(&imported, &mut text.as_bytes()).expect("an import");
    let absent = |path: &std::path::Path| -> Vec<String> {
        let store = Connection::open(path).expect("a database");
        let mut columns = store.prepare("SELECT name FROM pragma_table_info('records')").unwrap();
        let names: Vec<String> =
            columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let is_absent = |name: &String| {
            let query = format!("SELECT count(*) FROM records WHERE {name} IS NULL");
            store.query_one(&query, [], |row| row.get::<_, i64>(0)).unwrap() > 0
        };
        names.into_iter().filter(is_absent).collect()
    };
    assert_eq!(absent(&imported), absent(&stored));
}

#[test]
fn export_has_one_line_per_run_and_record() {
    let text = exported(&two_runs(), &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    assert!(lines[0].starts_with(r#"{"type":"run","schema":1,"id":"aa","#), "{}", lines[0]);
    assert!(
        lines[1].starts_with(r#"{"type":"record","run":"aa","id":"lock/busy","#),
        "{}",
        lines[1]
    );
    assert!(lines[1].contains(r#""median":0.30000000000000004"#));
    assert!(lines[2].contains(r#""median":1e-300"#));
    assert!(lines[4].contains(r#""median":-0.0"#));
    assert!(lines[1].contains(&format!(r#""switches_involuntary":{}"#, u64::MAX)));
}

#[test]
fn runs_selected_several_times_are_exported_once() {
    let store = two_runs();
    assert_eq!(exported(&store, &["-2", "aa", "a"]), exported(&store, &["aa"]));
    assert_eq!(exported(&store, &["last"]).lines().count(), 2);
    let mut out = Vec::new();
    let error = store.export(&["aa".into(), "zz".into()], &mut out);
    assert!(
        matches!(error, Err(ExportError::Store(_))) && out.is_empty(),
        "output was written before the error"
    );
}

#[test]
fn closed_output_and_damaged_store_give_different_errors() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = two_runs().export(&[], &mut Closed);
    assert!(
        matches!(&error, Err(ExportError::Write(reason)) if reason.kind() == std::io::ErrorKind::BrokenPipe)
    );
}

#[test]
fn identical_run_is_skipped_on_import() {
    let mut store = two_runs();
    let text = exported(&store, &[]);
    let imported = store.import(&mut text.as_bytes()).expect("the same");
    assert_eq!((imported.runs, imported.records, imported.skipped), (0, 0, 2));
    let mut other = Store::open_in_memory().expect("a store");
    other.begin_run(&run("cc", 3)).expect("begin");
    // Changes as by Windows or by hand: blank lines, other line ends, no line end at the end.
    let handled = format!("\n \n{}", text.replace('\n', "\r\n\r\n").trim_end());
    let imported = other.import(&mut handled.as_bytes()).expect("new");
    assert_eq!((imported.runs, imported.records, imported.skipped), (2, 3, 0));
    assert_eq!(exported(&other, &["aa", "bb"]), text);
}

#[test]
fn differing_run_with_the_same_id_is_refused() {
    let mut store = two_runs();
    let text = exported(&store, &[]);
    let lines: Vec<&str> = text.lines().collect();
    let fresh = text.replace("\"aa\"", "\"new\"");
    let error =
        assert_refused(&mut store, &format!("{fresh}\n{}", lines[0].replace("0.1.0", "0.2.0")));
    let expected =
        "line 7: run aa is in the store already and differs (the description of the run)";
    assert!(error.starts_with(expected), "{error}");
    let error =
        assert_refused(&mut store, &text.replace("\"what\":\"one push", "\"what\":\"two push"));
    assert_eq!(
        error,
        "line 1: run aa is in the store already and differs (record 1); nothing was imported"
    );
    let error = assert_refused(&mut store, lines[..2].join("\n").as_str());
    assert!(error.contains("(the stored run has more than 1 records)"), "{error}");
    let more = format!("{}\n{}", text, lines[4]);
    let error = assert_refused(&mut store, &more);
    assert!(error.contains("(the stored run has only 1 records)"), "{error}");
    let error = assert_refused(&mut store, &format!("{text}{text}").replace("\"aa\"", "\"xx\""));
    assert!(error.starts_with("line 6: run xx occurs twice"), "{error}");
}

#[test]
fn bad_line_error_names_the_line_and_the_problem() {
    let mut store = two_runs();
    let text = exported(&store, &[]).replace("\"aa\"", "\"new\"");
    let lines: Vec<&str> = text.lines().collect();
    let (run_line, record_line) = (lines[0], lines[1]);
    let cases: &[(String, &str)] = &[
        ("hello".into(), "line 1: expected value (column 1)"),
        ("{}".into(), "line 1: missing \"type\""),
        ("[]".into(), "line 1: "),
        (r#"{"type":"runs"}"#.into(), "line 1: \"type\" is \"runs\""),
        (
            run_line.replace("\"schema\":1", "\"schema\":2"),
            "line 1: unknown schema 2; this handover reads schema 1",
        ),
        (run_line.replace("\"schema\":1,", ""), "line 1: a run without \"schema\":1"),
        (record_line.into(), "line 1: record before the first run"),
        (
            format!("{run_line}\n\n{}", record_line.replace("\"run\":\"new\",", "")),
            "line 3: record without the field \"run\"",
        ),
        (
            format!("{run_line}\n{}", record_line.replace("\"run\":\"new\"", "\"run\":\"bb\"")),
            "line 2: record of run bb among the records of run new",
        ),
        (
            format!("{run_line}\n{}", &record_line[..record_line.len() - 9]),
            "line 2: EOF while parsing",
        ),
        (format!("{run_line}\n{record_line}x"), "line 2: trailing characters"),
        (
            format!("{run_line}\n{}", record_line.replace("0.30000000000000004", "NaN")),
            "line 2: expected value",
        ),
        (
            format!("{run_line}\n{}", record_line.replace("0.30000000000000004", "null")),
            "line 2: invalid type: null, expected f64",
        ),
        (
            format!("{run_line}\n{}", record_line.replace("0.30000000000000004", "1e999")),
            "line 2: number out of range",
        ),
        (
            format!("{run_line}\n{}", record_line.replace("\"unit\":\"ns\"", "\"unit\":\"miles\"")),
            "line 2: unknown variant `miles`",
        ),
        (
            format!("{run_line}\n{}", record_line.replace("\"ladder\":true,", "")),
            "line 2: missing field `ladder`",
        ),
        (
            // The first number that an i64 cannot hold.
            run_line.replace("\"started_unix_ns\":1,", "\"started_unix_ns\":9223372036854775808,"),
            "line 1: invalid value: integer `9223372036854775808`",
        ),
        (
            run_line.replace("\"started_unix_ns\":1,", "\"started_unix_ns\":-9223372036854775809,"),
            "line 1: invalid type: floating point `-9.223372036854776e+18`",
        ),
        (run_line.replace("\"new\"", "\"last\""), "line 1: invalid run id \"last\""),
        (run_line.replace("\"new\"", "\"\\u001b[2J\""), "line 1: invalid run id \"\\u{1b}[2J\""),
        (format!("{{\"type\":{}", "[".repeat(100_000)), "line 1: "),
        (format!("{{\"x\":{}", "[".repeat(100_000)), "line 1: "),
    ];
    for (lines, expected) in cases {
        let error = assert_refused(&mut store, lines);
        assert!(error.starts_with(expected), "{error}\nand not: {expected}");
        assert!(error.len() < 300 && !error.contains(|char: char| char.is_control()), "{error}");
    }
}

#[test]
fn names_with_control_characters_or_too_long_are_refused() {
    let mut store = two_runs();
    let text = exported(&store, &[]).replace("\"aa\"", "\"new\"");
    let lines: Vec<&str> = text.lines().take(2).collect();
    let whole = lines.join("\n");
    let long = format!("\"profile\":\"{}\"", "p".repeat(201));
    for (from, to, field) in [
        ("\"profile\":\"quick\"", r#""profile":"\u001b]0;title\u0007""#, "profile"),
        ("\"profile\":\"quick\"", &*long, "profile"),
        ("\"name\":\"a host\"", r#""name":"a\u009bhost""#, "host.name"),
        ("\"version\":\"0.1.0\"", r#""version":"0.1.0\n""#, "version"),
        ("\"commit\":\"abc\"", r#""commit":"\u007f""#, "commit"),
        ("\"id\":\"lock/busy\"", r#""id":"\u001b[31mlock/busy""#, "id"),
        ("\"spec\":\"lock/busy\"", r#""spec":"lock\tbusy""#, "spec"),
        ("\"contender\":\"handover\"", r#""contender":"\r""#, "contender"),
        ("\"slots_count\":64", r#""slots\u0000count":64"#, "args or counters"),
    ] {
        assert!(whole.contains(from), "{from}");
        let error = assert_refused(&mut store, &whole.replacen(from, to, 1));
        assert!(error.contains(&format!(": {field} is \"")), "{field}: {error}");
        assert!(error.chars().count() < 400 && !error.chars().any(char::is_control), "{error}");
    }
}

#[test]
fn non_utf8_input_is_refused() {
    let mut store = two_runs();
    let error =
        store.import(&mut b"{\"type\":\"\xff\"}".as_slice()).expect_err("refused").to_string();
    assert_eq!(error, "line 1: invalid UTF-8 after byte 9; nothing was imported");
}

#[test]
fn endless_line_is_refused() {
    /// Input without an end.
    struct Endless;
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b' ');
            Ok(buffer.len())
        }
    }
    let mut store = two_runs();
    let mut endless = std::io::BufReader::new(Endless);
    let error = store.import(&mut endless).expect_err("refused");
    assert!(
        matches!(error, ImportError::TooLong { line: 1, bytes_max: LINE_BYTES_MAX }),
        "{error}"
    );
}

#[test]
fn failed_input_changes_nothing() {
    struct Broken<'a>(&'a [u8]);
    impl std::io::Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match std::io::Read::read(&mut self.0, buffer) {
                Ok(0) => Err(std::io::Error::other("the cable was pulled")),
                read => read,
            }
        }
    }
    let text = exported(&two_runs(), &[]);
    let mut store = Store::open_in_memory().expect("a store");
    let error =
        store.import(&mut std::io::BufReader::new(Broken(text.as_bytes()))).expect_err("broken");
    assert_eq!(
        error.to_string(),
        "cannot read the import: the cable was pulled; nothing was imported"
    );
    assert!(std::error::Error::source(&error).is_none(), "the message contains the cause");
    assert!(store.runs().expect("rows").is_empty());
}

#[test]
fn longest_stored_record_can_be_imported() {
    let mut store = Store::open_in_memory().expect("a store");
    store.begin_run(&run("aa", 1)).expect("begin");
    let mut long = record("a/b", "x", 1.0);
    let room = LINE_BYTES_MAX - serde_json::to_vec(&long).expect("JSON").len() - 256;
    long.what.push_str(&"w".repeat(room));
    store.insert_records("aa", &[long]).expect("a record of the maximum length");
    let text = exported(&store, &[]);
    let again = import_and_reexport(text.as_bytes()).expect("imported");
    assert!(again == text.as_bytes());
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(1e-300),
        Just(0.1 + 0.2),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE / 4.0),
        Just(9_007_199_254_740_993.0),
        any::<f64>().prop_filter("JSON has no others", |it| it.is_finite()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("日本 \u{1f980} \0 \" \\ \u{2028}".into()),
        any::<String>()
    ]
}

/// Generates texts that are valid names: short, and without control characters.
fn name() -> impl Strategy<Value = String> {
    let fit = |text: String| text.chars().filter(|it| !it.is_control()).take(200).collect();
    text().prop_map(fit)
}

fn integer() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), any::<u64>()]
}

fn ratio() -> impl Strategy<Value = Ratio> {
    (text(), text(), number(), number(), number(), number()).prop_map(
        |(id, contender, other, ratio, low, high)| {
            let (low, high) = (Some(low), Some(high));
            Ratio { id, contender, other, ratio, low, high }
        },
    )
}

fn round() -> impl Strategy<Value = Round> {
    let numbers = [number(), number(), number(), number(), number()];
    (any::<u32>(), numbers, integer(), any::<bool>()).prop_map(
        |(block, [median, p99, mean, steal, slowed], switches_involuntary, marked)| Round {
            pass: block / 3,
            block,
            median,
            p99,
            mean,
            steal,
            slowed,
            switches_involuntary,
            is_disturbed: marked,
        },
    )
}

fn histogram() -> impl Strategy<Value = String> {
    use base64::Engine as _;
    let encode = |bytes: Vec<u8>| base64::engine::general_purpose::STANDARD.encode(bytes);
    prop_oneof![
        vec(any::<u8>(), 0..200).prop_map(encode),
        // Base64 of another alphabet, with other padding, or not base64 at all.
        Just("QQ".to_string()),
        Just("QR==".to_string()),
        Just("_-8=".to_string()),
        text(),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    let names = (name(), name(), name(), text(), 0..4_usize, 0..3_usize, any::<bool>());
    let parties = (
        vec(text(), 0..3),
        vec(any::<u32>(), 0..3),
        text(),
        any::<bool>(),
        integer(),
        option::of(any::<u32>()),
    );
    let summary = (integer(), integer(), integer(), vec(number(), 10));
    let numbers = (vec(number(), 7), option::of(number()), option::of(number()));
    let rest = (
        option::of(ratio()),
        (vec(ratio(), 0..3), vec((name(), 0..4_usize, number()), 0..3), 0..4_usize, any::<bool>()),
        vec((number(), number()), 0..3),
        btree_map(name(), integer(), 0..3),
        btree_map(name(), number(), 0..3),
        option::of((number(), number(), number())),
        vec(round(), 0..4),
        histogram(),
        vec((0..3_usize, text()), 0..3),
        any::<i64>(),
    );
    (names, parties, summary, numbers, rest).prop_map(|(names, parties, summary, numbers, rest)| {
        let (id, spec, contender, subject, kind, unit, ladder) = names;
        let (roles, cpus, placement, processes, idle_gap_ns, neighbour_cpu) = parties;
        let (ops, samples, batch, s) = summary;
        let (n, bytes_per_s, empty) = numbers;
        let (floor, peers, modes, args, counters, hardware, rounds, histogram, warnings, started) =
            rest;
        let (peers, beside, waits, allocates) = peers;
        let ways = [Wait::None, Wait::Spin, Wait::SpinThenSleep, Wait::Sleep];
        let codes = [WarningCode::Steal, WarningCode::Bimodal, WarningCode::Smoke];
        Record {
            id,
            spec,
            contender,
            what: subject,
            ladder,
            args,
            floor,
            peers,
            peers_without_ratio: beside
                .into_iter()
                .map(|(contender, waits, other)| PeerWithoutRatio {
                    contender,
                    waits: ways[waits],
                    other,
                })
                .collect(),
            waits: ways[waits],
            allocates,
            counters,
            rounds,
            histogram,
            anatomy: None,
            kind: [
                ContenderKind::Ours,
                ContenderKind::Peer,
                ContenderKind::Floor,
                ContenderKind::Null,
            ][kind],
            unit: [Unit::Ns, Unit::Bytes, Unit::Count][unit],
            participants: Participants {
                roles,
                cpus,
                placement,
                processes,
                idle_gap_ns,
                neighbour_cpu,
            },
            started_unix_ns: started,
            summary: Summary {
                ops,
                samples,
                batch,
                median: s[0],
                low: Some(s[1]),
                high: Some(s[2]),
                min: Some(s[3]),
                p50: Some(s[4]),
                p90: Some(s[5]),
                p99: Some(s[6]),
                p999: Some(s[7]),
                max: Some(s[8]),
                mean: s[9],
                undisturbed: None,
                single_ops: samples / 2,
                resolution_ns: s[9],
            },
            rate_per_s: n[0],
            bytes_per_s,
            cpus_user: n[1],
            cpus_system: n[2],
            switches_voluntary_per_op: n[3],
            switches_involuntary_per_s: n[4],
            faults_minor_per_op: n[5],
            faults_major_per_s: n[6],
            roles: vec![RoleUsage {
                role: "client".to_string(),
                cpus: n[1],
                delayed: hardware.map(|it| it.0),
                switches_voluntary_per_op: n[3],
                switches_involuntary_per_s: n[4],
                faults_minor_per_op: n[5],
                faults_major_per_s: n[6],
            }],
            empty,
            modes: modes.into_iter().map(|(share, median)| FigureMode { share, median }).collect(),
            hardware: hardware.map(|(instructions, cycles, cache_misses)| HardwareCounts {
                instructions,
                cycles,
                cache_misses,
            }),
            warnings: warnings
                .into_iter()
                .map(|(code, text)| Warning { code: codes[code], text })
                .collect(),
        }
    })
}

fn any_run() -> impl Strategy<Value = Run> {
    let (names, texts) = (vec(name(), 4), vec(text(), 8));
    let numbers =
        (vec(number(), 2), option::of(number()), option::of(number()), option::of(number()));
    let rest = (
        any::<i64>(),
        any::<bool>(),
        option::of(any::<bool>()),
        integer(),
        option::of(text()),
        vec(any::<u32>(), 0..3),
        vec(text(), 0..3),
    );
    let texts = (names, texts).prop_map(|(names, texts)| [names, texts].concat());
    ("[0-9a-z][0-9a-z.-]{0,20}z", texts, numbers, rest).prop_map(|(id, t, numbers, rest)| {
        let (n, cgroup_cpus, null_one, null_several) = numbers;
        let (started_unix_ns, complete, turbo, memory_bytes, optional, cpus_allowed, list) = rest;
        let t = |place: usize| t[place].clone();
        let finding = |found: &String| Finding {
            code: t(10),
            level: if complete { FindingLevel::Disturbs } else { FindingLevel::Fine },
            found: found.clone(),
            why: t(11),
            fix: optional.clone(),
        };
        let findings = list.iter().map(finding).collect();
        let host = Host {
            name: t(0),
            cpu_model: t(4),
            kernel: t(6),
            clock_source: t(7),
            clock: t(8),
            cpus_online: 2,
            cpus_allowed,
            cores: 2,
            packages: 1,
            threads_per_core: 1,
            numa_nodes: 1,
            caches: vec![CpuCache {
                level: 1,
                kind: t(5),
                size_bytes: memory_bytes,
                line_bytes: 64,
            }],
            memory_bytes,
            hypervisor: optional.clone(),
            mitigations: list.clone(),
            governor: optional.clone(),
            turbo,
            clock_cost_ns: n[0],
            cgroup_cpus,
            cgroup_memory_bytes: Some(memory_bytes),
            isolation: list.clone(),
            huge_pages: optional.clone(),
            counters: complete,
            load_1min: n[1],
            libc: optional.clone(),
            microcode: optional,
            peers: list.clone(),
            compiler: t(5),
            build_profile: t(6),
            features: list.clone(),
        };
        let proof = |subject: &String| Proof {
            what: subject.clone(),
            unit: "ns".to_string(),
            planted: n[0],
            read: null_one,
            bound: n[1],
            ends: null_several.map(|it| (it, n[0])),
        };
        Run {
            id,
            started_unix_ns,
            version: t(1),
            commit: t(2),
            profile: t(3),
            command: t(9),
            host,
            findings,
            complete,
            null_one,
            null_several,
            seed: memory_bytes,
            proofs: list.iter().map(proof).collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn exported_run_is_imported_identically(run in any_run(), records in vec(any_record(), 0..4)) {
        let document = Document::new(run, records);
        let store = store_of(std::slice::from_ref(&document));
        prop_assert_eq!(&store.load_latest_run().expect("the run"), &document);
        let text = exported(&store, &[]);
        let again = import_and_reexport(text.as_bytes()).expect("a valid export");
        prop_assert_eq!(String::from_utf8(again).expect("text"), text);
    }

    #[test]
    fn damaged_export_is_refused_or_read_without_panic(
        edits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..8),
    ) {
        let mut bytes = exported(&two_runs(), &[]).into_bytes();
        for (place, byte, kind) in edits {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                2 => bytes.truncate(place.max(1)),
                _ => { bytes.remove(place); bytes.push(b'}'); }
            }
        }
        if let Ok(once) = import_and_reexport(&bytes) {
            let twice = import_and_reexport(&once).expect("a valid export");
            prop_assert!(once == twice, "the export changed after another import");
        }
    }
}
