//! The event machine: messages to oneself, to another thread, and from many senders to one.

pub mod drive;
mod own;
mod pair;
mod queues;
mod serve;
mod topic;

use crate::notify::EventFd;
use handover_event::{Config, ThreadConfig};
use handover_harness::{Bench, Fault, Rig};
use handover_record::{Contender, Wait};
#[cfg(feature = "peers")]
use own::Local;
use own::{
    Array, By, ByAddress, Classic, Deque, Dispatch, Hello, Letter, Looped, Map, Match, Pooled,
};
use pair::{Bare, Beats, Eager, Numbers, OnDescriptor, Parked, Polled, Stream, Streamed};
use queues::Std;
#[cfg(feature = "peers")]
use queues::{Crossbeam, Flume, Kanal, Tokio, TokioMulti};
#[cfg(feature = "peers")]
use serve::Tasks;
use serve::{Grouped, Served, ServedBy};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "peers")]
use topic::Broadcast;
use topic::{Deques, Topical};

fn refused(error: impl std::fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

/// Compares counts with their expected values.
fn same<const N: usize>(what: &str, said: [u64; N], expected: [u64; N]) -> Result<(), Fault> {
    match said == expected {
        true => Ok(()),
        false => Err(Fault::new(format!("{what}: {said:?} instead of {expected:?}"))),
    }
}

/// Returns `true` if participants share a CPU, so that a polling participant must let the others
/// run.
fn crowded(rig: &Rig) -> bool {
    let mut cpus = rig.cpus().to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.len() < rig.cpus().len()
}

/// Something that a participant takes out when its round begins.
struct Seat<T>(Mutex<Option<T>>);

impl<T> Seat<T> {
    fn of(thing: T) -> Seat<T> {
        Seat(Mutex::new(Some(thing)))
    }

    fn take(&self) -> Result<T, Fault> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| Fault::new("the party plays twice"))
    }
}

/// Content of a peer's queue if a message may have several holders.
type Written = Arc<Letter>;

/// The benchmarks of the event machine.
pub const ALL: &[Bench] = &[
    Bench::one::<Array>(Contender::floor("array")),
    Bench::one::<Hello<By<false>>>(Contender::ours("handover")),
    Bench::one::<Deque>(Contender::peer("VecDeque")),
    Bench::one::<Hello<By<true>>>(Contender::ours("handover-pass")),
    Bench::one::<Hello<ByAddress>>(Contender::ours("handover-pass-to")),
    Bench::one::<Hello<Classic>>(Contender::ours("handover-hello")),
    Bench::one::<Looped<Std, u64>>(Contender::peer("std")),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Crossbeam, u64>>(Contender::peer("crossbeam")),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Kanal, u64>>(Contender::peer("kanal")),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Flume, u64>>(Contender::peer("flume")),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Tokio, u64>>(Contender::peer("tokio")),
    #[cfg(feature = "peers")]
    Bench::one::<Local>(Contender::peer("tokio-local").allocates()),
    Bench::one::<Pooled>(Contender::ours("handover")),
    Bench::one::<Looped<Std, Written>>(Contender::peer("std").allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Crossbeam, Written>>(Contender::peer("crossbeam").allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Kanal, Written>>(Contender::peer("kanal").allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Flume, Written>>(Contender::peer("flume").allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Looped<Tokio, Written>>(Contender::peer("tokio").allocates()),
    Bench::one::<Dispatch<handover_event::Table<own::Among, drive::Numbered>>>(Contender::ours(
        "handover",
    )),
    Bench::one::<Dispatch<drive::Search<own::Among, drive::Numbered>>>(Contender::peer("search")),
    Bench::one::<Dispatch<Map>>(Contender::peer("HashMap")),
    Bench::one::<Dispatch<Match>>(Contender::peer("match")),
    Bench::many::<Beats<Eager>>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
    Bench::many::<Numbers<Std, Eager>>(Contender::peer("std").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Crossbeam, Eager>>(
        Contender::peer("crossbeam").waits(Wait::SpinThenSleep),
    ),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Kanal, Eager>>(Contender::peer("kanal").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Flume, Eager>>(Contender::peer("flume").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Tokio, Eager>>(Contender::peer("tokio").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<TokioMulti, Eager>>(Contender::peer("tokio-multi").waits(Wait::Sleep)),
    Bench::many::<Beats<Polled>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Numbers<Std, Polled>>(Contender::peer("std").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Crossbeam, Polled>>(Contender::peer("crossbeam").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Kanal, Polled>>(Contender::peer("kanal").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Numbers<Flume, Polled>>(Contender::peer("flume").waits(Wait::Spin)),
    Bench::many::<Beats<Parked>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<Beats<OnDescriptor>>(Contender::ours("handover-eventfd").waits(Wait::Sleep)),
    Bench::many::<Bare<EventFd>>(Contender::peer("eventfd").waits(Wait::Sleep)),
    Bench::many::<Streamed>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
    Bench::many::<Stream<Std>>(Contender::peer("std").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Crossbeam>>(Contender::peer("crossbeam").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Kanal>>(Contender::peer("kanal").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Flume>>(Contender::peer("flume").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Tokio>>(Contender::peer("tokio").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<TokioMulti>>(Contender::peer("tokio-multi").waits(Wait::Sleep)),
    Bench::many::<Served>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
    Bench::many::<ServedBy<Std>>(Contender::peer("std").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<ServedBy<Crossbeam>>(Contender::peer("crossbeam").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<ServedBy<Kanal>>(Contender::peer("kanal").waits(Wait::SpinThenSleep)),
    #[cfg(feature = "peers")]
    Bench::many::<ServedBy<Flume>>(Contender::peer("flume").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<ServedBy<Tokio>>(Contender::peer("tokio").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<ServedBy<TokioMulti>>(Contender::peer("tokio-multi").waits(Wait::Sleep)),
    Bench::one::<Grouped>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Tasks>(Contender::peer("tokio")),
    Bench::one::<Topical>(Contender::ours("handover")),
    Bench::one::<Deques>(Contender::peer("std").allocates()),
    #[cfg(feature = "peers")]
    Bench::one::<Broadcast>(Contender::peer("tokio").allocates()),
];
