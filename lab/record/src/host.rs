//! Description of the machine of a run: shows if two runs can be compared.

use serde::{Deserialize, Serialize};

/// The facts about the machine that can disturb or explain a figure. A fact that could not be read
/// is `None`, empty or zero, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// CPU model, as reported by the kernel.
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
    /// Caches of the first CPU.
    pub caches: Vec<CpuCache>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Release and version of the kernel.
    pub kernel: String,
    /// Hypervisor, if the CPU reports one.
    pub hypervisor: Option<String>,
    /// Known vulnerabilities of the CPU, each with the state that the kernel reports: `name:
    /// state`.
    pub mitigations: Vec<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// `true` if turbo frequencies are enabled; `None` if unknown.
    pub turbo: Option<bool>,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// Time source of this project's clock, and the reason for its choice.
    pub clock: String,
    /// Cost of reading this project's clock once, in nanoseconds.
    pub clock_cost_ns: f64,
    /// CPU quota of the cgroup, in CPUs; `None` if there is no quota.
    pub cgroup_cpus: Option<f64>,
    /// Memory limit of the cgroup, in bytes; `None` if there is no limit.
    pub cgroup_memory_bytes: Option<u64>,
    /// Kernel command line parameters that isolate CPUs (isolcpus, nohz_full, rcu_nocbs).
    pub isolation: Vec<String>,
    /// Mode of transparent huge pages.
    pub huge_pages: Option<String>,
    /// `true` if programs can read the CPU's performance counters.
    pub counters: bool,
    /// Load average over one minute at the start of the run.
    pub load_1min: f64,
    /// Microcode version of the CPU.
    #[serde(default)]
    pub microcode: Option<String>,
    /// Compiler that built this program, as it reports itself.
    #[serde(default)]
    pub compiler: String,
    /// Build profile and target of this program.
    #[serde(default)]
    pub build_profile: String,
    /// Cargo features of this program.
    #[serde(default)]
    pub features: Vec<String>,
    /// Libraries measured as peers, with their versions.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Name and version of the C library; `None` if unknown. Its locks and semaphores are peers,
    /// too.
    #[serde(default)]
    pub libc: Option<String>,
}

/// One cache of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCache {
    /// Level of the cache: 1, 2 or 3.
    pub level: u32,
    /// Kind of the cache: Data, Instruction or Unified.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Line size in bytes.
    pub line_bytes: u32,
}
