//! The writer of the thread that runs.

use super::mapping::Memory;
use crate::lane::Writer;
use std::cell::Cell;
use std::ptr;

/// What a thread can do about a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Ready,
    /// It is getting one: what is recorded on the way would come here again.
    Attaching,
    /// It ends, and has given its writer back.
    Gone,
}

thread_local! {
    /// A Box, or null. Without a destructor, so that reading it is one instruction.
    static WRITER: Cell<*const Writer<Memory>> = const { Cell::new(ptr::null()) };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Ready) };
    static NEVER_WAITS: Cell<bool> = const { Cell::new(false) };
    /// The session that has no lane for this thread.
    static REFUSED_BY: Cell<u64> = const { Cell::new(0) };
    static EXIT: Exit = const { Exit };
}

/// Its destructor runs when the thread ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        set_phase(Phase::Gone);
        if let Some(writer) = take() {
            crate::session::thread_ends(*writer);
        }
    }
}

/// Calls `f` with the thread's writer, if it has one.
///
/// `f` must not reach `install`, `take` or `forget`, and nothing in this crate passes one that does.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Writer<Memory>) -> R) -> Option<R> {
    let writer = WRITER.get();
    if writer.is_null() {
        return None;
    }
    // SAFETY: a Box from install(), which only take() gives back, and that takes it out of WRITER; both
    // run on this thread and not while `f` does.
    Some(f(unsafe { &*writer }))
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

pub(crate) fn set_phase(phase: Phase) {
    PHASE.set(phase);
}

pub(crate) fn refused_by() -> u64 {
    REFUSED_BY.get()
}

pub(crate) fn set_refused_by(session: u64) {
    REFUSED_BY.set(session);
}

/// This thread makes the room that others wait for.
pub(crate) fn never_wait() {
    NEVER_WAITS.set(true);
}

pub(crate) fn never_waits() -> bool {
    NEVER_WAITS.get()
}
