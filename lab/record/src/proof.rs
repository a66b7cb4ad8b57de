//! Planted costs compared with the costs read from records.

use serde::{Deserialize, Serialize};

/// A planted quantity, and its value in the records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The planted workload and the quantity.
    pub what: String,
    /// `ns`, `share` or `ratio`.
    pub unit: String,
    /// The planted value.
    pub planted: f64,
    /// The value read; `None` if the records do not have it.
    pub read: Option<f64>,
    /// Maximum difference between the two values, in the same unit.
    pub bound: f64,
    /// Ends of the stated 95 % interval, which may contain the planted value instead.
    #[serde(default)]
    pub ends: Option<(f64, f64)>,
}

impl Proof {
    /// Returns `true` if the value read is within the bound, or the interval contains the planted
    /// value.
    pub fn is_kept(&self) -> bool {
        let is_within = |(low, high)| low <= self.planted && self.planted <= high;
        self.is_within_bound() || self.ends.is_some_and(is_within)
    }

    /// Returns `true` if the value read is within the bound.
    pub fn is_within_bound(&self) -> bool {
        self.read.is_some_and(|read| (read - self.planted).abs() <= self.bound)
    }
}
