//! Error of a full pool.

use core::fmt;

/// Error of putting a value into a pool in which every slot is in use. Contains the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("every slot of the pool is in use: drop values, or raise the pool's maximum")]
pub struct PoolFull<T>(pub T);

impl<T> fmt::Debug for PoolFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolFull(..)")
    }
}
