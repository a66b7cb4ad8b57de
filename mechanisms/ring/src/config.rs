//! Bounds of a ring's capacity.

use crate::CapacityError;

/// Maximum number of slots in a ring.
pub const SLOTS_COUNT_MAX: u32 = 1 << 31;

/// Checks that `slots_count` is a valid number of slots for a ring.
/// [`spsc::ring`](crate::spsc::ring), [`mpsc::ring`](crate::mpsc::ring) and
/// [`mpmc::ring`](crate::mpmc::ring) check this first.
///
/// # Errors
/// If `slots_count` lies outside `1..=SLOTS_COUNT_MAX`.
pub fn validate(slots_count: u32) -> Result<(), CapacityError> {
    if !(1..=SLOTS_COUNT_MAX).contains(&slots_count) {
        return Err(CapacityError::OutOfRange { slots_count, max: SLOTS_COUNT_MAX });
    }
    Ok(())
}
