//! A sample run, and the comparison with golden files.
#![allow(dead_code, reason = "each test file takes what it needs")]

use handover_record::{
    ContenderKind, CpuCache, Document, FigureMode, Host, Participants, Ratio, Record, Round, Run,
    Summary, Unit, Wait, Warning, WarningCode,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Compares `drawn` with the file `name` in `tests/golden`; with `UPDATE_GOLDEN=1`, writes it.
pub fn assert_golden(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|it| it == "1") {
        std::fs::write(&path, drawn).expect("a golden file to write");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == drawn,
        "{} differs; UPDATE_GOLDEN=1 takes this as the new one:\n{drawn}",
        path.display()
    );
}

pub fn host() -> Host {
    Host {
        name: "workbench".into(),
        cpu_model: "AMD EPYC 9B14".into(),
        cpus_online: 2,
        cpus_allowed: vec![0, 1],
        cores: 2,
        packages: 1,
        threads_per_core: 1,
        numa_nodes: 1,
        caches: vec![
            CpuCache { level: 1, kind: "Data".into(), size_bytes: 32 << 10, line_bytes: 64 },
            CpuCache { level: 3, kind: "Unified".into(), size_bytes: 32 << 20, line_bytes: 64 },
        ],
        memory_bytes: 8 << 30,
        kernel: "6.8.0-45-generic".into(),
        hypervisor: Some("KVM".into()),
        mitigations: vec!["spectre_v2: Mitigation: Retpolines".into()],
        governor: None,
        turbo: None,
        clock_source: "kvm-clock".into(),
        clock: "rdtsc at 2.60 GHz: constant, CPUs agree".into(),
        clock_cost_ns: 7.3,
        cgroup_cpus: Some(2.0),
        cgroup_memory_bytes: None,
        isolation: vec![],
        huge_pages: Some("madvise".into()),
        counters: false,
        load_1min: 0.31,
        ..Host::default()
    }
}

pub fn run() -> Run {
    Run {
        id: "18c0ffee1234-2a1f".into(),
        started_unix_ns: 1_795_296_600_000_000_000,
        version: "0.1.0".into(),
        commit: "0123abc".into(),
        profile: "quick".into(),
        command: "handover".into(),
        seed: 7,
        host: host(),
        findings: Vec::new(),
        complete: true,
        null_one: Some(0.006),
        null_several: Some(0.034),
        proofs: Vec::new(),
    }
}

pub fn record(id: &str, contender: &str, kind: ContenderKind, median: f64) -> Record {
    Record {
        id: id.into(),
        spec: id.into(),
        contender: contender.into(),
        kind,
        waits: Wait::None,
        allocates: false,
        what: String::new(),
        unit: Unit::Ns,
        ladder: true,
        args: BTreeMap::new(),
        participants: Participants {
            roles: vec!["one".into()],
            cpus: vec![0],
            ..Participants::default()
        },
        started_unix_ns: 1_795_296_600_000_000_000,
        summary: Summary {
            ops: 1_000_000,
            samples: 1000,
            batch: 1000,
            median,
            low: Some(median * 0.996),
            high: Some(median * 1.005),
            undisturbed: None,
            single_ops: 1000,
            resolution_ns: 0.5,
            min: Some(median * 0.95),
            p50: Some(median),
            p90: Some(median * 1.04),
            p99: Some(median * 1.21),
            p999: Some(median * 2.4),
            max: Some(median * 17.0),
            mean: median * 1.02,
        },
        rate_per_s: 1e9 / median,
        bytes_per_s: None,
        cpus_user: 0.97,
        cpus_system: 0.02,
        switches_voluntary_per_op: 0.0,
        switches_involuntary_per_s: 1.5,
        faults_minor_per_op: 0.0,
        faults_major_per_s: 0.0,
        roles: Vec::new(),
        empty: Some(0.25),
        floor: None,
        peers: vec![],
        peers_without_ratio: Vec::new(),
        modes: vec![],
        counters: BTreeMap::new(),
        hardware: None,
        rounds: vec![Round { median, ..Round::default() }; 15],
        histogram: String::new(),
        warnings: vec![],
        anatomy: None,
    }
}

fn ratio(id: &str, contender: &str, ours: f64, other: f64) -> Ratio {
    let ratio = ours / other;
    Ratio {
        id: id.into(),
        contender: contender.into(),
        other,
        ratio,
        low: Some(ratio * 0.98),
        high: Some(ratio * 1.02),
    }
}

fn warn(code: WarningCode, text: &str) -> Warning {
    Warning { code, text: text.into() }
}

/// Returns the records of a figure's contenders, each with its rivals and its floor.
fn figure(
    id: &str,
    what: &str,
    floor: Option<(&str, &str, f64)>,
    contenders: &[(&str, ContenderKind, f64)],
) -> Vec<Record> {
    let make = |&(name, kind, median): &(&str, ContenderKind, f64)| {
        let rivals = contenders
            .iter()
            .filter(|it| it.0 != name && matches!(it.1, ContenderKind::Peer | ContenderKind::Null));
        let mut made = record(id, name, kind, median);
        made.what = what.into();
        made.floor = floor.map(|(id, contender, other)| ratio(id, contender, median, other));
        if kind != ContenderKind::Floor {
            made.peers = rivals.map(|it| ratio(id, it.0, median, it.2)).collect();
        }
        made
    };
    contenders.iter().map(make).collect()
}

/// Returns a run with figures of every kind: floors, clocks, calls, locks, notifications, nulls;
/// some with noise.
pub fn ladder() -> Document {
    use ContenderKind::{Floor, Null, Ours, Peer};
    let line = Some(("floor/cache-line", "machine", 41.2));
    let mut records = Vec::new();
    let mut add = |more: Vec<Record>| records.extend(more);
    add(figure(
        "floor/null-syscall",
        "one getppid, straight into the kernel and back",
        None,
        &[("kernel", Floor, 71.3)],
    ));
    add(figure(
        "floor/cache-line",
        "one cache line there and back between two CPUs",
        None,
        &[("machine", Floor, 41.2)],
    ));
    add(figure(
        "floor/futex-wake",
        "wake a thread that sleeps in a futex",
        None,
        &[("kernel", Floor, 4_620.0)],
    ));
    let mut copy =
        figure("floor/memcpy", "copy 64 KiB within the caches", None, &[("libc", Floor, 2_310.0)]);
    copy[0].bytes_per_s = Some(28.4e9);
    copy[0].args.insert("size_bytes".into(), 65_536);
    add(copy);
    let rdtsc = Some(("floor/rdtsc", "cpu", 7.2));
    add(figure(
        "clock/now",
        "read this project's clock",
        rdtsc,
        &[("handover", Ours, 7.31), ("clock_gettime", Peer, 21.9), ("std Instant", Peer, 23.4)],
    ));
    add(figure(
        "call/dynamic",
        "call a function of a dynamic library through the PLT",
        None,
        &[("compiler", Floor, 1.34)],
    ));
    add(figure(
        "lock/busy",
        "try a lock that another thread holds",
        line,
        &[
            ("handover", Ours, 0.71),
            ("pthread mutex", Peer, 5.82),
            ("semaphore", Peer, 6.11),
            ("parking_lot", Peer, 0.93),
        ],
    ));
    let mut passed = figure(
        "lock/passed/post",
        "free a lock that two threads pass around",
        line,
        &[("handover", Ours, 4.4), ("parking_lot", Peer, 4.1), ("pthread spin", Peer, 4.35)],
    );
    passed[0].summary.low = Some(3.9);
    passed[0].summary.high = Some(5.2);
    passed[0].warnings = vec![
        warn(WarningCode::Wide, "interval ±15 % when the budget was spent"),
        warn(WarningCode::Steal, "the hypervisor took 4 % of the CPU time"),
    ];
    add(passed);
    let wake = Some(("floor/futex-wake", "kernel", 4_620.0));
    let mut asleep = figure(
        "notify/sleeping/wake-latency",
        "from the sender's call to the first instruction of a receiver that truly slept",
        wake,
        &[
            ("handover", Ours, 5_120.0),
            ("eventfd", Peer, 5_480.0),
            ("pipe", Peer, 6_950.0),
            ("futex", Peer, 5_090.0),
        ],
    );
    asleep[0].modes =
        vec![FigureMode { share: 0.7, median: 121.0 }, FigureMode { share: 0.3, median: 4_612.0 }];
    asleep[0].warnings =
        vec![warn(WarningCode::Bimodal, "two modes: 70 % near 121 ns, 30 % near 4.61 µs")];
    add(asleep);
    add(figure(
        "notify/busy/rate",
        "one notification of a receiver that never sleeps",
        line,
        &[("handover", Ours, 88.0), ("eventfd", Peer, 402.0)],
    ));
    let mut off = figure(
        "notify/busy/spun",
        "notifications that were spun for",
        line,
        &[("handover", Ours, 90.0)],
    );
    off[0].ladder = false;
    off[0].spec = "notify/busy/rate".into();
    add(off);
    add(figure(
        "null/one-cpu",
        "ours against ours: what this machine cannot tell apart",
        None,
        &[("one", Null, 0.71), ("other", Null, 0.712)],
    ));
    Document::new(run(), records)
}
