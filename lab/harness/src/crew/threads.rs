//! Parties as threads.

use super::{Stage, gather};
use crate::counters;
use crate::fault::Fault;
use crate::raw::{Control, Region};
use crate::rig::Rig;
use crate::samples::{Notes, Samples};
use crate::workload::{Handover, Party, Role, Workload};
use handover_base::affinity;
use handover_record::Args;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// A round of one party: rigged and sampled on a thread of its own, pinned before it allocates.
pub(crate) fn round_alone<W: Workload>(
    stage: &Stage,
    interrupted: &AtomicBool,
) -> Result<Vec<Notes>, Fault> {
    let role = Role::measured("one");
    let (to, from) = channel();
    let inner = stage.clone();
    start(role, 0, to, move || {
        pin(inner.cpus[0])?;
        let args = W::Args::from_values(&inner.values);
        let mut workload = W::rig(&args, &mut Rig::making(&inner.cpus, false))?;
        if inner.check {
            workload.check()?;
            workload = W::rig(&args, &mut Rig::making(&inner.cpus, false))?;
        }
        let mut samples = Samples::new(inner.timing, inner.parts_count, true, None);
        let hardware = counters::Group::open(inner.count_hardware);
        samples.begin();
        workload.sample(&mut samples);
        let mut notes = samples.end();
        notes.hardware = hardware.and_then(counters::Group::read);
        Ok(notes)
    })?;
    gather(&[role], &from, stage.patience(), interrupted)
}

/// A round of several parties that share one rigged workload. Those who are still stuck when patience
/// ends are left behind with it: they own what they use, so the next round is not touched.
pub(super) fn round<H: Handover>(
    stage: &Stage,
    roles: &[Role],
    interrupted: &AtomicBool,
) -> Result<Vec<Notes>, Fault> {
    let workload = rig::<H>(stage)?;
    let (words, _fd) = Region::make()?;
    let measured = roles.iter().filter(|role| role.measured).count();
    let control = Control::new(words, roles.len(), measured);
    let (to, from) = channel();
    for (index, role) in roles.iter().copied().enumerate() {
        let (inner, control, workload) = (stage.clone(), control.clone(), workload.clone());
        let party = Party { index, count: roles.len(), cpu: stage.cpus[index] };
        let body = move || {
            pin(party.cpu)?;
            let samples =
                Samples::new(inner.timing, inner.parts_count, role.measured, Some(control.clone()));
            play(&*workload, &inner, role, party, &control, samples)
        };
        start(role, index, to.clone(), body)?;
    }
    drop(to);
    let notes = gather(roles, &from, stage.patience(), interrupted)?;
    workload.verify()?;
    Ok(notes)
}

/// One party, from the starting line to its end; the same for threads and processes.
pub(super) fn play<H: Handover>(
    workload: &H,
    stage: &Stage,
    role: Role,
    party: Party,
    control: &Control,
    mut samples: Samples,
) -> Result<Notes, Fault> {
    let hardware = counters::Group::open(stage.count_hardware && role.measured);
    control.start_line(!stage.crowded());
    samples.begin();
    let played = workload.play(party, &mut samples);
    if role.measured {
        control.finish();
    }
    let mut notes = samples.end();
    notes.hardware = hardware.and_then(counters::Group::read);
    played.map(|()| notes)
}

/// Rigs on the first party's CPU, so that memory comes from its node.
fn rig<H: Handover>(stage: &Stage) -> Result<Arc<H>, Fault> {
    let (to, from) = channel();
    let inner = stage.clone();
    let role = Role::serving("rig");
    let body = move || {
        pin(inner.cpus[0])?;
        let args = H::Args::from_values(&inner.values);
        Ok(Arc::new(H::rig(&args, &mut Rig::making(&inner.cpus, false))?))
    };
    start(role, 0, to, body)?;
    match from.recv() {
        Ok((_, workload)) => workload,
        Err(_) => Err(Fault::Start { role: "rig".into(), why: "the thread vanished".into() }),
    }
}

fn pin(cpu: u32) -> Result<(), Fault> {
    affinity::pin(cpu).map_err(|refused| Fault::Workload(refused.to_string()))
}

/// Starts a detached thread whose outcome, panics included, comes through the channel.
fn start<T: Send + 'static>(
    role: Role,
    index: usize,
    to: Sender<(usize, Result<T, Fault>)>,
    body: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<(), Fault> {
    let told = move || {
        let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            Err(Fault::Panicked { role: role.name.to_string(), message: words_of(&*panic) })
        });
        // Nobody listens any more once patience has ended.
        let _ = to.send((index, outcome));
    };
    match thread::Builder::new().name(format!("{}-{index}", role.name)).spawn(told) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::Start { role: role.name.into(), why: error.to_string() }),
    }
}

pub(super) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}
