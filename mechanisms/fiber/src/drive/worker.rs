//! A worker: runs ready fibers, wakes fibers whose deadline has passed, and sleeps when there are
//! neither.

use super::readiness::Readiness;
use super::state::{RuntimeState, WorkerState, add_to_counter};
use crate::engine::counts::FiberCounts;
use crate::engine::{PollInterval, SleepLead};
use crate::error::StackError;
use crate::raw::{
    Context, FiberControl, FiberRemains, FinishedFiber, HomeAddress, List, PendingYield,
    ResumeOutcome, Runnable, Stack, TimerPayload, UnclaimedResult, Waiter, WorkerOwner,
};
use handover_base::clock;
use handover_base::sync::shared::Ordering;
use handover_notify::{ParkResult, Parker};
use handover_probe::{probe, probe_and_return};
use handover_timer::{Config as WheelConfig, TimerId, Wheel, WheelFull};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
#[cfg(feature = "async")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Maximum number of free stacks in a worker's cache, which other threads cannot use. A worker with
/// more returns half of them to the stack pool.
const STACKS_CACHED_MAX: usize = 256;
/// Number of free stacks that a worker takes from the stack pool at a time.
const STACKS_REFILL_COUNT: usize = 64;
/// Maximum time to the next deadline, in ns, for which a worker polls instead of sleeping. A sleep
/// would take as much CPU time, and fibers with close deadlines become due together.
/// `fiber-cost loops`, 2026-11: 100 fibers take 0.07 s of CPU a second, with 3 µs 0.15 s, and as
/// many sleeping threads 0.03 s.
const POLLED_DEADLINE_NS_MAX: u64 = 20_000;
/// Number of ready fibers from which on timers expire only at a limited rate. The data of the ready
/// fibers, and of the fibers that they wake, then stay in the processor's caches until they run.
const EXPIRED_MAX: u32 = 64;
/// Number of fiber switches for each timer that expires while at least [`EXPIRED_MAX`] fibers are
/// ready. A fiber whose deadline has passed usually causes fewer switches, so that such fibers do
/// not pile up.
const SWITCHES_PER_EXPIRED: u32 = 4;
/// Minimum number of ready fibers ahead of a woken fiber for its frames to be prefetched.
const PREFETCH_READY_MIN: u32 = 4;
/// Maximum number of fibers that a worker first checks in another worker's queue when it steals.
/// The owner waits meanwhile.
const SHORT_STEAL_CHECKS_MAX: u32 = 128;
/// Maximum number of fibers that a worker checks in another worker's queue if it may take none of
/// the first [`SHORT_STEAL_CHECKS_MAX`].
const LONG_STEAL_CHECKS_MAX: u32 = 2048;
/// Minimum time from a check of up to [`LONG_STEAL_CHECKS_MAX`] fibers of a worker to the next such
/// check of the same worker, by any other one, in ns. It bounds the share of the time for which the
/// owner waits.
const LONG_STEAL_INTERVAL_NS: u64 = 1_000_000;
/// Interval, in calls of [`Worker::poll`], at which a worker takes a fiber of a less urgent pool.
/// It does so although more urgent fibers are ready.
const POLLS_PER_LESS_URGENT: u32 = 4;

/// Worker thread of a runtime: runs the fibers of its run queue.
pub(crate) struct Worker {
    /// Owner's access to the part of the worker's state that other threads also access.
    owner: WorkerOwner,
    index: u32,
    can_steal: bool,
    /// Context of the worker's own code, which is suspended while a fiber runs.
    context: Context,
    running_fiber: Cell<Option<NonNull<FiberControl>>>,
    /// Timers of sleeping fibers and of waits with a deadline.
    wheel: RefCell<Wheel<TimerPayload>>,
    parker: RefCell<Parker>,
    /// Descriptors for which fibers wait; created for the first such fiber.
    readiness: OnceCell<Readiness>,
    /// Reused buffer of [`expire`](Self::expire) for the timers that are due.
    due_buffer: RefCell<Vec<TimerPayload>>,
    /// Time by which sleeps are requested to end before their deadline, as the kernel ends them
    /// late.
    lead: Cell<SleepLead>,
    /// Deadline of the timer for which the last sleep ended, possibly before the deadline. The
    /// worker polls until it passes.
    woken_for_ns: Cell<Option<u64>>,
    free_stacks: RefCell<Vec<Stack>>,
    /// Number of switches until the clock is read next. A yield counts even if no other fiber is
    /// ready.
    switches_until_poll: Cell<u32>,
    /// Number of calls of [`poll`](Self::poll); every [`POLLS_PER_LESS_URGENT`]th takes a less
    /// urgent fiber first.
    polls_count: Cell<u32>,
    /// Number of switches, below [`SWITCHES_PER_EXPIRED`], that count towards the next expiring
    /// timer.
    uncredited_switches: Cell<u32>,
    poll_interval: Cell<PollInterval>,
    /// Time of the last clock read, in ns.
    last_poll_ns: Cell<u64>,
    /// Identification number of the next fiber that is spawned on this worker.
    next_id: Cell<u64>,
    /// `true` if the last fiber has spun in vain, so that the worker need not spin again.
    has_spun: Cell<bool>,
    /// Value of `switches_until_poll` when the number of switches was last added to the statistics.
    /// The difference to `switches_until_poll` is the number of switches since then.
    counted_switches_until_poll: Cell<u32>,
    /// Number of fibers that each worker had announced when this worker last found none to steal.
    seen_offer_counts: Box<[Cell<u32>]>,
    /// For each worker: `true` if this worker last found none to steal there and left fibers
    /// unchecked. It then makes no short check there, but waits for the next long one.
    has_unchecked: Box<[Cell<bool>]>,
    /// Time in ns at which this worker steals again; `None` if the last call of
    /// [`steal`](Self::steal) left no fibers unchecked that it found announced.
    next_steal_ns: Cell<Option<u64>>,
}

impl Worker {
    /// Creates the worker whose state `owner` has claimed. Returns `None` if its timer wheel or
    /// parker cannot be created.
    pub(crate) fn new(owner: WorkerOwner, index: u32) -> Option<Self> {
        let shared = Arc::clone(owner.runtime_state());
        let now_ns = clock::now_ns();
        Some(Self {
            index,
            can_steal: shared.has_stealing() && shared.workers.len() > 1,
            context: Context::of_running(),
            running_fiber: Cell::new(None),
            wheel: RefCell::new(
                Wheel::new(WheelConfig::default().timers_max(1 << 28), now_ns).ok()?,
            ),
            parker: RefCell::new(Parker::new(shared.config.spin).ok()?),
            readiness: OnceCell::new(),
            free_stacks: RefCell::default(),
            due_buffer: RefCell::default(),
            lead: Cell::new(SleepLead::new()),
            woken_for_ns: Cell::new(None),
            switches_until_poll: Cell::new(0),
            polls_count: Cell::new(0),
            uncredited_switches: Cell::new(0),
            poll_interval: Cell::new(PollInterval::new()),
            last_poll_ns: Cell::new(now_ns),
            // Each worker has a range of numbers of its own, so that taking a number needs no
            // synchronisation.
            next_id: Cell::new((u64::from(index) + 1) << 40),
            has_spun: Cell::new(false),
            counted_switches_until_poll: Cell::new(0),
            seen_offer_counts: shared.workers.iter().map(|_| Cell::new(0)).collect(),
            has_unchecked: shared.workers.iter().map(|_| Cell::new(false)).collect(),
            next_steal_ns: Cell::new(None),
            owner,
        })
    }

    #[inline]
    pub(crate) fn runtime_state(&self) -> &Arc<RuntimeState> {
        self.owner.runtime_state()
    }

    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    pub(crate) fn home_address(&self) -> HomeAddress {
        self.owner.home_address()
    }

    /// Returns the control block of the running fiber; `None` if no fiber runs.
    #[inline]
    pub(crate) fn running_fiber(&self) -> Option<NonNull<FiberControl>> {
        self.running_fiber.get()
    }

    /// Returns a new identification number for a fiber, unique in the runtime.
    #[inline]
    pub(crate) fn next_fiber_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    #[inline]
    pub(crate) fn fiber_counts(&self) -> &FiberCounts {
        &self.owner.counters.counts
    }

    /// Appends a ready fiber to the run queue, and announces it if other workers may steal it.
    #[inline]
    pub(crate) fn push_ready(&self, fiber: Runnable) {
        let pool = self.offered_pool(&fiber);
        self.owner.with_queue(|queue| queue.push(fiber));
        if let Some(pool) = pool {
            self.announce_stealable(pool);
        }
    }

    /// Returns the index of the fiber's pool if other workers may steal the ready fiber; otherwise
    /// `None`.
    #[inline]
    fn offered_pool(&self, fiber: &Runnable) -> Option<u16> {
        (self.can_steal && fiber.can_migrate()).then(|| fiber.pool())
    }

    /// Begins the yield of the running fiber, which the caller completes at once. Returns `None` if
    /// no other fiber is ready.
    #[inline]
    pub(crate) fn begin_yield(&self, running: NonNull<FiberControl>) -> Option<PendingYield> {
        let left = self.switches_until_poll.get();
        if !self.owner.can_switch_directly() || left == 0 || !self.owner.inbox.is_empty() {
            return begin_worker_yield(running);
        }
        self.switches_until_poll.set(left - 1);
        let yielding = Runnable::of_yielding(running);
        let Ok(next) = self.owner.with_queue(|queue| queue.rotate_most_urgent(yielding)) else {
            return self.begin_yield_to_other_level(running);
        };
        probe_and_return!("fiber.switch", |record| self
            .begin_switch_recorded(running, next, record));
        Some(self.begin_switch(running, next))
    }

    /// Begins the yield of a fiber if no ready fiber has its level, or a more urgent one is ready.
    /// Returns `None` if no ready fiber is as urgent. Never inlined, for the reason given at
    /// [`begin_worker_yield`].
    #[inline(never)]
    fn begin_yield_to_other_level(&self, running: NonNull<FiberControl>) -> Option<PendingYield> {
        if self.owner.with_queue(|queue| queue.count()) == 0 {
            return None;
        }
        self.begin_yield_between_levels(running)
    }

    /// Does [`begin_yield_to_other_level`](Self::begin_yield_to_other_level) while other fibers are
    /// ready. Never inlined, so that the caller saves no registers.
    #[inline(never)]
    fn begin_yield_between_levels(&self, running: NonNull<FiberControl>) -> Option<PendingYield> {
        let yielding = Runnable::of_yielding(running);
        let next = self.owner.with_queue(|queue| queue.push_then_pop(yielding)).ok()?;
        probe!("fiber.switch", next.id());
        Some(self.begin_switch(running, next))
    }

    /// Begins the switch from the running fiber to `next`, which it has taken from the run queue.
    /// Called after the probe of the switch: an overflow of this stack, in the probe for example,
    /// is reported as the fiber's own only while the fiber is noted as running.
    #[inline]
    fn begin_switch(&self, running: NonNull<FiberControl>, next: Runnable) -> PendingYield {
        self.running_fiber.set(Some(next.control_address()));
        PendingYield::to_fiber(running, next)
    }

    /// Records the switch by `record`, and begins it.
    #[cold]
    #[inline(never)]
    fn begin_switch_recorded(
        &self,
        running: NonNull<FiberControl>,
        next: Runnable,
        record: impl FnOnce(u64),
    ) -> Option<PendingYield> {
        record(next.id());
        Some(self.begin_switch(running, next))
    }

    /// Appends a woken fiber to the run queue. Prefetches its stack frames if at least
    /// [`PREFETCH_READY_MIN`] fibers run first.
    #[inline]
    fn push_woken(&self, fiber: Runnable) {
        if self.owner.with_queue(|queue| queue.count()) >= PREFETCH_READY_MIN {
            fiber.prefetch_frames();
        }
        self.push_ready(fiber);
    }

    /// Makes a woken fiber ready. The fiber goes into this worker's run queue, or to the inbox of
    /// the worker that it belongs to.
    #[inline]
    pub(crate) fn wake(&self, fiber: Runnable) {
        if fiber.home() == self.home_address() {
            self.push_woken(fiber);
        } else {
            self.send(fiber);
        }
    }

    /// Pushes a fiber of another worker into that worker's inbox.
    fn send(&self, fiber: Runnable) {
        let is_same_runtime = fiber.belongs_to(self.runtime_state());
        fiber.push_to_home(is_same_runtime);
    }

    /// Announces that a fiber of `pool` may be stolen, and wakes an idle worker of the pool.
    fn announce_stealable(&self, pool: u16) {
        // A worker that goes to sleep passes the heavy fence.
        let fence = || self.owner.fence_light();
        if self.owner.offers.announce(&self.runtime_state().idle_count, fence) {
            self.wake_idle(pool);
        }
    }

    /// Wakes one idle worker that serves the pool, if there is any.
    #[cold]
    fn wake_idle(&self, pool: u16) {
        let shared = self.runtime_state();
        let pool = &shared.pools[usize::from(pool)];
        for (worker_state, worker) in shared.workers.iter().zip(0..) {
            if pool.is_served_by(worker) && worker_state.offers.try_wake() {
                worker_state.unpark();
                return;
            }
        }
    }

    /// Returns a free stack from the worker's cache. Takes it from the stack pool if the cache is
    /// empty.
    #[inline]
    pub(crate) fn take_stack(&self) -> Result<Stack, StackError> {
        let mut stacks = self.free_stacks.borrow_mut();
        match stacks.pop() {
            Some(stack) => Ok(stack),
            None => self.runtime_state().stacks.take_stacks(STACKS_REFILL_COUNT, &mut stacks),
        }
    }

    /// Puts a free stack of this runtime's size into the worker's cache.
    #[inline]
    pub(crate) fn release_stack(&self, stack: Stack) {
        let mut stacks = self.free_stacks.borrow_mut();
        stacks.push(stack);
        if stacks.len() > STACKS_CACHED_MAX {
            self.runtime_state().stacks.release(stacks.drain(STACKS_CACHED_MAX / 2..));
        }
    }

    /// Starts a timer that makes the fiber ready at `deadline_ns`. Returns the fiber if there are
    /// too many timers.
    #[inline]
    pub(crate) fn sleep_until(&self, deadline_ns: u64, fiber: Runnable) -> Option<Runnable> {
        match self.wheel.borrow_mut().start(deadline_ns, TimerPayload::for_fiber(fiber)) {
            Ok(_id) => None,
            Err(WheelFull(due)) => due.expire(),
        }
    }

    /// Starts a timer with the payload `due`; returns `None` if there are too many timers.
    pub(crate) fn start_timer(&self, deadline_ns: u64, due: TimerPayload) -> Option<TimerId> {
        self.wheel.borrow_mut().start(deadline_ns, due).ok()
    }

    /// Cancels a timer, if it has not expired yet.
    pub(crate) fn cancel_timer(&self, timer: TimerId) {
        self.wheel.borrow_mut().cancel(timer);
    }

    /// Returns the descriptors for which fibers wait; creates the epoll set at the first call.
    pub(crate) fn readiness(&self) -> io::Result<&Readiness> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness);
        }
        let readiness = Readiness::new(&self.owner)?;
        Ok(self.readiness.get_or_init(|| readiness))
    }

    /// Returns the descriptors for which fibers wait; `None` if no fiber does.
    #[inline]
    fn awaited_readiness(&self) -> Option<&Readiness> {
        self.readiness.get().filter(|readiness| readiness.has_waits())
    }

    /// Waits for ready descriptors, up to `timeout_ns`, and makes the fibers that wait for them
    /// ready.
    fn wait_for_descriptors(&self, readiness: &Readiness, timeout_ns: Option<u64>) {
        readiness.wait(timeout_ns, |waiter| {
            waiter.wake_with(|fiber| self.push_woken(fiber));
        });
    }

    #[inline]
    pub(crate) fn has_no_ready_fiber(&self) -> bool {
        self.owner.with_queue(|queue| queue.count()) == 0 && self.owner.inbox.is_empty()
    }

    /// Spins until `should_wake` returns `true`, for as long as recent spins suggest, but not after
    /// `deadline_ns`. The fiber is not suspended meanwhile. Called only if [no other fiber is
    /// ready](Self::has_no_ready_fiber).
    pub(crate) fn spin(&self, deadline_ns: Option<u64>, mut should_wake: impl FnMut() -> bool) {
        let next_deadline_ns = self.wheel.borrow_mut().next_deadline_ns();
        let deadline_ns = [deadline_ns, next_deadline_ns].into_iter().flatten().min();
        if deadline_ns.is_some_and(|at| at <= clock::now_ns()) {
            return;
        }
        let mut found = false;
        let mut should_wake = || {
            found = should_wake();
            found || !self.owner.inbox.is_empty()
        };
        let mut parker = self.parker.borrow_mut();
        if !parker.poll_eagerly(&self.owner.unparker, &mut should_wake) {
            parker.spin(deadline_ns, &mut should_wake);
        }
        self.has_spun.set(!found);
    }

    /// Runs fibers until the runtime is shut down. `drop_unclaimed` spawns a fiber that drops the
    /// result of a detached fiber.
    pub(crate) fn run(&self, drop_unclaimed: impl Fn(&Self, UnclaimedResult)) {
        // Relaxed: polled in each turn of the loop.
        while !self.runtime_state().is_stopped.load(Ordering::Relaxed) {
            match self.next_fiber() {
                Some(fiber) => self.run_from(fiber, &drop_unclaimed),
                None => self.idle(),
            }
        }
        self.runtime_state().stacks.release(self.free_stacks.borrow_mut().drain(..));
    }

    /// Removes and returns the next fiber to run; `None` if no fiber is ready.
    #[inline]
    fn next_fiber(&self) -> Option<Runnable> {
        if !self.owner.inbox.is_empty() {
            self.empty_inbox();
        }
        let left = self.switches_until_poll.get();
        if left == 0 {
            return self.poll();
        }
        self.switches_until_poll.set(left - 1);
        self.owner.with_queue(|queue| queue.pop())
    }

    /// Runs `fiber`, the fibers to which it yields directly, and after each other yield the next
    /// ready fiber. Returns once one waits or finishes, or the clock must be read.
    #[inline]
    fn run_from(&self, mut fiber: Runnable, drop_unclaimed: &impl Fn(&Self, UnclaimedResult)) {
        loop {
            self.running_fiber.set(Some(fiber.control_address()));
            probe!("fiber.switch", fiber.id());
            match fiber.resume(&self.context) {
                ResumeOutcome::Yielded(yielded) => {
                    let left = self.switches_until_poll.get();
                    if left == 0 || !self.owner.inbox.is_empty() {
                        self.push_ready(yielded);
                        return;
                    }
                    self.switches_until_poll.set(left - 1);
                    let pool = self.offered_pool(&yielded);
                    match self.owner.with_queue(|queue| queue.push_then_pop(yielded)) {
                        Ok(next) => {
                            if let Some(pool) = pool {
                                self.announce_stealable(pool);
                            }
                            fiber = next;
                        }
                        Err(alone) => fiber = alone,
                    }
                }
                ResumeOutcome::Parked(None) => return,
                ResumeOutcome::Parked(Some(resumed)) => fiber = resumed,
                ResumeOutcome::Finished(fiber) => return self.finish_fiber(fiber, drop_unclaimed),
            }
        }
    }

    /// Wakes the waiters of a finished fiber, and frees its stack unless a handle owns it.
    #[inline]
    fn finish_fiber(&self, fiber: FinishedFiber, drop_unclaimed: &impl Fn(&Self, UnclaimedResult)) {
        if fiber.has_panicked() {
            add_to_counter(&self.owner.counters.panicked, 1);
        }
        let wake = |waiter| match waiter {
            Waiter::Fiber(fiber) if fiber.home() == self.home_address() => self.push_ready(fiber),
            #[cfg(feature = "async")]
            Waiter::Task(task) => self.wake_joiner(task.take_waker()),
            waiter => {
                waiter.wake_with(|fiber| self.wake(fiber));
            }
        };
        match fiber.notify_waiters(wake) {
            FiberRemains::Nothing => {}
            FiberRemains::Stack(stack) => self.release_stack(stack),
            FiberRemains::UnclaimedResult(unread) => drop_unclaimed(self, unread),
        }
        self.fiber_counts().add_finished();
    }

    /// Calls the waker of an async task that awaits the finished fiber. It is foreign code: it may
    /// panic, or try to suspend the fiber that it finds running.
    #[cfg(feature = "async")]
    #[cold]
    fn wake_joiner(&self, waker: Option<std::task::Waker>) {
        self.running_fiber.set(None);
        let woken = catch_unwind(AssertUnwindSafe(|| waker.map(std::task::Waker::wake)));
        if let Err(payload) = woken {
            handover_base::unwind::drop_payload(payload);
            add_to_counter(&self.owner.counters.panicked, 1);
        }
    }

    /// Moves the fibers in the inbox to the run queue.
    #[cold]
    #[inline(never)]
    fn empty_inbox(&self) {
        let mut arrived = self.owner.inbox.take_all();
        while let Some(fiber) = arrived.pop_front() {
            self.push_ready(fiber);
        }
    }

    /// Reads the clock, expires timers, and returns the next fiber to run. Returns `None` if no
    /// fiber is ready. Called once every few switches.
    #[cold]
    #[inline(never)]
    fn poll(&self) -> Option<Runnable> {
        let now_ns = clock::now_ns();
        self.expire(
            now_ns,
            self.counted_switches_until_poll.get() - self.switches_until_poll.get(),
        );
        if let Some(readiness) = self.awaited_readiness()
            && readiness.begin_poll_if_due(now_ns)
        {
            self.wait_for_descriptors(readiness, Some(0));
        }
        let mut poll_interval = self.poll_interval.get();
        let before_ns = self.last_poll_ns.replace(now_ns);
        self.count_switches();
        let switches_until_poll =
            poll_interval.next_switches_count(now_ns.saturating_sub(before_ns)) - 1;
        self.switches_until_poll.set(switches_until_poll);
        self.counted_switches_until_poll.set(switches_until_poll);
        self.poll_interval.set(poll_interval);
        let polls_count = self.polls_count.get().wrapping_add(1);
        self.polls_count.set(polls_count);
        if polls_count.is_multiple_of(POLLS_PER_LESS_URGENT) {
            self.owner.with_queue(|queue| queue.pop_less_urgent())
        } else {
            self.owner.with_queue(|queue| queue.pop())
        }
    }

    /// Adds the switches since the last call to the statistics.
    fn count_switches(&self) {
        let left = self.switches_until_poll.get();
        add_to_counter(
            &self.owner.counters.switches,
            u64::from(self.counted_switches_until_poll.replace(left) - left),
        );
    }

    /// Makes fibers ready whose deadline has passed. Returns `true` if any timer expired. Under
    /// load, at most one expires per [`SWITCHES_PER_EXPIRED`] switches. `switches_count` is the
    /// number of switches since the last call.
    fn expire(&self, now_ns: u64, switches_count: u32) -> bool {
        let mut wheel = self.wheel.borrow_mut();
        let mut due = self.due_buffer.borrow_mut();
        let ready_count = self.owner.with_queue(|queue| queue.count());
        let switches_count = self.uncredited_switches.get() + switches_count;
        self.uncredited_switches.set(switches_count % SWITCHES_PER_EXPIRED);
        let wanted =
            EXPIRED_MAX.saturating_sub(ready_count).max(switches_count / SWITCHES_PER_EXPIRED);
        wheel.expire(now_ns, wanted as usize, |expired| {
            expired.payload.prefetch();
            due.push(expired.payload);
        });
        let has_any = !due.is_empty();
        for fiber in due.drain(..).filter_map(TimerPayload::expire) {
            self.push_woken(fiber);
        }
        has_any
    }

    /// Handles an empty run queue: expires timers, steals fibers or sleeps. During shutdown, stops
    /// the workers if all fibers have finished.
    #[inline(never)]
    fn idle(&self) {
        let now_ns = clock::now_ns();
        self.last_poll_ns.set(now_ns);
        if let Some(readiness) = self.awaited_readiness() {
            self.wait_for_descriptors(readiness, Some(0));
        }
        if self.expire(now_ns, 0) || self.owner.with_queue(|queue| queue.count()) != 0 {
            return;
        }
        let shared = self.runtime_state();
        self.count_switches();
        // Acquire: pairs with the SeqCst store of begin_closing(): spawns before it are counted.
        let is_closing = shared.is_closing.load(Ordering::Acquire);
        if is_closing && shared.have_all_finished() {
            // Relaxed: the wake-up below publishes it.
            shared.is_stopped.store(true, Ordering::Relaxed);
            shared.wake_workers();
            return;
        }
        if self.can_steal && self.steal() {
            return;
        }
        self.sleep_until_work(now_ns, is_closing);
    }

    /// Sleeps until a fiber may be ready or the next deadline has passed.
    fn sleep_until_work(&self, now_ns: u64, was_closing: bool) {
        let shared = self.runtime_state();
        let next_deadline_ns = self.wheel.borrow_mut().next_deadline_ns();
        // The kernel ends sleeps late, so the end is requested earlier by the lead.
        let deadline_ns =
            next_deadline_ns.map(|at| at - self.lead.get().lead_ns(at.saturating_sub(now_ns)));
        // Relaxed: the worker acts on it after it is unparked, or reads it again. The fibers are
        // counted again, as a spawn that is refused was counted for a moment.
        let mut should_wake = || {
            !self.owner.inbox.is_empty()
                || shared.is_stopped.load(Ordering::Relaxed)
                || shared.is_closing.load(Ordering::Relaxed) != was_closing
                || (was_closing && shared.have_all_finished())
        };
        let is_early = next_deadline_ns.is_some() && next_deadline_ns == self.woken_for_ns.get();
        if is_early
            || deadline_ns.is_some_and(|at| at.saturating_sub(now_ns) < POLLED_DEADLINE_NS_MAX)
        {
            for _ in 0..16 {
                if should_wake() {
                    break;
                }
                std::hint::spin_loop();
            }
            return;
        }
        let mut parker = self.parker.borrow_mut();
        if !self.has_spun.replace(false)
            && (parker.poll_eagerly(&self.owner.unparker, &mut should_wake)
                || parker.spin(deadline_ns, &mut should_wake))
        {
            return;
        }
        let next_steal_ns = self.next_steal_ns.get();
        if !self.can_steal || next_steal_ns.is_some() {
            // Offers do not wake it: it would check the same fibers again for each.
            let end_ns = deadline_ns.into_iter().chain(next_steal_ns).min();
            add_to_counter(&self.owner.counters.parks, 1);
            if self.park(&mut parker, end_ns, &mut should_wake) == ParkResult::SleepEnded {
                self.record_lateness(deadline_ns, next_deadline_ns);
            }
            return;
        }
        self.owner.offers.begin_idle(&shared.idle_count, || self.owner.fence_heavy());
        let has_new_offers = |worker: usize| {
            worker != self.index as usize
                && shared.workers[worker].offers.has_new_since(self.seen_offer_counts[worker].get())
        };
        if !(0..shared.workers.len()).any(has_new_offers) {
            add_to_counter(&self.owner.counters.parks, 1);
            let parked = self.park(&mut parker, deadline_ns, &mut || {
                should_wake() || self.owner.offers.is_woken()
            });
            if parked == ParkResult::SleepEnded {
                self.record_lateness(deadline_ns, next_deadline_ns);
            }
        }
        if self.owner.offers.end_idle(&shared.idle_count) {
            // Steals although fibers of its inbox run first. Wakes another idle worker if it may
            // not have checked the fiber for which it was woken: it has stolen another one or left
            // some unchecked. If there is one pool, push_ready() wakes that worker by announcing
            // the stolen fibers.
            self.empty_inbox();
            if self.steal() && shared.pools.len() > 1 || self.next_steal_ns.get().is_some() {
                let served = shared.pools.iter().filter(|pool| pool.is_served_by(self.index));
                served.for_each(|pool| self.wake_idle(pool.index));
            }
        }
    }

    /// Parks the worker until it is unparked, `deadline_ns` passes, or an awaited descriptor is
    /// ready.
    fn park(
        &self,
        parker: &mut Parker,
        deadline_ns: Option<u64>,
        should_wake: &mut impl FnMut() -> bool,
    ) -> ParkResult {
        let unparker = &self.owner.unparker;
        let Some(readiness) = self.awaited_readiness() else {
            return parker.park(unparker, deadline_ns, should_wake);
        };
        parker.park_with(unparker, should_wake, |now_ns| {
            let timeout_ns = deadline_ns.map(|at| at.saturating_sub(now_ns));
            self.wait_for_descriptors(readiness, timeout_ns);
        })
    }

    /// Updates the sleep lead after a sleep that was requested until `deadline_ns`, for a timer at
    /// `next_deadline_ns`.
    fn record_lateness(&self, deadline_ns: Option<u64>, next_deadline_ns: Option<u64>) {
        let now_ns = clock::now_ns();
        let late_ns = deadline_ns.and_then(|at| now_ns.checked_sub(at));
        let Some(late_ns) = late_ns else { return };
        let mut lead = self.lead.get();
        lead.record_lateness(late_ns);
        self.lead.set(lead);
        self.woken_for_ns.set(next_deadline_ns);
    }

    /// Steals up to half of another worker's ready fibers, from pools that this worker serves.
    /// Returns `true` if it stole any.
    fn steal(&self) -> bool {
        let workers = &self.runtime_state().workers;
        self.next_steal_ns.set(None);
        for offset in 1..workers.len() {
            let other_index = (self.index as usize + offset) % workers.len();
            let (other, seen) = (&workers[other_index], &self.seen_offer_counts[other_index]);
            let offers = other.offers.announced_count();
            if offers == seen.get() {
                continue;
            }
            let Some(mut taken) = self.take_half(other, &self.has_unchecked[other_index]) else {
                let next_ns = self.next_steal_ns.get().into_iter();
                self.next_steal_ns.set(next_ns.chain([other.offers.next_long_check_ns()]).min());
                continue;
            };
            let mut count = 0;
            while let Some(fiber) = taken.pop_front() {
                fiber.set_home(self.home_address());
                self.push_ready(fiber);
                count += 1;
            }
            if count != 0 {
                add_to_counter(&self.owner.counters.stolen, count);
                return true;
            }
            seen.set(offers);
        }
        false
    }

    /// Removes up to half of the ready fibers of `other` that this worker may take. Returns `None`
    /// if it found none and left fibers unchecked, as the queue is long or a third worker is
    /// accessing it.
    fn take_half(&self, other: &WorkerState, has_unchecked: &Cell<bool>) -> Option<List<Runnable>> {
        let pools = &self.runtime_state().pools;
        let can_take = |fiber: &Runnable| {
            fiber.can_migrate() && pools[usize::from(fiber.pool())].is_served_by(self.index)
        };
        let check = |checks_max| {
            self.owner
                .with_queue_of_worker(other, |queue| queue.split_off_half(checks_max, can_take))
        };
        if !has_unchecked.get() {
            let taken = check(SHORT_STEAL_CHECKS_MAX)?;
            if taken.is_some() {
                return taken;
            }
            has_unchecked.set(true);
        }
        if !other.offers.claim_long_check(clock::now_ns(), LONG_STEAL_INTERVAL_NS) {
            return None;
        }
        let taken = check(LONG_STEAL_CHECKS_MAX)?;
        has_unchecked.set(taken.is_none());
        taken
    }
}

/// Begins the yield of the running fiber to its worker. Never inlined, so that
/// [`begin_yield`](Worker::begin_yield) calls no function and saves no registers.
#[inline(never)]
fn begin_worker_yield(running: NonNull<FiberControl>) -> Option<PendingYield> {
    Some(PendingYield::to_worker(running))
}
