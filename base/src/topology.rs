//! The machine's CPUs: who shares what with whom, and which of them this process may use.

mod limits;
mod list;
mod place;
mod sysfs;

pub use limits::{allowed, hypervisor, quota_cpus};
pub use list::{CpuList, ListError, parse_cpu_list};
pub use place::{Placed, Placement, PlacementError};

use std::path::{Path, PathBuf};

/// One online CPU (a hardware thread).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The number by which the kernel knows it.
    pub id: u32,
    /// The package (socket) it sits in.
    pub package: u32,
    /// The core's number within the package, as the kernel gives it. Two CPUs are one core's when
    /// they are each other's `siblings`: virtual machines repeat these numbers.
    pub core: u32,
    /// The NUMA node of its memory.
    pub node: u32,
    /// The lowest CPU that shares its last-level cache.
    pub l3: u32,
    /// The hardware threads of its core, itself included, sorted.
    pub siblings: Vec<u32>,
}

/// One cache that a CPU sees.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// 1 is the closest.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size in bytes; 0 where the kernel does not say.
    pub size_bytes: u64,
    /// Its line in bytes; 0 where the kernel does not say.
    pub line_bytes: u32,
    /// The CPUs that share it, sorted.
    pub shared_by: Vec<u32>,
}

/// The machine's CPUs and what they share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The online CPUs, sorted by id.
    pub cpus: Vec<Cpu>,
    /// The caches of the first CPU, closest first.
    pub caches: Vec<Cache>,
    /// How many NUMA nodes have CPUs that are online.
    pub nodes_count: u32,
    /// How many packages.
    pub packages_count: u32,
    /// How many cores; fewer than CPUs where SMT is on.
    pub cores_count: u32,
    /// What the kernel does not tell here and was assumed instead, a line each.
    pub assumed: Vec<String>,
}

/// Why a topology cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// No CPU is described there.
    #[error("{} describes no CPU: is sysfs mounted there?", .path.display())]
    NoCpus {
        /// Where they were looked for.
        path: PathBuf,
    },
    /// A list of CPUs that is none.
    #[error("{}: {error}", .path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ListError,
    },
}

impl Topology {
    /// This machine's topology.
    ///
    /// Where sysfs is not mounted, the CPUs that the process may run on are taken for separate
    /// cores of one package, and `assumed` says so.
    ///
    /// # Errors
    /// When sysfs is there but what it says cannot be understood.
    ///
    /// # Cost
    /// Some ten small files per CPU: about a millisecond on a small machine.
    pub fn read() -> Result<Self, TopologyError> {
        if cfg!(miri) {
            return Ok(sysfs::flat(&allowed(), "Miri's isolation opens no files"));
        }
        match Self::from_sysfs(Path::new("/sys")) {
            Err(TopologyError::NoCpus { path }) => {
                let why = format!("{} describes no CPU", path.display());
                Ok(sysfs::flat(&allowed(), &why))
            }
            other => other,
        }
    }

    /// The topology that a sysfs tree describes, `root` standing for `/sys`.
    ///
    /// Files that are missing (containers hide some) are replaced by the plainest assumption,
    /// which `assumed` names: no SMT, one package, one node, one last-level cache per package.
    ///
    /// # Errors
    /// [`TopologyError::NoCpus`] when the tree names no CPU at all, [`TopologyError::List`] when
    /// a list of CPUs is malformed.
    pub fn from_sysfs(root: &Path) -> Result<Self, TopologyError> {
        sysfs::read(root)
    }

    /// The CPU with this id.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }
}
