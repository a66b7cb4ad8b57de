//! The rows of the classic program `calls`: loops of a function that could be traced, and recording them.
//!
//! Loops as in [`call`](crate::call): `n` calls, each of which needs the one before it, and the result proves
//! that none was left out.

use super::ours::{Probes, Switched, WANTED};
use super::{Sites, Tracer, bare, between_stamps, calls, refused};
use crate::raw::calls::forget;
use handover_base::{affinity, topology};
use handover_harness::Fault;
use handover_probe::{Config, Recording, Summary};
use std::path::Path;

/// What the function does beside adding one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inside {
    /// Nothing.
    Nothing,
    /// It calls two further functions, where it begins and where it ends.
    TwoCalls,
    /// It tells the time twice and keeps it nowhere.
    TwoStamps,
    /// A probe, which is off.
    OneProbe,
    /// A probe where it begins and one where it ends, off unless [`recording`] is told otherwise.
    TwoProbes,
}

/// Calls the function `n` times and returns how many it counted, which is `n`.
#[must_use]
pub fn turns(inside: Inside, n: u64) -> u64 {
    match inside {
        Inside::Nothing => calls(n, bare),
        Inside::TwoCalls => calls(n, two_calls),
        Inside::TwoStamps => calls(n, between_stamps),
        Inside::OneProbe => calls(n, Probes::site),
        Inside::TwoProbes => calls(n, Probes::wanted),
    }
}

#[inline(never)]
fn two_calls(x: u64) -> u64 {
    forget(bare(x));
    let y = x.wrapping_add(1);
    forget(bare(y));
    y
}

/// What is kept of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The newest events, in memory.
    Newest,
    /// All, written to the file by a thread of its own.
    All,
}

/// What a recording came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Events that were recorded, those that newer ones took the place of included.
    pub events_count: u64,
    /// Events for which there was no room.
    pub lost_count: u64,
    /// The finished file.
    pub bytes: u64,
}

/// Runs `f` while `path` is recorded to, with the probes of [`Inside::TwoProbes`] on, or, if they are not
/// `wanted`, off, as if they were filtered. The rings of what is streamed lie at `rings`.
///
/// # Errors
/// If the files cannot be made or the code cannot be changed, and if recording stopped early, as on a disk
/// that is full: in the words of the operating system.
pub fn recording<T>(
    kept: Kept,
    wanted: bool,
    [path, rings]: [&Path; 2],
    f: impl FnOnce() -> T,
) -> Result<(T, Recorded), Fault> {
    let config = match kept {
        Kept::Newest => Config::last(path),
        Kept::All => Config::stream(path).rings_path(rings),
    };
    // The writing thread goes where this one may, which would be to the CPU that is measured.
    let home = affinity::mask();
    affinity::set_mask(&topology::allowed()).map_err(refused)?;
    let recording = Recording::start(config).map_err(refused);
    affinity::set_mask(&home).map_err(refused)?;
    let recording = recording?;
    let switched = if wanted { Some(Switched::on(WANTED)?) } else { None };
    let done = f();
    switched.map_or(Ok(()), Switched::off)?;
    let Summary { recorded, lost, overwritten, bytes, failure, .. } = recording.finish();
    match failure {
        None => {
            let events_count = recorded + overwritten;
            Ok((done, Recorded { events_count, lost_count: lost, bytes }))
        }
        Some(failure) => Err(Fault::new(format!("recording stopped early: {failure}"))),
    }
}
