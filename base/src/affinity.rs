//! CPU affinity of threads, and pinning to one CPU.
//!
//! ```
//! use handover_base::affinity;
//! let before = affinity::mask();
//! affinity::pin(before[0])?;
//! assert_eq!(affinity::current_cpu(), before[0]);
//! affinity::set_mask(&before)?;
//! # Ok::<(), affinity::PinError>(())
//! ```

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Error of binding a thread to CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The kernel allows this process none of the requested CPUs.
    #[error("CPU {} is not allowed for this process; allowed are {}", list(.asked), list(.allowed))]
    NotAllowed {
        /// Requested CPUs.
        asked: Vec<u32>,
        /// CPUs of [`topology::allowed`](crate::topology::allowed).
        allowed: Vec<u32>,
    },
    /// The list of CPUs is empty: the thread could not run.
    #[error("the list of CPUs is empty: name at least one of {}", list(.allowed))]
    Empty {
        /// CPUs of [`topology::allowed`](crate::topology::allowed).
        allowed: Vec<u32>,
    },
    /// The system call is forbidden or failed.
    #[error("sched_setaffinity to CPU {} failed: {errno}", list(.asked))]
    Refused {
        /// Requested CPUs.
        asked: Vec<u32>,
        /// Error that the kernel returned.
        errno: Errno,
    },
}

fn list(cpus: &[u32]) -> String {
    crate::topology::CpuList(cpus).to_string()
}

/// Binds the calling thread to `cpu`; it runs there when this returns.
///
/// # Errors
/// [`PinError::NotAllowed`], with the allowed CPUs, if `cpu` is offline, does not exist or is
/// outside the process's cpuset; [`PinError::Refused`] if the system call is filtered.
///
/// # Cost
/// A system call and, if the thread must move, a migration: some µs.
pub fn pin(cpu: u32) -> Result<(), PinError> {
    set_mask(&[cpu])
}

/// CPU that this thread runs on at the moment. Stale at once unless the thread is pinned.
///
/// # Cost
/// About 10 ns (vDSO).
#[must_use]
pub fn current_cpu() -> u32 {
    if cfg!(miri) {
        return mask().first().copied().unwrap_or(0); // Miri has masks, but no sched_getcpu.
    }
    rustix::thread::sched_getcpu() as u32
}

/// Returns the CPUs that the calling thread may run on, sorted; never empty.
///
/// # Cost
/// One system call.
#[must_use]
pub fn mask() -> Vec<u32> {
    mask_of(None)
}

/// Returns the mask of one thread, `None` for the caller.
pub(crate) fn mask_of(thread: Option<rustix::process::Pid>) -> Vec<u32> {
    let mut cpus: Vec<u32> = match sched_getaffinity(thread) {
        Ok(set) => cpus_of(&set),
        // More possible CPUs than CpuSet holds (EINVAL), or a filter: the status file has the mask
        // too.
        Err(_) => mask_from_status(thread),
    };
    if cpus.is_empty() && !cfg!(miri) {
        cpus.push(current_cpu());
    }
    cpus
}

fn mask_from_status(thread: Option<rustix::process::Pid>) -> Vec<u32> {
    let path = match thread {
        None => "/proc/thread-self/status".to_owned(),
        Some(pid) => format!("/proc/{}/status", pid.as_raw_nonzero()),
    };
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    line.and_then(|l| crate::topology::parse_cpu_list(l).ok()).unwrap_or_default()
}

fn cpus_of(set: &CpuSet) -> Vec<u32> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

/// Binds the calling thread to a set of CPUs. Like the kernel, ignores those that are not allowed,
/// as long as one is.
///
/// # Errors
/// [`PinError::NotAllowed`] if none of `cpus` is allowed, [`PinError::Empty`] if `cpus` is empty,
/// [`PinError::Refused`] if the system call is filtered.
pub fn set_mask(cpus: &[u32]) -> Result<(), PinError> {
    if cpus.is_empty() {
        return Err(PinError::Empty { allowed: crate::topology::allowed() });
    }
    let not_allowed =
        || PinError::NotAllowed { asked: cpus.to_vec(), allowed: crate::topology::allowed() };
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    if set.count() == 0 {
        return Err(not_allowed());
    }
    match sched_setaffinity(None, &set) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL) => Err(not_allowed()),
        Err(errno) => Err(PinError::Refused { asked: cpus.to_vec(), errno }),
    }
}

/// Returns `true` if the calling thread may run on one CPU only, so that spinning for a partner on
/// that CPU would only delay the partner.
///
/// # Cost
/// One system call: call it once, not at each wait.
#[must_use]
pub fn on_one_cpu() -> bool {
    match sched_getaffinity(None) {
        Ok(set) => set.count() == 1,
        Err(_) => mask().len() == 1,
    }
}
