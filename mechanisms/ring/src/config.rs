//! How many slots a ring may have.

use crate::CapacityError;

/// The most slots that a ring may have.
pub const SLOTS_COUNT_MAX: u32 = 1 << 31;

/// Whether a ring may have so many slots; [`spsc::ring`](crate::spsc::ring) and
/// [`mpsc::ring`](crate::mpsc::ring) ask this first.
///
/// # Errors
/// Outside `1..=SLOTS_COUNT_MAX`.
pub fn validate(slots_count: u32) -> Result<(), CapacityError> {
    if !(1..=SLOTS_COUNT_MAX).contains(&slots_count) {
        return Err(CapacityError::OutOfRange { slots_count, max: SLOTS_COUNT_MAX });
    }
    Ok(())
}
