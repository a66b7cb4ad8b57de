//! Random sequences of calls, compared with a `VecDeque`.

use handover_ring::queue::{Mpmc, Mpsc, Pop, Push, Queue, Spsc};
use handover_ring::{PushError, spsc};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    PushBatch(usize),
    Pop,
    PopBatch(usize),
    Drain(usize),
    CloseByProducer,
    CloseByConsumer,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => Just(Step::Push),
        6 => (0usize..150).prop_map(Step::PushBatch),
        16 => Just(Step::Pop),
        5 => (0usize..150).prop_map(Step::PopBatch),
        3 => (0usize..150).prop_map(Step::Drain),
        1 => prop_oneof![Just(Step::CloseByProducer), Just(Step::CloseByConsumer)],
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 40 } else { 300 })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..Default::default()
    }
}

fn agrees_with_a_deque<Q: Queue>(slots_count: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut producer, mut consumer) = Q::ring(slots_count).unwrap();
    let mut deque = VecDeque::new();
    let mut next = 0;
    let mut closed = false;
    for step in steps {
        let vacant = if closed { 0 } else { slots_count as usize - deque.len() };
        match *step {
            Step::Push => {
                let pushed = producer.push(next.to_string());
                if vacant > 0 {
                    prop_assert!(pushed.is_ok());
                    deque.push_back(next.to_string());
                } else if closed {
                    prop_assert_eq!(pushed, Err(PushError::Closed(next.to_string())));
                } else {
                    prop_assert_eq!(pushed, Err(PushError::Full(next.to_string())));
                }
                next += 1;
            }
            Step::PushBatch(count) => {
                let values: Vec<String> = (next..next + count).map(|it| it.to_string()).collect();
                let mut iterator = values.clone().into_iter();
                let pushed = producer.push_batch(&mut iterator);
                prop_assert_eq!(pushed, count.min(vacant));
                prop_assert_eq!(iterator.as_slice(), &values[pushed..]);
                deque.extend(values.into_iter().take(pushed));
                next += count;
            }
            Step::Pop => prop_assert_eq!(consumer.pop(), deque.pop_front()),
            Step::PopBatch(count) => {
                let mut popped = Vec::new();
                let popped_count = consumer.pop_batch(count, |value| popped.push(value));
                prop_assert_eq!(popped_count, popped.len());
                let expected: Vec<_> = deque.drain(..count.min(deque.len())).collect();
                prop_assert_eq!(popped, expected);
            }
            Step::Drain(count) => {
                let popped: Vec<_> = consumer.drain().take(count).collect();
                let expected: Vec<_> = deque.drain(..count.min(deque.len())).collect();
                prop_assert_eq!(popped, expected);
            }
            Step::CloseByProducer => {
                producer.close();
                closed = true;
            }
            Step::CloseByConsumer => {
                consumer.close();
                closed = true;
            }
        }
        prop_assert_eq!(producer.len(), deque.len());
        prop_assert_eq!(consumer.len(), deque.len());
        prop_assert_eq!(consumer.is_empty(), deque.is_empty());
        prop_assert_eq!(producer.is_full(), deque.len() == slots_count as usize);
        prop_assert_eq!(producer.is_closed(), closed);
    }
    drop(producer);
    prop_assert_eq!(consumer.drain().collect::<VecDeque<_>>(), deque);
    prop_assert!(consumer.is_finished());
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn spsc_agrees_with_a_deque(slots_count in 1u32..200, steps in steps()) {
        agrees_with_a_deque::<Spsc>(slots_count, &steps)?;
    }

    #[test]
    fn mpsc_agrees_with_a_deque(slots_count in 1u32..200, steps in steps()) {
        agrees_with_a_deque::<Mpsc>(slots_count, &steps)?;
    }

    #[test]
    fn mpmc_agrees_with_a_deque(slots_count in 1u32..200, steps in steps()) {
        agrees_with_a_deque::<Mpmc>(slots_count, &steps)?;
    }

    /// The published values are a prefix of the pushed ones, not far behind, and all of them after
    /// a flush.
    #[test]
    fn unpublished_values_arrive_late_but_in_order(
        slots_count in 1u32..300,
        steps in prop::collection::vec(0u8..20, 0..if cfg!(miri) { 60 } else { 600 }),
    ) {
        let (mut producer, mut consumer) = spsc::ring::<u64>(slots_count).unwrap();
        let (mut pushed, mut popped) = (0u64, 0u64);
        for step in steps {
            match step {
                0 => {
                    producer.flush();
                    prop_assert_eq!(consumer.len() as u64, pushed - popped);
                }
                1 => {
                    let count = producer.push_batch(&mut (pushed..pushed + 30)) as u64;
                    pushed += count;
                    prop_assert_eq!(consumer.len() as u64, pushed - popped);
                }
                2 => pushed += u64::from(producer.push(pushed).is_ok()),
                3 | 4 => {
                    let batch: Vec<u64> = consumer.drain().take(20).collect();
                    let next = popped + batch.len() as u64;
                    prop_assert!(batch.into_iter().eq(popped..next));
                    popped = next;
                }
                5..8 => {
                    if let Some(value) = consumer.pop() {
                        prop_assert_eq!(value, popped);
                        popped += 1;
                    }
                }
                _ => pushed += u64::from(producer.push_unpublished(pushed).is_ok()),
            }
            prop_assert_eq!(producer.len() as u64, pushed - popped);
            let unpublished = producer.len() - consumer.len();
            prop_assert!(unpublished <= spsc::Producer::<u64>::UNPUBLISHED_MAX);
        }
        drop(producer);
        prop_assert!(consumer.drain().eq(popped..pushed));
    }
}
