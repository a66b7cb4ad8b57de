//! Ring with many producers and many consumers.

use handover_ring::{CapacityError, PushError, SLOTS_COUNT_MAX, mpmc};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

#[test]
fn ring_holds_exactly_its_slots_over_many_laps() {
    for slots_count in [1, 2, 3, 5, 7, 8, 9, 100] {
        let (producer, consumer) = mpmc::ring(slots_count).unwrap();
        let mut next = 0;
        for lap in 0..10 {
            while producer.len() < slots_count as usize {
                producer.push(next).unwrap();
                next += 1;
            }
            assert_eq!(producer.push(u32::MAX), Err(PushError::Full(u32::MAX)), "{slots_count}");
            assert_eq!(
                (producer.slots_count(), consumer.len()),
                (slots_count as usize, producer.len())
            );
            // All but a few, so that the next lap begins in another row.
            for expected in next - slots_count..next - lap.min(slots_count - 1) {
                assert_eq!(consumer.pop(), Some(expected));
            }
        }
        assert!((0..slots_count).filter_map(|_| consumer.pop()).is_sorted());
        assert!(consumer.pop().is_none() && consumer.is_empty() && !consumer.is_finished());
    }
}

#[test]
fn invalid_capacities_are_refused() {
    let refused = mpmc::ring::<u8>(0).map(|_| ());
    assert_eq!(refused, Err(CapacityError::OutOfRange { slots_count: 0, max: SLOTS_COUNT_MAX }));
    assert!(mpmc::ring::<u8>(SLOTS_COUNT_MAX + 1).is_err());
}

#[test]
fn either_end_closes_and_pushed_values_remain() {
    for closes_producer in [false, true] {
        let (producer, consumer) = mpmc::ring(2).unwrap();
        producer.push("a").unwrap();
        if closes_producer {
            producer.close()
        } else {
            consumer.close()
        }
        assert_eq!(producer.push("b"), Err(PushError::Closed("b")));
        assert!(producer.is_closed() && consumer.is_closed() && !consumer.is_finished());
        assert_eq!((consumer.pop(), consumer.pop()), (Some("a"), None));
        assert!(consumer.is_finished());
    }
}

#[test]
fn dropping_the_last_clone_of_an_end_closes_the_ring() {
    let (producer, consumer) = mpmc::ring(2).unwrap();
    let other = producer.clone();
    drop(producer);
    other.push(1).unwrap();
    assert!(!consumer.is_closed());
    drop(other);
    assert!(consumer.is_closed() && !consumer.is_finished());
    assert_eq!(consumer.pop(), Some(1));

    let (producer, consumer) = mpmc::ring(2).unwrap();
    let value = Arc::new(());
    producer.push(Arc::clone(&value)).unwrap();
    let other = consumer.clone();
    drop(consumer);
    assert!(!producer.is_closed());
    drop(other);
    assert_eq!(Arc::strong_count(&value), 1, "dropped with the last consumer");
    assert!(matches!(producer.push(value), Err(PushError::Closed(_))));
}

#[test]
fn panicking_drop_does_not_prevent_other_drops() {
    struct Counted(Arc<AtomicUsize>, bool);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
            assert!(!self.1, "on purpose");
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let (producer, consumer) = mpmc::ring(4).unwrap();
    for number in 0..4 {
        assert!(producer.push(Counted(Arc::clone(&dropped), number == 1)).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(consumer))).is_err());
    assert_eq!(dropped.load(Relaxed), 4);
}

#[test]
fn handles_are_send_and_sync_if_values_are_send() {
    fn both<T: Send + Sync>() {}
    both::<mpmc::Producer<std::cell::Cell<u8>>>();
    both::<mpmc::Consumer<std::cell::Cell<u8>>>();
}

#[test]
fn debug_shows_length_and_closed() {
    let (producer, consumer) = mpmc::ring(3).unwrap();
    producer.push(1).unwrap();
    assert_eq!(format!("{producer:?}"), "mpmc::Producer(1 of 3 slots used, is_closed: false)");
    producer.close();
    assert_eq!(format!("{consumer:?}"), "mpmc::Consumer(1 of 3 slots used, is_closed: true)");
}

#[test]
fn across_threads_every_value_arrives_once_and_in_order_per_producer() {
    const THREADS_COUNT: usize = 3;
    let values_count: u64 = if cfg!(miri) { 50 } else { 2_000 };
    for slots_count in [1, 3, 64] {
        let (producer, consumer) = mpmc::ring(slots_count).unwrap();
        let popped = thread::scope(|scope| {
            let consumers = [(); THREADS_COUNT].map(|()| {
                let consumer = consumer.clone();
                scope.spawn(move || {
                    let mut popped: Vec<Box<(usize, u64)>> = Vec::new();
                    loop {
                        match consumer.pop() {
                            Some(value) => popped.push(value),
                            None if consumer.is_finished() => return popped,
                            None => thread::yield_now(),
                        }
                    }
                })
            });
            for number in 0..THREADS_COUNT {
                let producer = producer.clone();
                scope.spawn(move || {
                    for value in 0..values_count {
                        let mut value = Box::new((number, value));
                        while let Err(refused) = producer.push(value) {
                            value = refused.into_inner();
                            thread::yield_now();
                        }
                    }
                });
            }
            drop(producer);
            consumers.map(|it| it.join().unwrap())
        });
        for number in 0..THREADS_COUNT {
            let of = |popped: &[Box<(usize, u64)>]| -> Vec<u64> {
                popped.iter().filter(|it| it.0 == number).map(|it| it.1).collect()
            };
            assert!(popped.iter().all(|popped| of(popped).is_sorted()));
            let mut all: Vec<_> = popped.iter().flat_map(|popped| of(popped)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..values_count));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Pop,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![20 => Just(Step::Push), 18 => Just(Step::Pop), 1 => Just(Step::Close)];
    prop::collection::vec(step, 0..if cfg!(miri) { 40 } else { 300 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn mpmc_agrees_with_a_deque(slots_count in 1u32..20, steps in steps()) {
        let (producer, consumer) = mpmc::ring(slots_count).unwrap();
        let (mut deque, mut closed) = (VecDeque::new(), false);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push => {
                    let expected = if closed {
                        Err(PushError::Closed(number))
                    } else if deque.len() == slots_count as usize {
                        Err(PushError::Full(number))
                    } else {
                        deque.push_back(number);
                        Ok(())
                    };
                    prop_assert_eq!(producer.push(number), expected);
                }
                Step::Pop => prop_assert_eq!(consumer.pop(), deque.pop_front()),
                Step::Close => {
                    producer.close();
                    closed = true;
                }
            }
            prop_assert_eq!((producer.len(), consumer.is_empty()), (deque.len(), deque.is_empty()));
            prop_assert_eq!(consumer.is_finished(), closed && deque.is_empty());
        }
    }
}
