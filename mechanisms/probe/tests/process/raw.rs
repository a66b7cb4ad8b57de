//! The tests' `unsafe`: forking, signals, limits, and an allocator with a probe.

use handover_probe::probe;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs `child` in a fork of this process, and returns its wait status.
pub(crate) fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: takes no arguments. The child has one thread, and only calls what the C library and
    // the code under test support after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        child();
        exit(1);
    }
    let mut status = 0;
    // SAFETY: `pid` is a child of this process, and `status` is valid for writing.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

/// Ends the process as C programs do, running the exit handlers.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: every exit handler of the process supports being run here.
    unsafe { libc::exit(code) }
}

/// Makes writing beyond `bytes_max` fail, in files of any kind.
pub(crate) fn limit_files(bytes_max: u64) {
    // SAFETY: sets the signal's action to "ignore"; no code of this process relies on SIGXFSZ.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: bytes_max, rlim_max: bytes_max };
    // SAFETY: `limit` is valid for reading.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(set, 0);
}

/// Makes allocations of address space fail once the process has `bytes_max` bytes of it.
pub(crate) fn limit_address_space(bytes_max: u64) {
    let limit = libc::rlimit { rlim_cur: bytes_max, rlim_max: bytes_max };
    // SAFETY: `limit` is valid for reading.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(set, 0);
}

/// Ends the process by SIGALRM if it still runs after `seconds`.
pub(crate) fn die_after(seconds: u32) {
    // SAFETY: takes a number only; the signal's default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Blocks SIGUSR1, sends it to this process of one thread, and waits for it. Returns `true` if it
/// was this signal.
pub(crate) fn waits_for_its_own_signal() -> bool {
    let mut set = std::mem::MaybeUninit::uninit();
    let mut signal = 0;
    // SAFETY: `set` is valid for writing.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset() has initialized `set`.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1) };
    // SAFETY: `set` is initialized; the old mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: takes a number only; `raise` would send the signal to this thread alone.
    unsafe { libc::kill(std::process::id().cast_signed(), libc::SIGUSR1) };
    // SAFETY: `set` is initialized, and `signal` is valid for writing.
    unsafe { libc::sigwait(set.as_ptr(), &raw mut signal) };
    signal == libc::SIGUSR1
}

/// ID of the calling thread, for [`interrupt`].
pub(crate) fn this_thread() -> libc::pthread_t {
    // SAFETY: takes no arguments.
    unsafe { libc::pthread_self() }
}

/// Sets the `handler` that is called when a thread of this process is [interrupted](interrupt).
pub(crate) fn on_interrupt(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler only records probes, which support signal handlers, and increments an
    // atomic.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Interrupts a thread of this process, which must not have ended.
pub(crate) fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller guarantees that the thread has not ended, and the signal has a handler.
    let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    assert_eq!(sent, 0);
}

/// Number of events of a thread that outlives `main`.
pub(crate) static OUTLIVING: AtomicU64 = AtomicU64::new(0);

/// Runs after every exit handler, and returns when [`OUTLIVING`] has grown by 1,000.
extern "C" fn last_of_all() {
    let begin = OUTLIVING.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(60);
    while begin > 0 && OUTLIVING.load(Ordering::Relaxed) < begin + 1000 {
        assert!(Instant::now() < deadline, "the thread does not go on");
        std::thread::yield_now();
    }
}

// SAFETY: the loader calls the functions in this section without arguments when the process ends.
#[unsafe(link_section = ".fini_array")]
#[used]
static LAST: extern "C" fn() = last_of_all;

/// `true` while allocations are recorded.
pub(crate) static RECORDS_ALLOCATIONS: AtomicBool = AtomicBool::new(false);
/// Number of allocations while they were recorded.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a probe in `alloc`.
struct Probed;

#[global_allocator]
static ALLOCATOR: Probed = Probed;

// SAFETY: both methods pass their arguments to the system's allocator and return its results.
unsafe impl GlobalAlloc for Probed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if RECORDS_ALLOCATIONS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            probe!("allocator.alloc", layout.size());
        }
        // SAFETY: the caller's promises for this method are those that the system's allocator
        // requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same, and `memory` came from the system's
        // allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
