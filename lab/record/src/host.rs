//! Description of the machine of a run, by which a reader judges if two runs can be compared.

use serde::{Deserialize, Serialize};

/// The facts about the machine that can disturb or explain a figure. A fact that could not be read
/// is `None`, empty or zero, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// The CPU's model, as the kernel names it.
    pub cpu_model: String,
    /// Number of online CPUs.
    pub cpus_online: u32,
    /// CPUs that this process may use, by affinity and cgroup.
    pub cpus_allowed: Vec<u32>,
    /// Number of physical cores.
    pub cores: u32,
    /// Number of packages (sockets).
    pub packages: u32,
    /// Threads per core: 1 without SMT.
    pub threads_per_core: u32,
    /// Number of NUMA nodes.
    pub numa_nodes: u32,
    /// The first CPU's caches.
    pub caches: Vec<Cache>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release and version.
    pub kernel: String,
    /// The hypervisor, if the CPU says that there is one.
    pub hypervisor: Option<String>,
    /// Each vulnerability that is mitigated or open, in the kernel's words, `name: state`.
    pub mitigations: Vec<String>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// `true` if turbo is on.
    pub turbo: Option<bool>,
    /// The kernel's clock source.
    pub clock_source: String,
    /// This project's clock: its time source, and the reason for that source.
    pub clock: String,
    /// Cost of one reading of that clock, in nanoseconds.
    pub clock_cost_ns: f64,
    /// Number of CPUs that the cgroup grants, if it limits them.
    pub cgroup_cpus: Option<f64>,
    /// Memory that the cgroup grants, if it limits it, in bytes.
    pub cgroup_memory_bytes: Option<u64>,
    /// Kernel command line words that isolate CPUs (isolcpus, nohz_full, rcu_nocbs).
    pub isolation: Vec<String>,
    /// The kernel's setting of transparent huge pages.
    pub huge_pages: Option<String>,
    /// `true` if hardware counters can be read here.
    pub counters: bool,
    /// Load average over one minute when the run began.
    pub load_1min: f64,
    /// The CPU's microcode.
    #[serde(default)]
    pub microcode: Option<String>,
    /// The compiler that built this program, in its own words.
    #[serde(default)]
    pub compiler: String,
    /// The profile and the target that this program was built with.
    #[serde(default)]
    pub build_profile: String,
    /// The features that this program was built with.
    #[serde(default)]
    pub features: Vec<String>,
    /// The libraries that it was built with as peers, with their versions.
    #[serde(default)]
    pub peers: Vec<String>,
    /// The C library's version, whose locks and semaphores are peers too.
    #[serde(default)]
    pub libc: Option<String>,
}

/// One cache of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Level: 1, 2, 3.
    pub level: u32,
    /// Kind: Data, Instruction, Unified.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Line size in bytes.
    pub line_bytes: u32,
}
