//! Processes of this binary, or of another version of it, that measure one after the other.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::raw;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// How often a child is looked at: far less work than disturbs it.
const LOOK: Duration = Duration::from_millis(20);
/// How long a child may take to end by the signal that it has had from its terminal.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a command to its end, with nothing to read. It is asked to end when this process is, and when this
/// process ends without it. Call it from the main thread.
pub fn run(command: &mut Command, interrupted: &AtomicBool) -> anyhow::Result<ExitStatus> {
    let shown = command.get_program().to_string_lossy().into_owned();
    raw::end_with_parent(command, Signal::TERM);
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut asked: Option<Instant> = None;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // Relaxed: a flag alone.
        if interrupted.load(Ordering::Relaxed) {
            let since = *asked.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE && !told {
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
                told = true;
            }
        }
        std::thread::sleep(LOOK);
    }
}
