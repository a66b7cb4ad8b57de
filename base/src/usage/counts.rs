//! Usage of a thread or a process.

use std::ops::{Add, Sub};

/// Scope of a resource usage reading: the calling thread, the process or its children.
#[derive(Clone, Copy)]
pub(crate) enum UsageScope {
    Thread,
    Process,
    Children,
}

/// CPU time, context switches, page faults and memory of a thread or process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode, in ns. The kernel measures the sum of user and system time exactly,
    /// but splits it by sampling, so that the split of short spans is inaccurate.
    pub user_ns: u64,
    /// CPU time in the kernel, in ns.
    pub system_ns: u64,
    /// Number of context switches because the thread waited.
    pub switches_voluntary: u64,
    /// Number of context switches because the kernel preempted the thread.
    pub switches_involuntary: u64,
    /// Number of page faults that needed no I/O. Examples are a first access to memory and a copy
    /// on write.
    pub faults_minor: u64,
    /// Number of page faults that waited for a disk.
    pub faults_major: u64,
    /// Peak resident set size of the whole process in bytes, even in the usage of a thread.
    pub rss_max_bytes: u64,
}

impl Usage {
    /// Returns the sum of user and system time, in ns.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// Returns the usage between two readings; `rss_max_bytes` is the increase of the peak. Saturates
/// at zero.
impl Sub for Usage {
    type Output = Usage;
    fn sub(self, earlier: Usage) -> Usage {
        Usage {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
            faults_minor: self.faults_minor.saturating_sub(earlier.faults_minor),
            faults_major: self.faults_major.saturating_sub(earlier.faults_major),
            rss_max_bytes: self.rss_max_bytes.saturating_sub(earlier.rss_max_bytes),
        }
    }
}

/// Returns the sum of two usages; `rss_max_bytes` is the greater of the two.
impl Add for Usage {
    type Output = Usage;
    fn add(self, other: Usage) -> Usage {
        Usage {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            switches_voluntary: self.switches_voluntary + other.switches_voluntary,
            switches_involuntary: self.switches_involuntary + other.switches_involuntary,
            faults_minor: self.faults_minor + other.faults_minor,
            faults_major: self.faults_major + other.faults_major,
            rss_max_bytes: self.rss_max_bytes.max(other.rss_max_bytes),
        }
    }
}
