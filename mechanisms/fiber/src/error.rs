//! Errors: one type per operation that can fail.

use std::any::Any;
use std::{error, fmt};

/// Error of [`Config::validate`](crate::Config::validate).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number in the configuration is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The configuration of a pool names a worker that does not exist.
    #[error("pool {pool:?}: worker {worker} does not exist: must be below {workers_count}")]
    NoSuchWorker {
        /// Name of the pool.
        pool: String,
        /// Index of the worker that does not exist.
        worker: u32,
        /// Configured number of workers.
        workers_count: u32,
    },
    /// Two pools have the same name.
    #[error("two pools are called {0:?}: give each its own name")]
    DuplicatePool(String),
    /// The configuration names CPUs, but not one for each worker.
    #[error("{cpus_count} CPUs for {workers_count} workers: name one CPU for each worker, or none")]
    CpusCountMismatch {
        /// Number of CPUs in the configuration.
        cpus_count: usize,
        /// Configured number of workers.
        workers_count: u32,
    },
}

/// Error of [`Runtime::new`](crate::Runtime::new).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A field of the spin configuration is outside its range.
    #[error(transparent)]
    Spin(#[from] handover_notify::ConfigError),
    /// The kernel could not start the thread of a worker.
    #[error("the thread of worker {worker} could not be started: {error}")]
    Thread {
        /// Index of the worker.
        worker: u32,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The thread of a worker could not be pinned to its CPU.
    #[error("worker {worker} could not be pinned to its CPU: {error}")]
    Pin {
        /// Index of the worker.
        worker: u32,
        /// Error of pinning the thread.
        error: handover_base::affinity::PinError,
    },
}

/// Error of allocating a stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The kernel refused to map memory.
    #[error("cannot map memory for {stacks_count} more stacks: {}", std::io::Error::from_raw_os_error(*.errno))]
    OutOfMemory {
        /// Number of stacks for which memory was requested.
        stacks_count: usize,
        /// Error number (`errno`) of the operating system.
        errno: i32,
    },
    /// The kernel's maximum number of memory mappings is reached; each stack needs two.
    #[error(
        "cannot guard one more stack: kernels before Linux 6.13 need two mappings for each stack, and \
         vm.max_map_count={maps_max} is reached: raise it, or run fewer fibers at a time"
    )]
    TooManyMappings {
        /// Maximum number of mappings, `vm.max_map_count`.
        maps_max: u64,
    },
}

/// Error of spawning a fiber. The fiber's closure was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No stack could be allocated for the fiber.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The closure or the result takes up more than a sixteenth of the stack, or the closure's
    /// alignment exceeds 4096.
    #[error(
        "a closure of {closure_bytes} bytes and a result of {result_bytes} bytes do not fit on a stack of \
         {stack_bytes} bytes, of which each may take a sixteenth: box large values, or raise Config::stack_bytes"
    )]
    TooLarge {
        /// Size of the closure in bytes.
        closure_bytes: usize,
        /// Size of the result in bytes.
        result_bytes: usize,
        /// Size of the stack in bytes.
        stack_bytes: usize,
    },
    /// The function spawns in the calling fiber's runtime, but the caller is not a fiber.
    #[error("the caller is not a fiber: use Runtime::spawn or Handle::spawn")]
    NotInFiber,
    /// The current worker does not serve the first pool, in which
    /// [`spawn_local`](crate::spawn_local) spawns.
    #[error(
        "worker {worker} does not serve the first pool, in which spawn_local() spawns: add the worker to this \
         pool, or spawn on another worker"
    )]
    NotInPool {
        /// Index of the current worker.
        worker: u32,
    },
    /// The worker set with [`Builder::worker`](crate::Builder::worker) does not exist.
    #[error(
        "worker {worker} does not exist: the runtime has {workers_count} workers, numbered from 0"
    )]
    NoSuchWorker {
        /// Index of the worker that does not exist.
        worker: u32,
        /// Number of workers of the runtime.
        workers_count: u32,
    },
    /// The pool set with [`Builder::pool`](crate::Builder::pool) belongs to another runtime, and
    /// this runtime has no pool with its index.
    #[error(
        "pool {pool} does not exist: the runtime has {pools_count} pools, numbered from 0; use a pool of this runtime"
    )]
    NoSuchPool {
        /// Index of the pool.
        pool: usize,
        /// Number of pools of the runtime.
        pools_count: usize,
    },
    /// The runtime is shutting down; only its own fibers can still spawn.
    #[error("the runtime is shutting down, so only its fibers can spawn: spawn before shutdown()")]
    ShuttingDown,
}

/// Error of [`JoinHandle::join`](crate::JoinHandle::join): the payload with which the fiber
/// panicked.
pub struct FiberPanic(pub Box<dyn Any + Send>);

impl FiberPanic {
    /// Returns the panic message; `None` if the payload is not a string. The payload of `panic!`
    /// with a format string is one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        handover_base::unwind::panic_message(&*self.0)
    }

    /// Resumes the panic in the calling fiber or thread.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

impl fmt::Debug for FiberPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FiberPanic").field(&self.message().unwrap_or("..")).finish()
    }
}

impl fmt::Display for FiberPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => write!(f, "the fiber panicked: {message}"),
            None => f.write_str("the fiber panicked"),
        }
    }
}

impl error::Error for FiberPanic {}

/// Error of [`Eventual::set`](crate::Eventual::set): the eventual is already set. Contains the
/// value that was not set.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the eventual is already set")]
pub struct SetError<T>(pub T);

impl<T> fmt::Debug for SetError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetError(..)")
    }
}
