//! Contract of every ring in [`handover_ring::queue`].

use handover_ring::PushError;
use handover_ring::queue::{Mpmc, Mpsc, Pop, Push, Queue, Spsc};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Number of values that pass between threads, or as many as [`TIME_MAX`] allows.
const VALUES_COUNT: u64 = if cfg!(miri) { 100 } else { 100_000 };
const TIME_MAX: Duration = Duration::from_secs(1);

/// Value that records its drop, and panics in it if `panics` is set.
struct Counted {
    number: u64,
    dropped: Arc<Mutex<Vec<u64>>>,
    panics: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.lock().unwrap().push(self.number);
        assert!(!self.panics, "dropped number {}", self.number);
    }
}

#[derive(Default)]
struct Count(Arc<Mutex<Vec<u64>>>);

impl Count {
    fn value(&self, number: u64) -> Counted {
        Counted { number, dropped: Arc::clone(&self.0), panics: false }
    }
    fn panicking(&self, number: u64) -> Counted {
        Counted { number, dropped: Arc::clone(&self.0), panics: true }
    }
    fn dropped(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

fn full_ring_refuses_and_returns_the_next_value<Q: Queue>() {
    for slots_count in [1, 2, 3, 6, 7, 8, 14, 15, 64, 100] {
        let (mut producer, mut consumer) = Q::ring(slots_count).unwrap();
        for turn in 0..40 {
            for value in 0..slots_count {
                producer.push(turn * 1000 + value).unwrap();
            }
            assert_eq!(producer.push(7), Err(PushError::Full(7)), "{}", Q::NAME);
            assert_eq!(producer.len(), slots_count as usize);
            assert_eq!(consumer.len(), slots_count as usize);
            assert_eq!(consumer.pop(), Some(turn * 1000));
            producer.push(turn).unwrap();
            assert_eq!(producer.push(8), Err(PushError::Full(8)), "one slot was free");
            let rest = (1..slots_count).map(|value| turn * 1000 + value);
            assert!(consumer.drain().eq(rest.chain([turn])));
            assert!(consumer.is_empty() && producer.is_empty());
            assert_eq!(consumer.pop(), None);
        }
    }
}

fn batch_takes_at_most_the_vacant_slots_from_the_iterator<Q: Queue>() {
    for slots_count in [1, 5, 7, 8, 50, 200] {
        let (mut producer, mut consumer) = Q::ring(slots_count).unwrap();
        let mut numbers = 0..u32::MAX;
        let mut next = 0;
        for turn in 0..50 {
            let wanted = turn * 7 % (slots_count + 10);
            let mut some = numbers.clone().take(wanted as usize);
            let pushed = producer.push_batch(&mut some);
            assert_eq!(pushed as u32, wanted.min(slots_count));
            numbers.start += pushed as u32;
            let mut popped = Vec::new();
            assert_eq!(consumer.pop_batch(pushed / 2, |value| popped.push(value)), pushed / 2);
            assert_eq!(consumer.pop_batch(1000, |value| popped.push(value)), pushed - pushed / 2);
            assert!(popped.into_iter().eq(next..numbers.start), "{}", Q::NAME);
            next = numbers.start;
        }
    }
}

fn dropped_drain_keeps_unread_values<Q: Queue>() {
    let (mut producer, mut consumer) = Q::ring(100).unwrap();
    assert_eq!(producer.push_batch(&mut (0..100)), 100);
    assert!(consumer.drain().take(60).eq(0..60));
    assert_eq!(consumer.len(), 40);
    assert_eq!(producer.push_batch(&mut (100..200)), 60, "the slots were given back");
    let mut leaked = std::mem::ManuallyDrop::new(consumer.drain());
    assert_eq!(leaked.next(), Some(60));
    assert!(consumer.drain().eq(61..160));
}

fn closed_ring_refuses_pushes_and_can_be_drained<Q: Queue>() {
    for from_the_producer in [true, false] {
        let (mut producer, mut consumer) = Q::ring(4).unwrap();
        producer.push(1).unwrap();
        producer.push(2).unwrap();
        assert!(!producer.is_closed() && !consumer.is_closed() && !consumer.is_finished());
        if from_the_producer {
            producer.close();
        } else {
            consumer.close();
        }
        assert!(producer.is_closed() && consumer.is_closed());
        assert_eq!(producer.push(3), Err(PushError::Closed(3)));
        assert_eq!(producer.push_batch(&mut [3].into_iter()), 0);
        assert!(!consumer.is_finished(), "there is something to pop");
        assert_eq!(consumer.pop(), Some(1));
        drop(producer);
        assert_eq!(consumer.pop(), Some(2));
        assert_eq!(consumer.pop(), None);
        assert!(consumer.is_finished());
    }
}

fn closed_full_ring_reports_closed<Q: Queue>() {
    let (mut producer, mut consumer) = Q::ring(1).unwrap();
    producer.push(1).unwrap();
    consumer.close();
    assert_eq!(producer.push(2), Err(PushError::Closed(2)));
    assert_eq!(consumer.pop(), Some(1));
    assert!(consumer.is_finished());
}

fn dropping_the_producer_closes_the_ring<Q: Queue>() {
    let (mut producer, mut consumer) = Q::ring(4).unwrap();
    producer.push(1).unwrap();
    drop(producer);
    assert!(consumer.is_closed() && !consumer.is_finished());
    assert_eq!(consumer.pop(), Some(1));
    assert!(consumer.is_finished());
}

fn dropping_the_consumer_closes_the_ring_and_drops_its_values<Q: Queue>() {
    let count = Count::default();
    let (mut producer, mut consumer) = Q::ring(20).unwrap();
    for number in 0..10 {
        producer.push(count.value(number)).unwrap();
    }
    drop(consumer.pop());
    drop(consumer);
    assert!(count.dropped().into_iter().eq(0..10));
    let refused = producer.push(count.value(10)).unwrap_err();
    assert!(!refused.is_full());
    drop((refused, producer));
    assert!(count.dropped().into_iter().eq(0..11), "once each");
}

fn remaining_values_are_dropped_once_in_order<Q: Queue>() {
    for (pushed, popped) in [(0, 0), (1, 0), (9, 0), (9, 4), (20, 20), (20, 19)] {
        let count = Count::default();
        let (mut producer, mut consumer) = Q::ring(20).unwrap();
        for number in 0..pushed {
            producer.push(count.value(number)).unwrap();
        }
        for _ in 0..popped {
            drop(consumer.pop());
        }
        drop((producer, consumer));
        assert!(count.dropped().into_iter().eq(0..pushed), "{pushed} pushed, {popped} popped");
    }
}

fn panicking_drop_does_not_prevent_other_drops<Q: Queue>() {
    for producer_first in [true, false] {
        let count = Count::default();
        let (mut producer, consumer) = Q::ring(20).unwrap();
        for number in 0..10 {
            let value = if number == 3 { count.panicking(3) } else { count.value(number) };
            producer.push(value).unwrap();
        }
        let panicked = if producer_first {
            drop(producer);
            catch_unwind(AssertUnwindSafe(|| drop(consumer)))
        } else {
            let panicked = catch_unwind(AssertUnwindSafe(|| drop(consumer)));
            drop(producer);
            panicked
        };
        assert!(panicked.is_err());
        assert!(count.dropped().into_iter().eq(0..10), "once each");
    }
}

fn panicking_iterator_keeps_its_earlier_values<Q: Queue>() {
    struct Panics<'a>(u64, &'a Count);
    impl Iterator for Panics<'_> {
        type Item = Counted;
        fn next(&mut self) -> Option<Counted> {
            self.0 += 1;
            assert!(self.0 < 10, "enough");
            Some(self.1.value(self.0))
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (15, Some(15))
        }
    }
    impl ExactSizeIterator for Panics<'_> {}
    let count = Count::default();
    let (mut producer, mut consumer) = Q::ring(20).unwrap();
    let mut values = Panics(0, &count);
    let panicked = catch_unwind(AssertUnwindSafe(|| producer.push_batch(&mut values)));
    assert!(panicked.is_err());
    producer.push(count.value(10)).unwrap();
    assert!(consumer.drain().map(|value| value.number).eq(1..=10));
    drop((producer, consumer));
    assert!(count.dropped().into_iter().eq(1..=10), "once each");
}

/// Returns the values `next..end`, claims a length of its own, and panics before value `panics_at`.
struct Claims<'a> {
    next: u64,
    end: u64,
    length: usize,
    panics_at: u64,
    count: &'a Count,
}

impl Iterator for Claims<'_> {
    type Item = Counted;
    fn next(&mut self) -> Option<Counted> {
        if self.next == self.panics_at {
            resume_unwind(Box::new("panics without a message"));
        }
        let number = (self.next < self.end).then_some(self.next)?;
        self.next += 1;
        Some(self.count.value(number))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.length, Some(self.length))
    }
}

impl ExactSizeIterator for Claims<'_> {}

fn batch_with_a_wrong_size_hint_pushes_exactly_the_values<Q: Queue>() {
    const NEVER: u64 = u64::MAX;
    let lengths = [1, 2, 7, 8, 9, 40, usize::MAX / 2, usize::MAX - 1, usize::MAX];
    for (length, end, panics_at) in lengths.into_iter().flat_map(|length| {
        [(0, NEVER), (1, NEVER), (5, NEVER), (30, NEVER), (30, 0), (30, 1), (30, 5), (30, 8)]
            .map(|(end, panics_at)| (length, end, panics_at))
    }) {
        let case = format!("{} of length {length}, gives {end}, panics at {panics_at}", Q::NAME);
        let count = Count::default();
        let (mut producer, mut consumer) = Q::ring(8).unwrap();
        // Published values, in the middle of the ring and around its end.
        for number in [100, 101, 102] {
            producer.push(count.value(number)).unwrap();
        }
        drop(consumer.pop());
        let mut values = Claims { next: 0, end, length, panics_at, count: &count };
        let pushed = catch_unwind(AssertUnwindSafe(|| producer.push_batch(&mut values)));
        let given = values.next;
        assert_eq!(given, end.min(panics_at).min(6), "{case}");
        assert_eq!(pushed.ok(), (panics_at > 6).then_some(given as usize), "{case}");
        assert!(
            consumer.drain().map(|value| value.number).eq([101, 102].into_iter().chain(0..given)),
            "{case}"
        );
        // All slots are vacant again, and each can be filled once.
        for number in 200..208 {
            producer.push(count.value(number)).unwrap();
        }
        assert!(producer.push(count.value(208)).is_err(), "{case}");
        assert!(consumer.drain().map(|value| value.number).eq(200..208), "{case}");
        drop((producer, consumer));
        let mut dropped = count.dropped();
        dropped.sort_unstable();
        let all = (0..given).chain(100..103).chain(200..209);
        assert!(dropped.into_iter().eq(all), "each value once: {case}");
    }
}

fn batch_with_an_empty_size_hint_pushes_nothing<Q: Queue>() {
    let count = Count::default();
    let (mut producer, consumer) = Q::ring(8).unwrap();
    let mut values = Claims { next: 0, end: 5, length: 0, panics_at: 0, count: &count };
    assert_eq!(producer.push_batch(&mut values), 0);
    assert!(consumer.is_empty() && producer.is_empty());
}

fn batch_of_the_greatest_length_fills_the_vacant_slots<Q: Queue>() {
    let (mut producer, mut consumer) = Q::ring(8).unwrap();
    for turn in 0..20 {
        producer.push("first").unwrap();
        let pushed = producer.push_batch(&mut std::iter::repeat_n("more", usize::MAX));
        assert_eq!(pushed, 7, "turn {turn}");
        assert_eq!(consumer.pop(), Some("first"));
        assert!(consumer.drain().eq(["more"; 7]), "turn {turn}");
    }
}

/// A consumer that checks `is_empty` must find what blocks the producers; otherwise all wait for
/// each other.
fn ring_after_an_unused_batch_is_not_both_empty_and_full<Q: Queue>() {
    for panics_at in [0, u64::MAX] {
        let count = Count::default();
        let (mut producer, consumer) = Q::ring(8).unwrap();
        let mut values = Claims { next: 0, end: 0, length: 8, panics_at, count: &count };
        let _ = catch_unwind(AssertUnwindSafe(|| producer.push_batch(&mut values)));
        assert!(consumer.is_empty());
        assert_eq!(producer.len(), 0);
        producer.push(count.value(1)).expect("an empty ring has a slot");
        assert!(!consumer.is_empty());
    }
}

fn panicking_pop_closure_has_popped_its_values<Q: Queue>() {
    for panics_at in 0..20 {
        let count = Count::default();
        let (mut producer, mut consumer) = Q::ring(20).unwrap();
        for number in 0..20 {
            producer.push(count.value(number)).unwrap();
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            consumer.pop_batch(20, |value| assert_ne!(value.number, panics_at, "enough"));
        }));
        assert!(panicked.is_err());
        assert!(count.dropped().into_iter().eq(0..=panics_at));
        assert_eq!(producer.len() as u64, 19 - panics_at, "the slots were given back");
        assert!(consumer.drain().map(|value| value.number).eq(panics_at + 1..20));
    }
}

/// Pushes on one thread and pops on another, each in all ways in turn.
fn across_threads_every_value_arrives_once_and_in_order<Q: Queue>() {
    for slots_count in [1, 3, 7, 64, 1000] {
        let count = AtomicU64::new(0);
        let (mut producer, mut consumer) = Q::ring(slots_count).unwrap();
        let began = Instant::now();
        let mut next = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                count.store(push_in_all_ways(&mut producer, began), Relaxed);
                drop(producer);
            });
            let mut arrive = |value: Box<usize>| {
                assert_eq!(*value, next, "{} of {slots_count}", Q::NAME);
                next += 1;
            };
            while !consumer.is_finished() {
                let popped = match began.elapsed().as_nanos() % 3 {
                    0 => consumer.pop_batch(10, &mut arrive),
                    1 => consumer.drain().map(&mut arrive).count(),
                    _ => consumer.pop().map(&mut arrive).iter().count(),
                };
                if popped == 0 {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(next as u64, count.into_inner());
        assert!(next > 0);
    }
}

fn push_in_all_ways(producer: &mut impl Push<Box<usize>>, began: Instant) -> u64 {
    let mut next = 0;
    while next == 0 || next < VALUES_COUNT && began.elapsed() < TIME_MAX {
        let pushed = if next % 3 == 0 {
            let end = (next + 1 + next % 40).min(VALUES_COUNT) as usize;
            producer.push_batch(&mut (next as usize..end).map(Box::new))
        } else {
            usize::from(producer.push(Box::new(next as usize)).is_ok())
        };
        if pushed == 0 {
            thread::yield_now();
        }
        next += pushed as u64;
    }
    next
}

fn pop_or_yield(from: &mut impl Pop<Box<u64>>, popped: &mut Vec<u64>) {
    match from.pop() {
        Some(value) => popped.push(*value),
        None => thread::yield_now(),
    }
}

fn close_during_a_storm_loses_no_accepted_value<Q: Queue>() {
    for turn in 0..if cfg!(miri) { 3 } else { 100 } {
        let (mut producer, mut consumer) = Q::ring(8).unwrap();
        let mut popped = Vec::new();
        let accepted = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = Box::new(0);
                loop {
                    let number = *value;
                    match producer.push(value) {
                        Ok(()) => value = Box::new(number + 1),
                        Err(PushError::Closed(_)) => return accepted.store(number, Relaxed),
                        Err(PushError::Full(refused)) => {
                            value = refused;
                            thread::yield_now();
                        }
                    }
                }
            });
            while popped.len() < turn * 3 {
                pop_or_yield(&mut consumer, &mut popped);
            }
            consumer.close();
            while !consumer.is_finished() {
                pop_or_yield(&mut consumer, &mut popped);
            }
        });
        assert!(popped.into_iter().eq(0..accepted.into_inner()), "{}", Q::NAME);
    }
}

fn dropping_an_end_during_use_loses_no_value<Q: Queue>() {
    for number in 0..if cfg!(miri) { 10 } else { 1000 } {
        let count = Count::default();
        let (mut producer, consumer) = Q::ring(4).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| drop(producer.push(count.value(number))));
            drop(consumer);
        });
        drop(producer);
        assert_eq!(count.dropped(), [number], "once");
    }
}

macro_rules! contract {
    (@test $queue:ty: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            super::$name::<$queue>();
        }
    )*};
    ($($module:ident: $queue:ident $($more:ident)*;)*) => {$(
        mod $module {
            use super::$queue;
            contract! { @test $queue:
                full_ring_refuses_and_returns_the_next_value
                batch_takes_at_most_the_vacant_slots_from_the_iterator
                dropped_drain_keeps_unread_values
                closed_ring_refuses_pushes_and_can_be_drained
                closed_full_ring_reports_closed
                dropping_the_producer_closes_the_ring
                dropping_the_consumer_closes_the_ring_and_drops_its_values
                remaining_values_are_dropped_once_in_order
                panicking_drop_does_not_prevent_other_drops
                panicking_iterator_keeps_its_earlier_values
                batch_with_a_wrong_size_hint_pushes_exactly_the_values
                batch_with_an_empty_size_hint_pushes_nothing
                batch_of_the_greatest_length_fills_the_vacant_slots
                ring_after_an_unused_batch_is_not_both_empty_and_full
                across_threads_every_value_arrives_once_and_in_order
                close_during_a_storm_loses_no_accepted_value
                dropping_an_end_during_use_loses_no_value
                $($more)*
            }
        }
    )*};
}

contract! {
    spsc: Spsc panicking_pop_closure_has_popped_its_values;
    mpsc: Mpsc panicking_pop_closure_has_popped_its_values;
    // mpmc.rs has its promise for a closure that panics.
    mpmc: Mpmc;
}
