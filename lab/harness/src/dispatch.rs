//! Processes that are this program started again: the passes of a run, and the parties of a round.

use crate::bench::Bench;
use crate::crew::{PARTY_VARIABLE, Party};
use crate::fault::Fault;
use crate::lab;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program can be started again for a pass or a party.
static DISPATCHES: AtomicBool = AtomicBool::new(false);

/// Whether [`dispatch_partner`] was called in this process.
pub(crate) fn is_possible() -> bool {
    // Relaxed: a flag alone; nothing is published with it.
    DISPATCHES.load(Ordering::Relaxed)
}

/// Why a process that was started as a pass or a party could not do its work, or could not say how it went.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartyError {
    /// The variable that makes a process a party holds something else: somebody set it by hand.
    #[error("{PARTY_VARIABLE} is set by handover for its own parties; unset it: {0}")]
    NotAnAssignment(String),
    /// The party was never rigged, or its coordinator is gone.
    #[error("party {index}: {fault}")]
    Fault {
        /// Which party.
        index: usize,
        /// What went wrong.
        fault: Fault,
    },
    /// The pass could not begin, or the run that it belongs to is gone.
    #[error("a pass: {0}")]
    Pass(Fault),
}

/// If this process was started as a pass of a run or as a party of a round, does that and says how it went;
/// the caller must then end, with success or with the error. Otherwise returns `None` at once. Call it first
/// thing in `main` of every program that runs a [`Lab`](crate::Lab): each pass of a run is that same program
/// started again, and so are parties that are processes. A program that does not call it has all its passes
/// in one process.
///
/// ```no_run
/// # const ALL: &[&[handover_harness::Bench]] = &[];
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if let Some(played) = handover_harness::dispatch_partner(ALL) {
///         return Ok(played?);
///     }
///     // ... a Lab, and what it is to run
///     Ok(())
/// }
/// ```
///
/// It takes over the descriptors that the starting process left open for it, so it must run before
/// anything else opens or takes over descriptors.
///
/// # Errors
/// What keeps the process from telling the one that started it: a fault while it measures is told there, and is
/// none here.
pub fn dispatch_partner(all: &[&'static [Bench]]) -> Option<Result<(), PartyError>> {
    if let Some(run) = lab::child::dispatch(all) {
        return Some(run.map_err(PartyError::Pass));
    }
    let Ok(told) = std::env::var(PARTY_VARIABLE) else {
        // Relaxed: as above.
        DISPATCHES.store(true, Ordering::Relaxed);
        return None;
    };
    Some(play_told(all, &told))
}

fn play_told(all: &[&'static [Bench]], told: &str) -> Result<(), PartyError> {
    let party = Party::of(told).map_err(PartyError::NotAnAssignment)?;
    let index = party.index();
    let played = party.play(|spec, contender| {
        let mut benches = all.iter().flat_map(|benches| benches.iter());
        let bench = benches
            .find(|it| it.spec().id == spec && it.contender().name == contender)
            .ok_or_else(|| Fault::new(format!("no benchmark {spec} [{contender}]")))?;
        bench.together()
    });
    played.map_err(|fault| PartyError::Fault { index, fault })
}
