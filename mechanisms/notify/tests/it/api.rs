//! Properties of single mechanisms, beyond the common contract.
//!
//! Tests that need ppoll, memfds or CPUs are left out under Miri, which does not support them.

use handover_base::futex::Scope;
use handover_base::sync::auto_traits;
use handover_notify::shared::MappedCore;
use handover_notify::task::{self, ClosedError};
use handover_notify::{
    Config, Notify, PairError, ParkWord, Parker, StateWord, Unparker, Wait, adaptive, adaptive_fd,
};
use std::error::Error;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn a_configuration_out_of_range_is_refused_by_name_value_and_range() {
    let too_long = Config::default().spin_max(Duration::from_nanos(1_000_001));
    let refused = adaptive::pair(too_long).expect_err("refused");
    assert_eq!(refused.to_string(), "spin_max=1.000001ms: must lie in 0ns..=1ms");
    let refused = Config::default().quiet_waits_max(0).validate().expect_err("refused");
    assert_eq!(refused.to_string(), "quiet_waits_max=0: must lie in 1..=65536");
    let refused = Config::default().spin_per_sleep(0).validate().expect_err("refused");
    assert_eq!(refused.to_string(), "spin_per_sleep=0: must lie in 1..=1000");
    for config in [Config::default(), Config::never_spin(), Config::low_latency()] {
        assert_eq!(config.validate(), Ok(()));
    }
}

#[test]
fn cause_of_a_failed_system_call_is_in_the_message_only() {
    let refused = PairError::SystemCall { call: "eventfd2", error: ErrorKind::NotFound.into() };
    let message = refused.to_string();
    assert_eq!(message, "cannot create a sender and a receiver: eventfd2 failed: entity not found");
    assert!(refused.source().is_none());
}

#[test]
fn statistics_count_each_way_a_wait_ends() {
    let (sender, mut receiver) = adaptive::pair(Config::never_spin()).expect("valid");
    sender.notify();
    receiver.wait();
    assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
    let waker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        sender.notify();
    });
    receiver.wait();
    waker.join().expect("the waker");
    let stats = receiver.stats();
    assert_eq!((stats.timed_out, stats.by_spinning, stats.spins), (1, 0, 0));
    // On a stalled machine the second notification may come before its wait, which then finds it at
    // once.
    assert!(stats.found_pending >= 1);
    assert_eq!(stats.found_pending + stats.by_sleeping, 2);
}

#[test]
fn handles_are_send_and_sync_like_their_core() {
    assert_eq!(auto_traits!(adaptive::Sender), "Send + Sync");
    assert_eq!(auto_traits!(adaptive::Receiver), "Send + Sync");
    assert_eq!(auto_traits!(adaptive::Sender<Rc<adaptive::NotifyCore>>), "neither");
    assert_eq!(auto_traits!(adaptive::Receiver<Rc<adaptive::NotifyCore>>), "neither");
    assert_eq!(auto_traits!(MappedCore<adaptive::NotifyCore>), "Send + Sync");
    assert_eq!(auto_traits!(adaptive_fd::Sender), "Send + Sync");
    assert_eq!(auto_traits!(adaptive_fd::Receiver), "Send + Sync");
    assert_eq!(auto_traits!((Unparker, Parker)), "Send + Sync");
    assert_eq!(auto_traits!((StateWord, ParkWord)), "Send + Sync");
}

#[test]
fn notifications_to_an_idle_receiver_merge_into_one() {
    let (sender, mut receiver) = adaptive::pair(Config::default()).expect("valid");
    for _ in 0..if cfg!(miri) { 100 } else { 1_000_000 } {
        sender.notify();
    }
    assert_eq!(receiver.try_wait(), Some(1));
    assert_eq!(receiver.try_wait(), None);
}

#[test]
fn both_sides_work_on_a_user_provided_core() {
    static CORE: adaptive::NotifyCore = adaptive::NotifyCore::new();
    let sender = adaptive::Sender::from_core(&CORE, Scope::Private);
    sender.notify();
    let mut receiver = adaptive::Receiver::from_core(&CORE, Scope::Private, Config::default())
        .expect("a valid configuration");
    assert_eq!(receiver.wait(), 1, "what was pending before the receiver came");
}

#[test]
fn thread_waits_for_a_notification_and_learns_of_the_last_drop() {
    const SOON: Duration = Duration::from_millis(20);
    let (sender, mut receiver) = task::pair();
    assert_eq!(receiver.notified_timeout(Duration::ZERO), Ok(false));
    assert_eq!(receiver.notified_timeout(SOON), Ok(false));
    sender.notify();
    assert_eq!(receiver.notified_timeout(Duration::MAX), Ok(true));
    let other = thread::spawn(move || {
        thread::sleep(SOON); // so that the receiver sleeps, on most machines
        sender.notify();
        thread::sleep(SOON);
    });
    assert_eq!(receiver.notified_blocking(), Ok(()));
    assert_eq!(receiver.notified_blocking(), Err(ClosedError), "the sender was dropped");
    assert_eq!(receiver.notified_timeout(Duration::MAX), Err(ClosedError));
    other.join().expect("the sender");
}

#[cfg(not(miri))]
mod with_cpus {
    use super::*;
    use handover_base::affinity;

    const ROUNDS_COUNT: u64 = 2_000;

    /// Plays ping-pong with both threads pinned; returns the statistics of the two receivers.
    fn ping_pong(cpus: [u32; 2]) -> [handover_notify::Stats; 2] {
        let (ping, mut pinged) = adaptive::pair(Config::default()).expect("valid");
        let (pong, mut ponged) = adaptive::pair(Config::default()).expect("valid");
        let partner = thread::spawn(move || {
            affinity::pin(cpus[1]).expect("allowed");
            for _ in 0..ROUNDS_COUNT {
                pinged.wait();
                pong.notify();
            }
            pinged.stats()
        });
        let main = thread::spawn(move || {
            affinity::pin(cpus[0]).expect("allowed");
            for _ in 0..ROUNDS_COUNT {
                ping.notify();
                ponged.wait();
            }
            ponged.stats()
        });
        [main.join().expect("main"), partner.join().expect("the partner")]
    }

    #[test]
    fn sides_on_one_cpu_never_spin() {
        let cpu = affinity::thread_cpus()[0];
        let slept = ping_pong([cpu, cpu]).map(|stats| {
            // Pinned to one CPU before the first wait, so that even this one does not spin.
            assert_eq!(stats.spins, 0, "{stats:?}");
            assert_eq!(stats.found_pending + stats.by_sleeping, ROUNDS_COUNT);
            // Not equal: a notification that comes between the last poll and the declaration of the
            // sleep is found at once.
            assert!(stats.unspun_shared_cpu >= stats.by_sleeping, "{stats:?}");
            stats.by_sleeping
        });
        // The CPU only passes to the other thread when one of them sleeps.
        assert!(slept[0] + slept[1] > 0, "{slept:?}");
    }

    #[test]
    fn sides_on_two_cpus_spin() {
        let cpus = affinity::thread_cpus();
        let [first, second, ..] = cpus[..] else {
            assert_eq!(cpus.len(), 1, "one CPU: there is nobody to spin for");
            return;
        };
        for stats in ping_pong([first, second]) {
            // The first wait of a pinned receiver does not know yet that its sender is on another
            // CPU.
            assert!(stats.unspun_shared_cpu <= 1, "{stats:?}");
            assert!(stats.spins > 0, "{stats:?}");
        }
    }

    #[test]
    fn receiver_stops_spinning_while_its_sender_shares_the_cpu() {
        let cpus = affinity::thread_cpus();
        let [here, there, ..] = cpus[..] else {
            assert_eq!(cpus.len(), 1, "one CPU: there is nowhere to move from");
            return;
        };
        let (sender, mut receiver) = adaptive::pair(Config::default()).expect("valid");
        affinity::pin(there).expect("allowed");
        sender.notify();
        affinity::pin(here).expect("allowed");
        receiver.wait(); // the last notification came from the other CPU
        // Longer than any preemption: a wait whose time is over does not spin.
        assert_eq!(receiver.wait_timeout(Duration::from_millis(200)), None);
        let spun = receiver.stats();
        assert!(spun.spins > 0 && spun.unspun_shared_cpu == 0, "{spun:?}");
        sender.notify(); // from this CPU
        receiver.wait();
        assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
        let unspun = receiver.stats();
        assert_eq!((unspun.spins, unspun.unspun_shared_cpu), (spun.spins, 1));
        affinity::set_thread_cpus(&cpus).expect("as before");
    }
}

#[cfg(not(miri))]
mod in_an_epoll_set {
    use super::*;
    use handover_notify::adaptive_fd;
    use rustix::event::epoll::{self, EventData, EventFlags};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::atomic::Ordering::Relaxed;

    struct Set(OwnedFd);

    impl Set {
        fn with(fd: impl AsFd) -> Self {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll_create1");
            epoll::add(&set, fd, EventData::new_u64(7), EventFlags::IN).expect("epoll_ctl");
            Self(set)
        }

        /// Number of descriptors that are ready within `timeout`.
        fn ready_count(&self, timeout: Duration) -> usize {
            let mut events = Vec::with_capacity(4);
            let timeout = timeout.try_into().expect("a timespec");
            let spare = rustix::buffer::spare_capacity(&mut events);
            let count = epoll::wait(&self.0, spare, Some(&timeout)).expect("epoll_wait");
            assert!(events.iter().all(|event| event.data.u64() == 7));
            count
        }
    }

    const SOON: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn parked_receiver_is_woken_and_awake_receiver_is_not() {
        let (sender, mut receiver) = adaptive_fd::pair(Config::default()).expect("valid");
        let set = Set::with(&receiver);
        sender.notify();
        assert_eq!(set.ready_count(SOON), 0, "awake: no write, no readiness");
        assert!(!receiver.prepare_park(), "something is pending: do not sleep");
        assert_eq!(receiver.cancel_park(), Some(1));

        assert!(receiver.prepare_park());
        assert!(receiver.prepare_park(), "saying it twice changes nothing");
        assert_eq!(receiver.try_wait(), None, "parked, and nothing came");
        sender.notify();
        sender.notify();
        assert_eq!(set.ready_count(LONG), 1);
        assert_eq!(receiver.cancel_park(), Some(1));
        assert_eq!(set.ready_count(SOON), 0, "emptied");
        assert_eq!(receiver.cancel_park(), None);
        assert_eq!(receiver.stats().by_sleeping, 1);
    }

    #[test]
    fn park_ended_by_another_event_is_cancelled() {
        let (sender, mut receiver) = adaptive_fd::pair(Config::default()).expect("valid");
        let set = Set::with(&receiver);
        assert!(receiver.prepare_park());
        assert_eq!(set.ready_count(SOON), 0); // as if another descriptor were ready
        assert_eq!(receiver.cancel_park(), None);
        sender.notify();
        assert_eq!(set.ready_count(SOON), 0, "not parked: not written to");
        assert_eq!(receiver.try_wait(), Some(1));
    }

    #[test]
    fn every_kind_of_wait_works_during_a_park() {
        let (sender, mut receiver) = adaptive_fd::pair(Config::default()).expect("valid");
        let set = Set::with(&receiver);
        for round in 0..4 {
            assert!(receiver.prepare_park());
            sender.notify();
            let notified = match round {
                0 => receiver.try_wait(),
                1 => Some(receiver.wait()),
                2 => receiver.wait_timeout(SOON),
                _ => receiver.spin_wait(),
            };
            assert_eq!(notified, Some(1), "round {round}");
            assert_eq!(set.ready_count(Duration::ZERO), 0, "round {round}: emptied");
        }
        assert!(receiver.prepare_park());
        assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
        sender.notify();
        assert_eq!(set.ready_count(SOON), 0, "the timed wait has ended the park");
        assert_eq!(receiver.wait(), 1);
    }

    #[test]
    fn epoll_loop_misses_no_notification_of_a_storm() {
        const STORM_COUNT: u64 = 20_000;
        let (sender, mut receiver) = adaptive_fd::pair(Config::default()).expect("valid");
        let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let parked = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let storm = thread::spawn({
            let (sent, parked) = (Arc::clone(&sent), Arc::clone(&parked));
            move || {
                for number in 1..=STORM_COUNT {
                    // The last notification waits until a receiver has parked.
                    while number == STORM_COUNT && !parked.load(Relaxed) {
                        thread::yield_now();
                    }
                    sent.store(number, Relaxed);
                    sender.notify();
                    if number % 64 == 0 {
                        thread::sleep(Duration::from_micros(60)); // lets the receiver park
                    }
                }
            }
        });
        let set = Set::with(&receiver);
        let mut seen = 0;
        while seen < STORM_COUNT {
            if receiver.spin_wait().is_none() && receiver.prepare_park() {
                parked.store(true, Relaxed);
                assert_eq!(set.ready_count(LONG), 1, "a wake-up was lost after {seen}");
                parked.store(false, Relaxed);
            }
            receiver.cancel_park();
            seen = sent.load(Relaxed);
        }
        storm.join().expect("the storm");
        let stats = receiver.stats();
        assert!(stats.by_sleeping > 0, "it never parked: {stats:?}");
    }
}
