//! `abt-eventual-bench`, its sweep, and the sweep's pictures.

pub mod bench;
mod dat;
pub mod plot;
pub mod sweep;

/// Maximum number of fibers. Each has a second, sleeping fiber, so there are twice as many stacks.
const FIBERS_MAX: u64 = 1_000_000;
/// Maximum duration: a day.
const SECONDS_MAX: u64 = 86_400;

/// Parses milliseconds, with or without a fraction.
fn milliseconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number of milliseconds".to_string())?;
    match (0.001..=3_600_000.0).contains(&value) {
        true => Ok(value),
        false => Err("must lie in 0.001..=3600000".to_string()),
    }
}
