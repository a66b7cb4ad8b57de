//! loom models of the gate of an eventual, the inbox of a worker, and the lock of its run queue.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-fiber --features async --test model \
//!     --profile loom --target-dir target/loom
//! ```
//!
//! Calls that each model combines; `/` separates threads:
//!
//! | model | calls |
//! |---|---|
//! | gate_waiter_is_woken_.. | claim, set / enqueue |
//! | reader_that_finds_the_gate_open_.. | claim, set / is_set |
//! | wake_up_of_an_open_gate_.. | is_set, set / close |
//! | two_waiters_.. | enqueue / enqueue / set |
//! | exactly_one_of_two_setters_.. | claim, set / claim, set |
//! | dropped_handle_and_ended_fiber_.. | abandon / set |
//! | exactly_one_of_setter_and_timeout_.. | claim, set / enqueue, expire, withdraw |
//! | timed_out_waiter_leaves_other_waiters_.. | enqueue, expire, withdraw / enqueue / set |
//! | two_concurrent_timeouts_.. | enqueue, expire, withdraw / the same; then set |
//! | waiter_is_woken_.. | enqueue / set, close |
//! | opening_is_closed_by_one_.. | close / close / set |
//! | timed_out_waiter_leaves_a_reclosed_gate | enqueue, expire, withdraw / set, close |
//! | waiter_beside_a_timed_out_one_.. | enqueue / enqueue, expire, withdraw / set, close |
//! | polled_task_.. | claim, set / poll, poll |
//! | task_that_is_polled_by_another_.. | set / poll, poll with another waker |
//! | cancelled_task_.. | set / poll, cancel / enqueue |
//! | cancelled_task_and_timed_out_waiter_.. | poll, cancel / enqueue, expire, withdraw; then set |
//! | task_beside_a_timed_out_waiter_.. | poll, poll / enqueue, expire, withdraw / set, close |
//! | inbox_returns_.. | push, push / push, take |
//! | owner_and_thief_.. | with_lock_as_owner, with_lock_as_owner / with_lock_as_remote |
//! | idle_worker_gets_the_offered_fiber | with_lock_as_owner, announce, try_wake / announced_count, with_lock_as_remote, begin_idle, has_new_since, is_woken, end_idle |
//! | one_of_two_idle_workers_.. | with_lock_as_owner, announce, try_wake / the thief's calls above / the same |
//! | idle_worker_gets_.._beside_.. | with_lock_as_owner, announce, try_wake / the thief's calls above / begin_idle, end_idle, announced_count, with_lock_as_remote |
//! | idle_worker_gets_.._unchecked | with_lock_as_owner, announce, try_wake / the thief's calls above / begin_idle, end_idle, try_wake |
//! | one_of_two_workers_.. | add_finished, have_all_finished / the same |
//! | fiber_count_stays_positive_.. | spawn, end / count |
//!
//! Not modelled: the mutex, conditions, barriers and channels, whose waiters are under a `std`
//! mutex; the sleep of a worker, which is part of `handover-notify`.
//!
//! Seen to fail: workers that check whether all fibers have ended without a fence after their own
//! count; a gate that is closed while a waiter that gives up holds the list of the others; an owner
//! that announces without its fence, or a thief that looks for offers before it declares itself
//! idle; a worker that was woken for an offer and neither steals nor wakes another one; a relaxed
//! `is_set`; a wake-up of an open gate without a fence on either side; a `set` that replaces the
//! state of a gate that is being closed.
//!
//! The membarrier with which a thief makes all threads pass a fence is modelled as a fence on both
//! sides, since loom knows no other. A kernel without membarrier gets the same.
#![cfg(handover_loom)]

mod raw;

use handover_base::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use handover_base::sync::{Arc, hint, thread};
use handover_fiber::model::{
    BiasedLock, FiberCounts, Gate, IdleCount, Inbox, Offers, PreviousState, WakeRace, Withdrawals,
    alive_count, have_all_finished,
};
use raw::{Item, wait_at, wait_at_until, wait_at_untimed};

/// Waiter that blocks until its flag is set. Polling would not do: of two polling waiters, loom may
/// let one run for ever.
#[derive(Clone)]
struct Flag(Arc<(AtomicBool, loom::sync::Notify)>);

impl Flag {
    fn new() -> Self {
        Self(Arc::new((AtomicBool::new(false), loom::sync::Notify::new())))
    }

    fn wake(&self) {
        // AcqRel: pairs with itself and with the accesses in wait() and wait_and_clear(). It is a
        // swap that acquires because loom orders two writes of one atomic by happens-before alone.
        self.0.0.swap(true, Ordering::AcqRel);
        self.0.1.notify();
    }

    fn wait(&self) {
        // Acquire: pairs with the AcqRel in wake().
        while !self.0.0.load(Ordering::Acquire) {
            self.0.1.wait();
        }
    }

    /// Waits as `wait`, and clears the flag.
    fn wait_and_clear(&self) {
        // AcqRel: pairs with the AcqRel in wake().
        while !self.0.0.swap(false, Ordering::AcqRel) {
            self.0.1.wait();
        }
    }
}

fn open(gate: &Gate<Flag>) -> bool {
    match gate.set() {
        PreviousState::Waiting(waiters) => {
            waiters.for_each(|flag| flag.wake());
            true
        }
        PreviousState::Abandoned => true,
        PreviousState::Open => false,
    }
}

/// Waiter with a deadline.
#[derive(Clone)]
struct Timed(Arc<(WakeRace, loom::sync::Notify)>);

impl Timed {
    fn new() -> Self {
        Self(Arc::new((WakeRace::new(), loom::sync::Notify::new())))
    }

    fn try_wake(&self) -> bool {
        let in_time = self.0.0.try_wake();
        if in_time {
            self.0.1.notify();
        }
        in_time
    }

    fn expire(&self) -> bool {
        self.0.0.expire()
    }

    fn is_released(&self) -> bool {
        self.0.0.is_released()
    }

    fn wait(&self) {
        while !self.0.0.is_woken() {
            self.0.1.wait();
        }
    }
}

/// Waiter of a gate, which may have given up.
trait Wakes {
    /// Wakes the waiter; returns `false` if it has given up.
    fn try_wake(self) -> bool;
}

impl Wakes for Timed {
    fn try_wake(self) -> bool {
        Timed::try_wake(&self)
    }
}

/// Opens the gate; returns the number of waiters that were woken before they gave up.
fn open_timed<W: Wakes>(gate: &Gate<W>) -> usize {
    match gate.set() {
        PreviousState::Waiting(waiters) => waiters.map(Wakes::try_wake).filter(|it| *it).count(),
        PreviousState::Abandoned | PreviousState::Open => 0,
    }
}

/// Explores all executions with up to three preemptions.
fn model(run: impl Fn() + Send + Sync + 'static) {
    bounded_model(3, run);
}

/// Explores all executions with up to `preemptions` preemptions.
fn bounded_model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

#[test]
fn gate_waiter_is_woken_and_sees_earlier_writes() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let value = Arc::new(AtomicU32::new(0));
        let (its, seen) = (Arc::clone(&gate), Arc::clone(&value));
        let waits = thread::spawn(move || {
            wait_at(&its, Flag::new());
            assert!(its.is_set());
            assert_eq!(seen.load(Ordering::Relaxed), 7);
        });
        assert!(gate.claim());
        value.store(7, Ordering::Relaxed);
        assert!(open(&gate));
        waits.join().unwrap();
    });
}

#[test]
fn reader_that_finds_the_gate_open_sees_earlier_writes() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let value = Arc::new(AtomicU32::new(0));
        let (its, seen) = (Arc::clone(&gate), Arc::clone(&value));
        let reads = thread::spawn(move || its.is_set().then(|| seen.load(Ordering::Relaxed)));
        assert!(gate.claim());
        value.store(7, Ordering::Relaxed);
        assert!(open(&gate));
        assert!(matches!(reads.join().unwrap(), None | Some(7)));
    });
}

/// As in `block_on`: a poll follows the closing of the gate, and a wake-up that finds the gate open
/// only reads it.
#[test]
fn wake_up_of_an_open_gate_is_seen_after_it_was_closed() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let value = Arc::new(AtomicBool::new(false));
        assert!(open(&gate)); // an earlier wake-up
        let (its, sets) = (Arc::clone(&gate), Arc::clone(&value));
        let wakes = thread::spawn(move || {
            sets.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !its.is_set() {
                open(&its);
            }
        });
        assert!(gate.close(&Withdrawals::new()));
        fence(Ordering::SeqCst);
        let is_seen = value.load(Ordering::Relaxed);
        wakes.join().unwrap();
        assert!(is_seen || gate.is_set(), "the wake-up was lost");
    });
}

#[test]
fn two_waiters_are_both_woken() {
    model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let waits = thread::spawn(move || wait_at(&its, Flag::new()));
        let sets = Arc::clone(&gate);
        let opens = thread::spawn(move || assert!(open(&sets)));
        wait_at(&gate, Flag::new());
        waits.join().unwrap();
        opens.join().unwrap();
    });
}

#[test]
fn exactly_one_of_two_setters_succeeds() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let other = thread::spawn(move || its.claim() && open(&its));
        let one = gate.claim() && open(&gate);
        assert!(one != other.join().unwrap());
    });
}

#[test]
fn dropped_handle_and_ended_fiber_agree_on_the_owner_of_the_result() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let ends = thread::spawn(move || matches!(its.set(), PreviousState::Abandoned));
        let is_abandoned = gate.abandon();
        assert_eq!(is_abandoned, ends.join().unwrap(), "exactly one of them owns the result");
    });
}

#[test]
fn exactly_one_of_setter_and_timeout_wins() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let value = Arc::new(AtomicU32::new(0));
        let (its, sets) = (Arc::clone(&gate), Arc::clone(&value));
        let opens = thread::spawn(move || {
            assert!(its.claim());
            sets.store(7, Ordering::Relaxed);
            open_timed(&its)
        });
        let in_time = wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        if in_time {
            assert_eq!(value.load(Ordering::Relaxed), 7);
        }
        let woken_count = opens.join().unwrap();
        assert!(woken_count <= usize::from(in_time), "woken although its deadline had passed");
    });
}

#[test]
fn timed_out_waiter_leaves_other_waiters_queued() {
    model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let its = Arc::clone(&gate);
        let waits = thread::spawn(move || wait_at_untimed(&its, Timed::new(), || ()));
        let sets = Arc::clone(&gate);
        let opens = thread::spawn(move || open_timed(&sets));
        wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        waits.join().unwrap();
        opens.join().unwrap();
        assert!(gate.is_set());
    });
}

#[test]
fn two_concurrent_timeouts_remove_both_waiters() {
    model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let its = Arc::clone(&gate);
        let other = thread::spawn(move || wait_at_until(&its, &Withdrawals::new(), Timed::new()));
        let one = wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        assert!(!one && !other.join().unwrap(), "the gate is not opened");
        assert_eq!(open_timed(&gate), 0, "no waiter is left");
    });
}

#[test]
fn waiter_is_woken_although_the_gate_is_closed_at_once() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let waits = thread::spawn(move || wait_at(&its, Flag::new()));
        assert!(open(&gate));
        let is_closed = gate.close(&Withdrawals::new());
        assert!(is_closed);
        // A waiter that comes only now waits for the next opening.
        open(&gate);
        waits.join().unwrap();
    });
}

#[test]
fn opening_is_closed_by_one_of_two_participants() {
    model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        assert!(open(&gate));
        let closes = [(); 2].map(|()| {
            let its = Arc::clone(&gate);
            thread::spawn(move || its.close(&Withdrawals::new()))
        });
        let openings = 1 + usize::from(open(&gate));
        let closings = closes.map(|close| usize::from(close.join().unwrap()));
        assert_eq!(closings.iter().sum::<usize>() + usize::from(gate.is_set()), openings);
    });
}

#[test]
fn timed_out_waiter_leaves_a_reclosed_gate() {
    model(|| {
        let both = Arc::new((Gate::<Timed>::new(), Withdrawals::new()));
        let its = Arc::clone(&both);
        let opens = thread::spawn(move || {
            let woken_count = open_timed(&its.0);
            assert!(its.0.close(&its.1));
            woken_count
        });
        let in_time = wait_at_until(&both.0, &both.1, Timed::new());
        let woken_count = opens.join().unwrap();
        assert!(woken_count <= usize::from(in_time), "woken although its deadline had passed");
        assert_eq!(open_timed(&both.0), 0, "no waiter is left");
    });
}

#[test]
fn waiter_beside_a_timed_out_one_is_woken_although_the_gate_is_closed_at_once() {
    model(|| {
        let both = Arc::new((Gate::<Timed>::new(), Withdrawals::new()));
        let (its, sets) = (Arc::clone(&both), Arc::clone(&both));
        wait_at_untimed(&both.0, Timed::new(), || {
            thread::spawn(move || wait_at_until(&its.0, &its.1, Timed::new()));
            thread::spawn(move || {
                open_timed(&sets.0);
                assert!(sets.0.close(&sets.1));
            });
        });
    });
}

/// Waits of tasks, among waiters of other kinds.
#[cfg(feature = "async")]
mod tasks {
    use super::*;
    use handover_fiber::model::{TaskWait, TaskWaiter};
    use std::sync::Arc as Counted;
    use std::task::{Wake, Waker};

    enum Mixed {
        Timed(Timed),
        Task(Arc<TaskWaiter>),
    }

    impl From<Timed> for Mixed {
        fn from(timed: Timed) -> Self {
            Self::Timed(timed)
        }
    }

    impl From<Arc<TaskWaiter>> for Mixed {
        fn from(task: Arc<TaskWaiter>) -> Self {
            Self::Task(task)
        }
    }

    impl Wakes for Mixed {
        fn try_wake(self) -> bool {
            match self {
                Self::Timed(timed) => timed.try_wake(),
                Self::Task(task) => task.take_waker().map(Waker::wake).is_some(),
            }
        }
    }

    /// Task that blocks its thread until it is woken.
    struct Token(Flag);

    impl Wake for Token {
        fn wake(self: Counted<Self>) {
            self.0.wake();
        }
    }

    fn token() -> (Counted<Token>, Waker) {
        let token = Counted::new(Token(Flag::new()));
        (Counted::clone(&token), Waker::from(token))
    }

    fn wake_all(waiters: handover_fiber::model::Waiters<Mixed>) {
        waiters.for_each(|waiter| assert!(waiter.try_wake(), "the waiter would never be woken"));
    }

    /// Polls until the gate was open; loom reports a deadlock if the task is not woken. Returns the
    /// task, of which no waker is left once the other threads have ended.
    fn wait(gate: &Gate<Mixed>, withdrawals: &Withdrawals) -> Counted<Token> {
        let ((token, waker), mut wait) = (token(), TaskWait::new());
        while !wait.poll(gate, &waker) {
            token.0.wait_and_clear();
        }
        wait.cancel(gate, withdrawals, wake_all);
        token
    }

    /// Polls once, and gives up; returns `true` if the gate was open, and the task as `wait` does.
    fn poll_and_cancel(gate: &Gate<Mixed>, withdrawals: &Withdrawals) -> (bool, Counted<Token>) {
        let ((token, waker), mut wait) = (token(), TaskWait::new());
        let is_open = wait.poll(gate, &waker);
        wait.cancel(gate, withdrawals, wake_all);
        (is_open, token)
    }

    fn assert_no_waker_is_left(task: &Counted<Token>) {
        assert_eq!(Counted::strong_count(task), 1, "a waker is left");
    }

    #[test]
    fn polled_task_is_woken_and_sees_earlier_writes() {
        model(|| {
            let gate = Arc::new(Gate::<Mixed>::new());
            let value = Arc::new(AtomicU32::new(0));
            let (its, seen) = (Arc::clone(&gate), Arc::clone(&value));
            let waits = thread::spawn(move || {
                let task = wait(&its, &Withdrawals::new());
                assert_eq!(seen.load(Ordering::Relaxed), 7);
                task
            });
            assert!(gate.claim());
            value.store(7, Ordering::Relaxed);
            open_timed(&gate);
            assert_no_waker_is_left(&waits.join().unwrap());
        });
    }

    #[test]
    fn task_that_is_polled_by_another_is_woken_by_the_last_waker() {
        model(|| {
            let gate = Arc::new(Gate::<Mixed>::new());
            let its = Arc::clone(&gate);
            let opens = thread::spawn(move || open_timed(&its));
            let mut wait = TaskWait::new();
            if !wait.poll(&gate, Waker::noop()) {
                let (token, waker) = token();
                while !wait.poll(&gate, &waker) {
                    token.0.wait_and_clear();
                }
            }
            wait.cancel(&gate, &Withdrawals::new(), wake_all);
            opens.join().unwrap();
        });
    }

    #[test]
    fn cancelled_task_leaves_other_waiters_queued() {
        model(|| {
            let both = Arc::new((Gate::<Mixed>::new(), Withdrawals::new()));
            let (its, sets) = (Arc::clone(&both), Arc::clone(&both));
            let waits = thread::spawn(move || wait(&its.0, &its.1));
            let opens = thread::spawn(move || open_timed(&sets.0));
            let (_, cancelled) = poll_and_cancel(&both.0, &both.1);
            let woken = waits.join().unwrap();
            assert!(opens.join().unwrap() <= 2 && both.0.is_set());
            assert_no_waker_is_left(&cancelled);
            assert_no_waker_is_left(&woken);
        });
    }

    #[test]
    fn cancelled_task_and_timed_out_waiter_are_both_removed() {
        model(|| {
            let both = Arc::new((Gate::<Mixed>::new(), Withdrawals::new()));
            let its = Arc::clone(&both);
            let other = thread::spawn(move || wait_at_until(&its.0, &its.1, Timed::new()));
            let (one, cancelled) = poll_and_cancel(&both.0, &both.1);
            assert!(!one && !other.join().unwrap(), "the gate is not opened");
            assert_no_waker_is_left(&cancelled);
            assert_eq!(open_timed(&both.0), 0, "no waiter is left");
        });
    }

    #[test]
    fn task_beside_a_timed_out_waiter_is_woken_although_the_gate_is_closed_at_once() {
        bounded_model(2, || {
            let both = Arc::new((Gate::<Mixed>::new(), Withdrawals::new()));
            let ((token, waker), mut wait) = (token(), TaskWait::new());
            assert!(!wait.poll(&both.0, &waker), "the gate was not opened");
            let (its, sets) = (Arc::clone(&both), Arc::clone(&both));
            let times_out = thread::spawn(move || wait_at_until(&its.0, &its.1, Timed::new()));
            let opens = thread::spawn(move || {
                open_timed(&sets.0);
                assert!(sets.0.close(&sets.1));
            });
            while !wait.poll(&both.0, &waker) {
                token.0.wait_and_clear();
            }
            wait.cancel(&both.0, &both.1, wake_all);
            times_out.join().unwrap();
            opens.join().unwrap();
        });
    }
}

#[test]
fn inbox_returns_each_member_once_in_order() {
    model(|| {
        let inbox = Arc::new(Inbox::<Item>::new());
        let its = Arc::clone(&inbox);
        let pushes = thread::spawn(move || {
            its.push(Item::new(1));
            its.push(Item::new(2));
        });
        inbox.push(Item::new(10));
        let mut got = Vec::new();
        while got.len() < 3 {
            let mut list = inbox.take_all();
            while let Some(item) = list.pop_front() {
                got.push(item.number());
            }
            hint::spin_loop();
        }
        pushes.join().unwrap();
        let at = |number| got.iter().position(|one| *one == number).unwrap();
        assert!(at(1) < at(2) && inbox.is_empty());
    });
}

#[test]
fn owner_and_thief_are_mutually_exclusive() {
    loom::model(|| {
        let queue = Arc::new(BiasedLock::new(vec![1, 2]));
        let its = Arc::clone(&queue);
        // SeqCst: both fences, that of the model of membarrier and its partner.
        let full = || fence(Ordering::SeqCst);
        let thief = thread::spawn(move || its.with_lock_as_remote(full, Vec::pop).flatten());
        let own = raw::with_lock_as_owner(&queue, full, Vec::pop);
        let stolen = thief.join().unwrap();
        let left = raw::with_lock_as_owner(&queue, full, std::mem::take);
        let mut all: Vec<u32> = left.into_iter().chain(own).chain(stolen).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// The worker that gets `true` ends the others; if none did, all would sleep for ever.
#[test]
fn one_of_two_workers_sees_that_all_fibers_have_ended() {
    loom::model(|| {
        let all_counts = Arc::new([FiberCounts::default(), FiberCounts::default()]);
        all_counts[0].add_spawned();
        all_counts[0].add_spawned();
        let its = Arc::clone(&all_counts);
        let other = thread::spawn(move || {
            its[1].add_finished(); // a fiber that worker 0 has sent to worker 1
            have_all_finished(its.iter(), || 0)
        });
        all_counts[0].add_finished();
        let sees = have_all_finished(all_counts.iter(), || 0);
        assert!(other.join().unwrap() || sees);
    });
}

#[test]
fn fiber_count_stays_positive_while_an_ending_fiber_spawns() {
    loom::model(|| {
        let all_counts = Arc::new([FiberCounts::default(), FiberCounts::default()]);
        all_counts[0].add_spawned();
        let its = Arc::clone(&all_counts);
        let worker = thread::spawn(move || {
            its[1].add_spawned();
            its[1].add_finished();
        });
        assert_ne!(alive_count(all_counts.iter(), || 0), 0);
        worker.join().unwrap();
    });
}

/// Worker that offers, and workers that steal.
struct Workers<const THIEVES: usize> {
    queue: BiasedLock<Vec<u32>>,
    owner: Offers,
    idle_count: IdleCount,
    thieves: [(Offers, Flag); THIEVES],
    /// Ends the thieves, as the end of a runtime does.
    is_over: AtomicBool,
}

/// Both fences, that of the model of membarrier and its partner.
fn fence_fully() {
    // SeqCst: pairs with the other thread's call of this function.
    fence(Ordering::SeqCst);
}

impl<const THIEVES: usize> Workers<THIEVES> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: BiasedLock::new(Vec::new()),
            owner: Offers::default(),
            idle_count: IdleCount::default(),
            thieves: std::array::from_fn(|_| (Offers::default(), Flag::new())),
            is_over: AtomicBool::new(false),
        })
    }

    fn offer(&self, number: u32) {
        raw::with_lock_as_owner(&self.queue, fence_fully, |queue| queue.push(number));
        if self.owner.announce(&self.idle_count, fence_fully) {
            self.wake_idle();
        }
    }

    fn wake_idle(&self) {
        let idle = self.thieves.iter().find(|(offers, _)| offers.try_wake());
        if let Some((_, flag)) = idle {
            flag.wake();
        }
    }

    /// Steals until it has a fiber or all is over; sleeps when there are no new offers.
    fn steal(&self, index: usize) -> Option<u32> {
        let (offers, flag) = &self.thieves[index];
        let mut seen = 0;
        // Relaxed: the wake-up publishes it.
        while !self.is_over.load(Ordering::Relaxed) {
            let count = self.owner.announced_count();
            if count != seen {
                match self.queue.with_lock_as_remote(fence_fully, Vec::pop) {
                    Some(Some(fiber)) => return Some(fiber),
                    Some(None) => seen = count,
                    None => hint::spin_loop(), // another thief is inside
                }
            }
            offers.begin_idle(&self.idle_count, fence_fully);
            if !self.owner.has_new_since(seen) && !offers.is_woken() {
                // If no thread wakes it, loom reports the deadlock.
                flag.wait_and_clear();
            }
            let _is_woken = offers.end_idle(&self.idle_count); // it steals in any case
        }
        None
    }

    /// Does not sleep, as it has other work. Steals if it was woken for an offer meanwhile.
    fn steal_if_woken(&self, index: usize) -> Option<u32> {
        let offers = &self.thieves[index].0;
        offers.begin_idle(&self.idle_count, fence_fully);
        if !offers.end_idle(&self.idle_count) {
            return None;
        }
        assert_eq!(self.owner.announced_count(), 1);
        self.queue.with_lock_as_remote(fence_fully, Vec::pop).flatten()
    }

    /// Does not sleep, as it has other work. Leaves the offer unchecked, but wakes another thief if
    /// it was woken for the offer meanwhile.
    fn wake_next_if_woken(&self, index: usize) -> Option<u32> {
        let offers = &self.thieves[index].0;
        offers.begin_idle(&self.idle_count, fence_fully);
        if offers.end_idle(&self.idle_count) {
            self.wake_idle();
        }
        None
    }
}

#[test]
fn idle_worker_gets_the_offered_fiber() {
    loom::model(|| {
        let workers = Workers::<1>::new();
        let its = Arc::clone(&workers);
        let thief = thread::spawn(move || its.steal(0));
        workers.offer(7);
        assert_eq!(thief.join().unwrap(), Some(7));
    });
}

/// Checks that one of two thieves steals the offered fiber. `steal` is the first one's part.
fn check_two_thieves(steal: fn(&Workers<2>) -> Option<u32>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let workers = Workers::<2>::new();
        let threads = [0, 1].map(|index| {
            let its = Arc::clone(&workers);
            thread::spawn(move || {
                let stolen = if index == 0 { steal(&its) } else { its.steal(index) };
                if stolen.is_some() {
                    // Relaxed: the wake-up publishes it.
                    its.is_over.store(true, Ordering::Relaxed);
                    its.thieves[1 - index].1.wake();
                }
                stolen
            })
        });
        workers.offer(7);
        let stolen = threads.map(|thief| thief.join().unwrap());
        assert_eq!(stolen.iter().flatten().collect::<Vec<_>>(), [&7]);
    });
}

#[test]
fn one_of_two_idle_workers_gets_the_offered_fiber() {
    check_two_thieves(|workers| workers.steal(0));
}

#[test]
fn idle_worker_gets_the_offered_fiber_beside_a_worker_with_other_work() {
    check_two_thieves(|workers| workers.steal_if_woken(0));
}

#[test]
fn idle_worker_gets_the_offered_fiber_that_the_woken_worker_leaves_unchecked() {
    check_two_thieves(|workers| workers.wake_next_if_woken(0));
}
