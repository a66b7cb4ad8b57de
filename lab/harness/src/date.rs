//! Dates as they are stored: in nanoseconds since the Unix epoch.

use std::time::{SystemTime, UNIX_EPOCH};

/// Converts a date to nanoseconds since the Unix epoch, negative before it. Returns `None` for a
/// date before 1677 or after 2262, which 64 bits cannot hold.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// assert_eq!(handover_harness::unix_ns(UNIX_EPOCH - Duration::from_nanos(5)), Some(-5));
/// assert_eq!(handover_harness::unix_ns(UNIX_EPOCH + Duration::from_secs(1 << 40)), None);
/// ```
#[must_use]
pub fn unix_ns(date: SystemTime) -> Option<i64> {
    match date.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).ok(),
        Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|ns| -ns),
    }
}

/// Error message for a run at a date that cannot be stored.
pub const DATE_OUT_OF_RANGE: &str =
    "this machine's clock is before 1677 or after 2262; set it, as runs are stored by their date";
