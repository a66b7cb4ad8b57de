//! Resource usage: CPU time, context switches, page faults, memory, and time stolen by the
//! hypervisor.
//!
//! ```
//! use handover_base::usage;
//! let before = usage::thread_usage();
//! std::thread::sleep(std::time::Duration::from_millis(1));
//! let spent = usage::thread_usage() - before;
//! println!("{} ns of CPU, {} switches", spent.cpu_ns(), spent.switches_voluntary);
//! # assert!(cfg!(miri) || spent.switches_voluntary >= 1);
//! ```

mod counts;

pub use counts::Usage;
pub(crate) use counts::UsageScope;

use crate::os;
use std::ops::Sub;

/// Returns the resource usage of the calling thread so far (`RUSAGE_THREAD`). Its CPU time is up to
/// date, whereas that of `getrusage` alone is of the last timer tick, up to 4 ms earlier.
///
/// # Cost
/// Two system calls, about 500 ns.
#[must_use]
pub fn thread_usage() -> Usage {
    os::update_thread_time();
    os::read_usage(UsageScope::Thread)
}

/// Returns the number of involuntary context switches of the calling thread so far.
///
/// # Cost
/// One system call, about 300 ns.
#[must_use]
pub fn thread_switches_involuntary() -> u64 {
    os::read_usage(UsageScope::Thread).switches_involuntary
}

/// Returns the resource usage of the process so far, including exited threads (`RUSAGE_SELF`).
///
/// # Cost
/// One system call, growing with the number of threads.
#[must_use]
pub fn process_usage() -> Usage {
    os::read_usage(UsageScope::Process)
}

/// Returns the resource usage of child processes that have exited and were waited for
/// (`RUSAGE_CHILDREN`). It includes that of their descendants.
///
/// # Cost
/// One system call.
#[must_use]
pub fn children_usage() -> Usage {
    os::read_usage(UsageScope::Children)
}

/// Stolen time and total time, each summed over some CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StealTime {
    /// Time in ns for which a CPU had work, but the hypervisor ran something else.
    pub steal_ns: u64,
    /// Total time in ns: busy, idle and stolen.
    pub total_ns: u64,
}

impl StealTime {
    /// Returns the share of stolen time, 0.0 to 1.0; zero if no time has passed.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        if self.total_ns == 0 { 0.0 } else { self.steal_ns as f64 / self.total_ns as f64 }
    }
}

/// Returns the stolen and total time between two readings; saturates at zero.
impl Sub for StealTime {
    type Output = StealTime;
    fn sub(self, earlier: StealTime) -> StealTime {
        StealTime {
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }
}

/// Reads the stolen and the total time of `cpus` since boot from `/proc/stat`. Returns `None` if
/// the file cannot be read or lists none of these CPUs.
///
/// The unit is the kernel's tick, mostly 10 ms: differences over less than about a second are not
/// meaningful.
///
/// # Cost
/// Reads a file of the kernel: tens of µs, more with many CPUs.
#[must_use]
pub fn read_steal_time(cpus: &[u32]) -> Option<StealTime> {
    if cfg!(miri) {
        return None; // Miri's isolation opens no files.
    }
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    parse_stat(&stat, cpus, os::clock_ticks_per_second())
}

/// Returns the stolen and the total time of `cpus`, summed over their lines in `/proc/stat`. A line
/// is `cpuN user nice system idle iowait irq softirq steal guest guest_nice`. User and nice already
/// contain the guest columns.
fn parse_stat(stat: &str, cpus: &[u32], ticks_hz: u64) -> Option<StealTime> {
    let mut ticks: Option<[u128; 2]> = None;
    for line in stat.lines() {
        let Some((cpu, columns)) = line.strip_prefix("cpu").and_then(|it| it.split_once(' '))
        else {
            continue;
        };
        if cpu.parse().is_ok_and(|cpu| cpus.contains(&cpu)) {
            let columns: Vec<u64> = columns
                .split_whitespace()
                .take(8)
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?;
            let [stolen, total] = ticks.get_or_insert_default();
            *stolen += u128::from(columns.get(7).copied().unwrap_or(0));
            *total += columns.iter().map(|&it| u128::from(it)).sum::<u128>();
        }
    }
    let [stolen, total] = ticks.filter(|_| ticks_hz > 0)?;
    let to_ns = |ticks: u128| (ticks * 1_000_000_000 / u128::from(ticks_hz)) as u64;
    Some(StealTime { steal_ns: to_ns(stolen), total_ns: to_ns(total) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_column_and_guest_time_counts_once() {
        let stat = "cpu  1 2 3\ncpu0 10 20 30 40 50 60 70 80 1000 2000\nintr 5\n";
        let steal = parse_stat(stat, &[0], 100).unwrap();
        assert_eq!(steal, StealTime { steal_ns: 800_000_000, total_ns: 3_600_000_000 });
    }

    #[test]
    fn steal_of_cpus_leaves_out_all_others() {
        let stat =
            "cpu  9 9 9\ncpu0 0 0 0 10 0 0 0 1\ncpu1 0 0 0 10 0 0 0 2\ncpu10 0 0 0 10 0 0 0 4\n";
        let stolen = |cpus: &[u32]| parse_stat(stat, cpus, 1_000_000_000).unwrap().steal_ns;
        assert_eq!((stolen(&[1]), stolen(&[0, 10]), stolen(&[0, 1, 10, 11])), (2, 5, 7));
        assert_eq!(parse_stat(stat, &[2], 100), None);
    }

    #[test]
    fn missing_steal_column_means_zero_steal() {
        assert_eq!(parse_stat("cpu0 1 2 3 4\n", &[0], 100).unwrap().steal_ns, 0);
    }

    #[test]
    fn malformed_proc_stat_gives_none() {
        for rubbish in ["", "cpu", "cpu0", "cpu0 a b c d", "cpu  1 2 3 4", "intr 1 2 3 4"] {
            assert_eq!(parse_stat(rubbish, &[0], 100), None, "{rubbish:?}");
        }
        assert_eq!(parse_stat("cpu0 1 2 3 4\n", &[0], 0), None);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(handover_portable)))]
    #[cfg_attr(miri, ignore = "Miri counts no faults")]
    fn first_touch_of_memory_is_a_fault_of_the_thread_and_the_process() {
        let before = (thread_usage(), process_usage());
        let mut pages = vec![0u8; 64 * 4096];
        pages.iter_mut().step_by(4096).for_each(|it| *it = 1);
        std::hint::black_box(&pages);
        let faults =
            ((thread_usage() - before.0).faults_minor, (process_usage() - before.1).faults_minor);
        assert!(faults.0 > 0 && faults.1 >= faults.0, "{faults:?}");
    }

    #[test]
    #[cfg(all(target_os = "linux", not(handover_portable)))]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
    fn child_counts_once_it_was_waited_for() {
        let before = children_usage();
        let ended = std::process::Command::new("/bin/sh").args(["-c", ":"]).status();
        assert!(ended.is_ok_and(|it| it.success()));
        assert!((children_usage() - before).faults_minor > 0);
    }
}
