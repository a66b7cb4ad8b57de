//! A machine that counts the requests of another thread, prints the count at each tick, and stops
//! when it is asked to.
//!
//! `cargo run --release -p handover-event --example event-counter`

use handover_event::{Config, Context, Handler, Machine};
use std::thread;
use std::time::Duration;

enum Message {
    Request { bytes: u64 },
    Tick,
    Quit,
}

#[derive(Default)]
struct Counter {
    requests_count: u64,
    bytes_sum: u64,
}

impl Handler for Counter {
    type Message = Message;

    fn started(&mut self, cx: &mut Context<'_, Message>) {
        cx.every(Duration::from_millis(20), || Message::Tick).expect("cannot start a timer");
    }

    fn handle(&mut self, message: Message, cx: &mut Context<'_, Message>) {
        match message {
            Message::Request { bytes } => {
                self.requests_count += 1;
                self.bytes_sum += bytes;
            }
            Message::Tick => println!("{} requests so far", self.requests_count),
            Message::Quit => cx.stop(),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::new(Counter::default(), Config::default())?;
    let address = machine.address().clone(); // for any number of threads
    let running = machine.spawn(thread::Builder::new().name("counter".into()))?;
    for _ in 0..100 {
        address.send(Message::Request { bytes: 64 })?; // wakes the machine if it sleeps
        thread::sleep(Duration::from_millis(1));
    }
    address.send(Message::Quit)?;
    let (machine, ended) = running.join();
    ended?;
    let counter = machine.handler();
    println!("{} requests of {} bytes in all", counter.requests_count, counter.bytes_sum);
    Ok(())
}
