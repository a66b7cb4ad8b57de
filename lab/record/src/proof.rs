//! Planted costs compared with the costs read from records.

use serde::{Deserialize, Serialize};

/// Cost of known size that was added on purpose, and its size in the records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Description of the cost that was added on purpose, and of the quantity that must show it.
    pub what: String,
    /// Unit of the values: `ns`, `share`, `ratio`, `rows` or `seen`. With `seen`, 1 stands for yes
    /// and 0 for no.
    pub unit: String,
    /// Size of the added cost, in `unit`.
    pub planted: f64,
    /// Size of the cost that the records show; `None` if the records do not show it.
    pub read: Option<f64>,
    /// Maximum allowed difference between `planted` and `read`, in `unit`.
    pub bound: f64,
    /// 95 % interval of `read`; `None` if none was measured. The proof also holds if the planted
    /// value lies inside.
    #[serde(default)]
    pub ends: Option<(f64, f64)>,
}

impl Proof {
    /// Returns `true` if the proof holds. The value read is then within the bound, or the interval
    /// contains the planted value.
    pub fn is_proven(&self) -> bool {
        let is_within = |(low, high)| low <= self.planted && self.planted <= high;
        self.is_within_bound() || self.ends.is_some_and(is_within)
    }

    /// Returns `true` if `read` differs from `planted` by at most `bound`.
    pub fn is_within_bound(&self) -> bool {
        self.read.is_some_and(|read| (read - self.planted).abs() <= self.bound)
    }
}
