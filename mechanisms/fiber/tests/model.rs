//! loom models of the gate of an eventual, the inbox of a worker, and the lock of its run queue.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-fiber --test model --release \
//!     --target-dir target/loom
//! ```
//!
//! Calls that each model combines; `/` separates threads:
//!
//! | model | calls |
//! |---|---|
//! | whoever_waits_at_a_gate_.. | claim, set / enlist |
//! | two_who_wait_.. | enlist / enlist / set |
//! | one_of_two_sets_.. | claim, set / claim, set |
//! | a_handle_that_is_dropped_.. | abandon / set |
//! | of_a_value_that_is_set_.. | claim, set / enlist, expire, withdraw |
//! | who_gives_up_.. | enlist, expire, withdraw / enlist / set |
//! | two_who_give_up_.. | enlist, expire, withdraw / the same; then set |
//! | a_waiter_is_woken_.. | enlist / set, close |
//! | a_gate_that_is_closed_.. | enlist, expire, withdraw / set, close |
//! | a_waiter_beside_one_.. | enlist / enlist, expire, withdraw / set, close |
//! | an_inbox_gives_.. | push, push / push, take |
//! | an_owner_and_a_thief_.. | own, own / visit |
//! | of_two_workers_.. | end, look whether all have ended / the same |
//! | a_fiber_that_spawns_.. | spawn, end / count |
//!
//! Not modelled: the mutex, conditions, barriers and channels, whose waiters are under a `std`
//! mutex; the sleep of a worker, which is part of `handover-notify`; a thief's sleep against an
//! owner's offers.
//!
//! Seen to fail: workers that check whether all fibers have ended without a fence after their own
//! count; a gate that is closed while a waiter that gives up holds the list of the others.
//!
//! The membarrier with which a thief makes all threads pass a fence is modelled as a fence on both
//! sides, since loom knows no other. A kernel without membarrier gets the same.
#![cfg(handover_loom)]

mod raw;

use handover_base::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use handover_base::sync::{Arc, hint, thread};
use handover_fiber::model::{
    Biased, Gate, Inbox, Opened, Race, Tally, Withdrawals, alive_count, have_all_ended,
};
use raw::{Item, wait_at, wait_at_as, wait_at_until};

/// Waiter that blocks until its flag is set. Polling would not do: of two polling waiters, loom may
/// let one run for ever.
#[derive(Clone)]
struct Flag(Arc<(AtomicBool, loom::sync::Notify)>);

impl Flag {
    fn new() -> Self {
        Self(Arc::new((AtomicBool::new(false), loom::sync::Notify::new())))
    }

    fn wake(&self) {
        // Release: pairs with the Acquire in wait().
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify();
    }

    fn wait(&self) {
        // Acquire: pairs with the Release in wake().
        while !self.0.0.load(Ordering::Acquire) {
            self.0.1.wait();
        }
    }
}

fn open(gate: &Gate<Flag>) -> bool {
    match gate.set() {
        Opened::For(waiters) => {
            waiters.for_each(|flag| flag.wake());
            true
        }
        Opened::ForNobody => true,
        Opened::Before => false,
    }
}

/// Waiter with a deadline.
#[derive(Clone)]
struct Timed(Arc<(Race, loom::sync::Notify)>);

impl Timed {
    fn new() -> Self {
        Self(Arc::new((Race::new(), loom::sync::Notify::new())))
    }

    fn offer(&self) -> bool {
        let in_time = self.0.0.bring();
        if in_time {
            self.0.1.notify();
        }
        in_time
    }

    fn expire(&self) -> bool {
        self.0.0.expire()
    }

    fn is_let_go(&self) -> bool {
        self.0.0.is_let_go()
    }

    fn wait(&self) {
        while !self.0.0.is_brought() {
            self.0.1.wait();
        }
    }
}

/// Opens the gate; returns the number of waiters that were woken before their deadline.
fn open_for_timed(gate: &Gate<Timed>) -> usize {
    match gate.set() {
        Opened::For(waiters) => waiters.filter(Timed::offer).count(),
        Opened::ForNobody | Opened::Before => 0,
    }
}

/// Explores all executions with up to three preemptions.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn whoever_waits_at_a_gate_is_woken_and_sees_what_was_written_before() {
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
fn two_who_wait_are_both_woken() {
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
fn one_of_two_sets_and_the_other_is_told() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let other = thread::spawn(move || its.claim() && open(&its));
        let one = gate.claim() && open(&gate);
        assert!(one != other.join().unwrap());
    });
}

#[test]
fn a_handle_that_is_dropped_and_an_end_agree_on_who_clears_up() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Flag>::new());
        let its = Arc::clone(&gate);
        let ends = thread::spawn(move || matches!(its.set(), Opened::ForNobody));
        let is_abandoned = gate.abandon();
        assert_eq!(is_abandoned, ends.join().unwrap(), "one of the two, and not both");
    });
}

#[test]
fn of_a_value_that_is_set_and_a_time_that_runs_out_one_wins_and_both_know() {
    loom::model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let value = Arc::new(AtomicU32::new(0));
        let (its, sets) = (Arc::clone(&gate), Arc::clone(&value));
        let opens = thread::spawn(move || {
            assert!(its.claim());
            sets.store(7, Ordering::Relaxed);
            open_for_timed(&its)
        });
        let in_time = wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        if in_time {
            assert_eq!(value.load(Ordering::Relaxed), 7);
        }
        let woken_count = opens.join().unwrap();
        assert!(woken_count <= usize::from(in_time), "woken, and told that it was late");
    });
}

#[test]
fn who_gives_up_takes_nobody_else_along() {
    model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let its = Arc::clone(&gate);
        let waits = thread::spawn(move || wait_at_as(&its, Timed::new(), || ()));
        let sets = Arc::clone(&gate);
        let opens = thread::spawn(move || open_for_timed(&sets));
        wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        waits.join().unwrap();
        opens.join().unwrap();
        assert!(gate.is_set());
    });
}

#[test]
fn two_who_give_up_at_once_are_both_out() {
    model(|| {
        let gate = Arc::new(Gate::<Timed>::new());
        let its = Arc::clone(&gate);
        let other = thread::spawn(move || wait_at_until(&its, &Withdrawals::new(), Timed::new()));
        let one = wait_at_until(&gate, &Withdrawals::new(), Timed::new());
        assert!(!one && !other.join().unwrap(), "nobody opens it");
        assert_eq!(open_for_timed(&gate), 0, "nobody is left");
    });
}

#[test]
fn a_waiter_is_woken_although_the_gate_is_closed_at_once() {
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
fn a_gate_that_is_closed_again_is_left_by_one_who_gives_up() {
    model(|| {
        let both = Arc::new((Gate::<Timed>::new(), Withdrawals::new()));
        let its = Arc::clone(&both);
        let opens = thread::spawn(move || {
            let woken_count = open_for_timed(&its.0);
            assert!(its.0.close(&its.1));
            woken_count
        });
        let in_time = wait_at_until(&both.0, &both.1, Timed::new());
        let woken_count = opens.join().unwrap();
        assert!(woken_count <= usize::from(in_time), "woken, and told that it was late");
        assert_eq!(open_for_timed(&both.0), 0, "nobody is left");
    });
}

#[test]
fn a_waiter_beside_one_who_gives_up_is_woken_although_the_gate_is_closed_at_once() {
    model(|| {
        let both = Arc::new((Gate::<Timed>::new(), Withdrawals::new()));
        let (its, sets) = (Arc::clone(&both), Arc::clone(&both));
        wait_at_as(&both.0, Timed::new(), || {
            thread::spawn(move || wait_at_until(&its.0, &its.1, Timed::new()));
            thread::spawn(move || {
                open_for_timed(&sets.0);
                assert!(sets.0.close(&sets.1));
            });
        });
    });
}

#[test]
fn an_inbox_gives_each_member_once_and_in_order() {
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
            let mut list = inbox.take();
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
fn an_owner_and_a_thief_are_never_inside_at_once() {
    loom::model(|| {
        let queue = Arc::new(Biased::new(vec![1, 2]));
        let its = Arc::clone(&queue);
        // SeqCst: both fences, that of the model of membarrier and its partner.
        let full = || fence(Ordering::SeqCst);
        let thief = thread::spawn(move || its.visit(full, Vec::pop).flatten());
        let own = raw::own(&queue, full, Vec::pop);
        let stolen = thief.join().unwrap();
        let left = raw::own(&queue, full, std::mem::take);
        let mut all: Vec<u32> = left.into_iter().chain(own).chain(stolen).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// The worker that gets `true` ends the others; if none did, all would sleep for ever.
#[test]
fn of_two_workers_that_end_the_last_fibers_one_sees_that_all_have_ended() {
    loom::model(|| {
        let tallies = Arc::new([Tally::default(), Tally::default()]);
        tallies[0].add_spawned();
        tallies[0].add_spawned();
        let its = Arc::clone(&tallies);
        let other = thread::spawn(move || {
            its[1].add_ended(); // a fiber that worker 0 has sent to worker 1
            have_all_ended(its.iter(), || 0)
        });
        tallies[0].add_ended();
        let sees = have_all_ended(tallies.iter(), || 0);
        assert!(other.join().unwrap() || sees);
    });
}

#[test]
fn a_fiber_that_spawns_another_as_it_ends_leaves_no_moment_without_any() {
    loom::model(|| {
        let tallies = Arc::new([Tally::default(), Tally::default()]);
        tallies[0].add_spawned();
        let its = Arc::clone(&tallies);
        let worker = thread::spawn(move || {
            its[1].add_spawned();
            its[1].add_ended();
        });
        assert_ne!(alive_count(tallies.iter(), || 0), 0);
        worker.join().unwrap();
    });
}
