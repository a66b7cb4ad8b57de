//! Fibers, and eventuals that fibers and threads wait for.

use super::handle::{Exclusive, UserPointer, guard, limit, put, require, take_back};
use crate::status::{Fault, Outcome, handover_status};
use ::handover_fiber::{
    Builder, Config, Eventual, JoinHandle, Runtime, SpawnError, StackError, StartError, current_id,
    is_fiber, readable, readable_timeout, sleep_until_ns, writable, writable_timeout, yield_now,
};
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use handover_status::*;

/// Function that a fiber runs. It must return: neither `longjmp` nor a C++ exception may leave it.
/// Thread-local variables of C are those of the worker thread.
pub type handover_fiber_function =
    Option<unsafe extern "C" fn(argument: *mut c_void) -> *mut c_void>;

/// Worker threads that run fibers; opaque.
pub struct handover_fiber_runtime {
    runtime: Runtime,
}

/// Handle of a spawned fiber, with which it can be joined; opaque.
pub struct handover_fiber {
    join_state: Exclusive<JoinState>,
}

enum JoinState {
    NotJoined(JoinHandle<UserPointer>),
    /// A running call joins the fiber. It uses the handle when it ends.
    Joining,
    Joined,
}

impl handover_fiber {
    /// Sets the state after a join. Another call may read the state at this moment, which does not
    /// take long.
    fn end_join(&self, state: JoinState) -> Outcome {
        loop {
            match self.join_state.enter("fiber") {
                Ok(mut entered) => {
                    *entered = state;
                    return Ok(());
                }
                Err(fault) if fault.status == HANDOVER_WRONG_THREAD => std::thread::yield_now(),
                Err(fault) => return Err(fault),
            }
        }
    }
}

fn joining_fault() -> Fault {
    HANDOVER_WRONG_THREAD.because("fiber: another thread or fiber is joining it")
}

/// Starts a runtime of `workers_count` threads, each fiber of which has a stack of `stack_bytes`
/// bytes (rounded up to pages, 0 for 64 KiB). A fiber that needs more than its stack is ended by
/// SIGSEGV, with a message.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a number outside its range; `HANDOVER_SYSTEM` if a
/// thread cannot be started. Threads: any. Blocking: until the threads have started. Ownership: the
/// caller destroys the runtime.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_runtime_create(
    workers_count: u32,
    stack_bytes: usize,
    runtime: Option<&mut MaybeUninit<Option<Box<handover_fiber_runtime>>>>,
) -> handover_status {
    guard(|| {
        let place = require("runtime", runtime)?;
        let mut config = Config::workers(workers_count);
        if stack_bytes > 0 {
            config.stack_bytes = stack_bytes;
        }
        let runtime = Runtime::new(config).map_err(|error| match error {
            StartError::Thread { .. } | StartError::Pin { .. } => HANDOVER_SYSTEM.because(error),
            _ => HANDOVER_INVALID_ARGUMENT.because(error),
        })?;
        place.write(Some(Box::new(handover_fiber_runtime { runtime })));
        Ok(())
    })
}

/// Waits until all fibers have finished, and stops the threads. Fibers can spawn others meanwhile.
///
/// Errors: `HANDOVER_WRONG_THREAD` if a fiber calls; then nothing is destroyed. Threads: any thread
/// that is not a fiber, while no other thread uses the runtime. Blocking: until all fibers have
/// finished. Ownership: the handle is invalid afterwards; those of fibers stay valid.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_fiber_runtime_destroy(
    runtime: *mut handover_fiber_runtime,
) -> handover_status {
    guard(|| {
        if is_fiber() {
            return Err(HANDOVER_WRONG_THREAD
                .because("runtime: a fiber cannot wait for the end of all fibers"));
        }
        if runtime.is_null() {
            return Err(HANDOVER_NULL_ARGUMENT.because("runtime: must not be null"));
        }
        // SAFETY: the header demands a handle that was not destroyed, and that no other thread
        // uses.
        let runtime = unsafe { Box::from_raw(runtime) };
        runtime.runtime.shutdown();
        Ok(())
    })
}

fn spawn_fault(error: SpawnError) -> Fault {
    match error {
        SpawnError::Stack(StackError::OutOfMemory { .. }) => HANDOVER_OUT_OF_MEMORY.because(error),
        SpawnError::Stack(_) => HANDOVER_SYSTEM.because(error),
        SpawnError::ShuttingDown => HANDOVER_CLOSED.because(error),
        SpawnError::NotInFiber => HANDOVER_WRONG_THREAD.because(error),
        _ => HANDOVER_INVALID_ARGUMENT.because(error),
    }
}

/// Spawns a fiber that runs `function(argument)`; its handle goes to `fiber`. If `fiber` is null,
/// nobody can join it.
///
/// If `runtime` is null, the new fiber belongs to the runtime of the calling fiber, and starts on
/// its worker.
///
/// Errors: `HANDOVER_OUT_OF_MEMORY`; `HANDOVER_SYSTEM` for too many mappings; `HANDOVER_CLOSED` if
/// the runtime is being destroyed; `HANDOVER_WRONG_THREAD` for a null runtime on a thread that is
/// no fiber. Threads: any. Blocking: never. Ownership: the caller joins or destroys the handle; the
/// argument stays the program's, and the fiber uses it on a worker thread.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_spawn(
    runtime: Option<&handover_fiber_runtime>,
    function: handover_fiber_function,
    argument: *mut c_void,
    fiber: Option<&mut MaybeUninit<Option<Box<handover_fiber>>>>,
) -> handover_status {
    guard(|| {
        let function = require("function", function)?;
        let argument = UserPointer(argument);
        // SAFETY: the header demands a function that accepts this argument on a worker thread.
        let run = move || UserPointer(unsafe { function(argument.get()) });
        let builder = Builder::new();
        let handle = match runtime {
            Some(runtime) => builder.spawn_on(&runtime.runtime.handle(), run),
            None => builder.spawn(run),
        };
        let handle = handle.map_err(spawn_fault)?;
        put(
            fiber,
            Some(Box::new(handover_fiber {
                join_state: Exclusive::new(JoinState::NotJoined(handle)),
            })),
        );
        Ok(())
    })
}

/// Waits until the fiber has finished, for at most `timeout_ns`; its result goes to `result`,
/// unless that is null.
///
/// Errors: `HANDOVER_TIMED_OUT`, which sets no last error, after which the fiber can be joined
/// again; `HANDOVER_CLOSED` if it was joined before; `HANDOVER_WRONG_THREAD` if another thread or
/// fiber joins it. Threads: any thread or fiber, one at a time. Blocking: up to `timeout_ns`; a
/// fiber's worker runs others meanwhile. Ownership: the result is now the caller's, as a fiber
/// returns it once; the handle must still be destroyed.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_join(
    fiber: Option<&handover_fiber>,
    timeout_ns: u64,
    result: Option<&mut MaybeUninit<*mut c_void>>,
) -> handover_status {
    guard(|| {
        let fiber = require("fiber", fiber)?;
        // The access ends before the wait: while this fiber waits, another one of this thread may
        // join or destroy.
        let handle = {
            let mut state = fiber.join_state.enter("fiber")?;
            match std::mem::replace(&mut *state, JoinState::Joining) {
                JoinState::NotJoined(handle) => handle,
                JoinState::Joining => return Err(joining_fault()),
                JoinState::Joined => {
                    *state = JoinState::Joined;
                    return Err(HANDOVER_CLOSED.because("fiber: it was joined before"));
                }
            }
        };
        let joined = match limit(timeout_ns) {
            Some(timeout) => handle.join_timeout(timeout),
            None => Ok(handle.join()),
        };
        let (state, outcome) = match joined {
            Ok(Ok(value)) => (JoinState::Joined, Ok(value)),
            Ok(Err(panicked)) => (JoinState::Joined, Err(HANDOVER_PANIC.because(panicked))),
            Err(handle) => (JoinState::NotJoined(handle), Err(HANDOVER_TIMED_OUT.into())),
        };
        fiber.end_join(state)?;
        put(result, outcome?.get());
        Ok(())
    })
}

/// Destroys the handle of a fiber. A fiber that was not joined runs on, and its result is lost.
///
/// Errors: `HANDOVER_WRONG_THREAD` if another thread or fiber joins it; then nothing is destroyed.
/// Threads: any, unless another is about to use it. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_fiber_destroy(fiber: *mut handover_fiber) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a handle that was not destroyed, or null.
        let shared = require("fiber", unsafe { fiber.as_ref() })?;
        match shared.join_state.enter("fiber") {
            Ok(state) if matches!(*state, JoinState::Joining) => return Err(joining_fault()),
            // A call that begins to join holds the state for a moment.
            Err(fault) if fault.status != HANDOVER_PANIC => return Err(fault),
            _ => {}
        }
        // SAFETY: the header demands a handle that was not destroyed.
        unsafe { take_back("fiber", fiber, |it| &it.join_state) }.map(drop)
    })
}

/// Lets other fibers that are ready run first; on a thread that is no fiber, yields the CPU.
///
/// Threads: any. Blocking: until the fibers that are ahead in the queue have run.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_yield() {
    guard(|| {
        yield_now();
        Ok(())
    });
}

/// Sleeps until `deadline_ns` on `CLOCK_MONOTONIC` (`handover_now_ns`).
///
/// Threads: any. Blocking: until then; a fiber's worker runs others meanwhile.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_sleep_until(deadline_ns: u64) {
    guard(|| {
        sleep_until_ns(deadline_ns);
        Ok(())
    });
}

/// Waits until the descriptor is readable, or at its end, or has an error, for at most
/// `timeout_ns`. The descriptor should be non-blocking, as a wait may end without a reason.
///
/// Errors: `HANDOVER_TIMED_OUT`, which sets no last error; `HANDOVER_INVALID_ARGUMENT` for a
/// negative descriptor; `HANDOVER_SYSTEM` for a descriptor that is not open, or on which a fiber
/// cannot wait in epoll, such as a regular file; on a thread that is no fiber, and for a
/// `timeout_ns` of 0, a regular file is ready at once. Threads: any number of threads and fibers at
/// the same time. Blocking: up to `timeout_ns`; a fiber's worker runs others meanwhile. Ownership:
/// the descriptor stays the program's, and must be open meanwhile.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_wait_readable(
    descriptor: i32,
    timeout_ns: u64,
) -> handover_status {
    wait_ready(descriptor, timeout_ns, readable, readable_timeout)
}

/// Waits like `handover_fiber_wait_readable` until the descriptor is writable, or has an error.
///
/// Errors, threads, blocking and ownership: as `handover_fiber_wait_readable`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_wait_writable(
    descriptor: i32,
    timeout_ns: u64,
) -> handover_status {
    wait_ready(descriptor, timeout_ns, writable, writable_timeout)
}

/// Waits until a descriptor is ready: with `wait` without a limit, otherwise with `wait_timeout`.
fn wait_ready<'fd>(
    descriptor: i32,
    timeout_ns: u64,
    wait: impl FnOnce(BorrowedFd<'fd>) -> io::Result<()>,
    wait_timeout: impl FnOnce(BorrowedFd<'fd>, Duration) -> io::Result<bool>,
) -> handover_status {
    guard(|| {
        if descriptor < 0 {
            return Err(HANDOVER_INVALID_ARGUMENT
                .because(format_args!("descriptor={descriptor}: negative")));
        }
        // SAFETY: the number is not -1; the header demands that it is open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let is_ready = match limit(timeout_ns) {
            Some(timeout) => wait_timeout(fd, timeout),
            None => wait(fd).map(|()| true),
        };
        match is_ready {
            Ok(true) => Ok(()),
            Ok(false) => Err(HANDOVER_TIMED_OUT.into()),
            Err(error) => {
                Err(HANDOVER_SYSTEM
                    .because(format_args!("wait for descriptor {descriptor}: {error}")))
            }
        }
    })
}

/// Returns the number of the calling fiber, which is unique in its runtime; `UINT64_MAX` on a
/// thread that is no fiber.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_id() -> u64 {
    let mut id = None;
    guard(|| {
        id = current_id();
        Ok(())
    });
    id.unwrap_or(u64::MAX)
}

/// Pointer that one fiber or thread sets, and for which others wait; opaque.
pub struct handover_fiber_eventual {
    /// `true` from the start of `handover_fiber_eventual_set` to the next reset.
    is_taken: AtomicBool,
    value: AtomicPtr<c_void>,
    event: Eventual,
}

impl handover_fiber_eventual {
    fn value(&self) -> *mut c_void {
        // Acquire: pairs with the Release in set(), which may be a later one than the event was
        // waited for.
        self.value.load(Ordering::Acquire)
    }
}

/// Creates an eventual without a value.
///
/// Threads: any. Blocking: never. Ownership: the caller destroys the eventual.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_eventual_create(
    eventual: Option<&mut MaybeUninit<Option<Box<handover_fiber_eventual>>>>,
) -> handover_status {
    guard(|| {
        require("eventual", eventual)?.write(Some(Box::new(handover_fiber_eventual {
            is_taken: AtomicBool::new(false),
            value: AtomicPtr::new(std::ptr::null_mut()),
            event: Eventual::new(),
        })));
        Ok(())
    })
}

/// Sets the value, and wakes all waiters.
///
/// Errors: `HANDOVER_ALREADY_EXISTS` if it is set. Threads: any number of threads and fibers at the
/// same time. Blocking: never. Ownership: the eventual keeps `value` until it is reset or
/// destroyed, and gives it to each waiter; after an error it does not keep it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_eventual_set(
    eventual: Option<&handover_fiber_eventual>,
    value: *mut c_void,
) -> handover_status {
    guard(|| {
        let eventual = require("eventual", eventual)?;
        let taken = || HANDOVER_ALREADY_EXISTS.because("eventual: it is set; reset it first");
        // Acquire: pairs with the Release in reset(), so that the event is unset here.
        if eventual.is_taken.swap(true, Ordering::Acquire) {
            return Err(taken());
        }
        // Release: publishes what the value points to, to the Acquire in value().
        eventual.value.store(value, Ordering::Release);
        eventual.event.set(()).map_err(|_| taken())
    })
}

/// Waits until the value is set, for at most `timeout_ns`; the value goes to `value`, unless that
/// is null. A time limit of 0 only checks whether it is set.
///
/// Errors: `HANDOVER_TIMED_OUT`, which sets no last error. Threads: any number of threads and
/// fibers at the same time. Blocking: up to `timeout_ns`; a fiber's worker runs others meanwhile.
/// Ownership: `value` is the pointer that was set, which other waiters may get too.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_eventual_wait(
    eventual: Option<&handover_fiber_eventual>,
    timeout_ns: u64,
    value: Option<&mut MaybeUninit<*mut c_void>>,
) -> handover_status {
    guard(|| {
        let eventual = require("eventual", eventual)?;
        let is_set = match (timeout_ns, limit(timeout_ns)) {
            (0, _) => eventual.event.test().is_some(),
            (_, Some(timeout)) => eventual.event.wait_timeout(timeout).is_some(),
            (_, None) => {
                eventual.event.wait();
                true
            }
        };
        if !is_set {
            return Err(HANDOVER_TIMED_OUT.into());
        }
        put(value, eventual.value());
        Ok(())
    })
}

/// Makes the eventual unset. Participants that were waiting when it was set still continue; one
/// that has not read the value yet reads it now, or that of a later set.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if it was not set. Threads: one at a time;
/// others may set and wait. Blocking: yields the CPU while a waiter whose time is up leaves.
/// Ownership: the eventual does not return the value. Participants that were waiting may still get
/// it: what it points to must stay valid until they have returned.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_eventual_reset(
    eventual: Option<&handover_fiber_eventual>,
) -> handover_status {
    guard(|| reset(require("eventual", eventual)?))
}

fn reset(eventual: &handover_fiber_eventual) -> Outcome {
    if !eventual.event.rearm() {
        return Err(HANDOVER_EMPTY.into());
    }
    // Release: pairs with the Acquire in set(): the event is unset before it can be set again.
    eventual.is_taken.store(false, Ordering::Release);
    Ok(())
}

/// Destroys an eventual; null is ignored.
///
/// Threads: any, while nobody waits for it or sets it. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_fiber_eventual_destroy(eventual: Option<Box<handover_fiber_eventual>>) {
    drop(eventual);
}
