//! Cores in memory that other processes can map, for notifications across processes.
//!
//! One process makes the core, another maps the same file, and each puts its side on it. The file
//! is a memfd, sealed so that it cannot shrink while processes have it mapped; pass its descriptor
//! by inheritance, over a Unix socket, or as `/proc/PID/fd/N`.
//!
//! ```
//! use handover_base::futex::Scope;
//! use handover_notify::shared::MappedCore;
//! use handover_notify::{Config, Notify, Wait, adaptive};
//!
//! let (core, file) = MappedCore::<adaptive::NotifyCore>::create()?;
//! let mut receiver = adaptive::Receiver::from_core(core, Scope::Shared, Config::default())?;
//! // ... and in the other process, which has received `file`:
//! let sender = adaptive::Sender::from_core(MappedCore::<adaptive::NotifyCore>::map(&file)?, Scope::Shared);
//! sender.notify();
//! assert_eq!(receiver.wait(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Processes that die or misbehave
//! The words in a core are atomics without pointers. Whatever another process writes there, memory
//! stays safe, no call panics, and no call spins longer than the other process writes.
//!
//! - An adaptive receiver over [`Scope::Shared`](handover_base::futex::Scope::Shared) sleeps for
//!   [`adaptive::SLEEP_MAX`](crate::adaptive::SLEEP_MAX) at a time, and then checks the word. So a
//!   sender that is killed between its exchange and its wake, or a process that overwrites the word
//!   of a sleeper, delays notifications by at most this time, and does not block other senders'
//!   notifications.
//! - A notification that a process overwrites, or consumes with a receiver of its own, is lost. A
//!   process that writes notifications, or wakes without one, makes the receiver return without a
//!   cause, as often as it does so. Against both, wait with a timeout and check the work itself.
//! - A receiver does not learn that its senders have died: wait with a timeout, and check that they
//!   live.

use crate::MapError;
use crate::raw::{Mapping, ZeroInit};
use core::ops::Deref;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Core of a mechanism ([`adaptive::NotifyCore`](crate::adaptive::NotifyCore)) in a file mapped
/// into memory. Clones share the mapping, which is unmapped when the last one is dropped.
#[derive(Debug)]
pub struct MappedCore<C> {
    mapping: Arc<Mapping>,
    core_type: PhantomData<fn() -> C>,
}

impl<C: ZeroInit> MappedCore<C> {
    /// Creates a core in an anonymous file; returns both, so that another process can map the file.
    ///
    /// # Errors
    /// [`MapError::SystemCall`] if descriptors or memory are short, or memfds are forbidden.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let refused = |call| move |errno: Errno| MapError::SystemCall { call, error: errno.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("handover-notify", flags).map_err(refused("memfd_create"))?;
        ftruncate(&file, size_of::<C>() as u64).map_err(refused("ftruncate"))?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(refused("fcntl(F_ADD_SEALS)"))?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps a file that [`create`](Self::create) made for a core of the same type, in any process.
    /// The file may be closed afterwards.
    ///
    /// # Errors
    /// [`MapError::TooSmall`], [`MapError::NotSealed`] and [`MapError::NotSmallPages`] if the file
    /// is something else; [`MapError::SystemCall`] if it cannot be mapped.
    pub fn map(file: impl AsFd) -> Result<Self, MapError> {
        let refused = |call| move |errno: Errno| MapError::SystemCall { call, error: errno.into() };
        // Fails with EINVAL if it is no memfd. A file without the seal could be truncated while it
        // is mapped.
        let seals = fcntl_get_seals(&file).map_err(|_| MapError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MapError::NotSealed);
        }
        if fstatfs(&file).map_err(refused("fstatfs"))?.f_type != libc::TMPFS_MAGIC {
            return Err(MapError::NotSmallPages);
        }
        let bytes = rustix::fs::fstat(&file).map_err(refused("fstat"))?.st_size as u64;
        let needed_bytes = size_of::<C>() as u64;
        if bytes < needed_bytes {
            return Err(MapError::TooSmall { bytes, needed_bytes });
        }
        let mapping = Mapping::map_file(file, size_of::<C>()).map_err(refused("mmap"))?;
        Ok(Self { mapping: Arc::new(mapping), core_type: PhantomData })
    }
}

impl<C: ZeroInit> Deref for MappedCore<C> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        self.mapping.get()
    }
}

impl<C> Clone for MappedCore<C> {
    fn clone(&self) -> Self {
        Self { mapping: Arc::clone(&self.mapping), core_type: PhantomData }
    }
}
