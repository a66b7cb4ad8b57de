//! Parking beside a queue of the caller's: the unparker and the parker.

use handover_notify::{Config, ParkResult, Parker, Unparker};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ROUNDS_COUNT: u64 = if cfg!(miri) { 20 } else { 50_000 };

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits until `word` is at least `least`.
fn await_value(parker: &mut Parker, unparker: &Unparker, word: &AtomicU64, least: u64) {
    let mut look = || word.load(Ordering::Acquire) >= least; // pairs with the Release of the writer
    while !parker.poll_eagerly(unparker, &mut look) {
        if !parker.spin(None, &mut look) {
            parker.park(unparker, None, &mut look);
        }
    }
}

fn ping_pong(config: Config, one_cpu: bool) {
    let (unparkers, words) =
        ([Unparker::new(), Unparker::new()], [AtomicU64::new(0), AtomicU64::new(0)]);
    let participant = |mine: usize, first: bool| {
        if one_cpu {
            let cpus = handover_base::affinity::thread_cpus();
            handover_base::affinity::pin(cpus[0]).expect("a CPU of the mask");
        }
        let mut parker = Parker::new(config).expect("valid");
        for hand in 1..=ROUNDS_COUNT {
            if !first {
                await_value(&mut parker, &unparkers[mine], &words[mine], hand);
            }
            words[1 - mine].store(hand, Ordering::Release); // publishes to await_value()
            unparkers[1 - mine].unpark();
            if first {
                await_value(&mut parker, &unparkers[mine], &words[mine], hand);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| participant(0, true));
        scope.spawn(|| participant(1, false));
    });
}

#[test]
fn ping_pong_works_with_spinning_and_with_sleeping() {
    ping_pong(Config::default(), false);
    ping_pong(Config::never_spin(), false);
}

#[test]
#[cfg_attr(miri, allow(unused))]
fn ping_pong_works_on_one_cpu() {
    if !cfg!(miri) {
        ping_pong(Config::default(), true);
    }
}

#[test]
fn park_without_a_sender_ends_at_its_deadline() {
    let unparker = Unparker::new();
    let mut parker = Parker::new(Config::never_spin()).expect("valid");
    let deadline_ns = now_ns() + 3_000_000;
    let mut parks = 0;
    while now_ns() < deadline_ns {
        assert_eq!(
            parker.park(&unparker, Some(deadline_ns), &mut || false),
            ParkResult::SleepEnded
        );
        parks += 1;
        assert!(parks < 100, "it sleeps");
    }
    assert!(!unparker.unpark(), "woke a receiver that is awake");
}

#[test]
fn work_found_after_the_declaration_prevents_the_sleep() {
    let unparker = Unparker::new();
    let mut parker = Parker::new(Config::never_spin()).expect("valid");
    assert_eq!(parker.park(&unparker, None, &mut || true), ParkResult::NotParked);
    assert_eq!(parker.stats().found_pending, 1);
    assert!(!unparker.is_asleep());
}

#[test]
fn custom_sleep_is_ended_by_the_senders_closure() {
    let unparker = Unparker::new();
    let (rouse, roused) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !unparker.unpark_with(|| rouse.send(()).expect("the receiver was dropped")) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut parker = Parker::new(Config::never_spin()).expect("valid");
        let ended = parker.park_with(&unparker, &mut || false, |_now_ns| {
            roused.recv().expect("the sender lives");
        });
        assert_eq!(ended, ParkResult::Unparked);
        assert_eq!(parker.stats().by_sleeping, 1);
    });
}

/// Returns the number of polls in an eager poll that finds nothing, after `expects` was called with
/// a parker and the unparker of a receiver on its own CPU.
#[cfg(not(miri))] // Miri has no CPUs
fn polls(expects: impl FnOnce(&mut Parker, &Unparker)) -> u32 {
    let parker = || Parker::new(Config::default()).expect("valid");
    let (mut parker, mut partner, own, other) =
        (parker(), parker(), Unparker::new(), Unparker::new());
    partner.publish_cpu(&other);
    parker.publish_cpu(&own);
    expects(&mut parker, &other);
    let mut polls = 0;
    assert!(!parker.poll_eagerly(&own, &mut || {
        polls += 1;
        false
    }));
    polls
}

#[test]
#[cfg(not(miri))]
fn wait_for_an_answer_from_the_same_cpu_polls_once() {
    let pinned = thread::spawn(|| {
        handover_base::affinity::pin(handover_base::affinity::thread_cpus()[0]).expect("allowed");
        assert_eq!(polls(|parker, here| parker.expect_answer_from(here)), 1);
        assert!(polls(|_, _| ()) > 1, "nothing is known");
        let unsettled = |parker: &mut Parker, here: &Unparker| {
            parker.expect_answer_from(here);
            parker.expect_answer_from(&Unparker::new());
        };
        assert!(polls(unsettled) > 1, "another may answer, too");
    });
    pinned.join().expect("no panic");
}
