//! How many workers, where, and what they serve.

use crate::ConfigError;

/// More workers than any machine has CPUs.
const WORKERS_MAX: u32 = 1024;
const STACK_BYTES_MIN: usize = 16 << 10;
const STACK_BYTES_MAX: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;
/// The greatest number of a priority: the least urgent.
pub(crate) const PRIORITY_MAX: u8 = 7;

/// Fibers that a worker that has nothing to do takes from another worker. Suspended ones are taken only in a runtime
/// made by [`Runtime::stealing_suspended`](crate::Runtime::stealing_suspended).
///
/// That needs a promise, so that no configuration can ask for it:
///
/// ```compile_fail
/// use handover_fiber::{Config, Stealing};
/// let config = Config { stealing: Stealing::Suspended, ..Config::workers(2) };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stealing {
    /// Each fiber runs where it was spawned to. The cheapest, and what one relies on who holds on to
    /// something of the thread.
    #[default]
    Off,
    /// A fiber that has not begun may be taken by a worker that serves its pool, unless
    /// [`Builder::worker`](crate::Builder::worker) says where it begins.
    Fresh,
}

/// A queue of fibers that some workers serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// By which it is found.
    pub name: String,
    /// 0 is the most urgent, 7 the least: a worker runs what is more urgent first, but for one fiber in a few
    /// hundred, so that nobody waits for ever.
    pub priority: u8,
    /// Which workers serve it, counted from 0; none means all.
    pub workers: Vec<u32>,
}

impl PoolConfig {
    /// A pool that all workers serve.
    pub fn new(name: impl Into<String>, priority: u8) -> Self {
        Self { name: name.into(), priority, workers: Vec::new() }
    }
}

/// How a runtime is to be.
///
/// ```
/// use handover_fiber::Config;
/// let config = Config { workers_count: 2, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { stack_bytes: 100, ..config }.validate().unwrap_err().to_string(),
///     "stack_bytes=100: must lie in 16384..=1073741824",
/// );
/// # Ok::<(), handover_fiber::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How many threads run fibers. Default 1.
    pub workers_count: u32,
    /// The CPU of each worker, or none: then the kernel places them. Default none.
    pub cpus: Vec<u32>,
    /// Bytes of each stack, rounded up to whole pages. Default 65,536.
    ///
    /// It is address space: memory is what was touched, page by page, and the guard below is besides. A stack
    /// that is too small ends the process with a message; [`Stats`](crate::Stats) tells how much was used.
    pub stack_bytes: usize,
    /// The pools. The first is where fibers go that name none. Default one pool, called "default".
    pub pools: Vec<PoolConfig>,
    /// Fibers that workers take from each other. Default none.
    pub stealing: Stealing,
    /// How long a worker without work spins at most before it sleeps; it does so only while that pays. Default
    /// as for [`handover_notify`].
    pub spin: handover_notify::Config,
}

/// Frames of functions that a sanitizer watches are several times as large.
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
    /// One worker.
    #[must_use]
    pub fn one_worker() -> Self {
        Self::default()
    }

    /// So many workers.
    #[must_use]
    pub fn workers(workers_count: u32) -> Self {
        Self { workers_count, ..Self::default() }
    }

    /// Whether all is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names what is not, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |knob, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { knob, value, min, max })
            }
        };
        within("workers_count", self.workers_count.into(), 1, WORKERS_MAX.into())?;
        within(
            "stack_bytes",
            self.stack_bytes as u64,
            STACK_BYTES_MIN as u64,
            STACK_BYTES_MAX as u64,
        )?;
        within("pools", self.pools.len() as u64, 1, 1 << 16)?;
        if !self.cpus.is_empty() && self.cpus.len() != self.workers_count as usize {
            return Err(ConfigError::CpusMissing {
                cpus_count: self.cpus.len(),
                workers_count: self.workers_count,
            });
        }
        for (at, pool) in self.pools.iter().enumerate() {
            within("priority", pool.priority.into(), 0, PRIORITY_MAX.into())?;
            if let Some(&worker) = pool.workers.iter().find(|one| **one >= self.workers_count) {
                return Err(ConfigError::NoSuchWorker {
                    pool: pool.name.clone(),
                    worker,
                    workers_count: self.workers_count,
                });
            }
            if self.pools[..at].iter().any(|other| other.name == pool.name) {
                return Err(ConfigError::TwoPools(pool.name.clone()));
            }
        }
        Ok(())
    }

    pub(crate) fn stack_bytes_rounded(&self) -> usize {
        self.stack_bytes.next_multiple_of(PAGE_BYTES)
    }
}
