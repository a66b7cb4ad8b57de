//! The parties of one round, as threads or as processes: started, timed, and outlived.

mod processes;
mod threads;

pub(crate) use processes::{PARTY_VARIABLE, Party, Together};
pub(crate) use threads::{play_alone, round_alone};

use crate::fault::Fault;
use crate::rig::Rig;
use crate::samples::{Notes, Samples, Timing};
use crate::trace::TraceTo;
use crate::workload::{self, Handover, Role};
use handover_record::{Args, Values};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Everything that a round needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub spec_id: &'static str,
    pub contender: &'static str,
    pub values: Values,
    pub parts_count: usize,
    /// One a party.
    pub cpus: Vec<u32>,
    pub timing: Timing,
    pub processes: bool,
    /// Call `check` before the first sample.
    pub check: bool,
    /// So much memory is taken before the setup and held until the round ends, so that what is set up lies
    /// elsewhere in each round.
    pub slack_bytes: usize,
    /// Hardware counters are worth a try.
    pub count_hardware: bool,
    /// The round is recorded: where to, by processes that are parties.
    pub trace: Option<TraceTo>,
    /// [`Plan::patience`](crate::lab::Plan::patience).
    pub patience: Duration,
}

impl Stage {
    /// Whether the parties share a CPU, so that whoever waits must not spin.
    pub(crate) fn crowded(&self) -> bool {
        let mut cpus = self.cpus.clone();
        cpus.sort_unstable();
        cpus.dedup();
        cpus.len() < self.cpus.len()
    }

    /// Takes the memory that is to lie before what is set up.
    pub(crate) fn slack(&self) -> Vec<u8> {
        Vec::with_capacity(self.slack_bytes)
    }

    /// How long a round may take before its parties are given up.
    fn patience(&self) -> Duration {
        let rounds = Duration::from_nanos(self.timing.round_ns.saturating_mul(10));
        rounds.min(ROUNDS_PATIENCE_MAX) + self.patience
    }
}

/// Ten rounds' time is enough for one, but no more than this: a smoke round ends by its batches.
const ROUNDS_PATIENCE_MAX: Duration = Duration::from_secs(10);

/// A rigged [`Handover`] whose type is forgotten: what a round does with it, all but the playing, is
/// compiled once, and not once for each of a suite's hundreds.
pub(crate) trait Rigged: Send + Sync {
    /// [`Handover::play`]: one call a party and round.
    fn play(&self, party: workload::Party, out: &mut Samples) -> Result<(), Fault>;
    /// [`Handover::verify`].
    fn verify(&self) -> Result<(), Fault>;
}

impl<H: Handover> Rigged for H {
    fn play(&self, party: workload::Party, out: &mut Samples) -> Result<(), Fault> {
        Handover::play(self, party, out)
    }

    fn verify(&self) -> Result<(), Fault> {
        Handover::verify(self)
    }
}

/// How a hand-over is rigged.
pub(crate) type RigTogether = fn(&Values, &mut Rig) -> Result<Arc<dyn Rigged>, Fault>;

/// [`Handover::rig`], as a [`RigTogether`].
pub(crate) fn rig_together<H: Handover>(
    values: &Values,
    rig: &mut Rig,
) -> Result<Arc<dyn Rigged>, Fault> {
    Ok(Arc::new(H::rig(&H::Args::from_values(values), rig)?))
}

/// A round of several parties, as the stage wants them.
pub(crate) fn round_together(
    stage: &Stage,
    roles: &[Role],
    rig: RigTogether,
    interrupted: &AtomicBool,
) -> Result<Vec<Notes>, Fault> {
    if stage.processes {
        processes::round(stage, roles, rig, interrupted)
    } else {
        threads::round(stage, roles, rig, interrupted)
    }
}

/// Once a party has failed, or the run was asked to stop, the others get this long to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

/// How long the coordinator sleeps between two looks at whether the run was asked to stop.
const SLICE: Duration = Duration::from_millis(100);

/// Waits for what each party has to say; the first fault wins, and is not waited behind.
fn gather(
    roles: &[Role],
    from: &Receiver<(usize, Result<Notes, Fault>)>,
    patience: Duration,
    interrupted: &AtomicBool,
) -> Result<Vec<Notes>, Fault> {
    let mut notes: Vec<Option<Notes>> = roles.iter().map(|_| None).collect();
    let mut fault = None;
    let mut heard = 0;
    let mut until = Instant::now() + patience;
    while heard < roles.len() {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(SLICE)) {
            Ok((index, Ok(said))) => notes[index] = Some(said),
            Ok((_, Err(said))) => {
                fault.get_or_insert(said);
                until = until.min(Instant::now() + GRACE);
            }
            Err(RecvTimeoutError::Timeout) if left > SLICE => {
                // Relaxed: a flag alone; nothing is published with it.
                if fault.is_none() && interrupted.load(Ordering::Relaxed) {
                    fault = Some(Fault::Interrupted);
                    until = until.min(Instant::now() + GRACE);
                }
                continue;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let missing = notes.iter().position(Option::is_none).unwrap_or(0);
                let role = roles[missing].name.to_string();
                return Err(fault.unwrap_or(Fault::Stuck { role, after: patience }));
            }
        }
        heard += 1;
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok(notes.into_iter().flatten().collect()),
    }
}
