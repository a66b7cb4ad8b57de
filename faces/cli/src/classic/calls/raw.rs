//! All unsafe code of `calls`: what a process used, told when it has ended.

use handover_base::usage::Usage;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// Waits for a child to end. Says how it did, and what it used of the processors from its start to its end.
pub(super) fn wait(child: Child) -> io::Result<(ExitStatus, Usage)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: a child of ours that nobody else waits for, as it was moved in here; both places are
        // valid for writing what the call writes there.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, used.as_mut_ptr()) };
        if ended == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: integers, which were zeroed and then written.
    let used = unsafe { used.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    let usage = Usage {
        user_ns: ns(used.ru_utime),
        system_ns: ns(used.ru_stime),
        switches_voluntary: used.ru_nvcsw as u64,
        switches_involuntary: used.ru_nivcsw as u64,
        // The kernel counts in that of the process it was started by: the child itself tells its own.
        rss_max_bytes: 0,
    };
    Ok((ExitStatus::from_raw(status), usage))
}
