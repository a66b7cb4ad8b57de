//! Control block of a fiber, at the upper end of its stack, and the switches to and from the fiber.
//!
//! ```text
//!  limit                                                  top of the stack
//!  ┌───────────────── ─ ─ ──────────────┬──────────────────────┬─────────┐
//!  │ unused, then frames of the closure │ closure, then result │ control │
//!  └───────────────── ─ ─ ──────────────┴──────────────────────┴─────────┘
//! ```
//!
//! All data of a fiber is on its stack, and in one page as long as it is small: spawning allocates
//! nothing.
//!
//! # Why a suspended fiber may move to another thread
//! The switch does not know what is on a stack. This module does:
//!
//! - A fiber that has **not begun** consists of its closure, which is `Send` unless the fiber was
//!   spawned as local ([`FiberSpec::is_local`]); a local fiber is never handed to another worker.
//! - A fiber that **has begun** moves to another worker only in a runtime made by
//!   `Runtime::stealing_suspended`, which takes an `unsafe` promise: no fiber holds thread-bound
//!   data across a suspension. Everything else on its stack was made from a `Send` closure, moves
//!   with it, and is accessed by one thread at a time, since a [`Runnable`] has one owner and moves
//!   through queues that synchronise.
//! - **Thread-local variables** are the subject of the promise: a reference that `LocalKey::with`
//!   has lent, or an address that the compiler kept, belongs to the previous thread. This crate's
//!   own thread-local variable is read in functions that are never inlined (`current.rs`).
//! - The **count of panics** is such a variable, in the standard library: a fiber that is suspended
//!   while it unwinds stays on its worker ([`FiberControl::is_pinned`]).
//! - The switch itself keeps no thread-bound data: a worker writes the address of its own context
//!   into each fiber that it resumes. A fiber switches directly to another fiber only if no worker
//!   steals, so that both belong to the same worker. If the other fiber has not started, it copies
//!   the address from the fiber that has switched to it.

use super::gate::{Gate, PreviousState};
use super::queue::{Linked, ListLink};
use super::sanitizer::{self, SanitizerState};
use super::stack::{IS_SANITIZED, STACK_HEAD_BYTES, Stack, StackPool};
use super::switch::{Context, switch};
use super::waiter::Waiter;
use handover_base::prefetch;
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;
/// Number of cache lines of a suspended fiber's stack frames to prefetch. They suffice for all
/// frames of a simple fiber.
const FRAME_LINES: usize = 7;

/// Request with which a fiber switches to its worker to yield. Any other request but
/// [`FINISH_REQUEST`] is the address of the `Commit` that the worker is to call with the fiber.
const YIELD_REQUEST: *mut () = ptr::null_mut();
/// Request with which a fiber that has finished switches to its worker.
const FINISH_REQUEST: *mut () = ptr::without_provenance_mut(1);
const _: () = assert!(align_of::<Commit>() > 1, "1 must not be the address of a commit");

/// Address of the state of a fiber's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HomeAddress(pub(super) NonNull<()>);

/// Properties with which a fiber is created.
#[derive(Debug)]
pub(crate) struct FiberSpec {
    pub(crate) home: HomeAddress,
    pub(crate) priority_level: u8,
    /// Index of the fiber's pool in its runtime.
    pub(crate) pool: u16,
    /// `true` if the fiber never moves to another worker.
    pub(crate) is_local: bool,
    /// `true` if the fiber does not move to another worker before it has started.
    pub(crate) is_worker_fixed: bool,
    /// `true` if the fiber may move to another worker while it is suspended.
    pub(crate) can_migrate: bool,
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<str>>,
}

/// Control block of a fiber. Two cache lines: the first holds what waking and resuming need.
#[repr(C, align(64))]
pub(crate) struct FiberControl {
    /// Link in a run queue or inbox, and the stack pointer while the fiber is suspended.
    context: Context,
    /// Worker on which the fiber runs when it is woken.
    home: Cell<HomeAddress>,
    /// Context of the worker on which the fiber runs or has run last; null before it starts.
    worker: Cell<*const Context>,
    priority_level: u8,
    /// `true` while the fiber must stay on its worker: always for a local fiber, otherwise during a
    /// wait with a deadline.
    is_local: Cell<bool>,
    /// `true` if the fiber may move to another worker while it is suspended.
    can_migrate: bool,
    /// `true` if the fiber must not move to another worker at present.
    is_pinned: Cell<bool>,
    has_panicked: Cell<bool>,
    /// Index of the fiber's pool in its runtime.
    pool: u16,
    /// Gate that is opened when the fiber has finished, and abandoned when the fiber's handle is
    /// dropped.
    finished: Gate<Waiter>,
    /// Address of the result; null if the fiber was spawned without a handle.
    result: *mut u8,
    /// Function that drops the result if no handle has read it.
    drop_result: unsafe fn(*mut u8),
    /// Address of the closure, until the fiber starts.
    closure: *mut u8,
    id: u64,
    /// Name of the fiber, if it has one; boxed to save space in the control block.
    name: Option<Box<Arc<str>>>,
    stack_pool: &'static StackPool,
    sanitizer_state: SanitizerState,
}

const _: () = assert!(size_of::<FiberControl>() == STACK_HEAD_BYTES || IS_SANITIZED);
const _: () = assert!(
    size_of::<FiberControl>() <= STACK_HEAD_BYTES && align_of::<FiberControl>() == LINE_BYTES
);

impl FiberControl {
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref().map(|name| &**name)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Prefetches the control block at `at`.
    #[inline]
    pub(super) fn prefetch(at: *const u8) {
        for line in 0..size_of::<Self>() / LINE_BYTES {
            prefetch::for_read(at.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// Fiber that is suspended or has not started, and the exclusive right to run it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Runnable(NonNull<FiberControl>);

// SAFETY: the module's documentation shows that no suspended fiber depends on its thread.
unsafe impl Send for Runnable {}

// SAFETY: the link is the first field of the `repr(C)` context, which is the first field of the
// `repr(C)` control block. The block neither moves nor is freed before the fiber has ended.
unsafe impl Linked for Runnable {
    #[inline]
    fn into_link(self) -> NonNull<ListLink> {
        self.0.cast()
    }

    #[inline]
    unsafe fn from_link(link: NonNull<ListLink>) -> Self {
        Self(link.cast())
    }
}

/// Fiber that has switched to its worker, and the reason. It has yielded, waits, or has finished.
#[derive(Debug)]
pub(crate) enum ResumeOutcome {
    /// The fiber yielded to other fibers and is ready.
    Yielded(Runnable),
    /// The fiber suspended itself to wait, and its `Commit` was called. Contains the fiber if it
    /// need not wait after all.
    Parked(Option<Runnable>),
    /// The fiber has finished.
    Finished(FinishedFiber),
}

/// Fiber that has finished, but whose waiters are not notified yet.
#[derive(Debug)]
pub(crate) struct FinishedFiber(NonNull<FiberControl>);

impl Runnable {
    #[inline]
    fn control(&self) -> &FiberControl {
        // SAFETY: the control block is valid until its fiber has ended, and `self` owns the fiber.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn control_address(&self) -> NonNull<FiberControl> {
        self.0
    }

    /// Returns the running fiber, for the run queue of its worker. The caller suspends the fiber
    /// right after that, and no other worker takes fibers from the queue.
    #[inline]
    pub(crate) fn of_yielding(running: NonNull<FiberControl>) -> Self {
        Self(running)
    }

    /// Returns the address of the state of the fiber's worker.
    #[inline]
    pub(crate) fn home(&self) -> HomeAddress {
        self.control().home.get()
    }

    /// Assigns the fiber to another worker.
    pub(crate) fn set_home(&self, home: HomeAddress) {
        self.control().home.set(home);
    }

    #[inline]
    pub(crate) fn priority_level(&self) -> usize {
        self.control().priority_level as usize
    }

    /// Returns the index of the fiber's pool in its runtime.
    #[inline]
    pub(crate) fn pool(&self) -> u16 {
        self.control().pool
    }

    /// Returns the fiber's identification number.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.control().id
    }

    /// Returns `true` if the fiber may move to another worker in its present state.
    pub(crate) fn can_migrate(&self) -> bool {
        let control = self.control();
        let is_fresh = control.worker.get().is_null();
        let is_fixed = control.is_local.get() || control.is_pinned.get();
        !is_fixed && (is_fresh || control.can_migrate)
    }

    /// Converts the fiber into a pointer to its control block.
    #[inline]
    pub(super) fn into_control(self) -> NonNull<FiberControl> {
        self.0
    }

    /// Converts a pointer from [`into_control`](Self::into_control) back into the fiber.
    ///
    /// # Safety
    /// `control` must come from `into_control`, and each such address must be converted back at
    /// most once.
    #[inline]
    pub(super) unsafe fn from_control(control: NonNull<FiberControl>) -> Self {
        Self(control)
    }

    /// Prefetches the stack frames that the fiber will access first when it resumes.
    #[inline]
    pub(crate) fn prefetch_frames(&self) {
        let frame = self.control().context.stack_pointer();
        for line in 0..FRAME_LINES {
            prefetch::for_read(frame.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Runs the fiber, on the worker with this context, and the fibers to which it yields directly.
    /// Returns the first fiber that switches to the worker, and its reason.
    #[inline]
    pub(crate) fn resume(self, worker: &Context) -> ResumeOutcome {
        self.control().worker.set(worker);
        self.control().sanitizer_state.leave_worker();
        let own = self.into_control().as_ptr().cast::<Context>();
        // SAFETY: `self` owned the fiber, which was prepared or has suspended itself by a switch.
        // The worker's stack is valid until a fiber switches back, as fibers do before it ends.
        let (suspended, request) = unsafe { switch(worker, own, YIELD_REQUEST) };
        // SAFETY: only fibers switch to a worker, and a fiber's context is the first field of its
        // `repr(C)` control block. The fiber is suspended, so that it can be owned here.
        let fiber = Self(unsafe { NonNull::new_unchecked(suspended.cast_mut().cast()) });
        fiber.control().sanitizer_state.enter_worker();
        if request == YIELD_REQUEST {
            return ResumeOutcome::Yielded(fiber);
        }
        if request == FINISH_REQUEST {
            fiber.control().sanitizer_state.destroy();
            return ResumeOutcome::Finished(FinishedFiber(fiber.into_control()));
        }
        // SAFETY: another request is the address of a commit, which is not null; see above.
        let commit = unsafe { NonNull::new_unchecked(request.cast::<Commit>()) };
        // SAFETY: the commit is on the stack of the fiber, which is suspended and owned here.
        let run = unsafe { commit.as_ref().run };
        // SAFETY: `run` was stored with this commit by park_running(), and is called once.
        ResumeOutcome::Parked(unsafe { run(commit, fiber) })
    }
}

impl FinishedFiber {
    pub(crate) fn has_panicked(&self) -> bool {
        // SAFETY: its end was not announced yet, so neither handle nor worker has freed the block.
        unsafe { self.0.as_ref() }.has_panicked.get()
    }

    /// Notifies the waiters that the fiber has finished; returns the parts that the worker must
    /// free.
    #[inline]
    pub(crate) fn notify_waiters(self, wake: impl FnMut(Waiter)) -> FiberRemains {
        // SAFETY: not announced yet, so the block is valid. After set() it may be freed by a
        // handle.
        match unsafe { self.0.as_ref() }.finished.set() {
            PreviousState::Waiting(waiters) => {
                waiters.for_each(wake);
                FiberRemains::Nothing
            }
            // SAFETY: the handle was dropped, or there was none, so only this worker can free the
            // block.
            PreviousState::Abandoned if unsafe { self.0.as_ref() }.result.is_null() => {
                // SAFETY: the fiber has ended, and no handle is left.
                FiberRemains::Stack(unsafe { reclaim(self.0) })
            }
            PreviousState::Abandoned => FiberRemains::UnclaimedResult(UnclaimedResult(self.0)),
            PreviousState::Open => FiberRemains::Nothing,
        }
    }
}

/// Parts of a finished fiber that its worker must free.
#[derive(Debug)]
pub(crate) enum FiberRemains {
    /// No part, because the handle owns the result and the stack.
    Nothing,
    /// The stack must be freed; the result was dropped or does not exist.
    Stack(Stack),
    /// The result must be dropped, as no handle will read it; then the stack must be freed.
    UnclaimedResult(UnclaimedResult),
}

/// Result of a finished, detached fiber. Another fiber drops it, since the drop may wait.
#[derive(Debug)]
pub(crate) struct UnclaimedResult(NonNull<FiberControl>);

// SAFETY: the result of a fiber that may move is `Send`, as spawn() demands. The result of a local
// fiber is dropped by a local fiber of the same worker.
unsafe impl Send for UnclaimedResult {}

impl UnclaimedResult {
    /// Drops the result and passes the stack to `release`, even if the drop panics.
    ///
    /// # Panics
    /// Panics with the payload of the drop, if that panics.
    pub(crate) fn drop_result(self, release: impl FnOnce(Stack)) {
        // SAFETY: the fiber has ended and no handle is left, so the block is valid and owned here.
        let control = unsafe { self.0.as_ref() };
        // SAFETY: the result was written when the fiber ended and was not read; `drop_result` is
        // for its type.
        let drops = AssertUnwindSafe(|| unsafe { (control.drop_result)(control.result) });
        let dropped = catch_unwind(drops);
        // SAFETY: the fiber has ended, no handle is left, and `control` is not used from here on.
        release(unsafe { reclaim(self.0) });
        if let Err(payload) = dropped {
            resume_unwind(payload);
        }
    }
}

/// Drops the fiber's result at `slot`, which was written and not read.
unsafe fn drop_fiber_result<T>(slot: *mut u8) {
    // SAFETY: the caller guarantees a slot of this type that was written and not read.
    unsafe { slot.cast::<FiberResult<T>>().drop_in_place() };
}

/// Consumes the control block of a finished fiber and returns the fiber's stack.
///
/// # Safety
/// The fiber has ended, and the caller holds the last reference to its control block.
#[inline]
unsafe fn reclaim(mut owner: NonNull<FiberControl>) -> Stack {
    // SAFETY: by the contract, no other reference to the block exists.
    let control = unsafe { owner.as_mut() };
    control.name = None;
    // The stack that prepare_fiber() was given; rebuilt once only, as this is the last use of the
    // fiber.
    let head = owner.cast();
    Stack { head, limit: control.stack_pool.lowest_address(head), pool: control.stack_pool }
}

/// Unique handle of a fiber's result; the result can be taken once.
#[derive(Debug)]
pub(crate) struct ResultHandle<T> {
    control: NonNull<FiberControl>,
    result: PhantomData<T>,
}

// SAFETY: a handle gives access to the result only, which is `Send`.
unsafe impl<T: Send> Send for ResultHandle<T> {}
// SAFETY: a shared handle only reports whether the fiber has ended, and its name and number.
unsafe impl<T: Send> Sync for ResultHandle<T> {}

/// Result of a fiber, or the payload with which it panicked.
type FiberResult<T> = Result<T, Box<dyn Any + Send>>;

impl<T> ResultHandle<T> {
    fn control(&self) -> &FiberControl {
        // SAFETY: the control block is valid until this handle, the only one, is consumed.
        unsafe { self.control.as_ref() }
    }

    /// Returns the gate that opens when the fiber has finished.
    #[inline]
    pub(crate) fn finished_gate(&self) -> &Gate<Waiter> {
        &self.control().finished
    }

    pub(crate) fn id(&self) -> u64 {
        self.control().id
    }

    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.control().name.as_deref().cloned()
    }

    /// Returns the result and the stack of a finished fiber. Returns the handle as the error if the
    /// fiber has not finished.
    #[inline]
    pub(crate) fn take_result(self) -> Result<(FiberResult<T>, Stack), Self> {
        if !self.finished_gate().is_set() {
            return Err(self);
        }
        let slot = self.control().result.cast::<FiberResult<T>>();
        // SAFETY: the fiber has ended, so its result of this type was written; this is its only
        // handle.
        let result = unsafe { slot.read() };
        // SAFETY: the fiber has ended, and its only handle is consumed here.
        Ok((result, unsafe { reclaim(self.control) }))
    }

    /// Detaches the fiber; returns the handle as the error if the fiber has already finished.
    pub(crate) fn abandon(self) -> Result<(), Self> {
        if self.finished_gate().abandon() { Ok(()) } else { Err(self) }
    }
}

/// Returns `true` if closure and result each take at most a sixteenth of the stack. The closure's
/// alignment must also be at most 4096. (Unoptimised builds copy them from frame to frame.)
pub(crate) fn closure_fits<F, T>(stack_bytes: usize) -> bool {
    size_of::<F>().max(size_of::<FiberResult<T>>()) <= stack_bytes / 16 && align_of::<F>() <= 4096
}

/// Creates a fiber that will call `f`, and a handle for its result if `is_attached`.
#[inline]
pub(crate) fn prepare_fiber<F, T>(
    stack: Stack,
    spec: FiberSpec,
    is_attached: bool,
    f: F,
) -> (Runnable, Option<ResultHandle<T>>)
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let control = stack.head.cast::<FiberControl>();
    sanitizer::unpoison_stack(&stack);
    // The closure, until it is called, and then its result occupy the same memory above the frames.
    let result_bytes = if is_attached { size_of::<FiberResult<T>>() } else { 0 };
    let align = align_of::<F>().max(align_of::<FiberResult<T>>()).max(16);
    let top = (control.as_ptr().addr() - size_of::<F>().max(result_bytes)) & !(align - 1);
    let closure = control.as_ptr().with_addr(top).cast::<F>();
    let result = closure.cast::<FiberResult<T>>();
    // SAFETY: the stack is owned here and has space for the closure (closure_fits()); `closure` is
    // aligned to `align`.
    unsafe { closure.write(f) };
    // SAFETY: the stack is owned here, and unused below the closure, whose address is aligned
    // to 16. It is large enough: Config::validate() demands 16 KiB, of which colour, control block,
    // closure and its alignment take less than 8 KiB, and a guard lies below.
    let context = unsafe { Context::starting(closure.cast(), run_fiber::<F, T>) };
    let fresh = FiberControl {
        context,
        home: Cell::new(spec.home),
        worker: Cell::new(ptr::null()),
        priority_level: spec.priority_level,
        is_local: Cell::new(spec.is_local),
        can_migrate: spec.can_migrate,
        is_pinned: Cell::new(spec.is_worker_fixed),
        has_panicked: Cell::new(false),
        pool: spec.pool,
        finished: if is_attached { Gate::new() } else { Gate::abandoned() },
        result: if is_attached { result.cast() } else { ptr::null_mut() },
        drop_result: drop_fiber_result::<T>,
        closure: closure.cast(),
        id: spec.id,
        name: spec.name.map(Box::new),
        stack_pool: stack.pool,
        sanitizer_state: SanitizerState::new(stack.limit, top),
    };
    // SAFETY: the stack is owned here, and `control` is the aligned space for the block at its
    // upper end.
    unsafe { control.write(fresh) };
    (Runnable(control), is_attached.then_some(ResultHandle { control, result: PhantomData }))
}

/// Function with which a fiber starts: calls the closure, stores its result and switches to the
/// worker for the last time.
extern "C" fn run_fiber<F, T>(from: *const Context, _: *mut (), own: *const Context) -> !
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    // SAFETY: `own` is the context of the fiber, which is the first field of its `repr(C)` control
    // block. The block is valid while its fiber runs.
    let control = unsafe { &*own.cast::<FiberControl>() };
    control.sanitizer_state.enter_fiber();
    if control.worker.get().is_null() {
        // SAFETY: resume() sets the worker of each fiber to which a worker switches, so a fiber has
        // switched to this one. Its context is the first field of its `repr(C)` control block,
        // which is valid: the fiber was suspended by the switch, and has not ended.
        let yielding = unsafe { &*from.cast::<FiberControl>() };
        control.worker.set(yielding.worker.get());
    }
    // SAFETY: prepare_fiber() has written a closure of this type, and it is read only here, as a
    // fiber starts once.
    let f = unsafe { control.closure.cast::<F>().read() };
    let outcome: FiberResult<T> = catch_unwind(AssertUnwindSafe(f));
    control.has_panicked.set(outcome.is_err());
    if !control.result.is_null() {
        // SAFETY: the memory is reserved for the result, and the closure was moved out of it.
        unsafe { control.result.cast::<FiberResult<T>>().write(outcome) };
    } else if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(outcome))) {
        control.has_panicked.set(true);
        std::mem::forget(payload); // the payload's own drop might panic again
    }
    control.sanitizer_state.finish_fiber();
    // SAFETY: the worker is suspended in resume() while a fiber runs that it has resumed, or to
    // which such a fiber has yielded. This stack stays valid until the worker has taken the fiber.
    unsafe { switch(own, control.worker.get(), FINISH_REQUEST) };
    std::process::abort() // a worker resumes no fiber that has finished
}

/// Function that the worker calls with a fiber once the fiber is suspended. It is the first field
/// of a `TypedCommit`.
struct Commit {
    run: unsafe fn(NonNull<Commit>, Runnable) -> Option<Runnable>,
}

/// [`Commit`] with the closure that its function calls.
#[repr(C)]
struct TypedCommit<F> {
    head: Commit,
    f: ManuallyDrop<F>,
}

/// Calls the closure of the `TypedCommit<F>` at `commit` with the suspended fiber.
unsafe fn run_commit<F>(commit: NonNull<Commit>, fiber: Runnable) -> Option<Runnable>
where
    F: FnOnce(Runnable) -> Option<Runnable>,
{
    // SAFETY: park_running() stores this function in a TypedCommit<F> only, on the stack of the
    // fiber, which is suspended.
    let commit = unsafe { commit.cast::<TypedCommit<F>>().as_mut() };
    // SAFETY: `run` is called once. The closure is moved out first, since the fiber may be woken,
    // and its stack reused, during the call.
    let f = unsafe { ManuallyDrop::take(&mut commit.f) };
    f(fiber)
}

/// Yield of the running fiber, before the fiber is suspended.
#[derive(Debug)]
#[must_use = "the fiber is not suspended yet"]
pub(crate) struct PendingYield {
    running: NonNull<FiberControl>,
    /// Context of the fiber that runs next, or of the worker.
    to: *const Context,
}

impl PendingYield {
    /// Creates the yield after which the worker makes `running` ready, and chooses the next fiber.
    #[inline]
    pub(crate) fn to_worker(running: NonNull<FiberControl>) -> Self {
        // SAFETY: the fiber runs and calls this function, so its control block is valid.
        let control = unsafe { running.as_ref() };
        pin_if_unwinding(control);
        Self { running, to: control.worker.get() }
    }

    /// Creates the yield that continues with `next`, a fiber that has the same worker as long as it
    /// lives. `running` is in the run queue, from which no other worker takes fibers.
    #[inline]
    pub(crate) fn to_fiber(running: NonNull<FiberControl>, next: Runnable) -> Self {
        Self { running, to: next.into_control().as_ptr().cast::<Context>() }
    }

    /// Suspends the fiber; returns when the fiber runs again.
    #[inline(always)] // see park_running()
    pub(crate) fn complete(self) {
        suspend_to(self.running, self.to, YIELD_REQUEST);
    }
}

/// Suspends the running fiber, and calls `f` with it on the worker's stack. The fiber continues at
/// once if `f` returns it.
///
/// Inlined, as are its callers up to the waiting code: the processor predicts return addresses from
/// the last calls, and a call in which a fiber is suspended makes it mispredict. `fiber-cost
/// eventual`, 2026-11, with coroutines of `corosensei`: 24 ns a set and wait instead of 43 to 50.
#[inline(always)]
pub(crate) fn park_running<F>(running: NonNull<FiberControl>, f: F)
where
    F: FnOnce(Runnable) -> Option<Runnable>,
{
    let mut commit = TypedCommit { head: Commit { run: run_commit::<F> }, f: ManuallyDrop::new(f) };
    suspend_with(running, (&raw mut commit).cast());
}

/// Switches from the running fiber to its worker, which calls the commit.
#[inline(always)]
fn suspend_with(running: NonNull<FiberControl>, commit: *mut Commit) {
    // SAFETY: the fiber runs and calls this function, so its control block is valid.
    let control = unsafe { running.as_ref() };
    pin_if_unwinding(control);
    suspend_to(running, control.worker.get(), commit.cast());
}

/// Switches from the running fiber to another fiber or the worker; returns once the fiber is
/// continued.
#[inline(always)]
fn suspend_to(running: NonNull<FiberControl>, to: *const Context, request: *mut ()) {
    // SAFETY: the fiber runs and calls this function, so its control block is valid.
    let control = unsafe { running.as_ref() };
    control.sanitizer_state.leave_fiber();
    // SAFETY: the fiber's control block and stack are valid until the fiber has ended. `to` is the
    // context of the worker, which is suspended in resume(), or of a fiber that the caller has
    // taken from the run queue of this worker.
    unsafe { switch(running.as_ptr().cast::<Context>(), to, request) };
    control.sanitizer_state.enter_fiber();
}

/// Pins the running fiber to its worker if it is unwinding. Unwinding is counted in a thread-local
/// variable, so an unwinding fiber must not change threads.
#[inline(always)]
fn pin_if_unwinding(control: &FiberControl) {
    if control.can_migrate {
        control.is_pinned.set(std::thread::panicking());
    }
}

/// Sets the flag that keeps the running fiber on its worker; returns the flag's previous value.
pub(super) fn set_running_local(running: NonNull<FiberControl>, is_local: bool) -> bool {
    // SAFETY: the fiber runs and calls this function, so its control block is valid.
    unsafe { running.as_ref() }.is_local.replace(is_local)
}

pub(crate) fn running_fiber_id(running: NonNull<FiberControl>) -> u64 {
    // SAFETY: the fiber runs and calls this function, so its control block is valid.
    unsafe { running.as_ref() }.id
}
