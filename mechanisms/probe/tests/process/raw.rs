//! The tests' `unsafe`: forking, and a limit.

/// Runs `child` in a fork of this process, and returns how it ended.
pub(crate) fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: no arguments. The child runs with one thread, as the C library and the code under test
    // allow for.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no process to be had");
    if pid == 0 {
        child();
        exit(1);
    }
    let mut status = 0;
    // SAFETY: a child of ours, and an int to write to.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

/// Ends the process as C programs do, with what is to be done at the end.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: the handlers that it runs are made for it.
    unsafe { libc::exit(code) }
}

/// Writing beyond so many bytes fails, in files of any kind.
pub(crate) fn limit_files(bytes_max: u64) {
    // SAFETY: no signal handler is replaced but the default one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: bytes_max, rlim_max: bytes_max };
    // SAFETY: a limit to read from.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(set, 0);
}
