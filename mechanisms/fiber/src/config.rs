//! Configuration of a runtime: workers, their CPUs, and pools.

use crate::ConfigError;
use handover_base::range;

const WORKERS_MAX: u32 = 1024;
/// Maximum number of pools, whose indices are 16-bit numbers.
pub(crate) const POOLS_MAX: usize = 1 << 16;
const STACK_BYTES_MIN: usize = 16 << 10;
const STACK_BYTES_MAX: usize = 1 << 30;
/// Least urgent priority; 0 is the most urgent.
pub(crate) const PRIORITY_MAX: u8 = 7;

/// Fibers that an idle worker may steal from another: none, or those that have not started.
/// Suspended fibers are stolen only in a runtime made by
/// [`Runtime::stealing_suspended`](crate::Runtime::stealing_suspended).
///
/// Stealing suspended fibers requires an `unsafe` promise, so no configuration can select it:
///
/// ```compile_fail
/// use handover_fiber::{Config, Stealing};
/// let config = Config::workers(2).stealing(Stealing::Suspended);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stealing {
    /// Fibers are never stolen; each runs on a single worker. The cheapest mode, and the one for
    /// fibers that hold thread-bound data.
    #[default]
    Off,
    /// Another worker that serves a fiber's pool may steal the fiber before it starts. It may not
    /// if [`Builder::worker`](crate::Builder::worker) names the worker on which the fiber starts.
    UnstartedFibers,
}

/// Configuration of a pool: a queue of fibers that is served by some or all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Name by which [`Runtime::pool`](crate::Runtime::pool) finds the pool.
    pub name: String,
    /// Priority from 0, the most urgent, to 7. A worker runs fibers of more urgent pools first. At
    /// intervals it runs a fiber of a less urgent pool, rotating through all priorities that have
    /// ready fibers, so that none starves.
    pub priority: u8,
    /// Indices, from 0, of the workers that serve the pool; empty means all.
    pub workers: Vec<u32>,
}

handover_base::setters!(PoolConfig { name: String, priority: u8, workers: Vec<u32> });

impl PoolConfig {
    /// Makes the configuration of a pool that all workers serve.
    pub fn new(name: impl Into<String>, priority: u8) -> Self {
        Self { name: name.into(), priority, workers: Vec::new() }
    }
}

/// Configuration of a runtime.
///
/// ```
/// use handover_fiber::Config;
/// let config = Config::default().workers_count(2);
/// config.validate()?;
/// assert_eq!(
///     config.stack_bytes(100).validate().unwrap_err().to_string(),
///     "stack_bytes=100: must lie in 16384..=1073741824",
/// );
/// # Ok::<(), handover_fiber::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Number of worker threads. Default 1.
    pub workers_count: u32,
    /// Numbers of the CPUs to which the workers are pinned, one for each worker. Default empty:
    /// workers are not pinned.
    pub cpus: Vec<u32>,
    /// Size of each stack in bytes, rounded up to a multiple of the page size. Default 65,536; 1
    /// MiB in sanitizer builds.
    ///
    /// This is address space: a page takes memory only once it is touched, and the guard below the
    /// stack comes in addition. A fiber that overflows its stack ends the process with a message;
    /// [`Stats`](crate::Stats) reports the largest use.
    pub stack_bytes: usize,
    /// Pools of the runtime. A fiber is spawned in the first pool unless another is chosen.
    /// Default: one pool, called "default".
    pub pools: Vec<PoolConfig>,
    /// Fibers that idle workers may steal from each other. Default: none.
    pub stealing: Stealing,
    /// Limits of the spinning of an idle worker before it sleeps. A worker spins only while
    /// spinning saves time. Default as in [`handover_notify`].
    pub spin: handover_notify::Config,
}

handover_base::setters!(Config {
    workers_count: u32,
    cpus: Vec<u32>,
    stack_bytes: usize,
    pools: Vec<PoolConfig>,
    stealing: Stealing,
    spin: handover_notify::Config,
});

/// Default stack size in bytes. It is larger in sanitizer builds, whose instrumented frames are
/// several times as large.
const STACK_BYTES: usize =
    if cfg!(any(handover_sanitizer = "address", handover_sanitizer = "thread")) {
        1 << 20
    } else {
        64 << 10
    };

impl Default for Config {
    fn default() -> Self {
        Self {
            workers_count: 1,
            cpus: Vec::new(),
            stack_bytes: STACK_BYTES,
            pools: vec![PoolConfig::new("default", 4)],
            stealing: Stealing::Off,
            spin: handover_notify::Config::default(),
        }
    }
}

impl Config {
    /// Returns the default configuration with `workers_count` workers.
    #[must_use]
    pub fn workers(workers_count: u32) -> Self {
        Self { workers_count, ..Self::default() }
    }

    /// Checks that every value is within its range, and that pools and CPUs are consistent.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range::check("workers_count", self.workers_count, 1, WORKERS_MAX)?;
        range::check(
            "stack_bytes",
            self.stack_bytes as u64,
            STACK_BYTES_MIN as u64,
            STACK_BYTES_MAX as u64,
        )?;
        range::check("pools", self.pools.len() as u64, 1, POOLS_MAX as u64)?;
        if !self.cpus.is_empty() && self.cpus.len() != self.workers_count as usize {
            return Err(ConfigError::CpusCountMismatch {
                cpus_count: self.cpus.len(),
                workers_count: self.workers_count,
            });
        }
        for (index, pool) in self.pools.iter().enumerate() {
            range::check("priority", pool.priority, 0, PRIORITY_MAX)?;
            if let Some(&worker) = pool.workers.iter().find(|one| **one >= self.workers_count) {
                return Err(ConfigError::NoSuchWorker {
                    pool: pool.name.clone(),
                    worker,
                    workers_count: self.workers_count,
                });
            }
            if self.pools[..index].iter().any(|other| other.name == pool.name) {
                return Err(ConfigError::DuplicatePool(pool.name.clone()));
            }
        }
        Ok(())
    }

    /// Returns `stack_bytes`, rounded up to a multiple of the page size.
    pub(crate) fn stack_bytes_rounded(&self) -> usize {
        self.stack_bytes.next_multiple_of(rustix::param::page_size())
    }
}
