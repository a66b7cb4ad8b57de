//! Rows of the classic program `calls`: loops of a traceable function, and recordings of them.
//!
//! The loops are as in [`call`](crate::call): `n` calls, each of which depends on the previous one,
//! and the result proves that none was left out.

use super::ours::{Probes, Switched, WANTED, complete, start};
use super::{Sites, Tracer, bare, between_stamps, calls};
use crate::raw::calls::forget;
use handover_harness::Fault;
use handover_probe::{Config, Summary};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
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
    /// All, written to the file by a thread of its own meanwhile.
    Streamed,
    /// All, in memory, and written to the file in the end.
    AtEnd {
        /// Events that there is room for.
        events_count: u64,
    },
}

/// Bytes of an event in a ring, and of a ring's block with its header and its events.
const EVENT_BYTES: u64 = 8;
const BLOCK_BYTES: u64 = 4096;
const BLOCK_EVENTS: u64 = (BLOCK_BYTES - 32) / EVENT_BYTES;
/// Minimum and maximum size of a ring.
const RING_BYTES_MIN: u64 = 1 << 20;
const RING_BYTES_MAX: u64 = 1 << 32;

/// Returns the size of a ring that has room for so many events, or the maximum.
#[must_use]
pub fn ring_bytes(events_count: u64) -> u64 {
    // One block more: the first may begin in the middle.
    let blocks_count = events_count / BLOCK_EVENTS + 2;
    blocks_count
        .saturating_mul(BLOCK_BYTES)
        .clamp(RING_BYTES_MIN, RING_BYTES_MAX)
        .next_power_of_two()
}

/// Copies a trace that was recorded into memory to its file, without the room that was not used.
/// Returns the bytes written.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_out(memory: &Path, file: &Path) -> io::Result<u64> {
    let (mut from, mut to) = (File::open(memory)?, File::create(file)?);
    let mut written = 0;
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            break;
        }
        if piece[..count].iter().all(|byte| *byte == 0) {
            to.seek_relative(count as i64)?;
        } else {
            to.write_all(&piece[..count])?;
            written += count as u64;
        }
    }
    to.set_len(from.stream_position()?)?;
    Ok(written)
}

/// Counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Number of events recorded, including those overwritten by newer ones.
    pub events_count: u64,
    /// Number of events lost for lack of room.
    pub lost_count: u64,
    /// Bytes of the finished file, without gaps.
    pub bytes: u64,
}

/// Runs `f` while `path` is recorded to, with the probes of [`Inside::TwoProbes`] on, or, if they are not
/// `wanted`, off, as if they were filtered. The rings of what is streamed, and what is written in the end,
/// lie at `rings`.
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
        Kept::Streamed => Config::stream(path).rings_path(rings),
        Kept::AtEnd { events_count } => Config::last(rings).ring_bytes(ring_bytes(events_count)),
    };
    let recording = start(config)?;
    let switched = if wanted { Some(Switched::on(WANTED)?) } else { None };
    let done = f();
    switched.map_or(Ok(()), Switched::off)?;
    let Summary { recorded, lost, overwritten, bytes, .. } = complete(recording.finish())?;
    let recorded = match kept {
        Kept::AtEnd { .. } => {
            let bytes = write_out(rings, path)?;
            Recorded { events_count: recorded, lost_count: lost + overwritten, bytes }
        }
        _ => Recorded { events_count: recorded + overwritten, lost_count: lost, bytes },
    };
    Ok((done, recorded))
}
