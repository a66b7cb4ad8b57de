//! Diagnosis of what disturbs measurement on this machine, with commands that repair it.
//!
//! Facts come from kernel files and from short measurements (the CPUs' current pace). The verdicts
//! are computed from facts alone, so that a test can judge any machine.

mod facts;
mod measured;
mod verdict;

use facts::MachineFacts;
use handover_record::Finding;
use measured::CpuMeasurements;
use std::path::Path;
use std::time::Duration;

/// Examines this machine and returns the findings, worst first. Never fails: a fact that cannot be
/// read is a finding.
///
/// For `time`, one thread spins on each CPU that this process may use, at most 16, to measure steal
/// and slowdown; zero skips this. The kernel counts steal in units of 10 ms, so less than a second
/// says little about it.
pub fn examine_machine(time: Duration) -> Vec<Finding> {
    let facts = MachineFacts::read(Path::new("/"));
    let measured = (!time.is_zero()).then(|| CpuMeasurements::measure(time));
    verdict::find_all(&facts, measured.as_ref())
}
