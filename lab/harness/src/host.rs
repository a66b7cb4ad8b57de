//! Description of the machine, from which a reader judges if two runs can be compared.

use crate::counters;
use crate::raw;
use handover_base::clock;
use handover_base::topology::{self, Topology};
use handover_record::{CpuCache, Host};
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the description of this machine. Never fails: fields that cannot be read stay empty.
pub fn capture_host() -> Host {
    let uname = rustix::system::uname();
    // Host names are set by users and may contain control characters.
    let printable = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    let words =
        |text: &std::ffi::CStr| text.to_string_lossy().chars().map(printable).collect::<String>();
    let calibration = clock::calibration();
    let files = KernelFiles(Path::new("/"));
    let mut host = Host {
        name: words(uname.nodename()),
        kernel: format!("{} {}", words(uname.release()), words(uname.version())),
        clock: format!("{}: {}", calibration.source, calibration.why),
        clock_cost_ns: calibration.cost_ns,
        clock_source: files.read_clock_source_file("current_clocksource").unwrap_or_default(),
        cpus_allowed: topology::allowed_cpus(),
        cgroup_cpus: topology::quota_cpus(),
        cgroup_memory_bytes: files.cgroup_memory_bytes(),
        governor: files.governor(),
        turbo: files.turbo().map(|turbo| turbo.is_on),
        huge_pages: files.huge_pages(),
        counters: counters::are_available(),
        load_1min: files.load_1min().unwrap_or(0.0),
        mitigations: files
            .vulnerabilities()
            .into_iter()
            .map(|(name, state)| format!("{name}: {state}"))
            .collect(),
        hypervisor: topology::hypervisor_name(),
        libc: raw::libc_version(),
        ..Host::default()
    };
    if let Ok(topology) = Topology::read() {
        describe_topology(&mut host, &topology);
    }
    describe_cpu(&mut host, &fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    host.memory_bytes = files.memory_bytes();
    let command_line = files.read_nonempty("/proc/cmdline").unwrap_or_default();
    host.isolation = command_line
        .split_whitespace()
        .filter(|word| {
            ["isolcpus=", "nohz_full=", "rcu_nocbs="].iter().any(|it| word.starts_with(it))
        })
        .map(str::to_string)
        .collect();
    host
}

/// Sets the fields of `host` that come from the CPU topology.
fn describe_topology(host: &mut Host, topology: &Topology) {
    host.cpus_online = topology.cpus.len() as u32;
    host.cores = topology.cores_count;
    host.packages = topology.packages_count;
    host.threads_per_core = host.cpus_online.checked_div(host.cores).unwrap_or(1).max(1);
    host.numa_nodes = topology.nodes_count;
    host.caches = topology
        .caches
        .iter()
        .map(|cache| CpuCache {
            level: cache.level,
            kind: cache.kind.clone(),
            size_bytes: cache.size_bytes,
            line_bytes: cache.line_bytes,
        })
        .collect();
}

/// Sets the CPU model and microcode of `host` from the text of `/proc/cpuinfo`.
fn describe_cpu(host: &mut Host, cpuinfo: &str) {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    host.cpu_model = field("model name").unwrap_or_default();
    host.microcode = field("microcode");
}

/// Returns the size of the main memory from the text of `/proc/meminfo`. Returns 0 if the text does
/// not contain it.
fn memory_bytes(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .map_or(0, |kibibytes: u64| kibibytes * 1024)
}

/// Switch of the CPU's turbo frequencies: the kernel file that controls it, and its current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turbo {
    /// `true` if turbo frequencies are enabled.
    pub(crate) is_on: bool,
    pub(crate) file: &'static str,
    /// Text that disables turbo when written to `file`.
    pub(crate) off: &'static str,
}

const NO_TURBO_FILE: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
pub(crate) const BOOST_FILE: &str = "/sys/devices/system/cpu/cpufreq/boost";

/// Kernel files below a root, which is `/` except in tests.
pub(crate) struct KernelFiles<'a>(pub(crate) &'a Path);

impl KernelFiles<'_> {
    /// Returns the path of a file below the root.
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns the file's trimmed text, which may be empty; `None` if the file cannot be read.
    pub(crate) fn read_text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_string())
    }

    /// Returns the file's trimmed text; `None` if the text is empty or the file cannot be read.
    pub(crate) fn read_nonempty(&self, path: &str) -> Option<String> {
        self.read_text(path).filter(|text| !text.is_empty())
    }

    pub(crate) fn read_number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read_nonempty(path)?.parse().ok()
    }

    pub(crate) fn governor(&self) -> Option<String> {
        self.read_nonempty("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    }

    /// Returns the switch of the turbo frequencies; `None` if the kernel has neither of its two
    /// files.
    pub(crate) fn turbo(&self) -> Option<Turbo> {
        if let Some(text) = self.read_nonempty(NO_TURBO_FILE) {
            return Some(Turbo { is_on: text == "0", file: NO_TURBO_FILE, off: "1" });
        }
        self.read_nonempty(BOOST_FILE).map(|text| Turbo {
            is_on: text == "1",
            file: BOOST_FILE,
            off: "0",
        })
    }

    /// Returns the text of the file `name` in the kernel's folder about clock sources.
    pub(crate) fn read_clock_source_file(&self, name: &str) -> Option<String> {
        self.read_nonempty(&format!("/sys/devices/system/clocksource/clocksource0/{name}"))
    }

    /// Returns the mode of transparent huge pages: `always`, `madvise` or `never`.
    pub(crate) fn huge_pages(&self) -> Option<String> {
        let text = self.read_nonempty("/sys/kernel/mm/transparent_hugepage/enabled")?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_string())
    }

    /// Returns the memory limit of the cgroup; `None` if there is none.
    pub(crate) fn cgroup_memory_bytes(&self) -> Option<u64> {
        self.read_nonempty("/sys/fs/cgroup/memory.max")
            .or_else(|| self.read_nonempty("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
            .and_then(|text| text.parse().ok())
            // Version 1 of cgroups writes "no limit" as a number near 2^63.
            .filter(|bytes| *bytes < 1 << 60)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.read_nonempty("/proc/meminfo").unwrap_or_default())
    }

    pub(crate) fn load_1min(&self) -> Option<f64> {
        self.read_nonempty("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
    }

    /// Returns the name and state of each vulnerability that affects this CPU, sorted.
    pub(crate) fn vulnerabilities(&self) -> Vec<(String, String)> {
        let folder = self.path("/sys/devices/system/cpu/vulnerabilities");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let state = fs::read_to_string(entry.path()).ok()?.trim().to_string();
                let affects = !state.is_empty() && state != "Not affected";
                affects.then(|| (entry.file_name().to_string_lossy().into_owned(), state))
            })
            .collect();
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_captured() {
        let host = capture_host();
        assert!(host.cpus_online >= 1);
        assert!(!host.cpus_allowed.is_empty());
        assert!(host.memory_bytes > 1 << 20);
        assert!(host.clock_cost_ns > 0.0);
        assert!(host.kernel.len() > 3);
    }

    #[test]
    fn malformed_cpuinfo_is_read_without_error() {
        let mut host = Host::default();
        describe_cpu(&mut host, "model name\t: Odd: CPU\nmicrocode\t: 0x1\nno colon\n:\n");
        assert_eq!(host.cpu_model, "Odd: CPU");
        assert_eq!(host.microcode.as_deref(), Some("0x1"));
        assert_eq!(memory_bytes("MemTotal:  12 kB\n"), 12 * 1024);
        assert_eq!(memory_bytes("rubbish"), 0);
    }
}
