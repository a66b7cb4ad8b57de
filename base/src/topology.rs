//! The machine's CPUs: shared cores, caches, nodes and packages, and the CPUs allowed to this
//! process.

mod limits;
mod list;
mod place;
mod sysfs;

pub use limits::{allowed_cpus, hypervisor_name, quota_cpus};
pub use list::{CpuList, CpuListError, parse_cpu_list};
pub use place::{PlacedCpus, Placement, PlacementError};

use std::path::{Path, PathBuf};

/// Online CPU (a hardware thread).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// Number of the CPU in the kernel.
    pub id: u32,
    /// Number of the package (socket) of the CPU.
    pub package: u32,
    /// Number of the core within the package, as reported by the kernel. Virtual machines repeat
    /// these numbers: to compare cores, use `siblings`.
    pub core: u32,
    /// Number of the CPU's NUMA node.
    pub node: u32,
    /// Number of the CPU's last-level cache: the lowest number of a CPU that shares it.
    pub l3: u32,
    /// Numbers of the core's hardware threads, including this CPU, sorted.
    pub siblings: Vec<u32>,
}

/// Cache of a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// Cache level; 1 is the closest to the core.
    pub level: u32,
    /// Type of the cache: `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size of the cache in bytes; 0 if the kernel does not report it.
    pub size_bytes: u64,
    /// Size of a cache line in bytes; 0 if the kernel does not report it.
    pub line_bytes: u32,
    /// Numbers of the CPUs that share the cache, sorted.
    pub shared_by: Vec<u32>,
}

/// CPUs of the machine, its caches, and its numbers of nodes, packages and cores.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// Online CPUs, sorted by id.
    pub cpus: Vec<Cpu>,
    /// Caches of the first CPU, the closest to the core first.
    pub caches: Vec<Cache>,
    /// Number of NUMA nodes with online CPUs.
    pub nodes_count: u32,
    /// Number of packages (sockets) with online CPUs.
    pub packages_count: u32,
    /// Number of cores; fewer than CPUs if SMT is on.
    pub cores_count: u32,
    /// Assumptions about facts that the kernel does not report.
    pub assumed: Vec<String>,
}

/// Error of [`Topology::read`] and [`Topology::from_sysfs`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The sysfs folder contains no CPU.
    #[error("{} contains no CPU: is sysfs mounted there?", .path.display())]
    NoCpus {
        /// Path of the sysfs folder.
        path: PathBuf,
    },
    /// A file contains a malformed list of CPUs.
    #[error("{}: {error}", .path.display())]
    List {
        /// Path of the file with the malformed list.
        path: PathBuf,
        /// Error of parsing the list of CPUs.
        error: CpuListError,
    },
}

impl Topology {
    /// Reads and returns this machine's topology.
    ///
    /// If sysfs is not mounted, the CPUs that the process may run on count as separate cores of one
    /// package, which `assumed` states.
    ///
    /// # Errors
    /// If sysfs is mounted but malformed.
    ///
    /// # Cost
    /// Some ten small files per CPU: about a millisecond on a small machine.
    pub fn read() -> Result<Self, TopologyError> {
        if cfg!(miri) {
            return Ok(sysfs::flat_topology(&allowed_cpus(), "Miri's isolation opens no files"));
        }
        match Self::from_sysfs(Path::new("/sys")) {
            Err(TopologyError::NoCpus { path }) => {
                let why = format!("{folder} contains no CPU", folder = path.display());
                Ok(sysfs::flat_topology(&allowed_cpus(), &why))
            }
            other => other,
        }
    }

    /// Reads and returns the topology from a sysfs tree; `root` stands for `/sys`.
    ///
    /// Missing files (containers hide some) are replaced by the simplest assumption, which
    /// `assumed` states: no SMT, one package, one node, one last-level cache per package.
    ///
    /// # Errors
    /// [`TopologyError::NoCpus`] if the tree contains no CPU, [`TopologyError::List`] if a list of
    /// CPUs is malformed.
    pub fn from_sysfs(root: &Path) -> Result<Self, TopologyError> {
        sysfs::read_topology(root)
    }

    /// Returns the CPU with this id; `None` if it is not online.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }
}
