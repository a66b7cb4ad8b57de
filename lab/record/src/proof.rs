//! Known costs that were planted, and what was read of them.

use serde::{Deserialize, Serialize};

/// One planted quantity, and what the records say of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The planted workload, and which of its quantities.
    pub what: String,
    /// `ns`, `share` or `ratio`.
    pub unit: String,
    /// The quantity as planted.
    pub planted: f64,
    /// The same as read; none where the records do not have it.
    pub read: Option<f64>,
    /// By how much the two may differ, in the same unit.
    pub bound: f64,
    /// Ends of the stated 95 % interval, which may hold the planted quantity instead.
    #[serde(default)]
    pub ends: Option<(f64, f64)>,
}

impl Proof {
    /// Whether what was read is what was planted.
    pub fn is_kept(&self) -> bool {
        let is_near = |read: f64| (read - self.planted).abs() <= self.bound;
        let is_within = |(low, high)| low <= self.planted && self.planted <= high;
        self.read.is_some_and(is_near) || self.ends.is_some_and(is_within)
    }
}
