//! All unsafe code of the commands: settings of processes and of the C library without a safe
//! interface.

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes the kernel send `signal` to the child when the parent thread exits. The child is the
/// process started by `command`; the thread may exit for any reason. Call it from the main thread,
/// which lives as long as its process.
pub fn signal_on_parent_exit(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(signal))?;
        match getppid() == Some(parent) {
            true => Ok(()),
            // The parent has exited before the line above, so no signal would be sent.
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls; it does not allocate or
    // take a lock.
    unsafe { command.pre_exec(tie) };
}

/// Returns `true` if this process ignores the signal. A program started by `nohup` ignores SIGHUP,
/// for example.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the new action is null, so the call only writes to `action`, which is valid for
    // writes.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: `sigaction` holds integers and a nullable function pointer, for which zeroed memory
    // is valid.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns free memory of the C library's allocator to the system; does nothing without glibc.
pub fn trim_heap() {
    // SAFETY: `malloc_trim` takes an integer and no pointer; glibc takes its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns `true` if standard output was closed when the process started. The Rust runtime
/// opens `/dev/null` in its place before `main`, so that output would be lost without an error.
pub fn is_stdout_closed() -> bool {
    // Relaxed: written before main, by the only thread.
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// `true` if standard output was closed when the process started.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Sets [`STDOUT_CLOSED`] before `main`, if standard output is closed.
extern "C" fn check_stdout() {
    // SAFETY: `F_GETFD` only reads the flags of a descriptor, and fails if the descriptor is
    // closed.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    // Relaxed: no other thread runs yet.
    STDOUT_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Entry in the list of functions that the loader calls before `main`.
// SAFETY: `.init_array` lists functions that the loader calls before main with the C ABI;
// `check_stdout` uses nothing that the Rust runtime initialises.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = check_stdout;
