//! Ranges of configured numbers and times.
//!
//! ```
//! use handover_base::range;
//! use std::time::Duration;
//!
//! let error = range::check("slots_count", 0_u32, 1, 64).unwrap_err();
//! assert_eq!(error.to_string(), "slots_count=0: must lie in 1..=64");
//! let error = range::check("spin_max", Duration::from_millis(2), Duration::ZERO, Duration::from_millis(1));
//! assert_eq!(error.unwrap_err().to_string(), "spin_max=2ms: must lie in 0ns..=1ms");
//! ```

use core::fmt;

/// Error of a configuration field whose value is outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: must lie in {min}..={max}")]
pub struct OutOfRange {
    /// Name of the configuration field.
    pub name: &'static str,
    /// Value of the configuration field.
    pub value: String,
    /// Minimum of the range.
    pub min: String,
    /// Maximum of the range.
    pub max: String,
}

/// Checks that `value`, a number or a [`Duration`](std::time::Duration), lies in `min..=max`.
///
/// # Errors
/// [`OutOfRange`] if it does not.
pub fn check<T: Copy + PartialOrd + fmt::Debug>(
    name: &'static str,
    value: T,
    min: T,
    max: T,
) -> Result<(), OutOfRange> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(OutOfRange {
            name,
            value: format!("{value:?}"),
            min: format!("{min:?}"),
            max: format!("{max:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn duration_outside_its_range_is_refused_with_units() {
        let check =
            |value| check("linger", value, Duration::from_millis(1), Duration::from_secs(60));
        assert_eq!(check(Duration::from_millis(1)), Ok(()));
        assert_eq!(check(Duration::from_secs(60)), Ok(()));
        let too_short = check(Duration::from_micros(999)).unwrap_err();
        assert_eq!(too_short.to_string(), "linger=999µs: must lie in 1ms..=60s");
        assert!(check(Duration::from_nanos(60_000_000_001)).is_err());
    }
}
