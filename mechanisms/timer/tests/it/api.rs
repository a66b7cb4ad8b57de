//! API of the wheel: a test for each promise.

use handover_base::sync::auto_traits;
use handover_timer::{Config, ExpiredTimer, TimerId, Wheel, WheelFull};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;

fn wheel<T>(now_ns: u64) -> Wheel<T> {
    Wheel::new(Config::default(), now_ns).expect("the defaults are valid")
}

fn period(ns: u64) -> NonZeroU64 {
    NonZeroU64::new(ns).expect("not zero")
}

fn due<T>(wheel: &mut Wheel<T>, now_ns: u64) -> Vec<T> {
    std::iter::from_fn(|| wheel.pop_due(now_ns)).map(|expired| expired.payload).collect()
}

#[test]
fn far_deadlines_are_exact_to_the_nanosecond() {
    const FAR_NS: u64 = 1 << 60;
    let mut wheel = wheel(0);
    for offset in [3, 1, 2, 0] {
        wheel.start(FAR_NS + offset, offset).unwrap();
    }
    assert_eq!(due(&mut wheel, FAR_NS - 1), []);
    assert_eq!(due(&mut wheel, FAR_NS + 1), [0, 1]);
    assert_eq!(due(&mut wheel, FAR_NS + 3), [2, 3]);
}

#[test]
fn past_deadline_is_due_at_once_in_deadline_order() {
    let mut wheel = wheel(1_000);
    wheel.start(1_000, "now").unwrap();
    wheel.start(0, "long ago").unwrap();
    wheel.start(999, "just missed").unwrap();
    assert_eq!(wheel.next_deadline_ns(), Some(0));
    assert_eq!(due(&mut wheel, 1_000), ["long ago", "just missed", "now"]);
}

#[test]
fn maximum_deadline_is_valid() {
    let mut wheel = wheel(u64::MAX - 1);
    let never = wheel.start(u64::MAX, "never").unwrap();
    wheel.start(u64::MAX, "too late").unwrap();
    assert_eq!(wheel.next_deadline_ns(), Some(u64::MAX));
    assert_eq!(due(&mut wheel, u64::MAX - 1), Vec::<&str>::new());
    assert_eq!(wheel.cancel(never), Some("never"));
    assert_eq!(due(&mut wheel, u64::MAX), ["too late"]);
    wheel.start(u64::MAX, "again").unwrap();
    assert_eq!(due(&mut wheel, u64::MAX), ["again"]);
}

#[test]
fn stale_handle_does_not_match_later_timer_in_same_slot() {
    let mut wheel = wheel(0);
    let first = wheel.start(10, "first").unwrap();
    assert_eq!(wheel.cancel(first), Some("first"));
    let mut others = Vec::new();
    for _ in 0..100_000 {
        let other = wheel.start(10, "other").unwrap();
        assert_ne!(other, first);
        others.push(other);
        assert_eq!(wheel.cancel(first), None);
        assert!(!wheel.contains(first));
        assert!(!wheel.reschedule(first, 5));
        assert_eq!(wheel.get(first), None);
        assert_eq!(wheel.deadline_ns(first), None);
        if others.len() > 3 {
            assert_eq!(wheel.cancel(others.swap_remove(0)), Some("other"));
        }
    }
    assert_eq!(wheel.len(), 3);
}

#[test]
fn handle_of_another_wheel_does_not_match_vacant_slot() {
    let mut wheel = wheel(0);
    let own = wheel.start(10, "own").unwrap();
    assert_eq!(wheel.cancel(own), Some("own"));
    // The other wheel's handle fits the next timer of the slot in which `own` was.
    let mut other = Wheel::new(Config::default(), 0).unwrap();
    let first = other.start(10, "first").unwrap();
    assert_eq!(other.cancel(first), Some("first"));
    let foreign = other.start(10, "foreign").unwrap();

    assert!(!wheel.contains(foreign));
    assert_eq!(wheel.get(foreign), None);
    assert_eq!(wheel.get_mut(foreign), None);
    assert_eq!(wheel.deadline_ns(foreign), None);
    assert!(!wheel.reschedule(foreign, 5));
    assert_eq!(wheel.next_deadline_ns(), None, "the wheel is empty");
    assert_eq!(wheel.cancel(foreign), None);

    // The slot is still usable: its next timer can be found, moved and cancelled.
    let next = wheel.start(20, "next").unwrap();
    wheel.start(30, "last").unwrap();
    assert!(wheel.reschedule(next, 25));
    assert_eq!(wheel.cancel(next), Some("next"));
    assert_eq!(due(&mut wheel, 30), ["last"]);
    assert!(wheel.is_empty());
}

#[test]
fn handle_of_expired_timer_is_invalid() {
    let mut wheel = wheel(0);
    let id = wheel.start(10, ()).unwrap();
    assert_eq!(wheel.pop_due(10).map(|expired| expired.id), Some(id));
    assert_eq!(wheel.cancel(id), None);
    assert!(wheel.is_empty());
}

#[test]
fn timer_beyond_the_limit_is_refused_with_its_payload() {
    let config = Config { timers_max: 2, ..Config::default() };
    let mut wheel = Wheel::new(config, 0).unwrap();
    let first = wheel.start(1, Rc::new("first")).unwrap();
    wheel.start_periodic(1, period(5), Rc::new("second")).unwrap();
    let third = Rc::new("third");
    assert_eq!(wheel.start(1, third.clone()), Err(WheelFull(third.clone())));
    assert_eq!(wheel.start_periodic(1, period(1), third.clone()), Err(WheelFull(third.clone())));
    assert_eq!(Rc::strong_count(&third), 1, "a refused payload was kept");
    wheel.cancel(first);
    assert!(wheel.start(1, third).is_ok());
}

#[test]
fn invalid_limits_are_refused_with_their_range() {
    let refused = |timers_max, timers_reserved| {
        Wheel::<()>::new(Config { timers_max, timers_reserved }, 0).unwrap_err().to_string()
    };
    assert_eq!(refused(0, 0), "timers_max=0: must lie in 1..=268435456");
    assert_eq!(refused(10, 11), "timers_reserved=11: must lie in 0..=10");
}

#[test]
fn periodic_timer_counts_missed_deadlines_and_does_not_drift() {
    let mut wheel = wheel(0);
    let id = wheel.start_periodic(100, period(10), "beat").unwrap();
    let expired = |deadline_ns, missed_count| {
        Some(ExpiredTimer { id, deadline_ns, missed_count, payload: "beat" })
    };
    assert_eq!(wheel.pop_due(100), expired(100, 0));
    assert_eq!(wheel.pop_due(109), None);
    assert_eq!(wheel.pop_due(145), expired(110, 3));
    assert_eq!(wheel.pop_due(145), None);
    assert_eq!(wheel.next_deadline_ns(), Some(150));
    assert!(wheel.reschedule(id, 203));
    assert_eq!(wheel.pop_due(204), expired(203, 0));
    assert_eq!(wheel.next_deadline_ns(), Some(213));
    assert_eq!(wheel.cancel(id), Some("beat"));
    assert_eq!(wheel.next_deadline_ns(), None);
}

#[test]
fn periodic_timer_ends_when_next_deadline_overflows() {
    let mut wheel = wheel(u64::MAX - 25);
    let id = wheel.start_periodic(u64::MAX - 20, period(15), ()).unwrap();
    assert_eq!(wheel.pop_due(u64::MAX - 20).map(|expired| expired.missed_count), Some(0));
    assert_eq!(wheel.pop_due(u64::MAX).map(|expired| expired.deadline_ns), Some(u64::MAX - 5));
    assert!(!wheel.contains(id));
}

#[test]
fn postponed_timer_expires_once_at_its_last_deadline() {
    let mut wheel = wheel(0);
    let id = wheel.start(100, "idle").unwrap();
    for now_ns in (0..100_000).step_by(50) {
        assert_eq!(wheel.pop_due(now_ns), None);
        assert!(wheel.reschedule(id, now_ns + 100));
        assert_eq!(wheel.next_deadline_ns(), Some(now_ns + 100));
    }
    assert_eq!(wheel.pop_due(100_049), None);
    assert_eq!(due(&mut wheel, 100_050), ["idle"]);
}

#[test]
fn timer_rescheduled_earlier_and_later_expires_once() {
    let mut wheel = wheel(0);
    let id = wheel.start_periodic(1_000, period(1_000), ()).unwrap();
    for deadline_ns in [500, 900, 400, 1_000, 300, 2_000] {
        assert!(wheel.reschedule(id, deadline_ns));
        assert_eq!(wheel.deadline_ns(id), Some(deadline_ns));
        assert_eq!(wheel.next_deadline_ns(), Some(deadline_ns));
    }
    assert_eq!(due(&mut wheel, 1_999), []);
    assert_eq!(due(&mut wheel, 2_000), [()]);
    assert_eq!(due(&mut wheel, 2_999), []);
    assert_eq!(due(&mut wheel, 3_000), [()]);
}

#[test]
fn timers_can_be_started_and_cancelled_while_others_expire() {
    let mut wheel = wheel(0);
    let doomed = wheel.start(30, "doomed").unwrap();
    wheel.start(10, "first").unwrap();
    let mut seen = Vec::new();
    while let Some(expired) = wheel.pop_due(50) {
        seen.push(expired.payload);
        if expired.payload == "first" {
            assert_eq!(wheel.cancel(doomed), Some("doomed"));
            wheel.start(20, "overdue").unwrap();
            wheel.start(60, "later").unwrap();
        }
    }
    assert_eq!(seen, ["first", "overdue"]);
    assert_eq!(wheel.next_deadline_ns(), Some(60));
}

#[test]
fn expire_returns_at_most_expired_max_timers() {
    let mut wheel = wheel(0);
    (0..10).for_each(|i| assert!(wheel.start(i, i).is_ok()));
    let mut seen = Vec::new();
    assert_eq!(wheel.expire(100, 4, |expired| seen.push(expired.payload)), 4);
    assert_eq!(wheel.expire(100, 4, |expired| seen.push(expired.payload)), 4);
    assert_eq!(wheel.expire(100, 4, |expired| seen.push(expired.payload)), 2);
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[test]
fn payload_can_be_read_and_changed_while_timer_runs() {
    let mut wheel = wheel(0);
    let id = wheel.start(10, 1).unwrap();
    *wheel.get_mut(id).unwrap() += 1;
    assert_eq!(wheel.get(id), Some(&2));
    assert_eq!(due(&mut wheel, 10), [2]);
    assert_eq!(wheel.get_mut(id), None);
}

#[test]
fn dropping_the_wheel_drops_the_payloads() {
    let payload = Rc::new(());
    let mut wheel = wheel(0);
    wheel.start(1, payload.clone()).unwrap();
    let cancelled = wheel.start(2, payload.clone()).unwrap();
    drop(wheel.cancel(cancelled));
    assert_eq!(Rc::strong_count(&payload), 2);
    drop(wheel);
    assert_eq!(Rc::strong_count(&payload), 1);
}

#[test]
fn backward_clock_step_expires_nothing_early() {
    let mut wheel = wheel(1_000);
    wheel.start(2_000, "later").unwrap();
    assert_eq!(due(&mut wheel, 1_500), Vec::<&str>::new());
    wheel.start(1_200, "sooner").unwrap();
    assert_eq!(due(&mut wheel, 1_100), Vec::<&str>::new());
    assert_eq!(due(&mut wheel, 1_200), ["sooner"]);
    assert_eq!(due(&mut wheel, 2_000), ["later"]);
}

#[test]
fn wheel_is_send_and_sync_if_payload_is() {
    assert_eq!(auto_traits!(TimerId), "Send + Sync");
    assert_eq!(auto_traits!(Wheel<u8>), "Send + Sync");
    assert_eq!(auto_traits!(Wheel<Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Wheel<std::sync::MutexGuard<'static, u8>>), "Sync");
    assert_eq!(auto_traits!(Wheel<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(ExpiredTimer<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(WheelFull<Cell<u8>>), "Send");
}
