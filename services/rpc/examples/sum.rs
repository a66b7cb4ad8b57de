//! A service that sums bytes of its clients' memory, and a client. `serve` serves, an address calls
//! the server there, and without an argument a thread serves and the program calls it.
//!
//! `cargo run --release -p handover-rpc --example rpc-sum`

use handover_rpc::{
    AccessConfig, Address, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, Calling, Config,
    Context, Endpoint, Failure, Method, Rights,
};
use std::error::Error;

/// Length of the client's memory, in bytes.
const BYTES: usize = 1 << 20;
const SUM: Method = Method::new("sum");

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    if let Some(address) = argument.as_deref().filter(|it| *it != "serve") {
        return call(&address.parse()?);
    }
    let (mut server, address) = listen()?;
    if argument.is_some() {
        println!("{address}");
        server.serve();
        return Ok(());
    }
    let serving = std::thread::spawn(move || server.serve());
    call(&address)?;
    serving.join().map_err(|_| "the server panicked".into())
}

/// Creates a server that registers `sum`; returns it with its address.
fn listen() -> Result<(Endpoint, Address), Box<dyn Error>> {
    let access = AccessConfig::default().remote_stop(true);
    let mut server = Endpoint::new(Config::default().access(access))?;
    let memory = BulkMemory::shared(BYTES)?;
    server.register("sum", 0, move |context, handle| sum(context, handle, &memory))?;
    let address = server.listen(&"sm://".parse()?)?;
    Ok((server, address))
}

/// Pulls the memory of `handle` out of the caller's process. Returns the sum of the memory's bytes.
fn sum(context: &mut Context<'_>, handle: BulkHandle, memory: &BulkMemory) -> Result<u64, Failure> {
    let part = BulkPart::new(handle.len_bytes());
    let failed = |error: BulkError| Failure::new(1, error.to_string());
    context.pull(context.peer(), &handle, memory, part).map_err(failed)?;
    let mut bytes = vec![0; BYTES];
    memory.read(0, &mut bytes);
    Ok(bytes.into_iter().map(u64::from).sum())
}

/// Calls `sum` for this process's memory, and prints the result.
fn call(address: &Address) -> Result<(), Box<dyn Error>> {
    let mut client = Endpoint::new(Config::default())?;
    let server = client.connect(address)?;
    let memory = BulkMemory::shared(BYTES)?;
    memory.write(0, &[1; BYTES]);
    let handle = client.register_memory(&memory, Rights::Read)?;
    let total: u64 = client.call(server, SUM, &handle)?;
    println!("the sum of {BYTES} bytes is {total}");
    client.stop_peer(server)?; // allowed by remote_stop
    Ok(())
}
