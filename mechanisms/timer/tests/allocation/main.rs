//! Counts of allocations.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
#[path = "../../../../base/tests/raw/allocations.rs"]
mod raw;

use handover_timer::{Config, TimerId, Wheel};
use std::num::NonZeroU64;

const TIMERS_COUNT: u32 = 4_000;
const HORIZON_NS: u64 = 10_000_000_000;

/// Timers as in a server: most are cancelled, some expire, some are put off.
struct Workload {
    wheel: Wheel<u32>,
    ids: Vec<TimerId>,
    now_ns: u64,
    random: u64,
}

impl Workload {
    fn new(timers_reserved: u32) -> Self {
        let config = Config::default().timers_max(TIMERS_COUNT).timers_reserved(timers_reserved);
        let wheel = Wheel::new(config, 0).expect("a valid configuration");
        let ids = Vec::with_capacity(TIMERS_COUNT as usize);
        Self { wheel, ids, now_ns: 0, random: 88_172_645_463_325_252 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn start(&mut self, key: u32) -> TimerId {
        let deadline_ns = self.now_ns + self.random() % HORIZON_NS;
        self.wheel.start(deadline_ns, key).expect("room")
    }

    fn fill(&mut self) {
        for key in 0..TIMERS_COUNT {
            let id = self.start(key);
            self.ids.push(id);
        }
    }

    fn run(&mut self, steps_count: u32) {
        for _ in 0..steps_count {
            for _ in 0..20 {
                let key = (self.random() % u64::from(TIMERS_COUNT)) as u32;
                let id = self.ids[key as usize];
                if self.random().is_multiple_of(4) {
                    let deadline_ns = self.now_ns + self.random() % HORIZON_NS;
                    assert!(self.wheel.reschedule(id, deadline_ns));
                } else {
                    assert_eq!(self.wheel.cancel(id), Some(key));
                    self.ids[key as usize] = self.start(key);
                }
            }
            self.now_ns += HORIZON_NS / u64::from(TIMERS_COUNT) * 4;
            while let Some(expired) = self.wheel.pop_due(self.now_ns) {
                self.ids[expired.payload as usize] = self.start(expired.payload);
            }
            assert!(self.wheel.next_deadline_ns() > Some(self.now_ns));
        }
    }
}

#[test]
fn steady_state_does_not_allocate() {
    let mut workload = Workload::new(0);
    workload.fill();
    workload.run(20_000);
    let before = raw::allocations_count();
    workload.run(5_000);
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn reserved_memory_suffices_from_the_start() {
    let mut workload = Workload::new(TIMERS_COUNT);
    let before = raw::allocations_count();
    workload.fill();
    workload.run(5_000);
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn reserved_memory_suffices_for_more_entries_than_timers() {
    let config = Config::default().timers_max(2).timers_reserved(2);
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    let before = raw::allocations_count();
    // All deadlines are in one slot. The first of two cancelled timers leaves a stale entry, and
    // so does each move to an earlier deadline.
    for _ in 0..150 {
        let first = wheel.start(1_100_000, ()).expect("room");
        let second = wheel.start(1_100_000, ()).expect("room");
        assert!(wheel.cancel(first).is_some() && wheel.cancel(second).is_some());
    }
    let moved = wheel.start(1_100_000, ()).expect("room");
    for deadline_ns in (1_099_950..1_100_000).rev() {
        assert!(wheel.reschedule(moved, deadline_ns));
    }
    assert_eq!(wheel.next_deadline_ns(), Some(1_099_950));
    assert_eq!(wheel.expire(u64::MAX, usize::MAX, drop), 1);
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn start_and_cancel_in_turn_does_not_allocate() {
    let mut wheel = Wheel::new(Config::default(), 0).expect("a valid configuration");
    let id = wheel.start(1_000_000, 0).expect("room");
    wheel.cancel(id);
    let before = raw::allocations_count();
    for i in 0..100_000 {
        let id = wheel.start(1_000_000, i).expect("room");
        assert_eq!(wheel.cancel(id), Some(i));
    }
    assert_eq!(raw::allocations_count() - before, 0);
}

/// Starts a thousand timers that stay while others come and go, two at a time, so that the
/// cancelled one is never the one that was started last. Returns the number of allocations after
/// `warm_up_count` of these pairs.
fn allocations_while_stale_entries_arise(config: Config, warm_up_count: u32) -> usize {
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    let mut random = 1_u64;
    let mut start = |wheel: &mut Wheel<()>| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        wheel.start(1_000 + (random >> 20), ()).expect("room")
    };
    let before = raw::allocations_count();
    for _ in 0..1_000 {
        start(&mut wheel);
    }
    let mut start_and_cancel = |wheel: &mut Wheel<()>, count: u32| {
        for _ in 0..count {
            let (first, second) = (start(wheel), start(wheel));
            assert!(wheel.cancel(first).is_some() && wheel.cancel(second).is_some());
        }
    };
    start_and_cancel(&mut wheel, warm_up_count);
    let before = if warm_up_count == 0 { before } else { raw::allocations_count() };
    start_and_cancel(&mut wheel, 200_000);
    let allocations_count = raw::allocations_count() - before;
    assert_eq!(wheel.expire(u64::MAX, usize::MAX, drop), 1_000);
    allocations_count
}

#[test]
fn stale_entries_of_cancelled_timers_are_removed() {
    assert_eq!(allocations_while_stale_entries_arise(Config::default(), 60_000), 0);
}

#[test]
fn reserved_memory_suffices_for_stale_entries() {
    let config = Config::default().timers_reserved(1_002);
    assert_eq!(allocations_while_stale_entries_arise(config, 0), 0);
}

/// Deadlines that lie in different slots of a wheel whose time is 0.
fn deadlines_in_each_slot() -> Vec<u64> {
    let digits = (0..11_u32).flat_map(|level| (1..64_u64).map(move |digit| (level, digit)));
    digits
        .filter(|&(level, digit)| level < 10 || digit < 16)
        .map(|(level, digit)| digit << (6 * level))
        .collect()
}

/// Starts two timers and cancels both, the one that was started first, first. It leaves a stale
/// entry.
fn leave_stale_entry(wheel: &mut Wheel<()>, deadline_ns: u64) {
    let first = wheel.start(deadline_ns, ()).expect("room");
    let second = wheel.start(deadline_ns, ()).expect("room");
    assert!(wheel.cancel(first).is_some() && wheel.cancel(second).is_some());
}

#[test]
fn reserved_memory_suffices_for_stale_entries_of_one_slot_while_all_slots_are_in_use() {
    for is_empty in [true, false] {
        let deadlines_ns = deadlines_in_each_slot();
        let timers_count = if is_empty { 2 } else { deadlines_ns.len() as u32 + 2 };
        let config = Config::default().timers_max(timers_count).timers_reserved(timers_count);
        let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
        let before = raw::allocations_count();
        for &deadline_ns in &deadlines_ns {
            let id = wheel.start(deadline_ns, ()).expect("room");
            if is_empty {
                wheel.cancel(id);
            }
        }
        for _ in 0..100_000 {
            leave_stale_entry(&mut wheel, 15 << 60);
        }
        assert_eq!(raw::allocations_count() - before, 0, "slots empty: {is_empty}");
    }
}

#[test]
fn reserved_memory_suffices_for_stale_entries_in_many_slots() {
    let deadlines_ns = deadlines_in_each_slot();
    for slots_count in [20, 150, 300, 640] {
        let config = Config::default().timers_reserved(slots_count + 2);
        let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
        let before = raw::allocations_count();
        for &deadline_ns in deadlines_ns.iter().rev().take(slots_count as usize) {
            for _ in 0..28 {
                leave_stale_entry(&mut wheel, deadline_ns);
            }
            wheel.start(deadline_ns, ()).expect("room");
        }
        for _ in 0..50_000 {
            leave_stale_entry(&mut wheel, 15 << 60);
        }
        assert_eq!(raw::allocations_count() - before, 0, "{slots_count} slots");
    }
}

#[test]
fn reserved_memory_suffices_for_slots_whose_timers_were_nearly_all_cancelled() {
    let deadlines_ns = deadlines_in_each_slot();
    let config = Config::default().timers_reserved(29 * deadlines_ns.len() as u32 + 2);
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    let before = raw::allocations_count();
    let mut ids = Vec::with_capacity(28);
    for &deadline_ns in &deadlines_ns {
        ids.extend((0..28).map(|_| wheel.start(deadline_ns, ()).expect("room")));
        wheel.start(deadline_ns, ()).expect("room");
        ids.drain(..).for_each(|id| assert!(wheel.cancel(id).is_some()));
    }
    for _ in 0..200_000 {
        leave_stale_entry(&mut wheel, 15 << 60);
    }
    assert_eq!(raw::allocations_count() - before, 1, "only the vector of handles");
}

#[test]
fn reserved_memory_suffices_for_stale_entries_below_a_slot_that_was_opened_early() {
    let config = Config::default().timers_reserved(254);
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    let before = raw::allocations_count();
    for _ in 0..252 {
        wheel.start(u64::MAX, ()).expect("room");
    }
    // As many as the wheel keeps: one more would remove some.
    for _ in 0..531 {
        leave_stale_entry(&mut wheel, u64::MAX);
    }
    assert_eq!(wheel.next_deadline_ns(), Some(u64::MAX));
    for _ in 0..600 {
        leave_stale_entry(&mut wheel, 1_000);
    }
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn reserved_memory_suffices_for_stale_entries_of_a_slot_that_was_opened_early() {
    const SLOT_NS: u64 = 1 << 30;
    let config = Config::default().timers_reserved(130);
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    let before = raw::allocations_count();
    let ids = [(); 130].map(|()| wheel.start(u64::MAX, ()).expect("room"));
    ids.into_iter().for_each(|id| assert!(wheel.cancel(id).is_some()));
    wheel.start(SLOT_NS + 1, ()).expect("room");
    let moved = wheel.start(SLOT_NS + 600, ()).expect("room");
    for deadline_ns in (SLOT_NS + 100..SLOT_NS + 600).rev() {
        assert!(wheel.reschedule(moved, deadline_ns));
    }
    assert_eq!(wheel.next_deadline_ns(), Some(SLOT_NS + 1)); // opens the slot
    assert!(wheel.pop_due(SLOT_NS + 1_000).is_some());
    for _ in 0..126 {
        wheel.start(SLOT_NS + 2_000, ()).expect("room");
    }
    for _ in 0..126 {
        leave_stale_entry(&mut wheel, SLOT_NS + 2_000);
    }
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn reserved_memory_suffices_for_stale_entries_of_timers_that_are_due() {
    let config = Config::default().timers_reserved(254);
    let mut wheel = Wheel::new(config, 0).expect("a valid configuration");
    assert_eq!(wheel.pop_due(2_000), None);
    let before = raw::allocations_count();
    for _ in 0..252 {
        wheel.start(1_000, ()).expect("room");
    }
    for _ in 0..600 {
        leave_stale_entry(&mut wheel, 1_000);
    }
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn periodic_timer_does_not_allocate() {
    let mut wheel = Wheel::new(Config::default(), 0).expect("a valid configuration");
    let period_ns = NonZeroU64::new(1_000_003).expect("not zero");
    wheel.start_periodic(0, period_ns, ()).expect("room");
    let mut pop = |beats: std::ops::Range<u64>| {
        for beat in beats {
            assert!(wheel.pop_due(beat * period_ns.get()).is_some());
        }
    };
    pop(0..10_000);
    let before = raw::allocations_count();
    pop(10_000..50_000);
    assert_eq!(raw::allocations_count() - before, 0);
}
