//! Ranges of configured numbers.
//!
//! ```
//! let error = handover_base::range::check("slots_count", 0_u32, 1, 64).unwrap_err();
//! assert_eq!(error.to_string(), "slots_count=0: must lie in 1..=64");
//! ```

/// Error of a configuration field whose value is outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: must lie in {min}..={max}")]
pub struct OutOfRange {
    /// Name of the configuration field.
    pub name: &'static str,
    /// Value of the configuration field.
    pub value: u64,
    /// Minimum of the range.
    pub min: u64,
    /// Maximum of the range.
    pub max: u64,
}

/// Checks that `value` lies in `min..=max`.
///
/// # Errors
/// [`OutOfRange`] if it does not.
pub fn check<N: Into<u64>>(name: &'static str, value: N, min: N, max: N) -> Result<(), OutOfRange> {
    let (value, min, max) = (value.into(), min.into(), max.into());
    if (min..=max).contains(&value) { Ok(()) } else { Err(OutOfRange { name, value, min, max }) }
}
