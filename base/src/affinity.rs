//! CPU affinity of threads, and pinning to one CPU.
//!
//! ```
//! use handover_base::affinity;
//! let before = affinity::thread_cpus();
//! affinity::pin(before[0])?;
//! assert_eq!(affinity::current_cpu(), before[0]);
//! affinity::set_thread_cpus(&before)?;
//! # Ok::<(), affinity::PinError>(())
//! ```

use crate::os;
use std::io::{self, ErrorKind};

/// Error of binding a thread to CPUs, by [`pin`] or [`set_thread_cpus`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The kernel allows this process none of the requested CPUs.
    #[error("CPU {} is not allowed for this process; allowed are {}", format_cpus(.requested), format_cpus(.allowed))]
    NotAllowed {
        /// CPUs that were requested.
        requested: Vec<u32>,
        /// CPUs that this process may run on.
        allowed: Vec<u32>,
    },
    /// The list of requested CPUs is empty.
    #[error("the list of CPUs is empty: name at least one of {}", format_cpus(.allowed))]
    EmptyCpuList {
        /// CPUs that this process may run on.
        allowed: Vec<u32>,
    },
    /// The system call `sched_setaffinity` failed, for example because a filter forbids it.
    #[error("cannot bind the thread to CPU {}: sched_setaffinity failed: {error}", format_cpus(.requested))]
    SyscallFailed {
        /// CPUs that were requested.
        requested: Vec<u32>,
        /// Error that the kernel returned; `Unsupported` on systems other than Linux.
        error: ErrorKind,
    },
}

fn format_cpus(cpus: &[u32]) -> String {
    crate::topology::CpuList(cpus).to_string()
}

/// Binds the calling thread to `cpu`; the thread runs on this CPU when the function returns.
///
/// # Errors
/// [`PinError::NotAllowed`], with the allowed CPUs, if `cpu` is offline, does not exist or is
/// outside the process's cpuset; [`PinError::SyscallFailed`] if the system call is filtered.
///
/// # Cost
/// A system call and, if the thread must move, a migration: some µs.
pub fn pin(cpu: u32) -> Result<(), PinError> {
    set_thread_cpus(&[cpu])
}

/// Returns the CPU on which the calling thread runs. Unless the thread is pinned, it may have moved
/// since.
///
/// # Cost
/// About 10 ns (vDSO).
#[must_use]
pub fn current_cpu() -> u32 {
    os::current_cpu().unwrap_or_else(|| thread_cpus().first().copied().unwrap_or(0))
}

/// Returns the CPUs that the calling thread may run on, sorted; never empty.
///
/// # Cost
/// One system call.
#[must_use]
pub fn thread_cpus() -> Vec<u32> {
    cpus_or_parsed_status(os::thread_cpus(), "/proc/thread-self/status")
}

/// Returns the CPUs that the main thread may run on.
pub(crate) fn main_thread_cpus() -> Vec<u32> {
    cpus_or_parsed_status(os::main_thread_cpus(), "/proc/self/status")
}

/// Returns `cpus`, or the CPUs in the file at `status_path` if `cpus` is an error. An empty list is
/// replaced by the current CPU.
fn cpus_or_parsed_status(cpus: io::Result<Vec<u32>>, status_path: &str) -> Vec<u32> {
    // More possible CPUs than rustix's set holds (EINVAL), or a filter: the status file has the
    // mask too.
    let mut cpus = cpus.unwrap_or_else(|_| parse_status_file(status_path));
    if cpus.is_empty() {
        cpus.push(os::current_cpu().unwrap_or(0));
    }
    cpus
}

/// Returns the CPUs that a thread may run on, from its status file in `/proc`.
fn parse_status_file(path: &str) -> Vec<u32> {
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    line.and_then(|l| crate::topology::parse_cpu_list(l).ok()).unwrap_or_default()
}

/// Binds the calling thread to a set of CPUs. Like the kernel, ignores CPUs that are not allowed if
/// at least one is allowed.
///
/// # Errors
/// [`PinError::NotAllowed`] if none of `cpus` is allowed, [`PinError::EmptyCpuList`] if `cpus` is
/// empty, [`PinError::SyscallFailed`] if the system call is filtered.
pub fn set_thread_cpus(cpus: &[u32]) -> Result<(), PinError> {
    if cpus.is_empty() {
        return Err(PinError::EmptyCpuList { allowed: crate::topology::allowed_cpus() });
    }
    os::set_thread_cpus(cpus).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => PinError::NotAllowed {
            requested: cpus.to_vec(),
            allowed: crate::topology::allowed_cpus(),
        },
        error => PinError::SyscallFailed { requested: cpus.to_vec(), error },
    })
}

/// Returns `true` if the calling thread may run on one CPU only. Spinning for a partner on that CPU
/// would only delay the partner.
///
/// # Cost
/// One system call: call it once, not at each wait.
#[must_use]
pub fn is_bound_to_one_cpu() -> bool {
    os::thread_cpus_count().unwrap_or_else(|_| thread_cpus().len()) == 1
}
