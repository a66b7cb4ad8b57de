//! Errors: one type per operation that can fail.

use std::any::Any;
use std::{error, fmt};

/// Error of a [`Config`](crate::Config) that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// A pool names a worker that does not exist.
    #[error("pool {pool:?} names worker {worker}: there are {workers_count}, counted from 0")]
    NoSuchWorker {
        /// The pool's name.
        pool: String,
        /// The worker's index.
        worker: u32,
        /// The number of workers.
        workers_count: u32,
    },
    /// Two pools have the same name.
    #[error("two pools are called {0:?}: give each its own name")]
    DuplicatePool(String),
    /// Workers are to be pinned, but the number of CPUs differs from the number of workers.
    #[error("{cpus_count} CPUs for {workers_count} workers: name one for each, or none at all")]
    CpusCountMismatch {
        /// The number of CPUs named.
        cpus_count: usize,
        /// The number of workers.
        workers_count: u32,
    },
}

/// Error of starting a runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A field of the spin configuration is outside its range.
    #[error(transparent)]
    Spin(#[from] handover_notify::ConfigError),
    /// The kernel refused to start a thread.
    #[error("worker {worker} could not be started: {source}")]
    Thread {
        /// The worker's index.
        worker: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A worker could not be pinned to its CPU.
    #[error("worker {worker} could not be pinned: {source}")]
    Pin {
        /// The worker's index.
        worker: u32,
        /// The reason.
        source: handover_base::affinity::PinError,
    },
}

/// Error of allocating a stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The kernel refused to map memory.
    #[error("no memory for {stacks_count} more stacks: {}", std::io::Error::from_raw_os_error(*.errno))]
    OutOfMemory {
        /// The number of stacks requested in the last attempt.
        stacks_count: usize,
        /// The kernel's errno.
        errno: i32,
    },
    /// This kernel needs a mapping for each guard, and the limit of mappings is reached.
    #[error(
        "cannot guard one more stack: kernels before Linux 6.13 need two mappings for each stack, and \
         vm.max_map_count={maps_max} is reached: raise it, or run fewer fibers at a time"
    )]
    TooManyMappings {
        /// The limit, `vm.max_map_count`.
        maps_max: u64,
    },
}

/// Error of spawning a fiber. The closure has been dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no stack for the fiber.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The closure or the result would take up more than a sixteenth of the stack.
    #[error(
        "a closure of {closure_bytes} bytes and a result of {result_bytes} do not fit on a stack of \
         {stack_bytes}, of which each may take a sixteenth: box large values, or raise Config::stack_bytes"
    )]
    TooLarge {
        /// The closure's size.
        closure_bytes: usize,
        /// The result's size.
        result_bytes: usize,
        /// The stack's size.
        stack_bytes: usize,
    },
    /// The call spawns on the calling fiber's runtime, but the calling thread is not a worker.
    #[error("no fiber is running on this thread: use Runtime::spawn or Handle::spawn")]
    NotInFiber,
    /// A local fiber must stay with the calling worker, which does not serve the chosen pool.
    #[error(
        "worker {worker} does not serve the chosen pool, and a local fiber stays on it: choose another pool"
    )]
    NotInPool {
        /// The calling worker's index.
        worker: u32,
    },
    /// [`Builder::worker`](crate::Builder::worker) names a worker that the runtime does not have.
    #[error("worker={worker}: the runtime has {workers_count} workers, counted from 0")]
    NoSuchWorker {
        /// The given index.
        worker: u32,
        /// The number of workers.
        workers_count: u32,
    },
    /// [`Builder::pool`](crate::Builder::pool) names a pool of another runtime, which this one does
    /// not have.
    #[error(
        "pool={pool}: the runtime has {pools_count} pools, counted from 0; use a pool of this runtime"
    )]
    NoSuchPool {
        /// The index of the given pool.
        pool: usize,
        /// The number of pools.
        pools_count: usize,
    },
    /// The runtime is being shut down.
    #[error("the runtime is shutting down: spawn before shutdown()")]
    ShuttingDown,
}

/// Payload of a fiber that ended by panicking.
pub struct Panicked(pub Box<dyn Any + Send>);

impl Panicked {
    /// Returns the panic message, if the payload is text, as it is for `panic!` with a format
    /// string.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        let text = self.0.downcast_ref::<&'static str>().copied();
        text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
    }

    /// Resumes the panic in the caller.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panicked").field(&self.message().unwrap_or("..")).finish()
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => write!(f, "the fiber panicked: {message}"),
            None => f.write_str("the fiber panicked"),
        }
    }
}

impl error::Error for Panicked {}

/// Error of setting an eventual that is already set; contains the refused value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AlreadySet<T>(pub T);

impl<T> fmt::Debug for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AlreadySet(..)")
    }
}

impl<T> fmt::Display for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the eventual is already set")
    }
}

impl<T> error::Error for AlreadySet<T> {}
