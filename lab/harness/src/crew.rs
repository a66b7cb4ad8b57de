//! Execution of one round by its participants, as threads or as processes: start, timing, time
//! limit.

mod processes;
mod stage;
mod threads;

pub(crate) use processes::{Assignment, PARTICIPANT_VARIABLE, SharedBenchmark};
pub(crate) use stage::{PATIENCE_DEFAULT, RoundParams, SetupFn, setup_erased};
pub(crate) use threads::{play_alone, run_round_of_one_participant};

use crate::fault::Fault;
use crate::samples::ParticipantResult;
use crate::workload::Role;
use std::sync::atomic::AtomicBool;

/// Runs a round of several participants, as threads or processes according to `round_params`.
pub(crate) fn run_round_of_participants(
    round_params: &RoundParams,
    roles: &[Role],
    setup: SetupFn,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    if round_params.processes {
        processes::run_round(round_params, roles, setup, interrupted)
    } else {
        threads::run_round(threads::spawn, round_params, roles, setup, interrupted)
    }
}
