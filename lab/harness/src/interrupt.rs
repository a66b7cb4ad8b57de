//! Signals that ask a benchmark program to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit code of a program that was interrupted.
pub const INTERRUPTED_EXIT_CODE: u8 = 130;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP (unless ignored) set. A second SIGINT terminates
/// the process at once. A second SIGTERM does not: the kernel sends one when cargo ends, and cargo
/// ends when the whole process group gets a signal.
///
/// # Errors
/// If the system refuses a handler.
pub fn interrupt_flag() -> io::Result<Arc<AtomicBool>> {
    let [interrupted, has_sigint] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    // The order matters: the first SIGINT only sets the flag, the second finds it set.
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED_EXIT_CODE.into(), has_sigint.clone())?;
    flag::register(SIGINT, has_sigint)?;
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, interrupted.clone())?;
    }
    if !is_hangup_ignored() {
        flag::register(SIGHUP, interrupted.clone())?;
    }
    Ok(interrupted)
}

/// Returns `true` if this process ignores SIGHUP, as a program that `nohup` has started.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
