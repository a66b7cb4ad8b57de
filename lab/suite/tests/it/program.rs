//! Parser of the clients' load programs.

use handover_sched::drive::LoadSection;
use handover_suite::sched::program::{BURST_MAX_PACKETS, CLIENTS_MAX, parse_load_program};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const TWO_CLIENTS: &str = "\
# client 0: slow then fast
1s 100M 64 1
2s 1G 1500 8

thread 1
500ms 10M 300 2
# absent when run with -t 2: ignored with a warning
thread 7
1s 1M 64 1
";

fn load_section(
    duration_ns: u64,
    bandwidth_bps: u64,
    length_bytes: u32,
    burst_packets: u32,
) -> LoadSection {
    let duration = Duration::from_nanos(duration_ns);
    LoadSection { duration, bandwidth_bps, length_bytes, burst_packets }
}

/// Returns line, column and message of the error.
fn parse_error(text: &str) -> (usize, usize, String) {
    let error = parse_load_program(text).unwrap_err();
    (error.line, error.column, error.to_string())
}

#[test]
fn load_sections_are_in_order_and_ignored_clients_are_listed() {
    let program = parse_load_program(TWO_CLIENTS).unwrap();
    let first = load_section(1_000_000_000, 100_000_000, 64, 1);
    assert_eq!(
        program.sections_of(0),
        [first, load_section(2_000_000_000, 1_000_000_000, 1500, 8)]
    );
    assert_eq!(program.sections_of(1), [load_section(500_000_000, 10_000_000, 300, 2)]);
    assert_eq!(program.sections_of(2), []);
    assert_eq!(program.clients().map(|(client, _)| client).collect::<Vec<_>>(), [0, 1, 7]);
    assert_eq!(program.ignored_clients(2).collect::<Vec<_>>(), [7]);
    assert_eq!(program.ignored_clients(8).count(), 0);
}

#[test]
fn load_sections_of_one_client_may_be_in_several_places() {
    let program =
        parse_load_program("thread 1\n1s 1M 64 1\nthread 0\n\tthread 1 # again\n2s 1M 64 1 #\n")
            .unwrap();
    let [first, second] = program.sections_of(1) else { panic!("{program:?}") };
    assert_eq!([first.duration, second.duration], [1, 2].map(Duration::from_secs));
    assert_eq!(program.sections_of(0), []);
}

#[test]
fn thread_and_number_anywhere_in_a_line_begin_a_client() {
    for line in [
        "thread 2",
        "--- thread 2 ---",
        "from here on thread\t2: slow",
        "[thread 2]",
        "thread 2.",
        "thread 2 3",
        "thread one is not thread 2",
        "1s 1M 64 1 thread 2",
    ] {
        let program = parse_load_program(&format!("thread 1\n{line}\n5s 1M 64 1\n")).expect(line);
        assert_eq!(
            program.sections_of(2),
            [load_section(5_000_000_000, 1_000_000, 64, 1)],
            "{line}"
        );
        assert_eq!(program.sections_of(1), [], "{line}");
    }
    // A comment begins no client, be it a line or the rest of one.
    let program = parse_load_program("# thread 2\n1s 1M 64 1 # as thread 2\n").unwrap();
    assert_eq!((program.sections_of(0).len(), program.sections_of(2).len()), (1, 0));
}

#[test]
fn missing_column_error_has_the_position() {
    let (line, column, text) = parse_error("thread 0\n1s 100M 64\n");
    assert_eq!((line, column), (2, 11));
    assert!(text.contains("burst") && text.contains("end of the line"), "{text}");
}

#[test]
fn duration_without_a_unit_error_has_the_position() {
    let (line, column, text) = parse_error("1s 100M 64 1\n1 parsec 100M 64 1\n");
    assert_eq!((line, column), (2, 1));
    assert!(text.contains("duration such as 1s"), "{text}");
}

#[test]
fn zero_length_error_has_the_position() {
    let (line, column, text) = parse_error("1s 100M 0 1\n");
    assert_eq!((line, column), (1, 9));
    assert!(text.contains("packet size") && text.contains("65535"), "{text}");
}

#[test]
fn negative_thread_error_has_the_position() {
    let (line, column, text) = parse_error("thread -1\n1s 100M 64 1\n");
    assert_eq!((line, column), (1, 8));
    assert!(text.contains("thread's number") && text.contains("-1"), "{text}");
}

#[test]
fn values_beyond_a_limit_are_refused_with_the_column() {
    for (text, column) in [
        ("0s 1M 64 1", 1),
        ("1s 0 64 1", 4),
        ("1s 2000T 64 1", 4),
        ("1s 1M 65536 1", 7),
        ("1s 1M 64 0", 10),
        ("1s 1M 64 2M", 10),
        ("1s 1M 64 1.5", 10),
        ("1s 1M 64 1 D", 12),
        ("  thread", 9),
        ("thread 65536", 8),
        ("thread 1.5", 8),
        ("thread 1x", 8),
        ("the thread of all", 1),
        ("mythread 1", 1),
        ("1s 1M 64 1 thread 65536", 19),
        ("é 1M 64 1", 1),
        ("1s\u{a0}é 64 1", 4),
    ] {
        let (line, found, message) = parse_error(text);
        assert_eq!((line, found), (1, column), "{text}: {message}");
    }
    let most = parse_load_program("1h 1000T 65535 1M\nthread 65535").unwrap();
    assert_eq!(
        most.sections_of(0),
        [load_section(3_600_000_000_000, 1_000_000_000_000_000, 65535, 1_000_000)]
    );
}

#[test]
fn error_begins_with_the_file_and_the_position() {
    let error = parse_load_program("x").unwrap_err();
    let text = error.display_in_file(Path::new("dir/sched.txt"));
    assert!(text.starts_with("dir/sched.txt: line 1, column 1: expected a duration"), "{text}");
}

fn text_of(threads: &BTreeMap<u32, Vec<LoadSection>>) -> String {
    let mut text = String::new();
    for (thread, specs) in threads {
        text += &format!("thread {thread}\n");
        for LoadSection { duration, bandwidth_bps, length_bytes, burst_packets } in specs {
            let duration_ns = duration.as_nanos();
            text +=
                &format!("{duration_ns}ns\t{bandwidth_bps} {length_bytes}  {burst_packets} # it\n");
        }
    }
    text
}

proptest! {
    #[test]
    fn any_text_parses_without_panic_and_error_positions_are_in_the_text(text in "([0-9a-zé#. \n\t-]|thread){0,60}") {
        if let Err(error) = parse_load_program(&text) {
            let line = text.lines().nth(error.line - 1).unwrap();
            prop_assert!((1..=line.chars().count() + 1).contains(&error.column));
        }
    }

    #[test]
    fn written_program_parses_to_the_same_program(
        specs in prop::collection::vec(
            (0u32..CLIENTS_MAX, 1..u64::MAX / 2, 1u64..1_000_000_000_000_000,
             1u32..65_536, 1u32..=BURST_MAX_PACKETS), 0..20)
    ) {
        let mut threads = BTreeMap::<u32, Vec<LoadSection>>::new();
        for (thread, duration_ns, bandwidth_bps, length_bytes, burst_packets) in specs {
            let spec = load_section(duration_ns, bandwidth_bps, length_bytes, burst_packets);
            threads.entry(thread).or_default().push(spec);
        }
        let program = parse_load_program(&text_of(&threads)).expect("a program");
        let parsed: BTreeMap<_, _> = program.clients().map(|(client, specs)| (client, specs.to_vec())).collect();
        prop_assert_eq!(parsed, threads);
    }
}
