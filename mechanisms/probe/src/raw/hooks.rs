//! Hooks for the program's start, forks and exit.

use std::sync::Once;

/// Installs the hooks for forks and for the process's exit. To be called before a lock is taken
/// that a child would inherit as locked.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    if cfg!(miri) {
        return; // Miri supports neither; its processes do not finish recordings at exit.
    }
    ONCE.call_once(|| {
        // SAFETY: the three functions live as long as the program; the C library calls them around
        // a fork,
        // on the thread that forks.
        let forks = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        // SAFETY: the function lives as long as the program.
        let exits = unsafe { libc::atexit(exit) };
        debug_assert_eq!((forks, exits), (0, 0), "both fail for want of memory only");
    });
}

extern "C" fn before() {
    crate::session::before_fork();
}

extern "C" fn parent() {
    crate::session::after_fork_in_parent();
}

extern "C" fn child() {
    crate::session::after_fork_in_child();
}

extern "C" fn exit() {
    crate::session::on_process_exit();
}

/// Installs the hooks and reads HANDOVER_TRACE, before `main` or when the shared object is loaded.
///
/// It only switches sites: threads and files wait for the first event, as a loader holds locks.
#[cfg(not(any(miri, handover_loom)))]
// SAFETY: the loader calls the functions in this section, with arguments that a C function may
// ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

#[cfg(not(any(miri, handover_loom)))]
extern "C" fn start() {
    install();
    crate::environment::apply();
}
