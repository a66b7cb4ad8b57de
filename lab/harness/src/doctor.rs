//! What on this machine disturbs measurement, and the command that mends it.
//!
//! Facts are read from files of the kernel, some are measured (what the CPUs give just now), and judged
//! apart from both, so that any machine can be judged in a test.

mod facts;
mod measured;
mod verdict;

use facts::Facts;
use handover_record::Finding;
use measured::Measured;
use std::path::Path;
use std::time::Duration;

/// Looks at this machine, worst first. Nothing here fails: what cannot be seen is a finding that says so.
///
/// For `time` one thread spins on each CPU that this process may use, at most 16 of them, to see what
/// the host and the neighbours take; none where it is zero. Steal is counted by the kernel in steps of
/// 10 ms: less than a second tells little of it.
pub fn examine(time: Duration) -> Vec<Finding> {
    let facts = Facts::read(Path::new("/"));
    let measured = (!time.is_zero()).then(|| Measured::take(time));
    verdict::of(&facts, measured.as_ref())
}
