//! Execution of one round by its participants, as threads or as processes: start, timing, time
//! limit.

mod processes;
mod stage;
mod threads;

pub(crate) use processes::{PARTICIPANT_VARIABLE, ParticipantProcess, SharedBenchmark};
pub(crate) use stage::{PATIENCE, SetupFn, Stage, setup_erased};
pub(crate) use threads::{play_alone, round_alone};

use crate::fault::Fault;
use crate::samples::ParticipantResult;
use crate::workload::Role;
use std::sync::atomic::AtomicBool;

/// Runs a round of several participants, as threads or processes according to `stage`.
pub(crate) fn round_together(
    stage: &Stage,
    roles: &[Role],
    setup: SetupFn,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    if stage.processes {
        processes::round(stage, roles, setup, interrupted)
    } else {
        threads::round(stage, roles, setup, interrupted)
    }
}
