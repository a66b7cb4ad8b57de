//! All unsafe code of `calls`: reading the resource usage of a child that exited.

use super::resources::ResourceUsage;
use handover_base::usage::Usage;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// Waits for a child to exit; returns its exit status and its resource usage.
pub(super) fn wait_with_usage(child: Child) -> io::Result<(ExitStatus, ResourceUsage)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: `pid` is our child, and nothing else waits for it, as `child` was moved in here;
        // `status` and `used` are valid for writes.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, used.as_mut_ptr()) };
        if ended == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: `rusage` holds integers only, which were zeroed and then written by `wait4`.
    let used = unsafe { used.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    let resources = ResourceUsage {
        usage: Usage {
            user_ns: ns(used.ru_utime),
            system_ns: ns(used.ru_stime),
            switches_voluntary: used.ru_nvcsw as u64,
            switches_involuntary: used.ru_nivcsw as u64,
            // The kernel's value includes memory of the starting process; the child reports its own
            // maximum.
            rss_max_bytes: 0,
            faults_major: used.ru_majflt as u64,
            faults_minor: used.ru_minflt as u64,
        },
        blocks_in: used.ru_inblock as u64,
        blocks_out: used.ru_oublock as u64,
        swaps: used.ru_nswap as u64,
    };
    Ok((ExitStatus::from_raw(status), resources))
}
