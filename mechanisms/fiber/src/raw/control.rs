//! A fiber: its control block, which lies at the upper end of its stack, and the switch.
//!
//! ```text
//!  limit                                                           top of the stack
//!  ┌───────────────── ─ ─ ──────────────┬────────┬──────────────────────┬─────────┐
//!  │ unused, then frames of the closure │ switch │ closure, then result │ control │
//!  └───────────────── ─ ─ ──────────────┴────────┴──────────────────────┴─────────┘
//! ```
//!
//! All that a fiber is lies there, and in one page as long as it is small: to spawn one allocates nothing.
//!
//! # Why a suspended fiber may go to another thread
//! `corosensei` cannot know what lies on a coroutine's stack and makes it `!Send`. What we know:
//!
//! - A fiber that has **not begun** is its closure, which is `Send` unless it was spawned to stay
//!   ([`Spec::is_local`]); such a one is never handed to another worker.
//! - A fiber that **has begun** goes to another worker only in a runtime made by
//!   `Runtime::stealing_suspended`, which takes an `unsafe` promise: that no fiber holds across a suspension what is tied to a thread. Everything else on
//!   its stack was made from a `Send` closure, moves with it, and is reached by one thread at a time, as a
//!   [`Runnable`] is owned and goes through queues that synchronise.
//! - **Thread-local variables** are what the promise is about: a reference that `LocalKey::with` has lent, or
//!   an address that the compiler kept, is that of the thread before. This crate's own one is read in a
//!   function that is never inlined (`current.rs`).
//! - The **count of panics** is such a variable, in the standard library: a fiber that is suspended while it
//!   unwinds stays where it is ([`Control::is_pinned`]).
//! - The switch itself keeps nothing of a thread: `corosensei` writes the resuming side's stack pointer into
//!   the coroutine each time it is resumed.

use super::gate::{Gate, Opened};
use super::kernel::fetch;
use super::queue::{Link, Linked};
use super::sanitizer::{self, Shadow};
use super::stack::{Stack, Stacks};
use crate::drive::post::{Post, Shared};
use crate::drive::waiter::Waiter;
use corosensei::stack::{Stack as StackBounds, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

type Switch = Coroutine<(), Action, (), Bounds>;

/// The room of a control block.
pub(super) const CONTROL_BYTES: usize = size_of::<Control>();

const LINE_BYTES: usize = 64;
/// So many lines of a suspended fiber's frames are worth asking for ahead: all of one that does little.
const FRAME_LINES: usize = 7;

/// What a fiber asks of its worker when it suspends itself: to be run again, if null; else the address of
/// what is to be done with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action(*mut Commit);

/// The bounds of a stack, for the switch.
struct Bounds {
    base: StackPointer,
    limit: StackPointer,
}

// SAFETY: the memory between the two is mapped, is the fiber's own, is larger than MIN_STACK_SIZE (which
// prepare() checks), and a guard lies below it.
unsafe impl StackBounds for Bounds {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// What is to be known of a fiber to be.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) home: NonNull<Post>,
    pub(crate) level: u8,
    pub(crate) pool: u16,
    /// It stays with its worker for good.
    pub(crate) is_local: bool,
    /// It stays with its worker until it has begun.
    pub(crate) is_placed: bool,
    /// It may go to another worker while it is suspended.
    pub(crate) is_migrant: bool,
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<str>>,
}

/// A fiber. Two cache lines: in the first is what who wakes and who resumes it needs.
#[repr(C, align(64))]
pub(crate) struct Control {
    link: Link,
    /// Where it is woken to; its worker.
    home: Cell<NonNull<Post>>,
    level: u8,
    is_local: Cell<bool>,
    is_migrant: bool,
    /// It must not be taken to another worker while it is as it is.
    is_pinned: Cell<bool>,
    has_panicked: Cell<bool>,
    pool: u16,
    switch: UnsafeCell<MaybeUninit<Switch>>,
    /// Opened when it has ended; abandoned when nobody will ask.
    ended: Gate<Waiter>,
    /// Where the result is, if somebody may ask for it, ...
    result: *mut u8,
    /// ... and how to drop it if nobody does after all.
    drop_result: unsafe fn(*mut u8),
    /// Null until it has begun.
    yielder: Cell<*const Yielder<(), Action>>,
    /// Where its frames were when it suspended itself last, about; null until then.
    frame: Cell<*const u8>,
    id: u64,
    /// Few have one.
    name: Option<Box<Arc<str>>>,
    stack_pool: &'static Stacks,
    shadow: Shadow,
}

/// The sanitizers keep more.
const IS_SANITIZED: bool = cfg!(any(handover_sanitizer = "address", handover_sanitizer = "thread"));
const _: () = assert!(CONTROL_BYTES == 2 * LINE_BYTES || IS_SANITIZED);

impl Control {
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref().map(|name| &**name)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Asks the processor for the control block at an address.
    #[inline]
    pub(super) fn fetch(at: *const u8) {
        for line in 0..CONTROL_BYTES / LINE_BYTES {
            fetch(at.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// A fiber that can be run, and the right to do so.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Runnable(NonNull<Control>);

// SAFETY: see the module's text.
unsafe impl Send for Runnable {}

// SAFETY: the link is the first of the control block, which stays where it is while the fiber is not over.
unsafe impl Linked for Runnable {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        self.0.cast()
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

/// Why a fiber has come back to its worker.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// To let others run.
    Yielded(Runnable),
    /// To wait: what it wanted done was done. Some if it need not wait after all.
    Parked(Option<Runnable>),
    /// It is over.
    Ended(Ended),
}

/// A fiber that is over, of which nobody was told yet.
#[derive(Debug)]
pub(crate) struct Ended(NonNull<Control>);

impl Runnable {
    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: the control block is valid while its fiber is not over, and we own the fiber.
        unsafe { self.0.as_ref() }
    }

    /// The fiber as the one that runs.
    #[inline]
    pub(crate) fn running(&self) -> NonNull<Control> {
        self.0
    }

    /// Its worker's post.
    #[inline]
    pub(crate) fn home(&self) -> NonNull<Post> {
        self.control().home.get()
    }

    /// Gives it to another worker.
    pub(crate) fn rehome(&self, home: NonNull<Post>) {
        self.control().home.set(home);
    }

    /// Its priority's level.
    #[inline]
    pub(crate) fn level(&self) -> usize {
        self.control().level as usize
    }

    /// Its pool's place among the pools of its runtime.
    #[inline]
    pub(crate) fn pool(&self) -> u16 {
        self.control().pool
    }

    /// Its number.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.control().id
    }

    /// Whether it may be taken to another worker as it is now.
    pub(crate) fn may_move(&self) -> bool {
        let control = self.control();
        let is_fresh = control.yielder.get().is_null();
        let may_stay_only = control.is_local.get() || control.is_pinned.get();
        !may_stay_only && (is_fresh || control.is_migrant)
    }

    /// Whether it belongs to that runtime.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        // SAFETY: a runtime outlives its fibers, and this one is not over.
        unsafe { self.home().as_ref() }.is_of(shared)
    }

    /// Gives up the fiber for the place of its control block.
    #[inline]
    pub(super) fn into_control(self) -> NonNull<Control> {
        self.0
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `control` must come from `into_control`, and be taken back once.
    #[inline]
    pub(super) unsafe fn from_control(control: NonNull<Control>) -> Self {
        Self(control)
    }

    /// Asks the processor for what it will touch first when it goes on.
    #[inline]
    pub(crate) fn fetch_frames(&self) {
        let frame = self.control().frame.get();
        for line in 0..FRAME_LINES {
            fetch(frame.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Puts it where its worker finds it, from another thread. `is_kin` says that this thread is a worker of
    /// the same runtime.
    pub(crate) fn send_home(self, is_kin: bool) {
        // SAFETY: a runtime outlives its fibers, and this one is not over.
        let post = unsafe { self.home().as_ref() };
        // Once it is in the inbox it may run, end, and let the runtime end, while we still ring the bell:
        // whoever is no worker of it, which the end of the runtime waits for, holds on to it.
        let _keep = if is_kin { None } else { post.keep() };
        post.inbox.push(self);
        post.bell.ring();
    }

    /// Runs it until it suspends itself or is over.
    #[inline]
    pub(crate) fn resume(self) -> Outcome {
        let control = self.0;
        let place = self.control().switch.get();
        // SAFETY: we own the fiber, so nobody else uses its switch; while it runs, others of its fields are used,
        // and this one is not.
        let switch = unsafe { &mut *place };
        // SAFETY: prepare() has made it, and it is never dropped.
        let switch = unsafe { switch.assume_init_mut() };
        self.control().shadow.leave_worker();
        let result = switch.resume(());
        self.control().shadow.enter_worker();
        match result {
            CoroutineResult::Yield(Action(commit)) => {
                let Some(commit) = NonNull::new(commit) else {
                    return Outcome::Yielded(self);
                };
                // SAFETY: it lies on the stack of the fiber, which is suspended and ours.
                let run = unsafe { commit.as_ref().run };
                // SAFETY: run belongs to this commit, and is called once.
                Outcome::Parked(unsafe { run(commit, self) })
            }
            CoroutineResult::Return(()) => {
                self.control().shadow.destroy();
                Outcome::Ended(Ended(control))
            }
        }
    }
}

impl Ended {
    /// Whether it ended by panicking.
    pub(crate) fn has_panicked(&self) -> bool {
        // SAFETY: nobody was told that it is over, so it is there.
        unsafe { self.0.as_ref() }.has_panicked.get()
    }

    /// Tells whoever waits for it.
    #[inline]
    pub(crate) fn announce(self, wake: impl FnMut(Waiter)) -> Rest {
        // SAFETY: as above. After set() it may be gone, unless nobody has a handle to it.
        match unsafe { self.0.as_ref() }.ended.set() {
            Opened::For(waiters) => {
                waiters.for_each(wake);
                Rest::Nothing
            }
            // SAFETY: nobody has a handle, so it is still there.
            Opened::ForNobody if unsafe { self.0.as_ref() }.result.is_null() => {
                // SAFETY: it is over, and no handle is left.
                Rest::Stack(unsafe { reclaim(self.0) })
            }
            Opened::ForNobody => Rest::Unread(Unread(self.0)),
            Opened::Before => Rest::Nothing,
        }
    }
}

/// What is left of a fiber that is over and was announced.
#[derive(Debug)]
pub(crate) enum Rest {
    /// It is its handle's.
    Nothing,
    /// Its stack.
    Stack(Stack),
    /// A result for which nobody will ask, too.
    Unread(Unread),
}

/// A result that is to be dropped: by a fiber, as that may wait for something.
#[derive(Debug)]
pub(crate) struct Unread(NonNull<Control>);

// SAFETY: a fiber of which a result is left may be anywhere, if the result may: spawn() asks for that, and
// who was spawned to stay is dropped where it ran.
unsafe impl Send for Unread {}

impl Unread {
    /// Drops the result, and gives the stack back, also where the drop panics.
    ///
    /// # Panics
    /// With what the drop has panicked with.
    pub(crate) fn finish(self, give_back: impl FnOnce(Stack)) {
        // SAFETY: it is over and no handle is left: the block is there, and is ours.
        let control = unsafe { self.0.as_ref() };
        // SAFETY: the result was written when the fiber ended, nobody has read it, and the function is for its
        // type.
        let drops = AssertUnwindSafe(|| unsafe { (control.drop_result)(control.result) });
        let dropped = catch_unwind(drops);
        // SAFETY: the fiber is over, no handle is left, and `control` is not used from here on.
        give_back(unsafe { reclaim(self.0) });
        if let Err(payload) = dropped {
            resume_unwind(payload);
        }
    }
}

unsafe fn drop_slot<T>(slot: *mut u8) {
    // SAFETY: the caller's promise: a slot of this type, written and not read.
    unsafe { slot.cast::<Slot<T>>().drop_in_place() };
}

/// Takes the stack of a fiber that is over and that nobody else knows.
///
/// # Safety
/// Just that.
#[inline]
unsafe fn reclaim(mut place: NonNull<Control>) -> Stack {
    // SAFETY: the caller's promise.
    let control = unsafe { place.as_mut() };
    control.name = None;
    // The stack that prepare() was given, put together again once, as this is the last use of the fiber.
    Stack { control: place, limit: control.stack_pool.limit_of(place), pool: control.stack_pool }
}

/// The result of a fiber, when it is over.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    control: NonNull<Control>,
    result: PhantomData<T>,
}

// SAFETY: what goes through the handle is the result.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: through a shared handle one can but ask whether it is over.
unsafe impl<T: Send> Sync for Handle<T> {}

type Slot<T> = Result<T, Box<dyn Any + Send>>;

impl<T> Handle<T> {
    fn control(&self) -> &Control {
        // SAFETY: the control block is valid until this handle, the only one, gives it up.
        unsafe { self.control.as_ref() }
    }

    /// The gate that opens when the fiber is over.
    #[inline]
    pub(crate) fn ended(&self) -> &Gate<Waiter> {
        &self.control().ended
    }

    pub(crate) fn id(&self) -> u64 {
        self.control().id
    }

    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.control().name.as_deref().cloned()
    }

    /// Takes the result of a fiber that is over, and its stack; gives the handle back if it is not.
    #[inline]
    pub(crate) fn take(self) -> Result<(Slot<T>, Stack), Self> {
        if !self.ended().is_set() {
            return Err(self);
        }
        let slot = self.control().result.cast::<Slot<T>>();
        // SAFETY: it is over, so that its result was written, with this very type; we are the only handle.
        let result = unsafe { slot.read() };
        // SAFETY: as above; the handle ends here.
        Ok((result, unsafe { reclaim(self.control) }))
    }

    /// Lets the fiber go on without anybody asking for its result; the handle back if it is over.
    pub(crate) fn abandon(self) -> Result<(), Self> {
        if self.ended().abandon() { Ok(()) } else { Err(self) }
    }
}

/// Whether closure and result leave room enough on a stack: a sixteenth of it each, as an unoptimised build moves
/// them from frame to frame.
pub(crate) fn fits<F, T>(stack_bytes: usize) -> bool {
    size_of::<F>().max(size_of::<Slot<T>>()) <= stack_bytes / 16 && align_of::<F>() <= 4096
}

/// Makes a fiber that will call `f`, and a handle to its result if it is attached.
#[inline]
pub(crate) fn prepare<F, T>(
    stack: Stack,
    spec: Spec,
    is_attached: bool,
    f: F,
) -> (Runnable, Option<Handle<T>>)
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let control = stack.control;
    sanitizer::clear(&stack);
    // The closure, until it is called, and then its result lie in one place above the switch's frames.
    let result_bytes = if is_attached { size_of::<Slot<T>>() } else { 0 };
    let align = align_of::<F>().max(align_of::<Slot<T>>()).max(16);
    let top = (control.as_ptr().addr() - size_of::<F>().max(result_bytes)) & !(align - 1);
    let closure = control.as_ptr().with_addr(top).cast::<F>();
    let result = closure.cast::<Slot<T>>();
    // SAFETY: the stack is ours and has room for it (fits()), aligned as it must be.
    unsafe { closure.write(f) };
    let body = move |yielder: &Yielder<(), Action>, ()| {
        // SAFETY: the control block is valid while its fiber runs.
        let control = unsafe { control.as_ref() };
        control.shadow.enter_fiber();
        control.yielder.set(yielder);
        // SAFETY: written above, and read here alone: a fiber begins once.
        let f = unsafe { closure.read() };
        let outcome = catch_unwind(AssertUnwindSafe(f));
        control.has_panicked.set(outcome.is_err());
        if is_attached {
            // SAFETY: the place is kept free for it, and the closure is gone from there.
            unsafe { result.write(outcome) };
        } else if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(outcome))) {
            control.has_panicked.set(true);
            std::mem::forget(payload); // whose drop might panic again
        }
        control.shadow.leave_fiber();
    };
    let base = StackPointer::new(top).unwrap_or(StackPointer::MIN);
    let limit = StackPointer::new(stack.limit).unwrap_or(StackPointer::MIN);
    // SAFETY: the body points to the control block and to `f`, which outlive it and are 'static.
    let switch = unsafe { Switch::with_stack_unchecked(Bounds { base, limit }, body) };
    let fresh = Control {
        link: Link::new(),
        switch: UnsafeCell::new(MaybeUninit::new(switch)),
        yielder: Cell::new(ptr::null()),
        frame: Cell::new(ptr::null()),
        home: Cell::new(spec.home),
        level: spec.level,
        pool: spec.pool,
        is_local: Cell::new(spec.is_local),
        is_migrant: spec.is_migrant,
        is_pinned: Cell::new(spec.is_placed),
        has_panicked: Cell::new(false),
        id: spec.id,
        ended: if is_attached { Gate::new() } else { Gate::abandoned() },
        result: if is_attached { result.cast() } else { ptr::null_mut() },
        drop_result: drop_slot::<T>,
        name: spec.name.map(Box::new),
        stack_pool: stack.pool,
        shadow: Shadow::new(),
    };
    // SAFETY: the stack is ours, and this is the place on it for that.
    unsafe { control.write(fresh) };
    (Runnable(control), is_attached.then_some(Handle { control, result: PhantomData }))
}

/// What is to be done with a fiber once it is suspended.
struct Commit {
    run: unsafe fn(NonNull<Commit>, Runnable) -> Option<Runnable>,
}

#[repr(C)]
struct CommitOf<F> {
    head: Commit,
    f: ManuallyDrop<F>,
}

unsafe fn run_commit<F>(commit: NonNull<Commit>, fiber: Runnable) -> Option<Runnable>
where
    F: FnOnce(Runnable) -> Option<Runnable>,
{
    // SAFETY: the head is that of a CommitOf<F>, on the stack of the fiber, which is suspended.
    let commit = unsafe { commit.cast::<CommitOf<F>>().as_mut() };
    // SAFETY: run once. Moved out before it is called, as the fiber may be woken, and its stack be used, in the
    // middle of it.
    let f = unsafe { ManuallyDrop::take(&mut commit.f) };
    f(fiber)
}

/// Suspends the fiber that runs, to be run again behind the others.
#[inline(always)] // see park()
pub(crate) fn suspend(running: NonNull<Control>) {
    act(running, Action(ptr::null_mut()));
}

/// Suspends the fiber that runs, and has `f` called with it on its worker's own stack.
///
/// Inlined, as is whatever leads here, up to the code of whoever waits: the processor foretells where a function
/// returns to by the calls that it has seen last, and a call in which a fiber is suspended makes it guess wrong, here
/// and then once more for the worker. `fiber-cost eventual`, 2026-11: 24 ns a set and wait instead of 43 to 50.
#[inline(always)]
pub(crate) fn park<F>(running: NonNull<Control>, f: F)
where
    F: FnOnce(Runnable) -> Option<Runnable>,
{
    let mut commit = CommitOf { head: Commit { run: run_commit::<F> }, f: ManuallyDrop::new(f) };
    act(running, Action((&raw mut commit).cast()));
}

#[inline(always)]
fn act(running: NonNull<Control>, action: Action) {
    // SAFETY: it runs, and calls this: so its control block is there.
    let control = unsafe { running.as_ref() };
    if control.is_migrant {
        // Who unwinds is counted in a variable of the thread, and must not leave it.
        control.is_pinned.set(std::thread::panicking());
    }
    control.frame.set((&raw const action).cast::<u8>().wrapping_sub(LINE_BYTES));
    // SAFETY: set when the fiber began; it lives as long as the fiber's run.
    let yielder = unsafe { &*control.yielder.get() };
    control.shadow.leave_fiber();
    yielder.suspend(action);
    control.shadow.enter_fiber();
}

/// Has the fiber that runs stay with its worker from now on, or not; whether it did before.
pub(super) fn stay(running: NonNull<Control>, is_to_stay: bool) -> bool {
    // SAFETY: it runs, and calls this: so its control block is there.
    unsafe { running.as_ref() }.is_local.replace(is_to_stay)
}

/// The number of a fiber that runs.
pub(crate) fn id_of(running: NonNull<Control>) -> u64 {
    // SAFETY: it runs, and asks: so its control block is there.
    unsafe { running.as_ref() }.id
}
