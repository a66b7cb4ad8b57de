//! A bounded channel between tasks under tokio: senders wait while the ring is full, the receiver
//! while it is empty.
//!
//! ```text
//! cargo run -p handover-ring --features async --example async-channel
//! ```

use handover_ring::channel;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

const SENDERS_COUNT: u64 = 4;
const VALUES_COUNT: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let (sender, mut receiver) = channel::mpsc(16)?;
    for _ in 0..SENDERS_COUNT {
        let mut sender = sender.clone();
        runtime.spawn(async move {
            for value in 0..VALUES_COUNT {
                if sender.send(value).await.is_err() {
                    return; // the receiver was dropped
                }
            }
        });
    }
    drop(sender); // the channel closes when the last task drops its sender
    let (count, timeouts) = runtime.block_on(async move {
        let (mut count, mut timeouts) = (0_u64, 0_u64);
        loop {
            // A wait that is cancelled takes no value.
            match timeout(Duration::from_millis(1), receiver.receive()).await {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, timeouts),
                Err(_) => timeouts += 1,
            }
        }
    });
    assert_eq!(count, SENDERS_COUNT * VALUES_COUNT);
    println!("{count} values from {SENDERS_COUNT} tasks, {timeouts} waits of more than 1 ms");
    Ok(())
}
