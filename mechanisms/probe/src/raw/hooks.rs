//! Being called when the program starts, forks, and ends.

use std::sync::Once;

/// Has the session told of forks and of the process's end, from now on: before anything is locked that a
/// child would find locked.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    if cfg!(miri) {
        return; // Miri has neither; its processes end without a word.
    }
    ONCE.call_once(|| {
        // SAFETY: functions that live as long as the program; they are called in turn around a fork,
        // on the thread that forks.
        let forks = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        // SAFETY: a function that lives as long as the program.
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
    crate::session::process_ends();
}

/// Watches forks and reads HANDOVER_TRACE, before `main` or when the shared object is loaded.
///
/// Only sites are changed here: threads and files wait for the first event, as a loader holds locks.
#[cfg(not(any(miri, handover_loom)))]
// SAFETY: the loader calls what stands in this section, with arguments that a C function may ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

#[cfg(not(any(miri, handover_loom)))]
extern "C" fn start() {
    install();
    crate::environment::apply();
}
