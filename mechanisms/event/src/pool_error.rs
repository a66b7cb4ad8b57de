//! The refusal of a pool.

use core::fmt;

/// Every slot of the pool is in use; here is what should have gone into one.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("every slot of the pool is in use")]
pub struct PoolFull<T>(pub T);

impl<T> fmt::Debug for PoolFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolFull(..)")
    }
}
