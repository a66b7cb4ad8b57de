//! What can go wrong: one type per operation that can fail.

use std::any::Any;
use std::{error, fmt};

/// Why a [`Config`](crate::Config) is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("{knob}={value}: must lie in {min}..={max}")]
    OutOfRange {
        /// The field's name.
        knob: &'static str,
        /// What it was set to.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A pool names a worker that there is not.
    #[error("pool {pool:?} names worker {worker}: there are {workers_count}, counted from 0")]
    NoSuchWorker {
        /// The pool's name.
        pool: String,
        /// The worker.
        worker: u32,
        /// How many there are.
        workers_count: u32,
    },
    /// Two pools have one name.
    #[error("two pools are called {0:?}: give each its own name")]
    TwoPools(String),
    /// Workers are to be pinned, but not each has a CPU.
    #[error("{cpus_count} CPUs for {workers_count} workers: name one for each, or none at all")]
    CpusMissing {
        /// How many CPUs are named.
        cpus_count: usize,
        /// How many workers there are.
        workers_count: u32,
    },
}

/// Why a runtime could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Spinning is configured beyond its bounds.
    #[error(transparent)]
    Spin(#[from] handover_notify::ConfigError),
    /// The kernel gave no thread.
    #[error("worker {worker} could not be started: {source}")]
    Thread {
        /// Which one.
        worker: u32,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A worker could not be pinned.
    #[error("worker {worker} could not be pinned: {source}")]
    Pin {
        /// Which one.
        worker: u32,
        /// Why.
        source: handover_base::affinity::PinError,
    },
}

/// Why there is no stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The kernel gave no memory.
    #[error("no memory for {stacks_count} more stacks: {}", std::io::Error::from_raw_os_error(*.errno))]
    OutOfMemory {
        /// How many it was asked for in the end.
        stacks_count: usize,
        /// Its reason.
        errno: i32,
    },
    /// This kernel guards stacks with mappings, and there are too many of those.
    #[error(
        "no guard for one more stack: this kernel, before Linux 6.13, needs two mappings for each, and \
         vm.max_map_count allows {maps_max}: raise it, or have fewer fibers at a time"
    )]
    TooManyMappings {
        /// The bound.
        maps_max: u64,
    },
}

/// Why a fiber was not spawned. What it was to do has been dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no stack for it.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// Closure or result would take up more than a sixteenth of the stack.
    #[error(
        "a closure of {closure_bytes} bytes and a result of {result_bytes} do not fit on a stack of \
         {stack_bytes}, of which each may take a sixteenth: box what is large, or raise Config::stack_bytes"
    )]
    TooLarge {
        /// The closure's size.
        closure_bytes: usize,
        /// The result's.
        result_bytes: usize,
        /// The stack's.
        stack_bytes: usize,
    },
    /// It was to be spawned beside the fiber that calls, but none does.
    #[error("no fiber is running on this thread: spawn by way of the runtime's handle")]
    NotInFiber,
    /// It was to stay with this worker, in a pool that this worker does not serve.
    #[error("worker {worker} does not serve this pool")]
    NotInPool {
        /// The worker that called.
        worker: u32,
    },
    /// The runtime is being shut down.
    #[error("the runtime is shutting down")]
    ShuttingDown,
}

/// A fiber has ended by panicking. Here is what it panicked with.
pub struct Panicked(pub Box<dyn Any + Send>);

impl Panicked {
    /// Its message, if it is text, as it is unless somebody panicked with something else.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        let text = self.0.downcast_ref::<&'static str>().copied();
        text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
    }

    /// Goes on panicking where the result was asked for.
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

/// The eventual has its value already. Here is the one that it was to be given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AlreadySet<T>(pub T);

impl<T> fmt::Debug for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AlreadySet(..)")
    }
}

impl<T> fmt::Display for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the eventual has been set before")
    }
}

impl<T> error::Error for AlreadySet<T> {}
