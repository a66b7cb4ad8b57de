//! Parties as processes: this program started again, once a party, with what they share inherited.

use super::threads::{play, words_of};
use super::{RigTogether, Stage, gather};
use crate::bench::Bench;
use crate::fault::Fault;
use crate::lab::Plan;
use crate::raw::{Control, Region, start_again, take_over};
use crate::rig::{Rig, inheritable, numbers};
use crate::samples::{Notes, Samples, Timing};
use crate::trace::{TraceTo, Tracing};
use crate::workload::{Party, Role};
use handover_base::affinity;
use handover_record::Values;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;

/// Tells a started program that it is a party, and which.
const PARTY_VARIABLE: &str = "HANDOVER_PARTY";

/// What a party's process is told.
#[derive(Serialize, Deserialize)]
struct Assignment {
    spec: String,
    contender: String,
    values: BTreeMap<String, u64>,
    index: usize,
    cpus: Vec<u32>,
    timing: Timing,
    count_hardware: bool,
    trace: Option<TraceTo>,
    parent: i32,
    control: i32,
    answer: i32,
    rigged: Vec<i32>,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
enum Answer {
    Notes(Notes),
    Fault(String),
}

/// A child process; killed and waited for when dropped.
struct Process {
    id: Pid,
    /// Set once it has been waited for: its id may be another process's from then on.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts this program as the participant that `told` describes.
    fn start(told: &str) -> io::Result<Process> {
        let own = std::env::vars_os().filter(|(name, _)| name != PARTY_VARIABLE);
        let added = (PARTY_VARIABLE.into(), told.into());
        let environment: Result<Vec<CString>, _> = own
            .chain([added])
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        Ok(Process { id: start_again(&environment?)?, ended: None })
    }

    /// Its exit status, if it has ended.
    fn status(&mut self) -> Option<ExitStatus> {
        self.wait(WaitOptions::NOHANG)
    }

    fn wait(&mut self, how: WaitOptions) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some((_, status))) = retry_on_intr(|| waitpid(Some(self.id), how))
        {
            self.ended = Some(ExitStatus::from_raw(status.as_raw()));
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process(self.id, Signal::KILL);
            self.wait(WaitOptions::empty());
        }
    }
}

pub(super) fn round(
    stage: &Stage,
    roles: &[Role],
    rig_together: RigTogether,
    interrupted: &AtomicBool,
) -> Result<Vec<Notes>, Fault> {
    let mut rig = Rig::making(&stage.cpus, true);
    let workload = rig_together(&stage.values, &mut rig)?;
    let (_control, control_fd) = Region::<crate::raw::ControlWords>::make()?;
    let rigged = rig.into_inheritable()?;
    inheritable(&control_fd)?;

    let mut started = Vec::new();
    let mut answers = Vec::new();
    for (index, role) in roles.iter().enumerate() {
        let (answer, to) = pipe_with(PipeFlags::CLOEXEC)?;
        inheritable(&to)?;
        let assignment = Assignment {
            spec: stage.spec_id.to_string(),
            contender: stage.contender.to_string(),
            values: stage.values.all().clone(),
            index,
            cpus: stage.cpus.clone(),
            timing: stage.timing,
            count_hardware: stage.count_hardware,
            trace: stage.trace.clone(),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            control: control_fd.as_raw_fd(),
            answer: to.as_raw_fd(),
            rigged: numbers(&rigged),
        };
        let told = serde_json::to_string(&assignment)
            .map_err(|error| Fault::Start { role: role.name.into(), why: error.to_string() })?;
        let process =
            Process::start(&told).map_err(|refused| Fault::not_started(role.name, &refused))?;
        started.push(process);
        answers.push(answer);
    }
    drop((rigged, control_fd));

    let (to, from) = channel();
    for (index, answer) in answers.into_iter().enumerate() {
        let (to, role) = (to.clone(), roles[index]);
        let listening = move || {
            // Nobody listens any more once a fault has ended the round.
            let _ = to.send((index, read_answer(role, answer)));
        };
        thread::Builder::new()
            .spawn(listening)
            .map_err(|refused| Fault::not_started(roles[index].name, &refused))?;
    }
    drop(to);
    let gathered = gather(roles, &from, stage.patience(), interrupted);
    let gathered = match gathered {
        Err(Fault::Died { role, .. }) => {
            let status = describe_dead(&mut started);
            Err(Fault::Died { role, status })
        }
        other => other,
    };
    drop(started);
    let notes = gathered?;
    workload.verify()?;
    Ok(notes)
}

fn read_answer(role: Role, answer: OwnedFd) -> Result<Notes, Fault> {
    let mut text = String::new();
    let read = File::from(answer).read_to_string(&mut text);
    match (read, serde_json::from_str(&text)) {
        (Ok(_), Ok(Answer::Notes(notes))) => Ok(notes),
        (Ok(_), Ok(Answer::Fault(why))) => {
            Err(Fault::Workload(format!("party {}: {why}", role.name)))
        }
        _ => Err(Fault::Died { role: role.name.into(), status: String::new() }),
    }
}

/// The exit status of the first child that ended without having been told to.
fn describe_dead(children: &mut [Process]) -> String {
    for _ in 0..100 {
        for child in children.iter_mut() {
            if let Some(status) = child.status()
                && !status.success()
            {
                return status.to_string();
            }
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    "it closed its answer without giving one".to_string()
}

/// Why a process that was started as a party could not play it, or could not say how it went.
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
}

/// If this process was started as a party, plays that party and says how that went; the caller must
/// then end, with success or with the error. Otherwise returns `None` at once. Call it first thing in
/// `main` of every program that runs a [`Lab`](crate::Lab) with processes: parties are that same
/// program started again.
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
/// It takes over the descriptors that the coordinator left open for it, so it must run before
/// anything else opens or takes over descriptors.
///
/// # Errors
/// What keeps the party from telling its coordinator: a fault while it plays is told there, and is
/// none here.
pub fn dispatch_partner(all: &[&'static [Bench]]) -> Option<Result<(), PartyError>> {
    let told = std::env::var(PARTY_VARIABLE).ok()?;
    Some(play_told(all, &told))
}

fn play_told(all: &[&'static [Bench]], told: &str) -> Result<(), PartyError> {
    let assignment: Assignment = serde_json::from_str(told)
        .map_err(|refused| PartyError::NotAnAssignment(refused.to_string()))?;
    let answered = obey(all, &assignment).and_then(|(answer, to)| write_answer(&answer, to));
    answered.map_err(|fault| PartyError::Fault { index: assignment.index, fault })
}

fn write_answer(answer: &Answer, to: OwnedFd) -> Result<(), Fault> {
    let text = serde_json::to_vec(answer).map_err(|refused| Fault::new(refused.to_string()))?;
    Ok(File::from(to).write_all(&text)?)
}

fn obey(all: &[&'static [Bench]], told: &Assignment) -> Result<(Answer, OwnedFd), Fault> {
    // A coordinator that is killed must not leave parties behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().map(|it| it.as_raw_nonzero().get()) != Some(told.parent) {
        return Err(Fault::new("the coordinator is gone"));
    }
    let mut fds = vec![told.answer, told.control];
    fds.extend(&told.rigged);
    let mut fds = take_over(&fds)?.into_iter();
    let (Some(answer), Some(control)) = (fds.next(), fds.next()) else {
        return Err(Fault::new("too few descriptors"));
    };
    let rigged = fds.collect();
    let played = catch_unwind(AssertUnwindSafe(|| play_assigned(all, told, &control, rigged)));
    Ok(match played {
        Ok(Ok(notes)) => (Answer::Notes(notes), answer),
        Ok(Err(fault)) => (Answer::Fault(fault.to_string()), answer),
        Err(panic) => (Answer::Fault(format!("panicked: {}", words_of(&*panic))), answer),
    })
}

fn play_assigned(
    all: &[&'static [Bench]],
    told: &Assignment,
    control: &OwnedFd,
    rigged: Vec<OwnedFd>,
) -> Result<Notes, Fault> {
    let bench = all
        .iter()
        .flat_map(|benches| benches.iter())
        .find(|it| it.spec().id == told.spec && it.contender().name == told.contender)
        .ok_or_else(|| Fault::new(format!("no benchmark {} [{}]", told.spec, told.contender)))?;
    let mut values = Values::defaults(bench.params());
    for (name, value) in &told.values {
        values.set_checked(name, *value).map_err(|refused| Fault::new(refused.to_string()))?;
    }
    let roles = bench.roles(&values);
    let role = *roles.get(told.index).ok_or_else(|| Fault::new("no such party"))?;
    let cpu = *told.cpus.get(told.index).ok_or_else(|| Fault::new("no CPU for this party"))?;
    affinity::pin(cpu).map_err(|refused| Fault::new(refused.to_string()))?;
    let measured = roles.iter().filter(|role| role.measured).count();
    let control = Control::new(Region::attach(control)?, roles.len(), measured);
    let parts_count = bench.spec().parts.len();
    let samples = Samples::new(told.timing, parts_count, role.measured, Some(control.clone()));
    let party = Party { index: told.index, count: roles.len(), cpu };
    let stage = Stage {
        spec_id: bench.spec().id,
        contender: bench.contender().name,
        values,
        parts_count,
        cpus: told.cpus.clone(),
        timing: told.timing,
        processes: true,
        check: false,
        count_hardware: told.count_hardware,
        trace: told.trace.clone(),
        // The coordinator gives parties up.
        patience: Plan::PATIENCE,
    };
    // Ended before the answer is given: then this process is killed.
    let _tracing = stage.trace.as_ref().map(Tracing::begin).transpose()?;
    let workload = bench.rig_together(&stage.values, &mut Rig::given(&told.cpus, rigged))?;
    play(&*workload, &stage, role, party, &control, samples)
}
