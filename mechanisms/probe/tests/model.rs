//! The lane's protocol under loom: `RUSTFLAGS="--cfg handover_loom" cargo test --profile loom
//! --test model`.
//!
//! Blocks have six words here, two of them for events, so that a few events are enough to start,
//! fill and reuse a block.
//!
//! # Which calls are mixed
//! In each row, every call of one column meets every call of the other at every point that three
//! preemptions allow. Each lane has two blocks, and loses events for which there is no room.
//!
//! | model | writer | another thread |
//! |---|---|---|
//! | `events_arrive_*` | `write_1` three times, each of which fills a block | drainer: `next`, `release`, twice |
//! | `a_block_that_is_taken_*` | `write` three times, two of which fill a block | drainer: `rest`, `pass`, `release`, twice |
//! | `a_lane_that_is_closed_*` | `write` three times | `close` |
//! | `mixed_*` | `write`, `write_1`, drop | drainer: `next`, `release`, `close`, `next` to the end |
//!
//! Not modelled: a writer that waits for room, which sleeps and retries; `give_up`; signal handlers
//! that write while they interrupt the writer, all on one thread.
#![cfg(handover_loom)]

use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, thread};
use handover_probe::lane::{
    BLOCK_WORDS, CODE_BITS, DrainedEvent, Drainer, Lane, LaneWords, WhenFull, WriteResult, Writer,
};

/// Words that loom checks.
struct Modelled(Vec<AtomicU64>);

impl Modelled {
    fn blocks(count: u64) -> Self {
        Self((0..count * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        &self.0[position as usize % self.0.len()]
    }
}

impl LaneWords for Modelled {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }
    fn load(&self, position: u64) -> u64 {
        self.at(position).load(Ordering::Acquire)
    }
    fn store(&self, position: u64, word: u64) {
        self.at(position).store(word, Ordering::Release);
    }
    fn clear(&self, position: u64, count: u64) {
        (position..position + count).for_each(|at| self.at(at).store(0, Ordering::Relaxed));
    }
    fn store_counts(&self, _: u64, _: u64) {}
}

fn lane(blocks: u64) -> Arc<Lane<Modelled>> {
    Arc::new(Lane::new(Modelled::blocks(blocks), WhenFull::Lose))
}

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn events_arrive_complete_and_in_order_while_blocks_are_reused() {
    model(|| {
        let lane = lane(2);
        let writer = Writer::new(Arc::clone(&lane));
        // A block has two words for events: one event with a value fills it.
        let thread = thread::spawn(move || {
            (1..=3u64)
                .filter(|value| writer.write_1(4, *value, 10 * value) == WriteResult::Recorded)
                .count()
        });
        let mut drainer = Drainer::default();
        let mut seen: Vec<DrainedEvent> = Vec::new();
        for _ in 0..2 {
            seen.extend(drainer.next_event(&lane));
            drainer.release(&lane);
            thread::yield_now();
        }
        let recorded = thread.join().unwrap();
        seen.extend(std::iter::from_fn(|| drainer.next_event(&lane)));
        assert_eq!(seen.len(), recorded);
        assert!(seen.iter().all(|event| event.values[0] == 10 * event.ticks));
        assert!(seen.is_sorted_by_key(|event| event.ticks));
        let (counted, lost) = lane.recorded_and_lost_counts();
        assert_eq!((counted, counted + lost), (recorded as u64, 3));
    });
}

#[test]
fn copied_block_is_complete() {
    model(|| {
        let lane = lane(2);
        let writer = Writer::new(Arc::clone(&lane));
        let thread = thread::spawn(move || {
            for ticks in 1..=3u64 {
                // Two events fill a block; the third starts another.
                let _ = writer.write(4, ticks);
            }
        });
        let mut drainer = Drainer::default();
        let mut to = [0; BLOCK_WORDS as usize];
        for _ in 0..2 {
            if let Some((base, words)) = drainer.copy_block_rest(&lane, &mut to) {
                assert_eq!((base, words), (1, &[4, 1 << CODE_BITS | 4][..]));
                drainer.skip_block();
                drainer.release(&lane);
            }
            thread::yield_now();
        }
        thread.join().unwrap();
    });
}

#[test]
fn writer_of_a_closed_lane_is_refused_at_its_next_event() {
    model(|| {
        let lane = lane(2);
        let closer = Arc::clone(&lane);
        let writer = Writer::new(Arc::clone(&lane));
        let thread = thread::spawn(move || closer.close());
        let first = writer.write(4, 1);
        let second = writer.write(4, 2);
        let third = writer.write(4, 3);
        assert!(
            first != WriteResult::Lost && second != WriteResult::Lost && third != WriteResult::Lost
        );
        assert!(first != WriteResult::Closed || second == WriteResult::Closed);
        assert!(second != WriteResult::Closed || third == WriteResult::Closed);
        thread.join().unwrap();
        assert_eq!(writer.write(4, 4), WriteResult::Closed);
        let written =
            [first, second, third].iter().filter(|it| **it == WriteResult::Recorded).count();
        drop(writer);
        assert_eq!(lane.recorded_and_lost_counts(), (written as u64, 0));
    });
}

#[test]
fn mixed_calls_yield_each_recorded_event_once_in_order() {
    model(|| {
        let lane = lane(2);
        let writer = Writer::new(Arc::clone(&lane));
        let thread = thread::spawn(move || {
            let write = |ticks| match ticks % 2 {
                0 => writer.write_1(4, ticks, 10 * ticks),
                _ => writer.write(4, ticks),
            };
            // The writer stops at a closed lane.
            let wrote = (1..=4u64).map(write).take_while(|it| *it != WriteResult::Closed);
            wrote.filter(|it| *it == WriteResult::Recorded).count()
        });
        let mut drainer = Drainer::default();
        let mut seen: Vec<DrainedEvent> = drainer.next_event(&lane).into_iter().collect();
        drainer.release(&lane);
        lane.close();
        seen.extend(drainer.next_event(&lane));
        drainer.release(&lane);
        let recorded = thread.join().unwrap();
        seen.extend(std::iter::from_fn(|| drainer.next_event(&lane)));
        assert_eq!(seen.len(), recorded);
        assert!(seen.windows(2).all(|pair| pair[0].ticks < pair[1].ticks));
        let value = |event: &DrainedEvent| if event.ticks % 2 == 0 { 10 * event.ticks } else { 0 };
        assert!(seen.iter().all(|event| event.values == [value(event), 0]));
        assert_eq!(lane.recorded_and_lost_counts().0, recorded as u64);
    });
}
