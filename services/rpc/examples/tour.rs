//! Five-minute tour of handover-rpc: serve, call, fail, wait for several calls, cancel, and handle
//! a peer's end.

use handover_rpc::{Address, CallError, Calling, Config, Endpoint, Failure, Method};
use std::error::Error;
use std::thread;
use std::time::Duration;

const ECHO: Method = Method::new("echo");
const DIVIDE: Method = Method::new("divide");
const NAP: Method = Method::new("nap");
const STOP: Method = Method::new("stop");

fn main() -> Result<(), Box<dyn Error>> {
    // The program is the same over each transport: only the address differs.
    for how in ["sm://", "uds://", "tcp://127.0.0.1:0"] {
        let mut server = Endpoint::new(Config::default())?;
        let address = server.listen(&how.parse()?)?;
        register_procedures(&mut server)?;
        let serving = thread::spawn(move || server.serve());
        call(&address)?;
        serving.join().map_err(|_| "the server panicked")?;
    }
    Ok(())
}

/// Registers the procedures, and starts the pool.
fn register_procedures(server: &mut Endpoint) -> Result<(), Box<dyn Error>> {
    // A procedure of bytes: its arguments are not encoded.
    server.register_bytes("echo", 0, |_, bytes, answer| {
        answer.extend_from_slice(bytes);
        Ok(())
    })?;
    // Any serde types; a refusal has the handler's own number and text.
    server.register("divide", 0, |_, (a, b): (i64, i64)| {
        a.checked_div(b).ok_or_else(|| Failure::new(1, format!("cannot divide {a} by {b}")))
    })?;
    // Slow handlers run on the pool's threads.
    server.start_pool()?;
    server.register_pooled("nap", 0, |ms: u64| {
        thread::sleep(Duration::from_millis(ms));
        Ok(ms)
    })?;
    server.register("stop", 0, |context, ()| {
        context.stop();
        Ok(())
    })?;
    Ok(())
}

/// Calls each procedure of the server.
fn call(address: &Address) -> Result<(), Box<dyn Error>> {
    let mut client = Endpoint::new(Config::default())?;
    let peer = client.connect(address)?;
    println!("{address}");

    let hello: (u8, u8) = client.call(peer, ECHO, &(7u8, 8u8))?;
    println!("  echo of (7, 8): {hello:?}");

    match client.call::<_, i64>(peer, DIVIDE, &(1, 0)) {
        Err(CallError::Failed(failure)) => println!("  divide(1, 0): {failure}"),
        other => return Err(format!("divide(1, 0) is {other:?} instead of an error").into()),
    }

    // Two naps run at the same time, and the shorter one ends first.
    let mut naps = Vec::new();
    for ms in [60u64, 5] {
        naps.push(client.start::<_, u64>(peer, NAP, &ms)?);
    }
    while let Some((_, ms)) = client.wait_any(&mut naps) {
        println!("  a nap of {} ms is over", ms?);
    }

    let late = client.call_within::<_, u64>(peer, NAP, &200u64, Duration::from_millis(10));
    match late {
        Err(error) => println!("  a nap of 200 ms with a deadline of 10: {error}"),
        // This thread did not get the CPU for as long.
        Ok(ms) => println!("  a nap of {ms} ms was over before its deadline was noticed"),
    }

    // The end of a peer is an error, even if its process was killed.
    client.call::<_, ()>(peer, STOP, &())?;
    let gone = client.call::<_, ()>(peer, NAP, &1u64);
    println!("  after the server's exit: {}", gone.unwrap_err());
    Ok(())
}
