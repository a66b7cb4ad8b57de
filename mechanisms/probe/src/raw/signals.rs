//! Blocking of signals in the calling thread.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Signals of faults. They stay unblocked: the kernel ends a process whose thread blocks a signal
/// that its own fault raises, and the handler of SIGBUS must run.
const FAULT_SIGNALS: [libc::c_int; 4] = [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL];

/// Guard during which the calling thread blocks all signals but those of faults. Threads that it
/// spawns meanwhile inherit this for good. Dropping the guard restores the thread's signal mask.
#[derive(Debug)]
pub(crate) struct SignalsBlocked {
    /// Signal mask before the guard; `None` if it was not changed.
    before: Option<libc::sigset_t>,
    /// Makes the guard `!Send`: the mask is that of one thread.
    _thread: PhantomData<*const ()>,
}

/// Blocks all signals but those of faults in the calling thread.
pub(crate) fn block_signals() -> SignalsBlocked {
    if cfg!(miri) {
        return SignalsBlocked { before: None, _thread: PhantomData }; // Miri has no signals.
    }
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `set` is valid for writing.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in FAULT_SIGNALS {
        // SAFETY: sigfillset() has initialized `set`; it fails only for an invalid pointer.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: sigfillset() has initialized `set`, and `before` is valid for writing.
    let error =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: pthread_sigmask() initializes `before` if it succeeds.
    let before = (error == 0).then(|| unsafe { before.assume_init() });
    SignalsBlocked { before, _thread: PhantomData }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        // SAFETY: `before` is a signal mask that pthread_sigmask() has returned; no old mask is
        // requested.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}
