//! Contract of all lanes, tested with each lane and each width of slots.

use handover_sched::drive::lane::{
    Cached, Collect, LANE_SLOTS_MAX, Lane, LaneError, Laps, Lines, Marks, Plain, Post,
};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Makes a slot that holds its number in every word.
fn slot<const W: usize>(number: u64) -> [u64; W] {
    std::array::from_fn(|word| number * 4 + word as u64)
}

fn check_order_over_many_laps<L: Lane, const W: usize>() {
    for slots_count in [1, 2, 7, 8, 20, 200] {
        let (mut sender, mut receiver) = L::pair::<W>(slots_count).unwrap();
        let (mut pushed, mut popped) = (0, 0);
        while popped < 1000 {
            let before = pushed;
            while sender.push(slot(pushed)) {
                pushed += 1;
            }
            sender.publish();
            assert!(!sender.has_room());
            let free_count = (pushed - popped) as u32;
            assert!(free_count >= slots_count, "{}: {free_count} of {slots_count}", L::NAME);
            assert!(pushed > before);
            while let Some(words) = receiver.pop() {
                assert_eq!(words, slot(popped), "{}", L::NAME);
                popped += 1;
            }
            receiver.release();
            assert_eq!(popped, pushed, "{}", L::NAME);
            assert!(sender.has_room());
        }
    }
}

fn check_capacity_is_exact<L: Lane>() {
    for slots_count in [1, 3, 8, 20, 1000] {
        let (mut sender, mut receiver) = L::pair::<1>(slots_count).unwrap();
        for lap in 0..3 {
            let pushed = (0..).take_while(|&number| sender.push([number])).count();
            assert_eq!(pushed as u32, slots_count, "{}, lap {lap}", L::NAME);
            sender.publish();
            while receiver.pop().is_some() {}
            receiver.release();
        }
    }
}

fn check_slots_are_whole_between_threads<L: Lane, const W: usize>() {
    let numbers = if cfg!(miri) { 200 } else { 20_000 };
    let (mut sender, mut receiver) = L::pair::<W>(20).unwrap();
    let other = std::thread::spawn(move || {
        for number in 0..numbers {
            while !sender.push(slot(number)) {
                sender.publish();
                std::thread::yield_now();
            }
            if number % 5 == 0 {
                sender.publish();
            }
        }
        sender.publish();
    });
    let mut number = 0;
    while number < numbers {
        match receiver.pop() {
            Some(words) => {
                assert_eq!(words, slot(number), "{}", L::NAME);
                number += 1;
            }
            None => {
                receiver.release();
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(receiver.pop(), None);
    other.join().unwrap();
}

/// Operation on a lane.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8),
    PushAll(u8),
    Publish,
    Pop(u8),
    PopAll(u8),
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u8..40).prop_map(Step::Push),
        (0u8..40).prop_map(Step::PushAll),
        Just(Step::Publish),
        (1u8..40).prop_map(Step::Pop),
        (0u8..40).prop_map(Step::PopAll),
        Just(Step::Release),
    ];
    prop::collection::vec(step, 1..60)
}

/// Compares a lane with a queue: no slot is lost, duplicated or out of order, and all are visible
/// once published.
fn check_acts_as_queue<L: Lane>(slots_count: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut sender, mut receiver) = L::pair::<2>(slots_count).unwrap();
    let (mut queue, mut number, mut published) = (VecDeque::new(), 0, 0);
    for step in steps {
        match *step {
            Step::Push(count) => {
                for _ in 0..count {
                    let is_free = sender.has_room();
                    let pushed = sender.push(slot(number));
                    prop_assert_eq!(is_free, pushed);
                    if pushed {
                        queue.push_back(number);
                        number += 1;
                    } else {
                        sender.publish();
                        published = number;
                    }
                }
            }
            Step::PushAll(count) => {
                let slots: Vec<_> = (number..number + u64::from(count)).map(slot).collect();
                let free_count = sender.free_count(slots.len()).min(slots.len());
                let pushed = sender.push_all(&slots);
                prop_assert!(
                    pushed >= free_count,
                    "{} of {} that there was room for",
                    pushed,
                    free_count
                );
                prop_assert!(pushed == slots.len() || !sender.has_room());
                queue.extend(number..number + pushed as u64);
                number += pushed as u64;
            }
            Step::Publish => {
                sender.publish();
                published = number;
            }
            Step::PopAll(count) => {
                let mut slots = vec![[0; 2]; count.into()];
                let popped = receiver.pop_all(&mut slots);
                for words in &slots[..popped] {
                    prop_assert_eq!(Some(*words), queue.pop_front().map(slot));
                }
                let next = queue.front().copied().unwrap_or(number);
                prop_assert!(popped == slots.len() || next >= published, "{} was published", next);
            }
            Step::Pop(count) => {
                for _ in 0..count {
                    match receiver.pop() {
                        Some(words) => prop_assert_eq!(Some(words), queue.pop_front().map(slot)),
                        None => {
                            let next = queue.front().copied().unwrap_or(number);
                            prop_assert!(next >= published, "{} was published", next);
                        }
                    }
                }
            }
            Step::Release => receiver.release(),
        }
    }
    sender.publish();
    while let Some(words) = receiver.pop() {
        prop_assert_eq!(Some(words), queue.pop_front().map(slot));
    }
    prop_assert!(queue.is_empty());
    Ok(())
}

macro_rules! contract {
    ($($module:ident: $lane:ty),*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn pushed_slots_are_popped_in_order_over_many_laps() {
                check_order_over_many_laps::<$lane, 1>();
                check_order_over_many_laps::<$lane, 2>();
                check_order_over_many_laps::<$lane, 4>();
            }

            #[test]
            fn slots_are_whole_and_in_order_between_threads() {
                check_slots_are_whole_between_threads::<$lane, 1>();
                check_slots_are_whole_between_threads::<$lane, 4>();
            }

            #[test]
            fn slots_count_outside_its_range_is_refused() {
                for slots_count in [0, LANE_SLOTS_MAX + 1] {
                    let refused = <$lane as Lane>::pair::<1>(slots_count).err();
                    assert_eq!(refused, Some(LaneError::Slots { slots_count }));
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 },
                    failure_persistence: None, ..ProptestConfig::default() })]
                #[test]
                fn any_sequence_of_calls_acts_as_a_queue(slots_count in 1u32..70, steps in steps()) {
                    check_acts_as_queue::<$lane>(slots_count, &steps)?;
                }
            }
        }
    )*};
}

contract!(laps: Laps, marks: Marks, lines: Lines, cached: Cached, plain: Plain);

#[test]
fn capacity_of_index_and_laps_lanes_is_exact() {
    check_capacity_is_exact::<Laps>();
    check_capacity_is_exact::<Cached>();
    check_capacity_is_exact::<Plain>();
}
