//! Exit codes of the lab's errors, in addition to those common to all programs.

pub use handover_program::exit::*;

use handover_harness::{ParticipantError, PlanError};
use handover_store::StoreError;
use std::io::{self, ErrorKind};

/// Converts the error of starting a command to a usage error if its program does not exist, or this
/// process may not execute it.
pub fn start_error(error: anyhow::Error) -> anyhow::Error {
    match error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            to_usage_error(format!("{error:#}"))
        }
        _ => error,
    }
}

/// Converts an error of a participant process to a usage error if its environment variable is
/// malformed.
pub fn participant_error(error: ParticipantError) -> anyhow::Error {
    match error {
        ParticipantError::NotAnAssignment(_) => to_usage_error(error),
        other => other.into(),
    }
}

/// Converts an error of a plan to a usage error, except if the machine's topology cannot be read.
pub fn plan_error(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::Topology(_) => error.into(),
        other => to_usage_error(other),
    }
}

/// Converts an error of opening a store to a usage error, except if descriptors or space ran out.
pub fn store_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::NoDescriptors { .. } | StoreError::Full { .. } => error.into(),
        other => to_usage_error(other),
    }
}
