//! What a workload is rigged with.

use crate::fault::Fault;
pub use crate::raw::Region;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use zerocopy::FromZeros;

/// Hands a workload the things that its parties share. The same rigging code runs once for threads,
/// and once in every process when the parties are processes: the first makes each thing, the others
/// are given what the first made, in the order in which they ask for it.
#[derive(Debug)]
pub struct Rig {
    cpus: Vec<u32>,
    processes: bool,
    made: Vec<OwnedFd>,
    given: Option<std::vec::IntoIter<OwnedFd>>,
}

impl Rig {
    pub(crate) fn making(cpus: &[u32], processes: bool) -> Rig {
        Rig { cpus: cpus.to_vec(), processes, made: Vec::new(), given: None }
    }

    pub(crate) fn given(cpus: &[u32], fds: Vec<OwnedFd>) -> Rig {
        Rig { cpus: cpus.to_vec(), processes: true, made: Vec::new(), given: Some(fds.into_iter()) }
    }

    /// A `T` in memory that all parties share, all zero at first, on a page of its own.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn region<T: FromZeros + Sync>(&mut self) -> Result<Region<T>, Fault> {
        if let Some(given) = &mut self.given {
            let fd =
                given.next().ok_or_else(|| Fault::new("rigged differently in each process"))?;
            return Ok(Region::attach(&fd)?);
        }
        let (region, fd) = Region::make()?;
        if self.processes {
            self.made.push(fd);
        }
        Ok(region)
    }

    /// A descriptor that all parties share: `make` is called in the first process alone.
    ///
    /// # Errors
    /// What `make` says, or no descriptor left.
    pub fn fd(&mut self, make: impl FnOnce() -> Result<OwnedFd, Fault>) -> Result<OwnedFd, Fault> {
        if let Some(given) = &mut self.given {
            return given.next().ok_or_else(|| Fault::new("rigged differently in each process"));
        }
        let fd = make()?;
        if self.processes {
            self.made.push(fcntl_dupfd_cloexec(&fd, 3)?);
        }
        Ok(fd)
    }

    /// The CPU of each party, in order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Whether the parties are processes.
    pub fn processes(&self) -> bool {
        self.processes
    }

    /// Makes what was rigged inheritable for the processes about to be started, and gives it up.
    pub(crate) fn into_inheritable(self) -> Result<Vec<OwnedFd>, Fault> {
        for fd in &self.made {
            inheritable(fd)?;
        }
        Ok(self.made)
    }
}

/// Lets a descriptor live on in a process that is started while this one holds it.
pub(crate) fn inheritable(fd: impl AsFd) -> Result<(), Fault> {
    Ok(fcntl_setfd(fd, FdFlags::empty())?)
}

/// The numbers under which inherited descriptors are found.
pub(crate) fn numbers(fds: &[OwnedFd]) -> Vec<i32> {
    fds.iter().map(AsRawFd::as_raw_fd).collect()
}
