//! A worker: runs those who can run, wakes those whose time has come, and sleeps when there is neither.

use super::post::{Shared, add};
use super::waiter::Waiter;
use crate::engine::tally::Tally;
use crate::engine::{Lead, Pace};
use crate::error::StackError;
use crate::raw::{self, Due, Outcome, Place, Rest, Runnable, Stack, Unread};
use handover_base::clock;
use handover_base::sync::shared::Ordering;
use handover_notify::{Parked, Parker};
use handover_probe::probe;
use handover_timer::{Config as WheelConfig, Full, TimerId, Wheel};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

/// So many free stacks a worker keeps for itself, out of reach of who spawns from outside; of more it gives back
/// half.
const STACKS_KEPT_MAX: usize = 256;
const STACKS_FETCHED: usize = 64;
/// A deadline so near is waited for without sleeping: a sleep takes as much of the CPU, and those that are due soon
/// after each other come to be due together. `fiber-cost loops`, 2026-11: 100 fibers take 0.07 s of CPU a second,
/// with 3 µs 0.15 s, and the bare sleeps 0.03 s.
const NEAR_NS: u64 = 20_000;
/// So many of those whose time has come are made ready at a time: what they touch, and what those touch whom they
/// wake, is to stay in the processor's caches until it is their turn.
const EXPIRED_MAX: u32 = 64;
/// However many others can run, one in so many switches goes to those whose time has come. Fewer than such a one
/// causes as a rule: it goes on, wakes somebody, and that one begins anew. With more they would pile up.
const SWITCHES_PER_EXPIRED: u32 = 4;
/// With so many ready before it, a woken fiber's frames are asked for ahead of its turn.
const FETCHED_FROM: u32 = 4;
/// So many fibers a thief looks at.
const LOOKS_MAX: u32 = 128;
/// One look at the clock in so many, somebody of the least urgent runs.
const POLLS_PER_LEAST: u32 = 4;

pub(crate) struct Worker {
    place: Place,
    index: u32,
    steals: bool,
    running: Cell<Option<NonNull<raw::Control>>>,
    wheel: RefCell<Wheel<Due>>,
    parker: RefCell<Parker>,
    /// Those whose time has come, for a moment.
    due: RefCell<Vec<Due>>,
    /// How late the kernel ends sleeps.
    lead: Cell<Lead>,
    /// The deadline for which it was woken, which may be still to come.
    woken_for_ns: Cell<Option<u64>>,
    stacks: RefCell<Vec<Stack>>,
    until_poll: Cell<u32>,
    polls_count: Cell<u32>,
    /// Switches for which nobody whose time has come was made ready yet.
    unspent: Cell<u32>,
    pace: Cell<Pace>,
    polled_ns: Cell<u64>,
    next_id: Cell<u64>,
    /// The fiber that ran last has spun, so that the worker need not.
    has_spun: Cell<bool>,
    /// What `until_poll` was when the switches were counted last.
    counted: Cell<u32>,
    /// For each post, the offers after which nothing was left there that this worker may steal.
    seen_offers: Box<[Cell<u32>]>,
}

impl Worker {
    /// The only worker of this place.
    pub(crate) fn new(place: Place, index: u32) -> Option<Self> {
        let shared = Arc::clone(place.shared());
        let now_ns = clock::now_ns();
        Some(Self {
            index,
            steals: shared.steals() && shared.posts.len() > 1,
            running: Cell::new(None),
            wheel: RefCell::new(
                Wheel::new(WheelConfig { timers_max: 1 << 28, timers_reserved: 0 }, now_ns).ok()?,
            ),
            parker: RefCell::new(Parker::new(shared.config.spin).ok()?),
            stacks: RefCell::default(),
            due: RefCell::default(),
            lead: Cell::new(Lead::new()),
            woken_for_ns: Cell::new(None),
            until_poll: Cell::new(0),
            polls_count: Cell::new(0),
            unspent: Cell::new(0),
            pace: Cell::new(Pace::new()),
            polled_ns: Cell::new(now_ns),
            // Numbers are of one worker, so that nobody has to ask another for the next.
            next_id: Cell::new((u64::from(index) + 1) << 40),
            has_spun: Cell::new(false),
            counted: Cell::new(0),
            seen_offers: shared.posts.iter().map(|_| Cell::new(0)).collect(),
            place,
        })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.place.shared()
    }

    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<super::post::Post> {
        self.place.address()
    }

    /// The fiber that runs now.
    #[inline]
    pub(crate) fn running(&self) -> Option<NonNull<raw::Control>> {
        self.running.get()
    }

    /// A number that no other fiber has.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// The fibers that it has spawned and ended.
    #[inline]
    pub(crate) fn tally(&self) -> &Tally {
        &self.place.counters.tally
    }

    /// Puts a fiber of ours behind those that can run.
    #[inline]
    pub(crate) fn push(&self, fiber: Runnable) {
        let pool = self.offered_pool(&fiber);
        self.place.ready(|queue| queue.push(fiber));
        if let Some(pool) = pool {
            self.offer(pool);
        }
    }

    /// The pool of a fiber that may be stolen once it is among those that can run.
    #[inline]
    fn offered_pool(&self, fiber: &Runnable) -> Option<u16> {
        (self.steals && fiber.may_move()).then(|| fiber.pool())
    }

    /// The same of one that has waited, and whose frames are asked for while others have their turn: where
    /// nobody has, it is too late for that, and they may still be near.
    #[inline]
    pub(crate) fn push_woken(&self, fiber: Runnable) {
        if self.place.ready(|queue| queue.count()) >= FETCHED_FROM {
            fiber.fetch_frames();
        }
        self.push(fiber);
    }

    /// Puts a fiber of another worker where that finds it.
    pub(crate) fn send(&self, fiber: Runnable) {
        let is_kin = fiber.is_of(self.shared());
        fiber.send_home(is_kin);
    }

    /// Says that a fiber of that pool may be stolen, and wakes a worker of the pool that has nothing to do.
    fn offer(&self, pool: u16) {
        let offers = &self.place.offers;
        // Release: who sees the offer finds the fiber in the queue; pairs with the Acquire in steal().
        offers.store(offers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        // Pairs with the heavy fence of who goes to sleep: it sees the offer, or we see that it is idle.
        self.place.fence_light();
        // Relaxed: ordered by the fence.
        if self.shared().idle_count.load(Ordering::Relaxed) != 0 {
            self.wake_idle(pool);
        }
    }

    #[cold]
    fn wake_idle(&self, pool: u16) {
        let shared = self.shared();
        let pool = &shared.pools[usize::from(pool)];
        for (post, worker) in shared.posts.iter().zip(0..) {
            // Relaxed: only one is to ring; the bell synchronises.
            if post.is_idle.load(Ordering::Relaxed)
                && pool.is_served_by(worker)
                && post.is_idle.swap(false, Ordering::Relaxed)
            {
                post.bell.ring();
                return;
            }
        }
    }

    /// A stack to spawn with.
    #[inline]
    pub(crate) fn take_stack(&self) -> Result<Stack, StackError> {
        let mut stacks = self.stacks.borrow_mut();
        match stacks.pop() {
            Some(stack) => Ok(stack),
            None => self.shared().stacks.take_some(STACKS_FETCHED, &mut stacks),
        }
    }

    /// Takes back a stack of our size.
    #[inline]
    pub(crate) fn give_stack(&self, stack: Stack) {
        let mut stacks = self.stacks.borrow_mut();
        stacks.push(stack);
        if stacks.len() > STACKS_KEPT_MAX {
            self.shared().stacks.give_back(stacks.drain(STACKS_KEPT_MAX / 2..));
        }
    }

    /// Has the fiber run at `deadline_ns`; gives it back if there are too many timers.
    #[inline]
    pub(crate) fn sleep_until(&self, deadline_ns: u64, fiber: Runnable) -> Option<Runnable> {
        match self.wheel.borrow_mut().start(deadline_ns, Due::fiber(fiber)) {
            Ok(_id) => None,
            Err(Full(due)) => due.come(),
        }
    }

    /// Has something come at `deadline_ns`, unless there are too many timers.
    pub(crate) fn start(&self, deadline_ns: u64, due: Due) -> Option<TimerId> {
        self.wheel.borrow_mut().start(deadline_ns, due).ok()
    }

    /// Has it not come, if it has not yet.
    pub(crate) fn cancel(&self, timer: TimerId) {
        self.wheel.borrow_mut().cancel(timer);
    }

    /// Whether nobody else can run.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.place.ready(|queue| queue.count()) == 0 && self.place.inbox.is_empty()
    }

    /// Looks for a while until `look` is true, without suspending anybody, if that has paid lately. For who is
    /// [alone](Self::is_alone).
    pub(crate) fn spin(&self, mut look: impl FnMut() -> bool) {
        let deadline_ns = self.wheel.borrow_mut().next_deadline_ns();
        if deadline_ns.is_some_and(|at| at <= clock::now_ns()) {
            return;
        }
        let mut found = false;
        let mut look = || {
            found = look();
            found || !self.place.inbox.is_empty()
        };
        let mut parker = self.parker.borrow_mut();
        if !parker.look_eagerly(&mut look) {
            parker.spin(deadline_ns, &mut look);
        }
        self.has_spun.set(!found);
    }

    /// Runs fibers until the runtime ends.
    pub(crate) fn run(&self) {
        // Relaxed: it is looked at again and again.
        while !self.shared().is_stopped.load(Ordering::Relaxed) {
            match self.next() {
                Some(fiber) => self.run_from(fiber),
                None => self.idle(),
            }
        }
        self.shared().stacks.give_back(self.stacks.borrow_mut().drain(..));
    }

    #[inline]
    fn next(&self) -> Option<Runnable> {
        if !self.place.inbox.is_empty() {
            self.empty_inbox();
        }
        let left = self.until_poll.get();
        if left == 0 {
            return self.poll();
        }
        self.until_poll.set(left - 1);
        self.place.ready(|queue| queue.pop())
    }

    /// Runs a fiber, and as long as they only make room for each other, the next ones.
    #[inline]
    fn run_from(&self, mut fiber: Runnable) {
        loop {
            self.running.set(Some(fiber.running()));
            probe!("fiber.switch", fiber.id());
            match fiber.resume() {
                Outcome::Yielded(yielded) => {
                    let left = self.until_poll.get();
                    if left == 0 || !self.place.inbox.is_empty() {
                        self.push(yielded);
                        return;
                    }
                    self.until_poll.set(left - 1);
                    let (before, pool) = (yielded.running(), self.offered_pool(&yielded));
                    fiber = self.place.ready(|queue| queue.rotate(yielded));
                    if let Some(pool) = pool
                        && fiber.running() != before
                    {
                        self.offer(pool);
                    }
                }
                Outcome::Parked(None) => return,
                Outcome::Parked(Some(kept)) => fiber = kept,
                Outcome::Ended(ended) => return self.end(ended),
            }
        }
    }

    #[inline]
    fn end(&self, ended: raw::Ended) {
        if ended.has_panicked() {
            add(&self.place.counters.panicked, 1);
        }
        let wake = |waiter| match waiter {
            Waiter::Fiber(fiber) if fiber.home() == self.address() => self.push(fiber),
            waiter => waiter.wake(),
        };
        match ended.announce(wake) {
            Rest::Nothing => {}
            Rest::Stack(stack) => self.give_stack(stack),
            Rest::Unread(unread) => self.drop_unread(unread),
        }
        self.tally().add_ended();
    }

    /// Somebody's handle was dropped while its fiber ran: has a fiber drop what that returned.
    #[cold]
    fn drop_unread(&self, unread: Unread) {
        let drops = move || unread.finish(super::spawn::give_back);
        // Without a stack for it, the result stays undropped.
        let _ = super::spawn::spawn_local_detached(self, drops);
    }

    #[cold]
    #[inline(never)]
    fn empty_inbox(&self) {
        let mut arrived = self.place.inbox.take();
        while let Some(fiber) = arrived.pop_front() {
            self.push(fiber);
        }
    }

    /// What is to be done now and then.
    #[cold]
    #[inline(never)]
    fn poll(&self) -> Option<Runnable> {
        let now_ns = clock::now_ns();
        self.expire(now_ns, self.counted.get() - self.until_poll.get());
        let mut pace = self.pace.get();
        let before_ns = self.polled_ns.replace(now_ns);
        self.tell_switches();
        let until_poll = pace.next(now_ns.saturating_sub(before_ns)) - 1;
        self.until_poll.set(until_poll);
        self.counted.set(until_poll);
        self.pace.set(pace);
        let polls_count = self.polls_count.get().wrapping_add(1);
        self.polls_count.set(polls_count);
        if polls_count.is_multiple_of(POLLS_PER_LEAST) {
            self.place.ready(|queue| queue.pop_least())
        } else {
            self.place.ready(|queue| queue.pop())
        }
    }

    /// Says how many switches there were since it was said last.
    fn tell_switches(&self) {
        let left = self.until_poll.get();
        add(&self.place.counters.switches, u64::from(self.counted.replace(left) - left));
    }

    /// Wakes those whose time has come, but no more than their share of the worker, which has switched so often since
    /// it was asked last; whether there were such.
    fn expire(&self, now_ns: u64, switches_count: u32) -> bool {
        let mut wheel = self.wheel.borrow_mut();
        let mut due = self.due.borrow_mut();
        let ready_count = self.place.ready(|queue| queue.count());
        let switches_count = self.unspent.get() + switches_count;
        self.unspent.set(switches_count % SWITCHES_PER_EXPIRED);
        let wanted =
            EXPIRED_MAX.saturating_sub(ready_count).max(switches_count / SWITCHES_PER_EXPIRED);
        wheel.expire(now_ns, wanted as usize, |expired| {
            expired.payload.fetch();
            due.push(expired.payload);
        });
        let has_any = !due.is_empty();
        for fiber in due.drain(..).filter_map(Due::come) {
            self.push_woken(fiber);
        }
        has_any
    }

    /// There is nobody to run.
    #[inline(never)]
    fn idle(&self) {
        let now_ns = clock::now_ns();
        self.polled_ns.set(now_ns);
        if self.expire(now_ns, 0) {
            return;
        }
        let shared = self.shared();
        self.tell_switches();
        // Acquire: pairs with the Release of who closes: what was spawned before is counted.
        let is_closing = shared.is_closing.load(Ordering::Acquire);
        if is_closing && shared.have_all_ended() {
            // Relaxed: the ring below publishes it.
            shared.is_stopped.store(true, Ordering::Relaxed);
            shared.ring_all();
            return;
        }
        if self.steals && self.steal() {
            return;
        }
        self.rest(now_ns, is_closing);
    }

    fn rest(&self, now_ns: u64, was_closing: bool) {
        let shared = self.shared();
        let next_ns = self.wheel.borrow_mut().next_deadline_ns();
        // The kernel takes its time, and is asked to end the sleep so much earlier.
        let deadline_ns = next_ns.map(|at| at - self.lead.get().ns(at.saturating_sub(now_ns)));
        // Relaxed: it is acted upon after the bell, or at the next look.
        let mut look = || {
            !self.place.inbox.is_empty()
                || shared.is_stopped.load(Ordering::Relaxed)
                || shared.is_closing.load(Ordering::Relaxed) != was_closing
        };
        let is_early = next_ns.is_some() && next_ns == self.woken_for_ns.get();
        if is_early || deadline_ns.is_some_and(|at| at.saturating_sub(now_ns) < NEAR_NS) {
            for _ in 0..16 {
                if look() {
                    break;
                }
                std::hint::spin_loop();
            }
            return;
        }
        let mut parker = self.parker.borrow_mut();
        if !self.has_spun.replace(false)
            && (parker.look_eagerly(&mut look) || parker.spin(deadline_ns, &mut look))
        {
            return;
        }
        if !self.steals {
            add(&self.place.counters.parks, 1);
            if parker.park(&self.place.bell, deadline_ns, &mut look) == Parked::Otherwise {
                self.learn(deadline_ns, next_ns);
            }
            return;
        }
        // Relaxed: the heavy fence orders these stores before the looks at the others' queues.
        self.place.is_idle.store(true, Ordering::Relaxed);
        shared.idle_count.fetch_add(1, Ordering::Relaxed);
        self.place.fence_heavy();
        // Relaxed: ordered by the fence.
        let has_new_offers = |worker: usize| {
            worker != self.index as usize
                && shared.posts[worker].offers.load(Ordering::Relaxed)
                    != self.seen_offers[worker].get()
        };
        if !(0..shared.posts.len()).any(has_new_offers) {
            add(&self.place.counters.parks, 1);
            let parked = parker.park(&self.place.bell, deadline_ns, &mut || {
                // Relaxed: who turns this off rings afterwards.
                look() || !self.place.is_idle.load(Ordering::Relaxed)
            });
            if parked == Parked::Otherwise {
                self.learn(deadline_ns, next_ns);
            }
        }
        // Relaxed: a hint to others from here on.
        shared.idle_count.fetch_sub(1, Ordering::Relaxed);
        self.place.is_idle.store(false, Ordering::Relaxed);
    }

    /// A sleep that was to end at `deadline_ns`, in time for what is due at `next_ns`, has ended.
    fn learn(&self, deadline_ns: Option<u64>, next_ns: Option<u64>) {
        let now_ns = clock::now_ns();
        let late_ns = deadline_ns.and_then(|at| now_ns.checked_sub(at));
        let Some(late_ns) = late_ns else { return };
        let mut lead = self.lead.get();
        lead.learn(late_ns);
        self.lead.set(lead);
        self.woken_for_ns.set(next_ns);
    }

    /// Takes half of what another has, of pools that this worker serves; whether there was any.
    fn steal(&self) -> bool {
        let Shared { posts, pools, .. } = &**self.shared();
        let may_take = |fiber: &Runnable| {
            fiber.may_move() && pools[usize::from(fiber.pool())].is_served_by(self.index)
        };
        for offset in 1..posts.len() {
            let other_index = (self.index as usize + offset) % posts.len();
            let (other, seen) = (&posts[other_index], &self.seen_offers[other_index]);
            // Acquire: pairs with the Release in offer(): what was offered is in the queue, or was taken.
            let offers = other.offers.load(Ordering::Acquire);
            if offers == seen.get() {
                continue;
            }
            let split = self.place.visit(other, |queue| queue.split(LOOKS_MAX, may_take));
            let Some((mut taken, looked_at_all)) = split else { continue };
            let mut count = 0;
            while let Some(fiber) = taken.pop_front() {
                fiber.rehome(self.address());
                self.push(fiber);
                count += 1;
            }
            if count != 0 {
                add(&self.place.counters.stolen, count);
                return true;
            }
            if looked_at_all {
                seen.set(offers);
            }
        }
        false
    }
}
