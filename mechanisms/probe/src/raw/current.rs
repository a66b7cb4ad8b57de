//! The calling thread's writer and its phase.

use super::mapping::LaneMemory;
use crate::lane::Writer;
use handover_base::sync::shared::{AtomicBool, Ordering, compiler_fence};
use std::cell::Cell;
use std::ptr;

/// Phase of a thread when it records an event. The thread is in the program or in this crate,
/// belongs to this crate, or is exiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadPhase {
    /// The thread executes the program's code. Its events may create a writer, take locks and wait.
    InProgram,
    /// The thread executes this crate, whose locks it may hold. An event (of a probe in the global
    /// allocator or in a signal handler) must not enter this crate again.
    InProbe,
    /// The thread belongs to this crate, and its events are not recorded.
    InternalThread,
    /// The thread is exiting and no longer has a writer.
    Exited,
}

thread_local! {
    /// Pointer to the thread's writer, or null. Without a destructor, a read is one instruction.
    static WRITER: Cell<*const Writer<LaneMemory>> = const { Cell::new(ptr::null()) };
    /// `true` while the writer is in use. A signal handler that interrupts the thread must not use
    /// it then.
    static IS_BUSY: AtomicBool = const { AtomicBool::new(false) };
    /// Phase of this thread.
    static THREAD_PHASE: Cell<ThreadPhase> = const { Cell::new(ThreadPhase::InProgram) };
    /// ID of the recording that had no free lane for this thread, or 0.
    static REFUSED_BY: Cell<u64> = const { Cell::new(0) };
    /// Guard whose destructor runs when this thread exits.
    static EXIT_GUARD: ExitGuard = const { ExitGuard(Cell::new(drop)) };
}

/// Guard whose destructor passes the thread's writer to a function when the thread exits.
struct ExitGuard(Cell<fn(Writer<LaneMemory>)>);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        THREAD_PHASE.set(ThreadPhase::Exited);
        if let Some(writer) = take_writer() {
            (self.0.get())(*writer);
        }
    }
}

/// Calls `f` with the thread's writer and returns the result. Returns `None` if the thread has no
/// writer, or the writer is in use. It is in use if this is a signal handler that interrupted a
/// use.
///
/// `f` must not call `install_writer`, `take_writer` or `leak_writer`; no caller in this crate
/// does.
///
/// # Cost
/// Two stores and a branch to exclude signal handlers: the cheapest sound way, as a handler may run
/// between any two instructions.
#[inline(always)]
pub(crate) fn with_writer<R>(f: impl FnOnce(&Writer<LaneMemory>) -> R) -> Option<R> {
    // Relaxed: only this thread and its signal handlers access it.
    if is_writer_busy() {
        return None;
    }
    IS_BUSY.with(|is_busy| is_busy.store(true, Ordering::Relaxed));
    // Pairs with the fence below: the compiler moves no access to the writer out of the code
    // between them. A handler that ran before the store has finished with the writer.
    compiler_fence(Ordering::SeqCst);
    let writer = WRITER.get();
    // SAFETY: null, or a Box from install_writer(), which only take_writer() frees. Both run on
    // this thread only, and not while IS_BUSY is set: attach_thread() and prepare() return before
    // they reach them, and the thread's destructor does not run during this call, or this call
    // never returns.
    let answer = unsafe { writer.as_ref() }.map(f);
    compiler_fence(Ordering::SeqCst);
    IS_BUSY.with(|is_busy| is_busy.store(false, Ordering::Relaxed));
    answer
}

/// Returns `true` in a signal handler that interrupted a use of its thread's writer.
#[inline(always)]
pub(crate) fn is_writer_busy() -> bool {
    IS_BUSY.with(|is_busy| is_busy.load(Ordering::Relaxed))
}

/// Counts as lost an event of a signal handler that interrupted the writer. Returns `false` if
/// there is no writer, or its recording has ended. The counts of a finished recording are final.
pub(crate) fn count_interrupted_event() -> bool {
    debug_assert!(is_writer_busy());
    // SAFETY: null or a Box that is not freed while IS_BUSY is set, as in with_writer().
    let writer = unsafe { WRITER.get().as_ref() };
    let open = writer.map(Writer::lane).filter(|lane| !lane.is_closed());
    open.inspect(|lane| lane.count_interrupted()).is_some()
}

/// Makes `writer` the thread's writer. When the thread exits, passes the writer to `on_exit`,
/// unless [`take_writer`] has removed it.
pub(crate) fn install_writer(writer: Writer<LaneMemory>, on_exit: fn(Writer<LaneMemory>)) {
    drop(take_writer());
    WRITER.set(Box::into_raw(Box::new(writer)));
    // The first access registers the destructor.
    EXIT_GUARD.with(|exit| exit.0.set(on_exit));
}

/// Removes and returns the thread's writer; `None` if the thread has none.
pub(crate) fn take_writer() -> Option<Box<Writer<LaneMemory>>> {
    let writer = WRITER.replace(ptr::null()).cast_mut();
    // SAFETY: the pointer came from Box::into_raw in install_writer(), and `replace` above has
    // removed it.
    (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
}

/// Leaks the writer in a forked process. The writer belongs to the parent's recording.
pub(crate) fn leak_writer() {
    WRITER.set(ptr::null());
}

pub(crate) fn thread_phase() -> ThreadPhase {
    THREAD_PHASE.get()
}

/// Marks the calling thread as internal to this crate, so that its events are not recorded.
pub(crate) fn mark_thread_internal() {
    THREAD_PHASE.set(ThreadPhase::InternalThread);
}

/// Guard that keeps events of its thread from starting a recording, locking or waiting.
#[derive(Debug)]
#[must_use]
pub(crate) struct InsideGuard {
    /// Phase of the thread before the guard was created.
    phase_before: ThreadPhase,
}

/// Marks the calling thread as executing this crate, until the guard is dropped.
pub(crate) fn enter_crate() -> InsideGuard {
    let phase_before = THREAD_PHASE.get();
    if phase_before == ThreadPhase::InProgram {
        THREAD_PHASE.set(ThreadPhase::InProbe);
    }
    // Pairs with the fence in drop(): signal handlers that run in between see the phase.
    compiler_fence(Ordering::SeqCst);
    InsideGuard { phase_before }
}

impl Drop for InsideGuard {
    fn drop(&mut self) {
        // Pairs with the fence in enter_crate(): code before this line ran within the phase.
        compiler_fence(Ordering::SeqCst);
        THREAD_PHASE.set(self.phase_before);
    }
}

/// Returns the ID of the recording that had no free lane for this thread, or 0.
pub(crate) fn refusing_session() -> u64 {
    REFUSED_BY.get()
}

/// Stores the ID of the recording that had no free lane for this thread.
pub(crate) fn set_refusing_session(session: u64) {
    REFUSED_BY.set(session);
}
