//! All unsafe code of the commands: settings of processes and of the C library that have no safe interface.

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Has the kernel send `signal` to the process that `command` starts when the thread that starts it ends,
/// however it ends. Call it from the main thread, which ends with its process.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(signal))?;
        match getppid() == Some(parent) {
            true => Ok(()),
            // The parent ended before the line above: no signal would come any more.
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(tie) };
}

/// Whether this process ignores a signal, as `nohup` has its program ignore SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only writes the present one to `action`, which is valid for that.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: numbers and a nullable function pointer, which were zeroed and perhaps written since.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns to the system what the C library's allocator has free, where it can.
pub fn trim_heap() {
    // SAFETY: takes a number; the allocator takes its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether standard output was closed when the process was started. The Rust runtime opens `/dev/null` in
/// its place before `main`, so that what is written would vanish without an error.
pub fn is_stdout_closed() -> bool {
    // Relaxed: written before main, by the only thread.
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: asks for the flags of a descriptor, whether or not there is one.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    // Relaxed: nobody else runs yet.
    STDOUT_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the linker's list of functions to call before main; this one uses nothing that the Rust runtime
// has to prepare.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;
