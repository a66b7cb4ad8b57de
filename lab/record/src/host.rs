//! Where a run took place, whole: what a reader needs to judge whether two runs can be compared.

use serde::{Deserialize, Serialize};

/// The machine, as far as it can disturb or explain a figure. What could not be read is `None`, empty
/// or zero, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// The CPU's model, as the kernel names it.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus_online: u32,
    /// CPUs that this process may really use: affinity and cgroup taken together.
    pub cpus_allowed: Vec<u32>,
    /// Physical cores.
    pub cores: u32,
    /// Packages (sockets).
    pub packages: u32,
    /// Threads a core: 1 without SMT.
    pub threads_per_core: u32,
    /// NUMA nodes.
    pub numa_nodes: u32,
    /// The first CPU's caches.
    pub caches: Vec<Cache>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release and version.
    pub kernel: String,
    /// The hypervisor, if the CPU says that there is one.
    pub hypervisor: Option<String>,
    /// Each vulnerability that is mitigated or open, as the kernel words it, `name: state`.
    pub mitigations: Vec<String>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether turbo is on.
    pub turbo: Option<bool>,
    /// The kernel's clock source.
    pub clock_source: String,
    /// The clock of this project: where it reads time from, and why.
    pub clock: String,
    /// What one reading of that clock costs, in nanoseconds.
    pub clock_cost_ns: f64,
    /// CPUs that the cgroup grants, if it limits them.
    pub cgroup_cpus: Option<f64>,
    /// Memory that the cgroup grants, if it limits it, in bytes.
    pub cgroup_memory_bytes: Option<u64>,
    /// Kernel command line words that isolate CPUs (isolcpus, nohz_full, rcu_nocbs).
    pub isolation: Vec<String>,
    /// Transparent huge pages.
    pub huge_pages: Option<String>,
    /// Whether hardware counters can be read here.
    pub counters: bool,
    /// Load average over one minute when the run began.
    pub load_1min: f64,
    /// The CPU's microcode.
    #[serde(default)]
    pub microcode: Option<String>,
    /// The compiler that built this program, as it names itself.
    #[serde(default)]
    pub compiler: String,
    /// The profile and the target that this program was built with.
    #[serde(default)]
    pub build_profile: String,
    /// The features that this program was built with.
    #[serde(default)]
    pub features: Vec<String>,
}

/// One cache of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// Data, Instruction, Unified.
    pub kind: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its line in bytes.
    pub line_bytes: u32,
}
