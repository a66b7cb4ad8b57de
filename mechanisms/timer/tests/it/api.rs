//! API of the wheel: a test for each promise.

use handover_base::sync::auto_traits;
use handover_timer::{Config, ExpiredTimer, TimerId, Wheel, WheelFull};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

fn wheel<T>(now_ns: u64) -> Wheel<T> {
    Wheel::new(Config::default(), now_ns).expect("the defaults are valid")
}

fn period(ns: u64) -> NonZeroU64 {
    NonZeroU64::new(ns).expect("not zero")
}

/// Returns the payloads of all timers that are due at `now_ns`, and ends them.
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
fn handle_of_another_wheel_does_not_match_a_running_timer() {
    let mut wheels = [wheel(0), wheel(0)];
    let ids = wheels.each_mut().map(|wheel| wheel.start(10, "running").unwrap());
    for (wheel, foreign) in wheels.iter_mut().zip([ids[1], ids[0]]) {
        assert!(!wheel.contains(foreign));
        assert_eq!(wheel.cancel(foreign), None);
        assert!(!wheel.reschedule(foreign, 5));
        assert_eq!(due(wheel, 10), ["running"]);
    }
}

#[test]
fn handle_of_the_next_timer_does_not_match_vacant_slot() {
    let mut wheel = wheel(0);
    let own = wheel.start(10, "own").unwrap();
    assert_eq!(wheel.cancel(own), Some("own"));
    // Another wheel may have given out this handle long ago.
    let foreign = TimerId::from_bits(own.to_bits() + 2).unwrap();

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
    let config = Config::default().timers_max(2);
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
        let config = Config::default().timers_max(timers_max).timers_reserved(timers_reserved);
        Wheel::<()>::new(config, 0).unwrap_err().to_string()
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

#[test]
fn durations_count_from_the_latest_time_and_saturate() {
    let mut wheel = wheel(1_000);
    let id = wheel.start_after(Duration::from_nanos(500), "first").unwrap();
    assert_eq!(wheel.deadline_ns(id), Some(1_500));
    assert_eq!(wheel.time_to_next(1_100), Some(Duration::from_nanos(400)));
    assert_eq!(wheel.time_to_next(1_501), Some(Duration::ZERO));
    assert_eq!(wheel.pop_due(1_200), None);
    assert!(wheel.reschedule_after(id, Duration::from_nanos(500)));
    assert_eq!(wheel.deadline_ns(id), Some(1_700), "not counted from the time of pop_due");
    let far = wheel.start_after(Duration::MAX, "never").unwrap();
    assert_eq!(wheel.deadline_ns(far), Some(u64::MAX));
    assert_eq!(due(&mut wheel, 1_700), ["first"]);
    assert!(!wheel.reschedule_after(id, Duration::ZERO));
    assert_eq!(wheel.cancel(far), Some("never"));
    assert_eq!(wheel.time_to_next(1_700), None);
}

#[test]
fn iteration_visits_each_running_timer_once_with_its_present_deadline() {
    let mut wheel = wheel(0);
    let once = wheel.start(10, 'a').unwrap();
    let periodic = wheel.start_periodic(20, period(5), 'b').unwrap();
    let cancelled = wheel.start(30, 'c').unwrap();
    let moved = wheel.start(40, 'd').unwrap();
    wheel.start(1, 'e').unwrap();
    assert_eq!(due(&mut wheel, 1), ['e']);
    assert!(wheel.cancel(cancelled).is_some());
    assert!(wheel.reschedule(moved, 400));
    assert_eq!(wheel.pop_due(20).map(|expired| expired.payload), Some('a'));
    assert_eq!(wheel.pop_due(20).map(|expired| expired.payload), Some('b'));
    assert!(!wheel.contains(once));
    let mut visited: Vec<_> = wheel.iter().collect();
    visited.sort_by_key(|(_, deadline_ns, _)| *deadline_ns);
    assert_eq!(visited, [(periodic, 25, &'b'), (moved, 400, &'d')]);
}

#[test]
fn retain_cancels_the_other_timers_and_clear_all() {
    let mut wheel = wheel(0);
    let counted = Rc::new(());
    let start =
        |wheel: &mut Wheel<(u64, Rc<()>)>, ns| wheel.start(ns, (ns, Rc::clone(&counted))).unwrap();
    // Timers in all places: of the levels, late ones, the newest, one that was moved.
    let ids: Vec<TimerId> =
        (0..1_000).map(|at| start(&mut wheel, (at * 7_919) % 100_000)).collect();
    assert!(wheel.pop_due(0).is_some());
    assert!(wheel.next_deadline_ns().is_some()); // opens a slot ahead of time
    ids.iter().skip(500).for_each(|id| {
        wheel.reschedule(*id, 200_000);
    });
    let newest = start(&mut wheel, 3);
    wheel.retain(|id, deadline_ns, payload| {
        assert!(deadline_ns == payload.0 || deadline_ns == 200_000);
        payload.0 += 1; // payloads can be changed
        id == newest || deadline_ns % 2 == 0
    });
    assert!(wheel.iter().all(|(id, deadline_ns, _)| id == newest || deadline_ns % 2 == 0));
    assert_eq!(Rc::strong_count(&counted), 1 + wheel.len(), "payloads of cancelled timers remain");
    let expected = wheel.len();
    let popped = due(&mut wheel, 300_000);
    assert_eq!(popped.len(), expected);
    assert!(popped.iter().any(|(ns, _)| *ns == 4), "the newest timer was not kept");
    drop(popped);

    let old = start(&mut wheel, 400_000);
    start(&mut wheel, 5);
    wheel.clear();
    assert_eq!((wheel.len(), wheel.next_deadline_ns()), (0, None));
    assert_eq!(Rc::strong_count(&counted), 1);
    assert!(!wheel.contains(old));
    start(&mut wheel, 400_000);
    assert!(wheel.cancel(old).is_none(), "a handle from before is valid again");
    assert_eq!(due(&mut wheel, 400_000).len(), 1);
}
