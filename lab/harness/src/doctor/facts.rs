//! Facts about the machine from kernel files.

use crate::counters;
use crate::host::{KernelFiles, Turbo};
use handover_base::topology::{self, Topology};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Soft and hard limit of a resource. The soft limit can be raised up to the hard limit without
/// root. `u64::MAX` if unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceLimit {
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// Facts about the machine, as the kernel reports them. A fact is `None` if the kernel does not
/// report it.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineFacts {
    pub(super) hypervisor: Option<String>,
    pub(super) governor: Option<String>,
    pub(super) turbo: Option<Turbo>,
    /// Kernel's setting of simultaneous multithreading, such as `on` or `off`.
    pub(super) smt_control: Option<String>,
    pub(super) is_smt_active: Option<bool>,
    /// List of the CPUs isolated from the scheduler; empty if none.
    pub(super) isolated_cpus: Option<String>,
    /// List of the CPUs without a periodic timer interrupt.
    pub(super) nohz_full_cpus: Option<String>,
    /// CPU vulnerabilities that the kernel mitigates, each as `name: state`.
    pub(super) mitigations: Vec<String>,
    /// Mode of transparent huge pages, such as `madvise`.
    pub(super) huge_pages: Option<String>,
    pub(super) clock_source: Option<String>,
    /// Clock sources that the kernel offers.
    pub(super) clock_sources: Vec<String>,
    pub(super) timer_slack_ns: Option<u64>,
    /// Number of CPUs that are online.
    pub(super) cpus_online: usize,
    /// CPUs that this process may use.
    pub(super) cpus_allowed: Vec<u32>,
    /// CPU quota of this process's cgroup, in CPUs; `None` without a quota.
    pub(super) cgroup_cpus: Option<f64>,
    /// Memory limit of this process's cgroup; `None` without a limit.
    pub(super) cgroup_memory_bytes: Option<u64>,
    /// Size of the main memory.
    pub(super) memory_bytes: u64,
    /// Limits on the number of open file descriptors.
    pub(super) fds: ResourceLimit,
    /// Limits on the number of the user's threads, in all processes.
    pub(super) threads: ResourceLimit,
    /// Maximum number of threads in the cgroup; `None` without a limit.
    pub(super) pids_max: Option<u64>,
    pub(super) load_1min: Option<f64>,
    /// `true` if this process can read the hardware counters.
    pub(super) has_counters: bool,
    /// Error of opening the hardware counters; `None` if they can be opened.
    pub(super) counters_errno: Option<Errno>,
    pub(super) perf_event_paranoid: Option<i64>,
    /// Number of NUMA nodes.
    pub(super) numa_nodes: usize,
    pub(super) is_numa_balancing_on: Option<bool>,
}

impl MachineFacts {
    /// Reads the kernel files below `root` (`/` except in tests), and this process's limits.
    pub(super) fn read(root: &Path) -> Self {
        let files = KernelFiles(root);
        let topology = Topology::read().ok();
        let limit = |which| {
            let limit = getrlimit(which);
            let of = |value: Option<u64>| value.unwrap_or(u64::MAX);
            ResourceLimit { soft: of(limit.current), hard: of(limit.maximum) }
        };
        Self {
            hypervisor: topology::hypervisor_name(),
            governor: files.governor(),
            turbo: files.turbo(),
            smt_control: files.read_nonempty("/sys/devices/system/cpu/smt/control"),
            is_smt_active: files
                .read_nonempty("/sys/devices/system/cpu/smt/active")
                .map(|text| text == "1"),
            isolated_cpus: files.read_text("/sys/devices/system/cpu/isolated"),
            nohz_full_cpus: files.read_text("/sys/devices/system/cpu/nohz_full").map(|text| {
                match &*text {
                    "(null)" => String::new(),
                    _ => text,
                }
            }),
            mitigations: mitigations(&files),
            huge_pages: files.huge_pages(),
            clock_source: files.read_clock_source_file("current_clocksource"),
            clock_sources: files
                .read_clock_source_file("available_clocksource")
                .map(|text| text.split_whitespace().map(str::to_string).collect())
                .unwrap_or_default(),
            timer_slack_ns: files.read_number("/proc/self/timerslack_ns"),
            cpus_online: topology.as_ref().map_or(0, |it| it.cpus.len()),
            cpus_allowed: topology::allowed_cpus(),
            cgroup_cpus: topology::quota_cpus(),
            cgroup_memory_bytes: files.cgroup_memory_bytes(),
            memory_bytes: files.memory_bytes(),
            fds: limit(Resource::Nofile),
            threads: limit(Resource::Nproc),
            pids_max: files.read_number("/sys/fs/cgroup/pids.max"),
            load_1min: files.load_1min(),
            has_counters: counters::are_available(),
            counters_errno: counters::open_error(),
            perf_event_paranoid: files.read_number("/proc/sys/kernel/perf_event_paranoid"),
            numa_nodes: topology.as_ref().map_or(1, |it| it.nodes_count as usize),
            is_numa_balancing_on: files
                .read_nonempty("/proc/sys/kernel/numa_balancing")
                .map(|text| text != "0"),
        }
    }
}

/// Returns the CPU vulnerabilities that the kernel mitigates, each as `name: state`. A mitigation
/// costs time.
fn mitigations(files: &KernelFiles<'_>) -> Vec<String> {
    let mitigated = |(name, state): (String, String)| {
        Some(format!("{name}: {}", state.strip_prefix("Mitigation: ")?))
    };
    files.vulnerabilities().into_iter().filter_map(mitigated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::BOOST_FILE;
    use std::fs;

    fn planted(files: &[(&str, &str)]) -> MachineFacts {
        let root = tempfile::tempdir().expect("create a temporary folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("made");
            fs::write(path, text).expect("write the file");
        }
        MachineFacts::read(root.path())
    }

    #[test]
    fn facts_are_read_from_the_kernels_files() {
        let cpu = "sys/devices/system/cpu";
        let facts = planted(&[
            (&format!("{cpu}/cpu0/cpufreq/scaling_governor"), "powersave\n"),
            (&format!("{cpu}/cpufreq/boost"), "1\n"),
            (&format!("{cpu}/smt/control"), "on\n"),
            (&format!("{cpu}/smt/active"), "1\n"),
            (&format!("{cpu}/isolated"), "\n"),
            (&format!("{cpu}/nohz_full"), "(null)\n"),
            (&format!("{cpu}/vulnerabilities/meltdown"), "Not affected\n"),
            (&format!("{cpu}/vulnerabilities/retbleed"), "Mitigation: untrained return thunk\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet tsc \n"),
            ("proc/self/timerslack_ns", "50000\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
            ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
        ]);
        assert_eq!(facts.governor.as_deref(), Some("powersave"));
        assert_eq!(facts.turbo, Some(Turbo { is_on: true, file: BOOST_FILE, off: "0" }));
        assert_eq!((facts.smt_control.as_deref(), facts.is_smt_active), (Some("on"), Some(true)));
        assert_eq!(
            (facts.isolated_cpus.as_deref(), facts.nohz_full_cpus.as_deref()),
            (Some(""), Some(""))
        );
        assert_eq!(facts.mitigations, ["retbleed: untrained return thunk"]);
        assert_eq!(facts.huge_pages.as_deref(), Some("always"));
        assert_eq!(facts.clock_source.as_deref(), Some("hpet"));
        assert_eq!(facts.clock_sources, ["hpet", "tsc"]);
        assert_eq!(facts.timer_slack_ns, Some(50_000));
        assert_eq!(facts.cgroup_memory_bytes, None);
        assert_eq!(facts.perf_event_paranoid, Some(-1));
    }

    #[test]
    fn missing_kernel_files_are_no_fault() {
        let facts = planted(&[("proc/loadavg", "rubbish"), ("proc/self/timerslack_ns", "-x")]);
        assert_eq!((facts.load_1min, facts.timer_slack_ns), (None, None));
        assert_eq!((facts.governor, facts.turbo, facts.mitigations.len()), (None, None, 0));
    }
}
