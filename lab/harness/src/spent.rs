//! Resources that a thread or a process used in a round.

use handover_base::usage::Usage;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// CPU time, context switches and page faults of a thread or a process. Those of several threads
/// are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResourceUsage {
    pub user_ns: u64,
    pub system_ns: u64,
    pub switches_voluntary: u64,
    pub switches_involuntary: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Time for which a participant's thread was runnable without a CPU. `None` for a process, or
    /// if the kernel does not report it.
    pub delayed_ns: Option<u64>,
}

impl From<Usage> for ResourceUsage {
    fn from(used: Usage) -> ResourceUsage {
        ResourceUsage {
            user_ns: used.user_ns,
            system_ns: used.system_ns,
            switches_voluntary: used.switches_voluntary,
            switches_involuntary: used.switches_involuntary,
            faults_minor: used.faults_minor,
            faults_major: used.faults_major,
            delayed_ns: None,
        }
    }
}

impl AddAssign for ResourceUsage {
    fn add_assign(&mut self, other: ResourceUsage) {
        for (sum, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum += more;
        }
        if let Some(more) = other.delayed_ns {
            *self.delayed_ns.get_or_insert(0) += more;
        }
    }
}

impl ResourceUsage {
    /// Subtracts the usage of `part`; no count becomes less than 0. The usages of threads and of
    /// the process are read one after the other.
    pub fn saturating_sub(mut self, part: ResourceUsage) -> ResourceUsage {
        for (count, part) in self.counts_mut().into_iter().zip(part.counts()) {
            *count = count.saturating_sub(part);
        }
        self
    }

    /// Returns all fields except `delayed_ns`.
    fn counts(mut self) -> [u64; 6] {
        self.counts_mut().map(|count| *count)
    }

    /// Returns references to all fields except `delayed_ns`.
    fn counts_mut(&mut self) -> [&mut u64; 6] {
        [
            &mut self.user_ns,
            &mut self.system_ns,
            &mut self.switches_voluntary,
            &mut self.switches_involuntary,
            &mut self.faults_minor,
            &mut self.faults_major,
        ]
    }
}
