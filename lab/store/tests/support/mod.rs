//! Sample runs and records, and a reader of folders.
#![allow(dead_code, reason = "each test file uses some of these")]

use handover_record::{
    ContenderKind, FigureMode, Host, Participants, Ratio, Record, Round, Run, Summary, Unit, Wait,
    Warning, WarningCode,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub fn run(id: &str, started_unix_ns: i64) -> Run {
    let host = Host { name: "a host".into(), clock_cost_ns: 7.25, ..Host::default() };
    Run {
        id: id.into(),
        started_unix_ns,
        version: "0.1.0".into(),
        commit: "abc".into(),
        profile: "quick".into(),
        command: "handover run".into(),
        seed: 7,
        host,
        findings: Vec::new(),
        complete: false,
        null_one: Some(0.1 + 0.2),
        null_several: None,
        proofs: Vec::new(),
    }
}

pub fn record(id: &str, contender: &str, median: f64) -> Record {
    let ratio = |other: &str| Ratio {
        id: "floor/x".into(),
        contender: other.into(),
        other: median / 3.0,
        ratio: 3.0,
        low: Some(2.9),
        high: Some(3.1),
    };
    let round = |block| Round {
        pass: block / 4,
        block,
        median: median * (1.0 + f64::from(block) / 997.0),
        p99: median * 1.7,
        mean: median * 1.1,
        steal: 0.0,
        slowed: 0.25,
        switches_involuntary: u64::MAX,
        is_disturbed: block % 7 == 0,
    };
    Record {
        id: id.into(),
        spec: id.into(),
        contender: contender.into(),
        kind: ContenderKind::Ours,
        waits: Wait::None,
        allocates: false,
        what: "one push and one pop".into(),
        unit: Unit::Ns,
        ladder: true,
        args: BTreeMap::from([("slots_count".into(), 64)]),
        participants: Participants {
            roles: vec!["one".into()],
            cpus: vec![0],
            ..Participants::default()
        },
        started_unix_ns: 5,
        summary: Summary {
            median,
            low: Some(median * 0.99),
            high: Some(median * 1.01),
            ..Summary::default()
        },
        rate_per_s: 2.5e8,
        bytes_per_s: None,
        cpus_user: 1.0,
        cpus_system: 0.5,
        switches_voluntary_per_op: 0.0,
        switches_involuntary_per_s: 3.5,
        faults_minor_per_op: 0.0,
        faults_major_per_s: 0.0,
        roles: Vec::new(),
        empty: Some(0.3),
        floor: Some(ratio("floor")),
        peers: vec![ratio("one"), ratio("two")],
        peers_without_ratio: Vec::new(),
        modes: vec![FigureMode { share: 0.7, median }],
        counters: BTreeMap::from([("slept_share".into(), 0.25)]),
        hardware: None,
        rounds: (0..30).map(round).collect(),
        histogram: "SElTVEZBQUE=".into(),
        warnings: vec![Warning { code: WarningCode::Wide, text: "wide: 5 %".into() }],
        anatomy: None,
    }
}

/// Returns the contents of every file in a folder, by path.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder to list") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file to read");
            found.insert(path, bytes);
        }
    }
    found
}
