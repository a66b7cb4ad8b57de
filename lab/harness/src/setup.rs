//! Setup context of a workload.

use crate::fault::Fault;
pub use crate::raw::Region;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use zerocopy::FromZeros;

/// Source of the resources that a workload's participants share. The same setup code runs once for
/// threads, and once in every process if the participants are processes: the first process creates
/// each resource, and the others inherit these in the order of their requests.
#[derive(Debug)]
pub struct Setup {
    cpus: Vec<u32>,
    /// `true` if the participants are processes instead of threads.
    processes: bool,
    /// Descriptors created so far, for the processes of other participants.
    created: Vec<OwnedFd>,
    /// Inherited descriptors that the workload has not requested yet; `None` in the first process.
    inherited: Option<std::vec::IntoIter<OwnedFd>>,
}

impl Setup {
    /// Creates the setup of the first process, which creates the shared resources.
    pub(crate) fn for_creator(cpus: &[u32], processes: bool) -> Setup {
        Setup { cpus: cpus.to_vec(), processes, created: Vec::new(), inherited: None }
    }

    /// Creates the setup of a process that inherits the shared resources, as the descriptors `fds`.
    pub(crate) fn for_inheritor(cpus: &[u32], fds: Vec<OwnedFd>) -> Setup {
        Setup {
            cpus: cpus.to_vec(),
            processes: true,
            created: Vec::new(),
            inherited: Some(fds.into_iter()),
        }
    }

    /// Returns a zeroed `T` on its own page, in memory that all participants share.
    ///
    /// # Errors
    /// Fails without memory or a free descriptor.
    pub fn shared_region<T: FromZeros + Sync>(&mut self) -> Result<Region<T>, Fault> {
        if let Some(fd) = self.next_inherited()? {
            return Ok(Region::attach(&fd)?);
        }
        let (region, fd) = Region::create()?;
        if self.processes {
            self.created.push(fd);
        }
        Ok(region)
    }

    /// Returns a descriptor that all participants share; only the first process calls `make`.
    ///
    /// # Errors
    /// Fails if `make` fails, or without a free descriptor.
    pub fn shared_fd(
        &mut self,
        make: impl FnOnce() -> Result<OwnedFd, Fault>,
    ) -> Result<OwnedFd, Fault> {
        if let Some(fd) = self.next_inherited()? {
            return Ok(fd);
        }
        let fd = make()?;
        if self.processes {
            self.created.push(fcntl_dupfd_cloexec(&fd, 3)?);
        }
        Ok(fd)
    }

    /// Returns the next inherited descriptor; `None` in the first process.
    fn next_inherited(&mut self) -> Result<Option<OwnedFd>, Fault> {
        let Some(inherited) = &mut self.inherited else { return Ok(None) };
        let missing = "the setup requests more shared resources than in the first process";
        inherited.next().map(Some).ok_or_else(|| Fault::new(missing))
    }

    /// Returns two descriptors that all participants share; only the first process calls `make`.
    ///
    /// # Errors
    /// Fails if `make` fails, or without free descriptors.
    pub fn shared_fd_pair(
        &mut self,
        make: impl FnOnce() -> Result<(OwnedFd, OwnedFd), Fault>,
    ) -> Result<(OwnedFd, OwnedFd), Fault> {
        let mut second = None;
        let first = self.shared_fd(|| {
            let (first, made) = make()?;
            second = Some(made);
            Ok(first)
        })?;
        let second = self.shared_fd(|| {
            second.ok_or_else(|| Fault::new("`make` returned no second descriptor"))
        })?;
        Ok((first, second))
    }

    /// Returns the CPU of each participant, in order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Returns `true` if participants share a CPU. A participant that polls must then yield.
    pub fn is_crowded(&self) -> bool {
        has_repeated_cpu(&self.cpus)
    }

    /// Returns `true` if the participants are processes rather than threads.
    pub fn uses_processes(&self) -> bool {
        self.processes
    }

    /// Returns the created descriptors, which the processes of the other participants can inherit.
    pub(crate) fn into_inheritable(self) -> Result<Vec<OwnedFd>, Fault> {
        for fd in &self.created {
            make_inheritable(fd)?;
        }
        Ok(self.created)
    }
}

/// Returns `true` if the list contains a CPU more than once.
pub(crate) fn has_repeated_cpu(cpus: &[u32]) -> bool {
    cpus.iter().enumerate().any(|(at, cpu)| cpus[..at].contains(cpu))
}

/// Makes a descriptor inheritable by processes that are started while it is open.
pub(crate) fn make_inheritable(fd: impl AsFd) -> Result<(), Fault> {
    Ok(fcntl_setfd(fd, FdFlags::empty())?)
}
