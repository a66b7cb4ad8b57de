//! What files of the kernel say.

use crate::host;
use handover_base::topology::{self, Topology};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// A limit: what holds now, and what it can be raised to without being root. `u64::MAX`: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// As the kernel words it; `None` where it does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) hypervisor: Option<String>,
    pub(super) governor: Option<String>,
    pub(super) turbo: Option<Turbo>,
    pub(super) smt_control: Option<String>,
    pub(super) smt_active: Option<bool>,
    /// CPUs that the scheduler leaves alone, as a list; empty if none.
    pub(super) isolated: Option<String>,
    pub(super) nohz_full: Option<String>,
    /// `name: state` of what is mitigated.
    pub(super) mitigations: Vec<String>,
    pub(super) huge_pages: Option<String>,
    pub(super) clock_source: Option<String>,
    pub(super) clock_sources: Vec<String>,
    pub(super) timer_slack_ns: Option<u64>,
    pub(super) cpus_online: usize,
    pub(super) cpus_allowed: usize,
    pub(super) cgroup_cpus: Option<f64>,
    pub(super) cgroup_memory_bytes: Option<u64>,
    pub(super) memory_bytes: u64,
    pub(super) fds: Option<Limit>,
    pub(super) threads: Option<Limit>,
    pub(super) pids_max: Option<u64>,
    pub(super) load_1min: Option<f64>,
    pub(super) perf_event_paranoid: Option<i64>,
    pub(super) numa_nodes: usize,
    pub(super) numa_balancing: Option<bool>,
}

/// Where turbo is switched, and whether it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turbo {
    pub(super) on: bool,
    pub(super) file: &'static str,
    /// What turns it off, written there.
    pub(super) off: &'static str,
}

const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";

impl Facts {
    /// What the files below `root` say, which is `/` but in tests, and what the kernel says of this process.
    pub(super) fn read(root: &Path) -> Self {
        let files = Files(root);
        let topology = Topology::read().ok();
        let limit = |which| {
            let limit = getrlimit(which);
            let of = |value: Option<u64>| value.unwrap_or(u64::MAX);
            Some(Limit { soft: of(limit.current), hard: of(limit.maximum) })
        };
        Self {
            hypervisor: topology::hypervisor(),
            governor: files.line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo: files.turbo(),
            smt_control: files.line("/sys/devices/system/cpu/smt/control"),
            smt_active: files.line("/sys/devices/system/cpu/smt/active").map(|text| text == "1"),
            isolated: files.text("/sys/devices/system/cpu/isolated"),
            nohz_full: files.text("/sys/devices/system/cpu/nohz_full").map(|text| match &*text {
                "(null)" => String::new(),
                _ => text,
            }),
            mitigations: files.mitigations(),
            huge_pages: files
                .line("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_string())),
            clock_source: files.clock("current_clocksource"),
            clock_sources: files
                .clock("available_clocksource")
                .map(|text| text.split_whitespace().map(str::to_string).collect())
                .unwrap_or_default(),
            timer_slack_ns: files.number("/proc/self/timerslack_ns"),
            cpus_online: topology.as_ref().map_or(0, |it| it.cpus.len()),
            cpus_allowed: topology::allowed().len(),
            cgroup_cpus: topology::quota_cpus(),
            cgroup_memory_bytes: files.number("/sys/fs/cgroup/memory.max"),
            memory_bytes: host::memory_bytes(&files.line("/proc/meminfo").unwrap_or_default()),
            fds: limit(Resource::Nofile),
            threads: limit(Resource::Nproc),
            pids_max: files.number("/sys/fs/cgroup/pids.max"),
            load_1min: files
                .line("/proc/loadavg")
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
            perf_event_paranoid: files.number("/proc/sys/kernel/perf_event_paranoid"),
            numa_nodes: topology.as_ref().map_or(1, |it| it.nodes_count as usize),
            numa_balancing: files.line("/proc/sys/kernel/numa_balancing").map(|text| text != "0"),
        }
    }
}

/// Files below a root.
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The file's text, which may be empty.
    fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_string())
    }

    /// The same, if it is not.
    fn line(&self, path: &str) -> Option<String> {
        self.text(path).filter(|text| !text.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    fn clock(&self, name: &str) -> Option<String> {
        self.line(&format!("/sys/devices/system/clocksource/clocksource0/{name}"))
    }

    fn turbo(&self) -> Option<Turbo> {
        let no_turbo = self.line(NO_TURBO);
        if let Some(text) = no_turbo {
            return Some(Turbo { on: text == "0", file: NO_TURBO, off: "1" });
        }
        self.line(BOOST).map(|text| Turbo { on: text == "1", file: BOOST, off: "0" })
    }

    fn mitigations(&self) -> Vec<String> {
        let folder = self.path("/sys/devices/system/cpu/vulnerabilities");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut mitigations: Vec<String> = entries
            .filter_map(|entry| {
                let state = fs::read_to_string(entry.path()).ok()?;
                let state = state.trim().strip_prefix("Mitigation: ")?;
                Some(format!("{}: {state}", entry.file_name().to_string_lossy()))
            })
            .collect();
        mitigations.sort();
        mitigations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(files: &[(&str, &str)]) -> Facts {
        let root = std::env::temp_dir().join(format!(
            "handover-doctor-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let facts = Facts::read(&root);
        fs::remove_dir_all(&root).expect("removed");
        facts
    }

    #[test]
    fn a_machine_is_read_as_its_kernel_words_it() {
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
        assert_eq!(facts.turbo, Some(Turbo { on: true, file: BOOST, off: "0" }));
        assert_eq!((facts.smt_control.as_deref(), facts.smt_active), (Some("on"), Some(true)));
        assert_eq!((facts.isolated.as_deref(), facts.nohz_full.as_deref()), (Some(""), Some("")));
        assert_eq!(facts.mitigations, ["retbleed: untrained return thunk"]);
        assert_eq!(facts.huge_pages.as_deref(), Some("always"));
        assert_eq!(facts.clock_source.as_deref(), Some("hpet"));
        assert_eq!(facts.clock_sources, ["hpet", "tsc"]);
        assert_eq!(facts.timer_slack_ns, Some(50_000));
        assert_eq!(facts.cgroup_memory_bytes, None);
        assert_eq!(facts.perf_event_paranoid, Some(-1));
    }

    #[test]
    fn a_machine_that_says_nothing_is_read_without_fault() {
        let facts = planted(&[("proc/loadavg", "rubbish"), ("proc/self/timerslack_ns", "-x")]);
        assert_eq!((facts.load_1min, facts.timer_slack_ns), (None, None));
        assert_eq!((facts.governor, facts.turbo, facts.mitigations.len()), (None, None, 0));
    }
}
