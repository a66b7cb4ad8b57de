//! Handles of a runtime and of its pools.

use super::state::RuntimeState;
use std::fmt;
use std::sync::Arc;

/// Handle for spawning fibers in a runtime from any thread. The runtime can shut down while handles exist.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<RuntimeState>,
}

/// Handle of a pool: a queue of fibers that some or all workers of a runtime serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    pub(super) index: usize,
}

impl Handle {
    pub(super) fn new(shared: Arc<RuntimeState>) -> Self {
        Self { shared }
    }

    pub(super) fn runtime_state(&self) -> &Arc<RuntimeState> {
        &self.shared
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("workers", &self.shared.workers.len())
            .finish_non_exhaustive()
    }
}
