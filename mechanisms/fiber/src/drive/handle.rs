//! Handles of a runtime and of its pools.

use super::state::RuntimeState;
use std::sync::Arc;

/// Handle for spawning fibers in a runtime from any thread. The runtime can shut down while handles
/// exist.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<RuntimeState>,
}

/// Handle of a pool: a queue of fibers that some or all workers of a runtime serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Index of the pool in the configuration of its runtime.
    pub(super) index: usize,
}

handover_base::debug_struct!(Handle as it { workers: it.shared.workers.len() });
