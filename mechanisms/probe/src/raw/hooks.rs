//! Hooks for forks and the process's exit.

use std::sync::Once;

/// Functions that the C library calls at forks and at the process's exit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessHooks {
    /// Function called before a fork, on the thread that forks.
    pub before_fork: extern "C" fn(),
    /// Function called after a fork in the parent, on the thread that forked.
    pub after_fork_in_parent: extern "C" fn(),
    /// Function called after a fork in the child, on its only thread.
    pub after_fork_in_child: extern "C" fn(),
    /// Function called at the process's exit.
    pub on_exit: extern "C" fn(),
}

/// Installs the functions at the first call. Call it before a lock is taken that a child would
/// inherit as locked.
pub(crate) fn install_hooks(hooks: ProcessHooks) {
    static ONCE: Once = Once::new();
    if cfg!(miri) {
        return; // Miri supports neither; its processes do not finish recordings at exit.
    }
    ONCE.call_once(|| {
        let ProcessHooks {
            before_fork: before,
            after_fork_in_parent,
            after_fork_in_child,
            on_exit,
        } = hooks;
        // SAFETY: `fn` pointers are to functions, which live as long as the program; the C library
        // calls these three around a fork, on the thread that forks.
        let forks = unsafe {
            libc::pthread_atfork(
                Some(before),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            )
        };
        // SAFETY: an `fn` pointer is to a function, which lives as long as the program.
        let exits = unsafe { libc::atexit(on_exit) };
        debug_assert_eq!((forks, exits), (0, 0), "no memory to register the hooks");
    });
}
