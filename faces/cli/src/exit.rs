//! Exit codes of the lab's errors, in addition to those common to all programs.

pub use handover_program::exit::*;

use handover_harness::{ParticipantError, PlanError};
use handover_store::StoreError;

/// Converts an error of a participant's environment variable to a usage error, like an invalid argument.
pub fn participant_error(refused: ParticipantError) -> anyhow::Error {
    match refused {
        ParticipantError::NotAnAssignment(_) => to_usage_error(refused),
        other => other.into(),
    }
}

/// Converts an error of a plan to a usage error. It is none if the machine's topology could not be
/// read.
pub fn plan_error(refused: PlanError) -> anyhow::Error {
    match refused {
        PlanError::Topology(_) => refused.into(),
        other => to_usage_error(other),
    }
}

/// Converts an error of opening a store to a usage error. It is none if the system lacks
/// descriptors or space.
pub fn store_error(refused: StoreError) -> anyhow::Error {
    match refused {
        StoreError::NoDescriptors { .. } | StoreError::Full { .. } => refused.into(),
        other => to_usage_error(other),
    }
}
