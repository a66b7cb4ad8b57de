//! Test of participants that share a CPU.

use handover_base::topology::Placement;
use handover_harness::{Lab, Plan, Profile};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Benchmarks with a contender that polls a socket, and the contender's name.
const POLLING: [(&str, &str); 4] = [
    ("floor/socket-spin", "kernel"),
    ("floor/socket-pipelined", "kernel"),
    ("net/echo-spin", "handover"),
    ("rpc/noop", "socket-spin"),
];

/// Maximum CPU time of an operation. A time slice, which a participant that polls without a yield
/// uses for each message, is longer than 1 ms.
const CPU_NS_MAX: f64 = 500_000.0;

#[test]
fn participants_that_poll_sockets_on_one_cpu_do_not_use_up_their_time_slices() {
    let ids = POLLING.map(|(id, _)| id.to_string());
    let time = Some(Duration::from_millis(100));
    let plan = Plan { profile: Profile::Quick, place: Placement::Same, time, ..Plan::default() };
    let lab = Lab::new(handover_suite::SUITES, &ids, plan).unwrap();
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    for (id, contender) in POLLING {
        let record = outcome.records.iter().find(|it| it.id == id && it.contender == contender);
        let record = record.unwrap_or_else(|| panic!("{id} [{contender}]: {:?}", outcome.faults));
        let cpus: f64 = record.roles.iter().map(|role| role.cpus).sum();
        let cpu_ns = cpus * record.summary.median;
        assert!(cpu_ns < CPU_NS_MAX, "{id} [{contender}]: {cpu_ns} ns of CPU time per operation");
    }
}
