//! A copy of the process.

/// Runs `child` in a forked child of this process, and returns its exit status. The child then ends
/// without running destructors.
pub fn run_in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: takes no arguments. The child has one thread, and calls only what glibc supports
    // after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let has_panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_err();
        // SAFETY: ends the process, and takes no pointers.
        unsafe { libc::_exit(i32::from(has_panicked)) };
    }
    let mut status = 0;
    // SAFETY: `pid` is a child of this process, and `status` is valid for writing.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}
