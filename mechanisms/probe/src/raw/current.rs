//! The writer of the thread that runs, and what the thread is about.

use super::mapping::Memory;
use crate::lane::Writer;
use handover_base::sync::shared::{AtomicBool, Ordering, compiler_fence};
use std::cell::Cell;
use std::ptr;

/// What a thread can do about a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Ready,
    /// It is in this crate's own code, and may hold its locks: what is recorded on the way (by a probe in
    /// the global allocator, or in a signal handler) must not come here again.
    Inside,
    /// It is a thread of this crate, whose events are not the program's.
    Own,
    /// It ends, and has given its writer back.
    Gone,
}

thread_local! {
    /// A Box, or null. Without a destructor, so that reading it is one instruction.
    static WRITER: Cell<*const Writer<Memory>> = const { Cell::new(ptr::null()) };
    /// Whether the writer is in use: a signal handler that interrupts its thread then leaves it alone.
    static IS_BUSY: AtomicBool = const { AtomicBool::new(false) };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Ready) };
    /// The session that has no lane for this thread.
    static REFUSED_BY: Cell<u64> = const { Cell::new(0) };
    static EXIT: Exit = const { Exit };
}

/// Its destructor runs when the thread ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        PHASE.set(Phase::Gone);
        if let Some(writer) = take() {
            crate::session::thread_ends(*writer);
        }
    }
}

/// Calls `f` with the thread's writer; `None` if it has none, or has interrupted itself while it used it.
///
/// `f` must not reach `install`, `take` or `forget`, and nothing in this crate passes one that does.
///
/// # Cost
/// Two stores and a branch to keep signal handlers off: the cheapest that is sound, as a handler may come
/// between any two instructions.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Writer<Memory>) -> R) -> Option<R> {
    // Relaxed: only this thread and its signal handlers read and write it.
    if is_busy() {
        return None;
    }
    IS_BUSY.with(|is_busy| is_busy.store(true, Ordering::Relaxed));
    // Pairs with the one below: the compiler moves nothing of the writer's out of the stretch between. A
    // handler that came before the store has finished its use of the writer.
    compiler_fence(Ordering::SeqCst);
    let writer = WRITER.get();
    // SAFETY: null, or a Box from install(), which only take() gives back. Both of them run on this thread
    // alone, and not while IS_BUSY is set: attach() and prepare() return before they reach them, and a
    // thread's destructor does not run while it is in here, or never returns here.
    let answer = unsafe { writer.as_ref() }.map(f);
    compiler_fence(Ordering::SeqCst);
    IS_BUSY.with(|is_busy| is_busy.store(false, Ordering::Relaxed));
    answer
}

/// Whether this thread has interrupted itself while it used its writer.
#[inline(always)]
pub(crate) fn is_busy() -> bool {
    IS_BUSY.with(|is_busy| is_busy.load(Ordering::Relaxed))
}

/// Counts an event of a signal handler that has interrupted its thread while it used its writer; `false` if
/// the thread has none, or one of a recording that is finished and adds up no more.
pub(crate) fn count_interrupted() -> bool {
    debug_assert!(is_busy());
    // SAFETY: as in with(): while IS_BUSY is set, nobody gives the writer back.
    let writer = unsafe { WRITER.get().as_ref() };
    let open = writer.map(Writer::lane).filter(|lane| !lane.is_closed());
    open.inspect(|lane| lane.count_interrupted()).is_some()
}

/// Makes `writer` the thread's, until it ends or `take` is called.
pub(crate) fn install(writer: Writer<Memory>) {
    drop(take());
    WRITER.set(Box::into_raw(Box::new(writer)));
    // The first use registers the destructor.
    EXIT.with(|_| ());
}

/// The thread's writer, which then has none.
pub(crate) fn take() -> Option<Box<Writer<Memory>>> {
    let writer = WRITER.replace(ptr::null()).cast_mut();
    // SAFETY: it came from Box::into_raw in install(), and is taken out of WRITER here, once.
    (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
}

/// Leaves the writer to the process that this one was forked from: it is never dropped here.
pub(crate) fn forget() {
    WRITER.set(ptr::null());
}

pub(crate) fn phase() -> Phase {
    PHASE.get()
}

/// Marks this thread as one of this crate's own.
pub(crate) fn become_own() {
    PHASE.set(Phase::Own);
}

/// While it lives, no event of this thread begins a recording, takes a lock or waits.
#[derive(Debug)]
#[must_use]
pub(crate) struct Inside {
    before: Phase,
}

/// Keeps this thread's events from coming back here.
pub(crate) fn enter() -> Inside {
    let before = PHASE.get();
    if before == Phase::Ready {
        PHASE.set(Phase::Inside);
    }
    // Pairs with the one in drop(): for this thread's signal handlers, what follows is inside.
    compiler_fence(Ordering::SeqCst);
    Inside { before }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Pairs with the one in enter(): what comes before was inside.
        compiler_fence(Ordering::SeqCst);
        PHASE.set(self.before);
    }
}

pub(crate) fn refused_by() -> u64 {
    REFUSED_BY.get()
}

pub(crate) fn set_refused_by(session: u64) {
    REFUSED_BY.set(session);
}
