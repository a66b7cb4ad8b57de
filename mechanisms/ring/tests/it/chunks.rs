//! Peeking, and slices of values.

use handover_base::sync::auto_traits;
use handover_ring::{ChunkError, mpsc, spsc};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

#[test]
fn peek_shows_the_oldest_value_and_pops_nothing() {
    let (mut producer, mut consumer) = spsc::ring(2).unwrap();
    assert_eq!(consumer.peek(), None);
    producer.push(Box::new(1)).unwrap();
    producer.push(Box::new(2)).unwrap();
    assert_eq!(consumer.peek().map(|value| **value), Some(1));
    assert!(producer.is_full());
    assert_eq!(consumer.pop(), Some(Box::new(1)));
    assert_eq!(consumer.peek().map(|value| **value), Some(2));

    let (producer, mut consumer) = mpsc::ring(2).unwrap();
    assert_eq!(consumer.peek(), None);
    producer.push(Box::new(1)).unwrap();
    assert_eq!(consumer.peek().map(|value| **value), Some(1));
    assert_eq!(consumer.len(), 1);
    assert_eq!(consumer.pop(), Some(Box::new(1)));
    assert_eq!(consumer.peek(), None);
}

/// Returns one value, pushes another meanwhile, and claims to have a third.
struct Short<'a>(&'a mpsc::Producer<u32>, u32);

impl Iterator for Short<'_> {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        self.1 += 1;
        if self.1 == 1 {
            return Some(1);
        }
        self.0.push(2).unwrap();
        None
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (2, Some(2))
    }
}

impl ExactSizeIterator for Short<'_> {}

#[test]
fn peek_passes_slots_that_a_batch_left_empty() {
    let (producer, mut consumer) = mpsc::ring(4).unwrap();
    assert_eq!(producer.push_batch(&mut Short(&producer, 0)), 1);
    assert_eq!(consumer.peek(), Some(&1));
    assert_eq!(consumer.pop(), Some(1));
    assert_eq!(consumer.peek(), Some(&2), "did not skip the empty slot");
    assert_eq!(consumer.pop(), Some(2));
    assert_eq!(producer.push_batch(&mut (3..7)), 4, "the skipped slot was not vacated");
}

#[test]
fn chunk_is_refused_with_the_number_available_or_as_closed() {
    let (mut producer, mut consumer) = spsc::ring(3).unwrap();
    assert_eq!(producer.write_chunk(4).unwrap_err(), ChunkError::TooFew { available: 3 });
    assert_eq!(consumer.read_chunk(1).unwrap_err(), ChunkError::TooFew { available: 0 });
    producer.write_chunk(2).unwrap().commit_all();
    assert_eq!(producer.write_chunk(2).unwrap_err(), ChunkError::TooFew { available: 1 });
    assert_eq!(consumer.read_chunk(3).unwrap_err(), ChunkError::TooFew { available: 2 });
    producer.push(7).unwrap();
    drop(producer);
    assert_eq!(consumer.read_chunk(4).unwrap_err(), ChunkError::Closed);
    assert_eq!(consumer.read_chunk(3).unwrap().as_slices().0, [0, 0, 7], "values outlive the end");

    let (mut producer, mut consumer) = spsc::ring::<u8>(3).unwrap();
    consumer.close();
    assert_eq!(producer.write_chunk(1).unwrap_err(), ChunkError::Closed);
    assert_eq!(producer.push_slice(&[1]), 0);
    assert!(consumer.is_finished(), "the refused chunk was the producer's last");
}

#[test]
fn chunk_that_is_dropped_changes_nothing() {
    let (mut producer, mut consumer) = spsc::ring(2).unwrap();
    let mut chunk = producer.write_chunk(2).unwrap();
    chunk.as_mut_slices().0.fill(9);
    drop(chunk);
    assert!(consumer.is_empty());
    assert_eq!(producer.push_slice(&[1, 2]), 2);
    drop(consumer.read_chunk(2).unwrap());
    assert_eq!(consumer.len(), 2);
    consumer.read_chunk(2).unwrap().commit(1);
    assert_eq!((consumer.pop(), consumer.pop()), (Some(2), None));
}

#[test]
fn committed_values_are_dropped_once_and_can_be_changed_in_place() {
    let counted = Arc::new(());
    let (mut producer, mut consumer) = spsc::ring(4).unwrap();
    for _ in 0..6 {
        producer.push(Some(Arc::clone(&counted))).unwrap();
        producer.push(Some(Arc::clone(&counted))).unwrap();
        let mut chunk = consumer.read_chunk(2).unwrap();
        chunk.as_mut_slices().0[0] = None;
        assert_eq!(Arc::strong_count(&counted), 2);
        chunk.commit(1);
        assert_eq!(Arc::strong_count(&counted), 2, "commit dropped a value that it did not pop");
        chunk_of_one(&mut consumer);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

fn chunk_of_one<T>(consumer: &mut spsc::Consumer<T>) {
    let chunk = consumer.read_chunk(1).unwrap();
    assert_eq!(chunk.len(), 1);
    chunk.commit_all();
}

#[test]
#[should_panic = "cannot commit 3 values of a chunk of 2"]
fn more_values_than_a_chunk_has_cannot_be_committed() {
    let (mut producer, _consumer) = spsc::ring::<u8>(4).unwrap();
    producer.write_chunk(2).unwrap().commit(3);
}

#[test]
fn chunks_and_slices_of_any_length_pass_like_single_values() {
    // 5 of 8 slots, so that pieces begin and end anywhere.
    let (mut producer, mut consumer) = spsc::ring(5).unwrap();
    let mut expected = VecDeque::new();
    let (mut next, mut random) = (0_u64, 1_u64);
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (kind, len) = ((random >> 40) % 5, (random >> 50) as usize % 7);
        let vacant = 5 - expected.len();
        match kind {
            0 => {
                let values: Vec<u64> = (next..).take(len).collect();
                let pushed = producer.push_slice(&values);
                assert_eq!(pushed, len.min(vacant));
                expected.extend(&values[..pushed]);
                next += pushed as u64;
            }
            1 => match producer.write_chunk(len) {
                Ok(mut chunk) => {
                    assert_eq!(chunk.len(), len);
                    let (first, second) = chunk.as_mut_slices();
                    for value in first.iter_mut().chain(second) {
                        *value = next;
                        expected.push_back(next);
                        next += 1;
                    }
                    chunk.commit_all();
                }
                Err(refused) => {
                    assert!(len > vacant);
                    assert_eq!(refused, ChunkError::TooFew { available: vacant });
                }
            },
            2 => {
                let mut values = vec![u64::MAX; len];
                let popped = consumer.pop_slice(&mut values);
                assert_eq!(popped, len.min(expected.len()));
                assert!(values[..popped].iter().copied().eq(expected.drain(..popped)));
                assert!(values[popped..].iter().all(|value| *value == u64::MAX));
            }
            3 => match consumer.read_chunk(len) {
                Ok(chunk) => {
                    let (first, second) = chunk.as_slices();
                    assert!(first.iter().chain(second).copied().eq(expected.drain(..len)));
                    chunk.commit_all();
                }
                Err(refused) => {
                    assert!(len > expected.len());
                    assert_eq!(refused, ChunkError::TooFew { available: expected.len() });
                }
            },
            _ => assert_eq!(consumer.pop(), expected.pop_front()),
        }
    }
}

#[test]
fn slices_stream_between_two_threads() {
    let (mut producer, mut consumer) = spsc::ring(7).unwrap();
    let count = if cfg!(miri) { 100 } else { 2_000_u64 };
    let sender = std::thread::spawn(move || {
        let values: Vec<u64> = (0..count).collect();
        let mut sent = 0;
        while sent < values.len() {
            sent += producer.push_slice(&values[sent..values.len().min(sent + 5)]);
            std::thread::yield_now();
        }
    });
    let (mut next, mut values) = (0, [0; 4]);
    while next < count {
        let popped = consumer.pop_slice(&mut values);
        for value in &values[..popped] {
            assert_eq!(*value, next);
            next += 1;
        }
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

#[test]
fn chunks_are_sync_only_if_their_values_are() {
    assert_eq!(auto_traits!(spsc::ReadChunk<'static, u8>), "Send + Sync");
    assert_eq!(auto_traits!(spsc::ReadChunk<'static, Cell<u8>>), "Send");
    assert_eq!(auto_traits!(spsc::WriteChunk<'static, u8>), "Send + Sync");
    assert_eq!(auto_traits!(spsc::WriteChunk<'static, &'static Cell<u8>>), "neither");
}
