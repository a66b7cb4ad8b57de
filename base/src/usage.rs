//! Resource usage: CPU time, context switches, memory, and time stolen by the hypervisor.
//!
//! ```
//! use handover_base::usage;
//! let before = usage::thread();
//! std::thread::sleep(std::time::Duration::from_millis(1));
//! let spent = usage::thread() - before;
//! println!("{} ns of CPU, {} switches", spent.cpu_ns(), spent.switches_voluntary);
//! # assert!(cfg!(miri) || spent.switches_voluntary >= 1);
//! ```

use crate::raw;
use std::ops::Sub;

/// CPU time, context switches and memory of a thread or a process since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a CPU in user mode, in ns. The kernel measures the sum with the system time exactly,
    /// but divides it by sampling, so that short spans may be counted on the wrong side.
    pub user_ns: u64,
    /// Time on a CPU in the kernel, in ns.
    pub system_ns: u64,
    /// Switches because the thread waited.
    pub switches_voluntary: u64,
    /// Switches because another thread took the CPU.
    pub switches_involuntary: u64,
    /// Peak resident set size, in bytes, of the whole process (for a thread too).
    pub rss_max_bytes: u64,
}

impl Usage {
    /// User and system time together, in ns.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// Returns the usage between two readings; `rss_max_bytes` is the growth of the peak. Saturates at
/// zero.
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
            rss_max_bytes: self.rss_max_bytes.saturating_sub(earlier.rss_max_bytes),
        }
    }
}

/// Returns the usage of the calling thread so far (`RUSAGE_THREAD`).
///
/// # Cost
/// One system call, about 300 ns.
#[must_use]
pub fn thread() -> Usage {
    raw::usage(raw::UsageScope::Thread)
}

/// Returns the usage of the process so far, ended threads included (`RUSAGE_SELF`).
///
/// # Cost
/// One system call, growing with the number of threads.
#[must_use]
pub fn process() -> Usage {
    raw::usage(raw::UsageScope::Process)
}

/// Stolen and total CPU time of the whole machine, summed over its CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steal {
    /// Time in which a CPU had work but the hypervisor ran something else, in ns.
    pub steal_ns: u64,
    /// All time: busy, idle and stolen, in ns.
    pub total_ns: u64,
}

impl Steal {
    /// Share of stolen time, 0.0 to 1.0; zero if no time has passed.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.total_ns == 0 { 0.0 } else { self.steal_ns as f64 / self.total_ns as f64 }
    }
}

/// Returns the time between two readings. Saturates at zero.
impl Sub for Steal {
    type Output = Steal;
    fn sub(self, earlier: Steal) -> Steal {
        Steal {
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }
}

/// Reads the machine's stolen and total time since boot from `/proc/stat`; `None` if it cannot be
/// read.
///
/// The unit is the kernel's tick, mostly 10 ms: differences over less than about a second are not
/// meaningful.
///
/// # Cost
/// Reads a file of the kernel: tens of µs, more with many CPUs.
#[must_use]
pub fn steal_ticks() -> Option<Steal> {
    if cfg!(miri) {
        return None; // Miri's isolation opens no files.
    }
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    parse_stat(&stat, rustix::param::clock_ticks_per_second())
}

/// Parses the first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest
/// guest_nice`. User and nice already contain the guest columns.
fn parse_stat(stat: &str, ticks_hz: u64) -> Option<Steal> {
    let columns = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        columns.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    if ticks.len() < 4 || ticks_hz == 0 {
        return None;
    }
    let to_ns = |ticks: u128| (ticks * 1_000_000_000 / u128::from(ticks_hz)) as u64;
    Some(Steal {
        steal_ns: to_ns(ticks.get(7).copied().unwrap_or(0).into()),
        total_ns: to_ns(ticks.iter().map(|&t| u128::from(t)).sum()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_column_and_guest_time_counts_once() {
        let stat = "cpu  10 20 30 40 50 60 70 80 1000 2000\ncpu0 1 2 3\n";
        let steal = parse_stat(stat, 100).unwrap();
        assert_eq!(steal, Steal { steal_ns: 800_000_000, total_ns: 3_600_000_000 });
    }

    #[test]
    fn missing_steal_column_means_zero_steal() {
        assert_eq!(parse_stat("cpu  1 2 3 4\n", 100).unwrap().steal_ns, 0);
    }

    #[test]
    fn malformed_proc_stat_gives_none() {
        for rubbish in ["", "cpu", "cpu  a b c d", "cpu  1 2", "intr 1 2 3 4"] {
            assert_eq!(parse_stat(rubbish, 100), None, "{rubbish:?}");
        }
        assert_eq!(parse_stat("cpu  1 2 3 4\n", 0), None);
    }
}
