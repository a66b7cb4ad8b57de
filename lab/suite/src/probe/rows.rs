//! Rows of the classic program `calls`: loops of a traceable function, and recordings of them.
//!
//! The loops are as in [`call`](crate::call): `n` calls, each of which depends on the previous one,
//! and the result proves that none was left out.

use super::ours::{Probes, Switched, WANTED};
use super::{Sites, Tracer, bare, between_stamps, calls, refused};
use crate::raw::calls::forget;
use handover_base::{affinity, topology};
use handover_harness::Fault;
use handover_probe::{Config, Recording, Summary};
use std::path::Path;

/// Work of the function besides adding one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inside {
    /// No further work.
    Nothing,
    /// Calls two further functions, at its begin and at its end.
    TwoCalls,
    /// Reads the clock twice and discards the time stamps.
    TwoStamps,
    /// Has a probe that is off.
    OneProbe,
    /// Has a probe at its begin and one at its end, which are off unless [`recording`] enables
    /// them.
    TwoProbes,
}

/// Calls the function `n` times and returns the number counted, which is `n`.
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

/// Events that a recording keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The newest events, in memory.
    Newest,
    /// All events, written to the file by a thread.
    All,
}

/// Counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Number of events recorded, including those overwritten by newer ones.
    pub events_count: u64,
    /// Number of events lost for lack of room.
    pub lost_count: u64,
    /// Size of the finished file.
    pub bytes: u64,
}

/// Runs `f` during a recording to `path`, with the probes of [`Inside::TwoProbes`] on or, if not
/// `wanted`, off as if they were filtered. A streaming recording has its rings at `rings`.
///
/// # Errors
/// Fails if the files cannot be created or the code cannot be changed, and if the recording stopped
/// early, for example on a full disk; the message is the operating system's.
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
    // The writing thread inherits the affinity of this one, which would put it on the measured CPU.
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
