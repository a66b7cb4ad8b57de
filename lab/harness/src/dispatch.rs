//! Processes that are this program started again: passes of a run, and participants of a round.

use crate::bench::Bench;
use crate::crew::{Assignment, PARTICIPANT_VARIABLE};
use crate::fault::Fault;
use crate::lab;
use crate::process;

/// Error of a process that was started as a pass or a participant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// The environment variable for participants has a value that this program did not write.
    #[error("{PARTICIPANT_VARIABLE} is set by handover for its own participants; unset it: {0}")]
    NotAnAssignment(String),
    /// The participant could not be set up, or its coordinator has exited.
    #[error("participant {index}: {fault}")]
    Fault {
        /// The participant's index.
        index: usize,
        /// Reason why the participant failed.
        fault: Fault,
    },
    /// The process of a pass could not start, or its parent process has exited.
    #[error("pass of a run: {0}")]
    Pass(Fault),
}

/// Runs the pass or participant for which this process was started. Returns `None` in any other
/// process.
///
/// After `Some`, the caller must exit, with success or with the error.
///
/// Call it first in `main` of every program that runs a [`Lab`](crate::Lab): each pass of a run is
/// the same program started again, and so is each participant that is a process. A program that
/// does not call it runs all passes in one process.
///
/// ```no_run
/// # const ALL: &[&[handover_harness::Bench]] = &[];
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if let Some(played) = handover_harness::dispatch_participant(ALL) {
///         return Ok(played?);
///     }
///     // ... a Lab, and what it is to run
///     Ok(())
/// }
/// ```
///
/// It takes ownership of descriptors inherited from the starting process, so it must run before
/// anything else opens descriptors or takes ownership of them.
///
/// # Errors
/// Fails if the assignment is invalid, or if the process cannot report to its parent. A fault
/// during the measurement is reported to the parent, and is no error here.
pub fn dispatch_participant(all: &[&'static [Bench]]) -> Option<Result<(), ParticipantError>> {
    if let Some(run) = lab::child::run_if_pass_process(all) {
        return Some(run.map_err(ParticipantError::Pass));
    }
    let Ok(assignment) = std::env::var(PARTICIPANT_VARIABLE) else {
        process::allow_self_exec();
        return None;
    };
    Some(play_assignment(all, &assignment))
}

/// Runs the participant that the text `assignment` describes.
fn play_assignment(all: &[&'static [Bench]], assignment: &str) -> Result<(), ParticipantError> {
    let assignment = Assignment::parse(assignment).map_err(ParticipantError::NotAnAssignment)?;
    let played = assignment.play(&|spec, contender| {
        let mut benches = all.iter().flat_map(|benches| benches.iter());
        let bench = benches
            .find(|it| it.spec().id == spec && it.contender().name == contender)
            .ok_or_else(|| {
                Fault::new(format!("this program has no benchmark {spec} [{contender}]"))
            })?;
        bench.shared_benchmark()
    });
    played.map_err(|fault| ParticipantError::Fault { index: assignment.index, fault })
}
