//! Ring with many producers and many consumers: its promises beside those in `contract.rs`.

use handover_ring::{PushError, mpmc};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

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

/// Claims to have five values, returns fewer, and pushes through `beside` before each.
struct Liar {
    left: u32,
    beside: mpmc::Producer<u32>,
}

impl Iterator for Liar {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        self.beside.push(100 + self.left).unwrap();
        self.left = self.left.checked_sub(1)?;
        Some(self.left)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (5, Some(5))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn unused_reserved_slots_are_skipped_and_filled_in_the_next_lap() {
    let (producer, consumer) = mpmc::ring(8).unwrap();
    let liar = |left| producer.push_batch(&mut Liar { left, beside: producer.clone() });
    assert_eq!(liar(2), 2);
    assert_eq!(consumer.len(), 8, "three slots wait for a consumer to pass them");
    assert_eq!(producer.push(9), Err(PushError::Full(9)));
    assert!(consumer.drain().eq([1, 0, 102, 101, 100]));
    assert_eq!(liar(0), 0);
    assert_eq!((consumer.pop_batch(9, |value| assert_eq!(value, 100)), consumer.len()), (1, 0));
    assert_eq!(producer.push_batch(&mut (0..9)), 8);
    assert_eq!(producer.push(9), Err(PushError::Full(9)));
    assert!(consumer.drain().eq(0..8));
}

#[test]
fn ring_closed_during_a_batch_is_finished_once_its_unused_slots_are_passed() {
    struct Closes<'a>(&'a mpmc::Producer<u32>);
    impl Iterator for Closes<'_> {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            self.0.close();
            None
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (8, Some(8))
        }
    }
    impl ExactSizeIterator for Closes<'_> {}
    let (producer, consumer) = mpmc::ring(8).unwrap();
    assert_eq!(producer.push_batch(&mut Closes(&producer)), 0);
    assert!(!consumer.is_finished(), "a tail with the closed flag moved back");
    assert_eq!(consumer.pop(), None);
    assert!(consumer.is_finished() && consumer.is_empty());
}

#[test]
fn panicking_pop_closure_drops_the_values_reserved_with_its_own() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (producer, consumer) = mpmc::ring(100).unwrap();
    let values: Vec<_> = (0..100).map(|_| Counted(Arc::clone(&dropped))).collect();
    assert_eq!(producer.push_batch(&mut values.into_iter()), 100);
    let mut calls_count = 0;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        consumer.pop_batch(100, |_| {
            calls_count += 1;
            assert_ne!(calls_count, 35, "enough");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!((dropped.load(Relaxed), consumer.len()), (64, 36));
    assert!(consumer.drain().count() == 36 && dropped.load(Relaxed) == 100);
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
                    while !consumer.is_finished() {
                        let count = consumer.pop_batch(popped.len() % 5, |it| popped.push(it));
                        match consumer.pop() {
                            Some(value) => popped.push(value),
                            None if count == 0 => thread::yield_now(),
                            None => {}
                        }
                    }
                    popped
                })
            });
            for number in 0..THREADS_COUNT {
                let producer = producer.clone();
                scope.spawn(move || {
                    let mut values = 0..values_count as usize;
                    while let Some(value) = values.next() {
                        let mut value = Box::new((number, value as u64));
                        while let Err(refused) = producer.push(value) {
                            value = refused.into_inner();
                            thread::yield_now();
                        }
                        let batch = values.clone().take(number * 2);
                        let mut batch = batch.map(|value| Box::new((number, value as u64)));
                        values.start += producer.push_batch(&mut batch);
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
