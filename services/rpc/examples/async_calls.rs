//! Tasks of an async runtime, here tokio's, that call procedures:
//! `cargo run -p handover-rpc --example rpc-async-calls`.
//!
//! The endpoint runs in a thread of its own. A task starts a call, which does not wait, and awaits
//! the result.

use handover_rpc::{CallError, Caller, Config, Endpoint, Method, Peer};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

const DOUBLE: Method = Method::new("double");
const NAP: Method = Method::new("nap");

/// Calls a procedure, and calls it again with its result.
async fn quadruple(caller: Caller, peer: Peer, number: u64) -> Result<u64, CallError> {
    let double: u64 = caller.start(peer, DOUBLE, &number)?.await?;
    caller.start(peer, DOUBLE, &double)?.await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = Endpoint::new(Config::default())?;
    server.register("double", 0, |_, number: u64| Ok(2 * number))?;
    server.start_pool()?;
    server.register_pooled("nap", 0, |ms: u64| {
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    })?;
    let address = server.listen(&"sm://".parse()?)?;
    let server = server.start_progress()?;

    let mut client = Endpoint::new(Config::default())?;
    let peer = client.connect(&address)?;
    let client = client.start_progress()?;
    let caller = client.caller();

    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        // Many tasks call through one endpoint at the same time.
        let tasks: Vec<_> = (0..100u64)
            .map(|number| tokio::spawn(quadruple(caller.clone(), peer, number)))
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await??;
        }
        println!("the sum of four times 0 to 99 is {sum}");

        // The runtime's timer ends the wait; start_within() would end the call too.
        let nap = caller.start::<_, ()>(peer, NAP, &50u64)?;
        let is_late = timeout(Duration::from_millis(5), nap).await.is_err();
        println!("a nap of 50 ms takes more than 5 ms: {is_late}");
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    drop((client, server));
    Ok(())
}
