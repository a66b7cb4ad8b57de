//! Child processes of this binary, or of another version of it, that measure one after another.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::raw;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Interval between checks for an interrupt while a child runs. It is long enough not to disturb
/// measurements of the child.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Time from an interrupt until a child that still runs gets SIGTERM. The terminal sends the
/// interrupt to the child too.
const GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Process that has exited.
#[derive(Clone, Copy, Debug)]
pub struct EndedChild {
    /// Id of the process.
    pub id: u32,
    /// Its exit status.
    pub status: ExitStatus,
}

/// Runs a command until it exits, with an empty standard input. The command gets SIGTERM if it does
/// not exit in time after an interrupt, or if this process exits first. Call it from the main
/// thread.
pub fn run(command: &mut Command, interrupted: &AtomicBool) -> anyhow::Result<EndedChild> {
    run_with(command, interrupted, || {})
}

/// Runs a command like [`run`], and calls `each_turn` about every 20 ms while it runs.
pub fn run_with(
    command: &mut Command,
    interrupted: &AtomicBool,
    mut each_turn: impl FnMut(),
) -> anyhow::Result<EndedChild> {
    let program = command.get_program().to_string_lossy().into_owned();
    raw::signal_on_parent_exit(command, Signal::TERM);
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot run {program}"))?;
    // Readable as soon as the child exits.
    let exited = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .with_context(|| format!("cannot wait for {program}"))?;
    let mut interrupted_at: Option<Instant> = None;
    let mut is_terminated = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(EndedChild { id: child.id(), status });
        }
        each_turn();
        // Relaxed: the flag publishes no other data.
        if interrupted.load(Ordering::Relaxed) {
            let since = *interrupted_at.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE_PERIOD && !is_terminated {
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
                is_terminated = true;
            }
        }
        match poll(&mut [PollFd::new(&exited, PollFlags::IN)], Some(&POLL_INTERVAL)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot wait for {program}")),
        }
    }
}
