//! To come.

use handover_harness::Bench;

/// None yet.
pub const ALL: &[Bench] = &[];
