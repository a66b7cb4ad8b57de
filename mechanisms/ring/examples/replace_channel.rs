//! A stream of numbers to another thread: first through a channel of the standard library, then
//! through a ring.
//!
//! `cargo run --release -p handover-ring --example replace-channel`

// ANCHOR: main
use handover_ring::spsc;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

const ITEMS_COUNT: u64 = 1_000_000;
const SLOTS_COUNT: u32 = 1024;

fn main() {
    let expected = (0..ITEMS_COUNT).sum();
    for (name, stream) in [("channel", through_channel as fn() -> u64), ("ring", through_ring)] {
        let start = Instant::now();
        assert_eq!(stream(), expected);
        let each_ns = start.elapsed().as_nanos() as f64 / ITEMS_COUNT as f64;
        println!("{name:8} {each_ns:6.1} ns an item");
    }
}
// ANCHOR_END: main

// ANCHOR: before
fn through_channel() -> u64 {
    let (sender, receiver) = mpsc::sync_channel(SLOTS_COUNT as usize);
    let consumer = thread::spawn(move || receiver.iter().sum());
    for item in 0..ITEMS_COUNT {
        sender.send(item).expect("the consumer has ended"); // sleeps while the channel is full
    }
    drop(sender); // ends the consumer's loop
    consumer.join().expect("the consumer panicked")
}
// ANCHOR_END: before

// ANCHOR: after
fn through_ring() -> u64 {
    let (mut producer, mut consumer) = spsc::ring(SLOTS_COUNT).expect("1024 slots are too many");
    let consumer = thread::spawn(move || {
        let mut sum = 0;
        while !consumer.is_finished() {
            match consumer.pop() {
                Some(item) => sum += item,
                None => thread::yield_now(), // empty: the consumer decides how to wait
            }
        }
        sum
    });
    for item in 0..ITEMS_COUNT {
        while producer.push(item).is_err() {
            assert!(!producer.is_closed(), "the consumer has ended");
            thread::yield_now(); // full: the producer decides how to wait
        }
    }
    drop(producer); // ends the consumer's loop
    consumer.join().expect("the consumer panicked")
}
// ANCHOR_END: after
