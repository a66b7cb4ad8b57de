//! Planted costs compared with the costs read from records.

use serde::{Deserialize, Serialize};

/// A cost of known size that was planted, and the value that the records show for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Planted workload and measured quantity.
    pub what: String,
    /// Unit of the values: `ns`, `share` or `ratio`.
    pub unit: String,
    /// Planted value, in the unit of the cost.
    pub planted: f64,
    /// Value from the records; `None` if the records do not have it.
    pub read: Option<f64>,
    /// Maximum allowed difference between the planted and the read value, in the same unit.
    pub bound: f64,
    /// 95 % interval of the read value: the proof also holds if the planted value lies inside.
    #[serde(default)]
    pub ends: Option<(f64, f64)>,
}

impl Proof {
    /// Returns `true` if the proof holds: the value read is within the bound, or the interval
    /// contains the planted value.
    pub fn is_proven(&self) -> bool {
        let is_within = |(low, high)| low <= self.planted && self.planted <= high;
        self.is_within_bound() || self.ends.is_some_and(is_within)
    }

    /// Returns `true` if the read value differs from the planted one by at most the bound.
    pub fn is_within_bound(&self) -> bool {
        self.read.is_some_and(|read| (read - self.planted).abs() <= self.bound)
    }
}
