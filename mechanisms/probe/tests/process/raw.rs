//! The tests' `unsafe`: forking, signals, limits, and an allocator with a probe in it.

use handover_probe::probe;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

/// Ends the process by SIGALRM if it still runs after so many seconds.
pub(crate) fn die_after(seconds: u32) {
    // SAFETY: no arguments but a number; the signal's default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// The calling thread, for [`interrupt`].
pub(crate) fn this_thread() -> libc::pthread_t {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() }
}

/// Has `handler` called whenever a thread of this process is [interrupted](interrupt).
pub(crate) fn on_interrupt(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler records probes, which are made for it, and counts in an atomic.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Interrupts a thread of this process, which must not have ended.
pub(crate) fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller's thread has not ended, and the signal has a handler.
    let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    assert_eq!(sent, 0);
}

/// Events of a thread that outlives `main`.
pub(crate) static OUTLIVING: AtomicU64 = AtomicU64::new(0);

/// Runs after every exit handler, and returns when [`OUTLIVING`] has gone on.
extern "C" fn last_of_all() {
    let begin = OUTLIVING.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(60);
    while begin > 0 && OUTLIVING.load(Ordering::Relaxed) < begin + 1000 {
        assert!(Instant::now() < deadline, "the thread does not go on");
        std::thread::yield_now();
    }
}

// SAFETY: the loader calls what stands in this section when the process ends, without arguments.
#[unsafe(link_section = ".fini_array")]
#[used]
static LAST: extern "C" fn() = last_of_all;

/// Whether allocations are recorded.
pub(crate) static RECORDS_ALLOCATIONS: AtomicBool = AtomicBool::new(false);
/// Allocations while they were.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a probe in it.
struct Probed;

#[global_allocator]
static ALLOCATOR: Probed = Probed;

// SAFETY: what the system's allocator gives and takes is handed through.
unsafe impl GlobalAlloc for Probed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if RECORDS_ALLOCATIONS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            probe!("allocator.alloc", layout.size());
        }
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above, and it came from there.
        unsafe { System.dealloc(memory, layout) }
    }
}
