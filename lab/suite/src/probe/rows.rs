//! Rows of the classic program `calls`: loops of a traceable function, and recordings of them.
//!
//! The loops are as in [`call`](crate::call): `n` calls, each of which depends on the previous one,
//! and the result proves that none was left out.

use super::ours::{EnabledSites, Probes, RECORDED_SPAN, check_complete, start_recording};
use super::{Sites, Tracer, add_one, add_one_between_readings, call_repeatedly};
use crate::raw::calls::hide_value;
use handover_harness::Fault;
use handover_probe::{Config, Summary};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Work of the measured function besides adding one: none, calls, clock readings or probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionBody {
    /// The function does no further work.
    Nothing,
    /// The function calls two further functions, at its start and at its end.
    TwoCalls,
    /// The function reads the clock twice and discards the time stamps.
    TwoStamps,
    /// The function has one disabled probe.
    OneProbe,
    /// The function has a probe at its start and one at its end. They are disabled unless
    /// [`record_calls`] enables them.
    TwoProbes,
}

/// Calls the function with this body `n` times. Returns the number of calls that it counted, which
/// is `n`.
#[must_use]
pub fn count_calls(body: FunctionBody, n: u64) -> u64 {
    match body {
        FunctionBody::Nothing => call_repeatedly(n, add_one),
        FunctionBody::TwoCalls => call_repeatedly(n, two_calls),
        FunctionBody::TwoStamps => call_repeatedly(n, add_one_between_readings),
        FunctionBody::OneProbe => call_repeatedly(n, Probes::site),
        FunctionBody::TwoProbes => call_repeatedly(n, Probes::recorded_span),
    }
}

/// Returns `x + 1`, and calls two further functions, at its start and at its end.
#[inline(never)]
fn two_calls(x: u64) -> u64 {
    hide_value(add_one(x));
    let y = x.wrapping_add(1);
    hide_value(add_one(y));
    y
}

/// Events that a recording keeps. They are the newest, or all, written to the file during the run
/// or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retention {
    /// The newest events are kept, in memory.
    Newest,
    /// All events are kept; a separate thread writes them to the file during the run.
    Streamed,
    /// All events are kept, in memory, and are written to the file at the end.
    AtEnd {
        /// Maximum number of events.
        events_count: u64,
    },
}

const EVENT_BYTES: u64 = 8;
const BLOCK_BYTES: u64 = 4096;
const BLOCK_EVENTS: u64 = (BLOCK_BYTES - 32) / EVENT_BYTES;
const RING_BYTES_MIN: u64 = 1 << 20;
const RING_BYTES_MAX: u64 = 1 << 32;

/// Returns the size in bytes of a ring that holds `events_count` events, at most 4 GiB.
#[must_use]
pub fn ring_bytes(events_count: u64) -> u64 {
    // One block more: the first may start in the middle.
    let blocks_count = events_count / BLOCK_EVENTS + 2;
    blocks_count
        .saturating_mul(BLOCK_BYTES)
        .clamp(RING_BYTES_MIN, RING_BYTES_MAX)
        .next_power_of_two()
}

/// Copies a trace from memory to a file, with holes for unused space. Returns the number of bytes
/// written.
///
/// # Errors
/// If a file cannot be read or written.
pub fn copy_trace_to_file(memory: &Path, file: &Path) -> io::Result<u64> {
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

/// Numbers of events that were recorded and lost, and the size of the recording's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingCounts {
    /// Number of events recorded, including those overwritten by newer ones.
    pub events_count: u64,
    /// Number of events lost because the memory was full.
    pub lost_count: u64,
    /// Size of the finished file in bytes, without holes.
    pub bytes: u64,
}

/// Calls `f` while events are recorded to `path`. Returns the result of `f`, and the counts of
/// events. The probes of [`FunctionBody::TwoProbes`] are enabled if `is_enabled`, and otherwise
/// disabled, as if filtered out. The rings are stored in the file `rings` if the trace is streamed
/// or written at the end.
///
/// # Errors
/// Fails if the files cannot be created or the code cannot be changed, and if the recording stopped
/// early, for example on a full disk; the message is the operating system's.
pub fn record_calls<T>(
    retention: Retention,
    is_enabled: bool,
    [path, rings]: [&Path; 2],
    f: impl FnOnce() -> T,
) -> Result<(T, RecordingCounts), Fault> {
    let config = match retention {
        Retention::Newest => Config::last(path),
        Retention::Streamed => Config::stream(path).rings_path(rings),
        Retention::AtEnd { events_count } => {
            Config::last(rings).ring_bytes(ring_bytes(events_count))
        }
    };
    let recording = start_recording(config)?;
    let switched = if is_enabled { Some(EnabledSites::enable(RECORDED_SPAN)?) } else { None };
    let done = f();
    switched.map_or(Ok(()), EnabledSites::disable)?;
    let Summary { recorded, lost, overwritten, bytes, .. } = check_complete(recording.finish())?;
    let recorded = match retention {
        Retention::AtEnd { .. } => {
            let bytes = copy_trace_to_file(rings, path)?;
            RecordingCounts { events_count: recorded, lost_count: lost + overwritten, bytes }
        }
        _ => RecordingCounts { events_count: recorded + overwritten, lost_count: lost, bytes },
    };
    Ok((done, recorded))
}
