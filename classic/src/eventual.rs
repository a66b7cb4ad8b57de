//! `abt-eventual-bench`, its sweep, and the sweep's pictures.

pub mod bench;
mod dat;
pub mod plot;
pub mod sweep;

use std::ops::RangeInclusive;

/// Maximum number of fibers that make eventuals. Each starts a second fiber that sleeps, which
/// doubles the stacks.
const FIBERS_MAX: u64 = 1_000_000;
/// Maximum duration of a run, in seconds: a day.
const SECONDS_MAX: u64 = 86_400;

/// Range of the duration of a fiber's sleep, in milliseconds: up to an hour.
const SLEEP_MS_RANGE: RangeInclusive<f64> = 0.001..=3_600_000.0;
