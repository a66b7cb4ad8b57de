//! Contract of the lane, tested with each width of slots.

use handover_sched::drive::lane::{LANE_SLOTS_MAX, LaneError, lane};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Makes a slot that holds its number in every word.
fn slot<const W: usize>(number: u64) -> [u64; W] {
    std::array::from_fn(|word| number * 4 + word as u64)
}

fn check_order_over_many_laps<const W: usize>() {
    for slots_count in [1, 2, 7, 8, 20, 200] {
        let (mut sender, mut receiver) = lane::<W>(slots_count).unwrap();
        let (mut pushed, mut popped) = (0, 0);
        while popped < 1000 {
            let before = pushed;
            while sender.push(slot(pushed)) {
                pushed += 1;
            }
            assert_eq!(sender.free_count(1), 0);
            let free_count = (pushed - popped) as u32;
            assert!(free_count >= slots_count, "{free_count} of {slots_count}");
            assert!(pushed > before);
            while let Some(words) = receiver.pop() {
                assert_eq!(words, slot(popped));
                popped += 1;
            }
            assert_eq!(popped, pushed);
            assert!(sender.free_count(1) > 0);
        }
    }
}

fn check_slots_are_whole_between_threads<const W: usize>() {
    let numbers = if cfg!(miri) { 200 } else { 20_000 };
    let (mut sender, mut receiver) = lane::<W>(20).unwrap();
    let other = std::thread::spawn(move || {
        for number in 0..numbers {
            while !sender.push(slot(number)) {
                std::thread::yield_now();
            }
        }
    });
    let mut number = 0;
    while number < numbers {
        match receiver.pop() {
            Some(words) => {
                assert_eq!(words, slot(number));
                number += 1;
            }
            None => std::thread::yield_now(),
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
    Pop(u8),
    PopAll(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u8..40).prop_map(Step::Push),
        (0u8..40).prop_map(Step::PushAll),
        (1u8..40).prop_map(Step::Pop),
        (0u8..40).prop_map(Step::PopAll),
    ];
    prop::collection::vec(step, 1..60)
}

/// Compares a lane with a queue: no slot is lost, duplicated or out of order, and each is
/// visible at once.
fn check_acts_as_queue(slots_count: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut sender, mut receiver) = lane::<2>(slots_count).unwrap();
    let (mut queue, mut number) = (VecDeque::new(), 0);
    for step in steps {
        match *step {
            Step::Push(count) => {
                for _ in 0..count {
                    let is_free = sender.free_count(1) > 0;
                    let pushed = sender.push(slot(number));
                    prop_assert_eq!(is_free, pushed);
                    if pushed {
                        queue.push_back(number);
                        number += 1;
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
                prop_assert!(pushed == slots.len() || sender.free_count(1) == 0);
                queue.extend(number..number + pushed as u64);
                number += pushed as u64;
            }
            Step::PopAll(count) => {
                let mut slots = vec![[0; 2]; count.into()];
                let popped = receiver.pop_all(&mut slots);
                for words in &slots[..popped] {
                    prop_assert_eq!(Some(*words), queue.pop_front().map(slot));
                }
                prop_assert!(popped == slots.len() || queue.is_empty());
            }
            Step::Pop(count) => {
                for _ in 0..count {
                    prop_assert_eq!(receiver.pop(), queue.pop_front().map(slot));
                }
            }
        }
    }
    while let Some(words) = receiver.pop() {
        prop_assert_eq!(Some(words), queue.pop_front().map(slot));
    }
    prop_assert!(queue.is_empty());
    Ok(())
}

#[test]
fn pushed_slots_are_popped_in_order_over_many_laps() {
    check_order_over_many_laps::<1>();
    check_order_over_many_laps::<2>();
    check_order_over_many_laps::<4>();
}

#[test]
fn slots_are_whole_and_in_order_between_threads() {
    check_slots_are_whole_between_threads::<1>();
    check_slots_are_whole_between_threads::<4>();
}

#[test]
fn slots_count_outside_its_range_is_refused() {
    for slots_count in [0, LANE_SLOTS_MAX + 1] {
        let refused = lane::<1>(slots_count).err();
        assert_eq!(refused, Some(LaneError::Slots { slots_count }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_calls_acts_as_a_queue(slots_count in 1u32..70, steps in steps()) {
        check_acts_as_queue(slots_count, &steps)?;
    }
}

#[test]
fn capacity_is_exact() {
    for slots_count in [1, 3, 8, 20, 1000] {
        let (mut sender, mut receiver) = lane::<1>(slots_count).unwrap();
        for lap in 0..3 {
            let pushed = (0..).take_while(|&number| sender.push([number])).count();
            assert_eq!(pushed as u32, slots_count, "lap {lap}");
            while receiver.pop().is_some() {}
        }
    }
}
