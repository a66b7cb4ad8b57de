//! Five-minute tour: a queue that refuses, many producers, a stream, a request and its reply.
//!
//! `cargo run --release -p handover-ring --example ring-tour`

use handover_ring::{PushError, mailbox, mpsc, spsc};
use std::thread;
use std::time::Instant;

const ITEMS_COUNT: u64 = 1_000_000;

fn main() {
    // 1. Bounded: a refused value is returned, and the caller decides.
    let (mut producer, mut consumer) = spsc::ring(2).expect("two slots are too few");
    producer.push("first").expect("the ring is full");
    producer.push("second").expect("the ring is full");
    if let Err(PushError::Full(refused)) = producer.push("third") {
        println!("refused as the ring is full, value returned: {refused}");
    }
    println!("popped: {:?}", consumer.pop());

    // 2. Closing drains: accepted values can still be popped.
    drop(producer);
    println!("closed: {}, finished: {}", consumer.is_closed(), consumer.is_finished());
    println!("popped: {:?}, finished: {}", consumer.pop(), consumer.is_finished());

    // 3. Many producers: the consumer sees each producer's values in order.
    let (producer, mut consumer) = mpsc::ring(64).expect("64 slots are too many");
    thread::scope(|scope| {
        for name in ['a', 'b', 'c'] {
            let producer = producer.clone();
            scope.spawn(move || {
                for number in 0..3 {
                    producer.push((name, number)).expect("the ring is full");
                }
            });
        }
    });
    println!("from three producers: {:?}", consumer.drain().collect::<Vec<_>>());

    // 4. A stream: one by one, a line at a time, and in batches. The lab measures this properly.
    let each = time_single_pushes(|producer, item| producer.push(item).is_ok());
    let later = time_single_pushes(|producer, item| producer.push_unpublished(item).is_ok());
    let batched = time_batches();
    println!("stream: {each:.1} ns an item, {later:.1} pushed for later, {batched:.1} in batches");

    // 5. A request and its reply, through one cache line.
    let (mut caller, mut server) = mailbox::pair::<u64, u64>();
    let other = thread::spawn(move || {
        while !server.is_finished() {
            match server.receive() {
                Some(request) => drop(server.reply(request * request)),
                None => thread::yield_now(),
            }
        }
    });
    caller.send(12).expect("an earlier request is unanswered");
    let reply = loop {
        match caller.receive().expect("the server was dropped") {
            Some(reply) => break reply,
            None => thread::yield_now(),
        }
    };
    println!("reply of the other thread: 12 squared is {reply}");
    drop(caller);
    other.join().expect("the server thread panicked");
}

/// Sends a million items to another thread with one push each. Returns the time per item in ns.
fn time_single_pushes(push: impl Fn(&mut spsc::Producer<u64>, u64) -> bool) -> f64 {
    let (mut producer, mut consumer) = spsc::ring(1024).expect("1024 slots are too many");
    let other = thread::spawn(move || {
        let mut sum = 0;
        while !consumer.is_finished() {
            match consumer.pop() {
                Some(item) => sum += item,
                None => thread::yield_now(),
            }
        }
        sum
    });
    let start = Instant::now();
    for item in 0..ITEMS_COUNT {
        while !push(&mut producer, item) {
            thread::yield_now();
        }
    }
    drop(producer); // publishes the remaining items, and closes
    assert_eq!(other.join().expect("the consumer thread panicked"), (0..ITEMS_COUNT).sum());
    start.elapsed().as_secs_f64() * 1e9 / ITEMS_COUNT as f64
}

/// Sends a million items to another thread in batches of 64 at both ends. Returns the time per item
/// in ns.
fn time_batches() -> f64 {
    let (mut producer, mut consumer) = spsc::ring(1024).expect("1024 slots are too many");
    let other = thread::spawn(move || {
        let mut sum = 0;
        while !consumer.is_finished() {
            if consumer.pop_batch(64, |item| sum += item) == 0 {
                thread::yield_now();
            }
        }
        sum
    });
    let start = Instant::now();
    for first in (0..ITEMS_COUNT).step_by(64) {
        let mut items = first..(first + 64).min(ITEMS_COUNT);
        while !items.is_empty() {
            if producer.push_batch(&mut items) == 0 {
                thread::yield_now();
            }
        }
    }
    drop(producer);
    assert_eq!(other.join().expect("the consumer thread panicked"), (0..ITEMS_COUNT).sum());
    start.elapsed().as_secs_f64() * 1e9 / ITEMS_COUNT as f64
}
