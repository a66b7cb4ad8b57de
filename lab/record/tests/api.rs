//! The API that the other lab crates use.

use handover_record::{
    ArgNotation, Args, Bytes, Contender, Nanos, Param, Part, PeerWithoutRatio, Record, Spec, Wait,
    Warning, WarningCode, args,
};
use handover_record::{ContenderKind, Participants, Ratio, Round, Summary, Unit};

args! {
    /// One argument of each kind.
    pub struct Kinds {
        /// Number of slots.
        slots_count: u32 = 64 (smoke 2, range 1..=65536),
        /// Size of a message.
        message_bytes: Bytes = 65536 (smoke 64, range 1..=1048576),
        /// Pause between messages.
        gap_ns: Nanos = 30000 (smoke 0, range 0..=1000000)
    }
}

#[test]
fn arguments_parse_in_the_notation_of_their_kind() {
    let mut values = Kinds::defaults();
    values.parse_and_set("slots_count", "1.5k").unwrap();
    values.parse_and_set("message_bytes", "64KiB").unwrap();
    values.parse_and_set("gap_ns", "30us").unwrap();
    let kinds = Kinds::from_values(&values);
    assert_eq!(
        (kinds.slots_count, kinds.message_bytes, kinds.gap_ns),
        (1500, Bytes(65536), Nanos(30000))
    );
    values.parse_and_set("gap_ns", "0").unwrap();
    assert_eq!(Kinds::from_values(&values).gap_ns, Nanos(0));
    assert_eq!(values.by_name().len(), 3);
}

#[test]
fn half_width_of_a_figure_of_zero_is_not_zero() {
    let of = |median, high| {
        Summary { median, low: Some(0.0), high: Some(high), ..Summary::default() }
            .relative_half_width()
    };
    assert_eq!(of(0.0, 4096.0), Some(f64::INFINITY));
    assert_eq!(of(0.0, 0.0), Some(0.0));
    assert_eq!(of(4.0, 8.0), Some(1.0));
}

#[test]
fn invalid_argument_is_rejected_with_a_remedy_and_no_change() {
    let mut values = Kinds::defaults();
    let before = values.clone();
    for (name, text, said) in [
        ("slots_count", "0", "--set slots_count=0: must lie in 1..=65536"),
        ("slots_count", "65537", "--set slots_count=65537: must lie in 1..=65536"),
        ("slots_count", "many", "--set slots_count=many: "),
        ("message_bytes", "2MiB", "--set message_bytes=2MiB: must lie in 1B..=1MiB"),
        ("gap_ns", "5", "--set gap_ns=5: "),
        ("gap_ns", "2ms", "--set gap_ns=2ms: must lie in 0..=1ms"),
        ("slot_count", "8", "--set slot_count: no such argument; did you mean slots_count?"),
        (
            "colour",
            "8",
            "--set colour: no such argument; its arguments are slots_count, message_bytes, gap_ns",
        ),
    ] {
        let refused = values.parse_and_set(name, text).unwrap_err().to_string();
        assert!(refused.starts_with(said), "{refused}");
    }
    assert_eq!(values, before);
    let none = <()>::defaults().parse_and_set("x", "1").unwrap_err().to_string();
    assert_eq!(none, "--set x: no such argument; this benchmark has no arguments");
}

#[test]
fn help_shows_default_and_bounds_in_the_notation_of_the_kind() {
    let lines: Vec<String> = Kinds::PARAMS.iter().map(Param::help_line).collect();
    assert_eq!(lines[0], "slots_count=64  Number of slots. (1..=65536)");
    assert_eq!(lines[1], "message_bytes=64KiB  Size of a message. (1B..=1MiB)");
    assert_eq!(lines[2], "gap_ns=30us  Pause between messages. (0..=1ms)");
    assert_eq!(Kinds::PARAMS[2].kind, ArgNotation::Nanos);
}

#[test]
fn a_spec_with_parts_has_a_figure_for_each() {
    const PARTS: &[Part] = &[Part::new("busy", "b"), Part::new("free", "f").optional()];
    let plain = Spec::new("a/b", "");
    let parted = Spec { parts: PARTS, ..plain };
    assert_eq!(plain.figure_ids(), ["a/b"]);
    assert_eq!(parted.figure_ids(), ["a/b/busy", "a/b/free"]);
}

fn record() -> Record {
    Record {
        id: "lock/passed/busy".into(),
        spec: "lock/passed".into(),
        contender: "handover".into(),
        kind: ContenderKind::Ours,
        waits: Wait::None,
        allocates: false,
        what: "a try".into(),
        unit: Unit::Ns,
        ladder: true,
        args: [("threads_count".to_string(), u64::MAX)].into(),
        participants: Participants {
            cpus: vec![0, 1],
            placement: "near".into(),
            ..Participants::default()
        },
        started_unix_ns: i64::MAX,
        summary: Summary {
            median: 0.1 + 0.2,
            low: Some(1e-300),
            high: Some(5e-324),
            ops: 7,
            ..Summary::default()
        },
        rate_per_s: 1e300,
        bytes_per_s: None,
        cpus_user: 2.0,
        cpus_system: 0.0,
        switches_voluntary_per_op: 0.5,
        switches_involuntary_per_s: 0.0,
        faults_minor_per_op: 0.0,
        faults_major_per_s: 0.0,
        roles: Vec::new(),
        empty: Some(19.0),
        floor: None,
        peers: [3.0, 0.5]
            .map(|ratio| Ratio {
                id: "lock/passed/busy".into(),
                contender: format!("peer{ratio}"),
                other: 1.0,
                ratio,
                low: Some(ratio),
                high: Some(ratio),
            })
            .to_vec(),
        peers_without_ratio: vec![PeerWithoutRatio {
            contender: "asleep".into(),
            waits: Wait::Sleep,
            other: 1e4,
        }],
        modes: Vec::new(),
        counters: [("spun_share".to_string(), 0.25)].into(),
        hardware: None,
        rounds: vec![Round { block: 3, median: 1.0 / 3.0, ..Round::default() }],
        histogram: "AAAA".into(),
        warnings: vec![Warning { code: WarningCode::Placement, text: "1 CPU".into() }],
        anatomy: None,
    }
}

#[test]
fn record_survives_a_round_trip_through_json_byte_by_byte() {
    let text = serde_json::to_string(&record()).unwrap();
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(read, record());
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[test]
fn participants_on_at_most_one_cpu_do_not_use_several_cpus() {
    let of = |cpus: &[u32]| Participants { cpus: cpus.to_vec(), ..Participants::default() };
    assert!(of(&[0, 1]).has_several_cpus() && of(&[3, 3, 4]).has_several_cpus());
    assert!(!of(&[2, 2, 2]).has_several_cpus() && !of(&[]).has_several_cpus());
}

#[test]
fn best_peer_has_the_smallest_figure() {
    // Three times as expensive as one peer and half as expensive as the other: the first is the
    // best.
    assert_eq!(record().best_peer().unwrap().contender, "peer3");
}

#[test]
fn peer_that_waits_in_another_way_has_no_ratio() {
    let record = record();
    assert_eq!(record.best_peer_without_ratio().unwrap().waits.table_verb(), "sleeps");
    assert!(record.peers.iter().all(|peer| peer.contender != "asleep"));
}

#[test]
fn floor_is_a_peer_in_a_part_that_declares_it() {
    let part = Part::new("cpu", "");
    let (floor, ours) = (Contender::floor("spinning"), Contender::ours("handover"));
    let kind = |it: Contender, part: Option<&Part>| it.in_part(part).kind;
    assert_eq!(kind(floor, Some(&part.floors_are_peers())), ContenderKind::Peer);
    assert_eq!(kind(floor, Some(&part)), ContenderKind::Floor);
    assert_eq!(kind(floor, None), ContenderKind::Floor);
    assert_eq!(kind(ours, Some(&part.floors_are_peers())), ContenderKind::Ours);
}

#[test]
fn floor_is_below_contenders_that_wait_alike_or_does_not_wait() {
    assert!(
        Wait::Spin.is_lower_bound_for(Wait::Spin) && Wait::None.is_lower_bound_for(Wait::Sleep)
    );
    assert!(
        !Wait::Spin.is_lower_bound_for(Wait::Sleep) && !Wait::Sleep.is_lower_bound_for(Wait::None)
    );
}

#[test]
fn record_of_an_older_version_without_wait_fields_is_read() {
    let text = serde_json::to_string(&record()).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in ["waits", "allocates", "beside"] {
        value.as_object_mut().unwrap().remove(name);
    }
    let read: Record = serde_json::from_value(value).unwrap();
    assert_eq!(
        (read.waits, read.allocates, read.peers_without_ratio.len()),
        (Wait::None, false, 0)
    );
}

#[test]
fn warning_codes_have_different_letters() {
    let mut letters: Vec<&str> = [
        WarningCode::Steal,
        WarningCode::Switches,
        WarningCode::Slowed,
        WarningCode::Bimodal,
        WarningCode::Wide,
        WarningCode::Drift,
        WarningCode::Resolution,
        WarningCode::Few,
        WarningCode::Placement,
        WarningCode::FloorBeaten,
        WarningCode::Timing,
        WarningCode::Seen,
        WarningCode::Smoke,
    ]
    .map(WarningCode::table_letters)
    .to_vec();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters.len(), 13, "two warning codes share letters");
}

#[test]
fn record_is_displayed_in_one_line() {
    let line = record().to_string();
    assert!(line.starts_with("lock/passed/busy [handover] 0.30 ns ("), "{line}");
    assert!(line.ends_with("3.00 x peer3, 0.50 x peer0.5; 1 CPU"), "{line}");
}
