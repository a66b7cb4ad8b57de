//! The machine, captured whole: what a reader needs to judge whether two runs can be compared.

use crate::counters;
use handover_base::clock;
use handover_base::topology::{self, Topology};
use handover_record::{Cache, Host};
use std::fs;

/// Reads the host. What cannot be read stays empty; nothing here fails.
pub fn capture() -> Host {
    let uname = rustix::system::uname();
    let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let calibration = clock::calibration();
    let mut host = Host {
        name: words(uname.nodename()),
        kernel: format!("{} {}", words(uname.release()), words(uname.version())),
        clock: format!("{}: {}", calibration.source, calibration.why),
        clock_cost_ns: calibration.cost_ns,
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default(),
        cpus_allowed: topology::allowed(),
        cgroup_cpus: topology::quota_cpus(),
        cgroup_memory_bytes: line("/sys/fs/cgroup/memory.max")
            .or_else(|| line("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
            .and_then(|text| text.parse().ok())
            // The first version of cgroups writes "no limit" as a number near 2^63.
            .filter(|bytes| *bytes < 1 << 60),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        turbo: turbo(),
        huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_string())),
        counters: counters::available(),
        load_1min: line("/proc/loadavg")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0),
        mitigations: mitigations(),
        hypervisor: topology::hypervisor(),
        ..Host::default()
    };
    if let Ok(topology) = Topology::read() {
        describe_topology(&mut host, &topology);
    }
    describe_cpu(&mut host, &fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    host.memory_bytes = memory_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let command_line = line("/proc/cmdline").unwrap_or_default();
    host.isolation = command_line
        .split_whitespace()
        .filter(|word| {
            ["isolcpus=", "nohz_full=", "rcu_nocbs="].iter().any(|it| word.starts_with(it))
        })
        .map(str::to_string)
        .collect();
    host
}

fn describe_topology(host: &mut Host, topology: &Topology) {
    host.cpus_online = topology.cpus.len() as u32;
    host.cores = topology.cores_count;
    host.packages = topology.packages_count;
    host.threads_per_core = host.cpus_online.checked_div(host.cores).unwrap_or(1).max(1);
    host.numa_nodes = topology.nodes_count;
    host.caches = topology
        .caches
        .iter()
        .map(|cache| Cache {
            level: cache.level,
            kind: cache.kind.clone(),
            size_bytes: cache.size_bytes,
            line_bytes: cache.line_bytes,
        })
        .collect();
}

fn describe_cpu(host: &mut Host, cpuinfo: &str) {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    host.cpu_model = field("model name").unwrap_or_default();
}

pub(crate) fn memory_bytes(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .map_or(0, |kibibytes: u64| kibibytes * 1024)
}

fn turbo() -> Option<bool> {
    if let Some(text) = line("/sys/devices/system/cpu/intel_pstate/no_turbo") {
        return Some(text == "0");
    }
    line("/sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1")
}

fn mitigations() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return Vec::new();
    };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let state = line(entry.path().to_str()?)?;
            (state != "Not affected")
                .then(|| format!("{}: {state}", entry.file_name().to_string_lossy()))
        })
        .collect();
    found.sort();
    found
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_captured() {
        let host = capture();
        assert!(host.cpus_online >= 1);
        assert!(!host.cpus_allowed.is_empty());
        assert!(host.memory_bytes > 1 << 20);
        assert!(host.clock_cost_ns > 0.0);
        assert!(host.kernel.len() > 3);
    }

    #[test]
    fn a_strange_cpuinfo_is_read_without_fault() {
        let mut host = Host::default();
        describe_cpu(&mut host, "model name\t: Odd: CPU\nno colon\n:\n");
        assert_eq!(host.cpu_model, "Odd: CPU");
        assert_eq!(memory_bytes("MemTotal:  12 kB\n"), 12 * 1024);
        assert_eq!(memory_bytes("rubbish"), 0);
    }
}
