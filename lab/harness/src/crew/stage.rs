//! One round: its parameters, its type-erased workload, and its participants' results.

use crate::fault::Fault;
use crate::samples::{ParticipantResult, Samples, Timing};
use crate::setup::{Setup, has_repeated_cpu};
use crate::trace::TraceRequest;
use crate::workload::{self, Handover, Role};
use handover_record::{ArgValues, Args};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Default time limit of a participant, in addition to the time of ten rounds.
pub(crate) const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

/// Parameters of one round of a contender.
#[derive(Clone, Debug)]
pub(crate) struct RoundParams {
    pub spec_id: &'static str,
    pub contender: &'static str,
    pub values: ArgValues,
    pub parts_count: usize,
    /// CPU of each participant.
    pub cpus: Vec<u32>,
    pub timing: Timing,
    /// `true` to run the participants as processes instead of threads.
    pub processes: bool,
    /// `true` to run the workload's [self-test](crate::Workload::self_test) before the first
    /// sample. It has no effect with several participants.
    pub check: bool,
    /// Size of the unused allocation that shifts the workload's memory to other addresses. It
    /// differs between rounds.
    pub slack_bytes: usize,
    /// `true` to count with hardware counters, if available.
    pub count_hardware: bool,
    /// Request for a recording of the round; `None` if it is not recorded. With `processes`, each
    /// participant process writes its own file in the folder.
    pub trace: Option<TraceRequest>,
    /// Time limit of a participant: see [`Plan::patience`](crate::lab::Plan::patience).
    pub patience: Duration,
}

impl RoundParams {
    /// Returns `true` if participants share a CPU; a waiting participant must then not spin.
    pub(crate) fn is_crowded(&self) -> bool {
        has_repeated_cpu(&self.cpus)
    }

    /// Makes the unused allocation that shifts the workload's memory to other addresses.
    pub(crate) fn allocate_slack(&self) -> Vec<u8> {
        Vec::with_capacity(self.slack_bytes)
    }

    /// Returns the time limit of a round. It is the plan's patience plus the time of ten rounds, at
    /// most twice the patience. (A smoke round ends by its number of batches.)
    pub(super) fn patience(&self) -> Duration {
        let rounds = Duration::from_nanos(self.timing.round_ns.saturating_mul(10));
        rounds.min(self.patience) + self.patience
    }
}

/// Type-erased [`Handover`] after its setup. All code of a round except [`Handover::play`] is thus
/// compiled once instead of once for each of a suite's hundreds of types.
pub(crate) trait ErasedHandover: Send + Sync {
    /// Calls [`Handover::play`]; once per participant and round.
    fn play(&self, participant: workload::Participant, out: &mut Samples) -> Result<(), Fault>;
    /// Calls [`Handover::check_round`]; once after each round.
    fn check_round(&self) -> Result<(), Fault>;
}

impl<H: Handover> ErasedHandover for H {
    fn play(&self, participant: workload::Participant, out: &mut Samples) -> Result<(), Fault> {
        Handover::play(self, participant, out)
    }

    fn check_round(&self) -> Result<(), Fault> {
        Handover::check_round(self)
    }
}

/// Function that sets up the workload that several participants share.
pub(crate) type SetupFn = fn(&ArgValues, &mut Setup) -> Result<Arc<dyn ErasedHandover>, Fault>;

/// Calls [`Handover::setup`]; the generic implementation of [`SetupFn`].
pub(crate) fn setup_erased<H: Handover>(
    values: &ArgValues,
    setup: &mut Setup,
) -> Result<Arc<dyn ErasedHandover>, Fault> {
    Ok(Arc::new(H::setup(&H::Args::from_values(values), setup)?))
}

/// Time limit of the other participants after one has failed or a stop was requested.
const GRACE: Duration = Duration::from_millis(500);

/// Interval at which the coordinator polls for a requested stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Collects the results of all participants. Fails with the first fault, or if the time limit
/// passes. After a fault or a requested stop, waits at most [`GRACE`] for the others, and returns
/// the first fault.
pub(super) fn collect_results(
    roles: &[Role],
    from: &Receiver<(usize, Result<ParticipantResult, Fault>)>,
    patience: Duration,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    let mut notes: Vec<Option<ParticipantResult>> = roles.iter().map(|_| None).collect();
    let mut fault = None;
    let mut heard = 0;
    let mut until = Instant::now() + patience;
    while heard < roles.len() {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(STOP_POLL_INTERVAL)) {
            Ok((index, Ok(said))) => notes[index] = Some(said),
            Ok((_, Err(said))) => {
                fault.get_or_insert(said);
                until = until.min(Instant::now() + GRACE);
            }
            Err(RecvTimeoutError::Timeout) if left > STOP_POLL_INTERVAL => {
                // Relaxed: the flag publishes no other data.
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
