//! Participants as processes: this program started again for each, inheriting the shared
//! descriptors.

use super::stage::{PATIENCE_DEFAULT, RoundParams, SetupFn, collect_results};
use super::threads::{panic_message, play};
use crate::fault::Fault;
use crate::process::Process;
use crate::raw::{Control, Region, adopt_descriptors};
use crate::samples::{ParticipantResult, Samples, Timing};
use crate::setup::{Setup, make_inheritable};
use crate::trace::{ActiveRecording, TraceRequest};
use crate::workload::{self, Role};
use handover_base::affinity;
use handover_record::{ArgValues, Param, Spec};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable that contains the [`Assignment`] of a participant's process.
pub(crate) const PARTICIPANT_VARIABLE: &str = "HANDOVER_PARTY";

/// Message to the process of a participant: what to run, and the shared descriptors.
#[derive(Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// Id of the benchmark.
    spec: String,
    contender: String,
    /// Values of the arguments, by name.
    values: BTreeMap<String, u64>,
    /// Index of the participant.
    pub index: usize,
    /// CPU of each participant.
    cpus: Vec<u32>,
    timing: Timing,
    /// Size of the unused allocation that shifts the workload's memory to other addresses.
    slack_bytes: usize,
    /// `true` to count with hardware counters, if available.
    count_hardware: bool,
    trace: Option<TraceRequest>,
    /// Process id of the coordinator.
    parent: i32,
    /// Number of the descriptor of the memory that coordinates the round.
    control: i32,
    /// Number of the descriptor of the pipe for the reply.
    answer: i32,
    /// Numbers of the descriptors of the shared resources.
    shared_fds: Vec<i32>,
}

/// Reply of a participant's process: its measurements, or its error message.
type Answer = Result<ParticipantResult, String>;

/// Runs a round of several participants, each in a process of its own.
pub(super) fn run_round(
    round_params: &RoundParams,
    roles: &[Role],
    setup_erased: SetupFn,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    let mut setup = Setup::for_creator(&round_params.cpus, true);
    let workload = setup_erased(&round_params.values, &mut setup)?;
    let (_control, control_fd) = Region::<crate::raw::ControlWords>::create()?;
    let shared_fds = setup.into_inheritable()?;
    make_inheritable(&control_fd)?;

    let mut started = Vec::new();
    let mut answers = Vec::new();
    for (index, role) in roles.iter().enumerate() {
        let (answer, to) = pipe_with(PipeFlags::CLOEXEC)?;
        make_inheritable(&to)?;
        let assignment = Assignment {
            spec: round_params.spec_id.to_string(),
            contender: round_params.contender.to_string(),
            values: round_params.values.by_name().clone(),
            index,
            cpus: round_params.cpus.clone(),
            timing: round_params.timing,
            slack_bytes: round_params.slack_bytes,
            count_hardware: round_params.count_hardware,
            trace: round_params.trace.clone(),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            control: control_fd.as_raw_fd(),
            answer: to.as_raw_fd(),
            shared_fds: shared_fds.iter().map(AsRawFd::as_raw_fd).collect(),
        };
        let text = serde_json::to_string(&assignment)
            .map_err(|error| Fault::Start { role: role.name.into(), why: error.to_string() })?;
        let process = Process::start_with_variable(PARTICIPANT_VARIABLE, &text)
            .map_err(|refused| Fault::participant_not_started(role.name, &refused))?;
        started.push(process);
        answers.push(answer);
    }
    drop((shared_fds, control_fd));

    let (to, from) = channel();
    for (index, answer) in answers.into_iter().enumerate() {
        let (to, role) = (to.clone(), roles[index]);
        let listening = move || {
            // The receiver is closed once a fault has ended the round.
            let _ = to.send((index, read_answer(role, answer)));
        };
        thread::Builder::new()
            .spawn(listening)
            .map_err(|refused| Fault::participant_not_started(roles[index].name, &refused))?;
    }
    drop(to);
    let gathered = collect_results(roles, &from, round_params.patience(), interrupted);
    let gathered = match gathered {
        Err(Fault::Died { role, .. }) => {
            let status = describe_failed_child(&mut started);
            Err(Fault::Died { role, status })
        }
        other => other,
    };
    drop(started);
    let notes = gathered?;
    workload.check_round()?;
    Ok(notes)
}

/// Reads the reply of a participant's process.
fn read_answer(role: Role, answer: OwnedFd) -> Result<ParticipantResult, Fault> {
    let mut text = String::new();
    let read = File::from(answer).read_to_string(&mut text);
    match (read, serde_json::from_str::<Answer>(&text)) {
        (Ok(_), Ok(answer)) => answer
            .map_err(|why| Fault::Workload(format!("participant {role}: {why}", role = role.name))),
        _ => Err(Fault::Died { role: role.name.into(), status: String::new() }),
    }
}

/// Maximum time from the end of a participant's pipe to its exit status. A process that is killed
/// closes its pipe first.
const STATUS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Returns the exit status of the first child that failed, as text for an error message.
fn describe_failed_child(children: &mut [Process]) -> String {
    let until = Instant::now() + STATUS_WAIT_MAX;
    loop {
        let mut is_one_running = false;
        for child in children.iter_mut() {
            match child.exit_status() {
                Some(status) if !status.success() => return status.to_string(),
                Some(_) => {}
                None => is_one_running = true,
            }
        }
        if !is_one_running || Instant::now() >= until {
            return "its pipe was closed before a result arrived".to_string();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Data that a participant's process needs about its benchmark.
pub(crate) struct SharedBenchmark {
    pub spec: &'static Spec,
    pub contender: &'static str,
    pub params: &'static [Param],
    pub roles: fn(&ArgValues) -> Vec<Role>,
    pub setup: SetupFn,
}

impl Assignment {
    /// Parses an assignment in JSON; the error is that of the JSON parser.
    pub fn parse(text: &str) -> Result<Assignment, String> {
        serde_json::from_str(text).map_err(|refused| refused.to_string())
    }

    /// Runs the assigned participant and sends its result to the coordinator. `find` returns the
    /// benchmark of a spec and contender.
    pub fn play(
        &self,
        find: &dyn Fn(&str, &str) -> Result<SharedBenchmark, Fault>,
    ) -> Result<(), Fault> {
        let (answer, to) = run_assignment(find, self)?;
        let text = serde_json::to_vec(&answer).map_err(Fault::from_error)?;
        Ok(File::from(to).write_all(&text)?)
    }
}

/// Runs the assigned participant; returns its reply, and the pipe for the reply.
fn run_assignment(
    find: &dyn Fn(&str, &str) -> Result<SharedBenchmark, Fault>,
    assignment: &Assignment,
) -> Result<(Answer, OwnedFd), Fault> {
    // The kernel kills this participant if its coordinator dies.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().map(|it| it.as_raw_nonzero().get()) != Some(assignment.parent) {
        return Err(Fault::new("the coordinator has exited"));
    }
    let mut fds = vec![assignment.answer, assignment.control];
    fds.extend(&assignment.shared_fds);
    let mut fds = adopt_descriptors(&fds)?.into_iter();
    let (Some(answer), Some(control)) = (fds.next(), fds.next()) else {
        return Err(Fault::new(
            "the assignment has too few descriptors: result and control are missing",
        ));
    };
    let shared_fds = fds.collect();
    let played =
        catch_unwind(AssertUnwindSafe(|| play_assigned(find, assignment, &control, shared_fds)));
    let played = match played {
        Ok(played) => played.map_err(|fault| fault.to_string()),
        Err(panic) => Err(format!("panicked: {}", panic_message(&*panic))),
    };
    Ok((played, answer))
}

/// Sets up the assigned benchmark and runs one of its participants in this process.
fn play_assigned(
    find: &dyn Fn(&str, &str) -> Result<SharedBenchmark, Fault>,
    assignment: &Assignment,
    control: &OwnedFd,
    shared_fds: Vec<OwnedFd>,
) -> Result<ParticipantResult, Fault> {
    let bench = find(&assignment.spec, &assignment.contender)?;
    let mut values = ArgValues::defaults(bench.params);
    for (name, value) in &assignment.values {
        values.set_value(name, *value).map_err(Fault::from_error)?;
    }
    let roles = (bench.roles)(&values);
    let role = *roles.get(assignment.index).ok_or_else(|| {
        let index = assignment.index;
        Fault::new(format!("the benchmark has no participant with index {index}"))
    })?;
    let cpu = *assignment.cpus.get(assignment.index).ok_or_else(|| {
        let index = assignment.index;
        Fault::new(format!("no CPU is assigned to the participant with index {index}"))
    })?;
    affinity::pin(cpu).map_err(Fault::from_error)?;
    let measured = roles.iter().filter(|role| role.measured).count();
    let control = Control::new(Region::attach(control)?, roles.len(), measured);
    let parts_count = bench.spec.parts.len();
    let samples =
        Samples::new(assignment.timing, parts_count, role.measured, Some(control.clone()));
    let participant = workload::Participant { index: assignment.index, count: roles.len(), cpu };
    let round_params = RoundParams {
        spec_id: bench.spec.id,
        contender: bench.contender,
        values,
        parts_count,
        cpus: assignment.cpus.clone(),
        timing: assignment.timing,
        processes: true,
        check: false,
        slack_bytes: assignment.slack_bytes,
        count_hardware: assignment.count_hardware,
        trace: assignment.trace.clone(),
        // Unused: the coordinator enforces the time limit.
        patience: PATIENCE_DEFAULT,
    };
    // The recording ends before the reply is sent: after the reply, this process is killed.
    let _tracing = round_params.trace.as_ref().map(ActiveRecording::start).transpose()?;
    let _slack = round_params.allocate_slack();
    let workload = (bench.setup)(
        &round_params.values,
        &mut Setup::for_inheritor(&assignment.cpus, shared_fds),
    )?;
    play(&*workload, &round_params, role, participant, &control, samples)
}
