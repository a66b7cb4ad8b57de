//! Participants as threads.

use super::stage::{ErasedHandover, RoundParams, SetupFn, collect_results};
use crate::counters::HardwareCounters;
use crate::fault::Fault;
use crate::off_cpu::SwitchRecorder;
use crate::raw::{Control, Region};
use crate::samples::{ParticipantResult, Samples};
use crate::setup::Setup;
use crate::workload::{Participant, Role, Workload};
use handover_base::{affinity, unwind};
use handover_record::Args;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Runs a round of one participant. `play` does the setup and the sampling on a new, pinned thread.
pub(crate) fn run_round_of_one_participant(
    round_params: &RoundParams,
    play: fn(&RoundParams, &mut Setup) -> Result<ParticipantResult, Fault>,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    let role = Role::measured("one");
    let (to, from) = channel();
    let inner = round_params.clone();
    let thread = start(spawn, role, 0, to, move || {
        pin(inner.cpus[0])?;
        let _slack = inner.allocate_slack();
        play(&inner, &mut Setup::for_creator(&inner.cpus, false))
    })?;
    let notes = collect_results(&[role], &from, round_params.patience(), interrupted)?;
    join([thread]);
    Ok(notes)
}

/// Runs a benchmark's only participant on its thread. The workload keeps its type and lives on the
/// stack, so that the measured code is compiled as in a user's program; all other code is compiled
/// once.
pub(crate) fn play_alone<W: Workload>(
    round_params: &RoundParams,
    setup: &mut Setup,
) -> Result<ParticipantResult, Fault> {
    let args = W::Args::from_values(&round_params.values);
    let mut workload = W::setup(&args, setup)?;
    if round_params.check {
        workload.self_test()?;
        workload = W::setup(&args, setup)?;
    }
    let samples = Samples::new(round_params.timing, round_params.parts_count, true, None);
    let mut timed = MeasuredParticipant::prepare(round_params, true, samples);
    timed.samples.start();
    workload.sample(&mut timed.samples);
    Ok(timed.end())
}

/// Runs a round of several participants that share one workload. `spawn` starts their threads; if
/// one cannot be started, the others are stopped. Threads that are still stuck at the time limit
/// are left running; they own what they use, so the next round is not affected.
pub(super) fn run_round(
    mut spawn: impl Spawn,
    round_params: &RoundParams,
    roles: &[Role],
    setup: SetupFn,
    interrupted: &AtomicBool,
) -> Result<Vec<ParticipantResult>, Fault> {
    let (workload, _slack) = set_up(round_params, setup)?;
    let (words, _fd) = Region::create()?;
    let measured = roles.iter().filter(|role| role.measured).count();
    let control = Control::new(words, roles.len(), measured);
    let (to, from) = channel();
    let mut started = Vec::new();
    for (index, role) in roles.iter().copied().enumerate() {
        let (inner, line, workload) = (round_params.clone(), control.clone(), workload.clone());
        let participant = Participant { index, count: roles.len(), cpu: round_params.cpus[index] };
        let body = move || {
            pin(participant.cpu)?;
            let samples =
                Samples::new(inner.timing, inner.parts_count, role.measured, Some(line.clone()));
            play(&*workload, &inner, role, participant, &line, samples)
        };
        match start(&mut spawn, role, index, to.clone(), body) {
            Ok(thread) => started.push(thread),
            Err(fault) => {
                control.cancel_round();
                join(started);
                return Err(fault);
            }
        }
    }
    drop(to);
    let notes = collect_results(roles, &from, round_params.patience(), interrupted)?;
    // All have sent their result and are about to exit; joined, so that they do not overlap with
    // the next round.
    join(started);
    workload.check_round()?;
    Ok(notes)
}

/// Runs one participant, in a thread or a process, from the starting line to its finish.
pub(super) fn play(
    workload: &dyn ErasedHandover,
    round_params: &RoundParams,
    role: Role,
    participant: Participant,
    control: &Control,
    samples: Samples,
) -> Result<ParticipantResult, Fault> {
    let mut timed = MeasuredParticipant::prepare(round_params, role.measured, samples);
    timed.samples.wait_for_full_speed();
    if !control.wait_at_start_line(!round_params.is_crowded()) {
        return Err(Fault::Interrupted);
    }
    timed.samples.start();
    let played = workload.play(participant, &mut timed.samples);
    if role.measured {
        control.finish();
    }
    let notes = timed.end();
    played.map(|()| notes)
}

/// Measurements in progress of one participant: samples and context switches.
struct MeasuredParticipant {
    samples: Samples,
    /// Recorder of the thread's context switches; `None` unless the round is recorded.
    switches: Option<SwitchRecorder>,
}

impl MeasuredParticipant {
    /// Prepares all measurements, and starts to record context switches.
    fn prepare(
        round_params: &RoundParams,
        measured: bool,
        mut samples: Samples,
    ) -> MeasuredParticipant {
        let is_counted = round_params.count_hardware && measured;
        samples.set_hardware_counters(HardwareCounters::open(is_counted));
        MeasuredParticipant { samples, switches: record_switches(round_params) }
    }

    fn end(self) -> ParticipantResult {
        let result = self.samples.finish();
        ParticipantResult { off_cpu: self.switches.and_then(SwitchRecorder::read), ..result }
    }
}

/// Starts to record the thread's context switches if the round is recorded; also creates the
/// thread's ring of events.
fn record_switches(round_params: &RoundParams) -> Option<SwitchRecorder> {
    round_params.trace.as_ref()?;
    handover_probe::prepare();
    SwitchRecorder::open()
}

/// Runs the setup on the first participant's CPU. Returns the workload, and the unused allocation
/// that shifts its memory. The memory is thus allocated on that CPU's NUMA node.
fn set_up(
    round_params: &RoundParams,
    setup: SetupFn,
) -> Result<(Arc<dyn ErasedHandover>, Vec<u8>), Fault> {
    let (to, from) = channel();
    let inner = round_params.clone();
    let role = Role::serving("setup");
    let body = move || {
        pin(inner.cpus[0])?;
        let slack = inner.allocate_slack();
        Ok((setup(&inner.values, &mut Setup::for_creator(&inner.cpus, false))?, slack))
    };
    let thread = start(spawn, role, 0, to, body)?;
    let set_up = match from.recv() {
        Ok((_, workload)) => workload,
        Err(_) => Err(Fault::Start {
            role: "setup".into(),
            why: "the thread exited without a result".into(),
        }),
    };
    join([thread]);
    set_up
}

fn pin(cpu: u32) -> Result<(), Fault> {
    affinity::pin(cpu).map_err(Fault::from_error)
}

/// Function that starts a named thread.
pub(super) trait Spawn: FnMut(String, Body) -> io::Result<JoinHandle<()>> {}
impl<S: FnMut(String, Body) -> io::Result<JoinHandle<()>>> Spawn for S {}

/// Function that a started thread runs.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Maximum time to wait until the kernel has released exiting threads.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Starts a named thread. A thread that was joined counts against the user's limit until the kernel
/// has released it, so a refusal is final once no thread of this process is exiting.
pub(super) fn spawn(name: String, body: Body) -> io::Result<JoinHandle<()>> {
    // Kept here, as a refused thread drops its closure.
    let body = Arc::new(Mutex::new(Some(body)));
    let until = Instant::now() + RELEASE_WAIT_MAX;
    let mut was_exiting = true;
    loop {
        let shared = Arc::clone(&body);
        let run = move || {
            let body = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(body) = body {
                body();
            }
        };
        match thread::Builder::new().name(name.clone()).spawn(run) {
            Err(refused)
                if refused.kind() == io::ErrorKind::WouldBlock
                    && was_exiting
                    && Instant::now() < until =>
            {
                was_exiting = has_exiting_thread();
                if was_exiting {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            other => return other,
        }
    }
}

/// Returns `true` if a thread of this process is exiting.
fn has_exiting_thread() -> bool {
    /// Kernel flag of an exiting thread.
    const PF_EXITING: u64 = 4;
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut stats =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.any(|stat| {
        // The flags are the seventh field after the name, which may contain spaces.
        let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
        let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & PF_EXITING != 0)
    })
}

/// Starts a thread that sends the result of `body` through the channel. A panic is sent as a fault.
fn start<T: Send + 'static>(
    mut spawn: impl Spawn,
    role: Role,
    index: usize,
    to: Sender<(usize, Result<T, Fault>)>,
    body: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<JoinHandle<()>, Fault> {
    let send_result = move || {
        let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            Err(Fault::Panicked { role: role.name.to_string(), message: panic_message(&*panic) })
        });
        // The receiver is closed once the time limit has passed.
        let _ = to.send((index, outcome));
    };
    spawn(format!("{}-{index}", role.name), Box::new(send_result))
        .map_err(|refused| Fault::participant_not_started(role.name, &refused))
}

/// Waits for the end of these threads, which have sent their result or are about to exit.
fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        // The result, a panic included, was received through the channel.
        let _ = thread.join();
    }
}

/// Returns the message of a caught panic, or `no message`.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    unwind::panic_message(panic).unwrap_or("no message").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::stage::{PATIENCE_DEFAULT, setup_erased};
    use super::*;
    use crate::samples::Timing;
    use crate::workload::Handover;
    use handover_record::{ArgValues, Spec};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Participants that play for ever, and the number of existing instances.
    struct Endless;

    static INSTANCES_COUNT: AtomicU32 = AtomicU32::new(0);

    impl Drop for Endless {
        fn drop(&mut self) {
            INSTANCES_COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Handover for Endless {
        type Args = ();
        const SPEC: Spec = Spec::new("test/endless", "").hands_over();
        fn roles(_: &()) -> Vec<Role> {
            vec![Role::measured("first"), Role::serving("second"), Role::serving("third")]
        }
        fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
            INSTANCES_COUNT.fetch_add(1, Ordering::SeqCst);
            Ok(Endless)
        }
        fn play(&self, _: Participant, _: &mut Samples) -> Result<(), Fault> {
            panic!("the round was started although a participant was missing");
        }
    }

    #[test]
    fn participant_that_cannot_start_ends_the_other_participants() {
        let cpu = handover_base::topology::allowed_cpus()[0];
        let round_params = RoundParams {
            spec_id: Endless::SPEC.id,
            contender: "none",
            values: ArgValues::defaults(&[]),
            parts_count: 0,
            cpus: vec![cpu; 3],
            timing: Timing { round_ns: 1000, ..Timing::default() },
            processes: false,
            check: false,
            slack_bytes: 0,
            count_hardware: false,
            trace: None,
            patience: PATIENCE_DEFAULT,
        };
        for last in 0..3 {
            let mut left = last;
            let limited = |name: String, body: Body| match left {
                0 => Err(io::Error::from_raw_os_error(11)),
                _ => {
                    left -= 1;
                    spawn(name, body)
                }
            };
            let roles = Endless::roles(&());
            let going_on = AtomicBool::new(false);
            let setup = setup_erased::<Endless>;
            let said = run_round(limited, &round_params, &roles, setup, &going_on);
            let fault = said.expect_err("the round succeeded without a participant");
            assert!(matches!(&fault, Fault::Start { role, .. } if role == roles[last].name));
            assert!(fault.to_string().contains("ulimit -u"), "{fault}");
            // Each thread holds the workload: none is left when the workload is dropped.
            assert_eq!(
                INSTANCES_COUNT.load(Ordering::SeqCst),
                0,
                "a thread still holds the workload"
            );
        }
    }
}
