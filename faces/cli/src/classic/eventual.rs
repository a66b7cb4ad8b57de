//! `abt-eventual-bench`, its sweep, and the sweep's pictures.

pub mod bench;
mod dat;
pub mod plot;
pub mod sweep;

/// Fibers at most: each has another one asleep, so twice as many stacks.
const FIBERS_MAX: u64 = 1_000_000;
/// A day.
const SECONDS_MAX: u64 = 86_400;

/// Parses milliseconds, fractions too.
fn milliseconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number of milliseconds".to_string())?;
    match (0.001..=3_600_000.0).contains(&value) {
        true => Ok(value),
        false => Err("must lie in 0.001..=3600000".to_string()),
    }
}
